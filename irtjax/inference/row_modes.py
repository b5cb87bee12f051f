"""Modes of several abilities, from all cells of a block or from the observed ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from irtjax.data.blocks import Block
from irtjax.inference.moments import normal_moments
from irtjax.likelihood.products import BlockCells, Cells
from irtjax.models.model import Model
from irtjax.numerics.kernels import inverse_of, positive_definite_solve, weigh_rows

#: Longest step, in prior standard deviations.
LONGEST = 2.0


class Rows(NamedTuple):
    """The responses of a block of subjects, as functions; a_j are slopes.

    Attributes:
        cells: Log p of the cells and its derivatives, at abilities `[rows, dims]`.
        means: Means of their slopes and curvatures, from means and covariances of
            abilities.
        total: Sums of a number for each cell times v_j.
        pull: Sums of a number for each cell times v_j a_j, v the items' weights.
        bend: Sums of it times v_j a_j a_j', `[rows, dims, dims]`.
        variance: a_j'C a_j of each cell, from C `[rows, dims, dims]`.
    """

    cells: Callable[[Array], Cells]
    means: Callable[[Array, Array], tuple[Array, Array]]
    total: Callable[[Array], Array]
    pull: Callable[[Array], Array]
    bend: Callable[[Array], Array]
    variance: Callable[[Array], Array]


def rows_of(model: Model, items: Any, weight: Array | None, block: Block) -> Rows:
    """Of a block of subjects; `weight` are those of the items."""
    slopes, ones = items.discrimination, jnp.ones_like(items.discrimination[:, :1])
    weights = block.columns(weigh_rows(ones, weight))
    theirs = block.columns(slopes)
    weighted = theirs * weights
    cells_of = BlockCells.of(model, items, block)
    product = lambda theta: block.products(theta, theirs)
    variance = lambda spread: block.forms(spread, theirs)
    return Rows(
        lambda theta: cells_of.at(product(theta)),
        lambda theta, spread: cells_of.means(product(theta), variance(spread)),
        lambda each: block.sums(each, weights)[:, 0],
        lambda each: block.sums(each, weighted),
        lambda each: block.outer_sums(each, weighted, theirs),
        variance,
    )


class _At(NamedTuple):
    """Where the search is: log posteriors and their derivatives at abilities theta.

    `share` is how much of a Newton step is tried next, `left` the length of the step.
    """

    theta: Array
    height: Array
    gradient: Array
    curvature: Array
    share: Array
    left: Array


def _along(rows: Array, like: Array) -> Array:
    """A number for each row, in the dimensions of `like`."""
    return rows.reshape(-1, *[1] * (like.ndim - 1))


def find_modes(
    rows: Rows, first: Array, mean: Array, precision: Array, num_newton: int
) -> tuple[Array, Array, Array]:
    """Modes, covariances there, and the length of the Newton step left.

    A step that lowers the log posterior is taken back, and a quarter of it tried: where
    slopes are steep, log p is nearly linear but for a bend, and full steps from one
    side of it to the other need not end. The search ends where all steps are below the
    root of the rounding error.
    """
    dtype = first.dtype
    eps = jnp.finfo(dtype).eps

    def derivatives(theta):
        cell = rows.cells(theta)
        # Of families that are not concave the upward part is left out.
        weight = jnp.maximum(cell.curvature, 0)
        pull = (theta - mean) @ precision
        height = rows.total(cell.log_prob) - jnp.sum(pull * (theta - mean), axis=1) / 2
        gradient = rows.pull(cell.slope) - pull
        return height, gradient, rows.bend(weight) + precision

    def newton(state):
        at, count = state
        step, _ = positive_definite_solve(at.curvature, at.gradient)
        length = jnp.max(jnp.abs(step), axis=1)
        step = step * jnp.minimum(1, LONGEST / jnp.maximum(length, 1e-30))[:, None]
        theta = at.theta + at.share[:, None] * step
        height, gradient, curvature = derivatives(theta)
        slack = 8 * eps * (1 + jnp.abs(at.height))
        better = height >= at.height - slack
        share = jnp.where(better, jnp.minimum(1, 4 * at.share), at.share / 4)
        new = _At(theta, height, gradient, curvature, share, length)
        old = at._replace(share=share, left=length)
        chosen = lambda x, y: jnp.where(_along(better, x), x, y)
        return jax.tree.map(chosen, new, old), count + 1

    def unfinished(state):
        at, count = state
        return (count < num_newton) & jnp.any(at.left > eps**0.5)

    ones = jnp.ones(first.shape[0], dtype)
    begin = _At(first, *derivatives(first), ones, jnp.inf * ones)
    last, count = lax.while_loop(unfinished, newton, (begin, 0))
    theta, left = last.theta, jnp.where(count > 0, last.left, 0)
    return theta, inverse_of(derivatives(theta)[2])[0], left


def moments_of(
    rows: Rows, mode: Array, covariance: Array, mean: Array, precision: Array
) -> tuple[Array, Array]:
    """Means and covariances of abilities (`factor_moments`), a normal prior given."""

    def derivatives(theta, spread):
        slope, curvature = rows.means(theta, spread)
        gradient = rows.pull(slope) - (theta - mean) @ precision
        return gradient, rows.bend(jnp.maximum(curvature, 0)) + precision

    return normal_moments(derivatives, mode, covariance)
