"""`irtjax fit`: from files to a folder with calibrated items and ranked subjects."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

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
        " mixed for scores in [0, 1]; lart with --length; multibenchmark, multimetric"
        " or hierarchical.",
    ),
]
_Method = Annotated[
    str,
    typer.Option(
        "--method",
        help="em or saem (marginal), mm or gradient (joint), neural (twin networks),"
        " vibo (amortised variational), laplace (items integrated out), nuts (full"
        " posterior) or vi (a Gaussian near it).",
    ),
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
_BoundsOf = Annotated[
    list[str] | None,
    typer.Option(
        "--bounds-of",
        metavar="NAME=LOW:HIGH",
        help="The same for one benchmark or metric; may be repeated.",
    ),
]
_BAYES = "Structured models, laplace and nuts"
_Family = Annotated[
    str | None,
    typer.Option(
        "--family",
        help="Of a structured model: the model of one response, such as 2pl.",
        rich_help_panel=_BAYES,
    ),
]
_Levels = Annotated[
    str | None,
    typer.Option(
        "--levels",
        metavar="A,B",
        help="Facets of items, beside the benchmark, whose values shift items; A/B is"
        " B within each A.",
        rich_help_panel=_BAYES,
    ),
]
_ItemTable = Annotated[
    Path | None,
    typer.Option(
        "--item-table",
        metavar="FILE",
        help="Table with a column item and columns for --levels, --share-items and"
        " --item-covariates.",
        rich_help_panel=_BAYES,
    ),
]
_ShareItems = Annotated[
    str | None,
    typer.Option(
        "--share-items",
        metavar="FACET",
        help="multimetric: the facet that names what is measured, such as stem; the"
        " metrics of a thing then share its parameters.",
        rich_help_panel=_BAYES,
    ),
]
_MetricEffects = Annotated[
    bool,
    typer.Option(
        "--metric-effects/--no-metric-effects",
        help="With --share-items: whether each metric shifts all parameters.",
        rich_help_panel=_BAYES,
    ),
]
_SpreadByBenchmark = Annotated[
    bool,
    typer.Option(
        "--spread-by-benchmark",
        help="Items of each benchmark have standard deviations of their own.",
        rich_help_panel=_BAYES,
    ),
]
_ItemCovariates = Annotated[
    str | None,
    typer.Option(
        "--item-covariates",
        metavar="A,B",
        help="Columns of --item-table with numbers that shift items (LLTM).",
        rich_help_panel=_BAYES,
    ),
]
_SubjectTable = Annotated[
    Path | None,
    typer.Option(
        "--subject-table",
        metavar="FILE",
        help="Table with a column subject and columns for --subject-covariates.",
        rich_help_panel=_BAYES,
    ),
]
_SubjectCovariates = Annotated[
    str | None,
    typer.Option(
        "--subject-covariates",
        metavar="A,B",
        help="Columns of --subject-table with numbers that shift abilities (latent"
        " regression).",
        rich_help_panel=_BAYES,
    ),
]
_Chains = Annotated[
    int, typer.Option("--chains", help="nuts: chains.", min=1, rich_help_panel=_BAYES)
]
_Draws = Annotated[
    int,
    typer.Option(
        "--draws", help="nuts: draws of each chain.", min=1, rich_help_panel=_BAYES
    ),
]
_Warmup = Annotated[
    int,
    typer.Option("--warmup", help="nuts: warm-up.", min=0, rich_help_panel=_BAYES),
]
_TargetAcceptance = Annotated[
    float,
    typer.Option(
        "--target-acceptance",
        help="nuts: between 0 and 1; closer to 1 where transitions diverge.",
        rich_help_panel=_BAYES,
    ),
]
_Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="nuts: go on from DIR.nuts.npz, which a run that was stopped has left.",
        rich_help_panel=_BAYES,
    ),
]
_SaveDraws = Annotated[
    bool,
    typer.Option(
        "--save-draws",
        help="nuts: write draws.nc for ArviZ (needs irtjax[arviz]).",
        rich_help_panel=_BAYES,
    ),
]
_TRAINING = "Twin networks (--method neural)"
_Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs",
        help="neural, vibo: the most passes over the responses.",
        min=1,
        rich_help_panel=_TRAINING,
    ),
]
_EmbeddingSize = Annotated[
    int | None,
    typer.Option(
        "--embedding-size",
        help="Numbers that stand for a subject or an item; 64.",
        min=1,
        rich_help_panel=_TRAINING,
    ),
]
_Layers = Annotated[
    str | None,
    typer.Option(
        "--layers",
        metavar="A,B",
        help="Widths of hidden layers after these numbers; none.",
        rich_help_panel=_TRAINING,
    ),
]
_BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size", help="Responses per step; 512.", min=1,
        rich_help_panel=_TRAINING,
    ),
]  # fmt: skip
_LearningRate = Annotated[
    float | None,
    typer.Option("--learning-rate", help="Of AdamW; 0.003.", rich_help_panel=_TRAINING),
]
_WeightDecay = Annotated[
    float | None,
    typer.Option("--weight-decay", help="Of AdamW; 1.", rich_help_panel=_TRAINING),
]
_Patience = Annotated[
    int | None,
    typer.Option(
        "--patience",
        help="Epochs without gain on held-out responses, then training ends; 5.",
        min=1,
        rich_help_panel=_TRAINING,
    ),
]
_Criterion = Annotated[
    str | None,
    typer.Option(
        "--criterion",
        help="What held-out responses are judged by: log_loss or f1; log_loss.",
        rich_help_panel=_TRAINING,
    ),
]
_Validation = Annotated[
    float | None,
    typer.Option(
        "--validation",
        help="Share of the responses held out; 0.1. With 0 every epoch is run.",
        rich_help_panel=_TRAINING,
    ),
]
_Head = Annotated[
    str | None,
    typer.Option(
        "--head", help="irt, or deep (Deep-IRT, with --model 1pl); irt.",
        rich_help_panel=_TRAINING,
    ),
]  # fmt: skip
_Encoder = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        help="lookup, or graph: who met whom; take large batches. lookup.",
        rich_help_panel=_TRAINING,
    ),
]
_ItemFeatures = Annotated[
    str | None,
    typer.Option(
        "--item-features",
        metavar="A,B",
        help="Columns of --item-table in place of the items' names, such as 'emb_*'.",
        rich_help_panel=_TRAINING,
    ),
]
_MeanField = Annotated[
    bool,
    typer.Option(
        "--mean-field",
        help="vibo: abilities of their own for subjects in place of a network's.",
        rich_help_panel=_TRAINING,
    ),
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
    bounds_of: _BoundsOf = None,
    max_steps: _MaxSteps = None,
    family: _Family = None,
    levels: _Levels = None,
    share_items: _ShareItems = None,
    metric_effects: _MetricEffects = True,
    spread_by_benchmark: _SpreadByBenchmark = False,
    item_table: _ItemTable = None,
    item_covariates: _ItemCovariates = None,
    subject_table: _SubjectTable = None,
    subject_covariates: _SubjectCovariates = None,
    chains: _Chains = 4,
    draws: _Draws = 1000,
    warmup: _Warmup = 1000,
    target_acceptance: _TargetAcceptance = 0.8,
    resume: _Resume = False,
    save_draws: _SaveDraws = False,
    epochs: _Epochs = None,
    embedding_size: _EmbeddingSize = None,
    layers: _Layers = None,
    batch_size: _BatchSize = None,
    learning_rate: _LearningRate = None,
    weight_decay: _WeightDecay = None,
    patience: _Patience = None,
    criterion: _Criterion = None,
    validation: _Validation = None,
    head: _Head = None,
    encoder: _Encoder = None,
    item_features: _ItemFeatures = None,
    mean_field: _MeanField = False,
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
        nuts=(chains, draws, warmup, target_acceptance) if method == "nuts" else None,
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
    if population != "normal" and method != "em":
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
        from irtjax.storage.chains import check_arviz

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
        names = {"hidden": "layers", "amortised": "mean-field"}
        option = names.get(wrong[0], wrong[0].replace("_", "-"))
        cure = "vibo" if wrong[0] == "amortised" else "neural"
        raise ValueError(f"--{option} does not go with --method {method}: use {cure}")
    return chosen


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
