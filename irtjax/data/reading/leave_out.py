"""Subjects that are not read, by name or by pattern."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.data.wording import listing


def without(table: ResponseTable, names: str | Sequence[str] | None) -> ResponseTable:
    """The table without some subjects, and without items that only they met.

    Args:
        table: The responses.
        names: Names of subjects, or patterns with `*`, `?` and `[...]`; None, or an
            empty list, for none.

    Raises:
        ValueError: No subject has a name, none is left, or a name is not text.

    >>> table = ResponseTable.from_arrays([[1, 0], [1, 1]], subjects=["a", "a-4bit"])
    >>> found = without(table, ["*-4bit"])
    >>> found.subjects.tolist(), found.notes
    (['a'], ('1 subject left out: a-4bit',))
    """
    given = _listed(names)
    if not given:
        return table
    subjects, out = table.subjects.tolist(), np.zeros(table.num_subjects, bool)
    for name in given:
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


def _listed(names: Any) -> list[str]:
    """The names in a list; refuses what is no text, such as a number."""
    if names is None:
        return []
    is_one = isinstance(names, str) or not isinstance(names, Iterable)
    found: list[Any] = [names] if is_one else [*names]
    for name in found:
        if not isinstance(name, str):
            raise ValueError(
                f"leave_out= takes names of subjects as text: write {str(name)!r:.80},"
                f" not {name!r:.80}"
            )
    return found
