"""Subjects that are not read, by name or by pattern."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from irtjax.data.reading import cells
from irtjax.data.reading.records import Records
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, listing


def files_without(
    paths: Sequence[Path],
    names: str | Sequence[str] | None,
    subject_of: Callable[[Path], str | None],
) -> tuple[list[Path], dict[Path, str]]:
    """The files of other subjects than those to leave out; the others with subjects.

    So a damaged log of such a subject is not read at all.

    Args:
        paths: Logs, each of one subject.
        names: As in `without`.
        subject_of: The subject of a log, or None where the log has several.
    """
    patterns = _listed(names)
    if not patterns:
        return list(paths), {}
    subjects: list[str | None] = []
    for path in paths:
        try:
            subjects.append(subject_of(path))
        except (ValueError, OSError):
            subjects.append(None)  # Reading the file raises the error.
    distinct = list(dict.fromkeys(x for x in subjects if x is not None))
    gone = {name for each in patterns for name in _named(each, distinct)}
    pairs = dict(zip(paths, subjects, strict=True))
    out = {path: name for path, name in pairs.items() if name in gone and name}
    return [path for path in paths if path not in out], out


def rows_without(
    column: pa.ChunkedArray, names: str | Sequence[str] | None
) -> np.ndarray | None:
    """Which rows of a column of subjects are of those to leave out; None for none."""
    patterns = _listed(names)
    if not patterns:
        return None
    subject = cells.to_labels(column, "", "", optional=True)
    labels = subject.labels.tolist()
    gone = {name for each in patterns for name in _named(each, labels)}
    rows = np.isin(subject.labels, list(gone))[subject.codes]
    return rows if rows.any() else None


def columns_without(
    columns: Sequence[str], names: str | Sequence[str] | None
) -> list[str]:
    """Those of the columns that are subjects to leave out."""
    return [name for each in _listed(names) for name in _named(each, columns)]


def sound(
    table: pa.Table,
    rows: np.ndarray,
    numbers: Sequence[str],
    names: Sequence[str] = (),
    *,
    verdicts: bool = False,
) -> pa.Table:
    """The table with damaged cells of rows that are left out as missing ones.

    Args:
        table: A table as read from a file.
        rows: `[rows]`, which are of subjects to leave out.
        numbers: Columns that must hold numbers.
        names: Columns that must have a name in every row; where these rows lack one,
            they get that of another row, and no numbers.
        verdicts: Whether words such as "yes" are numbers.
    """
    nameless = np.zeros(table.num_rows, bool)
    for name in names:
        lacking = rows & cells.is_blank(table.column(name))
        if lacking.any() and not lacking.all():
            other = table.column(name)[int(np.argmin(lacking))].as_py()
            table = _replaced(table, name, lacking, other)
            nameless |= lacking
    for name in numbers:
        bad = rows & cells.no_number(table.column(name), verdicts=verdicts)
        table = _replaced(table, name, bad | nameless, None)
    return table


def _replaced(table: pa.Table, name: str, cell: np.ndarray, value: Any) -> pa.Table:
    """The table with a value in some cells of a column."""
    if not cell.any():
        return table
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    place = table.column_names.index(name)
    other = pa.scalar(value, column.type)
    column = pa.chunked_array([pc.if_else(cell, other, column.combine_chunks())])  # pyright: ignore
    return table.set_column(place, name, column)


def without(
    records: Records | None,
    tables: Sequence[ResponseTable],
    names: str | Sequence[str] | None,
    gone: Iterable[str] = (),
) -> tuple[Records | None, list[ResponseTable], list[str]]:
    """Responses without some subjects, and without items that only they met.

    Args:
        records: Scored attempts, before repeats are refused.
        tables: Tables of responses.
        names: Names of subjects, or patterns with `*`, `?` and `[...]`; None, or an
            empty list, for none.
        gone: Subjects whose files were not read.

    Returns:
        The records, the tables, and a note.

    Raises:
        ValueError: No subject has a name, none is left, or a name is not text.

    >>> table = ResponseTable.from_arrays([[1, 0], [1, 1]], subjects=["a", "a-4bit"])
    >>> _, (found,), notes = without(None, [table], ["*-4bit"])
    >>> found.subjects.tolist(), notes
    (['a'], ['1 subject left out: a-4bit'])
    """
    patterns = _listed(names)
    if not patterns:
        return records, list(tables), []
    present = [] if records is None else records.subject.compact().labels.tolist()
    present += [name for table in tables for name in table.subjects.tolist()]
    subjects = list(dict.fromkeys([*gone, *present]))
    out = {*gone}
    for name in patterns:
        named = _named(name, subjects)
        if not named:
            near = difflib.get_close_matches(name, subjects, 3)
            hint = f": did you mean {listing(near)}?" if near else ""
            raise ValueError(f"leave_out= names no subject: {name!r:.80}{hint}")
        out.update(named)
    if out >= {*present}:
        raise ValueError("leave_out= leaves no subject")
    before, after = set[str](), set[str]()
    if records is not None:
        labels = records.subject.labels.tolist()
        stays = np.asarray([label not in out for label in labels], bool)
        before |= _met(records)
        records = records.take(stays[records.subject.codes])
        after |= _met(records)
    left = []
    for table in tables:
        before |= {*table.items[~np.isnan(table.item_accuracy())].tolist()}
        stays = ~np.isin(table.subjects, list(out))
        if stays.all():
            met = table
        elif not stays.any():
            continue
        else:
            met = table.select(subjects=stays)
        after |= {*met.items[~np.isnan(met.item_accuracy())].tolist()}
        left.append(met)
    lost = before - after
    if lost:
        left = [_without_items(table, lost) for table in left]
        records = None if records is None else _without_rows(records, lost)
    records = records if records is not None and len(records) else None
    note = f"{counted(len(out), 'subject')} left out: "
    note += listing([name for name in subjects if name in out])
    if lost:
        count = counted(len(lost), "item")
        note += f"; with them {count} that only they met"
    return records, left, [note]


def _met(records: Records) -> set[str]:
    """Items with a response."""
    observed = records.item[~np.isnan(records.response)].compact()
    return {*observed.labels.tolist()}


def _without_rows(records: Records, lost: set[str]) -> Records:
    """The records without items that they may have."""
    labels = records.item.labels.tolist()
    stays = np.asarray([label not in lost for label in labels], bool)
    return records.take(stays[records.item.codes])


def _without_items(table: ResponseTable, lost: set[str]) -> ResponseTable:
    """The table without items that it may have."""
    out = np.isin(table.items, list(lost))
    return table.select(items=~out) if out.any() else table


def _named(name: str, subjects: Sequence[str]) -> list[str]:
    """The subjects that a name or pattern names."""
    # A name with a bracket is first of all a name.
    exact = [subject for subject in subjects if subject == name]
    return exact or [x for x in subjects if fnmatch.fnmatchcase(x, name)]


def _listed(names: Any) -> list[str]:
    """The names in a list; refuses what is no text, such as a number."""
    if names is None:
        return []
    is_one = isinstance(names, str) or not isinstance(names, Iterable)
    listed: list[Any] = [names] if is_one else [*names]
    for name in listed:
        if not isinstance(name, str):
            raise ValueError(
                f"leave_out= takes names of subjects as text: write {str(name)!r:.80},"
                f" not {name!r:.80}"
            )
    return listed
