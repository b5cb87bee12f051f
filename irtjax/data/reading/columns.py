"""Which column means what, by its name or by an option: wide or long tables."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import NoReturn

from irtjax.data.formats import arena, irw
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.roles import (
    conditions_of,
    is_repeat,
    is_successes,
    is_trials,
    plain_name,
)
from irtjax.data.wording import listing

SUBJECT = [
    *(
        "subject subject_id model model_id model_name model_repr system system_id"
        " source respondent respondent_id person person_id user user_id student"
        " student_id examinee agent llm participant"
    ).split(),
    irw.SUBJECT,
]
ITEM = (
    "item item_id question_id question doc_id sample_id task_id problem_id problem"
    " instance_id example_id prompt_id"
).split()
_SURE = ("response", irw.RESPONSE)
RESPONSE = [*_SURE, *"score correct acc accuracy y value is_correct".split()]
# Where none of these is there: what coding benchmarks write.
PASSED = "passed pass@1 pass1 pass_at_1".split()
# One of these, next to subjects and items, where it is the only column of outcomes.
JUDGED = "verdict outcome result grade judgment judgement rating".split()
# Words in such a column may be responses.
OUTCOME = [*JUDGED, *"status passed solved resolved success".split()]
# Next to one of these, a column of `JUDGED` may be a response, its item's difficulty
# or the answer itself.
_SCORES = (
    "successful accepted ok pass right is_right match matched is_match exact_match em"
    " f1 label prediction"
).split()
METRIC = "metric metric_name dimension".split()
TRIAL = [*"trial epoch repeat attempt train_trial_index".split(), *irw.REPEATS]
BENCHMARK = [
    *"benchmark benchmark_id task task_name dataset evaluation_name".split(),
    irw.FAMILY,
]
# The condition of a response, of which one is read.
FILTER = "filter test_condition".split()
LENGTH = "length cot_length output_tokens completion_tokens num_output_tokens".split()
# What an item asks and what is expected, in a long table or a document.
PROMPT = "prompt input question_text question query problem instruction".split()
ANSWER = (
    "target gold gold_answer reference correct_answer expected expected_answer"
    " answer_key answer"
).split()
# What the subjects answered, in a long table.
PREDICTION = (
    "prediction predicted predicted_answer extracted_answer parsed_answer model_answer"
    " given_answer student_answer final_answer pred chosen choice chosen_option"
    " selected selected_option answer_given given answer model_output output completion"
    " generation model_response response"
).split()
# Columns that hold nothing but the right choice.
KEY = "key answer_key correct_answer correct_choice correct_option".split()
#: Next to one of these, "subject" is a topic.
_OVER_TOPIC = [x for x in SUBJECT[2:] if x not in ("source", irw.SUBJECT)]
_LABELS = {*SUBJECT, *ITEM, *BENCHMARK}
# Columns of text next to a wide matrix that describe its rows.
#: Names of the column that an index of pandas becomes.
UNNAMED = "", "Unnamed: 0", "index"
SUBJECT_FACETS = "base_model family organization organisation developer group".split()
_INSPECT = {"sample_id", "eval_id", "id"}

# Columns of AlpacaEval's leaderboards, and those of any leaderboard, which no item has
# as its name.
_TOTALS = {"win_rate", "standard_error"}
_BOARD = (
    "win_rate winrate length_controlled_winrate length_controlled_win_rate lc_win_rate"
    " elo elo_rating elo_score arena_score arena_elo"
).split()
#: Columns that a leaderboard has at most.
_MOST_ON_BOARD = 20
# Of a leaderboard: one score of each model, with columns of its interval.
_TOTAL = "score scores rating elo mean average avg accuracy win_rate winrate".split()
_INTERVAL = re.compile(
    r"(.*_)?(q_?0?25|q_?975|ci|std_?err(or)?|standard_error|moe)|(95%?_?)?ci(_.*)?"
    r"|(.*_)?(ci_|score_|rating_|conf_?int_)?(low|lower|high|upper)(_bound)?"
)
_PARAMETER = re.compile(
    r"^(a\d*|b\d*|c|d\d*|g|u|theta|ability|disc|diff|discrimination|difficulty"
    r"|guessing|feasibility|slope|intercept|lower_asymptote|upper_asymptote)"
    r"(_(se|sd|psn|full|lower|upper|deepirt))?$",
    re.IGNORECASE,
)


class NoResponsesError(ValueError):
    """A table without responses, such as one that describes the subjects."""


@dataclasses.dataclass(frozen=True)
class Columns:
    """Roles of columns: of a long table if some are of items, else of a wide one."""

    subject: str | None = None
    item: tuple[str, ...] = ()
    responses: tuple[str, ...] = ()
    metric: str | None = None
    filter: str | None = None
    trial: str | None = None
    benchmark: str | None = None
    length: str | None = None
    error: str | None = None
    time: str | None = None  # Seconds, which are not read.
    trials: str | None = None  # Of how many the response is a number of successes.
    transposed: bool | None = None  # A wide table has items as rows.
    inspect: bool = False  # Whether it is a frame of Inspect.
    key: str | None = None  # The right choice of a row's item.
    prompt: str | None = None  # Not read with the others: see `frames`.
    answer: str | None = None
    prediction: str | None = None  # What the subjects answered.
    conditions: tuple[str, ...] = ()  # May tell repeated pairs apart.
    notes: tuple[str, ...] = ()

    def labels(self) -> list[str]:
        """Columns that hold names."""
        names = (self.subject, *self.item, self.metric, self.filter, self.benchmark)
        names = (*names, self.key, *self.conditions)
        return list(dict.fromkeys(name for name in names if name is not None))

    def used(self) -> list[str] | None:
        """Columns that are read; None for all columns of a wide table."""
        others = (self.trial, self.length, self.error, self.time, self.trials)
        names = (*self.labels(), *self.responses, *others)
        used = list(dict.fromkeys(name for name in names if name is not None))
        return used if self.item else None


def find(names: Sequence[str], synonyms: Sequence[str]) -> str | None:
    """Returns the column with the first of several names, in upper or lower case.

    >>> find(["#model", "item", "score"], SUBJECT), find(["#correct"], RESPONSE)
    ('#model', None)
    """
    plain = {plain_name(name): name for name in reversed(names)}
    # A header may begin with "#"; but "#correct" is a number of them.
    for name in names:
        if name.startswith("#") and (label := plain_name(name.lstrip("#"))) in _LABELS:
            plain.setdefault(label, name)
    return next((plain[s] for s in synonyms if s in plain), None)


def _unnamed_roles(names: Sequence[str]) -> list[str]:
    """Columns whose names state no role, so that the only one has the responses."""
    roles = {*METRIC, *TRIAL, *BENCHMARK, *FILTER, *LENGTH, *PROMPT, *ANSWER, *KEY}
    roles |= {*SUBJECT, *ITEM, *SUBJECT_FACETS, *map(plain_name, UNNAMED)}
    return [x for x in names if plain_name(x) not in roles and not is_repeat(x)]


def require(names: Sequence[str], column: str, option: str, source: str) -> str:
    """Returns the column of a name; a ValueError that lists all refuses another."""
    if column in names:
        return column
    spaced = [name for name in names if name.strip() == column.strip()]
    if len(spaced) == 1:
        return spaced[0]
    raise ValueError(
        f"{source}: no column {column!r} for {option}=; its columns are:"
        f" {listing([n or '(unnamed)' for n in names])}"
    )


def decide(
    names: Sequence[str], index: str | None, options: ReadOptions, source: str
) -> Columns:
    """Finds the layout of a table by its column names, index (pandas) and options."""
    _refuse_other_tables(names, options, source)
    of_inspect = _inspect_frame(names, options, source)
    if of_inspect is not None:
        return of_inspect
    named = functools.partial(_named, names, options, source)
    subject, topic = _subject_and_topic(names, named("subject", SUBJECT), options)
    responses = _responses(names, options, source, subject)
    if subject is not None and options.subject is None and options.subject_name:
        # Of one subject, "id" numbers the items.
        subject = subject if plain_name(subject) != "id" or not responses else None
    item = _items(names, index, subject, bool(responses), options, source)
    if options.item is None and options.response is None:
        if item and not responses and subject is None and not options.subject_name:
            # A column of item names and no subjects: a matrix with items as rows.
            return Columns(subject=item[0], transposed=True)
        if not item or (index is not None and not responses):
            return _wide(names, index, subject, options, source)
    if not item:
        raise ValueError(
            f"{source}: no column of items; name it with item=. Its columns are:"
            f" {listing(list(names))}"
        )
    rest = [name for name in names if name not in (subject, *item, *responses)]
    notes = []
    if not responses:
        has_subject = subject is not None or options.subject_name is not None
        responses = _unnamed_responses(names, rest, has_subject, source)
        rest.remove(responses[0])
        notes = [
            f"column {responses[0]!r} was read as the responses (response= names"
            " another)"
        ]
    length = named("length", LENGTH)
    # "task" may name the items.
    others = [x for x in names if x not in item or x == options.benchmark]
    benchmark = _named(others, options, source, "benchmark", BENCHMARK)
    if topic is not None and topic not in item:
        notes = [_topic_note(subject, topic, benchmark)]
        benchmark = benchmark or topic
    layout = Columns(
        subject=subject,
        item=item,
        responses=responses,
        metric=find(names, METRIC),
        filter=find(names, FILTER),
        trial=named("trial", TRIAL),
        benchmark=benchmark,
        length=length,
        error=find(rest, ["error"]),
        time=find(rest, [irw.TIME]) if length is None else None,
        trials=_counts(rest, responses),
        notes=tuple(notes),
    )
    rest = [name for name in rest if name not in (layout.used() or ())]
    key = options.key if options.key in names else find(rest, KEY)
    return _with_side_columns(dataclasses.replace(layout, key=key), rest)


def _refuse_other_tables(
    names: Sequence[str], options: ReadOptions, source: str
) -> None:
    """Refuses tables without columns, of comparisons, and of totals."""
    if not names:
        raise ValueError(f"{source} has no columns")
    if options.item is None and arena.is_battles(names):
        raise ValueError(f"{source} {arena.MESSAGE}")
    is_matrix = options.orientation is not None
    may_be_board = find(names, ITEM) is None and not (options.item or is_matrix)
    if may_be_board and {*map(plain_name, names)} >= _TOTALS:
        raise NoResponsesError(_board_message(names, source))


def _subject_and_topic(
    names: Sequence[str], subject: str | None, options: ReadOptions
) -> tuple[str | None, str | None]:
    """The column of subjects, and `subject` where another column names models."""
    if options.subject is None and plain_name(subject or "") == "subject":
        over = find(names, _OVER_TOPIC)
        if over is not None:
            return over, subject
    return subject, None


def _topic_note(subject: str | None, topic: str, benchmark: str | None) -> str:
    """States which of two columns was read as the subjects."""
    as_topic = "" if benchmark else f" and {topic!r} as the benchmarks"
    return (
        f"columns {subject!r} and {topic!r} may both name subjects: {subject!r} was"
        f" read as these{as_topic} (subject={topic!r} reads the other)"
    )


def _unnamed_responses(
    names: Sequence[str], rest: list[str], has_subject: bool, source: str
) -> tuple[str]:
    """The one column left that may be of responses; others are refused."""
    only = _unnamed_roles(rest)
    if len(only) == 1 and has_subject and not parameter_columns(only):
        return (only[0],)
    _refuse_no_responses(names, rest, source)


def _inspect_frame(
    names: Sequence[str], options: ReadOptions, source: str
) -> Columns | None:
    """The layout of a data frame of Inspect; None for any other table."""
    if "score_headline_value" in names:
        raise NoResponsesError(
            f"{source} holds the totals of evaluations by Inspect (evals_df): write"
            " samples_df(logs, columns=EvalModel + SampleSummary), or give the logs"
        )
    # The sample data frame of Inspect has a column of scores for each scorer.
    scores = tuple(name for name in names if name.startswith("score_"))
    if not scores or options.item is not None or not set(names) >= _INSPECT:
        return None
    if options.response is not None:
        scores = (require(names, options.response, "response", source),)
    if "model" not in names and not (options.subject or options.subject_name):
        raise ValueError(
            f"{source} is a data frame of Inspect without a column 'model': make it"
            " with samples_df(logs, columns=EvalModel + SampleSummary)"
        )
    named = functools.partial(_named, names, options, source)
    return Columns(
        subject=named("subject", ["model"]),
        item=("id",),
        responses=scores,
        trial=named("trial", ["epoch"]),
        benchmark=named("benchmark", ["task_name"]),
        length=named("length", ["output_tokens", "total_tokens"]),
        inspect=True,
        prompt=find(names, ["input"]),
        answer=find(names, ["target"]),
        prediction=find(names, [f"{scores[0]}_answer", "answer"]),
    )


def _refuse_no_responses(
    names: Sequence[str], rest: Sequence[str], source: str
) -> NoReturn:
    """Refuses a long table without a column of responses."""
    parameters = parameter_columns(rest)
    # One of them alone may describe the items of a long table.
    if len(parameters) > 1 or parameters == rest:
        raise NoResponsesError(parameter_message(names, source))
    no_scores = {*UNNAMED, *SUBJECT_FACETS}
    columns = [x for x in rest if plain_name(x) not in no_scores] or list(rest)
    raise ValueError(
        f"{source}: no column of responses; name it with response= among:"
        f" {listing(columns)}"
    )


def _with_side_columns(layout: Columns, rest: Sequence[str]) -> Columns:
    """The layout with prompts, right answers, repeats and conditions among the rest."""
    prompt, answer = find(rest, PROMPT), find(rest, ANSWER)
    if layout.key is not None and plain_name(answer or "answer") == "answer":
        answer = layout.key
    prediction = find([x for x in rest if x not in (prompt, answer)], PREDICTION)
    prediction = (
        answer
        if prediction is None and plain_name(answer or "") == "answer"
        else prediction
    )
    others = [name for name in rest if plain_name(name) not in (*PROMPT, *ANSWER)]
    others = [name for name in others if name != prediction]
    trial = layout.trial or next(filter(is_repeat, others), None)
    return dataclasses.replace(
        layout,
        prompt=prompt,
        answer=answer,
        prediction=prediction,
        trial=trial,
        conditions=conditions_of([name for name in others if name != trial]),
    )


def _counts(rest: Sequence[str], responses: tuple[str, ...]) -> str | None:
    """The column of numbers of trials, where the responses may be numbers right."""
    if len(responses) != 1:
        return None
    if responses == ("response",):
        return "trials" if "trials" in rest else None
    if not is_successes(responses[0]):
        return None
    return next(filter(is_trials, rest), None)


def _named(
    names: Sequence[str],
    options: ReadOptions,
    source: str,
    option: str,
    synonyms: Sequence[str],
) -> str | None:
    """The column that an option names, else one with a usual name."""
    column = getattr(options, option)
    if isinstance(column, str):
        return require(names, column, option, source)
    # A named index is a column like others, and a nameless one has no such name.
    return find(names, synonyms)


def _items(
    names: Sequence[str],
    index: str | None,
    subject: str | None,
    has_responses: bool,
    options: ReadOptions,
    source: str,
) -> tuple[str, ...]:
    """The columns that make an item; none where rows are those of a matrix."""
    columns = [options.item] if isinstance(options.item, str) else options.item or ()
    item = tuple(require(names, name, "item", source) for name in columns)
    if item or options.orientation is not None:
        return item
    others = [n for n in names if n != subject]
    column = find(others, ITEM)
    has_subject = subject is not None or options.subject_name is not None
    if column is None and has_subject and has_responses:
        # "id" names the subject in psychometric tables, but else the item.
        column = find(others, ["id"])
    if column == index and subject is None and options.subject_name is None:
        column = None  # An index of items, and no subjects: rows of a wide frame.
    return () if column is None else (column,)


def _responses(
    names: Sequence[str], options: ReadOptions, source: str, subject: str | None
) -> tuple[str, ...]:
    """The column of responses; several if names leave a choice."""
    if options.response is not None:
        return (require(names, options.response, "response", source),)
    if isinstance(options.metric, str) and options.metric in names:
        return (options.metric,)
    lower = {plain_name(name): name for name in names}
    columns = tuple(s for s in RESPONSE if s in lower)
    columns = columns or tuple(s for s in PASSED if s in lower)[:1]
    if not columns and any(map(is_trials, names)):
        columns = tuple(s for s in lower if is_successes(s))[:1]
    # An "id" may number the rows of one model's log.
    sure = subject is not None and plain_name(subject) != irw.SUBJECT
    if not columns and (sure or options.subject is not None):
        judged = tuple(s for s in (*OUTCOME, *_SCORES) if s in lower)
        columns = judged if len(judged) == 1 and judged[0] in JUDGED else ()
    # The generic names win over those of metrics: "response" is unambiguous.
    sure = tuple(s for s in columns if s in _SURE)
    return tuple(lower[s] for s in sure[:1] or columns)


def _wide(
    names: Sequence[str],
    index: str | None,
    subject: str | None,
    options: ReadOptions,
    source: str,
) -> Columns:
    """The layout of a matrix: its column of names, and which way it lies."""
    for option in ("benchmark", "trial"):
        if getattr(options, option) is not None:
            raise ValueError(
                f"{source} is a wide matrix, for which {option}= has no"
                " meaning; for a long table, name its columns with item= and"
                " response="
            )
    rest = [name for name in names if name not in (subject, index)]
    if options.orientation is None and (find(rest, _BOARD) or _has_interval(rest)):
        raise NoResponsesError(_board_message(names, source))
    transposed = None
    if options.orientation is not None:
        transposed = options.orientation == "items_by_subjects"
    if options.subject is None:
        if index is not None:
            subject = index
        elif subject is None and names[0].strip() in UNNAMED:
            subject = names[0]
    if subject is None and options.orientation is not None:
        subject = find(names, ITEM)
    if transposed is None and subject is not None and options.subject is None:
        transposed = plain_name(subject) in ITEM or None
    rest = [name for name in rest if name != subject]
    sure = options.orientation is not None or transposed
    if not sure and len(rest) == 1 and find(rest, (*RESPONSE, *JUDGED)):
        raise NoResponsesError(one_number_message(rest[0], source))
    return Columns(subject=subject, transposed=transposed)


def one_number_message(name: str, source: str) -> str:
    """Refuses a table of one number for each subject."""
    return (
        f"{source} has one number for each subject ({name!r:.80}), not responses to"
        " items: give the responses; item= names a column of items, orientation= reads"
        " the numbers as responses, subject_from='file' takes the file as one subject"
    )


def _has_interval(names: Sequence[str]) -> bool:
    """Whether columns are those of a score and of its interval."""
    if find(names, _TOTAL) is None or len(names) > _MOST_ON_BOARD:
        return False
    return any(map(_INTERVAL.fullmatch, map(plain_name, names)))


def _board_message(names: Sequence[str], source: str) -> str:
    """Refuses a leaderboard."""
    columns = {*_TOTALS, *_BOARD, *_TOTAL}
    intervals = {name for name in names if _INTERVAL.fullmatch(plain_name(name))}
    shown = [name for name in names if plain_name(name) in columns or name in intervals]
    cure = "give the responses, of AlpacaEval its annotations.json"
    if intervals:
        cure += ", of Arena-Hard its model_judgment/JUDGE/MODEL.jsonl"
    else:
        cure += "; orientation= reads the totals as responses"
    return (
        f"{source} holds the totals of a leaderboard ({listing(shown)}), not responses"
        f" to items; {cure}"
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
