"""Options of `irtjax fit`: one row for each setting of `irtjax.fit` that it offers.

The command's signature is made from the rows, and so is the call of `irtjax.fit`. A
setting without a row, such as another field of a method's class, is given as
``--set NAME=VALUE``.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

_DATA = "Scores, counts and lengths"
_MULTILEVEL = "Multilevel models, laplace and nuts"
_TRAINING = "Neural estimators (--method neural and vibo)"

#: What gives a table of items or subjects in addition to the responses, by parameter.
SIDES = (
    "levels",
    "share_items",
    "item_table",
    "item_covariates",
    "item_features",
    "subject_table",
    "subject_covariates",
)


class FitOption(NamedTuple):
    """One option.

    Attributes:
        name: Of the parameter; the flag is made from it.
        kind: Its type.
        help: What it does, in one line.
        default: What stands for "not given".
        setting: The setting of `irtjax.fit`; None: of the same name.
        panel: Heading in the help.
        metavar: What stands for the value in the help.
        least: Lowest value.
        off: The flag that turns a switch off.
        read: From the text given to the setting's value.
    """

    name: str
    kind: Any
    help: str
    default: Any = None
    setting: str | None = None
    panel: str | None = None
    metavar: str | None = None
    least: int | None = None
    off: str | None = None
    read: Callable[[Any], Any] | None = None

    @property
    def flag(self) -> str:
        """The flag on the command line."""
        return "--" + self.name.replace("_", "-")

    def parameter(self) -> inspect.Parameter:
        """The parameter that Typer makes the option from."""
        switch = self.kind is bool
        flags = f"{self.flag}/{self.off}" if self.off else self.flag
        option = typer.Option(
            flags,
            help=self.help,
            metavar=self.metavar,
            min=self.least,
            rich_help_panel=self.panel,
        )
        kind = self.kind if switch or self.default is not None else self.kind | None
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=self.default,
            annotation=Annotated[kind, option],
        )


def listed(names: str | None) -> tuple[str, ...]:
    """Names of an option that takes several, separated by commas.

    >>> listed("a, b,")
    ('a', 'b')
    """
    return tuple(part.strip() for part in (names or "").split(",") if part.strip())


def _widths(layers: str) -> tuple[int, ...]:
    """Widths of layers, separated by commas."""
    parts = listed(layers)
    if not all(part.isdigit() and int(part) for part in parts):
        raise ValueError(f"--layers {layers!r} is no list of widths: give 32 or 64,32")
    return tuple(map(int, parts))


OPTIONS: tuple[FitOption, ...] = (
    FitOption("priors", str, "weak, or none for maximum likelihood.", "weak"),
    FitOption("positive", bool, "Keep every discrimination above 0.", False),
    FitOption(
        "anchor",
        Path,
        "Item parameters to keep fixed: a fit folder or a table of items.",
        metavar="FILE",
    ),
    FitOption("start", str, "Start: proportions, spectral or low_rank.", "proportions"),
    FitOption(
        "standard_errors",
        str,
        "observed, cross_product, sandwich, none.",
        "observed",
    ),
    FitOption(
        "item_uncertainty",
        bool,
        "Whether errors of abilities include the items' uncertainty.",
        True,
        off="--items-known",
    ),
    FitOption(
        "population", str, "Form of abilities (em): normal or histogram.", "normal"
    ),
    FitOption(
        "length_offset",
        float,
        "lart models log(offset + length).",
        1.0,
        panel=_DATA,
    ),
    FitOption(
        "squeeze",
        float,
        "Move scores nearer to 0 or 1 than 1/(2N) to that distance; they are counted.",
        panel=_DATA,
        metavar="N",
    ),
    FitOption(
        "ends",
        float,
        "inflated_beta: treat scores within X of 0 or 1 as exactly 0 or 1.",
        panel=_DATA,
        metavar="X",
    ),
    FitOption(
        "family",
        str,
        "Of a multilevel model: the model of one response, such as 2pl.",
        panel=_MULTILEVEL,
    ),
    FitOption(
        "metric_effects",
        bool,
        "With --share-items: whether each metric shifts all parameters.",
        True,
        panel=_MULTILEVEL,
        off="--no-metric-effects",
    ),
    FitOption(
        "spread_by_benchmark",
        bool,
        "Items of each benchmark have standard deviations of their own.",
        False,
        panel=_MULTILEVEL,
    ),
    FitOption(
        "chains",
        int,
        "nuts: chains; 4.",
        setting="num_chains",
        panel=_MULTILEVEL,
        least=1,
    ),
    FitOption(
        "draws",
        int,
        "nuts: draws of each chain; 1000.",
        setting="num_draws",
        panel=_MULTILEVEL,
        least=1,
    ),
    FitOption(
        "warmup",
        int,
        "nuts: warm-up; 1000.",
        setting="num_warmup",
        panel=_MULTILEVEL,
        least=0,
    ),
    FitOption(
        "target_acceptance",
        float,
        "nuts: between 0 and 1, closer to 1 where transitions diverge; 0.8.",
        panel=_MULTILEVEL,
    ),
    FitOption(
        "resume",
        bool,
        "nuts: resume from DIR.nuts.npz, which a stopped run has left.",
        False,
        panel=_MULTILEVEL,
    ),
    FitOption(
        "epochs",
        int,
        "The most passes over the responses.",
        panel=_TRAINING,
        least=1,
    ),
    FitOption(
        "embedding_size",
        int,
        "Numbers that represent a subject or an item; 64.",
        panel=_TRAINING,
        least=1,
    ),
    FitOption(
        "layers",
        str,
        "Widths of hidden layers after these numbers; none.",
        setting="hidden",
        panel=_TRAINING,
        metavar="A,B",
        read=_widths,
    ),
    FitOption("batch_size", int, "Responses per step; 512.", panel=_TRAINING, least=1),
    FitOption("learning_rate", float, "Of AdamW; 0.003.", panel=_TRAINING),
    FitOption("weight_decay", float, "Of AdamW; 1.", panel=_TRAINING),
    FitOption(
        "patience",
        int,
        "Epochs without gain on held-out responses after which training ends; 5.",
        panel=_TRAINING,
        least=1,
    ),
    FitOption(
        "criterion",
        str,
        "How held-out responses are judged: log_loss or f1; log_loss.",
        panel=_TRAINING,
    ),
    FitOption(
        "validation",
        float,
        "Share of the responses held out; 0.1. With 0 every epoch is run.",
        panel=_TRAINING,
    ),
    FitOption(
        "head",
        str,
        "irt, or deep (Deep-IRT, with --model 1pl); irt.",
        panel=_TRAINING,
    ),
    FitOption(
        "encoder",
        str,
        "lookup, or graph: who met whom; use large batches. lookup.",
        panel=_TRAINING,
    ),
    FitOption(
        "mean_field",
        bool,
        "vibo: abilities as parameters of their own, without a network.",
        False,
        setting="amortised",
        panel=_TRAINING,
        read=lambda given: False if given else None,
    ),
    # Facets and columns of tables: `side_tables` makes settings of them.
    FitOption(
        "levels",
        str,
        "Facets of items, other than the benchmark, whose values shift items; A/B is B"
        " within each A.",
        panel=_MULTILEVEL,
        metavar="A,B",
        read=listed,
    ),
    FitOption(
        "share_items",
        str,
        "multimetric: the facet that names what is measured, such as stem; its metrics"
        " then share parameters.",
        panel=_MULTILEVEL,
        metavar="FACET",
    ),
    FitOption(
        "item_table",
        Path,
        "Table with a column item and columns for --levels, --share-items and"
        " --item-covariates.",
        panel=_MULTILEVEL,
        metavar="FILE",
    ),
    FitOption(
        "item_covariates",
        str,
        "Columns of --item-table with numbers that shift items (LLTM).",
        panel=_MULTILEVEL,
        metavar="A,B",
        read=listed,
    ),
    FitOption(
        "item_features",
        str,
        "neural: columns of --item-table that represent the items, such as 'emb_*'.",
        panel=_TRAINING,
        metavar="A,B",
        read=listed,
    ),
    FitOption(
        "subject_table",
        Path,
        "Table with a column subject and columns for --subject-covariates.",
        panel=_MULTILEVEL,
        metavar="FILE",
    ),
    FitOption(
        "subject_covariates",
        str,
        "Columns of --subject-table with numbers that shift abilities (latent"
        " regression).",
        panel=_MULTILEVEL,
        metavar="A,B",
        read=listed,
    ),
)


def parameters() -> Iterator[inspect.Parameter]:
    """The parameters of the command."""
    return (option.parameter() for option in OPTIONS)


def take(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Takes the options out of what a command was given.

    Returns:
        Settings of `irtjax.fit` by name, and the facets and columns of side tables.
        Options that were not given are absent.
    """
    settings: dict[str, Any] = {}
    sides: dict[str, Any] = {}
    for option in OPTIONS:
        value = given.pop(option.name)
        if value is None or value == option.default:
            continue
        value = value if option.read is None else option.read(value)
        side = option.name in SIDES
        (sides if side else settings)[option.setting or option.name] = value
    return settings, sides


def option_of(setting: str) -> str:
    """The flag that gives a setting, for messages.

    >>> option_of("num_draws"), option_of("order")
    ('--draws', '--set order')
    """
    for option in OPTIONS:
        if setting in (option.setting, option.name):
            return option.flag
    return f"--set {setting}"


def parse_sets(texts: list[str] | None) -> dict[str, Any]:
    """Settings of ``--set NAME=VALUE``: a number, true, false, null, a list, or text.

    Raises:
        ValueError: If there is no "=".

    >>> parse_sets(["order=8", "hidden=[32, 16]", "stop=kkt"])
    {'order': 8, 'hidden': (32, 16), 'stop': 'kkt'}
    """
    found: dict[str, Any] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not (sign and name):
            raise ValueError(f"--set {text!r} is not NAME=VALUE, such as order=8")
        try:
            read = json.loads(value)
        except json.JSONDecodeError:
            read = value
        found[name] = tuple(read) if isinstance(read, list) else read
    return found
