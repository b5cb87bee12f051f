"""Options of `irtjax fit`: one row for each setting of `irtjax.fit` that it offers.

The command's signature is made from the rows, and so is the call of `irtjax.fit`. A
setting without a row, such as another field of a method's class, is given as
``--set NAME=VALUE``.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from irtjax.cli.options import RUN_SD
from irtjax.fitting.setting_types import Settings, typed_as


class FitOption(NamedTuple):
    """One option, named after its parameter.

    Attributes:
        default: What stands for "not given"; of a flag, whether `off` turns it off.
        kind: The type of its value; None: that of the setting, or text.
        setting: The setting of `irtjax.fit`; None: of the same name.
        panel: Heading in the help.
        off: The flag that turns a switch off.
        read: From the text given to the setting's value.
        side: Whether `side_tables` makes settings of it.
    """

    name: str
    help: str
    default: Any = None
    kind: Any = None
    setting: str | None = None
    panel: str | None = None
    metavar: str | None = None
    least: int | None = None
    off: str | None = None
    read: Callable[[Any], Any] | None = None
    side: bool = False

    def of(self, panel: str | None) -> FitOption:
        """Returns the option of a panel, with its type."""
        kind, setting = self.kind, self.setting or self.name
        if kind is None:
            kind = typed_as(setting) if setting in Settings.__annotations__ else str
        default = self.off is not None if kind is bool else self.default
        return self._replace(panel=panel, kind=kind, default=default)

    @property
    def flag(self) -> str:
        """The flag on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def names(self) -> set[str]:
        """Its names in messages: those of the option and of the setting."""
        return {self.name, self.setting or self.name}

    def usual(self) -> Any:
        """The default of a field of the panel's methods, for the help."""
        from irtjax.estimators.catalogue import method_class

        field, by_value = self.setting or self.name, {}
        for method in _METHODS.get(self.panel or "", ()):
            value = getattr(method_class(method), field, None)
            if value is not None:
                by_value.setdefault(_shown(value), []).append(method)
        if len(by_value) < 2:
            return next(iter(by_value), None)
        return ", ".join(f"{value} ({'/'.join(of)})" for value, of in by_value.items())

    @property
    def annotation(self) -> Any:
        """The annotation that Typer makes the option from."""
        option = typer.Option(
            f"{self.flag}/{self.off}" if self.off else self.flag,
            help=self.help,
            metavar=self.metavar,
            min=self.least,
            rich_help_panel=self.panel,
        )
        kind = self.kind if self.default is not None else self.kind | None
        return Annotated[kind, option]


def listed(names: str | None) -> tuple[str, ...]:
    """Names of an option that takes several, separated by commas.

    >>> listed("a, b,")
    ('a', 'b')
    """
    return tuple(part.strip() for part in (names or "").split(",") if part.strip())


def _shown(value: Any) -> str:
    """The default of a field as it is typed."""
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _widths(layers: str) -> tuple[int, ...]:
    """Widths of layers, separated by commas."""
    parts = () if layers == "none" else listed(layers)
    if not all(part.isdigit() and int(part) for part in parts):
        raise ValueError(f"--layers {layers!r} is no list of widths: give 32 or 64,32")
    return tuple(map(int, parts))


def _penalty(text: str) -> float | str:
    """A weight of priors, or the name of a penalty."""
    if text == "noise":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--penalty {text!r} is neither a number nor noise") from None


_count = functools.partial(FitOption, kind=int, least=1)
_number = functools.partial(FitOption, kind=float)
_table = functools.partial(FitOption, kind=Path, metavar="FILE", side=True)
_columns = functools.partial(FitOption, metavar="A,B", read=listed, side=True)

