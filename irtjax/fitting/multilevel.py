"""Structured and Bayesian fits: from a table to a calibration with abilities by group.

The door behind `irtjax.fit` for models with several abilities per subject, and for
full posteriors (`nuts`) and empirical Bayes (`laplace`) of models with one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from irtjax._types import KeyArray, Status
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.multilevel import (
    FEW_ACCEPTED,
    LEAST_ACCEPTED,
    NO_FAST_ROUTE,
    OTHER_SLOPES,
    describe,
    log_prior_jit,
    warnings_of,
)
from irtjax.calibration.timing import Clock
from irtjax.data.responses import Responses
from irtjax.data.table import ResponseTable
from irtjax.estimators.driver import begin, loop_of, run
from irtjax.estimators.laplace.estimates import summary_of_laplace
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import (
    LaplaceState,
    StructuredProblem,
    start_structured,
)
from irtjax.estimators.posterior import verdict
from irtjax.estimators.posterior.estimates import kept_quantities, summary_of_draws
from irtjax.estimators.posterior.nuts import NUTS
from irtjax.estimators.posterior.sample import sample
from irtjax.estimators.posterior.sampling_frame import suitable_frame
from irtjax.estimators.posterior.start import frame_log_density, position_of, vary
from irtjax.estimators.posterior.variational import Variational
from irtjax.models.families import bounded
from irtjax.models.multilevel.design import Layout
from irtjax.models.multilevel.model import Hierarchical

#: Step limit of the fast route, alone or before a sampler.
LAPLACE_STEPS = 300


def fit_structured(
    table: ResponseTable,
    scores: bounded.Scores | None,
    responses: Responses,
    layout: Layout,
    *,
    name: str,
    method: Laplace | NUTS | Variational,
    options: dict[str, Any],
    clock: Clock,
    key: KeyArray,
    max_steps: int | None = None,
    checkpoint: str | None = None,
    resume: bool = False,
) -> Calibration:
    """Fits a structured model and describes it.

    Args:
        table: The responses with their labels.
        scores: How scores were prepared, for models of them.
        responses: The arrays of the table.
        layout: The model.
        name: What the fit calls its model.
        method: `Laplace`, `NUTS` or `Variational`.
        options: The options of the fit, for the record.
        clock: Times the phases.
        key: Random key.
        max_steps: Step limit of the fast route.
        checkpoint: File that a sampler's run is saved in on the way.
        resume: Go on from it.
    """
    model = layout.model
    problem = StructuredProblem.create(model, responses)
    fast = method if isinstance(method, Laplace) else Laplace(order=2, tolerance=0.1)
    with clock.phase("run"):
        found = _drive(problem, fast, max_steps or LAPLACE_STEPS, clock)
        draws, values, said, status = None, {}, [], Status(int(found.status))
        state = found.state
        if not isinstance(method, Laplace):
            if status != Status.CONVERGED:
                # No worse than nothing: the start of the fast route.
                state = begin(problem, fast, None, max_steps=1).state
            components = state.components
            factor = model.common_factor(
                components.log_residual_sd, components.residual_correlation
            )
            start = start_structured(model, responses)
            frame = suitable_frame(model, responses, start, factor, state.ability)
            first = frame.coordinates(position_of(model, problem, state))
            data = (frame, responses)
            if isinstance(method, NUTS):
                draws = sample(
                    frame_log_density,
                    first,
                    data,
                    key=key,
                    method=method,
                    keep=kept_quantities,
                    spread=0.05,
                    checkpoint=checkpoint,
                    resume=resume,
                    progress=lambda at: clock.report(
                        at.phase, at.step, math.nan, math.nan
                    ),
                )
                said, status = verdict(draws), Status(int(draws.status))
                values = draws.values
            else:
                values, said, status = vary(first, data, method, key)
    with clock.phase("tables"):
        if isinstance(method, Laplace):
            summary = summary_of_laplace(problem, method, found.state, options["level"])
            said = warnings_of(layout, found, status, table.num_observed)
            if summary.accepted < LEAST_ACCEPTED:
                said.append(FEW_ACCEPTED)
            if problem.expected and "discrimination" in problem.model.priors:
                said.append(OTHER_SLOPES)
        else:
            summary = summary_of_draws(model, values, options["level"])
            # The mode may also lie where a standard deviation is 0 and has no density.
            likely = float(
                found.objective - log_prior_jit(problem.model, found.state.components)
            )
            if not np.isfinite([likely, float(found.residual)]).all():
                found = _without_fast_route(problem.model, found, state, values)
                said = [*said, NO_FAST_ROUTE]
        warnings = [*(() if scores is None else scores.warnings), *said]
        return describe(
            table,
            responses,
            layout,
            problem.model,
            found,
            summary,
            status,
            draws,
            warnings,
            name,
            options,
            clock,
            key,
        )


def _without_fast_route(
    model: Hierarchical, found, state: LaplaceState, values: Mapping[str, Any]
):
    """The fit with a log-likelihood of the draws, where the fast route has none."""
    objective = jnp.mean(values["log_likelihood"]) + log_prior_jit(
        model, state.components
    )
    # How near the fast route came to rest says nothing of the draws.
    return eqx.tree_at(
        lambda fit: (fit.objective, fit.residual, fit.state),
        found,
        (objective, jnp.zeros(()), state),
    )


_begin_jit = eqx.filter_jit(begin)
_run_jit = eqx.filter_jit(run)


def _drive(problem: StructuredProblem, method: Laplace, max_steps: int, clock: Clock):
    """The fast route to its end, with reports on the way."""
    loop = _begin_jit(problem, method, None, max_steps=max_steps)
    done = 0
    while True:
        done += max_steps if clock.progress is None else 5
        fit = _run_jit(
            problem,
            method,
            None,
            max_steps=max_steps,
            resume=loop,
            stop_after=jnp.asarray(done, jnp.int32),
        )
        clock.report(
            "fit", int(fit.num_steps), float(fit.objective), float(fit.residual)
        )
        if int(fit.status) != Status.RUNNING:
            return fit
        loop = loop_of(fit)
