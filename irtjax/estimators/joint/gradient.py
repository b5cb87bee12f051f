"""Joint maximum likelihood or MAP of every response family by gradient methods.

The optimiser moves in coordinates scaled by the root of their information at the
start, so that a gradient is in units of approximate standard errors and a learning
rate of 0.1 means a tenth of one.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array

from irtjax._types import KeyArray, Scalar
from irtjax.estimators.driver import AbstractMethod, Progress, Run, Solution
from irtjax.estimators.joint.ability_prior import with_ability_prior
from irtjax.estimators.joint.loss import (
    Context,
    JointPoint,
    Reference,
    batch_gradient,
    curvature_of,
    folded_prior,
    loss,
    loss_and_gradient,
    mask_fixed,
    residual_of,
    unscaled,
    weighted,
)
from irtjax.estimators.joint.objective import check_penalty, identify, joint_derivatives
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Parameters, Problem, Start, report_scale


class GradientState(NamedTuple):
    """State of the gradient method; points are in scaled coordinates.

    Attributes:
        point: Present point.
        value: Loss there, in nats below the start.
        gradient: Its gradient there.
        best: The point with the lowest loss seen.
        best_value: Its loss.
        residual: Largest gradient at `best`, in approximate standard errors.
        reference: Scale and origin of the loss.
        curvature: Information of each coordinate, renewed now and then.
        optimiser: The optimiser's state.
        idle: Steps since the best loss last fell.
        num_seen: Steps taken.
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


