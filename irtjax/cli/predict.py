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
    new_subjects: Annotated[
        list[str] | None,
        opt.option(
            "File of responses of new subjects, repeatable: they are scored, and"
            " predicted in place of those of the fit.",
            metavar="FILE",
        ),
    ] = None,
    subject_table: opt.SubjectTable = None,
    categories: Annotated[
        bool, opt.option("Add the probability of each category.", "--categories")
    ] = False,
    *,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Predicts the response of every subject to every item, seen or not.

    Subjects are those of the fit, or new ones that have responses to some of its items,
    or covariates.
    """
    from irtjax.data.wording import counted

    check_out_file(out)
    with ProgressLine(output.quiet) as progress:
        progress("load")
        fit = load_fit(folder)
        from irtjax.prediction.responses import predict

        data, scored, by_covariates = None, None, None
        if new_subjects:
            from irtjax.calibration.score import score

            progress("score")
            responses = reading.read(new_subjects, fit, folder)
            scored = score(fit, responses, subject_table=subject_table)
        elif subject_table is not None:
            by_covariates = subject_table
        else:
            data = responses_of(fit, folder, None, reading)
        progress("predict")
        predictions = predict(
            fit,
            subject_names=subject_names or None,
            item_names=item_names or None,
            categories=categories,
            data=data,
            scored=scored,
            subject_table=by_covariates,
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
