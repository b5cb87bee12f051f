"""Options that several commands share, and what becomes of them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from irtjax.data.reading.options import ReadOptions, as_typed, of_fit

if TYPE_CHECKING:
    from irtjax.data import ResponseTable


def option(help: str, *flags: str, panel: str | None = None, **settings: Any) -> Any:
    """Returns an option; without flags Typer names it after its parameter."""
    return typer.Option(*flags, help=help, rich_help_panel=panel, **settings)


def out(metavar: str, help: str) -> Any:
    """Returns the option --out."""
    return option(help, "--out", "-o", metavar=metavar)


Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="Response files, folders or globs: CSV, Parquet, JSONL, or logs of lm-"
        "evaluation-harness, Inspect, HELM and others. Several are merged.",
        show_default=False,
    ),
]
#: The same where a fit may keep its responses.
MaybeFiles = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE...",
        help="Response files, folders or globs; else the responses that the fit keeps.",
        show_default=False,
    ),
]
_SAVED: dict[str, Any] = {"metavar": "DIR", "help": "Folder that `irtjax fit` wrote."}
FitFolder = Annotated[Path, typer.Option("--fit", **_SAVED)]
Folder = Annotated[Path, typer.Argument(**_SAVED)]
Quiet = Annotated[bool, option("Show neither progress nor tables.", "--quiet", "-q")]
Verbose = Annotated[
    bool,
    option(
        "Also abilities, model, method, log-likelihood, all warnings, notes and files.",
        "--verbose",
        "-v",
    ),
]
Figures = Annotated[bool, option("Draw the figures.")]
Page = Annotated[bool, option("Write report.html.", "--page/--no-page")]
Title = Annotated[
    str | None,
    option(
        "Title of the page; else the tasks, the data or the folder.", metavar="TEXT"
    ),
]
Json = Annotated[bool, option("One JSON document on standard output.", "--json")]
Level = Annotated[float, option("Level of all intervals, such as 0.95.")]
SomeLevel = Annotated[
    float | None, option("Level of the intervals; else that of the fit.")
]
SubjectTable = Annotated[
    Path | None,
    option(
        "Table with the column subject and the covariates of the fit: the prior of new"
        " subjects is the one that their covariates imply.",
        metavar="FILE",
    ),
]
#: Help of `--run-sd`.
RUN_SD = (
    "Standard deviation of a score from run to run, in points, that errors count. Of"
    " coding agents it exceeds 1.5, even at temperature 0 (arXiv:2602.07150)."
)
RunSd = Annotated[float | None, option(RUN_SD, metavar="X", min=0)]
Float32 = Annotated[
    bool,
    option(
        "Single precision: less memory, faster on a GPU.", "--float32", panel="Running"
    ),
]
Device = Annotated[str | None, option("cpu, gpu or tpu.", panel="Running")]
Overwrite = Annotated[
    bool,
    option("Write into a folder that holds other files; they stay.", "--overwrite"),
]
KeepResponses = Annotated[
    bool,
    option(
        "Keep no responses in the folder, which may be confidential.",
        " /--no-responses",
        show_default=False,
    ),
]
Seed = Annotated[int, option("Seed of everything random.", min=0)]
SubjectColumns = Annotated[
    Path | None,
    option(
        "Table with a row for each subject: columns subject, and others.",
        "--subjects",
        "--subject-table",
        metavar="TABLE",
    ),
]
Bounds = Annotated[
    tuple[float, float] | None,
    option("Lowest and highest possible score, if not 0 and 1.", metavar="LOW HIGH"),
]
BoundsOf = Annotated[
    list[str] | None,
    option(
        "The same for one benchmark or metric; may be repeated.",
        metavar="NAME=LOW:HIGH",
    ),
]


@dataclasses.dataclass(frozen=True)
class ScoreRange:
    """The lowest and highest possible score: each field is an option."""

    bounds: Bounds = None
    bounds_of: BoundsOf = None

    def setting(self) -> dict[str, Any]:
        """Returns the setting `bounds`, of all scores or by benchmark, if given."""
        if not self.bounds_of:
            return {} if self.bounds is None else {"bounds": self.bounds}
        if self.bounds is not None:
            raise ValueError("give --bounds or, for one benchmark, --bounds-of")
        by_name = {}
        for text in self.bounds_of:
            # A name may have signs of its own; the numbers are what comes last.
            name, _, ends = text.rpartition("=")
            low, _, high = ends.partition(":")
            try:
                by_name[name] = float(low), float(high)
            except ValueError:
                name = ""
            if not name:
                raise ValueError(
                    f"--bounds-of {text!r} is not NAME=LOW:HIGH, such as judge=1:10"
                )
        return {"bounds": by_name}

    def rescale(self, table: ResponseTable) -> ResponseTable:
        """Returns responses with scores from 0 to 1, if a range was given."""
        bounds = self.setting().get("bounds")
        if bounds is None:
            return table
        from irtjax.data.reversal import bounds_of_values
        from irtjax.data.scores import rescale

        return rescale(table, bounds_of_values(table, bounds))


@dataclasses.dataclass(frozen=True)
class Machine:
    """Precision and platform: each field is an option."""

    float32: Float32 = False
    device: Device = None

    def prepare(self) -> Any:
        """Sets both, before any backend starts; returns the dtype to compute in."""
        from irtjax.cli.machine import prepare

        return prepare(self.float32, self.device)

    def mesh(self) -> Any:
        """The devices that subjects are divided over; None for one."""
        return None


@dataclasses.dataclass(frozen=True)
class Output:
    """What a command prints: each field is an option."""

    quiet: Quiet = False
    json: Json = False


@dataclasses.dataclass(frozen=True)
class LongOutput:
    """What a command with a longer output prints: each field is an option."""

    quiet: Quiet = False
    verbose: Verbose = False
    json: Json = False


@dataclasses.dataclass(frozen=True)
class Writing:
    """What is written into the folder of a fit: each field is an option."""

    overwrite: Overwrite = False
    keep_responses: KeepResponses = True
    figures: Figures = False


def _text(help: str, **settings: Any) -> Any:
    """Returns an option of reading that is one text."""
    return Annotated[str | None, option(help, panel="Reading", **settings)]


def _texts(help: str, **settings: Any) -> Any:
    """Returns an option of reading that may be repeated."""
    return Annotated[list[str] | None, option(help, panel="Reading", **settings)]


#: The reading options that the command line has: their help and form, in this order.
READING: dict[str, Any] = {
    "subject": _text("Column of subject (model) names."),
    "item": _text("Column of item names; several, with commas, make an item together."),
    "response": _text("Column of scores."),
    "metric": _texts(
        "Metric to read, where there are several; or BENCHMARK=METRIC, repeated."
        " all reads each metric as a benchmark.",
        metavar="NAME",
    ),
    "filter": _texts(
        "Answer filter to read, where there are several; or BENCHMARK=FILTER,"
        " repeated.",
        metavar="NAME",
    ),
    "benchmark": _text("Column of benchmark names."),
    "missing_as": _text("What an absent response is: missing or wrong."),
    "trials": _text(
        "Repeated responses of a subject to an item: auto (counts of right ones,"
        " means of scores), error, mean, first or counts."
    ),
    "format": _text("Form of the input; recognised by content if not given."),
    "orientation": _text("Of a wide matrix: subjects_by_items or items_by_subjects."),
    "epoch": Annotated[int | None, option("Read only this repeat.", panel="Reading")],
    "run": _text("Of several runs of a benchmark: latest or all."),
    "join": _text(
        "What identifies items of logs: hash (their content) or id, if the ids are"
        " right."
    ),
    "subject_name": _text("Name of the subject of a file that has none."),
    "subject_from": _text(
        "Name the subject of each table after its file or its folder."
    ),
    "key": _text(
        "Right choices where responses are letters: a file with a row (item,key)"
        " for each item, or the name of the row or column that holds them.",
        metavar="FILE",
    ),
    "right": _texts(
        "Word that is a right response, all others being wrong; may be repeated.",
        metavar="WORD",
    ),
    "leave_out": _texts(
        "Subject to leave out, or a pattern; may be repeated.", metavar="NAME"
    ),
    "missing_values": _texts(
        "Number or word that means no score, such as 99; may be repeated. none"
        " takes all numbers as scores.",
        metavar="VALUE",
    ),
    "lower_is_better": _texts(
        "Metric, benchmark or item of which lower is better, or a pattern; may be"
        " repeated.",
        metavar="NAME",
    ),
    "higher_is_better": _texts(
        "The same of which higher is better, whatever its name.", metavar="NAME"
    ),
    "length": _text("Column of response lengths; for a wide matrix, the file of them."),
    "texts": Annotated[
        bool,
        option(
            "Keep no prompts and answers of items, which may be confidential.",
            " /--no-texts",
            show_default=False,
            panel="Reading",
        ),
    ],
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading(ReadOptions):
    """The options of `irtjax.read` as a command has them, by `READING`."""

    OPTIONS: ClassVar[dict[str, Any]] = READING

    def __post_init__(self) -> None:
        ReadOptions.__post_init__(self)
        if isinstance(self.item, str) and "," in self.item:
            columns = tuple(name.strip() for name in self.item.split(","))
            object.__setattr__(self, "item", columns)
        elif isinstance(self.item, list):  # Of a saved fit.
            object.__setattr__(self, "item", tuple(self.item))

    def chosen(self) -> dict[str, Any]:
        """Returns the options that differ from their defaults."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }

    def read(
        self, files: list[str] | None, fit: Any = None, folder: Path | None = None
    ) -> Any:
        """Returns the response table of files, folders and globs.

        With a `fit` or subset, the options that its data were read with are those that
        were not given, errors are reversed where they are in the fit, and codes are
        those of the fit. Without files the responses are those kept in its `folder`.
        """
        from irtjax.data import read

        if fit is None:
            assert files
            return read(files[0] if len(files) == 1 else files, **self.arguments())
        from irtjax.data.coding import coded_as
        from irtjax.data.reversal import aligned
        from irtjax.storage import load_responses

        options = getattr(fit, "options", {})
        if files:
            table = self.as_of(options)._read_new(files, self)
        else:
            assert folder is not None
            table = load_responses(folder)
        # A subset has the names of its items alone.
        names = getattr(fit, "item_names", None)
        names = fit.item_names if names is None else names
        table = aligned(table, fit.reversed_scores, names.tolist())
        return coded_as(options, table)

    def as_of(self, options: Mapping[str, Any]) -> Reading:
        """Returns these options, and where none was given that of a fit's data."""
        own, saved = self.chosen(), of_fit(options)
        if own.keys() & {"subject_name", "subject_from"}:
            saved.pop("subject_from", None)
        return dataclasses.replace(
            self, **{name: x for name, x in saved.items() if name not in own}
        )

    def _read_new(self, files: list[str], typed: Reading) -> Any:
        """The responses of files, by options of which some were `typed`."""
        from irtjax.data import read

        options = self.arguments()
        if not (self.lower_is_better or self.higher_is_better):
            # As they are: the fit has the directions.
            options["higher_is_better"] = "*"
        try:
            return read(files[0] if len(files) == 1 else files, **options)
        except ValueError as error:
            added = {x: y for x, y in self.chosen().items() if x not in typed.chosen()}
            if not added:
                raise
            shown = " ".join(dataclasses.replace(Reading(), **added).flags())
            raise ValueError(
                f"{error} (read with the options of the fit, {shown})"
            ) from None

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of `irtjax.read`."""
        return as_typed(dataclasses.asdict(self))

    def flags(self) -> list[str]:
        """Returns the options as they are typed."""
        flags = []
        for name, value in self.chosen().items():
            if name == "texts":
                flags.append("--no-texts")
                continue
            values = value if isinstance(value, list) else [value]
            if isinstance(value, tuple):
                values = [",".join(value)]
            for text in values:
                flags += [f"--{name.replace('_', '-')}", shlex.quote(str(text))]
        return flags


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Returns a command with an option for each field of its groups of options.

    Typer makes options from a function's signature. A parameter whose type is a
    dataclass is a group: its options stand in the place of the parameter, one for each
    field, and the command is called with an object of the class. Annotations are those
    of the fields, or those in `OPTIONS` of the class, which then has no other options.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[Any, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not dataclasses.is_dataclass(kind):
            parameters.append(parameter.replace(annotation=kind, kind=keyword))
            continue
        options = getattr(kind, "OPTIONS", None)
        options = options or get_type_hints(kind, include_extras=True)
        groups[name] = kind, [*options]
        parameters += [
            inspect.Parameter(x, keyword, default=getattr(kind, x), annotation=form)
            for x, form in options.items()
        ]

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        chosen = {
            name: kind(**{x: values.pop(x) for x in fields})
            for name, (kind, fields) in groups.items()
        }
        command(**values, **chosen)

    wrapped.__dict__["__signature__"] = inspect.Signature(parameters)
    wrapped.__annotations__ = {x.name: x.annotation for x in parameters}
    return wrapped


def numbers(option: str, text: str | None, kind: type = float) -> list[Any] | None:
    """Returns the numbers of an option, which have commas between; None without it.

    >>> numbers("--sizes", "10,20", int)
    [10, 20]
    """
    if text is None:
        return None
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"{option} {text}: write {what} with commas between") from None


def check_level(level: float | None) -> None:
    """Refuses a level that is not between 0 and 1."""
    if level is not None and not 0 < level < 1:
        cure = f"; did you mean {level / 100:g}?" if 50 <= level < 100 else ""
        raise ValueError(f"--level {level:g} is not between 0 and 1{cure}")


def bounds_flags(bounds: Any) -> list[str]:
    """Returns bounds as they are typed.

    >>> bounds_flags((0.0, 100.0)), bounds_flags({"judge": (1.0, 10.0)})
    (['--bounds', '0', '100'], ['--bounds-of', 'judge=1:10'])
    """
    if bounds is None:
        return []
    if not isinstance(bounds, Mapping):
        return ["--bounds", *(f"{x:.15g}" for x in bounds)]
    flags = []
    for name, (low, high) in bounds.items():
        flags += ["--bounds-of", f"{name}={low:.15g}:{high:.15g}"]
    return flags
