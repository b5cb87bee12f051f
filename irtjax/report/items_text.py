"""The items of a fit as a text table: estimates, their errors, and flags."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from irtjax.calibration.flags import CONSTANT
from irtjax.data.text_table import text_table
from irtjax.data.wording import counted
from irtjax.report.words import number

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

#: Items of a table that is shown whole, and rows of a longer one.
WHOLE, SHOWN = 30, 12
#: Parameters in the order of their columns; others follow where items differ in them.
_FIRST = ("difficulty", "discrimination")
_REST = ("item", "benchmark", "intercept", "accuracy", "observed", "flags", "separated")
#: What a narrow screen can do without, least needed first.
_SPARE = ("responses", "benchmark", "accuracy")


def items_text(
    fit: Calibration,
    *,
    everything: bool = False,
    most: int = WHOLE,
    width: int | None = None,
    unicode: bool | None = None,
) -> str:
    """Returns the items as text: parameters with standard errors, accuracy and flags.

    Args:
        fit: The calibration.
        everything: Every item; else of many the flagged ones first, then those that
            discriminate least.
        most: Items up to which all are shown.
        width: Columns of the screen; None takes those of the terminal.
        unicode: Whether other characters than ASCII are used; None asks the stream.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch")
    >>> items_text(fit).splitlines()[0].split()
    ['item', 'difficulty', 'error', 'accuracy', 'responses']
    """
    rows = fit.items.table.to_pylist()
    left = 0
    if not everything and len(rows) > most:
        rows.sort(key=_worst)
        left = len(rows) - min(most, SHOWN)
        rows = rows[: min(most, SHOWN)]
    header, cells = _cells(fit.items.table.column_names, rows)
    if left:
        cells.append([f"({left:,} more)"] + [""] * (len(header) - 1))
    options: dict[str, Any] = {"width": width, "unicode": unicode, "spare": _SPARE}
    return text_table(header, cells, left=("item", "benchmark", "flags"), **options)


def item_rows(fit: Calibration) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows of all items."""
    return _cells(fit.items.table.column_names, fit.items.table.to_pylist())


def flagged_sentence(fit: Calibration) -> str:
    """Returns how many items have which flag.

    Items without variation are no evidence of a fault, so they come last.
    """
    from irtjax.report.summary import flag_counts

    flags = flag_counts(fit.items.table, "item")
    parts = [f"{len(names):,} {flag}" for flag, names in flags.items()]
    total = counted(fit.items.table.num_rows, "item")
    return f"{total}: {', '.join(parts)}" if parts else f"{total}: none is flagged"


def _worst(row: dict[str, Any]) -> tuple[bool, float]:
    """Flagged items first, then those that discriminate least."""
    flags = set(filter(None, (row["flags"] or "").split("; "))) - {*CONSTANT}
    slope = row.get("discrimination")
    return not flags, math.inf if slope is None else slope


def _cells(
    names: list[str], rows: list[dict[str, Any]]
) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of text."""
    parameters = [name for name in _FIRST if name in names]
    parameters += [
        name
        for name in names
        if name not in (*_REST, *_FIRST)
        and not name.endswith(("_se", "_lower", "_upper"))
        and any(isinstance(row[name], float) for row in rows)
    ]
    # A constant of the model is no column.
    parameters = [x for x in parameters if len({row[x] for row in rows}) > 1]
    labels = {row["benchmark"] or "" for row in rows}
    header, columns = ["item"], [[row["item"] for row in rows]]
    if len(labels) > 1:
        header.append("benchmark")
        columns.append([row["benchmark"] for row in rows])
    for name in parameters:
        header.append(name.replace("_", " "))
        columns.append([number(row[name]) for row in rows])
        error = f"{name}_se"
        if error in names and any(row[error] for row in rows):
            header.append("error")
            columns.append([number(row[error]) for row in rows])
    header += ["accuracy", "responses"]
    columns.append([number(row["accuracy"]) for row in rows])
    columns.append([f"{row['observed']:,}" for row in rows])
    if any(row["flags"] for row in rows):
        header.append("flags")
        columns.append([row["flags"] or "" for row in rows])
    return header, [list(cells) for cells in zip(*columns, strict=True)]
