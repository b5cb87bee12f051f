"""Repeated responses of a subject to an item: what tells them apart."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

import numpy as np

from irtjax.data.arrays import as_labels
from irtjax.data.item_texts import ItemText
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import Coded, Records, join_coded
from irtjax.data.reading.roles import Side, plain_name, side_of
from irtjax.data.wording import listing

#: Names of columns of subjects that may also be those of items.
UNSURE = {"id", "source", "system", "agent", "user", "user_id", "subject", "group"}
#: Subjects with a response to an item under one condition, as a share of those with a
#: response to the item, from which it is an item of its own.
_SHARED = 0.4
#: Repeated pairs and rows whose columns are compared, and characters of a name.
_PAIRS, _ROWS, _LONGEST = 40, 400, 60
#: A number of a repeat in a path.
_RUN = re.compile(
    r"(?<![a-z])(seed|run|trial|epoch|rep|repeat|replicate|attempt|rollout|iter"
    r"|iteration|rs)[-_ ]?(\d+|[a-z])(?![a-z\d])",
    re.IGNORECASE,
)
#: Rows of a file that are searched for repeats by columns of unknown names.
MOST_ROWS = 2_000_000


def is_of_items(piece: object, options: ReadOptions) -> bool:
    """Whether the column taken for the subjects describes items instead.

    Each item then has responses of one of its values. Names such as "model" are sure.
    """
    if not isinstance(piece, Records) or options.subject_name is not None:
        return False
    name = plain_name(piece.roles.get("subject", ""))
    if name not in UNSURE or options.subject is not None:
        return False
    subjects, items = (len(np.unique(x.codes)) for x in (piece.subject, piece.item))
    return subjects > 1 and len(np.unique(_pairs(piece))) == items > 1


def of_items_message(records: Records) -> str:
    """Refuses such a table: what was taken for the subjects, and the options."""
    name = records.roles["subject"]
    return (
        f"{records.source}: each item has responses of one value of column {name!r},"
        " which describes items and names no subjects: name the column of subjects with"
        f" subject= (subject={name!r} if it is that), or the one subject with"
        " subject_name="
    )


def separated(records: Records) -> Records:
    """Records in which conditions are parts of names where pairs repeat without them.

    An item in another language is another item, a model with another effort another
    subject. Columns that do not differ within repeated pairs are left out. So are those
    under which few subjects share an item, such as judges drawn at random.
    """
    records = _with_ids(records)
    for name, column in records.conditions.items():
        pair = _pairs(records)
        order, start = _sorted(pair)
        if len(start) == len(pair):
            break
        # Places, in the sorted rows, that begin a new value within a pair.
        codes = column.codes[order]
        differs = np.ones(len(order), bool)
        differs[1:] = codes[1:] != codes[:-1]
        differs[start] = False
        if not differs.any():
            continue
        records = _with_condition(records, name, column)
    return records


def _with_ids(records: Records) -> Records:
    """Records in which the column of repeats is a condition, if it names items.

    Repeats have the same numbers for each item. Ids of samples, such as the parts of a
    question, are those of one item each, and subjects have them in common.
    """
    name = records.roles.get("trial")
    if name is None or records.trial is None:
        return records
    values, codes = np.unique(records.trial, return_inverse=True)
    codes = codes.reshape(-1).astype(np.int64)
    count, size = len(values), len(records.item.labels)
    items = len(np.unique(codes * size + records.item.codes))
    subjects = codes * len(records.subject.labels) + records.subject.codes
    if items > count or len(np.unique(subjects)) < 2 * count or count == 1:
        return records
    distinct = len(np.unique(records.item.codes))
    if distinct == 1 or count <= distinct:
        return records  # One for each item tells no repeats apart.
    named = records.trial_names
    labels = as_labels(map(str, (values if named is None else named[values]).tolist()))
    column = Coded(codes.astype(np.int32), labels)
    return dataclasses.replace(
        records,
        trial=None,
        trial_names=None,
        conditions={name: column, **records.conditions},
        roles={k: v for k, v in records.roles.items() if k != "trial"},
    )


def _pairs(records: Records) -> np.ndarray:
    """A number for each pair of a subject and an item, by row."""
    return records.subject.codes.astype(np.int64) * len(
        records.item.labels
    ) + records.item.codes.astype(np.int64)


def _sorted(pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows by pair, and where each pair begins among them."""
    order = np.argsort(pair, kind="stable")
    return order, np.flatnonzero(np.diff(pair[order], prepend=-1))


