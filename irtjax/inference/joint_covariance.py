r"""Covariance of the items of a joint factor model, item by item.

Louis' identity with normal posteriors N(theta_i, C_i) of the abilities: with x the
other coordinates of an item (its intercept, or several), the observed information of
item j about (a_j, x_j) is

    I_j = sum_i W_ij - sum_i J_ij C_i J_ij' + prior,
    J_ij = r_ij E - u_ij a_j',   E = (I; 0),   u_ij = (w_ij theta_i, w^x_ij),

r and w the first and minus the second derivative of log p(y) in t = a'theta, w^x minus
that in t and x, and W minus the second derivatives in (a_j, x_j) at theta_i.

This is for joint methods, which take abilities at their modes. E theta theta' would add
sum_i w_ij E C_i E' to the information: that of marginal estimates
(`marginal_factors`), whose loadings vary less. Of 15 items and two factors for 300
subjects, loadings by `mm` had the standard deviation 0.079 in 20 data sets; this
formula has 0.076, with that addition 0.054. Information between items is left out.
With few items it may be indefinite, and then items have no error.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax.data.blocks import Block, DenseBlock
from irtjax.likelihood.problem import Problem, is_positive
from irtjax.likelihood.products import item_cells, outer, row_cells
from irtjax.models.families.graded import CLOSEST
from irtjax.numerics.kernels import (
    block_size_for,
    sums_in_stretches,
    weigh_rows,
)
from irtjax.numerics.programs import stored_jit

#: Intercepts met within this many times their least distance; the information about
#: their difference, for each subject, of which other information has a hundredth.
MET, STIFF = 1.5, 25.0
#: Numbers of an observed cell that a pass holds at once, without its subject's.
CELL_NUMBERS = 12


def flat_share(dtype) -> float:
    """Largest eigenvalue of a direction that is not identified: rounding.

    Of information that is scaled to 1 for each parameter.
    """
    return max(1e-7, 100 * float(jnp.finfo(dtype).eps))


#: Covariances of (a_j, x_j), and what is lost, `[items, columns, columns]` each.
BlockCovariance = tuple[
    Float[Array, "items columns columns"], Float[Array, "items columns columns"]
]


def factor_covariance(
    problem: Problem,
    items: Any,
    theta: Float[Array, "subjects dims"],
    posterior: Float[Array, "subjects dims dims"],
    penalty: float | Array = 1.0,
    temperature: float | Array = 1.0,
) -> BlockCovariance:
    """Covariance of (a_j, x_j) of every item, 0 where fixed, and what is lost.

    The latter is what directions without identification would add; see `Covariance`.
    The passes are made in calls that show the share done.

    Args:
        problem: The problem; fixed coordinates have no error.
        items: Item records, discriminations `[items, dims]`.
        theta: Posterior means or modes of the abilities.
        posterior: Their posterior covariances.
        penalty: Weight of the items' priors.
        temperature: s, where priors are those of s a and s d.
    """
    data, dtype = problem.data, items.discrimination.dtype
    # As arrays: other weights need no program of their own.
    weights = jnp.asarray(penalty, dtype), jnp.asarray(temperature, dtype)
    blocks = data.num_subjects, _block_of(problem, items)
    if not data.has_blocks:
        blocks = data.item_stretches(dtype, _numbers_of_cell(items))
    return sums_in_stretches(
        lambda *part: _covariance_and_sums(
            problem, items, theta, posterior, weights, *part
        ),
        lambda: _no_sums(problem, items),
        *blocks,
    )


@stored_jit
def _covariance_and_sums(
    problem: Problem,
    items: Any,
    theta: Array,
    posterior: Array,
    weights: tuple[Array, Array],
    into: Any = None,
    between: Array | None = None,
) -> tuple[BlockCovariance, Any]:
    """`factor_covariance`, and its sums over subjects to go on from."""
    data, slopes = problem.data, items.discrimination
    num_items, dims = slopes.shape
    sums_over = _sums_of_blocks if data.has_blocks else _sums_by_item
    sums = sums_over(problem, items, theta, posterior, into, between)
    known, square, cross, border, along, corner = sums
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
    prior = prior_information(problem, items, *weights)
    information = weigh_rows(information + prior, data.item_weight)
    return inverse_blocks(information, estimated(problem, items)), sums


def _block_of(problem: Problem, items: Any) -> int:
    """Subjects of a block: the second derivatives of a cell are several arrays."""
    num_items, dims = items.discrimination.shape
    rest = problem.model.family.num_columns - dims
    wide = num_items * (1 if rest == 1 else (1 + rest) ** 2)
    itemsize = items.discrimination.dtype.itemsize
    return block_size_for(problem.data.num_subjects, wide, itemsize)


def _no_sums(problem: Problem, items: Any):
    """The sums of `_sums_of_blocks` over no subjects."""
    num_items, dims = items.discrimination.shape
    each = range(problem.model.family.num_columns - dims)
    none = lambda *shape: jnp.zeros((num_items, *shape), items.discrimination.dtype)
    return (
        *(none(n) for n in (dims**2, dims**2, dims**3)),
        [none(dims) for _ in each],
        [none(dims**2) for _ in each],
        [[none() for _ in each] for _ in each],
    )


def _sums_of_blocks(
    problem: Problem,
    items: Any,
    theta: Array,
    posterior: Array,
    into: Any = None,
    between: Array | None = None,
):
    """The sums over subjects that the information of items is made of."""
    data, dtype = problem.data, items.discrimination.dtype
    size, flat_outer = _block_of(problem, items), outer(items.discrimination)

    def of_block(part: DenseBlock, is_new: Array):
        theta_, values = part.rows(theta), part.values.astype(dtype)
        block = part.rows(posterior).reshape(size, -1)
        derivatives = item_cells(problem.model, items, theta_, values, part.exposure)
        weight = weigh_rows(is_new, part.rows(data.subject_weight))
        spread = block @ flat_outer.T  # a'C a
        slope, curvature = derivatives.slope, derivatives.curvature
        of_block, ability = block * weight[:, None], theta_ * weight[:, None]
        less = lambda bend, one, other: (bend - one * other * spread).T
        return (
            less(curvature, curvature, curvature) @ outer(ability, theta_),
            (slope**2).T @ of_block,
            (slope * curvature).T @ outer(of_block, theta_),
            [less(x, curvature, x) @ ability for x in derivatives.mixed],
            [(slope * x).T @ of_block for x in derivatives.mixed],
            [
                [
                    less(bend, derivatives.mixed[h], derivatives.mixed[k]) @ weight
                    for k, bend in enumerate(row)
                ]
                for h, row in enumerate(derivatives.square)
            ],
        )

    init = _no_sums(problem, items) if into is None else into
    return data.sum_subjects(of_block, init, dtype, size=size, between=between)


def _sums_by_item(
    problem: Problem,
    items: Any,
    theta: Array,
    posterior: Array,
    into: Any = None,
    between: Array | None = None,
):
    """`_sums_of_blocks` of right or wrong responses, from the observed cells alone."""
    data: Any = problem.data
    slopes = items.discrimination
    dtype = slopes.dtype
    weight, flat = data.subject_weight, posterior.reshape(len(theta), -1)

    def of_items(part: Block):
        mine, (ability, block) = part.rows(slopes), part.columns((theta, flat))
        product = part.products(mine, ability)
        values, exposure = part.values.astype(dtype), part.exposure
        own = jax.tree.map(part.rows, items)
        derivatives = row_cells(problem.model, own, product, values, exposure)
        each = 1 if weight is None else part.columns(weight.astype(dtype))
        slope, bend = derivatives.slope, derivatives.curvature
        spread = part.products(outer(mine), block)  # a'C a
        less, both = (bend - bend**2 * spread) * each, slope * bend * each
        by_block = part.sums(both, block)
        flat_sums = lambda cells, left, right: part.outer_sums(
            cells, left, right
        ).reshape(len(mine), -1)
        # The intercept adds to the product, so its derivatives are those in it.
        return (
            flat_sums(less, ability, ability),
            part.sums(slope**2 * each, block),
            flat_sums(both, block, ability),
            [part.sums(less, ability)],
            [by_block],
            [[jnp.sum(less, axis=1)]],
        )

    init, numbers = _no_sums(problem, items), _numbers_of_cell(items)
    return data.map_items(
        of_items, init, dtype, numbers=numbers, into=into, between=between
    )


def _numbers_of_cell(items: Any) -> int:
    """What a pass over observed cells holds of each at once."""
    dims = items.discrimination.shape[1]
    return CELL_NUMBERS + dims + dims**2


@stored_jit
def estimated(problem: Problem, items: Any) -> Array:
    """The coordinates with an error: free, and not a slope at its bound 0.

    Nor slopes that are all 0, as a group lasso leaves them.
    """
    dims = items.discrimination.shape[1]
    inside = (items.discrimination > 0) | (not is_positive(problem.model))
    inside = inside & jnp.any(items.discrimination != 0, axis=1, keepdims=True)
    free = problem.free & jnp.pad(
        inside, ((0, 0), (0, problem.free.shape[1] - dims)), constant_values=True
    )
    weight = problem.data.item_weight
    return free if weight is None else free & (weight > 0)[:, None]


@stored_jit
def prior_information(
    problem: Problem,
    items: Any,
    penalty: float | Array = 1.0,
    temperature: float | Array = 1.0,
) -> Float[Array, "items columns columns"]:
    """Minus the second derivatives of the log priors in (a_j, x_j).

    Graded intercepts that met around a category that no subject chose are one number:
    their difference has so much information that it has no error.
    """
    model, dims = problem.model, items.discrimination.shape[1]

    def log_prior(row):
        scaled = temperature * row
        slopes = jnp.zeros(dims, row.dtype)
        record = model.family.constrain(jnp.concatenate([slopes, scaled[dims:]]))
        return model.log_prior(record._replace(discrimination=scaled[:dims]))

    rows = jax.vmap(model.family.unconstrain)(items)
    rows = rows.at[:, :dims].set(items.discrimination)
    curvature = -penalty * jax.vmap(jax.hessian(log_prior))(rows)
    curvature = jnp.where(jnp.isfinite(curvature), curvature, 0)
    if model.family.intercept_name not in model.family.decreasing:
        return curvature
    cuts = list(model.family.intercept_columns)
    met = -jnp.diff(rows[:, cuts], axis=1) < MET * CLOSEST
    strength = STIFF * problem.data.num_subjects
    unit = np.eye(curvature.shape[1])
    across = jnp.asarray(unit[cuts[1:]] - unit[cuts[:-1]], curvature.dtype)
    return curvature + strength * jnp.einsum(
        "jh,hp,hq->jpq", met.astype(curvature.dtype), across, across
    )


def inverse_blocks(information: Array, free: Array) -> tuple[Array, Array]:
    """Inverses over free and identified directions, and what the others would add."""
    unit = jnp.eye(information.shape[1], dtype=information.dtype)
    free_pairs = free[:, :, None] & free[:, None, :]
    diagonal = jnp.diagonal(information, axis1=1, axis2=2)
    scale = jnp.sqrt(jnp.where(free & (diagonal > 0), diagonal, 1))
    scale = scale[:, :, None] * scale[:, None, :]
    values, vectors = jnp.linalg.eigh(jnp.where(free_pairs, information / scale, unit))
    flat = (values <= flat_share(information.dtype))[:, None]
    part = lambda which, weights: (
        jnp.where(
            free_pairs,
            jnp.einsum(
                "jpk,jk,jqk->jpq", jnp.where(which, vectors, 0), weights, vectors
            ),
            0,
        )
        / scale
    )
    sizes = jnp.maximum(jnp.abs(values), 1e-20)
    return part(~flat, 1 / sizes), part(flat, 1 / sizes)
