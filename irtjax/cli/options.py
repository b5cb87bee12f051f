"""Options that several commands share, and what becomes of them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

_READ = "Reading"
_RUN = "Running"

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="Response files, folders or globs: CSV, Parquet, JSONL, lm-evaluation-"
        "harness, Inspect, Every Eval Ever or py-irt logs. Several are merged.",
        show_default=False,
    ),
]
FitFolder = Annotated[
    Path,
    typer.Option(
        "--fit",
        metavar="DIR",
        help="Folder that `irtjax fit` wrote.",
        show_default=False,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show neither progress nor tables.")
]
Figures = Annotated[
    bool, typer.Option("--figures/--no-figures", help="Draw the figures.")
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON document on standard output.")
]
Level = Annotated[
    float, typer.Option("--level", help="Level of all intervals, such as 0.95.")
]
SomeLevel = Annotated[
    float | None,
    typer.Option("--level", help="Level of the intervals; else that of the fit."),
]
Float32 = Annotated[
    bool,
    typer.Option(
        "--float32",
        help="Single precision: less memory, faster on a GPU.",
        rich_help_panel=_RUN,
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="cpu, gpu or tpu.", rich_help_panel=_RUN),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Write into a folder of other files.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]


def _read_option(name: str, help: str, **more: Any) -> Any:
    return typer.Option(name, help=help, rich_help_panel=_READ, **more)


Subject = Annotated[
    str | None, _read_option("--subject", "Column of subject (model) names.")
]
Item = Annotated[
    str | None,
    _read_option(
        "--item", "Column of item names; several, with commas, make an item together."
    ),
]
Response = Annotated[str | None, _read_option("--response", "Column of scores.")]
Metric = Annotated[
    str | None, _read_option("--metric", "Metric to read, where there are several.")
]
Filter = Annotated[
    str | None, _read_option("--filter", "Answer filter to read, where several.")
]
Benchmark = Annotated[
    str | None, _read_option("--benchmark", "Column of benchmark names.")
]
MissingAs = Annotated[
    str,
    _read_option("--missing-as", "What an absent response is: missing or wrong."),
]
Trials = Annotated[
    str,
    _read_option(
        "--trials",
        "Of repeated responses of a subject to an item: error, mean, first or counts.",
    ),
]
Format = Annotated[
    str | None, _read_option("--format", "Form of the input; told by content if not.")
]
Orientation = Annotated[
    str | None,
    _read_option(
        "--orientation", "Of a wide matrix: subjects_by_items or items_by_subjects."
    ),
]
Epoch = Annotated[int | None, _read_option("--epoch", "Read only this repeat.")]
Run = Annotated[
    str, _read_option("--run", "Of several runs of a benchmark: latest or all.")
]
SubjectName = Annotated[
    str | None,
    _read_option("--subject-name", "Name of the subject of a file that has none."),
]

Length = Annotated[
    str | None,
    _read_option(
        "--length",
        "Column of response lengths; for a wide matrix, the file of them.",
    ),
]


@dataclasses.dataclass(frozen=True)
class Reading:
    """The reading options of one command, for `irtjax.read`."""

    subject: str | None = None
    item: str | None = None
    response: str | None = None
    metric: str | None = None
    filter: str | None = None
    benchmark: str | None = None
    missing_as: str = "missing"
    trials: str = "error"
    format: str | None = None
    orientation: str | None = None
    epoch: int | None = None
    run: str = "latest"
    subject_name: str | None = None
    length: str | None = None

    def chosen(self) -> dict[str, Any]:
        """Returns the options that differ from their defaults."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }

    def read(self, files: list[str]) -> Any:
        """Returns the response table of files, folders and globs."""
        from irtjax.data import read

        options: dict[str, Any] = dataclasses.asdict(self)
        source = files[0] if len(files) == 1 else list(files)
        return read(source, **options)


#: The option of each field of `Reading`.
_READING: dict[str, Any] = {
    "subject": Subject,
    "item": Item,
    "response": Response,
    "metric": Metric,
    "filter": Filter,
    "benchmark": Benchmark,
    "missing_as": MissingAs,
    "trials": Trials,
    "format": Format,
    "orientation": Orientation,
    "epoch": Epoch,
    "run": Run,
    "subject_name": SubjectName,
    "length": Length,
}


def with_reading(command: Callable[..., None]) -> Callable[..., None]:
    """Returns a command whose argument `reading` is given by the reading options.

    Typer builds options from a function's signature; this one names `reading` once,
    where the command line has an option for each field of `Reading`.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name != "reading":
            annotation = hints[parameter.name]
            parameters.append(
                parameter.replace(
                    annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY
                )
            )
    for field in dataclasses.fields(Reading):
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=_READING[field.name],
            )
        )

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in _READING}
        if chosen["item"] is not None and "," in chosen["item"]:
            chosen["item"] = tuple(n.strip() for n in chosen["item"].split(","))
        command(**given, reading=Reading(**chosen))

    wrapped.__dict__["__signature__"] = inspect.Signature(parameters)
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def check_level(level: float | None) -> None:
    """Refuses a level that is no probability.

    Raises:
        ValueError: If it is not between 0 and 1.
    """
    if level is not None and not 0 < level < 1:
        cure = f"; did you mean {level / 100:g}?" if 50 <= level < 100 else ""
        raise ValueError(f"--level {level:g} is not between 0 and 1{cure}")
