"""`irtjax judges`: how judges of responses err, and accuracies corrected for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtjax.cli import options as opt
from irtjax.cli.long_tables import rows_of
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.validity.judges import Judges

#: What `--out` writes, by the table of the result.
TABLES = {
    "judges": "judge_errors.csv",
    "accuracies": "corrected_accuracies.csv",
    "pairs": "judge_agreement.csv",
    "cells": "judged_responses.csv",
}
#: Judges, and subjects, that the screen shows: its output has about twenty lines.
MOST_JUDGES, MOST_SUBJECTS = 5, 6


@opt.with_options
def judges_command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Reports with the columns subject, item, judge, verdict and gold: CSV,"
            " Parquet or JSON lines.",
            show_default=False,
        ),
    ],
    gold: Annotated[
        str,
        opt.option(
            "Column of the truth: 1, 0, or empty where it is not known.",
            metavar="COLUMN",
        ),
    ] = "gold",
    style: Annotated[
        list[str] | None,
        opt.option(
            "Column of numbers that may sway a judge, such as length; may be repeated.",
            metavar="COLUMN",
        ),
    ] = None,
    abilities: Annotated[
        bool,
        opt.option(
            "Leave subjects and items out of the chance of truth, as Dawid and Skene.",
            "--abilities/--no-abilities",
        ),
    ] = True,
    out: Annotated[
        Path | None, opt.out("DIR", f"Folder for {', '.join(TABLES.values())}.")
    ] = None,
    level: opt.Level = 0.95,
    *,
    output: opt.Output,
) -> None:
    """Estimates the errors of judges, and accuracies without these errors."""
    opt.check_level(level)
    check_out_folder(out, TABLES.values())
    with ProgressLine(output.quiet) as progress:
        progress("read")
        table = rows_of(files)
        progress("fit")
        from irtjax.validity.judges import fit_judges

        columns = {name: table[name] for name in table.column_names}
        result = fit_judges(
            columns, gold, style=style or (), abilities=abilities, level=level
        )
        if out is not None:
            contents = {out / file: getattr(result, x) for x, file in TABLES.items()}
            write_files(contents)
    if output.json:
        rows = {x: getattr(result, x).to_pylist() for x in list(TABLES)[:3]}
        names = "alpha", "fleiss", "log_likelihood", "converged"
        print_json({x: getattr(result, x) for x in names} | rows)
    elif not output.quiet:
        _show(result, style or (), out)


def _show(result: Judges, style: Sequence[str], out: Path | None) -> None:
    """Prints judges, accuracies and agreement."""
    from irtjax.cli import screen
    from irtjax.data.wording import counted

    biases = {f"{name} bias": f"{name}_bias" for name in style}
    columns = {"reports": "reports", "sensitivity": "sensitivity"}
    columns |= {"specificity": "specificity", **biases, "gold kappa": "gold_kappa"}
    rows = result.judges.to_pylist()
    cells = [[row["judge"], *_cells(row, columns.values())] for row in rows]
    title = counted(len(rows), "judge")
    screen.show_table(title, ["judge", *columns], _first(cells, MOST_JUDGES))
    accuracies = {row["subject"]: row for row in result.accuracies.to_pylist()}
    best = [row["subject"] for row in result.abilities.rank().rows()]
    columns = ["judged", "corrected", "rectified"]
    cells = [[name, *_cells(accuracies[name], columns)] for name in best]
    title = f"{counted(len(best), 'subject')}, best first"
    screen.show_table(title, ["subject", *columns], _first(cells, MOST_SUBJECTS))
    units = "± is a standard error"
    if biases:
        units += "; biases are percentage points for a standard deviation"
    place = [] if out is None else [written(out, TABLES.values())]
    screen.show_sentences([f"{units}.", *result.sentences, *place])


def _first(rows: list[list[str]], most: int) -> list[list[str]]:
    """The first rows, and one that counts the others."""
    left = len(rows) - most
    if left <= 0:
        return rows
    return [*rows[:most], [f"({left:,} more)", *[""] * (len(rows[0]) - 1)]]


def _cells(row: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Numbers of a row with their standard errors, where they have one."""
    from irtjax.report.words import number

    cells = []
    for name in names:
        value, error = row[name], row.get(f"{name}_se")
        text = f"{value:,}" if isinstance(value, int) else number(value)
        cells.append(text if error is None else f"{text} ± {number(error)}")
    return cells
