"""Passes of MM over the observed cells alone, for responses of which few are observed.

A dense pass costs as much for a missing cell as for one that is observed. Here the
cells of each subject lie together, and those of each item a second time, padded to a
few widths; a pass gathers the other side's parameters and sums along rows. Its time is
proportional to the number of observed cells (cBMM, appendix A.4).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from irtjax.data.responses import Responses
from irtjax.estimators.joint.bound import Factors, ItemSweep, Quadratic

#: Share of observed cells up to which passes over them alone are the quicker ones.
FEW_OBSERVED = 0.1
#: Cells from which the layout pays.
MANY_CELLS = 2**20
#: Cells of a chunk: what a pass holds at once, for each factor.
CHUNK = 2**16
#: Widths of rows grow by this factor, so that at most a third of the cells are padding.
GROWTH = 1.5


class Bucket(NamedTuple):
    """Rows with about as many cells each, in chunks; padding has exposure 0.

    Attributes:
        row: Their numbers; past the last one for rows of padding.
        column: The other side's number of each cell.
        value: Responses, and exposure (1, or trials).
    """

    row: Int[Array, "chunks rows"]
    column: Int[Array, "chunks rows width"]
    value: Array
    exposure: Array


class Sums(NamedTuple):
    """Sums over the cells of each row, in units of eta."""

    log_prob: Float[Array, " rows"]
    gradient: Float[Array, "rows p"]
    terms: Float[Array, "rows p"]
    moments: Float[Array, "rows pp"]


class ObservedCells(eqx.Module):
    """Responses by observed cell, twice: by subject and by item.

    Attributes:
        subjects: Buckets of subjects, whose cells name items.
        items: Buckets of items, whose cells name subjects.
        single: Whether every observed cell is one trial.
        subject_weight: As in `Responses`.
        item_weight: As in `Responses`.
    """

    subjects: tuple[Bucket, ...]
    items: tuple[Bucket, ...]
    num_subjects: int = eqx.field(static=True)
    num_items: int = eqx.field(static=True)
    single: bool = eqx.field(static=True)
    subject_weight: Float[Array, " subjects"] | None = None
    item_weight: Float[Array, " items"] | None = None

    @classmethod
    def of(cls, data: Responses) -> ObservedCells:
        """The observed cells of responses, laid out on the host.

        >>> data = Responses(jnp.eye(3, 4), jnp.eye(3, 4) > 0)
        >>> cells = ObservedCells.of(data)
        >>> [bucket.column.shape for bucket in cells.subjects]
        [(1, 3, 1)]
        """
        from scipy.sparse import csr_array

        exposure, values = np.asarray(data.exposure), np.asarray(data.values)
        row, column = np.nonzero(exposure)
        value, trials = values[row, column], exposure[row, column]
        num_subjects, num_items = values.shape
        start = np.concatenate(
            [[0], np.cumsum(np.bincount(row, minlength=len(values)))]
        )
        place = np.arange(len(row), dtype=np.int32)
        shape = num_subjects, num_items
        turned = csr_array((place, column.astype(np.int32), start), shape).tocsc()
        order = np.asarray(turned.data, np.int64)
        trials = trials.astype(np.int8 if data.trials is None else trials.dtype)
        return cls(
            _buckets(start, column, value, trials),
            _buckets(turned.indptr, row[order], value[order], trials[order]),
            num_subjects,
            num_items,
            data.trials is None,
            data.subject_weight,
            data.item_weight,
        )


def is_sparse(data: Responses) -> bool:
    """Whether few of many cells are observed."""
    seen = data.exposure
    if seen is None or data.values.size < MANY_CELLS:
        return False
    return float(jnp.mean(seen != 0)) <= FEW_OBSERVED


def _buckets(start, column, value, exposure) -> tuple[Bucket, ...]:
    """Rows by their number of cells, of consecutive cells from `start`."""
    start = np.asarray(start, np.int64)
    count = np.diff(start)
    found = []
    most = int(count.max(initial=0))
    while most > 0:
        below = int(most / GROWTH)
        rows = np.flatnonzero((count > below) & (count <= most))
        if rows.size:
            found.append(_bucket(rows, start, count, most, column, value, exposure))
        most = int(count[count <= below].max(initial=0))
    return tuple(found)


def _bucket(rows, start, count, width, column, value, exposure) -> Bucket:
    """A bucket of rows; its last chunk is filled with rows of padding."""
    size = min(max(1, CHUNK // width), rows.size)
    chunks = -(-rows.size // size)
    fill = chunks * size - rows.size
    at = np.minimum(start[rows][:, None] + np.arange(width), len(column) - 1)
    seen = np.arange(width) < count[rows][:, None]
    shape = chunks, size

    def laid(cells, dtype):
        cells = np.where(seen, cells[at], 0).astype(dtype)
        cells = np.concatenate([cells, np.zeros((fill, width), dtype)])
        return jnp.asarray(cells.reshape(*shape, width))

    padded = np.concatenate([rows, np.full(fill, len(count))]).astype(np.int32)
    return Bucket(
        jnp.asarray(padded.reshape(shape)),
        laid(column, np.int32),
        laid(value, value.dtype),
        laid(exposure, exposure.dtype),
    )


def sums_of(
    buckets: tuple[Bucket, ...],
    own: Float[Array, "rows p"],
    other: Float[Array, "others p"],
    weight: Float[Array, " others"] | None,
    cells: Any,
    single: bool,
    kept: int,
) -> Sums:
    """Sums over the cells of each row, eta being the product own . other.

    Args:
        buckets: The rows with their cells.
        own: Parameters of the rows.
        other: Those of the other side.
        weight: Weights of the other side; None for 1.
        cells: Log p and slope of a response (`AbstractCells`).
        single: Whether every cell is one trial.
        kept: Columns of `other` of which sums are wanted, the first ones.
    """
    num, dtype = own.shape[0], own.dtype

    def chunk(carry, part):
        row, column, value, exposure = part
        theirs = other[column]
        eta = jnp.einsum("rp,rwp->rw", own.at[row].get(mode="clip"), theirs)
        exposure = exposure.astype(dtype)
        found = cells.cell(value.astype(dtype), exposure, eta, None, single)
        each = 1 if weight is None else weight.astype(dtype)[column]
        log_prob, slope, exposure = (
            x * each for x in (found.log_prob, found.slope, exposure)
        )
        right = theirs[..., :kept]
        sums = Sums(
            jnp.sum(log_prob, axis=1),
            jnp.einsum("rw,rwp->rp", slope, right),
            jnp.einsum("rw,rwp->rp", jnp.abs(slope), jnp.abs(right)),
            jnp.einsum("rw,rwp,rwq->rpq", exposure, right, right).reshape(-1, kept**2),
        )
        put = lambda total, new: total.at[row].set(
            new, mode="drop", unique_indices=True
        )
        return Sums(*map(put, carry, sums)), None

    zeros = lambda *shape: jnp.zeros((num, *shape), dtype)
    total = Sums(zeros(), zeros(kept), zeros(kept), zeros(kept**2))
    for bucket in buckets:
        total, _ = lax.scan(chunk, total, bucket)
    return total


def sparse_sweep(
    data: ObservedCells, factors: Factors, temperature: Array | float, cells: Any
) -> ItemSweep:
    """`bound.sweep` over the observed cells: a pass by subject and one by item."""
    subjects, log_lik, row_terms = _by_subject(data, factors, temperature, cells)
    theta, dims = factors.theta, factors.theta.shape[1]
    design = jnp.concatenate([jnp.ones_like(theta[:, :1]), theta], 1)
    own, weight = factors.stacked / temperature, data.subject_weight
    given = data.items, own, design, weight, cells, data.single
    found = sums_of(*given, 1 + dims)
    moments = found.moments.reshape(-1, 1 + dims, 1 + dims)
    bend = cells.curvature / temperature**2
    return ItemSweep(
        log_lik,
        Quadratic(found.gradient / temperature, moments * bend),
        subjects,
        found.terms / temperature,
        row_terms,
    )


def sparse_subject_sweep(
    data: ObservedCells, factors: Factors, temperature: Array | float, cells: Any
) -> Quadratic:
    """`bound.subject_sweep` over the observed cells."""
    return _by_subject(data, factors, temperature, cells)[0]


def _by_subject(data, factors, temperature, cells) -> tuple[Quadratic, Array, Array]:
    """The bound in the abilities, log-likelihoods, and terms of the gradients."""
    theta, dims = factors.theta, factors.theta.shape[1]
    own = jnp.concatenate([theta, jnp.ones_like(theta[:, :1])], 1)
    slope, intercept = factors.discrimination, factors.intercept[:, None]
    other = jnp.concatenate([slope, intercept], 1) / temperature
    given = data.subjects, own, other, data.item_weight, cells, data.single
    found = sums_of(*given, dims)
    moments = found.moments.reshape(-1, dims, dims) * cells.curvature
    return Quadratic(found.gradient, moments), found.log_prob, found.terms
