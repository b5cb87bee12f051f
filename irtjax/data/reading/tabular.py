"""CSV, Parquet, Arrow and JSON files as Arrow tables, without Python per cell."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from irtjax.data.decode import Fields, Record, decode, decode_lines, is_nested
from irtjax.data.files import (
    check_columns,
    check_parquet,
    check_size,
    free_memory,
    read_bytes,
    read_head,
    read_text,
)
from irtjax.data.reading.columns import ITEM, SUBJECT, Columns, decide, find
from irtjax.data.reading.options import ReadOptions

# What people write for a missing cell, other than nothing.
NULL_WORDS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", ".")
PLAIN_WORDS = {"true": 1.0, "false": 0.0}


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


def read_csv(path: Path, options: ReadOptions) -> Frame:
    """Reads CSV or TSV."""
    from pyarrow import csv as arrow_csv

    delimiter, lines = _first_lines(path)
    has_header = _looks_like_header(lines) if options.header is None else options.header
    if has_header:
        names = _distinct(lines[0])
        layout = decide(names, None, options, str(path))
    else:
        start = [] if parse_number(lines[0][0])[1] else ["subject"]
        names = start + [f"item {k}" for k in range(1, len(lines[0]) - len(start) + 1)]
        layout = Columns("subject")
    content = read_bytes(path).lstrip(b"\r\n")
    # A block spans all columns: one of a few megabytes would cut a wide matrix into
    # thousands of tiny pieces.
    block = min(len(content) + 1, 1 << 30) if len(names) > 1000 else 0
    label_type = pa.dictionary(pa.int32(), pa.string())
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(content),
            read_options=arrow_csv.ReadOptions(
                column_names=names,
                skip_rows=1 if has_header else 0,
                block_size=max(1 << 24, block),
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=b'"' in content
            ),
            convert_options=arrow_csv.ConvertOptions(
                # As text, item numbers keep their leading zeros.
                column_types=dict.fromkeys(layout.labels(), label_type),
                null_values=list(NULL_WORDS),
                include_columns=layout.used(),
            ),
        )
    except pa.ArrowInvalid as error:
        read_text(path)  # names the line if the text is not UTF-8
        raise ValueError(
            f"{path} is no table of equally long lines: {_tidy(error)}"
        ) from None
    return Frame(table, None, str(path), headerless=not has_header)


def _tidy(error: Exception) -> str:
    text = str(error).splitlines()[0]
    return text if len(text) < 200 else text[:200] + "..."


def _first_lines(path: Path) -> tuple[str, list[list[str]]]:
    """Returns the delimiter and the cells of the first three lines."""
    head = read_head(path)
    if head.count(b"\n") < 3:
        head = read_bytes(path)
    if b"\0" in head:
        raise ValueError(f"{path} holds NUL bytes; save it as UTF-8 text")
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:
            read_text(path)  # raises with the line
        text = head.decode("utf-8-sig", errors="ignore")
    text = io.StringIO(text.lstrip("\r\n"), newline=None).read()
    first = text.split("\n", 1)[0]
    delimiter = max(",\t;", key=first.count)
    check_columns(path, first.count(delimiter) + 1)
    rows = filter(None, csv.reader(io.StringIO(text), delimiter=delimiter))
    try:
        lines = list(itertools.islice(rows, 3))
    except csv.Error as error:
        raise ValueError(f"{path} is no readable table: {error}") from None
    if not lines:
        raise ValueError(f"{path} is empty")
    return delimiter, [[cell.strip() for cell in row] for row in lines]


def parse_number(
    text: str | None, words: Mapping[str, float] = PLAIN_WORDS
) -> tuple[float | None, bool]:
    """Returns the number in a text, None if missing, and whether the text is valid."""
    stripped = "" if text is None else text.strip()
    if stripped in NULL_WORDS:
        return None, True
    try:
        number = words.get(stripped.lower())
        return float(stripped) if number is None else number, True
    except ValueError:
        return None, False


def _looks_like_header(lines: list[list[str]]) -> bool:
    """Whether the first line holds names: text, or distinct numbers counting up."""
    first, rest = lines[0], lines[0][1:]
    if not all(parse_number(cell)[1] for cell in rest):
        return True
    counts_up = len(rest) >= 2 and _counts_up(rest)
    if parse_number(first[0])[1]:
        if first[0] == "" and len(lines) > 1:
            return counts_up or not parse_number(lines[1][0])[1]
        return len(first) >= 3 and _counts_up(first)
    # Text in the first cell only: a name for the column of subjects, or a subject.
    known = first[0].lower() in (*SUBJECT, *ITEM)
    return counts_up and (known or len(rest) > 2)


def _counts_up(cells: list[str]) -> bool:
    if not all(cell.isdigit() for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    steps = {b - a for a, b in zip(numbers, numbers[1:], strict=False)}
    return steps == {1} or (len(set(numbers)) == len(numbers) and max(numbers) > 9)


def _distinct(names: list[str]) -> list[str]:
    """Makes equal column names unique, as pandas does: q, q.1, q.2."""
    seen: Counter[str] = Counter()
    out = []
    for name in names:
        out.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return out


def read_parquet(path: Path, options: ReadOptions) -> Frame:
    """Reads Parquet or an Arrow file; a pandas index is recognised by its metadata."""
    import pyarrow.parquet as pq

    try:
        if read_head(path)[:6] == b"ARROW1":
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
            # What is read from a damaged file is used as it is, beyond its end too.
            table.validate(full=True)
            check_size(path, table.num_rows * table.num_columns)
        else:
            file = pq.ParquetFile(path)
            layout = decide(file.schema_arrow.names, None, options, str(path))
            check_parquet(path, file.metadata, layout.used())
            table = file.read(columns=layout.used())
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged or cut off: {_tidy(error)}") from None
    return from_arrow(table, str(path))


def from_arrow(table: pa.Table, source: str) -> Frame:
    """Wraps an Arrow table; finds the column that was a pandas index."""
    if len(set(table.column_names)) < table.num_columns:
        table = table.rename_columns(_distinct(table.column_names))
    index = None
    raw = (table.schema.metadata or {}).get(b"pandas")
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
    """Reads JSON lines or a JSON array of flat records."""
    from pyarrow import json as arrow_json

    content = read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    array = content[:4096].lstrip()[:1] == b"["
    # Arrow's reader crashes at some of these, and takes minutes for others.
    hard = is_nested(content) or _NULL_RECORD.search(content)
    if not (array or hard or _has_many_fields(content)):
        try:
            table = arrow_json.read_json(pa.BufferReader(content))
            return Frame(table, None, str(path))
        except pa.ArrowInvalid:
            pass  # fields of mixed type: read them one by one
    records = decode_lines(path, dict[str, Any])
    names = dict.fromkeys(key for record in records for key in record)
    check_columns(path, len(names))
    if len(names) * len(records) * 64 > free_memory():
        raise ValueError(
            f"{path}: its {len(records):,} records have {len(names):,} different fields"
            " in all; give records of the same fields"
        )
    columns = {name: _column([r.get(name) for r in records]) for name in names}
    return Frame(pa.table(columns), None, str(path))


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
            found: Fields = decode(line, Fields, "")
            names |= found.keys()
    return len(names) > 500


def _column(values: list[Any]) -> pa.Array:
    """A column, as text if its values are of several types."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        as_is = (str, type(None))
        texts = [v if isinstance(v, as_is) else json.dumps(v) for v in values]
        return pa.array(texts, pa.string())
