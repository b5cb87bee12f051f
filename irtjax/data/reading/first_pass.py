"""The first pass over a file larger than memory: from names to a `ResponseStream`.

A long file (a row for each response) or a wide one (a row for each subject), Parquet or
CSV, is read once in batches. Names become numbers in the order in which they occur, and
responses go to files of plain numbers. If the rows of a subject do not follow each
other, they are sorted once: rows are distributed to parts of the file, each of
consecutive subjects and small enough to be sorted in memory. No more than a batch, the
names and a few numbers for each subject and item are in memory.

Of several processes each reads the row groups of its own subjects, where the file is
Parquet and the rows of a subject follow each other: first the subjects of an even share
of the row groups, from which all processes have the first row of every subject, then
the rows of its own. Items are numbered in the order of the file, as by one process.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from irtjax.data.files import read_head
from irtjax.data.reading.columns import Columns, decide
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.row_groups import (
    batches_between,
    subjects_of_all,
    tables_of_all,
)
from irtjax.data.reading.streamed import TextCodes
from irtjax.data.reading.tabular import NULL_WORDS, open_csv_batches, tidy
from irtjax.data.stream import (
    BLOCK_CELLS,
    COLUMNS,
    MATRIX,
    MATRIX_SHARE,
    VALUES,
    CellBlock,
    ResponseStream,
    StreamedBlock,
)
from irtjax.data.table_files import is_saved_table
from irtjax.numerics.processes import ALONE, Processes
from irtjax.numerics.progress import note_share

#: Arrow's functions are made when it is loaded.
_arrow: Any = compute
#: Rows of a batch of a long file, and cells of one of a wide file.
_ROWS = 2**16
#: Runs of rows of one subject whose names are numbered together.
_RUNS = 2**18
#: Rows that are sorted in memory at a time.
_SORTED = 2**22
#: Cells that are summed at a time.
_PART = 2**18
#: Largest response: responses are stored in a byte.
_MOST = 127
#: Files of the first pass alone, and the names of subjects.
_ROW, SUBJECTS = "rows.int32", "subjects.arrow"


def make_stream(
    path: Path, folder: Path, options: ReadOptions, processes: Processes = ALONE
) -> ResponseStream:
    """Reads a file into a folder of blocks.

    Args:
        path: A Parquet or CSV file, long or wide.
        folder: An empty folder, which takes at most nine bytes for each response.
        options: `subject`, `item`, `benchmark` and `response` name columns of a long
            file.
        processes: Those that divide the subjects; each has a folder of its own.

    Returns:
        The stream; `subject_names` reads the names of its subjects.

    Raises:
        ValueError: The file is damaged, or has something that a stream does not: words
            as responses, repeated responses, further columns that tell items apart than
            one of benchmarks.
    """
    with _refused_by_all(path, processes):
        file, batches, rows, layout = _open(path, options)
    if processes.count > 1 and file is not None:
        if not layout.item:
            own = processes.own(rows)
            batches = batches_between(file, own.start, own.stop, _size(file), None)
            return _wide(
                path, folder, batches, len(range(rows)[own]), layout, processes
            )
        subjects = _subjects(path, folder, file, layout, processes)
        if subjects is not None:
            return _own_long(path, folder, file, layout, processes, *subjects)
    with _refused_by_all(path, processes):
        read = _long if layout.item else _wide
        stream = read(path, folder, batches, rows, layout)
    return dataclasses.replace(stream, processes=processes)


def subject_names(folder: Path) -> Iterator[pa.Array]:
    """The names of the subjects of a stream, in parts, in its order."""
    with pa.memory_map(str(folder / SUBJECTS)) as file:
        for batch in pa.ipc.open_stream(file):
            yield batch.column(0)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Refuses a damaged file in one line that names it."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is damaged or cut off: {tidy(error)}") from None
    except OSError as error:
        if error.filename is not None:  # Of the folder, not of what the file holds.
            raise
        raise ValueError(f"{path} is damaged or cut off: {tidy(error)}") from None


@contextlib.contextmanager
def _refused_by_all(path: Path, processes: Processes) -> Iterator[None]:
    """Refuses in every process what one of them refuses, or what is damaged."""
    with processes.agreeing(), _named(path):
        yield


def _size(file: Any) -> int:
    """Rows of a batch of a wide Parquet file."""
    return max(1, BLOCK_CELLS // (2 * len(file.schema_arrow.names)))


def _open(
    path: Path, options: ReadOptions
) -> tuple[Any, Iterable[pa.RecordBatch], int, Columns]:
    """A Parquet file or None, its batches, about how many rows, what columns mean."""
    import pyarrow.parquet as pq

    if not path.is_file():
        raise ValueError(f"no such file: {path}")
    if read_head(path)[:4] != b"PAR1":
        names, batches, rows = open_csv_batches(path, NULL_WORDS)
        layout = _checked(decide(names, None, options, str(path)), path)
        return None, batches(layout), rows, layout
    file = pq.ParquetFile(path, pre_buffer=False)
    if is_saved_table(file.schema_arrow):
        raise ValueError(
            f"{path} is a saved response table, which is read as a whole: stream the"
            " file that it was made from, or fit it without --stream"
        )
    names = file.schema_arrow.names
    layout = _checked(
        decide(names, _index(file.schema_arrow), options, str(path)), path
    )
    used, rows = layout.used(), file.metadata.num_rows
    batches = batches_between(file, 0, rows, _ROWS if used else _size(file), used)
    return file, batches, rows, layout


def _index(schema: pa.Schema) -> str | None:
    """The column that was the index of a pandas frame."""
    names = (schema.pandas_metadata or {}).get("index_columns") or [None]
    return names[0] if isinstance(names[0], str) else None


def _checked(layout: Columns, path: Path) -> Columns:
    """A layout of subjects, items and responses alone; others are refused."""
    others = {
        name: getattr(layout, name)
        for name in ("metric", "filter", "trial", "trials", "error", "key")
        if getattr(layout, name) is not None
    }
    if layout.item and (others or len(layout.item) > 1 or len(layout.responses) > 1):
        further = *others.values(), *layout.item[1:], *layout.responses[1:]
        column = further[0]
        raise ValueError(
            f"{path}: a stream has one column each of subjects, items, benchmarks and"
            f" responses, and {column!r} is another: select the rows, and write them"
            " without it"
        )
    if layout.transposed or (layout.item and not (layout.subject and layout.responses)):
        raise ValueError(
            f"{path}: a stream needs a row for each response or each subject: name the"
            " columns by --subject, --item and --response, or leave --stream out"
        )
    return layout


class _Subjects:
    """Numbers of subjects from runs of rows of one subject, and their names on disk."""

    def __init__(self, folder: Path, numbers: IO[bytes], place: str) -> None:
        self.place = place
        self.file = numbers
        self.names = pa.array([], pa.string())
        self.waiting: list[tuple[pa.Array, np.ndarray]] = []
        self.num_waiting, self.last, self.is_sorted = 0, -1, True
        self.folder = folder

    def add(self, column: pa.Array, valid: np.ndarray) -> None:
        """Takes the next rows, and which of them have a response."""
        if not len(column):
            return
        coded = (
            column
            if pa.types.is_dictionary(column.type)
            else column.dictionary_encode()
        )
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        first = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1))
        if codes.min() < 0:
            raise ValueError(
                f"{self.place}: a row has no subject: fill the column, or drop the row"
            )
        labels = coded.dictionary.cast(pa.string()).take(pa.array(codes[first]))
        self.waiting.append((labels, np.add.reduceat(valid.astype(np.int32), first)))
        self.num_waiting += len(first)
        if self.num_waiting >= _RUNS:
            self.flush()

    def flush(self) -> None:
        """Numbers the runs that wait, and writes the number of each of their rows."""
        if not self.waiting:
            return
        labels = pa.concat_arrays([part for part, _ in self.waiting])
        lengths = np.concatenate([length for _, length in self.waiting])
        self.waiting, self.num_waiting = [], 0
        places = _arrow.index_in(labels, self.names)
        new = labels.filter(places.is_null()).unique()
        if len(new):
            offset = len(self.names)
            self.names = pa.concat_arrays([self.names, new])
            later = _arrow.index_in(labels, new).to_numpy(zero_copy_only=False) + offset
            earlier = places.to_numpy(zero_copy_only=False)
            codes = np.where(np.isnan(earlier), later, earlier).astype(np.int32)
        else:
            codes = places.to_numpy(zero_copy_only=False).astype(np.int32)
        rising = codes[0] >= self.last and bool((np.diff(codes) >= 0).all())
        self.is_sorted, self.last = self.is_sorted and rising, int(codes[-1])
        np.repeat(codes, lengths).tofile(self.file)

    def close(self) -> int:
        """Writes the names; returns their number."""
        self.flush()
        _write_names(self.folder, [self.names])
        return len(self.names)


def _write_names(folder: Path, parts: list[pa.Array]) -> None:
    """Writes names of subjects, in parts of about a million."""
    schema = pa.schema([("subject", pa.string())])
    with pa.OSFile(str(folder / SUBJECTS), "wb") as file:
        with pa.ipc.new_stream(file, schema) as writer:
            for part in parts:
                table = pa.table({"subject": part}, schema=schema)
                writer.write_table(table, max_chunksize=2**20)


def _responses(column: pa.Array, place: str) -> tuple[np.ndarray, np.ndarray]:
    """Responses as int8, and which rows have one."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ValueError(
            f"{place} holds {kind}: a stream needs responses that are numbers,"
            " such as 0 and 1"
        )
    valid = np.ones(len(column), bool)
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        column = column.fill_null(0)
    numbers = column.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        valid = valid & ~np.isnan(numbers)
        numbers = np.where(valid, numbers, 0)
    small = _as_bytes(numbers, place)
    return small, valid


