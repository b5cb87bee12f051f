"""Passes of joint methods: blocks of subjects with every item, or observed cells alone.

A dense pass (`bound`) costs as much for a missing cell as for one that is observed. One
over the observed cells (`numerics.sparse`) gathers the other side's parameters and sums
along rows. Its time is proportional to the number of observed cells (cBMM, appendix
A.4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax.data.blocks import Block
from irtjax.data.responses import AbstractResponses
from irtjax.estimators.joint.bound import (
    BilinearParameters,
    ItemSweep,
    Quadratic,
    subject_sweep,
    sweep,
)
from irtjax.estimators.joint.common_bound import is_common


class RowSums(NamedTuple):
    """Sums over the cells of each row, in units of eta."""

    log_prob: Float[Array, " rows"]
    gradient: Float[Array, "rows p"]
    terms: Float[Array, "rows p"]
    moments: Float[Array, "rows pp"]


def cells_note(data: AbstractResponses) -> str:
    """The note of a fit whose passes are over the observed cells of these data."""
    share = 100 * data.share_observed
    return f"mm visited the observed cells alone: {share:.2g} % of all cells"


def sweep_responses(
    data: Any,
    factors: BilinearParameters,
    temperature: Array | float,
    cells: Any,
    *,
    common: bool | None = None,
) -> ItemSweep:
    """`bound.sweep`, however the responses are laid out.

    `common` None: as `common_bound.is_common` decides. Of observed cells alone every
    row has its own curvature.
    """
    if not data.has_blocks:
        return sparse_sweep(data, factors, temperature, cells)
    if common is None:
        common = is_common(data, factors.theta.shape[1])
    return sweep(data, factors, temperature, cells, common)


def sweep_subjects(
    data: Any,
    factors: BilinearParameters,
    temperature: Array | float,
    cells: Any,
) -> Quadratic:
    """`bound.subject_sweep`, however the responses are laid out."""
    if not data.has_blocks:
        return sparse_subject_sweep(data, factors, temperature, cells)
    common = is_common(data, factors.theta.shape[1])
    return subject_sweep(data, factors, temperature, cells, common)


def sums_of(
    mapped: Callable[..., Any],
    own: Float[Array, "rows p"],
    other: Float[Array, "others p"],
    weight: Float[Array, " others"] | None,
    cells: Any,
    single: bool,
    kept: int,
) -> RowSums:
    """Sums over the cells of each row, eta being the product own . other.

    Args:
        mapped: `map_subjects` or `map_items` of the data, whose blocks have the rows.
        own: Parameters of the rows.
        other: Those of the other side.
        weight: Weights of the other side; None for 1.
        cells: Log p and slope of a response (`AbstractCells`).
        single: Whether every cell is one trial.
        kept: Columns of `other` of which sums are wanted, the first ones.
    """
    num, dtype = own.shape[0], own.dtype

    def rows(block: Block) -> RowSums:
        theirs, values = block.columns(other), block.values.astype(dtype)
        eta = block.products(block.rows(own), theirs)
        exposure = jnp.ones_like(values)
        if block.exposure is not None:
            exposure = block.exposure.astype(dtype)
        cell = cells.cell(values, exposure, eta, None, single)
        bend = exposure if cell.bend is None else cell.bend
        each = 1 if weight is None else block.columns(weight.astype(dtype))
        log_prob, slope, bend = (x * each for x in (cell.log_prob, cell.slope, bend))
        right = theirs[..., :kept]
        return RowSums(
            jnp.sum(log_prob, axis=1),
            block.sums(slope, right),
            block.sums(jnp.abs(slope), jnp.abs(right)),
            block.outer_sums(bend, right, right).reshape(-1, kept**2),
        )

    zeros = lambda *shape: jnp.zeros((num, *shape), dtype)
    init = RowSums(zeros(), zeros(kept), zeros(kept), zeros(kept**2))
    return mapped(rows, init, dtype)


def sparse_sweep(
    data: AbstractResponses,
    factors: BilinearParameters,
    temperature: Array | float,
    cells: Any,
) -> ItemSweep:
    """`bound.sweep` over the observed cells: a pass by subject and one by item."""
    subjects, log_lik, row_terms = _by_subject(data, factors, temperature, cells)
    theta, dims = factors.theta, factors.theta.shape[1]
    design = jnp.concatenate([jnp.ones_like(theta[:, :1]), theta], 1)
    own, weight = factors.stacked / temperature, data.subject_weight
    mapped, kept = data.map_items, 1 + dims
    sums = sums_of(mapped, own, design, weight, cells, data.single, kept)
    moments = sums.moments.reshape(-1, 1 + dims, 1 + dims)
    bend = cells.curvature / temperature**2
    return ItemSweep(
        log_lik,
        Quadratic(sums.gradient / temperature, moments * bend),
        subjects,
        sums.terms / temperature,
        row_terms,
    )


def sparse_subject_sweep(
    data: AbstractResponses,
    factors: BilinearParameters,
    temperature: Array | float,
    cells: Any,
) -> Quadratic:
    """`bound.subject_sweep` over the observed cells."""
    return _by_subject(data, factors, temperature, cells)[0]


def _by_subject(data, factors, temperature, cells) -> tuple[Quadratic, Array, Array]:
    """The bound in the abilities, log-likelihoods, and terms of the gradients."""
    theta, dims = factors.theta, factors.theta.shape[1]
    own = jnp.concatenate([theta, jnp.ones_like(theta[:, :1])], 1)
    slope, intercept = factors.discrimination, factors.intercept[:, None]
    other = jnp.concatenate([slope, intercept], 1) / temperature
    mapped, weight = data.map_subjects, data.item_weight
    sums = sums_of(mapped, own, other, weight, cells, data.single, dims)
    moments = sums.moments.reshape(-1, dims, dims) * cells.curvature
    return Quadratic(sums.gradient, moments), sums.log_prob, sums.terms
