"""Reversed scores: c - x of a score x of which lower is better, and their formulas.

A formula such as "1 - wer" or "-latency" names the metric and the c, which is 0 in
"-latency". Tables and fits keep it by item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.data.arrays import compact
from irtjax.data.sparse_table import SparseCells

if TYPE_CHECKING:
    from irtjax.data.table import ResponseTable


def formula(c: float, metric: str) -> str:
    """The formula of reversed scores.

    >>> formula(1.0, "wer"), formula(0.0, "latency"), formula(6.0, "harm")
    ('1 - wer', '-latency', '6 - harm')
    """
    return f"{c:.15g} - {metric}" if c else f"-{metric}"


def origin(text: str) -> float:
    """The c of a formula.

    >>> origin("1 - wer"), origin("-latency")
    (1.0, 0.0)
    """
    return 0.0 if text.startswith("-") else float(text.partition(" - ")[0])


def metric_of(text: str) -> str:
    """The metric of a formula.

    >>> metric_of("1 - wer"), metric_of("-latency")
    ('wer', 'latency')
    """
    return text[1:] if text.startswith("-") else text.partition(" - ")[2]


def turned(text: str, value: float) -> float:
    """The score of a value as it is reported, by a formula; "" for raw ones.

    >>> turned("1 - wer", 0.25), turned("", 0.25)
    (0.75, 0.25)
    """
    return origin(text) - value if text else value


def with_formulas(table: ResponseTable, formulas: Mapping[str, str]) -> ResponseTable:
    """A table whose scores of these items are as their formulas state, "" for raw ones.

    >>> from irtjax.data.table import ResponseTable
    >>> table = ResponseTable.from_arrays([[0.25, 0.5]], items=["x", "y"])
    >>> with_formulas(table, {"x": "1 - wer"}).values.tolist()
    [[0.75, 0.5]]
    """
    own = dict(table.reversed_scores or {})
    changed = {
        name: text for name, text in formulas.items() if own.get(name, "") != text
    }
    names = table.items.tolist()
    places = [k for k, name in enumerate(names) if name in changed]
    if not places:
        return table
    sign, shift = np.ones(len(names)), np.zeros(len(names))
    for k in places:
        before, after = own.get(names[k], ""), changed[names[k]]
        # Of c - x the score is x = c - (c - x).
        if before:
            sign[k], shift[k] = -1.0, origin(before)
        if after:
            sign[k], shift[k] = -sign[k], origin(after) - shift[k]
        own[names[k]] = after
    values: Any
    if table.sparse is not None:
        cells = table.sparse
        column = cells.column
        value = compact(shift[column] + sign[column] * cells.value)
        values = SparseCells(cells.start, column, value, cells.num_items)
    else:
        trials = 1 if table.trials is None else table.trials
        values = shift * trials + sign * table.values
        if table.observed is not None:
            values = np.where(table.observed, values, 0.0)
        values = compact(values)
    reversed_items = {name: text for name, text in own.items() if text}
    return table.replace(values=values, reversed_scores=reversed_items)


def aligned(
    table: ResponseTable, formulas: Mapping[str, str], items: Iterable[str]
) -> ResponseTable:
    """A table with the directions of a fit, or of another table.

    Args:
        table: Responses; those whose directions are not known stay as they are.
        formulas: The formulas of the fit, by item.
        items: Its items: the others stay as they are.
    """
    own = table.reversed_scores
    if own is None or not (own or formulas):
        return table
    return with_formulas(table, {name: formulas.get(name, "") for name in items})


def bounds_of_values(table: ResponseTable, bounds: Any) -> Any:
    """Bounds of the values of a table, of bounds of the scores as they are reported.

    Of bounds of the values it returns those of the reported scores.

    >>> from irtjax.data.table import ResponseTable
    >>> table = ResponseTable.from_arrays([[3.0, 0.5]], items=["x", "y"])
    >>> table = with_formulas(table, {"x": "-latency", "y": "-latency"})
    >>> bounds_of_values(table, (0, 60))
    (-60.0, 0.0)
    """
    formulas = table.reversed_scores
    if not formulas or bounds is None:
        return bounds
    texts = np.array([formulas.get(x, "") for x in table.items.tolist()])
    if not isinstance(bounds, Mapping):
        if len(set(texts.tolist())) == 1:
            return _turned(bounds, str(texts[0]))
        bounds = dict.fromkeys(table.benchmarks.tolist(), bounds)
    by_name = {}
    for name, ends in bounds.items():
        own = set(texts[table.benchmarks == name].tolist())
        if len(own) > 1:
            shown = " and some ".join(sorted(x or "as they are" for x in own))
            raise ValueError(
                f"bounds of {name or 'all scores'!r:.80} are for scores of one metric,"
                f" but some are {shown}: give metrics that differ as benchmarks of a"
                " long table (benchmark=)"
            )
        by_name[name] = _turned(ends, own.pop()) if own else ends
    return by_name


def _turned(ends: Any, text: str) -> tuple[float, float]:
    """The ends of c - x for those of x; the same without a formula."""
    low, high = map(float, ends)
    return (origin(text) - high, origin(text) - low) if text else (low, high)


def directions_of(formulas: Iterable[str]) -> list[str]:
    """Sentences on formulas.

    >>> directions_of(["1 - wer"])
    ['Lower wer is better: scores are 1 - wer.']
    """
    return [f"Lower {metric_of(x)} is better: scores are {x}." for x in formulas]


def reported(table: ResponseTable, column: int, value: float) -> float:
    """The score as it was reported, of the value of an item in a column."""
    text = (table.reversed_scores or {}).get(str(table.items[column]))
    return value if text is None else origin(text) - value
