"""Ranks with intervals, the chance of being best, and groups."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from irtjax._backend import num_cores
from irtjax._types import KeyArray
from irtjax.ranking.crowd import Crowd, crowd_of, quantile_ranks
from irtjax.ranking.extremes import extremes, order_statistics
from irtjax.ranking.pairs import (
    EXACT_SUBJECTS,
    Errors,
    checked,
    critical_z,
    groups_of,
    pair_tests,
)

#: Draws behind the intervals and P(best).
DRAWS = 4000
CHUNK = 2**17
#: Differences up to this many standard errors are ties: equal responses give abilities
#: that differ by rounding.
TIED = 1e-6


class RankIntervals(NamedTuple):
    """Ranks of subjects by themselves, each array `[subjects]`; see `Ranking`."""

    rank: Int[np.ndarray, " subjects"]
    rank_lower: Int[np.ndarray, " subjects"]
    rank_upper: Int[np.ndarray, " subjects"]
    probability_best: Float[np.ndarray, " subjects"]


class Ranking(NamedTuple):
    """Ranks of subjects, each array `[subjects]`; rank 1 is the highest ability.

    Attributes:
        rank: 1 + the number of higher abilities; abilities equal to 1e-6 of their
            standard errors share a rank.
        rank_lower: Lower end (best rank) of the rank interval.
        rank_upper: Upper end (worst rank) of the rank interval.
        probability_best: Share of draws in which the subject is the highest.
        first_group: Index of the first group the subject is in.
        last_group: Index of the last; the subject is in all groups between.
        groups: Each group as indices of its subjects, best first.
        num_pairs: Number of pairs tested.
        num_different: How many differ after Benjamini-Hochberg's correction.
        critical_z: Size of z from which a pair counts as different; NaN if none does.
    """

    rank: Int[np.ndarray, " subjects"]
    rank_lower: Int[np.ndarray, " subjects"]
    rank_upper: Int[np.ndarray, " subjects"]
    probability_best: Float[np.ndarray, " subjects"]
    first_group: Int[np.ndarray, " subjects"]
    last_group: Int[np.ndarray, " subjects"]
    groups: tuple[np.ndarray, ...]
    num_pairs: int
    num_different: int
    critical_z: float


def rank(
    ability: Float[Array, " subjects"] | np.ndarray,
    standard_error: Float[Array, " subjects"] | np.ndarray,
    *,
    key: KeyArray,
    covariance: Float[Array, "subjects subjects"] | np.ndarray | None = None,
    shared: Float[Array, "subjects rank"] | np.ndarray | None = None,
    level: float = 0.95,
    num_draws: int | None = None,
    intervals: RankIntervals | None = None,
) -> Ranking:
    """Ranks subjects, with rank intervals, the chance of being best, and groups.

    Abilities are drawn from N(ability, standard_error^2), with the covariance or the
    shared part of their errors where one is given. The rank interval holds the central
    `level` of each subject's ranks over the draws, and is widened to its own rank where
    that lies outside. Pairs are tested by
    z = difference / standard error, two-sided, with Benjamini and Hochberg's (1995)
    control of the false discovery rate at 1 - level over all pairs. A group is a
    longest run of subjects, in order of ability, among whom no two differ; groups may
    overlap, and two subjects in no common group have a significant pair between them.

    Args:
        ability: Scores.
        standard_error: Their standard errors; 0 is allowed.
        key: Random key of the draws.
        covariance: Covariance of the scores, when they share error; its diagonal
            then stands for the standard errors.
        shared: The same as a factor: loadings u of what errors share, part of the
            standard errors, with covariance u_i'u_k (`Scores.shared`).
        level: Level of the intervals and 1 - the false discovery rate.
        num_draws: Number of draws; P(best) has standard error below
            0.5 / sqrt(num_draws). None: 4,000, and fewer, but at least 1,000, where
            there are more than 4,000 subjects.
        intervals: Rank intervals of these subjects at this level, if they are known.

    Returns:
        The ranking.

    Raises:
        ValueError: If a score or error is not finite, an error is negative, shapes
            differ, there are no subjects, or the level is not between 0 and 1.

    >>> r = rank(np.array([0.0, 2.0, 0.1]), np.full(3, 0.3), key=jax.random.key(0))
    >>> r.rank.tolist(), [g.tolist() for g in r.groups]
    ([3, 1, 2], [[1], [2, 0]])
    """
    theta, errors = checked(ability, standard_error, covariance, shared, level)
    order, theta, errors = _sorted(theta, errors)
    crowd = _crowd(theta, errors)
    if intervals is None:
        intervals = _intervals(theta, errors, crowd, key, level, num_draws)
        back = np.argsort(order)
        intervals = RankIntervals(*(column[back] for column in intervals))
    tests = pair_tests(theta, errors, crowd)
    critical, num_different = critical_z(tests, 1 - level)
    first, last, groups = groups_of(theta, errors, critical, crowd)
    back = np.argsort(order)
    return Ranking(
        *intervals,
        first[back],
        last[back],
        tuple(order[begin:end] for begin, end in groups),
        tests.pairs,
        num_different,
        critical,
    )


def _sorted(theta, errors: Errors) -> tuple[np.ndarray, np.ndarray, Errors]:
    """Subjects by descending ability, so that draws do not depend on their order."""
    order = np.argsort(-theta, kind="stable")
    return order, theta[order], errors.at(order)


def _competition_ranks(theta: np.ndarray, error: np.ndarray) -> np.ndarray:
    """1 + the number of subjects above, differences of rounding left out."""
    ascending, least = np.sort(theta), theta + TIED * error
    return theta.size - np.searchsorted(ascending, least, side="right") + 1


def rank_intervals(
    ability: Float[Array, " subjects"] | np.ndarray,
    standard_error: Float[Array, " subjects"] | np.ndarray,
    *,
    key: KeyArray,
    covariance: Float[Array, "subjects subjects"] | np.ndarray | None = None,
    shared: Float[Array, "subjects rank"] | np.ndarray | None = None,
    level: float = 0.95,
    num_draws: int | None = None,
) -> RankIntervals:
    """The part of `rank` that tests no pairs: ranks, their intervals, P(best).

    Args and errors: as those of `rank`.

    >>> found = rank_intervals(np.array([0.0, 9.0]), np.ones(2), key=jax.random.key(0))
    >>> found.rank.tolist(), found.rank_upper.tolist()
    ([2, 1], [2, 1])
    """
    theta, errors = checked(ability, standard_error, covariance, shared, level)
    order, theta, errors = _sorted(theta, errors)
    crowd = _crowd(theta, errors)
    found = _intervals(theta, errors, crowd, key, level, num_draws)
    back = np.argsort(order)
    return RankIntervals(*(column[back] for column in found))


def _crowd(theta, errors: Errors) -> Crowd | None:
    """The crowd of many subjects; None where there are few."""
    if theta.size <= EXACT_SUBJECTS or errors.covariance is not None:
        return None
    return crowd_of(theta, errors.own(), errors.shared)


def _intervals(
    theta, errors: Errors, crowd: Crowd | None, key, level, num_draws
) -> RankIntervals:
    ranks = _competition_ranks(theta, errors.error)
    found = None
    if crowd is not None and num_draws is None:
        found = _many_ranks(theta, crowd, level, key)
    if found is None:
        found = _draw_ranks(theta, errors, level, num_draws or DRAWS, key)
    lower, upper, best = found
    return RankIntervals(
        ranks, np.minimum(lower, ranks), np.maximum(upper, ranks), best
    )


def _many_ranks(theta, crowd: Crowd, level, key):
    """Rank intervals from the crowd, those near either end and P(best) from draws."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    options = level, DRAWS, generator
    top = extremes(theta, crowd, *options)
    bottom = extremes(-theta, crowd.mirrored(), *options)
    if top is None or bottom is None:
        return None
    low, high = quantile_ranks(theta, crowd, level)
    # From the bottom the worst end is the best, and rank 1 is the last.
    last = theta.size + 1
    for at, end, found in (
        (low, top.subjects, top.lower),
        (high, top.subjects, top.upper),
        (high, bottom.subjects, last - bottom.lower),
        (low, bottom.subjects, last - bottom.upper),
    ):
        # Ranks that lie too deep for the draws are 0 from their end.
        seen = (found > 0) & (found < last)
        at[end[seen]] = found[seen]
    return low, high, top.probability_best


