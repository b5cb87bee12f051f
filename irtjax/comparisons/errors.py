r"""Covariances of estimates from comparisons: by information, sandwich, and clusters.

With H the information and s_c the sum of the scores of cluster c (a prompt, a judge, or
each comparison alone),

    V = H^+ (sum_c s_c s_c') H^+

(White 1980; Liang and Zeger 1986); H^+ is the pseudo-inverse, since abilities have a
sum of 0. Comparisons of one prompt are alike beyond the abilities of the two, and those
of one judge too. With clusters of two kinds V is the sum of both less that of their
intersections (Cameron, Gelbach and Miller 2011). V is multiplied by C / (C - 1), of C
clusters of the smaller number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from irtjax.comparisons.families import PairFamily
from irtjax.comparisons.newton import PairCounts, PairFit, padded, scores_jit
from irtjax.data.comparison_table import pairs_of


def inverse_information(fit: PairFit) -> np.ndarray:
    """Pseudo-inverse of the information, `[parameters, parameters]`."""
    information = np.asarray(fit.information, np.float64)
    count = len(fit.parameters.ability)
    one = np.zeros(len(information))
    one[:count] = count**-0.5
    size = np.trace(information) / len(information)
    together = np.linalg.inv(information + size * np.outer(one, one))
    return together - np.outer(one, one) / size


def row_scores(
    family: PairFamily, fit: PairFit, features: np.ndarray, first, second
) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of each outcome in the difference, and in features and shapes.

    They are `[rows, 3]` and `[rows, 3, features + shapes]`; ties that are halves have
    the mean of the two.
    """
    place: Any = slice(None)
    if not features.shape[1]:
        # Rows of the same pair are alike.
        count = len(fit.parameters.ability)
        keys, place = pairs_of(first, second, count)
        first, second = keys // count, keys % count
    rows = first, second, np.zeros((0, 3)), features[: len(first)]
    scores = scores_jit(family, fit.parameters, PairCounts(*map(padded, rows)))
    local = np.array(scores, np.float64)[: len(first)][place]
    if not family.num_shapes:
        half = local[:, :2].mean(axis=1) if family.ties == "half" else 0.0
        local[:, 2] = half
    along = local[:, :, :1] * np.asarray(features)[:, None, :]
    return local[:, :, 0], np.concatenate([along, local[:, :, 1:]], axis=2)


def sandwich(
    family: PairFamily,
    fit: PairFit,
    pairs,
    outcomes: np.ndarray,
    clusters: Sequence[np.ndarray] = (),
    weight: np.ndarray | None = None,
) -> np.ndarray:
    """Covariance of all parameters that does not rely on independent comparisons.

    Args:
        family: The model.
        fit: Its estimates.
        pairs: First and second subjects `[rows]`, and features `[rows, features]`.
        outcomes: `[rows, 3]` numbers of wins, losses and ties.
        clusters: None, one or two codes of clusters, `[rows]` each. Without any, each
            comparison is alone.
        weight: `[rows]` weights of the comparisons, of which the fit is.

    Raises:
        ValueError: If a kind of cluster has fewer than two.
    """
    first, second, features = pairs
    slope, rest = row_scores(family, fit, features, first, second)
    if weight is not None:
        slope, rest = slope * weight[:, None], rest * weight[:, None, None]
    inverse = inverse_information(fit)
    count = len(fit.parameters.ability)
    if not clusters:
        number, weights = outcomes.sum(), [(1.0, None)]
    else:
        clusters = [_coded(np.asarray(codes)) for codes in clusters]
        number = min(np.count_nonzero(np.bincount(codes)) for codes in clusters)
        if number < 2:
            raise ValueError("errors by cluster require two clusters or more")
        weights = [(1.0, codes) for codes in clusters]
        if len(clusters) == 2:
            weights.append((-1.0, crossed(*clusters)))
    middle = np.zeros_like(inverse)
    for sign, codes in weights:
        if codes is None:
            middle += _alone(first, second, slope, rest, outcomes, count)
        else:
            middle += sign * _by_cluster(
                codes, first, second, slope, rest, outcomes, count
            )
    covariance = robust_covariance(inverse, middle, two_way=len(clusters) == 2)
    return covariance * number / (number - 1)


def _coded(codes: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 of labels; those of labels that are such are these."""
    if codes.dtype.kind in "iu" and 0 <= codes.min() <= codes.max() < 4 * len(codes):
        return codes
    return np.unique(codes, return_inverse=True)[1].reshape(-1)


def crossed(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Codes of the pairs of two clusters, `[rows]`.

    >>> crossed(np.array([0, 0, 1]), np.array([1, 0, 1])).tolist()
    [1, 0, 2]
    """
    both = np.column_stack([first, second])
    return np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)


def robust_covariance(
    inverse: np.ndarray, middle: np.ndarray, *, two_way: bool
) -> np.ndarray:
    """H^-1 M H^-1, without negative eigenvalues where M is by two kinds of cluster.

    M is then the sum of both less that of their pairs (Cameron, Gelbach and Miller
    2011), and a difference of covariances need not be one.
    """
    covariance = inverse @ middle @ inverse
    if not two_way:
        return covariance
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.maximum(values, 0)) @ vectors.T


def _alone(first, second, slope, rest, outcomes, count: int) -> np.ndarray:
    """Sum of the outer products of all comparisons' scores."""
    weight = np.sum(outcomes * slope**2, axis=1)
    mixed = np.einsum("ro,ro,rop->rp", outcomes, slope, rest)
    own = np.einsum("ro,rop,roq->pq", outcomes, rest, rest)
    size = count + rest.shape[2]
    middle = np.zeros((size, size))
    for rows, columns, sign in (
        (first, first, 1),
        (second, second, 1),
        (first, second, -1),
        (second, first, -1),
    ):
        np.add.at(middle, (rows, columns), sign * weight)
    along = np.zeros((count, rest.shape[2]))
    np.add.at(along, first, mixed)
    np.add.at(along, second, -mixed)
    middle[:count, count:], middle[count:, :count] = along, along.T
    middle[count:, count:] = own
    return middle


def _by_cluster(codes, first, second, slope, rest, outcomes, count: int) -> np.ndarray:
    """Sum of the outer products of the clusters' scores."""
    from scipy.sparse import csr_array

    along = np.sum(outcomes * slope, axis=1)
    more = np.einsum("ro,rop->rp", outcomes, rest)
    shape = int(codes.max()) + 1, count
    sums = csr_array((along, (codes, first)), shape) - csr_array(
        (along, (codes, second)), shape
    )
    onto = np.zeros((shape[0], more.shape[1]))
    np.add.at(onto, codes, more)
    mixed = sums.T @ onto
    top = np.concatenate([(sums.T @ sums).toarray(), mixed], axis=1)
    return np.concatenate([top, np.concatenate([mixed.T, onto.T @ onto], axis=1)])
