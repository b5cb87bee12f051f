"""`irtjax compare-models`: which model and prior predict responses left out best?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.prediction.cross_validation import CrossValidation

#: What `--out` writes.
TABLES, FIGURE = ("models.csv", "folds.csv"), "models.png"


@dataclasses.dataclass(frozen=True)
class FoldOptions:
    """What is left out: each field is an option."""

    scheme: Annotated[
        str,
        opt.option(
            "What is left out: entry (responses), rows (subjects) or columns (items)."
        ),
    ] = "entry"
    folds: Annotated[int, opt.option("Number of folds.", min=2)] = 5


@opt.with_options
def compare_models_command(
    files: opt.Files,
    models: Annotated[
        str,
        opt.option(
            "Models from the simplest to the most complex, with commas between:"
            " 1pl,2pl,factor:2.",
            metavar="NAME,NAME...",
        ),
    ] = "1pl,2pl",
    prior_scales: Annotated[
        str | None,
        opt.option(
            "Factors of the standard deviations of item priors to try: 0.5,1,2.",
            metavar="X,X...",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        opt.out("DIR", f"Folder for {', '.join(TABLES)} and a figure."),
    ] = None,
    seed: opt.Seed = 0,
    figures: opt.Figures = True,
    *,
    left_out: FoldOptions,
    machine: opt.Machine,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Compares models and priors by how well they predict responses left out."""
    check_out_folder(out, (*TABLES, FIGURE))
    with ProgressLine(output.quiet) as progress:
        machine.prepare()
        progress("read")
        table = reading.read(files)
        from irtjax.prediction.cross_validation import cross_validate

        result = cross_validate(
            table,
            [name.strip() for name in models.split(",")],
            prior_scales=opt.numbers("--prior-scales", prior_scales),
            scheme=left_out.scheme,
            folds=left_out.folds,
            key=seed,
            progress=progress,
        )
    if out is not None:
        tables = result.table, result.scores
        contents: dict[Path, Any] = {
            out / x: y for x, y in zip(TABLES, tables, strict=True)
        }
        if figures:
            from irtjax.plots import plot_model_scores

            contents[out / FIGURE] = plot_model_scores(result)
        write_files(contents, stale=[out / FIGURE])
    if output.json:
        names = "best", "chosen", "sentence", "warnings"
        print_json(
            {name: getattr(result, name) for name in names}
            | {"rows": result.table.to_pylist(), "folds": result.scores.to_pylist()}
        )
    elif not output.quiet:
        _show(result, out)


def _show(result: CrossValidation, out: Path | None) -> None:
    """Prints the scores and the choice."""
    from irtjax.cli import screen
    from irtjax.report.words import number

    rows = result.table.to_pylist()
    scaled = [] if rows[0]["prior_scale"] is None else ["prior scale"]
    columns = {"log score": "log_score", "± ": "log_score_se", "loss": "loss"}
    columns |= {"±": "loss_se", "AUC": "auc", "Brier": "brier"}
    cells = [
        [
            row["model"],
            *(f"{row['prior_scale']:g}" for _ in scaled),
            *(number(row[x], 4) for x in columns.values()),
        ]
        for row in rows
    ]
    screen.show_table("", ["model", *scaled, *columns], cells)
    place = [] if out is None else [written(out, (*TABLES, FIGURE))]
    screen.show_sentences([result.sentence, *place])
    screen.show_warnings(result.warnings, ())