def _as_bytes(numbers: np.ndarray, place: str) -> np.ndarray:
    """Whole numbers from 0 to 127 as int8; others are refused."""
    with np.errstate(invalid="ignore"):
        small = numbers.astype(np.int8)
    bad = (small != numbers) | (small < 0)
    if bad.any():
        raise ValueError(
            f"{place} has the response {numbers[bad][0]:g}: a stream needs"
            f" whole numbers from 0 to {_MOST}; scores are fitted without --stream"
        )
    return small


class _Items:
    """Numbers of items, each of one benchmark if the file has a column of these."""

    def __init__(self, layout: Columns) -> None:
        self.columns = layout.item[0], layout.benchmark
        self.items, self.benchmarks = TextCodes(), TextCodes()
        self.number_of: dict[int, int] = {}

    def convert(self, batch: pa.RecordBatch) -> np.ndarray:
        """The number of the item of each row."""
        item, benchmark = self.columns
        items = self.items.convert(batch.column(item))
        if benchmark is None:
            return items
        pairs = self.benchmarks.convert(batch.column(benchmark)).astype(np.int64) << 32
        pairs, first, place = np.unique(
            pairs | items, return_index=True, return_inverse=True
        )
        order, number_of = np.argsort(first), self.number_of
        numbers = np.empty(len(pairs), np.int32)
        numbers[order] = [
            number_of.setdefault(x, len(number_of)) for x in pairs[order].tolist()
        ]
        return numbers[place]

    def labels(self) -> pa.Table:
        """The columns of items and benchmarks, with a row for each number."""
        item, benchmark = self.columns
        items = pa.array([*self.items.code_of], pa.string())
        if benchmark is None:
            return pa.table({item: items})
        pairs = np.array([*self.number_of], np.int64)
        labels = pa.array([*self.benchmarks.code_of], pa.string())
        number, of_benchmark = pa.array(pairs & (2**32 - 1)), pa.array(pairs >> 32)
        return pa.table(
            {item: items.take(number), benchmark: labels.take(of_benchmark)}
        )

    def names(self, path: Path) -> tuple[np.ndarray, np.ndarray | None]:
        """Names of the items, and their benchmarks.

        As in memory, the benchmark is part of names where two have items of one name.
        """
        names = np.array([*self.items.code_of], dtype=str)
        if self.columns[1] is None:
            return names, None
        pairs = np.array([*self.number_of], np.int64)
        names = names[pairs & (2**32 - 1)]
        labels = np.array([*self.benchmarks.code_of], dtype=str)[pairs >> 32]
        if len(np.unique(names)) < len(names):
            of_benchmark = zip(names.tolist(), labels.tolist(), strict=True)
            done = lambda name, prefix: not prefix or name.startswith(f"{prefix}/")
            joined = [
                x if done(x, prefix) else f"{prefix}/{x}" for x, prefix in of_benchmark
            ]
            names = np.array(joined)
        values, counts = np.unique(names, return_counts=True)
        if (counts > 1).any():
            name = str(values[np.argmax(counts)])
            raise ValueError(
                f"{path}: two items are called {name!r:.80} with their benchmarks: give"
                " items distinct names"
            )
        return names, labels


