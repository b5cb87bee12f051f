"""The result of a fit on the host: parameters, tables, warnings, provenance."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from irtjax import checks, length_tables
from irtjax._types import Status
from irtjax.data.table import ResponseTable
from irtjax.estimators.base import (
    AbstractMethod,
    Fit,
    Parameters,
    Problem,
    Start,
    estimation_scale,
    is_rescaled,
    with_lengths,
)
from irtjax.estimators.joint import diverging
from irtjax.estimators.mcmc import Draws
from irtjax.estimators.nodes import Resolution, choose_nodes
from irtjax.estimators.possible_spread import Possible
from irtjax.information import difficulty
from irtjax.models.base import Model, Population
from irtjax.models.logistic import Binary, LogisticItems
from irtjax.ranking import leading_loadings, rank_intervals
from irtjax.score_tables import log_base_total
from irtjax.scoring import ScoreFlag, score
from irtjax.timing import Clock
from irtjax.uncertainty import (
    Covariance,
    evidence_moves,
    item_covariance,
    length_covariance,
    speed_error,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: A discrimination or intercept beyond this, without a prior, has run away.
RUNAWAY_SIZE = 25.0
#: Directions of shared error that are kept: location, scale, and the next few.
SHARED_RANK = 16


class Structure(NamedTuple):
    """What a structured fit found beside general abilities and items.

    Attributes:
        groups: `[groups]` names.
        group: `[items]` group of each item.
        ability: `[subjects, groups]` abilities, subjects as in `ability_table`.
        error: `[subjects, groups]` their standard errors.
        own_covariance: `[groups, groups]` Sigma, of the groups' own parts of ability.
        own_correlation: `[groups, groups]` its correlations: of groups with the general
            ability taken out.
        correlation_lower: Lower bounds of these correlations; None with one group.
        correlation_upper: Their upper bounds, likewise.
        raw_correlation: `[groups, groups]` correlations of the subjects' mean
            responses, for comparison.
        effects: Names of the effects on items' coordinates, and their values
            `[effects, columns]`.
        draws: Draws of the posterior, for `nuts`.
        general_variance: tau^2, of the general ability; 1 where items have slopes.
        subject_effects: Names of the subjects' covariates, their effects on ability
            and the standard errors of these, each `[covariates]`.
        stems: `[items]` the thing that each item measures, where items are shared
            between groups; else None.
        possible: Draws of Sigma, tau^2 and the units of abilities, which errors are
            averaged over; None with one group.
        levels: Names of the levels of items whose effects have a learned spread; None
            of a fit from disk that an earlier version wrote.
        spreads: Names of what items' coordinates vary over (levels, items within them,
            and items of each benchmark where these have spreads of their own), and the
            standard deviations `[names, columns]`.
    """

    groups: np.ndarray
    group: np.ndarray
    ability: np.ndarray
    error: np.ndarray
    own_covariance: np.ndarray
    own_correlation: np.ndarray
    correlation_lower: np.ndarray | None
    correlation_upper: np.ndarray | None
    raw_correlation: np.ndarray
    effects: tuple[np.ndarray, np.ndarray]
    draws: Draws | None = None
    general_variance: float = 1.0
    subject_effects: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    stems: np.ndarray | None = None
    possible: Possible | None = None
    levels: np.ndarray | None = None
    spreads: tuple[np.ndarray, np.ndarray] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """A fitted model with its labels: what `irtjax.fit` returns and `load` restores.

    Attributes:
        model: The model.
        parameters: Estimates: item records, population, and joint abilities if any.
        subjects: `[subjects]` names.
        items: `[items]` names.
        benchmarks: `[items]` benchmark names, or None.
        status: How the iteration ended.
        num_steps: Steps taken.
        trace: `[num_steps]` objective after each step.
        residual: Distance from a stationary point; see `estimators.base.Progress`.
        log_likelihood: In nats, without priors.
        log_prior: Log prior density at the estimates.
        num_parameters: Estimated item and population parameters (and abilities, for
            joint methods); effects of levels as far as they are free of their prior.
        num_observed: Observed responses.
        aic: -2 log-likelihood + 2 parameters.
        bic: -2 log-likelihood + parameters * log(subjects).
        item_table: Items, their parameters with standard errors, and flags.
        ability_table: Subjects, abilities with intervals, ranks, and flags.
        warnings: What the numbers must be read with, each a sentence.
        notes: What reading the data did.
        options: The options of the fit.
        versions: Versions of the packages that made it.
        data_hash: Hash of the data.
        timings: Seconds by phase; "compile" apart from the rest.
        resolution: How the quadrature nodes compare with the posteriors.
        level: Level of the intervals.
        item_covariance: `[items, columns, columns]` covariance of the items'
            unconstrained coordinates, or None.
        ability_shared: `[subjects, rank]` loadings of what ability errors share, in the
            order of `ability_table` (see `scoring.Scores`), or None.
        correlation_error: Standard error of the correlation of ability and speed, for
            models with answer lengths.
        structure: Abilities by group and what goes with them, for structured models.
    """

    model: Model
    parameters: Parameters
    subjects: np.ndarray
    items: np.ndarray
    benchmarks: np.ndarray | None
    status: Status
    num_steps: int
    trace: np.ndarray
    residual: float
    log_likelihood: float
    log_prior: float
    num_parameters: int
    num_observed: int
    aic: float
    bic: float
    item_table: pa.Table
    ability_table: pa.Table
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    options: dict[str, Any]
    versions: dict[str, str]
    data_hash: str
    timings: dict[str, float]
    resolution: Resolution | None
    level: float
    item_covariance: np.ndarray | None = None
    ability_shared: np.ndarray | None = None
    correlation_error: float | None = None
    structure: Structure | None = None

    @property
    def correlation_interval(self) -> tuple[float, float] | None:
        """Bounds of the correlation of ability and speed at `level`, by Fisher's z."""
        if self.parameters.lengths is None or self.correlation_error is None:
            return None
        rho = float(self.parameters.lengths.correlation)
        bounds = length_tables.correlation_interval(
            rho, self.correlation_error, self.level
        )
        return float(bounds[0]), float(bounds[1])


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
            if not bool(covariance.definite):
                found_so_far.append(
                    "the information matrix is not positive definite: some item"
                    " parameters are not identified here, so no item standard errors"
                    " are given; use priors, or a simpler model"
                )
                covariance = of_lengths = None
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
        shared, of_speed = None, None
        if loadings is not None:
            shared = leading_loadings(loadings, SHARED_RANK)
        if part is not None and of_lengths is not None and loadings is not None:
            of_speed = speed_error(part, without.data, jnp.asarray(ability), of_lengths)
    with clock.phase("tables"):
        top = max(model.family.num_categories - 1, 1)
        found = [
            checks.margins(table.values, table.observed, table.trials, top, axis)
            for axis in (0, 1)
        ]
        separated = np.zeros(table.num_items, bool)
        if model.family.num_categories == 2 and table.trials is None:
            separated = checks.separated_items(table.values, table.observed, ability)
        slope, intercept = (
            np.asarray(getattr(estimates.items, name), float)
            for name in ("discrimination", model.family.intercept_name)
        )
        extreme = np.abs(intercept).reshape(len(slope), -1).max(axis=1)
        runaway = np.maximum(np.abs(slope), extreme) > RUNAWAY_SIZE
        if estimates.theta is not None and _diverges_without_priors(model):
            lost = diverging(model, problem.data, estimates.items, estimates.theta)
            runaway |= np.asarray(lost.items)
            for flags, infinite in zip(
                ability_flags, np.asarray(lost.subjects), strict=True
            ):
                flags.extend([checks.RUNAWAY] * bool(infinite))
        item_flags = checks.item_flags(model, found[0], slope, separated, runaway)
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
            *checks.fit_warnings(
                model,
                status=Status(int(result.status)),
                residual=float(result.residual),
                num_subjects=table.num_subjects,
                components=checks.num_components(table.observed),
                flags=item_flags,
                subject_flags=subject_flags,
                joint=joint,
            ),
        ]
        item_table = make_item_table(
            table, problem, estimates, coordinates, covariance, found[0], item_flags
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
                    name, _numbers(values, table.num_items)
                )
            speeds = length_tables.ability_columns(
                part, ability, error, loadings, of_speed
            )
        ability_table, order = make_ability_table(
            table, ability, error, shared, found[1], subject_flags, level, key, speeds
        )
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
        parameters=jax.tree.map(np.asarray, estimates),
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
        notes=table.notes,
        options=options,
        versions=versions(),
        data_hash=data_hash,
        timings=dict(clock.timings),
        resolution=resolved,
        level=level,
        item_covariance=None if covariance is None else np.asarray(covariance.items),
        ability_shared=None if shared is None else shared[order],
        correlation_error=None
        if estimates.lengths is None
        else length_tables.correlation_error(estimates.lengths, of_lengths),
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
        " abilities are cut off; give EM wider nodes"
    ]


