"""NUTS and variational inference as methods of `irtjax.fit`.

Both start from a fit by the Laplace approximation, which also gives the log-likelihood
that is reported, and work in the coordinates of a `SamplingFrame`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.acceptance import check_integrable
from irtjax.estimators.driver import (
    AbstractEstimator,
    Fit,
    Run,
    RunSettings,
    Solution,
    begin,
    drive,
)
from irtjax.estimators.estimates import Estimates
from irtjax.estimators.laplace.components import log_prior
from irtjax.estimators.laplace.estimates import multilevel_estimates
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import (
    LaplaceState,
    MultilevelProblem,
    start_multilevel,
)
from irtjax.estimators.posterior import pareto_k, verdict
from irtjax.estimators.posterior.estimates import kept_quantities, summary_of_draws
from irtjax.estimators.posterior.nuts import NoUTurn
from irtjax.estimators.posterior.sample import SamplingProgress, sample
from irtjax.estimators.posterior.sampling_frame import SamplingFrame, suitable_frame
from irtjax.estimators.posterior.variational import VariationalSearch, fit_variational
from irtjax.likelihood.problem import Problem
from irtjax.models.multilevel.model import MultilevelModel, Position
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.progress import note_share

#: Draws of a variational approximation that its estimates are computed from.
VI_DRAWS = 2000
#: Warning about draws where the Laplace approximation failed.
NO_START = (
    "the start found no marginal likelihood: the log-likelihood is the mean over draws"
    " of that given all parameters; do not compare it, AIC or BIC with other fits"
)


class _Posterior(AbstractEstimator):
    """Estimates of NUTS and variational inference, from draws."""

    marginal: ClassVar[bool] = True
    multilevel: ClassVar[bool] = True

    def check(self, problem: MultilevelProblem | Problem) -> None:
        """Refuses models whose items cannot be integrated out."""
        check_integrable(self, problem)

    def estimates(
        self, problem: MultilevelProblem, solution: Solution, run: Run
    ) -> Estimates:
        """Means and covariances of the draws."""
        with run.clock.phase("tables"):
            summary = summary_of_draws(problem.model, solution.values, run.level)
            warnings, concluded = solution.warnings, ()
            if solution.draws is not None and solution.status == Status.CONVERGED:
                # The verdict comes first in them, and a good one is not a warning.
                concluded, warnings = warnings[:1], warnings[1:]
            estimates = multilevel_estimates(
                problem, solution, summary, warnings, concluded
            )
            return dataclasses.replace(estimates, sampled=True)


class NUTS(NoUTurn, _Posterior):
    """The full posterior by the no-U-turn sampler.

    Attributes:
        num_warmup: Steps of warm-up, whose draws are discarded.
        num_draws: Draws kept of each chain.
        num_chains: Chains; R-hat is reliable from four on.
        target_acceptance: Mean acceptance that the step size is adapted to. Closer to 1
            means smaller steps: slower, and better where the posterior curves sharply.
        max_depth: A trajectory has at most 2^max_depth - 1 leapfrog steps.
        dense: Adapt the whole covariance `[dims, dims]`, not its diagonal: for strong
            linear correlations among a few hundred coordinates at most.
        thinning: Keep every so many-th draw.
        chain_method: "vectorized" moves all chains in lockstep, each step waiting for
            the longest trajectory; "sequential" runs one after the other; "parallel"
            distributes them over the devices, each of which runs its share by itself.
            "auto": parallel where there are several devices, which run their shares
            sequentially on a CPU, else in lockstep. On one CPU `sample.sample` runs the
            chains of "auto" and "parallel" in threads, with the same draws.
    """

    runs: ClassVar[RunSettings] = RunSettings(
        lengths=("num_warmup", "num_draws"),
        options=MappingProxyType({"checkpoint": None, "resume": False}),
    )

    def solve(self, problem: MultilevelProblem, start: Any, run: Run) -> Solution:
        """Draws of the posterior, saved regularly in the file `checkpoint`."""
        fit, state, first, frame = _first(problem, run)
        draws = sample(
            frame_log_density,
            first,
            (frame, problem.data),
            key=jax.random.key(0) if run.key is None else run.key,
            method=self,
            keep=kept_quantities,
            radius=0.05,
            **run.options,
            progress=functools.partial(_report, run),
        )
        values, status = draws.values, Status(int(draws.status))
        fit, missing = _with_likelihood(problem, fit, state, values)
        warnings = (*verdict(draws), *missing)
        steps = self.num_steps
        return Solution(fit, self, steps, None, draws, values, status, warnings)


class Variational(VariationalSearch, _Posterior):
    """The Gaussian nearest to the posterior: maximises the evidence bound by Adam.

    Attributes:
        rank: Columns of the factor of the covariance; 0 is mean field: coordinates are
            independent, with the standard deviations that they have given all others.
        num_draws: Draws per step.
        num_steps: Steps; `max_steps` of `irtjax.fit` replaces them.
        learning_rate: At first, in standard deviations per step; it falls to a
            hundredth along half a cosine.
        first_sd: Standard deviation of every coordinate at the start.
        num_ratios: Draws of the final approximation, for the bound and the ratios.
        tolerance: A smaller trend of the bound, in nats, counts as none.
    """

    runs: ClassVar[RunSettings] = RunSettings(limit="num_steps")

    @property
    def name(self) -> str:
        """The name that `irtjax.fit` records."""
        return "vi"

    def solve(self, problem: MultilevelProblem, start: Any, run: Run) -> Solution:
        """Draws of the Gaussian that is nearest to the posterior."""
        steps = run.steps(self.num_steps)
        method = dataclasses.replace(self, num_steps=steps)
        # A limit of steps is that of this method, not of the fit that it begins at.
        fit, state, first, frame = _first(problem, run._replace(max_steps=None))
        key = jax.random.key(0) if run.key is None else run.key
        fit_key, draw_key = jax.random.split(key)
        data = (frame, problem.data)
        gaussian = _vary_jit(frame_log_density, first, data, key=fit_key, method=method)
        values = _kept_jit(gaussian.sample(VI_DRAWS, key=draw_key), data)
        values = {name: value[None] for name, value in values.items()}
        status, warnings = Status(int(gaussian.status)), []
        if status != Status.CONVERGED:
            warnings.append(
                f"the bound of the evidence has not converged in {steps:,} steps: use"
                f" more, such as max_steps={2 * steps}"
                if status == Status.MAX_STEPS
                else f"the bound of the evidence: {status.explain()}"
            )
        k = pareto_k(gaussian.log_ratio)
        if not k < 0.7:
            warnings.append(
                f"the Gaussian approximation is far from the posterior (Pareto k"
                f" {k:.2f}, good below 0.7): its means may be of use, its errors are"
                " too small; use method='nuts'"
            )
        fit, missing = _with_likelihood(problem, fit, state, values)
        warnings = (*warnings, *missing)
        taken = lambda fit: (fit.num_steps, fit.trace)
        fit = eqx.tree_at(taken, fit, (jnp.asarray(steps), gaussian.elbo_trace))
        return Solution(fit, self, steps, None, None, values, status, warnings)


def _report(run: Run, at: SamplingProgress) -> None:
    """Reports the step of sampling to the clock and the progress line."""
    run.clock.report(at.phase, at.step, math.nan, math.nan)
    note_share(at.step / at.num_steps)


_vary_jit = stored_jit(fit_variational)
_kept_jit = jax.jit(jax.vmap(kept_quantities, in_axes=(0, None)))
_log_prior_jit = stored_jit(log_prior)
_start_jit = eqx.filter_jit(start_multilevel)
_common_factor_jit = eqx.filter_jit(MultilevelModel.common_factor)


@eqx.filter_jit
def _coordinates_jit(frame: SamplingFrame, model, problem, state: LaplaceState):
    return frame.coordinates(position_of(model, problem, state))


def _first(problem: MultilevelProblem, run: Run):
    """A fit by `Laplace`, the state to begin at, its position in a frame, and that."""
    method, model = Laplace(order=2, tolerance=0.1), problem.model
    steps = run.steps(method.runs.max_steps)
    fit = drive(problem, method, None, None, steps, run.clock)
    state = fit.state
    if int(fit.status) != Status.CONVERGED:
        # The start of the approximation, as its end may have diverged.
        state = begin(problem, method, None, max_steps=1).state
    parts, data = state.components, problem.data
    correlation = parts.residual_correlation
    factor = _common_factor_jit(model, parts.log_residual_sd, correlation)
    start = _start_jit(model, data)
    frame = suitable_frame(model, data, start, factor, state.ability)
    return fit, state, _coordinates_jit(frame, model, problem, state), frame


def _with_likelihood(
    problem: MultilevelProblem, fit: Fit, state: LaplaceState, values: Mapping[str, Any]
) -> tuple[Fit, tuple[str, ...]]:
    """The fit, with a log-likelihood of the draws where `Laplace` has none."""
    # The mode may also lie where a standard deviation is 0 and has no density.
    likely = fit.objective - _log_prior_jit(problem.model, fit.state.components)
    if np.isfinite([float(likely), float(fit.residual)]).all():
        return fit, ()
    prior = _log_prior_jit(problem.model, state.components)
    objective = jnp.mean(values["log_likelihood"]) + prior
    # The residual of a failed approximation does not describe the draws.
    replaced = lambda fit: (fit.objective, fit.residual, fit.state)
    return eqx.tree_at(replaced, fit, (objective, jnp.zeros(()), state)), (NO_START,)


def frame_log_density(
    coordinates: Position, data: tuple[SamplingFrame, Responses]
) -> jax.Array:
    """Log posterior density in coordinates of a frame, which is part of the data."""
    frame, responses = data
    return frame.log_density(coordinates, responses)


def position_of(
    model: MultilevelModel, problem: MultilevelProblem, state: LaplaceState
) -> Position:
    """The estimates of `laplace` as a position to sample from."""
    components, ability = state.components, state.ability
    position = model.zeros(ability.dtype)._replace(
        log_scale=jnp.maximum(components.log_scale, -3.0),
        correlation=components.correlation,
        items=state.mean[problem.distinct.of_stem],
        group_effects=components.group_effects,
        subject_effects=components.subject_effects,
        log_general_sd=components.log_general_sd,
    )
    if any(model.learned):
        position = position._replace(
            log_component_sd=jnp.maximum(components.log_component_sd, -3.0),
            log_residual_sd=jnp.maximum(components.log_residual_sd, -3.0),
            residual_correlation=components.residual_correlation,
            tilt=components.tilt / model.hyperpriors.tilt,
            log_relative_sd=components.log_relative_sd / model.hyperpriors.relative_sd,
        )
        effects = components.effects / model.effect_sd(position)
        position = position._replace(effects=effects)
    if not model.centred:
        mean = model.subject_design @ position.subject_effects
        factor = model.covariance_factor(position)
        gap = (ability - mean[:, None]).T
        ability = jax.scipy.linalg.solve_triangular(factor, gap, lower=True).T
    return position._replace(ability=ability)
