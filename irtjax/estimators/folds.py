"""Responses in folds of observed cells, for the number of factors and their prior.

A fold is a part of the observed cells. Models are fitted to the cells outside it, and
evaluated by the log-likelihood of the cells in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from irtjax._types import KeyArray
from irtjax.data.responses import AbstractResponses, Responses
from irtjax.data.sparse_responses import SparseResponses
from irtjax.data.sparse_table import SparseCells
from irtjax.data.wording import counted
from irtjax.inference.vector_scores import score_factors
from irtjax.likelihood.products import expected_cells
from irtjax.models.model import Model
from irtjax.numerics.memory import require_memory

if TYPE_CHECKING:
    from irtjax.data.table import ResponseTable

FOLDS = 5
#: Bytes of a cell of fits to matrices: 20,000 x 10,000 took 8.3 GB for one factor.
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


class Folds:
    """Responses in folds of observed cells.

    Attributes:
        cells: The observed responses.
        number: `[cells]` number of the fold of each.
        layout: `of_cells` of the layout that fits take.
    """

    def __init__(
        self,
        cells: SparseCells,
        number: np.ndarray,
        layout: Callable[..., AbstractResponses],
    ) -> None:
        self.cells, self.number, self.layout = cells, number, layout
        self.num_observed = len(number)

    @cached_property
    def whole(self) -> Any:
        """All responses, as the fits take them."""
        return self.layout(self.cells, seen=np.ones(self.num_observed, bool))

    def without(self, fold: int) -> Any:
        """The cells outside a fold, in the layout of all cells: one program."""
        return self.layout(self.cells, seen=self.number != fold)

    def judge(self, fold: int, training: Any, fit: Any) -> HeldOutFit:
        """Predicts the cells of a fold by a fit; None is the items' proportions."""
        out = self.number == fold
        row, column = self.cells.row[out], self.cells.column[out]
        right = self.cells.value[out] > 0
        if fit is None:
            chance = self._means(~out)[column]
        else:
            items, population, theta = fit.parameters[:3]
            population = _unit(population)
            scores = score_factors(fit.model, items, population, training, theta)
            chance = _at_cells(fit.model, items, scores, row, column)
        heights = _log_likelihoods(right, chance)
        return HeldOutFit(float(heights.mean()), _auc(right, chance))

    def log_likelihood_of_means(self) -> float:
        """Log-likelihood of the observed cells at the items' proportions."""
        chance = self._means(np.ones(self.num_observed, bool))[self.cells.column]
        return float(_log_likelihoods(self.cells.value > 0, chance).sum())

    def _means(self, seen: np.ndarray) -> np.ndarray:
        """Proportions right of the items over some cells."""
        right = self.cells.sum(0, self.cells.value * seen)
        return (right + 0.5) / (self.cells.sum(0, seen) + 1)


def folds_of(
    table: ResponseTable, key: KeyArray, *, what: str, cells: bool | None = None
) -> Folds:
    """The folds of a table, drawn for each observed cell in the order of the rows.

    Args:
        table: The responses, right or wrong.
        key: Random key.
        what: What the folds are for, for messages.
        cells: Whether fits take the observed cells alone; None: if the table does.

    Raises:
        ValueError: A fold has no cell, or the matrices of a dense table do not fit into
            the memory.
    """
    size = f"{table.num_subjects:,} subjects by {table.num_items:,} items"
    cells = table.sparse is not None if cells is None else cells
    if not cells:
        cure = "select fewer subjects or items"
        require_memory(CELL_BYTES * table.size, f"{what} of {size}", cure)
    number = jax.random.randint(key, (table.num_observed,), 0, FOLDS)
    if np.bincount(np.asarray(number), minlength=FOLDS).min() == 0:
        raise ValueError(
            f"{what} of {size}: {counted(table.num_observed, 'response')} are too"
            f" few for {FOLDS} folds: add subjects or items"
        )
    layout = SparseResponses if cells else Responses
    return Folds(table.cells, np.asarray(number), layout.of_cells)


def _unit(population):
    """Abilities of standard deviation 1, uncorrelated."""
    return population._replace(sd=jnp.ones_like(population.sd), correlation=None)


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


def _log_likelihoods(right: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Log-likelihoods of responses, finite where a chance rounds to 0 or 1."""
    tiny = float(jnp.finfo(jnp.zeros(()).dtype).eps)
    chance = np.clip(np.asarray(chance, float), tiny, 1 - tiny)
    return np.where(right, np.log(chance), np.log1p(-chance))


def _auc(right: np.ndarray, chance: np.ndarray) -> float:
    """Area under the curve: chances of right responses above those of wrong ones.

    NaN where all are right, or wrong.
    """
    from scipy.stats import rankdata

    place, ones = rankdata(chance), right.sum()
    least = ones * (ones + 1) / 2
    pairs = ones * (right.size - ones)
    return float((place[right].sum() - least) / pairs) if pairs else float("nan")
