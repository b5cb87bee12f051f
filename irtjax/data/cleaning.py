"""Responses without rare subjects and items, and without copies of items."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from irtjax.data.table import ResponseTable

if TYPE_CHECKING:
    import pyarrow as pa


class Cleaned(NamedTuple):
    """Responses that are left, and what was left out.

    Attributes:
        table: The responses.
        report: A row for each round and reason: `round`, `reason`, `left_out`.
    """

    table: ResponseTable
    report: pa.Table


def clean(
    table: ResponseTable,
    *,
    min_subjects: int = 30,
    min_items: int = 30,
    drop_duplicates: bool = True,
    drop_constant: bool = False,
) -> Cleaned:
    """Leaves out rare subjects and items, and items with the same responses.

    Rules are repeated until nothing more is left out, since items without a subject
    become rare. Items that all subjects solve, or none, have the same responses without
    being copies, so they count as `constant`, not as `duplicates`.

    Args:
        table: Responses.
        min_subjects: Subjects that an item needs.
        min_items: Items that a subject needs.
        drop_duplicates: Whether of items with identical responses, missing ones too,
            the first alone stays.
        drop_constant: Whether items with one response only are left out.

    Returns:
        The table, and how many were left out by which rule.

    Raises:
        ValueError: Nothing is left.

    >>> table = ResponseTable.from_arrays([[1, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]])
    >>> result = clean(table, min_subjects=3, min_items=2)
    >>> result.table.items.tolist(), result.report["reason"].to_pylist()
    (['item 1', 'item 3', 'item 4'], ['duplicates'])
    """
    import pyarrow as pa

    rows = []
    for number in range(1, table.num_items + table.num_subjects + 2):
        before = table.num_subjects, table.num_items
        for reason, rule in (
            (
                "items of few subjects",
                lambda t: (None, t.num_answered(0) >= min_subjects),
            ),
            ("subjects of few items", lambda t: (t.num_answered(1) >= min_items, None)),
            ("constant", lambda t: (None, _varied(t) | (not drop_constant))),
            ("duplicates", lambda t: (None, _first(t) | (not drop_duplicates))),
        ):
            subjects, items = rule(table)
            left_out = int(sum((~x).sum() for x in (subjects, items) if x is not None))
            if left_out:
                rows.append({"round": number, "reason": reason, "left_out": left_out})
                table = table.select(subjects=subjects, items=items)
            if not table.num_subjects or not table.num_items:
                raise ValueError(
                    f"nothing is left: each item needs {min_subjects} subjects, each"
                    f" subject {min_items} items; give smaller numbers"
                )
        if before == (table.num_subjects, table.num_items):
            break
    schema = pa.schema(
        [("round", pa.int64()), ("reason", pa.string()), ("left_out", pa.int64())]
    )
    return Cleaned(table, pa.Table.from_pylist(rows, schema=schema))


def _cells(table: ResponseTable) -> np.ndarray:
    """Responses, NaN where missing."""
    values = np.asarray(table.values, float)
    return (
        values if table.observed is None else np.where(table.observed, values, np.nan)
    )


def _varied(table: ResponseTable) -> np.ndarray:
    """Which items have two different responses."""
    cells = _cells(table)
    low = np.where(np.isnan(cells), np.inf, cells).min(axis=0)
    return low < np.where(np.isnan(cells), -np.inf, cells).max(axis=0)


def _first(table: ResponseTable) -> np.ndarray:
    """Which items are the first with their responses; constant ones all are."""
    cells = np.nan_to_num(_cells(table), nan=np.inf)
    _, first = np.unique(cells, axis=1, return_index=True)
    mask = ~_varied(table)
    mask[first] = True
    return mask
