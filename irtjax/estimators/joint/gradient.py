"""Joint maximum likelihood or MAP of every response family by gradient methods.

The loss is minus the joint objective. A point is multiplied by the roots of its
information at the start, so a gradient is in units of approximate standard errors and a
learning rate of 0.1 means a tenth of one. Two more coordinates, a shift and a log scale
of ability, appear in the penalty alone: the likelihood is flat in their direction,
along which a gradient method would otherwise be slow.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar
from irtjax.data.responses import Responses
from irtjax.estimators.driver import Progress, RunSettings, tree_where
from irtjax.estimators.joint.base import AbstractPenalised, start_abilities
from irtjax.estimators.joint.objective import (
    ability_prior,
    check_penalty,
    joint_derivatives,
    joint_information,
    penalty_terms,
    reported,
)
from irtjax.likelihood.problem import Parameters, Problem, Start
from irtjax.numerics.kernels import weigh_rows


class JointPoint(NamedTuple):
    """Item coordinates, abilities, and the ability scale that the penalty sees."""

    coordinates: Float[Array, "items columns"]
    theta: Float[Array, " subjects"]
    shift: Scalar
    log_scale: Scalar


class Reference(NamedTuple):
    """Scale and offset of the loss, fixed at the start: `scaled = scale * point`.

    Differences from the start, term by term, keep small gains accurate in single
    precision. `log_prior` has a term for each subject and item.
    """

    scale: JointPoint
    log_lik: Float[Array, " subjects"]
    log_prior: Float[Array, " rows"]


class Context(NamedTuple):
    """What the loss needs in addition to the point; not kept in the state."""

    problem: Problem
    penalty: Array | float
    reference: Reference


@jax.custom_vjp
def loss(point: JointPoint, context: Context) -> Scalar:
    """Minus the joint objective, in nats relative to the start, at a scaled point."""
    # Differentiating through the scan would keep every block's intermediate values.
    return loss_and_gradient(point, context)[0]


def _loss_backward(gradient, cotangent):
    """The gradient of the forward pass, times the cotangent."""
    return jax.tree.map(lambda g: cotangent * g, gradient), None


loss.defvjp(lambda point, context: loss_and_gradient(point, context), _loss_backward)


def loss_and_gradient(point: JointPoint, context: Context) -> tuple[Scalar, JointPoint]:
    """The loss and its gradient in one pass; infinite and 0 where it does not exist."""
    problem, penalty = context.problem, context.penalty
    at = unscaled(point, context.reference)
    seen = joint_derivatives(problem.model, problem.data, at.coordinates, at.theta)
    gain_of_prior = lambda at: jnp.sum(
        folded_terms(problem, at) - context.reference.log_prior
    )
    prior_gain, by_prior = jax.value_and_grad(gain_of_prior)(at)
    gain = seen.log_lik - context.reference.log_lik
    gain = jnp.sum(weigh_rows(gain, problem.data.subject_weight))
    gain = gain + penalty * prior_gain
    by_prior = jax.tree.map(lambda g: penalty * g, by_prior)
    coordinates = by_prior.coordinates + seen.coordinates
    theta = by_prior.theta + seen.theta
    gradient = by_prior._replace(coordinates=coordinates, theta=theta)
    gradient = _downward(context, gradient)
    # Where probabilities do not exist (ordered intercepts out of order) the line
    # search must see a worse point, not a NaN.
    exists = jnp.isfinite(gain)
    gradient = jax.tree.map(lambda g: jnp.where(exists, g, 0), gradient)
    return jnp.where(exists, -gain, jnp.inf), gradient


def _downward(context: Context, gradient: JointPoint) -> JointPoint:
    """The gradient of the loss from that of the objective."""
    scaled = jax.tree.map(lambda g, s: -g / s, gradient, context.reference.scale)
    return mask_fixed(context.problem, scaled)


def batch_gradient(
    point: JointPoint, context: Context, batch_size: int, key: KeyArray
) -> JointPoint:
    """Unbiased estimate of the gradient from a random subset of subjects."""
    problem, data = context.problem, context.problem.data
    size = min(batch_size, data.num_subjects)
    chosen = jax.random.choice(key, data.num_subjects, (size,), replace=False)
    rows = (data.values, data.observed, data.trials), data.subject_weight
    cells, weight = jax.tree.map(lambda x: x[chosen], rows)
    batch = Responses(*cells, subject_weight=weight, item_weight=data.item_weight)
    at = unscaled(point, context.reference)
    seen = joint_derivatives(problem.model, batch, at.coordinates, at.theta[chosen])
    by_prior = jax.grad(folded_prior, argnums=1)(problem, at)
    by_prior = jax.tree.map(lambda g: context.penalty * g, by_prior)
    factor = data.num_subjects / size
    coordinates = factor * seen.coordinates + by_prior.coordinates
    theta = factor * (seen.theta + by_prior.theta[chosen])
    theta = jnp.zeros_like(at.theta).at[chosen].set(theta)
    return _downward(context, by_prior._replace(coordinates=coordinates, theta=theta))


def folded_prior(problem: Problem, point: JointPoint) -> Scalar:
    """Log priors of the same predictors on the shifted and scaled ability."""
    return jnp.sum(folded_terms(problem, point))


def folded_terms(problem: Problem, point: JointPoint) -> Float[Array, " rows"]:
    """The terms of `folded_prior`: of every subject, then of every item."""
    model = problem.model
    scale = jnp.exp(point.log_scale)
    if not model.family.has_slope:
        scale = jnp.ones_like(scale)
    coordinates, theta = point.coordinates, point.theta
    if not problem.anchored:
        coordinates = model.fold(coordinates, point.shift, scale)
        theta = (theta - point.shift) / scale
    return penalty_terms(problem, model.constrain(coordinates), theta)


def curvature_of(
    problem: Problem, penalty: Array | float, point: JointPoint
) -> JointPoint:
    """Information plus the curvature of the priors; positive everywhere."""
    model, data = problem.model, problem.data
    information = joint_information(model, data, point.coordinates, point.theta)
    log_prior = lambda row: model.log_prior(model.family.constrain(row))
    bend = jax.vmap(lambda row: jnp.diagonal(jax.hessian(log_prior)(row)))
    by_items = jnp.abs(penalty * bend(point.coordinates))
    by_items = weigh_rows(by_items, data.item_weight) + information.coordinates
    # A coordinate that the data do not identify must not diverge in one step.
    by_items = jnp.maximum(by_items, 1e-3 * jnp.mean(by_items, axis=0))
    weight = weigh_rows(jnp.ones_like(point.theta), data.subject_weight)
    by_theta = information.theta + penalty * weight / ability_prior(problem)[1] ** 2
    by_theta = jnp.maximum(by_theta, 1e-3 * jnp.mean(by_theta))

    def along(move):
        moved = point._replace(shift=move[0], log_scale=move[1])
        return folded_prior(problem, moved)

    move = jnp.stack([point.shift, point.log_scale])
    by_scale = jnp.abs(penalty * jnp.diagonal(jax.hessian(along)(move))) + 1
    return JointPoint(by_items, by_theta, by_scale[0], by_scale[1])


def mask_fixed(problem: Problem, move: JointPoint) -> JointPoint:
    """Zero where nothing may move; the scale is fixed as soon as an item is."""
    movable = jnp.all(problem.free) & ~jnp.asarray(problem.anchored)
    return JointPoint(
        jnp.where(problem.free, move.coordinates, 0),
        move.theta,
        jnp.where(movable, move.shift, 0),
        jnp.where(movable, move.log_scale, 0),
    )


def unscaled(point: JointPoint, reference: Reference) -> JointPoint:
    """The point in the model's own coordinates."""
    return jax.tree.map(jnp.divide, point, reference.scale)


