"""`irtjax shrink`: a few items that stand for a whole benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtjax.cli import options as opt
from irtjax.cli.progress import Progress

if TYPE_CHECKING:
    from irtjax.subsets.errors import SubsetErrors
    from irtjax.subsets.subset import Shrunken

#: Written where errors are requested: a table and its figure.
ERROR_FILES = ("errors.csv", "shrink.png")

_Out = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="Folder for the subset and its predictor; tables of errors.",
        show_default=False,
    ),
]
_Size = Annotated[int | None, typer.Option("--size", help="Number of items to keep.")]
_Error = Annotated[
    float | None,
    typer.Option("--se", help="Keep as many as give abilities this error."),
]
_ScoreError = Annotated[
    float | None,
    typer.Option(
        "--score-error", help="Keep as many as give scores this error, by the model."
    ),
]
_By = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="RULE",
        help="auto, regression, information, clustering, discrimination, difficulty or"
        " random. auto: the one with the smallest cross-validated error.",
    ),
]
_Aim = Annotated[
    str, typer.Option("--aim", help="Of --by information: score or ability.")
]
_At = Annotated[
    str | None,
    typer.Option("--at", metavar="A,B", help="Abilities where information matters."),
]
_Stratify = Annotated[
    str | None,
    typer.Option("--stratify", metavar="FACET", help="Facet to share items between."),
]
_Average = Annotated[
    str,
    typer.Option("--average", help="What a full score averages: items, benchmarks."),
]
_Folds = Annotated[
    int | None,
    typer.Option(
        "--folds",
        help="Folds of subjects behind intervals and comparison; 5, fewer for few.",
        show_default=False,
    ),
]
_Sizes = Annotated[
    str | None,
    typer.Option("--sizes", metavar="N,N", help="Also a table of errors by size."),
]
_Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="FILE",
        help="CSV or Parquet with columns subject and score: a ranking to agree with.",
    ),
]


@opt.with_reading
def shrink_command(
    files: opt.Files,
    reading: opt.Reading,
    out: _Out,
    size: _Size = None,
    se: _Error = None,
    score_error: _ScoreError = None,
    by: _By = "auto",
    aim: _Aim = "score",
    at: _At = None,
    stratify: _Stratify = None,
    average: _Average = "items",
    model: Annotated[
        str, typer.Option("--model", "-m", help="Model to fit: auto, or a name.")
    ] = "auto",
    folds: _Folds = None,
    sizes: _Sizes = None,
    reference: _Reference = None,
    level: opt.Level = 0.95,
    seed: opt.Seed = 0,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Chooses items that represent all, and estimates the error."""
    opt.check_level(level)
    if sum(x is not None for x in (size, se, score_error)) != 1:
        raise ValueError("give one of --size, --se and --score-error")
    if reference is not None and sizes is None:
        raise ValueError("--reference requires --sizes: the table has the agreement")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: name a folder")
    options: dict[str, Any] = {
        "aim": aim,
        "abilities": _numbers(at, "--at", float),
        "stratify": stratify,
        "average": average,
        "model": model,
        "folds": folds,
        "level": level,
    }
    wanted = _numbers(sizes, "--sizes", int)
    ranking = None if reference is None else _values(reference)
    errors = None
    with Progress(quiet) as progress:
        progress("read")
        from irtjax.cli.machine import prepare

        prepare()
        import jax

        from irtjax.subsets.errors import check_reference
        from irtjax.subsets.shrink import check_size, shrink, subset_errors

        table = reading.read(files)
        for number in wanted or ():
            check_size(number, table.num_items, "--sizes")
        if ranking is not None:
            check_reference(ranking, table.subjects)
        key = jax.random.key(seed)
        target = {"standard_error": se, "score_error": score_error}
        progress("shrink")
        try:
            small = shrink(table, size, method=by, key=key, **target, **options)
            if wanted is not None:
                progress("errors")
                errors = subset_errors(
                    table,
                    wanted,
                    reference=ranking,
                    key=key,
                    **{**options, "folds": 5 if folds is None else folds},
                )
        except ValueError as error:
            raise ValueError(_as_options(str(error))) from None
        progress("write")
        _write(out, small, errors)
    _report(small, errors, list(table.notes), out, quiet, json)


def _numbers(text: str | None, option: str, kind: type) -> list | None:
    """Numbers with commas between, or None."""
    if text is None:
        return None
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"{option} {text}: write {what} with commas between") from None


def _values(path: Path) -> dict[str, float]:
    """Values by subject of a reference ranking."""
    import math

    from irtjax.cli.side_tables import read_content

    content = read_content("--reference", path)
    for name in ("subject", "score"):
        if name not in content.column_names:
            raise ValueError(f"--reference {path} has no column {name!r}")
    found = {}
    rows = zip(
        content["subject"].to_pylist(), content["score"].to_pylist(), strict=True
    )
    for name, value in rows:
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"--reference {path}: the score of {name!r} is {value!r}")
        found[str(name)] = float(value)
    return found


