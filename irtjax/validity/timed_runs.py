"""TimedRuns of subjects at tasks with their human time, from a table of any columns."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from irtjax.data.wording import counted
from irtjax.validity.success_by_length import RunCounts

if TYPE_CHECKING:
    import pyarrow as pa

#: Names of columns, in the order in which they are looked for.
COLUMNS = {
    "subject": ("subject", "alias", "model", "agent"),
    "task": ("task", "task_id", "item"),
    "minutes": ("minutes", "human_minutes"),
    "response": ("response", "score_binarized", "resolved", "success", "score"),
    "family": ("family", "task_family"),
}
#: Subjects that are people.
PEOPLE = ("human", "humans", "human baseline")


class TimedRuns(NamedTuple):
    """TimedRuns of all subjects, with labels.

    Attributes:
        subjects: Their names.
        counts: TimedRuns and successes by subject and task.
        dates: `[subjects]` days, NaN where there is none; None without dates.
        has_families: Whether the families of tasks are in the data.
        warnings: What was left out.
    """

    subjects: np.ndarray
    counts: RunCounts
    dates: np.ndarray | None
    has_families: bool
    warnings: list[str]


def _table_of(runs: Any) -> pa.Table:
    """The runs as an Arrow table."""
    import pyarrow as pa

    if isinstance(runs, pa.Table):
        return runs
    if isinstance(runs, (str, Path)):
        from irtjax.data.side_files import read_side_file

        return read_side_file(Path(runs), str(runs))
    if hasattr(runs, "to_arrow"):
        return runs.to_arrow()
    if isinstance(runs, Mapping):
        return pa.table({str(name): pa.array(x) for name, x in runs.items()})
    return pa.Table.from_pandas(runs, preserve_index=False)


def _names(table: pa.Table, columns: dict[str, str]) -> dict[str, str | None]:
    """The column of each part of the data; None of families that are not there."""
    present = table.column_names
    for part, name in columns.items():
        if part not in COLUMNS:
            raise ValueError(f"columns {part!r} is none of {', '.join(COLUMNS)}")
        if name not in present:
            raise ValueError(
                f"there is no column {name!r} ({part}) among {', '.join(present)}"
            )
    names: dict[str, str | None] = {}
    for part, usual in COLUMNS.items():
        names[part] = columns.get(part) or next(
            (x for x in usual if x in present), None
        )
        if names[part] is None and part != "family":
            raise ValueError(
                f"there is no column of {part}, such as {' or '.join(usual[:2])}, among"
                f" {', '.join(present)}: name it with --{part}, or columns="
            )
    return names


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    """A column as numbers, NaN where there is none."""
    numbers = []
    for row, value in enumerate(table[name].to_pylist()):
        # Columns of CSV files are text, empty where there is no number.
        try:
            numbers.append(np.nan if value in (None, "") else float(value))
        except (TypeError, ValueError):
            raise ValueError(
                f"column {name!r}, row {row + 1}: {value!r} is not a number; write one,"
                " or leave the cell empty"
            ) from None
    return np.array(numbers, np.float64)


def _labels(table: pa.Table, name: str) -> np.ndarray:
    """A column as text."""
    labels = np.array([str(x) for x in table[name].to_pylist()], object)
    if table[name].null_count:
        row = table[name].is_null().to_pylist().index(True) + 1
        raise ValueError(f"row {row} has no {name}: fill it in or leave the row out")
    return labels


def runs_of(
    runs: Any,
    columns: dict[str, str],
    dates: Mapping[str, Any] | str | None,
    humans: bool,
) -> TimedRuns:
    """The counts of runs by subject and task."""
    table = _table_of(runs)
    names = _names(table, columns)
    subject, task, minutes, response = (
        str(names[x]) for x in ("subject", "task", "minutes", "response")
    )
    success, length = _numbers(table, response), _numbers(table, minutes)
    there = np.isfinite(success)
    warnings = []
    if not there.all():
        left = counted((~there).sum(), "run")
        warnings.append(f"{left} without a {response} left out")
    people = np.char.lower(_labels(table, subject).astype(str))
    if not humans and np.isin(people, PEOPLE).any():
        there &= ~np.isin(people, PEOPLE)
    for wrong, what in (
        (~((success >= 0) & (success <= 1)), f"{response} must be from 0 to 1"),
        (~((length > 0) & (length < np.inf)), f"{minutes} must be above 0"),
    ):
        rows = np.nonzero(wrong & there)[0]
        if len(rows):
            value = table[response if "0 to 1" in what else minutes][int(rows[0])]
            raise ValueError(f"{what}, and that of row {rows[0] + 1} is {value}")
    if not there.any():
        raise ValueError(f"there is no run with a {response} of a subject")
    who, row = np.unique(_labels(table, subject)[there], return_inverse=True)
    tasks, column = np.unique(_labels(table, task)[there], return_inverse=True)
    of_task = lambda values, what: _of_task(values[there], column, tasks, what)
    family = names["family"]
    families = tasks if family is None else of_task(_labels(table, family), family)
    shape = len(who), len(tasks)
    right, number = np.zeros(shape), np.zeros(shape)
    np.add.at(right, (row, column), success[there])
    np.add.at(number, (row, column), 1)
    counts = RunCounts(
        right,
        number,
        np.log2(of_task(length, minutes)),
        np.unique(families, return_inverse=True)[1],
    )
    if np.ptp(counts.length) == 0:
        raise ValueError(f"all tasks have {2 ** counts.length[0]:g} {minutes}")
    if isinstance(dates, str):
        dates = _dates_of(table, subject, dates)
    days = None if dates is None else days_of(who, dates)
    return TimedRuns(who, counts, days, family is not None, warnings)


def _of_task(
    values: np.ndarray, column: np.ndarray, tasks: np.ndarray, what: str
) -> np.ndarray:
    """`[tasks]`: the one value of all runs of each task."""
    first = np.empty(len(tasks), values.dtype)
    first[column[::-1]] = values[::-1]
    other = np.nonzero(values != first[column])[0]
    if len(other):
        place = column[other[0]]
        raise ValueError(
            f"task {tasks[place]!r} has the {what} {first[place]} and"
            f" {values[other[0]]}: give each task one"
        )
    return first


def _dates_of(table: pa.Table, subject: str, name: str) -> dict[str, Any]:
    """Dates by subject, from a column of the runs."""
    if name not in table.column_names:
        names = ", ".join(table.column_names)
        raise ValueError(f"there is no column {name!r} of dates among {names}")
    dates: dict[str, Any] = {}
    for who, date in zip(_labels(table, subject), table[name].to_pylist(), strict=True):
        if dates.setdefault(who, date) != date:
            raise ValueError(
                f"{who!r} has the dates {dates[who]} and {date}: give each subject one"
            )
    return dates


def days_of(subjects: np.ndarray, dates: Mapping[str, Any]) -> np.ndarray:
    """`[subjects]` days of the calendar, NaN where there is none."""
    days = np.full(len(subjects), np.nan)
    for place, name in enumerate(subjects):
        date = dates.get(name)
        if date is None or date == "" or date != date:
            continue
        if not isinstance(date, datetime.date):
            try:
                date = datetime.datetime.fromisoformat(str(date).strip())
            except ValueError:
                raise ValueError(
                    f"date {date!r} of {str(name)!r} is none: write it as 2024-05-13"
                ) from None
        days[place] = date.toordinal()
    return days
