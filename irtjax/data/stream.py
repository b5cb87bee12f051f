"""Responses on disk, read in blocks of subjects: for data larger than memory.

A stream is a folder of plain numbers that a first pass wrote
(`irtjax.data.reading.first_pass`): either all cells as int8, `[subjects, items]` with
-1 where missing, or the observed cells by subject, five bytes each. A pass over the
responses reads it once, one block ahead in a thread, so that two blocks are in memory.

With C categories, responses act through two sums only. Of a table T `[items, C, m]` a
subject has sum_j T[j, y_j], and of vectors U `[subjects, m]` an item and a category
have the sum of u_i over the subjects with that response. In the observed cells both are
products with one sparse matrix of ones, whose columns are pairs of item and category.

Subjects may be divided over processes (`irtjax.numerics.processes`). Each has the names
and sums of all subjects, and reads the responses of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from irtjax.numerics.processes import ALONE, Processes
from irtjax.numerics.threads import map_in_order

#: Cells of a block: 4 bytes each of observed cells, 1 byte each of all cells.
BLOCK_CELLS = 2**21
#: Share of observed cells from which all cells take fewer bytes than the observed ones,
#: and products with them as little time.
MATRIX_SHARE = 0.2
#: Files of a stream.
MATRIX, COLUMNS, VALUES = "matrix.int8", "columns.int32", "values.int8"


@dataclasses.dataclass(frozen=True, eq=False)
class CellBlock:
    """The observed cells of consecutive subjects, or of some in any order.

    Attributes:
        first: Number of the first subject of the block that they are from.
        start: `[subjects + 1]` place of the first cell of each.
        pair: `[cells]` item * categories + category.
        shape: Numbers of items and of categories.
    """

    first: int
    start: np.ndarray
    pair: np.ndarray
    shape: tuple[int, int]

    @property
    def num_subjects(self) -> int:
        """Number of subjects."""
        return len(self.start) - 1

    def rows(self, part: slice | np.ndarray) -> CellBlock:
        """The cells of some subjects of the block."""
        if isinstance(part, slice):
            start = self.start[part.start : part.stop + 1]
            pair = self.pair[start[0] : start[-1]]
            first = self.first + part.start
            return CellBlock(first, start - start[0], pair, self.shape)
        count = np.diff(self.start)[part]
        start = np.concatenate([[0], np.cumsum(count)]).astype(self.start.dtype)
        place = np.repeat(self.start[part] - start[:-1], count)
        place += np.arange(len(place), dtype=place.dtype)
        return CellBlock(self.first, start, self.pair[place], self.shape)

    @cached_property
    def _ones(self) -> Any:
        """The sparse matrix of ones, `[subjects, items * categories]`."""
        from scipy.sparse import csr_array

        shape = self.num_subjects, self.shape[0] * self.shape[1]
        # Products take the wider type: float32 times these is float32.
        ones = np.ones(len(self.pair), np.float32)
        return csr_array((ones, self.pair, self.start), shape)

    def table_sums(self, table: np.ndarray) -> np.ndarray:
        """Sums `[subjects, m]` over cells of a table `[items, categories, m]`."""
        return self._ones @ table.reshape(-1, table.shape[2])

    def pairs(self, num_categories: int) -> tuple[np.ndarray, np.ndarray]:
        """The row of each cell, and item * categories + category."""
        del num_categories
        return np.repeat(np.arange(self.num_subjects), np.diff(self.start)), self.pair

    def category_sums(self, vectors: np.ndarray, num_categories: int) -> np.ndarray:
        """Sums `[items, categories, m]` of vectors `[subjects, m]` over responses."""
        del num_categories
        return (self._ones.T @ vectors).reshape(*self.shape, -1)

    def dense(self, num_items: int) -> np.ndarray:
        """All cells, `[subjects, items]` categories, -1 where missing."""
        values = np.full((self.num_subjects, num_items), -1, np.int8)
        row = np.repeat(np.arange(self.num_subjects), np.diff(self.start))
        item, category = np.divmod(self.pair, self.shape[1])
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

    def category_sums(self, vectors: np.ndarray, num_categories: int) -> np.ndarray:
        """Sums `[items, categories, m]` of vectors `[subjects, m]` over responses."""
        shape = self.values.shape[1], num_categories, vectors.shape[1]
        total = np.empty(shape, vectors.dtype)
        for category in range(int(self.is_complete), num_categories):
            has = (self.values == category).astype(vectors.dtype)
            total[:, category] = has.T @ vectors
        if self.is_complete:
            total[:, 0] = vectors.sum(axis=0) - total[:, 1:].sum(axis=1)
        return total

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
        benchmarks: `[items]` benchmark of each item, None where the file has none.
        processes: Those that divide the subjects.
        first: Number of the first subject whose responses the folder has.
    """

    folder: Path
    items: np.ndarray
    codes: np.ndarray
    is_matrix: bool
    counts: np.ndarray
    observed: np.ndarray
    total: np.ndarray
    squares: np.ndarray
    benchmarks: np.ndarray | None = None
    processes: Processes = ALONE
    first: int = 0

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

    def edges(self, size: int | None = None, segment: int = 0) -> np.ndarray:
        """First subjects of blocks of about so many cells, and the end of the last.

        Of one segment, which is all subjects unless processes divide them.
        """
        size = size or BLOCK_CELLS
        edges = self.processes.edges(self.shape[0])
        first, end = int(edges[segment]), int(edges[segment + 1])
        if self.is_matrix:
            rows = max(1, size // self.shape[1])
            return np.append(np.arange(first, end, rows), end)
        wanted = np.arange(self._start[first] + size, self._start[end], size)
        inner = np.searchsorted(self._start, wanted)
        return np.unique(np.concatenate([[first], inner, [end]]))

    def blocks(
        self, size: int | None = None, segment: int | None = None
    ) -> Iterator[StreamBlock]:
        """Blocks in the order of subjects, of about so many cells (`BLOCK_CELLS`).

        Of one segment, or of all that this process has. A thread reads one ahead.
        """
        read = self._matrix if self.is_matrix else self._cells
        segments = self.processes.own_segments if segment is None else [segment]
        ends = [x for k in segments for x in pairwise(self.edges(size, k).tolist())]
        yield from map_in_order(lambda pair: read(*pair), ends, workers=1)

    def row_sums(self, table: np.ndarray) -> np.ndarray:
        """Sums `[subjects, m]` of a table `[items, categories, m]`, by one pass."""
        rows = np.zeros((self.shape[0], table.shape[2]), table.dtype)
        for block in self.blocks():
            own = slice(block.first, block.first + block.num_subjects)
            rows[own] = block.table_sums(table)
        return self.processes.gather_rows(rows)

    def category_sums(self, vectors: np.ndarray) -> np.ndarray:
        """Sums `[items, categories, m]` of vectors `[subjects, m]`, by one pass."""
        count = len(self.codes)

        def of_segment(segment: int) -> Sequence[np.ndarray]:
            total = np.zeros((len(self.items), count, vectors.shape[1]), vectors.dtype)
            for block in self.blocks(segment=segment):
                own = slice(block.first, block.first + block.num_subjects)
                total += block.category_sums(vectors[own], count)
            return (total,)

        return self.processes.sum_segments(of_segment)[0]

    def _matrix(self, first: int, end: int) -> StreamedBlock:
        """All cells of subjects from `first` to before `end`."""
        size = self.shape[1]
        ends = (first - self.first) * size, (end - self.first) * size
        numbers = _numbers(self.folder / MATRIX, np.int8, *ends)
        return StreamedBlock(
            first, numbers.reshape(end - first, size), self.is_complete
        )

    def _cells(self, first: int, end: int) -> CellBlock:
        """The observed cells of subjects from `first` to before `end`."""
        start, shape = self._start[first : end + 1], self.counts.shape
        offset = self._start[self.first]
        ends = int(start[0] - offset), int(start[-1] - offset)
        pair = _numbers(self.folder / COLUMNS, np.int32, *ends)
        pair *= shape[1]
        pair += _numbers(self.folder / VALUES, np.int8, *ends)
        return CellBlock(first, (start - start[0]).astype(np.int32), pair, shape)


def _numbers(path: Path, dtype: Any, first: int, end: int) -> np.ndarray:
    """Numbers of a file from one place to before another."""
    size = np.dtype(dtype).itemsize
    numbers = np.fromfile(path, dtype, end - first, offset=first * size)
    if len(numbers) < end - first:
        raise ValueError(f"{path} was cut off while it was read: run the fit again")
    return numbers
