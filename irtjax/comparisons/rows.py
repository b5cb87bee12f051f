r"""Comparisons in the order of their pairs, and their maximum likelihood on the host.

With d the difference of a row, l_r its log-likelihood and x_r its features, a step of
Newton's method requires the sums over the rows of each pair of

    l_r'(d),    l_r''(d),    x_r l_r''(d),

and no more: the rest is algebra of subjects x subjects. Rows of a pair lie side by
side, so that these sums are one pass each. A row of (j, i) with j > i is that of (i, j)
with features of the other sign, its wins and losses swapped.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from irtjax.comparisons.families import PairFamily
from irtjax.comparisons.newton import (
    MOST_HALVINGS,
    MOST_STEPS,
    TOLERANCE,
    PairFit,
    PairParameters,
    padded,
    row_derivatives,
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
        sides: tuple[np.ndarray, np.ndarray],
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
        if len(np.unique(features[:SAMPLE], axis=0)) > SAMPLE // 2:
            # Keys of 16 bits have a sort by digits.
            order = np.argsort(
                key.astype(np.uint16) if count <= 256 else key, kind="stable"
            )
            place = np.empty(len(key), np.int64)
            place[order] = np.arange(len(key))
        else:
            values, code = np.unique(features, axis=0, return_inverse=True)
            code = key * len(values) + code.reshape(-1)
            _, order, place = np.unique(code, return_index=True, return_inverse=True)
            place = place.reshape(-1)
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


def outcome_scores(family: PairFamily, gap: np.ndarray, shape: Any) -> np.ndarray:
    """Derivatives `[rows, 3, local]` of log-probabilities in the difference and shapes.

    Ties that are halves have the mean of a win and a loss.
    """
    if family.link == "bradley_terry" and not family.num_shapes:
        win = expit(-gap)
        tie = win - 0.5 if family.ties == "half" else np.zeros(len(gap))
        return np.stack([win, win - 1, tie]).T[:, :, None]
    local = _scores(family, padded(gap), jnp.asarray(shape))
    scores = np.array(local, np.float64)[: len(gap)]
    if not family.num_shapes:
        half = scores[:, :2].mean(axis=1) if family.ties == "half" else 0.0
        scores[:, 2] = half
    return scores


def _derivatives(family: PairFamily, gap: np.ndarray, shape: Any, counts: np.ndarray):
    """Log-likelihood, its derivatives `[rows, local]`, and the second ones.

    The local parameters of a row are its difference and the shapes.
    """
    if family.link == "bradley_terry" and not family.num_shapes:
        value, slope, curve = _logistic(gap, counts[:, 0], counts[:, 1])
        return value, slope[:, None], curve[:, None, None]
    local = _local(family, padded(gap), jnp.asarray(shape), padded(counts))
    value, slope, curve = map(np.asarray, local)
    return float(value), slope[: len(gap)], curve[: len(gap)]


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


@partial(jax.jit, static_argnums=0)
def _local(family: PairFamily, gap, shape, counts):
    """Sum of the log-likelihoods of rows, with derivatives of each."""
    shapes = jnp.broadcast_to(shape, (len(gap), len(shape)))
    local = jnp.concatenate([gap[:, None], shapes], axis=1)
    values, slopes, curves = row_derivatives(family, local, counts)
    return jnp.sum(values), slopes, curves


@partial(jax.jit, static_argnums=0)
def _scores(family: PairFamily, gap, shape):
    """Derivatives of log-probabilities of rows."""
    local = jax.jacfwd(lambda z: family.log_chances(z[0], z[1:]))
    return jax.vmap(lambda d: local(jnp.concatenate([d[None], shape])))(gap)


class _Point(NamedTuple):
    """The objective at parameters, with its derivatives; the likelihood alone too."""

    vector: np.ndarray
    log_likelihood: float
    objective: float
    gradient: np.ndarray
    information: np.ndarray


def _point(family: PairFamily, rows: PairRows, counts, sizes, precision, vector):
    """The posterior at a vector of parameters."""
    count, end = sizes[0], sizes[0] + sizes[1]
    parts: Any = np.split(vector, [count, end])
    parameters = PairParameters(*parts)
    value, slopes, curves = _derivatives(
        family, rows.gaps(parameters), parameters.shape, counts
    )
    x, curve = rows.features, curves[:, 0, 0]
    # A row moves with its difference by (e_i - e_j, x), and with the shapes.
    along = np.concatenate([x * curve[:, None], curves[:, 0, 1:]], axis=1)
    information = np.zeros((len(vector), len(vector)))
    information[:count, :count] = -rows.products(curve)
    information[:count, count:] = -rows.onto(along)
    information[count:, :count] = information[:count, count:].T
    information[count:end, count:] = -x.T @ along
    information[end:, count:end] = information[count:end, end:].T
    information[end:, end:] = -curves[:, 1:, 1:].sum(axis=0)
    information[np.diag_indices(len(vector))] += precision
    gradient = np.concatenate(
        [
            rows.onto(slopes[:, :1])[:, 0],
            x.T @ slopes[:, 0],
            slopes[:, 1:].sum(axis=0),
        ]
    )
    objective = value - 0.5 * float(precision @ vector**2)
    return _Point(vector, value, objective, gradient - precision * vector, information)


def maximum(
    family: PairFamily,
    rows: PairRows,
    outcomes: np.ndarray,
    start: PairParameters,
    precision: np.ndarray,
) -> PairFit:
    """Estimates by Newton's method with step-halving; see `newton.maximise`.

    Args:
        family: The model.
        rows: The comparisons.
        outcomes: `[rows, 3]` numbers of wins, losses and ties.
        start: Parameters to start from.
        precision: `[parameters]` of the priors.
    """
    counts, vector = family.counts(outcomes), np.concatenate(start)
    sizes = [len(x) for x in start]
    evaluate = lambda v: _point(family, rows, counts, sizes, precision, v)
    fixed = np.repeat([sizes[0] ** -0.5, 0.0], [sizes[0], len(vector) - sizes[0]])
    tolerance, steps, point = TOLERANCE * len(vector), 0, evaluate(vector)
    while True:
        # The size of the direction that is fixed does not matter.
        size = np.trace(point.information) / len(vector) + 1e-30
        regular = point.information + size * np.outer(fixed, fixed)
        try:
            move = np.linalg.solve(regular, point.gradient)
        except np.linalg.LinAlgError:
            decrement = np.inf
            break
        move = move - fixed * (fixed @ move)
        decrement, steps = float(point.gradient @ move), steps + 1
        if not decrement > tolerance or steps > MOST_STEPS:
            break
        for halvings in range(MOST_HALVINGS):
            new = evaluate(point.vector + move * 0.5**halvings)
            if new.objective >= point.objective - 1e-12 * abs(point.objective):
                break
        else:
            break
        point = new
    estimates: Any = np.split(point.vector, np.cumsum(sizes)[:-1])
    numbers: Any = point.log_likelihood, point.information, decrement <= tolerance
    numbers = [*map(np.asarray, numbers), np.asarray(steps)]
    return PairFit(PairParameters(*estimates), *numbers)