def _with_condition(records: Records, name: str, column: Coded) -> Records:
    """Records with a condition as part of the names of items or subjects."""
    side: Side = side_of(name) or "item"
    item = records.roles.get("item", "item")
    if side == "subject":
        subject = records.roles.get("subject", "subject")
        note = (
            f"column {name!r} makes subject-item pairs unique: a subject is a pair of"
            f" {subject!r} and {name!r} (trials='mean' averages over it)"
        )
        named = joined(column, records.subject, after=True)
        return dataclasses.replace(records, subject=named, notes=[*records.notes, note])
    new = joined(column, records.item)
    before, after = (_mean_subjects(records.subject, x) for x in (records.item, new))
    if after < max(_SHARED * before, 2):
        return records
    rows = np.unique(new.codes, return_index=True)[1]
    names, old = new[rows].texts().tolist(), records.item[rows].texts().tolist()
    values = column[rows].texts().tolist()
    old_names = dict(zip(names, old, strict=True))
    parts = {
        key: {x: of_item[old_names[x]] for x in names if old_names[x] in of_item}
        for key, of_item in records.item_parts.items()
    }
    topic = side == "benchmark" and records.benchmark is None
    note = (
        f"column {name!r} makes subject-item pairs unique: an item is a pair of"
        f" {name!r} and {item!r}{', and a benchmark one value of it' * topic}"
        " (trials='mean' averages over it)"
    )
    return dataclasses.replace(
        records,
        item=new,
        benchmark=column if topic else records.benchmark,
        item_parts={
            item: old_names,
            **parts,
            name: dict(zip(names, values, strict=True)),
        },
        item_texts=_texts_of_first(records, new),
        notes=[*records.notes, note],
    )


def joined(first: Coded, second: Coded, after: bool = False) -> Coded:
    """Names as first/second, or with the first ``after`` the second."""
    width = len(first.labels)
    pair = second.codes.astype(np.int64) * width + first.codes
    _, rows, codes = np.unique(pair, return_index=True, return_inverse=True)
    one, two = first[rows].texts(), second[rows].texts()
    ends = zip(two, one, strict=True) if after else zip(one, two, strict=True)
    names = ["/".join(filter(None, map(str, ends_of))) for ends_of in ends]
    return join_coded([Coded(codes.astype(np.int32).reshape(-1), as_labels(names))])


def _mean_subjects(subject: Coded, item: Coded) -> float:
    """Mean number of subjects with a response to an item."""
    pair = item.codes.astype(np.int64) * len(subject.labels) + subject.codes
    return len(np.unique(pair)) / len(np.unique(item.codes))


def _texts_of_first(records: Records, new: Coded) -> dict[str, ItemText]:
    """Texts of items, which are those of their first rows."""
    rows = np.sort(np.unique(records.item.codes, return_index=True)[1])
    pairs = zip(records.item[rows].texts(), new[rows].texts(), strict=True)
    texts = records.item_texts
    return {str(after): texts[x] for x, after in pairs if x in texts}


def repeated_rows(records: Records) -> np.ndarray:
    """Some rows of pairs that repeat and that no known column tells apart."""
    pair = _pairs(records)
    columns = list(records.conditions.values())
    for column in (records.benchmark, records.metric, records.filter, *columns):
        if column is not None:
            pair = np.unique(pair, return_inverse=True)[1].reshape(-1)
            pair = pair.astype(np.int64) * len(column.labels) + column.codes
    if records.trial is not None:
        number = np.unique(records.trial, return_inverse=True)[1].reshape(-1)
        pair = np.unique(pair, return_inverse=True)[1].reshape(-1).astype(np.int64)
        pair = pair * (int(number.max(initial=0)) + 1) + number
    order, start = _sorted(pair)
    size = np.diff(start, append=len(pair))
    several = np.flatnonzero(size > 1)
    # Of the beginning, the middle and the end of the file.
    several = several[:: max(len(several) // _PAIRS, 1)][:_PAIRS]
    chosen = [order[start[k] : start[k] + size[k]] for k in several.tolist()]
    rows = np.concatenate(chosen)[:_ROWS] if chosen else np.zeros(0, int)
    return np.sort(rows)


def telling(
    names: Sequence[str], texts: Sequence[Sequence[str]], pair: np.ndarray
) -> Iterator[str]:
    """Columns whose values differ within each repeated pair, and repeat between them.

    Args:
        names: Names of columns.
        texts: Of each, the texts of some rows.
        pair: The pair of each row.
    """
    size = int(np.bincount(pair).max(initial=0))
    for name, text in zip(names, texts, strict=True):
        cells = set(zip(pair.tolist(), text, strict=True))
        values = set(text)
        # Outputs, times and the like have a value of their own in every row.
        few = len(values) <= max(3 * size, len(text) // 4)
        short = max(map(len, values), default=0) <= _LONGEST
        if len(cells) == len(text) and few and short and "" not in values:
            yield name


def are_repeats(paths: Sequence[str]) -> bool:
    """Whether paths of files differ in the number of a run or a seed alone.

    >>> are_repeats(["run1/a.csv", "run2/a.csv"]), are_repeats(["aime24", "aime25"])
    (True, False)
    """
    return len({_RUN.sub("#", path) for path in paths}) == 1


def numbers_of(labels: Sequence[str]) -> bool:
    """Whether names number repeats: all the whole numbers from 0 or from 1.

    >>> numbers_of(["0", "2", "1"]), numbers_of(["en", "fr"])
    (True, False)
    """
    if not all(x.isdecimal() for x in labels):
        return False
    numbers = sorted(map(int, labels))
    return numbers in (list(range(len(numbers))), list(range(1, len(numbers) + 1)))


def shown_trials(records: Records, limit: int = 4) -> str:
    """The column that numbers repeats and its values, for a note; nothing without."""
    if records.trial is None:
        return ""
    name = records.roles.get("trial")
    column = "epoch or trial" if name is None else f"column {name!r}"
    numbers = np.unique(records.trial).tolist()
    named = records.trial_names
    labels = [str(k if named is None else named[k]) for k in numbers]
    return f" by {column} ({listing(labels, limit)})" if len(labels) > 1 else ""
