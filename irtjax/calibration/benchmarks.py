r"""Subjects whose abilities differ by benchmark, in a fit of one ability.

One ability of several weighs benchmarks by how well their items correlate, and its
errors are for these benchmarks alone. Where abilities differ (`assumptions`), mean
responses take its place, of which each item has the same weight. They get the mean and
the standard deviation of the abilities. Their errors are those over items, and count
these benchmarks as a sample of others (`ranking.paired.variance_between`): ability is
what all such benchmarks measure. The scale of ability has the relative standard error
1 / sqrt(2 (subjects - 1)) of a standard deviation, and its location that of a mean.

The expected score is on the items of these benchmarks. With the responses y of a
subject and the expected responses p of the model it is (sum of y + sum of p where a
response is missing) / items, whose variance given abilities is about the sum of
(y - p)^2 / items^2, and that of the predictions.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from irtjax.calibration.assumptions import chances
from irtjax.calibration.scale import means_of, responses_of
from irtjax.data.table import ResponseTable
from irtjax.estimators.estimates import Estimates
from irtjax.ranking.paired import quantile_ratio, variance_between

#: Cells of a block of subjects.
BLOCK_CELLS = 2**22
#: Step of the slope of an expected score, in abilities.
STEP = 1e-3


def with_errors_of_benchmarks(
    estimates: Estimates, table: ResponseTable, level: float = 0.95
) -> Estimates:
    """Estimates of subjects whose abilities differ by benchmark; see the module."""
    means = means_of(estimates, table, level)
    between = variance_between(*responses_of(table), table.benchmarks, means.mean)
    # The variance between benchmarks is an estimate.
    count, several = table.num_subjects, len(np.unique(table.benchmarks))
    degrees = np.full(1, (count - 1) * (several - 1) + 1.0)
    between = between * quantile_ratio(degrees, count, level) ** 2
    finite = np.isfinite(estimates.ability)
    place, spread = (f(estimates.ability[finite]) for f in (np.mean, np.std))
    factor = float(spread) / float(np.std(means.mean) or 1.0)
    gap = factor * (means.mean - means.mean.mean())
    scale = gap / np.sqrt(2 * max(count - 1, 1))
    location = np.full(count, spread / np.sqrt(count))
    own = factor * np.sqrt(means.standard_error**2 + between)
    error = np.sqrt(own**2 + scale**2 + location**2)
    expected = estimates.expected
    if expected is not None and table.sparse is None:
        expected = _expected(estimates, table, error)
    return dataclasses.replace(
        estimates,
        ability=place + gap,
        error=error,
        shared=np.column_stack([factor * means.shared, scale, location]),
        scale=scale,
        expected=expected,
    )


def _expected(
    estimates: Estimates, table: ResponseTable, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Expected scores from the responses, predictions where they are missing."""
    family, items = estimates.problem.model.family, estimates.parameters.items
    count, width = table.values.shape
    score, variance = np.zeros(count), np.zeros(count)
    size = max(1, BLOCK_CELLS // width)
    for start in range(0, count, size):
        part = slice(start, min(start + size, count))
        y = np.asarray(table.values[part], float)
        m = np.ones(y.shape)
        if table.trials is not None:
            m = (table.trials[part] > 0).astype(float)
            y = y / np.maximum(table.trials[part], 1)
        elif table.observed is not None:
            m = np.asarray(table.observed[part], float)
        theta = np.asarray(estimates.ability[part], float)[:, None]
        at = lambda step, theta=theta, shape=y.shape: np.asarray(
            chances(family, items, jnp.asarray(np.broadcast_to(theta + step, shape))),
            float,
        )
        p = at(0.0)
        slope = np.sum((1 - m) * (at(STEP) - at(-STEP)), axis=1) / (2 * STEP)
        score[part] = np.sum(m * y + (1 - m) * p, axis=1) / width
        noise = np.sum(m * (y - p) ** 2, axis=1) + (slope * error[part]) ** 2
        variance[part] = noise / width**2
    return score, np.sqrt(variance)
