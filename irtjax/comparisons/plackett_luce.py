r"""Abilities from rankings: the model of Luce (1959) and Plackett (1975).

A ranking is a sequence of choices: the first of all, the second of those left, and so
on. With theta the abilities and i_1, ..., i_m a ranking, the log-likelihood is

    sum_t [theta_(i_t) - log sum_(s >= t) exp theta_(i_s)],

so that rankings of two are Bradley and Terry's comparisons. A ranking counts as one
observation, where its m (m - 1) / 2 pairs would count as many independent ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array

from irtjax.comparisons.errors import clustered_covariance, pseudo_inverse
from irtjax.comparisons.newton import NewtonPoint, ascend
from irtjax.data.comparison_table import ComparisonTable

#: Label of the rankings whose pairs a table has.
LABEL = "ranking"
#: Numbers of an array of chances that is computed at once.
TOGETHER = 2**22


class Rankings(NamedTuple):
    """Rankings of some of the subjects each.

    Attributes:
        order: `[rankings, places]` subjects, best first; -1 after the last one.
        row: `[rankings]` a row of the table.
        num_subjects: Number of subjects.
    """

    order: np.ndarray
    row: np.ndarray
    num_subjects: int


def rankings_of(table: ComparisonTable) -> Rankings:
    """The rankings whose pairs a table has, by its label "ranking".

    Raises:
        ValueError: If there is no such label, a ranking has a tie, or its pairs are not
            those of an order of its models.

    >>> rows, labels = np.eye(4)[[0, 0, 1]], {"ranking": np.array(["x"] * 3)}
    >>> table = ComparisonTable.of("abc", [0, 0, 1], [1, 2, 2], rows, labels=labels)
    >>> rankings_of(table).order.tolist()  # a before b, a before c, c before b.
    [[0, 2, 1]]
    """
    if LABEL not in table.labels:
        raise ValueError(
            "model='plackett_luce' is for rankings, and this table has no label"
            f" {LABEL!r}: use 'bradley_terry'"
        )
    code, names = table.labels.coded(LABEL).sorted()
    count = table.num_subjects
    tied = np.flatnonzero(table.outcomes[:, 2:].sum(axis=1) > 0)
    if tied.size:
        raise ValueError(
            f"the ranking {str(names[code[tied[0]]])!r} has a tie, and plackett_luce"
            " has none: use bradley_terry with the ranking as cluster"
        )
    keys = np.concatenate([code * count + x for x in (table.first, table.second)])
    wins = np.concatenate([table.outcomes[:, 0], table.outcomes[:, 1]])
    members, place = np.unique(keys, return_inverse=True)
    won = np.bincount(place.reshape(-1), wins)
    ranking, subject = members // count, members % count
    sort = np.lexsort((-won, ranking))
    ranking, subject, won = ranking[sort], subject[sort], won[sort]
    size = np.bincount(ranking, minlength=len(names))
    start = np.cumsum(size) - size
    position = np.arange(len(ranking)) - start[ranking]
    # The best of m beat m - 1 others, and the last one none.
    wrong = np.flatnonzero(won != size[ranking] - 1 - position)
    if wrong.size:
        raise ValueError(
            f"the pairs of the ranking {str(names[ranking[wrong[0]]])!r} are not those"
            " of an order of its models: give each pair once, or use bradley_terry"
        )
    order = np.full((len(names), int(size.max())), -1)
    order[ranking, position] = subject
    row = np.zeros(len(names), int)
    row[code] = np.arange(len(code))
    return Rankings(order, row, count)


def fit_rankings(
    rankings: Rankings, precision: float = 0.0, clusters: Sequence[np.ndarray] = ()
) -> tuple[np.ndarray, np.ndarray, float, bool]:
    """Abilities, their covariance, the log-likelihood, and whether it converged.

    Args:
        rankings: The rankings.
        precision: Of a normal prior of the abilities, 0 for none.
        clusters: Codes of clusters of the rankings: the covariance is their sandwich.

    >>> order = np.array([[0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 0, 1]])
    >>> ability, covariance, value, _ = fit_rankings(Rankings(order, np.arange(4), 3))
    >>> ability.round(3).tolist(), round(value, 4)
    ([0.783, -0.391, -0.391], -6.1984)
    """
    count = rankings.num_subjects

    def evaluate(ability: np.ndarray) -> NewtonPoint:
        value, scores, information = _derivatives(rankings, ability)
        gradient = scores.sum(axis=0) - precision * ability
        information += precision * np.eye(count)
        objective = value - 0.5 * precision * float(ability @ ability)
        return NewtonPoint(ability, value, objective, gradient, information)

    point, converged, _ = ascend(evaluate, np.zeros(count), count)
    covariance = pseudo_inverse(point.information, count)
    if clusters:
        scores = _derivatives(rankings, point.vector)[1]
        covariance = clustered_covariance(
            covariance, clusters, lambda codes: _products(codes, scores)
        )
    return point.vector, covariance, point.log_likelihood, converged


def _blocks(rankings: Rankings) -> Iterator[np.ndarray]:
    """Places of some rankings at a time."""
    number, places = rankings.order.shape
    step = max(1, TOGETHER // places**2)
    return (np.arange(k, min(k + step, number)) for k in range(0, number, step))


def _derivatives(
    rankings: Rankings, ability: np.ndarray
) -> tuple[float, csr_array, np.ndarray]:
    """Log-likelihood, scores `[rankings, subjects]`, and information."""
    number, places = rankings.order.shape
    count, total = rankings.num_subjects, 0.0
    information, slopes = np.zeros((count, count)), np.zeros((number, places))
    for block in _blocks(rankings):
        order = rankings.order[block]
        there = order >= 0
        value = np.where(there, ability[order], -np.inf)
        top = value.max(axis=1, keepdims=True)
        weight = np.exp(value - top)
        left = np.cumsum(weight[:, ::-1], axis=1)[:, ::-1]
        choice = np.where(there, value - top - np.log(np.where(there, left, 1)), 0)
        total += float(choice.sum())
        # chance[r, t, s] of s at stage t; none after the ranking's end.
        chance = weight[:, None, :] / np.where(there, left, np.inf)[:, :, None]
        chance = chance * np.triu(np.ones((places, places)))
        slopes[block] = there - chance.sum(axis=1)
        curve = -np.matmul(chance.transpose(0, 2, 1), chance)
        curve[:, np.arange(places), np.arange(places)] += chance.sum(axis=1)
        rows = np.broadcast_to(order[:, :, None], curve.shape).reshape(-1)
        columns = np.broadcast_to(order[:, None, :], curve.shape).reshape(-1)
        # Places after the end have no information, whatever the subject there.
        keys = np.maximum(rows, 0) * count + np.maximum(columns, 0)
        sums = np.bincount(keys, curve.reshape(-1), count**2)
        information += sums.reshape(count, count)
    there = rankings.order >= 0
    ranking, subject = np.nonzero(there)[0], rankings.order[there]
    scores = coo_array((slopes[there], (ranking, subject)), (number, count))
    return total, csr_array(scores), information


def _products(codes: np.ndarray, scores: csr_array) -> np.ndarray:
    """Sum of the outer products of the scores of clusters of rankings."""
    member = coo_array((np.ones(len(codes)), (codes, np.arange(len(codes)))))
    sums = member.tocsr() @ scores
    return (sums.T @ sums).toarray()  # pyright: ignore
