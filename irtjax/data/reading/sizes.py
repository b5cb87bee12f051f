"""Sizes of tables before one is read: a table that is too large is named at once."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from irtjax.data.files import delimiter_of, file_size, is_encoded, read_head
from irtjax.data.reading.columns import decide
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.sources import Source
from irtjax.data.table_files import is_saved_table, num_items
from irtjax.data.wording import counted
from irtjax.numerics import memory

_KINDS = {"csv", "parquet", "table"}
#: Bytes of a value of a matrix while it is read, and while several are merged.
_READ, _MERGED = 8.0, 14.0
#: Bytes of memory that a byte of a file can take at most: in CSV a value has two.
_OF_TEXT, _OF_PARQUET = 8, 1000
#: Bytes in the middle of a file whose values are counted.
_SAMPLE = 1 << 20


def check_sizes(files: Sequence[Source], options: ReadOptions) -> None:
    """Refuses matrices that are larger than the memory, before one is read.

    Raises:
        ValueError: A file is too large, alone or merged with the others.
    """
    available = memory.available_memory()
    tables = {
        file.path: file for file in files if file.format in ("csv", "parquet", "table")
    }
    found = {path: _values(file, options, available) for path, file in tables.items()}
    for path, values in found.items():
        _require(_READ * values, path, values, "give a part of it")
    if len(tables) > 1:
        path = max(found, key=found.__getitem__)
        others = counted(len(tables) - 1, "other table")
        cure = f"read it without the {others}, or as one long table of all responses"
        _require(_MERGED * found[path], path, found[path], cure)


def _require(needed: float, path: Path, values: float, cure: str) -> None:
    """Refuses a table whose values take too much memory."""
    memory.require_memory(needed, f"{path} has about {values:,.0f} values", cure)


def _values(file: Source, options: ReadOptions, available: float) -> float:
    """About how many values a matrix has; 0 of small files, and of long tables."""
    size = file_size(file.path)
    is_text = file.format == "csv"
    if size * (_OF_TEXT if is_text else _OF_PARQUET) <= available:
        return 0.0
    try:
        return (
            _of_text(file.path, size, options)
            if is_text
            else _of_parquet(file, options)
        )
    except (ValueError, OSError, csv.Error, pa.ArrowException):
        return 0.0  # Reading it raises the error.


def _of_text(path: Path, size: int, options: ReadOptions) -> float:
    """Values of a CSV file, by those in its middle."""
    if is_encoded(path):
        return 0.0
    head = read_head(path)
    line, end, _ = head.partition(b"\n")
    text = line.decode("utf-8", errors="replace")
    delimiter = delimiter_of(head.decode("utf-8", errors="replace"))
    names = [name.strip() for name in next(csv.reader([text], delimiter=delimiter))]
    # A long table is read in parts; its header is short.
    if end and decide(names, None, options, str(path)).item:
        return 0.0
    with open(path, "rb") as file:
        file.seek(max(0, size // 2 - _SAMPLE // 2))
        sample = file.read(_SAMPLE)
    marks = sample.count(delimiter.encode()) + sample.count(b"\n")
    return size * marks / max(len(sample), 1)


def _of_parquet(file: Source, options: ReadOptions) -> float:
    """Values of a Parquet file, by its metadata."""
    import pyarrow.parquet as pq

    if read_head(file.path)[:4] != b"PAR1":
        return 0.0
    # Not column by column: looking at a damaged one ends the process.
    rows, schema = pq.read_metadata(file.path).num_rows, pq.read_schema(file.path)
    if is_saved_table(schema):
        return float(rows) * num_items(schema)
    if decide(schema.names, None, options, str(file.path)).item:
        return 0.0
    return float(rows) * len(schema.names)
