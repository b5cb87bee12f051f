r"""Scores of clusters of items, and their correlations without unreliability.

With d_ij = y_ij - mean_i y_ij over the observed cells and w_i the weight of a subject,

    c_gh = sum_i w_i sum_{j in g, l in h, l != j} d_ij d_il / (weighted pairs),
    r_gh = c_gh / sqrt(c_gg c_hh),

is the correlation of two clusters' scores corrected for attenuation (Spearman 1904):
with complete data r = raw r / sqrt(alpha_g alpha_h), alpha_g = J c / (v + (J - 1) c)
being Cronbach's alpha. All are products of sums by subject, so a thousand resamples of
the subjects are one product of matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

#: Items of a cluster, and their reliability, from which it is compared with others.
#: With 0.5 in place of the usual 0.7 (Nunnally 1978) a few small clusters that chance
#: has made widen the band of one skill.
FEWEST_ITEMS, LEAST_RELIABILITY = 3, 0.7
#: Resamples of subjects.
RESAMPLES = 1000
#: Numbers of a block of resampled weights.
BLOCK = 20_000_000


class ClusterSums(NamedTuple):
    """Sums by subject and cluster, `[subjects, clusters]`, of d, d^2 and 1."""

    total: Any
    square: Any
    answers: Any

    def take(self, clusters: np.ndarray) -> ClusterSums:
        """Those of some clusters."""
        return ClusterSums(*(x[:, clusters] for x in self))


def cluster_sums(values, seen, member) -> ClusterSums:
    """Sums of responses `[subjects, items]`; `member` is 1 in an item's cluster.

    Arrays of numpy or of JAX; `seen` is 1 where a response is observed.
    """
    count = seen.sum(axis=0)
    mean = (values * seen).sum(axis=0) / (count + (count == 0))
    apart = (values - mean) * seen
    return ClusterSums(apart @ member, apart**2 @ member, seen @ member)


def reliabilities(sums: ClusterSums, sizes) -> tuple[Any, Any]:
    """Cronbach's alpha, and the mean covariance of two items, of each cluster.

    Alpha is NaN of a cluster without responses of one subject to two of its items.
    """
    total, square, answers = sums
    pairs = jnp.sum(answers * (answers - 1), axis=0)
    covariance = jnp.sum(total**2 - square, axis=0) / jnp.maximum(pairs, 1)
    variance = jnp.sum(square, axis=0) / jnp.maximum(jnp.sum(answers, axis=0), 1)
    whole = jnp.maximum(variance + (sizes - 1) * covariance, 1e-12)
    return jnp.where(pairs > 0, sizes * covariance / whole, jnp.nan), covariance


def comparable(alpha, sizes):
    """Clusters whose scores are compared: long and reliable enough."""
    return (alpha >= LEAST_RELIABILITY) & (sizes >= FEWEST_ITEMS)


def smallest_correlation(sums: ClusterSums, sizes):
    """The smallest corrected correlation of comparable clusters; 1 without any."""
    total, _, answers = sums
    alpha, covariance = reliabilities(sums, sizes)
    fine = comparable(alpha, sizes)
    between = total.T @ total / jnp.maximum(answers.T @ answers, 1)
    root = jnp.sqrt(jnp.where(fine, covariance, 1))
    compared = fine[:, None] & fine & ~jnp.eye(fine.shape[0], dtype=bool)
    return jnp.min(jnp.where(compared, between / (root[:, None] * root), 1))


def correlations(
    sums: ClusterSums, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Correlations of cluster scores, `[resamples, clusters, clusters]`.

    Args:
        sums: Sums by subject.
        weights: `[resamples, subjects]` weights of the subjects.

    Returns:
        Raw ones, of the subjects with responses to both, and corrected ones. A score is
        the mean of d_ij: the mean response, adjusted for the difficulty of the items
        observed. NaN where a score does not vary, or the mean covariance within a
        cluster is not positive.
    """
    total, square, answers = sums
    size = total.shape[1]
    outer = lambda x, y: (x[:, :, None] * y[:, None]).reshape(len(x), -1)
    sum_of = lambda x, y: (weights @ outer(x, y)).reshape(len(weights), size, size)
    centre = weights @ total
    shift = centre[:, :, None] * centre[:, None] / weights.sum(axis=1)[:, None, None]
    between, pairs = sum_of(total, total) - shift, sum_of(answers, answers)
    at = np.arange(size)
    answered = (answers > 0).astype(float)
    mean = total / np.maximum(answers, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        within = between[:, at, at] - weights @ square
        within = within / (pairs[:, at, at] - weights @ answers)
        root = np.sqrt(np.where(within > 0, within, np.nan))
        corrected = between / pairs / (root[:, :, None] * root[:, None])
        common, first = sum_of(answered, answered), sum_of(mean, answered)
        across = sum_of(mean, mean) - first * first.swapaxes(1, 2) / common
        spread = sum_of(mean**2, answered) - first**2 / common
        raw = across / np.sqrt(spread * spread.swapaxes(1, 2))
    return raw, corrected


def resampled_bounds(
    sums: ClusterSums, draw: Callable[[int], np.ndarray], level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile bounds `[2, clusters, clusters]` of raw and corrected correlations.

    `draw(count)` returns weights `[count, subjects]`. NaN where no resample has a
    correlation.
    """
    rows = max(1, min(RESAMPLES, BLOCK // len(sums.total)))
    parts = [
        correlations(sums, draw(min(rows, RESAMPLES - first)))
        for first in range(0, RESAMPLES, rows)
    ]
    tails = (1 - level) / 2, (1 + level) / 2
    bounds = []
    for kind in zip(*parts, strict=True):
        joined = np.concatenate(kind)
        finite = np.isfinite(joined).any(axis=0)
        quantiles = np.nanquantile(np.where(finite, joined, 0), tails, axis=0)
        bounds.append(np.where(finite, quantiles, np.nan))
    return bounds[0], bounds[1]
