"""Base classes of methods, their results, and the loop that runs them.

A method is a pure step on a state: step it by hand, vmap it over weights, or resume it.
The loop stops it, checks for non-finite values and keeps the trace.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import KeyArray, RandomKey, Scalar, Status, StatusCode
from irtjax.estimators import saved_loops
from irtjax.estimators.acceptance import (
    check_common,
    check_dimensions,
    check_joint,
    check_suits,
)
from irtjax.estimators.estimates import Estimates, Nodes
from irtjax.estimators.item_estimates import item_estimates
from irtjax.estimators.settings import check_rate
from irtjax.estimators.timing import Clock
from irtjax.likelihood.problem import AnyProblem, Parameters
from irtjax.models.model import Model
from irtjax.numerics.precision import full_precision
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.progress import is_watched, note_share
from irtjax.numerics.random_keys import as_key

if TYPE_CHECKING:
    from irtjax.data.table import ResponseTable

#: A method's own state: any PyTree of arrays.
State = Any


class Progress(NamedTuple):
    """What the driver reads of a state after each step.

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


class RunSettings(NamedTuple):
    """What the class of a method states about its runs.

    Attributes:
        max_steps: Step limit where `irtjax.fit` is given none.
        limit: Name of the setting that limits the steps, for messages.
        lengths: Settings that determine the number of steps, where no limit applies:
            `irtjax.fit` then refuses `max_steps`.
        options: Settings of a fit by this method, not fields of it, and their defaults.
        scanned: Whether the number of steps is part of the method: the driver then
            scans over `max_steps` of them.
    """

    max_steps: int = 1000
    limit: str = "max_steps"
    lengths: tuple[str, ...] = ()
    options: Mapping[str, Any] = MappingProxyType({})
    scanned: bool = False


class AbstractEstimator(eqx.Module):
    """Base class of methods: solves a problem and returns estimates.

    Attributes:
        marginal: Whether abilities are integrated out; else they are parameters.
        multilevel: Whether items are integrated out: the problem is then a
            `MultilevelProblem`, whatever the model.
        several: Whether it fits models with several abilities.
        runs: Limits of the steps and options.
    """

    marginal: ClassVar[bool] = False
    multilevel: ClassVar[bool] = False
    several: ClassVar[bool] = False
    runs: ClassVar[RunSettings] = RunSettings()

    def __check_init__(self):
        """Refuses a tolerance that is no number."""
        check_rate("tolerance", getattr(self, "tolerance", None), positive=False)

    @property
    def name(self) -> str:
        """The name that `irtjax.fit` records."""
        return type(self).__name__.lower()

    def suited(self, model: Any, num_subjects: int) -> AbstractEstimator:
        """The method with the settings that suit a model: used for methods by name."""
        return self

    def adapted(self, model: Model) -> Model:
        """The model with weak priors that this method can use."""
        return model

    def priors_of(self, model: Model) -> Mapping[str, Any]:
        """The priors of items that enter the objective, by name of the parameter."""
        return model.priors

    def share_of_cells(self, model: Model) -> float:
        """Share of observed cells up to which `SparseResponses` are the quicker way.

        0 if the method takes none of this model.
        """
        return 0.0

    def divides(self, model: Any) -> bool:
        """Whether passes over the data of a model divide over devices."""
        return False

    def subject_order(self, table: ResponseTable) -> np.ndarray | None:
        """`[subjects]` the order in which they are solved faster; None for theirs."""
        return None

    def padded(self, problem: AnyProblem, dtype: Any) -> AnyProblem:
        """The problem in the size that the method solves it; see `pad_problem`."""
        return problem

    def by_group(self, codes: np.ndarray, names: tuple[str, ...]) -> AbstractEstimator:
        """The method with a population for each group; `codes` are `[subjects]`."""
        raise ValueError(f"groups need method='em', not {self.name!r}")

    def prepared(self, problem: AnyProblem) -> AnyProblem:
        """The problem in the form that the method solves."""
        return problem

    def check(self, problem: AnyProblem) -> None:
        """Refuses problems that the method does not solve: a ValueError in one line.

        `irtjax.fit` calls it before it computes start values and fixes anchors, and
        `run` before the first step, under `jit` too: it may not read values of arrays.
        Both complete an `UnsuitedProblem` by the methods that suit.
        """
        check_dimensions(self, problem)
        check_common(self, problem)

    def check_anchors(self, problem: AnyProblem) -> None:
        """Refuses anchors with which `irtjax.fit` would mislead; `run` takes them."""

    def saving(self, options: Mapping[str, Any]) -> AbstractContextManager[None]:
        """What `irtjax.fit` does around `solve` to save it on its way."""
        return nullcontext()

    @abstractmethod
    def solve(self, problem: AnyProblem, start: Any, run: Run) -> Solution:
        """The fit, with reports on the way. Not for use under `jit`."""

    @abstractmethod
    def estimates(self, problem: AnyProblem, solution: Solution, run: Run) -> Estimates:
        """Point estimates, abilities and errors: what a calibration is built from."""

    def record(self) -> dict[str, Any]:
        """Settings that the record of a fit states."""
        return {}


