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


@opt.with_options
def demo_command(
    out: Annotated[Path | None, opt.out("DIR", "Folder for fit and responses.")] = None,
    seed: opt.Seed = 0,
    *,
    machine: opt.Machine,
    overwrite: opt.Overwrite = False,
    output: opt.LongOutput,
) -> None:
    """Simulates 60 models on three benchmarks, fits them, and checks the result."""
    from irtjax.cli.output import check_out_folder
    from irtjax.storage import FIT_FILES, STRUCTURE_FILES, check_folder, write_table

    folder = None if out is None else check_folder(out, overwrite=overwrite)
    files = (*FIT_FILES, *STRUCTURE_FILES, RESPONSES)
    check_out_folder(folder, files, "fit", command="demo")
    if folder is not None and (folder / RESPONSES).exists() and not overwrite:
        raise ValueError(f"{folder / RESPONSES} exists: --overwrite replaces it")
    with ProgressLine(output.quiet) as progress:
        began = time.perf_counter()
        progress("simulate")
        from irtjax.report.demo import judge, make_demo

        demo = make_demo(seed)
        seconds = time.perf_counter() - began
        job = Job(seed=seed, machine=machine)
        fit = calibrate(demo.table, job, opt.Reading(), progress, seconds)
        if folder is None:
            ranked = fit.rank()
        else:
            table = long_form(demo.table)
            extra = lambda place: write_table(table, place / RESPONSES)
            data = {"data": demo.table, "responses": demo.table}
            ranked = write(fit, folder, progress, overwrite, extras=[extra], **data)
        closeness = judge(fit, demo)
        short = output == opt.LongOutput()
        parts = _parts(fit, demo.table, progress) if short else {}
    document = {"closeness": closeness._asdict()}
    report(fit, ranked, folder, output, more=document, names=(RESPONSES,), parts=parts)
    if not output.quiet and not output.json:
        _show(closeness)


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
    subject, item = np.nonzero(np.broadcast_to(observed, table.values.shape))
    columns = (table.subjects[subject], table.items[item], table.benchmarks[item])
    correct = table.values[subject, item].astype(int)
    return pa.table([*columns, correct], ["model", "item", "benchmark", "correct"])


def _show(closeness: Closeness) -> None:
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
        for name, count, *values, share in closeness.benchmarks
    ]
    screen.show_table(title, header, rows)
    lines = [
        f"Abilities: Spearman correlation with the truth"
        f" {number(closeness.ability_spearman, 3)} (plain accuracy:"
        f" {number(closeness.accuracy_spearman, 3)}), RMSE"
        f" {number(closeness.ability_rmse)};"
        f" {percent(round(closeness.difference_coverage, 3))} of the"
        f" {percent(closeness.level)} intervals of differences between two abilities"
        " cover the true one.",
        f"Items: difficulty RMSE {number(closeness.difficulty_rmse)} over"
        f" {counted(closeness.num_located, 'sound item')} whose standard error of"
        " difficulty is"
        f" below 1; {percent(round(closeness.difficulty_coverage, 3))} of the"
        f" {percent(closeness.level)} intervals of all"
        f" {counted(closeness.num_sound, 'sound item')}"
        " cover the true intercept.",
        f"Planted bad items (wrong answer keys): {len(closeness.caught)} of"
        f" {len(closeness.caught) + len(closeness.missed)} flagged for negative"
        " discrimination"
        + (f"; missed: {listing(closeness.missed)}" if closeness.missed else "")
        + f"; {counted(len(closeness.false_alarms), 'sound item')} flagged so.",
    ]
    screen.show_sentences(lines)
