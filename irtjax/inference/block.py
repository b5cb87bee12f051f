"""The responses of a block of subjects, and what all blocks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irtjax.data.responses import Responses
from irtjax.data.sparse_responses import SparseResponses
from irtjax.inference.covariance import Covariance
from irtjax.likelihood.counts import block_log_likelihood
from irtjax.models.family import Items
from irtjax.models.model import Model, Population
from irtjax.numerics import kernels
from irtjax.numerics.sparse import Bucket, map_rows

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
    data: Responses | SparseResponses,
    theta: Array,
    make: Callable[[Scorer], Callable[[SubjectBlock, Array], Rows]],
    init: Rows,
    between: Array | None = None,
) -> Rows:
    """Rows of all subjects from `make(scorer)(block, log-likelihood [block, nodes])`.

    With `between` those of some blocks, put into `init`: see `scan_in_stretches`. Of
    sparse responses a block is one subject and the items that it answered, which are
    all that the scorer of the block has.
    """
    if isinstance(data, SparseResponses):
        rows = lambda own, block, log_lik, _: make(own)(block, log_lik)
        return map_subjects(scorer, data, theta, rows, init)
    function = make(scorer)
    tables = scorer.model.family.table(scorer.items, theta)
    num_subjects, num_items = data.values.shape
    size = kernels.block_size_for(num_subjects, num_items, scorer.mean.dtype.itemsize)

    def body(carry: Rows, start: Array, is_new: Array) -> Rows:
        log_lik, statistics, exposure = block_log_likelihood(
            scorer.model, tables, theta, data, start, size
        )
        evidence = kernels.take_block(data.evidence, start, size)
        block = SubjectBlock(start, statistics, exposure, data.item_weight, evidence)
        new = function(block, log_lik)
        put = lambda old, part: kernels.put_block(old, part, start)
        return jax.tree.map(put, carry, new)

    return kernels.scan_subject_blocks(body, init, num_subjects, size, between)


def scan_in_stretches(
    program: Callable[..., Rows],
    nothing: Callable[[], Rows],
    data: Responses | SparseResponses,
    dtype: Any,
) -> Rows:
    """`scan_scores` in a few calls, so that whoever watches sees the share done.

    See `kernels.blocks_in_stretches`; sparse responses are one call.
    """
    if not isinstance(data, Responses):
        return program()
    rows, columns = data.values.shape
    size = kernels.block_size_for(rows, columns, jnp.dtype(dtype).itemsize)
    return kernels.blocks_in_stretches(program, nothing, rows, size)


def map_subjects(
    scorer: Scorer,
    data: SparseResponses,
    theta: Array,
    function: Callable[[Scorer, SubjectBlock, Array, Array], Rows],
    init: Rows,
) -> Rows:
    """Rows of subjects from the scorer of their own items, their block, and so on.

    `function` takes a scorer, a block of one subject, its log-likelihood `[1, nodes]`,
    and the places of its items; `init` has the rows of subjects without a response.
    """
    family, dtype = scorer.model.family, scorer.mean.dtype

    def one(part: Bucket):
        own = scorer.of_items(part.column)
        statistics = family.statistics(part.value[None])
        statistics = tuple(s.astype(dtype) for s in statistics)
        exposure = part.exposure[None].astype(dtype)
        weight = data.item_weight
        weight = None if weight is None else weight[part.column]
        block = SubjectBlock(part.row, statistics, exposure, weight)
        log_lik = block.log_likelihood(family.table(own.items, theta), theta)
        found = function(own, block, log_lik, part.column)
        return jax.tree.map(lambda x: x[0], found)

    # Tables, their derivatives by two columns and what these are made from.
    return map_rows(data.subjects, one, init, 8 * theta.shape[0])


def is_empty(block: SubjectBlock) -> Array:
    """Which subjects have no response that counts, `[block]`."""
    if block.exposure is None or block.evidence is not None:
        return jnp.zeros(block.statistics[0].shape[0], bool)
    return jnp.sum(block.weigh(block.exposure), axis=1) == 0
