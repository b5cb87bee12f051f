"""The main job, shared by `fit` and `demo`: calibrate, write, report."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtjax.cli import config
from irtjax.cli.machine import prepare
from irtjax.cli.options import LongOutput, Machine, Reading
from irtjax.cli.output import command_line, print_json, written
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects
    from irtjax.data import ResponseTable

#: Columns of lines in a document, where names are whole.
_WHOLE = 10_000


@dataclasses.dataclass(frozen=True)
class Job:
    """What `irtjax fit` and `irtjax demo` are requested.

    `settings` are those of `irtjax.fit` that were given, by its names; `sides` are the
    arguments of `side_tables.StructureOptions`.
    """

    model: Any = "auto"
    method: Any = "auto"
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    sides: dict[str, Any] = dataclasses.field(default_factory=dict)
    level: float = 0.95
    seed: int = 0
    max_steps: int | None = None
    machine: Machine = dataclasses.field(default_factory=Machine)


def load_fit(folder: Path) -> Calibration:
    """Returns a saved fit, after the machine is prepared for double precision."""
    prepare()
    from irtjax.storage import load

    return load(folder)


def responses_of(
    fit: Calibration, folder: Path, files: list[str] | None, reading: Reading
) -> ResponseTable | None:
    """Returns the responses of files, else those that the fit keeps, else None."""
    from irtjax.data.fit_folder import RESPONSES

    if files or (folder / RESPONSES).is_file():
        return reading.read(files, fit, folder)
    return None


def calibrate(
    table: ResponseTable,
    job: Job,
    reading: Reading,
    progress: ProgressLine,
    seconds: float,
) -> Calibration:
    """Returns the fit of a table that took `seconds` to read, with all options."""
    from irtjax.cli.side_tables import StructureOptions

    settings = dict(job.settings)
    table, structure = StructureOptions(**job.sides).read(table)
    progress("prepare")
    dtype = job.machine.prepare()
    import jax
    import numpy as np

    from irtjax.fitting.fit import fit

    progress("start values")
    features = None
    if job.method == "neural" and "item_features" in structure:
        features = np.stack(list(structure.pop("item_features").values()), axis=1)
        settings["item_features"] = jax.numpy.asarray(features, dtype)
    anchor = settings.get("anchor")
    if anchor is not None and (anchor / "fit.json").is_file():
        from irtjax.data.item_texts import refuse_other_contents
        from irtjax.data.reversal import aligned
        from irtjax.storage import load, load_contents

        contents = load_contents(anchor)
        refuse_other_contents(table.item_contents, contents, f"the fit {anchor}")
        if table.reversed_scores:
            other = load(anchor)
            table = aligned(table, other.reversed_scores, other.item_names.tolist())
        settings["anchor"] = anchor / "items.parquet"
    # Side tables that were not given leave settings empty.
    settings |= {name: value for name, value in structure.items() if value}
    result = fit(
        table,
        job.model,
        job.method,
        level=job.level,
        key=job.seed,
        dtype=dtype,
        max_steps=job.max_steps,
        progress=None if progress.quiet else progress,
        mesh=job.machine.mesh(),
        **settings,
    )
    options = {
        **result.options,
        "seed": job.seed,
        "device": str(jax.devices()[0].platform),
        "sources": list(table.sources),
        "reading": reading.chosen(),
        "job": _again(job, structure),
    }
    if config.taken() is not None:
        options["configuration"] = config.taken()
    if command_line() is not None:
        options["command"] = command_line()
    if features is not None:
        options["item_features"] = list(job.sides["item_features"])
    if anchor is not None:
        options["anchor"] = str(anchor)
    timings = {**result.timings, "read": seconds}
    return dataclasses.replace(result, options=options, timings=timings)


def _again(job: Job, structure: dict[str, Any]) -> dict[str, Any] | None:
    """What repeats the fit with more responses; None with parts of the user's own."""
    import json

    settings = {**job.settings, **{name: x for name, x in structure.items() if x}}
    about = {"model": job.model, "method": job.method, "settings": settings}
    about |= {"seed": job.seed, "max_steps": job.max_steps}
    try:
        return json.loads(json.dumps(about))
    except (TypeError, ValueError):
        return None


