"""Checks of a fit: small objects, each with what it applies to and what it finds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from irtjax.calibration import assumptions, copies, flags, identification
from irtjax.calibration.item_findings import num_components
from irtjax.calibration.parts import Findings, Part
from irtjax.calibration.parts.groups import vanishing_groups
from irtjax.calibration.tables import CheckedTables
from irtjax.data.sparse_responses import SparseResponses
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted
from irtjax.estimators.estimates import Estimates
from irtjax.likelihood.products import by_product


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


class AbstractCheck(ABC):
    """A check of a fit."""

    def applies(self, fit: Evidence) -> bool:
        """Whether the fit has what is checked."""
        return True

    @abstractmethod
    def find(self, fit: Evidence) -> Findings:
        """What is found; nothing where all is well."""


class Nodes(AbstractCheck):
    """Quadrature nodes that are too wide, or do not reach far enough."""

    def find(self, fit: Evidence) -> Findings:
        """Warnings of nodes."""
        resolution, count = fit.estimates.resolution, fit.estimates.at_end
        warning = "" if resolution is None else resolution.warning() or ""
        at_end = (
            f"{counted(count, 'subject')} at the end of the quadrature nodes:"
            f" their abilities are cut off; use method={fit.options['method'].upper()}"
            "(nodes) with nodes that reach further"
        )
        return Findings((*(warning,) * bool(warning), *(at_end,) * bool(count)))


class Separation(AbstractCheck):
    """Items whose slopes the prior determines."""

    def applies(self, fit: Evidence) -> bool:
        """Of slopes with a prior."""
        has_prior = "discrimination" in fit.estimates.priors
        return has_prior and fit.checked.separated is not None

    def find(self, fit: Evidence) -> Findings:
        """A note on their number."""
        assert fit.checked.separated is not None
        note = flags.separation_note(fit.checked.separated)
        return Findings(notes=(note,) if note else ())


class MultilevelItems(AbstractCheck):
    """Flags of items that are integrated out, and groups that do not vary."""

    def applies(self, fit: Evidence) -> bool:
        """Of multilevel fits."""
        return fit.estimates.multilevel

    def find(self, fit: Evidence) -> Findings:
        """Warnings of both."""
        names, of_items = fit.table.items, fit.checked.flags[0]
        flagged = flags.flag_warnings(of_items, names, has_priors=True)
        return Findings((*vanishing_groups(fit.estimates, fit.layout), *flagged))


class Identification(AbstractCheck):
    """Abilities or ranks that the responses do not identify."""

    def find(self, fit: Evidence) -> Findings:
        """Warnings of equal subjects."""
        found = identification.warnings_of(fit.table, fit.estimates, fit.variation)
        return Findings(tuple(found))


class OneAbility(AbstractCheck):
    """One ability for all benchmarks."""

    def applies(self, fit: Evidence) -> bool:
        """Where subjects are compared by abilities."""
        return fit.tested

    def find(self, fit: Evidence) -> Findings:
        """A note where abilities differ by benchmark."""
        test, error = fit.benchmarks, fit.estimates.error
        return Findings(notes=tuple(assumptions.note_of_benchmarks(test, error)))


class Normality(AbstractCheck):
    """Normal abilities, where they are assumed: a histogram is estimated."""

    def applies(self, fit: Evidence) -> bool:
        """Of one ability that is integrated out."""
        return not fit.estimates.joint and not fit.estimates.several

    def find(self, fit: Evidence) -> Findings:
        """A warning if they are not normal, a note if that was not tested."""
        estimates = fit.estimates
        if not estimates.normal:
            return Findings()
        variance = estimates.error**2
        # Multilevel fits keep all errors of abilities as shared ones.
        if estimates.shared is not None and not estimates.multilevel:
            variance = variance - np.sum(estimates.shared**2, axis=1)
        test = assumptions.normality_test(estimates.ability, variance)
        if test is None and fit.tested:
            notes = assumptions.untested(fit.table.num_subjects, True)
            return Findings(notes=tuple(notes))
        return Findings(tuple(assumptions.warnings_of(test)))


class CopiedSubjects(AbstractCheck):
    """Subjects with the same responses."""

    def find(self, fit: Evidence) -> Findings:
        """A warning that names them."""
        alike = fit.checked.copies
        return Findings(tuple(copies.warnings_of(alike, fit.table.subjects)))


class DependentTrials(AbstractCheck):
    """Trials of a cell that agree beyond ability."""

    def applies(self, fit: Evidence) -> bool:
        """Of counts."""
        return fit.table.trials is not None

    def find(self, fit: Evidence) -> Findings:
        """A warning with the size of their dependence."""
        trials = np.asarray(fit.table.trials)
        estimates, table = fit.estimates, fit.table
        model, items = estimates.problem.model, estimates.parameters.items
        if estimates.factors is not None:
            product = estimates.factors.mean @ np.asarray(items.discrimination).T
            parts = *by_product(model, items), product
        else:
            ability, group = estimates.by_group
            parts = model.family, items, ability[:, group]
        test = assumptions.dependence_test(*parts, table.values, trials)
        return Findings(tuple(assumptions.of_dependence(test)))


class EstimatedItems(AbstractCheck):
    """The fit as a whole, and the flags of items that are parameters."""

    def applies(self, fit: Evidence) -> bool:
        """Of fits whose items are not integrated out."""
        return not fit.estimates.multilevel

    def find(self, fit: Evidence) -> Findings:
        """Warnings of convergence, few subjects, groups without links, flags."""
        (of_items, of_subjects), table = fit.checked.flags, fit.table
        warnings = flags.fit_warnings(
            fit.estimates,
            num_subjects=table.num_subjects,
            components=num_components(table),
            tested=fit.tested,
            flags=of_items,
            subject_flags=of_subjects,
            items=table.items,
            responses_per_subject=float(np.median(fit.checked.margins[1].observed)),
        )
        return Findings(warnings)


class Directions(AbstractCheck):
    """Negative slopes of items that are integrated out."""

    def applies(self, fit: Evidence) -> bool:
        """Of fits with the likelier sign of each slope."""
        return fit.estimates.directions is not None

    def find(self, fit: Evidence) -> Findings:
        """A note that names items which no test flags."""
        negative = np.asarray(fit.estimates.directions.sign) < 0
        note = flags.direction_note(negative, fit.checked.flags[0], fit.table.items)
        return Findings(notes=(note,) if note else ())


class Parts(AbstractCheck):
    """The parts of the fit."""

    def find(self, fit: Evidence) -> Findings:
        """What each part finds."""
        given = fit.table, fit.estimates, fit.options
        return joined(part.findings(*given) for part in fit.parts)


#: In the order of their sentences.
CHECKS = (
    *(Nodes(), Separation(), MultilevelItems(), Identification(), OneAbility()),
    *(Normality(), CopiedSubjects(), DependentTrials(), EstimatedItems()),
    *(Directions(), Parts()),
)


def findings_of(fit: Evidence) -> Findings:
    """What all checks find."""
    return joined(check.find(fit) for check in CHECKS if check.applies(fit))


def joined(found: Iterable[Findings]) -> Findings:
    """Findings in one, in their order."""
    warnings, notes = [], []
    for findings in found:
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
    family, ability, data = problem.model.family, estimates.ability, problem.data
    if isinstance(data, SparseResponses):
        return assumptions.one_ability_test_of_cells(
            family, items, ability, table.cells, table.benchmarks
        )
    return assumptions.one_ability_test(
        family, items, ability, data.values, data.exposure, table.benchmarks
    )
