"""CSV, Parquet, Arrow and JSON files as Arrow tables, without Python per cell."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import functools
import gzip
import io
import itertools
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from irtjax.data.decode import (
    Fields,
    Record,
    decode,
    decode_lines,
    is_nested,
    repeated_keys,
)
from irtjax.data.files import (
    MOST_COLUMNS,
    check_columns,
    check_parquet,
    check_size,
    delimiter_of,
    is_encoded,
    read_bytes,
    read_head,
    read_text,
)
from irtjax.data.item_texts import cut, text_of
from irtjax.data.reading import json_tables
from irtjax.data.reading.columns import ITEM, SUBJECT, Columns, decide, find, plain_name
from irtjax.data.reading.options import ReadOptions, paths_in
from irtjax.data.reading.streamed import collect
from irtjax.data.reading.verdicts import percentage, verdicts_of
from irtjax.data.spreadsheets import is_text, restore, restore_names
from irtjax.numerics.memory import available_memory

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# What people write for a missing cell, other than nothing.
NULL_WORDS = (
    *("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "null", "NULL"),
    *("None", ".", "-", "--", "\u2013", "\u2014"),
)
PLAIN_WORDS = {"true": 1.0, "false": 0.0}
#: Bytes of a long table that are parsed at once. Arrow reads 32 blocks ahead.
_BLOCK = 1 << 22
#: Bytes of the first line within which columns are counted.
_LONGEST_LINE = 1 << 26


#: Of the names of columns and rising positions the rows, in parts.
Take: TypeAlias = Callable[[Sequence[str], np.ndarray], Iterable[pa.Table]]


#: How a comment begins.
_COMMENT = (b"#", b'"#')
#: Columns of a wide table that are read together, and bytes of a column below which.
_FEW_COLUMNS, _SHORT = 2000, 256
#: Null in the place of a record.
_NULL_RECORD = re.compile(rb"(?:\A|[\n}])\s*null")


class _Pandas(Record):
    """What pandas writes about its frame; a nameless index of numbers is an object."""

    index_columns: list[str | dict[str, Any]] = []


@dataclasses.dataclass
class Frame:
    """A table of columns as read, with a source for messages."""

    table: pa.Table
    index: str | None  # The column that was a pandas index.
    source: str
    headerless: bool = False  # Whether column names were made up.
    #: Takes rows of columns that were not read with the others, and all of the columns.
    take: Take | None = None
    names: Sequence[str] = ()
    unnamed: bool = False  # Whether rows of a matrix have no names, once it is read.
    #: Of a matrix of choices, the choices by column, once it is scored.
    choices: dict[str, list[Any]] | None = None

    def texts(self, columns: Sequence[str], rows: np.ndarray) -> list[list[str]]:
        """Texts of some rows, cut, of each column: "" where there is none.

        Args:
            columns: Names of columns, which need not be in `table`.
            rows: Positions in rising order.
        """
        if self.take is None:
            parts: Iterable[pa.Table] = [self.table.select(columns).take(rows)]
        else:
            parts = self.take(columns, rows)
        by_column: list[list[str]] = [[] for _ in columns]
        for part in parts:
            for texts, column in zip(by_column, part.columns, strict=True):
                cells = column.to_pylist()
                texts += [cut(text_of(cell)) for cell in cells]
        return by_column


def read_csv(path: Path, options: ReadOptions) -> Frame:
    """Reads CSV or TSV."""
    delimiter, lines = _first_lines(path)
    spaced = all(cell[:1] == " " for line in lines for cell in line[1:])
    if spaced:
        # "model, item, score": the space is part of the delimiter.
        lines = [[cell.strip(" ") for cell in line] for line in lines]
    has_header = _looks_like_header(lines) if options.header is None else options.header
    if has_header:
        names = restore_names(_distinct(lines[0]))
        layout = decide(names, None, options, str(path))
    else:
        start = [] if _first_is_response(lines) else ["subject"]
        names = start + [f"item {k}" for k in range(1, len(lines[0]) - len(start) + 1)]
        layout = Columns("subject")
    label_type = pa.dictionary(pa.int32(), pa.string())
    convert: dict[str, Any] = dict(
        # As text, item numbers keep their leading zeros.
        column_types=dict.fromkeys(layout.labels(), label_type),
        null_values=list(NULL_WORDS),
        include_columns=layout.used(),
    )
    if delimiter != "," and _has_decimal_commas(_started(read_head(path)), delimiter):
        convert["decimal_point"] = ","
    shape = {"column_names": names, "skip_rows": 1 if has_header else 0}
    take: Take | None = None
    table = None
    if layout.item and not is_encoded(path) and not spaced:
        table = _stream_csv(path, shape, delimiter, convert)
    if table is None:
        table = _whole_csv(path, shape, delimiter, convert, spaced=spaced)
    if layout.item and not spaced:
        take = functools.partial(_rows_of_csv, path, shape, delimiter)
    return Frame(restore(table), None, str(path), not has_header, take, names)


def read_plain_csv(path: Path) -> pa.Table:
    """Reads all columns of a CSV or TSV file with a header, of whatever roles."""
    delimiter, lines = _first_lines(path)
    names = restore_names(_distinct(lines[0]))
    convert: dict[str, Any] = {"null_values": list(NULL_WORDS), "include_columns": None}
    shape = {"column_names": names, "skip_rows": 1}
    return restore(_whole_csv(path, shape, delimiter, convert, spaced=False))


def header_of(path: Path) -> list[str]:
    """The names of the columns of a CSV file; none without a header."""
    _, lines = _first_lines(path)
    return restore_names(_distinct(lines[0])) if _looks_like_header(lines) else []


def _has_decimal_commas(head: bytes, delimiter: str) -> bool:
    """Whether cells are numbers with a comma for the decimals.

    No cell has a point then, and one has a comma that cannot separate thousands.
    """
    cell = rf'(?:^|[{delimiter}\n])"?%s"?(?=[{delimiter}\r\n]|$)'
    matches = lambda number: re.search((cell % number).encode(), head) is not None
    thousands = r"[1-9]\d{0,2},\d{3}"
    with_comma = rf"-?(?!{thousands}(?!\d))\d+,\d+"
    return matches(with_comma) and not matches(r"-?\d+\.\d+")


def _stream_csv(
    path: Path, shape: dict[str, Any], delimiter: str, convert: dict[str, Any]
) -> pa.Table | None:
    """Reads a long table block by block, so that its text is never all in memory.

    The first block determines the types of columns. None where a later one differs, or
    a line is no line of the table: then the file is read as a whole.
    """
    from pyarrow import csv as arrow_csv

    types = dict(convert["column_types"])
    quoted = _has_quotes(path)
    # Columns that hold text or nothing at first, and numbers that may have decimals.
    text = pa.dictionary(pa.int32(), pa.string())
    for _ in range(2):
        with open(path, "rb") as file:
            _skip_blank(file)
            try:
                reader = arrow_csv.open_csv(
                    pa.PythonFile(file, mode="r"),
                    arrow_csv.ReadOptions(**shape, block_size=_BLOCK),
                    arrow_csv.ParseOptions(
                        delimiter=delimiter, newlines_in_values=quoted
                    ),
                    arrow_csv.ConvertOptions(**{**convert, "column_types": types}),
                )
                inferred = {field.name: field.type for field in reader.schema}
                wider = {
                    name: pa.float64() if pa.types.is_integer(kind) else text
                    for name, kind in inferred.items()
                    if name not in types
                    and not pa.types.is_floating(kind)
                    and not pa.types.is_temporal(kind)
                }
                if not wider:
                    labels = convert["column_types"]
                    return collect(reader, reader.schema, labels, _expected(path))
                types |= wider
            except pa.ArrowInvalid:
                return None
    return None


def open_csv_batches(
    path: Path, null_values: Sequence[str]
) -> tuple[list[str], Callable[[Columns], Iterator[pa.RecordBatch]], int]:
    """Names of the columns of a CSV file, its batches, and about how many lines it has.

    The first batch determines the types of columns.
    """
    from pyarrow import csv as arrow_csv

    delimiter, lines = _first_lines(path)
    if not _looks_like_header(lines):
        raise ValueError(f"{path} has no names of columns: add a first line with them")
    names = restore_names(_distinct(lines[0]))

    def batches(layout: Columns) -> Iterator[pa.RecordBatch]:
        with _opened(path) as file:
            _skip_blank(file)
            yield from arrow_csv.open_csv(
                pa.PythonFile(file, mode="r"),
                arrow_csv.ReadOptions(
                    column_names=names, skip_rows=1, block_size=_BLOCK
                ),
                arrow_csv.ParseOptions(
                    delimiter=delimiter, newlines_in_values=_has_quotes(path)
                ),
                arrow_csv.ConvertOptions(
                    null_values=list(null_values),
                    # As text, numbers of items keep their leading zeros.
                    column_types=dict.fromkeys(layout.labels(), pa.string()),
                    include_columns=layout.used() or names,
                ),
            )

    return names, batches, _expected(path)


def _rows_of_csv(
    path: Path,
    shape: dict[str, Any],
    delimiter: str,
    columns: Sequence[str],
    rows: np.ndarray,
) -> Iterator[pa.Table]:
    """Rows of columns of a file, which is read as far as the last of them."""
    from pyarrow import csv as arrow_csv

    with _opened(path) as file:
        _skip_blank(file)
        reader = arrow_csv.open_csv(
            pa.PythonFile(file, mode="r"),
            arrow_csv.ReadOptions(**shape, block_size=_BLOCK),
            arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=_has_quotes(path)
            ),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                include_columns=list(columns),
            ),
        )
        yield from _rows_of(reader, rows)


def _rows_of(batches: Iterable[pa.RecordBatch], rows: np.ndarray) -> Iterator[pa.Table]:
    """The rows of these rising positions."""
    start = 0
    for batch in batches:
        low, high = np.searchsorted(rows, (start, start + batch.num_rows))
        if high > low:
            yield pa.Table.from_batches([batch]).take(rows[low:high] - start)
        if high == len(rows):
            return
        start += batch.num_rows


def _rows_of_parquet(
    file: pq.ParquetFile, columns: Sequence[str], rows: np.ndarray
) -> Iterator[pa.Table]:
    """Rows of columns, from the groups of rows that have any of them."""
    start = 0
    for group in range(file.metadata.num_row_groups):
        end = start + file.metadata.row_group(group).num_rows
        low, high = np.searchsorted(rows, (start, end))
        if high > low:
            batches = file.iter_batches(1 << 14, [group], list(columns))
            yield from _rows_of(batches, rows[low:high] - start)
        start = end


def _expected(path: Path) -> int:
    """Lines of a file, if they are like the first ones, and some more."""
    head = read_head(path)
    return int(1.1 * path.stat().st_size * max(head.count(b"\n"), 1) / len(head)) + 1


def _opened(path: Path) -> IO[bytes]:
    """Opens a file, to be unpacked while it is read."""
    if not is_encoded(path):
        return open(path, "rb")
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else io.BytesIO(read_bytes(path))  # type: ignore[return-value]


def _has_quotes(path: Path) -> bool:
    """Whether a file has a quotation mark."""
    with _opened(path) as file:
        return any(b'"' in block for block in iter(lambda: file.read(1 << 20), b""))


def _skip_blank(file: IO[bytes]) -> None:
    """Moves to the first byte of a file that is no mark and no end of a line."""
    head = file.read(1 << 16)
    start = _started(head)
    file.seek(len(head) - len(start))


def _started(content: bytes) -> bytes:
    """A file from its header on.

    Without a mark, blank lines, the line in which Excel notes commas, and comments.
    """
    content = content.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    line = re.match(rb'"?sep=[,;\t]"?\r?\n', content)
    content = content[line.end() :].lstrip(b"\r\n") if line else content
    if not content.startswith(_COMMENT):
        return content
    return content[_comments(content[: 1 << 16]) :].lstrip(b"\r\n")


def _comments(head: bytes) -> int:
    """Bytes of the first lines that begin with "#" and are no header.

    A header may begin with "#", too: it has as many cells as the line after it, which
    is then no header.
    """
    lines = head.splitlines(keepends=True)
    is_other = lambda line: line.strip() and not line.startswith(_COMMENT)
    others = [x.decode("latin-1") for x in itertools.islice(filter(is_other, lines), 2)]
    if not others:
        return 0
    delimiter = delimiter_of("".join(others))
    cells = lambda line: next(csv.reader([line], delimiter=delimiter), [])
    rows = [[cell.strip() for cell in cells(line)] for line in others]
    end, most, has_names = 0, len(rows[0]), _has_names(rows)
    for line in lines:
        row = cells(line.decode("latin-1"))
        is_header = len(row) == most and sum(map(bool, row)) > 1 and not has_names
        if is_other(line) or is_header:
            break
        end += len(line)
    return end


def _has_names(rows: list[list[str]]) -> bool:
    """Whether the first row names columns: the second has numbers below its texts."""
    first = rows[0]
    if any(cell.lower() in (*SUBJECT, *ITEM) for cell in first):
        return True
    below = rows[1] if len(rows) > 1 else []
    is_number = lambda cell: cell not in NULL_WORDS and parse_number(cell)[1]
    is_text = lambda cell: cell not in NULL_WORDS and not parse_number(cell)[1]
    pairs = itertools.islice(zip(first, below, strict=False), 1, None)
    return any(is_text(a) and is_number(b) for a, b in pairs)


def _refuse_title(path: Path, text: str, skipped: int) -> None:
    """Refuses a file with a title above its header.

    Args:
        path: The file.
        text: Its first lines.
        skipped: Lines before these.
    """
    lines = [(k, x) for k, x in enumerate(text.split("\n", 12)[:12]) if x.strip()]
    # Of a quotation mark that does not end the reader has an error of its own.
    if not lines or lines[0][1].count('"') % 2:
        return
    begin = next((k for k, (_, x) in enumerate(lines) if re.search("[,\t;]", x)), 0)
    delimiter = delimiter_of("\n".join(x for _, x in lines[begin:]) + "\n")
    cells = lambda line: next(csv.reader([line], delimiter=delimiter))
    try:
        rows = [[x.strip() for x in cells(line)] for _, line in lines]
    except csv.Error:
        return
    filled = [sum(map(bool, row)) for row in rows]
    header = next((k for k, count in enumerate(filled) if count > 1), 0)
    # The first row may also be of a subject whose responses are all missing.
    names = not any(parse_number(cell)[1] for cell in rows[header][1:])
    names = names or (rows[header][0] != "" and _looks_like_header(rows[header:]))
    if header and (names or len(rows[0]) == 1):
        number = lambda k: skipped + lines[k][0] + 1
        raise ValueError(
            f"{path}: row {number(0)}, {rows[0][0]!r:.80}, has one cell, and row"
            f" {number(header)} has {filled[header]:,}: delete what stands above the"
            " names of the columns"
        )


def _whole_csv(
    path: Path,
    shape: dict[str, Any],
    delimiter: str,
    convert: dict[str, Any],
    *,
    spaced: bool = False,
) -> pa.Table:
    """A CSV file that is read at once, not in pieces; `spaced`: after delimiters."""
    from pyarrow import csv as arrow_csv

    content = _started(read_bytes(path))
    if spaced:
        mark = delimiter.encode()
        content = re.sub(rb" *" + mark + rb" *", mark, content)
    names = shape["column_names"]
    # A block spans all columns: one of a few megabytes would cut a wide matrix into
    # thousands of tiny pieces.
    wide = len(names) > 1000
    block = min(len(content) + 1, 1 << 30) if wide else 0
    used = convert["include_columns"] or names
    # Ten thousand columns at once take Arrow 9 kB each, whatever they hold.
    short = wide and len(content) < _SHORT * len(names)
    step = _FEW_COLUMNS if short else max(len(used), 1)
    try:
        parts = [
            arrow_csv.read_csv(
                pa.BufferReader(content),
                arrow_csv.ReadOptions(
                    **shape, block_size=max(1 << 24, block), use_threads=not short
                ),
                arrow_csv.ParseOptions(
                    delimiter=delimiter, newlines_in_values=b'"' in content
                ),
                arrow_csv.ConvertOptions(
                    **{**convert, "include_columns": used[start : start + step]}
                ),
            )
            for start in range(0, len(used), step)
        ]
    except pa.ArrowInvalid as error:
        read_text(path)  # names the line if the text is not UTF-8
        raise ValueError(
            f"{path} is no table of equally long lines: {tidy(error)}"
        ) from None
    if len(parts) == 1:
        return parts[0]
    columns = [column for part in parts for column in part.columns]
    return pa.Table.from_arrays(columns, names=used)


def tidy(error: Exception) -> str:
    """The first line of an error, cut at 200 characters."""
    # Of a line of another length not its content: the file may be another's.
    text = re.sub(r"(Expected \d+ columns, got \d+): .*", r"\1", str(error), flags=re.S)
    text = text.splitlines()[0]
    return text if len(text) < 200 else text[:200] + "..."


def _first_lines(path: Path) -> tuple[str, list[list[str]]]:
    """Returns the delimiter and the cells of the first three lines."""
    head = read_head(path)
    if not head:
        raise ValueError(f"{path} is empty")  # Or waits for content, if it is opened.
    if head.count(b"\n") < 3:
        if b"\n" not in head.lstrip(b"\xef\xbb\xbf\r\n"):
            check_columns(path, _count_columns(path))
        head = read_bytes(path)
    if b"\0" in head:
        raise ValueError(f"{path} holds NUL bytes; save it as UTF-8 text")
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            read_text(path)  # raises with the line
        text = head.decode("utf-8-sig", errors="ignore")
    whole, text = text, _started(text.encode()).decode()
    skipped = whole.count("\n") - text.count("\n")
    text = io.StringIO(text, newline=None).read()
    _refuse_title(path, text, skipped)
    first = text.split("\n", 1)[0]
    delimiter = delimiter_of(text)
    check_columns(path, first.count(delimiter) + 1)
    rows = filter(None, csv.reader(io.StringIO(text), delimiter=delimiter))
    try:
        lines = list(itertools.islice(rows, 3))
    except csv.Error as error:
        raise ValueError(f"{path} is no readable table: {error}") from None
    if not lines:
        raise ValueError(f"{path} is empty")
    return delimiter, lines


def _count_columns(path: Path) -> int | None:
    """Columns of the first line, which is long; None if they are too many to count."""
    counts: Counter[bytes] = Counter()
    # A damaged file has an error of its own when it is read.
    with (
        contextlib.suppress(OSError, EOFError, zlib.error),
        _opened(path) as file,
    ):
        _skip_blank(file)
        for _ in range(_LONGEST_LINE >> 20):
            line, end, _ = (block := file.read(1 << 20)).partition(b"\n")
            counts.update({mark: line.count(mark) for mark in (b",", b"\t", b";")})
            if end or not block:
                break
            if max(counts.values()) > MOST_COLUMNS:
                return None
    return max(counts.values(), default=0) + 1


def parse_number(
    text: str | None, words: Mapping[str, float] = PLAIN_WORDS
) -> tuple[float | None, bool]:
    """Returns the number in a text, None if missing, and whether the text is valid."""
    stripped = "" if text is None else text.strip()
    if stripped in NULL_WORDS:
        return None, True
    number = words.get(stripped.lower())
    with contextlib.suppress(ValueError):
        return float(stripped) if number is None else number, True
    share = percentage(stripped)
    return share, share is not None


def _looks_like_header(lines: list[list[str]]) -> bool:
    """Whether the first line holds names: text, or distinct numbers counting up."""
    first, rest = lines[0], lines[0][1:]
    if not all(parse_number(cell)[1] for cell in rest):
        # Names of columns differ; letters and words of two rows of responses do not.
        below = [cell for line in lines[1:] for cell in line[1:]]
        twice = len(set(rest)) < len(rest) > 2
        # Below letters as names of columns there are numbers.
        words = not all(parse_number(cell)[1] for cell in below)
        return not (twice and words and all(map(_is_response, [*rest, *below])))
    counts_up = len(rest) >= 2 and _counts_up(rest)
    if parse_number(first[0])[1]:
        if not first[0].strip() and len(lines) > 1:
            return counts_up or not parse_number(lines[1][0])[1]
        return len(first) >= 3 and _counts_up(first)
    # Text in the first cell only: a name for the column of subjects, or a subject.
    is_role = plain_name(first[0]) in (*SUBJECT, *ITEM)
    return is_role or (counts_up and len(rest) > 2)


def _first_is_response(lines: list[list[str]]) -> bool:
    """Whether lines without a header begin with a response, not with a name."""
    if parse_number(lines[0][0])[1]:
        return True
    numbers = all(parse_number(cell)[1] for cell in lines[0][1:])
    return not numbers and all(_is_response(line[0]) for line in lines)


def _is_response(cell: str) -> bool:
    """Whether a cell is a number, a verdict or a letter."""
    is_letter = len(cell) == 1 and cell.isalpha() and cell.isascii()
    return is_letter or parse_number(cell)[1] or verdicts_of([cell]).knows(cell)


def _counts_up(cells: list[str]) -> bool:
    """Whether cells are numbers of items, not responses."""
    cells = [cell.strip() for cell in cells]
    if not all(cell.isdigit() for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    steps = {b - a for a, b in zip(numbers, numbers[1:], strict=False)}
    return steps == {1} or (len(set(numbers)) == len(numbers) and max(numbers) > 9)


def _distinct(names: list[str]) -> list[str]:
    """Makes equal column names unique, nearly as pandas does: q, q.1, q.2.

    >>> _distinct(["q", "q", "q.1", "q"])
    ['q', 'q.2', 'q.1', 'q.3']
    """
    seen: Counter[str] = Counter()
    taken = set(names)
    out = []
    for name in names:
        new = name
        while seen[name] and new in taken:
            new = f"{name}.{seen[name]}"
            seen[name] += 1
        taken.add(new)
        seen[name] += not seen[name]
        out.append(new)
    return out


def read_parquet(path: Path, options: ReadOptions) -> Frame:
    """Reads Parquet or an Arrow file; a pandas index is recognised by its metadata."""
    import pyarrow.parquet as pq

    take, names = None, ()
    try:
        if read_head(path)[:6] == b"ARROW1":
            arrow = pa.ipc.open_file(pa.memory_map(str(path)))
            check_columns(path, len(arrow.schema))
            table = arrow.read_all()
            # What is read from a damaged file is used as it is, beyond its end too.
            table.validate(full=True)
            check_size(path, table.num_rows * table.num_columns)
        else:
            file = _open_parquet(path)
            if paths_in(options, file.schema_arrow.names):
                check_parquet(path, file.metadata, None)
                return from_arrow(file.read(), str(path))
            layout = decide(file.schema_arrow.names, None, options, str(path))
            check_parquet(path, file.metadata, layout.used())
            nested = any(pa.types.is_nested(x.type) for x in file.schema_arrow)
            if layout.item and not nested:
                # Names as codes: a string for each row would take more memory. (Arrow
                # finds no columns by name where some are nested.)
                file = pq.ParquetFile(path, read_dictionary=layout.labels())
            used, table = layout.used(), None
            names = file.schema_arrow.names
            if used is not None and len(set(names)) == len(names):
                take = functools.partial(_rows_of_parquet, file)
                schema = pa.schema([file.schema_arrow.field(name) for name in used])
                batches = file.iter_batches(1 << 18, columns=used)
                rows = file.metadata.num_rows
                table = collect(batches, schema, layout.labels(), rows)
            if table is None:
                table = file.read(columns=used)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged or cut off: {tidy(error)}") from None
    return dataclasses.replace(from_arrow(table, str(path)), take=take, names=names)


def _open_parquet(path: Path) -> pq.ParquetFile:
    """Opens a Parquet file, if it has no more columns than can be read."""
    import pyarrow.parquet as pq

    # Its list of columns is not even decoded where it is too long.
    limit = MOST_COLUMNS + 1  # The root of the schema is one of its elements.
    try:
        file = pq.ParquetFile(path, thrift_container_size_limit=limit)
    except OSError as error:
        if "size limit" not in str(error):
            raise
        check_columns(path, None)
        raise
    check_columns(path, file.metadata.num_columns)
    return file


def from_arrow(table: pa.Table, source: str) -> Frame:
    """Wraps an Arrow table; finds the column that was a pandas index."""
    check_columns(source, table.num_columns)
    if len(set(table.column_names)) < table.num_columns:
        table = table.rename_columns(_distinct(table.column_names))
    index = None
    raw = (table.schema.metadata or {}).get(b"pandas")
    parts = list(table.columns)
    for k, part in enumerate(parts):
        kind = part.type
        if pa.types.is_dictionary(kind) and not is_text(kind.value_type):
            # Categories of numbers are numbers.
            parts[k] = part.cast(kind.value_type)
    layout = {"names": table.column_names, "metadata": table.schema.metadata}
    table = pa.Table.from_arrays(parts, **layout)
    if raw:
        # What another program wrote there is no reason to refuse the table.
        with contextlib.suppress(ValueError):
            columns = decode(raw, _Pandas, source).index_columns
            names = [c for c in columns if isinstance(c, str)]
            index = next((c for c in names if c in table.column_names), None)
    if index is not None and index.startswith("__index_level_"):
        # The nameless index of a filtered frame counts rows: a column of names wins.
        others = [name for name in table.column_names if name != index]
        if find(others, SUBJECT) is not None:
            return Frame(table.select(others), None, source)
    return Frame(table, index, source)


def read_json(path: Path) -> Frame:
    """Reads JSON lines, a JSON array of records, or a table in one object."""
    from pyarrow import json as arrow_json

    content = read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    array = content[:4096].lstrip()[:1] == b"["
    rows = [] if array else json_tables.rows_of(_one_object(content), str(path))
    # Arrow's reader crashes at some of these, and takes minutes for others.
    hard = is_nested(content) or _NULL_RECORD.search(content)
    if not (rows or array or hard or _has_many_fields(content)):
        try:
            table = arrow_json.read_json(pa.BufferReader(content))
            if not _has_wide_floats(table):
                return Frame(table, None, str(path))
        except pa.ArrowInvalid as error:
            # Fields of mixed type are read one by one.
            twice = re.search(r"Column\(/(.*)\) was specified twice", str(error))
            if twice:
                raise ValueError(
                    f"{path}: a record has the field {twice[1]!r:.80} twice; rename one"
                ) from None
    elif repeats := repeated_keys(content, str(path)):
        raise ValueError(f"{repeats[0]}; rename one")
    records = rows or _records(path, content)
    names = dict.fromkeys(key for record in records for key in record)
    check_columns(path, len(names))
    if len(names) * len(records) * 64 > available_memory():
        raise ValueError(
            f"{path}: its {len(records):,} records have {len(names):,} different fields"
            " in all; give records of the same fields"
        )
    return Frame(of_records(records), None, str(path))


def of_records(records: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Returns a table of records, null where one lacks a field.

    >>> of_records([{"a": 1}, {"b": "x"}]).to_pylist()
    [{'a': 1, 'b': None}, {'a': None, 'b': 'x'}]
    """
    rows = [{str(key): value for key, value in record.items()} for record in records]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: column_of([row.get(name) for row in rows]) for name in names}
    return pa.table(columns)


