"""Rows of a study as a CSV file."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any


def write(folder: Path | None, name: str, rows: list[dict[str, Any]]) -> None:
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
