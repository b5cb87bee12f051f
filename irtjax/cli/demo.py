"""`irtjax demo`: the main job on an embedded example whose truth is known."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.pipeline import Job, calibrate, report, write
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.calibration import Calibration
    from irtjax.data import ResponseTable
    from irtjax.report.demo import Closeness

RESPONSES = "results.csv"
#: Items of the small benchmark.
SUBSET = 50


def demo_command(
    out: Annotated[Path | None, opt.out("DIR", "Folder for fit and responses.")] = None,
    seed: opt.Seed = 0,
    float32: opt.Float32 = False,
    device: opt.Device = None,
    overwrite: opt.Overwrite = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    json: opt.Json = False,
) -> None:
    """Simulates 60 models on three benchmarks, fits them, and checks the result."""
    from irtjax.cli.output import check_out_folder
    from irtjax.storage import FIT_FILES, STRUCTURE_FILES, check_folder, write_table

    folder = None if out is None else check_folder(out, overwrite=overwrite)
    files = (*FIT_FILES, *STRUCTURE_FILES, RESPONSES)
    check_out_folder(folder, files, "fit", command="demo")
    if folder is not None and (folder / RESPONSES).exists() and not overwrite:
        raise ValueError(f"{folder / RESPONSES} exists: --overwrite replaces it")
    with ProgressLine(quiet) as progress:
        began = time.perf_counter()
        progress("simulate")
        from irtjax.report.demo import judge, make_demo

        demo = make_demo(seed)
        seconds = time.perf_counter() - began
        job = Job(seed=seed, float32=float32, device=device)
        fit = calibrate(demo.table, job, opt.Reading(), progress, seconds)
        if folder is None:
            from irtjax.calibration.rank import rank

            ranked = rank(fit)
        else:
            table = long_form(demo.table)
            extra = lambda place: write_table(table, place / RESPONSES)
            more = {"extras": [extra], "data": demo.table, "responses": demo.table}
            ranked = write(fit, folder, progress, overwrite, **more)
        found = judge(fit, demo)
        parts = {} if json or quiet or verbose else _parts(fit, demo.table, progress)
    more = {"closeness": found._asdict()}
    names = (RESPONSES,)
    shown: dict[str, Any] = {"quiet": quiet, "as_json": json, "verbose": verbose}
    report(fit, ranked, folder, **shown, more=more, names=names, parts=parts)
    if not quiet and not json:
        _show(found)


def _parts(
    fit: Calibration, table: ResponseTable, progress: ProgressLine
) -> dict[str, Any]:
    """The items to read, and what a small benchmark gives, for the verdict."""
    from irtjax.auditing import items_to_read
    from irtjax.subsets.shrink import shrink

    to_read = items_to_read(fit, table)
    progress("subset")
    few = shrink(table, SUBSET, model=fit, avoid=sorted(to_read.significant))
    return {"to_read": to_read, "more": {"Cheaper": few.sentence()}}


def long_form(table: ResponseTable) -> pa.Table:
    """The responses that were observed, a row for each."""
    import numpy as np
    import pyarrow as pa

    observed = True if table.observed is None else table.observed
    who, which = np.nonzero(np.broadcast_to(observed, table.values.shape))
    columns = (table.subjects[who], table.items[which], table.benchmarks[which])
    correct = table.values[who, which].astype(int)
    return pa.table([*columns, correct], ["model", "item", "benchmark", "correct"])


def _show(found: Closeness) -> None:
    """Prints how close the fit is to the truth."""
    from irtjax.cli import screen
    from irtjax.data.wording import counted, percent
    from irtjax.report.words import listing, number

    title = "How close to the truth: mean discrimination (slope), difficulty,"
    title += " information"
    header = ["benchmark", "items", "true slope", "estimated"]
    header += ["difficulty RMSE", "information"]
    rows = [
        [name, count, *map(number, values), percent(round(share, 3))]
        for name, count, *values, share in found.benchmarks
    ]
    screen.show_table(title, header, rows)
    lines = [
        f"Abilities: Spearman correlation with the truth"
        f" {number(found.ability_spearman, 3)} (plain accuracy:"
        f" {number(found.accuracy_spearman, 3)}), RMSE {number(found.ability_rmse)};"
        f" {percent(round(found.difference_coverage, 3))} of the"
        f" {percent(found.level)} intervals of differences between two abilities cover"
        " the true one.",
        f"Items: difficulty RMSE {number(found.difficulty_rmse)} over"
        f" {counted(found.num_located, 'sound item')} whose standard error of"
        " difficulty is"
        f" below 1; {percent(round(found.difficulty_coverage, 3))} of the"
        f" {percent(found.level)} intervals of all"
        f" {counted(found.num_sound, 'sound item')}"
        " cover the true intercept.",
        f"Planted bad items (wrong answer keys): {len(found.caught)} of"
        f" {len(found.caught) + len(found.missed)} flagged for negative discrimination"
        + (f"; missed: {listing(found.missed)}" if found.missed else "")
        + f"; {counted(len(found.false_alarms), 'sound item')} flagged so.",
    ]
    screen.show_sentences(lines)
