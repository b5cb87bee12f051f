"""Telling a matrix of response lengths from one of responses."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from pathlib import Path

import numpy as np

from irtjax.data.table import ResponseTable

_NAME = re.compile(
    r"(^|[_.\- ])"
    r"(lengths?|tokens?|latency|latencies|durations?|chars|characters)"
    r"([_.\- ]|$)",
    re.I,
)
#: Largest whole number up to which a matrix may be of scores, whatever its name; and
#: above which any matrix gets a note.
_SCORES, _UNUSUAL = 100, 1000


def is_named_lengths(table: ResponseTable) -> bool:
    """Whether the file of a matrix has a name as of response lengths."""
    return _NAME.search(_file(table)) is not None


def refuse_lengths(
    tables: Sequence[ResponseTable],
    asked: Container[str] = (),
    *,
    forced: bool = False,
    with_responses: bool = False,
) -> tuple[list[ResponseTable], list[str]]:
    """Tables without those of lengths, and notes.

    Args:
        tables: Matrices that were read.
        asked: Files that were named one by one.
        forced: Whether a format was given, which reads other matrices as scores.
        with_responses: Whether the lengths are read with the responses, by `length=`.

    Returns:
        The tables without matrices of lengths that lie in a folder with responses of
        the same subjects to the same items; and notes on these, and on matrices that
        may hold lengths.

    Raises:
        ValueError: The name of another file and its values show that it holds lengths.
    """
    notes = []
    highest = {id(table): _highest(table) for table in tables}
    # A file of that name may have means of lengths.
    named = {id(x): _highest(x, whole=False) for x in tables if is_named_lengths(x)}
    sure = {place for place, high in named.items() if high}
    highest |= named
    responses = [x for x in tables if id(x) not in sure]
    rest = [*responses]
    for table in tables:
        high, source = highest[id(table)], table.sources[0] if table.sources else ""
        if id(table) in sure:
            if source not in asked and any(_same_cells(table, x) for x in responses):
                hint = f" (length='{source}' reads them with the responses)"
                notes.append(
                    f"{_file(table)} holds response lengths and was left out of the"
                    f" responses{'' if with_responses else hint}"
                )
                continue
            if forced:
                rest.append(table)
                continue
            raise ValueError(
                f"{source} holds response lengths (numbers up to {high:,.0f}), not"
                f" responses: give the file of responses, and length='{source}'"
                " with it; format= reads it as scores"
            )
        if high > _UNUSUAL and not forced:
            notes.append(
                f"the values are whole numbers up to {high:,.0f}: if they are response"
                " lengths, read the responses and pass this file as length="
            )
    return rest, notes


def _file(table: ResponseTable) -> str:
    """The name of the file of a table."""
    return Path(table.sources[0]).name if table.sources else ""


def _highest(table: ResponseTable, whole: bool = True) -> float:
    """The largest value; 0 of values that are no lengths, or no whole numbers."""
    values = table.values if table.sparse is None else table.sparse.value
    if table.trials is not None or values.dtype == np.int8:
        return 0.0
    low, high = values.min(initial=0), values.max(initial=0)
    if low < 0 or high <= _SCORES:
        return 0.0
    fits = not whole or np.array_equal(values, np.rint(values))
    return float(high) if fits else 0.0


def _same_cells(first: ResponseTable, second: ResponseTable) -> bool:
    """Whether one table has the subjects and the items of another."""
    return (
        set(first.items.tolist()) == set(second.items.tolist())
        and set(first.subjects.tolist()) == set(second.subjects.tolist())
    )  # fmt: skip
