"""The arrays that enter ``jit`` where few responses are observed: these alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int

from irtjax.data.sparse_table import SparseCells
from irtjax.numerics.sparse import Bucket, buckets_of

if TYPE_CHECKING:
    from irtjax.data.responses import Responses


class SparseResponses(eqx.Module):
    """Responses by observed cell, twice: by subject and by item.

    It takes the place of `Responses` in the methods that state so
    (`AbstractEstimator.sparse`): sums over all cells become sums over the observed
    ones, and time and memory are proportional to their number.

    Attributes:
        subjects: Buckets of subjects, whose cells name items.
        items: Buckets of items, whose cells name subjects.
        single: Whether every observed cell is one trial.
        subject_weight: As in `Responses`, and so are the other two.

    >>> cells = SparseCells.of([0, 1, 1], [1, 0, 1], [1, 0, 1], (2, 2))
    >>> data = SparseResponses.of_cells(cells)
    >>> data.num_subjects, data.num_items, data.counts.tolist()
    (2, 2, [1, 2])
    """

    subjects: tuple[Bucket, ...]
    items: tuple[Bucket, ...]
    num_subjects: int = eqx.field(static=True)
    num_items: int = eqx.field(static=True)
    single: bool = eqx.field(static=True)
    subject_weight: Float[Array, " subjects"] | None = None
    item_weight: Float[Array, " items"] | None = None
    item_facets: dict[str, Int[Array, " items"]] = eqx.field(default_factory=dict)

    @classmethod
    def of_cells(
        cls, cells: SparseCells, trials: np.ndarray | None = None, **fields
    ) -> SparseResponses:
        """Cells laid out on the host; `trials` are those of each, or None for 1."""
        value, single = cells.value, trials is None
        exposure = np.ones(len(value), np.int8) if trials is None else trials
        first, order = cells.by_item
        return cls(
            buckets_of(cells.start, cells.column, value, exposure),
            buckets_of(first, cells.row[order], value[order], exposure[order]),
            *cells.shape,
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
    def counts(self) -> np.ndarray:
        """`[subjects]` numbers of responses (or trials), on the host."""
        total = np.zeros(self.num_subjects, np.int64)
        for bucket in self.subjects:
            row, exposure = np.asarray(bucket.row), np.asarray(bucket.exposure)
            known = row < self.num_subjects
            total[row[known]] = exposure.sum(axis=-1, dtype=np.int64)[known]
        return total

    @property
    def evidence(self) -> None:
        """None: abilities have no evidence from other data."""

    @property
    def is_complete(self) -> bool:
        """False: cells are missing."""
        return False
