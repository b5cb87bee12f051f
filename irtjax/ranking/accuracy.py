r"""Mean responses with errors over items, and their paired differences: no model.

The accuracy of a subject is p = sum_j y_j / sum_j n_j over the items it answered, n_j
being 1 or a number of trials. Items count as a random sample of the items that might
have been given, so the error is that of a ratio, with residuals r_j = y_j - p n_j:

    se^2 = (K / (K - 1)) sum_k (sum_{j in k} r_j)^2 / (sum_j n_j)^2,                (1)

over K clusters k. Each item is a cluster, unless items have at least `ENOUGH_CLUSTERS`
labels, such as benchmarks or passages: then each label is one (the cluster-robust error
of Liang and Zeger 1986 with the factor for few clusters). Fewer labels are too few to
estimate a variance between them.

The interval is Wilson's, with p (1 - p) / se^2 in place of the number of items and
Student's t quantile with K - 1 degrees of freedom in place of the normal one. It stays
between the lowest and the highest response. Where se is 0, the number of clusters
stands for that of items.

A difference that is equal to d in all K clusters has an error of 0, which is no
certainty. With chance x that a cluster differs from d, all K are equal with chance
(1 - x)^K, and the mean over all items is at most d + x (top - d) and at least
d - x (top + d). So the interval has the x with (1 - x)^K = (1 - level) / 2, and the
p-value of a mean of c is

    p = min(1, 2 (1 - x)^K),                                                        (2)
    x = (c - d) / (top - d) for c above d, and (d - c) / (top + d) below,

which is 2^(1 - K) for c = 0 and d = top or -top: the exact sign test.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from irtjax.data.stored_cells import AbstractStoredCells, DenseCells

#: Fewest labels that are clusters: t has at least 4 degrees of freedom.
ENOUGH_CLUSTERS = 5
#: Errors up to this share of the highest response are the rounding of equal values.
ROUNDING = 1e-12


class Accuracies(NamedTuple):
    """Accuracies, `[subjects]`; NaN without responses, errors without two items."""

    accuracy: np.ndarray
    standard_error: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class PairedDifference(NamedTuple):
    """The fields that end `irtjax.ranking.Comparison`, which defines them."""

    difference: float
    standard_error: float
    lower: float
    upper: float
    p_value: float
    clusters: int
    by_cluster: bool


def accuracies(
    cells: AbstractStoredCells,
    benchmarks: np.ndarray | None = None,
    *,
    low: float = 0.0,
    top: float = 1.0,
    level: float = 0.95,
) -> Accuracies:
    """Accuracy of every subject with its error over items; see the module.

    `cells` are responses from `low` to `top`, of one trial or several; `benchmarks` are
    labels of clusters, `[items]`.

    >>> own = accuracies(DenseCells(np.array([[1, 1, 0, 0]])))
    >>> [round(float(x[0]), 3) for x in own]
    [0.5, 0.289, 0.061, 0.939]
    """
    mean, error, clusters = _means(cells, clusters_of(benchmarks))
    ends = {"low": low, "top": top, "level": level}
    lower, upper = wilson_interval(mean, error, clusters, **ends)
    return Accuracies(mean, error, lower, upper)


def wilson_interval(
    accuracy: np.ndarray,
    error: np.ndarray,
    clusters: np.ndarray,
    *,
    low: float = 0.0,
    top: float = 1.0,
    level: float = 0.95,
) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval with an effective number of items and a t quantile.

    >>> low, high = wilson_interval(np.array([1.0]), np.array([0.0]), np.array([10]))
    >>> round(float(low[0]), 3), float(high[0])
    (0.661, 1.0)
    """
    room = top - low
    p = (accuracy - low) / room
    with np.errstate(divide="ignore", invalid="ignore"):
        size = p * (1 - p) / (error / room) ** 2
        size = np.where(error > 0, size, clusters)
        # The slow part, once for each number of clusters.
        degrees, place = np.unique(np.maximum(clusters - 1, 1), return_inverse=True)
        quantile = stdtrit(degrees, 0.5 + level / 2)[place]
        square = quantile**2 / size
        middle = (p + square / 2) / (1 + square)
        half = np.sqrt(p * (1 - p) * square + square**2 / 4) / (1 + square)
    finite = np.isfinite(error)
    lower, upper = np.maximum(middle - half, 0), np.minimum(middle + half, 1)
    lower, upper = low + room * lower, low + room * upper
    return np.where(finite, lower, np.nan), np.where(finite, upper, np.nan)


