"""Choices and words as scores: a column of a long table, or a matrix of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from irtjax.data.reading import cells, choices, missing_codes
from irtjax.data.reading.columns import (
    SUBJECT_FACETS,
    UNNAMED,
    Columns,
    plain_name,
)
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import Coded
from irtjax.data.reading.tabular import Frame, parse_number
from irtjax.data.reading.verdicts import Verdicts, plain_word, verdicts_of
from irtjax.data.wording import listing


def score_column(
    table: pa.Table,
    name: str,
    layout: Columns,
    item: Coded,
    options: ReadOptions,
    source: str,
) -> tuple[np.ndarray, list[str]] | None:
    """Scores of a column of choices or of words that the caller named, and notes.

    Args:
        table: A long table.
        name: Its column of responses.
        layout: Its columns, of which one may hold the right choices.
        item: The item of each row, without its benchmark.
        options: Those of reading.
        source: What the table is called in messages.

    Returns:
        None if the column holds numbers or verdicts.

    Raises:
        ValueError: It holds choices, and there is no key.
    """
    if options.right is None and options.key is None and not _is_letters(table, name):
        return None
    texts, key = table.column(name).to_pylist(), layout.key
    if options.right is not None:
        return choices.right_words(texts, options), []
    if options.key is not None and options.key != key:
        of_item = choices.read_key(options.key, item.labels.tolist(), ordered=False)
        keys = [of_item[x] for x in item.labels.tolist()]
        rows, what = [keys[code] for code in item.codes.tolist()], str(options.key)
    elif key is not None and (options.key or choices.are_letters(_texts(table, key))):
        coded = cells.to_labels(table.column(key), key, source, optional=True)
        keys = [choices.alternatives(x) for x in coded.labels.tolist()]
        rows, what = [keys[code] for code in coded.codes.tolist()], f"column {key!r}"
        if not all(rows):
            row = next(k for k, x in enumerate(rows) if not x)
            raise ValueError(f"{source}: row {row + 1} has no key in column {key!r}")
    else:
        answer = layout.answer
        column = f"key={answer!r}, the" if answer else "key= with the name of a"
        cure = f"{column} column of right choices; of grades give the right ones"
        raise choices.no_key(source, filter(None, texts), f"{cure}, right='A'")
    scores = choices.scored(texts, rows)
    choices.check_scores(scores, source, listing(sorted({*map(_shown, keys)}), 4))
    return scores, [f"{source}: responses were scored with the key in {what}"]


def _shown(key: choices.Key) -> str:
    """A key as it is written."""
    return ";".join(sorted(key))


def _texts(table: pa.Table, name: str) -> list[Any]:
    """The distinct texts of a column of text; none of another column."""
    column = table.column(name)
    if not cells.is_text(column.type):
        return []
    return column.unique().to_pylist()


def _is_letters(table: pa.Table, name: str) -> bool:
    """Whether a column holds letters that are no verdicts."""
    texts = [text for text in _texts(table, name) if text and text.strip()]
    verdicts = verdicts_of(texts)
    return choices.are_letters(texts) and not all(map(verdicts.knows, texts))


def score_matrix(
    frame: Frame, layout: Columns, options: ReadOptions
) -> tuple[Frame, list[str]]:
    """A matrix with choices and words as scores, without its key; notes.

    Args:
        frame: The table.
        layout: Its column of names, if it is known, and which way the matrix lies.
        options: Those of reading.

    Raises:
        ValueError: Responses are choices, and there is no key.
    """
    table, source = frame.table, frame.source
    others = {layout.subject, *filter(_is_facet, table.column_names)}
    names = [name for name in table.column_names if name not in others]
    worded = [name for name in names if cells.is_text(table.column(name).type)]
    items = _without_names(table, names, layout)
    if not items:
        return frame, []
    table = missing_codes.without_words(table, items, options)
    frame = dataclasses.replace(frame, table=table)
    if options.right is not None:
        return _with_right(frame, [x for x in items if x in worded], options), []
    words = [name for name in items if name in worded]
    word_verdicts = _verdicts(table, words)
    verdicts = [x for x in words if _all_known(_texts(table, x), word_verdicts)]
    if options.key is None and len(verdicts) == len(words) > 0 and _most(words, items):
        scores = {
            name: _verdict_column(table, name, word_verdicts) for name in verdicts
        }
        return dataclasses.replace(frame, table=_replaced(table, scores)), []
    lettered = [name for name in words if _all_letters(_texts(table, name))]
    if options.key is None:
        if len(lettered) == len(words) > 0 and _most(words, items):
            items = lettered
        elif not _has_numbered_key(table, items, layout):
            return frame, []
    return _keyed(frame, layout, items, options, source)


def _most(some: Sequence[str], names: Sequence[str]) -> bool:
    """Whether some are at least half of all."""
    return 2 * len(some) >= len(names)


def _all_letters(texts: Sequence[Any]) -> bool:
    """Whether the texts of a column are choices, perhaps all the same one."""
    marks = {"", "x", "*", "?"}
    letters = [text for text in texts if text and text.strip().lower() not in marks]
    return bool(letters) and choices.are_letters([*texts, "A", "B"])


def _is_facet(name: str) -> bool:
    """Whether a column describes the rows of a matrix."""
    return plain_name(name) in SUBJECT_FACETS


def _has_numbered_key(table: pa.Table, items: list[str], layout: Columns) -> bool:
    """Whether the responses are numbers of choices, with a row for the key."""
    columns = table.select(items).columns
    label = layout.subject or table.column_names[0]
    if layout.transposed or label in items or not items:
        return False
    rows = [str(text or "").strip() for text in table.column(label).to_pylist()]
    if not any(rows) or _key_row([row or "-" for row in rows], ReadOptions()) is None:
        return False
    numbers = all(pa.types.is_integer(column.type) for column in columns)
    marks = (number for x in columns for number in x.unique().to_pylist())
    return numbers and max((x for x in marks if x is not None), default=0) > 1


def _without_names(table: pa.Table, names: Sequence[str], layout: Columns) -> list[str]:
    """The columns without a first one that names the rows."""
    first = table.column_names[0]
    if layout.subject is not None or not names or names[0] != first:
        return [*names]
    texts = [text for text in table.column(first).to_pylist() if text]
    is_name = plain_name(first) in {*UNNAMED, "id", "name"}
    if cells.is_text(table.column(first).type):
        # A letter for each row is a name.
        differ = len(texts) > 1 and len(set(texts)) == len(texts)
        alone = not any(cells.is_text(table.column(x).type) for x in names[1:])
        is_response = _all_letters(texts) or _all_known(texts, verdicts_of(texts))
        is_name |= differ or alone or not is_response
    return [name for name in names if name != first] if is_name else [*names]


def _with_right(frame: Frame, names: list[str], options: ReadOptions) -> Frame:
    """The frame with 1 for the words that are right."""
    if not names:
        return frame
    columns = [frame.table.column(name).to_pylist() for name in names]
    scores = choices.right_words([text for x in columns for text in x], options)
    parts = np.split(scores, len(names))
    return dataclasses.replace(
        frame, table=_replaced(frame.table, dict(zip(names, parts, strict=True)))
    )


def _verdicts(table: pa.Table, worded: Sequence[str]) -> Verdicts:
    """The meaning of the words of all columns that may hold verdicts alone."""
    base = verdicts_of([])
    union: list[str] = []
    for name in worded:
        texts = [text.strip() for text in _texts(table, name) if text]
        if all(len(x) == 1 or base.knows(x) or parse_number(x)[1] for x in texts):
            union += texts
    return verdicts_of(union)


def _all_known(texts: Sequence[Any], verdicts: Verdicts) -> bool:
    """Whether texts are verdicts, and not numbers alone."""
    words = [text for text in texts if text and not parse_number(text)[1]]
    return bool(words) and all(map(verdicts.knows, words))


def _verdict_column(table: pa.Table, name: str, verdicts: Verdicts) -> np.ndarray:
    """A column of verdicts as numbers, NaN where missing."""

    def score(text: str | None) -> float:
        number, valid = parse_number(text)
        if not valid:
            number = verdicts.scores.get(plain_word(text or ""))
        return np.nan if number is None else number

    memory = {text: score(text) for text in table.column(name).unique().to_pylist()}
    return np.asarray([memory[text] for text in table.column(name).to_pylist()])


def _replaced(table: pa.Table, scores: dict[str, np.ndarray]) -> pa.Table:
    """The table with scores in the place of columns."""
    columns = [
        pa.array(scores[name], from_pandas=True) if name in scores else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _keyed(
    frame: Frame,
    layout: Columns,
    items: list[str],
    options: ReadOptions,
    source: str,
) -> tuple[Frame, list[str]]:
    """A matrix of choices, scored with its key, and a note."""
    table, label = frame.table, layout.subject
    if label is None and table.column_names[0] not in items:
        label = table.column_names[0]
    cells_of_names = [] if label is None else table.column(label).to_pylist()
    rows = ["" if text is None else str(text).strip() for text in cells_of_names]
    find_key = _key_of_rows if layout.transposed else _key_of_columns
    table, keys, what = find_key(table, rows, items, options, source)
    items = [name for name in items if name in table.column_names]
    if layout.transposed:
        of_column = dict.fromkeys(items, keys)
    else:
        of_column = {
            name: [key] * table.num_rows for name, key in zip(items, keys, strict=True)
        }
    scores = {
        name: choices.scored(table.column(name).to_pylist(), of_column[name])
        for name in items
    }
    shown = listing(sorted({*map(_shown, keys)}), 4)
    choices.check_scores(np.concatenate([*scores.values()]), source, shown)
    note = f"{source}: responses were scored with the key in {what}"
    responses = {name: table.column(name).to_pylist() for name in items}
    table = _replaced(table, scores)
    return dataclasses.replace(frame, table=table, choices=responses), [note]


def _key_of_columns(
    table: pa.Table,
    rows: list[str],
    items: list[str],
    options: ReadOptions,
    source: str,
) -> tuple[pa.Table, list[choices.Key], str]:
    """The key of each item that is a column, the table without it, and its place."""
    size = table.num_rows
    names = rows or [f"subject {k}" for k in range(1, size + 1)]
    place = _key_row(names, options)
    if place is None and options.key is None:
        shown = listing([*names[:4], "..."])
        cure = f"key={names[0]!r} if that row holds it (rows: {shown})"
        raise choices.no_key(source, _all_texts(table, items), cure)
    if place is None:
        of_item = choices.read_key(options.key, items, ordered=True)
        return table, [of_item[name] for name in items], str(options.key)
    what = f"row {names[place] or place + 1!r}"
    keys = [choices.alternatives(table.column(x)[place].as_py()) for x in items]
    _check_keys(keys, items, f"{source}: {what}")
    return table.filter(pa.array(np.arange(size) != place)), keys, what


def _key_of_rows(
    table: pa.Table,
    rows: list[str],
    subjects: list[str],
    options: ReadOptions,
    source: str,
) -> tuple[pa.Table, list[choices.Key], str]:
    """As `_key_of_columns`, of items that are rows."""
    column = options.key if options.key in table.column_names else None
    named = [x for x in table.column_names if plain_name(x) in choices.KEY_NAMES]
    if options.key is None and len(named) == 1:
        column = named[0]
    if column is None and options.key is None:
        cure = f"key={subjects[0]!r} if that column holds it"
        raise choices.no_key(source, _all_texts(table, subjects), cure)
    if column is None:
        of_item = choices.read_key(options.key, rows, ordered=True)
        return table, [of_item[row] for row in rows], str(options.key)
    keys = [choices.alternatives(text) for text in table.column(column).to_pylist()]
    _check_keys(keys, rows, f"{source}: column {column!r}")
    return table.drop_columns([column]), keys, f"column {column!r}"


def _key_row(names: list[str], options: ReadOptions) -> int | None:
    """The place of the row with the key: of that name, or a first row without one."""
    if options.key is not None:
        return names.index(options.key) if options.key in names else None
    named = [k for k, name in enumerate(names) if plain_name(name) in choices.KEY_NAMES]
    if len(named) == 1:
        return named[0]
    return 0 if names and not names[0] and all(names[1:]) else None


def _check_keys(keys: list[choices.Key], items: list[str], what: str) -> None:
    """Refuses a key that lacks items."""
    lacking = [name for name, key in zip(items, keys, strict=True) if not key]
    if lacking:
        raise ValueError(f"{what} has no key of {listing(lacking, 4)}: add it")


def _all_texts(table: pa.Table, names: Sequence[str]) -> list[Any]:
    """The cells of columns that are not empty."""
    cells_of = (table.column(name).to_pylist() for name in names)
    return [text for column in cells_of for text in column if text]
