"""Telling a matrix of response lengths from one of responses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from irtjax.data.table import ResponseTable

_NAME = re.compile(
    r"(^|[_.\- ])(lengths?|tokens?|latency|latencies|durations?)([_.\- ]|$)", re.I
)
#: Largest whole number up to which a matrix may be of scores, whatever its name; and
#: above which any matrix gets a note.
_SCORES, _UNUSUAL = 100, 1000


def refuse_lengths(tables: Iterable[ResponseTable]) -> list[str]:
    """Notes on matrices that may hold lengths.

    Raises:
        ValueError: The name of a file and its values show that it holds lengths.
    """
    notes = []
    for table in tables:
        if table.trials is not None or table.values.dtype == np.int8:
            continue
        low, high = table.values.min(initial=0), table.values.max(initial=0)
        whole = low >= 0 and np.array_equal(table.values, np.rint(table.values))
        if not whole or high <= _SCORES:
            continue
        source = table.sources[0] if table.sources else ""
        named = [part for part in Path(source).parts[-1:] if _NAME.search(part)]
        if named:
            raise ValueError(
                f"{source} holds response lengths (whole numbers up to {high:,.0f}),"
                f" not responses: give the file of responses, and length='{source}'"
                " with it; format= reads it as scores"
            )
        if high > _UNUSUAL:
            notes.append(
                f"the values are whole numbers up to {high:,.0f}: if they are response"
                " lengths, read the responses and pass this file as length="
            )
    return notes
