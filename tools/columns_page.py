"""Writes the page of the names of columns: `python -m tools.columns_page`."""

from itertools import zip_longest
from pathlib import Path

from irtjax.data.columns import COLUMNS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "columns.md"


def page() -> str:
    """The page as text; what stands before its tables is kept."""
    parts = [PAGE.read_text(encoding="utf-8").partition("\n## ")[0]]
    for title, names in COLUMNS.items():
        cells = [f"`{name}` | {meaning}" for name, meaning in names.items()]
        # Two columns beside each other, in reading order down each.
        half = (len(cells) + 1) // 2
        pairs = zip_longest(cells[:half], cells[half:], fillvalue=" | ")
        rows = (f"| {left} | {right} |" for left, right in pairs)
        head = "| column | content | column | content |\n|---|---|---|---|"
        parts.append("\n".join([f"## {title}\n", head, *rows]))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