def _long(
    path: Path,
    folder: Path,
    batches: Iterable[pa.RecordBatch],
    rows: int,
    layout: Columns,
) -> ResponseStream:
    """The stream of a long file."""
    assert layout.subject is not None
    subject = layout.subject
    with open(folder / _ROW, "wb") as of_rows:
        subjects = _Subjects(folder, of_rows, str(path))
        add = lambda batch, valid: subjects.add(batch.column(subject), valid)
        items = _write_cells(path, folder, batches, rows, layout, add)
        count = subjects.close()
    names, benchmarks = items.names(path)
    observed = _counted(folder / _ROW, count)
    if not subjects.is_sorted:
        _sort(folder, observed)
    (folder / _ROW).unlink()
    stream = _finished(path, folder, names, observed)
    return dataclasses.replace(stream, benchmarks=benchmarks)


def _write_cells(
    path: Path,
    folder: Path,
    batches: Iterable[pa.RecordBatch],
    rows: int,
    layout: Columns,
    add: Callable[[pa.RecordBatch, np.ndarray], None],
) -> _Items:
    """Writes items and responses of a long file; returns the items.

    `add` is called with each batch, and which of its rows have a response.
    """
    response = layout.responses[0]
    items, done, place = _Items(layout), 0, f"{path}: column {response!r}"
    with (
        open(folder / COLUMNS, "wb") as of_columns,
        open(folder / VALUES, "wb") as of_values,
    ):
        for batch in batches:
            values, valid = _responses(batch.column(response), place)
            columns = items.convert(batch)
            add(batch, valid)
            (columns if valid.all() else columns[valid]).tofile(of_columns)
            (values if valid.all() else values[valid]).tofile(of_values)
            done += batch.num_rows
            note_share(min(done / max(rows, 1), 1) / 2, "read")
    return items


