"""From a fit to its calibration: errors, checks, warnings, tables, in that order."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from irtjax import checks, length_tables
from irtjax._programs import stored_jit
from irtjax._types import Status
from irtjax.calibration import Calibration
from irtjax.calibration_tables import (
    item_errors,
    make_ability_table,
    make_item_table,
    number_column,
)
from irtjax.data.matching import positions
from irtjax.data.table import ResponseTable
from irtjax.estimators.base import (
    AbstractMethod,
    Fit,
    Problem,
    Start,
    estimation_scale,
    with_lengths,
)
from irtjax.estimators.joint import diverging
from irtjax.estimators.neural import Neural
from irtjax.estimators.nodes import Resolution, choose_nodes
from irtjax.estimators.saem import SAEM
from irtjax.estimators.vibo import VIBO
from irtjax.models.base import Model, Population
from irtjax.models.logistic import Binary
from irtjax.ranking import leading_loadings, scale_loadings
from irtjax.score_tables import log_base_total
from irtjax.scoring import ScoreFlag, expected_scores, score
from irtjax.timing import Clock
from irtjax.uncertainty import (
    Covariance,
    evidence_moves,
    item_covariance,
    length_covariance,
    speed_error,
)
from irtjax.validity import assumptions, negative_discrimination

if TYPE_CHECKING:
    pass

#: Log weights of nodes that differ by less from a normal density's are normal.
NORMAL_WEIGHTS = 1e-3
#: Directions of shared error that are kept: location, scale, and the next few.
SHARED_RANK = 16


def build(
    table: ResponseTable,
    problem: Problem,
    result: Fit,
    *,
    estimator: AbstractMethod,
    resolved: Resolution | None,
    options: dict[str, Any],
    clock: Clock,
    key: jax.Array,
    subjects: np.ndarray,
    data_hash: str,
    warnings: tuple[str, ...] = (),
) -> Calibration:
    """Assembles a calibration from a fit: errors, scores, ranks, flags, tables.

    Args:
        table: The data in the order of the fit.
        problem: What was fitted.
        result: The fit.
        estimator: The method that made it.
        resolved: How its nodes compare with the posteriors.
        options: Options to record; "level", "standard_errors" and "item_uncertainty"
            are used.
        clock: Times the phases.
        key: Random key of the rank intervals.
        subjects: Subjects in the user's order (marginal methods may sort them).
        data_hash: Hash of the data in the user's order.
        warnings: What making the data ready gave rise to.
    """
    model, estimates = problem.model, result.parameters
    without = problem
    problem, part = with_lengths(problem, estimates.lengths)
    level, joint = options["level"], estimates.theta is not None
    trained = isinstance(estimator, Neural | VIBO)
    coordinates = model.unconstrain(estimates.items)
    population = estimation_scale(
        problem, Start(estimates.items, None, estimates.population)
    )
    if estimator.marginal:
        nodes = result.state.nodes
        population = population._replace(log_weights=result.state.log_weights)
    else:
        chosen = choose_nodes(
            model, estimates.items, estimates.population, problem.data
        )
        nodes = jnp.asarray(chosen, coordinates.dtype)
    covariance = of_lengths = None
    found_so_far: list[str] = []
    clock.report("standard errors", 0, math.nan, math.nan)
    with clock.phase("standard_errors"):
        if options["standard_errors"] != "none":
            if estimates.lengths is None:
                covariance = item_covariance(
                    problem,
                    coordinates,
                    population,
                    nodes,
                    kind=options["standard_errors"],
                )
            else:
                of_lengths = length_covariance(
                    without, coordinates, estimates.lengths, nodes
                )
                covariance = of_lengths.of_items()
            if of_lengths is not None and not bool(covariance.definite):
                found_so_far.append(_not_definite(model))
                covariance = of_lengths = None
            elif int(covariance.negative):
                found_so_far.append(_no_maximum(model, int(covariance.negative)))
    clock.report("scores", 0, math.nan, math.nan)
    with clock.phase("scores"):
        moves = None
        if of_lengths is not None and estimates.lengths is not None:
            moves = evidence_moves(
                without, estimates.lengths, of_lengths.shared_lengths
            )
        scored = _abilities(
            problem,
            result,
            nodes,
            population.log_weights,
            covariance if options["item_uncertainty"] else None,
            moves,
        )
        ability, error, ability_flags, loadings = scored
        expected = expected_scores(
            model,
            estimates.items,
            estimates.population._replace(log_weights=population.log_weights),
            problem.data,
            nodes,
            covariance if options["item_uncertainty"] else None,
            moves,
        )
        shared, scale, of_speed = None, None, None
        if loadings is not None:
            shared = leading_loadings(loadings, SHARED_RANK)
            scale = scale_loadings(ability, shared)
        if part is not None and of_lengths is not None and loadings is not None:
            of_speed = speed_error(part, without.data, jnp.asarray(ability), of_lengths)
    with clock.phase("tables"):
        top = max(model.family.num_categories - 1, 1)
        found = [
            checks.margins(table.values, table.observed, table.trials, top, axis)
            for axis in (0, 1)
        ]
        errors, missing = item_errors(problem, estimates, coordinates, covariance)
        findings, separated = _findings(
            table, problem, estimates, ability, missing, trained
        )
        if estimates.theta is not None and _diverges_without_priors(model):
            lost = diverging(model, problem.data, estimates.items, estimates.theta)
            findings = findings._replace(
                diverging=findings.diverging | np.asarray(lost.items)
            )
            for flags, infinite in zip(
                ability_flags, np.asarray(lost.subjects), strict=True
            ):
                flags.extend([checks.RUNAWAY] * bool(infinite))
        nowhere = np.zeros(table.num_items, bool)
        if not trained:
            nowhere = checks.without_estimate(model, found[0], findings)
        errors = _without(errors, nowhere, model)
        item_flags = checks.item_flags(model, found[0], findings)
        notes = []
        if separated is not None and "discrimination" in model.priors and not trained:
            notes = [*filter(None, [checks.separation_note(separated)])]
        subject_flags = [
            "; ".join(flags + extra)
            for flags, extra in zip(
                checks.no_variation_flags(found[1]), ability_flags, strict=True
            )
        ]
        found_so_far = [
            *filter(None, [resolved.warning() if resolved else None]),
            *_edge_warnings(result, estimator),
            *warnings,
            *found_so_far,
            *_assumption_warnings(problem, result, table, ability, error, loadings),
            *checks.fit_warnings(
                # Networks have no priors, whatever the model has.
                dataclasses.replace(model, priors={})
                if isinstance(estimator, Neural)
                else model,
                status=Status(int(result.status)),
                residual=float(result.residual),
                num_subjects=table.num_subjects,
                components=checks.num_components(table.observed),
                flags=item_flags,
                subject_flags=subject_flags,
                joint=joint,
                trained=trained,
                items=table.items,
                limit="num_steps of SAEM"
                if isinstance(estimator, SAEM)
                else "max_steps",
                single_precision=coordinates.dtype == jnp.float32,
                responses_per_subject=float(np.median(found[1].observed)),
            ),
        ]
        item_table = make_item_table(
            table, problem, estimates, errors, found[0], item_flags, separated
        )
        speeds = {}
        if part is not None:
            assert estimates.lengths is not None
            found_so_far += length_tables.warnings_of(
                table, estimates.items, estimates.lengths, options["length_offset"]
            )
            columns = length_tables.item_columns(estimates.lengths, of_lengths)
            for name, values in columns.items():
                item_table = item_table.append_column(
                    name, number_column(values, table.num_items)
                )
            speeds = length_tables.ability_columns(
                part, ability, error, loadings, of_speed
            )
        # Marginal methods may have sorted the subjects: back to the user's order.
        order = positions(table.subjects, subjects)
        ability_table = make_ability_table(
            table,
            ability,
            error,
            shared,
            scale,
            found[1],
            subject_flags,
            level,
            key,
            speeds,
            expected,
            top,
        ).take(order)
    # In double precision on the host: a float32 sum of millions of nats is coarse.
    terms = np.asarray(result.subject_log_lik, np.float64)
    # Densities of the scores, so that models of scores can be compared.
    base = log_base_total(model, estimates.items, problem.data)
    log_likelihood = float(terms.sum()) + base
    num_parameters = int(np.asarray(problem.free).sum())
    num_parameters += 2 * problem.anchored + (not model.family.has_slope)
    num_parameters += table.num_subjects * joint
    log_prior = float(_log_prior(problem, coordinates, population))
    if part is not None:
        num_parameters += 3 * table.num_items + 1
        log_prior += float(part.model.log_prior(part.parameters))
    benchmarks = table.item_facets.get("benchmark")
    return Calibration(
        model=model,
        parameters=jax.tree.map(np.asarray, estimates)._replace(
            theta=None
            if estimates.theta is None
            else np.asarray(estimates.theta)[order]
        ),
        subjects=subjects,
        items=table.items,
        benchmarks=benchmarks,
        status=Status(int(result.status)),
        num_steps=int(result.num_steps),
        trace=np.asarray(result.trace)[: int(result.num_steps)] + base,
        residual=float(result.residual),
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        num_parameters=num_parameters,
        num_observed=table.num_observed,
        aic=-2 * log_likelihood + 2 * num_parameters,
        bic=-2 * log_likelihood + num_parameters * math.log(table.num_subjects),
        item_table=item_table,
        ability_table=ability_table,
        warnings=tuple(found_so_far),
        notes=(*table.notes, *notes),
        options=options,
        versions=versions(),
        data_hash=data_hash,
        timings=dict(clock.timings),
        resolution=resolved,
        level=level,
        item_covariance=_known_covariance(covariance),
        ability_shared=None if shared is None else shared[order],
        ability_scale=None if scale is None else scale[order],
        correlation_error=None
        if estimates.lengths is None
        else length_tables.correlation_error(estimates.lengths, of_lengths),
    )


def _findings(table, problem, estimates, ability, missing, trained: bool):
    """`checks.Findings` of the items, and separation (None where not defined)."""
    model = problem.model
    slope, intercept = (
        np.asarray(getattr(estimates.items, name), float)
        for name in ("discrimination", model.family.intercept_name)
    )
    separated = None
    if model.family.num_categories == 2 and table.trials is None:
        if model.family.has_slope:
            separated = checks.separated_items(table.values, table.observed, ability)
    nothing = np.zeros(table.num_items, bool)
    # What stopped early has a finite estimate without a prior.
    limitless = nothing if trained else checks.diverging_items(model, slope, intercept)
    findings = checks.Findings(
        negative=negative_discrimination(table.values, table.observed, table.trials),
        separated=nothing if separated is None or trained else separated,
        diverging=limitless & np.asarray(problem.free).any(axis=1),
        not_identified=missing,
    )
    return findings, separated


def _without(errors, nowhere: np.ndarray, model: Model):
    """Errors, NaN for estimates that do not exist; constants and common slopes stay."""
    found = dict(errors)
    for name, error in errors.items():
        if name != "discrimination" or model.family.has_slope:
            which = nowhere.reshape(-1, *[1] * (error.ndim - 1)) & (error > 0)
            found[name] = np.where(which, np.nan, error)
    return found


def _known_covariance(covariance: Covariance | None) -> np.ndarray | None:
    """Covariance blocks; NaN in rows and columns of what is not identified."""
    if covariance is None:
        return None
    known = np.asarray(covariance.identified)
    both = known[:, :, None] & known[:, None, :]
    return np.where(both, np.asarray(covariance.items), np.nan)


def _not_definite(model: Model) -> str:
    """Warning of a model with response lengths whose errors cannot be computed."""
    cure = "use fewer items or more subjects" if model.priors else "use priors"
    return (
        "the information matrix is not positive definite: some item parameters are not"
        f" identified, so no item standard errors are given; {cure}"
    )


def _no_maximum(model: Model, count: int) -> str:
    """Warning of a stationary point that is not a maximum."""
    directions = f"{count} directions" if count > 1 else "one direction"
    cure = "use priors, or" if not model.priors else "use narrower priors, or"
    return (
        "the estimate is not a maximum: the log-posterior curves upwards in"
        f" {directions} (negative eigenvalues of the observed information);"
        f" {cure} a model with fewer parameters per item"
    )


def _edge_warnings(result: Fit, estimator: AbstractMethod) -> list[str]:
    """Says so when posteriors sit at the first or last quadrature node."""
    if not estimator.marginal:
        return []
    centre, last = np.asarray(result.state.centre), result.state.nodes.shape[0] - 1
    count = int(np.sum((centre == 0) | (centre == last)))
    if not count:
        return []
    return [
        f"{count} subject{'s' * (count > 1)} at the end of the quadrature nodes: their"
        f" abilities are cut off; use method={type(estimator).__name__}(nodes) with"
        " nodes that reach further"
    ]


def _assumption_warnings(
    problem: Problem, result: Fit, table: ResponseTable, ability, error, loadings
) -> list[str]:
    """Violated assumptions of a marginal fit: joint ones assume no population."""
    estimates, data = result.parameters, problem.data
    if estimates.theta is not None or estimates.lengths is not None:
        return []
    benchmarks = normality = None
    if "benchmark" in table.item_facets:
        benchmarks = assumptions.one_ability_test(
            problem.model.family,
            estimates.items,
            ability,
            data.values,
            data.exposure,
            table.benchmarks,
        )
    weights = np.asarray(result.state.log_weights)
    standard = np.asarray(result.state.nodes) if not problem.anchored else weights
    # A histogram has a form of its own, and anchored items another scale.
    is_normal = np.ptp(weights + standard**2 / 2) < NORMAL_WEIGHTS
    if is_normal and not problem.anchored and problem.model.scale == "standard":
        shared = 0.0 if loadings is None else np.sum(loadings**2, axis=1)
        normality = assumptions.normality_test(ability, error**2 - shared)
    return assumptions.warnings_of(benchmarks, normality)


def _diverges_without_priors(model: Model) -> bool:
    family = model.family
    binary = isinstance(family, Binary) and family.asymptotes == 0
    return binary and not model.priors


@stored_jit
def _log_prior(problem: Problem, coordinates, population: Population):
    model = problem.model
    frame = jnp.zeros(2, coordinates.dtype)
    if not problem.anchored:
        frame = model.prior_frame(coordinates, frame, num_newton=30)
    total = model.total_log_prior(coordinates, frame)
    return total + model.log_common_slope_prior(population.sd)


def _abilities(
    problem: Problem,
    result: Fit,
    nodes,
    log_weights,
    covariance: Covariance | None,
    moves: jax.Array | None,
):
    """Abilities, errors, flags and the loadings of shared errors; EAP or joint."""
    estimates = result.parameters
    population = estimates.population._replace(log_weights=log_weights)
    how = "eap" if estimates.theta is None else "map"
    scores = score(
        problem.model,
        estimates.items,
        population,
        problem.data,
        method=how,
        nodes=nodes,
        item_covariance=covariance,
        evidence_moves=None if covariance is None else moves,
    )
    ability = scores.ability if estimates.theta is None else estimates.theta
    unfinished = np.asarray(scores.flag) & int(ScoreFlag.UNFINISHED)
    flags = [[ScoreFlag.UNFINISHED.explain()] if flag else [] for flag in unfinished]
    shared = scores.shared
    return (
        np.asarray(ability, np.float64),
        np.asarray(scores.standard_error, np.float64),
        flags,
        None if shared is None else np.asarray(shared, np.float64),
    )


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a fit depends on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("irtjax", "jax", "jaxlib", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    found["backend"] = jax.default_backend()
    return found
