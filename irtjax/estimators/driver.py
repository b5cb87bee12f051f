"""Problems, methods, fits and the one driver that owns the only loop.

A method improves parameters one pure step at a time and owns nothing but its state:
step it by hand, vmap it over weights, resume it. The driver stops it, watches for
non-finite values and keeps the trace.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar, Status, StatusCode
from irtjax.likelihood.problem import AnyProblem, Parameters
from irtjax.models.model import Model

#: A method's own state: any PyTree of arrays.
State = Any


class Progress(NamedTuple):
    """What the driver asks of a state after each step.

    Attributes:
        objective: Log-likelihood plus log prior, in nats; higher is better.
        residual: How far from a stationary point, in standard errors (EM, gradient)
            or as a relative KKT residual (MM); 0 is solved.
        converged: Whether the method's own criterion holds.
        stalled: Whether the objective no longer rises, by rounding or by noise.
    """

    objective: Scalar
    residual: Scalar
    converged: Array
    stalled: Array


class AbstractMethod(eqx.Module):
    """An estimator as four pure functions; the driver does the rest.

    Attributes:
        marginal: Whether abilities are integrated out on nodes in the state.
        fixed_length: Whether the number of steps is part of the method: the driver
            then scans over `max_steps` of them.
    """

    marginal: ClassVar[bool] = False
    fixed_length: ClassVar[bool] = False

    @abstractmethod
    def init(self, problem: AnyProblem, start: Any, key: KeyArray | None) -> State:
        """State before the first step."""

    @abstractmethod
    def step(self, problem: AnyProblem, state: State, key: KeyArray | None) -> State:
        """State after one more step."""

    @abstractmethod
    def progress(self, problem: AnyProblem, state: State) -> Progress:
        """Objective, residual and verdict of a state."""

    def finish(self, problem: AnyProblem, state: State) -> State:
        """The state `result` and the last `progress` are taken from.

        Called once, after the last step: what is too dear to judge after each.
        """
        return state

    @abstractmethod
    def result(self, problem: AnyProblem, state: State) -> tuple[Any, Array]:
        """Estimates, and the log-likelihood of each subject `[subjects]`."""


class Fit(eqx.Module):
    """Result of an estimator: a PyTree, so it vmaps, shards and saves.

    Attributes:
        parameters: Estimates.
        log_lik: Log-likelihood, without priors: marginal for marginal methods, joint
            for joint ones.
        subject_log_lik: `[subjects]` its terms (add them on the host in double
            precision when running in single).
        objective: Log-likelihood plus log priors at the estimates.
        residual: See `Progress`.
        status: A `Status` code.
        num_steps: Steps taken in all.
        trace: `[max_steps]` objective after each step, NaN where none was taken.
        state: The method's state; pass it to `run` to resume.
        model: The model fitted.
    """

    parameters: Parameters
    log_lik: Scalar
    subject_log_lik: Float[Array, " subjects"]
    objective: Scalar
    residual: Scalar
    status: StatusCode
    num_steps: Array
    trace: Float[Array, " max_steps"]
    state: State
    model: Model


class Loop(NamedTuple):
    """What the driver carries: enough to stop, save and go on as if unbroken."""

    state: State
    step: Array
    status: StatusCode
    trace: Array


def begin(
    problem: AnyProblem,
    method: AbstractMethod,
    start: Any,
    *,
    key: KeyArray | None = None,
    max_steps: int = 500,
) -> Loop:
    """The loop before its first step; see `run`."""
    state = method.init(problem, start, key)
    objective = method.progress(problem, state).objective
    return Loop(
        state,
        jnp.zeros((), jnp.int32),
        jnp.full((), Status.RUNNING, jnp.int32),
        jnp.full((max_steps,), jnp.nan, objective.dtype),
    )


def run(
    problem: AnyProblem,
    method: AbstractMethod,
    start: Any,
    *,
    key: KeyArray | None = None,
    max_steps: int = 500,
    resume: Loop | None = None,
    stop_after: Array | int | None = None,
) -> Fit:
    """Steps a method until it converges. Pure: jit, vmap or shard it.

    Per-step keys are `fold_in(key, step)`, so a resumed run repeats an unbroken one.

    Args:
        problem: Model, data and free mask.
        method: The estimator.
        start: Start values.
        key: Random key, required by methods that use randomness.
        max_steps: Step limit and length of the trace (static under jit).
        resume: The `loop_of(fit)` of an earlier, unfinished call.
        stop_after: Return when this many steps have been taken in all, with status
            RUNNING if unfinished; may be traced.

    Returns:
        The fit. Inspect `status`; nothing is raised for non-convergence.
    """
    loop = resume
    if loop is None:
        loop = begin(problem, method, start, key=key, max_steps=max_steps)
    limit = max_steps if stop_after is None else jnp.minimum(stop_after, max_steps)

    def unfinished(loop: Loop):
        return (loop.status == Status.RUNNING) & (loop.step < limit)

    def body(loop: Loop) -> Loop:
        step_key = None if key is None else jax.random.fold_in(key, loop.step)
        new = method.step(problem, loop.state, step_key)
        progress = method.progress(problem, new)
        finite = jnp.isfinite(progress.objective)
        state = jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, loop.state)
        status = jnp.where(progress.stalled, Status.STALLED, Status.RUNNING)
        status = jnp.where(progress.converged, Status.CONVERGED, status)
        status = jnp.where(finite, status, Status.NONFINITE).astype(jnp.int32)
        trace = loop.trace.at[loop.step].set(
            jnp.where(finite, progress.objective, jnp.nan)
        )
        return Loop(state, loop.step + 1, status, trace)

    if method.fixed_length and resume is None and stop_after is None:

        def scanned(loop: Loop, _):
            new = body(loop)
            going = loop.status == Status.RUNNING
            return jax.tree.map(lambda a, b: jnp.where(going, a, b), new, loop), None

        loop, _ = lax.scan(scanned, loop, length=max_steps)
    else:
        loop = lax.while_loop(unfinished, body, loop)
    state = method.finish(problem, loop.state)
    parameters, subject_log_lik = method.result(problem, state)
    progress = method.progress(problem, state)
    exhausted = (loop.status == Status.RUNNING) & (loop.step >= max_steps)
    last = jnp.where(progress.converged, Status.CONVERGED, Status.MAX_STEPS)
    status = jnp.where(exhausted, last, loop.status).astype(jnp.int32)
    weight = problem.data.subject_weight
    weighted = subject_log_lik if weight is None else subject_log_lik * weight
    return Fit(
        parameters,
        jnp.sum(weighted),
        subject_log_lik,
        progress.objective,
        progress.residual,
        status,
        loop.step,
        loop.trace,
        state,
        problem.model,
    )


def loop_of(fit: Fit) -> Loop:
    """The part of a fit that `run(..., resume=...)` continues from."""
    running = jnp.full_like(fit.status, Status.RUNNING)
    status = jnp.where(fit.status == Status.MAX_STEPS, running, fit.status)
    return Loop(fit.state, fit.num_steps, status, fit.trace)
