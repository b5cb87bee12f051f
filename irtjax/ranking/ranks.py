"""Ranks with intervals, the chance of being best, and groups."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from irtjax._backend import num_cores
from irtjax._types import RandomKey
from irtjax.numerics.memory import require_memory
from irtjax.numerics.random_keys import as_key
from irtjax.ranking.extremes import descending_bits, extremes, order_statistics
from irtjax.ranking.mixture import Mixture, mixture_of, quantile_ranks
from irtjax.ranking.pairs import (
    EXACT_SUBJECTS,
    ScoreErrors,
    checked,
    critical_z,
    groups_of,
    pair_tests,
)
from irtjax.ranking.pooling import LEAST_POOLED, Spread, pooled_means, spread_of
from irtjax.ranking.simultaneous import rank_sets, simultaneous_z

#: Draws behind the intervals and P(best).
DRAWS = 4000
CHUNK = 2**17
#: Columns of loadings up to which a product without threads is quicker.
FEW_LOADINGS = 32
#: Differences up to this many standard errors are ties: equal responses give abilities
#: that differ by rounding.
TIED = 1e-6


class RankIntervals(NamedTuple):
    """Ranks without tests of pairs, each array `[subjects]`; see `Ranking`."""

    rank: Int[np.ndarray, " subjects"]
    rank_lower: Int[np.ndarray, " subjects"]
    rank_upper: Int[np.ndarray, " subjects"]
    probability_best: Float[np.ndarray, " subjects"]


class Ranking(NamedTuple):
    """Ranks of subjects, each array `[subjects]`; rank 1 is the highest ability.

    Attributes:
        rank: 1 + the number of higher abilities; equal ones, to 1e-6 of their standard
            errors, share a rank.
        rank_lower, rank_upper: Best and worst rank of the rank interval.
        probability_best: Share of draws in which the subject is the highest.
        first_group, last_group: Indices of the first and the last group that include
            the subject; all groups between do so too.
        groups: Each group as indices of its subjects, best first.
        num_pairs, num_different: How many pairs were tested, and how many differ after
            Benjamini-Hochberg's correction, or all together.
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


def tied_ranks(
    values: Float[np.ndarray, " subjects"], slack: np.ndarray | float
) -> Int[np.ndarray, " subjects"]:
    """Ranks, 1 the highest: 1 + the number of values higher by more than `slack`.

    Args:
        values: Finite numbers.
        slack: For each value, or for all: how much higher a value is equal to it.

    >>> tied_ranks(np.array([0.5, 1.0, 1.0 + 1e-12]), 1e-6).tolist()
    [3, 1, 1]
    """
    equal_or_lower = np.searchsorted(np.sort(values), values + slack, side="right")
    return len(values) - equal_or_lower + 1


def places_gained(
    before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray]
) -> Int[np.ndarray, " subjects"]:
    """Places gained between two rankings, 0 where ties can explain them.

    Each ranking has the first and the last place that a subject shares with those tied
    with it (`tied_places`). A subject moves if these do not meet: by the places between
    them.

    >>> before, after = tied_places(np.zeros(3), 0), tied_places(np.arange(3.0), 0)
    >>> places_gained(before, after).tolist()  # All were tied: nobody moves.
    [0, 0, 0]
    """
    (first, last), (new_first, new_last) = before, after
    return np.maximum(first - new_last, 0) - np.maximum(new_first - last, 0)


def tied_places(
    values: Float[np.ndarray, " subjects"], slack: np.ndarray | float
) -> tuple[Int[np.ndarray, " subjects"], Int[np.ndarray, " subjects"]]:
    """The first and the last of the places that tied subjects share.

    >>> [x.tolist() for x in tied_places(np.array([0.5, 1.0, 1.0]), 0)]
    [[3, 1, 1], [3, 2, 2]]
    """
    lower = np.searchsorted(np.sort(values), values - slack, side="left")
    return tied_ranks(values, slack), len(values) - lower