def paired_difference(
    values: np.ndarray,
    exposure: np.ndarray | None = None,
    benchmarks: np.ndarray | None = None,
    *,
    top: float = 1.0,
    level: float = 0.95,
    run_error: float = 0.0,
) -> PairedDifference | None:
    """Difference of two subjects' accuracies on shared items, paired over items.

    The mean of the differences of the two responses to an item (of shares right, where
    there are trials), with the error (1) of that mean; interval and p-value by t with
    K - 1 degrees of freedom, or those of (2) if all clusters have the same difference.
    Responses, `[2, items]`, have a range of `top`. None with fewer than two shared
    items. `run_error` is the standard error of the difference from run to run.

    >>> paired = paired_difference(np.array([[1, 1, 1, 0], [0, 1, 0, 0]]))
    >>> paired.difference, round(paired.standard_error, 3), round(paired.p_value, 3)
    (0.5, 0.289, 0.182)
    >>> paired_difference(np.array([[1, 1], [0, 0]])).p_value
    0.5
    """
    seen = np.ones(values.shape) if exposure is None else np.asarray(exposure, float)
    shared = (seen > 0).all(axis=0)
    size = int(shared.sum())
    if size < 2:
        return None
    each = np.asarray(values, np.float64)[:, shared] / seen[:, shared]
    label = clusters_of(None if benchmarks is None else np.asarray(benchmarks)[shared])
    statistics = _means(DenseCells(each[:1] - each[1:]), label)
    difference, error, clusters = (x.item() for x in statistics)
    error = error if error > ROUNDING * top else 0.0
    error = float(np.hypot(error, run_error))
    half = float(stdtrit(clusters - 1, 0.5 + level / 2)) * error
    ends = difference - half, difference + half
    if error == 0:
        top = max(top, abs(difference))
        share = 1 - (0.5 - level / 2) ** (1 / clusters)
        ends = (
            difference - share * (top + difference),
            difference + share * (top - difference),
        )
    p_value = difference_p_value(difference, error, clusters, top=top)
    return PairedDifference(
        difference, error, *ends, p_value, clusters, label is not None
    )


def difference_p_value(
    difference: float,
    error: float,
    clusters: int,
    *,
    place: float = 0.0,
    top: float = 1.0,
) -> float:
    """Two-sided p-value of a paired difference of `place`: by t, without error by (2).

    >>> difference_p_value(-1.0, 0.0, 6), difference_p_value(-1.0, 0.0, 6, place=-1.0)
    (0.03125, 1.0)
    """
    gap = abs(place - difference)
    if error > 0:
        return float(2 * stdtr(clusters - 1, -gap / error))
    if gap == 0:
        return 1.0
    top = max(top, abs(difference))
    room = top - difference if place > difference else top + difference
    share = gap / room if gap < room else 1.0
    return min(1.0, 2 * (1 - share) ** clusters)


def clusters_of(benchmarks: np.ndarray | None) -> np.ndarray | None:
    """Number of each item's cluster, `[items]`; None where each item is one."""
    if benchmarks is None:
        return None
    names, label = np.unique(np.asarray(benchmarks), return_inverse=True)
    return label if len(names) >= ENOUGH_CLUSTERS else None


def _means(cells: AbstractStoredCells, label: np.ndarray | None):
    """Of each subject: mean, its error (1), and the clusters met."""
    total, count = cells.sum(1), cells.count(1).astype(np.float64)
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    if label is None and cells.is_binary:
        # Of responses 0 and 1 numbers alone are enough.
        squares, clusters = total * (1 - np.nan_to_num(mean)), cells.count(1)
    else:
        squares, clusters = cells.cluster_squares(mean, label)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(squares * clusters / (clusters - 1)) / count
    return mean, np.where(clusters > 1, error, np.nan), clusters
