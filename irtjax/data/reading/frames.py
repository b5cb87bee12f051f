"""From a table of columns to responses: long tables, and the door to wide ones."""

from __future__ import annotations

import functools
import re

import numpy as np
import pyarrow as pa

from irtjax.data.arrays import as_labels
from irtjax.data.reading.cells import failed, is_text, to_labels, to_numbers, unanswered
from irtjax.data.reading.columns import Columns, decide
from irtjax.data.reading.options import ReadOptions, unanswered_note
from irtjax.data.reading.records import Coded, Records, concatenate
from irtjax.data.reading.tabular import Frame
from irtjax.data.reading.wide import read_wide
from irtjax.data.table import ResponseTable

# Endings such as math500_017 or anatomy.236: a benchmark's name and a number.
_NUMBERED = re.compile(r"^(.*\D.*)[_.]\d+$")
_NO_BENCHMARK = {"item", "question", "q", "i", "x", "v", "problem", "task", "subject"}


def columns_to_read(
    names: list[str], options: ReadOptions, source: str
) -> tuple[list[str] | None, list[str]]:
    """Returns the columns to read (None for all) and those to keep as text."""
    layout = decide(names, None, options, source)
    if not layout.item:
        text = [] if layout.subject is None else [layout.subject]
        return None, text
    return layout.used(), layout.labels()


def read_frame(frame: Frame, options: ReadOptions) -> ResponseTable | Records:
    """Reads a table of columns.

    Args:
        frame: the columns.
        options: the caller's choices.

    Returns:
        A `ResponseTable` for a wide matrix, `Records` for a long table.

    Raises:
        ValueError: as `irtjax.read`.
    """
    if frame.table.num_rows == 0:
        raise ValueError(f"{frame.source} has a header but no rows")
    names = frame.table.column_names
    layout = decide(names, frame.index, options, frame.source)
    if layout.item:
        return _read_long(frame, layout, options)
    return read_wide(frame, layout, options)


def _read_long(frame: Frame, layout: Columns, options: ReadOptions) -> Records:
    table, source = frame.table, frame.source
    notes: list[str] = []
    size = table.num_rows

    def labels(name: str | None, optional: bool = True) -> Coded | None:
        if name is None:
            return None
        return to_labels(table.column(name), name, source, optional=optional)

    subject = labels(layout.subject, optional=False)
    columns = [labels(name, optional=False) for name in layout.item]
    item = functools.reduce(_pair, [c for c in columns if c is not None])
    if options.subject_name is not None:
        subject = Coded.constant(options.subject_name, size)
    if subject is None:
        raise ValueError(
            f"{source}: no column of subjects; name it with subject=, or give the one"
            " subject's name with subject_name="
        )
    benchmark = labels(layout.benchmark)
    item = _qualify(item, benchmark, layout.inspect)
    item_parts = {}
    if len(layout.item) > 1:
        present, first = np.unique(item.codes, return_index=True)
        names = item.labels[present].tolist()
        for column, made in zip(layout.item, columns, strict=True):
            assert made is not None
            values = made.labels[made.codes[first]].tolist()
            item_parts[column] = dict(zip(names, values, strict=True))
    trial = None
    if layout.trial is not None:
        trial = _trial_numbers(table.column(layout.trial), layout.trial, source)
    length = None
    if layout.length is not None:
        length = _numbers(table.column(layout.length), layout.length, source)
    errors = _errors(table, layout, options, notes, source)
    parts = []
    metric = labels(layout.metric)
    for name in layout.responses:
        response, told = _scores(table.column(name), name, options, source)
        if errors is not None:
            response[errors] = _missing(options)
        column, metric_notes = metric, {}
        if len(layout.responses) > 1 or layout.inspect or name == options.metric:
            label = name.removeprefix("score_")
            column = Coded.constant(label, size)
            metric_notes[label] = told
        else:
            notes += told
        parts.append(
            Records(
                subject=subject,
                item=item,
                response=response,
                benchmark=benchmark,
                metric=column,
                filter=labels(layout.filter),
                trial=trial,
                length=length,
                notes=notes,
                metric_notes=metric_notes,
                source=source,
                item_parts=item_parts,
            )
        )
    return concatenate(parts)


def _missing(options: ReadOptions) -> float:
    """A missing response; one that counts as wrong enters the means of repeats."""
    return 0.0 if options.missing_as == "wrong" else np.nan


