"""Tables and sentences on standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from irtjax.report.leaderboard_page import (
    accuracy_cells,
    benchmarks_with_accuracy,
    subject_cells,
    subject_header,
)
from irtjax.report.words import short, visible

if TYPE_CHECKING:
    from rich.console import Console

    from irtjax.calibration.rank import RankedSubjects

#: Rows shown from either end of a long table, and of the longest shown in full.
ENDS = 15
LONGEST = 2 * ENDS + 5
#: Least width of a column of names, and of the other columns of words.
NAME_WIDTH = 20
WORDS = ("flags", "smallest p-values")
#: What a ranking can do without on a narrow screen, least needed first.
SPARE = ("responses", "accuracy", "score", "error", "flags", "P(best)", "ability")
#: Most letters of the first cell of a row, which is a name, and of any other.
MOST_OF_NAME, MOST_OF_CELL = 200, 2000
#: Letters of the name of a benchmark above its column.
MOST_LETTERS = 30
#: Columns of a terminal that is none (a pipe, a file).
WIDTH = 160


def console() -> Console:
    """Returns the console of standard output, wide enough for tables in a pipe."""
    import sys

    from rich.console import Console

    width = None if sys.stdout.isatty() else WIDTH
    return Console(highlight=False, width=width, soft_wrap=False)


def show_table(
    out: Console,
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    left: int = 1,
    spare: Sequence[str] = (),
) -> None:
    """Prints a table; names in it are never read as markup.

    The first `left` columns are aligned to the left; `spare` ones are left out, in
    this order, where the screen is too narrow.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [
        [_cut(cell, MOST_OF_CELL if k else MOST_OF_NAME) for k, cell in enumerate(row)]
        for row in rows
    ]
    header, cells = narrow(header, cells, left, spare, out.width)
    table = Table(
        title=Text(title) if title else None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for k, name in enumerate(header):
        words = k < left or name in WORDS
        table.add_column(
            Text(name),
            justify="left" if words else "right",
            # A long name may fold, but not to shreds; a number never does.
            overflow="fold",
            no_wrap=not words,
            min_width=NAME_WIDTH if k == 0 and name else None,
        )
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    out.print(table)


def _cut(cell: Any, most: int) -> str:
    """The text of a cell, cut in the middle when very long."""
    text = visible(str(cell))
    return short(text, most) if len(text) > most else text


def narrow(
    header: Sequence[str],
    rows: list[list[str]],
    left: int,
    spare: Sequence[str],
    width: int,
) -> tuple[list[str], list[list[str]]]:
    """Returns a table that fits a width, with spare columns left out.

    >>> narrow(["name", "a", "b"], [["x", "123456", "1"]], 1, ["a"], 30)
    (['name', 'b'], [['x', '1']])
    """
    kept = list(range(len(header)))

    widths = [
        NAME_WIDTH
        if k < left or name in WORDS
        else max(len(cell) for cell in (name, *(row[k] for row in rows)))
        for k, name in enumerate(header)
    ]
    for name in spare:
        places = [k for k in kept if header[k] == name]
        if places and sum(3 + widths[k] for k in kept) > width:
            kept.remove(places[-1])
    return [header[k] for k in kept], [[row[k] for k in kept] for row in rows]


def shortened(rows: list[list[str]]) -> list[list[str]]:
    """Returns the rows of a table, the middle left out when it is long."""
    if len(rows) <= LONGEST:
        return rows
    return [*rows[:ENDS], _gap(len(rows), len(rows[0])), *rows[-ENDS:]]


def _gap(size: int, columns: int) -> list[str]:
    """The row that stands for the middle of a table of so many rows."""
    return [f"... {size - 2 * ENDS:,} more ..."] + [""] * (columns - 1)


def show_sentences(out: Console, sentences: Iterable[str]) -> None:
    """Prints sentences, as they are."""
    from rich.text import Text

    for sentence in sentences:
        # Lines of a sentence are its points; control characters are gone by then.
        for line in sentence.split("\n"):
            out.print(Text(visible(line)))


def show_command(out: Console, command: str) -> None:
    """Prints a command on one line, to be copied."""
    from rich.text import Text

    out.print(Text(f"  {visible(command)}"), soft_wrap=True)


def show_ranking(out: Console, ranked: RankedSubjects, everything: bool) -> None:
    """Prints the ranked table, the middle left out when it is long.

    Where the fit has several benchmarks, a second table has the accuracies on them.
    """
    from irtjax.data.wording import are, counted

    header = [*subject_header(ranked.level), "responses", "flags"]
    size = ranked.table.num_rows
    whole = everything or size <= LONGEST
    # Only what is shown is made into rows.
    parts = [ranked.rows(stop=None if whole else ENDS)]
    parts += [] if whole else [ranked.rows(size - ENDS)]

    def lines(cells: Callable[[dict[str, Any]], list[str]]) -> list[list[str]]:
        found = [list(map(cells, part)) for part in parts]
        if whole:
            return found[0]
        return [*found[0], _gap(size, len(found[0][0])), *found[1]]

    rows = lines(
        lambda row: [*subject_cells(row), f"{row['observed']:,}", row["flags"] or ""]
    )
    if not any(row[-1] for row in rows):
        header = header[:-1]
        rows = [row[:-1] for row in rows]
    show_table(out, f"{counted(size, 'subject')}", header, rows, spare=SPARE)
    names = benchmarks_with_accuracy(ranked)
    if not names or not rows:
        return
    rows = lines(lambda row: [row["subject"], *accuracy_cells(row, names)])
    header = ["subject", *(short(name, MOST_LETTERS) for name in names)]
    # The last benchmarks are left out where the screen is too narrow for all.
    header, rows = narrow(header, rows, 1, header[:1:-1], out.width)
    show_table(out, "Accuracy by benchmark", header, rows)
    left = len(names) - len(header) + 1
    if left:
        more = f"{counted(left, 'more benchmark')} {are(left)} in abilities.csv."
        show_sentences(out, [more, ""])


def show_warnings(out: Console, warnings: Iterable[str], notes: Iterable[str]) -> None:
    """Prints warnings, then notes, one line each, with options as they are typed."""
    from rich.text import Text

    from irtjax.cli.errors import as_options

    for line in warnings:
        out.print(Text(f"warning: {visible(as_options(line))}", style="yellow"))
    for line in notes:
        out.print(Text(f"note: {visible(as_options(line))}", style="dim"))
