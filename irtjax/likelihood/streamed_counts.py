"""Expected counts of responses that are read from disk: a pass on the host.

The sums are those of `irtjax.likelihood.counts`. A family with C categories acts
through the table log p(c | theta) `[items, C, nodes]`. A block of subjects has

    log-likelihood = sums of the table over its cells,   W = softmax(it + log w),

and adds W' to the counts of each item and category (`irtjax.data.stream`), from which
the sums of every statistic follow. NumPy computes, so that no program of JAX waits for
the host, and the arrays of a block are the only large ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax.data.stream import ResponseStream, StreamBlock
from irtjax.data.streamed_responses import StreamedResponses
from irtjax.likelihood.counts import NARROW, Counts
from irtjax.models.family import Items
from irtjax.models.model import Model
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.progress import note_share

#: Numbers of a table of subjects by nodes: what fits into the cache of a core.
PIECE = 2**19


class CountsPiece(NamedTuple):
    """Some subjects of a block, with their posteriors on the nodes from `low`."""

    rows: np.ndarray
    cells: StreamBlock
    low: int
    posterior: Float[np.ndarray, "subjects nodes"]
    log_marginal: Float[np.ndarray, " subjects"]


@stored_jit
def category_table(
    model: Model, items: Items, codes: Array, theta: Float[Array, " nodes"]
) -> Float[Array, "items categories nodes"]:
    """Log-likelihood of each response to each item at each ability, up to h(y)."""
    base, *rest = model.family.table(items, theta)
    table = base.T[:, None]
    for statistic, own in zip(model.family.statistics(codes), rest, strict=True):
        table = table + statistic.astype(base.dtype)[:, None] * own.T[:, None]
    return jnp.broadcast_to(table, (table.shape[0], len(codes), table.shape[2]))


def pieces_of(
    stream: ResponseStream,
    table: np.ndarray,
    log_weights: np.ndarray,
    centre: np.ndarray | None = None,
) -> Iterator[CountsPiece]:
    """Posteriors of all subjects, a few thousand of them at a time.

    With `centre`, the node nearest to each posterior, subjects of a matrix are taken in
    its order, on the nodes around alone, and again on all nodes where a posterior
    reaches the edge of these.
    """
    num_nodes = table.shape[2]
    half = NARROW[table.dtype.itemsize] // 2
    size = max(64, PIECE // num_nodes)
    done = 0
    for block in stream.blocks():
        count = block.num_subjects
        order = np.arange(block.first, block.first + count)
        windows = centre is not None and stream.is_matrix
        if centre is not None and windows:
            order = block.first + np.argsort(centre[order], kind="stable")
        for start in range(0, count, size):
            part = slice(start, min(start + size, count))
            rows = order[part]
            cells = block.rows(rows - block.first if windows else part)
            low, high = 0, num_nodes
            if centre is not None and windows:
                low = max(0, int(centre[rows[0]]) - half)
                high = min(num_nodes, int(centre[rows[-1]]) + half + 1)
            piece = _piece(rows, cells, table, log_weights, low, high)
            if piece is None:
                piece = _piece(rows, cells, table, log_weights, 0, num_nodes)
            assert piece is not None
            yield piece
        done += count
        note_share(done / stream.shape[0], "pass")


def _piece(rows, cells, table, log_weights, low: int, high: int) -> CountsPiece | None:
    """Posteriors on the nodes from `low` to before `high`; None where these cut one."""
    num_nodes, dtype = table.shape[2], table.dtype
    if high - low < num_nodes:
        table = np.ascontiguousarray(table[:, :, low:high])
    joint = cells.table_sums(table)
    joint += log_weights[low:high]
    most = joint.max(axis=1, keepdims=True)
    joint -= most
    np.exp(joint, out=joint)
    total = joint.sum(axis=1, keepdims=True)
    joint /= total
    edge = np.finfo(dtype).eps / 16
    if (low > 0 and joint[:, 0].max() > edge) or (
        high < num_nodes and joint[:, -1].max() > edge
    ):
        return None
    return CountsPiece(rows, cells, low, joint, (most + np.log(total))[:, 0])


def streamed_counts(
    model: Model,
    items: Items,
    theta: Float[Array, " nodes"],
    log_weights: Float[Array, " nodes"],
    data: StreamedResponses,
    *,
    centre: Any = None,
) -> Counts:
    """`expected_counts` by one pass over the stream of the data. Not under `jit`.

    With `centre`, the node nearest to each posterior, products are taken on the nodes
    around these, and on all nodes where a posterior is wider.
    """
    stream = data.source
    codes = jnp.asarray(stream.codes)
    table = np.asarray(category_table(model, items, codes, theta))
    dtype, num_subjects = table.dtype, data.num_subjects
    total, at_nodes = np.zeros_like(table), np.zeros(table.shape[2], dtype)
    log_marginal = np.empty(num_subjects, dtype)
    nearest = np.empty(num_subjects, np.int32)
    near = None if centre is None else np.asarray(centre)
    for piece in pieces_of(stream, table, np.asarray(log_weights, dtype), near):
        posterior, low = piece.posterior, piece.low
        window = slice(low, low + posterior.shape[1])
        # A view, into which the sums are added.
        piece.cells.add_category_sums(posterior, total[:, :, window])
        at_nodes[window] += posterior.sum(axis=0)
        log_marginal[piece.rows] = piece.log_marginal
        index = np.arange(posterior.shape[1], dtype=dtype)
        nearest[piece.rows] = low + np.rint(posterior @ index).astype(np.int32)
    return counts_of(
        model, data, total, at_nodes, jnp.asarray(log_marginal), jnp.asarray(nearest)
    )


def counts_of(
    model: Model,
    data: StreamedResponses,
    total: np.ndarray,
    at_nodes: np.ndarray,
    log_marginal: Array,
    nearest: Array,
) -> Counts:
    """Expected counts from those of each item by category, and of subjects at nodes."""
    by_node = np.moveaxis(total, 2, 0)
    codes, dtype = jnp.asarray(data.source.codes), total.dtype
    base = at_nodes[:, None] if data.is_complete else by_node.sum(axis=2)
    statistics = tuple(
        jnp.asarray(by_node @ np.asarray(statistic, dtype))
        for statistic in model.family.statistics(codes)
    )
    return Counts(
        log_marginal, jnp.asarray(base), statistics, jnp.asarray(at_nodes), nearest
    )
