r"""Comparisons in the order of their pairs, and their maximum likelihood on the host.

With d the difference of a row, l_r its log-likelihood and x_r its features, a step of
Newton's method requires the sums over the rows of each pair of

    l_r'(d),    l_r''(d),    x_r l_r''(d),

and no more: the rest is algebra of subjects x subjects. Rows of a pair lie side by
side, so that these sums are one pass each. A row of (j, i) with j > i is that of (i, j)
with features of the other sign, its wins and losses swapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from irtjax.comparisons.families import (
    PairFamily,
    expected_information,
    outcome_scores,
    row_derivatives,
)
from irtjax.comparisons.newton import (
    NewtonPoint,
    PairFit,
    PairParameters,
    ascend,
    gradient_of,
    padded,
    quadratic_of,
    unflat,
)
from irtjax.data.comparison_table import pairs_of

#: Rows that are looked at first, to see whether their features are few.
SAMPLE = 500
#: Rows whose derivatives are computed together.
TOGETHER = 2**14


class PairRows(NamedTuple):
    """Rows of comparisons in the order of their pairs.

    Attributes:
        first, second: `[pairs]` subjects, the first the smaller place.
        start: `[pairs]` the first row of each.
        pair: `[rows]` the pair of each row.
        features: `[rows, features]` covariates of the difference, first less second.
        place: `[rows of the table]` where each is among the rows.
        turned: `[rows of the table]` whether its two are the other way around.
        num_subjects: Number of subjects.
    """

    first: np.ndarray
    second: np.ndarray
    start: np.ndarray
    pair: np.ndarray
    features: np.ndarray
    place: np.ndarray
    turned: np.ndarray
    num_subjects: int

    @classmethod
    def of(
        cls,
        sides: Sequence[np.ndarray],
        features: np.ndarray,
        count: int,
    ) -> PairRows:
        """Rows of a table; those of the same pair and features become one.

        Where features differ in nearly all rows, each row stays one.

        Args:
            sides: First and second subjects of all rows.
            features: `[rows, features]`.
            count: Number of subjects.

        >>> sides = np.array([1, 0, 0]), np.array([0, 2, 1])
        >>> rows = PairRows.of(sides, np.zeros((3, 0)), 3)
        >>> rows.place.tolist(), rows.second.tolist()
        ([0, 1, 0], [1, 2])
        """
        turned, low, high = sides[0] > sides[1], np.minimum(*sides), np.maximum(*sides)
        features = np.where(turned[:, None], -features, features)
        if not features.shape[1]:
            keys, place = pairs_of(low, high, count)
            rows = np.arange(len(keys))
            values = np.zeros((len(keys), 0))
            first, second = keys // count, keys % count
            return cls(first, second, rows, rows, values, place, turned, count)
        key = low.astype(np.int64) * count + high
        order, place = grouped(key, features)
        key, features = key[order], features[order]
        start = np.flatnonzero(np.diff(key, prepend=-1))
        size = np.diff(start, append=len(key))
        pair = np.repeat(np.arange(len(start)), size)
        first, second = key[start] // count, key[start] % count
        return cls(first, second, start, pair, features, place, turned, count)

    def outcomes(self, outcomes: np.ndarray) -> np.ndarray:
        """`[rows, 3]` sums of the wins, losses and ties of the table's rows."""
        win = np.where(self.turned, outcomes[:, 1], outcomes[:, 0])
        loss = np.where(self.turned, outcomes[:, 0], outcomes[:, 1])
        size = len(self.pair)
        sums = [np.bincount(self.place, x, size) for x in (win, loss, outcomes[:, 2])]
        return np.stack(sums).T

    def by_pair(self, values: np.ndarray) -> np.ndarray:
        """Sums of `[rows]` or `[rows, columns]` over the rows of each pair."""
        if len(self.start) == len(self.pair):
            return values
        if values.ndim == 1:
            return np.add.reduceat(values, self.start)
        sums = np.empty((values.shape[1], len(self.start)))
        for row, x in zip(sums, values.T, strict=True):
            np.add.reduceat(x, self.start, out=row)
        return sums.T

    def gaps(self, parameters: PairParameters) -> np.ndarray:
        """Differences of all rows."""
        ability = np.asarray(parameters.ability)
        gap = ability[self.first] - ability[self.second]
        if not self.features.shape[1]:
            return gap
        return gap[self.pair] + self.features @ np.asarray(parameters.effect)

    def onto(self, values: np.ndarray) -> np.ndarray:
        """Sums `[subjects, columns]` of `[rows, columns]`: first less second."""
        sums, count = self.by_pair(values), self.num_subjects
        columns = [
            np.bincount(self.first, x, count) - np.bincount(self.second, x, count)
            for x in sums.T
        ]
        return np.stack(columns, axis=1) if columns else np.zeros((count, 0))

    def products(self, weight: np.ndarray) -> np.ndarray:
        """Sum `[subjects, subjects]` of w_r (e_i - e_j) (e_i - e_j)' over all rows."""
        matrix = np.zeros((self.num_subjects, self.num_subjects))
        matrix[self.first, self.second] = -self.by_pair(weight)
        matrix += matrix.T
        matrix[np.diag_indices(self.num_subjects)] = -matrix.sum(axis=1)
        return matrix


