"""`irtjax predict`: expected responses of the subjects of a saved fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_file, print_json, say, write_files
from irtjax.cli.pipeline import load_fit, responses_of
from irtjax.cli.progress import ProgressLine


@opt.with_options
def predict_command(
    folder: opt.Folder,
    out: Annotated[
        Path,
        opt.out(
            "FILE",
            "CSV or Parquet file to write: subject, item, expected, expected_se.",
        ),
    ],
    subject_names: Annotated[
        list[str] | None,
        opt.option("A subject to predict, repeatable; else all.", metavar="NAME"),
    ] = None,
    item_names: Annotated[
        list[str] | None,
        opt.option("An item to predict, repeatable; else all.", metavar="NAME"),
    ] = None,
    categories: Annotated[
        bool, opt.option("Add the probability of each category.", "--categories")
    ] = False,
    *,
    output: opt.Output,
) -> None:
    """Predicts the response of every subject of a fit to every item, seen or not."""
    from irtjax.data.wording import counted

    check_out_file(out)
    with ProgressLine(output.quiet) as progress:
        progress("load")
        fit = load_fit(folder)
        from irtjax.prediction.responses import predict

        progress("predict")
        data = responses_of(fit, folder, None, opt.Reading())
        predictions = predict(
            fit,
            subject_names=subject_names or None,
            item_names=item_names or None,
            categories=categories,
            data=data,
        )
        progress("write")
        write_files({out: predictions.table})
    count, width = predictions.expected.shape
    if output.json:
        print_json({"out": str(out), "subjects": count, "items": width})
    elif not output.quiet:
        say(
            f"Written to {out}: expected responses of {counted(count, 'subject')} to"
            f" {counted(width, 'item')}"
            "."
        )
