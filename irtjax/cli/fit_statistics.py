"""`irtjax fit-statistics`: does the model of a fit hold?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.pipeline import load_fit
from irtjax.cli.progress import ProgressLine

#: What `--out` writes.
TABLES = "item_fit.csv", "subject_fit.csv", "item_pairs.csv"
#: Pairs of items that the screen shows.
MOST_PAIRS = 5


@opt.with_options
def fit_statistics_command(
    folder: opt.Folder,
    files: opt.MaybeFiles = None,
    out: Annotated[
        Path | None, opt.out("DIR", f"Folder for {', '.join(TABLES)}.")
    ] = None,
    *,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Tests whether a model reproduces the correlations of its items.

    DIR is a fit, FILE... the responses that were fitted, if it keeps none.
    """
    check_out_folder(out, TABLES, "fit-statistics")
    with ProgressLine(output.quiet) as progress:
        progress("read")
        fit = load_fit(folder)
        table = reading.read(files, fit, folder)
        progress("test")
        from irtjax.validity.fit_statistics import fit_statistics

        result = fit_statistics(fit, table)
        if out is not None:
            tables = result.items, result.subjects, result.largest
            paths = (out / name for name in TABLES)
            write_files(dict(zip(paths, tables, strict=True)))
    pairs = result.largest.to_pylist()
    if output.json:
        low, high = result.rmsea_interval
        print_json(
            {
                result.name: result.statistic,
                "df": result.degrees,
                "p_value": result.p_value,
                "RMSEA": result.rmsea,
                "RMSEA_lower": low,
                "RMSEA_upper": high,
                "SRMSR": result.srmsr,
                "CFI": result.cfi,
                "TLI": result.tli,
                "subjects": result.num_subjects,
                "pairs": pairs,
                "effect": result.effect and dataclasses.asdict(result.effect),
                "items": result.items.to_pylist(),
                "subjects_table": result.subjects.to_pylist(),
                "notes": result.notes,
            }
        )
    elif not output.quiet:
        from irtjax.cli import screen

        screen.show_sentences([str(result) + "."])
        names = "item", "other_item"
        rows = [
            [*(row[name] for name in names), f"{row['residual_correlation']:+.3f}"]
            for row in pairs[:MOST_PAIRS]
        ]
        screen.show_table("", ["item", "other item", "residual correlation"], rows)
        if out is not None:
            screen.show_sentences([written(out, TABLES)])
        screen.show_warnings((), result.notes)
