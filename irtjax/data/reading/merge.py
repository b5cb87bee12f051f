"""Merging the tables of several files into one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from irtjax.data.arrays import as_labels
from irtjax.data.reading.options import ReadOptions
from irtjax.data.table import ResponseTable


def merge(tables: Sequence[ResponseTable], options: ReadOptions) -> ResponseTable:
    """Returns one table over all subjects and items.

    Cells that several tables hold are repeats, treated by ``options.trials``.
    Of facets that contradict each other the first stays, with a note.

    Raises:
        ValueError: a cell is in several tables and ``trials`` is "error".
    """
    if len(tables) == 1:
        return tables[0]
    subjects = _union([t.subjects for t in tables])
    items = _union([t.items for t in tables])
    shape = (len(subjects), len(items))
    is_small = all(t.values.dtype == np.int8 for t in tables)
    summed = options.trials in ("mean", "counts")
    values = np.zeros(shape, np.int8 if is_small and not summed else np.float64)
    count = np.zeros(shape, np.int32)
    has_lengths = any(t.lengths is not None for t in tables)
    lengths = np.full(shape, np.nan) if has_lengths else None
    repeated = 0
    for table in tables:
        block = np.ix_(
            [subjects[name] for name in table.subjects.tolist()],
            [items[name] for name in table.items.tolist()],
        )
        new = _counts(table)
        before = count[block]
        again = (before > 0) & (new > 0)
        repeated += int(np.count_nonzero(again))
        if options.trials == "error" and repeated:
            raise ValueError(_clash(table, again, repeated))
        if options.trials == "first":
            new = np.where(again, 0, new)
        weight = new if table.trials is None else (new > 0)
        values[block] += (table.values * weight).astype(values.dtype)
        count[block] = before + new
        if lengths is not None and table.lengths is not None:
            old = lengths[block]
            lengths[block] = np.where(np.isnan(old), table.lengths, old)
    has_trials = options.trials == "counts" or any(t.trials is not None for t in tables)
    if options.trials == "mean" and not has_trials:
        values = np.divide(values, count, out=np.zeros(shape), where=count > 0)
    notes = list(dict.fromkeys(note for t in tables for note in t.notes))
    if repeated:
        notes.append(f"{repeated} subject-item pairs were in more than one file")
    observed = count > 0
    merged = ResponseTable.from_arrays(
        values,
        subjects=subjects,
        items=items,
        observed=None if observed.all() else observed,
        trials=count if has_trials else None,
        metric=" / ".join(sorted({t.metric for t in tables if t.metric})) or None,
        lengths=lengths,
        notes=notes,
    )
    return _with_facets(merged, tables, subjects, items)


def _union(groups: Sequence[np.ndarray]) -> dict[str, int]:
    """Position of each distinct name, in order of appearance."""
    places: dict[str, int] = {}
    for labels in groups:
        for name in labels.tolist():
            places.setdefault(name, len(places))
    return places


def _counts(table: ResponseTable) -> np.ndarray:
    if table.trials is not None:
        return table.trials
    if table.observed is not None:
        return table.observed.astype(np.int32)
    return np.ones(table.values.shape, np.int32)


def _clash(table: ResponseTable, again: np.ndarray, repeated: int) -> str:
    row, column = np.argwhere(again)[0]
    source = table.sources[0] if table.sources else "a table"
    more = f" ({repeated} such pairs)" if repeated > 1 else ""
    return (
        f"{source}: the response of {str(table.subjects[row])!r} to"
        f" {str(table.items[column])!r} is also in another file{more}: choose"
        " trials='mean', 'first' or 'counts', or give items distinct names"
    )


def _with_facets(
    merged: ResponseTable,
    tables: Sequence[ResponseTable],
    subjects: dict[str, int],
    items: dict[str, int],
) -> ResponseTable:
    notes = list(merged.notes)
    of_subjects = [(t.subjects, t.subject_facets) for t in tables]
    of_items = [(t.items, t.item_facets) for t in tables]
    return dataclasses.replace(
        merged,
        subject_facets=_facets("subject", subjects, of_subjects, notes),
        item_facets=_facets("item", items, of_items, notes),
        notes=tuple(notes),
    )


def _facets(
    what: str,
    places: dict[str, int],
    sides: Sequence[tuple[np.ndarray, Mapping[str, np.ndarray]]],
    notes: list[str],
) -> dict[str, np.ndarray]:
    """Joins the facets of several tables; "" where none has one.

    Args:
        what: "subject" or "item", for notes.
        places: position of each name in the merged table.
        sides: names and their facets, of each table.
        notes: gets a note for each facet that tables contradict each other in.
    """
    out: dict[str, list[str]] = {}
    clashes: dict[str, dict[str, str]] = {}
    for names, facets in sides:
        for facet, labels in facets.items():
            column = out.setdefault(facet, [""] * len(places))
            pairs = zip(names.tolist(), as_labels(labels).tolist(), strict=True)
            for name, label in pairs:
                place = places[name]
                if label and column[place] and column[place] != label:
                    text = f"{name!r} is {column[place]!r} and {label!r}"
                    clashes.setdefault(facet, {}).setdefault(name, text)
                column[place] = column[place] or label
    for facet, found in clashes.items():
        notes.append(
            f"files differ in the {facet} of {len(found)} {what}s, such as"
            f" {next(iter(found.values()))}: the first was kept"
        )
    return {facet: as_labels(column) for facet, column in out.items()}