def _subjects(
    path: Path, folder: Path, file: Any, layout: Columns, processes: Processes
) -> tuple[pa.Array, np.ndarray] | None:
    """Names of all subjects, and the first row of each; each process reads a share.

    None where the rows of a subject do not follow each other.
    """
    assert layout.subject is not None
    own = processes.own(file.metadata.num_row_groups)
    sizes = [file.metadata.row_group(k).num_rows for k in range(own.stop)]
    ends = sum(sizes[: own.start]), sum(sizes)
    with (
        _refused_by_all(path, processes),
        open(folder / _ROW, "wb") as numbers,
    ):
        subjects = _Subjects(folder, numbers, str(path))
        for batch in batches_between(file, *ends, _ROWS, [layout.subject]):
            subjects.add(batch.column(0), np.ones(batch.num_rows, bool))
        subjects.flush()
    rows = _counted(folder / _ROW, len(subjects.names))
    (folder / _ROW).unlink()
    in_order = rows if subjects.is_sorted else rows[:0]
    return subjects_of_all(subjects.names, in_order, processes)


class _Observed:
    """Responses of subjects whose rows follow each other."""

    def __init__(self, start: np.ndarray) -> None:
        self.start = start - start[0]
        self.count = np.zeros(len(start) - 1, np.int32)
        self.row = 0

    def add(self, batch: pa.RecordBatch, valid: np.ndarray) -> None:
        """Counts the next rows, of which `valid` have a response."""
        low, high = self.row, self.row + batch.num_rows
        first = np.searchsorted(self.start, low, side="right") - 1
        end = np.searchsorted(self.start, high)
        edges = np.clip(self.start[first : end + 1], low, high) - low
        total = np.concatenate([[0], np.cumsum(valid)])
        self.count[first:end] += np.diff(total[edges])
        self.row = high