def _draw_ranks(theta, errors, level, num_draws, key):
    """Rank intervals and P(best) from draws of all abilities at once."""
    size = theta.size
    own, factor = errors.own(), errors.shared
    if errors.covariance is not None:
        own, factor = np.zeros(size), _square_root(errors.covariance)
    # Chunks that a processor's cache holds.
    chunk = max(1, min(num_draws, CHUNK // size))
    ranks = np.empty((num_draws, size), np.int32)
    centre = theta.mean()
    places = np.arange(1, size + 1, dtype=np.int32)
    starts = range(0, num_draws, chunk)
    seed = np.random.default_rng(np.asarray(jax.random.key_data(key)))

    def draw(start: int, generator: np.random.Generator) -> np.ndarray:
        stop = min(start + chunk, num_draws)
        draws = theta + generator.standard_normal((stop - start, size)) * own
        if factor is not None:
            noise = generator.standard_normal((stop - start, factor.shape[1]))
            draws += noise @ factor.T
        order = _descending(draws - centre)
        np.put_along_axis(ranks[start:stop], order, places[None, :], axis=1)
        # Exact ties (standard errors of 0) share first place.
        first = draws == draws.max(axis=1, keepdims=True)
        return (first / first.sum(axis=1, keepdims=True)).sum(axis=0)

    # A generator for each chunk: the draws do not depend on the number of threads,
    # which run at once because sorting releases the interpreter's lock.
    with ThreadPoolExecutor(num_cores()) as pool:
        best = np.sum([*pool.map(draw, starts, seed.spawn(len(starts)))], axis=0)
    ends = order_statistics(level, num_draws)
    by_subject = np.ascontiguousarray(ranks.T)
    # NumPy sorts integers several numbers at a time; it partitions one by one.
    by_subject.sort(axis=1)
    low, high = (by_subject[:, end].astype(np.int64) for end in ends)
    return low, high, best / num_draws


def _descending(values: np.ndarray) -> np.ndarray:
    """Columns of each row by descending value, to single precision.

    Each value and its column are packed in one integer: integers sort twice as fast.
    """
    bits = (-values).astype(np.float32).view(np.int32)
    # Floats below 0 order as integers once their other bits are flipped.
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    packed = (bits.astype(np.int64) << 32) | np.arange(values.shape[1])
    packed.sort(axis=1)
    return packed & 0xFFFFFFFF


def _square_root(covariance: np.ndarray) -> np.ndarray:
    """A matrix R with R R' = the covariance, which may be singular."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return vectors * np.sqrt(np.maximum(values, 0))
