"""`irtjax fit`: from files to a folder with calibrated items and ranked subjects."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from irtjax.cli import fit_options as of
from irtjax.cli import options as opt
from irtjax.cli.pipeline import Settings, calibrate, report, write
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
        bounds=_all_bounds(bounds, bounds_of),
        max_steps=max_steps,
        family=family,
        levels=_listed(levels),
        share_items=share_items,
        metric_effects=metric_effects,
        spread_by_benchmark=spread_by_benchmark,
        item_table=item_table,
        item_covariates=_listed(item_covariates),
        item_features=_listed(item_features),
        subject_table=subject_table,
        subject_covariates=_listed(subject_covariates),
        nuts=_sampling(
            method,
            chains=chains,
            draws=draws,
            warmup=warmup,
            target_acceptance=target_acceptance,
        ),
        training=_training(
            method,
            epochs=epochs,
            embedding_size=embedding_size,
            hidden=None if layers is None else _widths(layers),
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            patience=patience,
            criterion=criterion,
            validation=validation,
            head=head,
            encoder=encoder,
            amortised=False if mean_field else None,
        ),
        checkpoint=f"{folder}.nuts.npz" if method == "nuts" else None,
        resume=resume,
        level=level,
        seed=seed,
        float32=float32,
        device=device,
    )
    if population != "normal" and method not in ("auto", "em"):
        raise ValueError(f"--population {population} goes with --method em")
    if item_features and method != "neural":
        raise ValueError("--item-features go with --method neural")
    if epochs is not None and max_steps is not None:
        raise ValueError("--epochs and --max-steps say the same: leave one out")
    if (resume or save_draws) and method != "nuts":
        raise ValueError("--resume and --save-draws go with --method nuts")
    left = settings.checkpoint
    if left is not None and not resume and Path(left).exists():
        raise ValueError(
            f"{left} is left of a run that was stopped: add --resume to go on from it,"
            " or delete it"
        )
    if save_draws:
        from irtjax.estimators.posterior.checkpoint import check_arviz

        check_arviz()
    with Progress(quiet) as progress:
        began = time.perf_counter()
        progress("read")
        table = reading.read(files)
        read_seconds = time.perf_counter() - began
        calibration = calibrate(table, settings, reading, progress, read_seconds)
        ranked = write(
            calibration, folder, progress, overwrite, figures, save_draws=save_draws
        )
        if settings.checkpoint is not None:
            Path(settings.checkpoint).unlink(missing_ok=True)
    report(calibration, ranked, folder, quiet=quiet, as_json=json)


def _listed(names: str | None) -> tuple[str, ...]:
    """Names of an option that takes several, parted by commas."""
    return tuple(part.strip() for part in (names or "").split(",") if part.strip())


def _training(method: str, **given: Any) -> dict[str, Any]:
    """Settings of a method that is trained: those that were given."""
    chosen = {name: value for name, value in given.items() if value is not None}
    known = {
        "neural": set(given) - {"amortised"},
        "vibo": {"epochs", "learning_rate", "amortised"},
    }
    wrong = sorted(set(chosen) - known.get(method, set()))
    if wrong:
        option = {"hidden": "layers", "amortised": "mean-field"}.get(wrong[0], wrong[0])
        cure = next(name for name, settings in known.items() if wrong[0] in settings)
        raise ValueError(
            f"--{option.replace('_', '-')} does not go with --method {method}:"
            f" use {cure}"
        )
    return chosen


def _sampling(method: str, **given: Any) -> dict[str, Any] | None:
    """Settings of the sampler: those that were given; None for other methods."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if method == "nuts":
        fields = {"chains": "num_chains", "draws": "num_draws", "warmup": "num_warmup"}
        return {fields.get(name, name): value for name, value in chosen.items()}
    if chosen:
        option = next(iter(chosen)).replace("_", "-")
        raise ValueError(f"--{option} goes with --method nuts, not {method}")
    return None


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
