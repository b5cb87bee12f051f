"""Structured and Bayesian fits: from a table to a calibration with abilities by group.

The door behind `irtjax.fit` for models with several abilities per subject, and for
full posteriors (`nuts`) and empirical Bayes (`laplace`) of models with one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax import checks, score_tables
from irtjax._types import KeyArray, Status
from irtjax.calibration import (
    SHARED_RANK,
    Calibration,
    Structure,
    make_ability_table,
    make_item_table,
    versions,
)
from irtjax.data.responses import Responses
from irtjax.data.table import ResponseTable
from irtjax.diagnostics import pareto_k, verdict
from irtjax.estimators.base import Parameters, Problem, begin, loop_of, run
from irtjax.estimators.laplace import (
    Laplace,
    LaplaceState,
    StructuredProblem,
    log_prior,
    own_covariance,
    start_structured,
)
from irtjax.estimators.mcmc import NUTS, Draws
from irtjax.estimators.variational import Variational, fit_variational
from irtjax.models.base import AbstractResponseFamily, Model, Population
from irtjax.models.hierarchical import (
    Hierarchical,
    Hyperpriors,
    Position,
    general_ability,
)
from irtjax.models.priors import AbstractPrior
from irtjax.models.sampling_frame import SamplingFrame, item_centring
from irtjax.ranking.pairs import leading_loadings
from irtjax.sampling import sample
from irtjax.timing import Clock
from irtjax.uncertainty import Covariance

if TYPE_CHECKING:
    pass

#: Methods of this door.
STRUCTURED_METHODS = ("laplace", "nuts", "vi")
#: Draws of a variational approximation that its summary is made of.
VI_DRAWS = 2000
#: Models with several abilities, or levels of items, by name.
STRUCTURED_MODELS = ("multibenchmark", "multimetric", "hierarchical")
#: Fewest responses of a subject to a group at which abilities are sampled as they are.
ENOUGH = 10
MAX_STEPS = 300
#: Said of draws where the fast route failed.
NO_FAST_ROUTE = (
    "the start found no marginal likelihood: the log-likelihood is the mean over draws"
    " of that given all parameters; do not compare it, AIC or BIC with other fits"
)
#: Items in a group below which the fast route has been seen far from the posterior.
FEW_ITEMS = 80


class Layout(NamedTuple):
    """A structured model and the names of its parts."""

    model: Hierarchical
    groups: np.ndarray
    effects: np.ndarray


def lay_out(
    table: ResponseTable,
    family: AbstractResponseFamily,
    *,
    grouped: bool,
    levels: Sequence[str] = (),
    item_covariates: Mapping[str, np.ndarray] | None = None,
    subject_covariates: np.ndarray | None = None,
    priors: Mapping[str, AbstractPrior] | None = None,
    hyperpriors: Hyperpriors | None = None,
    dtype: Any = float,
) -> Layout:
    """The structured model of a table.

    Args:
        table: The responses; groups are its benchmarks.
        family: Response family with positive discriminations.
        grouped: Whether each benchmark has an ability of its own.
        levels: Facets of items whose values have effects on items' coordinates, each
            with a standard deviation of its own; "benchmark" is one of them wherever
            there are several benchmarks.
        item_covariates: `[items]` numbers by name, with effects on items' coordinates.
        subject_covariates: `[subjects, covariates]`, with effects on abilities.
        priors: Priors of named item parameters, in place of learned ones.
        hyperpriors: Priors of what is learned.
        dtype: Floating type.

    Raises:
        ValueError: If a facet is unknown or a covariate does not suit the table.
    """
    if not family.has_slope or family.parameters[0].bijection.kind != "positive":
        raise ValueError(
            "structured models keep discriminations above 0: use a family with"
            " positive slopes"
        )
    names, group = np.unique(np.asarray(table.benchmarks), return_inverse=True)
    if not grouped:
        names, code = np.array(["all"]), np.zeros(table.num_items, int)
    else:
        code = group
    facets: dict[str, np.ndarray] = {
        "benchmark": np.asarray(table.benchmarks),
        **dict(table.item_facets),
        "stem": stems_of(table),
    }
    chosen = list(
        dict.fromkeys([*(["benchmark"] if len(set(group)) > 1 else []), *levels])
    )
    columns, effects = [np.ones((table.num_items, 1))], ["all items"]
    component = [-1]
    for place, level in enumerate(chosen):
        if level not in facets:
            known = ", ".join(sorted(facets))
            raise ValueError(f"no facet {level!r} of items; there are {known}")
        values, index = np.unique(facets[str(level)], return_inverse=True)
        columns.append(np.eye(len(values))[index])
        effects += [f"{level}: {value}" for value in values]
        component += [place] * len(values)
    for name, values in (item_covariates or {}).items():
        values = np.asarray(values, float)
        if values.shape != (table.num_items,) or not np.isfinite(values).all():
            raise ValueError(
                f"covariate {name!r} needs one finite number for each of the"
                f" {table.num_items:,} items"
            )
        columns.append(values[:, None])
        effects.append(name)
        component.append(-1)
    subject = np.zeros((table.num_subjects, 0))
    if subject_covariates is not None:
        subject = np.asarray(subject_covariates, float).reshape(table.num_subjects, -1)
        if not np.isfinite(subject).all():
            raise ValueError("covariates of subjects must be finite numbers")
    answered = table.num_observed / (table.num_subjects * len(names))
    model = Hierarchical(
        family,
        jnp.asarray(code),
        jnp.arange(table.num_items),
        jnp.asarray(np.concatenate(columns, axis=1), dtype),
        jnp.asarray(component),
        jnp.asarray(subject, dtype),
        dict(priors or {}),
        Hyperpriors() if hyperpriors is None else hyperpriors,
        num_groups=len(names),
        num_stems=table.num_items,
        num_components=len(chosen),
        has_group_scales=len(names) > 1,
        centred=answered >= ENOUGH,
    )
    return Layout(model, names, np.asarray(effects))


def stems_of(table: ResponseTable) -> np.ndarray:
    """Names of items with the benchmark's taken off: one for all metrics of a thing."""
    if "stem" in table.item_facets:
        return np.asarray(table.item_facets["stem"])
    pairs = zip(table.items.tolist(), table.benchmarks.tolist(), strict=True)
    return np.asarray([item.removeprefix(f"{name}/") for item, name in pairs])


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
    fast = method if isinstance(method, Laplace) else Laplace(order=1, tolerance=0.1)
    with clock.phase("run"):
        found = _drive(problem, fast, max_steps or MAX_STEPS, clock)
        draws, values, said, status = None, {}, [], Status(int(found.status))
        state = found.state
        if not isinstance(method, Laplace):
            if status != Status.CONVERGED:
                # No worse than nothing: the start of the fast route.
                state = begin(problem, fast, None, max_steps=1).state
            # From rough values, not from where the fast route ended.
            rough = start_structured(model, responses)
            frame = SamplingFrame(model, _centring_jit(model, *rough, responses))
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
                )
                said, status = verdict(draws), Status(int(draws.status))
                values = draws.values
            else:
                values, said, status = _vary(first, data, method, key)
    with clock.phase("tables"):
        if isinstance(method, Laplace):
            summary = summary_of_laplace(problem, found.state)
            said = _warnings(model, found, status)
        else:
            summary = summary_of_draws(model, values, options["level"])
            # The mode may also lie where a standard deviation is 0 and has no density.
            likely = float(found.objective - log_prior(model, found.state.components))
            if not np.isfinite([likely, float(found.residual)]).all():
                found = _without_fast_route(model, found, state, values)
                said = [*said, NO_FAST_ROUTE]
        warnings = [*(() if scores is None else scores.warnings), *said]
        return _describe(
            table,
            responses,
            layout,
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
    objective = jnp.mean(values["log_likelihood"]) + log_prior(model, state.components)
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
    values = jax.jit(jax.vmap(kept_quantities, in_axes=(0, None)))(positions, data)
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


_vary_jit = eqx.filter_jit(fit_variational)
_centring_jit = eqx.filter_jit(item_centring)
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


def frame_log_density(
    coordinates: Position, data: tuple[SamplingFrame, Responses]
) -> jax.Array:
    """Log posterior density in coordinates of a frame; `data` is it with responses."""
    frame, responses = data
    return frame.log_density(coordinates, responses)


def kept_quantities(
    coordinates: Position, data: tuple[SamplingFrame, Responses]
) -> dict[str, jax.Array]:
    """What is kept of a draw: natural parameters."""
    frame, responses = data
    model, position = frame.model, frame.position(coordinates)
    own = model.own_covariance(position)
    general = general_ability(own)
    theta = model.abilities(position)
    mean = model.subject_design @ position.subject_effects
    kept = {
        "ability": theta,
        "general_mean": mean + (theta - mean[:, None]) @ general.weights,
        "general_variance": general.variance,
        "coordinates": model.coordinates(position),
        "log_likelihood": model.total_log_likelihood(position, responses),
    }
    if model.num_groups > 1:
        kept["own_covariance"] = own
    if any(model.learned):
        kept["effects"] = position.effects * model.effect_sd(position)
        kept["residual_sd"] = jnp.exp(position.log_residual_sd)
        kept["component_sd"] = jnp.exp(position.log_component_sd)
    if position.subject_effects.shape[0]:
        kept["subject_effects"] = position.subject_effects
    return kept


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
    )
    if any(model.learned):
        sd = jnp.maximum(components.log_component_sd, -3.0)
        position = position._replace(
            log_component_sd=sd,
            log_residual_sd=jnp.maximum(components.log_residual_sd, -3.0),
            residual_correlation=components.residual_correlation,
        )
        scale = model.effect_sd(position)
        position = position._replace(effects=components.effects / scale)
    if not model.centred:
        mean = model.subject_design @ position.subject_effects
        factor = model.covariance_factor(position)
        gap = (ability - mean[:, None]).T
        ability = jax.scipy.linalg.solve_triangular(factor, gap, lower=True).T
    return position._replace(ability=ability)


