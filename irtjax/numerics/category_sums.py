r"""Sums of ordered responses: their weights, and responses given a sum.

Category c of item j has weight w_jc. The weight of a sum r, gamma_r, is the coefficient
of z^r in G(z) = prod_j A_j(z), A_j(z) = sum_c w_jc z^c. Given the sum,

    P(y_j = c | r) = [z^r] p_jc G / gamma_r,  P(y_j = c, y_k = d | r) = [z^r] p_jc p_kd
    G / gamma_r,  p_jc(z) = w_jc z^c / A_j(z), j != k,

and a coefficient is a mean over points of a circle, so that second derivatives of
sum_r n_r log gamma_r for all pairs of categories cost one matrix product. The radius
exp(t) is that at which sums near r are the most frequent ones (exponential tilting):
then a coefficient is no smaller than `RAREST` of the mean of moduli, and the points
need only span a window of sums. Items of two categories have recursions of their own
(`symmetric_functions`), which are quicker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from irtjax.numerics.symmetric_functions import (
    chances_given_sum,
    log_symmetric,
    second_derivatives,
)

#: Smallest chance of a sum at the radius of its circle: relative errors are 1e-16 over
#: it.
RAREST = 1e-5
#: Points of a circle: so many standard deviations of the sum, and so many more. Sums
#: further apart than that have chances below 1e-15 of each other.
DEVIATIONS, FURTHER = 14.0, 24
#: Newton steps for a radius.
STEPS = 60


class _Circle(NamedTuple):
    """Sums of one radius.

    Attributes:
        part: Which sums.
        log_gamma: `[sums]`.
        powers: `[points, categories]` z^c over the radius, of half of the circle.
        chances: `[items, categories]` p at the radius.
        factors: `[points, items]` A at the points over that at the radius.
        weights: `[sums, points]` whose product with p gives chances of a sum.
    """

    part: slice
    log_gamma: np.ndarray
    powers: np.ndarray
    chances: np.ndarray
    factors: np.ndarray
    weights: np.ndarray


def log_gamma_of(log_weight: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """`[sums]` logarithms of the weights of sums.

    Args:
        log_weight: `[items, categories]` log w, of the first category 0; minus infinity
            where an item has no such category.
        sums: `[sums]` in rising order, from 1 to the highest less 1.

    >>> log_weight = np.log([[1, 2, 3], [1, 4, 5]])  # 1, 6, 16, 22, 15
    >>> np.exp(log_gamma_of(log_weight, np.array([1, 2, 3]))).round(9).tolist()
    [6.0, 16.0, 22.0]
    """
    if log_weight.shape[1] == 2:
        return log_symmetric(-log_weight[:, 1])[sums]
    return np.concatenate([x.log_gamma for x in _circles(log_weight, sums)])


def moments_given_sums(
    log_weight: np.ndarray, sums: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Expected numbers of responses in categories given sums, and their covariance.

    Args:
        log_weight: As in `log_gamma_of`.
        sums: As there.
        counts: `[sums]` subjects with each.

    Returns:
        `[P]` sums over subjects of chances, and `[P, P]` of the covariances, of the P =
        items * (categories - 1) categories from the second on, by item.

    >>> log_weight = np.log([[1, 2, 3], [1, 4, 5]])
    >>> one = np.ones(1)
    >>> moments_given_sums(log_weight, np.array([1]), one)[0].round(6).tolist()
    [0.333333, 0.0, 0.666667, 0.0]
    """
    if log_weight.shape[1] == 2:
        difficulty = -log_weight[:, 1]
        log_gamma = log_symmetric(difficulty)
        chances = chances_given_sum(difficulty, log_gamma, sums)
        return counts @ chances, second_derivatives(difficulty, chances, sums, counts)
    items, size = len(log_weight), log_weight.shape[1] - 1
    item = np.repeat(np.arange(items), size)
    expected, joint = np.zeros(items * size), np.zeros((items * size, items * size))
    products = np.zeros_like(joint)
    for circle in _circles(log_weight, sums):
        number = counts[circle.part]
        ratio = circle.powers[:, None, 1:] * circle.chances[:, 1:]
        ratio = (ratio / circle.factors[:, :, None]).reshape(-1, items * size)
        of_sum = (circle.weights @ ratio).real
        expected += number @ of_sum
        products += (of_sum * number[:, None]).T @ of_sum
        left = ratio * (number @ circle.weights)[:, None]
        joint += np.concatenate([left.real, -left.imag]).T @ np.concatenate(
            [ratio.real, ratio.imag]
        )
    # A response has one category.
    joint[item[:, None] == item] = 0
    np.fill_diagonal(joint, expected)
    return expected, joint - products


def _circles(log_weight: np.ndarray, sums: np.ndarray) -> Iterator[_Circle]:
    """Circles for all sums, each for those that are frequent at its radius."""
    category = np.arange(log_weight.shape[1])
    most = int(np.where(np.isfinite(log_weight), category, 0).max(axis=1).sum())
    first, tilt = 0, 0.0
    while first < len(sums):
        tilt, chances, log_size, spread = _tilted(log_weight, int(sums[first]), tilt)
        points = min(most + 1, int(DEVIATIONS * spread) + FURTHER)
        points += points % 2
        # Points lie beside the real axis, where A_j may be 0.
        angle = (np.arange(points // 2) + 0.5) * (2 * np.pi / points)
        powers = np.exp(1j * np.outer(angle, category))
        factors = powers @ chances.T
        near = sums[first:]
        near = near[near < sums[first] + points // 2]
        turns = np.exp(-1j * np.outer(near, angle)) * factors.prod(axis=1)
        turns *= 2 / points
        chance = turns.real.sum(axis=1)
        rare = np.flatnonzero(chance < RAREST)
        count = max(1, int(rare[0])) if len(rare) else len(near)
        own = chance[:count]
        yield _Circle(
            slice(first, first + count),
            np.log(own) + log_size - near[:count] * tilt,
            powers,
            chances,
            factors,
            turns[:count] / own[:, None],
        )
        first += count


def _tilted(
    log_weight: np.ndarray, total: int, tilt: float
) -> tuple[float, np.ndarray, float, float]:
    """The tilt at which the sum is `total` on average: Newton's method in brackets.

    Returns it, the chances of categories there, sum_j log A_j, and the standard
    deviation of the sum.
    """
    category = np.arange(log_weight.shape[1])
    low, high = -np.inf, np.inf
    chances, log_size, variance = log_weight, 0.0, 1.0
    for _ in range(STEPS):
        power = log_weight + category * tilt
        top = power.max(axis=1, keepdims=True)
        chances = np.exp(power - top)
        size = chances.sum(axis=1, keepdims=True)
        chances /= size
        log_size = float((top + np.log(size)).sum())
        mean = chances @ category
        variance = float((chances @ category**2 - mean**2).sum())
        gap = total - float(mean.sum())
        if abs(gap) < 0.1 * min(1.0, variance**0.5):
            break
        low, high = (tilt, high) if gap > 0 else (low, tilt)
        tilt += float(np.clip(gap / max(variance, 1e-300), -2, 2))
        if not low < tilt < high:
            tilt = (low + high) / 2
    return tilt, chances, log_size, variance**0.5
