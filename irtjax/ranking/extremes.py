r"""Ranks near an end of a long ranking, and the chance of being best, from draws.

Only subjects whose ability may exceed a point x_0 can be first; about `DEPTH` are
expected above x_0. The `DRAWN` likeliest of them are drawn one by one. Each of the
others exceeds x_0 with a small chance, so those of them above x_0 are a Poisson
process, whose mean above x is the sum of their chances: the number and the places
of its points are drawn, and not who they are. Shared errors are drawn less the mean
loading near x_0, which moves all of them alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from irtjax.ranking.mixture import Mixture

#: Subjects expected above x_0, and subjects drawn one by one: each of the others then
#: exceeds x_0 with a chance below DEPTH / DRAWN. Ranks beyond DEPTH / 2 or so come from
#: `quantile_ranks`, whose error there is below one rank.
DEPTH = 60
DRAWN = 600
#: Points at which the sum of the other subjects' chances is computed.
POINTS = 48
#: Chances to exceed x_0 that count as 0: those of a million subjects sum to 0.001.
NEGLIGIBLE = 1e-9


class Extremes(NamedTuple):
    """Drawn subjects, best and worst ranks (0: too deep), and P(best) of all."""

    subjects: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    probability_best: np.ndarray


def extremes(theta, mixture: Mixture, level, num_draws, generator) -> Extremes | None:
    """Draws the top of the ranking; None where errors are too small for it."""
    grid = mixture.start + mixture.spacing * np.arange(len(mixture.above))
    above = mixture.number_above(grid)
    inside = np.flatnonzero(above >= DEPTH)
    if not inside.size or above[inside[-1]] > 4 * DEPTH:
        return None
    x0 = grid[inside[-1]]
    chance = _exceeds(theta, mixture.residual, x0)
    drawn = np.argpartition(-chance, DRAWN)[:DRAWN]
    drawn = drawn[np.argsort(-theta[drawn], kind="stable")]
    abilities = generator.standard_normal((num_draws, DRAWN)) * mixture.own[drawn]
    abilities += theta[drawn]
    if mixture.shared is not None:
        away = mixture.shared[drawn] - mixture.loading_at(np.array([x0]))
        abilities += generator.standard_normal((num_draws, away.shape[1])) @ away.T
    place = np.flatnonzero(abilities > x0)
    value, (draw, who) = abilities.ravel()[place], np.divmod(place, DRAWN)
    # Nobody exceeds 6 errors; points are denser near x_0, where most of them lie.
    end = np.max(theta[drawn] + 6 * mixture.residual[drawn])
    end = max(end, x0 + mixture.spacing)
    points = x0 + (end - x0) * np.linspace(0, 1, POINTS) ** 2
    chance[drawn] = 0
    rest = np.flatnonzero(chance > NEGLIGIBLE)
    other = theta[rest], mixture.residual[rest]
    mean = np.array([_exceeds(*other, point).sum() for point in points])
    number = generator.poisson(mean[0], num_draws)
    levels = generator.uniform(size=number.sum()) * mean[0]
    # Interpolated in the logarithm, in which the mean is nearly quadratic in x.
    logs, ends = (np.log(np.maximum(x, 1e-12)) for x in (levels, mean[::-1]))
    nameless = np.interp(logs, ends + 1e-9 * np.arange(POINTS), points[::-1])
    draw = np.append(draw, np.repeat(np.arange(num_draws), number))
    who = np.append(who, np.full(nameless.size, -1))
    value = np.append(value, nameless)
    # Less the origin, for single precision is relative to it.
    order = np.argsort((draw << 32) + descending_bits(value - x0))
    draw, who, value = draw[order], who[order], value[order]
    begins = np.searchsorted(draw, np.arange(num_draws))
    rank = np.arange(draw.size) - begins[draw] + 1
    first = who[rank == 1], value[rank == 1]
    best = _chances_of_first(theta, mixture.residual, drawn, *first, num_draws)
    lower, upper = _ends(who, rank, level, num_draws)
    return Extremes(drawn, lower, upper, best)


def descending_bits(values: np.ndarray) -> np.ndarray:
    """Integers in descending order of values, to single precision: they sort faster."""
    bits = (-values).astype(np.float32).view(np.int32)
    # Floats below 0 order as integers once their other bits are flipped.
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    return bits.astype(np.int64)


def _exceeds(theta, error, x):
    """The chance of each ability to exceed x; 0 or 1 without an error."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error > 0, ndtr((theta - x) / error), theta > x)


def _ends(who, rank, level, num_draws) -> np.ndarray:
    """Order statistics of each drawn subject's ranks; 0 for deeper ranks."""
    named = who >= 0
    who, rank = who[named], rank[named]
    packed = np.sort(who << 32 | rank)
    who, rank = packed >> 32, packed & 0xFFFFFFFF
    begins = np.searchsorted(who, np.arange(DRAWN))
    seen = np.bincount(who, minlength=DRAWN)
    ends = np.zeros((2, DRAWN), np.int64)
    for end, place in zip(ends, order_statistics(level, num_draws), strict=True):
        deep = seen <= place
        end[~deep] = rank[begins[~deep] + place]
    return ends


def order_statistics(level: float, num_draws: int) -> tuple[int, int]:
    """Places, among ascending draws, of the ends of the central `level`."""
    tail = (1 - level) / 2 * (num_draws - 1)
    return int(np.floor(tail)), int(np.ceil(num_draws - 1 - tail))


def _chances_of_first(theta, error, drawn, first, value, num_draws) -> np.ndarray:
    """Shares of draws; those of the nameless are divided by their chances there."""
    best = np.zeros(theta.size)
    best[drawn] = np.bincount(first[first >= 0], minlength=len(drawn)) / num_draws
    nameless = value[first < 0]
    if nameless.size:
        weight = _exceeds(theta, error, np.median(nameless))
        weight[drawn] = 0
        if weight.sum() > 0:
            best += weight * (nameless.size / num_draws / weight.sum())
    return best
