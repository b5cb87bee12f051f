"""The options of reading, checked once and passed to every reader."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar, get_args

from irtjax.data.formats import LOGS
from irtjax.data.wording import are, counted, listing

#: A name, names in order of preference, or either by benchmark ("*" for the others).
Metric: TypeAlias = str | Sequence[str] | Mapping[str, str | Sequence[str]] | None


class Choices(tuple[str, ...]):
    """Names as they are typed: of all benchmarks, or BENCHMARK=NAME.

    Names of benchmarks, metrics and filters may contain the sign, so that the data
    decide what is meant (`choose`).
    """


Trials: TypeAlias = Literal["auto", "error", "mean", "first", "counts"]
MissingAs: TypeAlias = Literal["missing", "wrong"]
Orientation: TypeAlias = Literal["subjects_by_items", "items_by_subjects"]
Runs: TypeAlias = Literal["latest", "all"]
Join: TypeAlias = Literal["hash", "id"]
Parts: TypeAlias = Literal["mean", "items"]
SubjectFrom: TypeAlias = Literal["file", "folder"]
P = ParamSpec("P")
T = TypeVar("T")

FORMATS = {
    "csv": "CSV or TSV, wide (a row per subject) or long (a row per response)",
    "parquet": "Parquet or Arrow, wide or long",
    "json": "JSON lines, a JSON array of records, or JSON tables of pandas",
    **LOGS,
    "table": "a table saved by irtjax (.json and .parquet)",
}
#: The values of options that have few.
CHOICES: dict[str, tuple[str, ...]] = {
    "format": (*FORMATS,),
    "trials": get_args(Trials),
    "missing_as": get_args(MissingAs),
    "orientation": get_args(Orientation),
    "run": get_args(Runs),
    "join": get_args(Join),
    "parts": get_args(Parts),
    "subject_from": get_args(SubjectFrom),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options of `irtjax.read`, which documents them, and of the command line.

    This is their only list: `takes_read_options` types functions by it, and
    `cli.options.Reading` derives from it. A saved fit has those that its data were read
    with.

    Raises:
        ValueError: A value is none that the option has, or two exclude each other.

    >>> ReadOptions(metric="acc").trials
    'auto'
    """

    subject: str | None = None
    item: str | Sequence[str] | None = None
    response: str | None = None
    metric: Metric = None
    filter: Metric = None
    benchmark: str | None = None
    missing_as: MissingAs = "missing"
    trials: Trials = "auto"
    trial: str | None = None
    format: str | None = None
    orientation: Orientation | None = None
    header: bool | None = None
    epoch: int | None = None
    run: Runs = "latest"
    join: Join = "hash"
    parts: Parts = "mean"
    subject_name: str | None = None
    subject_from: SubjectFrom | None = None
    key: Any = None
    right: str | Sequence[str] | None = None
    leave_out: str | Sequence[str] | None = None
    missing_values: float | str | Sequence[float | str] | None = None
    lower_is_better: str | Sequence[str] | None = None
    higher_is_better: str | Sequence[str] | None = None
    length: Any = None
    texts: bool = True

    def __post_init__(self) -> None:
        if self.subject_name is not None and self.subject_from is not None:
            raise ValueError("give subject_name= or subject_from=, not both")
        for name, values in CHOICES.items():
            value = getattr(self, name)
            default = self.__dataclass_fields__[name].default
            if value != default and value not in values:
                allowed = ", ".join(map(repr, values))
                raise ValueError(f"{name}={value!r} is not one of {allowed}")

    @staticmethod
    def of(options: Mapping[str, Any]) -> ReadOptions:
        """The options of keyword arguments.

        Raises:
            ValueError: There is no option of a name; the message has the nearest one.

        >>> ReadOptions.of({"metrics": "acc"})
        Traceback (most recent call last):
        ValueError: there is no reading option 'metrics'; did you mean metric=?
        """
        names = [*ReadOptions.__dataclass_fields__]
        unknown = next((name for name in options if name not in names), None)
        if unknown is None:
            return ReadOptions(**options)
        from difflib import get_close_matches

        near = get_close_matches(unknown, names, 1)
        cure = f"did you mean {near[0]}=?" if near else f"there are {', '.join(names)}"
        raise ValueError(f"there is no reading option {unknown!r}; {cure}")


