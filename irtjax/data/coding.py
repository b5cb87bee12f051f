"""Codes of responses: two numbers as wrong and right, numbers below 0 counted up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from irtjax.data import arrays
from irtjax.data.table import ResponseTable

#: Of the options of a fit: the lowest response of the data, and the unit of responses.
CODING = "coding"


def coding_of(table: ResponseTable) -> tuple[int, int] | None:
    """The lowest response and the unit in which others are counted; None for 0 and 1.

    Two whole numbers are wrong and right, whatever they are. More are categories, which
    are taken as they are unless some are below 0.

    >>> coding_of(ResponseTable.from_arrays([[1, 2], [2, 2]]))
    (1, 1)
    >>> coding_of(ResponseTable.from_arrays([[1, 2], [3, 2]])) is None
    True
    """
    if table.kind != "ordinal" or not table.num_observed:
        return None
    seen = table.seen
    low, high = int(seen.min()), int(seen.max())
    if low < high and bool(np.all((seen == low) | (seen == high))):
        return low, high - low
    return (low, 1) if low < 0 else None


def recoded(
    table: ResponseTable, coding: tuple[int, int] | list[int] | None
) -> ResponseTable:
    """The table with responses counted from the lowest one, in units.

    Raises:
        ValueError: A response is none of the two, if there are two.

    >>> recoded(ResponseTable.from_arrays([[1, 2]]), (1, 1)).values.tolist()
    [[0, 1]]
    """
    if coding is None:
        return table
    low, unit = coding
    cells = table.sparse
    if cells is not None:
        value = arrays.compact((cells.value.astype(np.float64) - low) / unit)
        return table.replace(values=dataclasses.replace(cells, value=value))
    values = (table.values.astype(np.float64) - low) / unit
    if table.observed is not None:
        values = np.where(table.observed, values, 0)
    return table.replace(values=arrays.compact(values))


def coded(table: ResponseTable) -> ResponseTable:
    """The table with two whole numbers as 0 and 1, those below 0 counted from 0.

    >>> coded(ResponseTable.from_arrays([[1, 2], [2, 2]])).values.tolist()
    [[0, 1], [1, 1]]
    """
    return recoded(table, coding_of(table))


def coded_as(options: Mapping[str, Any], table: ResponseTable) -> ResponseTable:
    """Another table with the codes of the data of a fit, by the options of the fit.

    A table with a response below the lowest one of the data is coded already.
    """
    coding = options.get(CODING)
    if coding is None or not table.num_observed or table.seen.min() < coding[0]:
        return table
    return recoded(table, coding)


def coding_note(table: ResponseTable, coding: tuple[int, int]) -> str:
    """What was done with the codes, in one sentence.

    >>> coding_note(ResponseTable.from_arrays([[1, 2]]), (1, 1))
    'the responses 1 and 2 were taken as 0 (wrong) and 1 (right)'
    """
    low, unit = coding
    high = int(table.seen.max())
    if high == low + unit:
        return f"the responses {low} and {high} were taken as 0 (wrong) and 1 (right)"
    return f"the responses {low} to {high} were counted from 0: {-low} was added"