def _diverges_without_priors(model: Model) -> bool:
    family = model.family
    binary = isinstance(family, Binary) and family.asymptotes == 0
    return binary and not model.priors


@eqx.filter_jit
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


@eqx.filter_jit
def _item_errors(problem, coordinates, covariance: Covariance, items):
    """Standard errors of the natural parameters and of the difficulty.

    Delta method: the Jacobian of (natural parameters, difficulty) with respect to the
    coordinates, and for a common slope to the population's log sd, where
    d a / d log sd = a. As one program: it is compiled once, not operation by operation.
    """
    model = problem.model
    common = is_rescaled(problem)

    def natural(row, log_scale, reported):
        item = model.family.constrain(row)
        if not model.family.has_slope:
            item = item._replace(
                discrimination=reported.discrimination * jnp.exp(log_scale)
            )
        parts = {name: getattr(item, name) for name in item._fields}
        parts["difficulty"] = difficulty(item)
        return parts

    def error(row, block, cross, reported):
        zero = jnp.zeros((), row.dtype)
        slopes = jax.jacfwd(natural, argnums=(0, 1))(row, zero, reported)
        corner = covariance.scale[1, 1] if common else jnp.zeros((), row.dtype)
        border = cross[:, 1] if common else jnp.zeros_like(cross[:, 1])

        def of(by_row, by_scale):
            linear = by_row @ block
            own = jnp.sum(linear * by_row, axis=-1)
            variance = own + 2 * (by_row @ border) * by_scale + by_scale**2 * corner
            return jnp.sqrt(jnp.maximum(variance, 0))

        return {name: of(slopes[name][0], slopes[name][1]) for name in slopes}

    return jax.vmap(error)(coordinates, covariance.items, covariance.items_scale, items)


