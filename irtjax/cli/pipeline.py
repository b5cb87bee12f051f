"""The main job, shared by `fit` and `demo`: calibrate, write, report."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtjax.cli.options import Reading
from irtjax.cli.progress import Progress

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects
    from irtjax.data import ResponseTable


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to fit; the names are those of `irtjax.fit` and of the options."""

    model: str = "auto"
    method: str = "auto"
    priors: str = "weak"
    positive: bool = False
    start: str = "proportions"
    item_uncertainty: bool = True
    anchor: Path | None = None
    standard_errors: str = "observed"
    population: str = "normal"
    max_steps: int | None = None
    length_offset: float = 1.0
    squeeze: float | None = None
    ends: float | None = None
    bounds: tuple[float, float] | dict[str, tuple[float, float]] | None = None
    family: str | None = None
    levels: tuple[str, ...] = ()
    share_items: str | None = None
    metric_effects: bool = True
    spread_by_benchmark: bool = False
    item_table: Path | None = None
    item_covariates: tuple[str, ...] = ()
    item_features: tuple[str, ...] = ()
    subject_table: Path | None = None
    subject_covariates: tuple[str, ...] = ()
    nuts: dict[str, Any] | None = None
    training: dict[str, Any] = dataclasses.field(default_factory=dict)
    checkpoint: str | None = None
    resume: bool = False
    level: float = 0.95
    seed: int = 0
    float32: bool = False
    device: str | None = None


def calibrate(
    table: ResponseTable,
    settings: Settings,
    reading: Reading,
    progress: Progress,
    read_seconds: float,
) -> Calibration:
    """Returns the fit of a table, with the options of the command in it."""
    from irtjax.cli.machine import prepare
    from irtjax.cli.side_tables import structure_options

    table, structure = structure_options(
        table,
        levels=settings.levels,
        share_items=settings.share_items,
        item_table=settings.item_table,
        item_covariates=settings.item_covariates,
        item_features=settings.item_features,
        subject_table=settings.subject_table,
        subject_covariates=settings.subject_covariates,
    )
    progress("start")
    dtype = prepare(settings.float32, settings.device)
    import jax

    from irtjax.fitting.fit import fit

    progress("compile")
    anchor = settings.anchor
    if anchor is not None and (anchor / "fit.json").is_file():
        anchor = anchor / "items.parquet"
    method: Any = settings.method
    if settings.nuts is not None:
        from irtjax.estimators.posterior.nuts import NUTS

        method = NUTS(**settings.nuts)
    features = structure.pop("item_features", None)
    if settings.training or features is not None:
        from irtjax.estimators.neural.twin import Neural
        from irtjax.estimators.neural.vibo import VIBO

        kind = Neural if method == "neural" else VIBO
        training = dict(settings.training)
        if features is not None:
            training["item_features"] = jax.numpy.asarray(features, dtype)
        method = kind(**training)
    result = fit(
        table,
        settings.model,
        method,
        priors=settings.priors,
        positive=settings.positive,
        start=settings.start,
        item_uncertainty=settings.item_uncertainty,
        anchor=anchor,
        standard_errors=settings.standard_errors,
        population=settings.population,
        length_offset=settings.length_offset,
        squeeze=settings.squeeze,
        ends=settings.ends,
        bounds=settings.bounds,
        max_steps=settings.max_steps,
        family=settings.family,
        metric_effects=settings.metric_effects,
        spread_by_benchmark=settings.spread_by_benchmark,
        **structure,
        checkpoint=settings.checkpoint,
        resume=settings.resume,
        level=settings.level,
        key=jax.random.key(settings.seed),
        dtype=dtype,
        progress=None if progress.quiet else progress,
    )
    options = {
        **result.options,
        **(
            {"item_features": list(settings.item_features)}
            if settings.item_features
            else {}
        ),
        "seed": settings.seed,
        "device": str(jax.devices()[0].platform),
        "sources": list(table.sources),
        "reading": reading.chosen(),
    }
    if settings.anchor is not None:
        options["anchor"] = str(settings.anchor)
    timings = {**result.timings, "read": read_seconds}
    return dataclasses.replace(result, options=options, timings=timings)


def write(
    fit: Calibration,
    folder: Path,
    progress: Progress,
    overwrite: bool,
    figures: bool,
    *,
    save_draws: bool = False,
) -> RankedSubjects:
    """Writes tables, leaderboard, figures and draws; returns the ranking."""
    from irtjax.calibration.rank import rank
    from irtjax.report import write_report

    progress("rank")
    ranked = rank(fit)
    progress("write")
    write_report(
        fit,
        folder,
        overwrite=overwrite,
        figures=figures,
        ranked=ranked,
        progress=progress,
        draws=save_draws,
    )
    return ranked


def report(
    fit: Calibration,
    ranked: RankedSubjects,
    folder: Path | None,
    *,
    quiet: bool,
    as_json: bool,
    more: dict[str, Any] | None = None,
) -> None:
    """Prints what was found and where it is, for people or for machines."""
    from irtjax.report import flag_counts, summarise

    if as_json:
        from irtjax.storage.encoding import to_json

        print_json(
            {
                **to_json(fit),
                "out": None if folder is None else str(folder),
                "subjects": ranked.rows(),
                "groups": list(ranked.groups),
                "flagged_items": flag_counts(fit.item_table, "item"),
                **(more or {}),
            }
        )
    elif not quiet:
        from irtjax.cli import screen

        out = screen.console()
        screen.show_ranking(out, ranked, everything=False)
        screen.show_sentences(out, summarise(fit, ranked))
        screen.show_warnings(out, fit.warnings, fit.notes)
        if folder is not None:
            screen.show_sentences(out, ["", f"Written to {folder}: {_listed(folder)}"])


def _listed(folder: Path) -> str:
    from irtjax.storage import FIT_FILES, STRUCTURE_FILES

    names = (*FIT_FILES, *STRUCTURE_FILES)
    return ", ".join(name for name in names if (folder / name).is_file())


def print_json(content: Any) -> None:
    """Prints strict JSON on standard output."""
    import json
    import sys

    from irtjax.storage.encoding import plain

    text = json.dumps(plain(content), allow_nan=False, ensure_ascii=False)
    sys.stdout.write(text + "\n")
    # A reader that went away (`| head`) shows here, where it is handled.
    sys.stdout.flush()