def _own_long(
    path: Path,
    folder: Path,
    file: Any,
    layout: Columns,
    processes: Processes,
    subjects: pa.Array,
    start: np.ndarray,
) -> ResponseStream:
    """The stream of a long file in the order of subjects, each reading its own rows."""
    own = processes.own(len(subjects))
    first, end = int(start[own.start]), int(start[own.stop])
    part = _Observed(start[own.start : own.stop + 1])
    columns = [name for name in layout.used() or [] if name != layout.subject]
    with _refused_by_all(path, processes):
        batches = batches_between(file, first, end, _ROWS, columns)
        local = _write_cells(path, folder, batches, end - first, layout, part.add)
    items = _Items(layout)
    tables = tables_of_all(local.labels(), processes)
    none = np.zeros(0, np.int32)
    numbers = [
        np.concatenate([none, *map(items.convert, x.to_batches())]) for x in tables
    ]
    own_numbers = numbers[processes.number]
    if not np.array_equal(own_numbers, np.arange(len(own_numbers))):
        _recode(folder / COLUMNS, own_numbers)
    _write_names(folder, [subjects])
    names, benchmarks = items.names(path)
    observed = np.zeros(len(subjects), np.int32)
    observed[own] = part.count
    observed = processes.gather_rows(observed)
    stream = _finished(path, folder, names, observed, processes)
    return dataclasses.replace(stream, benchmarks=benchmarks)


def _recode(path: Path, numbers: np.ndarray) -> None:
    """Replaces each number of a file by that at its place."""
    new = path.with_suffix(".coded")
    with open(new, "wb") as file:
        for part in _chunks(path, numbers.dtype):
            numbers[part].tofile(file)
    new.replace(path)


def _counted(path: Path, count: int) -> np.ndarray:
    """How often each number below `count` is in a file of int32."""
    total = np.zeros(count, np.int32)
    for numbers in _chunks(path, np.int32):
        total += np.bincount(numbers, minlength=count).astype(np.int32)
    return total


def _chunks(path: Path, dtype: Any, size: int = _PART) -> Iterator[np.ndarray]:
    """The numbers of a file, so many at a time."""
    with open(path, "rb") as file:
        while len(numbers := np.fromfile(file, dtype, size)):
            yield numbers


def _sort(folder: Path, observed: np.ndarray) -> None:
    """Sorts the cells by subject, in two sequential passes over the files.

    Cells are distributed to parts of new files, in which each part of consecutive
    subjects has its place, and then sorted part by part.
    """
    start = np.concatenate([[0], np.cumsum(observed, dtype=np.int64)])
    wanted = np.arange(0, start[-1], _SORTED)
    first = np.unique(np.searchsorted(start, wanted, side="right") - 1)
    ends = np.append(start[first[1:]], start[-1])
    place = start[first].copy()
    kinds = {_ROW: np.int32, COLUMNS: np.int32, VALUES: np.int8}
    size = int(start[-1])
    new = {name: folder / f"sorted-{name}" for name in kinds}
    for name, kind in kinds.items():
        with open(new[name], "wb") as file:
            file.truncate(size * np.dtype(kind).itemsize)
    with contextlib.ExitStack() as stack:
        out = {name: stack.enter_context(open(new[name], "r+b")) for name in kinds}
        parts = zip(
            *(_chunks(folder / name, kinds[name]) for name in kinds), strict=True
        )
        done = 0
        for rows, columns, values in parts:
            part = np.searchsorted(first, rows, side="right") - 1
            order = np.argsort(part, kind="stable")
            edges = np.searchsorted(part[order], np.arange(len(first) + 1))
            cells = {_ROW: rows[order], COLUMNS: columns[order], VALUES: values[order]}
            for k in np.flatnonzero(np.diff(edges)):
                own = slice(edges[k], edges[k + 1])
                for name, numbers in cells.items():
                    out[name].seek(int(place[k]) * numbers.itemsize)
                    numbers[own].tofile(out[name])
                place[k] += edges[k + 1] - edges[k]
            done += len(rows)
            note_share(0.5 + 0.25 * done / size, "sort")
        for begin, end in zip(start[first], ends, strict=True):
            cells = {}
            for name, kind in kinds.items():
                out[name].flush()
                offset = int(begin) * np.dtype(kind).itemsize
                cells[name] = np.fromfile(
                    new[name], kind, int(end - begin), offset=offset
                )
            order = np.argsort(cells[_ROW], kind="stable")
            for name in (COLUMNS, VALUES):
                out[name].seek(int(begin) * cells[name].itemsize)
                cells[name][order].tofile(out[name])
            note_share(0.75 + 0.1 * end / size, "sort")
    new[_ROW].unlink()
    for name in (COLUMNS, VALUES):
        new[name].replace(folder / name)


