r"""Tests of items by subjects of the same sum score: Mantel-Haenszel and logistic.

In stratum s of the sum score, A_s of n_rs subjects of the reference group and C_s of
n_fs of the focal one are right, m_s of all T_s (Holland and Thayer 1988):

    chi2 = (|sum A_s - sum n_rs m_s / T_s| - 1/2)^2
           / sum n_rs n_fs m_s (T_s - m_s) / (T_s^2 (T_s - 1)),
    alpha = sum A_s (n_fs - C_s) / T_s / sum C_s (n_rs - A_s) / T_s.

All counts are one product of strata by group with the responses. The logistic test
(Swaminathan and Rogers 1990) compares logit P = b_0 + b_1 s with the models that add
the group and its product with s, by the likelihood ratio.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import xlogy

#: Strata of subjects with missing responses: by their share of right responses.
STRATA = 10
#: Subjects that a stratum has on average, at least, and items tested at a time.
EACH, BLOCK = 5, 1_000
#: Newton steps of the logistic models, and the gain of a step, as a share of the
#: log-likelihood, that ends them.
STEPS, TOLERANCE = 30, 1e-10
#: Responses that are treated at a time, which stay in the cache; numbers from 1 to 2
#: whose product is finite.
CELLS, FACTORS = 125_000, 1_000
#: Largest coefficient: groups that are all right or all wrong have no maximum.
LARGEST = 30.0


class MantelHaenszel(NamedTuple):
    """Each `[items]`; NaN where no stratum has both groups.

    Attributes:
        statistic: Chi-square with one degree of freedom.
        odds_ratio: Odds of the reference group over those of the focal group.
        effect: Difference of the share right, focal less reference, in the strata of
            the focal group, in points of a hundred (standardised p-difference).
    """

    statistic: np.ndarray
    odds_ratio: np.ndarray
    effect: np.ndarray


class LogisticTests(NamedTuple):
    """Likelihood ratios `[items]`, with degrees of freedom 1 and 1 for two groups.

    Attributes:
        uniform: Of the group, given the score.
        nonuniform: Of its product with the score, given these.
        r2: Nagelkerke's R2 gained by both.
    """

    uniform: np.ndarray
    nonuniform: np.ndarray
    r2: np.ndarray


def strata_of(
    right: np.ndarray, seen: np.ndarray | None, anchors: np.ndarray
) -> np.ndarray:
    """`[subjects]` strata by the sum of the anchors, by their share if incomplete."""
    if seen is None:
        return right[:, anchors].sum(axis=1).astype(np.int64)
    count = np.maximum(seen[:, anchors].sum(axis=1), 1)
    share = (right * seen)[:, anchors].sum(axis=1) / count
    edges = np.quantile(share, np.arange(1, STRATA) / STRATA)
    return np.searchsorted(edges, share, side="right")


def mantel_haenszel(
    right: np.ndarray,
    seen: np.ndarray | None,
    focal: np.ndarray,
    anchors: np.ndarray,
    *,
    corrected: bool = True,
) -> MantelHaenszel:
    """The test of every item, by the score on the anchors and on the item itself.

    With more different scores than a fifth of the subjects, strata are quantiles of the
    score: few scores have subjects of both groups then.

    Args:
        right: `[subjects, items]` of 0 and 1.
        seen: The same of what was observed; None if all was.
        focal: `[subjects]` whether in the focal group.
        anchors: `[items]` whether an item is in the score.
        corrected: Whether 1/2 is subtracted for continuity.
    """
    score = strata_of(right, seen, anchors)
    # An item that is not in the score moves those who have it right one point up.
    strata = _joined(np.stack([score, score + (seen is None)]))
    size = 2 * (int(strata.max()) + 1), len(score)
    subject, one = np.arange(len(score)), np.ones(len(score))
    own, raised = (csr_matrix((one, (2 * x + focal, subject)), size) for x in strata)
    blocks = []
    for first in range(0, right.shape[1], BLOCK):
        items = slice(first, first + BLOCK)
        observed = 1.0 if seen is None else seen[:, items].astype(np.float64)
        hit = right[:, items] * observed
        shape = -1, 2, hit.shape[1]
        of_sums, of_raised = np.asarray(own @ hit), np.asarray(raised @ hit)
        hits = np.where(anchors[items], of_sums, of_raised).reshape(shape)
        misses = np.asarray(own @ (observed - hit)).reshape(shape)
        blocks.append(_of_strata(hits, misses, corrected))
    return MantelHaenszel(*(np.concatenate(x) for x in zip(*blocks, strict=True)))


def _joined(score: np.ndarray) -> np.ndarray:
    """Strata of scores: each of its own, or together where most have few subjects."""
    values = np.unique(score)
    count = score.shape[1] // EACH
    if len(values) > count:
        values = np.unique(np.quantile(score[0], np.arange(1, count) / count))
        return np.searchsorted(values, score, side="right")
    return np.searchsorted(values, score)


def _of_strata(hits: np.ndarray, misses: np.ndarray, corrected: bool) -> MantelHaenszel:
    """The test from numbers right and wrong, `[strata, 2, items]`."""
    reference, other = hits[:, 0], hits[:, 1]
    wrong, wrong_other = misses[:, 0], misses[:, 1]
    n_r, n_f = reference + wrong, other + wrong_other
    total = n_r + n_f
    used = (n_r > 0) & (n_f > 0) & (total > 1)
    t = np.where(used, total, 2)
    m = reference + other
    each = lambda x: np.where(used, x, 0).sum(axis=0)
    gap = np.abs(each(reference) - each(n_r * m / t))
    gap = np.maximum(gap - 0.5 * corrected, 0)
    variance = each(n_r * n_f * m * (total - m) / (t**2 * (t - 1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = gap**2 / variance
        odds = each(reference * wrong_other / t) / each(other * wrong / t)
        gaps = other / np.where(n_f > 0, n_f, 1) - reference / np.where(n_r > 0, n_r, 1)
        effect = 100 * each(n_f * gaps) / each(n_f)
    return MantelHaenszel(statistic, odds, effect)


def logistic_tests(
    right: np.ndarray, seen: np.ndarray | None, codes: np.ndarray, anchors: np.ndarray
) -> LogisticTests:
    """The likelihood-ratio tests of every item, all items in each Newton step.

    `codes` is `[subjects]` of groups 0, 1, ... (the degrees of freedom are one less
    than their number), or a number of each subject.
    """
    score = strata_of(right, seen, anchors).astype(np.float64)
    score = (score - score.mean()) / max(score.std(), 1e-12)
    if codes.dtype.kind == "f":
        groups = ((codes - codes.mean()) / codes.std())[:, None]
    else:
        groups = (codes[:, None] == np.arange(1, codes.max() + 1)).astype(np.float64)
    design = [np.ones((len(score), 1)), score[:, None], groups, groups * score[:, None]]
    ends = 1, 2, 2 + groups.shape[1], 2 + 2 * groups.shape[1]
    columns = np.concatenate(design, axis=1)
    width = max(1, CELLS // len(score))
    blocks = []
    for first in range(0, right.shape[1], width):
        part = slice(first, first + width)
        observed = None if seen is None else seen[:, part]
        blocks.append(_log_likelihoods(columns, ends, right[:, part], observed))
    none, plain, uniform, whole = np.concatenate(blocks, axis=1)
    count = np.full(right.shape[1], len(score)) if seen is None else seen.sum(axis=0)
    # Without wrong or right responses there is nothing to explain.
    most = np.where(none < 0, -np.expm1(2 * none / np.maximum(count, 1)), np.inf)
    gained = np.exp(2 * (none - plain) / count) - np.exp(2 * (none - whole) / count)
    return LogisticTests(2 * (uniform - plain), 2 * (whole - uniform), gained / most)


def _log_likelihoods(
    design: np.ndarray,
    ends: tuple[int, ...],
    right: np.ndarray,
    seen: np.ndarray | None,
) -> np.ndarray:
    """`[models, items]` highest ones of models of the first columns of a design.

    Each model begins at the estimates of the one before; the first has a constant
    alone, whose estimate is the share right.
    """
    hits = right if seen is None else right * seen
    sums = design.T @ hits.astype(np.float64)
    count = len(right) if seen is None else seen.sum(axis=0)
    number = sums[0]
    share = number / np.maximum(count, 1)
    values = [xlogy(number, share) + xlogy(count - number, 1 - share)]
    odds = (number + 0.5) / (count - number + 0.5)
    beta = np.log(odds)[None]
    for end in ends[1:]:
        start = np.concatenate([beta, np.zeros((end - len(beta), beta.shape[1]))])
        value, beta = _highest(design[:, :end], sums[:end], seen, start)
        values.append(value)
    return np.stack(values)


def _highest(
    design: np.ndarray, sums: np.ndarray, seen: np.ndarray | None, beta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The highest log-likelihood of each item and where it is, by Newton's method.

    `sums` `[columns, items]` are those of the design over right responses.
    """
    size = design.shape[1]
    products = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)
    ridge = 1e-9 * len(design) * np.eye(size)

    def at(beta, sums, seen):
        """Log-likelihoods, Newton's steps, and twice the gains that they predict."""
        value, chance, spread = _bernoulli(design @ beta, seen)
        gradient = sums - design.T @ chance
        hessian = (products.T @ spread).T.reshape(-1, size, size) + ridge
        step = np.linalg.solve(hessian, gradient.T[:, :, None])[:, :, 0].T
        return (sums * beta).sum(axis=0) - value, step, (gradient * step).sum(axis=0)

    value, step, twice = at(beta, sums, seen)
    for _ in range(STEPS):
        items = np.flatnonzero(twice / 2 > TOLERANCE * np.maximum(1, np.abs(value)))
        if not items.size:
            break
        trial = beta[:, items] + np.clip(step[:, items], -2, 2)
        trial = np.clip(trial, -LARGEST, LARGEST)
        observed = None if seen is None else seen[:, items]
        reached, after, predicted = at(trial, sums[:, items], observed)
        better = reached >= value[items]
        moved, short = items[better], items[~better]
        beta[:, moved], value[moved] = trial[:, better], reached[better]
        step[:, moved], twice[moved] = after[:, better], predicted[better]
        step[:, short], twice[short] = step[:, short] / 2, twice[short] / 2
    return value, beta


def _bernoulli(
    logit: np.ndarray, seen: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of log(1 + exp(logit)) over subjects; chances and their variances."""
    small = np.exp(-np.abs(logit))
    larger = 1 + small
    inverse = 1 / larger
    above = np.maximum(logit, 0)
    chance = np.where(logit >= 0, inverse, small * inverse)
    spread = small * inverse**2
    if seen is not None:
        larger = np.where(seen, larger, 1.0)
        above, chance, spread = above * seen, chance * seen, spread * seen
    # Logarithms of products: one for many responses.
    begins = np.arange(0, len(logit), FACTORS)
    logs = np.log(np.multiply.reduceat(larger, begins, axis=0)).sum(axis=0)
    return above.sum(axis=0) + logs, chance, spread
