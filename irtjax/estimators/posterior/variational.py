"""Stochastic variational inference: the Gaussian nearest to a posterior.

For any log density of an unconstrained position, what the sampler takes too. With
sizes of thousands of coordinates it is the cheap look: the approximation

    q(x) = N(m, D + F F'),  D diagonal, F of a few columns,

has the largest evidence lower bound E_q[log p(x) - log q(x)] that stochastic gradients
find. Draws are reparameterised, x = m + sqrt(D) e + F z (Kingma and Welling 2014),
and log q is differentiated through x alone (Roeder, Wu and Duvenaud 2017): the noise of
the gradient then vanishes where q is the posterior. D and F are written relative to
a standard deviation of each coordinate, and m moves in units of it, so that a learning
rate of 0.1 means a tenth of a posterior standard deviation.

A bound does not show how near the posterior is; `Gaussian.log_ratio` does, by
the tail of the importance ratios: see `irtjax.estimators.posterior.pareto_k`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar, Status
from irtjax.estimators.posterior.chains import LogDensity, Position
from irtjax.estimators.posterior.gaussian import (
    Gaussian,
    Point,
    gaussian_draws,
    log_normal,
    positions,
    standard_draws,
)

#: Share of the steps, the last, that is averaged and searched for a trend.
TAIL = 0.25
#: Of the loadings that a search starts from: at zero they would have no gradient.
_FIRST_LOADING = 0.1


class VariationalState(NamedTuple):
    """State of a search.

    Attributes:
        point: Where it is.
        average: Mean of the points of the last quarter of the steps, so far.
        optimiser: State of Adam.
        elbo: Evidence lower bound at the last point, by its draws.
        elbo_error: Its Monte Carlo standard error.
        num_seen: Steps taken.
    """

    point: Point
    average: Point
    optimiser: Any
    elbo: Scalar
    elbo_error: Scalar
    num_seen: Array


class VariationalSearch(eqx.Module):
    """The Gaussian that maximises the evidence lower bound, by Adam.

    Attributes:
        rank: Columns of F; 0 is mean field, under which coordinates are independent and
            standard deviations are those that remain when all others are held fixed.
        num_draws: Draws per step.
        num_steps: Steps.
        learning_rate: At first, in standard deviations per step; it falls to a
            hundredth along half a cosine.
        first_sd: Standard deviation of every coordinate at the start.
        num_ratios: Draws of the final approximation, for the bound and the ratios.
        tolerance: A trend of the bound by fewer nats does not matter.

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
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise ValueError(
                    f"Variational has {name}={getattr(self, name)}; it needs at least"
                    f" {smallest}"
                )

    @property
    def tail(self) -> int:
        """Number of steps at the end that are averaged."""
        return max(int(TAIL * self.num_steps), 5)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        def rate(count):
            share = jnp.minimum(count / self.num_steps, 1.0)
            return self.learning_rate * (
                0.01 + 0.99 * 0.5 * (1 + jnp.cos(jnp.pi * share))
            )

        # A short memory of squares: gradients shrink a thousandfold on the way.
        return optax.adam(rate, b2=0.99)

    def init(self, start: Position, *, key: KeyArray) -> VariationalState:
        """State at start values.

        Args:
            start: A position, any PyTree of floating arrays of one dtype.
            key: Random key.

        Raises:
            ValueError: If the start values are no floating arrays of one dtype.
        """
        dtypes = {jnp.result_type(leaf) for leaf in jax.tree.leaves(start)}
        if len(dtypes) != 1 or not jnp.issubdtype(min(dtypes, key=str), jnp.floating):
            raise ValueError(
                "the start values are not floating arrays of one dtype: convert them"
                " to that of the data"
            )
        mean = ravel_pytree(start)[0]
        size, dtype = mean.shape[0], mean.dtype
        loading = jax.random.normal(key, (size, self.rank), dtype)
        log_sd = jnp.full(size, jnp.log(self.first_sd), dtype)
        point = Point(mean, log_sd, loading * (_FIRST_LOADING * size**-0.5))
        zero = jnp.zeros((), dtype)
        optimiser = _as_dtype(self._optimiser.init(point), dtype)
        return VariationalState(
            point, point, optimiser, zero, zero, jnp.zeros((), jnp.int32)
        )

    def step(
        self,
        log_density: LogDensity,
        state: VariationalState,
        start: Position,
        data: Any,
        *,
        key: KeyArray,
    ) -> VariationalState:
        """One update by a few draws. Pure.

        Args:
            log_density: Log density of a position given the data.
            state: The state.
            start: Any position: only its structure is used.
            data: Any PyTree, passed on.
            key: Random key of this step.
        """
        target = _target(log_density, start, data)
        loss = lambda point: _bound(point, target, self.num_draws, key)  # noqa: E731
        (_, ratios), gradient = jax.value_and_grad(loss, has_aux=True)(state.point)
        # The mean in units of the standard deviations.
        sd = jnp.exp(state.point.log_sd)
        gradient = gradient._replace(mean=gradient.mean * sd)
        moves, optimiser = self._optimiser.update(gradient, state.optimiser)
        assert isinstance(moves, Point)
        moves = moves._replace(mean=moves.mean * sd)
        point = jax.tree.map(
            lambda x, move: x + move.astype(x.dtype), state.point, moves
        )
        sound = jnp.isfinite(jnp.sum(ratios)) & jnp.isfinite(
            jnp.sum(ravel_pytree(point)[0])
        )
        keep = partial(jax.tree.map, lambda new, old: jnp.where(sound, new, old))
        point = keep(point, state.point)
        optimiser = keep(_as_dtype(optimiser, sd.dtype), state.optimiser)
        seen = state.num_seen + 1
        count = jnp.maximum(seen - (self.num_steps - self.tail), 1).astype(sd.dtype)
        average = jax.tree.map(
            lambda old, new: old + (new - old) / count, state.average, point
        )
        nan = lambda value: jnp.where(sound, value, jnp.nan)  # noqa: E731
        error = jnp.std(ratios, ddof=1) * self.num_draws**-0.5
        return VariationalState(
            point, average, optimiser, nan(jnp.mean(ratios)), nan(error), seen
        )

    def finish(
        self,
        log_density: LogDensity,
        state: VariationalState,
        start: Position,
        data: Any,
        traces: tuple[Float[Array, " steps"], Float[Array, " steps"]],
        *,
        key: KeyArray,
    ) -> Gaussian:
        """The approximation at the average point, with its bound and ratios.

        Args:
            log_density: Log density of a position given the data.
            state: After the last step.
            start: Any position: only its structure is used.
            data: Any PyTree, passed on.
            traces: `elbo` and `elbo_error` of the states.
            key: Random key.
        """
        point, (unravel, dtype) = state.average, _structure(start)
        target = _target(log_density, start, data)
        draws, own_density = gaussian_draws(point, self.num_ratios, key)
        # Not all at once: a position may have as many cells as the data.
        density = lax.map(target, draws, batch_size=self.num_draws)
        ratio = density.astype(dtype) - own_density
        own_sd = jnp.exp(point.log_sd)
        finite = jnp.all(jnp.isfinite(ratio))
        status = _verdict(*traces, self.tail, self.tolerance)
        return Gaussian(
            unravel(point.mean),
            unravel(own_sd),
            jax.vmap(unravel)((own_sd[:, None] * point.loading).T),
            jnp.mean(ratio),
            jnp.std(ratio, ddof=1) * self.num_ratios**-0.5,
            *traces,
            ratio,
            jnp.where(finite, status, Status.NONFINITE).astype(jnp.int32),
        )


