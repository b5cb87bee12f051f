"""`irtjax calibrate-items`: new items on the scale of a saved fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_file, print_json, write_files, written
from irtjax.cli.pipeline import load_fit
from irtjax.cli.progress import ProgressLine

#: Items that the screen shows.
MOST_ITEMS = 12


@opt.with_options
def calibrate_items_command(
    files: opt.Files,
    fit: Annotated[Path, opt.option("Folder of the fit.", metavar="DIR")],
    out: Annotated[Path | None, opt.out("FILE", "Table: .csv or .parquet.")] = None,
    *,
    machine: opt.Machine,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Calibrates items that a fit does not have, on its scale."""
    check_out_file(out)
    with ProgressLine(output.quiet) as progress:
        progress("load")
        machine.prepare()
        calibration = load_fit(fit)
        progress("read")
        table = reading.read(files, calibration, fit)
        progress("calibrate")
        from irtjax.fitting.new_items import calibrate_items

        result = calibrate_items(calibration, table)
        if out is not None:
            write_files({out: result.table})
    rows = result.table.to_pylist()
    if output.json:
        print_json({"items": rows, "warnings": result.warnings})
    elif not output.quiet:
        from irtjax.cli import screen
        from irtjax.report.words import number

        names = [x for x in result.table.column_names if x not in ("item", "observed")]
        names = [x for x in names if not x.endswith("_se")]
        cells = [
            [
                row["item"],
                *(
                    number(row[x])
                    + (f" ± {number(row[x + '_se'])}" if x + "_se" in row else "")
                    for x in names
                ),
            ]
            for row in rows[:MOST_ITEMS]
        ]
        screen.show_table("", ["item", *names], cells)
        left = len(rows) - len(cells)
        rest = [f"And {left:,} more items: --out FILE, --json."] if left else []
        place = [] if out is None else [written(out.parent, [out.name])]
        screen.show_sentences([*rest, *place])
        screen.show_warnings(result.warnings, ())
