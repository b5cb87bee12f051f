r"""Covariance of the items of a factor model, item by item.

Louis' identity with normal posteriors N(theta_i, C_i) of the abilities: with x the
other coordinates of an item (its intercept, or several), the observed information of
item j about (a_j, x_j) is

    I_j = sum_i W_ij - sum_i J_ij C_i J_ij' + prior,
    J_ij = r_ij E - u_ij a_j',   E = (I; 0),   u_ij = (w_ij theta_i, w^x_ij),

r and w the first and minus the second derivative of log p(y) in t = a'theta, w^x minus
that in t and x, and W minus the second derivatives in (a_j, x_j): the information of
known abilities less what is missing because they are estimated.
Information between items is left out.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax.likelihood.problem import Problem
from irtjax.likelihood.products import item_cells, outer
from irtjax.models.priors import Normal
from irtjax.numerics.kernels import (
    block_size_for,
    scan_subject_blocks,
    take_block,
    weigh_rows,
)
from irtjax.numerics.programs import stored_jit


@stored_jit
def factor_covariance(
    problem: Problem,
    items: Any,
    theta: Float[Array, "subjects dims"],
    posterior: Float[Array, "subjects dims dims"],
    penalty: float = 1.0,
) -> Float[Array, "items columns columns"]:
    """Covariance of (a_j, x_j) of every item, 0 where fixed, NaN if not identified.

    Args:
        problem: The problem; fixed coordinates have no error.
        items: Item records, discriminations `[items, dims]`.
        theta: Posterior means or modes of the abilities.
        posterior: Their posterior covariances.
        penalty: Weight of the items' priors.
    """
    data, slopes = problem.data, items.discrimination
    dtype, (num_items, dims) = slopes.dtype, slopes.shape
    rest = problem.model.family.num_columns - dims
    # The second derivatives of a cell are several arrays.
    wide = num_items * (1 if rest == 1 else (1 + rest) ** 2)
    size = block_size_for(data.num_subjects, wide, dtype.itemsize)
    flat_outer = outer(slopes)

    def body(carry, begin, is_new):
        values = take_block(data.values, begin, size).astype(dtype)
        exposure = take_block(data.exposure, begin, size)
        theta_ = take_block(theta, begin, size)
        block = take_block(posterior, begin, size).reshape(size, -1)
        found = item_cells(problem.model, items, theta_, values, exposure)
        weight = is_new.astype(dtype)
        rows = take_block(data.subject_weight, begin, size)
        weight = weight if rows is None else weight * rows.astype(dtype)
        spread = block @ flat_outer.T  # a'C a
        slope, curvature = found.slope, found.curvature
        of_block, ability = block * weight[:, None], theta_ * weight[:, None]
        less = lambda bend, one, other: (bend - one * other * spread).T
        parts = (
            less(curvature, curvature, curvature) @ outer(ability, theta_),
            (slope**2).T @ of_block,
            (slope * curvature).T @ outer(of_block, theta_),
            [less(x, curvature, x) @ ability for x in found.mixed],
            [(slope * x).T @ of_block for x in found.mixed],
            [
                [
                    less(bend, found.mixed[h], found.mixed[k]) @ weight
                    for k, bend in enumerate(row)
                ]
                for h, row in enumerate(found.square)
            ],
        )
        return jax.tree.map(jnp.add, carry, parts)

    none = lambda *shape: jnp.zeros((num_items, *shape), dtype)
    each = range(rest)
    init = (
        *(none(n) for n in (dims**2, dims**2, dims**3)),
        [none(dims) for _ in each],
        [none(dims**2) for _ in each],
        [[none() for _ in each] for _ in each],
    )
    known, square, cross, border, along, corner = scan_subject_blocks(
        body, init, data.num_subjects, size
    )
    cross = jnp.einsum(
        "jklp,jl->jkp", cross.reshape(num_items, dims, dims, dims), slopes
    )
    information = (known - square).reshape(num_items, dims, dims)
    information = information + cross + jnp.swapaxes(cross, 1, 2)
    along = [
        jnp.einsum("jkl,jl->jk", x.reshape(num_items, dims, dims), slopes)
        for x in along
    ]
    border = jnp.stack([x + y for x, y in zip(border, along, strict=True)], -1)
    corner = jnp.stack([jnp.stack(row, -1) for row in corner], 1)
    information = jnp.concatenate(
        [
            jnp.concatenate([information, border], 2),
            jnp.concatenate([jnp.swapaxes(border, 1, 2), corner], 2),
        ],
        1,
    )
    return _inverse(problem, information, penalty)


def _inverse(problem: Problem, information: Array, penalty: float) -> Array:
    """The inverse for free coordinates, priors included; see `factor_covariance`."""
    dtype = information.dtype
    priors = []
    for parameter in problem.model.family.parameters:
        prior = problem.model.priors.get(parameter.name)
        inverse = penalty / prior.sd**2 if isinstance(prior, Normal) else 0.0
        priors += [inverse] * parameter.columns
    unit = jnp.eye(information.shape[1], dtype=dtype)
    information = information + jnp.asarray(priors, dtype) * unit
    information = weigh_rows(information, problem.data.item_weight)
    free = problem.free
    both = free[:, :, None] & free[:, None, :]
    information = jnp.where(both, information, unit)
    values, vectors = jnp.linalg.eigh(information)
    floor = 1e-8 * values[:, -1:]
    inverse = jnp.einsum("jpk,jk,jqk->jpq", vectors, 1 / values, vectors)
    inverse = jnp.where(
        jnp.all(values > floor, axis=1)[:, None, None], inverse, jnp.nan
    )
    return jnp.where(both, inverse, 0)
