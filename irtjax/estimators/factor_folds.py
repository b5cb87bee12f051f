"""Responses in folds, for factor models: all cells, or the observed ones alone.

A fold is a part of the observed cells. Models are fitted to the cells outside it, and
evaluated by the log-likelihood of the cells in it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from irtjax._types import KeyArray
from irtjax.data.responses import Responses
from irtjax.data.sparse_responses import SparseResponses
from irtjax.data.sparse_table import SparseCells
from irtjax.data.wording import counted
from irtjax.inference.vector_scores import score_factors
from irtjax.likelihood.products import expected_cells, outer
from irtjax.models.model import Model
from irtjax.numerics.memory import require_memory
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.sparse import Bucket

if TYPE_CHECKING:
    from irtjax.data.table import ResponseTable

FOLDS = 5
#: Bytes of a cell: 20,000 x 10,000 took 8.3 GB for one factor.
CELL_BYTES = 41.0
#: Observed cells that are predicted at once.
CHUNK = 2**16


class HeldOutFit(NamedTuple):
    """Mean log-likelihood of the cells held out, and the area under their curve."""

    log_likelihood: float
    auc: float


class Losses(NamedTuple):
    """Settings compared by held-out cells: `[settings]` losses against the best one.

    They are means over folds, with standard errors.
    """

    best: int
    loss: np.ndarray
    error: np.ndarray

    @property
    def chosen(self) -> int:
        """The first setting within one standard error of the best."""
        return int(np.flatnonzero(self.loss <= self.error)[0])


def losses(height: np.ndarray) -> Losses:
    """Losses from mean log-likelihoods of held-out cells, `[folds, settings]`.

    >>> losses(np.array([[-0.9, -0.5], [-0.7, -0.6]])).best
    1
    """
    best = int(height.mean(axis=0).argmax())
    loss = height[:, [best]] - height
    error = loss.std(axis=0, ddof=1) / len(height) ** 0.5
    return Losses(best, loss.mean(axis=0), error)


class Folds(Protocol):
    """Responses in folds of cells."""

    #: All of them, as the fits take them; and how many are observed.
    whole: Any
    num_observed: int

    def without(self, fold: int) -> Any:
        """The cells outside a fold, as the fits take them."""
        ...

    def judge(self, fold: int, training: Any, fit: Any) -> HeldOutFit:
        """Predicts the cells of a fold by a fit; None is the items' proportions."""
        ...

    def log_likelihood_of_means(self) -> float:
        """Log-likelihood of the observed cells at the items' proportions."""
        ...


def folds_of(
    table: ResponseTable, key: KeyArray, dtype, *, what: str, cells: bool | None = None
) -> Folds:
    """The folds of a table, drawn for each observed cell in the order of the rows.

    Args:
        table: The responses.
        key: Random key.
        dtype: Floating type.
        what: What the folds are for, for messages.
        cells: Whether fits take the observed cells alone; None: if the table does.

    Raises:
        ValueError: A fold has no cell, or the matrices of a dense table do not fit into
            the memory.
    """
    size = f"{table.num_subjects:,} subjects by {table.num_items:,} items"
    cure = "select fewer subjects or items"
    cells = table.sparse is not None if cells is None else cells
    if not cells:
        # Held-out cells are judged by a matrix of chances.
        require_memory(CELL_BYTES * table.size, f"{what} of {size}", cure)
    number = jax.random.randint(key, (table.num_observed,), 0, FOLDS)
    if np.bincount(np.asarray(number), minlength=FOLDS).min() == 0:
        raise ValueError(
            f"{what} of {size}: {counted(table.num_observed, 'response')} are too"
            f" few for {FOLDS} folds: add subjects or items"
        )
    if cells:
        assert table.binary_cells is not None
        return CellFolds(table.binary_cells, np.asarray(number))
    return MatrixFolds(table, number, dtype)


