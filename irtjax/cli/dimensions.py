"""`irtjax dimensions`: how many abilities do responses measure?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from irtjax.cli import options as opt
from irtjax.cli.machine import prepare
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.validity.dimensionality import Dimensions

#: What `--out` writes.
TABLE, FIGURE = "dimensions.csv", "dimensions.png"
#: Headings and columns of the table on screen, with digits.
_COLUMNS = {
    "factors": ("factors", 0),
    "held-out log-lik.": ("held_out", 4),
    "loss": ("loss", 4),
    "se": ("loss_se", 4),
    "AUC": ("auc", 4),
    "JIC": ("jic", 0),
    "eigenvalue": ("eigenvalue", 2),
    "by chance": ("eigenvalue_permuted", 2),
}


@opt.with_options
def dimensions_command(
    files: opt.Files,
    most: Annotated[
        int | None,
        opt.option(
            "Largest number of factors; by default 8, or fewer than half as many as"
            " there are subjects and items.",
            min=1,
        ),
    ] = None,
    out: Annotated[
        Path | None, opt.out("DIR", "Folder for dimensions.csv and dimensions.png.")
    ] = None,
    seed: opt.Seed = 0,
    figures: opt.Figures = True,
    *,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Finds how many abilities right and wrong responses measure."""
    check_out_folder(out, (TABLE, FIGURE))
    with ProgressLine(output.quiet) as progress:
        progress("read")
        table = reading.read(files)
        prepare()

        from irtjax.validity.dimensionality import dimensions

        result = dimensions(table, most=most, key=seed, progress=progress)
    if out is not None:
        from irtjax.plots import plot_dimensions

        contents = {out / TABLE: result.table}
        if figures:
            contents[out / FIGURE] = plot_dimensions(result)
        # The figure of an earlier run is not of this table.
        write_files(contents, stale=[out / FIGURE])
    if output.json:
        names = ("chosen", "best", "by_jic", "by_parallel", "by_penalty")
        print_json(
            {name: getattr(result, name) for name in names}
            | {"certificate": result.certificate, "notes": result.notes}
            | {"rows": result.table.to_pylist()}
        )
    elif not output.quiet:
        _show(result, out)


def _show(result: Dimensions, out: Path | None) -> None:
    """The table and the result in words."""
    from irtjax.cli import screen
    from irtjax.report.words import number

    records = result.table.to_pylist()
    # Without parallel analysis there are no eigenvalues.
    columns = {
        heading: column
        for heading, column in _COLUMNS.items()
        if any(row[column[0]] is not None for row in records)
    }
    rows = [
        ["" if row[name] is None else number(row[name], digits)
         for name, digits in columns.values()]
        for row in records
    ]  # fmt: skip
    screen.show_table("", list(columns), rows)
    place = [] if out is None else [written(out, (TABLE, FIGURE))]
    screen.show_sentences([result.sentence, *result.notes, *place])
