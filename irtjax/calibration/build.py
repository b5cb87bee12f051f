"""From estimates to a calibration: flags, warnings, tables, in that order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.calibration import assumptions, flags, lengths
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.discrimination import negative_discrimination
from irtjax.calibration.groups import structure_of, vanishing_groups
from irtjax.calibration.tables import (
    item_errors,
    make_ability_table,
    make_item_table,
    number_column,
)
from irtjax.data.matching import positions
from irtjax.data.table import ResponseTable
from irtjax.estimators.estimates import Estimates
from irtjax.estimators.timing import Clock
from irtjax.models.model import Model
from irtjax.models.multilevel.design import Layout
from irtjax.ranking import leading_loadings, scale_loadings
from irtjax.uncertainty import Covariance

if TYPE_CHECKING:
    import pyarrow as pa

#: Directions of shared error that are kept: location, scale, and the next few.
SHARED_RANK = 16


class Judged(NamedTuple):
    """Flags and warnings of a fit.

    Attributes:
        items: `[items]` flags of the items.
        subjects: `[subjects]` flags of the subjects.
        separated: `[items]` whether an item is separated; None where not defined.
        errors: Standard errors of items by parameter name; NaN where an estimate does
            not exist.
        difficulties: `[items]` difficulties.
        warnings: Of items, subjects, and assumptions.
        notes: What is no reason to doubt the numbers.
    """

    items: list[str]
    subjects: list[str]
    separated: np.ndarray | None
    errors: dict[str, np.ndarray]
    difficulties: Any
    warnings: list[str]
    notes: list[str]


def build(
    table: ResponseTable,
    estimates: Estimates,
    *,
    options: dict[str, Any],
    clock: Clock,
    key: jax.Array,
    layout: Layout | None = None,
    warnings: tuple[str, ...] = (),
    original: ResponseTable | None = None,
) -> Calibration:
    """Assembles a calibration from the estimates of any method.

    Args:
        table: The data in the order of the fit.
        estimates: What the method found.
        options: Options to record; "level" and "model" are used.
        clock: Times the phases.
        key: Random key of the rank intervals.
        layout: Names of the parts of a multilevel model.
        warnings: Of preparing the data.
        original: The data in the user's order; None: as in `table`.
    """
    original = table if original is None else original
    level, count = options["level"], estimates.num_parameters
    shared, scale = None, estimates.scale
    if estimates.shared is not None:
        shared = leading_loadings(estimates.shared, SHARED_RANK)
        if scale is None:
            scale = scale_loadings(estimates.ability, shared)
    with clock.phase("tables"):
        margins = _margins(table, estimates)
        judged = _judge(table, estimates, layout, margins, options, shared)
        item_table = make_item_table(
            table,
            estimates.problem,
            estimates.parameters,
            judged.errors,
            judged.difficulties,
            margins[0],
            judged.items,
            judged.separated,
        )
        item_table, speeds = _with_lengths(item_table, estimates)
        ability_table = make_ability_table(
            table,
            estimates.ability,
            estimates.error,
            shared,
            scale,
            margins[1],
            judged.subjects,
            level,
            key,
            speeds,
            estimates.expected,
            _top(estimates),
        )
        # A method may have been given subjects in another order than the user's.
        order = positions(table.subjects, original.subjects)
        ability_table = ability_table.take(order)
    model, theta = estimates.problem.model, estimates.parameters.theta
    likelihood = estimates.log_likelihood
    return Calibration(
        model=_named(model, options["model"]),
        parameters=jax.tree.map(np.asarray, estimates.parameters)._replace(
            theta=None if theta is None else np.asarray(theta)[order],
        ),
        subjects=original.subjects,
        items=table.items,
        benchmarks=table.item_facets.get("benchmark"),
        status=estimates.status,
        num_steps=estimates.num_steps,
        trace=estimates.trace,
        residual=estimates.residual,
        log_likelihood=likelihood,
        log_prior=estimates.log_prior,
        num_parameters=count,
        num_observed=table.num_observed,
        aic=-2 * likelihood + 2 * count,
        bic=-2 * likelihood + count * math.log(table.num_subjects),
        item_table=item_table,
        ability_table=ability_table,
        warnings=(
            *_resolution_warnings(estimates, options["method"]),
            *warnings,
            *estimates.warnings,
            *judged.warnings,
        ),
        notes=(*estimates.verdict, *table.notes, *judged.notes),
        options=options,
        versions=versions(),
        data_hash=original.data_hash(),
        timings=dict(clock.timings),
        resolution=estimates.resolution,
        level=level,
        item_covariance=_known_covariance(estimates.covariance),
        ability_shared=None if shared is None else shared[order],
        ability_scale=None if scale is None else scale[order],
        correlation_error=_correlation_error(estimates),
        structure=structure_of(table, estimates, layout),
    )


def _top(estimates: Estimates) -> int:
    """The highest response."""
    return max(estimates.problem.model.family.num_categories - 1, 1)


def _margins(table: ResponseTable, estimates: Estimates) -> list[flags.Margins]:
    """Sums of responses of the items, and of the subjects."""
    top = _top(estimates)
    return [
        flags.margins(table.values, table.observed, table.trials, top, axis)
        for axis in (0, 1)
    ]


def _judge(
    table: ResponseTable,
    estimates: Estimates,
    layout: Layout | None,
    margins: list[flags.Margins],
    options: dict[str, Any],
    shared: np.ndarray | None,
) -> Judged:
    """Flags of items and subjects, and warnings."""
    model = estimates.problem.model
    errors, missing, difficulties = item_errors(
        estimates.problem,
        estimates.parameters,
        estimates.coordinates,
        estimates.covariance,
    )
    findings, separated = _findings(table, estimates, missing)
    if not estimates.finite:
        nowhere = flags.without_estimate(model, margins[0], findings)
        errors = _without(errors, nowhere, model)
    items = flags.item_flags(model, margins[0], findings)
    note = None
    if separated is not None and "discrimination" in estimates.priors:
        note = flags.separation_note(separated)
    subjects = _subject_flags(margins[1], estimates)
    found = [*_assumption_warnings(table, estimates)]
    if estimates.groups is not None:
        found = [
            *vanishing_groups(estimates, layout),
            *flags.flag_warnings(items, has_priors=True),
            *found,
        ]
    else:
        found += flags.fit_warnings(
            model,
            status=estimates.status,
            residual=estimates.residual,
            num_subjects=table.num_subjects,
            components=flags.num_components(table.observed),
            flags=items,
            subject_flags=subjects,
            joint=estimates.joint,
            has_priors=bool(estimates.priors),
            trained=estimates.trained,
            items=table.items,
            limit=estimates.limit,
            single_precision=estimates.coordinates.dtype == jnp.float32,
            responses_per_subject=float(np.median(margins[1].observed)),
        )
    if estimates.lengths is not None:
        found += lengths.warnings_of(
            table,
            estimates.parameters.items,
            estimates.lengths.part.parameters,
            options["length_offset"],
        )
    notes = [note] if note else []
    return Judged(items, subjects, separated, errors, difficulties, found, notes)


def _findings(
    table: ResponseTable, estimates: Estimates, missing: np.ndarray
) -> tuple[flags.Findings, np.ndarray | None]:
    """Findings about the items, and separation (None where it is not defined).

    Items of a group are compared with the rest of their group.
    """
    family = estimates.problem.model.family
    groups, group = [np.arange(table.num_items)], None
    abilities = estimates.ability[:, None]
    if estimates.groups is not None and estimates.groups.ability.shape[1] > 1:
        abilities, group = estimates.groups.ability, estimates.groups.group
        groups = [np.flatnonzero(group == k) for k in range(abilities.shape[1])]
    separated = None
    if family.num_categories == 2 and table.trials is None and family.has_slope:
        separated = np.zeros(table.num_items, bool)
        for mine, ability in zip(groups, abilities.T, strict=True):
            seen = None if table.observed is None else table.observed[:, mine]
            separated[mine] = flags.separated_items(
                table.values[:, mine], seen, ability
            )
    nothing = np.zeros(table.num_items, bool)
    diverging = nothing
    if not estimates.finite:
        slope, intercept = (
            np.asarray(getattr(estimates.parameters.items, name), float)
            for name in ("discrimination", family.intercept_name)
        )
        model = estimates.problem.model
        diverging = flags.diverging_items(model, slope, intercept)
        diverging &= np.asarray(estimates.problem.free).any(axis=1)
    if estimates.diverging is not None:
        diverging = diverging | estimates.diverging
    findings = flags.Findings(
        negative=negative_discrimination(
            table.values, table.observed, table.trials, group
        ),
        separated=nothing if separated is None or estimates.finite else separated,
        diverging=diverging,
        not_identified=missing,
    )
    return findings, separated


def _subject_flags(margins: flags.Margins, estimates: Estimates) -> list[str]:
    """One string of flags per subject, "; " between them and "" for none."""
    from irtjax.scoring import ScoreFlag

    found = flags.no_variation_flags(margins)
    for which, text in (
        (estimates.unfinished, ScoreFlag.UNFINISHED.explain()),
        (estimates.infinite, flags.RUNAWAY),
    ):
        for n in () if which is None else np.flatnonzero(which).tolist():
            found[n].append(text)
    return ["; ".join(texts) for texts in found]


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


def _resolution_warnings(estimates: Estimates, method: str) -> list[str]:
    """Warnings of nodes that are too wide, or do not reach far enough."""
    found = []
    if estimates.resolution is not None:
        found += filter(None, [estimates.resolution.warning()])
    count = estimates.at_end
    if count:
        found.append(
            f"{count} subject{'s' * (count > 1)} at the end of the quadrature nodes:"
            f" their abilities are cut off; use method={method.upper()}(nodes) with"
            " nodes that reach further"
        )
    return found


def _assumption_warnings(table: ResponseTable, estimates: Estimates) -> list[str]:
    """Violated assumptions: one ability, and a normal one; joint fits assume none."""
    if estimates.joint or estimates.lengths is not None:
        return []
    benchmarks = normality = None
    groups = 1 if estimates.groups is None else estimates.groups.ability.shape[1]
    if "benchmark" in table.item_facets and groups == 1:
        data = estimates.problem.data
        benchmarks = assumptions.one_ability_test(
            estimates.problem.model.family,
            estimates.parameters.items,
            estimates.ability,
            data.values,
            data.exposure,
            table.benchmarks,
        )
    if estimates.normal:
        shared = estimates.shared
        of_items = 0.0 if shared is None else np.sum(shared**2, axis=1)
        own = estimates.error**2 - of_items
        normality = assumptions.normality_test(estimates.ability, own)
    return assumptions.warnings_of(benchmarks, normality)


def _with_lengths(
    item_table: pa.Table, estimates: Estimates
) -> tuple[pa.Table, dict[str, Any]]:
    """The item table with length parameters, and columns of speed, if there are any."""
    of_lengths = estimates.lengths
    if of_lengths is None:
        return item_table, {}
    part = of_lengths.part
    columns = lengths.item_columns(part.parameters, of_lengths.covariance)
    for name, values in columns.items():
        column = number_column(values, item_table.num_rows)
        item_table = item_table.append_column(name, column)
    return item_table, lengths.ability_columns(
        part, estimates.ability, estimates.error, estimates.shared, of_lengths.speed
    )


def _correlation_error(estimates: Estimates) -> float | None:
    """Standard error of the correlation of ability and speed, if it is estimated."""
    of_lengths = estimates.lengths
    if of_lengths is None:
        return None
    return lengths.correlation_error(of_lengths.part.parameters, of_lengths.covariance)


def _named(model: Model, name: str) -> Model:
    """The model under the name that the fit records."""
    return Model(name, model.family, model.priors, model.scale, model.lengths)


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