class Summary(NamedTuple):
    """Means and errors of one fit, by whatever method.

    Attributes:
        general: `[subjects]` general abilities.
        general_error: `[subjects]` their standard errors.
        shared: `[subjects, any]` loadings of what those errors share.
        ability: `[subjects, groups]`.
        error: `[subjects, groups]`.
        coordinates: `[items, columns]`.
        covariance: `[items, columns, columns]`.
        own: `[groups, groups]` Sigma.
        bounds: Lower and upper bounds of its correlations, or None.
        effects: `[effects, columns]`.
    """

    general: np.ndarray
    general_error: np.ndarray
    shared: np.ndarray
    ability: np.ndarray
    error: np.ndarray
    coordinates: np.ndarray
    covariance: np.ndarray
    own: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray] | None
    effects: np.ndarray


def summary_of_laplace(problem: StructuredProblem, state: LaplaceState) -> Summary:
    """What the fast route found."""
    model, components = problem.model, state.components
    groups = model.num_groups
    own = np.zeros((1, 1))
    if groups > 1:
        own = np.asarray(
            own_covariance(model, components.log_scale, components.correlation)
        )
    general = general_ability(jnp.asarray(own, state.ability.dtype))
    weights = np.asarray(general.weights, float)
    ability = np.asarray(state.ability, float)
    subjects = len(ability)
    whole = np.asarray(state.reported_covariance, float)
    blocks = whole.reshape(groups, subjects, groups, subjects)
    covariance = np.einsum("a,anbk,b->nk", weights, blocks, weights)
    error = np.sqrt(np.diag(whole)).reshape(groups, subjects).T
    mean = np.asarray(model.subject_design @ components.subject_effects, float)
    roots, vectors = np.linalg.eigh(covariance)
    unit = np.asarray(problem.units.unit)
    spread = np.asarray(state.spread, float)[unit]
    of_items = np.asarray(state.covariance, float)[unit]
    columns = np.arange(of_items.shape[-1])
    of_items[:, columns, columns] += spread
    coordinates = np.asarray(state.mean, float)[unit]
    if model.has_group_effects:
        coordinates = coordinates[np.asarray(model.stem)]
        coordinates = coordinates + np.asarray(components.group_effects)[model.group]
        of_items = of_items[np.asarray(model.stem)]
    return Summary(
        mean + (ability - mean[:, None]) @ weights,
        np.sqrt(np.diag(covariance) + float(general.variance)),
        vectors * np.sqrt(np.maximum(roots, 0)),
        ability,
        error,
        coordinates,
        of_items,
        own,
        None,
        np.asarray(components.effects, float),
    )


