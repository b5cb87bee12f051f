"""Tail probabilities of sums, vectorised over items, in numpy on the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammainc, gammaincc, gammaln, ndtr

#: Skewness below which a sum counts as normal: the tails then agree to 1 %.
_SYMMETRIC = 1e-3
#: Subjects up to which all permutations are enumerated: 2^14 rows.
ENUMERATED = 14
#: Square of the deviation, in units of 1 or of the scores, below which they are equal.
CONSTANT = 1e-20


def upper_tail(z: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """Chance that a standardised sum of a given skewness exceeds z.

    By Pearson's type III (shifted gamma) distribution, as Mielke and Berry (2001) for
    permutation tests; normal where the skewness vanishes.
    """
    z, skewness = np.broadcast_arrays(np.asarray(z, float), np.asarray(skewness, float))
    size = np.maximum(np.abs(skewness), _SYMMETRIC)
    shape = 4 / size**2
    # A gamma variable of this shape, standardised, has the skewness; a negative one
    # is its mirror image.
    right = gammaincc(shape, np.maximum(shape + z * np.sqrt(shape), 0))
    left = gammainc(shape, np.maximum(shape - z * np.sqrt(shape), 0))
    skewed = np.where(skewness > 0, right, left)
    return np.where(np.abs(skewness) < _SYMMETRIC, ndtr(-z), skewed)


def bennett_bound(total: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Bennett's bound P(S >= t) <= exp(-V h(t / V)), h(x) = (1 + x) log(1 + x) - x.

    S is a sum of independent terms of mean 0 and size at most 1 with total variance V
    (Bennett 1962). Unlike a normal tail it is valid in the far tail, which many
    comparisons reach.
    """
    total, variance = (np.asarray(x, np.float64) for x in (total, variance))
    return np.exp(-bennett_exponent(total, variance))


def bennett_exponent(total: Any, variance: Any) -> Any:
    """V h(t / V) of `bennett_bound`: how surprising a sum is.

    Of arrays of NumPy or of JAX.
    """
    xp = total.__array_namespace__()
    # Rounding to single precision may leave a variance just below 0.
    variance = xp.maximum(variance, 1e-12)
    ratio = xp.maximum(total, 0) / variance
    return variance * ((1 + ratio) * xp.log1p(ratio) - ratio)


