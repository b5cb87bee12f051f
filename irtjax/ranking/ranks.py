"""Ranks with intervals, the chance of being best, and groups."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from irtjax._types import KeyArray
from irtjax.ranking.pairs import BLOCK, benjamini_hochberg, checked, groups_of


class Ranking(NamedTuple):
    """Ranks of subjects, each array `[subjects]`; rank 1 is the highest ability.

    Attributes:
        rank: 1 + the number of higher abilities; equal abilities share a rank.
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
    level: float = 0.95,
    num_draws: int = 4000,
) -> Ranking:
    """Ranks subjects, with rank intervals, the chance of being best, and groups.

    Abilities are drawn from N(ability, standard_error^2) (or the covariance). The rank
    interval holds the central `level` of each subject's ranks over the draws, and is
    widened to its own rank where that lies outside. Pairs are tested by
    z = difference / standard error, two-sided, with Benjamini and Hochberg's (1995)
    control of the false discovery rate at 1 - level over all pairs. A group is a
    longest run of subjects, in order of ability, among whom no two differ; groups may
    overlap, and two subjects in no common group have a significant pair between them.

    Args:
        ability: Scores.
        standard_error: Their standard errors; 0 is allowed.
        key: Random key of the draws.
        covariance: Covariance of the scores, when they share error.
        level: Level of the intervals and 1 - the false discovery rate.
        num_draws: Number of draws; P(best) has standard error below
            0.5 / sqrt(num_draws).

    Returns:
        The ranking.

    Raises:
        ValueError: If a score or error is not finite, an error is negative, shapes
            differ, there are no subjects, or the level is not between 0 and 1.

    >>> r = rank(np.array([0.0, 2.0, 0.1]), np.full(3, 0.3), key=jax.random.key(0))
    >>> r.rank.tolist(), [g.tolist() for g in r.groups]
    ([3, 1, 2], [[1], [2, 0]])
    """
    theta, error, cov = checked(ability, standard_error, covariance, level)
    ranks = _competition_ranks(theta)
    lower, upper, best = _draw_ranks(theta, error, cov, level, num_draws, key)
    critical, num_different = benjamini_hochberg(theta, error, cov, 1 - level)
    order = np.argsort(-theta, kind="stable")
    first, last, groups = groups_of(theta, error, cov, order, critical)
    return Ranking(
        ranks,
        np.minimum(lower, ranks),
        np.maximum(upper, ranks),
        best,
        first,
        last,
        groups,
        theta.size * (theta.size - 1) // 2,
        num_different,
        critical,
    )


def _competition_ranks(theta: np.ndarray) -> np.ndarray:
    ascending = np.sort(theta)
    return theta.size - np.searchsorted(ascending, theta, side="right") + 1


def _draw_ranks(theta, error, cov, level, num_draws, key):
    """Rank intervals and P(best) from draws of all abilities at once."""
    size = theta.size
    root = None if cov is None else _square_root(cov)
    chunk = max(1, min(num_draws, BLOCK // size))
    ranks = np.empty((num_draws, size), np.int32)
    best = np.zeros(size)
    places = np.arange(1, size + 1, dtype=np.int32)
    seed = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    for start in range(0, num_draws, chunk):
        stop = min(start + chunk, num_draws)
        noise = seed.standard_normal((stop - start, size))
        draws = theta + (noise * error if root is None else noise @ root.T)
        order = np.argsort(-draws, axis=1)
        np.put_along_axis(ranks[start:stop], order, places[None, :], axis=1)
        # Exact ties (standard errors of 0) share first place.
        first = draws == draws.max(axis=1, keepdims=True)
        best += (first / first.sum(axis=1, keepdims=True)).sum(axis=0)
    tail = (1 - level) / 2
    ranks.sort(axis=0)
    low = ranks[int(np.floor(tail * (num_draws - 1)))]
    high = ranks[int(np.ceil((1 - tail) * (num_draws - 1)))]
    return low.astype(np.int64), high.astype(np.int64), best / num_draws


def _square_root(covariance: np.ndarray) -> np.ndarray:
    """A matrix R with R R' = the covariance, which may be singular."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return vectors * np.sqrt(np.maximum(values, 0))
