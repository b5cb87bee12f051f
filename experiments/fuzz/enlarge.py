"""Files of every format with many records, so that memory is that of reading them.

A file of a few kilobytes takes less memory than an allocator hands out at once.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from experiments.fuzz.mutate import members_of

#: Keys of records that identify an item.
IDENTITY = re.compile(
    r"(doc|item|sample|question|task|instance|prompt|query|row|problem)?_?"
    r"(id|item|name|hash|uuid|prompt|question|query|instruction)",
    re.IGNORECASE,
)


def enlarge(path: Path, content: bytes, size: int) -> bytes:
    """A file of about `size` bytes with copies of its records under other names.

    Archives have copies of their members. Files that are no collection of records are
    returned as they are.
    """
    times = max(size // max(len(content), 1), 1)
    if times == 1:
        return content
    if content[:4] == b"PAR1":
        return _parquet(content, times)
    if content[:2] == b"PK":
        return _archive(content, times) if path.suffix == ".eval" else content
    if content.lstrip()[:1] in (b"{", b"["):
        return _json(content, times)
    return _csv(content, times) if path.suffix == ".csv" else content


def _json(content: bytes, times: int) -> bytes:
    text = content.decode("utf-8-sig")
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        return b"".join(json.dumps(x).encode() + b"\n" for x in copied(lines, times))
    if isinstance(value, dict) and "\n" not in text.strip() and path_of(value) is None:
        # One line of JSON lines.
        return b"".join(json.dumps(x).encode() + b"\n" for x in copied([value], times))
    place = path_of(value)
    if place is None:
        return content
    holder: Any = {"": value}
    for key in ("", *place)[:-1]:
        holder = holder[key]
    last = ("", *place)[-1]
    holder[last] = copied(holder[last], times)
    whole = value if place else holder[""]
    return json.dumps(whole).encode()


def path_of(value: Any) -> tuple[Any, ...] | None:
    """Where the collection of records with the longest text is; None without one."""
    best: tuple[int, tuple[Any, ...] | None] = (0, None)

    def visit(part: Any, path: tuple[Any, ...]) -> None:
        nonlocal best
        inner = list(part.values()) if isinstance(part, dict) else part
        if not isinstance(inner, list):
            return
        alike = len(inner) > 1 and all(isinstance(x, dict | list) for x in inner)
        if alike and len(path) < 3:
            best = max(best, (len(json.dumps(part)), path), key=lambda x: x[0])
            return
        keys = part if isinstance(part, dict) else range(len(part))
        for key in keys:
            visit(part[key], (*path, key))

    visit(value, ())
    return best[1]


def copied(records: Any, times: int) -> Any:
    """Records, and copies of them under other names."""
    if isinstance(records, dict):
        return {f"{k}{_mark(n)}": v for n in range(times) for k, v in records.items()}
    return [renamed(record, n) for n in range(times) for record in records]


def renamed(value: Any, number: int, depth: int = 2) -> Any:
    """A record with other identifiers in it."""
    if not number or depth < 0 or not isinstance(value, dict):
        return value
    out = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            out[key] = renamed(inner, number, depth - 1)
        elif IDENTITY.fullmatch(key) and isinstance(inner, str):
            out[key] = inner + _mark(number)
        elif IDENTITY.fullmatch(key) and type(inner) is int:
            out[key] = inner + 1_000_000 * number
        else:
            out[key] = inner
    return out


def _mark(number: int) -> str:
    return f".{number}" if number else ""


def _csv(content: bytes, times: int) -> bytes:
    rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"))))
    header, *rest = rows
    known = [k for k, name in enumerate(header) if IDENTITY.fullmatch(name)]
    k = known[0] if known else 0
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for n in range(times):
        writer.writerows([*row[:k], row[k] + _mark(n), *row[k + 1 :]] for row in rest)
    return out.getvalue().encode()


def _parquet(content: bytes, times: int) -> bytes:
    table = pq.read_table(io.BytesIO(content))
    text = [
        k
        for k, field in enumerate(table.schema)
        if pa.types.is_string(field.type) and IDENTITY.fullmatch(field.name)
    ]
    parts = []
    for n in range(times):
        part = table
        for k in text:
            values = [x if x is None else x + _mark(n) for x in table[k].to_pylist()]
            part = part.set_column(k, table.schema.field(k), pa.array(values))
        parts.append(part)
    out = io.BytesIO()
    pq.write_table(pa.concat_tables(parts), out, compression="zstd")
    return out.getvalue()


def _archive(content: bytes, times: int) -> bytes:
    members = members_of(content)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            if name == "summaries.json":
                archive.writestr(name, json.dumps(copied(json.loads(data), times)))
            elif name.startswith("samples/"):
                stem, _, epoch = name.partition("_epoch_")
                for n in range(times):
                    inner = json.dumps(renamed(json.loads(data), n))
                    archive.writestr(f"{stem}{_mark(n)}_epoch_{epoch}", inner)
            else:
                archive.writestr(name, data)
    return out.getvalue()