def _as_options(message: str) -> str:
    """A message of `shrink` in which its arguments are options."""
    for name, option in (
        ("size ", "--size "),
        ("standard_error ", "--se "),
        ("score_error ", "--score-error "),
        ("method ", "--by "),
        ("aim ", "--aim "),
        ("average ", "--average "),
        ("folds ", "--folds "),
        ("level ", "--level "),
    ):
        if message.startswith(name):
            return option + message.removeprefix(name)
    return message


def _write(out: Path, small: Shrunken, errors: SubsetErrors | None) -> None:
    """Writes the subset and, where requested, errors and their figure."""
    small.save(out)
    if errors is None:
        # Those of an earlier subset in this folder are not of this one.
        for name in ERROR_FILES:
            (out / name).unlink(missing_ok=True)
        return
    from irtjax.data.files import atomic_path
    from irtjax.plots import plot_subset_errors, save_figure
    from irtjax.storage import write_table

    with (
        atomic_path(out / ERROR_FILES[0]) as csv,
        atomic_path(out / ERROR_FILES[1]) as picture,
    ):
        write_table(errors.table(), csv)
        save_figure(plot_subset_errors(errors), picture)


def _report(small, errors, notes, out: Path, quiet: bool, json: bool) -> None:
    """Prints the outcome, for people or as JSON."""
    warnings = list(
        dict.fromkeys([*small.warnings, *(() if errors is None else errors.warnings)])
    )
    if json:
        from irtjax.cli.pipeline import print_json

        print_json(
            {
                "items": small.table().to_pylist(),
                "num_items": small.num_items,
                "method": small.method,
                "reason": small.reason,
                "rules": list(small.rules),
                "standard_error": small.standard_error,
                "score_error": small.score_error,
                "held_out": small.held_out,
                "level": small.level,
                "errors": None if errors is None else list(errors.rows),
                "out": str(out),
                "warnings": warnings,
                "notes": notes,
            }
        )
    elif not quiet:
        from irtjax.cli import screen

        console = screen.console()
        if small.rules:
            _show_rules(console, small)
        if errors is not None:
            _show(console, errors)
        written = _written(out, small, errors)
        screen.show_sentences(console, [*sentences(small), written])
        screen.show_warnings(console, warnings, notes)


def _show_rules(console, small: Shrunken) -> None:
    """Prints the rules that were compared."""
    from irtjax.cli import screen
    from irtjax.report.words import number

    columns = ("mean_absolute_error", "standard_error", "excess", "excess_se")
    rows = [
        [row["rule"], *(number(row[name], 4) for name in columns)]
        + ["yes" if row["taken"] else ""]
        for row in small.rules
    ]
    title = f"Rules compared on held-out subjects, {small.size:,} items"
    header = ["rule", "mean error", "SE", "above the best", "SE", "taken"]
    screen.show_table(console, title, header, rows)


def _show(console, errors: SubsetErrors) -> None:
    """Prints errors by method and size."""
    from irtjax.cli import screen
    from irtjax.data.wording import percent
    from irtjax.report.words import number

    header = [
        "method",
        "items",
        "mean error",
        f"{percent(errors.level)} intervals hold",
    ]
    header += ["width", "tau", "Spearman"]
    rows = [
        [
            row["method"],
            f"{row['size']:,}",
            number(row["mean_absolute_error"], 4),
            number(row["coverage"], 3),
            number(row["width"], 3),
            number(row["kendall"], 3),
            number(row["spearman"], 3),
        ]
        for row in errors.rows
    ]
    title = f"{errors.num_subjects:,} held-out subjects, {errors.num_items:,} items"
    if any(row["reference_kendall"] is not None for row in errors.rows):
        header.append("tau with reference")
        for cells, row in zip(rows, errors.rows, strict=True):
            cells.append(number(row["reference_kendall"], 3))
    screen.show_table(console, title, header, rows)


def sentences(small: Shrunken) -> list[str]:
    """Returns what a subset is and how far it can be trusted."""
    from irtjax.report.words import number

    found = [small.reason[0].upper() + small.reason[1:] + "."] if small.reason else []
    found += [
        f"{small.size:,} of {small.num_items:,} items, by {small.method}: the model"
        f" expects an error of {number(small.standard_error)} for abilities, of"
        f" {number(small.score_error, 3)} for full scores."
    ]
    if small.held_out:
        held = small.held_out
        found.append(
            f"Full scores of {held['num_subjects']:,} subjects, each left out of choice"
            f" and fit: mean absolute error"
            f" {number(held['mean_absolute_error'], 4)} (weighted mean response:"
            f" {number(held['mean_absolute_error_of_mean'], 4)}), Kendall's tau"
            f" {number(held['kendall'], 3)}."
        )
    return found


def _written(out: Path, small: Shrunken, errors: SubsetErrors | None) -> str:
    """Prints what was written."""
    more = ", rules.csv" if small.rules else ""
    more += "" if errors is None else ", errors.csv, shrink.png"
    return f"Written to {out}: subset.csv, subset.json{more}"
