"""`irtjax fit --stream`: files larger than memory, to the tables of a fit."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from irtjax.cli.distributed import BLOCKS, Devices, is_first
from irtjax.cli.options import LongOutput, Reading
from irtjax.cli.output import command_line, print_json, say, written
from irtjax.cli.pipeline import Job
from irtjax.cli.progress import ProgressLine

#: Reading options that a streamed fit has.
READING = ("subject", "item", "benchmark", "response", "format")
#: Bytes in memory of a row of a long file that is read, and of a cell of a wide one.
_ROW, _CELL = 24.0, 2.0


def is_too_large(files: list[str], reading: Reading, job: Job) -> bool:
    """Whether a fit in memory of one file would take more than half of the memory."""
    streams = job.model in ("auto", "2pl", "1pl", "rasch", "3pl", "graded")
    if len(files) != 1 or not streams or job.method not in ("auto", "em"):
        return False
    path = Path(files[0]).expanduser()
    if not path.is_file() or path.stat().st_size < 2**27:
        return False
    if path.suffix.lower() not in (".csv", ".tsv", ".parquet"):
        return False
    from irtjax.numerics.memory import available_memory

    if path.suffix.lower() != ".parquet":
        return path.stat().st_size > available_memory() / 2
    import pyarrow.parquet as pq

    about = pq.read_metadata(path)
    width = about.num_columns
    each = _ROW if width < 20 or reading.item else _CELL * width
    return about.num_rows * each > available_memory() / 2


def refuse_unstreamed(
    run: Any, machine: Any, writing: Any, sides: Any, reading: Reading
) -> None:
    """Refuses options that a streamed fit would ignore."""
    others = [name for name in reading.chosen() if name not in READING]
    others += [*sides]
    others += ["devices"] * (machine.devices is not None)
    others += ["save-draws"] * run.save_draws
    others += ["figures"] * bool(writing.figures)
    if others:
        flag = "--" + others[0].replace("_", "-")
        raise ValueError(f"a streamed fit ignores {flag}: leave it or --stream out")


def fit_streamed(
    files: list[str],
    folder: Path,
    job: Job,
    machine: Devices,
    reading: Reading,
    overwrite: bool,
    output: LongOutput,
) -> None:
    """Fits one file in passes over its blocks, writes the tables and prints a summary.

    The blocks are next to the folder, and deleted at the end. Of several processes each
    has blocks of its own, and the first one writes.
    """
    if len(files) != 1:
        raise ValueError(
            f"--stream reads one file, not {len(files)}: merge them, or leave it out"
        )
    if job.method not in ("auto", "em"):
        raise ValueError(f"--stream requires --method em, not {job.method}")
    if not isinstance(job.model, str):
        raise ValueError("--stream requires the name of a model: give --model 2pl")
    from irtjax.data.writing import full_path

    folder = full_path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # The parent of a child that was killed deletes its blocks by this name.
    prefix = f"{BLOCKS}{os.getpid()}-"
    with (
        ProgressLine(output.quiet) as progress,
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=prefix) as place,
    ):
        with machine.connected():
            path = Path(files[0]).expanduser()
            fit = _fit(path, place, job, machine, reading, progress)
        if machine.distributed and not is_first():
            return
        from irtjax.storage.stream import save_stream

        progress("write")
        record = {"reading": reading.chosen(), "command": command_line()}
        save_stream(
            fit,
            folder,
            sources=(str(files[0]),),
            overwrite=overwrite,
            **{name: value for name, value in record.items() if value is not None},
        )
    if "checkpoint" in job.settings:
        Path(job.settings["checkpoint"]).unlink(missing_ok=True)
    _report(fit, folder, output)


def _fit(
    path: Path,
    place: str,
    job: Job,
    machine: Devices,
    reading: Reading,
    progress: ProgressLine,
) -> Any:
    """The streamed fit of a file, with its blocks in a folder."""
    dtype = machine.prepare()
    from irtjax.fitting.streamed import fit_stream
    from irtjax.numerics.processes import ALONE, Processes

    progress("read")
    return fit_stream(
        path,
        Path(place),
        job.model,
        reading=reading,
        level=job.level,
        dtype=dtype,
        max_steps=job.max_steps,
        progress=None if progress.quiet else progress,
        processes=Processes.connected() if machine.distributed else ALONE,
        **job.settings,
    )


def _report(fit: Any, folder: Path, output: LongOutput) -> None:
    """Prints what was fitted, and where it is."""
    stream, estimates = fit.stream, fit.estimates
    summary = {
        "num_subjects": stream.shape[0],
        "num_items": stream.shape[1],
        "num_observed": stream.num_observed,
        "model": fit.options["model"],
        "status": estimates.status.name.lower(),
        "log_likelihood": estimates.log_likelihood,
        "num_steps": estimates.num_steps,
        "passes": fit.num_passes,
        "bytes_of_pass": stream.bytes_of_pass,
        "timings": fit.timings,
        "out": str(folder),
    }
    if output.json:
        print_json(summary)
        return
    if output.quiet:
        return
    say(
        f"{stream.shape[0]:,} subjects · {stream.shape[1]:,} items ·"
        f" {stream.num_observed:,} responses, streamed",
        f"{fit.options['model']} by em: {summary['status']} after"
        f" {estimates.num_steps} steps, log-likelihood {estimates.log_likelihood:,.3f};"
        f" {fit.num_passes} passes of {stream.bytes_of_pass:,} bytes",
        *(f"Mind: {note}" for note in (*estimates.warnings, *fit.notes)),
        written(folder, ("items.csv", "abilities.parquet", "fit.json")),
    )
