"""The row groups of a Parquet file that each of several processes reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from irtjax.numerics.processes import Processes


def batches_between(
    file: Any, first: int, end: int, size: int, columns: list[str] | None
) -> Iterator[pa.RecordBatch]:
    """Rows from `first` to before `end`; other row groups are not read.

    Args:
        file: A `pyarrow.parquet.ParquetFile`.
        first: Number of a row.
        end: Number of a later row.
        size: Rows of a batch.
        columns: Names of the columns that are read, None for all.

    Returns:
        The batches: one without rows where there are none.
    """
    about = file.metadata
    sizes = [about.row_group(k).num_rows for k in range(about.num_row_groups)]
    ends = np.cumsum(sizes, dtype=np.int64)
    groups = np.flatnonzero((ends > first) & (ends - sizes < end)).tolist()
    if first >= end or not groups:
        none = pa.RecordBatch.from_pylist([], file.schema_arrow)
        yield none if columns is None else none.select(columns)
        return
    place = int(ends[groups[0]] - sizes[groups[0]])
    # Threads would take memory of their own, and the names take longer than decoding.
    options = {"columns": columns, "use_threads": False}
    for batch in file.iter_batches(size, row_groups=groups, **options):
        low, high = max(first - place, 0), min(end - place, batch.num_rows)
        if low < high:
            yield batch.slice(low, high - low)
        place += batch.num_rows


def tables_of_all(table: pa.Table, processes: Processes) -> list[pa.Table]:
    """The tables of all processes, which may have different numbers of rows."""
    if processes.count == 1:
        return [table]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    every = processes.gather(sink.getvalue().to_pybytes())
    return [pa.ipc.open_stream(x).read_all() for x in every]


def subjects_of_all(
    names: pa.Array, rows: np.ndarray, processes: Processes
) -> tuple[pa.Array, np.ndarray] | None:
    """All subjects and the first row of each, from consecutive rows by process.

    Args:
        names: Subjects of the rows of this process, in their order.
        rows: `[subjects]` rows of each; none where they do not follow each other.
        processes: The processes.

    Returns:
        Names, and first rows `[subjects + 1]`; None where the rows of a subject do not
        follow each other.

    >>> from irtjax.numerics.processes import ALONE
    >>> names, first = subjects_of_all(pa.array(["a", "b"]), np.array([3, 2]), ALONE)
    >>> names.to_pylist(), first.tolist()
    (['a', 'b'], [0, 3, 5])
    """
    in_order = len(rows) == len(names)
    number = rows if in_order else np.zeros(len(names), np.int64)
    columns = {"subject": names, "rows": pa.array(number.astype(np.int64))}
    tables = tables_of_all(pa.table(columns), processes)
    whole = pa.concat_tables(tables).combine_chunks()
    rows = whole["rows"].to_numpy()
    if not rows.all() or not len(rows):
        return None
    coded = whole["subject"].combine_chunks().dictionary_encode()
    codes = coded.indices.to_numpy()
    # A subject on the border of two processes has rows in both.
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    if len(first) > len(coded.dictionary):
        return None
    ends = np.cumsum(np.add.reduceat(rows, first))
    return coded.dictionary, np.concatenate([[0], ends])