def rank(
    ability: Float[Array, " subjects"] | np.ndarray,
    standard_error: Float[Array, " subjects"] | np.ndarray,
    *,
    key: RandomKey | None = None,
    covariance: Float[Array, "subjects subjects"] | np.ndarray | None = None,
    shared: Float[Array, "subjects rank"] | np.ndarray | None = None,
    level: float = 0.95,
    num_draws: int | None = None,
    intervals: RankIntervals | None = None,
    pooled: bool = False,
    simultaneous: bool = False,
) -> Ranking:
    """Ranks subjects, with rank intervals, the chance of being best, and groups.

    Abilities are drawn from N(ability, standard_error^2), with the covariance or the
    shared part of their errors where one is given. The rank interval is the central
    `level` of each subject's ranks over the draws, widened to include its estimated
    rank. Pairs are tested by z = difference / standard error, two-sided, with Benjamini
    and Hochberg's (1995) control of the false discovery rate at 1 - level over all
    pairs. A group is a longest run of subjects, in order of ability, among whom no two
    differ; groups may overlap, and two subjects in no common group have a significant
    pair between them.

    Args:
        ability: Scores.
        standard_error: Their standard errors; 0 is allowed.
        key: A whole number or a JAX key, for the draws; a fixed one when None.
        covariance: Covariance of the scores; its diagonal replaces the standard errors.
        shared: The same as a factor: loadings u of what errors share, part of the
            standard errors, with covariance u_i'u_k (`Scores.shared`).
        level: Level of the intervals and 1 - the false discovery rate.
        num_draws: Number of draws; P(best) has standard error below
            0.5 / sqrt(num_draws). None: 4,000, and no draws of all abilities where
            there are more than 2,000 subjects (`irtjax.ranking.mixture`).
        intervals: Rank intervals of these subjects at this level, if they are known.
        pooled: Whether scores are estimates without a prior, such as means. Their
            draws are pooled partially then (`irtjax.ranking.pooling`); tests of pairs
            are not.
        simultaneous: Whether all ranks lie in their intervals together with the chance
            `level`, and no pair of equal abilities counts as different
            (`irtjax.ranking.simultaneous`); for up to 2,000 subjects.

    Returns:
        The ranking.

    Raises:
        ValueError: If a score or error is not finite, an error is negative, shapes
            differ, there are no subjects, or the level is not between 0 and 1.

    >>> r = rank(np.array([0.0, 2.0, 0.1]), np.full(3, 0.3), key=0)
    >>> r.rank.tolist(), [g.tolist() for g in r.groups]
    ([3, 1, 2], [[1], [2, 0]])
    """
    key = as_key(key)
    subjects = _sorted(ability, standard_error, covariance, shared, level)
    if intervals is None:
        intervals = _intervals(*subjects, key, level, num_draws, pooled)
    order, theta, errors, mixture = subjects
    tests, back = pair_tests(theta, errors, mixture), np.argsort(order)
    if simultaneous:
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        draws = num_draws or DRAWS
        critical = simultaneous_z(theta, errors, level, draws, generator)
        num_different = int(tests.number(critical)) if tests.pairs else 0
        lower, upper = rank_sets(theta, errors, critical)
        intervals = intervals._replace(rank_lower=lower[back], rank_upper=upper[back])
    else:
        critical, num_different = critical_z(tests, 1 - level)
    first, last, groups = groups_of(theta, errors, critical, mixture)
    members = tuple(order[begin:end] for begin, end in groups)
    counts = tests.pairs, num_different, critical
    return Ranking(*intervals, first[back], last[back], members, *counts)


def rank_intervals(
    ability: Float[Array, " subjects"] | np.ndarray,
    standard_error: Float[Array, " subjects"] | np.ndarray,
    *,
    key: RandomKey | None = None,
    covariance: Float[Array, "subjects subjects"] | np.ndarray | None = None,
    shared: Float[Array, "subjects rank"] | np.ndarray | None = None,
    level: float = 0.95,
    num_draws: int | None = None,
    pooled: bool = False,
) -> RankIntervals:
    """The part of `rank` that tests no pairs: ranks, their intervals, P(best).

    Arguments and errors are those of `rank`.

    >>> intervals = rank_intervals(np.array([0.0, 9.0]), np.ones(2), key=0)
    >>> intervals.rank.tolist(), intervals.rank_upper.tolist()
    ([2, 1], [2, 1])
    """
    key = as_key(key)
    subjects = _sorted(ability, standard_error, covariance, shared, level)
    return _intervals(*subjects, key, level, num_draws, pooled)


def _sorted(ability, error, covariance, shared, level):
    """The order of descending ability; abilities, errors, mixture (of many) in it."""
    # Draws in that order do not depend on the order of the data.
    theta, errors = checked(ability, error, covariance, shared, level)
    order = np.argsort(-theta, kind="stable")
    theta, errors, mixture = theta[order], errors.at(order), None
    if theta.size > EXACT_SUBJECTS and covariance is None:
        mixture = mixture_of(theta, errors.own(), errors.shared)
    return order, theta, errors, mixture


def _intervals(
    order, theta, errors: ScoreErrors, mixture, key, level, num_draws, pooled
):
    """Rank intervals in the order of the data, by sorted abilities and errors."""
    ranks = tied_ranks(theta, TIED * errors.error)
    intervals = spread = None
    if pooled and theta.size >= LEAST_POOLED:
        # Of many subjects the spread is known well enough.
        error = _contrast_errors(errors)
        errors, spread = ScoreErrors(error, None, None), spread_of(theta, error)
        if mixture is not None:
            theta, error = pooled_means(theta, error)
            errors, mixture, spread = ScoreErrors(error, None, None), None, None
    if mixture is not None and num_draws is None:
        intervals = _many_ranks(theta, mixture, level, key)
    if intervals is None:
        intervals = _draw_ranks(theta, errors, level, num_draws or DRAWS, key, spread)
    lower, upper, best = intervals
    columns = ranks, np.minimum(lower, ranks), np.maximum(upper, ranks), best
    back = np.argsort(order)
    return RankIntervals(*(column[back] for column in columns))


