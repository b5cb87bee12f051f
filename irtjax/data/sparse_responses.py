"""The arrays that enter ``jit`` where few responses are observed: these alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax.data.blocks import DenseBlock, ObservedBlock
from irtjax.data.responses import AbstractResponses, Responses
from irtjax.data.sparse_table import SparseCells
from irtjax.numerics.kernels import weigh_rows
from irtjax.numerics.sparse import (
    Bucket,
    buckets_of,
    cell_products,
    dense_blocks,
    in_blocks,
    num_blocks,
    scan_rows,
)


class SparseResponses(AbstractResponses):
    """Responses by observed cell, twice: by subject and by item.

    It takes the place of `Responses` in the methods that state so
    (`AbstractEstimator.share_of_cells`): sums over all cells become sums over the
    observed ones, and time and memory are proportional to their number.

    Attributes:
        subjects: Buckets of subjects, whose cells name items.
        items: Buckets of items, whose cells name subjects.
        shape: Numbers of subjects and of items.
        one_trial: Whether every observed cell is one trial.

    >>> cells = SparseCells.of([0, 1, 1], [1, 0, 1], [1, 0, 1], (2, 2))
    >>> data = SparseResponses.of_cells(cells)
    >>> data.num_subjects, data.num_items, data.answered().tolist()
    (2, 2, [1.0, 2.0])
    """

    subjects: tuple[Bucket, ...]
    items: tuple[Bucket, ...]
    shape: tuple[int, int] = eqx.field(static=True)
    one_trial: bool = eqx.field(static=True)

    @classmethod
    def of_cells(
        cls,
        cells: SparseCells,
        trials: np.ndarray | None = None,
        *,
        seen: np.ndarray | None = None,
        **fields,
    ) -> SparseResponses:
        """Cells laid out on the host; `trials` are those of each, or None for 1.

        Cells that are not `seen` `[cells]` are laid out as missing ones, so that the
        programs are those of all cells.
        """
        value, single = cells.value, trials is None
        exposure = np.ones(len(value), np.int8) if trials is None else trials
        if seen is not None:
            value, exposure = value * seen, exposure * seen
        first, order = cells.by_item
        return cls(
            buckets_of(cells.start, cells.column, value, exposure),
            buckets_of(first, cells.row[order], value[order], exposure[order]),
            cells.shape,
            single,
            **fields,
        )

    @classmethod
    def of(cls, data: Responses) -> SparseResponses:
        """The observed cells of responses.

        >>> import jax.numpy as jnp
        >>> from irtjax.data.responses import Responses
        >>> data = Responses(jnp.eye(3, 4), jnp.eye(3, 4) > 0)
        >>> few = SparseResponses.of(data)
        >>> [bucket.column.shape for bucket in few.subjects]
        [(1, 3, 1)]
        """
        exposure, values = np.asarray(data.exposure), np.asarray(data.values)
        row, column = np.nonzero(exposure)
        start = np.searchsorted(row, np.arange(len(values) + 1))
        value = values[row, column]
        cells = SparseCells(start, column.astype(np.int32), value, values.shape[1])
        return cls.of_cells(
            cells,
            None if data.trials is None else exposure[row, column],
            subject_weight=data.subject_weight,
            item_weight=data.item_weight,
            item_facets=data.item_facets,
        )

    @property
    def num_subjects(self) -> int:
        """Number of subjects."""
        return self.shape[0]

    @property
    def num_items(self) -> int:
        """Number of items."""
        return self.shape[1]

    @property
    def single(self) -> bool:
        """Whether every observed cell is one trial."""
        return self.one_trial

    @property
    def has_blocks(self) -> bool:
        """False: there are only observed cells."""
        return False

    @property
    def is_sparse(self) -> bool:
        """True: there are no other cells."""
        return True

    def answered(
        self, weight: np.ndarray | None = None, *, trials: bool = True
    ) -> np.ndarray:
        """Weights `[items]` (None: 1) summed over the responses of each subject."""
        each = np.ones(self.num_items) if weight is None else np.asarray(weight, float)
        total = np.zeros(self.num_subjects)
        for bucket in self.subjects:
            row, exposure = np.asarray(bucket.row), np.asarray(bucket.exposure)
            exposure = exposure if trials else exposure > 0
            sums = np.sum(exposure * each[np.asarray(bucket.column)], axis=-1)
            real = row < self.num_subjects
            total[row[real]] = sums[real]
        return total

    @property
    def num_cells(self) -> int:
        """Observed cells, and those of padding."""
        return sum(bucket.value.size for bucket in self.subjects)

    @property
    def share_observed(self) -> float:
        """Share of the cells that are observed, on the host."""
        seen = sum(int((np.asarray(x.exposure) != 0).sum()) for x in self.subjects)
        return seen / (self.num_subjects * self.num_items)

    def exposures(self, dtype: Any) -> tuple[Array, Array]:
        """Responses (or trials) of each item and of each subject."""

        def counts(side: tuple[Bucket, ...], num_rows: int) -> Array:
            total = jnp.zeros(num_rows, dtype)
            for part in side:
                seen = jnp.sum(part.exposure.astype(dtype), axis=-1)
                total = total.at[part.row].add(seen, mode="drop")
            return total

        return counts(self.items, self.num_items), counts(
            self.subjects, self.num_subjects
        )

    def row_products(
        self, on_values: Float[Array, "items m"], on_exposure: Array
    ) -> Float[Array, "subjects m"]:
        """Computes values @ on_values + exposure @ on_exposure over observed cells."""
        terms = lambda value, exposure: (value, exposure)
        return self.table_products((on_values, on_exposure), terms)

    def table_products(
        self,
        tables: Sequence[Float[Array, "items m"]],
        weights: Callable[[Array, Array], Sequence[Array]],
    ) -> Float[Array, "subjects m"]:
        """Sum over tables of cells times table; `weights` makes the cells of each."""
        return cell_products(self.subjects, self.num_subjects, tables, weights)

    def column_products(
        self,
        vectors: Float[Array, "subjects m"],
        statistics: Callable[[Array], tuple[Array, ...]] | None = None,
    ) -> tuple[tuple[Array, ...], Array, Array]:
        """Weighted sums S_k' U for each statistic, Y' U of values, M' U of exposure."""
        vectors = weigh_rows(vectors, self.subject_weight)

        def total(weight: Callable[[Array, Array], Array]) -> Array:
            each = lambda value, exposure: [weight(value, exposure)]
            return cell_products(self.items, self.num_items, [vectors], each)

        of_values = statistics or (lambda values: ())

        def statistic(k: int) -> Callable[[Array, Array], Array]:
            return lambda value, exposure: of_values(value)[k]

        count = len(of_values(vectors[:1, :1]))
        of_statistics = tuple(total(statistic(k)) for k in range(count))
        exposures = total(lambda _, exposure: exposure)
        return of_statistics, total(lambda value, _: value), exposures

    def map_subjects(
        self, function: Callable[[Any], Any], init: Any, dtype: Any, **options: Any
    ) -> Any:
        """Arrays by subject, with `function` of each block at the places of its rows.

        See `AbstractResponses.map_subjects`.
        """
        del dtype
        return _map(self.subjects, function, init, **options)

    def map_rows(
        self,
        prepare: Callable[[Array | None], Callable[[DenseBlock], Any]],
        init: Any,
        dtype: Any,
        **options: Any,
    ) -> Any:
        """As `map_subjects`, of blocks of one subject and the items it answered."""

        def one(row: ObservedBlock) -> Any:
            alone = DenseBlock(row.row, row.values[None], row.exposure[None])
            return jax.tree.map(lambda x: x[0], prepare(row.column)(alone))

        return self.map_subjects(jax.vmap(one), init, dtype, **options)

    def map_items(
        self, function: Callable[[Any], Any], init: Any, dtype: Any, **options: Any
    ) -> Any:
        """As `map_subjects`, of blocks whose rows are items and columns subjects."""
        del dtype
        return _map(self.items, function, init, **options)

    def stretches(self, dtype: Any, numbers: int = 1) -> tuple[int, int]:
        """Blocks of `map_subjects`, one at a time: see `blocks_in_stretches`."""
        del dtype
        return num_blocks(self.subjects, numbers), 1

    def item_stretches(self, dtype: Any, numbers: int = 1) -> tuple[int, int]:
        """The same of `map_items`."""
        del dtype
        return num_blocks(self.items, numbers), 1

    def matrix_blocks(
        self, size: int, dtype: Any = None
    ) -> Callable[[Array], tuple[Array, Array]]:
        """From a first subject: values and exposure of `size` subjects, every item."""
        stored = self.subjects[0].value.dtype if self.subjects else jnp.int8
        return dense_blocks(self.subjects, *self.shape, size, dtype or stored)

    def among(self, places: np.ndarray, num_items: int) -> SparseResponses:
        """With a column for each of `num_items`, these items at their `places`."""
        numbers = jnp.asarray(places, jnp.int32)
        subjects = tuple(x._replace(column=numbers[x.column]) for x in self.subjects)
        shape = self.num_subjects, num_items
        return SparseResponses(subjects, (), shape, self.one_trial)


def _map(
    buckets: tuple[Bucket, ...],
    function: Callable[[ObservedBlock], Any],
    init: Any,
    *,
    numbers: int = 1,
    into: Any = None,
    between: Array | None = None,
) -> Any:
    """`map_subjects` of the rows of buckets."""
    if into is not None and between is not None:
        # Rows without a cell are in no block.
        first = between[0] == 0
        init = jax.tree.map(lambda x, y: jnp.where(first, x, y), init, into)
    if numbers > 1:
        buckets = tuple(in_blocks(bucket, numbers) for bucket in buckets)
    of_chunk = lambda part: function(ObservedBlock.of(part))
    return scan_rows(buckets, of_chunk, init, between)


def by_cell(data: AbstractResponses) -> SparseResponses:
    """The observed cells of responses alone. Not for use under jit."""
    if isinstance(data, SparseResponses):
        return data
    assert isinstance(data, Responses)
    return SparseResponses.of(data)
