"""`irtjax estimate`: the score of new models on all items, from a few answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from irtjax.cli import options as opt
from irtjax.cli.long_tables import rows_of
from irtjax.cli.output import check_out_file, print_json, write_files, written
from irtjax.cli.pipeline import load_fit
from irtjax.cli.progress import ProgressLine

#: Subjects that the screen shows.
MOST_SUBJECTS = 12


@opt.with_options
def estimate_command(
    files: opt.Files,
    fit: Annotated[Path, opt.option("Folder of a fit with the items.", metavar="DIR")],
    probability: Annotated[
        str | None,
        opt.option(
            "Column of the chance with which each item was drawn among those left, if"
            " not at random; rows are in the order of the draws.",
            metavar="COLUMN",
        ),
    ] = None,
    run_sd: opt.RunSd = None,
    out: Annotated[Path | None, opt.out("FILE", "Table: .csv or .parquet.")] = None,
    level: opt.Level = 0.95,
    seed: opt.Seed = 0,
    *,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Estimates scores on all items of a fit from answers to a few of them."""
    opt.check_level(level)
    check_out_file(out)
    with ProgressLine(output.quiet) as progress:
        progress("load")
        calibration = load_fit(fit)
        progress("read")
        table = reading.read(files, calibration, fit)
        drawn = None if probability is None else _draws(files, probability, table)
        progress("estimate")
        from irtjax.prediction.rectified import estimate_score

        chance, order = (None, None) if drawn is None else drawn
        result = estimate_score(
            calibration,
            table,
            probabilities=chance,
            order=order,
            level=level,
            key=seed,
            run_sd=run_sd,
        )
        if out is not None:
            write_files({out: result.table})
    rows = result.table.to_pylist()
    if output.json:
        first = rows[0] if len(rows) == 1 else {}
        head = {"level": level, "design": result.design, "warnings": result.warnings}
        print_json({**first, **head, "subjects": rows})
    elif not output.quiet:
        from irtjax.cli import screen
        from irtjax.report.words import number

        columns = "score", "lower", "upper", "mean"
        cells = [
            [
                row["subject"],
                f"{row['answers']:,}",
                *(number(row[x], 3) for x in columns),
            ]
            for row in rows[:MOST_SUBJECTS]
        ]
        screen.show_table("", ["subject", "answers", *columns], cells)
        left = len(rows) - len(cells)
        rest = [f"And {left:,} more subjects: --out FILE, --json."] if left else []
        place = [] if out is None else [written(out.parent, [out.name])]
        screen.show_sentences([*rest, *place])
        screen.show_warnings(result.warnings, ())


def _draws(files: list[str], name: str, table):
    """Chances and places in time of the answers, `[subjects, items]` each."""
    import numpy as np

    rows = rows_of(files)
    for column in ("subject", "item", name):
        if column not in rows.column_names:
            names = ", ".join(rows.column_names)
            raise ValueError(
                f"--probability requires the columns subject, item and {name}, and"
                f" there are {names}"
            )
    chance = np.full((table.num_subjects, table.num_items), np.nan)
    order = np.zeros(chance.shape)
    subjects = {str(x): k for k, x in enumerate(table.subjects)}
    items = {str(x): k for k, x in enumerate(table.items)}
    columns = (rows[column].to_pylist() for column in ("subject", "item", name))
    for place, (subject, item, value) in enumerate(zip(*columns, strict=True)):
        at = subjects.get(str(subject)), items.get(str(item))
        if None not in at:
            chance[at] = np.nan if value is None else float(value)
            order[at] = place
    return chance, order
