"""`irtjax score`: new subjects on the scale of a saved fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.machine import prepare
from irtjax.cli.output import check_out_file, print_json, write_files
from irtjax.cli.progress import ProgressLine


@opt.with_reading
def score_command(
    files: opt.Files,
    reading: opt.Reading,
    fit: opt.FitFolder,
    out: Annotated[
        Path | None, opt.out("FILE", "CSV or Parquet file to write.")
    ] = None,
    scores: Annotated[str, opt.option("eap, map, ml or wle.")] = "eap",
    measures: Annotated[
        str, opt.option("With lengths: both, accuracy or length.")
    ] = "both",
    level: opt.SomeLevel = None,
    float32: opt.Float32 = False,
    device: opt.Device = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Scores subjects with the items fixed at those of a fit; items match by name.

    With what `irtjax shrink` wrote as --fit, scores on all items are predicted.
    """
    opt.check_level(level)
    check_out_file(out)
    from irtjax.subsets.subset import is_subset, load_subset

    subset = is_subset(fit)
    plain = scores == "eap" and measures == "both" and level is None
    if subset and (not plain or float32 or device is not None):
        raise ValueError(
            "a subset predicts scores with the level it was calibrated for: leave"
            " --scores, --measures, --level, --float32 and --device out"
        )
    with ProgressLine(quiet) as progress:
        progress("read")
        prepare(float32, device)
        from irtjax.calibration.score import score
        from irtjax.data.reversal import directions_of
        from irtjax.storage import load

        saved: Any = load_subset(fit) if subset else load(fit)
        table = reading.read(files, saved)
        progress("score")
        if subset:
            result, num_items = saved.predict(table), saved.num_items
        else:
            options = {"method": scores, "level": level, "measures": measures}
            result, num_items = score(saved, table, **options), None
    if out is not None:
        write_files({out: result.table})
    ways = directions_of(dict.fromkeys(saved.reversed_scores.values()))
    notes = [*ways, *table.notes, *result.notes]
    _report(result, num_items, notes, out, quiet, json)


def _report(result, num_items, notes, out: Path | None, quiet: bool, json: bool):
    """Prints scores, or those predicted for some items, for people or as JSON."""
    if json:
        whole = num_items is None
        kind = {"scores": result.method} if whole else {"num_items": num_items}
        print_json(
            {
                **kind,
                "level": result.level,
                "out": None if out is None else str(out),
                "subjects": result.table.to_pylist(),
                "notes": notes,
            }
        )
    elif not quiet:
        from irtjax.cli import screen

        if num_items is None and "rank" in result.table.column_names:
            show_standing(result.table.to_pylist(), result.level)
        else:
            screen.show_table(*_shown(result, num_items))
        screen.show_warnings([], notes)
        if out is not None:
            screen.show_sentences([f"Written to {out}"])


def show_standing(rows: list[dict[str, Any]], level: float, title: str = "") -> None:
    """Prints new subjects with their ranks among those of the fit."""
    from irtjax.cli import screen
    from irtjax.data.wording import percent
    from irtjax.report import standing_text

    header = [x.replace("interval", percent(level)) for x in standing_text.HEADER]
    cells = screen.shortened(standing_text.standing_rows(rows))
    screen.show_table(title, header, cells, left=2, spare=standing_text.SPARE)
    screen.show_sentences(standing_text.above_sentences(rows))


def _shown(result: Any, num_items: int | None) -> tuple:
    """Title, header and rows of scores, or of those predicted for some items."""
    from irtjax.cli import screen
    from irtjax.data.wording import counted, percent
    from irtjax.report.words import interval, number

    rows, level = result.table.num_rows, percent(result.level)
    title = f"{counted(rows, 'subject')}, "
    if num_items is None:
        title += f"{result.method.upper()} scores"
        header = ["subject", "ability", "error", f"{level} interval", "accuracy"]
        header += ["responses", "flags"]
        names, mean, digits = ("ability", "ability_se"), "accuracy", 2
    else:
        title += f"predicted scores on {counted(num_items, 'item')}"
        header = ["subject", "score", f"{level} interval", "subset mean", "responses"]
        names, mean, digits = ("expected_score",), "subset_mean", 3
    prefix = "" if num_items is None else "expected_score_"
    rows = []
    for row in result.table.to_pylist():
        cells = [row["subject"], *(number(row[name], digits) for name in names)]
        low, high = row[f"{prefix}lower"], row[f"{prefix}upper"]
        cells.append(interval(low, high, digits))
        cells += [number(row[mean], 3), f"{row['observed']:,}"]
        rows.append([*cells, row["flags"] or ""] if num_items is None else cells)
    return title, header, screen.shortened(rows)
