"""Sums over subjects of numbers of each response, by item and by pair of items.

The numbers of a response are a function of the record of its item, that of its subject
and the response. Those of a matrix are made and added on the device, block by block;
those of observed cells are made there and added on the host. `DenseCells.item_sums`,
`DenseCells.best_partners` and the same methods of `SparseCells` call these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.numerics.programs import stored_jit
from irtjax.numerics.progress import watched

#: Items of a block of a matrix; two blocks are compared at a time.
WIDTH = 2048
#: Observed cells of a block, and pairs of items of a block.
BLOCK = 2**22

#: From the records of an item and of a subject and the response: one or more numbers.
Numbers = Callable[[Any, Any, Any], Any]
#: From sums of products over the subjects who met both of two items: how good a
#: partner of each other they are; negative for none. Of arrays of NumPy and of JAX.
Merit = Callable[..., Any]


class MatrixBlock(NamedTuple):
    """Items of a matrix on the device; the last block is filled by unseen copies."""

    place: jax.Array  # `[width]` number of the item, -1 of a copy
    items: Any  # records `[width, ...]`
    values: jax.Array  # `[subjects, width]`
    seen: jax.Array
    masked: bool  # whether cells of the matrix are missing


def matrix_blocks(
    items: Any, values: np.ndarray, exposure: np.ndarray | None
) -> Iterator[MatrixBlock]:
    """The blocks of a matrix of values, 0 where `exposure` (None: all 1) is 0."""
    size = values.shape[1]
    width = min(WIDTH, size)
    items = jax.tree.map(np.asarray, items)
    for start in range(0, size, width):
        places = np.arange(start, start + width)
        rows = np.minimum(places, size - 1)
        # Taken on the host, where this compiles no program for each shape.
        chosen = jax.tree.map(lambda x, rows=rows: x[rows], items)
        seen = np.broadcast_to(places < size, (values.shape[0], width))
        if exposure is not None:
            seen = seen & (exposure[:, rows] > 0)
        places = np.where(places < size, places, -1)
        place, own, responses, mask = jax.device_put(
            (places, chosen, values[:, rows], seen)
        )
        yield MatrixBlock(place, own, responses, mask, exposure is not None)


def _at_block(numbers: Numbers, subjects: Any, block: MatrixBlock) -> Any:
    """Numbers of the cells of a block, `[subjects, width]`, 0 where missing."""
    over_items = jax.vmap(numbers, in_axes=(0, None, 0))
    over_both = jax.vmap(over_items, in_axes=(None, 0, 0))
    cells = over_both(block.items, subjects, block.values)
    return jax.tree.map(lambda x: jnp.where(block.seen, x, 0), cells)


@stored_jit
def _sums(numbers: Numbers, subjects: Any, block: MatrixBlock) -> Any:
    """Sums of numbers over the subjects of a block."""
    cells = _at_block(numbers, subjects, block)
    return jax.tree.map(lambda x: jnp.sum(x, axis=0), cells)


def sums_of_matrix(
    numbers: Numbers,
    items: Any,
    subjects: Any,
    values: np.ndarray,
    exposure: np.ndarray | None,
) -> Any:
    """Sums `[items]` of numbers over the subjects who responded to each item."""
    parts = [
        jax.tree.map(np.asarray, _sums(numbers, subjects, block))
        for block in matrix_blocks(items, values, exposure)
    ]
    size = values.shape[1]
    return jax.tree.map(lambda *x: np.concatenate(x, dtype=np.float64)[:size], *parts)


@stored_jit
def _compare(
    numbers: Numbers, merit: Merit, subjects: Any, first: MatrixBlock, second: Any
) -> list[tuple[jax.Array, jax.Array, jax.Array]]:
    """For each item of two blocks: its best partner in the other, merit and sums."""

    def factors(block: MatrixBlock, side: int) -> list[jax.Array]:
        """The first or the second number of each pair, in single precision."""
        ones = block.seen if block.masked else jnp.ones((len(block.seen), 1))
        pairs = _at_block(numbers, subjects, block)
        chosen = [ones if pair[side] is None else pair[side] for pair in pairs]
        return [x.astype(jnp.float32) for x in chosen]

    products = [
        left.T @ right
        for left, right in zip(factors(first, 0), factors(second, 1), strict=True)
    ]
    shape = first.place.size, second.place.size
    sums = jnp.stack([jnp.broadcast_to(x, shape) for x in products])
    one, other = first.place[:, None], second.place
    merits = jnp.where((one == other) | (one < 0) | (other < 0), -1.0, merit(*sums))
    best = []
    for axis, places in ((1, second.place), (0, first.place)):
        at = jnp.expand_dims(jnp.argmax(merits, axis), axis)
        pick = lambda x, at=at, axis=axis: jnp.take_along_axis(x, at, axis).squeeze(
            axis
        )
        best.append((places[at.squeeze(axis)], pick(merits), jax.vmap(pick)(sums)))
    return best


def partners_of_matrix(
    numbers: Numbers,
    merit: Merit,
    items: Any,
    subjects: Any,
    values: np.ndarray,
    exposure: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """`AbstractStoredCells.best_partners` of a matrix.

    Blocks of items are compared two by two, so that no matrix of all pairs is made.
    """
    blocks = list(matrix_blocks(items, values, exposure))
    partner, merits = np.full(values.shape[1], -1), np.full(values.shape[1], -1.0)
    sums: Any = None
    for first, second in watched(list(combinations_with_replacement(blocks, 2))):
        compared = _compare(numbers, merit, subjects, first, second)
        for block, best in zip((first, second), compared, strict=True):
            own = np.asarray(block.place)
            own = own[own >= 0]
            place, value, total = (np.asarray(x)[..., : len(own)] for x in best)
            sums = np.zeros((len(total), len(partner))) if sums is None else sums
            better = value > merits[own]
            at = own[better]
            partner[at], merits[at] = place[better], value[better]
            sums[:, at] = total[:, better]
    return partner, sums


@stored_jit
def _at_cells(numbers: Numbers, items: Any, subjects: Any, row, column, value) -> Any:
    """Numbers of single cells, `[cells]`."""
    at = lambda tree, place: jax.tree.map(lambda x: x[place], tree)
    return jax.vmap(numbers)(at(items, column), at(subjects, row), value)


def cell_blocks(
    numbers: Numbers,
    items: Any,
    subjects: Any,
    row: np.ndarray,
    column: np.ndarray,
    value: np.ndarray,
) -> Iterator[tuple[slice, Any]]:
    """Numbers of observed cells, `BLOCK` at a time, with the places of these cells."""
    items, subjects = jax.tree.map(jnp.asarray, (items, subjects))
    size = max(1, min(len(row), BLOCK))
    for start in range(0, len(row), size):
        # Blocks of one shape: the last one repeats its last cell.
        part = np.minimum(np.arange(start, start + size), len(row) - 1)
        places = jax.device_put((row[part], column[part], value[part]))
        cells = _at_cells(numbers, items, subjects, *places)
        stop = min(start + size, len(row))
        whole = lambda x, number=stop - start: np.asarray(x)[:number]
        yield slice(start, stop), jax.tree.map(whole, cells)


def sums_of_cells(numbers: Numbers, items: Any, subjects: Any, cells: Any) -> Any:
    """Sums `[items]` of numbers over the observed cells of each item."""
    places, sums = (cells.row, cells.column, cells.value), None
    for part, block in cell_blocks(numbers, items, subjects, *places):
        column = cells.column[part]
        add = lambda x, at=column: np.bincount(at, x, minlength=cells.num_items)
        own = jax.tree.map(add, block)
        sums = own if sums is None else jax.tree.map(np.add, sums, own)
    return sums


def pair_sums(
    pairs: Any, start: np.ndarray, column: np.ndarray, size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, list[np.ndarray]]]:
    """Sums over the subjects who met both items of a pair, in blocks of first items.

    Yields the first items, the second ones, and the sum of each product of `pairs`,
    numbers `[cells]` of the first and of the second item, None for ones. Pairs are in
    the order of the first, then of the second item; an item is no pair with itself.
    Cells are in the order of subjects, from `start` `[subjects + 1]` on.
    """
    from scipy.sparse import csr_array

    shape, ones = (len(start) - 1, size), np.ones(len(column))
    matrix = lambda x: csr_array((ones if x is None else x, column, start), shape)
    firsts = [matrix(x).tocsc() for x in (None, *(left for left, _ in pairs))]
    seconds = [matrix(x) for x in (None, *(right for _, right in pairs))]
    width = max(1, BLOCK // max(size, 1))
    for begin in watched(range(0, size, width)):
        products: Any = [
            (x[:, begin : begin + width].T @ y).tocsr()
            for x, y in zip(firsts, seconds, strict=True)
        ]
        keys = []
        for product in products:
            product.sort_indices()
            line = np.repeat(np.arange(product.shape[0]), np.diff(product.indptr))
            keys.append(line.astype(np.int64) * size + product.indices)
        here = keys[0]
        first, second = here // size + begin, here % size
        other = first != second
        sums = []
        for product, key in zip(products[1:], keys[1:], strict=True):
            # A sum that is exactly 0 may be left out.
            total = np.zeros(here.size)
            total[np.searchsorted(here, key)] = product.data
            sums.append(total[other])
        yield first[other], second[other], sums


def best_of_each(first: np.ndarray, merit: np.ndarray) -> np.ndarray:
    """Of the pairs of each first item the one of most merit, the earliest of equals.

    Those of negative merit are left out.

    >>> first, merit = np.array([0, 0, 2, 2, 3]), np.array([1.0, 3.0, 2.0, 2.0, -1.0])
    >>> best_of_each(first, merit).tolist()
    [1, 2]
    """
    place = np.flatnonzero(merit >= 0)
    order = place[np.lexsort((-merit[place], first[place]))]
    return order[np.flatnonzero(np.diff(first[order], prepend=-1))]


def partners_of_cells(
    numbers: Numbers, merit: Merit, items: Any, subjects: Any, cells: Any
) -> tuple[np.ndarray, np.ndarray]:
    """`AbstractStoredCells.best_partners` of observed cells, in double precision."""
    places = cells.row, cells.column, cells.value
    blocks = [part for _, part in cell_blocks(numbers, items, subjects, *places)]
    pairs = jax.tree.map(lambda *x: np.concatenate(x, dtype=np.float64), *blocks)
    partner = np.full(cells.num_items, -1)
    sums = np.zeros((len(pairs), cells.num_items))
    for first, second, totals in pair_sums(
        pairs, cells.start, cells.column, cells.num_items
    ):
        best = best_of_each(first, merit(*totals))
        partner[first[best]] = second[best]
        sums[:, first[best]] = [total[best] for total in totals]
    return partner, sums
