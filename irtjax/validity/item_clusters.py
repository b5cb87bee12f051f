r"""Clusters of items by a joint factor fit and a Gaussian mixture.

Structure vectors, correlations of items and factors, are clustered with as many
components as give the lowest BIC. They are standardised by their covariance first, so a
rotation of the factors does not change the clusters.

Observed and simulated responses get the same analysis: the same estimator (`mm`) with
the same priors, start values, tolerance and step limit. A smallest correlation by
another estimator could not be compared with those of simulations.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from irtjax._types import KeyArray, Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run_jit
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import weak_priors
from irtjax.models.model import Model
from irtjax.numerics.kernels import inverse_cholesky
from irtjax.numerics.mixture import choose_mixture
from irtjax.validity.cluster_scores import cluster_sums, smallest_correlation

#: Steps of a factor fit, and the KKT residual at its end. The likelihood is flat along
#: factors of noise: a few fits would take many more steps.
MOST_STEPS, TOLERANCE = 200, 1e-4


class ItemsByBenchmark(NamedTuple):
    """Benchmarks as rows of items, padded to the longest."""

    place: jax.Array  # [benchmarks, width] position of an item.
    valid: jax.Array  # [benchmarks, width] whether it is one, not padding.

    def items(self, row: int) -> np.ndarray:
        """Positions of the items of a benchmark."""
        return np.asarray(self.place[row])[np.asarray(self.valid[row])]


class ItemClusters(NamedTuple):
    """Clusters of each benchmark, `[benchmarks, ...]`."""

    label: jax.Array  # [width]
    probability: jax.Array  # [width]
    num_clusters: jax.Array
    entropy: jax.Array
    smallest: jax.Array  # Smallest correlation; 1 where no two clusters compare.


class Analysis(NamedTuple):
    """How responses are clustered.

    Attributes:
        model: The factor model, with the priors of its joint fit.
        mask: `[items, factors]` slopes to estimate; None for all.
        layout: The benchmarks.
        most: Largest number of clusters of a benchmark.
    """

    model: Model
    mask: np.ndarray | None
    layout: ItemsByBenchmark
    most: int

    def run(self, values, seen, key: KeyArray) -> tuple[ItemClusters, bool]:
        """Clusters of responses, and whether the factor fit converged."""
        dtype = jnp.zeros(()).dtype
        data = Responses(values, seen)
        problem = Problem.create(self.model, data)
        if self.mask is not None:
            free = problem.free.at[:, : self.mask.shape[1]].set(jnp.asarray(self.mask))
            problem = dataclasses.replace(problem, free=free)
        start = start_values(self.model, data, loadings=self.mask, dtype=dtype)
        method = MM(tolerance=jnp.asarray(TOLERANCE, dtype))
        fit = run_jit(problem, method, start, max_steps=MOST_STEPS)
        items, population, _ = fit.parameters[:3]
        variance = self.model.family.link_variance
        structure = _structure(items.discrimination, population, variance)
        clusters = _clusters(structure, values, seen, self.layout, key, self.most)
        return clusters, int(fit.status) == Status.CONVERGED


def with_joint_priors(model: Model) -> Model:
    """The model with the weak priors of `mm`.

    Those of marginal methods are wider, and joint estimates of slopes on factors of
    noise are then far too large.
    """
    return MM().adapted(dataclasses.replace(model, priors=weak_priors(model.family)))


def varied(values, seen):
    """Items with right and with wrong responses."""
    right = (values > 0) & seen
    return right.any(axis=0) & (seen & ~right).any(axis=0)


@eqx.filter_jit
def _clusters(
    structure, values, seen, layout: ItemsByBenchmark, key, most: int
) -> ItemClusters:
    """Clusters of each benchmark, and their smallest correlation."""
    dtype = structure.dtype
    varies = varied(values, seen)

    def one(row):
        index, valid, number = row
        weights = (valid & varies[index]).astype(dtype)
        points = _standardised(structure[index], weights)
        part = jax.random.fold_in(key, number)
        mixture, _ = choose_mixture(points, weights, part, most=most)
        label = jnp.argmax(mixture.responsibilities, axis=1)
        own = jax.nn.one_hot(label, most, dtype=dtype) * weights[:, None]
        cells = values[:, index].astype(dtype), seen[:, index].astype(dtype)
        smallest = smallest_correlation(cluster_sums(*cells, own), own.sum(axis=0))
        chance = jnp.max(mixture.responsibilities, axis=1)
        return ItemClusters(
            label, chance, mixture.num_components, mixture.entropy, smallest
        )

    return lax.map(one, (*layout, jnp.arange(len(layout.place))))


def _standardised(points, weights):
    """Points with mean 0 and, up to a ridge, the covariance I."""
    total = jnp.maximum(jnp.sum(weights), 1)
    apart = points - weights @ points / total
    covariance = (weights[:, None] * apart).T @ apart / total
    dims = points.shape[1]
    # A factor that no item measures is not blown up to the size of the others.
    ridge = 1e-6 * jnp.trace(covariance) / dims + jnp.finfo(points.dtype).tiny
    lower = inverse_cholesky(covariance + ridge * jnp.eye(dims, dtype=points.dtype))
    return apart @ lower.T


@eqx.filter_jit
def _structure(slopes, population, variance):
    """Correlations of items and factors, of factors of any variance."""
    covariance = population.covariance.astype(slopes.dtype)
    along = slopes @ covariance
    total = jnp.sum(along * slopes, axis=1) + variance
    return along / jnp.sqrt(total)[:, None] / jnp.sqrt(jnp.diagonal(covariance))
