"""Modes of several abilities, from all cells of a block or from the observed ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from irtjax.likelihood.products import Cells, cells, chosen_cells, outer
from irtjax.models.model import Model
from irtjax.numerics.kernels import positive_definite_solve, weigh_rows
from irtjax.numerics.sparse import Bucket

#: Longest step, in prior standard deviations.
LONGEST = 2.0


class Rows(NamedTuple):
    """The responses of a block of subjects, as functions; a_j are slopes.

    Attributes:
        cells: Log p of the cells and its derivatives, at abilities `[rows, dims]`.
        pull: Sums of a number for each cell times v_j a_j, v the items' weights.
        bend: Sums of it times v_j a_j a_j', `[rows, dims, dims]`.
        variance: a_j'C a_j of each cell, from C `[rows, dims, dims]`.
    """

    cells: Callable[[Array], Cells]
    pull: Callable[[Array], Array]
    bend: Callable[[Array], Array]
    variance: Callable[[Array], Array]


def dense_rows(
    model: Model, items: Any, weight: Array | None, values, exposure
) -> Rows:
    """Of a block with every item: `values` are `[rows, items]`."""
    slopes, dims = items.discrimination, items.discrimination.shape[1]
    weighted, products = weigh_rows(slopes, weight), weigh_rows(outer(slopes), weight)
    return Rows(
        lambda theta: cells(model, items, theta, values, exposure),
        lambda each: each @ weighted,
        lambda each: (each @ products).reshape(-1, dims, dims),
        lambda inverse: inverse.reshape(len(inverse), -1) @ outer(slopes).T,
    )


def observed_rows(model: Model, items: Any, weight: Array | None, part: Bucket) -> Rows:
    """Of some subjects with the items that they answered."""
    slopes, item = items.discrimination[part.column], part.column
    dtype = slopes.dtype
    values, exposure = part.value.astype(dtype), part.exposure.astype(dtype)
    weighted = slopes
    if weight is not None:
        weighted = slopes * weight.astype(dtype)[item][..., None]
    product = lambda theta: jnp.einsum("rk,rwk->rw", theta, slopes)
    return Rows(
        lambda theta: chosen_cells(
            model, items, product(theta), item, values, exposure
        ),
        lambda each: jnp.einsum("rw,rwk->rk", each, weighted),
        lambda each: jnp.einsum("rw,rwk,rwl->rkl", each, weighted, slopes),
        lambda inverse: jnp.einsum("rkl,rwk,rwl->rw", inverse, slopes, slopes),
    )


def find_modes(
    rows: Rows, first: Array, mean: Array, precision: Array, num_newton: int
) -> tuple[Array, Array, Array, Array]:
    """Modes, covariances, posterior means, and the length of the last step."""

    def derivatives(theta):
        found = rows.cells(theta)
        # Of families that are not concave the upward part is left out.
        weight = jnp.maximum(found.curvature, 0)
        gradient = rows.pull(found.slope) - (theta - mean) @ precision
        return gradient, rows.bend(weight) + precision, found.bend

    def newton(_, state):
        theta, _ = state
        gradient, curvature, _ = derivatives(theta)
        step, _ = positive_definite_solve(curvature, gradient)
        length = jnp.max(jnp.abs(step), axis=1, keepdims=True)
        step = step * jnp.minimum(1, LONGEST / jnp.maximum(length, 1e-30))
        return theta + step, jnp.max(jnp.abs(step), axis=1)

    none = jnp.zeros(first.shape[0], first.dtype)
    theta, last = lax.fori_loop(0, num_newton, newton, (first, none))
    _, curvature, bend = derivatives(theta)
    column = lambda unit: positive_definite_solve(
        curvature, jnp.broadcast_to(unit, theta.shape)
    )[0]
    unit = jnp.eye(theta.shape[1], dtype=theta.dtype)
    inverse = jax.vmap(column, out_axes=-1)(unit)
    skew = rows.pull(bend * rows.variance(inverse))
    skew = jnp.einsum("nkl,nl->nk", inverse, skew)
    return theta, inverse, theta - skew / 2, last
