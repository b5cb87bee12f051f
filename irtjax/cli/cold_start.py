"""`irtjax cold-start`: new tasks, new models and pairs never run, from features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.prediction.cold_start import ColdStart

#: What `--out` writes.
TABLES = (
    "predicted_items.csv",
    "predicted_subjects.csv",
    "new_responses.csv",
    "feature_effects.csv",
    "feature_variances.csv",
)
#: Rows of each table that the screen shows.
MOST_ROWS = 12

_POINTS = "points", "points_lower", "points_upper"


@opt.with_options
def cold_start_command(
    files: opt.Files,
    item_features: Annotated[
        Path | None,
        opt.option(
            "Features of items: .csv or .parquet with names, or .npy.", metavar="FILE"
        ),
    ] = None,
    subject_features: Annotated[
        Path | None, opt.option("The same of subjects.", metavar="FILE")
    ] = None,
    item_columns: Annotated[
        str | None,
        opt.option(
            "Columns of the features of items, with commas between; else all.",
            metavar="NAME,NAME...",
        ),
    ] = None,
    subject_columns: Annotated[
        str | None,
        opt.option("The same of subjects: agent,model.", metavar="NAME,NAME..."),
    ] = None,
    differences: Annotated[
        list[str] | None,
        opt.option(
            "What one label adds to another: agent=A,B; repeat it.",
            "--difference",
            metavar="COLUMN=LABEL,LABEL",
        ),
    ] = None,
    out: Annotated[
        Path | None, opt.out("DIR", f"Folder for {', '.join(TABLES)}.")
    ] = None,
    level: opt.Level = 0.95,
    *,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Predicts responses to new items, and of new subjects, from features."""
    opt.check_level(level)
    check_out_folder(out, TABLES)
    if item_features is None and subject_features is None:
        raise ValueError("give --item-features FILE or --subject-features FILE")
    pairs = [_pair(text) for text in differences or ()]
    with ProgressLine(output.quiet) as progress:
        progress("read")
        table = reading.read(files)
        progress("fit")
        from irtjax.prediction.cold_start import cold_start

        result = cold_start(
            table,
            item_features=item_features,
            subject_features=subject_features,
            item_columns=_names(item_columns),
            subject_columns=_names(subject_columns),
            level=level,
        )
        changes = [
            {"feature": x[0], "first": x[1], "second": x[2]} | result.difference(*x)
            for x in pairs
        ]
        if out is not None:
            tables = result.items, result.subjects, result.new_responses
            tables += result.effects, result.variances
            write_files({out / x: y for x, y in zip(TABLES, tables, strict=True)})
    if output.json:
        print_json(_document(result, changes))
    elif not output.quiet:
        _show(result, changes, out)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _pair(text: str) -> tuple[str, str, str]:
    """Column and two labels of `COLUMN=LABEL,LABEL`."""
    name, _, labels = text.partition("=")
    first, comma, second = labels.partition(",")
    if not (name and first and comma and second):
        raise ValueError(f"--difference {text} is not of the form COLUMN=LABEL,LABEL")
    return name.strip(), first.strip(), second.strip()


def _document(result: ColdStart, changes: list[dict[str, Any]]) -> dict[str, Any]:
    """What `--json` prints."""
    names = "items", "subjects", "effects", "variances"
    return {
        **{name: getattr(result, name).to_pylist() for name in names},
        "differences": changes,
        "log_likelihood": result.log_likelihood,
        "level": result.level,
        "warnings": result.warnings,
    }


def _show(result: ColdStart, changes: list[dict[str, Any]], out: Path | None) -> None:
    """Prints new items and subjects, shares of variance and differences."""
    from irtjax.cli import screen
    from irtjax.report.words import number

    left = []
    for name, rows in (
        ("item", result.items.to_pylist()),
        ("subject", result.subjects.to_pylist()),
    ):
        new = [row for row in rows if not row["observed"]]
        cells = [
            [row[name], *(number(row[x], 3) for x in ("expected", "lower", "upper"))]
            for row in new[:MOST_ROWS]
        ]
        if cells:
            screen.show_table("", [f"new {name}", "score", "from", "to"], cells)
        if len(new) > len(cells):
            left.append(f"And {len(new) - len(cells):,} more new {name}s.")
    cells = [
        [row["of"], row["part"], number(row["sd"]), f"{100 * row['share']:.1f} %"]
        for row in result.variances.to_pylist()
    ]
    screen.show_table("", ["of", "part", "sd", "share"], cells, left=2)
    if changes:
        cells = [
            [
                f"{row['feature']}: {row['first']}, not {row['second']}",
                *(number(row[x]) for x in ("difference", "lower", "upper")),
                *(number(row[x], 1) for x in _POINTS),
            ]
            for row in changes
        ]
        head = ["change", "ability", "from", "to", "points", "from", "to"]
        screen.show_table("", head, cells)
    place = [] if out is None else [written(out, TABLES)]
    screen.show_sentences([*left, *place])
    screen.show_warnings(result.warnings, ())
