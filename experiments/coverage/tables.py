"""The rows of a study as Markdown and as files."""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from experiments.tabulate import write_csv


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
    write_csv(folder, name, rows)
    if text is not None:
        (folder / f"{name}.md").write_text(text + "\n", encoding="utf-8")


def run_designs(
    designs: list[Any],
    run_design: Callable[[Any, int], dict[str, Any]],
    options: argparse.Namespace,
    name: str,
    columns: dict[str, str],
) -> list[dict[str, Any]]:
    """Runs designs, shows each row when it is done, and prints and writes the table.

    Args:
        designs: Dataclasses with a field `replications`.
        run_design: Returns the row of a design and a seed.
        options: `seed`, `sets` (replications instead of its own), `out` (folder).
        name: Of the files in that folder.
        columns: As for `markdown`.
    """
    rows = []
    for design in designs:
        sets = options.sets or design.replications
        design = dataclasses.replace(design, replications=sets)
        rows.append(run_design(design, options.seed))
        line = markdown(rows[-1:], columns).splitlines()[-1]
        print(line, file=sys.stderr, flush=True)
    text = markdown(rows, columns)
    print(text)
    if options.out:
        write(options.out, name, rows, text)
    return rows
