"""Sums over the cells of the rows of a sparse matrix, in a few programs of fixed shape.

Rows with about as many cells lie together, padded to one width, in chunks. A chunk
gathers what belongs to the columns of its cells and sums along rows: neither a dense
block nor a scattered sum is formed, and the time is proportional to the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

#: Cells of a chunk: what a pass holds at once, for each number of a cell.
CHUNK = 2**16
#: Widths of rows grow by this factor, so that at most a third of the cells are padding.
GROWTH = 1.5
#: Share of the cells that may be padded in addition, so that there are fewer widths:
#: the program of a pass has a part for each, and most of a short fit is compilation.
ADDED_PADDING = 0.1
#: Columns of a table that a product takes at once, and numbers that `map_rows` makes.
TABLE_WIDTH, MOST_NUMBERS = 64, 2**21


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


def buckets_of(start, column, value, exposure) -> tuple[Bucket, ...]:
    """Rows by their number of cells, of consecutive cells from `start`, on the host."""
    start = np.asarray(start, np.int64)
    count = np.diff(start)
    buckets = []
    for most, below in _widths(count):
        rows = np.flatnonzero((count > below) & (count <= most))
        buckets.append(_bucket(rows, start, count, most, column, value, exposure))
    return tuple(buckets)


def _widths(count: np.ndarray) -> list[tuple[int, int]]:
    """Widths of the buckets of rows with so many cells, and the next smaller ones.

    >>> _widths(np.array([1, 100, 90, 30, 0]))
    [(100, 30), (30, 1), (1, 0)]
    """
    widths, room = [], ADDED_PADDING * float(count.sum())
    most = int(count.max(initial=0))
    while most > 0:
        below = int(most / GROWTH)
        while below > 0:
            # Rows that may as well have the width of those above.
            next_below = int(below / GROWTH)
            some = count[(count > next_below) & (count <= below)]
            added = float(most * some.size - some.sum())
            if added > room:
                break
            room, below = room - added, next_below
        next_most = int(count[count <= below].max(initial=0))
        widths.append((most, next_most))
        most = next_most
    return widths


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


def scan_rows(
    buckets: tuple[Bucket, ...],
    function: Callable[[Bucket], Any],
    init: Any,
    between: Array | None = None,
) -> Any:
    """Arrays by row, with `function` of each chunk at the places of its rows.

    `init` has the rows without a cell; results are of the same structure. `between`
    `[2]` are the first chunk of all and the one after the last; None for all.
    """

    def chunk(carry, part):
        put = lambda total, new: total.at[part.row].set(
            new, mode="drop", unique_indices=True
        )
        return jax.tree.map(put, carry, function(part)), None

    def some(bucket, carry, between):
        one = lambda k, carry: chunk(carry, jax.tree.map(lambda x: x[k], bucket))[0]
        first, last = jnp.clip(between, 0, len(bucket.row))
        return lax.fori_loop(first, last, one, carry)

    done = 0
    for bucket in buckets:
        if between is None:
            init, _ = lax.scan(chunk, init, bucket)
        else:
            init = some(bucket, init, between - done)
        done += len(bucket.row)
    return init


def num_blocks(buckets: tuple[Bucket, ...], numbers: int) -> int:
    """Number of chunks that `in_blocks` makes of buckets."""
    return sum(-(-x.row.size // _rows_at_once(x, numbers)) for x in buckets)


def _rows_at_once(bucket: Bucket, numbers: int) -> int:
    """Rows of which `numbers` for each cell have room."""
    width = bucket.column.shape[-1]
    return min(max(1, MOST_NUMBERS // (width * numbers)), bucket.row.size)


def in_blocks(bucket: Bucket, numbers: int) -> Bucket:
    """The rows of a bucket in chunks in which `numbers` for each cell have room.

    Rows of padding have a number past any last one.
    """
    count, width = bucket.row.size, bucket.column.shape[-1]
    size = _rows_at_once(bucket, numbers)
    fill = -count % size

    def cut(array: Array, inner: tuple[int, ...], filling: int = 0) -> Array:
        rows = array.reshape(count, *inner)
        room = ((0, fill), *((0, 0) for _ in inner))
        rows = jnp.pad(rows, room, constant_values=filling)
        return rows.reshape(-1, size, *inner)

    last = jnp.iinfo(bucket.row.dtype).max
    cells = (cut(x, (width,)) for x in bucket[1:])
    return Bucket(cut(bucket.row, (), last), *cells)


def map_rows(
    buckets: tuple[Bucket, ...],
    function: Callable[[Bucket], Any],
    init: Any,
    numbers: int,
) -> Any:
    """As `scan_rows`, of a function of one row, which makes `numbers` for each cell."""
    some = tuple(in_blocks(bucket, numbers) for bucket in buckets)
    return scan_rows(some, jax.vmap(function), init)


def fold_rows(
    buckets: tuple[Bucket, ...],
    function: Callable[[Any, Bucket], Any],
    init: Any,
    numbers: int,
) -> Any:
    """Folds `function(carry, chunk)`, which makes `numbers` for each cell."""
    step = lambda carry, part: (function(carry, part), None)
    for bucket in buckets:
        init, _ = lax.scan(step, init, in_blocks(bucket, numbers))
    return init


def dense_blocks(
    buckets: tuple[Bucket, ...], num_rows: int, num_columns: int, size: int, dtype
) -> Callable[[Array], tuple[Array, Array]]:
    """A function of the first row of a block, to its dense values and exposure.

    For passes over all cells: only `size` rows, `[size, columns]`, exist at a time.

    >>> cells = [np.array(x) for x in ([0, 2, 3], [0, 1, 1], [1.0, 2.0, 3.0])]
    >>> blocks = dense_blocks(buckets_of(*cells, np.ones(3)), 2, 3, 1, jnp.float32)
    >>> [part.tolist() for part in blocks(jnp.asarray(1))]
    [[[0.0, 3.0, 0.0]], [[0.0, 1.0, 0.0]]]
    """
    if not buckets:
        zeros = jnp.zeros((size, num_columns), dtype)
        return lambda begin: (zeros, zeros)
    of_cell = lambda bucket: jnp.broadcast_to(bucket.row[..., None], bucket.value.shape)
    joined = lambda get: jnp.concatenate([get(bucket).ravel() for bucket in buckets])
    row, exposure = joined(of_cell), joined(lambda bucket: bucket.exposure)
    row = jnp.where(exposure > 0, row, num_rows)  # Padding comes last.
    order = jnp.argsort(row)
    row = row[order]
    column, value, exposure = (
        x[order]
        for x in (joined(lambda b: b.column), joined(lambda b: b.value), exposure)
    )
    first = jnp.searchsorted(row, jnp.arange(num_rows + 1))

    def block(begin: Array) -> tuple[Array, Array]:
        low, high = first[begin], first[begin + size]

        def put(k, carry):
            at = low + k * CHUNK + jnp.arange(CHUNK)
            inside = at < high
            at = jnp.minimum(at, len(row) - 1)
            where = jnp.where(inside, row[at] - begin, size), column[at]
            return tuple(
                old.at[where].set(new[at].astype(dtype), mode="drop")
                for old, new in zip(carry, (value, exposure), strict=True)
            )

        zeros = jnp.zeros((size, num_columns), dtype)
        count = (high - low + CHUNK - 1) // CHUNK
        return lax.fori_loop(0, count, put, (zeros, zeros))

    return block


def cell_products(
    buckets: tuple[Bucket, ...],
    num_rows: int,
    tables: Sequence[Float[Array, "columns m"]],
    weights: Callable[[Array, Array], Sequence[Array]],
) -> Float[Array, "rows m"]:
    """Sum over tables and cells of weight times the table's row of the cell's column.

    `weights` returns one number for each cell and table, from values and exposure.

    >>> cells = [np.array(x) for x in ([0, 2, 3], [0, 1, 1], [1.0, 2.0, 3.0])]
    >>> buckets = buckets_of(*cells, np.ones(3))
    >>> table = jnp.array([[1.0], [10.0]])
    >>> cell_products(buckets, 2, [table], lambda value, exposure: [value]).tolist()
    [[21.0], [30.0]]
    """
    wide, dtype = tables[0].shape[1], tables[0].dtype
    if wide > TABLE_WIDTH:
        parts = -(-wide // TABLE_WIDTH)
        room = ((0, 0), (0, parts * TABLE_WIDTH - wide))

        def cut(table):
            table = jnp.pad(table, room).reshape(len(table), parts, -1)
            return jnp.moveaxis(table, 1, 0)

        some = lambda part: cell_products(buckets, num_rows, part, weights)
        products = lax.map(some, [cut(table) for table in tables])
        return jnp.moveaxis(products, 0, 1).reshape(num_rows, -1)[:, :wide]

    def chunk(part: Bucket) -> Array:
        total = jnp.zeros((), dtype)
        shares = weights(part.value, part.exposure)
        for weight, table in zip(shares, tables, strict=True):
            each = weight.astype(dtype)[..., None] * table[part.column]
            total = total + jnp.sum(each, axis=1)
        return total

    return scan_rows(buckets, chunk, jnp.zeros((num_rows, wide), dtype))
