r"""Correlations of several abilities, which have means 0 and variances 1.

Correlations R are estimated in confirmatory models. Given the mean C of
E[theta theta'] over n subjects and a prior worth k subjects with uncorrelated factors,

    -k/2 (log |R| + tr R^-1),

which keeps R away from singular matrices, R maximises -log |R| - tr R^-1 C* with
C* = (n C + k I) / (n + k).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.likelihood.problem import (
    Problem,
    Start,
    correlates,
    is_positive,
    rotates,
)
from irtjax.models.model import Population
from irtjax.numerics.kernels import (
    inverse_of,
    inverse_root,
    positive_definite_solve,
)

#: Scoring steps for the correlations in a step of EM, each from the last.
NUM_SCORING = 3
#: Subjects that the prior of the correlations is worth.
PRIOR_SUBJECTS = 2.0


def log_prior_of(correlation: Float[Array, "dims dims"]) -> Scalar:
    """Log prior of correlations; 0 of uncorrelated abilities."""
    inverse, log_det = inverse_of(correlation)
    rest = log_det + jnp.trace(inverse) - len(inverse)
    return -0.5 * PRIOR_SUBJECTS * rest


def raised_correlation(
    problem: Problem,
    correlation: Float[Array, "dims dims"],
    second: Float[Array, "dims dims"],
    total: Array,
) -> Float[Array, "dims dims"]:
    """The best correlations where they are estimated; others stay.

    `second` is the mean of E[theta theta'] over `total` subjects.
    """
    unit = jnp.eye(len(correlation), dtype=correlation.dtype)
    second = total * second + PRIOR_SUBJECTS * unit
    best = best_correlation(correlation, second / (total + PRIOR_SUBJECTS))
    return jnp.where(correlates(problem), best, correlation)


def best_correlation(
    first: Float[Array, "dims dims"], second: Float[Array, "dims dims"]
) -> Float[Array, "dims dims"]:
    """The correlation matrix R of highest -log |R| - tr R^-1 C, C being `second`.

    Scoring steps from a first one, each as long as it raises that.
    """
    dims, dtype = first.shape[0], first.dtype
    if dims == 1:
        return first
    low, high = np.tril_indices(dims, -1)
    basis = np.zeros((len(low), dims, dims))
    basis[np.arange(len(low)), low, high] = basis[np.arange(len(low)), high, low] = 1
    basis = jnp.asarray(basis, dtype)

    def height(matrix):
        root = inverse_root(matrix)
        log_det = -2 * jnp.sum(jnp.log(jnp.diagonal(root)))
        value = -log_det - jnp.sum((root @ second) * root)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    def improve(_, matrix):
        inverse, _ = inverse_of(matrix)
        rest = inverse @ second @ inverse - inverse
        gradient = jnp.tensordot(basis, rest, 2)
        along = inverse @ basis @ inverse
        step, _ = positive_definite_solve(
            jnp.tensordot(along, basis, [(1, 2)] * 2), gradient
        )
        move = jnp.tensordot(step, basis, 1)
        tried = matrix + jnp.array([1.0, 0.5, 0.1, 0.01], dtype)[:, None, None] * move
        heights = jnp.stack([height(x) for x in (*tried, matrix)])
        return jnp.concatenate([tried, matrix[None]])[jnp.argmax(heights)]

    return lax.fori_loop(0, NUM_SCORING, improve, first)


def with_own_correlation(problem: Problem, start: Start) -> Start:
    """Start values with correlations of the factors as the model has them.

    Where a rotation changes nothing, factors are uncorrelated: with L L' the given
    correlations, slopes A L on such factors mean the same. Other models without free
    correlations start from the slopes as they are.
    """
    slopes = start.items.discrimination
    dtype, dims = slopes.dtype, slopes.shape[1]
    none, unit = jnp.zeros(dims, dtype), jnp.eye(dims, dtype=dtype)
    own = unit
    if start.population is not None and start.population.correlation is not None:
        own = start.population.correlation.astype(dtype)
    slopes = jnp.where(rotates(problem), slopes @ jnp.linalg.cholesky(own), slopes)
    population = Population(
        none, none + 1, None, jnp.where(correlates(problem), own, unit)
    )
    items = start.items._replace(discrimination=slopes)
    return start._replace(items=items, population=population)


def oriented(
    problem: Problem,
    slopes: Float[Array, "items dims"],
    correlation: Float[Array, "dims dims"],
) -> tuple[Array, Population]:
    """Slopes and population, factors in a fixed order and direction.

    Where a rotation changes nothing, factors are the principal axes of the slopes, the
    largest sum of squares first. Slopes of any sign have a positive sum.
    """
    unit = jnp.eye(len(correlation), dtype=correlation.dtype)
    _, axes = jnp.linalg.eigh(slopes.T @ slopes)
    slopes = slopes @ jnp.where(rotates(problem), axes[:, ::-1], unit)
    turn = (jnp.sum(slopes, axis=0) < 0) & (not is_positive(problem.model))
    sign = jnp.where(turn, -1, 1).astype(slopes.dtype)
    none = jnp.zeros_like(correlation[0])
    correlation = correlation * sign[:, None] * sign + 0.0
    return slopes * sign, Population(none, none + 1, None, correlation)
