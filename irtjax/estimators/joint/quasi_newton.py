r"""Joint MAP of factor models of right and wrong responses by a quasi-Newton method.

L-BFGS, by optax, in coordinates z = x / s, with s the approximate standard error of x,
a slope, an intercept or an ability: 1 / s^2 = prior precision + `CURVATURE` n, n the
responses of the row. The length of a step meets the weak Wolfe conditions, found by
doubling and halving (Lewis and Overton 2013). A step of the driver is one pass over the
data, which the line searches of optax are not.

It ends at the optima of `MM`, in less time where factors are weak. There the objective
has saddle points, and a fixed-point iteration, even an accelerated one, leaves them
slowly. Of the 48 fits of `irtjax dimensions` to MATH-500, 158 x 500 and 1 to 8 factors,
5 of MM did not converge in 1,000 steps; all of these do. Where both converge the
objectives are the same to 4e-4 nats.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar
from irtjax.estimators.driver import AbstractMethod, Progress, tree_where
from irtjax.estimators.joint.base import start_abilities
from irtjax.estimators.joint.bound import BilinearParameters
from irtjax.estimators.joint.cells import LOGIT
from irtjax.estimators.joint.constraints import free_mask
from irtjax.estimators.joint.mm import factor_parameters
from irtjax.estimators.joint.objective import penalty_terms
from irtjax.estimators.joint.sparse import sweep_responses
from irtjax.likelihood.problem import Parameters, Problem, Start
from irtjax.numerics.kernels import weigh_rows

#: Mean of p (1 - p) of a response, from which standard errors are approximated.
CURVATURE = 0.1
#: Shares of the slope at the start of a search: the gain is at least the first of it,
#: and the slope at its end at most the second.
ASCENT, FLATTER = 1e-4, 0.9
#: Points of a search without an acceptable one, after which it ends.
MOST_POINTS = 30


class _Seen(NamedTuple):
    """At a point: terms of the objective by subject, and subject and item; gradient.

    The gradient is flat, and in standard errors.
    """

    log_lik: Float[Array, " subjects"]
    log_prior: Float[Array, " rows"]
    gradient: Float[Array, " size"]


class QuasiNewtonState(NamedTuple):
    """State of the method: the best point, and the search from it.

    The search goes along `direction`, in which the objective rises by `rise`; the
    length is between `low` and `high`, and `length` is tried next. `memory` has the
    last differences of points and of gradients.
    """

    best: BilinearParameters
    seen: _Seen
    objective: Scalar
    scale: Float[Array, " size"]
    direction: Float[Array, " size"]
    rise: Scalar
    low: Scalar
    high: Scalar
    length: Scalar
    memory: optax.OptState
    refused: Array


class QuasiNewton(AbstractMethod):
    """Joint MAP of a logistic factor model with slopes of any sign; see the module.

    Maximises sum log p + log N(theta; 0, I) + item log priors. The residual is the
    largest gradient in approximate standard errors of its coordinate. With t of it in
    each of n coordinates the objective is about n t^2 / 2 below its maximum: for 5,000
    and 1e-3 a four-hundredth of a nat.

    Attributes:
        tolerance: Converged when the residual is at most this.
        memory: Number of differences that the curvature is estimated from.
    """

    several: ClassVar[bool] = True
    tolerance: float | Array = 1e-3
    memory: int = eqx.field(static=True, default=10)

    def init(
        self, problem: Problem, start: Start, key: KeyArray | None
    ) -> QuasiNewtonState:
        """State at the start values."""
        items, theta = start.items, start_abilities(problem, start)
        point = BilinearParameters(items.discrimination, items.intercept, theta)
        scale = _standard_errors(problem, point)
        seen = _evaluate(problem, point, scale)
        zero = jnp.zeros_like(seen.gradient[0])
        log_lik = weigh_rows(seen.log_lik, problem.data.subject_weight)
        standard = _standard(point, scale)
        # The first direction is the gradient, at most of length 1.
        down, memory = self._solver.update(
            -seen.gradient, self._solver.init(standard), standard
        )
        direction = -jnp.asarray(down)
        return QuasiNewtonState(
            point,
            seen,
            objective=jnp.sum(log_lik) + jnp.sum(seen.log_prior),
            scale=scale,
            direction=direction,
            rise=direction @ seen.gradient,
            low=zero,
            high=zero + jnp.inf,
            length=zero + 1,
            memory=memory,
            refused=jnp.zeros((), jnp.int32),
        )

    @property
    def _solver(self) -> optax.GradientTransformation:
        """The estimate of the curvature."""
        return optax.scale_by_lbfgs(self.memory)

    def step(
        self, problem: Problem, state: QuasiNewtonState, key: KeyArray | None
    ) -> QuasiNewtonState:
        """Evaluates one point of the search; from an acceptable one the next begins."""
        flat, unravel = ravel_pytree(state.best)
        length = state.length
        point = unravel(flat + length * state.scale * state.direction)
        seen = _evaluate(problem, point, state.scale)
        gain, slack = _gain(problem, seen, state.seen)
        high_enough = gain >= ASCENT * length * state.rise - slack
        flat_enough = seen.gradient @ state.direction <= FLATTER * state.rise
        # Out of the search: at a point that is higher, if not by as much as it should.
        last = state.refused + 1 >= MOST_POINTS
        accepted = jnp.isfinite(gain) & high_enough & (flat_enough | last)
        begun = self._begun(state, point, seen, gain)
        low = jnp.where(high_enough, length, state.low)
        high = jnp.where(high_enough, state.high, length)
        longer = jnp.where(jnp.isinf(high), 2 * length, (low + high) / 2)
        going = state._replace(
            low=low, high=high, length=longer, refused=state.refused + 1
        )
        return tree_where(accepted, begun, going)

    def _begun(
        self,
        state: QuasiNewtonState,
        point: BilinearParameters,
        seen: _Seen,
        gain: Scalar,
    ) -> QuasiNewtonState:
        """The search that begins at a point."""
        memory: Any
        standard = _standard(point, state.scale)
        down, memory = self._solver.update(-seen.gradient, state.memory, standard)
        direction = -jnp.asarray(down)
        # Without the Wolfe conditions the curvature may be estimated to be negative.
        upward = direction @ seen.gradient > 0
        longest = jnp.maximum(jnp.linalg.norm(seen.gradient), 1)
        direction = jnp.where(upward, direction, seen.gradient / longest)
        weights = jnp.where(upward, memory.weights_memory, 0)
        memory = memory._replace(weights_memory=weights)
        return state._replace(
            best=point,
            seen=seen,
            objective=state.objective + gain,
            direction=direction,
            rise=direction @ seen.gradient,
            low=jnp.zeros_like(state.low),
            high=jnp.full_like(state.high, jnp.inf),
            length=jnp.ones_like(state.length),
            memory=memory,
            refused=jnp.zeros_like(state.refused),
        )

    def progress(self, problem: Problem, state: QuasiNewtonState) -> Progress:
        """Objective, residual and verdict of the best point."""
        residual = jnp.max(jnp.abs(state.seen.gradient))
        solved = residual <= jnp.asarray(self.tolerance, residual.dtype)
        return Progress(state.objective, residual, solved, state.refused >= MOST_POINTS)

    def result(
        self, problem: Problem, state: QuasiNewtonState
    ) -> tuple[Parameters, Array]:
        """Items and abilities as `MM` gives them."""
        return factor_parameters(problem, state.best), state.seen.log_lik


def _standard(point: BilinearParameters, scale: Array) -> Array:
    """The point in standard errors, flat."""
    return ravel_pytree(point)[0] / scale


def _prior(problem: Problem, point: BilinearParameters) -> Array:
    """Log priors of subjects and items."""
    items = LOGIT.join(point.discrimination, point.intercept, None)
    return penalty_terms(problem, items, point.theta)


def _evaluate(problem: Problem, point: BilinearParameters, scale: Array) -> _Seen:
    """Objective and gradient at a point, in one pass over the data."""
    data = problem.data
    # No curvature is used, and a common one costs least.
    gradients = sweep_responses(data, point, 1.0, LOGIT, common=True)
    log_prior, pull = jax.vjp(lambda at: _prior(problem, at), point)
    (by_prior,) = pull(jnp.ones_like(log_prior))
    items = weigh_rows(gradients.items.gradient, data.item_weight)
    subjects = weigh_rows(gradients.subjects.gradient, data.subject_weight)
    rows = by_prior.stacked + items
    rows = jnp.where(free_mask(problem), rows, 0)
    gradient = BilinearParameters(rows[:, 1:], rows[:, 0], by_prior.theta + subjects)
    return _Seen(gradients.log_lik, log_prior, ravel_pytree(gradient)[0] * scale)


def _gain(problem: Problem, new: _Seen, old: _Seen) -> tuple[Scalar, Scalar]:
    """Difference of two objectives, term by term, and its rounding."""
    weight = problem.data.subject_weight
    gain = jnp.sum(weigh_rows(new.log_lik - old.log_lik, weight))
    gain = gain + jnp.sum(new.log_prior - old.log_prior)
    terms = jnp.concatenate([weigh_rows(new.log_lik, weight), new.log_prior])
    return gain, 4 * jnp.finfo(gain.dtype).eps * jnp.linalg.norm(terms)


def _standard_errors(problem: Problem, point: BilinearParameters) -> Array:
    """Approximate standard errors of all coordinates, flat."""
    data: Any = problem.data
    ones = jax.tree.map(jnp.ones_like, point)
    gradient = jax.grad(lambda at: jnp.sum(_prior(problem, at)))
    # Priors are of one coordinate each, so that this is the diagonal.
    _, bend = jax.jvp(gradient, (point,), (ones,))
    seen = data.exposures(point.theta.dtype)
    items, subjects = (CURVATURE * count for count in seen)
    by_data = BilinearParameters(items[:, None], items, subjects[:, None])
    error = lambda known, bend: 1 / jnp.sqrt(jnp.maximum(known - bend, 1e-6))
    return ravel_pytree(jax.tree.map(error, by_data, bend))[0]
