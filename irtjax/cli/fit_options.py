"""Options of `irtjax fit` alone; `options` has those that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
        " probit2pl; graded or partial_credit for ordered categories; continuous, beta,"
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
Priors = Annotated[
    str, typer.Option("--priors", help="weak, or none for maximum likelihood.")
]
Positive = Annotated[
    bool, typer.Option("--positive", help="Keep every discrimination above 0.")
]
Start = Annotated[
    str,
    typer.Option("--start", help="Start: proportions, spectral or low_rank."),
]
ItemUncertainty = Annotated[
    bool,
    typer.Option(
        "--item-uncertainty/--items-known",
        help="Whether errors of abilities count the items' uncertainty.",
    ),
]
Anchor = Annotated[
    Path | None,
    typer.Option(
        "--anchor",
        metavar="FILE",
        help="Item parameters to hold fixed: a fit folder or a table of items.",
    ),
]
StandardErrors = Annotated[
    str,
    typer.Option("--standard-errors", help="observed, cross_product, sandwich, none."),
]
Population = Annotated[
    str, typer.Option("--population", help="Form of abilities: normal or histogram.")
]
MaxSteps = Annotated[
    int | None, typer.Option("--max-steps", help="Limit of the iterations.", min=1)
]
LengthOffset = Annotated[
    float,
    typer.Option("--length-offset", help="lart models log(offset + length)."),
]
Squeeze = Annotated[
    float | None,
    typer.Option(
        "--squeeze",
        metavar="N",
        help="Scores nearer to 0 or 1 than 1/(2N) are put there, and counted.",
    ),
]
Ends = Annotated[
    float | None,
    typer.Option(
        "--ends", help="inflated_beta: scores at most this far from 0 or 1 are at it."
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
_BAYES = "Structured models, laplace and nuts"
Family = Annotated[
    str | None,
    typer.Option(
        "--family",
        help="Of a structured model: the model of one response, such as 2pl.",
        rich_help_panel=_BAYES,
    ),
]
Levels = Annotated[
    str | None,
    typer.Option(
        "--levels",
        metavar="A,B",
        help="Facets of items, beside the benchmark, whose values shift items; A/B is"
        " B within each A.",
        rich_help_panel=_BAYES,
    ),
]
ItemTable = Annotated[
    Path | None,
    typer.Option(
        "--item-table",
        metavar="FILE",
        help="Table with a column item and columns for --levels, --share-items and"
        " --item-covariates.",
        rich_help_panel=_BAYES,
    ),
]
ShareItems = Annotated[
    str | None,
    typer.Option(
        "--share-items",
        metavar="FACET",
        help="multimetric: the facet that names what is measured, such as stem; the"
        " metrics of a thing then share its parameters.",
        rich_help_panel=_BAYES,
    ),
]
MetricEffects = Annotated[
    bool,
    typer.Option(
        "--metric-effects/--no-metric-effects",
        help="With --share-items: whether each metric shifts all parameters.",
        rich_help_panel=_BAYES,
    ),
]
SpreadByBenchmark = Annotated[
    bool,
    typer.Option(
        "--spread-by-benchmark",
        help="Items of each benchmark have standard deviations of their own.",
        rich_help_panel=_BAYES,
    ),
]
ItemCovariates = Annotated[
    str | None,
    typer.Option(
        "--item-covariates",
        metavar="A,B",
        help="Columns of --item-table with numbers that shift items (LLTM).",
        rich_help_panel=_BAYES,
    ),
]
SubjectTable = Annotated[
    Path | None,
    typer.Option(
        "--subject-table",
        metavar="FILE",
        help="Table with a column subject and columns for --subject-covariates.",
        rich_help_panel=_BAYES,
    ),
]
SubjectCovariates = Annotated[
    str | None,
    typer.Option(
        "--subject-covariates",
        metavar="A,B",
        help="Columns of --subject-table with numbers that shift abilities (latent"
        " regression).",
        rich_help_panel=_BAYES,
    ),
]
Chains = Annotated[
    int | None,
    typer.Option("--chains", help="nuts: chains; 4.", min=1, rich_help_panel=_BAYES),
]
Draws = Annotated[
    int | None,
    typer.Option(
        "--draws",
        help="nuts: draws of each chain; 1000.",
        min=1,
        rich_help_panel=_BAYES,
    ),
]
Warmup = Annotated[
    int | None,
    typer.Option(
        "--warmup", help="nuts: warm-up; 1000.", min=0, rich_help_panel=_BAYES
    ),
]
TargetAcceptance = Annotated[
    float | None,
    typer.Option(
        "--target-acceptance",
        help="nuts: between 0 and 1, closer to 1 where transitions diverge; 0.8.",
        rich_help_panel=_BAYES,
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="nuts: go on from DIR.nuts.npz, which a run that was stopped has left.",
        rich_help_panel=_BAYES,
    ),
]
SaveDraws = Annotated[
    bool,
    typer.Option(
        "--save-draws",
        help="nuts: write draws.nc for ArviZ (needs irtjax\\[arviz]).",
        rich_help_panel=_BAYES,
    ),
]
_TRAINING = "Twin networks (--method neural)"
Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs",
        help="neural, vibo: the most passes over the responses.",
        min=1,
        rich_help_panel=_TRAINING,
    ),
]
EmbeddingSize = Annotated[
    int | None,
    typer.Option(
        "--embedding-size",
        help="Numbers that stand for a subject or an item; 64.",
        min=1,
        rich_help_panel=_TRAINING,
    ),
]
Layers = Annotated[
    str | None,
    typer.Option(
        "--layers",
        metavar="A,B",
        help="Widths of hidden layers after these numbers; none.",
        rich_help_panel=_TRAINING,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size", help="Responses per step; 512.", min=1,
        rich_help_panel=_TRAINING,
    ),
]  # fmt: skip
LearningRate = Annotated[
    float | None,
    typer.Option("--learning-rate", help="Of AdamW; 0.003.", rich_help_panel=_TRAINING),
]
WeightDecay = Annotated[
    float | None,
    typer.Option("--weight-decay", help="Of AdamW; 1.", rich_help_panel=_TRAINING),
]
Patience = Annotated[
    int | None,
    typer.Option(
        "--patience",
        help="Epochs without gain on held-out responses, then training ends; 5.",
        min=1,
        rich_help_panel=_TRAINING,
    ),
]
Criterion = Annotated[
    str | None,
    typer.Option(
        "--criterion",
        help="What held-out responses are judged by: log_loss or f1; log_loss.",
        rich_help_panel=_TRAINING,
    ),
]
Validation = Annotated[
    float | None,
    typer.Option(
        "--validation",
        help="Share of the responses held out; 0.1. With 0 every epoch is run.",
        rich_help_panel=_TRAINING,
    ),
]
Head = Annotated[
    str | None,
    typer.Option(
        "--head", help="irt, or deep (Deep-IRT, with --model 1pl); irt.",
        rich_help_panel=_TRAINING,
    ),
]  # fmt: skip
Encoder = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        help="lookup, or graph: who met whom; take large batches. lookup.",
        rich_help_panel=_TRAINING,
    ),
]
ItemFeatures = Annotated[
    str | None,
    typer.Option(
        "--item-features",
        metavar="A,B",
        help="Columns of --item-table in place of the items' names, such as 'emb_*'.",
        rich_help_panel=_TRAINING,
    ),
]
MeanField = Annotated[
    bool,
    typer.Option(
        "--mean-field",
        help="vibo: abilities of their own for subjects in place of a network's.",
        rich_help_panel=_TRAINING,
    ),
]
