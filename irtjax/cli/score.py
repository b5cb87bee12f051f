"""`irtjax score`: new subjects on the scale of a saved fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from irtjax.cli import options as opt
from irtjax.cli.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa


@opt.with_reading
def score_command(
    files: opt.Files,
    reading: opt.Reading,
    fit: opt.FitFolder,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="CSV or Parquet file to write."
        ),
    ] = None,
    scores: Annotated[
        str, typer.Option("--scores", help="eap, map, ml or wle.")
    ] = "eap",
    measures: Annotated[
        str,
        typer.Option("--measures", help="With lengths: both, accuracy or length."),
    ] = "both",
    level: opt.SomeLevel = None,
    float32: opt.Float32 = False,
    device: opt.Device = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Scores subjects with the items of a fit held fixed; items match by name.

    With what `irtjax shrink` wrote as --fit, scores on all items are predicted.
    """
    opt.check_level(level)
    check_file(out)
    from irtjax.subsets.subset import is_subset

    if is_subset(fit):
        plain = scores == "eap" and measures == "both" and level is None
        if not plain or float32 or device is not None:
            raise ValueError(
                "a subset predicts scores with the level it was calibrated for: leave"
                " --scores, --measures, --level, --float32 and --device out"
            )
        _predict(files, reading, fit, out, quiet, json)
        return
    with Progress(quiet) as progress:
        progress("read")
        from irtjax.cli.machine import prepare

        prepare(float32, device)
        from irtjax.storage import load

        calibration = load(fit)
        table = reading.read(files)
        from irtjax.calibration.score import score

        progress("score")
        result = score(
            calibration, table, method=scores, level=level, measures=measures
        )
    if out is not None:
        write_file(result.table, out)
    if json:
        from irtjax.cli.pipeline import print_json

        print_json(
            {
                "scores": result.method,
                "level": result.level,
                "out": None if out is None else str(out),
                "subjects": result.table.to_pylist(),
                "notes": [*table.notes, *result.notes],
            }
        )
    elif not quiet:
        _show(result.table, result.level, result.method)
        from irtjax.cli import screen

        console = screen.console()
        screen.show_warnings(console, [], [*table.notes, *result.notes])
        if out is not None:
            screen.show_sentences(console, [f"Written to {out}"])


def _predict(files, reading, place: Path, out: Path | None, quiet: bool, json: bool):
    """Full scores from responses to a subset."""
    with Progress(quiet) as progress:
        progress("read")
        from irtjax.cli.machine import prepare

        prepare()
        from irtjax.subsets.subset import load_subset

        small = load_subset(place)
        table = reading.read(files)
        progress("score")
        result = small.predict(table)
    notes = [*table.notes, *result.notes]
    if out is not None:
        write_file(result.table, out)
    if json:
        from irtjax.cli.pipeline import print_json

        print_json(
            {
                "level": result.level,
                "out": None if out is None else str(out),
                "num_items": small.num_items,
                "subjects": result.table.to_pylist(),
                "notes": notes,
            }
        )
    elif not quiet:
        _show_predicted(result, small.num_items)
        from irtjax.cli import screen

        console = screen.console()
        screen.show_warnings(console, [], notes)
        if out is not None:
            screen.show_sentences(console, [f"Written to {out}"])


def _show_predicted(result, num_items: int) -> None:
    from irtjax.cli import screen
    from irtjax.data.wording import percent
    from irtjax.report.words import interval, number

    header = ["subject", "score", f"{percent(result.level)} interval", "subset mean"]
    rows = [
        [
            row["subject"],
            number(row["score"], 3),
            interval(row["lower"], row["upper"], 3),
            number(row["subset_mean"], 3),
            f"{row['observed']:,}",
        ]
        for row in result.table.to_pylist()
    ]
    if len(rows) > 2 * screen.ENDS + 5:
        left = len(rows) - 2 * screen.ENDS
        gap = [f"... {left:,} more ...", *[""] * 4]
        rows = rows[: screen.ENDS] + [gap] + rows[-screen.ENDS :]
    title = (
        f"{result.table.num_rows:,} subjects, predicted scores on {num_items:,} items"
    )
    screen.show_table(screen.console(), title, [*header, "answers"], rows)


def check_file(out: Path | None) -> None:
    """Refuses a place that cannot be written before anything takes time."""
    if out is None:
        return
    if out.suffix not in (".csv", ".parquet"):
        raise ValueError(f"--out {out}: the name must end in .csv or .parquet")
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder: name a file")
    from irtjax.data.files import atomic_path

    probe = out.with_name(f".{out.name}.probe")
    with atomic_path(probe):
        pass
    probe.unlink(missing_ok=True)


def write_file(table: pa.Table, out: Path) -> None:
    """Writes a table as CSV or Parquet, whole or not at all."""
    from irtjax.data.files import atomic_path
    from irtjax.storage import write_table

    with atomic_path(out) as temporary:
        write_table(table, temporary)


def _show(table: pa.Table, level: float, scores: str) -> None:
    from irtjax.cli import screen
    from irtjax.data.wording import percent
    from irtjax.report.words import interval, number

    header = ["subject", "ability", "error", f"{percent(level)} interval", "accuracy"]
    rows = [
        [
            row["subject"],
            number(row["ability"]),
            number(row["ability_se"]),
            interval(row["lower"], row["upper"]),
            number(row["accuracy"], 3),
            f"{row['observed']:,}",
            row["flags"] or "",
        ]
        for row in table.to_pylist()
    ]
    shown = rows
    if len(rows) > 2 * screen.ENDS + 5:
        left = len(rows) - 2 * screen.ENDS
        gap = [f"... {left:,} more ...", *[""] * 6]
        shown = rows[: screen.ENDS] + [gap] + rows[-screen.ENDS :]
    title = f"{len(rows):,} subjects, {scores.upper()} scores"
    screen.show_table(screen.console(), title, [*header, "answers", "flags"], shown)
