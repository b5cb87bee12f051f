"""Rows of a study as an aligned table of text, and as a CSV file."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: Endings of fields that are the standard error of another one.
ERRORS = (" se", "_error")


def write_csv(folder: Path | None, name: str, rows: list[dict[str, Any]]) -> None:
    """Writes NAME.csv into the folder, which is made if there is none; None: nothing.

    Columns are in the order in which rows first have them.
    """
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, dict.fromkeys(n for row in rows for n in row))
        writer.writeheader()
        writer.writerows(rows)


def aligned(rows: Iterable[dict[str, Any]], indent: str = "  ") -> str:
    """A line of titles and a line for each row; numbers have four digits.

    Rows that follow each other with the same fields are one table. A field NAME has its
    standard error behind it if there is a field "NAME se" or "NAME_error". Fields that
    are None in all rows of a table are left out.

    >>> print(aligned([{"model": "2pl", "x": 0.123456, "x se": 0.01, "n": 3}]))
      model             x  n
      2pl    0.1235 ± 0.01  3
    """
    parts = itertools.groupby(rows, key=lambda row: tuple(row))
    return "\n\n".join(_table(list(part), indent) for _, part in parts)


def _table(rows: list[dict[str, Any]], indent: str) -> str:
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    errors = {name: f"{name}{end}" for name in names for end in ERRORS}
    errors |= {name: f"{name} se" for name in names if f"{name} se" in names}
    errors = {name: error for name, error in errors.items() if error in names}
    shown = [name for name in names if name not in errors.values()]
    cells = [
        [_cell(row[name], row.get(errors.get(name, ""))) for name in shown]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(shown, *cells, strict=True)]
    words = [any(isinstance(row[name], str) for row in rows) for name in shown]
    return "\n".join(
        indent
        + "  ".join(
            cell.ljust(width) if word else cell.rjust(width)
            for cell, width, word in zip(line, widths, words, strict=True)
        ).rstrip()
        for line in (shown, *cells)
    )


def _cell(value: Any, error: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if hasattr(value, "__float__") else str(value)
    if isinstance(value, bool):
        text = "yes" if value else "no"
    return text if error is None else f"{text} ± {error:.2g}"
