"""`irtjax horizons`: how long are the tasks that subjects complete, in human time?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.long_tables import rows_of
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.validity.horizons import Horizons

#: What `--out` writes.
TABLES = "horizons.csv", "sensitivity.csv", "by_assumption.csv"
#: Subjects that the screen shows.
MOST_SUBJECTS = 12


def _column(what: str, usual: str) -> Any:
    """The option of a column."""
    return opt.option(f"Column of {what}; else {usual}.", metavar="COLUMN")


@dataclasses.dataclass(frozen=True)
class RunColumns:
    """Columns of files with a row for each run: each field is an option."""

    subject: Annotated[str | None, _column("subjects", "subject, alias, model")] = None
    task: Annotated[str | None, _column("tasks", "task, task_id, item")] = None
    minutes: Annotated[str | None, _column("human time", "minutes, human_minutes")] = (
        None
    )
    response: Annotated[
        str | None, _column("success, 0 to 1", "response, score_binarized, success")
    ] = None
    family: Annotated[
        str | None, _column("families of tasks", "family, task_family, if any")
    ] = None
    date: Annotated[
        str | None,
        opt.option("Column of dates of release, 2024-05-13.", metavar="COLUMN"),
    ] = None
    dates: Annotated[
        Path | None,
        opt.option(
            "Table of dates of release: columns subject and date (or --date).",
            metavar="FILE",
        ),
    ] = None

    def names(self) -> dict[str, str]:
        """The columns that were named."""
        parts = "subject", "task", "minutes", "response", "family"
        return {x: getattr(self, x) for x in parts if getattr(self, x) is not None}

    def released(self) -> dict[str, Any] | str | None:
        """Dates by subject, or the column of the runs that has them."""
        if self.dates is None:
            return self.date
        from irtjax.cli.side_tables import column, read_content

        content = read_content("--dates", self.dates)
        key = self.subject if self.subject in content.column_names else "subject"
        subjects = column("--dates", self.dates, content, str(key))
        days = column("--dates", self.dates, content, self.date or "date")
        return dict(zip(map(str, subjects), days, strict=True))


@dataclasses.dataclass(frozen=True)
class AssumptionOptions:
    """What horizons assume: each field is an option."""

    link: Annotated[str, opt.option("logit, probit or loglog (Weibull).")] = "logit"
    slope: Annotated[str, opt.option("Slope on length: common or own.")] = "common"
    difficulty: Annotated[
        str, opt.option("Of tasks given their length: random or none.")
    ] = "random"
    weights: Annotated[
        str, opt.option("What counts alike: runs, tasks or families.")
    ] = "runs"
    humans: Annotated[bool, opt.option("People are subjects too.", "--humans")] = False


@opt.with_options
def horizons_command(
    files: opt.Files,
    columns: RunColumns,
    assumptions: AssumptionOptions,
    out: Annotated[
        Path | None, opt.out("DIR", f"Folder for {', '.join(TABLES)}.")
    ] = None,
    level: opt.Level = 0.95,
    *,
    output: opt.Output,
) -> None:
    """Estimates how long the tasks are, in human time, that subjects complete."""
    opt.check_level(level)
    check_out_folder(out, TABLES)
    with ProgressLine(output.quiet) as progress:
        progress("read")
        runs, dates = rows_of(files), columns.released()
        progress("estimate")
        from irtjax.validity.horizons import horizons

        result = horizons(
            runs,
            columns.names(),
            dates=dates,
            level=level,
            **dataclasses.asdict(assumptions),
        )
        if out is not None:
            tables = result.table, result.sensitivity, result.by_assumption
            paths = (out / name for name in TABLES)
            write_files(dict(zip(paths, tables, strict=True)))
    if output.json:
        print_json(_document(result))
    elif not output.quiet:
        _show(result, out)


def _document(result: Horizons) -> dict[str, Any]:
    """What `--json` prints."""
    trend = result.trend
    names = "slope", "difficulty_sd", "families", "level", "sentence", "warnings"
    return {
        "subjects": result.table.to_pylist(),
        "sensitivity": result.sensitivity.to_pylist(),
        "by_assumption": result.by_assumption.to_pylist(),
        "trend": None if trend is None else dataclasses.asdict(trend),
        **{name: getattr(result, name) for name in names},
    }


def _show(result: Horizons, out: Path | None) -> None:
    """Prints horizons, their sensitivity and the sentence."""
    from irtjax.cli import screen
    from irtjax.validity.horizons import minutes_text

    rows = result.table.to_pylist()
    cells = [
        [
            row["subject"],
            f"{row['runs']:,}",
            *(minutes_text(row[f"horizon_50{x}"]) for x in ("", "_lower", "_upper")),
            *(minutes_text(row[f"horizon_80{x}"]) for x in ("", "_marginal")),
        ]
        for row in rows[:MOST_SUBJECTS]
    ]
    header = ["subject", "runs", "50 %", "lower", "upper", "80 %", "80 % marginal"]
    screen.show_table("Horizons in minutes", header, cells)
    dated = result.trend is not None
    cells = [
        [
            row["assumption"],
            *(f"{row[f'ratio_{x}']:.2f}" for x in ("50", "50_least", "50_most")),
            *(f"{row[f'ratio_{x}']:.2f}" for x in ("80", "80_marginal")),
            *([f"{row['doubling_days']:.0f}"] if dated else []),
        ]
        for row in result.sensitivity.to_pylist()
    ]
    header = ["assumption", "50 %", "least", "most", "80 %", "80 % marginal"]
    header += ["doubling days"] if dated else []
    screen.show_table("Ratio to the horizons above", header, cells)
    left = len(rows) - MOST_SUBJECTS
    hidden = [f"And {left:,} more subjects: --out DIR, --json."] if left > 0 else []
    place = [] if out is None else [written(out, TABLES)]
    screen.show_sentences([*hidden, result.sentence, *place])
    screen.show_warnings(result.warnings, ())
