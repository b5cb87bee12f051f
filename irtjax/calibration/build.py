"""From estimates to a calibration: flags, warnings, tables, in that order."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from irtjax.calibration import (
    assumptions,
    copies,
    flags,
    identification,
    relatives,
)
from irtjax.calibration.benchmarks import with_errors_of_benchmarks
from irtjax.calibration.calibration import Calibration
from irtjax.calibration.discrimination import negative_discrimination, negative_in_cells
from irtjax.calibration.parts import PARTS, Part
from irtjax.calibration.parts.groups import vanishing_groups
from irtjax.calibration.result_tables import AbilityTable, ItemTable
from irtjax.calibration.scale import (
    compares_means,
    scale_first,
    with_errors_of_scale,
)
from irtjax.calibration.tables import (
    CheckedTables,
    item_errors,
    make_ability_table,
    make_item_table,
    with_columns,
)
from irtjax.data.result_text import with_level
from irtjax.data.sparse_responses import SparseResponses
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.estimators.estimates import Estimates
from irtjax.estimators.timing import Clock
from irtjax.likelihood.products import by_product
from irtjax.models.model import response_ends
from irtjax.ranking import leading_loadings, scale_loadings
from irtjax.scoring import ScoreFlag

#: Directions of shared error that are kept: location, scale, and the next few.
SHARED_RANK = 16
#: Fields of a calibration that are those of the estimates.
_SAME = ("status", "num_steps", "trace", "residual", "log_likelihood", "log_prior")
_SAME += ("num_parameters", "resolution")


def build(
    table: ResponseTable,
    estimates: Estimates,
    *,
    options: dict[str, Any],
    clock: Clock,
    key: jax.Array,
    layout: Any,
    warnings: tuple[str, ...],
    original: ResponseTable,
    places: np.ndarray | None,
) -> Calibration:
    """Assembles a calibration; see `Task` for `places` of the `original` subjects."""
    conditional, level = estimates, options["level"]
    vary = identification.variation(table)
    benchmarks = _of_benchmarks(table, estimates)
    parts = [kind.of(table, estimates, layout) for kind in PARTS]
    parts = [part for part in parts if part is not None]
    estimates, related, common, tested = _with_all_errors(
        table, estimates, options, vary, benchmarks
    )
    clock.report("tables", 0, math.nan, math.nan)
    with clock.phase("tables"):
        # Findings about items and assumptions follow from the errors given the scale.
        checked = _judge(
            table, conditional, layout, options, (vary, benchmarks), tested, parts
        )
        clusters = relatives.clusters_of(table, related, options)
        abilities = make_ability_table(
            table, estimates, checked, *common, level, key, clusters
        )
        abilities = related.with_families(abilities)
        items = related.with_clusters(make_item_table(table, estimates, checked))
        for part in parts:
            items = with_columns(items, part.item_columns(estimates))
            abilities = with_columns(abilities, part.ability_columns(estimates))
        order = np.arange(table.num_subjects) if places is None else places
        abilities = abilities.take(order)
    theta, count = estimates.parameters.theta, estimates.num_parameters
    shared, scale = common
    return Calibration(
        model=dataclasses.replace(estimates.problem.model, name=options["model"]),
        parameters=jax.tree.map(np.asarray, estimates.parameters)._replace(
            theta=None if theta is None else np.asarray(theta)[order]
        ),
        subject_names=original.subjects,
        item_names=table.items,
        benchmarks=table.item_facets.get("benchmark"),
        num_observed=table.num_observed,
        aic=-2 * estimates.log_likelihood + 2 * count,
        bic=-2 * estimates.log_likelihood + count * math.log(table.num_subjects),
        items=ItemTable(items),
        abilities=AbilityTable(with_level(abilities, level)),
        warnings=scale_first(
            *_resolution_warnings(estimates, options["method"]),
            *warnings,
            *estimates.warnings,
            *checked.warnings,
        ),
        notes=(*estimates.verdict, *table.notes, *related.notes, *checked.notes),
        options=options,
        versions=_versions(),
        data_hash=original.data_hash(),
        timings=dict(clock.timings),
        level=level,
        item_covariance=_covariance_of_items(estimates),
        ability_shared=None if shared is None else shared[order],
        ability_scale=None if scale is None else scale[order],
        parts=tuple(part.take(order) for part in parts),
        item_texts=original.item_texts,
        item_contents=original.item_contents,
        **{name: getattr(estimates, name) for name in _SAME},
    )


def _with_all_errors(
    table: ResponseTable,
    estimates: Estimates,
    options: dict[str, Any],
    vary: identification.Variation,
    benchmarks: assumptions.BenchmarkTest | None,
) -> tuple[Estimates, relatives.Relatives, tuple[Any, Any], bool]:
    """Adds the errors of scale, benchmarks and relatives.

    The pair has loadings of the errors that abilities share, and of those of location
    and scale among them, None where there are none. The last value states whether
    subjects are compared by abilities.
    """
    level, error = options["level"], estimates.error
    clustered = relatives.with_clusters_as_benchmarks(table, options)
    estimates = with_errors_of_scale(estimates, clustered, vary, level)
    tested = not compares_means(estimates)
    differ = tested and benchmarks is not None and benchmarks.matters(error)
    if differ:
        estimates = with_errors_of_benchmarks(estimates, table, level)
    related = relatives.of_means(table, options)
    if tested:
        estimates, related = relatives.with_relatives(
            table, estimates, options, paired=differ
        )
    shared, scale = estimates.shared, estimates.scale
    if shared is not None and tested and not differ:
        shared = leading_loadings(shared, SHARED_RANK)
        if scale is None:
            scale = scale_loadings(estimates.ability, shared)
    return estimates, related, (shared, scale), tested


def _covariance_of_items(estimates: Estimates) -> np.ndarray | None:
    """The covariance of each item's parameters, NaN where one is not identified."""
    covariance = estimates.covariance
    if covariance is None:
        return None
    identified = np.asarray(covariance.identified)
    both = identified[:, :, None] & identified[:, None, :]
    return np.where(both, np.asarray(covariance.items), np.nan)


