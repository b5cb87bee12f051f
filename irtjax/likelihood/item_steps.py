"""Newton steps of items on the expected log-likelihood of their counts.

Given the expected counts of a pass over the data (`likelihood.counts`), items are
independent. Derivatives of their objectives are sums over nodes, of one ability or of
several. With several abilities discriminations are coordinates themselves, of which
some may end at a bound of 0, which logarithms would never reach.

Where the expected log-likelihood is concave in intercepts and slopes, as for right or
wrong by both links, graded responses (Pratt 1981) and partial credit, a Newton step
rises if it is short enough; elsewhere the curvature is modified.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from irtjax.models.model import Model
from irtjax.models.predictor import AbilityProducts
from irtjax.numerics.kernels import derivatives_of, positive_definite_solve
from irtjax.numerics.nnls import nnls

#: Longest move of a coordinate in one Newton step.
LONGEST_STEP = 2.0
#: Trials of a step, each a quarter of the one before.
NUM_TRIALS = 8


class NodeCounts(Protocol):
    """Counts of responses at nodes, as far as items depend on them; see `Counts`."""

    @property
    def base(self) -> Array:
        """Exposure, `[nodes, items]` or `[nodes, 1]`."""
        ...

    @property
    def statistics(self) -> tuple[Array, ...]:
        """Sums of each statistic, `[nodes, items]`."""
        ...


class ItemDerivatives(NamedTuple):
    """Per item: the expected objective, its gradient and minus its Hessian."""

    value: Float[Array, " items"]
    gradient: Float[Array, "items columns"]
    curvature: Float[Array, "items columns columns"]


def _over_cells(function, coordinates, nodes, counts: NodeCounts):
    """A scalar function of (row of coordinates, node, counts) on the whole table."""
    base = jnp.broadcast_to(counts.base, counts.statistics[0].shape)
    over_items = jax.vmap(function, in_axes=(0, None, 0))
    over_cells = jax.vmap(over_items, in_axes=(None, 0, 0))
    return over_cells(coordinates, nodes, (base, *counts.statistics))


def _cell_objective(model: Model):
    """Expected log-likelihood of one cell of the (node, item) table."""

    def objective(row, node, counts):
        natural = model.family.natural(model.family.constrain(row), node)
        return sum(c * g for c, g in zip(counts, natural, strict=True))

    return objective


def expected_value(
    model: Model, coordinates: Array, nodes: Array, counts: NodeCounts, frame: Array
) -> Float[Array, " items"]:
    """Expected complete-data log-likelihood plus log prior of each item."""
    cells = _over_cells(_cell_objective(model), coordinates, nodes, counts)
    value = jnp.ones(len(nodes), coordinates.dtype) @ cells
    return value + model.log_priors_in(coordinates, frame)


def expected_derivatives(
    model: Model, coordinates: Array, nodes: Array, counts: NodeCounts, frame: Array
) -> ItemDerivatives:
    """Value, gradient and curvature of each item's expected objective.

    Derivatives are taken cell by cell in forward mode and summed over nodes by a
    product with the abilities at the nodes and their products (`AbilityProducts`):
    discriminations act through the predictor only, so their derivatives are those of
    the intercepts times abilities, and are never computed apart. (Measured: 0.2 data
    products for the 2PL where nested autodiff of the summed objective takes 2.3.)
    """
    family = model.family
    cell = _cell_objective(model)
    columns, slopes = family.num_columns, len(family.slope_columns)
    slope, at_nodes = int(slopes > 0), AbilityProducts.of(nodes)
    unit = jnp.eye(columns, dtype=coordinates.dtype)

    def along(function, column):
        def directional(row, node, count):
            at_row = lambda r: function(r, node, count)
            return jax.jvp(at_row, (row,), (unit[column],))[1]

        return directional

    def moments(function, order):
        table = _over_cells(function, coordinates, nodes, counts)
        return at_nodes.table(table, order)

    value = moments(cell, 0)[0]
    first: dict[int, Array] = {}
    second: dict[tuple[int, int], Array] = {}
    for i in range(slopes, columns):
        partial = along(cell, i)
        first[i] = moments(partial, slope)
        for j in range(slopes, i + 1):
            second[i, j] = second[j, i] = moments(along(partial, j), 2 * slope)
    gradient = {i: first[i][0] for i in first}
    hessian = {pair: second[pair][0] for pair in second}
    intercepts = family.intercept_columns
    total = lambda parts: jnp.sum(jnp.stack(list(parts)), axis=0)
    for a in range(slopes):
        gradient[a] = total(first[k][1 + a] for k in intercepts)
        for b in range(a + 1):
            row = at_nodes.pair[a, b]
            hessian[a, b] = hessian[b, a] = total(
                second[k, h][row] for k in intercepts for h in intercepts
            )
        for j in range(slopes, columns):
            hessian[a, j] = hessian[j, a] = total(
                second[k, j][1 + a] for k in intercepts
            )
    log_prior = lambda row, weight: derivatives_of(
        lambda x: model.log_prior_in(x, frame, weight)
    )(row)
    prior, prior_gradient, prior_hessian = jax.vmap(log_prior)(
        coordinates, model.prior_weight
    )
    every = range(columns)
    gradients = jnp.stack([gradient[i] for i in every], -1)
    rows = [jnp.stack([hessian[i, j] for j in every], -1) for i in every]
    hessians = jnp.stack(rows, -2)
    if slopes and family.parameters[0].bijection.kind == "positive":
        is_slope = np.arange(columns) < slopes
        scale = jnp.where(is_slope, jnp.exp(coordinates), 1)
        gradients = gradients * scale
        hessians = hessians * scale[:, :, None] * scale[:, None, :]
        hessians = hessians + unit * (gradients * is_slope)[:, None, :]
    hessians = hessians + prior_hessian
    return ItemDerivatives(value + prior, gradients + prior_gradient, -hessians)


def shortened_step(
    value_of: Callable[[Array], Float[Array, " items"]],
    rows: Float[Array, "items columns"],
    step: Float[Array, "items columns"],
    value: Float[Array, " items"],
) -> Float[Array, "items columns"]:
    """The rows after their steps, quartered until no item's value falls.

    A row stays where all `NUM_TRIALS` of its steps lower `value_of`, or make it NaN;
    `value` are the values at the rows. Most steps are accepted at once, so that the
    loop takes one evaluation.
    """
    least = value - 8 * jnp.finfo(value.dtype).eps * jnp.abs(value)

    def trial(carry):
        share, done, count = carry
        done = done | (value_of(rows + share[:, None] * step) >= least)
        return jnp.where(done, share, share / 4), done, count + 1

    waits = lambda carry: jnp.any(~carry[1]) & (carry[2] < NUM_TRIALS)
    first = jnp.ones_like(value), jnp.zeros(value.shape, bool), jnp.zeros((), jnp.int32)
    share, done, _ = lax.while_loop(waits, trial, first)
    return rows + jnp.where(done, share, 0)[:, None] * step


class ItemUpdate(NamedTuple):
    """New coordinates, and gradient and diagonal of the curvature at the old ones.

    The gradient is 0 where a coordinate is fixed, at its bound or moves with another
    one; the curvature is positive.
    """

    coordinates: Float[Array, "items columns"]
    gradient: Float[Array, "items columns"]
    curvature: Float[Array, "items columns"]


def improve_items(
    model: Model,
    coordinates: Float[Array, "items columns"],
    free: Array,
    nodes: Array,
    counts: NodeCounts,
    frame: Float[Array, "2"],
    num_newton: int,
    item_weight: Float[Array, " items"] | None = None,
    bounded: bool = False,
    together: Float[Array, "items columns columns"] | None = None,
) -> ItemUpdate:
    """Raises each item's expected objective by safeguarded Newton steps.

    Items are independent, so this is one small modified Newton step for all of them
    at once. A step that lowers an item's objective is shortened for that item
    (`shortened_step`). Common parameters make the step and its acceptance one decision
    for all items, weighted by `item_weight`. `frame` is that of the priors
    (`Model.prior_frame`). With `bounded`, coordinates of slopes stay at or above 0.
    Entry (h, g) of `together` is 1 where coordinate h moves with g, the first of those
    that do; None where each moves alone.
    """
    columns = coordinates.shape[1]
    common = model.family.common_columns
    slopes = np.isin(np.arange(columns), model.family.slope_columns)
    one = jnp.ones(coordinates.shape[0], coordinates.dtype)
    weight = one if item_weight is None else item_weight
    if together is not None:
        free = free & (jnp.sum(together, axis=1) > 0)

    def joint(value):
        return one * jnp.sum(weight * value) if common else value

    identity = jnp.eye(columns, dtype=coordinates.dtype)

    def propose(point):
        """Objective, gradient and curvature at a point, and a bounded step."""
        value, gradient, curvature = expected_derivatives(
            model, point, nodes, counts, frame
        )
        if together is not None:
            gradient = jnp.einsum("jhg,jh->jg", together, gradient)
            curvature = jnp.einsum("jhg,jhk,jkl->jgl", together, curvature, together)
        gradient = jnp.where(free, gradient, 0)
        free_pairs = free[:, :, None] & free[:, None, :]
        curvature = jnp.where(free_pairs, curvature, identity)
        diagonal = jnp.diagonal(curvature, axis1=1, axis2=2)
        if common:
            step, gradient, diagonal = _common_step(
                gradient, curvature, diagonal, common, weight
            )
        elif bounded:
            step = bounded_step(gradient, curvature, point, free, slopes)
            gradient = jnp.where(slopes & (point <= 0), 0, gradient)
        else:
            step, _ = positive_definite_solve(curvature, gradient)
        axis = None if common else 1
        longest = jnp.max(jnp.abs(step), axis=axis, keepdims=True)
        step = step * jnp.minimum(1, LONGEST_STEP / jnp.maximum(longest, 1e-30))
        if together is not None:
            step = jnp.einsum("jhg,jg->jh", together, step)
        return joint(value), gradient, diagonal, step

    def value_of(point):
        return joint(expected_value(model, point, nodes, counts, frame))

    value, gradient, diagonal, step = propose(coordinates)
    best = shortened_step(value_of, coordinates, step, value)
    for _ in range(num_newton - 1):
        value, _, _, step = propose(best)
        best = shortened_step(value_of, best, step, value)
    floor = jnp.finfo(value.dtype).tiny * 1e6
    return ItemUpdate(best, gradient, jnp.maximum(jnp.abs(diagonal), floor))


def bounded_step(
    gradient: Float[Array, "items columns"],
    curvature: Float[Array, "items columns columns"],
    rows: Float[Array, "items columns"],
    free: Bool[Array, "items columns"],
    slopes: np.ndarray,
) -> Float[Array, "items columns"]:
    """To the maximum of each quadratic, where the columns `slopes` stay at or above 0.

    The others are eliminated by their Schur complement, which leaves non-negative
    least squares in the slopes. Where a coordinate is not `free`, the gradient is 0 and
    the curvature that of the identity.
    """
    inner, outer = np.flatnonzero(~slopes), np.flatnonzero(slopes)
    base = curvature[:, inner][:, :, inner]
    cross, own = curvature[:, inner][:, :, outer], curvature[:, outer][:, :, outer]
    right = jnp.concatenate([cross, gradient[:, inner, None]], axis=2)
    solve = jax.vmap(lambda x: positive_definite_solve(base, x)[0], 2, 2)
    solved = solve(right)
    # A little more curvature where the complement is all rounding error.
    ridge = 100 * jnp.finfo(rows.dtype).eps * jnp.diagonal(own, axis1=1, axis2=2)
    schur = own - jnp.einsum("jmk,jml->jkl", cross, solved[..., :-1])
    schur = schur + ridge[:, :, None] * jnp.eye(len(outer), dtype=rows.dtype)
    target = gradient[:, outer] - jnp.einsum("jmk,jm->jk", cross, solved[..., -1])
    target = target + jnp.einsum("jkl,jl->jk", schur, rows[:, outer])
    move = jax.vmap(nnls)(schur, target) - rows[:, outer]
    move = jnp.where(free[:, outer], move, 0)  # Exactly.
    back = solved[..., -1] - jnp.einsum("jmk,jk->jm", solved[..., :-1], move)
    place = np.argsort(np.concatenate([inner, outer]))
    return jnp.concatenate([back, move], axis=1)[:, place]


def _common_step(gradient, curvature, diagonal, common: tuple[int, ...], weight):
    """Newton step, gradient and diagonal; common columns have the totals over items.

    The matrix is block diagonal with a border: the own columns of each item are
    eliminated (Schur complement), then the common ones are solved for.
    """
    columns = gradient.shape[1]
    own = np.setdiff1d(np.arange(columns), common)
    shared = np.asarray(common)
    blocks = curvature[:, own][:, :, own]
    border = curvature[:, own][:, :, shared]
    total = weight @ gradient[:, shared]
    corner = jnp.tensordot(weight, curvature[:, shared][:, :, shared], 1)
    inner, _ = positive_definite_solve(blocks, gradient[:, own])
    across = [
        positive_definite_solve(blocks, border[:, :, k])[0] for k in range(len(common))
    ]
    cross = jnp.stack(across, axis=-1)
    schur = corner - jnp.einsum("j,juc,jud->cd", weight, border, cross)
    right = total - jnp.einsum("j,juc,ju->c", weight, border, inner)
    move, _ = positive_definite_solve(schur, right)
    place = np.argsort(np.concatenate([own, shared]))

    def joined(parts, common_part):
        wide = jnp.broadcast_to(common_part, (len(parts), len(common)))
        return jnp.concatenate([parts, wide], axis=1)[:, place]

    return (
        joined(inner - cross @ move, move),
        joined(gradient[:, own], total),
        joined(diagonal[:, own], jnp.diagonal(corner)),
    )
