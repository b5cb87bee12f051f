"""What the responses and estimates show of single items and subjects, as flags."""

from __future__ import annotations

import numpy as np

from irtjax.calibration import copies, flags
from irtjax.calibration.discrimination import negative_discrimination
from irtjax.calibration.tables import CheckedTables, item_errors
from irtjax.data.table import ResponseTable
from irtjax.estimators.estimates import Estimates
from irtjax.inference import ScoreFlag
from irtjax.models.model import Model, response_ends


def check_tables(table: ResponseTable, estimates: Estimates) -> CheckedTables:
    """Counts, flags and errors, of items and of subjects."""
    model = estimates.problem.model
    of_items, of_subjects = _margins(table, model)
    errors, missing, difficulties = item_errors(estimates)
    separated = _separated(table, estimates)
    findings = flags.ItemFindings(
        negative=_negative(table, estimates),
        separated=_as_mask(None if estimates.finite else separated, table.num_items),
        diverging=_diverging(estimates),
        not_identified=missing,
    )
    if not estimates.finite:
        # Estimates that do not exist have no error; constants and common slopes do.
        absent = flags.without_estimate(model, of_items, findings)
        for name, error in errors.items():
            if name != "discrimination" or model.family.has_slope:
                mask = absent.reshape(-1, *[1] * (error.ndim - 1)) & (error > 0)
                errors[name] = np.where(mask, np.nan, error)
    alike = copies.of_table(table)
    return CheckedTables(
        (of_items, of_subjects),
        (
            flags.item_flags(model, of_items, findings),
            _subject_flags(of_subjects, estimates, alike),
        ),
        separated,
        (errors, difficulties),
        alike,
    )


def _margins(table: ResponseTable, model: Model) -> list[flags.Margins]:
    """Counts of items and of subjects."""
    low, top = response_ends(model).values()
    return [flags.margins(table.stored, top, axis, low) for axis in (0, 1)]


def _groups(
    table: ResponseTable, estimates: Estimates
) -> tuple[np.ndarray, np.ndarray | None]:
    """Abilities `[subjects, groups]`; the group of each item, None for one group.

    Items of a group are compared with the rest of their group.
    """
    if estimates.num_groups > 1:
        return estimates.by_group
    return estimates.ability[:, None], None


def _separated(table: ResponseTable, estimates: Estimates) -> np.ndarray | None:
    """Items whose right and wrong responses do not overlap; None where not defined."""
    family = estimates.problem.model.family
    binary = family.num_categories == 2 and table.trials is None
    if estimates.several or not (binary and family.has_slope):
        return None
    abilities, group = _groups(table, estimates)
    if group is None:
        return flags.separated_items(table.stored, estimates.ability)
    separated = np.zeros(table.num_items, bool)
    for k, ability in enumerate(abilities.T):
        part = table.stored.select(None, np.flatnonzero(group == k))
        separated[group == k] = flags.separated_items(part, ability)
    return separated


def _negative(table: ResponseTable, estimates: Estimates) -> np.ndarray:
    """Items that a test finds to have a negative discrimination."""
    return negative_discrimination(table.stored, _groups(table, estimates)[1])


def _diverging(estimates: Estimates) -> np.ndarray:
    """Items whose estimates grow without limit."""
    problem, items = estimates.problem, estimates.parameters.items
    family, free = problem.model.family, np.any(np.asarray(problem.free), axis=1)
    diverging = _as_mask(estimates.diverging, free.size)
    if estimates.finite:
        return diverging
    slope, intercept = (
        np.asarray(getattr(items, name), float)
        for name in ("discrimination", family.intercept_name)
    )
    intercept = np.where(np.asarray(family.in_use(items, "intercept")), intercept, 0.0)
    return diverging | free & flags.diverging_items(problem.model, slope, intercept)


def _as_mask(mask: np.ndarray | None, size: int) -> np.ndarray:
    """A mask, of nothing where there is none."""
    return np.zeros(size, bool) if mask is None else mask


def _subject_flags(
    margins: flags.Margins, estimates: Estimates, alike: copies.Copies
) -> list[str]:
    """One string of flags per subject, "; " between them and "" for none."""
    flagged = flags.no_variation(margins)
    for mask, text in (
        (estimates.unfinished, ScoreFlag.UNFINISHED.explain()),
        (estimates.infinite, flags.RUNAWAY),
    ):
        if mask is not None:
            flagged.append((text, np.asarray(mask)))
    flagged.append((flags.COPY, alike.flagged(margins.observed.size)))
    return flags.join_flags(margins.observed.size, flagged)