def _finished(
    path: Path,
    folder: Path,
    items: np.ndarray,
    observed: np.ndarray,
    processes: Processes = ALONE,
) -> ResponseStream:
    """The stream of sorted cells; of all cells where these are fewer bytes."""
    by_value = np.zeros(_MOST + 1, np.int64)
    for values in _chunks(folder / VALUES, np.int8):
        by_value += np.bincount(values, minlength=_MOST + 1)
    codes = _codes(processes.sum(by_value), path)
    number = np.zeros(_MOST + 1, np.int8)
    number[codes] = np.arange(len(codes))
    if not np.array_equal(codes, np.arange(len(codes))):
        _recode(folder / VALUES, number)
    stream = _without_sums(folder, items, codes, False, observed, processes)
    share = stream.num_observed / max(observed.size * len(items), 1)
    as_matrix = share >= MATRIX_SHARE
    with _refused_by_all(path, processes), open(folder / MATRIX, "wb") as file:
        for block in stream.blocks(_PART):
            assert isinstance(block, CellBlock)
            _add_sums(block, stream, path)
            if as_matrix:
                block.dense(len(items)).tofile(file)
    for name in (COLUMNS, VALUES) if as_matrix else (MATRIX,):
        (folder / name).unlink()
    return dataclasses.replace(_of_all(stream), is_matrix=as_matrix)


def _without_sums(
    folder: Path,
    items: np.ndarray,
    codes: np.ndarray,
    is_matrix: bool,
    observed: np.ndarray,
    processes: Processes,
) -> ResponseStream:
    """A stream whose sums are still 0, of the own subjects of this process."""
    return ResponseStream(
        folder,
        items,
        codes,
        is_matrix,
        np.zeros((len(items), len(codes)), np.int64),
        observed,
        np.zeros(len(observed)),
        np.zeros(len(observed)),
        processes=processes,
        first=processes.own(len(observed)).start,
    )


def _of_all(stream: ResponseStream) -> ResponseStream:
    """A stream with the sums of all processes."""
    return dataclasses.replace(
        stream,
        counts=stream.processes.sum(stream.counts),
        total=stream.processes.gather_rows(stream.total),
        squares=stream.processes.gather_rows(stream.squares),
    )


def _codes(by_value: np.ndarray, path: Path) -> np.ndarray:
    """The responses that occur, at least two."""
    codes = np.flatnonzero(by_value)
    if len(codes) == 1 and codes[0] in (0, 1):
        codes = np.arange(2)
    if len(codes) < 2:
        what = f"is {codes[0]}" if len(codes) else "is missing"
        raise ValueError(f"{path}: every response {what}: nothing can be estimated")
    return codes


def _add_sums(block: CellBlock, stream: ResponseStream, path: Path) -> None:
    """Adds a block's sums to those of a stream; repeated responses are refused."""
    count, (_, num_items) = len(stream.codes), stream.shape
    stream.counts.ravel()[:] += np.bincount(block.pair, minlength=stream.counts.size)
    item, category = np.divmod(block.pair, count)
    row = np.repeat(np.arange(block.num_subjects), np.diff(block.start))
    response = stream.codes[category]
    own = slice(block.first, block.first + block.num_subjects)
    for total, numbers in ((stream.total, response), (stream.squares, response**2)):
        total[own] = np.bincount(row, numbers, minlength=block.num_subjects)
    cell = np.sort(row * np.int64(num_items) + item)
    twice = np.flatnonzero(np.diff(cell) == 0)
    if not len(twice):
        return
    who, what = divmod(int(cell[twice[0]]), num_items)
    name = pa.chunked_array([*subject_names(stream.folder)])[block.first + who].as_py()
    raise ValueError(
        f"{path}: subject {name!r:.80} has several responses to item"
        f" {str(stream.items[what])!r:.80}: leave --stream out, or write one for each"
    )


