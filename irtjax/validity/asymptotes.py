"""Right responses of weak subjects beyond guessing: a score test.

One test, of groups of subjects with like scores or of subjects one by one: a curve with
the asymptote that is not suspicious is fitted, and the score of the asymptote, made
orthogonal to those of slope and intercept, is a sum of independent terms with known
variance and skewness (Neyman 1959; Rao 1948 for the score test).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from irtjax.numerics.tails import upper_tail

#: Responses to an item from which it is tested subject by subject. With 54 the smallest
#: p-values are three times too frequent, with 135 about as frequent as they should be
#: (experiments/psn_irt/quality.md).
LEAST_ANSWERS = 120
#: Cells of a block of items: its dozen arrays stay in the processor's cache.
BLOCK = 50_000
#: Steps of the fit of slope and intercept, from those of the calibration.
STEPS = 4
#: Added to the information of slopes and intercepts.
RIDGE = 1e-3
#: An item's own part is removed from its subjects' abilities up to here.
MOST_OWN = 0.5

#: Turns chances `[items, nodes]` and their derivatives into those of what is counted.
Through = Callable[[np.ndarray, list[np.ndarray]], tuple[np.ndarray, list[np.ndarray]]]


class Asymptotes(NamedTuple):
    """Lower asymptotes, each `[items]`.

    Attributes:
        estimate: One-step estimate, between 0 and 1.
        p_value: Of "it is at most that of chance", one-sided.
    """

    estimate: np.ndarray
    p_value: np.ndarray


def score_test(
    right: np.ndarray,
    count: np.ndarray,
    nodes: np.ndarray,
    through: Through,
    start: tuple[np.ndarray, np.ndarray],
    guess: np.ndarray,
    spread: np.ndarray | float = 0.0,
) -> Asymptotes:
    """Tests the lower asymptote of each item.

    Args:
        right: `[items, cells]` right responses.
        count: `[items, cells]` or `[cells]` numbers of responses.
        nodes: `[items, nodes]` or `[nodes]` abilities.
        through: Makes of chances and derivatives at nodes those of cells.
        start: Slopes and intercepts to begin at, each `[items]`.
        guess: `[items]` lower asymptote that is not suspicious.
        spread: Variances of abilities around the nodes over 1.702^2, `[items, nodes]`.
    """
    slope, intercept = (np.array(x, np.float64)[:, None] for x in start)
    for _ in range(STEPS):
        line = slope, intercept
        at = _Local.of(right, count, nodes, through, line, guess, spread)
        by_slope, by_intercept = (_total(x * at.residual) for x in at.tangents)
        move = at.solved(by_slope, by_intercept)
        slope = np.clip(slope + np.clip(move[0], -0.5, 0.5), -10, 10)
        intercept = np.clip(intercept + np.clip(move[1], -1, 1), -15, 15)
    line = slope, intercept
    at = _Local.of(right, count, nodes, through, line, guess, spread, asymptote=True)
    a, d, c = at.tangents
    on_a, on_d = at.solved(_total(at.weight * a * c), _total(at.weight * d * c))
    effect = c - on_a * a - on_d * d
    square = effect * effect * at.weight
    score, variance = (effect * at.residual).sum(1), square.sum(1)
    third = (effect * square * at.precision * (1 - 2 * at.share)).sum(1)
    known = variance > 1e-9
    variance = np.where(known, variance, 1)
    p_value = upper_tail(score / np.sqrt(variance), third / variance**1.5)
    estimate = guess + np.where(known, score / variance, 0)
    return Asymptotes(np.clip(estimate, 0, 1), np.where(known, p_value, 1.0))


def _total(values: np.ndarray) -> np.ndarray:
    """Sums over cells, `[items, 1]`."""
    return values.sum(1, keepdims=True)


class _Local(NamedTuple):
    """Curves and data at some slopes and intercepts, each `[items, cells]`.

    Attributes:
        share: Expected shares right.
        precision: Of one response.
        residual: Right responses less expected ones, times the precision.
        weight: Precision of all responses of a cell.
        tangents: Derivatives of the shares by slope and intercept, and on request by
            the asymptote.
    """

    share: np.ndarray
    precision: np.ndarray
    residual: np.ndarray
    weight: np.ndarray
    tangents: list[np.ndarray]

    @staticmethod
    def of(
        right,
        count,
        nodes,
        through: Through,
        line,
        guess,
        spread,
        *,
        asymptote: bool = False,
    ) -> _Local:
        """Of `score_test`'s arguments; `line` are slopes and intercepts."""
        lower = guess[:, None]
        wider = 1 + line[0] ** 2 * spread
        place = (line[0] * nodes + line[1]) / np.sqrt(wider)
        curve = expit(place)
        steep = (1 - lower) * curve * (1 - curve) / np.sqrt(wider)
        flatter = place * line[0] * spread / np.sqrt(wider)
        slopes = [steep * (nodes - flatter), steep] + [1 - curve] * asymptote
        share, tangents = through(lower + (1 - lower) * curve, slopes)
        precision = 1 / (share * (1 - share))
        residual = (right - count * share) * precision
        return _Local(share, precision, residual, count * precision, tangents)

    def solved(self, by_slope: np.ndarray, by_intercept: np.ndarray):
        """The inverse of the information of slope and intercept times two columns."""
        a, d = self.tangents[:2]
        # A slope or an intercept without information stays.
        aa, dd = (_total(self.weight * x * x) + RIDGE for x in (a, d))
        ad = _total(self.weight * a * d)
        determinant = np.maximum(aa * dd - ad**2, 1e-12)
        return (
            (dd * by_slope - ad * by_intercept) / determinant,
            (aa * by_intercept - ad * by_slope) / determinant,
        )


