"""Structured and Bayesian fits: from a table to a calibration with abilities by group.

The door behind `irtjax.fit` for models with several abilities per subject, and for
full posteriors (`nuts`) and empirical Bayes (`laplace`) of models with one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax import checks, score_tables
from irtjax._programs import stored_jit
from irtjax._types import KeyArray, Status
from irtjax.calibrating import SHARED_RANK, versions
from irtjax.calibration import Calibration, Structure
from irtjax.calibration_tables import (
    item_errors,
    make_ability_table,
    make_item_table,
)
from irtjax.data.responses import Responses
from irtjax.data.table import ResponseTable
from irtjax.diagnostics import pareto_k, verdict
from irtjax.estimators.base import Parameters, Problem, begin, loop_of, run
from irtjax.estimators.components import log_prior, num_effective
from irtjax.estimators.laplace import Laplace, without_end
from irtjax.estimators.mcmc import NUTS, Draws
from irtjax.estimators.structured_state import (
    LaplaceState,
    StructuredProblem,
    start_structured,
)
from irtjax.estimators.variational import Variational, fit_variational
from irtjax.models.base import AbstractResponseFamily, Model, Population
from irtjax.models.hierarchical import (
    Hierarchical,
    Position,
)
from irtjax.models.sampling_frame import SamplingFrame, suitable_frame
from irtjax.ranking.pairs import leading_loadings
from irtjax.sampling import sample
from irtjax.structure_layout import Layout
from irtjax.structured_summary import (
    Summary,
    kept_quantities,
    summary_of_draws,
    summary_of_laplace,
)
from irtjax.timing import Clock
from irtjax.uncertainty import Covariance
from irtjax.validity import assumptions, negative_discrimination

#: Draws of a variational approximation that its summary is made of.
VI_DRAWS = 2000
#: Step limit of the fast route, alone or before a sampler.
LAPLACE_STEPS = 300
#: Said of draws where the fast route failed.
NO_FAST_ROUTE = (
    "the start found no marginal likelihood: the log-likelihood is the mean over draws"
    " of that given all parameters; do not compare it, AIC or BIC with other fits"
)
#: Share of accepted proposals below which draws of Sigma are not to be trusted.
LEAST_ACCEPTED = 0.4
FEW_ACCEPTED = (
    "what is not known of the abilities' covariance and units could not be drawn:"
    " errors leave it out, or count too little of it; use method='nuts'"
)
#: Said where a given prior of discriminations cannot be counted right.
OTHER_SLOPES = (
    "the prior given for discriminations is not log-normal: method='laplace' misjudges"
    " the unit of abilities under it; give LogNormal(mean, sd), or use method='nuts'"
)
#: Responses in all, and subjects, below which intervals hold less often than stated
#: (docs/evidence/index.md).
FEW_RESPONSES, FEW_SUBJECTS = 800, 8
#: Items in a group below which the fast route has not been compared with the truth.
FEW_ITEMS = 20


def fit_structured(
    table: ResponseTable,
    scores: score_tables.Scores | None,
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
                values, said, status = _vary(first, data, method, key)
    with clock.phase("tables"):
        if isinstance(method, Laplace):
            summary = summary_of_laplace(problem, method, found.state, options["level"])
            said = _warnings(layout, found, status, table.num_observed)
            if summary.accepted < LEAST_ACCEPTED:
                said.append(FEW_ACCEPTED)
            if problem.expected and "discrimination" in problem.model.priors:
                said.append(OTHER_SLOPES)
        else:
            summary = summary_of_draws(model, values, options["level"])
            # The mode may also lie where a standard deviation is 0 and has no density.
            likely = float(
                found.objective - _log_prior_jit(problem.model, found.state.components)
            )
            if not np.isfinite([likely, float(found.residual)]).all():
                found = _without_fast_route(problem.model, found, state, values)
                said = [*said, NO_FAST_ROUTE]
        warnings = [*(() if scores is None else scores.warnings), *said]
        return _describe(
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
    objective = jnp.mean(values["log_likelihood"]) + _log_prior_jit(
        model, state.components
    )
    # How near the fast route came to rest says nothing of the draws.
    return eqx.tree_at(
        lambda fit: (fit.objective, fit.residual, fit.state),
        found,
        (objective, jnp.zeros(()), state),
    )


def _vary(first: Position, data, method: Variational, key: KeyArray):
    """Draws of a variational approximation by name, what to say of it, its status."""
    fit_key, draw_key = jax.random.split(key)
    found = _vary_jit(frame_log_density, first, data, key=fit_key, method=method)
    positions = found.sample(VI_DRAWS, key=draw_key)
    values = _kept_jit(positions, data)
    status, said = Status(int(found.status)), []
    if status != Status.CONVERGED:
        said.append(
            f"the bound of the evidence has not settled ({status.explain()}): pass"
            " Variational(num_steps=...) with more steps"
        )
    k = pareto_k(found.log_ratio)
    if not k < 0.7:
        said.append(
            f"the Gaussian approximation is far from the posterior (Pareto k {k:.2f},"
            " good below 0.7): its means may be of use, its errors are too small; use"
            " method='nuts'"
        )
    return {name: value[None] for name, value in values.items()}, said, status


_vary_jit = stored_jit(fit_variational)
_count_jit = stored_jit(num_effective)
_begin_jit = stored_jit(begin)
_run_jit = stored_jit(run)


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


def frame_log_density(
    coordinates: Position, data: tuple[SamplingFrame, Responses]
) -> jax.Array:
    """Log posterior density in coordinates of a frame; `data` is it with responses."""
    frame, responses = data
    return frame.log_density(coordinates, responses)


def position_of(
    model: Hierarchical, problem: StructuredProblem, state: LaplaceState
) -> Position:
    """Where the fast route ended, as a position to sample from."""
    components, zeros = state.components, model.zeros(state.ability.dtype)
    ability = state.ability
    position = zeros._replace(
        log_scale=jnp.maximum(components.log_scale, -3.0),
        correlation=components.correlation,
        items=state.mean[problem.units.unit],
        group_effects=components.group_effects,
        subject_effects=components.subject_effects,
        log_general_sd=components.log_general_sd,
    )
    if any(model.learned):
        sd = jnp.maximum(components.log_component_sd, -3.0)
        position = position._replace(
            log_component_sd=sd,
            log_residual_sd=jnp.maximum(components.log_residual_sd, -3.0),
            residual_correlation=components.residual_correlation,
            tilt=components.tilt / model.hyperpriors.tilt,
            spread=components.spread / model.hyperpriors.spread,
        )
        scale = model.effect_sd(position)
        position = position._replace(effects=components.effects / scale)
    if not model.centred:
        mean = model.subject_design @ position.subject_effects
        factor = model.covariance_factor(position)
        gap = (ability - mean[:, None]).T
        ability = jax.scipy.linalg.solve_triangular(factor, gap, lower=True).T
    return position._replace(ability=ability)


@stored_jit
def _constrain_jit(family: AbstractResponseFamily, coordinates: jax.Array):
    return jax.vmap(family.constrain)(coordinates)


_kept_jit = jax.jit(jax.vmap(kept_quantities, in_axes=(0, None)))
_log_prior_jit = stored_jit(log_prior)


def _describe(
    table,
    responses,
    layout: Layout,
    fitted: Hierarchical,
    found,
    summary: Summary,
    status,
    draws,
    warnings,
    name,
    options,
    clock,
    key,
) -> Calibration:
    """The calibration: tables, warnings, and what is particular to structure.

    `fitted` is the model as the fast route has it (`StructuredProblem`).
    """
    model, level = layout.model, options["level"]
    family = model.family
    good = []
    if draws is not None and status == Status.CONVERGED:
        # A good verdict is nothing to be warned of; it stands first all the same.
        good = verdict(draws)[:1]
        warnings = [said for said in warnings if said not in good]
    # Slopes of 1 leave the unit of ability to the items, as in the Rasch model.
    plain = Model(name, family, {}, "standard" if family.has_slope else "unit_slope")
    problem = Problem.create(plain, responses)
    coordinates = jnp.asarray(summary.coordinates, model.design.dtype)
    items = _constrain_jit(family, coordinates)
    one = jnp.ones((), coordinates.dtype)
    estimates = Parameters(items, Population(0 * one, summary.variance**0.5 * one))
    top = max(family.num_categories - 1, 1)
    margins = [
        checks.margins(table.values, table.observed, table.trials, top, axis)
        for axis in (0, 1)
    ]
    findings, separated = _findings(table, layout, summary)
    none = np.zeros(table.num_items, bool)
    # The model's priors are learned or given: every parameter has one.
    item_flags = checks.item_flags(plain, margins[0], findings._replace(separated=none))
    subject_flags = ["; ".join(f) for f in checks.no_variation_flags(margins[1])]
    covariance = Covariance.of_independent(jnp.asarray(summary.covariance))
    errors, _ = item_errors(problem, estimates, coordinates, covariance)
    item_table = make_item_table(
        table, problem, estimates, errors, margins[0], item_flags, separated
    )
    warnings = [*warnings, *checks.flag_warnings(item_flags, has_priors=True)]
    note = None if separated is None else checks.separation_note(separated)
    if model.num_groups == 1 and "benchmark" in table.item_facets:
        tested = assumptions.one_ability_test(
            family,
            items,
            summary.ability[:, 0],
            responses.values,
            responses.exposure,
            table.benchmarks,
        )
        warnings = [*warnings, *assumptions.warnings_of(tested, None)]
    shared = leading_loadings(summary.shared, SHARED_RANK)
    scale = np.zeros(len(shared)) + summary.scale
    ability_table = make_ability_table(
        table,
        summary.general,
        summary.general_error,
        shared,
        scale,
        margins[1],
        subject_flags,
        level,
        key,
        {},
        summary.expected,
        top,
    )
    log_likelihood = float(found.objective) - float(
        _log_prior_jit(fitted, found.state.components)
    )
    log_likelihood += score_tables.log_base_total(plain, items, responses)
    count = round(float(_count_jit(model, found.state.components)))
    own = summary.own
    sd = np.sqrt(np.maximum(np.diag(own), 1e-300))
    bounds = (None, None) if summary.bounds is None else summary.bounds
    structure = Structure(
        layout.groups,
        np.asarray(model.group),
        summary.ability,
        summary.error,
        own,
        own / sd / sd[:, None] if model.num_groups > 1 else np.ones((1, 1)),
        *bounds,
        _raw_correlation(table, np.asarray(model.group), model.num_groups),
        (layout.effects, summary.effects),
        draws,
        summary.variance,
        (layout.covariates, *summary.subject_effects),
        layout.stems,
        summary.possible,
        layout.levels,
        (_spread_names(layout), summary.spreads),
    )
    return Calibration(
        model=plain,
        parameters=jax.tree.map(np.asarray, estimates),
        subjects=table.subjects,
        items=table.items,
        benchmarks=table.item_facets.get("benchmark"),
        status=status,
        num_steps=int(found.num_steps) if draws is None else _num_draws(draws),
        trace=np.asarray(found.trace)[: int(found.num_steps)],
        residual=float(found.residual),
        log_likelihood=log_likelihood,
        log_prior=0.0,
        num_parameters=count,
        num_observed=table.num_observed,
        aic=-2 * log_likelihood + 2 * count,
        bic=-2 * log_likelihood + count * math.log(table.num_subjects),
        item_table=item_table,
        ability_table=ability_table,
        warnings=tuple(warnings),
        notes=(*good, *table.notes, *filter(None, [note])),
        options=options,
        versions=versions(),
        data_hash=table.data_hash(),
        timings=dict(clock.timings),
        resolution=None,
        level=level,
        item_covariance=np.asarray(summary.covariance),
        ability_shared=shared,
        ability_scale=scale,
        structure=structure,
    )


def _findings(table: ResponseTable, layout: Layout, summary: Summary):
    """`checks.Findings` of the items, and separation (None where not defined).

    The items of each group are compared with the rest of their group.
    """
    group = np.asarray(layout.model.group)
    none = np.zeros(table.num_items, bool)
    negative = negative_discrimination(
        table.values, table.observed, table.trials, group
    )
    findings = checks.Findings(negative, none, none, none)
    family = layout.model.family
    if family.num_categories != 2 or table.trials is not None or not family.has_slope:
        return findings, None
    separated = none.copy()
    for k in range(layout.model.num_groups):
        mine = group == k
        separated[mine] = checks.separated_items(
            table.values[:, mine],
            None if table.observed is None else table.observed[:, mine],
            np.asarray(summary.ability)[:, k],
        )
    return findings, separated


def _spread_names(layout: Layout) -> np.ndarray:
    """What the rows of `Summary.spreads` are."""
    levels, clusters = layout.levels.tolist(), layout.clusters.tolist()
    return np.asarray([*levels, "items", *(f"items of {name}" for name in clusters)])


def _num_draws(draws: Draws) -> int:
    return int(np.prod(next(iter(draws.values.values())).shape[:2]))


def _warnings(layout: Layout, found, status: Status, num_observed: int) -> list[str]:
    """What a fit by the fast route must be read with."""
    model, said = layout.model, []
    if status == Status.STALLED:
        said += _runaways(layout, found.state.components)
    if status != Status.CONVERGED and not said:
        said.append(
            f"{status.explain()} (residual {float(found.residual):.2g}): treat the"
            " estimates as provisional; raise max_steps, or use method='nuts'"
        )
    subjects, groups = model.subject_design.shape[0], model.num_groups
    few = num_observed < FEW_RESPONSES or subjects < FEW_SUBJECTS
    if groups == 1 and few:
        said.append(
            f"{subjects} subjects and {num_observed:,} responses are few: in"
            " simulations of such sizes 95 % intervals of differences held 86 to 97 %,"
            " of expected scores 80 to 89 %; add subjects or items"
        )
    fewest = int(np.bincount(np.asarray(model.group), minlength=groups).min())
    if fewest < FEW_ITEMS:
        said.append(
            f"a group has {fewest} item{'s' * (fewest != 1)}: method='laplace' needs"
            f" about {FEW_ITEMS} in each group to be near the posterior; use"
            " method='nuts'"
        )
    if groups == 2:
        said.append(
            "two groups tell the correlation of their abilities and no more: the"
            " standard deviations of their own parts, and so the unit beside the"
            " general ability's, rest on their priors"
        )
    if groups > 1 and subjects < 5 * groups:
        said.append(
            f"correlations of {groups} groups from {subjects} subjects rest on their"
            " prior, which prefers none"
        )
    if subjects < 30 and groups > 1:
        said.append(
            f"with {subjects} subjects the errors of method='laplace' leave out what is"
            " not known of the spread of items; method='nuts' counts it"
        )
    return said


def _runaways(layout: Layout, components) -> list[str]:
    """Why the fast route was stopped, where something has no end."""
    model, said = layout.model, []
    gone, wide = (np.asarray(x) for x in without_end(model, components))
    for name in np.asarray(layout.groups)[gone] if gone.any() else ():
        said.append(
            f"not converged: the own abilities of {name} shrink to nothing: its items"
            " ask what all others ask; fit one ability (model='hierarchical'), or use"
            " method='nuts'"
        )
    columns = [p.name for p in model.family.parameters for _ in range(p.columns)]
    names = dict.fromkeys(n for n, at in zip(columns, wide, strict=False) if at)
    for name in names:
        said.append(
            f"not converged: the items' {name}s spread without end, by more than a"
            " factor of 7 to either side: many items tell next to nothing of ability."
            f" Leave those out, or give a prior, priors={{'{name}': LogNormal(0, 0.5)}}"
        )
    return said


def _raw_correlation(table: ResponseTable, group: np.ndarray, groups: int):
    """Correlations over subjects of their mean responses to each group."""
    values = np.asarray(table.values, float)
    seen = np.ones(values.shape) if table.observed is None else table.observed
    if table.trials is not None:
        seen = np.asarray(table.trials, float)
    onto = np.eye(groups)[group]
    count = np.asarray(seen, float) @ onto
    means = np.where(
        count > 0, (values * (seen > 0)) @ onto / np.maximum(count, 1), np.nan
    )
    centred = means - np.nanmean(means, axis=0)
    centred = np.nan_to_num(centred)
    product = centred.T @ centred
    size = np.sqrt(np.maximum(np.diag(product), 1e-300))
    return product / size / size[:, None]
