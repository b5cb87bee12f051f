"""`irtjax fit`: from files to a folder with calibrated items and ranked subjects."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from irtjax.cli import fit_options
from irtjax.cli import options as opt
from irtjax.cli.pipeline import Job, calibrate, report, write
from irtjax.cli.progress import Progress

Out = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="DIR", help="Folder to write."),
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="auto (by the kind of the data); rasch, 1pl, 2pl, 3pl, 4pl, probit1pl,"
        " probit2pl, cloglog2pl; graded, partial_credit, pcm or rsm for ordered"
        " categories, nominal for others; continuous, beta,"
        " inflated_beta or mixed for scores in [0, 1]; lart with --length;"
        " multibenchmark, multimetric or hierarchical.",
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        help="auto (laplace where items have few responses, else em), em or saem"
        " (marginal), mm or gradient (joint), neural (twin networks),"
        " vibo (amortised variational), laplace (items integrated out), nuts (full"
        " posterior) or vi (a Gaussian near it).",
    ),
]
Bounds = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--bounds",
        metavar="LOW HIGH",
        help="Lowest and highest possible score, if not 0 and 1.",
    ),
]
BoundsOf = Annotated[
    list[str] | None,
    typer.Option(
        "--bounds-of",
        metavar="NAME=LOW:HIGH",
        help="The same for one benchmark or metric; may be repeated.",
    ),
]
MaxSteps = Annotated[
    int | None, typer.Option("--max-steps", help="Limit of the iterations.", min=1)
]
SaveDraws = Annotated[
    bool,
    typer.Option(
        "--save-draws", help="nuts: write draws.nc for ArviZ (needs irtjax\\[arviz])."
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other setting of irtjax.fit or field of the method, such as order=8;"
        " may be repeated.",
    ),
]


def with_fit_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose keyword arguments are given by the rows of `fit_options`."""
    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(
            annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY
        )
        for parameter in inspect.signature(command).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    parameters = [*own, *fit_options.parameters()]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        command(**given)

    wrapped.__dict__["__signature__"] = inspect.Signature(parameters)
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


@opt.with_reading
@with_fit_options
def fit_command(
    files: opt.Files,
    reading: opt.Reading,
    out: Out,
    model: Model = "auto",
    method: Method = "auto",
    bounds: Bounds = None,
    bounds_of: BoundsOf = None,
    max_steps: MaxSteps = None,
    set_: Sets = None,
    save_draws: SaveDraws = False,
    level: opt.Level = 0.95,
    seed: opt.Seed = 0,
    overwrite: opt.Overwrite = False,
    figures: opt.Figures = True,
    float32: opt.Float32 = False,
    device: opt.Device = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
    **given: Any,
) -> None:
    """Calibrates items and ranks subjects; writes tables, figures and a leaderboard."""
    from irtjax.storage import check_folder

    opt.check_level(level)
    # What can be refused is refused before anything takes time.
    folder = check_folder(out, overwrite=overwrite)
    settings, sides = fit_options.take(given)
    settings |= fit_options.parse_sets(set_)
    scored = _all_bounds(bounds, bounds_of)
    if scored is not None:
        settings["bounds"] = scored
    job = Job(model, method, settings, sides, level, seed, max_steps, float32, device)
    _check(job)
    checkpoint = _checkpoint(folder, method, "resume" in settings, save_draws)
    if checkpoint is not None:
        settings["checkpoint"] = str(checkpoint)
    with Progress(quiet) as progress:
        began = time.perf_counter()
        progress("read")
        table = reading.read(files)
        read_seconds = time.perf_counter() - began
        calibration = calibrate(table, job, reading, progress, read_seconds)
        ranked = write(calibration, folder, progress, overwrite, save_draws=save_draws)
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
    report(calibration, ranked, folder, quiet=quiet, as_json=json, figures=figures)


def _check(job: Job) -> None:
    """Refuses settings that the named method does not have, before data are read.

    Raises:
        ValueError: With the name of the option.
    """
    names = [
        *job.settings,
        *(["item_features"] if "item_features" in job.sides else []),
    ]
    if "epochs" in names and job.max_steps is not None:
        raise ValueError("--epochs and --max-steps set the same limit: leave one out")
    if job.method == "auto" or not names:
        return
    from irtjax.fitting.settings import owners_instead

    for name in names:
        who = owners_instead(name, job.method)
        if who:
            raise ValueError(
                f"{fit_options.option_of(name)} requires --method {' or '.join(who)},"
                f" not {job.method}"
            )


def _checkpoint(folder: Path, method: str, resume: bool, draws: bool) -> Path | None:
    """The file that a sampler's run is saved in on its way; None of other methods."""
    if method != "nuts":
        if draws:
            raise ValueError("--save-draws requires --method nuts")
        return None
    path = Path(f"{folder}.nuts.npz")
    if path.exists() and not resume:
        raise ValueError(
            f"{path} is left of a run that was stopped: add --resume to resume it, or"
            " delete it"
        )
    if draws:
        from irtjax.estimators.posterior.checkpoint import check_arviz

        check_arviz()
    return path


def _all_bounds(
    bounds: tuple[float, float] | None, named: list[str] | None
) -> tuple[float, float] | dict[str, tuple[float, float]] | None:
    """Bounds of all scores, or of those of the benchmarks that were named."""
    if not named:
        return bounds
    if bounds is not None:
        raise ValueError("give --bounds or, for one benchmark, --bounds-of")
    found = {}
    for text in named:
        # A name may have signs of its own; the numbers are what comes last.
        name, _, ends = text.rpartition("=")
        low, _, high = ends.partition(":")
        try:
            found[name] = float(low), float(high)
        except ValueError:
            name = ""
        if not name:
            raise ValueError(
                f"--bounds-of {text!r} is not NAME=LOW:HIGH, such as judge=1:10"
            )
    return found