class MatrixFolds:
    """Responses as a matrix with a mask."""

    def __init__(self, table: ResponseTable, number: Array, dtype) -> None:
        responses = table.responses(dtype)
        self.num_observed = table.num_observed
        # Always with a mask, so that the program is the same for all cells.
        self.whole = with_mask(responses)
        seen = self.whole.observed
        assert seen is not None
        if responses.observed is None:
            self.fold = number.reshape(seen.shape)
        else:
            place = np.flatnonzero(np.asarray(seen))
            fold = np.full(seen.size, FOLDS, np.int32)
            fold[place] = np.asarray(number)
            self.fold = jnp.asarray(fold).reshape(seen.shape)

    def without(self, fold: int) -> Responses:
        """The cells outside a fold."""
        whole, out = self.whole, self.fold == fold
        assert whole.observed is not None
        values = jnp.where(out, 0, whole.values)
        return dataclasses.replace(whole, observed=whole.observed & ~out, values=values)

    def judge(self, fold: int, training: Responses, fit: Any) -> HeldOutFit:
        """Predicts the cells of a fold."""
        values = self.whole.values
        if fit is None:
            chance = jnp.broadcast_to(_means(training), values.shape)
        else:
            items, population, theta = fit.parameters[:3]
            chance = _predicted(fit.model, items, population, training, theta)
        out = self.fold == fold
        mask = np.asarray(out)
        area = _auc(np.asarray(values)[mask] > 0, np.asarray(chance)[mask])
        return HeldOutFit(float(_mean_log_likelihood(values, out, chance)), area)

    def log_likelihood_of_means(self) -> float:
        """Log-likelihood of the observed cells at the items' proportions."""
        values, seen = self.whole.values, self.whole.observed
        chance = jnp.broadcast_to(_means(self.whole), values.shape)
        return float(_mean_log_likelihood(values, seen, chance)) * self.num_observed


class CellFolds:
    """The observed cells alone: time and memory are proportional to their number."""

    def __init__(self, table: SparseCells, number: np.ndarray) -> None:
        self.table, self.number = table, number
        self.num_observed = len(number)
        self.whole = SparseResponses.of_cells(table)
        place = np.arange(len(number), dtype=np.int32)
        places = SparseResponses.of_cells(dataclasses.replace(table, value=place))
        # The cell of each place of the layout: a fold is another exposure in it.
        of_side = lambda side: tuple(np.asarray(bucket.value) for bucket in side)
        self._places = of_side(places.subjects), of_side(places.items)

    def without(self, fold: int) -> SparseResponses:
        """The cells outside a fold, in the layout of all cells: one program."""
        outside = self.number != fold

        def cut(bucket: Bucket, place: np.ndarray) -> Bucket:
            keep = jnp.asarray(outside[place], bucket.exposure.dtype)
            value = bucket.value * keep.astype(bucket.value.dtype)
            return bucket._replace(value=value, exposure=bucket.exposure * keep)

        sides = (
            tuple(map(cut, side, places))
            for side, places in zip(
                (self.whole.subjects, self.whole.items), self._places, strict=True
            )
        )
        subjects, items = sides
        return dataclasses.replace(self.whole, subjects=subjects, items=items)

    def judge(self, fold: int, training: SparseResponses, fit: Any) -> HeldOutFit:
        """Predicts the cells of a fold."""
        out = self.number == fold
        row, column = self.table.row[out], self.table.column[out]
        right = self.table.value[out] > 0
        if fit is None:
            chance = self._means(~out)[column]
        else:
            items, population, theta = fit.parameters[:3]
            population = _unit(population)
            scores = score_factors(fit.model, items, population, training, theta)
            chance = _at_cells(fit.model, items, scores, row, column)
        dtype = jnp.zeros(()).dtype
        return HeldOutFit(
            _log_likelihoods(right, chance, dtype).mean(), _auc(right, chance)
        )

    def log_likelihood_of_means(self) -> float:
        """Log-likelihood of the observed cells at the items' proportions."""
        chance = self._means(np.ones(self.num_observed, bool))[self.table.column]
        heights = _log_likelihoods(self.table.value > 0, chance, jnp.zeros(()).dtype)
        return float(heights.sum())

    def _means(self, outside: np.ndarray) -> np.ndarray:
        """Proportions right of the items over some cells."""
        right = self.table.sum(0, self.table.value * outside)
        return (right + 0.5) / (self.table.sum(0, outside) + 1)


