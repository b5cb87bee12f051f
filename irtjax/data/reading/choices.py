"""Responses that are choices, scored with a key; and words that count as right.

A key has the right choice of each item: a file, a mapping, a row or a column of the
table itself. Choices are compared without case and spaces around them. "A;C" in a key
accepts both. An empty cell, NA, "-" and "." are missing; any other mark that is not in
the key, such as X for two marks, is wrong.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from irtjax.data.files import read_text
from irtjax.data.reading.columns import ITEM, plain_name
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.tabular import NULL_WORDS
from irtjax.data.reading.verdicts import NO_ANSWER, counts_of, plain_word
from irtjax.data.wording import counted, listing

#: Right choices of an item, as `plain_choice` has them.
Key: TypeAlias = frozenset[str]

#: Names of the row or column with the key.
KEY_NAMES = {
    *"key keys answer_key answerkey ans answer answers correct correct_answer".split(),
    *"correct_answers correct_choice correct_option right_answer solution".split(),
    *"solutions schlüssel lösung lösungen clave clé corrigé 答案 正确答案 ключ".split(),
}
#: A response that is a choice of an item: one letter, or several in their order.
_LETTER = re.compile("[A-Ja-j]|(?=[A-J]{2,5}$)A?B?C?D?E?F?G?H?I?J?")
#: Marks among letters that are no choices.
_MARKS = {"", "x", "*", "?", *(word.lower() for word in NULL_WORDS)}


def plain_choice(text: Any) -> str:
    """A choice as it is compared.

    >>> plain_choice(" b "), plain_choice(2.0), plain_choice("(C)")
    ('b', '2', 'c')
    """
    word = str(text).strip()
    word = word.strip("()[]. ") or word
    return (word[:-2] if re.fullmatch(r"\d+\.0", word) else word).casefold()


def alternatives(text: Any) -> Key:
    """The right choices in a cell of a key: "A;C" accepts both.

    >>> sorted(alternatives("A;c")), alternatives("NA")
    (['a', 'c'], frozenset())
    """
    text = "" if text is None else str(text).strip()
    if text in NULL_WORDS:
        return frozenset()
    return frozenset(map(plain_choice, filter(None, re.split(r"[;,/|&]", text))))


def are_letters(texts: Sequence[Any]) -> bool:
    """Whether texts are choices of items: letters, and at least two of them."""
    words = {str(text).strip() for text in texts if text is not None}
    words = {word for word in words if word.lower() not in _MARKS}
    single = sum(len(word) == 1 for word in words)
    return len(words) > 1 and single > 0 and all(map(_LETTER.fullmatch, words))


def scored(texts: Sequence[Any], keys: Sequence[Key]) -> np.ndarray:
    """Scores of responses, each with the key of its item; NaN where missing."""
    memory: dict[tuple[Any, Key], float] = {}
    out = np.empty(len(texts))
    for k, pair in enumerate(zip(texts, keys, strict=True)):
        if pair not in memory:
            memory[pair] = _score(*pair)
        out[k] = memory[pair]
    return out


def _score(text: Any, key: Key) -> float:
    """The score of one response."""
    if text is None or text != text or str(text).strip() in NULL_WORDS:
        return np.nan
    return float(plain_choice(text) in key)


def right_words(texts: Sequence[Any], options: ReadOptions) -> np.ndarray:
    """Scores of words by the option `right`: NaN where missing or of no answer.

    Raises:
        ValueError: No response is one of the words.
    """
    words = options.right
    right = {
        plain_word(x) for x in ([words] if isinstance(words, str) else words or ())
    }
    if "+" in right:
        raise ValueError(
            "right='+': '-' is read as missing, so write 1 and 0 in place of + and -"
        )
    score: dict[Any, float] = {}
    for text in set(texts):
        if text is None or text != text or str(text).strip() in NULL_WORDS:
            score[text] = np.nan
            continue
        word = plain_word(str(text))
        no_answer = word in NO_ANSWER - right
        score[text] = np.nan if no_answer else float(word in right)
    if not np.nansum([*score.values()]):
        shown = counts_of([str(text) for text in texts if score[text] == 0])
        raise ValueError(f"right={words!r}: no response is that word, of {shown}")
    return np.asarray([score[text] for text in texts], np.float64)


def read_key(key: Any, items: Sequence[str], *, ordered: bool) -> dict[str, Key]:
    """The right choices of items from a file or a mapping.

    Args:
        key: A mapping by item, or a file: a row (item, key) for each item, or a row
            of keys below the names of the items; without names the keys of all items in
            their order, in one row or column.
        items: Names of the items.
        ordered: Whether the items have an order, as the columns of a matrix.

    Raises:
        ValueError: The key cannot be read, or lacks an item.
    """
    if isinstance(key, Mapping):
        right_choices, source = {str(k): str(v) for k, v in key.items()}, "key="
    else:
        path = Path(os.path.expanduser(key))
        if not path.is_file():
            raise ValueError(
                f"key={str(key)!r} is no file, and no row or column has that name:"
                " give a CSV file with a row (item,key) for each item"
            )
        right_choices, source = _of_rows(_rows(path), items, ordered), str(path)
    by_name = {name.strip().casefold(): text for name, text in right_choices.items()}
    keys = {item: alternatives(by_name.get(item.strip().casefold())) for item in items}
    lacking = [item for item, right in keys.items() if not right]
    if lacking:
        raise ValueError(
            f"{source} has no key of {counted(len(lacking), 'item')}:"
            f" {listing(lacking, 4)}; write a row (item,key) for each, or leave these"
            " items out of the responses"
        )
    return keys


def _rows(path: Path) -> list[list[str]]:
    """The cells of a small CSV file that are not empty rows."""
    text = read_text(path)
    # "A;C" may stand between commas.
    delimiter = next((mark for mark in ",\t;" if mark in text), ",")
    rows = csv.reader(io.StringIO(text), delimiter=delimiter)
    cells = [[cell.strip() for cell in row] for row in rows]
    return [row for row in cells if any(row)]


def _of_rows(
    rows: list[list[str]], items: Sequence[str], ordered: bool
) -> dict[str, str]:
    """Keys by item from the rows of a file, in any of its forms."""
    names = {item.strip().casefold() for item in items}
    num_names = lambda cells: sum(cell.casefold() in names for cell in cells)
    header, *below = rows or [[]]
    if below and num_names(header) >= max(1, len(names) // 2) and len(names) > 1:
        named = next((r for r in below if plain_name(r[0]) in KEY_NAMES), below[0])
        return dict(zip(header, named, strict=False))
    plain = [plain_name(cell) for cell in header]
    key = next((k for k, name in enumerate(plain) if name in KEY_NAMES), None)
    item = next((k for k, name in enumerate(plain) if name in (*ITEM, "name")), 0)
    wide = [row for row in rows if len(row) > max(item, key or 1)]
    by_name = {row[item]: row[1 if key in (None, item) else key or 0] for row in wide}
    if num_names(by_name):
        return by_name
    # Without names: one row, one column, or one text with a letter for each item.
    cells = rows[0] if len(rows) == 1 else [row[-1] for row in rows]
    if len(cells) in (1, 2) and len(cells[-1]) == len(items):
        cells = [*cells[-1]]
    if len(cells) == len(items) + 1:
        cells = cells[1:]
    if not ordered or len(cells) != len(items):
        return {}
    return dict(zip(items, cells, strict=True))


def no_key(source: str, texts: Iterable[Any], cure: str) -> ValueError:
    """The refusal of letters without a key."""
    choices = [text for text in map(str, texts) if text.strip() not in NULL_WORDS]
    return ValueError(
        f"{source}: responses are letters ({counts_of(choices)}), which need a key:"
        f" give key='key.csv', a file with a row (item,key) for each item, or {cure}"
    )


def check_scores(scores: np.ndarray, source: str, key: str) -> None:
    """Refuses scores of which none is right: the key is of another form."""
    if not np.nansum(scores):
        raise ValueError(
            f"{source}: no response is that of the key ({key}): write the key with the"
            " same letters or numbers as the responses"
        )
