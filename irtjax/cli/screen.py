"""Tables and sentences on standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtjax.cli.errors import as_options
from irtjax.data.text_table import plain, terminal_width, text_table, wrapped
from irtjax.report.leaderboard_page import (
    accuracy_cells,
    benchmarks_with_accuracy,
    subject_cells,
    subject_header,
)
from irtjax.report.words import short, visible

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects

#: Rows shown from either end of a long table, and of the longest shown in full.
ENDS = 15
LONGEST = 2 * ENDS + 5
#: What a ranking can do without on a narrow screen, least needed first.
SPARE = ("responses", "accuracy", "score", "error", "flags", "P(best)", "ability")
#: Letters of the name of a benchmark above its column.
MOST_LETTERS = 30


def show_text(text: str) -> None:
    """Prints text, which is safe for a terminal, as standard output can show it."""
    text = plain(text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    # An encoding has the characters of tables, and not those of every name.
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    sys.stdout.write(text + "\n")


def show_table(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    left: int | Collection[str] = 1,
    spare: Sequence[str] = (),
) -> None:
    """Prints a table, followed by an empty line; see `data.text_table`."""
    show_text(text_table(header, rows, left=left, spare=spare, title=title) + "\n")


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Prints names of facts with what they are, which takes as many lines as needed."""
    facts = [(visible(name), visible(text)) for name, text in facts]
    start = max(len(name) for name, _ in facts) + 3
    for name, text in facts:
        first, *others = wrapped(text, max(terminal_width() - start, 20))
        show_text(f" {name:<{start - 1}}{first}".rstrip())
        for line in others:
            show_text(" " * start + line)


def show_result(
    fit: Calibration,
    ranked: RankedSubjects,
    *,
    place: Path | None = None,
    everything: bool = False,
    **verdict_of: Any,
) -> None:
    """Prints the leaderboard, the items of a short test, and the verdict.

    `place` is the page; `verdict_of` are the arguments of `report.verdict.verdict`.
    """
    from irtjax.calibration.leaderboard_text import WHOLE, leaderboard_text
    from irtjax.report.items_text import items_text
    from irtjax.report.verdict import verdict, verdict_text

    page = "" if place is None else shown_path(place)
    show_text(leaderboard_text(ranked, place=page, everything=everything))
    if len(fit.item_names) < len(fit.subject_names):
        show_text("\n" + items_text(fit, most=WHOLE) + "\n")
    lines = verdict(fit, ranked, **verdict_of)
    show_text(verdict_text({k: as_options(text) for k, text in lines.items()}))


def show_leaderboard(ranked: RankedSubjects, form: str) -> None:
    """Prints the leaderboard to be pasted, as Markdown, LaTeX or CSV."""
    from irtjax.calibration.leaderboard_text import leaderboard_rows, leaderboard_table
    from irtjax.report.exports import csv_text, formatted

    if form == "csv":
        show_text(csv_text(leaderboard_table(ranked)))
        return
    left = ("rank", ranked.noun, "tied with")
    show_text(formatted(*leaderboard_rows(ranked), form, left))


def shown_path(path: Path) -> str:
    """A path as it is shortest from here."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def shortened(rows: list[list[str]]) -> list[list[str]]:
    """Returns the rows of a table, the middle left out when it is long."""
    if len(rows) <= LONGEST:
        return rows
    return [*rows[:ENDS], _gap(len(rows), len(rows[0])), *rows[-ENDS:]]


def _gap(size: int, columns: int) -> list[str]:
    """The row that stands for the middle of a table of so many rows."""
    return [f"... {size - 2 * ENDS:,} more ..."] + [""] * (columns - 1)


def show_sentences(sentences: Iterable[str], indent: str = "") -> None:
    """Prints sentences in lines that fit the screen."""
    for sentence in sentences:
        # Lines of a sentence are its points; control characters are gone by then.
        for line in sentence.split("\n"):
            for part in wrapped(visible(line), terminal_width(), indent):
                show_text(part)


def show_command(command: str) -> None:
    """Prints a command on one line, to be copied."""
    show_text(f"  {visible(command)}")


def show_ranking(ranked: RankedSubjects, everything: bool) -> None:
    """Prints the ranked table, the middle left out when it is long.

    Where the fit has several benchmarks, a second table has the accuracies on them.
    """
    from irtjax.data.wording import counted

    header = [*subject_header(ranked.level), "responses", "flags"]
    size = ranked.table.num_rows
    whole = everything or size <= LONGEST
    # Only what is shown is made into rows.
    parts = [ranked.rows(stop=None if whole else ENDS)]
    parts += [] if whole else [ranked.rows(size - ENDS)]

    def lines(cells: Callable[[dict[str, Any]], list[str]]) -> list[list[str]]:
        blocks = [list(map(cells, part)) for part in parts]
        if whole:
            return blocks[0]
        return [*blocks[0], _gap(size, len(blocks[0][0])), *blocks[1]]

    rows = lines(
        lambda row: [*subject_cells(row), f"{row['observed']:,}", row["flags"] or ""]
    )
    if not any(row[-1] for row in rows):
        header = header[:-1]
        rows = [row[:-1] for row in rows]
    left = ("subject", "flags")
    show_table(f"{counted(size, 'subject')}", header, rows, left, SPARE)
    names = benchmarks_with_accuracy(ranked)
    if not names or not rows:
        return
    rows = lines(lambda row: [row["subject"], *accuracy_cells(row, names)])
    header = ["subject", *(short(name, MOST_LETTERS) for name in names)]
    show_table("Accuracy by benchmark", header, rows)


def show_warnings(warnings: Iterable[str], notes: Iterable[str]) -> None:
    """Prints warnings, then notes, with options as they are typed."""
    show_sentences(f"warning: {as_options(line)}" for line in warnings)
    show_sentences(f"note: {as_options(line)}" for line in notes)
