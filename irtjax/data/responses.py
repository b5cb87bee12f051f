"""The arrays that enter ``jit``: responses of subjects to items, on one measure."""

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

from irtjax.data.blocks import Block, DenseBlock
from irtjax.data.sparse_table import FEW_OBSERVED
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

    def fold(self, function: Callable[[Any, Any], Any], rows: Any = None) -> Any:
        """Sums over subjects and arrays by subject, of a function of some subjects.

        The one way in which a pass over the matrix is divided over devices. It takes
        all subjects at once unless they are divided
        (`irtjax.data.sharded_responses`).

        Args:
            function: From the responses of some subjects, and their rows of `rows`, to
                a pair: sums over these subjects, and arrays with a row for each. Blocks
                are counted from the first of these subjects.
            rows: Arrays with a row for each subject.

        Returns:
            The pair for all subjects.
        """
        return function(self, rows)

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

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether every cell is one observed response."""

    @property
    @abstractmethod
    def has_blocks(self) -> bool:
        """Whether a pass takes blocks of subjects with every item.

        Else it takes the observed cells, by subject and then by item, and its programs
        are those of one layout: padding does not share them.
        """

    @property
    @abstractmethod
    def is_sparse(self) -> bool:
        """Whether passes over the observed cells alone are the quicker ones."""

    @property
    @abstractmethod
    def single(self) -> bool:
        """Whether every observed cell is one trial."""

    @abstractmethod
    def answered(
        self, weight: np.ndarray | None = None, *, trials: bool = True
    ) -> np.ndarray:
        """Weights `[items]` (None: 1) summed over the responses of each subject.

        On the host. Each of several trials counts, or all as one.
        """

    @property
    @abstractmethod
    def num_cells(self) -> int:
        """Cells of the layout that hold one response or none: what a pass visits."""

    @property
    @abstractmethod
    def share_observed(self) -> float:
        """Share of the cells that are observed, on the host."""

    @abstractmethod
    def exposures(self, dtype: Any) -> tuple[Array, Array]:
        """Responses (or trials) of each item and of each subject."""

    @abstractmethod
    def row_products(
        self, on_values: Float[Array, "items m"], on_exposure: Array
    ) -> Float[Array, "subjects m"]:
        """Computes values @ on_values + exposure @ on_exposure."""

    @abstractmethod
    def table_products(
        self,
        tables: Sequence[Float[Array, "items m"]],
        weights: Callable[[Array, Array], Sequence[Array]],
    ) -> Float[Array, "subjects m"]:
        """Sum over tables of cells times table; `weights` makes the cells of each.

        It takes values and exposure.
        """

    @abstractmethod
    def column_products(
        self,
        vectors: Float[Array, "subjects m"],
        statistics: Callable[[Array], tuple[Array, ...]] | None = None,
    ) -> tuple[tuple[Array, ...], Array, Array]:
        """Weighted sums S_k' U for each statistic, Y' U of values, M' U of exposure.

        Statistics are functions of values (`AbstractResponseFamily.statistics`); there
        are no sums of them without this argument.
        """

    @abstractmethod
    def map_subjects(
        self,
        function: Callable[[Block], Any],
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

    @abstractmethod
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

    @abstractmethod
    def map_items(
        self,
        function: Callable[[Block], Any],
        init: Any,
        dtype: Any,
        *,
        numbers: int = 1,
        into: Any = None,
        between: Int[Array, "2"] | None = None,
    ) -> Any:
        """As `map_subjects`, of blocks whose rows are items and columns subjects."""

    @abstractmethod
    def stretches(self, dtype: Any, numbers: int = 1) -> tuple[int, int]:
        """Rows and rows of a block of `map_subjects`: see `blocks_in_stretches`."""

    @abstractmethod
    def item_stretches(self, dtype: Any, numbers: int = 1) -> tuple[int, int]:
        """The same of `map_items`."""

    @abstractmethod
    def matrix_blocks(
        self, size: int, dtype: Any
    ) -> Callable[[Array], tuple[Array, Array | None]]:
        """From a first subject: values and exposure of `size` subjects, every item."""

    @abstractmethod
    def among(self, places: np.ndarray, num_items: int) -> "AbstractResponses":
        """With a column for each of `num_items`, these items at their `places`."""


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
    def has_blocks(self) -> bool:
        """True: a block is a part of the matrix."""
        return True

    @property
    def single(self) -> bool:
        """Whether every observed cell is one trial."""
        return self.trials is None

    @property
    def is_sparse(self) -> bool:
        """Whether few of many cells are observed."""
        return self.num_cells >= MANY_CELLS and self.share_observed <= FEW_OBSERVED

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
    def num_cells(self) -> int:
        """Cells of the matrix."""
        return self.values.size

    @property
    def share_observed(self) -> float:
        """Share of the cells that are observed, on the host."""
        return 1.0 if self.exposure is None else float(jnp.mean(self.exposure != 0))

    def exposures(self, dtype: Any) -> tuple[Array, Array]:
        """Responses (or trials) of each item and of each subject."""
        exposure = self.exposure
        if exposure is None:
            exposure = jnp.ones(self.values.shape, self.values.dtype)
        sums = jnp.sum(exposure, axis=0), jnp.sum(exposure, axis=1)
        return sums[0].astype(dtype), sums[1].astype(dtype)

    def row_products(
        self, on_values: Float[Array, "items m"], on_exposure: Array
    ) -> Float[Array, "subjects m"]:
        """Computes values @ on_values + exposure @ on_exposure, block by block."""
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
        """Sum over tables of cells times table; `weights` makes the cells of each."""
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
        """Weighted sums S_k' U for each statistic, Y' U of values, M' U of exposure."""
        vectors = weigh_rows(vectors, self.subject_weight)
        dtype, of_values = vectors.dtype, statistics or (lambda values: ())
        size = self._block_size(dtype)
        count = len(of_values(self.values[:1, :1]))

        def body(carry, start, is_new):
            values = take_block(self.values, start, size)
            exposure = take_block(self.exposure, start, size)
            left = take_block(vectors, start, size)
            left = left * is_new.astype(dtype)[:, None]
            parts = [*of_values(values), values]
            parts += [] if exposure is None else [exposure]
            return tuple(
                old + (left.T @ part.astype(dtype)).T
                for old, part in zip(carry, parts, strict=True)
            )

        empty = jnp.zeros((self.num_items, vectors.shape[1]), dtype)
        init = (empty,) * (count + 1 + (self.exposure is not None))
        sums = scan_subject_blocks(body, init, self.num_subjects, size)
        if self.exposure is None:
            sums = (*sums, jnp.broadcast_to(jnp.sum(vectors, axis=0), empty.shape))
        *of_statistics, values, exposures = sums
        return tuple(of_statistics), values, exposures

    def map_subjects(
        self,
        function: Callable[[DenseBlock], Any],
        init: Any,
        dtype: Any,
        *,
        numbers: int = 1,
        into: Any = None,
        between: Int[Array, "2"] | None = None,
    ) -> Any:
        """Arrays by subject, with `function` of each block at the places of its rows.

        See `AbstractResponses.map_subjects`.
        """
        del numbers
        size = self._block_size(dtype)

        def body(carry, start, is_new):
            del is_new
            values = take_block(self.values, start, size)
            exposure = take_block(self.exposure, start, size)
            rows = function(DenseBlock(start, values, exposure))
            put = lambda array, part: put_block(array, part, start)
            return jax.tree.map(put, carry, rows)

        init = init if into is None else into
        return scan_subject_blocks(body, init, self.num_subjects, size, between)

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
        """As `map_subjects`, of blocks of subjects who have the same items."""
        options = {"numbers": numbers, "into": into, "between": between}
        return self.map_subjects(prepare(None), init, dtype, **options)

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

    def stretches(self, dtype: Any, numbers: int = 1) -> tuple[int, int]:
        """Rows and rows of a block of `map_subjects`: see `blocks_in_stretches`."""
        del numbers
        return self.num_subjects, self._block_size(dtype)

    def item_stretches(self, dtype: Any, numbers: int = 1) -> tuple[int, int]:
        """The same of `map_items`."""
        del numbers
        itemsize = jnp.dtype(dtype).itemsize
        shape = self.num_items, self.num_subjects
        return self.num_items, block_size_for(*shape, itemsize)

    def matrix_blocks(
        self, size: int, dtype: Any
    ) -> Callable[[Array], tuple[Array, Array | None]]:
        """From a first subject: values and exposure of `size` subjects, every item."""
        return lambda start: (
            take_block(self.values, start, size).astype(dtype),
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

    def _block_size(self, dtype: Any) -> int:
        """Subjects of a block."""
        itemsize = jnp.dtype(dtype).itemsize
        return block_size_for(self.num_subjects, self.num_items, itemsize)


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