_SAMPLED = "Multilevel models, laplace and nuts"
_JOINT = "Joint estimates (--method mm and gradient)"
_NEURAL = "Neural estimators (--method neural and vibo)"
#: Methods whose defaults the help of a panel has.
_METHODS = {
    _JOINT: ("mm", "gradient"),
    _SAMPLED: ("nuts",),
    _NEURAL: ("neural", "vibo"),
}
#: Options by their heading in the help.
_PANELS: dict[str | None, tuple[FitOption, ...]] = {
    None: (
        # Without defaults: to type one is to ask for it, as in Python.
        FitOption(
            "priors",
            "weak, none (maximum likelihood), or held_out (--model factor --method mm:"
            " held-out responses choose that of slopes). \\[default: weak]",
        ),
        FitOption("positive", "Keep every discrimination above 0."),
        _table(
            "anchor",
            "Item parameters to keep fixed: a fit folder or a table of items.",
            side=False,
        ),
        FitOption(
            "family",
            "Families of subjects that errors count as related, such as base_model: a"
            " column of the files or of --subject-table. Without it they are searched.",
            metavar="COLUMN",
            side=True,
        ),
        FitOption(
            "cluster",
            "Clusters of items that errors count as dependent, such as passage: a"
            " column of the files or of --item-table. Without it they are searched.",
            metavar="COLUMN",
            side=True,
        ),
        FitOption("run_sd", RUN_SD, metavar="X"),
        FitOption(
            "groups",
            "Groups of subjects that each have a mean and standard deviation of ability"
            " of their own (--method em): a column of the files or of --subject-table.",
            metavar="COLUMN",
            side=True,
        ),
        FitOption(
            "free_by_group",
            "With --groups: item parameters to estimate in each group, of all items; or"
            " a table with the columns item and parameter, a row for each.",
            metavar="A,B|FILE",
            side=True,
        ),
        FitOption(
            "start",
            "Start: proportions, spectral or low_rank. \\[default: proportions]",
        ),
        FitOption(
            "standard_errors",
            "observed, cross_product, sandwich, none. \\[default: observed]",
        ),
        FitOption(
            "item_uncertainty",
            "Whether errors of abilities include the items' uncertainty.",
            off="--items-known",
        ),
        FitOption(
            "population",
            "Form of abilities (em): normal or histogram. \\[default: normal]",
        ),
    ),
    "Scores, counts and lengths": (
        FitOption("length_offset", "lart models log(offset + length).", 1.0),
        FitOption(
            "zero_lengths",
            "lart: lengths of 0, of empty responses, are kept or missing. \\[default:"
            " kept]",
        ),
        FitOption(
            "squeeze",
            "Move scores nearer to 0 or 1 than 1/(2N) to that distance; they are"
            " counted.",
            metavar="N",
        ),
        FitOption(
            "ends",
            "inflated_beta: treat scores within X of 0 or 1 as exactly 0 or 1.",
            metavar="X",
        ),
    ),
    "Several abilities (--model factor)": (
        FitOption("factors", "Number of factors. \\[default: 2]", least=1),
        FitOption(
            "rotation",
            "oblimin, promax, geomin, geomin_orthogonal, varimax, quartimax, bifactor,"
            " target or target_orthogonal (with --target), or none (principal axes)."
            " \\[default: oblimin]",
        ),
        _table(
            "target",
            "Table with a column item and one for each factor: the standardised loading"
            " that the rotation approaches, empty where free.",
        ),
        FitOption("link", "Of binary responses: logit or probit. \\[default: logit]"),
        FitOption(
            "num_starts",
            "With --positive and --method mm: starts, of which the best end is kept."
            " \\[default: 6; 1 of more than a million cells]",
            least=1,
        ),
        _table(
            "loadings",
            "Table with a column item and one for each factor: 1 where an item measures"
            " it, else 0.",
        ),
    ),
    _JOINT: (
        FitOption(
            "penalty",
            "Weight of all log priors: 1 is MAP, 0 no priors. noise (--model factor"
            " --method mm): keep the factors above noise, at most --factors.",
            metavar="X",
            read=_penalty,
        ),
        _number(
            "temperature",
            "mm: P = sigma((a theta + d) / S), priors being those of a and d.",
            metavar="S",
        ),
        FitOption(
            "stop",
            "mm: kkt (gradients that cancel), or relative_change of the objective.",
        ),
        _count("memory", "mm: depth of the acceleration; 0 turns it off.", least=0),
        FitOption(
            "curvature",
            "mm: the bound of each step: uniform, or cell (fewer steps, of more time).",
        ),
    ),
    _SAMPLED: (
        FitOption(
            "item_model",
            "The model of one response, such as 2pl; factor: binary, graded,"
            " partial_credit or continuous. \\[default: by the data]",
        ),
        FitOption(
            "metric_effects",
            "With --share-items: whether each metric shifts all parameters.",
            off="--no-metric-effects",
        ),
        FitOption(
            "sd_by_benchmark",
            "Items of each benchmark have standard deviations of their own.",
        ),
        _count("chains", "nuts: chains.", setting="num_chains"),
        _count("draws", "nuts: draws of each chain.", setting="num_draws"),
        _count("warmup", "nuts: warm-up.", setting="num_warmup", least=0),
        _number(
            "target_acceptance",
            "nuts: between 0 and 1, closer to 1 where transitions diverge.",
        ),
        FitOption(
            "resume",
            "Resume from the file that a stopped run has left: DIR.nuts.npz of nuts,"
            " DIR.fit.npz of fits over devices.",
        ),
        _columns(
            "facets",
            "Facets of items, other than the benchmark, whose values shift items; A/B"
            " is B within each A.",
        ),
        FitOption(
            "share_items",
            "multimetric: the facet that names what is measured, such as stem; its"
            " metrics then share parameters.",
            setting="shared_items",
            metavar="FACET",
            side=True,
        ),
        _table(
            "item_table",
            "Table with a column item and columns for --facets, --share-items,"
            " --cluster and --item-covariates.",
        ),
        _columns(
            "item_covariates",
            "Columns of --item-table with numbers that shift items (LLTM).",
        ),
        _table(
            "subject_table",
            "Table with a column subject and columns for --family and"
            " --subject-covariates.",
        ),
        _columns(
            "subject_covariates",
            "Columns of --subject-table with numbers that shift abilities (latent"
            " regression).",
        ),
    ),
    _NEURAL: (
        _count("epochs", "The most passes over the responses."),
        _count("embedding_size", "Numbers that represent a subject or an item."),
        FitOption(
            "layers",
            "Widths of hidden layers after these numbers.",
            setting="hidden",
            metavar="A,B",
            read=_widths,
        ),
        _count("batch_size", "Responses per step."),
        _number("learning_rate", "Of AdamW; of vibo: at first."),
        _number("weight_decay", "Of AdamW."),
        _count(
            "patience",
            "Epochs without gain on held-out responses after which training ends.",
        ),
        FitOption("criterion", "How held-out responses are judged: log_loss or f1."),
        _number(
            "validation", "Share of the responses held out; with 0 every epoch is run."
        ),
        FitOption("head", "irt, or deep (Deep-IRT, with --model 1pl)."),
        FitOption(
            "encoder",
            "lookup, or graph (aggregates over the graph of subjects and items; use"
            " large batches).",
        ),
        FitOption(
            "mean_field",
            "vibo: abilities as parameters of their own, without a network.",
            kind=bool,
            setting="amortised",
            read=lambda given: False if given else None,
        ),
        _columns(
            "item_features",
            "Columns of --item-table, such as 'emb_*': their effects on items of"
            " multilevel models, or what represents the items for neural.",
        ),
    ),
}
OPTIONS = tuple(
    option.of(panel) for panel, options in _PANELS.items() for option in options
)


