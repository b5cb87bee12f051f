"""The responses of a table as they are stored: the same sums, whatever the storage.

A table has all cells as matrices (`DenseCells`) or its observed cells alone
(`irtjax.data.sparse_table.SparseCells`). Both have the margins, sums and blocks that
statistics of a table are made of, so that no statistic depends on the storage.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

#: Cells of a block in double precision.
BLOCK_CELLS = 2**22


class ItemBlock(NamedTuple):
    """Responses and mask of some items, `[rows, items]`.

    Rows of a matrix are its subjects. Of observed cells each column has those of its
    item, and `subject` `[rows, items]` has the subject of each.
    """

    items: Any  # places in the table
    values: np.ndarray
    seen: np.ndarray
    subject: np.ndarray | None = None

    def of_subjects(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers `[subjects]` at the cells, or so that they broadcast to them."""
        return numbers[:, None] if self.subject is None else numbers[self.subject]


class AbstractStoredCells(ABC):
    """Responses of subjects to items; 0 where missing. Weights are trials, if any."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Subjects and items."""

    @property
    @abstractmethod
    def is_binary(self) -> bool:
        """Whether every response is one trial, 0 or 1."""

    @property
    def is_complete(self) -> bool:
        """Whether no response is missing and each is one trial."""
        return int(self.count(1).sum()) == self.shape[0] * self.shape[1]

    @property
    @abstractmethod
    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Values, 0 where missing, and mask, `[subjects, items]`."""

    @abstractmethod
    def count(self, axis: int) -> np.ndarray:
        """Responses, or trials, of each item (axis 0) or subject (axis 1), int64."""

    @abstractmethod
    def sum(self, axis: int) -> np.ndarray:
        """Sums of the responses of each item or subject, in double precision."""

    @abstractmethod
    def over_items(self, numbers: np.ndarray) -> np.ndarray:
        """Sums `[subjects]` of numbers `[items]` over the items that each answered."""

    @abstractmethod
    def item_products(self, vectors: np.ndarray) -> np.ndarray:
        """Sums `[items, m]` over subjects of response times vectors `[subjects, m]`."""

    @abstractmethod
    def item_sums(self, numbers: Callable[..., Any], items: Any, subjects: Any) -> Any:
        """Sums `[items]` over the responses of each item of numbers of a response.

        Args:
            numbers: From the records of an item and of a subject and the response to a
                PyTree of numbers; a function of a module, or a
                `jax.tree_util.Partial` of one.
            items: Records, arrays `[items, ...]`.
            subjects: Records, arrays `[subjects, ...]`.
        """

    @abstractmethod
    def best_partners(
        self,
        numbers: Callable[..., Any],
        merit: Callable[..., Any],
        items: Any,
        subjects: Any,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The other item `[items]` of most merit of each, -1 without any; their sums.

        Sums `[pairs, items]` are those of `left * right` over the subjects who met both
        items, one for each pair that `numbers` makes of a response (see `item_sums`):
        left of the one item, right of the other, None for 1. `merit` takes the sums and
        is the same for both items; two items of negative merit are no partners. Of
        equal partners it is the first one.
        """

    @abstractmethod
    def paired(self, first: np.ndarray, second: np.ndarray) -> AbstractStoredCells:
        """The cells of items `first`, of those subjects who met `second` as well."""

    @abstractmethod
    def cluster_squares(
        self, mean: np.ndarray, label: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Squared sums of residuals over clusters of items, and clusters met.

        Both are `[subjects]`. Residuals are response less trials times `mean`
        `[subjects]`; `label` `[items]` numbers the clusters, None if each item is one.
        """

    @abstractmethod
    def select(
        self, rows: np.ndarray | None, columns: np.ndarray | None
    ) -> AbstractStoredCells:
        """The cells of some subjects and items, by number, in the order given."""

    @abstractmethod
    def item_blocks(
        self, size: int, items: np.ndarray | None = None
    ) -> Iterator[ItemBlock]:
        """The cells of some items (None for all) at a time, in about `size` places."""

    @abstractmethod
    def row_of(self, subject: int) -> tuple[np.ndarray, np.ndarray]:
        """Items that a subject answered, and its responses (of trials, shares)."""

    @abstractmethod
    def num_components(self) -> int:
        """Connected components of the graph of subjects and the items they answered.

        Subjects and items without any response do not count. Abilities in two
        components cannot be compared.
        """

    def per_trial(self) -> AbstractStoredCells:
        """Shares of trials, each as one response."""
        return self

    def unequal_trials(self) -> np.ndarray:
        """`[items]` whether numbers of trials differ between subjects."""
        return np.zeros(self.shape[1], bool)


@dataclasses.dataclass(frozen=True, eq=False)
class DenseCells(AbstractStoredCells):
    """All cells of a table, as matrices `[subjects, items]`.

    Attributes:
        values: Responses, 0 where missing.
        observed: Mask; None if nothing is missing.
        trials: Numbers of trials; None for 1.

    >>> cells = DenseCells(np.array([[1, 0], [1, 1]], np.int8))
    >>> cells.count(0).tolist(), cells.sum(1).tolist(), cells.is_binary
    ([2, 2], [1.0, 2.0], True)
    """

    values: np.ndarray
    observed: np.ndarray | None = None
    trials: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Subjects and items."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def exposure(self) -> np.ndarray | None:
        """Trials, the mask, or None for ones."""
        return self.observed if self.trials is None else self.trials

    @property
    def is_binary(self) -> bool:
        """Whether every response is one trial, 0 or 1."""
        values = self.values
        if self.trials is not None or values.dtype not in (np.int8, bool):
            return False
        return bool(values.min(initial=0) >= 0 and values.max(initial=0) <= 1)

    @property
    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Values, 0 where missing, and mask, `[subjects, items]`."""
        if self.exposure is None:
            return self.values, np.ones(self.shape, bool)
        return self.values, self.exposure > 0

    def count(self, axis: int) -> np.ndarray:
        """Responses, or trials, of each item (axis 0) or subject (axis 1), int64."""
        if self.exposure is None:
            return np.full(self.shape[1 - axis], self.shape[axis], np.int64)
        return self.exposure.sum(axis=axis, dtype=np.int64)

    def sum(self, axis: int) -> np.ndarray:
        """Sums of the responses of each item or subject, in double precision."""
        return self.values.sum(axis=axis, dtype=np.float64)

    def over_items(self, numbers: np.ndarray) -> np.ndarray:
        """Sums `[subjects]` of numbers `[items]` over the items that each answered."""
        if self.exposure is None:
            return np.full(self.shape[0], numbers.sum())
        total = np.empty(self.shape[0])
        for rows in self._row_blocks(BLOCK_CELLS):
            total[rows] = self.exposure[rows] @ numbers
        return total

    def item_products(self, vectors: np.ndarray) -> np.ndarray:
        """Sums `[items, m]` over subjects of response times vectors `[subjects, m]`."""
        sums = np.zeros((self.shape[1], vectors.shape[1]))
        # Blocks that fit the cache: ten times faster than beyond it.
        for rows in self._row_blocks(100_000):
            sums += self.values[rows].astype(np.float64).T @ vectors[rows]
        return sums

    def item_sums(self, numbers: Callable[..., Any], items: Any, subjects: Any) -> Any:
        """Sums `[items]` over the responses of each item of numbers of a response."""
        from irtjax.data.cell_sums import sums_of_matrix

        return sums_of_matrix(numbers, items, subjects, self.values, self.exposure)

    def best_partners(
        self,
        numbers: Callable[..., Any],
        merit: Callable[..., Any],
        items: Any,
        subjects: Any,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The other item `[items]` of most merit of each, -1 without any; their sums.

        Sums are products of matrices in single precision.
        """
        from irtjax.data.cell_sums import partners_of_matrix

        matrices = self.values, self.exposure
        return partners_of_matrix(numbers, merit, items, subjects, *matrices)

    def paired(self, first: np.ndarray, second: np.ndarray) -> DenseCells:
        """The cells of items `first`, of those subjects who met `second` as well."""
        part = self.select(None, first)
        if self.exposure is None:
            return part
        met = self.exposure[:, second] > 0
        cut = lambda x: None if x is None else x * met
        return DenseCells(part.values * met, cut(part.observed), cut(part.trials))

    def cluster_squares(
        self, mean: np.ndarray, label: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Squared sums of residuals over clusters of items, and clusters met."""
        squares, clusters = np.zeros(self.shape[0]), np.zeros(self.shape[0], np.int64)
        label = np.arange(self.shape[1]) if label is None else label
        order = np.argsort(label, kind="stable")
        starts = np.flatnonzero(np.diff(label[order], prepend=-1))
        by_label = len(starts) < len(label)
        exposure = np.ones((1, 1)) if self.exposure is None else self.exposure
        exposure = np.broadcast_to(exposure, self.shape)
        for rows in self._row_blocks(4 * BLOCK_CELLS):
            values, trials = self.values[rows], exposure[rows]
            if by_label:  # Before they are numbers of double precision.
                values, trials = values[:, order], trials[:, order]
            trials = np.asarray(trials, np.float64)
            residuals = values - np.nan_to_num(mean[rows])[:, None] * trials
            if by_label:
                residuals = np.add.reduceat(residuals, starts, axis=1)
                trials = np.add.reduceat(trials, starts, axis=1)
            squares[rows] = np.einsum("nk,nk->n", residuals, residuals)
            clusters[rows] = (trials > 0).sum(axis=1)
        return squares, clusters

    def select(self, rows: np.ndarray | None, columns: np.ndarray | None) -> DenseCells:
        """The cells of some subjects and items, by number, in the order given."""

        def cut(array: np.ndarray | None) -> np.ndarray | None:
            if array is None:
                return None
            if rows is not None and columns is not None:
                return array[np.ix_(rows, columns)]
            array = array if rows is None else array[rows]
            return array if columns is None else array[:, columns]

        values = cut(self.values)
        assert values is not None
        return DenseCells(values, cut(self.observed), cut(self.trials))

    def item_blocks(
        self, size: int, items: np.ndarray | None = None
    ) -> Iterator[ItemBlock]:
        """The cells of some items (None for all) at a time, in about `size` places."""
        width = max(1, size // max(self.shape[0], 1))
        for start in range(0, self.shape[1] if items is None else len(items), width):
            part: Any = slice(start, start + width)  # A slice copies nothing.
            part = part if items is None else items[part]
            values, exposure = self.values[:, part], self.exposure
            seen = np.ones(values.shape, bool)
            seen = seen if exposure is None else exposure[:, part] > 0
            yield ItemBlock(part, values, seen)

    def row_of(self, subject: int) -> tuple[np.ndarray, np.ndarray]:
        """Items that a subject answered, and its responses (of trials, shares)."""
        values = self.values[subject]
        if self.exposure is None:
            return np.arange(values.size), values
        exposure = self.exposure[subject]
        seen = exposure > 0
        if self.trials is not None:
            values = values / np.maximum(exposure, 1)
        return np.flatnonzero(seen), values[seen]

    def num_components(self) -> int:
        """Connected components of the graph of subjects and the items they answered.

        >>> seen = np.array([[True, True, False], [False, False, True]])
        >>> DenseCells(seen, seen).num_components()
        2
        """
        if self.exposure is None:
            return 1
        seen = self.exposure > 0
        subjects = seen.any(axis=1)
        components = 0
        while subjects.any():
            reached = np.zeros_like(subjects)
            reached[np.argmax(subjects)] = True
            size = 0
            while reached.sum() > size:
                size = int(reached.sum())
                items = np.logical_or.reduce(seen, axis=0, where=reached[:, None])
                reached |= np.logical_or.reduce(seen, axis=1, where=items[None, :])
            subjects &= ~reached
            components += 1
        return components

    def per_trial(self) -> AbstractStoredCells:
        """Shares of trials, each as one response."""
        if self.trials is None:
            return self
        return DenseCells(self.values / np.maximum(self.trials, 1), self.trials > 0)

    def unequal_trials(self) -> np.ndarray:
        """`[items]` whether numbers of trials differ between subjects."""
        if self.trials is None:
            return super().unequal_trials()
        most = self.trials.max(axis=0, initial=0)
        return ((self.trials > 0) & (self.trials != most)).any(axis=0)

    def _row_blocks(self, size: int) -> Iterator[slice]:
        """Subjects of about so many cells at a time."""
        height = max(1, size // max(self.shape[1], 1))
        for start in range(0, self.shape[0], height):
            yield slice(start, start + height)