#: Settings of fits by methods that estimate items as parameters.
ITEM_OPTIONS: Mapping[str, Any] = MappingProxyType(
    {
        "anchor": None,
        "start": "proportions",
        "standard_errors": "observed",
        "item_uncertainty": True,
    }
)


class AbstractMethod(AbstractEstimator):
    """A method as four pure functions; the driver does the rest."""

    runs: ClassVar[RunSettings] = RunSettings(
        options=MappingProxyType({**ITEM_OPTIONS, **saved_loops.OPTIONS})
    )

    @abstractmethod
    def init(self, problem: AnyProblem, start: Any, key: KeyArray | None) -> State:
        """State before the first step."""

    @abstractmethod
    def step(self, problem: AnyProblem, state: State, key: KeyArray | None) -> State:
        """State after one more step."""

    @abstractmethod
    def progress(self, problem: AnyProblem, state: State) -> Progress:
        """Objective, residual and verdict of a state."""

    def with_pass(self, problem: AnyProblem, state: State | None) -> AnyProblem:
        """The problem of a step under `jit`: with the sums of a pass, if data need it.

        Passes over streamed responses are made on the host, before each step. None
        stands for the state before the first.
        """
        if problem.data.is_streamed:
            problem.data.refuse()
        return problem

    def finish(self, problem: AnyProblem, state: State) -> State:
        """The last state, as `result` sees it: for checks too slow in each step."""
        return state

    @abstractmethod
    def result(self, problem: AnyProblem, state: State) -> tuple[Any, Array]:
        """Estimates, and the log-likelihood of each subject `[subjects]`."""

    def nodes_of(self, state: State) -> Nodes | None:
        """Nodes that a marginal method integrated abilities on; None for others."""
        return None

    def goal(self, problem: Any, dtype: Any) -> Any:
        """The `measure` at which a fit ends; None where there is none.

        With `num_planned` it is for the share done that progress shows, and for nothing
        else.
        """
        return getattr(self, "tolerance", None)

    def measure(self, fit: Fit) -> Array:
        """What falls to `goal` while a fit proceeds; the residual of most methods."""
        return fit.residual

    def weight_of(self, problem: AnyProblem) -> Array | None:
        """The weight of each term of the log-likelihood; None for 1 each."""
        return problem.data.subject_weight

    @property
    def num_planned(self) -> int:
        """Steps that a fit takes before it ends, whatever its residual; 0 if none."""
        return 0

    def for_vmap(self) -> AbstractMethod:
        """The method without what is slow under `vmap`."""
        return self

    def check(self, problem: AnyProblem) -> None:
        """Refuses what joint estimates cannot do: lengths, and densities of scores."""
        super().check(problem)
        if not self.marginal:
            check_joint(self, problem)

    def saving(self, options: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Saves the loops of fits on their way, where `checkpoint` names a file."""
        return saved_loops.saved_loops(options)

    def solve(self, problem: AnyProblem, start: Any, run: Run) -> Solution:
        """Drives the method from the start to its end."""
        steps = run.steps(self.runs.max_steps)
        fit = drive(problem, self, start, run.key, steps, run.clock)
        return Solution(fit, self, steps)

    def estimates(self, problem: AnyProblem, solution: Solution, run: Run) -> Estimates:
        """Errors of items, and abilities given them; see `item_estimates`."""
        return item_estimates(
            problem,
            solution,
            standard_errors=run.options.get("standard_errors", "none"),
            item_uncertainty=run.options.get("item_uncertainty", True),
            clock=run.clock,
        )


class Run(NamedTuple):
    """Settings of one run of a method.

    `max_steps` is None for the method's own limit, `level` is that of intervals, and
    `options` are the method's, filled in.
    """

    clock: Clock
    key: KeyArray | None = None
    max_steps: int | None = None
    level: float = 0.95
    options: Mapping[str, Any] = MappingProxyType({})

    def steps(self, usual: int) -> int:
        """The step limit, or the usual one where none is given."""
        return usual if self.max_steps is None else self.max_steps


class Solution(NamedTuple):
    """A fit with its settings and warnings.

    Attributes:
        fit: The last fit of the driver.
        method: The method as it was run: with its nodes, or its number of epochs.
        resolution: How nodes compare with the posteriors; None without nodes.
        draws: Draws of the posterior, if any, and their `values` by name.
        status: Status of a sampler, if it is not that of the fit.
        warnings: Warnings about the estimates.
        record: What the run found out, for the record of the fit.
        directions: By `laplace`, signs of slopes that their prior keeps positive.
    """

    fit: Fit
    method: Any
    max_steps: int
    resolution: Any = None
    draws: Any = None
    values: Any = None
    status: Status | None = None
    warnings: tuple[str, ...] = ()
    record: Mapping[str, Any] = MappingProxyType({})
    directions: Any = None


class Fit(eqx.Module):
    """Result of an estimator: a PyTree, so it vmaps, shards and saves.

    Attributes:
        parameters: Estimates.
        log_lik: Log-likelihood without priors: marginal, or joint for joint methods.
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


def tree_where(condition: Array, new: Any, old: Any) -> Any:
    """Leaf by leaf, the new tree where the condition holds, else the old one."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


class Loop(NamedTuple):
    """What the driver carries: enough to stop, save and resume."""

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
    loop = Loop(
        state,
        jnp.zeros((), jnp.int32),
        jnp.full((), Status.RUNNING, jnp.int32),
        jnp.full((max_steps,), jnp.nan, objective.dtype),
    )
    # Steps return strong types: from weak ones the first would need its own program.
    arrays, static = eqx.partition(loop, eqx.is_array)
    strong = jax.tree.map(lambda x: lax.convert_element_type(x, x.dtype), arrays)
    return eqx.combine(strong, static)


@full_precision
def run(
    problem: AnyProblem,
    method: AbstractMethod,
    start: Any,
    *,
    key: RandomKey | None = None,
    max_steps: int = 500,
    resume: Loop | None = None,
    stop_after: Array | int | None = None,
) -> Fit:
    """Steps a method until it converges. Pure: jit, vmap or shard it.

    Per-step keys are `fold_in(key, step)`, so a resumed run repeats an unbroken one.

    Args:
        problem: Model, data and free mask; for `Laplace` a `MultilevelProblem`, or one
            of a model with one ability, whose items it integrates out.
        method: The estimator.
        start: Start values.
        key: A whole number or a JAX key, required by methods that use randomness.
        max_steps: Step limit and length of the trace (static under jit).
        resume: The `loop_of(fit)` of an earlier, unfinished call.
        stop_after: Return when this many steps have been taken in all, with status
            RUNNING if unfinished; may be traced.

    Returns:
        The fit. Inspect `status`; nothing is raised for non-convergence.

    Raises:
        ValueError: If the method is not for the problem, or has no steps.
    """
    if not isinstance(method, AbstractMethod):
        raise ValueError(
            f"{type(method).__name__} draws from a posterior and has no steps to run:"
            f" use irtjax.fit(table, model, {method.name!r}), or a sampler on the"
            " density of irtjax.numpyro_model or irtjax.functional.log_density"
        )
    key = None if key is None else as_key(key)
    problem = method.prepared(problem)
    check_suits(method, problem)
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
        state = tree_where(finite, new, loop.state)
        status = jnp.where(progress.stalled, Status.STALLED, Status.RUNNING)
        status = jnp.where(progress.converged, Status.CONVERGED, status)
        status = jnp.where(finite, status, Status.NONFINITE).astype(jnp.int32)
        trace = loop.trace.at[loop.step].set(
            jnp.where(finite, progress.objective, jnp.nan)
        )
        return Loop(state, loop.step + 1, status, trace)

    if method.runs.scanned and resume is None and stop_after is None:

        def scanned(loop: Loop, _):
            going = loop.status == Status.RUNNING
            return tree_where(going, body(loop), loop), None

        loop, _ = lax.scan(scanned, loop, length=max_steps)
    else:
        loop = lax.while_loop(unfinished, body, loop)
    state = method.finish(problem, loop.state)
    parameters, subject_log_lik = method.result(problem, state)
    progress = method.progress(problem, state)
    exhausted = (loop.status == Status.RUNNING) & (loop.step >= max_steps)
    last = jnp.where(progress.converged, Status.CONVERGED, Status.MAX_STEPS)
    status = jnp.where(exhausted, last, loop.status).astype(jnp.int32)
    weight = method.weight_of(problem)
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


begin_jit = stored_jit(begin)
run_jit = stored_jit(run)


class _Expected:
    """The share of a fit that is done, if its residual falls to its goal evenly.

    In logarithms: EM and its like converge linearly. At most the share of the steps
    that the method takes in any case.
    """

    def __init__(self, goal: Any, num_planned: int = 0) -> None:
        self.end = math.log(float(goal)) if goal else None
        self.begin, self.done, self.num_planned = -math.inf, 0.0, num_planned

    def share(self, residual: float, status: int, steps: int = 0) -> float:
        """The share, which never falls, at a residual; 1 at the end."""
        if status != Status.RUNNING:
            return 1.0
        has_end = self.end is not None or self.num_planned
        most = steps / self.num_planned if self.num_planned else 1.0
        done = min(most, 0.99) if has_end else 0.0
        if self.end is not None:
            done = min(done, self._by_residual(residual, self.end))
        self.done = max(self.done, done)
        return self.done

    def _by_residual(self, residual: float, end: float) -> float:
        """The share by the residual alone; 0 where it has no logarithm."""
        if not 0 < residual < math.inf:
            return 0.0
        here = math.log(residual)
        self.begin = max(self.begin, here)
        return (self.begin - here) / (self.begin - end) if self.begin > end else 0.0


def drive(
    problem: AnyProblem,
    method: AbstractMethod,
    start: Any,
    key: KeyArray | None,
    max_steps: int,
    clock: Clock,
) -> Fit:
    """Runs a method to its end, in one call or, to report progress, in chunks."""
    clock.report("fit", 0, math.nan, math.nan)
    first = method.with_pass(problem, None)
    loop = begin_jit(first, method, start, key=key, max_steps=max_steps)
    # Unwatched, all steps are one chunk: of the same program, compiled once.
    streamed = problem.data.is_streamed
    reported = clock.progress is not None or is_watched() or streamed
    saved = saved_loops.current()
    if saved is not None:
        loop = saved.begin(loop)
    # Processes stop after the same steps, whatever their time.
    fixed = saved is not None or jax.process_count() > 1
    chunk = saved_loops.STEPS if fixed else 1 if reported else max_steps
    # The host makes the passes of streamed data between two steps.
    chunk = 1 if streamed else chunk
    done = 0 if saved is None else int(loop.step)
    expected = None
    note_share(0.0, "fit")
    while True:
        began = time.perf_counter()
        done += chunk
        # Start values are in the loop: without them one program serves all kinds.
        result = run_jit(
            method.with_pass(problem, loop.state),
            method,
            None,
            key=key,
            max_steps=max_steps,
            resume=loop,
            stop_after=jax.device_put(np.int32(done)),
        )
        status, steps = int(result.status), int(result.num_steps)
        clock.report("fit", steps, float(result.objective), float(result.residual))
        if expected is None:
            goal = method.goal(problem, result.residual.dtype)
            expected = _Expected(goal, method.num_planned)
        measure = float(method.measure(result))
        note_share(expected.share(measure, status, steps), "fit")
        # `loop_of` of a running fit, without a program of its own.
        loop = Loop(result.state, result.num_steps, result.status, result.trace)
        if saved is not None:
            saved.save(loop, last=status != Status.RUNNING)
        if status != Status.RUNNING:
            return result
        done = steps
        if fixed or streamed:
            continue
        # About a third of a second between reports.
        rate = chunk / max(time.perf_counter() - began, 1e-3)
        chunk = int(min(max(1, rate / 3), 4 * chunk))
