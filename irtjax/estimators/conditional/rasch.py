r"""Conditional maximum likelihood of the Rasch model (CML), for any missing responses.

Given the sum r of a subject's responses, their chance is free of ability (Rasch 1960;
Andersen 1970):

    l_c = -sum_j s_j b_j - sum_r n_r log gamma_r(b),

s_j the number right of item j and n_r the number of subjects with sum r, those with all
or none right left out. Subjects with the same items missing share their gamma, so the
likelihood is a sum over these patterns. Newton's steps have exact second derivatives
(`numerics.symmetric_functions`), and difficulties sum to 0.

Where there are more than `MOST_PATTERNS` patterns, the pairs of items are used: given
that one of two is right, item j is, with chance sigma(b_k - b_j), whatever else is
missing (Zwinderman 1995). Its errors are those of the sandwich over subjects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit

from irtjax.numerics.symmetric_functions import (
    chances_given_sum,
    log_symmetric,
    second_derivatives,
)

#: Patterns of missing responses up to which each has its symmetric functions.
MOST_PATTERNS = 1_000
#: Newton steps, and the longest of them, in standard errors, that ends them; trials of
#: a step, each a quarter of the one before.
STEPS, TOLERANCE, TRIALS = 50, 1e-7, 10
#: Longest step of a difficulty.
LONGEST = 3.0


class RaschItems(NamedTuple):
    """Estimates of the items, which sum to 0.

    Attributes:
        difficulty: `[items]`; NaN of items that are all right or all wrong.
        covariance: `[items, items]`, 0 for those.
        log_likelihood: Conditional; of pairs the sum over pairs.
        used: `[items]` whether an item has responses of both kinds.
        pairwise: Whether pairs were used.
    """

    difficulty: np.ndarray
    covariance: np.ndarray
    log_likelihood: float
    used: np.ndarray
    pairwise: bool

    @property
    def error(self) -> np.ndarray:
        """`[items]` standard errors, NaN where there is no estimate."""
        variance = np.diagonal(self.covariance)
        return np.where(self.used, np.sqrt(np.maximum(variance, 0)), np.nan)


class _Pattern(NamedTuple):
    """Subjects who answered the same items, with a sum between."""

    items: np.ndarray
    sums: np.ndarray
    counts: np.ndarray


def informative(right: np.ndarray, seen: np.ndarray | None) -> np.ndarray:
    """`[subjects]` whether some but not all responses are right."""
    total = right.sum(axis=1)
    most = right.shape[1] if seen is None else seen.sum(axis=1)
    return (total > 0) & (total < most)


def fit_rasch(right: np.ndarray, seen: np.ndarray | None = None) -> RaschItems:
    """Conditional estimates of the difficulties.

    Args:
        right: `[subjects, items]` of 0 and 1, 0 where missing.
        seen: The same of what was observed; None if all was.

    Raises:
        ValueError: If fewer than two items have responses of both kinds, or items fall
            into sets that no subject compares.

    >>> right = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> (fit_rasch(right).difficulty.round(2) + 0).tolist()
    [-0.83, 0.0, 0.83]
    """
    count = right.shape[1]
    right = np.asarray(right, np.float64)
    used = np.ones(count, bool)
    while True:
        # Without constant items other subjects, and then items, may be constant.
        there = None if seen is None else seen[:, used]
        rows = informative(right[:, used], there)
        hits = right[rows][:, used].sum(axis=0)
        answers = rows.sum() if there is None else there[rows].sum(axis=0)
        varies = (hits > 0) & (hits < answers)
        if varies.all():
            break
        used[np.flatnonzero(used)[~varies]] = False
        if used.sum() < 2:
            raise ValueError(
                "fewer than two items have right and wrong responses of subjects with"
                " some of both: there is nothing to compare"
            )
    right = right[rows][:, used]
    there = None if there is None else np.asarray(there[rows], bool)
    patterns = _patterns(right, there)
    if patterns is None:
        assert there is not None
        estimates = _by_pairs(right, there)
    else:
        estimates = _by_patterns(right, patterns)
    difficulty, covariance, value = estimates
    whole = np.full(count, np.nan)
    whole[used] = difficulty
    matrix = np.zeros((count, count))
    matrix[np.ix_(used, used)] = covariance
    return RaschItems(whole, matrix, value, used, patterns is None)


def _patterns(right: np.ndarray, seen: np.ndarray | None) -> list[_Pattern] | None:
    """Patterns of missing responses; None if there are too many."""
    total = right.sum(axis=1).astype(np.int64)
    if seen is None:
        sums, counts = np.unique(total, return_counts=True)
        return [_Pattern(np.arange(right.shape[1]), sums, counts.astype(float))]
    packed = np.packbits(seen, axis=1)
    keys, codes = np.unique(packed, axis=0, return_inverse=True)
    codes = codes.ravel()
    if len(keys) > MOST_PATTERNS:
        return None
    patterns = []
    for code in range(len(keys)):
        rows = codes == code
        sums, counts = np.unique(total[rows], return_counts=True)
        items = np.flatnonzero(seen[np.argmax(rows)])
        patterns.append(_Pattern(items, sums, counts.astype(float)))
    return patterns


def _value(hits: np.ndarray, difficulty: np.ndarray, patterns: list[_Pattern]) -> float:
    """The conditional log-likelihood."""
    value = -float(hits @ difficulty)
    for items, sums, counts in patterns:
        value -= float(counts @ log_symmetric(difficulty[items])[sums])
    return value


def _by_patterns(
    right: np.ndarray, patterns: list[_Pattern]
) -> tuple[np.ndarray, np.ndarray, float]:
    """Newton's method with exact derivatives."""
    hits, size = right.sum(axis=0), right.shape[1]

    def derivatives(difficulty):
        gradient, information = -hits, np.zeros((size, size))
        for items, sums, counts in patterns:
            own = difficulty[items]
            chances = chances_given_sum(own, log_symmetric(own), sums)
            gradient = gradient.copy()
            gradient[items] += counts @ chances
            information[np.ix_(items, items)] += second_derivatives(
                own, chances, sums, counts
            )
        return gradient, information

    value_of = lambda difficulty: _value(hits, difficulty, patterns)
    answers = np.zeros(size)
    for items, _, counts in patterns:
        answers[items] += counts.sum()
    # Logits of the shares right are within some tenths of the estimates.
    start = np.log((answers - hits) / hits)
    difficulty, information, value = _maximum(derivatives, value_of, start)
    return difficulty, _inverse(information), value


