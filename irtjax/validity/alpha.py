"""Cronbach's alpha and the covariances of items behind it; JAX is not loaded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.validity.classical import alphas


def scores_of(table: ResponseTable) -> tuple[np.ndarray, np.ndarray | None]:
    """Responses `[subjects, items]`, shares of trials, 0 where missing, and the mask.

    Subjects and items without a response are left out of both by their place alone: a
    table has none that `read` made.
    """
    values, seen = np.asarray(table.values, float), table.observed
    if table.trials is not None:
        values = values / np.maximum(table.trials, 1)
        seen = table.trials > 0
    return values, None if seen is None or seen.all() else seen


def alpha_of(table: ResponseTable) -> float:
    """Cronbach's alpha of all items; NaN where nothing varies.

    >>> table = ResponseTable.from_arrays([[1, 1, 0], [0, 0, 0], [1, 1, 1]])
    >>> round(alpha_of(table), 3)
    0.857
    """
    return float(Deviations.of(*scores_of(table)).alpha())


class Deviations(NamedTuple):
    """Responses as deviations from their item's mean, 0 where missing.

    Attributes:
        own: `[subjects, items]`.
        seen: Whether each is there; None for all.
        variance: `[items]` means of squares.
        spread: `own` by the share of the item's responses that are there: products of
            two columns have the mean covariance, if it does not depend on what is
            missing.
    """

    own: np.ndarray
    seen: np.ndarray | None
    variance: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, seen: np.ndarray | None) -> Deviations:
        """Those of responses that are 0 where missing."""
        rows = len(values)
        count = np.full(values.shape[1], rows) if seen is None else seen.sum(axis=0)
        count = np.maximum(count, 1)
        own = values - values.sum(axis=0) / count
        own = own if seen is None else np.where(seen, own, 0.0)
        return cls(own, seen, (own**2).sum(axis=0) / count, own * (rows / count))

    def products(self, vector: np.ndarray) -> np.ndarray:
        """Covariances of the items, with 0 on the diagonal, times a vector."""
        rows = len(self.own)
        diagonal = (self.spread**2).sum(axis=0) / rows
        return self.spread.T @ (self.spread @ vector) / rows - diagonal * vector

    def squares(self) -> float:
        """Sum of the squared covariances of two different items."""
        rows = len(self.own)
        wide = self.spread.shape[1] > rows
        gram = self.spread @ self.spread.T if wide else self.spread.T @ self.spread
        diagonal = (self.spread**2).sum(axis=0) / rows
        return float(np.sum((gram / rows) ** 2) - np.sum(diagonal**2))

    def alpha(self) -> float:
        """Cronbach's alpha; NaN where nothing varies."""
        total, square = self.own.sum(axis=1), (self.own**2).sum(axis=1)
        items = self.own.shape[1]
        seen = self.seen
        answered = np.full(len(total), items) if seen is None else seen.sum(axis=1)
        pairs = float(np.sum(answered * (answered - 1.0)))
        of_one = lambda number: np.full(items, number / items)
        count = len(total) if seen is None else seen.sum(axis=0)
        return alphas(
            (self.own**2).sum(axis=0),
            of_one(float(np.sum(total**2 - square))),
            of_one(pairs),
            np.broadcast_to(count, items).astype(float),
        )[0]
