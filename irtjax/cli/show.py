"""`irtjax show` and `irtjax items`: what a saved fit found, to read or to paste."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.arena import show_saved
from irtjax.cli.output import print_json
from irtjax.cli.pipeline import load_fit, ranking_document, show_all
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects

#: The formats of `report.exports`, here without importing it.
FORMATS = ("table", "md", "latex", "csv", "lm-eval")

_All = Annotated[bool, opt.option("Every row, however long the table.", "--all")]
_Format = Annotated[
    str,
    opt.option(
        f"{', '.join(FORMATS)}: text for the screen, Markdown, LaTeX, CSV, or the"
        " tables of lm-evaluation-harness. Only table leaves rows out.",
        "--format",
        metavar="FORMAT",
    ),
]


@dataclasses.dataclass(frozen=True)
class _View:
    """How a table is shown."""

    form: str = "table"
    everything: bool = False
    json: bool = False

    def check(self, forms: tuple[str, ...]) -> None:
        """Refuses formats that a table does not have."""
        if self.form not in forms:
            raise ValueError(
                f"--format {self.form} is not one of {', '.join(forms)} for this table"
            )


@opt.with_options
def show_command(
    folder: opt.Folder,
    everything: _All = False,
    items: Annotated[
        bool, opt.option("The items: estimates, errors, flags.", "--items")
    ] = False,
    tasks: Annotated[
        bool, opt.option("Accuracies on each benchmark.", "--tasks")
    ] = False,
    form: _Format = "table",
    level: opt.SomeLevel = None,
    *,
    output: opt.LongOutput,
) -> None:
    """Shows who is ahead in a saved fit, its items or its tasks, to read or paste."""
    from irtjax.data.fit_folder import is_arena

    opt.check_level(level)
    if items and tasks:
        raise ValueError("--items and --tasks are two tables: leave one out")
    view = _View(form, everything, output.json)
    view.check(FORMATS if not (items or tasks) else FORMATS[:-1])
    if is_arena(folder):
        if items or tasks:
            raise ValueError(
                f"{folder} holds comparisons, which have no items or tasks"
            )
        view.check(FORMATS[:-1])
        options = {"everything": everything, **dataclasses.asdict(output)}
        show_saved(folder, level=level, form=form, **options)
        return
    fit = _load(folder, output.quiet or output.json or form != "table")
    if items:
        _show_items(fit, view)
        return
    ranked = fit.rank(level=level)
    if tasks:
        _show_tasks(ranked, view)
    elif output.json:
        print_json(ranking_document(fit, ranked, folder))
    elif form != "table":
        _export(ranked, form, fit.notes)
    elif not output.quiet:
        from irtjax.cli import screen
        from irtjax.report.kept import kept

        if output.verbose:
            show_all(fit, ranked, everything)
            return
        page = folder / "report.html"
        place = page if page.is_file() else None
        options: dict[str, Any] = {"place": place, "folder": folder}
        options |= kept(folder, screen.shown_path(folder))
        screen.show_result(fit, ranked, everything=everything, **options)


def items_command(
    folder: opt.Folder,
    everything: _All = False,
    form: _Format = "table",
    json: opt.Json = False,
) -> None:
    """Shows the items of a saved fit: estimates, errors and flags."""
    view = _View(form, everything, json)
    view.check(FORMATS[:-1])
    _show_items(_load(folder, json or form != "table"), view)


def _load(folder: Path, quiet: bool) -> Calibration:
    """The fit of a folder."""
    with ProgressLine(quiet) as progress:
        progress("load")
        return load_fit(folder)


def _export(ranked: RankedSubjects, form: str, notes: Sequence[str]) -> None:
    """Prints the leaderboard to be pasted."""
    from irtjax.cli import screen

    if form == "lm-eval":
        screen.show_text(_harness_tables(ranked, notes))
    else:
        screen.show_leaderboard(ranked, form)


def _show_items(fit: Calibration, view: _View) -> None:
    """Prints the items."""
    from irtjax.cli import screen
    from irtjax.report.exports import csv_text, formatted
    from irtjax.report.items_text import flagged_sentence, item_rows, items_text

    if view.json:
        rows = fit.items.table.to_pylist()
        print_json({"items": rows, "flags": flagged_sentence(fit)})
    elif view.form == "table":
        screen.show_text(items_text(fit, everything=view.everything))
        screen.show_sentences([flagged_sentence(fit)])
    elif view.form == "csv":
        screen.show_text(csv_text(fit.items.table))
    else:
        left = ("item", "benchmark", "flags")
        screen.show_text(formatted(*item_rows(fit), view.form, left))


def _show_tasks(ranked: RankedSubjects, view: _View) -> None:
    """Prints the accuracies on each benchmark."""
    from irtjax.cli import screen
    from irtjax.report.exports import csv_text, formatted, task_rows

    names = [x for x in ranked.table.column_names if x.startswith("accuracy[")]
    table = ranked.table.select(["subject", *names])
    if view.json:
        print_json({"tasks": table.to_pylist()})
        return
    if view.form == "csv":
        screen.show_text(csv_text(table))
        return
    # With their intervals where the screen has room for them.
    for intervals in (True, False):
        header, rows = task_rows(ranked, intervals=intervals)
        if not rows:
            raise ValueError(
                "the fit has one benchmark: `irtjax show DIR` has its scores"
            )
        shown = rows
        if view.form == "table" and not view.everything:
            shown = screen.shortened(rows)
        text = formatted(header, shown, view.form, header[:1])
        if view.form != "table" or "(a wider screen has:" not in text:
            break
    screen.show_text(text)


def _harness_tables(ranked: RankedSubjects, notes: Sequence[str]) -> str:
    """Returns a table of each subject as lm-evaluation-harness prints it.

    It has the accuracy on each benchmark, by the metric and filter that notes of the
    reading name, and the expected score on all items.
    """
    from irtjax.data.reading.choose import usual_choices
    from irtjax.harness.lm_eval import markdown as harness_markdown
    from irtjax.report.leaderboard_page import benchmarks_with_accuracy
    from irtjax.report.words import markdown

    names, blocks = benchmarks_with_accuracy(ranked), []
    choices = usual_choices(notes)
    columns = {name: f"accuracy[{name}]" for name in names} or {"all": "accuracy"}
    for row in ranked.rows():
        lines = [
            _harness_row(name, choices.get(name, ("accuracy", "")), row, column)
            for name, column in columns.items()
        ]
        score = "expected_score", ""
        lines.append(_harness_row("all", score, row, "expected_score"))
        blocks.append(f"{markdown(row['subject'])}\n\n{harness_markdown(lines)}")
    return "\n\n".join(blocks)


def _harness_row(
    task: str, choice: tuple[str, str], row: dict[str, Any], name: str
) -> list[str]:
    """A row of the harness's table; `choice` is metric and filter."""
    metric, chosen = choice
    value, error = row[name], row[f"{name}_se"]
    shown = ["N/A" if x is None else f"{x:.4f}" for x in (value, error)]
    return [task, "", chosen, "", metric, "", shown[0], "±", shown[1]]