def residual_of(
    gradient: JointPoint, reference: Reference, curvature: JointPoint
) -> Scalar:
    """Largest gradient over the root of its curvature: approximate standard errors."""
    largest = lambda g, s, c: jnp.max(jnp.abs(g * s) / jnp.sqrt(c))
    parts = jax.tree.map(largest, gradient, reference.scale, curvature)
    return jnp.max(jnp.stack(jax.tree.leaves(parts)))


class GradientState(NamedTuple):
    """State of the gradient method; points are in scaled coordinates.

    `value` is the loss at `point`, and `residual` the largest gradient of `best`, which
    has the lowest loss so far. `curvature` is the information of each coordinate,
    renewed now and then; `idle` counts steps since the best loss last fell.
    """

    point: JointPoint
    value: Scalar
    gradient: JointPoint
    best: JointPoint
    best_value: Scalar
    residual: Scalar
    reference: Reference
    curvature: JointPoint
    optimiser: Any
    idle: Array
    num_seen: Array


class Gradient(AbstractPenalised):
    """Joint MAP (penalty 0: joint maximum likelihood) by any optax optimiser.

    Maximises sum log p + penalty (log N(theta; 0, 1) + item log priors), a sum in nats,
    the first prior as given by `Problem.prior`.

    Attributes:
        optimiser: An optax optimiser; None for L-BFGS with a zoom line search.
        tolerance: Converged when every gradient is at most this many standard errors;
            None for 1e-3 (1e-2 in single precision).
        penalty: Weight of all log priors.
        batch_size: Subjects per step, drawn by key; None for all of them. The full
            objective and its gradient are then computed once per epoch.
        renew: Steps between evaluations of the information.
        patience: Steps without improvement after which it counts as stalled; None for
            3 with L-BFGS, whose line search then fails at rounding, and 200 otherwise.

    >>> import irtjax
    >>> rows = [[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]]
    >>> data = irtjax.Responses(jnp.array(rows, jnp.int8))
    >>> problem = irtjax.Problem.create(irtjax.MODELS["2pl"](), data)
    >>> start = irtjax.start_values(problem.model, data)
    >>> fit = eqx.filter_jit(irtjax.run)(problem, Gradient(), start)  # One program.
    >>> int(fit.status)  # Status.CONVERGED
    0
    """

    runs: ClassVar[RunSettings] = AbstractPenalised.runs._replace(max_steps=2000)

    optimiser: optax.GradientTransformation | None = eqx.field(
        static=True, default=None
    )
    tolerance: float | Array | None = None
    penalty: float = eqx.field(static=True, default=1.0)
    batch_size: int | None = eqx.field(static=True, default=None)
    renew: int = eqx.field(static=True, default=10)
    patience: int | None = eqx.field(static=True, default=None)

    @property
    def _optimiser(self) -> optax.GradientTransformationExtraArgs:
        chosen = self.optimiser or optax.lbfgs(memory_size=20)
        return optax.with_extra_args_support(chosen)

    def init(
        self, problem: Problem, start: Start, key: KeyArray | None
    ) -> GradientState:
        """State at the start values; a ValueError for settings that do not suit."""
        model, data = problem.model, problem.data
        check_penalty(model, self.penalty, problem.anchored)
        if self.batch_size is not None:
            if key is None:
                raise ValueError(
                    "mini-batches are drawn at random: pass run(..., key=)"
                )
            if self.optimiser is None:
                raise ValueError(
                    "L-BFGS needs the whole gradient: pass a first-order optimiser,"
                    " such as Gradient(optimiser=optax.adam(0.1), batch_size=...)"
                )
        coordinates = model.unconstrain(start.items)
        zero, none = jnp.zeros((), coordinates.dtype), jnp.zeros((), jnp.int32)
        point = JointPoint(coordinates, start_abilities(problem, start), zero, zero)
        penalty = jnp.asarray(self.penalty, coordinates.dtype)
        curvature = curvature_of(problem, penalty, point)
        scale = jax.tree.map(jnp.sqrt, curvature)
        log_lik = joint_derivatives(model, data, *point[:2]).log_lik
        reference = Reference(scale, log_lik, folded_terms(problem, point))
        context = Context(problem, penalty, reference)
        scaled = jax.tree.map(jnp.multiply, point, scale)
        value, gradient = loss_and_gradient(scaled, context)
        return GradientState(
            scaled,
            value,
            gradient,
            best=scaled,
            best_value=value,
            residual=residual_of(gradient, reference, curvature),
            reference=reference,
            curvature=curvature,
            optimiser=self._optimiser.init(scaled),
            idle=none,
            num_seen=none,
        )

    def step(
        self, problem: Problem, state: GradientState, key: KeyArray | None
    ) -> GradientState:
        """One update of the optimiser, and the gradient where it leads."""
        context = Context(problem, self.penalty, state.reference)
        gradient = state.gradient
        if self.batch_size is not None:
            assert key is not None
            gradient = batch_gradient(state.point, context, self.batch_size, key)
        update, optimiser = self._optimiser.update(
            gradient,
            state.optimiser,
            state.point,
            value=state.value,
            grad=gradient,
            value_fn=lambda at: loss(at, context),
        )
        update = mask_fixed(problem, cast(JointPoint, update))
        point = jax.tree.map(jnp.add, state.point, update)
        num_seen = state.num_seen + 1
        value, gradient, evaluated = self._evaluate(
            point, context, optimiser, state, num_seen
        )
        at = unscaled(point, state.reference)
        renewed = lambda: curvature_of(problem, context.penalty, at)
        due = evaluated & (num_seen % self.renew == 0)
        curvature = lax.cond(due, renewed, lambda: state.curvature)
        better = evaluated & (value < state.best_value)
        rounding = 4 * jnp.finfo(value.dtype).eps
        slack = rounding * jnp.linalg.norm(state.reference.log_lik)
        improved = evaluated & (value < state.best_value - slack)
        here = point, value, residual_of(gradient, state.reference, curvature)
        last = state.best, state.best_value, state.residual
        best, best_value, residual = tree_where(better, here, last)
        return state._replace(
            point=point,
            value=value,
            gradient=gradient,
            best=best,
            best_value=best_value,
            residual=residual,
            curvature=curvature,
            optimiser=optimiser,
            idle=jnp.where(improved, 0, state.idle + 1),
            num_seen=num_seen,
        )

    def _evaluate(self, point, context, optimiser, state, num_seen):
        """Loss and gradient at the new point, and whether they are up to date."""
        evaluate = lambda: loss_and_gradient(point, context)
        if self.batch_size is not None:
            epoch = -(-context.problem.data.num_subjects // self.batch_size)
            due = num_seen % epoch == 0
            return *lax.cond(due, evaluate, lambda: (state.value, state.gradient)), due
        # A line search has just evaluated the point it chose.
        get = optax.tree_utils.tree_get
        value, gradient = (get(optimiser, name) for name in ("value", "grad"))
        if value is None or gradient is None:
            value, gradient = evaluate()
        return value, gradient, jnp.ones((), bool)

    def goal(self, problem: Any, dtype: Any) -> Any:
        """The tolerance, by default that of the precision."""
        usual = 1e-3 if dtype == jnp.float64 else 1e-2
        return usual if self.tolerance is None else self.tolerance

    def progress(self, problem: Problem, state: GradientState) -> Progress:
        """Objective and residual of the best point."""
        log_lik = weigh_rows(state.reference.log_lik, problem.data.subject_weight)
        start = jnp.sum(log_lik) + self.penalty * jnp.sum(state.reference.log_prior)
        patience = self.patience
        if patience is None:
            patience = 3 if self.optimiser is None else 200
        dtype = state.residual.dtype
        objective, residual = start - state.best_value, state.residual
        solved = residual <= jnp.asarray(self.goal(problem, dtype), dtype)
        return Progress(objective, residual, solved, state.idle >= patience)

    def result(
        self, problem: Problem, state: GradientState
    ) -> tuple[Parameters, Array]:
        """Items, and standardised, oriented abilities (see `MM.result`)."""
        point = unscaled(state.best, state.reference)
        seen = joint_derivatives(problem.model, problem.data, *point[:2])
        return reported(problem, point.theta, point.coordinates), seen.log_lik
