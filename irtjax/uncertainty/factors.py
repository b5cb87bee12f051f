r"""Covariance of the items of a factor model, item by item.

Louis' identity with normal posteriors N(theta_i, C_i) of the abilities: the observed
information of item j about x_j = (a_j, d_j) is

    I_j = sum_i w_ij z_i z_i' - sum_i J_ij C_i J_ij' + prior,
    J_ij = r_ij E - w_ij z_i a_j',   z = (theta, 1),   E = (I; 0),

r and w the first and minus the second derivative of log p(y) in a'theta: the
information of known abilities less what is missing because they are estimated.
Information between items is left out.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax.likelihood.problem import Problem
from irtjax.likelihood.products import cells, outer, with_one
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
    """Covariance of (a_j, d_j) of every item, 0 where fixed, NaN if not identified.

    Args:
        problem: The problem; fixed coordinates have no error.
        items: Item records, discriminations `[items, dims]`.
        theta: Posterior means or modes of the abilities.
        posterior: Their posterior covariances.
        penalty: Weight of the items' priors.
    """
    data, slopes = problem.data, items.discrimination
    dtype, (num_items, dims) = slopes.dtype, slopes.shape
    size = block_size_for(data.num_subjects, num_items, dtype.itemsize)
    width = dims + 1
    flat_outer = outer(slopes)

    def body(carry, begin, is_new):
        values = take_block(data.values, begin, size).astype(dtype)
        exposure = take_block(data.exposure, begin, size)
        ability = take_block(theta, begin, size)
        block = take_block(posterior, begin, size).reshape(size, -1)
        found = cells(problem.model, items, ability, values, exposure)
        weight = is_new.astype(dtype)
        rows = take_block(data.subject_weight, begin, size)
        weight = weight if rows is None else weight * rows.astype(dtype)
        design = with_one(ability)
        spread = block @ flat_outer.T  # a'C a
        slope, curvature = found.slope, found.curvature
        of_design = outer(design) * weight[:, None]
        of_block = block * weight[:, None]
        parts = (
            (curvature - curvature**2 * spread).T @ of_design,
            (slope**2).T @ of_block,
            (slope * curvature).T @ outer(of_block, design),
        )
        return tuple(x + y for x, y in zip(carry, parts, strict=True))

    init = tuple(
        jnp.zeros((num_items, n), dtype) for n in (width**2, dims**2, dims**2 * width)
    )
    known, square, cross = scan_subject_blocks(body, init, data.num_subjects, size)
    information = known.reshape(num_items, width, width)
    square = square.reshape(num_items, dims, dims)
    cross = cross.reshape(num_items, dims, dims, width)
    cross = jnp.einsum("jklp,jl->jkp", cross, slopes)  # sum r w C a z'
    information = information.at[:, :dims, :dims].add(-square)
    information = information.at[:, :dims].add(cross)
    information = information.at[:, :, :dims].add(jnp.swapaxes(cross, 1, 2))
    priors = []
    for parameter in problem.model.family.parameters:
        prior = problem.model.priors.get(parameter.name)
        inverse = penalty / prior.sd**2 if isinstance(prior, Normal) else 0.0
        priors += [inverse] * parameter.columns
    unit = jnp.eye(width, dtype=dtype)
    information = information + jnp.asarray(priors, dtype) * unit
    information = weigh_rows(information, data.item_weight)
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