_Fields = dataclasses.make_dataclass(
    "_Fields", [(x.name, x.annotation, x.default) for x in OPTIONS], frozen=True
)


class FitOptions(_Fields):
    """Settings of a fit as the command has them: a field for each of `OPTIONS`."""

    def split(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the settings of `irtjax.fit` that were typed, and of side tables."""
        settings: dict[str, Any] = {}
        sides: dict[str, Any] = {}
        for option in OPTIONS:
            value = getattr(self, option.name)
            if value is None or value == option.default:
                continue
            value = value if option.read is None else option.read(value)
            target = sides if option.side else settings
            target[option.setting or option.name] = value
        return settings, sides


#: Flags by the names that messages have for what they set.
FLAGS = {
    **{name: option.flag for option in OPTIONS for name in option.names},
    **{x: f"--{x.replace('_', '-')}" for x in ("model", "method", "level", "bounds")},
    "max_steps": "--max-steps",
}
#: What to use in place of other parameters of `irtjax.fit`, and of settings that are
#: files and objects.
_INSTEAD = {
    "data": "name the files before the options",
    "key": "use --seed",
    "dtype": "use --float32",
    "progress": "use --quiet",
    "checkpoint": "nuts uses DIR.nuts.npz, --devices and --distributed DIR.fit.npz, and"
    " --resume resumes from it",
    "hyperpriors": "call irtjax.fit in Python for it",
}


def option_of(setting: str) -> str:
    """The flag that gives a setting, for messages.

    >>> option_of("num_draws"), option_of("order")
    ('--draws', '--set order')
    """
    return FLAGS.get(setting, f"--set {setting}")


def parse_sets(texts: list[str] | None) -> dict[str, Any]:
    """Settings of ``--set NAME=VALUE``: a number, true, false, null, a list, or text.

    A ValueError refuses what has an option of its own.

    >>> parse_sets(["order=8", "nodes=[1, 2]", "form=wide"])
    {'order': 8, 'nodes': (1, 2), 'form': 'wide'}
    """
    settings: dict[str, Any] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not (sign and name):
            raise ValueError(f"--set {text!r} is not NAME=VALUE, such as order=8")
        if name in FLAGS or name in _INSTEAD:
            cure = _INSTEAD.get(name) or f"use {FLAGS[name]}"
            raise ValueError(f"--set {text}: {cure}")
        try:
            read = json.loads(value)
        except json.JSONDecodeError:
            read = value
        settings[name] = tuple(read) if isinstance(read, list) else read
    return settings