def grouped(key: np.ndarray, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each group of equal keys and features, and the group of rows.

    Groups are in the order of their keys. Where features differ in nearly all rows,
    each row is a group.
    """
    if features.shape[1]:
        if len(np.unique(features[:SAMPLE], axis=0)) > SAMPLE // 2:
            # Keys of 16 bits have a sort by digits.
            small = key.astype(np.uint16) if key.max() < 2**16 else key
            order, place = np.argsort(small, kind="stable"), np.empty(len(key), int)
            place[order] = np.arange(len(key))
            return order, place
        values, code = np.unique(features, axis=0, return_inverse=True)
        key = key * len(values) + code.reshape(-1)
    _, order, place = np.unique(key, return_index=True, return_inverse=True)
    return order, place.reshape(-1)


def pair_scores(family: PairFamily, gap: np.ndarray, shape: Any) -> np.ndarray:
    """`families.outcome_scores` `[rows, 3, local]` of differences."""
    if family.link == "bradley_terry" and not family.num_shapes:
        win = expit(-gap)
        tie = win - 0.5 if family.ties == "half" else np.zeros(len(gap))
        return np.stack([win, win - 1, tie]).T[:, :, None]
    return outcome_scores(family, family, padded(_local(gap, shape)))[: len(gap)]


def _local(gap: np.ndarray, shape: Any) -> np.ndarray:
    """Differences and shapes of all rows, `[rows, local]`."""
    shapes = np.broadcast_to(np.asarray(shape), (len(gap), len(shape)))
    return np.column_stack([gap, shapes])


def _derivatives(family: PairFamily, gap: np.ndarray, shape: Any, counts: np.ndarray):
    """Log-likelihood, its derivatives `[rows, local]`, and the second ones.

    The local parameters of a row are its difference and the shapes.
    """
    if family.link == "bradley_terry" and not family.num_shapes:
        value, slope, curve = _logistic(gap, counts[:, 0], counts[:, 1])
        return value, slope[:, None], curve[:, None, None]
    local = padded(_local(gap, shape)), padded(counts)
    values, slopes, curves = map(np.asarray, row_derivatives(family, *local))
    return float(values.sum()), slopes[: len(gap)], curves[: len(gap)]


def _logistic(gap: np.ndarray, win: np.ndarray, loss: np.ndarray):
    """The same with the logistic G, where log G(d) = d - log(1 + e^d).

    Some rows at a time, so that what is between stays in the cache.
    """
    slope, curve, value = np.empty_like(gap), np.empty_like(gap), 0.0
    for begin in range(0, len(gap), TOGETHER):
        rows = slice(begin, begin + TOGETHER)
        d, won = gap[rows], win[rows]
        total = won + loss[rows]
        small = np.exp(-np.abs(d))  # Never above 1.
        larger = 1 / (1 + small)
        smaller = small * larger
        value += won @ d - total @ (np.log(1 + small) + np.maximum(d, 0))
        slope[rows] = won - total * np.where(d >= 0, larger, smaller)
        curve[rows] = -total * smaller * larger
    return float(value), slope, curve


def maximum(
    family: PairFamily,
    rows: PairRows,
    outcomes: np.ndarray,
    start: PairParameters,
    precision: np.ndarray,
) -> PairFit:
    """Estimates by Newton's method with step-halving; see `newton.ascend`.

    Args:
        family: The model.
        rows: The comparisons.
        outcomes: `[rows, 3]` numbers of wins, losses and ties.
        start: Parameters to start from.
        precision: `[parameters]` of the priors.
    """
    counts = family.counts(outcomes)

    def evaluate(vector: np.ndarray) -> NewtonPoint:
        parameters = unflat(vector, start)
        value, slopes, curves = _derivatives(
            family, rows.gaps(parameters), parameters.shape, counts
        )
        gradient = gradient_of(rows, slopes, rows.features) - precision * vector
        information = np.diag(precision) - quadratic_of(rows, curves, rows.features)
        objective = value - 0.5 * float(precision @ vector**2)
        return NewtonPoint(vector, value, objective, gradient, information)

    def expected(vector: np.ndarray) -> np.ndarray:
        parameters = unflat(vector, start)
        local = _local(rows.gaps(parameters), parameters.shape)
        weight = expected_information(family, local, counts)
        return quadratic_of(rows, weight, rows.features) + np.diag(precision)

    point, converged, steps = ascend(
        evaluate, np.concatenate(start), len(start.ability), expected=expected
    )
    numbers = point.log_likelihood, point.information, converged, steps
    arrays: Any = map(np.asarray, numbers)
    return PairFit(unflat(point.vector, start), *arrays)