class Gradient(AbstractMethod):
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

    >>> from irtjax.data.responses import Responses
    >>> from irtjax.likelihood.problem import Problem
    >>> from irtjax.estimators.driver import run
    >>> from irtjax.models.catalogue import two_parameter
    >>> rows = [[1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]]
    >>> data = Responses(jnp.array(rows, jnp.int8))
    >>> problem = Problem.create(two_parameter(), data)
    >>> start = start_values(problem.model, data)
    >>> fit = eqx.filter_jit(run)(problem, Gradient(), start)  # One program.
    >>> int(fit.status)  # Status.CONVERGED
    0
    """

    max_steps: ClassVar[int] = 2000

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
        chosen = self.optimiser
        if chosen is None:
            chosen = optax.lbfgs(memory_size=20)
        return optax.with_extra_args_support(chosen)

    def suited(self, model: Any, num_subjects: int) -> Gradient:
        """Penalises abilities as well as items, or neither: plain joint likelihood."""
        return Gradient(penalty=1.0 if model.priors else 0.0)

    def check(self, problem: Problem) -> None:
        """Refuses anchors, which do not let a penalty of abilities be undone."""
        super().check(problem)
        if problem.anchored and self.penalty > 0:
            raise ValueError(
                f"method {self.name!r} shrinks abilities, which anchors do not let it"
                " undo (free slopes came out a third too large with 30 items): use"
                " method='em', or priors=None where each subject met hundreds of items"
            )

    def solve(self, problem: Problem, start: Start, run: Run) -> Solution:
        """Drives the method, with a prior of abilities that suits their scale."""
        problem = with_ability_prior(problem, self.penalty, start)
        return super().solve(problem, start, run)

    def init(
        self, problem: Problem, start: Start, key: KeyArray | None
    ) -> GradientState:
        """State at the start values.

        Raises:
            ValueError: If the penalty leaves the scale free, or mini-batches are used
                without a key or with L-BFGS.
        """
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
        dtype = coordinates.dtype
        theta = start.theta
        if theta is None:
            theta = start_values(model, data, dtype=dtype).theta
        zero = jnp.zeros((), dtype)
        point = JointPoint(coordinates, jnp.asarray(theta, dtype), zero, zero)
        penalty = jnp.asarray(self.penalty, dtype)
        curvature = curvature_of(problem, penalty, point)
        scale = jax.tree.map(jnp.sqrt, curvature)
        log_lik = joint_derivatives(model, data, point.coordinates, point.theta).log_lik
        log_prior = folded_prior(problem, point)
        reference = Reference(scale, log_lik, log_prior)
        context = Context(problem, penalty, reference)
        scaled = jax.tree.map(jnp.multiply, point, scale)
        value, gradient = loss_and_gradient(scaled, context)
        return GradientState(
            scaled,
            value,
            gradient,
            scaled,
            value,
            residual_of(gradient, context.reference, curvature),
            reference,
            curvature,
            self._optimiser.init(scaled),
            jnp.zeros((), jnp.int32),
            jnp.zeros((), jnp.int32),
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
        curvature = lax.cond(
            evaluated & (num_seen % self.renew == 0),
            lambda: curvature_of(
                problem, context.penalty, unscaled(point, state.reference)
            ),
            lambda: state.curvature,
        )
        better = evaluated & (value < state.best_value)
        slack = (
            4 * jnp.finfo(value.dtype).eps * jnp.linalg.norm(state.reference.log_lik)
        )
        improved = evaluated & (value < state.best_value - slack)
        residual = residual_of(gradient, context.reference, curvature)
        pick = lambda a, b: jax.tree.map(  # noqa: E731
            lambda x, y: jnp.where(better, x, y), a, b
        )
        return GradientState(
            point,
            value,
            gradient,
            pick(point, state.best),
            pick(value, state.best_value),
            pick(residual, state.residual),
            state.reference,
            curvature,
            optimiser,
            jnp.where(improved, 0, state.idle + 1),
            num_seen,
        )

    def _evaluate(self, point, context, optimiser, state, num_seen):
        """Loss and gradient at the new point, and whether they are up to date."""
        if self.batch_size is not None:
            epoch = -(-context.problem.data.num_subjects // self.batch_size)
            due = num_seen % epoch == 0
            value, gradient = lax.cond(
                due,
                lambda: loss_and_gradient(point, context),
                lambda: (state.value, state.gradient),
            )
            return value, gradient, due
        always = jnp.ones((), bool)
        value = optax.tree_utils.tree_get(optimiser, "value")
        gradient = optax.tree_utils.tree_get(optimiser, "grad")
        if value is None or gradient is None:
            return *loss_and_gradient(point, context), always
        # The line search has just evaluated the point it chose.
        return value, gradient, always

    def progress(self, problem: Problem, state: GradientState) -> Progress:
        """Objective and residual of the best point."""
        at_start = weighted(problem.data, state.reference.log_lik)
        start = jnp.sum(at_start) + self.penalty * state.reference.log_prior
        patience = self.patience
        if patience is None:
            patience = 3 if self.optimiser is None else 200
        dtype = state.residual.dtype
        default = 1e-3 if dtype == jnp.float64 else 1e-2
        tolerance = default if self.tolerance is None else self.tolerance
        return Progress(
            start - state.best_value,
            state.residual,
            state.residual <= jnp.asarray(tolerance, dtype),
            state.idle >= patience,
        )

    def result(
        self, problem: Problem, state: GradientState
    ) -> tuple[Parameters, Array]:
        """Items, and standardised, oriented abilities (see `MM.result`)."""
        model = problem.model
        point = unscaled(state.best, state.reference)
        log_lik = joint_derivatives(
            model, problem.data, point.coordinates, point.theta
        ).log_lik
        slope = model.constrain(point.coordinates).discrimination
        scale = identify(problem, point.theta, slope)
        coordinates = model.fold(point.coordinates, scale.shift, scale.scale)
        # Fixed coordinates come back as they were given, not through a round trip.
        movable = ~jnp.asarray(problem.anchored) & jnp.all(problem.free)
        coordinates = jnp.where(movable, coordinates, point.coordinates)
        theta = (point.theta - scale.shift) / scale.scale
        items = model.constrain(coordinates)
        found = Parameters(items, scale.population, theta)
        return report_scale(problem, found), log_lik
