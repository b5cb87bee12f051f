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

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from irtjax.comparisons.families import PairFamily
from irtjax.comparisons.newton import PairFit, gauge, quadratic_of, regular
from irtjax.comparisons.rows import PairRows, pair_scores
from irtjax.data.comparison_table import Label, ordered_pairs

#: Parameters up to which clusters' scores are added up as dense matrices, of so many
#: numbers at a time: 10,000,000 battles of 150 models take 1.4 s, and 3.9 s as sparse
#: ones, whose time does not grow with the square of the parameters.
DENSE, TOGETHER = 512, 2**17


def inverse_information(fit: PairFit) -> np.ndarray:
    """Pseudo-inverse of the information, `[parameters, parameters]`."""
    information = np.asarray(fit.information, np.float64)
    return pseudo_inverse(information, len(fit.parameters.ability))


def pseudo_inverse(information: np.ndarray, count: int) -> np.ndarray:
    """The same of an information whose first `count` parameters are abilities."""
    fixed = gauge(len(information), count)
    inverse = np.linalg.inv(regular(information, count))
    return inverse - np.outer(fixed, fixed) * (fixed @ inverse @ fixed)


def scores_of(
    family: PairFamily, fit: PairFit, sides, features: np.ndarray, outcomes: np.ndarray
) -> np.ndarray:
    """Scores of rows by the difference, features and shapes, `[rows, local]`.

    Args:
        family: The model.
        fit: Its estimates.
        sides: First and second subjects of all rows.
        features: `[rows, features]` covariates.
        outcomes: `[rows, 3]` numbers of wins, losses and ties.
    """
    if not features.shape[1]:
        return VerdictScores(family, fit, sides, outcomes, np.eye(3))[:]
    ability, effect, shape = map(np.asarray, fit.parameters)
    gap = ability[sides[0]] - ability[sides[1]] + features @ effect
    sums = np.einsum("ro,rol->rl", outcomes, pair_scores(family, gap, shape))
    return np.concatenate([sums[:, :1], features * sums[:, :1], sums[:, 1:]], axis=1)


class VerdictScores:
    """Scores of a fit without features: rows of a pair with one verdict are alike.

    `scores[rows]` are those of some rows in the difference and the shapes,
    `[rows, local]`, as an array of all rows would have them.
    """

    def __init__(
        self, family: PairFamily, fit: PairFit, sides, verdicts, rule: np.ndarray
    ) -> None:
        """Scores of each pair and verdict.

        Args:
            family: The model.
            fit: Its estimates.
            sides: First and second subjects of all rows.
            verdicts: `[rows, verdicts]` numbers of these, or `[rows]` which one.
            rule: `[verdicts, 3]` what each verdict counts as: win, loss, tie.
        """
        ability, _, shape = map(np.asarray, fit.parameters)
        count = len(ability)
        keys, self._place = ordered_pairs(sides[0], sides[1], count)
        gap = ability[keys // count] - ability[keys % count]
        local = pair_scores(family, gap, shape)
        self._local = np.einsum("vo,pol->pvl", rule, local)
        self._rule, self._verdicts = rule, verdicts
        self.shape = len(verdicts), local.shape[2]

    def __getitem__(self, rows: Any) -> np.ndarray:
        place, verdicts = self._place[rows], self._verdicts[rows]
        if verdicts.ndim == 2:
            parts = zip(verdicts.T, self._local.transpose(1, 2, 0), strict=True)
            total: Any = sum(n * np.take(x, place, axis=1) for n, x in parts)
            return total.T
        cells = place * len(self._rule) + verdicts
        return np.take(self._local.reshape(-1, self.shape[1]), cells, axis=0)


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
    *sides, features = pairs
    if clusters:
        weighted = outcomes if weight is None else outcomes * weight[:, None]
        scores = scores_of(family, fit, sides, features, weighted)
        clusters = [_coded(np.asarray(codes)) for codes in clusters]
        return by_clusters(fit, sides, scores, clusters)
    inverse, number = inverse_information(fit), outcomes.sum()
    # Of the product of two scores, each has the weight.
    squares = outcomes if weight is None else outcomes * weight[:, None] ** 2
    rows = PairRows.of(sides, features, len(fit.parameters.ability))
    local = pair_scores(family, rows.gaps(fit.parameters), fit.parameters.shape)
    middle = products(rows, [(local, rows.features)], rows.outcomes(squares))
    return inverse @ middle @ inverse * number / (number - 1)


def by_clusters(
    fit: PairFit,
    sides: Sequence[np.ndarray],
    scores: np.ndarray | VerdictScores,
    clusters: Sequence[np.ndarray],
) -> np.ndarray:
    """The sandwich covariance of clusters of one or two kinds.

    Args:
        fit: The estimates.
        sides: First and second subjects of all rows.
        scores: `[rows, 1 + features + shapes]` scores in the difference, then others.
        clusters: One or two codes of clusters, `[rows]` each.
    """
    count = len(fit.parameters.ability)
    return clustered_covariance(
        inverse_information(fit),
        clusters,
        lambda codes: cluster_products(codes, sides, [scores], count),
    )


def clustered_covariance(
    inverse: np.ndarray,
    clusters: Sequence[np.ndarray],
    products: Callable[[np.ndarray], np.ndarray],
    prior: np.ndarray | float = 0.0,
) -> np.ndarray:
    """H^-1 (M + D) H^-1, without negative eigenvalues where M is of two kinds.

    M is then a difference of covariances, which need not be one.

    Args:
        inverse: H^-1.
        clusters: Codes of the clusters of M, as `cluster_middle` has them.
        products: The products of M, as there.
        prior: D, what the priors of random effects add.
    """
    covariance = inverse @ (cluster_middle(clusters, products) + prior) @ inverse
    if len(clusters) < 2:
        return covariance
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.maximum(values, 0)) @ vectors.T


