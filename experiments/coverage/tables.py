"""The rows of a study as Markdown and as files."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any


def markdown(
    rows: list[dict[str, Any]],
    columns: dict[str, str],
    errors: Collection[str] | None = None,
) -> str:
    """A table in Markdown.

    A field NAME has its Monte-Carlo error behind it if the row has NAME_error.

    Args:
        rows: One for each line of the table.
        columns: Title of each field that is shown.
        errors: Fields that are shown with their errors; None for all that have one.
    """
    lines = [" | ".join(columns.values()), " | ".join("---" for _ in columns)]
    for row in rows:
        cells = []
        for name in columns:
            shown = errors is None or name in errors
            cells.append(_cell(row[name], row.get(f"{name}_error") if shown else None))
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def _cell(value: Any, error: float | None) -> str:
    """The text of a value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "–"
    return f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"


def write(
    folder: Path, name: str, rows: list[dict[str, Any]], text: str | None = None
) -> None:
    """Writes NAME.csv with the rows, and NAME.md with the text if there is one."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    if text is not None:
        (folder / f"{name}.md").write_text(text + "\n", encoding="utf-8")
