r"""What the errors of location and scale add to the ability of a new subject.

A calibration estimates items on a scale that its own subjects define: their mean and
standard deviation differ from those of their population, from N subjects by about
1 / sqrt(N) and 1 / sqrt(2 N). An ability t on the scale of the calibration is an
ability theta of the population with an error that all subjects share,

    t = theta + e,   Var(e | t) = s(t)^2 = (1, t) V (1, t)'.                       (1)

V follows from the shared errors of the calibrated subjects (`Scores.shared`): these are
linear in ability, so the loadings u_i are regressed on (1, t_i), u_i = A'(1, t_i)', and
V = A A'. Responses are about t: a score m with variance v on the scale of the
calibration, under the population N(mu, sigma^2), is that of a normal likelihood of
variance L, 1 / L = 1 / v - 1 / sigma^2. About theta the responses say what a likelihood
of variance L + s^2 says, so that m is off from theta by

    E (theta - m)^2 = (1 - r) v + r sigma^2 + r^2 (m - mu)^2,                      (2)
    r = k s^2 / (sigma^2 + k s^2),    k = sigma^2 / (sigma^2 + L) = 1 - v / sigma^2,

and by v + s^2 where the population is not used. (2) is v where the responses say
nothing, k = 0, and never below it. The score itself stays on the scale of the
calibration, on which it is compared with the calibrated subjects.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Matrix = Float[Array, "2 2"] | Float[np.ndarray, "2 2"]


def scale_covariance(
    ability: np.ndarray, shared: np.ndarray | None
) -> Float[np.ndarray, "2 2"] | None:
    """V of (1), the covariance of the errors of location and scale.

    Args:
        ability: `[subjects]` abilities of a calibration.
        shared: `[subjects, rank]` loadings of their shared errors, or None.

    Returns:
        V, or None where there are no loadings.

    >>> ability = np.array([-1.0, 0.0, 1.0])
    >>> scale_covariance(ability, np.array([[0.3], [0.3], [0.3]])).round(2).tolist()
    [[0.09, 0.0], [0.0, 0.0]]
    """
    if shared is None:
        return None
    ability, shared = np.asarray(ability, float), np.asarray(shared, float)
    usable = np.isfinite(ability) & np.isfinite(shared).all(axis=1)
    if not usable.any():
        return None
    design = np.column_stack([np.ones(usable.sum()), ability[usable]])
    slopes = np.linalg.pinv(design) @ shared[usable]
    return slopes @ slopes.T


def scale_variance(covariance: Matrix, ability: Any) -> Array:
    """s^2 of (1) at abilities."""
    v = covariance
    variance = v[0, 0] + 2 * v[0, 1] * ability + v[1, 1] * ability**2
    return jnp.maximum(variance, 0)


def with_scale_error(
    covariance: Matrix,
    ability: Any,
    variance: Any,
    population: tuple[Any, Any] | None = None,
) -> Array:
    """The squared error (2) of abilities.

    Args:
        covariance: V.
        ability: Scores on the scale of the calibration.
        variance: Their variances there.
        population: Mean and standard deviation; None for scores that do not use it.

    >>> half = 0.1 * jnp.eye(2)
    >>> float(with_scale_error(half, jnp.array(0.0), jnp.array(0.2)).round(3))
    0.3
    >>> known = with_scale_error(half, jnp.array(0.0), jnp.array(0.2), (0.0, 1.0))
    >>> float(known.round(3))
    0.259
    """
    error = scale_variance(covariance, ability)
    if population is None:
        return variance + error
    mean, sd = population
    return with_shared_error(variance, ability - mean, sd**2, error)


def with_shared_error(variance: Any, gap: Any, spread: Any, error: Any) -> Array:
    """The squared error (2) of scores `gap` from the mean of the population.

    Args:
        variance: v.
        gap: m - mu.
        spread: sigma^2.
        error: s^2.

    >>> nothing_known = with_shared_error(1.0, 0.0, 1.0, 0.1)
    >>> float(nothing_known)
    1.0
    """
    part = error * jnp.clip(1 - variance / spread, 0, 1)
    r = part / (spread + part)
    return (1 - r) * variance + r * spread + (r * gap) ** 2