def _contrast_errors(errors: ScoreErrors) -> np.ndarray:
    """Errors without what moves all scores alike, `[subjects]`."""
    if errors.covariance is not None:
        values, vectors = np.linalg.eigh((errors.covariance + errors.covariance.T) / 2)
        own, shared = 0.0, vectors * np.sqrt(np.maximum(values, 0))
    else:
        own, shared = errors.own() ** 2, errors.shared
    if shared is not None:
        own = own + np.sum((shared - shared.mean(axis=0)) ** 2, axis=1)
    return np.sqrt(own)


def _many_ranks(theta, mixture: Mixture, level, key):
    """Rank intervals from the mixture, those near either end and P(best) from draws."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    ends = (theta, -theta), (mixture, mixture.mirrored())
    with ThreadPoolExecutor(2) as pool:
        draw = lambda at, of, by: extremes(at, of, level, DRAWS, by)
        top, bottom = pool.map(draw, *ends, (generator, *generator.spawn(1)))
    if top is None or bottom is None:
        return None
    low, high = quantile_ranks(theta, mixture, level)
    # From the bottom the worst end is the best, and rank 1 is the last.
    last = theta.size + 1
    for at, end, ranks in (
        (low, top.subjects, top.lower),
        (high, top.subjects, top.upper),
        (high, bottom.subjects, last - bottom.lower),
        (low, bottom.subjects, last - bottom.upper),
    ):
        # Ranks that lie too deep for the draws are 0 from their end.
        seen = (ranks > 0) & (ranks < last)
        at[end[seen]] = ranks[seen]
    return low, high, top.probability_best


def _draw_ranks(theta, errors, level, num_draws, key, spread: Spread | None = None):
    """Rank intervals and P(best) from draws of all abilities at once."""
    size = theta.size
    own, factor = errors.own(), errors.shared
    if errors.covariance is not None:
        # A square root by eigenvalues: the covariance may be singular.
        values, vectors = np.linalg.eigh((errors.covariance + errors.covariance.T) / 2)
        own, factor = np.zeros(size), vectors * np.sqrt(np.maximum(values, 0))
    # Chunks that fit into a processor's cache.
    chunk = max(1, min(num_draws, CHUNK // size))
    starts = range(0, num_draws, chunk)
    # The shortest integers, which are sorted fastest.
    places = np.arange(1, size + 1, dtype=np.int16 if size < 2**15 else np.int32)
    needed = 2.0 * num_draws * size * places.itemsize
    require_memory(needed, f"{num_draws:,} draws of {size:,} ranks", "use fewer draws")
    ranks = np.empty((num_draws, size), places.dtype)
    seed = np.random.default_rng(np.asarray(jax.random.key_data(key)))

    def draw(start: int, generator: np.random.Generator) -> np.ndarray:
        stop = min(start + chunk, num_draws)
        draws = generator.standard_normal((stop - start, size)) * own
        if spread is None:
            draws += theta
        else:
            place = generator.choice(len(spread.tau), stop - start, p=spread.weight)
            square = spread.tau[place, None] ** 2
            shrinkage = square / (square + own**2)
            middle = spread.mean[place, None]
            draws = middle + shrinkage * (theta - middle) + np.sqrt(shrinkage) * draws
        if factor is not None:
            noise = generator.standard_normal((stop - start, factor.shape[1]))
            draws += _product(noise, factor)
        order = _descending(draws - theta.mean())
        np.put_along_axis(ranks[start:stop], order, places[None, :], axis=1)
        # Exact ties (standard errors of 0) share first place.
        first = draws == draws.max(axis=1, keepdims=True)
        return (first / first.sum(axis=1, keepdims=True)).sum(axis=0)

    # A generator for each chunk: the draws do not depend on the number of threads,
    # which run at once because sorting releases the interpreter's lock.
    with ThreadPoolExecutor(num_cores()) as pool:
        best = np.sum([*pool.map(draw, starts, seed.spawn(len(starts)))], axis=0)
    by_subject = np.ascontiguousarray(ranks.T)
    # NumPy sorts integers several numbers at a time; it partitions one by one.
    by_subject.sort(axis=1)
    ends = order_statistics(level, num_draws)
    low, high = (by_subject[:, end].astype(np.int64) for end in ends)
    return low, high, best / num_draws


def _product(noise: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """The product of noise and the transposed factor."""
    if factor.shape[1] > FEW_LOADINGS:
        return noise @ factor.T
    # Small products of several threads: those of the library's own only wait.
    return np.einsum("dk,jk->dj", noise, factor)


def _descending(values: np.ndarray) -> np.ndarray:
    """Columns of each row by descending value, to single precision."""
    # Each value and its column are packed in one integer.
    packed = (descending_bits(values) << 32) | np.arange(values.shape[1])
    packed.sort(axis=1)
    return packed & 0xFFFFFFFF
