"""Expected counts of responses that are read from disk: a pass on the host.

The sums are those of `irtjax.likelihood.counts`. A family with C categories acts
through the table log p(c | theta) `[items, C, nodes]`. A block of subjects has

    log-likelihood = sums of the table over its cells,   W = softmax(it + log w),

and adds W' to the counts of each item and category (`irtjax.data.stream`), from which
the sums of every statistic follow. NumPy computes, so that no program of JAX waits for
the host, and the arrays of a block are the only large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax._backend import num_cores
from irtjax.data import stream as streams
from irtjax.data.stream import ResponseStream, StreamBlock
from irtjax.data.streamed_responses import StreamedResponses
from irtjax.likelihood.counts import Counts
from irtjax.models.family import Items
from irtjax.models.model import Model
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.progress import note_share
from irtjax.numerics.threads import map_in_order

#: Numbers of a table of subjects by nodes: what fits into the cache of a core.
PIECE = 2**18
#: Cells of a piece, and of a block, for each item and category: tables of many items
#: are cut and summed for each piece, which takes less time than its products.
PIECE_PAIRS, BLOCK_PAIRS = 8, 40
#: Subjects of a piece whose posteriors show on which nodes those of all are, and nodes
#: that are taken in addition.
SAMPLE, MARGIN = 64, 2

R = TypeVar("R")


class CountsPiece(NamedTuple):
    """Some subjects of a block, with their posteriors on the nodes from `low`."""

    number: int
    rows: np.ndarray
    cells: StreamBlock
    low: int
    posterior: Float[np.ndarray, "subjects nodes"]
    log_marginal: Float[np.ndarray, " subjects"]

    @property
    def window(self) -> slice:
        """The nodes of the posteriors."""
        return slice(self.low, self.low + self.posterior.shape[1])

    def category_sums(self, num_categories: int) -> np.ndarray:
        """Expected counts `[items, categories, nodes of the window]`."""
        return self.cells.category_sums(self.posterior, num_categories)


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


class _Part(NamedTuple):
    """Subjects of a block, before their posteriors are known."""

    number: int
    block: StreamBlock
    rows: np.ndarray
    share: float


def map_pieces(
    function: Callable[[CountsPiece], R],
    stream: ResponseStream,
    segment: int,
    table: np.ndarray,
    log_weights: np.ndarray,
    centre: np.ndarray | None = None,
) -> Iterator[R]:
    """`function` of the posteriors of a segment, a few thousand of them at a time.

    Pieces are made in threads, one for each core, and results come in a fixed order.
    With `centre`, the node nearest to each posterior, subjects of a block are taken in
    its order, on the nodes around alone, and on more nodes where a posterior reaches
    the edge of these.
    """

    def of_part(part: _Part) -> tuple[R, float]:
        cells = part.block.rows(part.rows - part.block.first)
        low, high = 0, table.shape[2]
        if centre is not None:
            low, high = _support(cells, table, log_weights)
        while True:
            posterior, log_marginal = _posterior(cells, table, log_weights, low, high)
            cut = _cut(posterior, low > 0, high < table.shape[2])
            if not len(cut):
                break
            # Subjects with few responses, say, whose posteriors are wider.
            ends = _support(cells.rows(cut), table, log_weights)
            low = max(0, min(ends[0], low - MARGIN))
            high = min(table.shape[2], max(ends[1], high + MARGIN))
        piece = CountsPiece(part.number, part.rows, cells, low, posterior, log_marginal)
        return function(piece), part.share

    parts = _parts(stream, segment, table.shape[2], centre)
    for result, share in map_in_order(of_part, parts, num_cores()):
        note_share(share, "pass")
        yield result


def _parts(
    stream: ResponseStream, segment: int, num_nodes: int, centre: np.ndarray | None
) -> Iterator[_Part]:
    """The subjects of the pieces of a segment, numbered from 0."""
    pairs, subjects = stream.counts.size, stream.shape[0]
    each = max(stream.num_observed / subjects, 1)
    size = max(64, PIECE // num_nodes, int(PIECE_PAIRS * pairs / each))
    every, number = stream.processes.own(subjects), 0
    for block in stream.blocks(max(streams.BLOCK_CELLS, BLOCK_PAIRS * pairs), segment):
        done = block.first - every.start
        order = np.arange(block.first, block.first + block.num_subjects)
        if centre is not None:
            order = block.first + np.argsort(centre[order], kind="stable")
        for rows in np.array_split(order, -(-len(order) // size)):
            done += len(rows)
            yield _Part(number, block, rows, done / (every.stop - every.start))
            number += 1


def _support(
    cells: StreamBlock, table: np.ndarray, log_weights: np.ndarray
) -> tuple[int, int]:
    """The first node of the posteriors of some subjects, and the one after the last.

    By `SAMPLE` of them.
    """
    num_nodes = table.shape[2]
    some = np.linspace(0, cells.num_subjects - 1, SAMPLE).astype(int)
    posterior, _ = _posterior(
        cells.rows(np.unique(some)), table, log_weights, 0, num_nodes
    )
    nodes = np.flatnonzero(posterior.max(axis=0) > _edge(table.dtype))
    return max(0, nodes[0] - MARGIN), min(num_nodes, nodes[-1] + 1 + MARGIN)


def _edge(dtype: Any) -> float:
    """The posterior probability at the edge of a window up to which it suffices."""
    return np.finfo(dtype).eps / 16


def _cut(posterior: np.ndarray, below: bool, above: bool) -> np.ndarray:
    """Subjects whose posteriors go on below or above the nodes of a window."""
    first, last = posterior[:, 0] * below, posterior[:, -1] * above
    return np.flatnonzero(np.maximum(first, last) > _edge(posterior.dtype))


def _posterior(
    cells: StreamBlock, table: np.ndarray, log_weights: np.ndarray, low: int, high: int
) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors on the nodes from `low` to before `high`, and log-likelihoods."""
    if high - low < table.shape[2]:
        table = np.ascontiguousarray(table[:, :, low:high])
    joint = cells.table_sums(table)
    joint += log_weights[low:high]
    most = joint.max(axis=1, keepdims=True)
    joint -= most
    np.exp(joint, out=joint)
    total = joint.sum(axis=1, keepdims=True)
    joint /= total
    return joint, (most + np.log(total))[:, 0]


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
    log_marginal = np.zeros(num_subjects, dtype)
    nearest = np.zeros(num_subjects, np.int32)
    near = None if centre is None else np.asarray(centre)
    weights = np.asarray(log_weights, dtype)

    def sums(piece: CountsPiece) -> tuple[CountsPiece, np.ndarray, np.ndarray]:
        index = np.arange(piece.posterior.shape[1], dtype=dtype)
        nearest = piece.low + np.rint(piece.posterior @ index).astype(np.int32)
        return piece, piece.category_sums(len(codes)), nearest

    def of_segment(segment: int) -> tuple[np.ndarray, ...]:
        total, at_nodes = np.zeros_like(table), np.zeros(table.shape[2], dtype)
        pieces = map_pieces(sums, stream, segment, table, weights, near)
        for piece, counts, own in pieces:
            total[:, :, piece.window] += counts
            at_nodes[piece.window] += piece.posterior.sum(axis=0)
            log_marginal[piece.rows], nearest[piece.rows] = piece.log_marginal, own
        return total, at_nodes

    total, at_nodes = stream.processes.sum_segments(of_segment)
    log_marginal = stream.processes.gather_rows(log_marginal)
    nearest = stream.processes.gather_rows(nearest)
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
