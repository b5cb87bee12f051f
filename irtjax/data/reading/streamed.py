"""Long tables read in batches: names become codes at once, so that text never piles up.

A row takes four bytes for each column of text and eight for each of numbers. Arrow's
own tables take several times that while they grow, and keep it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Times as many texts as in a batch, which are not searched for those of the batch.
_MANY = 4


class TextCodes:
    """Distinct texts, and the code of each row."""

    dtype = np.int32

    def __init__(self) -> None:
        self.code_of: dict[str, int] = {}
        # Texts as written, and their codes: batches mostly repeat each other's.
        self.written = pa.array([], pa.string())
        self.codes = np.zeros(0, np.int32)

    def _codes(self, words: pa.Array) -> np.ndarray:
        """Codes of distinct texts."""
        if len(self.written) <= _MANY * len(words):
            places = pc.index_in(words, self.written)  # pyright: ignore
            if not places.null_count:
                return self.codes[places.to_numpy()]
        code_of = self.code_of
        names = (x if x and x.strip() else "" for x in words.to_pylist())
        codes = [code_of.setdefault(name, len(code_of)) for name in names]
        self.written = words.drop_null()
        self.codes = np.asarray(codes, np.int32)[words.is_valid().to_numpy(False)]
        return np.asarray(codes, np.int32)

    def convert(self, chunk: pa.Array) -> np.ndarray:
        """Codes of a piece of a column; new texts get new codes."""
        if not pa.types.is_dictionary(chunk.type):
            if pa.types.is_boolean(chunk.type):
                chunk = chunk.cast(pa.string())
            chunk = chunk.dictionary_encode()
        codes, indices = self._codes(chunk.dictionary.cast(pa.string())), chunk.indices
        if indices.null_count:
            indices = indices.fill_null(len(codes))
            codes = np.append(codes, self.code_of.setdefault("", len(self.code_of)))
        return codes[indices.to_numpy(zero_copy_only=False)].astype(
            np.int32, copy=False
        )

    def column(self, codes: np.ndarray) -> pa.Array:
        """The whole column of the codes."""
        labels = pa.array(list(self.code_of), pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes), labels)


class _Numbers:
    """Numbers, NaN where there are none."""

    dtype = np.float64

    def convert(self, chunk: pa.Array) -> np.ndarray:
        """Numbers of a piece of a column, NaN where it has none."""
        if pa.types.is_decimal(chunk.type):
            chunk = chunk.cast(pa.float64())
        return chunk.to_numpy(zero_copy_only=False)  # NaN for nulls

    def column(self, values: np.ndarray) -> pa.Array:
        """The whole column."""
        return pa.array(values)


def _converter(kind: pa.DataType, is_label: bool) -> TextCodes | _Numbers | None:
    """What holds a column of this type; None if nothing here does."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean)
    if any(check(value) for check in text):
        return TextCodes()
    if pa.types.is_integer(kind):
        return TextCodes() if is_label else _Numbers()
    # Numbers that name something are whole where they can be: that takes all of them.
    number = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return _Numbers() if number and not is_label else None


def collect(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    labels: Collection[str],
    rows: int,
) -> pa.Table | None:
    """Returns the rows of all batches; None where a column is of another type.

    Args:
        batches: The batches.
        schema: Their columns.
        labels: Columns whose values are names, also where they are whole numbers.
        rows: Number of rows that are expected.
    """
    converters = {
        field.name: _converter(field.type, field.name in labels) for field in schema
    }
    columns = {
        name: column for name, column in converters.items() if column is not None
    }
    if len(columns) < len(converters):
        return None
    room = max(rows, 1)
    # Memory that is not written to is not taken.
    out = {name: np.empty(room, column.dtype) for name, column in columns.items()}
    start = 0
    for batch in batches:
        end = start + batch.num_rows
        if end > room:
            room = end + end // 2
            for name in out:
                out[name] = np.resize(out[name][:start], room)
        for name, column in columns.items():
            out[name][start:end] = column.convert(batch.column(name))
        start = end
    return pa.table({name: x.column(out[name][:start]) for name, x in columns.items()})
