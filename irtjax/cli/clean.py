"""`irtjax clean`: responses without rare subjects and items, and without copies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_file, print_json, write_files, written
from irtjax.cli.progress import ProgressLine


@opt.with_options
def clean_command(
    files: opt.Files,
    min_subjects: Annotated[
        int, opt.option("Subjects that an item needs.", min=1)
    ] = 30,
    min_items: Annotated[int, opt.option("Items that a subject needs.", min=1)] = 30,
    keep_duplicates: Annotated[
        bool, opt.option("Keep items with identical responses.", "--keep-duplicates")
    ] = False,
    drop_constant: Annotated[
        bool,
        opt.option("Leave out items that all solve, or nobody.", "--drop-constant"),
    ] = False,
    out: Annotated[
        Path | None, opt.out("FILE", "Responses that are left: .csv or .parquet.")
    ] = None,
    *,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Leaves out rare subjects and items, and copies of items."""
    check_out_file(out)
    with ProgressLine(output.quiet) as progress:
        progress("read")
        table = reading.read(files)
        from irtjax.data.cleaning import clean
        from irtjax.data.frames import to_frame

        result = clean(
            table,
            min_subjects=min_subjects,
            min_items=min_items,
            drop_duplicates=not keep_duplicates,
            drop_constant=drop_constant,
        )
        if out is not None:
            write_files({out: to_frame(result.table, "arrow")})
    rows = result.report.to_pylist()
    sizes = {
        "subjects": result.table.num_subjects,
        "items": result.table.num_items,
        "subjects_before": table.num_subjects,
        "items_before": table.num_items,
    }
    if output.json:
        print_json({**sizes, "left_out": rows})
    elif not output.quiet:
        from irtjax.cli import screen
        from irtjax.data.wording import counted

        cells = [[str(r["round"]), r["reason"], f"{r['left_out']:,}"] for r in rows]
        if cells:
            screen.show_table("", ["round", "reason", "left out"], cells, left=2)
        subjects = counted(sizes["subjects"], "subject")
        sentence = (
            f"{subjects} and {counted(sizes['items'], 'item')} are left of"
            f" {table.num_subjects:,} and {table.num_items:,}."
        )
        place = [] if out is None else [written(out.parent, [out.name])]
        screen.show_sentences([sentence, *place])