def by_subjects(
    values: np.ndarray,
    observed: np.ndarray | None,
    ability: np.ndarray,
    error: np.ndarray,
    items: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    guess: np.ndarray,
) -> Asymptotes:
    """The test subject by subject, at estimated abilities less what the item adds.

    An item's own response moves the ability that it is compared with: by one Newton step
    that part is taken out. What is left of the error of an ability flattens the curve,
    E[expit(a theta + d)] ~ expit((a m + d) / sqrt(1 + a^2 s^2 / 1.702^2)) for theta
    normal with mean m and standard deviation s.

    Args:
        values: `[subjects, items]` 0 and 1.
        observed: Mask or None.
        ability: `[subjects]` abilities.
        error: `[subjects]` their standard errors; subjects without one are left out.
        items: Slopes, intercepts, lower and upper asymptotes of the calibration, each
            `[items]` and of logistic curves.
        guess: `[items]` lower asymptote that is not suspicious.

    Returns:
        The tests; NaN for items with fewer than `LEAST_ANSWERS` answers, or without
        variation.
    """
    size = values.shape[1]
    estimate, p_value = np.full(size, np.nan), np.full(size, np.nan)
    scored = np.isfinite(error) & (error > 0)
    values, ability, error = values[scored], ability[scored], error[scored]
    observed = None if observed is None else observed[scored]
    width = max(1, BLOCK // max(values.shape[0], 1))
    for begin in range(0, size, width):
        part = slice(begin, begin + width)
        right = values[:, part].T.astype(np.float64)
        count = np.ones_like(right)
        if observed is not None:
            count = observed[:, part].T.astype(np.float64)
        slope, intercept, lower, upper = (
            np.asarray(x, np.float64)[part, None] for x in items
        )
        curve = expit(slope * ability + intercept)
        chance = np.clip(lower + (upper - lower) * curve, 1e-9, 1 - 1e-9)
        steep = (upper - lower) * slope * curve * (1 - curve)
        told = count * steep / (chance * (1 - chance))
        own = np.minimum(error**2 * told * steep, MOST_OWN)
        left = error**2 / (1 - own)
        found = score_test(
            right * count,
            count,
            ability - left * told * (right - chance),
            lambda chance, slopes: (np.clip(chance, 1e-9, 1 - 1e-9), slopes),
            (slope[:, 0], intercept[:, 0]),
            guess[part],
            left / 1.702**2,
        )
        ones, answers = (right * count).sum(1), count.sum(1)
        # Without variation there is no curve.
        enough = (answers >= LEAST_ANSWERS) & (ones > 0) & (ones < answers)
        estimate[part] = np.where(enough, found.estimate, np.nan)
        p_value[part] = np.where(enough, found.p_value, np.nan)
    return Asymptotes(estimate, p_value)