def _maximum(
    derivatives: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    value_of: Callable[[np.ndarray], float],
    start: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Difficulties by Newton's method, the information there, and the value."""
    size = len(start)
    difficulty = start - start.mean()
    value = value_of(difficulty)
    gradient, information = derivatives(difficulty)
    _check_connected(information)
    for _ in range(STEPS):
        # All difficulties may move together: a multiple of 11' fixes their mean.
        fixed = information + np.trace(information) / size**2
        step = np.linalg.solve(fixed, gradient)
        if np.max(np.abs(step) * np.sqrt(np.diagonal(information))) < TOLERANCE:
            break
        step = np.clip(step, -LONGEST, LONGEST)
        trial, new = difficulty, -np.inf
        for _ in range(TRIALS):
            trial = difficulty + step - step.mean()
            new = value_of(trial)
            if new >= value - 1e-9 * abs(value):
                break
            step = step / 4
        difficulty, value = trial, new
        gradient, information = derivatives(difficulty)
    return difficulty, information, value


def _inverse(information: np.ndarray) -> np.ndarray:
    """The covariance of difficulties that sum to 0."""
    size, trace = len(information), np.trace(information)
    return np.linalg.inv(information + trace / size**2) - 1 / trace


def _check_connected(information: np.ndarray) -> None:
    """Refuses sets of items that no subject with some right compares."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    linked = np.abs(information) > 1e-12 * np.trace(information) / len(information)
    count, _ = connected_components(csr_matrix(linked), directed=False)
    if count > 1:
        raise ValueError(
            f"items fall into {count} sets that no subject compares: their difficulties"
            " are on no common scale; fit each alone"
        )


def _by_pairs(
    right: np.ndarray, seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Newton's method on all pairs of items, with sandwich errors over subjects."""
    wrong = seen - right
    wins = right.T @ wrong  # Right on j and wrong on k.
    size = len(wins)
    compared = wins + wins.T

    def value_of(b):
        return float(np.sum(wins * log_expit(b[None, :] - b[:, None])))

    def derivatives(b):
        chance = expit(b[None, :] - b[:, None])
        weight = compared * chance * (1 - chance)
        information = np.diag(weight.sum(axis=1)) - weight
        return (compared * chance - wins).sum(axis=1), information

    start = np.zeros(size)
    difficulty, information, value = _maximum(derivatives, value_of, start)
    inverse = _inverse(information)
    # Of a subject: sum_k y_j (1 - y_k) (P_jk - 1) + (1 - y_j) y_k P_jk.
    chance = expit(difficulty[None, :] - difficulty[:, None])
    scores = right * (wrong @ (chance - 1).T) + wrong * (right @ chance.T)
    middle = scores.T @ scores
    return difficulty, inverse @ middle @ inverse, value
