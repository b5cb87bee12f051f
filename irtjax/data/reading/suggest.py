"""Which columns may be subjects, items and responses, for the message of a refusal."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from irtjax.data.reading.columns import (
    ITEM,
    JUDGED,
    OUTCOME,
    RESPONSE,
    SUBJECT,
    find,
    plain_name,
)
from irtjax.data.reading.nested import flat
from irtjax.data.reading.tabular import parse_number
from irtjax.data.reading.verdicts import verdicts_of

#: Rows that are looked at, and columns of names that are tried as pairs.
ROWS, _MOST = 5000, 12
_SUBJECT = re.compile(
    "model|system|student|subject|user|person|llm|agent|candidate|learner|examinee"
    "|模型|学生|модель|schüler|élève|alumno",
    re.I,
)
_ITEM = re.compile(
    "question|item|task|prompt|problem|case|sample|example|instance|input|query|doc"
    "|题|问|задани|вопрос|frage|aufgabe|pregunta|tarea",
    re.I,
)
_RESPONSE = re.compile(
    "score|correct|acc|pass|right|match|success|solved|resolved|reward|grade|verdict"
    "|point|bleu|rouge|f1|rating|result|valid|得分|分数|成绩|балл|оценк|punkt|note|faithful"
    "|relevan|recall|precision",
    re.I,
)
_OTHER = re.compile(
    "index|seed|epoch|time|date|token|cost|price|latency|duration|length|count|number"
    r"|size|version|year|threshold|retries|limit|\bid\b|_id\b|^n_|^num|unnamed",
    re.I,
)


#: Names of fields whose meaning is that of the field around them.
_GENERIC = {"name", "id", "key", "label"}


class Roles(NamedTuple):
    """The columns of a long table, as far as they can be guessed."""

    subject: str | None
    item: str
    response: str

    def options(self) -> str:
        """The roles as options of `irtjax.read`, in words for one message."""
        columns = {
            "subject": self.subject,
            "item": self.item,
            "response": self.response,
        }
        arguments = [f"{name}={value!r}" for name, value in columns.items() if value]
        if self.subject is None:
            arguments.append("subject_from='file'")
        return ", ".join(arguments)


def hint_of(table: pa.Table) -> str:
    """The end of a message that names what the columns of a table may be, or ""."""
    return hint(table.slice(0, ROWS).to_pylist())


def is_long(table: pa.Table) -> bool:
    """Whether a table has a row for each response, to judge by names and values.

    Texts of subjects and several items cross completely; or, of one subject, a column
    of text that is not the first one names an item in each row.
    """
    if table.num_columns > _MOST or table.num_rows < 4:
        return False
    records = table.slice(0, ROWS).to_pylist()
    roles = guess(records)
    if roles is None or {roles.item} - {*table.column_names}:
        return False
    items = [row[roles.item] for row in records]
    distinct = len({*items})
    if roles.subject is None:
        is_first = roles.item == table.column_names[0]
        fits = _fits(roles.item, _ITEM, ITEM) > 0 and isinstance(items[0], str)
        return fits and not is_first and distinct == len(items)
    subjects = [row.get(roles.subject) for row in records]
    pairs = {*zip(subjects, items, strict=True)}
    crossed = len(pairs) == len(records) == len({*subjects}) * distinct
    return crossed and distinct > 2 and all(isinstance(x, str) for x in subjects)


def certain(table: pa.Table) -> Roles | None:
    """The roles of the columns of a long table whose names and values leave no doubt.

    The names suit the roles, no other column has a name of responses, each pair of a
    subject and an item has one row, and subjects have several items. None otherwise.
    """
    if not 3 <= table.num_columns <= _MOST or table.num_rows < 4:
        return None
    records = table.slice(0, ROWS).to_pylist()
    outcomes = [name for name in table.column_names if _is_outcome(name, records)]
    if len(outcomes) != 1:
        return None
    roles = guess(records)
    if roles is None or roles.subject is None or {*roles} - {*table.column_names}:
        return None
    suits = _fits(roles.subject, _SUBJECT, SUBJECT) > _fits(roles.subject, _ITEM, ITEM)
    suits &= _fits(roles.item, _ITEM, ITEM) > 0
    if outcomes != [roles.response] or not suits:
        return None
    # An item that is a number may be a response of a matrix.
    if not isinstance(records[0][roles.item], str) and not is_long(table):
        return None
    subjects, items = ([row[x] for row in records] for x in (roles.subject, roles.item))
    unique = len({*zip(subjects, items, strict=True)}) == len(records)
    return roles if unique and 2 * len({*subjects}) <= len(records) else None


def _is_outcome(name: str, records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column has a name of responses, and values that may be."""
    last = _last(name)
    usual = last in (*RESPONSE, *OUTCOME) or _RESPONSE.search(last) is not None
    return usual and _likely_response(name, [row[name] for row in records]) > 0


def without_items(table: pa.Table) -> str:
    """Why a table of repeated scores of few subjects is not read; "" for any other.

    Its rows are repeats of the same names, so that no column may name an item.
    """
    records = table.slice(0, ROWS).to_pylist()
    outcomes = [name for name in table.column_names if _is_outcome(name, records)]
    subject = find([x for x in table.column_names if x not in outcomes], SUBJECT)
    subject = subject or next(filter(_SUBJECT.search, table.column_names), None)
    if len(outcomes) != 1 or subject is None:
        return ""
    return f"scores in {outcomes[0]!r} of {subject!r}, but no column names an item"