def write(
    fit: Calibration,
    folder: Path,
    progress: ProgressLine,
    overwrite: bool,
    **options: Any,
) -> RankedSubjects:
    """Writes tables, leaderboard, figures and draws; returns the ranking.

    `options` are those of `irtjax.write_report`. All files appear together, before
    anything is printed.
    """
    from irtjax.report import write_report

    progress("rank")
    ranked = fit.rank()
    progress("write")
    write_report(
        fit, folder, overwrite=overwrite, ranked=ranked, progress=progress, **options
    )
    return ranked


def report(
    fit: Calibration,
    ranked: RankedSubjects,
    folder: Path | None,
    output: LongOutput,
    *,
    more: dict[str, Any] | None = None,
    names: tuple[str, ...] = (),
    parts: dict[str, Any] | None = None,
) -> None:
    """Prints the results, and where everything is.

    `parts` are further arguments of `report.verdict.verdict`.
    """
    from irtjax.cli import screen
    from irtjax.storage import FIT_FILES, STRUCTURE_FILES

    if output.json:
        print_json(document(fit, ranked, folder) | (more or {}))
    elif output.quiet:
        return
    elif not output.verbose:
        page = None if folder is None else folder / "report.html"
        where = None if folder is None else screen.shown_path(folder)
        screen.show_result(fit, ranked, place=page, folder=where, **(parts or {}))
        if folder is not None and names:
            screen.show_sentences([written(folder, names)])
    else:
        show_all(fit, ranked)
        if folder is not None:
            names = (*FIT_FILES, *STRUCTURE_FILES, *names)
            screen.show_sentences(["", written(folder, names)])


def show_all(
    fit: Calibration, ranked: RankedSubjects, everything: bool = False
) -> None:
    """Prints all columns of a ranking, what was fitted and how, warnings and notes."""
    from irtjax.cli import screen
    from irtjax.report.summary import summarise

    screen.show_ranking(ranked, everything)
    screen.show_sentences(summarise(fit, ranked))
    screen.show_warnings(fit.warnings, fit.notes)


def document(
    fit: Calibration, ranked: RankedSubjects, folder: Path | None
) -> dict[str, Any]:
    """Returns what `--json` prints of a fit."""
    from irtjax.report.summary import items_by_flag
    from irtjax.storage.encoding import to_json

    return {
        **to_json(fit),
        "out": None if folder is None else str(folder),
        "subjects": ranked.rows(),
        "groups": list(ranked.groups),
        "flagged_items": items_by_flag(fit),
        "items_without_variation": items_by_flag(fit, constant=True),
    }


def ranking_document(
    fit: Calibration, ranked: RankedSubjects, folder: Path | None
) -> dict[str, Any]:
    """What `--json` prints of a leaderboard."""
    from irtjax.calibration.leaderboard_text import tie_ranks
    from irtjax.cli.screen import shown_path
    from irtjax.report.kept import kept
    from irtjax.report.verdict import verdict

    low, high = (ends.tolist() for ends in tie_ranks(ranked))
    rows = [
        {**row, "tied_rank_lower": low[k], "tied_rank_upper": high[k]}
        for k, row in enumerate(ranked.table.to_pylist())
    ]
    parts = {} if folder is None else kept(folder, shown_path(folder))
    return {
        "heading": ranked.heading,
        "level": ranked.level,
        "subjects": rows,
        "groups": list(ranked.groups),
        "num_pairs": ranked.num_pairs,
        "num_different": ranked.num_different,
        "verdict": verdict(fit, ranked, folder=folder, width=_WHOLE, **parts),
    }
