"""The comparison of two subjects."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr, ndtri

from irtjax.data.responses import Responses
from irtjax.ranking.pairs import checked, without_scale, z_rows


class Comparison(NamedTuple):
    """Two subjects, the first less the second.

    Attributes:
        difference: Difference of abilities.
        standard_error: Its standard error.
        lower, upper: Ends of its interval, by `standard_error`: it can contain 0 where
            `p_value` is small.
        z: Difference over its standard error given the scale of ability, which is
            smaller than `standard_error` where few subjects determine the scale.
        p_value: Two-sided p-value of z.
        probability_greater: P(first > second), normal around the estimates.
        shared: Items that both answered (None without responses, as all below).
        right_first, right_second: Sums of the two's responses on the shared items.
        only_first, only_second: Shared items on which the first, or second, did better.
        sign_p_value: Exact two-sided sign test of those two counts (McNemar's test
            for right or wrong responses): it needs no model.
        accuracy_difference: Difference of accuracies on the shared items.
        accuracy_se: Its paired standard error over items (`irtjax.ranking.accuracy`).
        accuracy_lower, accuracy_upper: Ends of its interval.
        accuracy_p_value: Two-sided p-value of its t; exact where `accuracy_se` is 0.
        clusters: Clusters that this error is over.
        by_cluster: Whether these are `unit`, else items.
        unit: What the labels of clusters are: "benchmark", or "cluster" where the fit
            has clusters of items.
        score_difference: Difference of expected scores on all items of the fit.
        score_lower, score_upper: Ends of its interval: it contains 0 if and only if
            `p_value` exceeds 1 - level.
    """

    difference: float
    standard_error: float
    lower: float
    upper: float
    z: float
    p_value: float
    probability_greater: float
    shared: int | None = None
    right_first: float | None = None
    right_second: float | None = None
    only_first: int | None = None
    only_second: int | None = None
    sign_p_value: float | None = None
    accuracy_difference: float | None = None
    accuracy_se: float | None = None
    accuracy_lower: float | None = None
    accuracy_upper: float | None = None
    accuracy_p_value: float | None = None
    clusters: int | None = None
    by_cluster: bool | None = None
    unit: str = "benchmark"
    score_difference: float | None = None
    score_lower: float | None = None
    score_upper: float | None = None


def compare(
    ability: Float[Array, " subjects"] | np.ndarray,
    standard_error: Float[Array, " subjects"] | np.ndarray,
    first: int,
    second: int,
    *,
    covariance: Float[Array, "subjects subjects"] | np.ndarray | None = None,
    shared: Float[Array, "subjects rank"] | np.ndarray | None = None,
    scale: Float[Array, " subjects"] | np.ndarray | None = None,
    level: float = 0.95,
    data: Responses | None = None,
) -> Comparison:
    """Compares two subjects: difference, standard error, z, p, P(first > second).

    Args:
        ability: Scores.
        standard_error: Their standard errors.
        first: Index of one subject.
        second: Index of the other.
        covariance: See `rank`.
        shared: See `rank`.
        scale: The part of the shared errors that stretches all abilities alike
            (`scale_loadings`). It counts in the interval, not in z and what follows
            from z: equal abilities are equal on every scale.
        level: Level of the interval.
        data: Adds sums of the responses to shared items and their exact sign test.

    Returns:
        The comparison.

    Raises:
        ValueError: If the indices are the same or out of range, or as for `rank`.

    >>> c = compare(np.array([1.0, 0.0]), np.array([0.3, 0.4]), 0, 1)
    >>> round(c.z, 3), round(c.probability_greater, 3)
    (2.0, 0.977)
    """
    theta, errors = checked(ability, standard_error, covariance, shared, level)
    for index in (first, second):
        if not 0 <= index < theta.size:
            raise ValueError(f"subject {index} is not one of 0 to {theta.size - 1}")
    if first == second:
        raise ValueError(f"subject {first} cannot be compared with itself")
    difference = float(theta[first] - theta[second])
    rows = np.array([first]), np.array([second])
    error = float(errors.standard_error(*rows)[0, 0])
    scale = None if scale is None else np.asarray(scale, float)
    own, rest = without_scale(errors.error, errors.shared, scale)
    tested = errors._replace(error=own, shared=rest)
    z = float(z_rows(theta, tested, *rows)[0, 0])
    half = float(ndtri(0.5 + level / 2)) * error
    ends = difference - half, difference + half
    p_value = float(2 * ndtr(-abs(z)))
    result = Comparison(difference, error, *ends, z, p_value, float(ndtr(z)))
    return result if data is None else _with_counts(result, data, [first, second])


def _with_counts(result: Comparison, data: Responses, rows: list[int]) -> Comparison:
    """Adds the comparison of responses to shared items."""
    from scipy.stats import binomtest

    values = np.asarray(data.values, np.float64)[rows]
    seen = np.ones(values.shape)
    if data.exposure is not None:
        seen = np.asarray(data.exposure, np.float64)[rows]
    shared = (seen > 0).all(axis=0)
    values, rate = values[:, shared], values[:, shared] / seen[:, shared]
    ahead, behind = int(np.sum(rate[0] > rate[1])), int(np.sum(rate[0] < rate[1]))
    unequal = ahead + behind
    return result._replace(
        shared=int(shared.sum()),
        right_first=float(values[0].sum()),
        right_second=float(values[1].sum()),
        only_first=ahead,
        only_second=behind,
        sign_p_value=float(binomtest(ahead, unequal).pvalue) if unequal else 1.0,
    )
