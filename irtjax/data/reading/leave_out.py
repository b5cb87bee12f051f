"""Subjects that are not read, by name or by pattern."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence

import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.data.wording import listing


def without(table: ResponseTable, names: str | Sequence[str] | None) -> ResponseTable:
    """The table without some subjects, and without items that only they met.

    Args:
        table: The responses.
        names: Names of subjects, or patterns with `*`, `?` and `[...]`; None for none.

    Raises:
        ValueError: No subject has a name, or none is left.

    >>> table = ResponseTable.from_arrays([[1, 0], [1, 1]], subjects=["a", "a-4bit"])
    >>> found = without(table, ["*-4bit"])
    >>> found.subjects.tolist(), found.notes
    (['a'], ('1 subject left out: a-4bit',))
    """
    if names is None:
        return table
    subjects, out = table.subjects.tolist(), np.zeros(table.num_subjects, bool)
    for name in [names] if isinstance(names, str) else names:
        # A name with a bracket is first of all a name.
        found = [subject == name for subject in subjects]
        if not any(found):
            found = [fnmatch.fnmatchcase(subject, name) for subject in subjects]
        if not any(found):
            near = difflib.get_close_matches(name, subjects, 3)
            hint = f": did you mean {listing(near)}?" if near else ""
            raise ValueError(f"leave_out= names no subject: {name!r:.80}{hint}")
        out |= found
    if out.all():
        raise ValueError("leave_out= leaves no subject")
    left = table.select(subjects=~out)
    lost = ~np.isnan(table.item_accuracy()) & np.isnan(left.item_accuracy())
    if lost.any():
        left = left.select(items=~lost)
    count = int(out.sum())
    note = f"{count} subject{'s' * (count > 1)} left out: "
    note += listing(table.subjects[out].tolist())
    if items := int(lost.sum()):
        note += f"; with them {items:,} item{'s' * (items > 1)} that only they met"
    return left.replace(notes=(*left.notes, note))
