"""`irtjax history`: what changed in a fit since models were added to it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

from irtjax.cli import options as opt
from irtjax.cli.machine import prepare
from irtjax.cli.output import check_file, print_json, write_files
from irtjax.cli.progress import ProgressLine


def history_command(
    folder: opt.Folder,
    figure: Annotated[
        Path | None, opt.option("Where to draw ranks over time.", metavar="FILE.png")
    ] = None,
    everything: Annotated[
        bool, opt.option("Every row, however long the table.", "--all")
    ] = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Shows models and items that came and went, and moves that are significant."""
    if figure is not None:
        if figure.suffix.lower() != ".png":
            raise ValueError(f"--figure {figure}: the name of a picture ends in .png")
        check_file("--figure", figure)
    with ProgressLine(quiet) as progress:
        progress("load")
        prepare()
        from irtjax.storage import history

        found = history(folder)
        if figure is not None:
            progress("draw")
            from irtjax.plots import plot_history, save_figure

            draw = functools.partial(save_figure, plot_history(found))
            write_files({figure: draw})
    if json:
        steps = [
            step._asdict() | {"moves": [move._asdict() for move in step.moves]}
            for step in found.steps
        ]
        print_json(
            {
                "steps": steps,
                "subjects": found.table.to_pylist(),
                "refit_advised": found.advised or None,
            }
        )
    elif not quiet:
        from irtjax.cli import screen

        header, rows = found.standings()
        shown = rows if everything else screen.shortened(rows)
        spare = tuple(header[3:-2])  # Times between the first and the last one.
        screen.show_table("", header, shown, left=2, spare=spare)
        places = [] if figure is None else [f"Written to {figure}"]
        if not found.steps:
            places.append(f"No model was added yet: irtjax add NEW --to {folder}")
        if found.advised:
            again = f"irtjax add {folder} --to {folder} --refit always"
            places.append(f"To fit the items again: {again}")
        screen.show_sentences([*found.sentences, *places])