def fit_variational(
    log_density: LogDensity,
    start: Position,
    data: Any = None,
    *,
    key: KeyArray,
    method: VariationalSearch | None = None,
) -> Gaussian:
    """The Gaussian nearest to a posterior. Pure: jit it with `log_density` static.

    Maximises E_q[log p(x) - log q(x)], which is the log evidence less the
    Kullback-Leibler divergence of q from the posterior; see the module.

    Args:
        log_density: `log_density(position, data)`, a pure function: the log density of
            the unconstrained position, with the Jacobian of whatever it transforms.
        start: A position, any PyTree of floating arrays of one dtype.
        data: Any PyTree; nothing that depends on data should be inside `log_density`.
        key: Random key. The same key, start and data give the same result.
        method: Settings; `VariationalSearch()` when None.

    Returns:
        The approximation.

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
    method = VariationalSearch() if method is None else method
    start = jax.tree.map(jnp.asarray, start)
    begin, steps, last = jax.random.split(key, 3)
    state = method.init(start, key=begin)

    def body(state, index):
        step_key = jax.random.fold_in(steps, index)
        state = method.step(log_density, state, start, data, key=step_key)
        return state, (state.elbo, state.elbo_error)

    state, traces = lax.scan(body, state, jnp.arange(method.num_steps))
    return method.finish(log_density, state, start, data, traces, key=last)


def _structure(start: Position) -> tuple[Callable[[Array], Position], Any]:
    flat, unravel = ravel_pytree(start)
    return unravel, flat.dtype


def _target(log_density: LogDensity, start: Position, data: Any):
    unravel, _ = _structure(start)
    return lambda flat: log_density(unravel(flat), data)


def _as_dtype(tree: Any, dtype) -> Any:
    """Floating arrays of a state as one dtype, so that it can be carried in a loop."""
    floating = lambda x: jnp.issubdtype(jnp.result_type(x), jnp.floating)  # noqa: E731
    return jax.tree.map(
        lambda x: jnp.asarray(x, dtype) if floating(x) else jnp.asarray(x), tree
    )


def _bound(point: Point, target, num_draws: int, key: KeyArray):
    """Minus the evidence lower bound by some draws, and its terms."""
    draws = positions(point, *standard_draws(point, num_draws, key))
    # The score of q has mean zero and only adds noise: parameters of q stand still.
    still = lax.stop_gradient(point)
    density = jax.vmap(target)(draws).astype(draws.dtype)
    ratios = density - jax.vmap(partial(log_normal, still))(draws)
    return -jnp.mean(ratios), ratios


def _verdict(elbo: Array, error: Array, tail: int, tolerance) -> Array:
    """Whether the last part of the trace still rises or falls, beyond its error."""
    elbo, error = elbo[-tail:], error[-tail:]
    place = jnp.linspace(-0.5, 0.5, tail, dtype=elbo.dtype)
    square = jnp.sum(place**2)
    trend = place @ elbo / square
    trend_error = jnp.sqrt(place**2 @ error**2) / square
    settled = jnp.abs(trend) <= jnp.maximum(2 * trend_error, tolerance)
    ended = jnp.where(settled, Status.CONVERGED, Status.MAX_STEPS)
    return jnp.where(jnp.isfinite(trend), ended, Status.NONFINITE)