def log_choose(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Logarithm of the number of ways to choose k of n."""
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def permutation_tails(
    right: np.ndarray, seen: np.ndarray, score: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One-sided p-values of sum_i y_i s_i when the y are permuted over subjects.

    All arguments are `[subjects, items]`: right responses y (False where missing), the
    mask, and the scores s. Returns `[items]` chances of a sum as large, and of a sum as
    small; 1 for items without variation. Exact up to `ENUMERATED` subjects, by all
    placements of the right responses; else as in `permutation_tails_of_scores`.
    """
    if right.shape[0] > ENUMERATED:
        return permutation_tails_of_scores(right, seen, score)
    varied = right.any(0) & (seen & ~right).any(0)
    centred = _centred(score, seen)
    upper, lower = _enumerated(right, seen, centred, np.where(right, centred, 0).sum(0))
    return np.where(varied, upper, 1.0), np.where(varied, lower, 1.0)


def permutation_tails_of_scores(
    values: np.ndarray, seen: np.ndarray, score: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One-sided p-values of S = sum_i y_i s_i when any y are permuted over subjects.

    With x and s centred over the n subjects of an item, the permutation distribution
    of S has

        E S^2 = sum x^2 sum s^2 / (n - 1),
        E S^3 = n sum x^3 sum s^3 / ((n - 1) (n - 2)),

    and is approximated by Pearson's type III form. No p-value is below that of the most
    extreme permutation, prod_v c_v! / n!, with c_v the number of responses equal to v.
    Arguments and results are those of `permutation_tails`, for any values.
    """
    count = seen.sum(0).astype(np.float64)
    centred = _centred(score, seen)
    square = centred * centred
    second, third = square.sum(0), (square * centred).sum(0)
    size = np.where(seen, score, 0)
    sums = ScoreSums(second, third, CONSTANT * (count + (size * size).sum(0)))
    if values.dtype == bool:
        total = np.where(values, centred, 0).sum(0)
        return tails_of_sums(count, values.sum(0), total, sums)
    x = _centred(values, seen)
    total, own = (x * centred).sum(0), ((x**2).sum(0), (x**3).sum(0))
    return _tails(count, total, sums, own, _log_ties(values, seen))


class ScoreSums(NamedTuple):
    """Sums of squares and cubes of centred scores; those to `constant` are rounding."""

    second: np.ndarray
    third: np.ndarray
    constant: np.ndarray


def tails_of_sums(
    count: np.ndarray, ones: np.ndarray, total: np.ndarray, sums: ScoreSums
) -> tuple[np.ndarray, np.ndarray]:
    """`permutation_tails_of_scores` of 0 and 1; `total` sums centred scores of ones."""
    ones = ones.astype(np.float64)
    share = ones / np.maximum(count, 1)
    own_second = ones * (1 - share)
    own = own_second, own_second * (1 - 2 * share)
    ties = gammaln(ones + 1) + gammaln(count - ones + 1)
    return _tails(count, total, sums, own, ties)


def _tails(count, total, sums: ScoreSums, own, ties):
    """Both tails from the sums of `permutation_tails_of_scores`."""
    (second, third, constant), (own_second, own_third) = sums, own
    variance = own_second * second / np.maximum(count - 1, 1)
    varied = (count > 2) & (own_second > 1e-12 * np.maximum(count, 1))
    varied &= second > constant
    sd = np.sqrt(np.where(varied, variance, 1))
    skewness = count * own_third * third
    skewness = skewness / np.maximum((count - 1) * (count - 2), 1) / sd**3
    z = total / sd
    least = np.exp(ties - gammaln(count + 1))
    upper = np.maximum(upper_tail(z, skewness), least)
    lower = np.maximum(upper_tail(-z, -skewness), least)
    return np.where(varied, upper, 1.0), np.where(varied, lower, 1.0)


def _centred(values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Values less their mean in each column; 0 where missing."""
    mean = np.where(seen, values, 0).sum(0) / np.maximum(seen.sum(0), 1)
    return np.where(seen, values - mean, 0)


def _log_ties(values: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Log prod_v c_v! of each column, c_v the number of values equal to v."""
    ordered = np.sort(np.where(seen, values, np.inf), axis=0)
    place = np.arange(len(ordered))[:, None]
    new = np.ones(ordered.shape, bool)
    new[1:] = ordered[1:] != ordered[:-1]
    start = np.maximum.accumulate(np.where(new, place, 0), axis=0)
    # c! is the product of each value's place among its equals.
    among = np.where(np.isfinite(ordered), place - start + 1, 1)
    return np.log(among).sum(0)


def _enumerated(right, seen, score, total) -> tuple[np.ndarray, np.ndarray]:
    """Exact tails by all sets of subjects, those of the same size counted."""
    size = right.shape[0]
    sets = (np.arange(2**size)[:, None] >> np.arange(size)) & 1
    members = sets.sum(1)
    number_right = right.sum(0)
    upper, lower = np.ones(total.size), np.ones(total.size)
    slack = 1e-9 * (1 + np.abs(score).sum(0))
    for count in np.unique(number_right):
        alike = sets[members == count].astype(np.float64)
        items = np.flatnonzero(number_right == count)
        width = max(1, 2_000_000 // len(alike))
        for start in range(0, items.size, width):
            part = items[start : start + width]
            sums = alike @ score[:, part]
            # Sets with subjects who did not see the item do not count.
            possible = alike @ (~seen[:, part]).astype(np.float64) == 0
            number = np.maximum(possible.sum(0), 1)
            sums = np.where(possible, sums, np.nan)
            upper[part] = (sums >= total[part] - slack[part]).sum(0) / number
            lower[part] = (sums <= total[part] + slack[part]).sum(0) / number
    return upper, lower