def _wide(
    path: Path,
    folder: Path,
    batches: Iterable[pa.RecordBatch],
    rows: int,
    layout: Columns,
    processes: Processes = ALONE,
) -> ResponseStream:
    """The stream of a wide file: all cells, whatever share of them is observed."""
    names, items, parts, done = [], [], [np.zeros(0, np.int32)], 0
    by_value = np.zeros(_MOST + 2, np.int64)
    with _refused_by_all(path, processes), open(folder / MATRIX, "wb") as file:
        for batch in batches:
            subject, items = _sides(batch, layout, path)
            names.append(batch.column(subject).cast(pa.string()))
            values = _matrix(batch.select(items), f"{path}: an item")
            values.tofile(file)
            by_value += np.bincount(values.ravel() + 1, minlength=_MOST + 2)
            done += batch.num_rows
            note_share(min(done / max(rows, 1), 1) * 0.8, "read")
            parts.append((values >= 0).sum(axis=1, dtype=np.int32))
    part = pa.table({"subject": pa.chunked_array(names, pa.string())})
    subjects = pa.concat_tables(tables_of_all(part, processes))["subject"]
    if len(subjects.unique()) < len(subjects):
        raise ValueError(f"{path}: a subject has several rows: merge them")
    _write_names(folder, subjects.chunks)
    codes = _codes(processes.sum(by_value)[1:], path)
    observed = np.zeros(len(subjects), np.int32)
    observed[processes.own(len(subjects))] = np.concatenate(parts)
    observed = processes.gather_rows(observed)
    labels = np.array(items, dtype=str)
    stream = _without_sums(folder, labels, codes, True, observed, processes)
    number = np.full(_MOST + 2, -1, np.int8)
    number[codes + 1] = np.arange(len(codes))
    with open(folder / MATRIX, "r+b") as file:
        for block in stream.blocks():
            assert isinstance(block, StreamedBlock)
            responses = np.maximum(block.values, 0).astype(np.float64)
            own = slice(block.first, block.first + block.num_subjects)
            stream.total[own] = responses.sum(axis=1)
            stream.squares[own] = (responses**2).sum(axis=1)
            coded = number[block.values + 1]
            for category in range(len(codes)):
                stream.counts[:, category] += (coded == category).sum(axis=0)
            file.seek((block.first - stream.first) * len(items))
            coded.tofile(file)
    return _of_all(stream)


def _sides(batch: pa.RecordBatch, layout: Columns, path: Path) -> tuple[str, list[str]]:
    """The column of subjects, and those of items, of a wide file."""
    names = batch.schema.names
    subject = layout.subject or names[0]
    items = [name for name in names if name != subject]
    kinds = {name: batch.schema.field(name).type for name in items}
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    for name, kind in kinds.items():
        if not any(check(kind) for check in is_number):
            raise ValueError(
                f"{path}: column {name!r} holds {kind}: a stream needs a column of"
                " subjects and one of numbers for each item"
            )
    return subject, items


def _matrix(batch: pa.RecordBatch, place: str) -> np.ndarray:
    """The cells of a batch as int8, -1 where missing."""
    whole = [
        pa.float32() if pa.types.is_boolean(x.type) else x.type for x in batch.schema
    ]
    schema = pa.schema(
        [(name, kind) for name, kind in zip(batch.schema.names, whole, strict=True)]
    )
    numbers = batch.cast(schema).to_tensor(null_to_nan=True).to_numpy()
    missing = np.isnan(numbers) if numbers.dtype.kind == "f" else np.zeros(1, bool)
    filled = np.where(missing, 0, numbers) if missing.any() else numbers
    values = _as_bytes(filled, place)
    return np.ascontiguousarray(np.where(missing, np.int8(-1), values))
