"""Responses of which few are observed, by observed cell: the storage of large tables.

A dense table takes a byte for each cell and one more for the mask, whether or not a
cell is observed. Here an observed cell takes five bytes (thirteen where responses are
no small whole numbers), and one that is missing takes none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from irtjax.data.arrays import compact
from irtjax.data.stored_cells import AbstractStoredCells, ItemBlock
from irtjax.numerics.memory import require_memory

#: Share of observed cells up to which a large table is stored by observed cell. It is
#: the share up to which passes over observed cells are the quicker ones.
FEW_OBSERVED = 0.1
#: The same for passes with a number for each node of ability, whose products over all
#: cells are quick.
FEW_ON_NODES = 0.02
#: Cells of a table from which that pays. Below, a dense table has at most 64 MB.
MANY_CELLS = 2**25
#: Bytes of a cell of values and mask, on the host and as arrays, with room for passes.
MATRIX_BYTES = 8.0


def is_sparse(num_observed: int, num_subjects: int, num_items: int) -> bool:
    """Whether a table is stored by observed cell.

    >>> is_sparse(2_000_000, 50_000, 20_000), is_sparse(2_000, 500, 200)
    (True, False)
    """
    size = num_subjects * num_items
    return size > MANY_CELLS and num_observed <= FEW_OBSERVED * size


@dataclasses.dataclass(frozen=True, eq=False)
class SparseCells(AbstractStoredCells):
    """The observed cells of a table, in the order of subjects, then of items.

    Attributes:
        start: `[subjects + 1]` place of the first cell of each subject.
        column: `[cells]` number of the item, int32.
        value: `[cells]` the response, int8 or float64.
        num_items: Number of items.

    >>> cells = SparseCells.of([0, 0, 1], [2, 0, 1], [1, 0, 1], (2, 3))
    >>> cells.column.tolist(), cells.value.tolist(), cells.row.tolist()
    ([0, 2, 1], [0, 1, 1], [0, 0, 1])
    """

    start: np.ndarray
    column: np.ndarray
    value: np.ndarray
    num_items: int

    @classmethod
    def of(cls, row, column, value, shape: tuple[int, int]) -> SparseCells:
        """From distinct cells in any order."""
        place = np.asarray(row, np.int64) * shape[1] + np.asarray(column, np.int64)
        order = np.argsort(place, kind="stable")
        return cls.of_places(place[order], np.asarray(value)[order], shape)

    @classmethod
    def of_places(
        cls, place: np.ndarray, value: np.ndarray, shape: tuple[int, int]
    ) -> SparseCells:
        """From cells by ascending `place`, row * items + column."""
        ends = np.arange(shape[0] + 1, dtype=np.int64) * shape[1]
        column = np.empty(len(place), np.int32)
        np.remainder(place, shape[1], out=column, casting="unsafe")
        return cls(np.searchsorted(place, ends), column, compact(value), shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Subjects and items."""
        return len(self.start) - 1, self.num_items

    @property
    def size(self) -> int:
        """Number of cells, observed or not."""
        return self.shape[0] * self.shape[1]

    @property
    def row(self) -> np.ndarray:
        """`[cells]` number of the subject, int32."""
        rows = np.arange(self.shape[0], dtype=np.int32)
        return np.repeat(rows, np.diff(self.start))

    @cached_property
    def by_item(self) -> tuple[np.ndarray, np.ndarray]:
        """Cells in the order of items, then of subjects: first of each, and places."""
        from scipy.sparse import csr_array

        # Numbers from 1: no entry is 0.
        place = np.arange(1, len(self.column) + 1, dtype=np.int32)
        turned = csr_array((place, self.column, self.start), self.shape).tocsc()
        return np.asarray(turned.indptr, np.int64), np.asarray(turned.data) - 1

    def count(self, axis: int) -> np.ndarray:
        """Observed cells of each item (axis 0) or subject (axis 1), int64."""
        if axis:
            return np.diff(self.start).astype(np.int64)
        return np.bincount(self.column, minlength=self.num_items)

    def sum(self, axis: int, value: np.ndarray | None = None) -> np.ndarray:
        """Sums of the responses, or of any numbers `[cells]`, in double precision."""
        value = self.value if value is None else value
        number = self.row if axis else self.column
        return np.bincount(number, value, minlength=self.shape[1 - axis])

    @property
    def is_binary(self) -> bool:
        """Whether every response is 0 or 1."""
        value = self.value
        if value.dtype != np.int8:
            return False
        return bool(value.min(initial=0) >= 0 and value.max(initial=0) <= 1)

    def over_items(self, numbers: np.ndarray) -> np.ndarray:
        """Sums `[subjects]` of numbers `[items]` over the items that each answered."""
        return self.sum(1, numbers[self.column])

    def item_products(self, vectors: np.ndarray) -> np.ndarray:
        """Sums `[items, m]` over subjects of response times vectors `[subjects, m]`."""
        row = self.row
        sums = [self.sum(0, self.value * vector[row]) for vector in vectors.T]
        return np.stack(sums, axis=1)

    def item_sums(self, numbers: Callable[..., Any], items: Any, subjects: Any) -> Any:
        """Sums `[items]` over the responses of each item of numbers of a response."""
        from irtjax.data.cell_sums import sums_of_cells

        return sums_of_cells(numbers, items, subjects, self)

    def best_partners(
        self,
        numbers: Callable[..., Any],
        merit: Callable[..., Any],
        items: Any,
        subjects: Any,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The other item `[items]` of most merit of each, -1 without any; their sums.

        Time is proportional to the sum over subjects of the squared number of
        responses, memory to the number of responses and a block of pairs.
        """
        from irtjax.data.cell_sums import partners_of_cells

        return partners_of_cells(numbers, merit, items, subjects, self)

    def paired(self, first: np.ndarray, second: np.ndarray) -> SparseCells:
        """The cells of items `first`, of those subjects who met `second` as well."""
        part = self.select(None, first)
        met = self.find(part.row, second[part.column]) >= 0
        start = np.concatenate([[0], np.cumsum(met)])[part.start]
        return SparseCells(start, part.column[met], part.value[met], len(first))

    def cluster_squares(
        self, mean: np.ndarray, label: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Squared sums of residuals over clusters of items, and clusters met."""
        who = self.row
        residuals, size = self.value - mean[who], self.shape[0]
        if label is not None:
            width = int(label.max(initial=0)) + 1
            pair = who.astype(np.int64) * width + label[self.column]
            pairs, place = np.unique(pair, return_inverse=True)
            residuals, who = np.bincount(place, residuals), pairs // width
        squares = np.bincount(who, residuals**2, minlength=size)
        return squares, np.bincount(who, minlength=size)

    def row_of(self, subject: int) -> tuple[np.ndarray, np.ndarray]:
        """Items that a subject answered, and its responses."""
        own = slice(self.start[subject], self.start[subject + 1])
        return self.column[own], self.value[own]

    def num_components(self) -> int:
        """Connected components of the graph of subjects and the items they answered.

        >>> SparseCells.of([0, 0, 1], [0, 1, 2], [1, 0, 1], (2, 4)).num_components()
        2
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        size = sum(self.shape)
        edges = self.row, self.column + self.shape[0]
        graph = coo_array((np.ones(len(self.column), bool), edges), (size, size))
        number = connected_components(graph, directed=False)[0]
        return number - sum(int((self.count(axis) == 0).sum()) for axis in (0, 1))

    def item_blocks(
        self, size: int, items: np.ndarray | None = None
    ) -> Iterator[ItemBlock]:
        """The cells of some items (None for all) at a time, in about `size` places.

        Items of a block have about as many cells each.

        >>> cells = SparseCells.of([0, 0, 1], [2, 0, 2], [1, 0, 0], (2, 3))
        >>> for block in cells.item_blocks(2):
        ...     print(block.items.tolist(), block.subject.tolist(), block.seen.tolist())
        [2] [[0], [1]] [[True], [True]]
        [0, 1] [[0, 0]] [[True, False]]
        """
        first, places = self.by_item
        row, count = self.row, np.diff(first)
        items = np.arange(self.num_items) if items is None else items
        order = items[np.argsort(-count[items], kind="stable")]
        at = 0
        while at < len(order):
            height = max(int(count[order[at]]), 1)
            part = order[at : at + max(1, size // height)]
            at += len(part)
            line = np.arange(height)[:, None]
            seen = line < count[part]
            if not len(places):
                empty = np.zeros(seen.shape, np.int32)
                yield ItemBlock(part, empty, seen, empty)
                continue
            cell = places[np.where(seen, first[part] + line, 0)]
            subject = np.where(seen, row[cell], 0)
            value = np.where(seen, self.value[cell], 0)
            yield ItemBlock(part, value, seen, subject)

    def find(self, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """The place of each of these cells, -1 where it is missing.

        >>> cells = SparseCells.of([0, 0, 1], [2, 0, 1], [1, 0, 1], (2, 3))
        >>> cells.find(np.array([0, 1]), np.array([2, 0])).tolist()
        [1, -1]
        """
        width = self.num_items
        here = self.row.astype(np.int64) * width + self.column
        wanted = np.asarray(row, np.int64) * width + column
        place = np.searchsorted(here, wanted)
        nearest = np.minimum(place, max(len(here) - 1, 0))
        is_observed = place < len(here)
        if len(here):
            is_observed &= here[nearest] == wanted
        return np.where(is_observed, nearest, -1)

    def select(self, rows: np.ndarray | None, columns: np.ndarray | None):
        """The cells of some subjects and items, by number, in the order given."""
        from scipy.sparse import csr_array

        place = np.arange(1, len(self.column) + 1, dtype=np.int32)
        part: Any = csr_array((place, self.column, self.start), self.shape)
        part = part if rows is None else part[rows]
        part = part if columns is None else part[:, columns]
        part.sort_indices()
        start, column = part.indptr.astype(np.int64), part.indices.astype(np.int32)
        value = compact(self.value[part.data - 1])
        return SparseCells(start, column, value, part.shape[1])

    @property
    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Values, 0 where missing, and mask, `[subjects, items]`.

        Raises:
            ValueError: They do not fit into the memory.
        """
        return self._matrices

    @cached_property
    def _matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """`dense`, made once."""
        rows, columns = self.shape
        require_memory(
            float(self.size) * (self.value.itemsize + 1),
            f"a dense table of {rows:,} subjects by {columns:,} items",
            "select fewer subjects or items; models of right or wrong responses are"
            " fitted without it, by method='em' or 'mm'",
        )
        values = np.zeros(self.shape, self.value.dtype)
        observed = np.zeros(self.shape, bool)
        row = self.row
        values[row, self.column] = self.value
        observed[row, self.column] = True
        return values, observed
