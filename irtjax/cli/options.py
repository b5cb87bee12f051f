"""Options that several commands share, and what becomes of them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from irtjax.data.reading.options import ReadOptions, as_typed, of_fit


def option(help: str, *flags: str, panel: str | None = None, **more: Any) -> Any:
    """Returns an option; without flags Typer names it after its parameter."""
    return typer.Option(*flags, help=help, rich_help_panel=panel, **more)


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


def with_fields(
    command: Callable[..., None],
    name: str,
    kind: type,
    *,
    fields: Mapping[str, Any] | None = None,
    more: Iterable[inspect.Parameter] = (),
    last: bool = False,
) -> Callable[..., None]:
    """Returns a command that has an option for each field of a dataclass.

    Typer makes options from a function's signature. The command has one argument
    `name` for an object of the dataclass. Its options take the place of that argument,
    or are `last`, after `more` parameters, which are keyword arguments of the command.
    Their annotations are those of the dataclass, or `fields`.
    """
    hints = get_type_hints(command, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    fields = get_type_hints(kind, include_extras=True) if fields is None else fields
    options = [
        inspect.Parameter(x, keyword, default=getattr(kind, x), annotation=annotation)
        for x, annotation in fields.items()
    ]
    parameters: list[inspect.Parameter] = []
    for x, parameter in inspect.signature(command).parameters.items():
        if x == name:
            parameters += [] if last else options
        elif parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            parameters.append(parameter.replace(annotation=hints[x], kind=keyword))
    parameters += [*more, *options] if last else more

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        chosen = {x: given.pop(x) for x in fields}
        command(**given, **{name: kind(**chosen)})

    wrapped.__dict__["__signature__"] = inspect.Signature(parameters)
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


#: Gives a command the options of `Reading`, for its argument `reading`.
with_reading = functools.partial(
    with_fields, name="reading", kind=Reading, fields=READING, last=True
)


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


def all_bounds(
    bounds: tuple[float, float] | None, named: list[str] | None
) -> dict[str, Any]:
    """The setting of bounds: of all scores, or of those of named benchmarks."""
    if not named:
        return {} if bounds is None else {"bounds": bounds}
    if bounds is not None:
        raise ValueError("give --bounds or, for one benchmark, --bounds-of")
    by_name = {}
    for text in named:
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
