"""Arrow columns as numpy numbers or coded text, with errors that name the cell."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from irtjax.data import spreadsheets
from irtjax.data.arrays import as_labels
from irtjax.data.reading.records import Coded
from irtjax.data.reading.tabular import NULL_WORDS, parse_number
from irtjax.data.reading.verdicts import counts_of, percentage, plain_word, verdicts_of

# Words for outcomes that are not read as numbers: tools differ in what they count.
_OUTCOMES = set(
    "good bad accepted rejected valid invalid positive negative hit miss win loss ok"
    " error timeout partial unknown refused complete incomplete".split()
)
#: A share such as 7/10, which may also be a date or a name.
_RATIO = re.compile(r"\s*\d+(\.\d+)?\s*/\s*\d+\s*")
#: Those of them that are right for most tools.
_LIKELY = {*"a good accepted valid positive hit win ok complete".split()}
# Words for "no error" in a column of errors.
_NO_ERROR = {"0", "false", "no", "none", "[]", "{}"}

#: What to do about a cell of which no more is known.
CORRECT = "correct the cell, leave it empty if it is missing, or leave the column out"


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds text, coded or not."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return spreadsheets.is_text(kind)


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds integers or floating-point numbers."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def is_wordy(column: pa.ChunkedArray) -> bool:
    """Whether a column holds no number at all: words, lists or records."""
    kind = column.type
    if not is_text(kind):
        others = (pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
        return not (is_number(kind) or any(check(kind) for check in others))
    # A thousand rows suffice: this looks at every column of a wide file read as text.
    texts = set(column.slice(0, 1000).to_pylist())
    return not any(parse_number(text)[1] for text in texts)


def is_verdict(column: pa.ChunkedArray) -> bool:
    """Whether a column holds outcomes alone, as words, booleans or 0 and 1."""
    if pa.types.is_boolean(column.type):
        return True
    if not (is_text(column.type) or is_number(column.type)):
        return False
    texts = {str(x) for x in column.unique().to_pylist() if x is not None}
    verdicts = verdicts_of(texts)
    words = {plain_word(x) for x in texts} - verdicts.no_answer - {"none", ""}
    numbers = {"0", "1", "0.0", "1.0"}
    return bool(words) and words <= numbers | _OUTCOMES | {*verdicts.scores}


def to_numbers(
    column: pa.ChunkedArray, name: str, source: str, *, verdicts: bool = False
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns numbers, of ``verdicts`` too, 0 where missing, and the mask or None."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    kind = array.type
    if is_text(kind):
        array = _from_text(array, name, source, verdicts)
    elif pa.types.is_boolean(kind) or pa.types.is_null(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    elif not is_number(kind):
        raise ValueError(
            f"{source}: column {name!r:.80} holds {kind}, not numbers; leave it out or"
            " name the right column"
        )
    mask = None
    if array.null_count:
        mask = array.is_valid().to_numpy(zero_copy_only=False)
        array = array.fill_null(pa.scalar(0, array.type))
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        if np.isinf(values).any():
            row = int(np.argmax(np.isinf(values)))
            raise ValueError(
                f"{source}: row {row + 1}, column {name!r:.80} is infinite; scores"
                " must be finite"
            )
        nan = np.isnan(values)
        if nan.any():
            mask = ~nan if mask is None else mask & ~nan
            values = np.where(nan, 0, values)
    return values, mask


def _from_text(array: pa.Array, name: str, source: str, verdicts: bool) -> pa.Array:
    """Reads text as numbers, one distinct text at a time."""
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    numbers, valid = _parsed(texts, verdicts)
    # Codes of a frame can be unsigned, without room for -1.
    codes = pc.cast(coded.indices, pa.int64()).fill_null(-1)
    codes = codes.to_numpy(zero_copy_only=False)
    bad = np.isin(codes, np.flatnonzero(~valid))
    if bad.any():
        row = int(np.argmax(bad))
        text = texts[codes[row]]
        # One misspelt cell among numbers is another matter than words alone.
        verdict_words = [x for x in texts if x and verdicts_of(texts).knows(x)]
        worded = bad.sum() > 1 or verdict_words
        if verdicts and worded and not any(map(_is_like_number, texts)):
            words = asks_for_right([texts[code] for code in codes[bad]], verdict_words)
            place = f"row {row + 1}, column {name!r:.80} is {text!r:.80}"
            raise ValueError(f"{source}: {place}; the column {words}")
        raise ValueError(
            f"{source}: row {row + 1}, column {name!r:.80} is {text!r:.80}, which is"
            f" not a number; {cure_of(text)}"
        )
    signed = np.isin(codes, [k for k, x in enumerate(texts) if percentage(x or "")])
    others = np.isin(codes, [k for k, x in enumerate(numbers) if x]) & ~signed
    if signed.any() and others.any():
        rows = [int(np.argmax(cells_of_kind)) for cells_of_kind in (others, signed)]
        one, other = (f"row {row + 1} is {texts[codes[row]]!r:.40}" for row in rows)
        raise ValueError(
            f"{source}: column {name!r:.80}: {one} and {other}: write all with a"
            " percent sign, or none"
        )
    return pc.take(pa.array(numbers, pa.float64()), coded.indices)


def _parsed(
    texts: Sequence[str | None], verdicts: bool
) -> tuple[list[float | None], np.ndarray]:
    """The numbers in texts, None for missing ones, and which texts are valid."""
    words = verdicts_of(texts) if verdicts else None
    numbers: list[float | None] = []
    valid: list[bool] = []
    for text in texts:
        number, is_valid = parse_number(text)
        if words is not None and not is_valid and words.knows(text or ""):
            number, is_valid = words.scores.get(plain_word(text or "")), True
        numbers.append(number)
        valid.append(is_valid)
    return numbers, np.asarray(valid, bool)


def _is_like_number(text: str | None) -> bool:
    """Whether a text is a number or a ratio, and neither missing nor a word."""
    number = parse_number(text, {})[0] is not None
    return bool(text) and (number or _RATIO.fullmatch(text) is not None)


def asks_for_right(words: Sequence[str], verdicts: Sequence[str] = ()) -> str:
    """What is wrong with words of no known meaning, and what to do.

    Args:
        words: Their cells.
        verdicts: Words next to them that are verdicts.
    """
    right = [
        x.strip() for x in verdicts if verdicts_of(verdicts).scores.get(plain_word(x))
    ]
    stripped = {word.strip() for word in words}
    likely = [x for x in stripped if plain_word(x) in _LIKELY] or sorted(stripped)
    right = sorted(right)[:1] or [min(likely, key=len)]
    if right == ["+"]:
        return f"holds signs ({counts_of(words)}): write 1 and 0"
    return (
        f"holds words that may be right, wrong or no score: {counts_of(words)}; name"
        f" the right ones, such as right={right[0]!r}, and those of no score with"
        " missing_values=; all others are then wrong"
    )


def cure_of(text: str) -> str:
    """What to do about a cell that is no number."""
    stripped = text.strip()
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", stripped):
        return "leave separators of thousands out, and write decimals with a point"
    if _RATIO.fullmatch(stripped):
        return "write it as a decimal"
    if re.fullmatch(r"-?\d+,\d+", stripped):
        return "write decimals with a point, or all with a comma between semicolons"
    return CORRECT


def in_per_cent(column: pa.ChunkedArray) -> bool:
    """Whether a column has cells with a percent sign."""
    if not is_text(column.type):
        return False
    return any(
        percentage(text or "") is not None for text in column.unique().to_pylist()
    )


def no_number(column: pa.ChunkedArray, *, verdicts: bool = False) -> np.ndarray:
    """Returns the mask of cells with text that is no number, or an infinite number."""
    if is_text(column.type):
        coded = to_labels(column, "", "", optional=True)
        numbers, valid = _parsed(coded.labels.tolist(), verdicts)
        infinite = np.isinf(np.asarray(numbers, np.float64))
        return (~valid | infinite)[coded.codes]
    if not pa.types.is_floating(column.type):
        return np.zeros(len(column), bool)
    return np.isinf(column.to_numpy())


def is_blank(column: pa.ChunkedArray) -> np.ndarray:
    """Returns the mask of cells without a name."""
    coded = to_labels(column, "", "", optional=True)
    return (coded.labels == "")[coded.codes]


def unanswered(column: pa.ChunkedArray) -> np.ndarray:
    """Returns the mask of cells with a verdict of no answer, such as "N"."""
    if not is_text(column.type):
        return np.zeros(len(column), bool)
    coded = to_labels(column, "", "", optional=True).compact()
    texts = coded.labels.tolist()
    none = verdicts_of(texts).no_answer
    return np.asarray([plain_word(x) in none for x in texts], bool)[coded.codes]


def failed(column: pa.ChunkedArray) -> np.ndarray:
    """Returns the mask of cells that report an error: text, a record, or true."""
    if not is_text(column.type):
        return np.array([bool(cell) for cell in column.to_pylist()], bool)
    coded = to_labels(column, "", "", optional=True)
    empty = [text in NULL_WORDS or text.lower() in _NO_ERROR for text in coded.labels]
    return ~np.asarray(empty, bool)[coded.codes]


def to_labels(
    column: pa.ChunkedArray, name: str, source: str, *, optional: bool = False
) -> Coded:
    """Returns names as codes, as they are; a blank one may be "" if ``optional``."""
    kind = column.type
    if not pa.types.is_dictionary(kind):
        if pa.types.is_floating(kind):
            # A missing value turns a column of integers into floats.
            with contextlib.suppress(pa.ArrowInvalid):
                column = column.cast(pa.int64())
        try:
            column = column if is_text(kind) else column.cast(pa.string())
            column = column.dictionary_encode()
        except (pa.ArrowException, UnicodeDecodeError):
            raise ValueError(
                f"{source}: column {name!r:.80} holds {kind}, not names; choose another"
            ) from None
    code_of: dict[str, int] = {}
    if column.num_chunks == 1 and not column.null_count:
        # As it is, where nothing has to be renamed: a large table has no room for two.
        codes, names = column.chunk(0).indices, column.chunk(0).dictionary.to_pylist()
        named = all(isinstance(name, str) and name.strip() for name in names)
        if named and len(set(names)) == len(names):
            codes = codes.to_numpy(zero_copy_only=False)
            return Coded(codes.astype(np.int32, copy=False), as_labels(names)).compact()
    out = np.empty(len(column), np.int32)
    start = 0
    for chunk in column.chunks:
        names = [
            code_of.setdefault(text if text and text.strip() else "", len(code_of))
            for text in chunk.dictionary.cast(pa.string()).to_pylist()
        ]
        # A missing name gets the code of an empty text at the end.
        codes = chunk.indices
        if codes.null_count:
            codes = codes.fill_null(len(names))
            names.append(code_of.setdefault("", len(code_of)))
        end = start + len(chunk)
        if end > start:
            places = codes.to_numpy(zero_copy_only=False)
            out[start:end] = np.asarray(names, np.int32)[places]
        blank = code_of.get("")
        if not optional and blank is not None and blank in out[start:end]:
            row = start + int(np.argmax(out[start:end] == blank)) + 1
            raise ValueError(f"{source}: row {row} has no name in column {name!r:.80}")
        start = end
    return Coded(out, as_labels(code_of)).compact()
