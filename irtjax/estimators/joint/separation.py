"""Which rows of a table have no finite maximum likelihood estimate, the columns fixed.

The logits of a row are x_j'u, with the columns' x_j fixed: for a subject the slopes of
item j, for an item (1, abilities of subject j). With s_j = 1 for right and -1 for wrong
responses the estimate of u is infinite exactly if some direction has s_j x_j'u >= 0 for
all observed cells and > 0 for one (Albert and Anderson 1984). Cells with some trials
right and some wrong need x_j'u = 0. Intercepts of a subject's logits and lengths of x_j
have no effect on this, so intercepts are left out and x_j has length 1.

`separable` fits the logistic regression of a row by Newton steps. With w_j the chance
of the other response at any point, the step e solves a least squares problem:

    sum_j w_j (1 - w_j) (1 / (1 - w_j) - s_j x_j'e) s_j x_j = 0

The product with a separating direction is a sum of terms of which one must be at most
0, so that a separable row has a cell with s_j x_j'e >= 1 at every step. A row where all
are below 1 has a finite estimate; a row where all logits have the right sign has none.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from irtjax.data.blocks import Block
from irtjax.data.responses import AbstractResponses

#: A row in which no signed logit of a step reaches this is not separable; 1 is exact.
LEAST_STEP = 0.9
#: A row of which some pure cell still moves by this is separable after the last step.
LEAST_MOVE = 0.1
#: Least margin, of the length of a direction, whose sign is no rounding error.
LEAST_MARGIN = 1e-5


class CellDesign(NamedTuple):
    """The x of some rows' cells: one table for all rows, or one for each of them."""

    table: Float[Array, "*rows cells p"]

    @classmethod
    def of(cls, table: Array) -> CellDesign:
        """With x of length 1; an x of zeros remains."""
        length = jnp.linalg.norm(table, axis=-1, keepdims=True)
        return cls(jnp.where(length > 0, table / jnp.where(length > 0, length, 1), 0))

    @property
    def known(self) -> Array:
        """Which cells depend on u, `[cells]` or `[rows, cells]`."""
        return jnp.any(self.table != 0, axis=-1)

    def logits(self, u: Float[Array, "rows p"]) -> Float[Array, "rows cells"]:
        """x_j'u of all cells."""
        if self.table.ndim == 2:
            return u @ self.table.T
        return jnp.einsum("rp,rcp->rc", u, self.table)

    def total(self, weight: Float[Array, "rows cells"]) -> Float[Array, "rows p"]:
        """sum_j weight_j x_j."""
        if self.table.ndim == 2:
            return weight @ self.table
        return jnp.einsum("rc,rcp->rp", weight, self.table)

    def squares(self, weight: Float[Array, "rows cells"]) -> Float[Array, "rows p p"]:
        """sum_j weight_j x_j x_j'; column by column, so that no larger array exists."""
        if self.table.ndim == 2:
            column = lambda x: (weight * x) @ self.table
            return jnp.moveaxis(lax.map(column, self.table.T), 0, 1)
        return jnp.einsum("rcp,rcq->rpq", weight[..., None] * self.table, self.table)


