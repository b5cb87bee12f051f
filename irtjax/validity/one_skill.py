"""Responses of one skill for each benchmark, drawn from a 2PL fitted to its items.

They are the null hypothesis of `heterogeneity`: abilities are drawn from their
posteriors, so the skills of different benchmarks correlate as they do in the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import KeyArray
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.start import start_values
from irtjax.likelihood.counts import expected_counts
from irtjax.likelihood.problem import Problem
from irtjax.likelihood.quadrature import nodes_for
from irtjax.models.catalogue import two_parameter
from irtjax.numerics.kernels import normal_log_weights
from irtjax.validity.item_clusters import ItemsByBenchmark


class OneSkill(NamedTuple):
    """A 2PL of each benchmark."""

    code: Any  # [items] the benchmark of each.
    drawn: Any  # [items] whether it is in one.
    slope: Any  # [items]
    intercept: Any  # [items]
    mean: Any  # [subjects, benchmarks] of the abilities' posteriors.
    error: Any  # [subjects, benchmarks] their standard deviations.

    def draw(self, values, seen, key: KeyArray) -> jax.Array:
        """Responses in the observed cells; items in no benchmark keep theirs."""
        return _draw(self, values, seen, key)


@eqx.filter_jit
def _draw(one: OneSkill, values, seen, key):
    """Responses of one replicate under one skill by benchmark."""
    theta_key, key = jax.random.split(key)
    noise = jax.random.normal(theta_key, one.mean.shape, one.mean.dtype)
    theta = one.mean + one.error * noise
    eta = theta[:, one.code] * one.slope + one.intercept
    right = jax.random.bernoulli(key, jax.nn.sigmoid(eta))
    responses = jnp.where(seen, right, False).astype(jnp.int8)
    return jnp.where(one.drawn, responses, values)


def fit_one_skill(
    values, seen, layout: ItemsByBenchmark, report: Callable[[str], None]
) -> OneSkill:
    """Fits a 2PL to each benchmark of a layout."""
    size = values.shape[1]
    slope, intercept = np.zeros(size), np.zeros(size)
    code, drawn, posteriors = np.zeros(size, int), np.zeros(size, bool), []
    for k in range(len(layout.place)):
        report(f"one ability: benchmark {k + 1} of {len(layout.place)}")
        index, valid = layout.place[k], layout.valid[k]
        estimates = _two_parameters(values[:, index], seen[:, index] & valid)
        own = layout.items(k)
        code[own], drawn[own] = k, True
        for array, part in zip((slope, intercept), estimates[:2], strict=True):
            array[own] = np.asarray(part)[np.asarray(valid)]
        posteriors.append(estimates[2:])
    mean, error = (jnp.stack(x, axis=1) for x in zip(*posteriors, strict=True))
    dtype = jnp.zeros(()).dtype
    numbers = (jnp.asarray(x, dtype) for x in (slope, intercept, mean, error))
    return OneSkill(jnp.asarray(code), jnp.asarray(drawn), *numbers)


@eqx.filter_jit
def _two_parameters(values, seen):
    """Slopes, intercepts, and posterior means and standard deviations, by EM."""
    width, dtype = values.shape[1], jnp.zeros(()).dtype
    # One skill: no item measures it in reverse, or its clusters would correlate at -1.
    model = two_parameter(positive=True)
    # For items of slope 1.4 that are all of one difficulty, with room for steeper ones.
    nodes = jnp.asarray(nodes_for((1 + width / 2) ** -0.5), dtype)
    data = Responses(values, seen)
    start = start_values(model, data, how="proportions", dtype=dtype)
    problem = Problem.create(model, data)
    parameters = run(problem, EM(nodes=nodes), start).parameters
    population = parameters.population
    grid = population.mean + population.sd * nodes
    prior = normal_log_weights(nodes)
    counts = expected_counts(model, parameters.items, grid, prior, data, moments=True)
    assert counts.variance is not None
    error = jnp.sqrt(jnp.maximum(counts.variance, 0))
    return (
        parameters.items.discrimination,
        parameters.items.intercept,
        counts.mean,
        error,
    )
