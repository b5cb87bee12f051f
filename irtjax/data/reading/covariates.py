"""Columns next to a matrix of responses that describe its rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from irtjax.data.reading.cells import is_number, is_verdict, is_wordy, to_labels
from irtjax.data.reading.roles import describing
from irtjax.data.reading.totals import is_total
from irtjax.data.wording import listing, were

#: Columns of responses that there are at least, where values show a covariate.
_LEAST = 5
#: Share of a covariate's values that lie outside those of the other columns.
_OUTSIDE = 0.9
#: Times the largest response, from which a number is none.
_FAR = 20
#: Characters of a text that is no label.
_LONGEST = 200


def covariates(
    table: pa.Table, names: list[str], what: str, source: str
) -> tuple[dict[str, np.ndarray | None], list[str]]:
    """Columns that describe rows with their values, None of long texts; and notes.

    By their name, such as Gender; because they alone hold words; or because their
    numbers are unlike those of the other columns, such as ages next to 0 and 1.

    Args:
        table: The matrix.
        names: Columns that may be responses.
        what: What the rows are, such as "subjects".
        source: The file, for messages.
    """
    names = [name for name in names if name != "freq"]  # Of response patterns.
    usual = describing(names)
    rest = [name for name in names if name not in usual]
    wordy = [name for name in rest if _is_words(table.column(name))]
    if 2 * len(wordy) >= len(rest):
        # Mostly words, such as letters to score.
        return {}, []
    rest = [name for name in rest if name not in wordy]
    unlike = _unlike(table, rest)
    columns: dict[str, np.ndarray | None] = {}
    for name in (*usual, *wordy, *unlike):
        column = table.column(name)
        if not pa.types.is_nested(column.type):
            texts = to_labels(column, name, source, optional=True).texts()
            longest = max(map(len, texts.tolist()), default=0)
            columns[name] = texts if longest <= _LONGEST else None
    if not columns:
        return {}, []
    shown, count = listing([repr(name) for name in columns], 6), len(columns)
    verb = "describes" if count == 1 else "describe"
    facet = "a facet" if count == 1 else "facets"
    noun = "column" if count == 1 else "columns"
    note = (
        f"{noun} {shown} {verb} {what} and {were(count)} read as {facet} of these, not"
        " as responses (rename what is an item)"
    )
    return columns, [note]


def _is_words(column: pa.ChunkedArray) -> bool:
    """Whether a column holds words or dates that are no verdicts."""
    if pa.types.is_null(column.type) or pa.types.is_nested(column.type):
        return False
    return is_wordy(column) and not is_verdict(column)


def _unlike(table: pa.Table, names: list[str]) -> list[str]:
    """Columns whose numbers are far outside those of the others."""
    if len(names) <= _LEAST:
        return []
    columns = {}
    for name in names:
        column = table.column(name)
        if is_number(column.type):
            values = np.asarray(column.to_numpy(), np.float64)
            columns[name] = values[np.isfinite(values)]
    ends = [(x.min(), x.max()) for x in columns.values() if len(x)]
    if len(ends) <= _LEAST:
        return []
    # Nine tenths of the columns are responses.
    low = np.quantile([x for x, _ in ends], 0.1, method="higher")
    high = np.quantile([x for _, x in ends], 0.9, method="lower")
    reach = _FAR * max(abs(low), abs(high), 1.0)
    return [
        name
        for name, x in columns.items()
        if len(x)
        and np.mean((x < low) | (x > high)) >= _OUTSIDE
        and (np.abs(x).max() > reach or not np.array_equal(x, np.rint(x)))
        and not is_total(name)
    ]