def cluster_middle(
    clusters: Sequence[np.ndarray], products: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """The sum of the outer products of the clusters' scores, times C / (C - 1).

    Args:
        clusters: Codes of clusters of one or two kinds.
        products: That sum, `[parameters, parameters]`, of codes of clusters.

    Raises:
        ValueError: If a kind of cluster has fewer than two.
    """
    number = min(map(number_of, clusters))
    if number < 2:
        raise ValueError("errors by cluster require two clusters or more")
    total: Any = sum(map(products, clusters))
    if len(clusters) == 2:
        total = total - products(crossed(*clusters))
    return total * number / (number - 1)


def number_of(codes: np.ndarray) -> int:
    """Number of distinct whole numbers from 0."""
    return int(Label(codes, range(int(codes.max()) + 1)).used().sum())


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
    key = first.astype(np.int64) * (int(second.max()) + 1) + second
    return np.unique(key, return_inverse=True)[1].reshape(-1)


def products(
    rows: PairRows,
    fits: Sequence[tuple[np.ndarray, np.ndarray]],
    outcomes: np.ndarray,
) -> np.ndarray:
    """Sum of the outer products of the scores of all comparisons, each alone.

    Args:
        rows: The comparisons.
        fits: Of one or two fits the scores of each outcome, as `outcome_scores` has
            them, and the features `[rows, features]`.
        outcomes: `[rows, 3]` numbers of wins, losses and ties.

    Returns:
        `[parameters, parameters]`, of all parameters of the first fit, then the second.
    """

    def block(one, other=None) -> np.ndarray:
        (local, x), (local_2, x_2) = one, one if other is None else other
        # w_rab = sum_o n_ro l_roa l_rob, of the local parameters a and b.
        weight = sum(
            n[:, None, None] * local[:, o, :, None] * local_2[:, o, None]
            for o, n in enumerate(outcomes.T)
        )
        return quadratic_of(rows, weight, x, None if other is None else x_2)

    own = [block(x) for x in fits]
    if len(fits) == 1:
        return own[0]
    across = block(*fits)
    return np.block([[own[0], across], [across.T, own[1]]])


def cluster_products(
    codes: np.ndarray,
    sides: Sequence[np.ndarray],
    fits: Sequence[np.ndarray | VerdictScores],
    count: int,
) -> np.ndarray:
    """Sum of the outer products of the clusters' scores.

    Args:
        codes: `[rows]` clusters.
        sides: First and second subjects of all rows.
        fits: Of one or several fits the scores `[rows, 1 + others]` in the difference
            and in other parameters.
        count: Number of subjects.

    Returns:
        `[parameters, parameters]`, of all parameters of all fits.
    """
    width = sum(count + scores.shape[1] - 1 for scores in fits)
    if width > DENSE:
        sums = cluster_sums(codes, sides, fits, count)
        return (sums.T @ sums).toarray()
    total = np.zeros((width, width))
    step = max(1, TOGETHER // width)
    block = codes // step
    if block.max() < 2**16:  # Keys of 16 bits have a sort by digits.
        block = block.astype(np.uint16)
    order, end = np.argsort(block, kind="stable"), np.cumsum(np.bincount(block))
    for k, rows in enumerate(np.split(order, end[:-1])):
        local = codes[rows].astype(np.int64) - k * step
        places = [local * count + side[rows] for side in sides]
        columns = []
        for scores in fits:
            values = scores[rows]
            one, other = (
                np.bincount(place, values[:, 0], step * count) for place in places
            )
            one -= other
            columns.append(one.reshape(step, count))
            columns += [np.bincount(local, x, step)[:, None] for x in values.T[1:]]
        sums = np.hstack(columns) if len(columns) > 1 else columns[0]
        total += sums.T @ sums
    return total


def cluster_sums(codes, sides, fits, count: int) -> Any:
    """Scores `[clusters, parameters]` of all fits as a sparse array.

    The arguments are those of `cluster_products`.
    """
    from scipy.sparse import csr_array

    number, begin, sums = int(codes.max()) + 1, 0, 0.0
    width = sum(count + scores.shape[1] - 1 for scores in fits)
    for rows in fits:
        scores = rows[:]
        columns = [*sides, *range(count, count + scores.shape[1] - 1)]
        values = [scores[:, 0], -scores[:, 0], *scores[:, 1:].T]
        for column, value in zip(columns, values, strict=True):
            place = np.broadcast_to(np.asarray(column) + begin, len(codes))
            sums = sums + csr_array((value, (codes, place)), (number, width))
        begin += count + scores.shape[1] - 1
    return sums