def _judge(
    table: ResponseTable,
    estimates: Estimates,
    layout,
    options,
    tests: tuple[identification.Variation, assumptions.BenchmarkTest | None],
    tested: bool,
    parts: list[Part],
) -> CheckedTables:
    """Flags of items and subjects, errors of items, and warnings."""
    model = estimates.problem.model
    of_items, of_subjects = _margins(table, model)
    errors, missing, difficulties = item_errors(estimates)
    findings, separated = _findings(table, estimates, missing)
    if not estimates.finite:
        # Estimates that do not exist have no error; constants and common slopes do.
        nowhere = flags.without_estimate(model, of_items, findings)
        for name, error in errors.items():
            if name != "discrimination" or model.family.has_slope:
                which = nowhere.reshape(-1, *[1] * (error.ndim - 1)) & (error > 0)
                errors[name] = np.where(which, np.nan, error)
    items = flags.item_flags(model, of_items, findings)
    alike = copies.of_table(table)
    subjects = _subject_flags(of_subjects, estimates, alike)
    vary, benchmarks = tests
    warnings, notes = _assumptions(table, estimates)
    notes = [*assumptions.note_of_benchmarks(benchmarks, estimates.error), *notes]
    if not tested:  # Of intervals and tests that the fit does not give.
        notes = []
    warnings = [*identification.warnings_of(table, estimates, vary), *warnings]
    warnings += copies.warnings_of(alike, table.subjects)
    warnings += assumptions.of_dependence(_dependence(table, estimates))
    if estimates.multilevel:
        warnings = [
            *vanishing_groups(estimates, layout),
            *flags.flag_warnings(items, table.items, has_priors=True),
            *warnings,
        ]
    else:
        warnings += flags.fit_warnings(
            estimates,
            num_subjects=table.num_subjects,
            components=_components(table),
            tested=tested,
            flags=items,
            subject_flags=subjects,
            items=table.items,
            responses_per_subject=float(np.median(of_subjects.observed)),
        )
    if estimates.directions is not None:
        negative = np.asarray(estimates.directions.sign) < 0
        note = flags.direction_note(negative, items, table.items)
        notes = [*notes, note] if note else notes
    for part in parts:
        findings = part.findings(table, estimates, options)
        warnings += findings.warnings
        notes += findings.notes
    if separated is not None and "discrimination" in estimates.priors:
        note = flags.separation_note(separated)
        notes = [note, *notes] if note else notes
    both = (of_items, of_subjects), (items, subjects)
    return CheckedTables(*both, separated, (errors, difficulties), warnings, notes)


def _margins(table: ResponseTable, model) -> list[flags.Margins]:
    """Counts of items and of subjects."""
    if table.binary_cells is not None:
        return [flags.margins_of_cells(table.binary_cells, axis) for axis in (0, 1)]
    data, ends = (table.values, table.observed, table.trials), response_ends(model)
    low, top = ends.values()
    return [flags.margins(*data, top, axis, low) for axis in (0, 1)]


def _components(table: ResponseTable) -> int:
    """Number of groups of subjects and items without responses in common."""
    if table.sparse is not None:
        return flags.components_of_cells(table.sparse)
    return flags.num_components(table.observed)