def summary_of_draws(
    model: Hierarchical, values: Mapping[str, Any], level: float = 0.95
) -> Summary:
    """Means and covariances of draws by name, `[chains, draws, ...]`."""
    flat = {
        name: np.asarray(value, float).reshape(-1, *value.shape[2:])
        for name, value in values.items()
    }
    general, ability = flat["general_mean"], flat["ability"]
    left = flat["general_variance"].mean()
    covariance = np.atleast_2d(np.cov(general.T))
    roots, vectors = np.linalg.eigh(covariance)
    coordinates = flat["coordinates"]
    centre = coordinates.mean(axis=0)
    gap = coordinates - centre
    of_items = np.einsum("dja,djb->jab", gap, gap) / (len(gap) - 1)
    own, bounds = np.zeros((1, 1)), None
    if model.num_groups > 1:
        sd = np.sqrt(np.einsum("dmm->dm", flat["own_covariance"]))
        ratio = flat["own_covariance"] / sd[:, :, None] / sd[:, None, :]
        own = flat["own_covariance"].mean(axis=0)
        tail = (1 - level) / 2
        bounds = tuple(np.quantile(ratio, [tail, 1 - tail], axis=0))
    effects = flat.get("effects")
    return Summary(
        general.mean(axis=0),
        np.sqrt(np.diag(covariance) + left),
        vectors * np.sqrt(np.maximum(roots, 0)),
        ability.mean(axis=0),
        ability.std(axis=0, ddof=1),
        centre,
        of_items,
        own,
        bounds,
        np.zeros((model.design.shape[1], model.num_columns))
        if effects is None
        else effects.mean(axis=0),
    )


