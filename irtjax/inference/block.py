"""The responses of a block of subjects, and what all blocks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irtjax.data.blocks import DenseBlock
from irtjax.data.responses import AbstractResponses
from irtjax.inference.covariance import Covariance
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.numerics import kernels

Rows = TypeVar("Rows")


class ItemError(NamedTuple):
    """Errors of items and population, split for adding up over items."""

    items: Array  # `[items, columns, columns]`, of each item's errors alone.
    columns: tuple[Array, ...]  # `[items, rank]` shared loadings by column.
    population: Array  # `[2, rank]` those of mean and log sd.
    rescaled: Array  # Whether abilities are divided by the population's sd.
    evidence: Array | None  # `[subjects, 2, rank]` loadings.


class Scorer(NamedTuple):
    """What scores every block of subjects: a model, its items and the kind of score."""

    model: Model
    items: Items
    scoring: str
    mean: Array
    sd: Array
    item_error: ItemError | None

    @classmethod
    def of(
        cls,
        model: Model,
        items: Items,
        population: Population,
        item_covariance: Covariance | None,
        evidence_moves: Array | None,
        scoring: str,
    ) -> Scorer:
        """The scorer of `score`, in the dtype of the items."""
        dtype = jnp.asarray(items[0]).dtype
        mean, sd = (jnp.asarray(p, dtype) for p in (population.mean, population.sd))
        scorer = cls(model, items, scoring, mean, sd, None)
        if item_covariance is None:
            return scorer
        every, shared = item_covariance.items, item_covariance.shared
        own = every - jnp.einsum("rja,rjb->jab", shared, shared)
        error = ItemError(
            own.astype(dtype),
            tuple(shared[..., c].T.astype(dtype) for c in range(every.shape[-1])),
            item_covariance.shared_scale.T.astype(dtype),
            item_covariance.rescaled,
            None if evidence_moves is None else evidence_moves.astype(dtype),
        )
        return scorer._replace(item_error=error)

    def of_items(self, places: Array) -> Scorer:
        """The scorer of some of the items."""
        some = lambda x: x[places]
        items, error = jax.tree.map(some, self.items), self.item_error
        if error is not None:
            columns = tuple(map(some, error.columns))
            error = error._replace(items=some(error.items), columns=columns)
        return self._replace(items=items, item_error=error)


def table_of(function: Callable[[Any, Array], Any], items: Any, theta: Array) -> Any:
    """A function of one item and one ability for every pair, `[nodes, items]`."""
    over_items = jax.vmap(function, in_axes=(0, None))
    return jax.vmap(over_items, in_axes=(None, 0))(items, theta)


class BlockScores(NamedTuple):
    """Scores of a block: `[block]` each, `shared` `[block, rank]` or None."""

    ability: Array
    variance: Array
    flag: Array
    shared: Array | None


class SubjectBlock(NamedTuple):
    """The responses of a block of subjects, as floats."""

    start: Array
    statistics: tuple[Array, ...]
    exposure: Array | None
    item_weight: Array | None
    evidence: Array | None = None

    def total(self, tables: tuple[Array, ...]) -> Array:
        """Each cell's weight times sum_k s_k g_k, `[block, items]`."""
        base, *rest = tables
        total = base if self.exposure is None else base * self.exposure
        for statistic, table in zip(self.statistics, rest, strict=True):
            total = total + statistic * table
        return self.weigh(total)

    def log_likelihood(self, tables: tuple[Array, ...], theta: Array) -> Array:
        """`[block, nodes]` at abilities `theta`, where `tables` are the g_k."""
        base, *rest = (self.weigh(table) for table in tables)
        if self.exposure is None:
            total = jnp.sum(base, axis=1)[None, :]
        else:
            total = self.exposure @ base.T
        for statistic, table in zip(self.statistics, rest, strict=True):
            total = total + statistic @ table.T
        if self.evidence is None:
            return total
        evidence = self.evidence.astype(theta.dtype)
        return total + evidence @ jnp.stack([theta, -0.5 * theta**2])

    def weigh(self, cells: Array) -> Array:
        """Cells times item weights."""
        weight = self.item_weight
        return cells if weight is None else cells * weight.astype(cells.dtype)

    def expose(self, cells: Array) -> Array:
        """Cells times exposure and item weights."""
        return self.weigh(cells if self.exposure is None else cells * self.exposure)


def scan_scores(
    scorer: Scorer,
    data: AbstractResponses,
    theta: Array,
    make: Callable[[Scorer, Array | None], Callable[[SubjectBlock, Array], Rows]],
    init: Rows,
    into: Rows | None = None,
    between: Array | None = None,
) -> Rows:
    """Rows of all subjects from functions of (block, log-likelihood [block, nodes]).

    A block has subjects with the same items. `make` makes its function from the scorer
    of these and their places, None for all items. `init` has the rows of subjects
    without a response. With `between` rows of some blocks are put into those of others:
    see `scan_in_stretches`.
    """
    dtype = scorer.mean.dtype

    def prepare(places: Array | None) -> Callable[[DenseBlock], Rows]:
        own = scorer if places is None else scorer.of_items(places)
        function, family = make(own, places), own.model.family
        tables, weight = family.table(own.items, theta), data.item_weight
        if weight is not None and places is not None:
            weight = weight[places]

        def rows(part: DenseBlock) -> Rows:
            statistics = family.statistics(part.values)
            exposure = part.exposure
            block = SubjectBlock(
                part.start,
                tuple(statistic.astype(dtype) for statistic in statistics),
                None if exposure is None else exposure.astype(dtype),
                weight,
                part.rows(data.evidence),
            )
            return function(block, block.log_likelihood(tables, theta))

        return rows

    # Tables, their derivatives by two columns and what these are made from.
    numbers = 8 * theta.shape[0]
    return data.map_rows(
        prepare, init, dtype, numbers=numbers, into=into, between=between
    )


def scan_in_stretches(
    program: Callable[..., Rows],
    nothing: Callable[[], Rows],
    data: AbstractResponses,
    dtype: Any,
) -> Rows:
    """`scan_scores` in a few calls, so that whoever watches sees the share done.

    See `kernels.blocks_in_stretches`; observed cells alone are one call.
    """
    if not data.has_blocks:
        return program()
    return kernels.blocks_in_stretches(program, nothing, *data.stretches(dtype))


def is_empty(block: SubjectBlock) -> Array:
    """Which subjects have no response that counts, `[block]`."""
    if block.exposure is None or block.evidence is not None:
        return jnp.zeros(block.statistics[0].shape[0], bool)
    return jnp.sum(block.weigh(block.exposure), axis=1) == 0
