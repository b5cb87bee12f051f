"""Tables of results in the formats that people paste."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from irtjax.calibration.leaderboard_text import points
from irtjax.data.text_table import text_table
from irtjax.report.leaderboard_page import (
    accuracy_cells,
    benchmarks_with_accuracy,
    table_lines,
)
from irtjax.report.words import markdown, visible

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.rank import RankedSubjects

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
_LATEX |= {"^": r"\textasciicircum{}", "–": "--", "−": "$-$", "…": r"\ldots{}"}
_LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}


def latex(name: str) -> str:
    r"""Returns a name that LaTeX shows as it is.

    >>> latex("a_b & 5 %"), latex("−.2–.3")
    ('a\\_b \\& 5 \\%', '$-$.2--.3')
    """
    return "".join(_LATEX.get(sign, sign) for sign in visible(name))


def formatted(
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    form: str,
    left: Collection[str],
) -> str:
    r"""Returns a table as text, Markdown or LaTeX.

    Args:
        header: Names of the columns.
        rows: Rows of cells.
        form: "table", "md" or "latex" (of the package booktabs).
        left: Names of the columns that are aligned to the left.

    >>> print(formatted(["model", "score"], [["a_b", ".71"]], "latex", ["model"]))
    \begin{tabular}{lr}
    \toprule
    model & score \\
    \midrule
    a\_b & .71 \\
    \bottomrule
    \end{tabular}
    """
    if form == "table":
        return text_table(header, rows, left=left)
    escape: Callable[[str], str] = markdown if form == "md" else latex
    head = [escape(name) for name in header]
    body = [[escape(str(cell)) for cell in row] for row in rows]
    if form == "md":
        places = [k for k, name in enumerate(header) if name in left]
        return "\n".join(table_lines(head, body, places))
    marks = "".join("l" if name in left else "r" for name in header)
    lines = [f"\\begin{{tabular}}{{{marks}}}", r"\toprule", f"{' & '.join(head)} \\\\"]
    lines += [r"\midrule", *(f"{' & '.join(row)} \\\\" for row in body)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def csv_text(table: pa.Table) -> str:
    r"""Returns a table as CSV, in which no name is a formula of a spreadsheet.

    >>> import pyarrow as pa
    >>> print(csv_text(pa.table({"model": ["a", "=b"], "score": [0.5, None]})))
    "model","score"
    "a",0.5
    "'=b",
    """
    import pyarrow as pa
    import pyarrow.csv

    from irtjax.data.spreadsheets import defuse

    out = pa.BufferOutputStream()
    pyarrow.csv.write_csv(defuse(table), out)
    return out.getvalue().to_pybytes().decode().rstrip("\n")


def task_rows(
    ranked: RankedSubjects, *, intervals: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows of accuracies by benchmark; no rows of one benchmark."""
    names = benchmarks_with_accuracy(ranked)
    if not names:
        return [ranked.noun], []
    rows = []
    for row in ranked.rows():
        cells = accuracy_cells(row, names)
        if not intervals:
            cells = [points(row[f"accuracy[{name}]"], 2) for name in names]
        rows.append([row["subject"], *cells])
    return [ranked.noun, *names], rows