def separable(
    design: CellDesign,
    right: Bool[Array, "rows cells"],
    wrong: Bool[Array, "rows cells"],
    free: Bool[Array, "rows p"],
    bounded: Bool[Array, " p"],
) -> Bool[Array, " rows"]:
    """Rows without a finite maximum likelihood estimate.

    Args:
        design: The x of their cells.
        right: Whether a cell has right responses; not if it is missing.
        wrong: Whether it has wrong ones. Cells of several trials may have both.
        free: Coordinates of u to estimate; the others are fixed.
        bounded: Coordinates of u that are at least 0. Each counts as a right response
            to x = (0, .., 1, .., 0).
    """
    right, wrong = right & design.known, wrong & design.known
    dtype, size = design.table.dtype, free.shape[1]
    single = jnp.finfo(dtype).bits < 64
    # Each step moves a separable row by log 2 or more. Its curvature falls as fast, and
    # must stay above rounding.
    num_steps = 16 if single else 40
    ridge = 10 * jnp.finfo(dtype).eps
    at_bound = bounded & free
    pure_right, pure_wrong, mixed = right & ~wrong, wrong & ~right, right & wrong

    def highest(step: Array, logit: Array) -> tuple[Array, Array]:
        """Largest signed logit of pure cells, and with those of the bounds."""
        low = jnp.asarray(-jnp.inf, dtype)
        of_cells = jnp.maximum(
            jnp.max(jnp.where(pure_right, logit, low), axis=1),
            jnp.max(jnp.where(pure_wrong, -logit, low), axis=1),
        )
        of_bounds = jnp.max(jnp.where(at_bound, step, low), axis=1)
        return of_cells, jnp.maximum(of_cells, of_bounds)

    def newton(u: Array, logit: Array) -> Array:
        share, at = jax.nn.sigmoid(logit), jax.nn.sigmoid(u)
        gradient = design.total(right * (1 - share) - wrong * share)
        weight = (right.astype(dtype) + wrong) * share * (1 - share)
        curvature = design.squares(weight)
        gradient = (gradient + at_bound * (1 - at)) * free
        diagonal = at_bound * at * (1 - at)
        curvature = curvature + diagonal[:, :, None] * jnp.eye(size, dtype=dtype)
        curvature = curvature * free[:, :, None] * free[:, None, :]
        scale = jnp.trace(curvature, axis1=1, axis2=2)[:, None]
        extra = jnp.where(free, ridge * scale + jnp.finfo(dtype).tiny, 1)
        curvature = curvature + extra[:, :, None] * jnp.eye(size, dtype=dtype)
        return jnp.linalg.solve(curvature, gradient[..., None])[..., 0]

    def body(carry):
        count, u, infinite, finite, _ = carry
        logit = design.logits(u)
        step = newton(u, logit)
        moves = design.logits(step)
        of_cells, most = highest(step, moves)
        margin = jnp.where(pure_right, logit, jnp.where(pure_wrong, -logit, jnp.inf))
        least = jnp.where(jnp.any(mixed, axis=1), -jnp.inf, jnp.min(margin, axis=1))
        inside = jnp.all(~at_bound | (u >= 0), axis=1)
        long = LEAST_MARGIN * jnp.linalg.norm(u, axis=1)
        infinite = infinite | (~finite & inside & (least > long))
        finite = finite | (~infinite & (most < LEAST_STEP))
        # The damping under which steps of a logistic regression never overshoot.
        seen = right | wrong
        size_of = jnp.max(jnp.where(seen, jnp.abs(moves), 0), axis=1)
        size_of = jnp.maximum(size_of, jnp.max(at_bound * jnp.abs(step), axis=1))
        damped = jnp.log1p(size_of) / jnp.maximum(size_of, jnp.finfo(dtype).tiny)
        u = u + jnp.where(size_of > 0, damped, 0)[:, None] * step
        return count + 1, u, infinite, finite, of_cells > LEAST_MOVE

    def going(carry):
        count, _, infinite, finite, _ = carry
        return (count < num_steps) & jnp.any(~(infinite | finite))

    rows = right.shape[0]
    none = jnp.zeros(rows, bool)
    empty = ~jnp.any(right | wrong, axis=1)
    init = jnp.zeros((), jnp.int32), jnp.zeros((rows, size), dtype), empty, none, none
    _, _, infinite, finite, moving = lax.while_loop(going, body, init)
    return infinite | (~finite & moving)


def separable_subjects(
    data: AbstractResponses, slope: Float[Array, "items K"]
) -> Bool[Array, " subjects"]:
    """Subjects without a finite estimate of their abilities, items fixed."""
    free = jnp.ones((data.num_subjects, slope.shape[1]), bool)
    return _by_row(data, slope, free, jnp.zeros(slope.shape[1], bool), False)


def separable_items(
    data: AbstractResponses,
    theta: Float[Array, "subjects K"],
    free: Bool[Array, "items K"],
    positive: bool,
) -> Bool[Array, " items"]:
    """Items without a finite estimate of intercept and slopes, abilities fixed."""
    ones = jnp.ones_like(theta[:, :1])
    free = jnp.concatenate([jnp.ones_like(free[:, :1]), free], axis=1)
    bounded = jnp.arange(free.shape[1]) > 0 if positive else jnp.zeros_like(free[0])
    table = jnp.concatenate([ones, theta], axis=1)
    return _by_row(data, table, free, bounded, True)


def _by_row(
    data: AbstractResponses, table: Array, free: Array, bounded: Array, by_item: bool
) -> Array:
    """`separable` of all subjects, or of all items, block by block."""
    table = CellDesign.of(table).table

    def rows(block: Block) -> Array:
        values, exposure = block.values, block.exposure
        n = 1 if exposure is None else exposure.astype(values.dtype)
        design, own = CellDesign(block.columns(table)), block.rows(free)
        return separable(design, values > 0, values < n, own, bounded)

    mapped = data.map_items if by_item else data.map_subjects
    return mapped(rows, jnp.ones(free.shape[0], bool), table.dtype)
