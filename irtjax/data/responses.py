"""The arrays that enter ``jit``: responses of subjects to items, on one measure."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Num

from irtjax.data.blocks import DenseBlock
from irtjax.data.sparse_table import FEW_OBSERVED, SparseCells
from irtjax.data.stored_cells import DenseCells
from irtjax.numerics.kernels import (
    block_size_for,
    put_block,
    scan_subject_blocks,
    take_block,
    weigh_rows,
)

#: Cells of a matrix from which a layout of its observed cells may pay.
MANY_CELLS = 2**20


class AbstractResponses(eqx.Module):
    """Responses of many subjects to many items, however they are laid out.

    Estimators are written with these sums and maps. They have no part that depends on
    the layout: all cells (`Responses`), or the observed ones alone
    (`irtjax.data.sparse_responses.SparseResponses`).

    A layout of your own states its numbers of subjects and items, and makes any block
    of subjects (`matrix_blocks`). Sums over subjects and maps over them are folds over
    such blocks, and the others are made of these two. A layout that has something
    quicker replaces them.

    Attributes:
        subject_weight: `[subjects]`, or None for weight 1 each.
        item_weight: `[items]` in the likelihood of an ability, or None for 1 each.
        item_facets: integer codes `[items]` by name, such as "benchmark".
        evidence: `[subjects, 2]` log-likelihood e_0 theta - e_1 theta^2 / 2 of each
            ability from other data (another measure, an earlier test), or None. For a
            normal N(m, s^2) in place of a population N(0, 1): e_0 = m / s^2,
            e_1 = 1 / s^2 - 1.
    """

    subject_weight: Float[Array, " subjects"] | None = eqx.field(
        default=None, kw_only=True
    )
    item_weight: Float[Array, " items"] | None = eqx.field(default=None, kw_only=True)
    item_facets: dict[str, Int[Array, " items"]] = eqx.field(
        default_factory=dict, kw_only=True
    )
    evidence: Float[Array, "subjects 2"] | None = eqx.field(default=None, kw_only=True)

    def fold(self, function: Callable[..., Any], rows: Any = None, *whole: Any) -> Any:
        """Sums over subjects and arrays by subject, of a function of some subjects.

        The one way in which a pass over the matrix is divided over devices. It takes
        all subjects at once unless they are divided
        (`irtjax.data.sharded_responses`).

        Args:
            function: From the responses of some subjects, their rows of `rows`, and
                `whole`, to a pair: sums over these subjects, and arrays with a row for
                each. Blocks are counted from the first of these subjects.
            rows: Arrays with a row for each subject.
            *whole: Other arrays that the function indexes. Those of its closure it may
                compute with, but not index: JAX refuses it within `shard_map`.

        Returns:
            The pair for all subjects.
        """
        return function(self, rows, *whole)

    @property
    def is_divided(self) -> bool:
        """Whether subjects are divided over devices, in a size that stays."""
        return False

    @property
    def is_streamed(self) -> bool:
        """Whether passes read from disk, on the host, and not under `jit`."""
        return False

    @property
    @abstractmethod
    def num_subjects(self) -> int:
        """Number of subjects."""

    @property
    @abstractmethod
    def num_items(self) -> int:
        """Number of items."""

    @abstractmethod
    def matrix_blocks(
        self, size: int, dtype: Any = None
    ) -> Callable[[Array], tuple[Array, Array | None]]:
        """From a first subject: values and exposure of `size` subjects, every item.

        Values, 0 where missing, have this dtype, or the one that is stored. Exposure,
        trials or a mask, is None if the responses are complete (`is_complete`).
        """

    @property
    def is_complete(self) -> bool:
        """Whether every cell is one observed response."""
        return False

    @property
    def has_blocks(self) -> bool:
        """Whether a pass takes blocks of subjects with every item.

        Else it takes the observed cells, by subject and then by item.
        """
        return True

    @property
    def takes_padding(self) -> bool:
        """Whether sizes are rounded up, so that data of near sizes share programs."""
        return False

    @property
    def is_sparse(self) -> bool:
        """Whether passes over the observed cells alone are the quicker ones."""
        return False

    @property
    def single(self) -> bool:
        """Whether every observed cell is one trial."""
        return True

    def with_mask(self) -> "AbstractResponses":
        """The same, with a mask if it may have none: one program for any cells."""
        return self

    def answered(
        self, weight: np.ndarray | None = None, *, trials: bool = True
    ) -> np.ndarray:
        """Weights `[items]` (None: 1) summed over the responses of each subject.

        On the host. Each of several trials counts, or all as one.
        """
        each = np.ones(self.num_items) if weight is None else weight
        counted = lambda _, exposure: (exposure if trials else exposure > 0,)
        table = jnp.asarray(each, float)[:, None]
        return np.asarray(self.table_products((table,), counted)[:, 0], np.float64)

    @property
    def num_cells(self) -> int:
        """Cells of the layout that hold one response or none: what a pass visits."""
        return self.num_subjects * self.num_items

    @property
    def share_observed(self) -> float:
        """Share of the cells that are observed, on the host."""
        size = self.num_subjects * self.num_items
        return float(self.answered(trials=False).sum()) / size

    def exposures(self, dtype: Any) -> tuple[Array, Array]:
        """Responses (or trials) of each item and of each subject."""
        ones = jnp.ones((self.num_items, 1), dtype)

        def count(block: DenseBlock, is_new: Array) -> Array:
            exposure = 1 if block.exposure is None else block.exposure.astype(dtype)
            return jnp.sum(is_new[:, None] * exposure * ones.T, axis=0)

        of_items = self.sum_subjects(count, jnp.zeros(self.num_items, dtype), dtype)
        return of_items, self.row_products(jnp.zeros_like(ones), ones)[:, 0]

    def map_subjects(
        self,
        function: Callable[[Any], Any],
        init: Any,
        dtype: Any,
        *,
        numbers: int = 1,
        into: Any = None,
        between: Int[Array, "2"] | None = None,
    ) -> Any:
        """Arrays by subject, with `function` of each block at the places of its rows.

        Args:
            function: From a block to arrays with its rows, of the structure of `init`.
            init: Arrays by subject, which have those of subjects without a response.
            dtype: Floating type of the function's arrays at the cells.
            numbers: How many the function makes of each observed cell.
            into: Arrays of other blocks, and
            between: the first block to put into them and the one after the last.
        """
        del numbers

        def body(carry: Any, block: DenseBlock, is_new: Array) -> Any:
            del is_new
            put = lambda array, part: put_block(array, part, block.start)
            return jax.tree.map(put, carry, function(block))

        size = self.stretches(dtype)[1]
        return self._fold(body, init if into is None else into, size, between)

    def sum_subjects(
        self,
        function: Callable[[Any, Array], Any],
        init: Any,
        dtype: Any,
        *,
        size: int | None = None,
        between: Int[Array, "2"] | None = None,
    ) -> Any:
        """Sums over subjects, added to `init`.

        Args:
            function: From a block, and numbers `[rows]` that are 1, or 0 for a subject
                that another block has, too, to the sums over its rows.
            init: Sums so far, of the structure that the function returns.
            dtype: Floating type of the function's arrays at the cells.
            size: Rows of a block; None for those of one array at the cells.
            between: The first block to add and the one after the last.
        """

        def body(carry: Any, block: DenseBlock, is_new: Array) -> Any:
            return jax.tree.map(jnp.add, carry, function(block, is_new.astype(dtype)))

        size = self.stretches(dtype)[1] if size is None else size
        return self._fold(body, init, size, between)

    def _fold(self, body: Any, init: Any, size: int, between: Array | None) -> Any:
        """Folds `body(carry, block, is_new)` over blocks of `size` subjects."""
        blocks = self.matrix_blocks(size)
        step = lambda carry, start, is_new: body(
            carry, DenseBlock(start, *blocks(start)), is_new
        )
        return scan_subject_blocks(step, init, self.num_subjects, size, between)

    def row_products(
        self, on_values: Float[Array, "items m"], on_exposure: Array
    ) -> Float[Array, "subjects m"]:
        """Computes values @ on_values + exposure @ on_exposure."""
        dtype = on_values.dtype

        def product(block: DenseBlock) -> Array:
            product = block.values.astype(dtype) @ on_values
            if block.exposure is None:
                return product + jnp.sum(on_exposure, axis=0)
            return product + block.exposure.astype(dtype) @ on_exposure

        empty = jnp.zeros((self.num_subjects, on_values.shape[1]), dtype)
        return self.map_subjects(product, empty, dtype)

    def table_products(
        self,
        tables: Sequence[Float[Array, "items m"]],
        weights: Callable[[Array, Array], Sequence[Array]],
    ) -> Float[Array, "subjects m"]:
        """Sum over tables of cells times table; `weights` makes the cells of each.

        It takes values and exposure.
        """
        dtype = tables[0].dtype

        def products(block: DenseBlock) -> Array:
            exposure = block.exposure
            exposure = jnp.ones_like(block.values) if exposure is None else exposure
            pairs = zip(weights(block.values, exposure), tables, strict=True)
            parts = [cells.astype(dtype) @ table for cells, table in pairs]
            return jnp.sum(jnp.stack(parts), axis=0)

        empty = jnp.zeros((self.num_subjects, tables[0].shape[1]), dtype)
        return self.map_subjects(products, empty, dtype)

    def column_products(
        self,
        vectors: Float[Array, "subjects m"],
        statistics: Callable[[Array], tuple[Array, ...]] | None = None,
    ) -> tuple[tuple[Array, ...], Array, Array]:
        """Weighted sums S_k' U for each statistic, Y' U of values, M' U of exposure.

        Statistics are functions of values (`AbstractResponseFamily.statistics`); there
        are no sums of them without this argument.
        """
        vectors = weigh_rows(vectors, self.subject_weight)
        dtype, of_values = vectors.dtype, statistics or (lambda values: ())

        def products(block: DenseBlock, is_new: Array) -> tuple[Array, ...]:
            left = block.rows(vectors) * is_new[:, None]
            parts = [*of_values(block.values), block.values]
            parts += [] if block.exposure is None else [block.exposure]
            return tuple((left.T @ part.astype(dtype)).T for part in parts)

        count = len(of_values(vectors[:1, :1]))
        empty = jnp.zeros((self.num_items, vectors.shape[1]), dtype)
        init = (empty,) * (count + 1 + (not self.is_complete))
        sums = self.sum_subjects(products, init, dtype)
        if self.is_complete:
            sums = (*sums, jnp.broadcast_to(jnp.sum(vectors, axis=0), empty.shape))
        *of_statistics, values, exposures = sums
        return tuple(of_statistics), values, exposures

    def map_rows(
        self,
        prepare: Callable[[Array | None], Callable[[DenseBlock], Any]],
        init: Any,
        dtype: Any,
        *,
        numbers: int = 1,
        into: Any = None,
        between: Int[Array, "2"] | None = None,
    ) -> Any:
        """As `map_subjects`, of blocks of subjects who have the same items.

        `prepare` makes the function of such a block, from the places of its items; None
        for all items. A block of observed cells is one subject.
        """
        options = {"numbers": numbers, "into": into, "between": between}
        return self.map_subjects(prepare(None), init, dtype, **options)

    def map_items(
        self,
        function: Callable[[Any], Any],
        init: Any,
        dtype: Any,
        *,
        numbers: int = 1,
        into: Any = None,
        between: Int[Array, "2"] | None = None,
    ) -> Any:
        """As `map_subjects`, of blocks whose rows are items and columns subjects.

        Raises:
            TypeError: The layout has no blocks of items.
        """
        raise TypeError(
            f"{type(self).__name__} has no blocks of items: write its map_items"
        )

    def stretches(self, dtype: Any, numbers: int = 1) -> tuple[int, int]:
        """Rows and rows of a block of `map_subjects`: see `blocks_in_stretches`."""
        del numbers
        itemsize = jnp.dtype(dtype).itemsize
        shape = self.num_subjects, self.num_items
        return self.num_subjects, block_size_for(*shape, itemsize)

    def item_stretches(self, dtype: Any, numbers: int = 1) -> tuple[int, int]:
        """The same of `map_items`."""
        del numbers
        itemsize = jnp.dtype(dtype).itemsize
        shape = self.num_items, self.num_subjects
        return self.num_items, block_size_for(*shape, itemsize)


class Responses(AbstractResponses):
    """Responses of many subjects to many items; arrays only, no labels.

    Missing cells hold 0 in ``values`` and ``False`` in ``observed``: a 0 adds nothing
    to any sufficient statistic of a response family, so only the base term of the
    log-likelihood needs the mask. Other numbers in missing cells are replaced by 0.

    Weights, not shapes, express bootstrap replicates, folds and padding: changing
    ``subject_weight`` or ``item_weight`` never recompiles.

    Attributes:
        values: `[subjects, items]`; int8 for binary and ordinal data, float for
            continuous data, the number right for binomial counts.
        observed: `[subjects, items]` mask, or None when nothing is missing.
        trials: `[subjects, items]` trials of each count (0 if missing), or None for 1.
        log_length: `[subjects, items]` logarithms of lengths, 0 if missing, or None.
        length_observed: `[subjects, items]` mask of lengths; None when all are known.

    >>> import jax.numpy as jnp
    >>> data = Responses(jnp.array([[1, 0], [1, 1]], jnp.int8))
    >>> data.num_subjects, data.num_items
    (2, 2)
    """

    values: Num[Array, "subjects items"]
    observed: Bool[Array, "subjects items"] | None = None
    trials: Int[Array, "subjects items"] | None = None
    log_length: Float[Array, "subjects items"] | None = None
    length_observed: Bool[Array, "subjects items"] | None = None

    @classmethod
    def of_cells(cls, cells: SparseCells, *, seen: np.ndarray) -> "Responses":
        """The matrix of those observed cells of a table that are `seen` `[cells]`.

        It always has a mask, so that its programs do not depend on `seen`.

        >>> cells = SparseCells.of([0, 1, 1], [1, 0, 1], [1, 0, 1], (2, 2))
        >>> Responses.of_cells(cells, seen=np.array([True, True, False])).answered()
        array([1., 1.])
        """
        values, observed = np.zeros(cells.shape, np.int8), np.zeros(cells.shape, bool)
        places = cells.row[seen], cells.column[seen]
        values[places], observed[places] = cells.value[seen], True
        return cls(*jax.device_put((values, observed)))

    def __post_init__(self) -> None:
        """Puts 0 in missing cells."""
        self.values = _filled(self.values, self.observed)
        self.trials = _filled(self.trials, self.observed)

    @property
    def num_subjects(self) -> int:
        """Number of rows."""
        return self.values.shape[0]

    @property
    def num_items(self) -> int:
        """Number of columns."""
        return self.values.shape[1]

    @property
    def is_complete(self) -> bool:
        """Whether every cell is one observed response."""
        return self.exposure is None

    @property
    def exposure(self) -> Array | None:
        """What the base term is multiplied by: trials, the mask, or None for ones."""
        return self.observed if self.trials is None else self.trials

    @property
    def takes_padding(self) -> bool:
        """True: repeated rows and columns of weight 0 change no sum."""
        return True

    @property
    def single(self) -> bool:
        """Whether every observed cell is one trial."""
        return self.trials is None

    @property
    def is_sparse(self) -> bool:
        """Whether few of many cells are observed."""
        return self.num_cells >= MANY_CELLS and self.share_observed <= FEW_OBSERVED

    def with_mask(self) -> "Responses":
        """The same responses with a mask of observed cells, if they have none."""
        if self.observed is not None:
            return self
        observed = jnp.ones(self.values.shape, bool)
        return dataclasses.replace(self, observed=observed)

    def answered(
        self, weight: np.ndarray | None = None, *, trials: bool = True
    ) -> np.ndarray:
        """Weights `[items]` (None: 1) summed over the responses of each subject."""
        each = np.ones(self.num_items) if weight is None else np.asarray(weight, float)
        if self.exposure is None:
            return np.full(self.num_subjects, each.sum())
        exposure = np.asarray(self.exposure)
        return DenseCells(exposure, exposure if trials else exposure > 0).over_items(
            each
        )

    @property
    def share_observed(self) -> float:
        """Share of the cells that are observed, on the host."""
        return 1.0 if self.exposure is None else float(jnp.mean(self.exposure != 0))

    def map_items(
        self,
        function: Callable[[DenseBlock], Any],
        init: Any,
        dtype: Any,
        *,
        numbers: int = 1,
        into: Any = None,
        between: Int[Array, "2"] | None = None,
    ) -> Any:
        """As `map_subjects`, of blocks whose rows are items and columns subjects."""
        del numbers
        size = self.item_stretches(dtype)[1]

        def cut(array: Array | None, start: Array) -> Array | None:
            if array is None:
                return None
            return lax.dynamic_slice_in_dim(array, start, size, 1).T

        def body(carry, start, is_new):
            del is_new
            values, exposure = cut(self.values, start), cut(self.exposure, start)
            assert values is not None
            rows = function(DenseBlock(start, values, exposure))
            put = lambda array, part: put_block(array, part, start)
            return jax.tree.map(put, carry, rows)

        init = init if into is None else into
        return scan_subject_blocks(body, init, self.num_items, size, between)

    def matrix_blocks(
        self, size: int, dtype: Any = None
    ) -> Callable[[Array], tuple[Array, Array | None]]:
        """From a first subject: values and exposure of `size` subjects, every item."""
        return lambda start: (
            take_block(self.values, start, size).astype(dtype or self.values.dtype),
            take_block(self.exposure, start, size),
        )

    def among(self, places: np.ndarray, num_items: int) -> "Responses":
        """With a column for each of `num_items`, these items at their `places`."""
        if np.array_equal(places, np.arange(num_items)):
            return self
        shape = self.num_subjects, num_items
        put = lambda x: jnp.zeros(shape, x.dtype).at[:, places].set(x)
        observed = self.observed
        observed = jnp.ones(self.values.shape, bool) if observed is None else observed
        trials = None if self.trials is None else put(self.trials)
        return Responses(put(self.values), put(observed), trials)


def _filled(values: Any, observed: Any) -> Any:
    """Values with 0 where they are not observed."""
    # Of in_axes= of a vmap, which has this class too, these are no matrices.
    if np.ndim(values) < 2 or np.ndim(observed) < 2:
        return values
    if _is_on_host(values) and _is_on_host(observed):
        # Most data have no other number there. To compare arrays on the host compiles
        # nothing; a masked copy is one program for each shape.
        missing = ~np.asarray(observed, bool)
        if not (missing & (np.asarray(values) != 0)).any():
            return values
    return jnp.where(observed, values, jnp.zeros((), values.dtype))


def _is_on_host(array: Any) -> bool:
    """Whether NumPy sees the memory of an array without a copy."""
    if isinstance(array, Tracer):
        return False
    if not isinstance(array, jax.Array):
        return True
    return array.is_fully_addressable and all(
        device.platform == "cpu" for device in array.devices()
    )
