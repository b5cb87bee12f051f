"""Which column means what: wide or long, by names and by the caller's word."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from irtjax.data.reading.options import ReadOptions
from irtjax.data.wording import listing

SUBJECT = (
    "subject subject_id model model_id model_name model_repr system system_id source"
    " respondent respondent_id person person_id user user_id student student_id"
    " examinee agent llm participant id"
).split()
ITEM = (
    "item item_id question_id question doc_id sample_id task_id problem_id problem"
    " instance_id example_id"
).split()
RESPONSE = "response resp score correct acc accuracy y value is_correct".split()
METRIC = "metric metric_name dimension".split()
FILTER = ["filter"]
TRIAL = "trial epoch repeat attempt train_trial_index rater wave".split()
BENCHMARK = "benchmark task task_name dataset evaluation_name item_family".split()
ERROR = ["error"]
LENGTH = "length cot_length output_tokens completion_tokens num_output_tokens".split()
# Columns of text next to a wide matrix that describe its rows.
SUBJECT_FACETS = "base_model family organization organisation developer group".split()

_PARAMETER = re.compile(
    r"^(a\d*|b\d*|c|d\d*|g|u|theta|ability|disc|diff|discrimination|difficulty"
    r"|guessing|feasibility|slope|intercept|lower_asymptote|upper_asymptote)"
    r"(_(se|sd|psn|full|lower|upper|deepirt))?$",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class Columns:
    """Roles of columns. Long if ``item`` is set, else wide.

    Attributes:
        subject: column of subject names; None if rows have no name.
        item: columns that together name an item (long); none if wide.
        responses: columns of scores (long).
        error: column that reports failed calls (long).
        transposed: whether a wide table has items as rows; None if not known.
    """

    subject: str | None = None
    item: tuple[str, ...] = ()
    responses: tuple[str, ...] = ()
    metric: str | None = None
    filter: str | None = None
    trial: str | None = None
    benchmark: str | None = None
    length: str | None = None
    error: str | None = None
    transposed: bool | None = None
    inspect: bool = False

    def labels(self) -> list[str]:
        """Columns that hold names."""
        names = (
            self.subject,
            *self.item,
            self.metric,
            self.filter,
            self.benchmark,
        )
        return [name for name in names if name is not None]

    def used(self) -> list[str]:
        """All columns that a long layout reads."""
        others = (self.trial, self.length, self.error)
        more = [name for name in others if name is not None]
        return list(dict.fromkeys([*self.labels(), *self.responses, *more]))


def find(names: Sequence[str], synonyms: Sequence[str]) -> str | None:
    """Returns the column with the most telling of several names, in any case."""
    lower = {}
    for name in names:
        lower.setdefault(name.strip().lower(), name)
    return next((lower[s] for s in synonyms if s in lower), None)


def require(names: Sequence[str], column: str, option: str, source: str) -> str:
    """Returns ``column`` if it is there.

    Raises:
        ValueError: it is not; the message lists the columns.
    """
    if column in names:
        return column
    raise ValueError(
        f"{source}: no column {column!r} for {option}=; its columns are:"
        f" {listing([n or '(unnamed)' for n in names])}"
    )


def decide(
    names: Sequence[str], index: str | None, options: ReadOptions, source: str
) -> Columns:
    """Finds the layout of a table from its column names.

    Args:
        names: column names.
        index: the column that was a pandas index, if any.
        options: names given by the caller take precedence.
        source: for messages.

    Raises:
        ValueError: a named column is not there, or no reading makes sense.
    """
    if not names:
        raise ValueError(f"{source} has no columns")

    def named(option: str, synonyms: Sequence[str]) -> str | None:
        given = getattr(options, option)
        if given is not None and isinstance(given, str):
            return require(names, given, option, source)
        return find([n for n in names if n != index], synonyms)

    if _is_inspect_frame(names) and options.item is None:
        return _inspect_layout(names, options)
    subject = named("subject", SUBJECT)
    responses = _responses(names, options, source)
    item = _items(names, index, subject, responses, options, source)
    is_long = options.item is not None or options.response is not None
    is_wide = not item or (index is not None and not responses)
    if item and not responses and subject is None and not is_long:
        # A column of item names and no subjects: a matrix with items as rows.
        return Columns(subject=item[0], transposed=True)
    if is_wide and not is_long:
        _refuse_column_names(options, source)
        return _wide(names, index, subject, options)
    if not item:
        raise ValueError(
            f"{source}: no column of items; name it with item=. Its columns are:"
            f" {listing(list(names))}"
        )
    if not responses:
        raise ValueError(_no_response(names, subject, item, source))
    return Columns(
        subject=subject,
        item=item,
        responses=responses,
        metric=find(names, METRIC),
        filter=find(names, FILTER),
        trial=named("trial", TRIAL),
        benchmark=named("benchmark", BENCHMARK),
        length=named("length", LENGTH),
        error=find([n for n in names if n not in (subject, *item, *responses)], ERROR),
    )


def _items(
    names: Sequence[str],
    index: str | None,
    subject: str | None,
    responses: tuple[str, ...],
    options: ReadOptions,
    source: str,
) -> tuple[str, ...]:
    if options.item is not None:
        given = [options.item] if isinstance(options.item, str) else options.item
        return tuple(require(names, name, "item", source) for name in given)
    if options.orientation is not None:
        return ()
    found = find([n for n in names if n not in (index, subject)], ITEM)
    if found is None and subject is not None and responses:
        # "id" names the subject in psychometric tables, but else the item.
        found = find([n for n in names if n != subject], ["id"])
    return () if found is None else (found,)


def _refuse_column_names(options: ReadOptions, source: str) -> None:
    for option in ("benchmark", "trial"):
        if getattr(options, option) is not None:
            raise ValueError(
                f"{source} is a wide matrix, for which {option}= has no meaning; for a"
                " long table, name its columns with item= and response="
            )


def _responses(
    names: Sequence[str], options: ReadOptions, source: str
) -> tuple[str, ...]:
    if options.response is not None:
        return (require(names, options.response, "response", source),)
    lower = {name.strip().lower(): name for name in names}
    found = tuple(lower[s] for s in RESPONSE if s in lower)
    if isinstance(options.metric, str) and options.metric in names:
        return (options.metric,)
    # The generic names win over those of metrics: "response" is unambiguous.
    for sure in ("response", "resp"):
        if sure in lower:
            return (lower[sure],)
    return found


def _wide(
    names: Sequence[str], index: str | None, subject: str | None, options: ReadOptions
) -> Columns:
    transposed = None
    if options.orientation is not None:
        transposed = options.orientation == "items_by_subjects"
    if options.subject is None and index is not None:
        subject = index
    if subject is None or (options.subject is None and index is None):
        first = names[0].strip() if names else ""
        is_unnamed = first == "" or re.fullmatch(r"(Unnamed: 0|index|)", first)
        if is_unnamed and options.subject is None:
            subject = names[0]
    if subject is None and options.orientation is not None:
        subject = find(names, ITEM)
    if transposed is None and subject is not None and options.subject is None:
        if subject.strip().lower() in ITEM:
            transposed = True
    return Columns(subject=subject, transposed=transposed)


def _no_response(
    names: Sequence[str], subject: str | None, item: tuple[str, ...], source: str
) -> str:
    if parameter_columns(names):
        return parameter_message(names, source)
    rest = [name for name in names if name not in (subject, *item)]
    return (
        f"{source}: no column of responses; name it with response= among:"
        f" {listing(rest)}"
    )


def parameter_columns(names: Sequence[str]) -> list[str]:
    """Columns named like the parameters of a fitted model."""
    return [name for name in names if _PARAMETER.match(name.strip())]


def parameter_message(names: Sequence[str], source: str) -> str:
    """Refuses a file that holds parameters rather than responses."""
    return (
        f"{source} looks like a table of fitted parameters"
        f" ({listing(parameter_columns(names))}), not of responses; give the file of"
        " responses"
    )


def _is_inspect_frame(names: Sequence[str]) -> bool:
    needed = {"sample_id", "eval_id", "id", "epoch", "model"}
    return needed <= set(names) and any(n.startswith("score_") for n in names)


def _inspect_layout(names: Sequence[str], options: ReadOptions) -> Columns:
    """The sample data frame of Inspect: a column of scores per scorer."""
    scores = tuple(n for n in names if n.startswith("score_"))
    if options.response is not None:
        scores = (options.response,)
    return Columns(
        subject="model",
        item=("id",),
        responses=scores,
        trial="epoch",
        benchmark=find(names, ["task_name"]),
        length=find(names, ["output_tokens", "total_tokens"]),
        inspect=True,
    )