def takes_read_options(
    function: Callable[..., T], _: Callable[P, Any] = ReadOptions
) -> Callable[Concatenate[Any, P], T]:
    """The function, which type checkers see with each reading option by its name."""
    return function


#: Reading options of the data of a fit that new data do not share: the name of a
#: subject, and directions, which the fit has by item.
_OWN = ("subject_name", "lower_is_better", "higher_is_better")


def as_typed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `irtjax.read`, of options as the command line has them.

    >>> as_typed({"filter": ["strict"], "metric": ["a=acc"]})
    {'filter': 'strict', 'metric': ('a=acc',)}
    """
    typed = dict(options)
    for name in ("metric", "filter"):
        names = typed.get(name)
        if isinstance(names, list) and not (names and all(names)):
            raise ValueError(f"--{name} is empty: write NAME or BENCHMARK=NAME")
        if isinstance(names, list):
            plain = len(names) == 1 and "=" not in names[0]
            typed[name] = names[0] if plain else Choices(names)
    return typed


def of_fit(options: Mapping[str, Any]) -> dict[str, Any]:
    """The reading options of the data of a fit, by its options, for new data.

    >>> of_fit({"reading": {"subject": "model", "subject_name": "a"}})
    {'subject': 'model'}
    """
    saved = options.get("reading") or {}
    fields = ReadOptions.__dataclass_fields__.keys() - {*_OWN}
    return {name: value for name, value in saved.items() if name in fields}


#: Options that name columns.
_COLUMNS = "subject item response metric benchmark trial length key".split()


def paths_in(options: ReadOptions, names: Iterable[str]) -> list[str]:
    """The paths, such as "metric.bleu", that options name into columns.

    >>> paths_in(ReadOptions(subject="m", response="metric.bleu"), ["m", "metric"])
    ['metric.bleu']
    """
    columns = [getattr(options, option) for option in _COLUMNS]
    flat = [x for y in columns for x in (y if isinstance(y, list | tuple) else [y])]
    present = {*names}
    paths = (x for x in flat if isinstance(x, str) and "." in x and x not in present)
    return [path for path in dict.fromkeys(paths) if path.split(".")[0] in present]


def asked_filters(options: ReadOptions, benchmark: str) -> tuple[str, ...]:
    """Names that may be those of the filter to read of a benchmark, the best first.

    >>> asked_filters(ReadOptions(filter={"t": "strict", "*": "maj"}), "t")
    ('strict',)
    >>> asked_filters(ReadOptions(filter=Choices(["maj", "t=strict"])), "t")
    ('strict', 'maj', 't=strict')
    >>> asked_filters(ReadOptions(metric="acc,strict"), "t")
    ('strict',)
    """
    filters = _asked(options.filter, benchmark)
    pairs = (name.rpartition(",") for name in _asked(options.metric, benchmark))
    return (*filters, *(name for metric, _, name in pairs if metric))


def _asked(choice: Metric, benchmark: str) -> tuple[str, ...]:
    """The names that an option lists for a benchmark, most wanted first."""
    if isinstance(choice, Mapping):
        choice = choice.get(benchmark, choice.get("*"))
    if choice is None or isinstance(choice, str):
        return () if choice is None else (choice,)
    if not isinstance(choice, Choices):
        return tuple(choice)
    start = f"{benchmark}="
    own = [text.removeprefix(start) for text in choice if text.startswith(start)]
    return (*own, *choice)


def unanswered_note(
    count: int, options: ReadOptions, words: Sequence[str] = ("N",)
) -> str:
    """Returns the note on scores of verdicts that there was no answer."""
    what = missing_or_wrong(count, options)
    shown = listing([repr(word) for word in words], 4)
    return f"{counted(count, 'score')} of no answer ({shown}) {what}"


def missing_or_wrong(count: int, options: ReadOptions) -> str:
    """What so many scores without a value are, as the end of a note."""
    if options.missing_as == "wrong":
        return f"{'counts' if count == 1 else 'count'} as wrong, as asked"
    them = "it" if count == 1 else "them"
    return f"{are(count)} missing (missing_as='wrong' counts {them} as 0)"
