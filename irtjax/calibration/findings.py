"""Checks of a fit: small objects, each with what it applies to and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from irtjax.calibration import assumptions, copies, flags, identification
from irtjax.calibration.parts import Findings, Part
from irtjax.calibration.parts.groups import vanishing_groups
from irtjax.calibration.tables import CheckedTables
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.estimators.estimates import Estimates


class Evidence(NamedTuple):
    """What the checks of a fit read.

    Attributes:
        table: The responses.
        estimates: Their estimates, with the errors given the scale.
        options: The options of the fit.
        layout: Names of groups or factors (`Task.layout`).
        parts: The parts of the fit.
        variation: How abilities vary, from responses alone.
        benchmarks: Test of one ability for all benchmarks, or None.
        tested: Whether subjects are compared by abilities.
        checked: Counts and flags of items and subjects.
    """

    table: ResponseTable
    estimates: Estimates
    options: dict[str, Any]
    layout: Any
    parts: Sequence[Part]
    variation: identification.Variation
    benchmarks: assumptions.BenchmarkTest | None
    tested: bool
    checked: CheckedTables


class Check(NamedTuple):
    """A check of a fit: whether it applies, and what it finds."""

    applies: Callable[[Evidence], bool]
    find: Callable[[Evidence], Findings]


def _always(fit: Evidence) -> bool:
    return True


def _nodes(fit: Evidence) -> Findings:
    """Quadrature nodes that are too wide, or do not reach far enough."""
    resolution, count = fit.estimates.resolution, fit.estimates.at_end
    warning = "" if resolution is None else resolution.warning() or ""
    at_end = (
        f"{counted(count, 'subject')} at the end of the quadrature nodes:"
        f" their abilities are cut off; use method={fit.options['method'].upper()}"
        "(nodes) with nodes that reach further"
    )
    return Findings((*(warning,) * bool(warning), *(at_end,) * bool(count)))


def _separation(fit: Evidence) -> Findings:
    """Items whose slopes the prior determines."""
    assert fit.checked.separated is not None
    note = flags.separation_note(fit.checked.separated)
    return Findings(notes=(note,) if note else ())


def _integrated_items(fit: Evidence) -> Findings:
    """Flags of items that are integrated out, and groups that do not vary."""
    names, of_items = fit.table.items, fit.checked.flags[0]
    flagged = flags.flag_warnings(of_items, names, has_priors=True)
    return Findings((*vanishing_groups(fit.estimates, fit.layout), *flagged))


def _identification(fit: Evidence) -> Findings:
    """Abilities or ranks that the responses do not identify."""
    sentences = identification.warnings_of(fit.table, fit.estimates, fit.variation)
    return Findings(tuple(sentences))


def _one_ability(fit: Evidence) -> Findings:
    """Abilities that differ by benchmark."""
    test, error = fit.benchmarks, fit.estimates.error
    return Findings(notes=tuple(assumptions.note_of_benchmarks(test, error)))


def _normality(fit: Evidence) -> Findings:
    """Abilities that are not normal, as assumed, or that this was not tested."""
    estimates = fit.estimates
    variance = estimates.error**2
    # Multilevel fits keep all errors of abilities as shared ones.
    if estimates.shared is not None and not estimates.multilevel:
        variance = variance - np.sum(estimates.shared**2, axis=1)
    test = assumptions.normality_test(estimates.ability, variance)
    if test is None and fit.tested:
        return Findings(notes=tuple(assumptions.untested(fit.table.num_subjects, True)))
    return Findings(tuple(assumptions.warnings_of(test)))


def _copies(fit: Evidence) -> Findings:
    """Subjects with the same responses."""
    return Findings(tuple(copies.warnings_of(fit.checked.copies, fit.table.subjects)))


def _dependent_trials(fit: Evidence) -> Findings:
    """Trials of a cell that agree beyond ability."""
    estimates, values, trials = fit.estimates, fit.table.values, fit.table.trials
    family, items, ability = estimates.by_item
    test = assumptions.dependence_test(
        family, items, ability, values, np.asarray(trials)
    )
    return Findings(tuple(assumptions.of_dependence(test)))


def _estimated_items(fit: Evidence) -> Findings:
    """Convergence, few subjects, groups without links, flags of estimated items."""
    (of_items, of_subjects), table = fit.checked.flags, fit.table
    warnings = flags.fit_warnings(
        fit.estimates,
        num_subjects=table.num_subjects,
        components=table.stored.num_components(),
        tested=fit.tested,
        flags=of_items,
        subject_flags=of_subjects,
        items=table.items,
        responses_per_subject=float(np.median(fit.checked.margins[1].observed)),
    )
    return Findings(warnings)


def _directions(fit: Evidence) -> Findings:
    """Items whose likelier slope is negative, and that no test flags."""
    negative = np.asarray(fit.estimates.directions.sign) < 0
    note = flags.direction_note(negative, fit.checked.flags[0], fit.table.items)
    return Findings(notes=(note,) if note else ())


def _parts(fit: Evidence) -> Findings:
    """What each part finds."""
    parts, evidence = fit.parts, (fit.table, fit.estimates, fit.options)
    return _joined(part.findings(*evidence) for part in parts)


def _has_prior_of_separated(fit: Evidence) -> bool:
    separated = fit.checked.separated
    return separated is not None and "discrimination" in fit.estimates.priors


#: In the order of their sentences.
CHECKS = (
    Check(_always, _nodes),
    Check(_has_prior_of_separated, _separation),
    Check(lambda fit: fit.estimates.multilevel, _integrated_items),
    Check(_always, _identification),
    # Of tests of abilities, which mean responses replace if there are none.
    Check(lambda fit: fit.tested, _one_ability),
    # A histogram is estimated, not assumed; nor are joint or several abilities.
    Check(lambda fit: fit.estimates.normal, _normality),
    Check(_always, _copies),
    Check(lambda fit: fit.table.trials is not None, _dependent_trials),
    Check(lambda fit: not fit.estimates.multilevel, _estimated_items),
    Check(lambda fit: fit.estimates.directions is not None, _directions),
    Check(_always, _parts),
)


def findings_of(fit: Evidence) -> Findings:
    """What all checks find."""
    return _joined(check.find(fit) for check in CHECKS if check.applies(fit))


def _joined(parts: Iterable[Findings]) -> Findings:
    """Findings in one, in their order."""
    warnings, notes = [], []
    for findings in parts:
        warnings += findings.warnings
        notes += findings.notes
    return Findings(tuple(warnings), tuple(notes))


def benchmark_test(
    table: ResponseTable, estimates: Estimates
) -> assumptions.BenchmarkTest | None:
    """Test of one ability for all benchmarks; None of joint fits, and of several."""
    if estimates.joint or estimates.several:
        return None
    grouped = "benchmark" in table.item_facets and estimates.num_groups == 1
    if not grouped or estimates.problem.model.has_lengths:
        return None
    problem, items = estimates.problem, estimates.parameters.items
    family, ability = problem.model.family, estimates.ability
    return assumptions.one_ability_test(
        family, items, ability, problem.data, table.benchmarks
    )
