"""A Gaussian approximation of a posterior: D + F F', its draws and its density."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar, StatusCode
from irtjax.estimators.posterior.chains import Position

_LOG_TWO_PI = 1.8378770664093453


class Point(NamedTuple):
    """A Gaussian over raveled positions, in the coordinates that are optimised.

    Attributes:
        mean: `[dims]` m.
        log_sd: `[dims]` log s.
        loading: `[dims, rank]` L: D = diag(s)^2 and F = diag(s) L.
    """

    mean: Float[Array, " dims"]
    log_sd: Float[Array, " dims"]
    loading: Float[Array, "dims rank"]


class Gaussian(eqx.Module):
    """A Gaussian approximation of a posterior.

    Attributes:
        mean: A position.
        own_sd: A position: square roots of D.
        factor: A position whose arrays have a leading `[rank]` axis: F'.
        elbo: Evidence lower bound, in nats: a lower bound of the log evidence if the
            log density has all its constants.
        elbo_error: Its Monte Carlo standard error.
        elbo_trace: `[steps]` by the draws of each step; NaN at steps whose gradient was
            not finite, which moved nothing.
        error_trace: `[steps]` Monte Carlo standard errors of the trace.
        log_ratio: `[ratios]` log p(x) - log q(x) at draws of the approximation: their
            mean is `elbo`, their tail shows how accurate it is
            (`irtjax.estimators.posterior.pareto_k`).
        status: CONVERGED if over the last quarter of the steps the bound rose or fell
            by no more than two standard errors of that trend, or by less than the
            tolerance; NONFINITE if it was not finite there; else MAX_STEPS.
    """

    mean: Position
    own_sd: Position
    factor: Position
    elbo: Scalar
    elbo_error: Scalar
    elbo_trace: Float[Array, " steps"]
    error_trace: Float[Array, " steps"]
    log_ratio: Float[Array, " ratios"]
    status: StatusCode

    @property
    def sd(self) -> Position:
        """Standard deviation of each coordinate, a position."""
        return jax.tree.map(
            lambda own, factor: jnp.sqrt(own**2 + jnp.sum(factor**2, axis=0)),
            self.own_sd,
            self.factor,
        )

    def sample(self, num: int, *, key: KeyArray) -> Position:
        """Independent draws.

        Args:
            num: Number of draws.
            key: Random key.

        Returns:
            A position whose arrays have a leading `[num]` axis.
        """
        unravel = ravel_pytree(self.mean)[1]
        return jax.vmap(unravel)(gaussian_draws(self._point, num, key)[0])

    def log_density(self, position: Position) -> Scalar:
        """Log density of the approximation at a position."""
        return log_normal(self._point, ravel_pytree(position)[0])

    @property
    def _point(self) -> Point:
        mean, own_sd = ravel_pytree(self.mean)[0], ravel_pytree(self.own_sd)[0]
        factor = jax.vmap(lambda row: ravel_pytree(row)[0])(self.factor).T
        return Point(mean, jnp.log(own_sd), factor / own_sd[:, None])


def standard_draws(point: Point, num: int, key: KeyArray) -> tuple[Array, Array]:
    """Standard normals of the coordinates `[num, dims]` and of F `[num, rank]`."""
    own, shared = jax.random.split(key)
    size, rank = point.loading.shape
    dtype = point.mean.dtype
    return (
        jax.random.normal(own, (num, size), dtype),
        jax.random.normal(shared, (num, rank), dtype),
    )


def positions(point: Point, own: Array, shared: Array) -> Float[Array, "draws dims"]:
    """Positions that standard normals stand for."""
    return point.mean + jnp.exp(point.log_sd) * (own + shared @ point.loading.T)


def gaussian_draws(point: Point, num: int, key: KeyArray) -> tuple[Array, Array]:
    """Draws `[num, dims]` and their log densities."""
    draws = positions(point, *standard_draws(point, num, key))
    return draws, jax.vmap(partial(log_normal, point))(draws)


def log_normal(point: Point, flat: Float[Array, " dims"]) -> Scalar:
    """Log density of N(m, S (I + L L') S), by Woodbury's identity."""
    size, rank = point.loading.shape
    gap = (flat - point.mean) * jnp.exp(-point.log_sd)
    square, log_det = gap @ gap, 2 * jnp.sum(point.log_sd)
    if rank:
        inner = jnp.eye(rank, dtype=gap.dtype) + point.loading.T @ point.loading
        root = jnp.linalg.cholesky(inner)
        known = jax.scipy.linalg.solve_triangular(
            root, point.loading.T @ gap, lower=True
        )
        square = square - known @ known
        log_det = log_det + 2 * jnp.sum(jnp.log(jnp.diagonal(root)))
    return -0.5 * (square + log_det + size * _LOG_TWO_PI)
