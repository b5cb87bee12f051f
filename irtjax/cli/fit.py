"""`irtjax fit`: from files to a folder with calibrated items and ranked subjects."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Annotated, Any

from irtjax.cli import fit_options
from irtjax.cli import options as opt
from irtjax.cli.command import Command
from irtjax.cli.completion import METHODS as KINDS
from irtjax.cli.distributed import Devices, enter_child, is_first, watch
from irtjax.cli.imports import own_or_name
from irtjax.cli.output import check_out_folder
from irtjax.cli.pipeline import Job, calibrate, report, write
from irtjax.cli.progress import ProgressLine
from irtjax.cli.streamed import fit_streamed, is_too_large, refuse_unstreamed


class FitCommand(Command):
    """The command, whose help has names and defaults that take a second to load."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help; see `Command.format_help`."""
        from irtjax.estimators.catalogue import METHODS
        from irtjax.models import catalogue

        kinds = [f"{x} ({KINDS[x]})" if x in KINDS else x for x in METHODS]
        names = vars(catalogue) | {"METHODS": kinds}
        lists = {k: ", ".join(x) for k, x in names.items() if k.isupper()}
        usual = {x.name: x.usual() for x in fit_options.OPTIONS if x.default is None}
        parameters: list[Any] = self.params
        for parameter in parameters:
            if parameter.name in ("model", "method"):
                parameter.help = parameter.help.format(**lists)
            parameter.default = usual.get(parameter.name) or parameter.default
        super().format_help(ctx, formatter)


@dataclasses.dataclass(frozen=True)
class FitModel:
    """Model and method: each field is an option."""

    model: Annotated[
        str,
        opt.option(
            "auto (by the kind of the data); {BINARY_MODELS}; for categories"
            " {ORDERED_MODELS}; for scores in [0, 1] {SCORE_MODELS}; with --length"
            " {LENGTH_MODELS}; for items nested in benchmarks {MULTILEVEL_MODELS}; for"
            " several abilities {FACTOR_MODELS}; or MODULE:NAME, a model of your own.",
            "--model",
            "-m",
        ),
    ] = "auto"
    method: Annotated[
        str,
        opt.option(
            "auto (laplace where items have few responses, else em); {METHODS}; or"
            " MODULE:NAME, a method of your own."
        ),
    ] = "auto"


@dataclasses.dataclass(frozen=True)
class FitRun:
    """How the method runs, and what it keeps: each field is an option."""

    max_steps: Annotated[int | None, opt.option("Limit of the iterations.", min=1)] = (
        None
    )
    set_: Annotated[
        list[str] | None,
        opt.option(
            "Any other setting of irtjax.fit or field of the method, such as order=8;"
            " may be repeated.",
            "--set",
            metavar="NAME=VALUE",
        ),
    ] = None
    save_draws: Annotated[
        bool,
        opt.option(
            "nuts: write draws.nc for ArviZ (needs irtjax\\[arviz]).", "--save-draws"
        ),
    ] = False
    level: opt.Level = 0.95
    seed: opt.Seed = 0
    stream: Annotated[
        bool,
        opt.option(
            "Read the file in blocks in each iteration, for data larger than memory:"
            " em, one Parquet or CSV file. Chosen by size without it.",
            "--stream",
        ),
    ] = False


@dataclasses.dataclass(frozen=True)
class FitWriting(opt.Writing):
    """The same, with the page: each field is an option."""

    page: opt.Page = True


@opt.with_options
def fit_command(
    files: opt.Files,
    out: Annotated[Path, opt.out("DIR", "Folder to write.")],
    model: FitModel,
    scores: opt.ScoreRange,
    run: FitRun,
    writing: FitWriting,
    machine: Devices,
    output: opt.LongOutput,
    options: fit_options.FitOptions,
    reading: opt.Reading,
) -> None:
    """Calibrates items and ranks subjects; writes tables, a page and a leaderboard."""
    from irtjax.data.coding import coded_as
    from irtjax.storage import FIT_FILES, STRUCTURE_FILES, check_folder

    opt.check_level(run.level)
    machine.check()
    # What can be refused is refused before anything takes time.
    folder = check_folder(out, overwrite=writing.overwrite)
    check_out_folder(folder, (*FIT_FILES, *STRUCTURE_FILES), "fit")
    settings, sides = options.split()
    settings |= fit_options.parse_sets(run.set_) | scores.setting()
    job = Job(
        own_or_name(model.model, "--model", every=True),
        own_or_name(model.method, "--method"),
        settings,
        sides,
        run.level,
        run.seed,
        run.max_steps,
        machine,
    )
    _check(job)
    too_large = not machine.divides and is_too_large(files, reading, job)
    streams = run.stream or too_large
    if streams:
        refuse_unstreamed(run, machine, writing, sides, reading)
    resume = "resume" in settings
    checkpoint = _checkpoint(folder, job, machine, resume, run.save_draws)
    settings |= {} if checkpoint is None else {"checkpoint": str(checkpoint)}
    if machine.is_parent:
        assert checkpoint is not None
        raise SystemExit(watch(checkpoint))
    if machine.distributed:
        enter_child()
    if streams:
        fit_streamed(files, folder, job, machine, reading, writing.overwrite, output)
        return
    with ProgressLine(output.quiet) as progress:
        with machine.connected():
            calibration, table = _read_and_fit(files, reading, job, progress)
        if machine.distributed and not is_first():
            return
        ranked = write(
            calibration,
            folder,
            progress,
            writing.overwrite,
            draws=run.save_draws,
            figures=writing.figures,
            page=writing.page,
            responses=table if writing.keep_responses else None,
            data=coded_as(calibration.options, table),
        )
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
    report(calibration, ranked, folder, output)


def _read_and_fit(files, reading: opt.Reading, job: Job, progress: ProgressLine):
    """The calibration of the files, and their table."""
    began = time.perf_counter()
    progress("read")
    table = reading.read(files)
    seconds = time.perf_counter() - began
    calibration = calibrate(table, job, reading, progress, seconds)
    from irtjax.fitting.groups import divided_as

    return calibration, divided_as(calibration, table)


def _check(job: Job) -> None:
    """Refuses settings that the named method does not have, before data are read."""
    names = [*job.settings, *({"item_features"} & job.sides.keys())]
    if "epochs" in names and job.max_steps is not None:
        raise ValueError("--epochs and --max-steps set the same limit: leave one out")
    if not isinstance(job.method, str) or job.method == "auto" or not names:
        return
    from irtjax.fitting.settings import owners_instead

    for name in names:
        who = owners_instead(name, job.method)
        if who:
            raise ValueError(
                f"{fit_options.option_of(name)} requires --method {' or '.join(who)},"
                f" not {job.method}"
            )


def _checkpoint(
    folder: Path, job: Job, machine: Devices, resume: bool, draws: bool
) -> Path | None:
    """The file that a run is saved in on its way: of a sampler, or over devices."""
    samples = job.method == "nuts" or getattr(job.method, "name", "") == "nuts"
    if draws and not samples:
        raise ValueError("--save-draws requires --method nuts")
    if not samples and not machine.divides:
        if resume:
            raise ValueError(
                "--resume is for --method nuts, and for fits with --devices or"
                " --distributed: leave it out"
            )
        return None
    path = Path(f"{folder}.nuts.npz" if samples else f"{folder}.fit.npz")
    if path.exists() and not resume:
        raise ValueError(
            f"{path} is left of a run that was stopped: add --resume to resume it, or"
            " delete it"
        )
    if draws:
        from irtjax.estimators.posterior.checkpoint import check_arviz

        check_arviz()
    return path
