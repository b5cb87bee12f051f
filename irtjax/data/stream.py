"""Responses on disk, read in blocks of subjects: for data larger than memory.

A stream is a folder of plain numbers that a first pass wrote
(`irtjax.data.reading.first_pass`): either all cells as int8, `[subjects, items]` with
-1 where missing, or the observed cells by subject, five bytes each. A pass over the
responses reads it once, one block ahead in a thread, so that two blocks are in memory.

With C categories, responses act through two sums only. Of a table T `[items, C, m]` a
subject has sum_j T[j, y_j], and of vectors U `[subjects, m]` an item and a category
have the sum of u_i over the subjects with that response. In the observed cells both are
products with one sparse matrix of ones, whose columns are pairs of item and category.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

#: Cells of a block: 4 bytes each of observed cells, 1 byte each of all cells.
BLOCK_CELLS = 2**21
#: Share of observed cells from which all cells take fewer bytes than the observed ones,
#: and products with them as little time.
MATRIX_SHARE = 0.2
#: Files of a stream.
MATRIX, COLUMNS, VALUES = "matrix.int8", "columns.int32", "values.int8"


class CellBlock(NamedTuple):
    """The observed cells of consecutive subjects.

    Attributes:
        first: Number of the first subject.
        start: `[subjects + 1]` place of the first cell of each.
        pair: `[cells]` item * categories + category.
        num_categories: Number of categories.
    """

    first: int
    start: np.ndarray
    pair: np.ndarray
    num_categories: int

    @property
    def num_subjects(self) -> int:
        """Number of subjects."""
        return len(self.start) - 1

    def rows(self, part: slice | np.ndarray) -> CellBlock:
        """The cells of some consecutive subjects of the block."""
        assert isinstance(part, slice)
        start = self.start[part.start : part.stop + 1]
        pair = self.pair[start[0] : start[-1]]
        return CellBlock(
            self.first + part.start, start - start[0], pair, self.num_categories
        )

    def parts(self, size: int) -> Iterator[CellBlock]:
        """The block in parts of about so many cells."""
        wanted = np.arange(size, len(self.pair), size)
        edges = np.searchsorted(self.start, wanted).tolist()
        for first, end in pairwise(sorted({0, *edges, self.num_subjects})):
            yield self.rows(slice(first, end))

    def _ones(self, num_items: int, dtype: Any) -> Any:
        """The sparse matrix of ones, `[subjects, items * categories]`."""
        from scipy.sparse import csr_array

        shape = self.num_subjects, num_items * self.num_categories
        return csr_array((np.ones(len(self.pair), dtype), self.pair, self.start), shape)

    def table_sums(self, table: np.ndarray) -> np.ndarray:
        """Sums `[subjects, m]` over cells of a table `[items, categories, m]`."""
        flat = table.reshape(-1, table.shape[2])
        return self._ones(len(table), table.dtype) @ flat

    def pairs(self, num_categories: int) -> tuple[np.ndarray, np.ndarray]:
        """The row of each cell, and item * categories + category."""
        del num_categories
        return np.repeat(np.arange(self.num_subjects), np.diff(self.start)), self.pair

    def add_category_sums(self, vectors: np.ndarray, total: np.ndarray) -> None:
        """Adds vectors `[subjects, m]` to `total` `[items, categories, m]`."""
        ones = self._ones(len(total), vectors.dtype)
        total += (ones.T @ vectors).reshape(total.shape)

    def dense(self, num_items: int) -> np.ndarray:
        """All cells, `[subjects, items]` categories, -1 where missing."""
        values = np.full((self.num_subjects, num_items), -1, np.int8)
        row = np.repeat(np.arange(self.num_subjects), np.diff(self.start))
        item, category = np.divmod(self.pair, self.num_categories)
        values[row, item] = category
        return values


class StreamedBlock(NamedTuple):
    """All cells of consecutive subjects.

    Attributes:
        first: Number of the first subject.
        values: `[subjects, items]` categories, -1 where missing.
        is_complete: Whether no cell of the stream is missing.
    """

    first: int
    values: np.ndarray
    is_complete: bool

    @property
    def num_subjects(self) -> int:
        """Number of subjects."""
        return len(self.values)

    def rows(self, part: slice | np.ndarray) -> StreamedBlock:
        """The cells of some subjects of the block; `first` is that of the block."""
        return self._replace(values=self.values[part])

    def table_sums(self, table: np.ndarray) -> np.ndarray:
        """Sums `[subjects, m]` over cells of a table `[items, categories, m]`."""
        total = np.zeros((self.num_subjects, table.shape[2]), table.dtype)
        if self.is_complete:
            total += table[:, 0].sum(axis=0)
            table = table - table[:, :1]
        for category in range(int(self.is_complete), table.shape[1]):
            has = (self.values == category).astype(table.dtype)
            total += has @ table[:, category]
        return total

    def pairs(self, num_categories: int) -> tuple[np.ndarray, np.ndarray]:
        """The row of each cell, and item * categories + category."""
        row, item = np.nonzero(self.values >= 0)
        return row, item * num_categories + self.values[row, item]

    def add_category_sums(self, vectors: np.ndarray, total: np.ndarray) -> None:
        """Adds vectors `[subjects, m]` to `total` `[items, categories, m]`."""
        rest = np.broadcast_to(vectors.sum(axis=0), (len(total), total.shape[2]))
        for category in range(int(self.is_complete), total.shape[1]):
            own = (self.values == category).astype(vectors.dtype).T @ vectors
            total[:, category] += own
            rest = rest - own
        if self.is_complete:
            total[:, 0] += rest

    def dense(self, num_items: int) -> np.ndarray:
        """All cells, `[subjects, items]` categories, -1 where missing."""
        del num_items
        return self.values


#: Either of them.
StreamBlock = CellBlock | StreamedBlock


@dataclasses.dataclass(frozen=True, eq=False)
class ResponseStream:
    """Responses in a folder, with the sums that are known from the first pass.

    Attributes:
        folder: Where its files are.
        items: `[items]` names of the items.
        codes: `[categories]` the responses that occur, in increasing order.
        is_matrix: Whether all cells are stored, or the observed ones.
        counts: `[items, categories]` responses of each item by category.
        observed: `[subjects]` responses of each subject,
        total: their sum, and
        squares: the sum of their squares.
    """

    folder: Path
    items: np.ndarray
    codes: np.ndarray
    is_matrix: bool
    counts: np.ndarray
    observed: np.ndarray
    total: np.ndarray
    squares: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of subjects and items."""
        return len(self.observed), len(self.items)

    @cached_property
    def num_observed(self) -> int:
        """Number of responses."""
        return int(self.observed.sum(dtype=np.int64))

    @property
    def is_complete(self) -> bool:
        """Whether every cell is observed."""
        return self.num_observed == self.shape[0] * self.shape[1]

    @property
    def bytes_of_pass(self) -> int:
        """Bytes that a pass reads."""
        return (
            self.shape[0] * self.shape[1] if self.is_matrix else 5 * self.num_observed
        )

    @cached_property
    def _start(self) -> np.ndarray:
        """`[subjects + 1]` place of the first observed cell of each subject."""
        return np.concatenate([[0], np.cumsum(self.observed, dtype=np.int64)])

    @cached_property
    def edges(self) -> np.ndarray:
        """First subjects of the blocks, and the number of subjects."""
        num_subjects, num_items = self.shape
        if self.is_matrix:
            rows = max(1, BLOCK_CELLS // num_items)
            return np.append(np.arange(0, num_subjects, rows), num_subjects)
        wanted = np.arange(BLOCK_CELLS, self.num_observed, BLOCK_CELLS)
        inner = np.searchsorted(self._start, wanted)
        return np.unique(np.concatenate([[0], inner, [num_subjects]]))

    def blocks(self) -> Iterator[StreamBlock]:
        """The blocks in the order of subjects, read one ahead in a thread."""
        read = self._matrix if self.is_matrix else self._cells
        edges = self.edges.tolist()
        with ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(read, *edges[:2])
            for k in range(len(edges) - 1):
                block = ahead.result()
                if k + 2 < len(edges):
                    ahead = reader.submit(read, edges[k + 1], edges[k + 2])
                yield block

    def _matrix(self, first: int, end: int) -> StreamedBlock:
        """All cells of subjects from `first` to before `end`."""
        size = self.shape[1]
        numbers = _numbers(self.folder / MATRIX, np.int8, first * size, end * size)
        return StreamedBlock(
            first, numbers.reshape(end - first, size), self.is_complete
        )

    def _cells(self, first: int, end: int) -> CellBlock:
        """The observed cells of subjects from `first` to before `end`."""
        start, count = self._start[first : end + 1], len(self.codes)
        ends = int(start[0]), int(start[-1])
        pair = _numbers(self.folder / COLUMNS, np.int32, *ends)
        pair *= count
        pair += _numbers(self.folder / VALUES, np.int8, *ends)
        return CellBlock(first, (start - start[0]).astype(np.int32), pair, count)


def _numbers(path: Path, dtype: Any, first: int, end: int) -> np.ndarray:
    """Numbers of a file from one place to before another."""
    size = np.dtype(dtype).itemsize
    numbers = np.fromfile(path, dtype, end - first, offset=first * size)
    if len(numbers) < end - first:
        raise ValueError(f"{path} was cut off while it was read: run the fit again")
    return numbers