def subject_of(columns: Mapping[str, Sequence[str]], item: Sequence[str]) -> str:
    """The column of texts that crosses the items of a long table best; "" of none.

    Subjects have many of the same items, so families of items are none.
    """
    items = len({*item})
    best = 0.3, ""
    for name, column in columns.items():
        number = len({*column})
        if number < 2 or "" in column or _OTHER.search(_last(name)):
            continue
        fill = len({*zip(column, item, strict=True)}) / (number * items)
        numbers = all(parse_number(x)[1] for x in column)
        likely = fill + _fits(name, _SUBJECT, SUBJECT) - numbers
        best = max(best, (likely, name), key=lambda pair: pair[0])
    return best[1]


def hint(records: Iterable[Mapping[str, Any]]) -> str:
    """As `hint_of`, for records, whose fields are paths where they are nested."""
    roles = guess(records)
    return "" if roles is None else f"; it may be {roles.options()}"


def guess(records: Iterable[Mapping[str, Any]]) -> Roles | None:
    """The roles of the fields of records; None where no field can be a response."""
    columns = flat(itertools.islice(records, ROWS))
    names = {name: [_name(x) for x in column] for name, column in columns.items()}
    scores = {name: _likely_response(name, x) for name, x in columns.items()}
    order = lambda name: (-scores[name], name.count("."))
    likely = sorted((name for name, x in scores.items() if x), key=order)
    subject = _subject(names)
    for response in likely:
        others = [x for x in names if x != response and _may_name(x, columns[x])]
        # The names of fields around others are the shorter ones.
        others = sorted(others, key=lambda name: name.count("."))
        pair = _pair(others, names, subject)
        if pair is not None:
            return Roles(*pair, response)
    return None


def _subject(columns: Mapping[str, Sequence[str]]) -> str | None:
    """The column with a name of subjects, or one with the model of all records."""
    outer = find([name for name in columns if "." not in name], SUBJECT[:-1])
    inner = [x for x in columns if _last(x) in ("model", "model_name", "model_id")]
    inner += [
        name
        for name, column in columns.items()
        if re.match("model_|llm", _last(name)) and len({*column}) == 1
    ]
    return outer or next(iter(inner), None)


def _name(value: Any) -> str:
    """A value as the name that it would be."""
    return "" if value is None or value != value else str(value).strip()


def _last(name: str) -> str:
    """The name of a field without those around it; "model.name" is a model's."""
    outer, _, last = name.rpartition(".")
    if last in _GENERIC and outer:
        last = f"{outer.rpartition('.')[2].rstrip('s')}_{last}"
    return plain_name(last)


def _likely_response(name: str, column: Sequence[Any]) -> float:
    """How likely a column holds responses; 0 if it cannot."""
    cells = [x for x in column if x is not None and x == x and str(x).strip()]
    if not cells or any(isinstance(x, list | dict) for x in cells):
        return 0.0
    texts = {str(x) for x in cells}
    words = verdicts_of(texts)
    if not all(parse_number(x)[1] or words.knows(x) for x in texts):
        return 0.0
    numbers = [parse_number(x)[0] for x in texts]
    in_range = all(x is None or 0 <= x <= 1 for x in numbers)
    last = _last(name)
    likely = 1.0 + 2.0 * in_range + 0.5 * (len(texts) > 1)
    likely += 4.0 * (last in RESPONSE) + 3.0 * (last in JUDGED)
    likely += 2.0 * bool(_RESPONSE.search(last))
    whole = all(x is None or float(x).is_integer() for x in numbers)
    if _OTHER.search(last) or (whole and not in_range and len(texts) == len(cells) > 5):
        return 0.0
    return likely


def _may_name(name: str, column: Sequence[Any]) -> bool:
    """Whether a column may hold names: texts or whole numbers, not all equal."""
    cells = [x for x in column if x is not None and x == x]
    if not cells or any(isinstance(x, list | dict | bool | float) for x in cells):
        return False
    # Of what is like a score the name decides.
    if _RESPONSE.search(_last(name)) and _likely_response(name, column):
        return False
    return len(cells) == len(column) and len({*map(str, cells)}) > 1


def _pair(
    names: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    subject: str | None,
) -> tuple[str | None, str] | None:
    """The columns of subjects and of items that cross best; the first may be None."""
    best: tuple[float, tuple[str, str] | None] = (0.0, None)
    subjects = (
        [x for x in names[:_MOST] if x != subject] if subject is None else [subject]
    )
    for one, other in itertools.product(subjects, names[:_MOST]):
        if one == other:
            continue
        pairs = {*zip(columns[one], columns[other], strict=True)}
        rows, cells = len({*columns[one]}), len({*columns[other]})
        fill, unique = len(pairs) / (rows * cells), len(pairs) / len(columns[one])
        likely = 2.0 * fill + 2.0 * unique + 0.5 * (cells >= rows)
        likely += _fits(one, _SUBJECT, SUBJECT) - _fits(one, _ITEM, ITEM)
        likely += _fits(other, _ITEM, [*ITEM, "id"]) - _fits(other, _SUBJECT, SUBJECT)
        if fill > 0.3 and unique > 0.3 and likely > best[0]:
            best = likely, (one, other)
    if best[1] is not None:
        return best[1]
    # Of one subject each item has a row of its own.
    single = [x for x in names if len({*columns[x]}) == len(columns[x])]
    fits = lambda name: _fits(name, _ITEM, [*ITEM, "id"])
    item = max(single, key=fits, default=None)
    return None if item is None else (None, item)


def _fits(name: str, pattern: re.Pattern[str], usual: Sequence[str]) -> float:
    """How well the name of a column suits a role."""
    last = _last(name)
    return 1.0 * bool(pattern.search(last)) + 1.0 * (last in usual)