def with_mask(data: Responses) -> Responses:
    """The same responses with a mask of observed cells, if they have none."""
    if data.observed is not None:
        return data
    return dataclasses.replace(data, observed=jnp.ones(data.values.shape, bool))


def _means(data: Responses) -> Array:
    """Proportions right of the items."""
    assert data.observed is not None
    seen = jnp.sum(data.observed, axis=0)
    right = jnp.sum(data.values, axis=0)
    return (right + 0.5) / (seen + 1)


def _unit(population):
    """Abilities of standard deviation 1, uncorrelated."""
    return population._replace(sd=jnp.ones_like(population.sd), correlation=None)


@stored_jit
def _predicted(model, items, population, data, theta):
    """`[subjects, items]` posterior means of the chances."""
    scores = score_factors(model, items, _unit(population), data, theta)
    slopes = items.discrimination
    variance = scores.spread.reshape(len(theta), -1) @ outer(slopes).T
    return expected_cells(model, items, scores.mean @ slopes.T, variance).mean


def _at_cells(model, items, scores, row, column) -> np.ndarray:
    """`[cells]` posterior means of the chances."""
    fill = -len(row) % CHUNK
    chunks = [
        jnp.asarray(np.pad(x, (0, fill)).reshape(-1, CHUNK)) for x in (row, column)
    ]
    chances = np.asarray(_in_chunks(model, items, scores, *chunks))
    return chances.ravel()[: len(row)]


@eqx.filter_jit
def _in_chunks(model: Model, items: Any, scores, row: Array, column: Array) -> Array:
    """`[chunks, cells]` posterior means of the chances."""

    def chunk(numbers):
        person, item = numbers
        records = jax.tree.map(lambda x: x[item], items)
        slopes = records.discrimination
        mean = jnp.sum(scores.mean[person] * slopes, axis=1)
        spread = scores.spread[person]
        variance = jnp.einsum("cp,cpq,cq->c", slopes, spread, slopes)
        # One row of cells, each of an item of its own.
        return expected_cells(model, records, mean[None], variance[None]).mean[0]

    return lax.map(chunk, (row, column))


def _log_likelihoods(right: np.ndarray, chance: np.ndarray, dtype) -> np.ndarray:
    """Log-likelihoods of responses."""
    tiny = float(jnp.finfo(dtype).eps)
    chance = np.clip(np.asarray(chance, float), tiny, 1 - tiny)
    return np.where(right, np.log(chance), np.log1p(-chance))


@jax.jit
def _mean_log_likelihood(values, out, chance):
    """Mean log-likelihood of the cells of a mask."""
    tiny = jnp.finfo(chance.dtype).eps
    chance = jnp.clip(chance, tiny, 1 - tiny)
    height = jnp.where(values > 0, jnp.log(chance), jnp.log1p(-chance))
    return jnp.sum(jnp.where(out, height, 0)) / jnp.sum(out)


def _auc(right: np.ndarray, chance: np.ndarray) -> float:
    """Area under the curve: chances of right responses above those of wrong ones.

    NaN where all are right, or wrong.
    """
    from scipy.stats import rankdata

    place, ones = rankdata(chance), right.sum()
    least = ones * (ones + 1) / 2
    pairs = ones * (right.size - ones)
    return float((place[right].sum() - least) / pairs) if pairs else float("nan")
