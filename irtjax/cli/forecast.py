"""`irtjax forecast`: ability against size, data and time, and scores to come."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.long_tables import rows_of
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.pipeline import load_fit
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.validity.forecast import Forecast

#: What `--out` writes.
TABLES = "regression.csv", "fitted.csv", "forecasts.csv"


@dataclasses.dataclass(frozen=True)
class SubjectColumns:
    """Columns of the table of subjects: each field is an option."""

    name: Annotated[
        str, opt.option("Column of the subjects' names.", metavar="COLUMN")
    ] = "subject"
    parameters: Annotated[
        str | None,
        opt.option(
            "Column of numbers of parameters; names: read them from names, as 7b.",
            metavar="COLUMN",
        ),
    ] = None
    tokens: Annotated[
        str | None,
        opt.option("Column of numbers of training tokens.", metavar="COLUMN"),
    ] = None
    date: Annotated[
        str | None,
        opt.option("Column of dates of release, 2024-05-13.", metavar="COLUMN"),
    ] = None
    family: Annotated[
        str | None,
        opt.option("Column of families, such as base models.", metavar="COLUMN"),
    ] = None


@opt.with_options
def forecast_command(
    files: opt.Files,
    fit: Annotated[Path, opt.option("Folder of a fit of one ability.", metavar="DIR")],
    to: Annotated[
        list[str] | None,
        opt.option("Date to forecast, 2027-01-01; repeat it.", metavar="DATE"),
    ] = None,
    out: Annotated[
        Path | None, opt.out("DIR", f"Folder for {', '.join(TABLES)}.")
    ] = None,
    level: opt.Level = 0.95,
    *,
    columns: SubjectColumns,
    output: opt.Output,
) -> None:
    """Regresses ability on size, data and date, and forecasts scores.

    FILE... are tables with a row for each subject.
    """
    opt.check_level(level)
    check_out_folder(out, TABLES)
    with ProgressLine(output.quiet) as progress:
        progress("load")
        calibration, rows = load_fit(fit), rows_of(files)
        from irtjax.cli.side_tables import with_names

        if columns.name == SubjectColumns.name:
            names = calibration.subject_names
            rows = with_names("the table", Path(files[0]), rows, columns.name, names)
        progress("estimate")
        from irtjax.validity.forecast import forecast

        settings: Any = dataclasses.asdict(columns)
        result = forecast(calibration, rows, to=to or (), level=level, **settings)
        if out is not None:
            tables = result.table, result.subjects, result.future
            paths = (out / name for name in TABLES)
            write_files(dict(zip(paths, tables, strict=True)))
    if output.json:
        names = "test", "family_sd", "residual_sd", "explained", "level", "sentence"
        document: dict[str, Any] = {"coefficients": result.table.to_pylist()}
        document |= {name: getattr(result, name) for name in names}
        document["forecasts"] = result.future.to_pylist()
        document["subjects"] = result.subjects.to_pylist()
        print_json(document | {"warnings": result.warnings})
    elif not output.quiet:
        _show(result, out)


def _show(result: Forecast, out: Path | None) -> None:
    """Prints coefficients, standard deviations and forecasts."""
    from irtjax.cli import screen
    from irtjax.report.words import interval, number

    cells = [
        [row["term"], number(row["estimate"]), interval(row["lower"], row["upper"])]
        for row in result.table.to_pylist()
    ]
    grouped = "family" in result.subjects.column_names
    for name in (*(["family"] * grouped), "residual"):
        value = getattr(result, f"{name}_sd")
        cells.append([f"standard deviation ({name})", number(value), ""])
    screen.show_table("", ["term", "estimate", f"{100 * result.level:g} %"], cells)
    cells = [
        [
            row["date"],
            number(row["score"]),
            interval(row["lower"], row["upper"]),
            number(row["frontier"]),
            interval(row["frontier_lower"], row["frontier_upper"]),
        ]
        for row in result.future.to_pylist()
    ]
    if cells:
        screen.show_table("", ["date", "score", "", "frontier", ""], cells)
    place = [] if out is None else [written(out, list(TABLES))]
    screen.show_sentences([result.sentence, *place])
    screen.show_warnings(result.warnings, ())
