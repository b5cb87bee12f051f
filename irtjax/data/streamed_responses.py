"""Responses that are read in blocks in each pass: the layout of a `ResponseStream`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax.data.responses import AbstractResponses
from irtjax.data.sparse_table import FEW_ON_NODES, MANY_CELLS
from irtjax.data.stream import ResponseStream


def _refuse(self: Any, *args: Any, **options: Any) -> NoReturn:
    """Refuses what a pass over blocks from disk does not have."""
    del self, args, options
    raise ValueError(
        "responses that are streamed from disk are fitted by method='em' and models of"
        " one ability: use these, or read the file without --stream"
    )


class StreamedResponses(AbstractResponses):
    """Responses on disk, as one more layout: sums are folded over blocks on the host.

    A program under `jit` cannot read them. It takes `with_sums(...)`: the layout
    without its stream, with the sums of a pass that the host has made.

    Attributes:
        shape: Numbers of subjects and of items.
        complete: Whether every cell is observed.
        stream: The responses; None under `jit`.
        sums: Expected counts of a pass (`irtjax.likelihood.counts.Counts`), or None.
        gram: C'C of a pass (`irtjax.inference.covariance`), or None.
    """

    shape: tuple[int, int] = eqx.field(static=True)
    complete: bool = eqx.field(static=True)
    stream: ResponseStream | None = eqx.field(static=True, default=None)
    sums: Any = None
    gram: Array | None = None

    @classmethod
    def of(cls, stream: ResponseStream) -> StreamedResponses:
        """The layout of a stream."""
        return cls(stream.shape, stream.is_complete, stream)

    def with_sums(self, sums: Any, gram: Array | None = None) -> StreamedResponses:
        """The layout under `jit`, with the sums of a pass."""
        return dataclasses.replace(self, stream=None, sums=sums, gram=gram)

    @property
    def source(self) -> ResponseStream:
        """The stream, which a program under `jit` does not have."""
        if self.stream is None:
            _refuse(self)
        return self.stream

    @property
    def is_streamed(self) -> bool:
        """True: each pass reads them."""
        return True

    @property
    def num_subjects(self) -> int:
        """Number of subjects."""
        return self.shape[0]

    @property
    def num_items(self) -> int:
        """Number of items."""
        return self.shape[1]

    @property
    def is_complete(self) -> bool:
        """Whether every cell is one observed response."""
        return self.complete

    @property
    def has_blocks(self) -> bool:
        """As of the responses in memory: on it depends the choice of nodes."""
        return self.num_cells <= MANY_CELLS or self.share_observed > FEW_ON_NODES

    @property
    def is_sparse(self) -> bool:
        """Whether few of many cells are observed."""
        return not self.has_blocks

    @property
    def single(self) -> bool:
        """True: every observed cell is one trial."""
        return True

    @property
    def num_cells(self) -> int:
        """Cells, observed or not."""
        return self.shape[0] * self.shape[1]

    @property
    def share_observed(self) -> float:
        """Share of the cells that are observed."""
        return self.source.num_observed / self.num_cells

    def answered(
        self, weight: np.ndarray | None = None, *, trials: bool = True
    ) -> np.ndarray:
        """Weights `[items]` (None: 1) summed over the responses of each subject."""
        del trials
        each = np.ones(self.num_items) if weight is None else np.asarray(weight, float)
        if np.all(each == each[0]):
            return each[0] * self.source.observed
        zeros = jnp.zeros((self.num_items, 1))
        return np.asarray(self.row_products(zeros, jnp.asarray(each)[:, None]))[:, 0]

    def exposures(self, dtype: Any) -> tuple[Array, Array]:
        """Responses of each item and of each subject."""
        of_items, of_subjects = self.source.counts.sum(axis=1), self.source.observed
        return jnp.asarray(of_items, dtype), jnp.asarray(of_subjects, dtype)

    def row_products(
        self, on_values: Float[Array, "items m"], on_exposure: Array
    ) -> Float[Array, "subjects m"]:
        """Computes values @ on_values + exposure @ on_exposure."""
        return self.table_products(
            (on_values, on_exposure), lambda values, exposure: (values, exposure)
        )

    def table_products(
        self,
        tables: Sequence[Float[Array, "items m"]],
        weights: Callable[[Array, Array], Sequence[Array]],
    ) -> Float[Array, "subjects m"]:
        """Sum over tables of cells times table; `weights` makes the cells of each."""
        codes = jnp.asarray(self.source.codes, tables[0].dtype)
        each = weights(codes, jnp.ones_like(codes))
        table = np.asarray(sum(map(_outer, each, tables)))
        return jnp.asarray(self.source.row_sums(table))

    def column_products(
        self,
        vectors: Float[Array, "subjects m"],
        statistics: Callable[[Array], tuple[Array, ...]] | None = None,
    ) -> tuple[tuple[Array, ...], Array, Array]:
        """Sums S_k' U for each statistic, Y' U of values, M' U of exposure."""
        each = np.asarray(vectors)
        sums = jnp.asarray(self.source.category_sums(each))
        by_code = lambda numbers: jnp.einsum("c,jcm->jm", numbers, sums)
        values = jnp.asarray(self.source.codes, each.dtype)
        of_values = () if statistics is None else statistics(values)
        of_statistics = tuple(by_code(x.astype(each.dtype)) for x in of_values)
        return of_statistics, by_code(values), jnp.sum(sums, axis=1)

    def refuse(self) -> NoReturn:
        """Refuses methods that do not make their passes on the host."""
        _refuse(self)

    map_subjects = map_rows = map_items = _refuse
    stretches = item_stretches = matrix_blocks = among = _refuse


def _outer(by_code: Array, table: Array) -> Array:
    """Products `[items, codes, m]` of numbers by code and a table `[items, m]`."""
    return by_code[:, None] * table[:, None]
