"""A table of results as people read it: text for terminals, HTML for notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from irtjax.data.text_table import plain, terminal_width, text_table, wrapped
from irtjax.data.wording import counted, number, percent, visible

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows of a table that text shows whole, and the first rows of a longer one.
WHOLE, FIRST = 20, 12
#: The same of a page.
WHOLE_ON_PAGE, FIRST_ON_PAGE = 60, 50
#: Columns of a table of which no columns are chosen.
MOST_COLUMNS = 12
LEVEL = b"level"


class Shown(NamedTuple):
    """The part of a table that is shown.

    Attributes:
        header: Names of columns.
        rows: Cells by row.
        words: Which columns have words, that is, are aligned to the left.
        left_out: Rows that are not shown.
    """

    header: list[str]
    rows: list[tuple[str, ...]]
    words: set[str]
    left_out: int


def with_level(table: pa.Table, level: float) -> pa.Table:
    """Returns a table whose metadata state the level of its intervals.

    >>> import pyarrow as pa
    >>> level_of(with_level(pa.table({"lower": [0.1]}), 0.9))
    0.9
    """
    metadata = {**(table.schema.metadata or {}), LEVEL: f"{level:.10g}".encode()}
    return table.replace_schema_metadata(metadata)


def level_of(table: pa.Table) -> float | None:
    """Returns the level of the intervals of a table; None where it is not stated."""
    text = (table.schema.metadata or {}).get(LEVEL)
    return None if text is None else float(text)


def shown_part(
    table: pa.Table, names: Sequence[str] = (), *, page: bool = False
) -> Shown:
    """Returns the rows and columns of a table to show, as text.

    Args:
        table: The table.
        names: The columns to show, those that it has; all of a narrow table if none.
        page: For a page, which has room for more rows than a terminal.

    The two ends of an interval are one column.

    >>> import pyarrow as pa
    >>> table = with_level(pa.table({"x": ["a"], "lower": [-1.0], "upper": [2.0]}), 0.9)
    >>> shown_part(table)[:2]
    (['x', '90 %'], [('a', '−1.00 to 2.00')])
    """
    whole, first = (WHOLE_ON_PAGE, FIRST_ON_PAGE) if page else (WHOLE, FIRST)
    count = table.num_rows if table.num_rows <= whole else first
    has = table.column_names
    chosen = [x for x in names if x in has] or has[:MOST_COLUMNS]
    values = {x: table.column(x).slice(0, count).to_pylist() for x in chosen}
    level = level_of(table)
    header, columns, words = [], [], set()
    before: list[Any] = []
    for name, cells in values.items():
        if name.endswith("upper") and f"{name[:-5]}lower" in values:
            continue
        if name.endswith("lower") and f"{name[:-5]}upper" in values:
            upper = values[f"{name[:-5]}upper"]
            heading = "interval" if level is None else percent(level)
            # An interval follows its estimate, or has the name of that.
            of = name[:-6] if header and header[-1] != name[:-6] else ""
            header.append(f"{of} {heading}".strip())
            columns.append(_intervals(cells, upper, values.get(name[:-6], before)))
        elif names and not any(x not in ("", None) for x in cells) and cells:
            continue  # No row has a flag.
        else:
            header.append(name)
            columns.append(_cells(name, cells))
            if any(isinstance(cell, str) for cell in cells):
                words.add(name)
        before = cells
    rows = list(zip(*columns, strict=True))
    return Shown(header, rows, words, table.num_rows - count)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int) or (value is not None and math.isfinite(value))


def _digits(values: list[Any]) -> int | None:
    """Digits of a column of numbers; None of one of whole numbers."""
    numbers = [value for value in values if value is not None]
    if all(isinstance(value, int) for value in numbers):
        return None
    largest = max((abs(x) for x in numbers if math.isfinite(x)), default=0.0)
    return 3 if largest <= 1 else 2 if largest < 100 else 1 if largest < 10_000 else 0


def _number(value: Any, digits: int | None) -> str:
    if not _is_finite(value):
        return "–"
    text = number(value, digits or 0).replace("-", "−")
    return text.replace("0.", ".", 1) if digits == 3 and "0." in text[:3] else text


def _cells(name: str, values: list[Any]) -> list[str]:
    """The cells of a column."""
    numbers = [value for value in values if value is not None]
    if not all(isinstance(value, (int, float)) for value in numbers):
        return [_word(value) for value in values]
    if numbers and all(isinstance(value, bool) for value in numbers):
        return ["–" if x is None else "yes" if x else "no" for x in values]
    digits = _digits(values)
    cells = [_number(value, digits) for value in values]
    if name.startswith(("p_", "q_")) or name.endswith(("p_value", "q_value")):
        small = [_is_finite(value) and value < 0.0005 for value in values]
        cells = ["<.001" if x else y for x, y in zip(small, cells, strict=True)]
    return cells


def _word(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value)


def _intervals(lower: list[Any], upper: list[Any], estimates: list[Any]) -> list[str]:
    """The cells of intervals, with the digits of their estimates."""
    estimates = [value for value in estimates if isinstance(value, (int, float))]
    digits = _digits([*lower, *upper, *estimates])
    observed = [x for x in (*lower, *upper) if _is_finite(x)]
    mark = " to " if min(observed, default=0) < 0 else "–"
    cells = []
    for low, high in zip(lower, upper, strict=True):
        ends = [_number(value, digits) for value in (low, high)]
        same = ends[0] == ends[1] and (digits is None or ends[0] == "–")
        cells.append(ends[0] if same else mark.join(ends))
    return cells


def more_rows(left_out: int) -> str:
    """Returns the line below a table that is not shown whole.

    >>> more_rows(0), more_rows(1200)
    ('', 'and 1,200 more rows: to_frame() has all')
    """
    return f"and {counted(left_out, 'more row')}: to_frame() has all" * bool(left_out)


def as_text(table: pa.Table, names: Sequence[str], title: str) -> str:
    """Returns a table as text that fits the terminal."""
    part = shown_part(table, names)
    width = terminal_width()
    left = part.words | {part.header[0]} if part.header else set()
    lines = [text_table(part.header, part.rows, left=left, title=title, width=width)]
    lines += [f" {text}" for text in [more_rows(part.left_out)] if text]
    return "\n".join(lines)


def lines_below(texts: Sequence[str]) -> list[str]:
    """Returns sentences as lines that fit the terminal."""
    width = terminal_width()
    return [x for text in texts for x in wrapped(plain(visible(text)), width, "  ")]


def as_html(
    table: pa.Table, names: Sequence[str], title: str, below: Sequence[str]
) -> str:
    """Returns a table as HTML; names and sentences are escaped.

    >>> import pyarrow as pa
    >>> ">&lt;b&gt;</td>" in as_html(pa.table({"x": ["<b>"]}), (), "", ())
    True
    """
    part = shown_part(table, names, page=True)
    # Notebooks align all cells to the right.
    left = ' style="text-align:left"'
    styles = [left if name in part.words else "" for name in part.header]

    def row(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(styles, cells, strict=True)
        texts = (f"<{tag}{x}>{escape(visible(y))}</{tag}>" for x, y in pairs)
        return f"<tr>{''.join(texts)}</tr>"

    head = row("th", part.header)
    body = "\n".join(row("td", cells) for cells in part.rows)
    caption = f"<caption>{escape(visible(title))}</caption>" * bool(title)
    after = [text for text in (more_rows(part.left_out), *below) if text]
    return (
        f"<table>{caption}<thead>{head}</thead>\n<tbody>{body}</tbody></table>"
        + "".join(f"<p>{escape(visible(text))}</p>" for text in after)
    )
