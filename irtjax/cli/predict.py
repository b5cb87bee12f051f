"""`irtjax predict`: expected responses of the subjects of a saved fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from irtjax.cli import options as opt
from irtjax.cli.score import check_file, write_file


def predict_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder that `irtjax fit` wrote.", show_default=False
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="CSV or Parquet file to write: subject, item, expected, expected_se.",
            show_default=False,
        ),
    ],
    subjects: Annotated[
        list[str] | None,
        typer.Option(
            "--subjects",
            metavar="NAME",
            help="A subject to predict, repeatable; else all.",
            show_default=False,
        ),
    ] = None,
    items: Annotated[
        list[str] | None,
        typer.Option(
            "--items",
            metavar="NAME",
            help="An item to predict, repeatable; else all.",
            show_default=False,
        ),
    ] = None,
    categories: Annotated[
        bool,
        typer.Option("--categories", help="Add the probability of each category."),
    ] = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Predicts the response of every subject of a fit to every item, seen or not."""
    check_file(out)
    from irtjax.cli.machine import prepare
    from irtjax.storage import load

    prepare()
    fit = load(folder)
    from irtjax.prediction.responses import predict

    found = predict(
        fit, subjects=subjects or None, items=items or None, categories=categories
    )
    write_file(found.table(), out)
    count, width = found.expected.shape
    if json:
        from irtjax.cli.pipeline import print_json

        print_json({"out": str(out), "subjects": count, "items": width})
    elif not quiet:
        from irtjax.cli import screen

        screen.show_sentences(
            screen.console(),
            [
                f"Written to {out}: expected responses of {count:,} subjects to"
                f" {width:,} items."
            ],
        )