def _describe(
    table,
    responses,
    layout: Layout,
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
    """The calibration: tables, warnings, and what is particular to structure."""
    model, level = layout.model, options["level"]
    family = model.family
    plain = Model(name, family, {})
    problem = Problem.create(plain, responses)
    coordinates = jnp.asarray(summary.coordinates, model.design.dtype)
    items = jax.vmap(family.constrain)(coordinates)
    one = jnp.ones((), coordinates.dtype)
    estimates = Parameters(items, Population(0 * one, one))
    top = max(family.num_categories - 1, 1)
    margins = [
        checks.margins(table.values, table.observed, table.trials, top, axis)
        for axis in (0, 1)
    ]
    item_flags = ["; ".join(f) for f in checks.no_variation_flags(margins[0])]
    subject_flags = ["; ".join(f) for f in checks.no_variation_flags(margins[1])]
    covariance = Covariance.of_independent(jnp.asarray(summary.covariance))
    item_table = make_item_table(
        table, problem, estimates, coordinates, covariance, margins[0], item_flags
    )
    shared = leading_loadings(summary.shared, SHARED_RANK)
    ability_table, order = make_ability_table(
        table,
        summary.general,
        summary.general_error,
        shared,
        margins[1],
        subject_flags,
        level,
        key,
        {},
    )
    log_likelihood = float(found.objective) - float(
        log_prior(model, found.state.components)
    )
    log_likelihood += score_tables.log_base_total(plain, items, responses)
    count = sum(part.size for part in jax.tree.leaves(found.state.components))
    own = summary.own
    sd = np.sqrt(np.maximum(np.diag(own), 1e-300))
    bounds = (None, None) if summary.bounds is None else summary.bounds
    structure = Structure(
        layout.groups,
        np.asarray(model.group),
        summary.ability[order],
        summary.error[order],
        own,
        own / sd / sd[:, None] if model.num_groups > 1 else np.ones((1, 1)),
        *bounds,
        _raw_correlation(table, np.asarray(model.group), model.num_groups),
        (layout.effects, summary.effects),
        draws,
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
        notes=table.notes,
        options=options,
        versions=versions(),
        data_hash=table.data_hash(),
        timings=dict(clock.timings),
        resolution=None,
        level=level,
        item_covariance=np.asarray(summary.covariance),
        ability_shared=shared[order],
        structure=structure,
    )


def _num_draws(draws: Draws) -> int:
    return int(np.prod(next(iter(draws.values.values())).shape[:2]))


def _warnings(model: Hierarchical, found, status: Status) -> list[str]:
    """What a fit by the fast route must be read with."""
    said = []
    if status != Status.CONVERGED:
        said.append(
            f"{status.explain()} (residual {float(found.residual):.2g}): treat the"
            " estimates as provisional; raise max_steps, or use method='nuts'"
        )
    subjects, groups = model.subject_design.shape[0], model.num_groups
    fewest = int(np.bincount(np.asarray(model.group), minlength=groups).min())
    if fewest < FEW_ITEMS:
        said.append(
            f"a group has {fewest} items: method='laplace' needs about {FEW_ITEMS} in"
            " each group to be near the posterior; use method='nuts'"
        )
    if groups > 1 and subjects < 5 * groups:
        said.append(
            f"correlations of {groups} groups from {subjects} subjects rest on their"
            " prior, which prefers none"
        )
    if subjects < 30:
        said.append(
            f"with {subjects} subjects the errors of method='laplace' leave out what is"
            " not known of the spread of abilities; method='nuts' counts it"
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
