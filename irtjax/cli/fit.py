"""`irtjax fit`: from files to a folder with calibrated items and ranked subjects."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from irtjax.cli import fit_options as of
from irtjax.cli import options as opt
from irtjax.cli.pipeline import Job, calibrate, report, write
from irtjax.cli.progress import Progress


@opt.with_reading
def fit_command(
    files: opt.Files,
    reading: opt.Reading,
    out: of.Out,
    model: of.Model = "auto",
    method: of.Method = "auto",
    priors: of.Priors = "weak",
    positive: of.Positive = False,
    anchor: of.Anchor = None,
    start: of.Start = "proportions",
    standard_errors: of.StandardErrors = "observed",
    item_uncertainty: of.ItemUncertainty = True,
    population: of.Population = "normal",
    length_offset: of.LengthOffset = 1.0,
    squeeze: of.Squeeze = None,
    ends: of.Ends = None,
    bounds: of.Bounds = None,
    bounds_of: of.BoundsOf = None,
    max_steps: of.MaxSteps = None,
    family: of.Family = None,
    levels: of.Levels = None,
    share_items: of.ShareItems = None,
    metric_effects: of.MetricEffects = True,
    spread_by_benchmark: of.SpreadByBenchmark = False,
    item_table: of.ItemTable = None,
    item_covariates: of.ItemCovariates = None,
    subject_table: of.SubjectTable = None,
    subject_covariates: of.SubjectCovariates = None,
    chains: of.Chains = None,
    draws: of.Draws = None,
    warmup: of.Warmup = None,
    target_acceptance: of.TargetAcceptance = None,
    resume: of.Resume = False,
    save_draws: of.SaveDraws = False,
    epochs: of.Epochs = None,
    embedding_size: of.EmbeddingSize = None,
    layers: of.Layers = None,
    batch_size: of.BatchSize = None,
    learning_rate: of.LearningRate = None,
    weight_decay: of.WeightDecay = None,
    patience: of.Patience = None,
    criterion: of.Criterion = None,
    validation: of.Validation = None,
    head: of.Head = None,
    encoder: of.Encoder = None,
    item_features: of.ItemFeatures = None,
    mean_field: of.MeanField = False,
    level: opt.Level = 0.95,
    seed: opt.Seed = 0,
    overwrite: opt.Overwrite = False,
    figures: opt.Figures = True,
    float32: opt.Float32 = False,
    device: opt.Device = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Calibrates items and ranks subjects; writes tables, figures and a leaderboard."""
    from irtjax.fitting.settings import changed
    from irtjax.storage import check_folder

    opt.check_level(level)
    # What can be refused is refused before anything takes time.
    folder = check_folder(out, overwrite=overwrite)
    settings: dict[str, Any] = {
        "priors": priors,
        "positive": positive,
        "anchor": anchor,
        "start": start,
        "standard_errors": standard_errors,
        "item_uncertainty": item_uncertainty,
        "population": population,
        "length_offset": length_offset,
        "squeeze": squeeze,
        "ends": ends,
        "bounds": _all_bounds(bounds, bounds_of),
        "family": family,
        "metric_effects": metric_effects,
        "spread_by_benchmark": spread_by_benchmark,
        "num_chains": chains,
        "num_draws": draws,
        "num_warmup": warmup,
        "target_acceptance": target_acceptance,
        "resume": resume,
        "epochs": epochs,
        "embedding_size": embedding_size,
        "hidden": None if layers is None else _widths(layers),
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "weight_decay": weight_decay,
        "patience": patience,
        "criterion": criterion,
        "validation": validation,
        "head": head,
        "encoder": encoder,
        "amortised": False if mean_field else None,
    }
    settings = changed(settings)
    checkpoint = f"{folder}.nuts.npz" if method == "nuts" else None
    if checkpoint is not None:
        settings["checkpoint"] = checkpoint
    job = Job(
        model=model,
        method=method,
        settings=settings,
        sides={
            "levels": _listed(levels),
            "share_items": share_items,
            "item_table": item_table,
            "item_covariates": _listed(item_covariates),
            "item_features": _listed(item_features),
            "subject_table": subject_table,
            "subject_covariates": _listed(subject_covariates),
        },
        level=level,
        seed=seed,
        max_steps=max_steps,
        float32=float32,
        device=device,
    )
    _check(job)
    if save_draws and method != "nuts":
        raise ValueError("--save-draws requires --method nuts")
    if checkpoint is not None and not resume and Path(checkpoint).exists():
        raise ValueError(
            f"{checkpoint} is left of a run that was stopped: add --resume to go on"
            " from it, or delete it"
        )
    if save_draws:
        from irtjax.estimators.posterior.checkpoint import check_arviz

        check_arviz()
    with Progress(quiet) as progress:
        began = time.perf_counter()
        progress("read")
        table = reading.read(files)
        read_seconds = time.perf_counter() - began
        calibration = calibrate(table, job, reading, progress, read_seconds)
        ranked = write(
            calibration, folder, progress, overwrite, figures, save_draws=save_draws
        )
        if checkpoint is not None:
            Path(checkpoint).unlink(missing_ok=True)
    report(calibration, ranked, folder, quiet=quiet, as_json=json)


def _listed(names: str | None) -> tuple[str, ...]:
    """Names of an option that takes several, parted by commas."""
    return tuple(part.strip() for part in (names or "").split(",") if part.strip())


#: Options that are no settings of their own name, by the setting they give.
OPTION_OF = {
    "num_chains": "chains",
    "num_draws": "draws",
    "num_warmup": "warmup",
    "hidden": "layers",
    "amortised": "mean-field",
}


def _check(job: Job) -> None:
    """Refuses settings that the named method does not have, before data are read.

    Raises:
        ValueError: With the name of the option.
    """
    from irtjax.fitting.settings import owners_instead

    if job.settings.get("epochs") is not None and job.max_steps is not None:
        raise ValueError("--epochs and --max-steps set the same limit: leave one out")
    names = [*job.settings, *(["item_features"] if job.sides["item_features"] else [])]
    for name in names if job.method != "auto" else ():
        who = owners_instead(name, job.method)
        if who:
            option = OPTION_OF.get(name, name).replace("_", "-")
            raise ValueError(
                f"--{option} requires --method {' or '.join(who)}, not {job.method}"
            )


def _widths(layers: str) -> tuple[int, ...]:
    """Widths of layers, parted by commas."""
    parts = _listed(layers)
    if not all(part.isdigit() and int(part) for part in parts):
        raise ValueError(f"--layers {layers!r} is no list of widths: give 32 or 64,32")
    return tuple(map(int, parts))


def _all_bounds(
    bounds: tuple[float, float] | None, named: list[str] | None
) -> tuple[float, float] | dict[str, tuple[float, float]] | None:
    """Bounds of all scores, or of those of the benchmarks that were named."""
    if not named:
        return bounds
    if bounds is not None:
        raise ValueError("give --bounds or --bounds-of, which says it of one benchmark")
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
