"""Arrow columns as numpy numbers or coded text, with errors that name the cell."""

from __future__ import annotations

import contextlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from irtjax.data.arrays import as_labels
from irtjax.data.reading.records import Coded, join_coded
from irtjax.data.reading.tabular import NULL_WORDS

# Verdicts that evaluation tools write instead of numbers; no answer is no number.
VERDICTS = {
    "true": 1.0,
    "false": 0.0,
    "yes": 1.0,
    "no": 0.0,
    "correct": 1.0,
    "incorrect": 0.0,
    "pass": 1.0,
    "fail": 0.0,
    "c": 1.0,
    "i": 0.0,
    "p": 0.5,
}
_NO_ANSWER = "n"
_PLAIN = {"true", "false"}
# Words for "no error" in a column of errors.
_NO_ERROR = {"0", "false", "no", "none", "[]", "{}"}


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds text, coded or not."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_wordy(column: pa.ChunkedArray) -> bool:
    """Whether a column holds no number at all: words, lists or records."""
    kind = column.type
    if not is_text(kind):
        plain = (
            pa.types.is_boolean(kind)
            or pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_decimal(kind)
            or pa.types.is_null(kind)
        )
        return not plain
    words = {k: VERDICTS[k] for k in _PLAIN}
    # A thousand rows suffice: this looks at every column of a wide file read as text.
    texts = set(column.slice(0, 1000).to_pylist())
    return not any(_number(text, words)[1] for text in texts)


def to_numbers(
    column: pa.ChunkedArray, name: str, source: str, *, verdicts: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns numbers with 0 where missing, and the mask of known cells or None.

    Args:
        column: numbers, booleans, or text that spells numbers.
        name: the column, for messages.
        source: the file, for messages.
        verdicts: also accept words such as "C", "pass" or "yes"; "N", which says that
            there was no answer, is missing.

    Raises:
        ValueError: a cell is no number, or is infinite.
    """
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int8), np.zeros(len(array), bool)
    if is_text(kind):
        numbers = _from_text(array, name, source, verdicts)
    elif pa.types.is_boolean(kind):
        numbers = array.cast(pa.int8())
    elif pa.types.is_decimal(kind):
        numbers = array.cast(pa.float64())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = array
    else:
        raise ValueError(
            f"{source}: column {name!r} holds {kind}, not numbers; leave it out or"
            " name the right column"
        )
    mask = None
    if numbers.null_count:
        mask = numbers.is_valid().to_numpy(zero_copy_only=False)
        numbers = numbers.fill_null(pa.scalar(0, numbers.type))
    values = numbers.to_numpy(zero_copy_only=False)
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    if values.dtype.kind == "f":
        if np.isinf(values).any():
            row = int(np.argmax(np.isinf(values)))
            raise ValueError(
                f"{source}: row {row + 1}, column {name!r} is infinite; scores must be"
                " finite"
            )
        nan = np.isnan(values)
        if nan.any():
            mask = ~nan if mask is None else mask & ~nan
            values = np.where(nan, 0, values)
    return values, mask


def _from_text(array: pa.Array, name: str, source: str, verdicts: bool) -> pa.Array:
    """Reads text as numbers, one distinct text at a time."""
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    words = VERDICTS if verdicts else {k: VERDICTS[k] for k in _PLAIN}
    numbers: list[float | None] = []
    wrong: dict[int, str] = {}
    for code, text in enumerate(coded.dictionary.to_pylist()):
        value, valid = _number(text, words)
        if verdicts and not valid and text.strip().lower() == _NO_ANSWER:
            valid = True
        numbers.append(value)
        if not valid:
            wrong[code] = text
    if wrong:
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        bad = np.isin(codes, list(wrong))
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(
                f"{source}: row {row + 1}, column {name!r} is {wrong[codes[row]]!r},"
                " which is not a number; correct the cell, leave it empty if it is"
                " missing, or leave the column out"
            )
    return pc.take(pa.array(numbers, pa.float64()), coded.indices)


def _number(text: str | None, words: dict[str, float]) -> tuple[float | None, bool]:
    stripped = "" if text is None else text.strip()
    if stripped in NULL_WORDS:
        return None, True
    if stripped.lower() in words:
        return words[stripped.lower()], True
    try:
        return float(stripped), True
    except ValueError:
        return None, False


def unanswered(column: pa.ChunkedArray) -> np.ndarray:
    """Returns the mask of cells that hold the verdict of no answer, "N"."""
    if not is_text(column.type):
        return np.zeros(len(column), bool)
    coded = to_labels(column, "", "", optional=True)
    return np.char.lower(coded.labels)[coded.codes] == _NO_ANSWER


def failed(column: pa.ChunkedArray) -> np.ndarray:
    """Returns the mask of cells that report an error: text, a record, or true."""
    if is_text(column.type):
        coded = to_labels(column, "", "", optional=True)
        empty = [
            text in NULL_WORDS or text.lower() in _NO_ERROR for text in coded.labels
        ]
        return ~np.asarray(empty, bool)[coded.codes]
    return np.array([bool(cell) for cell in column.to_pylist()], bool)


def to_labels(
    column: pa.ChunkedArray, name: str, source: str, *, optional: bool = False
) -> Coded:
    """Returns a column of names as codes, without blanks at the ends.

    Args:
        column: text, or numbers that serve as names.
        name: the column, for messages.
        source: the file, for messages.
        optional: read a missing name as "" instead of refusing it.

    Raises:
        ValueError: a name is missing.
    """
    kind = column.type
    if not pa.types.is_dictionary(kind):
        if pa.types.is_floating(kind) and not is_text(kind):
            # Whole numbers that a missing one beside them turned into floats.
            with contextlib.suppress(pa.ArrowInvalid):
                column = column.cast(pa.int64())
        if not is_text(kind):
            column = column.cast(pa.string())
        column = column.dictionary_encode()
    parts = []
    start = 0
    for chunk in column.chunks:
        texts = [
            None if text is None else text.strip()
            for text in chunk.dictionary.cast(pa.string()).to_pylist()
        ]
        codes = chunk.indices
        blank = [k for k, text in enumerate(texts) if not text]
        if codes.null_count or blank:
            plain = codes.fill_null(-1).to_numpy(zero_copy_only=False)
            bad = np.isin(plain, [-1, *blank])
            if bad.any() and not optional:
                row = start + int(np.argmax(bad)) + 1
                raise ValueError(f"{source}: row {row} has no name in column {name!r}")
        start += len(chunk)
        labels = as_labels([*(text or "" for text in texts), ""])
        codes = codes.fill_null(len(texts)).to_numpy(zero_copy_only=False)
        parts.append(Coded(codes.astype(np.int32), labels))
    if not parts:
        return Coded(np.zeros(0, np.int32), as_labels([]))
    return join_coded(parts).compact()