def _findings(table: ResponseTable, estimates: Estimates, missing: np.ndarray):
    """Findings about the items, and separation (None where it is not defined)."""
    model = estimates.problem.model
    family, cells = model.family, table.binary_cells
    nothing = np.zeros(table.num_items, bool)
    # Items of a group are compared with the rest of their group.
    group, abilities = None, estimates.ability[:, None]
    if estimates.num_groups > 1:
        abilities, group = estimates.by_group
    separated = None
    one = not estimates.several
    if one and family.num_categories == 2 and table.trials is None and family.has_slope:
        separated = nothing.copy()
        if cells is not None and group is None:
            separated = flags.separated_in_cells(cells, estimates.ability)
            abilities = abilities[:, :0]
        for k, ability in enumerate(abilities.T):
            mine = slice(None) if group is None else group == k
            seen = None if table.observed is None else table.observed[:, mine]
            separated_here = flags.separated_items(table.values[:, mine], seen, ability)
            separated[mine] = separated_here
    diverging = nothing
    if not estimates.finite:
        slope, intercept = (
            np.asarray(getattr(estimates.parameters.items, name), float)
            for name in ("discrimination", family.intercept_name)
        )
        used = np.asarray(family.in_use(estimates.parameters.items, "intercept"))
        intercept = np.where(used, intercept, 0.0)
        diverging = flags.diverging_items(model, slope, intercept)
        diverging &= np.asarray(estimates.problem.free).any(axis=1)
    if estimates.diverging is not None:
        diverging = diverging | estimates.diverging
    if cells is not None and group is None:
        negative = negative_in_cells(cells)
    else:
        responses = table.values, table.observed, table.trials
        negative = negative_discrimination(*responses, group)
    findings = flags.Findings(
        negative=negative,
        separated=nothing if separated is None or estimates.finite else separated,
        diverging=diverging,
        not_identified=missing,
    )
    return findings, separated


def _subject_flags(
    margins: flags.Margins, estimates: Estimates, alike: copies.Copies
) -> list[str]:
    """One string of flags per subject, "; " between them and "" for none."""
    flagged = flags.no_variation(margins)
    for which, text in (
        (estimates.unfinished, ScoreFlag.UNFINISHED.explain()),
        (estimates.infinite, flags.RUNAWAY),
    ):
        if which is not None:
            flagged.append((text, np.asarray(which)))
    flagged.append((flags.COPY, alike.flagged(margins.observed.size)))
    return flags.join_flags(margins.observed.size, flagged)


def _resolution_warnings(estimates: Estimates, method: str) -> list[str]:
    """Warnings of nodes that are too wide, or do not reach far enough."""
    warning, count = None, estimates.at_end
    if estimates.resolution is not None:
        warning = estimates.resolution.warning()
    warnings = [warning] if warning else []
    if count:
        warnings.append(
            f"{counted(count, 'subject')} at the end of the quadrature nodes:"
            f" their abilities are cut off; use method={method.upper()}(nodes) with"
            " nodes that reach further"
        )
    return warnings


def _dependence(table: ResponseTable, estimates: Estimates):
    """How much trials of a cell agree beyond ability; None without counts."""
    if table.trials is None:
        return None
    model, items = estimates.problem.model, estimates.parameters.items
    family = model.family
    if estimates.factors is not None:
        product = estimates.factors.mean @ np.asarray(items.discrimination).T
        parts = *by_product(model, items), product
    else:
        ability, group = estimates.by_group
        parts = family, items, ability[:, group]
    return assumptions.dependence_test(*parts, table.values, table.trials)


def _of_benchmarks(
    table: ResponseTable, estimates: Estimates
) -> assumptions.BenchmarkTest | None:
    """Test of one ability for all benchmarks; None of joint fits, and of several."""
    if estimates.joint or estimates.several:
        return None
    grouped = "benchmark" in table.item_facets and estimates.num_groups == 1
    if not grouped or estimates.problem.model.has_lengths:
        return None
    problem, items = estimates.problem, estimates.parameters.items
    family, ability, data = problem.model.family, estimates.ability, problem.data
    if isinstance(data, SparseResponses):
        return assumptions.one_ability_test_of_cells(
            family, items, ability, table.cells, table.benchmarks
        )
    return assumptions.one_ability_test(
        family, items, ability, data.values, data.exposure, table.benchmarks
    )


def _assumptions(table: ResponseTable, estimates: Estimates):
    """Warnings of violated assumptions, notes of untested ones; joint fits have none.

    They are independent normal abilities. Models with several abilities have none that
    are tested here.
    """
    if estimates.joint or estimates.several:
        return [], []
    normality = None
    if estimates.normal:
        variance = estimates.error**2
        # Multilevel fits keep all errors of abilities as shared ones.
        if estimates.shared is not None and not estimates.multilevel:
            variance = variance - np.sum(estimates.shared**2, axis=1)
        normality = assumptions.normality_test(estimates.ability, variance)
    # A histogram is estimated, not assumed.
    notes = []
    if normality is None:
        notes = assumptions.untested(table.num_subjects, estimates.normal)
    return assumptions.warnings_of(normality), notes


def _versions() -> dict[str, str]:
    """Versions of Python and of the packages that a fit depends on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version()}
    for name in ("irtjax", "jax", "jaxlib", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions | {"backend": jax.default_backend()}