def _numbers(
    column: pa.ChunkedArray, name: str, source: str, *, verdicts: bool = False
) -> np.ndarray:
    """Returns a column as numbers, NaN where missing."""
    values, mask = to_numbers(column, name, source, verdicts=verdicts)
    numbers = values.astype(np.float64)
    if mask is not None:
        numbers[~mask] = np.nan
    return numbers


def _scores(
    column: pa.ChunkedArray, name: str, options: ReadOptions, source: str
) -> tuple[np.ndarray, list[str]]:
    """Returns the scores of a column, NaN where missing, and notes on them."""
    response = _numbers(column, name, source, verdicts=True)
    no_answer = unanswered(column)
    if not no_answer.any():
        return response, []
    response[no_answer] = _missing(options)
    told = unanswered_note(int(no_answer.sum()), options)
    return response, [f"{source}: column {name!r}: {told}"]


def _errors(
    table: pa.Table,
    layout: Columns,
    options: ReadOptions,
    notes: list[str],
    source: str,
) -> np.ndarray | None:
    """Rows whose call failed: what stands as their score, often 0, is none."""
    if layout.error is None:
        return None
    column = table.column(layout.error)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        # It may be a measure, such as an absolute error, or the opposite of a score.
        if np.nan_to_num(column.to_numpy().astype(np.float64)).any():
            notes.append(
                f"{source}: column {layout.error!r} holds numbers and was not read as a"
                " sign of failed calls"
            )
        return None
    rows = failed(column)
    if not rows.any():
        return None
    what = "count as wrong" if options.missing_as == "wrong" else "are missing"
    notes.append(
        f"{source}: {int(rows.sum())} responses of rows with an error"
        f" (column {layout.error!r}) {what}"
    )
    return rows


def _trial_numbers(column: pa.ChunkedArray, name: str, source: str) -> np.ndarray:
    if is_text(column.type):
        coded = to_labels(column, name, source, optional=True)
        order = np.argsort(np.argsort(coded.labels))
        return order[coded.codes].astype(np.int64)
    numbers, _ = to_numbers(column, name, source)
    return numbers.astype(np.int64)


def _qualify(item: Coded, benchmark: Coded | None, always: bool) -> Coded:
    """Puts the benchmark before item names that would clash between benchmarks."""
    if benchmark is None:
        return item
    pair = item.codes.astype(np.int64) * len(benchmark.labels) + benchmark.codes
    if len(np.unique(pair)) == len(np.unique(item.codes)) and not always:
        return item
    return _pair(benchmark, item, repeat=False)


def _pair(first: Coded, second: Coded, repeat: bool = True) -> Coded:
    """Joins two columns of names into one, as first/second.

    Args:
        first: the part before the slash; "" adds none.
        second: the part after the slash.
        repeat: whether to put the first part before a name that starts with it.
    """
    size = len(first.labels)
    pair = second.codes.astype(np.int64) * size + first.codes
    codes, inverse = np.unique(pair, return_inverse=True)
    # Pairs in order of first appearance, as names are everywhere else.
    place = np.full(len(codes), len(pair))
    np.minimum.at(place, inverse, np.arange(len(pair)))
    order = np.argsort(place)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    names = []
    for code in codes[order].tolist():
        prefix = str(first.labels[code % size])
        name = str(second.labels[code // size])
        done = not prefix or (not repeat and name.startswith(f"{prefix}/"))
        names.append(name if done else f"{prefix}/{name}")
    return Coded(rank[inverse].astype(np.int32), as_labels(names))


def infer_benchmarks(items: np.ndarray) -> np.ndarray | None:
    """Returns the benchmark of each item by its name, if all names contain one.

    >>> infer_benchmarks(np.array(["gsm8k/1", "gsm8k/2", "arc/7"])).tolist()
    ['gsm8k', 'gsm8k', 'arc']
    >>> infer_benchmarks(np.array(["math500_000", "math500_001"])).tolist()
    ['math500', 'math500']
    >>> infer_benchmarks(np.array(["Item.1", "Item.2"])) is None
    True
    """
    out = []
    for name in items.tolist():
        if "/" in name:
            prefix = name.split("/", 1)[0]
        else:
            match = _NUMBERED.match(name)
            prefix = match.group(1) if match else ""
        if not prefix or prefix.lower() in _NO_BENCHMARK:
            return None
        out.append(prefix)
    # A different "benchmark" for every item is an accident of how they are named.
    return as_labels(out) if out and len(set(out)) < len(out) else None
