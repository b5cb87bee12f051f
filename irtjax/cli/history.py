"""`irtjax history`: what changed in a fit since models were added to it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

from irtjax.cli import options as opt
from irtjax.cli.machine import prepare
from irtjax.cli.output import check_file, print_json, write_files
from irtjax.cli.progress import ProgressLine

#: Columns of what changed of a model.
CHANGE = 28


@opt.with_options
def history_command(
    folder: opt.Folder,
    figure: Annotated[
        Path | None, opt.option("Where to draw ranks over time.", metavar="FILE.png")
    ] = None,
    everything: Annotated[
        bool, opt.option("Every row, however long the table.", "--all")
    ] = False,
    *,
    output: opt.Output,
) -> None:
    """Shows models and items that came and went, and moves that are significant."""
    if figure is not None:
        if figure.suffix.lower() != ".png":
            raise ValueError(f"--figure {figure}: the name of a picture ends in .png")
        check_file("--figure", figure)
    with ProgressLine(output.quiet) as progress:
        progress("load")
        prepare()
        from irtjax.storage.history import history

        result = history(folder)
        if figure is not None:
            progress("draw")
            from irtjax.plots import plot_history, save_figure

            draw = functools.partial(save_figure, plot_history(result))
            write_files({figure: draw})
    if output.json:
        steps = [
            step._asdict() | {"moves": [move._asdict() for move in step.moves]}
            for step in result.steps
        ]
        print_json(
            {
                "steps": steps,
                "subjects": result.table.to_pylist(),
                "refit_advised": result.advised or None,
            }
        )
    elif not output.quiet:
        from irtjax.cli import screen

        header, rows = result.standings()
        # A model may be below many new ones.
        rows = [[*row[:-1], _brief(row[-1])] for row in rows]
        shown = rows if everything else screen.shortened(rows)
        spare = tuple(header[3:-1])  # Times before the last one.
        left = ("rank", "model", "change")
        screen.show_table("", header, shown, left=left, spare=spare)
        places = [] if figure is None else [f"Written to {figure}"]
        if not result.steps:
            places.append(f"No model was added yet: irtjax add NEW --to {folder}")
        if result.advised:
            again = f"irtjax add {folder} --to {folder} --refit always"
            places.append(f"To fit the items again: {again}")
        screen.show_sentences([*result.sentences, *places])


def _brief(changes: str) -> str:
    """The first changes of a model, and how many more there are.

    >>> _brief("new"), _brief("below a; below org/long-name; below org/longer-name")
    ('new', 'below a, +2 more')
    """
    from irtjax.calibration.shown_names import listed

    return listed(changes.split("; "), CHANGE) if changes else ""
