"""`irtjax fit`: from files to a folder with calibrated items and ranked subjects."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from irtjax.cli import options as opt
from irtjax.cli.pipeline import Settings, calibrate, report, write
from irtjax.cli.progress import Progress

_Out = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="DIR", help="Folder to write."),
]
_Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="rasch, 1pl, 2pl, 3pl, 4pl, probit1pl, probit2pl; graded or"
        " partial_credit for ordered categories; continuous, beta, inflated_beta or"
        " mixed for scores in [0, 1]; lart with --length.",
    ),
]
_Method = Annotated[
    str, typer.Option("--method", help="em or saem (marginal), mm or gradient (joint).")
]
_Priors = Annotated[
    str, typer.Option("--priors", help="weak, or none for maximum likelihood.")
]
_Positive = Annotated[
    bool, typer.Option("--positive", help="Keep every discrimination above 0.")
]
_Start = Annotated[
    str,
    typer.Option("--start", help="Start: proportions, spectral or low_rank."),
]
_ItemUncertainty = Annotated[
    bool,
    typer.Option(
        "--item-uncertainty/--items-known",
        help="Whether errors of abilities count the items' uncertainty.",
    ),
]
_Anchor = Annotated[
    Path | None,
    typer.Option(
        "--anchor",
        metavar="FILE",
        help="Item parameters to hold fixed: a fit folder or a table of items.",
    ),
]
_StandardErrors = Annotated[
    str,
    typer.Option("--standard-errors", help="observed, cross_product, sandwich, none."),
]
_Population = Annotated[
    str, typer.Option("--population", help="Form of abilities: normal or histogram.")
]
_MaxSteps = Annotated[
    int | None, typer.Option("--max-steps", help="Limit of the iterations.", min=1)
]
_LengthOffset = Annotated[
    float,
    typer.Option("--length-offset", help="lart models log(offset + length)."),
]
_Squeeze = Annotated[
    float | None,
    typer.Option(
        "--squeeze",
        metavar="N",
        help="Scores nearer to 0 or 1 than 1/(2N) are put there, and counted.",
    ),
]
_Ends = Annotated[
    float | None,
    typer.Option(
        "--ends", help="inflated_beta: scores at most this far from 0 or 1 are at it."
    ),
]
_Bounds = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--bounds",
        metavar="LOW HIGH",
        help="Lowest and highest possible score, if not 0 and 1.",
    ),
]
_Figures = Annotated[
    bool, typer.Option("--figures/--no-figures", help="Draw the figures.")
]


@opt.with_reading
def fit_command(
    files: opt.Files,
    reading: opt.Reading,
    out: _Out,
    model: _Model = "2pl",
    method: _Method = "em",
    priors: _Priors = "weak",
    positive: _Positive = False,
    anchor: _Anchor = None,
    start: _Start = "proportions",
    standard_errors: _StandardErrors = "observed",
    item_uncertainty: _ItemUncertainty = True,
    population: _Population = "normal",
    length_offset: _LengthOffset = 1.0,
    squeeze: _Squeeze = None,
    ends: _Ends = None,
    bounds: _Bounds = None,
    max_steps: _MaxSteps = None,
    level: opt.Level = 0.95,
    seed: opt.Seed = 0,
    overwrite: opt.Overwrite = False,
    figures: _Figures = True,
    float32: opt.Float32 = False,
    device: opt.Device = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Calibrates items and ranks subjects; writes tables, figures and a leaderboard."""
    from irtjax.storage import check_folder

    opt.check_level(level)
    # What can be refused is refused before anything takes time.
    folder = check_folder(out, overwrite=overwrite)
    settings = Settings(
        model=model,
        method=method,
        priors=priors,
        positive=positive,
        start=start,
        item_uncertainty=item_uncertainty,
        anchor=anchor,
        standard_errors=standard_errors,
        population=population,
        length_offset=length_offset,
        squeeze=squeeze,
        ends=ends,
        bounds=bounds,
        max_steps=max_steps,
        level=level,
        seed=seed,
        float32=float32,
        device=device,
    )
    with Progress(quiet) as progress:
        began = time.perf_counter()
        progress("read")
        table = reading.read(files)
        read_seconds = time.perf_counter() - began
        calibration = calibrate(table, settings, reading, progress, read_seconds)
        ranked = write(calibration, folder, progress, overwrite, figures)
    report(calibration, ranked, folder, quiet=quiet, as_json=json)
