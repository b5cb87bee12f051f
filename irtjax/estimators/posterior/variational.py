"""Stochastic variational inference: the Gaussian nearest to a posterior.

It takes the sampler's log densities and costs less for thousands of coordinates. The
approximation

    q(x) = N(m, D + F F'),  D = diag(s)^2,  F = diag(s) L of a few columns,

has the largest evidence lower bound E_q[log p(x) - log q(x)] that stochastic gradients
find. Draws are reparameterised, x = m + s (e + L z) with standard normals e and z
(Kingma and Welling 2014), and log q is differentiated through x alone (Roeder, Wu and
Duvenaud 2017): the noise of the gradient then vanishes where q is the posterior. m
moves in units of s: a learning rate of 0.1 is a tenth of a posterior SD.

The bound does not measure the distance to the posterior; the tail of the importance
ratios `Gaussian.log_ratio` does (`irtjax.estimators.posterior.pareto_k`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar, Status, StatusCode
from irtjax.estimators.driver import tree_where
from irtjax.estimators.posterior.nuts import LogDensity, Position, check_floating
from irtjax.estimators.settings import check_least, falling_rate

#: Share of the steps, the last, that is averaged and tested for a trend.
TAIL = 0.25
#: Size of the loadings at the start: at zero they would have no gradient.
_FIRST_LOADING = 0.1
_LOG_TWO_PI = 1.8378770664093453


class RaveledGaussian(NamedTuple):
    """A Gaussian over raveled positions: m, log s and L."""

    mean: Float[Array, " dims"]
    log_sd: Float[Array, " dims"]
    loading: Float[Array, "dims rank"]

    def sample(self, num: int, key: KeyArray) -> Float[Array, "num dims"]:
        """Independent draws."""
        own, shared = jax.random.split(key)
        size, rank = self.loading.shape
        noise = jax.random.normal(own, (num, size), self.mean.dtype)
        factors = jax.random.normal(shared, (num, rank), self.mean.dtype)
        return self.mean + jnp.exp(self.log_sd) * (noise + factors @ self.loading.T)

    def log_density(self, flat: Float[Array, " dims"]) -> Scalar:
        """Log density of N(m, S (I + L L') S), by Woodbury's identity."""
        size, rank = self.loading.shape
        gap = (flat - self.mean) * jnp.exp(-self.log_sd)
        square, log_det = gap @ gap, 2 * jnp.sum(self.log_sd)
        if rank:
            inner = jnp.eye(rank, dtype=gap.dtype) + self.loading.T @ self.loading
            root = jnp.linalg.cholesky(inner)
            along = self.loading.T @ gap
            shared = jax.scipy.linalg.solve_triangular(root, along, lower=True)
            square = square - shared @ shared
            log_det = log_det + 2 * jnp.sum(jnp.log(jnp.diagonal(root)))
        return -0.5 * (square + log_det + size * _LOG_TWO_PI)


class Gaussian(eqx.Module):
    """A Gaussian approximation of a posterior.

    `mean`, `own_sd` (roots of D) and `factor` (F', with a leading `[rank]` axis) are
    positions. `elbo` is the evidence lower bound in nats, a bound of the log evidence
    if the log density has all its constants, with its Monte Carlo error `elbo_error`.
    The traces have both by step, NaN where the gradient was not finite and the step was
    skipped. `log_ratio` is log p(x) - log q(x) at draws, with mean `elbo`. `status` is
    CONVERGED if over the last quarter of the steps the bound rose or fell by no more
    than two standard errors of that trend, or by less than the tolerance; NONFINITE if
    it was not finite there; else MAX_STEPS.
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
        total = lambda own, factor: jnp.sqrt(own**2 + jnp.sum(factor**2, axis=0))
        return jax.tree.map(total, self.own_sd, self.factor)

    def sample(self, num: int, *, key: KeyArray) -> Position:
        """Independent draws: a position whose arrays have a leading `[num]` axis."""
        unravel = ravel_pytree(self.mean)[1]
        return jax.vmap(unravel)(self._point.sample(num, key))

    def log_density(self, position: Position) -> Scalar:
        """Log density of the approximation at a position."""
        return self._point.log_density(ravel_pytree(position)[0])

    @property
    def _point(self) -> RaveledGaussian:
        """Its mean, log standard deviations and loadings as flat arrays."""
        mean, own_sd = ravel_pytree(self.mean)[0], ravel_pytree(self.own_sd)[0]
        factor = jax.vmap(lambda row: ravel_pytree(row)[0])(self.factor).T
        return RaveledGaussian(mean, jnp.log(own_sd), factor / own_sd[:, None])


class _State(NamedTuple):
    """Present point, mean of the points of the tail so far, and state of Adam."""

    point: RaveledGaussian
    average: RaveledGaussian
    optimiser: Any


class VariationalSearch(eqx.Module):
    """The settings of `irtjax.Variational`: Adam on the evidence lower bound.

    >>> VariationalSearch(rank=-1)
    Traceback (most recent call last):
        ...
    ValueError: Variational has rank=-1; it needs at least 0
    """

    rank: int = eqx.field(static=True, default=0)
    num_draws: int = eqx.field(static=True, default=8)
    num_steps: int = eqx.field(static=True, default=2000)
    learning_rate: float | Array = 0.05
    first_sd: float | Array = 0.1
    num_ratios: int = eqx.field(static=True, default=1000)
    tolerance: float | Array = 0.1

    def __check_init__(self):
        """Refuses settings that no search can have."""
        least = {"rank": 0, "num_draws": 2, "num_steps": 20, "num_ratios": 100}
        check_least("Variational", self, **least)

    @property
    def tail(self) -> int:
        """Number of steps at the end that are averaged."""
        return max(int(TAIL * self.num_steps), 5)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        # A short memory of squares: gradients shrink a thousandfold on the way.
        return optax.adam(falling_rate(self.learning_rate, self.num_steps), b2=0.99)

    def _begin(self, mean: Float[Array, " dims"], key: KeyArray) -> _State:
        """The state before the first step: small random loadings around a mean."""
        size, dtype = mean.shape[0], mean.dtype
        loading = jax.random.normal(key, (size, self.rank), dtype)
        log_sd = jnp.full(size, jnp.log(self.first_sd), dtype)
        point = RaveledGaussian(mean, log_sd, loading * (_FIRST_LOADING * size**-0.5))
        return _State(point, point, _as_dtype(self._optimiser.init(point), dtype))

    def _step(self, target, state: _State, index: Array, key: KeyArray):
        """One update, and the bound there with its error, by a few draws."""
        loss = lambda point: _bound(point, target, self.num_draws, key)
        gradient, ratios = jax.grad(loss, has_aux=True)(state.point)
        # The mean in units of the standard deviations.
        sd = jnp.exp(state.point.log_sd)
        gradient = gradient._replace(mean=gradient.mean * sd)
        moves, optimiser = self._optimiser.update(gradient, state.optimiser)
        assert isinstance(moves, RaveledGaussian)
        moves = moves._replace(mean=moves.mean * sd)
        add = lambda x, move: x + move.astype(x.dtype)
        point = jax.tree.map(add, state.point, moves)
        finite = jnp.isfinite(jnp.sum(ratios))
        finite &= jnp.isfinite(jnp.sum(ravel_pytree(point)[0]))
        point = tree_where(finite, point, state.point)
        optimiser = _as_dtype(optimiser, sd.dtype)
        optimiser = tree_where(finite, optimiser, state.optimiser)
        count = jnp.maximum(index + 1 - (self.num_steps - self.tail), 1)
        mean = lambda old, new: old + (new - old) / count.astype(sd.dtype)
        average = jax.tree.map(mean, state.average, point)
        elbo = jnp.where(finite, jnp.mean(ratios), jnp.nan)
        error = jnp.std(ratios, ddof=1) * self.num_draws**-0.5
        error = jnp.where(finite, error, jnp.nan)
        return _State(point, average, optimiser), (elbo, error)


def fit_variational(
    log_density: LogDensity,
    start: Position,
    data: Any = None,
    *,
    key: KeyArray,
    method: VariationalSearch | None = None,
) -> Gaussian:
    """The Gaussian nearest to a posterior. Pure: jit it with `log_density` static.

    The bound is the log evidence less the Kullback-Leibler divergence of q from the
    posterior; see the module.

    Args:
        log_density: `log_density(position, data)`, a pure function: the log density of
            the unconstrained position, with the Jacobian of transformed parameters.
        start: A position, any PyTree of floating arrays of one dtype.
        data: Any PyTree; nothing that depends on data should be inside `log_density`.
        key: Random key. The same key, start and data give the same result.
        method: Settings; `VariationalSearch()` when None.

    Returns:
        The approximation, at the average point of the last quarter of the steps.

    Raises:
        ValueError: If the start values are no floating arrays of one dtype.

    >>> normal = lambda x, scale: -0.5 * jnp.sum((x / scale) ** 2)
    >>> scale, key = jnp.array([1.0, 5.0]), jax.random.key(0)
    >>> method = VariationalSearch(num_steps=500)
    >>> found = fit_variational(normal, jnp.ones(2), scale, key=key, method=method)
    >>> found.sd.round(1).tolist()
    [1.0, 5.0]
    >>> found.sample(100, key=key).shape
    (100, 2)
    """
    method = method or VariationalSearch()
    check_floating(start)
    mean, unravel = ravel_pytree(jax.tree.map(jnp.asarray, start))
    target = lambda flat: log_density(unravel(flat), data)
    first, steps, last = jax.random.split(key, 3)
    body = lambda state, k: method._step(target, state, k, jax.random.fold_in(steps, k))
    state = method._begin(mean, first)
    state, traces = lax.scan(body, state, jnp.arange(method.num_steps))
    point, own_sd = state.average, jnp.exp(state.average.log_sd)
    draws = point.sample(method.num_ratios, last)
    # In batches: a position may have as many cells as the data.
    density = lax.map(target, draws, batch_size=method.num_draws)
    ratio = density.astype(mean.dtype) - jax.vmap(point.log_density)(draws)
    finite = jnp.all(jnp.isfinite(ratio))
    status = _verdict(*traces, method.tail, method.tolerance)
    return Gaussian(
        unravel(point.mean),
        unravel(own_sd),
        jax.vmap(unravel)((own_sd[:, None] * point.loading).T),
        jnp.mean(ratio),
        jnp.std(ratio, ddof=1) * method.num_ratios**-0.5,
        *traces,
        ratio,
        jnp.where(finite, status, Status.NONFINITE).astype(jnp.int32),
    )


def _as_dtype(tree: Any, dtype) -> Any:
    """Floating arrays of a state as one dtype, so that a loop can carry it."""
    floating = lambda x: jnp.issubdtype(jnp.result_type(x), jnp.floating)
    return jax.tree.map(lambda x: jnp.asarray(x, dtype if floating(x) else None), tree)


def _bound(point: RaveledGaussian, target, num_draws: int, key: KeyArray):
    """Minus the evidence lower bound by some draws, and its terms."""
    draws = point.sample(num_draws, key)
    # The score of q has mean zero and only adds noise: parameters of q are constants.
    constant = lax.stop_gradient(point)
    density = jax.vmap(target)(draws).astype(draws.dtype)
    ratios = density - jax.vmap(constant.log_density)(draws)
    return -jnp.mean(ratios), ratios


def _verdict(elbo: Array, error: Array, tail: int, tolerance) -> Array:
    """Whether the tail of the trace still rises or falls, beyond its error."""
    elbo, error = elbo[-tail:], error[-tail:]
    place = jnp.linspace(-0.5, 0.5, tail, dtype=elbo.dtype)
    square = jnp.sum(place**2)
    trend = place @ elbo / square
    trend_error = jnp.sqrt(place**2 @ error**2) / square
    settled = jnp.abs(trend) <= jnp.maximum(2 * trend_error, tolerance)
    ended = jnp.where(settled, Status.CONVERGED, Status.MAX_STEPS)
    return jnp.where(jnp.isfinite(trend), ended, Status.NONFINITE)