def _one_object(content: bytes) -> dict[str, Any]:
    """The object that a file is; nothing for JSON lines."""
    text = content.strip()
    line, end, _ = text.partition(b"\n")
    with contextlib.suppress(ValueError):
        if not end or line.rstrip()[-1:] != b"}":
            return decode(text, dict[str, Any], "")
    return {}


def _records(path: Path, content: bytes) -> list[dict[str, Any]]:
    """The records of JSON lines or an array, or the one that has several lines."""
    first = content.lstrip().partition(b"\n")[0].strip()
    if first == b"{" or (first[:1] == b"{" and first[-1:] in (b",", b"[", b"{")):
        return [decode(content, dict[str, Any], str(path))]
    return decode_lines(path, dict[str, Any])


def _has_many_fields(content: bytes) -> bool:
    """Whether some lines have many different fields, for which Arrow takes long."""
    names: set[str] = set()
    for start in range(0, len(content), len(content) // 50 + 1):
        begin = content.find(b"\n", start) + 1 if start else 0
        end = content.find(b"\n", begin)
        if len(names) > 500 or begin < start:
            break
        with contextlib.suppress(ValueError):
            line = content[begin : None if end < 0 else end]
            fields: Fields = decode(line, Fields, "")
            names |= fields.keys()
    return len(names) > 500


def _has_wide_floats(table: pa.Table) -> bool:
    """Whether a column has floats that may have been different whole numbers."""
    for column in table.columns:
        if pa.types.is_floating(column.type):
            values = np.concatenate([np.zeros(1), column.drop_null().to_numpy()])
            if np.abs(values[np.isfinite(values)]).max() >= 2**53:
                return True
    return False


def column_of(values: list[Any]) -> pa.Array:
    """A column, as text if its values are of several types."""
    texts = texts_of_mixed(values)
    return pa.array(values) if texts is None else pa.array(texts, pa.string())


def texts_of_mixed(values: list[Any]) -> list[str | None] | None:
    """Values as texts, if they are of several types or too wide; else None."""
    try:
        # Arrow would make one float of two whole numbers beside a fraction.
        wide = any(isinstance(x, int) and abs(x) > 2**53 for x in values)
        if not (wide and any(isinstance(x, float) for x in values)):
            pa.array(values)
            return None
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        pass
    text = lambda x: x if isinstance(x, str) else json.dumps(x, default=str)
    is_missing = lambda x: x is None or (isinstance(x, float) and math.isnan(x))
    return [None if is_missing(x) else text(x) for x in values]
