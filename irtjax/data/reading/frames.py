"""From a table of columns to responses: long tables here, wide ones in `wide`."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

import numpy as np
import pyarrow as pa

from irtjax.data.arrays import as_labels
from irtjax.data.reading import cells
from irtjax.data.reading.columns import Columns, decide
from irtjax.data.reading.options import ReadOptions, unanswered_note
from irtjax.data.reading.records import Coded, Records, concatenate
from irtjax.data.reading.tabular import Frame
from irtjax.data.reading.wide import Piece, read_wide

# Endings such as math500_017 or anatomy.236: a benchmark's name and a number.
_NUMBERED = re.compile(r"^(.*\D.*)[_.]\d+$")
_NO_BENCHMARK = {"item", "question", "q", "i", "x", "v", "problem", "task", "subject"}


def read_frame(frame: Frame, options: ReadOptions) -> Piece:
    """Reads a wide matrix as a `ResponseTable`, a long table as `Records`."""
    if frame.table.num_rows == 0:
        raise ValueError(f"{frame.source} has a header but no rows")
    names = frame.table.column_names
    layout = decide(names, frame.index, options, frame.source)
    if layout.item:
        return _read_long(frame, layout, options)
    return read_wide(frame, layout, options)


def _read_long(frame: Frame, layout: Columns, options: ReadOptions) -> Records:
    table, source = frame.table, frame.source
    size = table.num_rows

    def labels(name: str | None, optional: bool = True) -> Any:
        if name is None:
            return None
        return cells.to_labels(table.column(name), name, source, optional=optional)

    subject = labels(layout.subject, optional=False)
    columns = [labels(name, optional=False) for name in layout.item]
    if options.subject_name is not None:
        subject = Coded.constant(options.subject_name, size)
    if subject is None:
        raise ValueError(
            f"{source}: no column of subjects; name it with subject=, or give the one"
            " subject's name with subject_name="
        )
    benchmark, metric = labels(layout.benchmark), labels(layout.metric)
    item = qualify(functools.reduce(_pair, columns), benchmark, layout.inspect)
    item_parts = {}
    if len(columns) > 1:
        first = np.unique(item.codes, return_index=True)[1]
        names = item[first].texts().tolist()
        for name, column in zip(layout.item, columns, strict=True):
            values = column[first].texts().tolist()
            item_parts[name] = dict(zip(names, values, strict=True))
    errors, notes = _errors(table, layout, options, source)
    if layout.time is not None:
        notes.append(
            f"{source}: column {layout.time!r} is a time, not a length in tokens, and"
            f" was not read (length={layout.time!r} reads it as lengths)"
        )
    whole = Records(
        subject=subject,
        item=item,
        response=np.full(size, np.nan),
        benchmark=benchmark,
        metric=metric,
        filter=labels(layout.filter),
        trial=_trials(table, layout.trial, source),
        length=None
        if layout.length is None
        else _numbers(table, layout.length, source),
        source=source,
        item_parts=item_parts,
    )
    parts = []
    for name in layout.responses:
        response, more = _scores(table, name, options, source)
        response[errors] = _missing(options)
        part = dataclasses.replace(whole, response=response)
        if len(layout.responses) > 1 or layout.inspect or name == options.metric:
            label = name.removeprefix("score_")
            part.metric = Coded.constant(label, size)
            part.metric_notes = {label: more}
            more = []
        part.notes = [*notes, *more]
        parts.append(part)
    return concatenate(parts)


def _missing(options: ReadOptions) -> float:
    """A missing response; one that counts as wrong enters the means of repeats."""
    return 0.0 if options.missing_as == "wrong" else np.nan


def _numbers(
    table: pa.Table, name: str, source: str, *, verdicts: bool = False
) -> np.ndarray:
    """Returns a column as numbers, NaN where missing."""
    values, mask = cells.to_numbers(table.column(name), name, source, verdicts=verdicts)
    return np.where(True if mask is None else mask, values.astype(np.float64), np.nan)


def _scores(
    table: pa.Table, name: str, options: ReadOptions, source: str
) -> tuple[np.ndarray, list[str]]:
    """Returns the scores of a column, NaN where missing, and notes on them."""
    response = _numbers(table, name, source, verdicts=True)
    no_answer = cells.unanswered(table.column(name))
    if not no_answer.any():
        return response, []
    response[no_answer] = _missing(options)
    note = unanswered_note(int(no_answer.sum()), options)
    return response, [f"{source}: column {name!r}: {note}"]


def _errors(
    table: pa.Table, layout: Columns, options: ReadOptions, source: str
) -> tuple[np.ndarray, list[str]]:
    """Rows whose call failed, and notes: their score, often 0, is no response."""
    rows, notes = np.zeros(table.num_rows, bool), []
    if layout.error is None:
        return rows, notes
    column = table.column(layout.error)
    if not cells.is_number(column.type):
        rows = cells.failed(column)
    # It may be a measure, such as an absolute error, or the opposite of a score.
    elif np.nan_to_num(column.to_numpy().astype(np.float64)).any():
        notes.append(
            f"{source}: column {layout.error!r} holds numbers and was not read as a"
            " sign of failed calls"
        )
    if rows.any():
        what = "count as wrong" if options.missing_as == "wrong" else "are missing"
        notes.append(
            f"{source}: {int(rows.sum())} responses of rows with an error"
            f" (column {layout.error!r}) {what}"
        )
    return rows, notes


def _trials(table: pa.Table, name: str | None, source: str) -> np.ndarray | None:
    if name is None:
        return None
    column = table.column(name)
    if cells.is_text(column.type):
        coded = cells.to_labels(column, name, source, optional=True)
        return np.argsort(np.argsort(coded.labels))[coded.codes]
    return cells.to_numbers(column, name, source)[0].astype(np.int64)


def qualify(item: Coded, benchmark: Coded | None, always: bool) -> Coded:
    """Puts the benchmark before item names that would clash between benchmarks."""
    if benchmark is None:
        return item
    pair = item.codes.astype(np.int64) * len(benchmark.labels) + benchmark.codes
    if len(np.unique(pair)) == len(np.unique(item.codes)) and not always:
        return item
    return _pair(benchmark, item, repeat=False)


def _pair(first: Coded, second: Coded, repeat: bool = True) -> Coded:
    """Joins names as first/second; ``repeat``: also those that start with the first."""
    pair = second.codes.astype(np.int64) * len(first.labels) + first.codes
    _, start, inverse = np.unique(pair, return_index=True, return_inverse=True)
    # Pairs in order of first appearance, as names are everywhere else.
    order = np.argsort(start)
    names = []
    for row in start[order]:
        prefix, name = first.text(row), second.text(row)
        done = not prefix or (not repeat and name.startswith(f"{prefix}/"))
        names.append(name if done else f"{prefix}/{name}")
    return Coded(np.argsort(order)[inverse].astype(np.int32), as_labels(names))


def infer_benchmarks(items: np.ndarray) -> np.ndarray | None:
    """Returns the benchmark of each item from its name, if all names contain one.

    >>> infer_benchmarks(np.array(["gsm8k/1", "gsm8k/2", "arc/7"])).tolist()
    ['gsm8k', 'gsm8k', 'arc']
    >>> infer_benchmarks(np.array(["math500_000", "math500_001"])).tolist()
    ['math500', 'math500']
    >>> infer_benchmarks(np.array(["Item.1", "Item.2"])) is None
    True
    """
    out = []
    for name in items.tolist():
        match = _NUMBERED.match(name)
        prefix = match.group(1) if match else ""
        if "/" in name:
            prefix = name.split("/", 1)[0]
        if not prefix or prefix.lower() in _NO_BENCHMARK:
            return None
        out.append(prefix)
    # A different "benchmark" for every item is an accident of how they are named.
    return as_labels(out) if out and len(set(out)) < len(out) else None
