"""Long files of millions of rows and three columns, read in little memory.

The usual way keeps all rows until the table is made: names as numbers, scores, places.
A file of subjects, items and responses 0 and 1 alone, without repeats, has none of the
choices for which these are needed: it is read in batches to a stream on disk
(`first_pass`), and the table is made of that, a block at a time.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from irtjax.data.arrays import as_labels
from irtjax.data.reading.columns import RESPONSE, decide, plain_name
from irtjax.data.reading.first_pass import make_stream, subject_names
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.tabular import header_of
from irtjax.data.sparse_table import SparseCells, is_sparse
from irtjax.data.stream import CellBlock, ResponseStream
from irtjax.data.table import ResponseTable
from irtjax.data.wording import NOUNS, noun_of

#: Rows of a file from which this is tried, and bytes of one of text.
LEAST_ROWS, LEAST_BYTES = 2**21, 2**26
#: Cells of a block of which the table is made.
_PART = 2**18
#: Options with which the way of reading is the same.
_ALIKE = ("subject", "item", "response", "format", "texts")


def read_plain(kind: str, path: Path, options: ReadOptions) -> ResponseTable | None:
    """The table of a large, plain long file; None of others, which `frames` reads."""
    if not _has_usual(options):
        return None
    try:
        names = _columns(kind, path)
        if len(names) != 3:
            return None
        layout = decide(names, None, options, str(path))
        if any(plain_name(name) not in RESPONSE for name in layout.responses):
            return None  # Its name may state that lower is better.
        with tempfile.TemporaryDirectory(prefix="irtjax-") as folder:
            stream = make_stream(path, Path(folder), options)
            if stream.codes.tolist() != [0, 1]:
                return None
            parts = pa.chunked_array([*subject_names(stream.folder)], pa.string())
            subjects = as_labels(parts.to_pylist())
            del parts
            table = _table(stream, subjects)
            nouns = noun_of(layout.subject), NOUNS[1]
            about = {"nouns": nouns, "reversed_scores": {}}
            return table.replace(sources=(str(path),), **about)
    except (ValueError, OSError, pa.ArrowException):
        return None  # The usual way has the message, or more choices.


def _has_usual(options: ReadOptions) -> bool:
    """Whether no option asks for more than names of columns."""
    usual = ReadOptions()
    fields = {field.name for field in dataclasses.fields(usual)} - {*_ALIKE}
    return all(getattr(options, name) == getattr(usual, name) for name in fields)


def _columns(kind: str, path: Path) -> list[str]:
    """Names of the columns of a large Parquet or CSV file; none of another file."""
    if kind == "parquet":
        import pyarrow.parquet as pq

        about = pq.read_metadata(path)
        large = about.num_rows >= LEAST_ROWS
        return about.schema.to_arrow_schema().names if large else []
    large = kind == "csv" and path.stat().st_size >= LEAST_BYTES
    return header_of(path) if large else []


def _table(stream: ResponseStream, subjects: np.ndarray) -> ResponseTable:
    """The table of all responses of a stream."""
    (num_subjects, num_items), names = stream.shape, as_labels(stream.items.tolist())
    about: dict[str, Any] = {"subjects": subjects, "items": names}
    if is_sparse(stream.num_observed, num_subjects, num_items):
        return ResponseTable.from_cells(_cells(stream), **about)
    values = np.zeros(stream.shape, np.int8)
    observed = None if stream.is_complete else np.zeros(stream.shape, bool)
    for block in stream.blocks(_PART):
        part = block.dense(num_items)
        own = slice(block.first, block.first + block.num_subjects)
        np.maximum(part, 0, out=values[own])
        if observed is not None:
            np.greater_equal(part, 0, out=observed[own])
    return ResponseTable.from_arrays(values, observed=observed, **about)


def _cells(stream: ResponseStream) -> SparseCells:
    """The observed cells in the order of subjects, then of items."""
    column = np.empty(stream.num_observed, np.int32)
    value = np.empty(stream.num_observed, np.int8)
    done = 0
    for block in stream.blocks(_PART):
        assert isinstance(block, CellBlock)
        row = np.repeat(np.arange(block.num_subjects), np.diff(block.start))
        order = np.argsort(row * (2 * stream.shape[1]) + block.pair)
        own = slice(done, done + len(order))
        column[own], value[own] = np.divmod(block.pair[order], 2)
        done = own.stop
    start = np.concatenate([[0], np.cumsum(stream.observed, dtype=np.int64)])
    return SparseCells(start, column, value, stream.shape[1])
