"""Merging the tables of several files into one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from irtjax.data import answers
from irtjax.data.arrays import as_labels, places_of
from irtjax.data.item_texts import joined_ids, joined_texts, refuse_other_contents
from irtjax.data.reading.finish import infer_benchmarks
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.repeats import are_repeats
from irtjax.data.reading.run_errors import run_errors
from irtjax.data.reversal import aligned
from irtjax.data.runs import RunErrors
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, were
from irtjax.numerics.memory import require_memory

#: What became of repeated pairs, in words.
_TREATED = {"mean": "averaged", "counts": "counted as trials", "first": "cut to one"}


def merge(tables: Sequence[ResponseTable], options: ReadOptions) -> ResponseTable:
    """Returns one table over all subjects and items."""
    if len(tables) == 1:
        return tables[0]
    tables, formulas = _alike(tables)
    contents: dict[str, str] = {}
    for table in tables:
        refuse_other_contents(table.item_contents, contents, "another table")
        contents = {**table.item_contents, **contents}
    subjects = _union([t.subjects for t in tables])
    items = _union([t.items for t in tables])
    shape = (len(subjects), len(items))
    require_memory(
        14.0 * shape[0] * shape[1],
        f"{len(tables)} tables of {counted(shape[0], 'subject')} by"
        f" {counted(shape[1], 'item')} in all",
        "read them as one long table, with a row for each response",
    )
    how = _treatment(tables, options)
    sums = _sums(tables, subjects, items, how)
    values, repeated = sums.values, sums.repeated
    has_trials = any(t.trials is not None for t in tables)
    has_trials |= how == "counts" and (repeated > 0 or options.trials == how)
    if how == "mean" and not has_trials:
        empty = np.zeros(shape)
        values = np.divide(values, sums.number, out=empty, where=sums.number > 0)
    notes = list(dict.fromkeys(note for t in tables for note in t.notes))
    if repeated:
        done = _TREATED.get(how, "joined")
        notes.append(
            f"{counted(repeated, 'subject-item pair')} {were(repeated)} in more than"
            f" one file and {were(repeated)} {done} (give subjects distinct names if"
            " they are several)"
        )
    merged = ResponseTable.from_arrays(
        values,
        subjects=subjects,
        items=items,
        observed=sums.number > 0,
        trials=sums.number if has_trials else None,
        metric=" / ".join(sorted({t.metric for t in tables if t.metric})) or None,
        lengths=sums.lengths,
    )
    merged = merged.replace(
        subject_facets=_facets("subject", subjects, tables, notes),
        item_facets=_facets("item", items, tables, notes),
    )
    return dataclasses.replace(
        merged,
        notes=tuple(notes),
        item_texts=joined_texts(t.item_texts for t in tables),
        item_ids=joined_ids(t.item_ids for t in tables),
        item_contents=contents,
        reversed_scores=formulas,
        answers=answers.joined(sums.answers, shape),
        runs=_runs(tables, merged, repeated > 0 and how != "first"),
    )


def _runs(
    tables: Sequence[ResponseTable], merged: ResponseTable, repeated: bool
) -> RunErrors | None:
    """Errors by runs: those of the tables, or, where these are the runs, from them."""
    subjects, items = merged.subjects, merged.items
    joined = any(table.runs is not None for table in tables)
    counts = any(table.trials is not None for table in tables)
    if not joined and (counts or not repeated):
        return None
    labels = merged.item_facets.get("benchmark")
    if labels is None and not merged.item_facets:
        labels = infer_benchmarks(items)
    if joined:
        return _joined_runs(tables, merged, labels)
    cells, values = [], []
    for table in tables:
        row, column = np.nonzero(
            np.broadcast_to(
                True if table.observed is None else table.observed, table.values.shape
            )
        )
        places = places_of(subjects, table.subjects), places_of(items, table.items)
        cells.append(places[0][row].astype(np.int64) * len(items) + places[1][column])
        values.append(np.asarray(table.values[row, column], float))
    runs = np.repeat(np.arange(len(tables)), [*map(len, cells)])
    shape = len(subjects), len(items)
    responses = np.concatenate(values)
    return run_errors(np.concatenate(cells), runs, responses, shape, labels)


def _joined_runs(
    tables: Sequence[ResponseTable], merged: ResponseTable, labels: np.ndarray | None
) -> RunErrors:
    """Errors by runs of tables that have them; `labels` are benchmarks `[items]`.

    Those of a table of one benchmark among several are of this benchmark alone.
    """
    common, own = np.zeros(merged.num_subjects), {}
    several = labels is not None and len(np.unique(labels)) > 1
    for table in tables:
        if table.runs is None:
            continue
        rows, errors = places_of(merged.subjects, table.subjects), dict(table.runs.own)
        part = table.runs.common
        if several and labels is not None:
            names = np.unique(labels[places_of(merged.items, table.items)]).tolist()
            if len(names) == 1:
                part, errors = 0.0, {names[0]: part}
        common[rows] = np.maximum(common[rows], part)
        for name, error in errors.items():
            whole = own.setdefault(name, np.zeros(len(common)))
            whole[rows] = np.maximum(whole[rows], error)
    # Subjects of tables without repeats are taken to vary as others of one run do.
    filled = lambda x: np.where(x > 0, x, x.max())
    return RunErrors(filled(common), {name: filled(x) for name, x in own.items()})


class _Sums(NamedTuple):
    """Responses of several tables, summed over the cells of the table of all.

    Attributes:
        values: Sums of responses, `[subjects, items]`.
        number: Numbers of responses, or of trials.
        lengths: Response lengths, those of the first table that has one.
        answers: Of each table its answers, and its rows and columns.
        repeated: Number of pairs that a table before has.
    """

    values: np.ndarray
    number: np.ndarray
    lengths: np.ndarray | None
    answers: list[tuple[Any, np.ndarray, np.ndarray]]
    repeated: int


def _sums(
    tables: Sequence[ResponseTable], subjects: np.ndarray, items: np.ndarray, how: str
) -> _Sums:
    """Adds the tables; repeats are treated as `how` names it."""
    shape = (len(subjects), len(items))
    is_small = all(t.values.dtype == np.int8 for t in tables)
    # Sums of right responses of few tables fit into a byte.
    few = len(tables) < 128 and all(t.trials is None for t in tables)
    summed = how == "mean" or (how == "counts" and not few)
    values = np.zeros(shape, np.int8 if is_small and not summed else np.float64)
    count = np.zeros(shape, np.int32)
    has_lengths = any(t.has_lengths for t in tables)
    lengths = np.full(shape, np.nan) if has_lengths else None
    parts, repeated = [], 0
    for number, table in enumerate(tables):
        rows = places_of(subjects, table.subjects)
        columns = places_of(items, table.items)
        block = np.ix_(rows, columns)
        new = table.observed if table.trials is None else table.trials
        new = np.array(True if new is None else new, np.int32)
        before = count[block]
        again = (before > 0) & (new > 0)
        repeated += int(np.count_nonzero(again))
        if how == "error" and repeated:
            _refuse_repeats(tables, number, again, repeated)
        own = table.answers
        if how == "first":
            new = np.where(again, 0, new)
            own = own and own.take(~again[own.subject, own.item])
        parts.append((own, rows, columns))
        weight = new if table.trials is None else (new > 0)
        values[block] += (table.values * weight).astype(values.dtype)
        count[block] = before + new
        if lengths is not None:
            old = lengths[block]
            lengths[block] = np.where(np.isnan(old), table.length_cells, old)
    return _Sums(values, count, lengths, parts, repeated)


def _treatment(tables: Sequence[ResponseTable], options: ReadOptions) -> str:
    """What becomes of pairs that several tables have, as `trials=` names it."""
    if options.trials != "auto":
        return options.trials
    # Other files may be of other benchmarks, metrics or models.
    if not are_repeats([_name(table) for table in tables]):
        return "error"
    right = all(t.kind in ("binary", "counts") for t in tables)
    return "counts" if right else "mean"


def _refuse_repeats(
    tables: Sequence[ResponseTable], number: int, again: np.ndarray, repeated: int
) -> NoReturn:
    """Refuses a table with pairs of tables before it: those marked in `again`."""
    table = tables[number]
    row, column = np.argwhere(again)[0]
    num_pairs = f" ({counted(repeated, 'such pair')})" if repeated > 1 else ""
    names = str(table.subjects[row]), str(table.items[column])
    other = next(filter(None, (_has(t, *names) for t in tables[:number])), None)
    raise ValueError(
        f"{_name(table)}: the response of {names[0]!r:.80} to {names[1]!r:.80}"
        f" is also in {other or 'another file'}{num_pairs}: choose trials='mean',"
        " 'first' or 'counts', give models and items distinct names, name one"
        " of the files alone, or, of one subject a file, add"
        " subject_from='file' with item= and response= for its columns"
    )


def numbered_on(
    tables: Sequence[ResponseTable], unnamed: Sequence[ResponseTable], notes: list[str]
) -> list[ResponseTable]:
    """Tables in which rows without names are other subjects in each file; adds a note.

    Rows of files of other items are those of the same subjects, if they are as many.
    """
    is_unnamed = lambda table: any(table is x for x in unnamed)
    taken: list[ResponseTable] = []
    moved = start = 0
    out = []
    for table in tables:
        if is_unnamed(table):
            new = not taken or any(_shares_items(table, x) for x in taken)
            new |= any(table.num_subjects != x.num_subjects for x in taken)
            taken.append(table)
            if new and start:
                count = table.num_subjects
                names = [f"subject {start + k}" for k in range(1, count + 1)]
                table = dataclasses.replace(table, subjects=as_labels(names))
                moved += 1
            start += table.num_subjects * new
        out.append(table)
    if moved:
        notes.append(
            f"rows without names are other subjects in each of {len(taken)} files:"
            f" {counted(start, 'subject')} in all (name the rows if some are the same)"
        )
    return out


def _shares_items(one: ResponseTable, other: ResponseTable) -> bool:
    """Whether two tables have an item in common."""
    return not {*one.items.tolist()}.isdisjoint(other.items.tolist())


def _alike(
    tables: Sequence[ResponseTable],
) -> tuple[list[ResponseTable], dict[str, str]]:
    """Tables whose items have one formula each, that of the first table with it."""
    formulas: dict[str, str] = {}
    met: dict[str, None] = {}
    alike = []
    for table in tables:
        if any(t.reversed_scores for t in tables):
            table = aligned(table, formulas, met)
            met |= dict.fromkeys(table.items.tolist())
            formulas |= table.reversed_scores or {}
        alike.append(table)
    return alike, formulas


def _name(table: ResponseTable) -> str:
    """What a table is called in a message."""
    return table.sources[0] if table.sources else "a table"


def _has(table: ResponseTable, subject: str, item: str) -> str | None:
    """The name of a table, if it holds the response of a subject to an item."""
    row, column = table.subjects == subject, table.items == item
    has = row.any() and column.any()
    if has and table.observed is not None:
        has = table.observed[np.ix_(row, column)].any()
    return _name(table) if has else None


def _union(groups: Sequence[np.ndarray]) -> np.ndarray:
    """The distinct names, in order of appearance."""
    return as_labels(dict.fromkeys(name for names in groups for name in names.tolist()))


def _facets(
    what: str, union: np.ndarray, tables: Sequence[ResponseTable], notes: list[str]
) -> dict[str, np.ndarray]:
    """Joins the facets of tables, "" where none has one; notes where they differ."""
    out: dict[str, dict[str, str]] = {}
    clashes: dict[str, dict[str, str]] = {}
    for table in tables:
        names = getattr(table, f"{what}s").tolist()
        for facet, labels in getattr(table, f"{what}_facets").items():
            column = out.setdefault(facet, dict.fromkeys(union.tolist(), ""))
            for name, label in zip(names, as_labels(labels).tolist(), strict=True):
                if label and column[name] and column[name] != label:
                    text = f"{name!r:.80} is {column[name]!r:.80} and {label!r:.80}"
                    clashes.setdefault(facet, {}).setdefault(name, text)
                column[name] = column[name] or label
    for facet, clashing in clashes.items():
        notes.append(
            f"files differ in the {facet} of {counted(len(clashing), what)}, such as"
            f" {next(iter(clashing.values()))}: the first was kept"
        )
    return {facet: as_labels(column.values()) for facet, column in out.items()}
