"""`irtjax score`: new subjects on the scale of a saved fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_file, print_json, write_files
from irtjax.cli.progress import ProgressLine


@opt.with_options
def score_command(
    files: opt.Files,
    fit: opt.FitFolder,
    out: Annotated[
        Path | None, opt.out("FILE", "CSV or Parquet file to write.")
    ] = None,
    scoring: Annotated[str, opt.option("eap, map, ml or wle.")] = "eap",
    measures: Annotated[
        str, opt.option("With lengths: both, accuracy or length.")
    ] = "both",
    subject_table: opt.SubjectTable = None,
    level: opt.SomeLevel = None,
    *,
    machine: opt.Machine,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Scores subjects with the items fixed at those of a fit; items match by name.

    With what `irtjax shrink` wrote as --fit, scores on all items are predicted.
    """
    opt.check_level(level)
    check_out_file(out)
    from irtjax.data.fit_folder import is_subset
    from irtjax.subsets.subset import load_subset

    subset = is_subset(fit)
    plain = scoring == "eap" and measures == "both" and level is None
    plain = plain and subject_table is None
    if subset and (not plain or machine != opt.Machine()):
        raise ValueError(
            "a subset predicts scores with the level it was calibrated for: leave"
            " --scoring, --measures, --subject-table, --level, --float32 and --device"
            " out"
        )
    with ProgressLine(output.quiet) as progress:
        progress("read")
        machine.prepare()
        from irtjax.calibration.score import score
        from irtjax.data.reversal import directions_of
        from irtjax.storage import load

        saved: Any = load_subset(fit) if subset else load(fit)
        table = reading.read(files, saved)
        progress("score")
        if subset:
            result, num_items = saved.predict(table), saved.num_items
        else:
            options = {"scoring": scoring, "level": level, "measures": measures}
            options["subject_table"] = subject_table
            result, num_items = score(saved, table, **options), None
    if out is not None:
        write_files({out: result.table})
    ways = directions_of(dict.fromkeys(saved.reversed_scores.values()))
    notes = [*ways, *table.notes, *result.notes]
    if not output.json:
        # What the fit states, too, is no news.
        stated = () if subset else saved.notes
        notes = [note for note in notes if note not in stated]
    noun = "model" if subset else saved.nouns[0]
    _report(result, num_items, notes, out, output, noun)


def _report(
    result, num_items, notes, out: Path | None, output: opt.Output, noun: str
) -> None:
    """Prints scores, or those predicted for some items, for people or as JSON."""
    if output.json:
        whole = num_items is None
        kind = {"scoring": result.scoring} if whole else {"num_items": num_items}
        print_json(
            {
                **kind,
                "level": result.level,
                "out": None if out is None else str(out),
                "subjects": result.table.to_pylist(),
                "notes": notes,
            }
        )
    elif not output.quiet:
        from irtjax.cli import screen

        if num_items is None and "rank" in result.table.column_names:
            show_standing(result.table.to_pylist(), result.level, noun)
        else:
            screen.show_table(*_shown(result, num_items))
        screen.show_warnings([], notes)
        if out is not None:
            screen.show_sentences([f"Written to {out}"])


def show_standing(
    rows: list[dict[str, Any]], level: float, noun: str, title: str = ""
) -> None:
    """Prints new subjects with their ranks among those of the fit."""
    from irtjax.cli import screen
    from irtjax.report.standing_text import above_sentences, standing_table

    header, cells = standing_table(rows, level, noun)
    left = ("rank", noun, "tied with")
    screen.show_table(title, header, screen.shortened(cells), left)
    screen.show_sentences(above_sentences(rows, noun))


def _shown(result: Any, num_items: int | None) -> tuple:
    """Title, header and rows of scores, or of those predicted for some items."""
    from irtjax.cli import screen
    from irtjax.data.wording import counted, percent
    from irtjax.report.words import interval, number

    title = f"{counted(result.table.num_rows, 'subject')}, "
    if num_items is not None:
        title += f"predicted scores on {counted(num_items, 'item')}"
        return title, *_predicted(result)
    title += f"{result.scoring.upper()} scores"
    header = ["subject", "ability", "error", f"{percent(result.level)} interval"]
    header += ["accuracy", "responses", "flags"]
    rows = [
        [
            row["subject"],
            *(number(row[name]) for name in ("ability", "ability_se")),
            interval(row["lower"], row["upper"], 2),
            number(row["accuracy"], 3),
            f"{row['observed']:,}",
            row["flags"] or "",
        ]
        for row in result.table.to_pylist()
    ]
    return title, header, screen.shortened(rows)


def _predicted(result: Any) -> tuple[list[str], list[list[str]]]:
    """Header and rows of predicted scores, as on the leaderboard."""
    from irtjax.calibration.leaderboard_text import score_digits
    from irtjax.cli import screen
    from irtjax.data.wording import percent, points

    names = [f"expected_score{end}" for end in ("", "_lower", "_upper")]
    records = result.table.to_pylist()
    values = [[row[name] for name in names] for row in records]
    digits = score_digits([(high - low) / 2 for _, low, high in values], 1.0)
    rows = [
        [
            row["subject"],
            points(score, digits),
            f"{points(low, digits)}–{points(high, digits)}",
            points(row["subset_mean"], digits),
            f"{row['observed']:,}",
        ]
        for row, (score, low, high) in zip(records, values, strict=True)
    ]
    header = ["subject", "score", percent(result.level), "subset mean", "responses"]
    return header, screen.shortened(rows)
