"""Right responses of weak subjects beyond guessing: a score test.

The test is of groups of subjects with similar scores or of single subjects. A curve
with the asymptote that is not suspicious is fitted. The score of the asymptote, made
orthogonal to those of slope and intercept, is a sum of independent terms with known
variance and skewness (Neyman 1959; Rao 1948 for the score test).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import bdtr, expit

from irtjax.data.stored_cells import AbstractStoredCells
from irtjax.numerics.tails import upper_tail

#: Responses to an item from which it is tested subject by subject. With 54 the smallest
#: p-values are three times too frequent, with 135 about as frequent as they should be
#: (experiments/psn_irt/quality.md).
LEAST_ANSWERS = 120
#: Right and wrong responses from which an item is tested subject by subject: with fewer
#: than 5 wrong ones of 225 a p-value below 0.005 came in 5 % of sound items.
LEAST_RARER = 10
#: Right responses beyond the curve without which there is no evidence of an asymptote.
LEAST_EXCESS = 0.5
#: Expected right and wrong responses of a group below which they are rare; p-values are
#: drawn if more than this share of the information comes from such groups, and if the
#: p-value that skewness gives is not above `LOOK`.
LEAST_EXPECTED, RARE, LOOK = 5.0, 0.05, 0.1
#: Draws of an item's responses.
DRAWS = 4999
#: Cells of a block of items: its dozen arrays stay in the processor's cache.
BLOCK = 50_000
#: Steps of the fit of slope and intercept.
STEPS = 4
#: Added to the information of slopes and intercepts.
RIDGE = 1e-3
#: Largest share of an ability's information that is removed as the item's own.
MOST_OWN = 0.5

#: Turns chances `[items, nodes]` and their derivatives into those of cells.
Through = Callable[[np.ndarray, list[np.ndarray]], tuple[np.ndarray, list[np.ndarray]]]


class GroupedResponses(NamedTuple):
    """Responses by item and group of subjects, or single subject, and their curves.

    Attributes:
        right: `[items, cells]` right responses.
        responses: Their numbers, `[cells]` or `[items, cells]`.
        nodes: Abilities, `[nodes]` or `[items, nodes]`.
        through: From chances at the nodes to those of cells.
        start: Slopes and intercepts to begin at, each `[items]`.
        guess: `[items]` lower asymptotes that are not suspicious.
        scaled_variance: Variance of the nodes over 1.702^2, or 0.
    """

    right: np.ndarray
    responses: np.ndarray
    nodes: np.ndarray
    through: Through
    start: tuple[np.ndarray, np.ndarray]
    guess: np.ndarray
    scaled_variance: np.ndarray | float = 0.0


class Asymptotes(NamedTuple):
    """One-step estimates, and one-sided p-values of "at most that of chance"."""

    estimate: np.ndarray
    p_value: np.ndarray


class _Local(NamedTuple):
    """Curves and data at some slopes and intercepts, each `[items, cells]`."""

    share: np.ndarray  # Expected shares right.
    precision: np.ndarray  # Of one response.
    residual: np.ndarray  # Right less expected responses, times the precision.
    weight: np.ndarray  # Precision of all responses of a cell.
    tangents: list[np.ndarray]  # Derivatives by slope, intercept and asymptote.

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


class _Scores(NamedTuple):
    """The test of every item, with the curve at the asymptote `guess`."""

    slope: np.ndarray  # `[items, 1]`, as `intercept`.
    intercept: np.ndarray
    share: np.ndarray  # Expected shares right, `[items, cells]`.
    scoring: np.ndarray  # `z` is its product with right less expected responses.
    z: np.ndarray  # The orthogonal score in its standard deviations; 0 without one.
    skewness: np.ndarray
    estimate: np.ndarray
    explains: np.ndarray  # Whether the asymptote explains more than the curve.
    rare: np.ndarray  # Share of that from cells of few expected responses.


def score_test(cells: GroupedResponses) -> Asymptotes:
    """Tests the lower asymptote of each item against that which is not suspicious."""
    scores = _score(cells)
    return Asymptotes(
        np.clip(scores.estimate, 0, 1),
        np.where(scores.explains, upper_tail(scores.z, scores.skewness), 1.0),
    )


def drawn_test(cells: GroupedResponses) -> Asymptotes:
    """`score_test` of groups, with p-values from drawn responses where these are rare.

    A group that expects hardly any right response, or wrong one, makes the score of the
    asymptote far from normal. Responses are then drawn from the curve fitted at
    `guess`: the p-value is the share of scores as large. The draws of all items have
    the same uniform numbers, so the order of items does not matter. All items have the
    same groups, with `cells.responses` `[groups]`.
    """
    scores, count = _score(cells), cells.responses
    p_value = np.where(scores.explains, upper_tail(scores.z, scores.skewness), 1.0)
    uniform = np.random.default_rng(0).random((DRAWS, count.size))
    # Only what might be flagged is drawn; the others keep p-values above `LOOK`.
    for item in np.flatnonzero((p_value < LOOK) & (scores.rare > RARE)):
        share = scores.share[item]
        gap = binomial_quantiles(uniform, count, share) - count * share
        z = gap @ scores.scoring[item]
        # Equal responses have equal scores, up to rounding.
        as_large = np.count_nonzero(z >= scores.z[item] - 1e-9)
        # Beyond all draws the tail that skewness gives goes on.
        most = (as_large + 1) / (DRAWS + 1)
        p_value[item] = most if as_large else min(most, p_value[item])
    return Asymptotes(np.clip(scores.estimate, 0, 1), p_value)


def binomial_quantiles(
    uniform: np.ndarray, count: np.ndarray, share: np.ndarray
) -> np.ndarray:
    """Binomial numbers `[draws, groups]` at uniform ones, by groups."""
    columns = []
    for u, n, p in zip(uniform.T, count, share, strict=True):
        below = bdtr(np.arange(int(n)), int(n), p)
        columns.append(np.searchsorted(below, u, side="left"))
    return np.stack(columns, 1).astype(np.float64)


def _score(cells: GroupedResponses) -> _Scores:
    """Fits slopes and intercepts, and finds the score of the asymptotes."""
    right, count, nodes, through, start, guess, scaled_variance = cells
    slope, intercept = (np.array(x, np.float64)[:, None] for x in start)
    lower = guess[:, None]

    def local(slope, intercept, *, asymptote: bool) -> _Local:
        root = np.sqrt(1 + slope**2 * scaled_variance)
        place = (slope * nodes + intercept) / root
        curve = expit(place)
        steep = (1 - lower) * curve * (1 - curve) / root
        flatter = place * slope * scaled_variance / root
        slopes = [steep * (nodes - flatter), steep] + [1 - curve] * asymptote
        share, tangents = through(lower + (1 - lower) * curve, slopes)
        precision = 1 / (share * (1 - share))
        residual = (right - count * share) * precision
        return _Local(share, precision, residual, count * precision, tangents)

    for _ in range(STEPS):
        at = local(slope, intercept, asymptote=False)
        move = at.solved(*(_total(x * at.residual) for x in at.tangents))
        slope = np.clip(slope + np.clip(move[0], -0.5, 0.5), -10, 10)
        intercept = np.clip(intercept + np.clip(move[1], -1, 1), -15, 15)
    at = local(slope, intercept, asymptote=True)
    a, d, c = at.tangents
    on_a, on_d = at.solved(_total(at.weight * a * c), _total(at.weight * d * c))
    effect = c - on_a * a - on_d * d
    square = effect * effect * at.weight
    score, variance = (effect * at.residual).sum(1), square.sum(1)
    third = (effect * square * at.precision * (1 - 2 * at.share)).sum(1)
    varies = variance > 1e-9
    variance = np.where(varies, variance, 1)
    estimate = guess + np.where(varies, score / variance, 0)
    # Right responses that the asymptote explains beyond the curve. Where none of the
    # weak are right a curve may be as steep as it likes: the score is then next to 0,
    # its variance too, and chances of weak subjects too small to rely on.
    excess = (estimate - guess) * (count * c).sum(1)
    expected = count * np.minimum(at.share, 1 - at.share)
    return _Scores(
        slope,
        intercept,
        at.share,
        effect * at.precision / np.sqrt(variance)[:, None],
        z=np.where(varies, score / np.sqrt(variance), 0),
        skewness=third / variance**1.5,
        estimate=estimate,
        explains=varies & (excess >= LEAST_EXCESS),
        rare=(square * (expected < LEAST_EXPECTED)).sum(1) / variance,
    )


def _total(values: np.ndarray) -> np.ndarray:
    """Sums over cells, `[items, 1]`."""
    return values.sum(1, keepdims=True)


def by_subjects(
    cells: AbstractStoredCells,
    ability: np.ndarray,
    error: np.ndarray,
    items: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    guess: np.ndarray,
) -> Asymptotes:
    """The test subject by subject, at abilities estimated from the other items.

    One Newton step takes the item's own response out of an ability. The error that an
    ability then has flattens the curve: for theta normal with mean m and standard
    deviation s, E[expit(a theta + d)] ~ expit((a m + d) / sqrt(1 + a^2 s^2 / 1.702^2)).

    `items` are slopes, intercepts, lower and upper asymptotes of logistic curves;
    `guess` are the lower asymptotes that are not suspicious. Subjects without a
    standard error are left out. The tests are NaN for items with fewer than
    `LEAST_ANSWERS` responses, or `LEAST_RARER` right or wrong ones.
    """
    result = np.full((2, cells.shape[1]), np.nan)
    scored = np.isfinite(error) & (error > 0)
    if not scored.all():
        cells = cells.select(np.flatnonzero(scored), None)
    of_subjects = ability[scored], error[scored]
    for some in cells.item_blocks(BLOCK):
        part, seen = some.items, some.seen
        right, count = some.values.T.astype(np.float64), seen.T.astype(np.float64)
        ability, error = (some.of_subjects(x).T for x in of_subjects)
        slope, intercept, lower, upper = (
            np.asarray(x, np.float64)[part, None] for x in items
        )
        curve = expit(slope * ability + intercept)
        chance = np.clip(lower + (upper - lower) * curve, 1e-9, 1 - 1e-9)
        steep = (upper - lower) * slope * curve * (1 - curve)
        score = count * steep / (chance * (1 - chance))
        own = np.minimum(error**2 * score * steep, MOST_OWN)
        left = error**2 / (1 - own)
        others = ability - left * score * (right - chance)
        through = lambda chance, slopes: (np.clip(chance, 1e-9, 1 - 1e-9), slopes)
        curves = (slope[:, 0], intercept[:, 0]), guess[part], left / 1.702**2
        test = score_test(
            GroupedResponses(right * count, count, others, through, *curves)
        )
        ones, answers = (right * count).sum(1), count.sum(1)
        rarer = np.minimum(ones, answers - ones)
        enough = (answers >= LEAST_ANSWERS) & (rarer >= LEAST_RARER)
        result[:, part] = np.where(enough, test, np.nan)
    return Asymptotes(*result)