_difficulty_jit = jax.jit(difficulty)


def make_item_table(table, problem, estimates, coordinates, covariance, found, flags):
    """The fixed columns; a parameter that is a constant of the model has error 0."""
    import pyarrow as pa

    items = estimates.items
    errors = {}
    if covariance is not None:
        errors = _item_errors(problem, coordinates, covariance, items)
        errors = {name: np.asarray(error) for name, error in errors.items()}
    values = {name: np.asarray(getattr(items, name)) for name in items._fields}
    values["difficulty"] = np.asarray(_difficulty_jit(items))
    if "difficulty" in errors:
        defined = np.isfinite(values["difficulty"])
        errors["difficulty"] = np.where(defined, errors["difficulty"], np.nan)
    if not isinstance(items, LogisticItems):
        values["lower_asymptote"] = np.zeros(table.num_items)
        values["upper_asymptote"] = np.ones(table.num_items)
    columns: dict[str, Any] = {
        "item": pa.array(table.items.tolist()),
        "benchmark": pa.array(table.benchmarks.tolist()),
    }
    vectors: dict[str, Any] = {}
    for name in (
        "discrimination",
        "intercept",
        "difficulty",
        "lower_asymptote",
        "upper_asymptote",
    ):
        value, error = values[name], errors.get(name)
        if error is None and covariance is not None:
            error = np.zeros_like(value)
        if value.ndim == 1:
            columns[name] = _numbers(value)
            columns[f"{name}_se"] = _numbers(error, len(value))
        else:
            # The mean threshold stands for the item; each one follows further on.
            columns[name] = _numbers(value.mean(axis=1))
            columns[f"{name}_se"] = _numbers(None, len(value))
            vectors |= _columns_of(name, value, error)
    columns["accuracy"] = _numbers(_mean(found))
    columns["observed"] = pa.array(found.observed)
    columns["flags"] = pa.array(flags)
    for name in items._fields:
        if values[name].ndim > 1 and name not in columns:
            vectors |= _columns_of(name, values[name], errors.get(name))
        elif name not in columns:
            # A parameter that an item does not use has no value.
            used = np.broadcast_to(problem.model.family.in_use(items, name), len(flags))
            columns[name] = _numbers(np.where(used, values[name], np.nan))
            error = errors.get(name)
            if error is not None:
                error = np.where(used, error, np.nan)
            columns[f"{name}_se"] = _numbers(error, len(flags))
    return pa.table({**columns, **vectors})


def _columns_of(name: str, value: np.ndarray, error: np.ndarray | None) -> dict:
    """A column for each number of a parameter that is several, and for its error."""
    found: dict[str, Any] = {}
    for k in range(value.shape[1]):
        found[f"{name}_{k + 1}"] = _numbers(value[:, k])
        part = None if error is None else error[:, k]
        found[f"{name}_{k + 1}_se"] = _numbers(part, len(value))
    return found


def make_ability_table(table, ability, error, shared, found, flags, level, key, speeds):
    """The fixed columns, best first, and the order that made them so."""
    import pyarrow as pa

    half = float(ndtri(0.5 + level / 2)) * error
    ranking = rank_intervals(ability, error, key=key, shared=shared, level=level)
    columns = {
        "subject": pa.array(table.subjects.tolist()),
        "ability": _numbers(ability),
        "ability_se": _numbers(error),
        "lower": _numbers(ability - half),
        "upper": _numbers(ability + half),
        "rank": pa.array(np.asarray(ranking.rank, np.int64)),
        "rank_lower": pa.array(np.asarray(ranking.rank_lower, np.int64)),
        "rank_upper": pa.array(np.asarray(ranking.rank_upper, np.int64)),
        "accuracy": _numbers(_mean(found)),
        "observed": pa.array(found.observed),
        "flags": pa.array(flags),
        **{name: _numbers(values) for name, values in speeds.items()},
    }
    order = np.argsort(-ability, kind="stable")
    return pa.table(columns).take(pa.array(order)), order


def _mean(found: checks.Margins) -> np.ndarray:
    return np.where(
        found.observed > 0, found.total / np.maximum(found.observed, 1), np.nan
    )


def _numbers(values: np.ndarray | None, size: int = 0) -> pa.Array:
    """A float column in which what is not finite, or not known, is null."""
    import pyarrow as pa

    if values is None:
        return pa.nulls(size, pa.float64())
    array = np.asarray(values, np.float64)
    return pa.array(array, mask=~np.isfinite(array))


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
