"""The marginal likelihood as matrix products: expected counts.

Every subject shares the same nodes t_q. With the statistics s_k of the data and the
tables g_k of a family, the log-likelihood of all subjects at all nodes is

    L = sum_k S_k G_k,     posterior W = softmax_q(L + log w),

and what the items need from it is R_k = W' S_k: two products with the data matrix per
pass when nothing is missing, four otherwise. The pass is a scan over blocks of
subjects, so neither a float copy of the data nor a subjects x nodes array exists.
Tables are `[nodes, items]`: on a CPU that is a third faster than the transpose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from irtjax.data.responses import AbstractResponses
from irtjax.models.family import Items
from irtjax.models.model import Model
from irtjax.numerics.kernels import (
    BLOCK_BYTES,
    block_size_for,
    put_block,
    scan_subject_blocks,
    take_block,
    weigh_rows,
)

#: Nodes that cover most posteriors to rounding, by bytes of a number: 6 and 9 standard
#: deviations on either side, of about two nodes where posteriors are narrowest.
NARROW = {4: 48, 8: 64}


class Counts(NamedTuple):
    """Result of one pass over the data.

    Attributes:
        log_marginal: Log marginal likelihood of each subject, up to h(y).
        base: Expected exposure per node, `[nodes, items]`; `[nodes, 1]` when complete.
        statistics: R_k for k >= 1, each `[nodes, items]`.
        nodes: Expected number of subjects at each node.
        centre: Index of the node nearest each posterior mean.
        mean: Posterior mean of ability, where moments were requested; of several
            abilities `[subjects, dims]`.
        variance: Posterior variance of ability, likewise; of several abilities their
            covariances `[subjects, dims, dims]`.
    """

    log_marginal: Float[Array, " subjects"]
    base: Array
    statistics: tuple[Array, ...]
    nodes: Float[Array, " nodes"]
    centre: Int[Array, " subjects"]
    mean: Float[Array, "subjects *dims"] | None = None
    variance: Float[Array, "subjects *square"] | None = None


def _moments(posterior: Array, nodes: Array) -> tuple[Array, Array]:
    """Means and variances of posteriors at nodes; of several abilities covariances."""
    mean = posterior @ nodes
    if nodes.ndim == 1:
        return mean, jnp.sum(posterior * (nodes - mean[:, None]) ** 2, axis=1)
    gap = nodes - mean[:, None]
    return mean, jnp.einsum("iq,iqk,iql->ikl", posterior, gap, gap)


def _evidence_at(data: AbstractResponses, theta: Array, start: Array, size: int):
    """Log-likelihood of abilities by the evidence of a block of subjects; 0 if none."""
    part = take_block(data.evidence, start, size)
    if part is None:
        return 0.0
    part = part.astype(theta.dtype)
    return part @ jnp.stack([theta, -0.5 * theta**2])


def block_log_likelihood(
    model: Model,
    tables: tuple[Array, ...],
    theta: Float[Array, " nodes"],
    data: AbstractResponses,
    start: Array,
    size: int,
) -> tuple[Float[Array, "block nodes"], tuple[Array, ...], Array | None]:
    """Log-likelihood of `size` subjects from `start` at every node.

    `tables` are the g_k at the nodes, `[nodes, items]`. Also returns the float
    statistics and the float exposure (None when complete) of the block.
    """
    statistics, exposure = _take(model, tables[0].dtype, data, start, size)
    log_lik = _log_likelihood(_weighted(tables, data), statistics, exposure)
    return log_lik + _evidence_at(data, theta, start, size), statistics, exposure


def _take(model: Model, dtype, data: AbstractResponses, start: Array, size: int):
    """Float statistics and exposure of a block of subjects."""
    values, exposure = data.matrix_blocks(size)(start)
    statistics = tuple(s.astype(dtype) for s in model.family.statistics(values))
    return statistics, None if exposure is None else exposure.astype(dtype)


def _weighted(tables: tuple[Array, ...], data: AbstractResponses) -> tuple[Array, ...]:
    """Tables times the weights of items, if there are any."""
    if data.item_weight is None:
        return tables
    return tuple(table * data.item_weight.astype(table.dtype) for table in tables)


def _log_likelihood(tables, statistics, exposure) -> Float[Array, "block nodes"]:
    """Log-likelihood of each subject of a block at each node."""
    base, *rest = tables
    total = jnp.sum(base, axis=1)[None, :] if exposure is None else exposure @ base.T
    for statistic, table in zip(statistics, rest, strict=True):
        total = total + statistic @ table.T
    return total


def expected_counts(
    model: Model,
    items: Items,
    nodes: Float[Array, " nodes"],
    log_weights: Float[Array, " nodes"],
    data: AbstractResponses,
    *,
    centre: Int[Array, " subjects"] | None = None,
    window: int = 0,
    moments: bool = False,
) -> Counts:
    """Expected counts of every statistic at every node: the whole E-step.

    With many items a posterior covers a few of the nodes. Given its expected node
    (`centre`), a block of subjects is first tried on the nodes around: on `NARROW` of
    them where its subjects are that close together, then on `window`. If
    any posterior reaches the edge of that beyond rounding, or the block's subjects are
    too far apart, the block is done on all nodes. The result is the same to rounding;
    subjects sorted by ability make it many times faster. A `window` of 0 uses all
    nodes; keep it under vmap. `moments` adds the mean and variance of each posterior.
    Observed cells alone are always done on all nodes. Of streamed responses the host
    has made the counts before (`likelihood.streamed_counts`).
    """
    if data.is_streamed:
        made: Any = data
        return made.sums
    tables = model.family.table(items, nodes)
    if not data.has_blocks:
        return _counts_at_once(model, tables, nodes, log_weights, data, moments)

    def of_some(part: AbstractResponses, centre: Array | None) -> tuple[Any, Any]:
        counts = _counts_by_blocks(
            model, tables, nodes, log_weights, part, centre, window, moments
        )
        by_subject = counts.log_marginal, counts.centre, counts.mean, counts.variance
        return (counts.base, counts.statistics, counts.nodes), by_subject

    (base, statistics, at), rows = data.fold(of_some, centre)
    return Counts(rows[0], base, statistics, at, *rows[1:])


def _counts_by_blocks(
    model: Model,
    tables: tuple[Array, ...],
    nodes: Array,
    log_weights: Array,
    data: AbstractResponses,
    centre: Array | None,
    window: int,
    moments: bool,
) -> Counts:
    """`expected_counts` of data in blocks of subjects with every item."""
    at_nodes = nodes, log_weights, _weighted(tables, data)
    num_subjects, num_items = data.num_subjects, data.num_items
    num_nodes, dtype = nodes.shape[0], tables[0].dtype
    size = block_size_for(num_subjects, num_items, dtype.itemsize)
    if nodes.ndim > 1:  # A product grid is large: so are tables of subjects by nodes.
        size = min(size, max(64, BLOCK_BYTES // (num_nodes * dtype.itemsize)))
    complete = data.is_complete
    centres = centre if 0 < window < num_nodes else None

    def body(carry: Counts, start: Array, is_new: Array) -> Counts:
        """The sums with those of a block of subjects, on as few nodes as suffice."""
        parts = _take(model, dtype, data, start, size)
        weight = is_new.astype(dtype)
        if data.subject_weight is not None:
            weight *= take_block(data.subject_weight, start, size).astype(dtype)
        block = _Block(*at_nodes, data, start, weight, *parts)
        add = partial(_add_block, block)
        state = carry, jnp.zeros((), bool)
        if centres is None:
            return add(0, num_nodes, state)[0]
        where = take_block(centres, start, size)
        low, high = jnp.min(where), jnp.max(where)
        for width in sorted({min(NARROW[dtype.itemsize], window), window}):
            near = high - low + (0 if width == window else width // 2) < width
            first = jnp.clip((low + high - width) // 2, 0, num_nodes - width)
            state = _when(near & ~state[1], partial(add, first, width), state)
        return _when(~state[1], partial(add, 0, num_nodes), state)[0]

    empty = jnp.zeros((num_nodes, num_items), dtype)
    by_subject, by_node = jnp.zeros(num_subjects, dtype), jnp.zeros(num_nodes, dtype)
    init = Counts(
        by_subject,
        by_node[:, None] if complete else empty,
        tuple(empty for _ in tables[1:]),
        by_node,
        jnp.zeros(num_subjects, jnp.int32),
        *(_no_moments(by_subject, nodes) if moments else ()),
    )
    counts = scan_subject_blocks(body, init, num_subjects, size)
    return counts._replace(base=counts.nodes[:, None]) if complete else counts


def _no_moments(by_subject: Array, nodes: Array) -> tuple[Array, Array]:
    """Zeros of the shapes of `_moments`."""
    dims, shape = nodes.shape[1:], by_subject.shape
    zeros = lambda *more: jnp.zeros(shape + sum(more, ()), by_subject.dtype)
    return zeros(dims), zeros(dims, dims)


def log_likelihood_at_nodes(
    model: Model, tables: tuple[Array, ...], data: AbstractResponses
) -> Float[Array, "subjects nodes"]:
    """`block_log_likelihood` of all subjects at once, for data without evidence."""
    weighted, statistics = _weighted(tables, data), model.family.statistics
    columns = [table.T for table in weighted]
    weights = lambda values, exposure: (exposure, *statistics(values))
    return data.table_products(columns, weights)


def _counts_at_once(
    model: Model,
    tables: tuple[Array, ...],
    nodes: Array,
    log_weights: Array,
    data: AbstractResponses,
    moments: bool,
) -> Counts:
    """`expected_counts` with one array subjects x nodes: no block has every item."""
    joint = log_likelihood_at_nodes(model, tables, data) + log_weights
    log_marginal = jax.nn.logsumexp(joint, axis=1)
    posterior = jnp.exp(joint - log_marginal[:, None])
    index = jnp.arange(nodes.shape[0], dtype=nodes.dtype)
    centre = jnp.rint(posterior @ index).astype(jnp.int32)
    mean = variance = None
    if moments:
        mean, variance = _moments(posterior, nodes)
    statistics, _, base = data.column_products(posterior, model.family.statistics)
    return Counts(
        log_marginal,
        base.T,
        tuple(statistic.T for statistic in statistics),
        jnp.sum(weigh_rows(posterior, data.subject_weight), axis=0),
        centre,
        mean,
        variance,
    )


class _Block(NamedTuple):
    """A block of subjects from `start`, and the nodes with weighted tables there."""

    nodes: Array
    log_weights: Array
    tables: tuple[Array, ...]
    data: AbstractResponses
    start: Array
    weight: Array
    statistics: tuple[Array, ...]
    exposure: Array | None


def _add_block(
    block: _Block, first: Array | int, width: int, state: tuple[Counts, Array]
) -> tuple[Counts, Array]:
    """The sums with a block's, if its posteriors end within `width` nodes."""
    (carry, _), start, num_nodes = state, block.start, block.nodes.shape[0]

    def cut(array):
        if width == num_nodes:
            return array
        return lax.dynamic_slice_in_dim(array, first, width, 0)

    def add(total, increment):
        if width == num_nodes:
            return total + increment
        new = cut(total) + increment
        return lax.dynamic_update_slice_in_dim(total, new, first, 0)

    theta, tables = cut(block.nodes), tuple(map(cut, block.tables))
    joint = _log_likelihood(tables, block.statistics, block.exposure)
    joint = joint + cut(block.log_weights)
    joint = joint + _evidence_at(block.data, theta, start, len(block.weight))
    log_marginal = jax.nn.logsumexp(joint, axis=1)
    posterior = jnp.exp(joint - log_marginal[:, None])
    dtype = tables[0].dtype
    edge = jnp.finfo(dtype).eps / 16
    at_low = (first > 0) & (jnp.max(posterior[:, 0]) > edge)
    at_high = (first < num_nodes - width) & (jnp.max(posterior[:, -1]) > edge)
    done = ~(at_low | at_high)
    index = jnp.arange(width, dtype=dtype)
    nearest = first + jnp.rint(posterior @ index).astype(jnp.int32)
    mean, variance = carry.mean, carry.variance
    if mean is not None and variance is not None:
        new, square = _moments(posterior, theta)
        mean = put_block(mean, new, start)
        variance = put_block(variance, square, start)
    # Where the window was too narrow nothing is added, and what is per subject will be
    # written again.
    posterior = posterior * jnp.where(done, block.weight, 0)[:, None]
    base = carry.base
    if block.exposure is not None:
        base = add(base, posterior.T @ block.exposure)
    pairs = zip(carry.statistics, block.statistics, strict=True)
    sums = Counts(
        put_block(carry.log_marginal, log_marginal, start),
        base,
        tuple(add(total, posterior.T @ s) for total, s in pairs),
        add(carry.nodes, jnp.sum(posterior, axis=0)),
        put_block(carry.centre, nearest, start),
        mean,
        variance,
    )
    return sums, done


def _when(condition: Array, change: Callable[[Any], Any], state: Any) -> Any:
    """`change(state)` where a condition holds, else the state.

    As a loop of at most one turn: XLA updates a loop's state in place, where a
    conditional copied the sums (half the time of a pass at 11,785 x 36,259).
    """
    _, state = lax.while_loop(
        lambda pair: pair[0],
        lambda pair: (jnp.zeros((), bool), change(pair[1])),
        (condition, state),
    )
    return state
