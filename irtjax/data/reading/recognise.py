"""The format of a file by its content, or why it is none that is read."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import importlib
import io
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from irtjax.data.decode import decode, json_values
from irtjax.data.files import MOST_COLUMNS, delimiter_of, read_bytes, read_head, special
from irtjax.data.formats import HEADERS, LOGS, OTHERS, TABLES
from irtjax.data.reading import json_tables
from irtjax.data.reading.options import FORMATS, ReadOptions
from irtjax.data.wording import TABLE_FORMAT

_PICKLE_ENDINGS = (".pkl", ".pickle", ".pt", ".pth", ".joblib", ".dill", ".rds")
_NO_DATA = (
    *(".md", ".py", ".html", ".log"),
    *(".sh", ".diff", ".patch", ".tex"),
)
#: The cure for a file that no reader knows.
_LONG_TABLE = "write it as a CSV table with a column each of models, items and scores"
#: Endings of files with data, and what the reason of a damaged file begins with.
DATA = tuple(
    ending + packed
    for ending in (".json", ".jsonl", ".jsonlines", ".csv", ".tsv", ".parquet", ".eval")
    for packed in ("", ".gz")
)
#: Formats of tables of any content.
TABLE_KINDS = {"csv", "parquet", "json"}
_DAMAGE = "is not valid JSON", "is nested too deeply", "holds bytes that are not UTF-8"
#: Names may have braces in them.
_INSPECT = re.compile(
    rb'"eval"\s*:\s*\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*?"(eval_id|run_id|task)"'
)
#: Records that are looked at for a message.
_FEW = 200
#: Begins the reason of JSON that is read where the options name its fields.
_UNKNOWN_JSON = "is JSON of no known kind"
_PARAMETER_KEYS = {"ability", "diff", "disc", "item_ids", "subject_ids"}
#: First bytes of a file, what it is, and what to do with it.
_MAGIC = (
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "unpack it with `zstd -d`"),
    (b"\xfd7zXZ\0", "packed with xz", "unpack it with `xz -d`"),
    (b"BZh", "packed with bzip2", "unpack it with `bzip2 -d`"),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it and give the files in it"),
    (b"Rar!", "a RAR archive", "unpack it and give the files in it"),
    (b"SQLite format 3", "an SQLite database", "export the table as CSV"),
    (b"\x89HDF", "an HDF5 file", "save its matrix as CSV or Parquet"),
    (b"\x93NUMPY", "a numpy array", "save it as CSV or Parquet"),
    (b"MATLAB 5", "a MATLAB file", "save its matrix as CSV"),
    (b"RDX", "data saved by R", "save the data frame with write.csv"),
    (b"FEA1", "a Feather file of version 1", "save it as Parquet"),
    (b"ORC", "an ORC file", "save it as Parquet"),
    (b"Obj\x01", "an Avro file", "save it as Parquet or JSON lines"),
    (b"\xd0\xcf\x11\xe0", "an old Office document", "save the sheet as CSV"),
    (b"%PDF", "a PDF document", "give the file of responses"),
    (b"\x89PNG", "an image", "give the file of responses"),
    (b"\xff\xd8\xff", "an image", "give the file of responses"),
    (b"GIF8", "an image", "give the file of responses"),
    (b"\x7fELF", "a program", "give the file of responses"),
    (b"<!DOCTYPE", "a web page", "download the file itself, not its page"),
    (b"<html", "a web page", "download the file itself, not its page"),
    (b"<?xml", "XML", "save it as CSV or JSON lines"),
    (b"version https://git-lfs", "a Git LFS pointer", "fetch it with `git lfs pull`"),
)
#: Endings of zip archives that are no logs.
_ZIPS = {
    ".xlsx": ("an Excel workbook", "save the sheet as CSV"),
    ".ods": ("a spreadsheet", "save the sheet as CSV"),
    ".docx": ("a document", "give the file of responses"),
    ".npz": ("a numpy archive", "save its matrix as CSV or Parquet"),
}
#: Endings of configuration files, which may begin as JSON does.
_CONFIGURATION = {".toml": "TOML", ".ini": "INI", ".cfg": "INI"}


@dataclasses.dataclass(frozen=True)
class Source:
    """A file, its format or the reason why it has none, and whether it was named."""

    path: Path
    format: str | None
    reason: str = ""
    asked: bool = True
    damaged: bool = False  # Or empty: it may have held responses.


def identify(path: Path, asked: bool = True) -> Source:
    """Detects the content of a file from its first bytes; never unpickles anything."""
    kind = special(path)
    if kind:
        reason = f"is {kind}, not a file; write its content to a file and give that"
        return Source(path, None, reason, asked)
    head = read_head(path)
    file_kind = _format_of(path, head)
    if file_kind in FORMATS:
        return Source(path, file_kind, "", asked)
    damaged = head.strip() == b"" or file_kind.startswith(_DAMAGE)
    return Source(path, None, file_kind, asked, damaged and path.name.endswith(DATA))


def with_named_fields(source: Source, options: ReadOptions) -> Source:
    """A file as a table, if the options name its columns, or fields of nested JSON."""
    named = (options.subject, options.response, options.orientation)
    if source.format in {*HEADERS} - {*TABLES} and any(x is not None for x in named):
        start = read_head(source.path).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        is_json = start in (b"{", b"[")
        return source if is_json else dataclasses.replace(source, format="csv")
    if options.response is None or not source.reason.startswith(_UNKNOWN_JSON):
        return source
    item = [options.item] if isinstance(options.item, str) else options.item or ()
    fields = filter(None, (options.subject, *item, options.response))
    first = _first_object(source.path, read_head(source.path))
    has_all = all(name in first or name.split(".")[0] in first for name in fields)
    return Source(source.path, "json", "", source.asked) if has_all else source


def is_damaged_log(file: Source, kind: str) -> bool:
    """Whether a damaged or empty file would be a log of this format."""
    module = importlib.import_module(f"irtjax.data.formats.{kind}")
    hook = getattr(module, "recognise_start", None)
    return hook is not None and hook(read_head(file.path), file.path)


def _format_of(path: Path, head: bytes) -> str:
    """The format of a file with these first bytes, or the reason why it has none."""
    name = path.name.lower()
    # Protocols 2 to 5 open with PROTO; torch's zip archives hold a data.pkl.
    is_pickle = re.match(rb"\x80[\x02-\x05]", head)
    is_archive = head[:2] == b"PK" and b"data.pkl" in head[:512]
    if name.endswith(_PICKLE_ENDINGS) or is_pickle or is_archive:
        return (
            "is a pickle (or a saved object of another program): opening one can run"
            " any code, so irtjax never does; save it as CSV, Parquet or JSON lines"
        )
    if not head.strip():
        return "is empty; make it again, or leave it out"
    other = _foreign_kind(head, name)
    if other:
        return other
    if head[:4] == b"PAR1" or head[:6] == b"ARROW1":
        return _format_of_columns(path, head)
    if head[:2] == b"PK" or name.endswith(".eval"):
        return "inspect"
    if b"\0" in head:
        return f"is a binary file of no known kind; {_LONG_TABLE}"
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return _format_of_json(path, head)
    if name.endswith((".yaml", ".yml")):
        return _recognised("recognise_yaml", head) or (
            "is YAML, as configuration files are: give the file of responses, or save"
            " it as JSON lines"
        )
    if name.endswith(_NO_DATA):
        return "is not a data file; give the file of responses"
    return _format_of_text(head)


def _format_of_text(head: bytes) -> str:
    """The format of a table in text by its first rows, "csv" for any."""
    text = head.lstrip(b"\xef\xbb\xbf\r\n").decode("utf-8", "ignore")
    delimiter = delimiter_of(text)
    with contextlib.suppress(csv.Error):
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        names, cells = (*itertools.islice(filter(None, lines), 2), [], [])[:2]
        names = [name.strip() for name in names]
        for log, column in HEADERS.items():
            if any(map(column.fullmatch, names)):
                module = importlib.import_module(f"irtjax.data.formats.{log}")
                if module.recognise_header(names, cells):
                    return log
    return "csv"


def _first_object(path: Path, head: bytes) -> Any:
    """The first JSON value: a line, an element, or the whole."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] == b"[":
        _, value = next(json_values(path), ("", b"null"))
        return decode(value, Any, str(path))
    if b"\n" not in text:
        text = read_bytes(path).removeprefix(b"\xef\xbb\xbf").lstrip()
    with contextlib.suppress(ValueError):
        return decode(text[: text.find(b"\n") + 1] or text, Any, str(path))
    # One object over several lines.
    return decode(read_bytes(path), Any, str(path))


def _first_records(path: Path, head: bytes) -> list[dict[str, Any]]:
    """The records of the first lines of a file, or the first ones of an array."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    records: list[dict[str, Any]] = []
    with contextlib.suppress(ValueError):
        values: Iterable[Any] = text.splitlines()
        if text[:1] == b"[":
            values = (value for _, value in json_values(path))
        for value in itertools.islice(values, _FEW):
            records.append(decode(value, dict[str, Any], str(path)))
    return records


def _recognised(hook: str, *seen: Any) -> str:
    """The format of the module that recognises a file, why it has none, or ""."""
    for name in (*LOGS, *OTHERS):
        module = importlib.import_module(f"irtjax.data.formats.{name}")
        answer = getattr(module, hook)(*seen) if hasattr(module, hook) else False
        if answer:
            return name if answer is True else answer
    return ""


def _format_of_columns(path: Path, head: bytes) -> str:
    """The format of a Parquet file by its columns, "parquet" for any table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if head[:4] != b"PAR1":
        return "parquet"
    try:
        names = pq.read_schema(path).names
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        # The error of reading it names what is wrong.
        return _recognised("recognise_start", head, path) or "parquet"
    return _recognised("recognise_columns", set(names), path.name) or "parquet"


def _format_of_json(path: Path, head: bytes) -> str:
    """The name of the format, or what the file is instead."""
    # These two may be one object of many megabytes, recognised by its beginning.
    if TABLE_FORMAT.encode() in head[:200]:
        return "table"
    if _INSPECT.search(head) and b'"status"' in head:
        return "inspect"
    try:
        first = _first_object(path, head)
    except ValueError as error:
        # Its reader refuses a damaged log, which would be missing without a word.
        if answer := _recognised("recognise_start", head, path):
            return answer
        reason = str(error).removeprefix(f"{path}: ")
        return reason[3:] if reason.startswith("it ") else f"is {reason}"
    if not isinstance(first, dict):
        return f"holds JSON, but not records with named fields; {_LONG_TABLE}"
    if len(first) > MOST_COLUMNS:
        return f"has {len(first):,} fields in a record, of at most {MOST_COLUMNS:,}"
    keys = set(first)
    if isinstance(first.get("eval"), dict) and "status" in keys:
        # A name with a brace hides the beginning of a log of Inspect.
        if first["eval"].keys() & {"eval_id", "run_id", "task"}:
            return "inspect"
    answer = _recognised("recognise", first, path.name)
    if answer:
        return answer
    if len(keys & _PARAMETER_KEYS) >= 2:
        return (
            "holds the parameters of a fitted model, not responses; give the file of"
            " responses that they were fitted to"
        )
    if "results" in keys and keys & {"configs", "n-shot", "versions", "config"}:
        return (
            "holds the totals of an evaluation, not single responses; run it with"
            " --log_samples and give the samples_*.jsonl files"
        )
    if "evaluation_results" in keys:
        return "holds the totals of an evaluation; give its *_samples.jsonl file"
    if json_tables.is_table(first):
        return "json"
    kinds = set(map(type, first.values()))
    if kinds & {dict, list} and not kinds & {int, float, bool}:
        from irtjax.data.reading.suggest import hint

        fields = ", ".join(sorted(keys)[:12])
        cure = (
            hint(_first_records(path, head) or [first]).removeprefix("; ")
            or _LONG_TABLE
        )
        return f"{_UNKNOWN_JSON} (fields {fields}); {cure}"
    return "json"


def _foreign_kind(head: bytes, name: str) -> str:
    """Why a file with these first bytes is not read; "" if it may be.

    >>> _foreign_kind(b"SQLite format 3", "a.db")
    'is an SQLite database: export the table as CSV'
    """
    for ending, what in _CONFIGURATION.items():
        if name.endswith(ending):
            return f"is a configuration file ({what}): give the file of responses"
    for magic, what, cure in _MAGIC:
        # Letters alone can begin a table, too.
        if head.startswith(magic) and (not magic.isalnum() or b"\0" in head):
            return f"is {what}: {cure}"
    if head[257:262] == b"ustar":
        return "is a tar archive: unpack it and give the files in it"
    if head[:2] == b"PK":
        for ending, (what, cure) in _ZIPS.items():
            if name.endswith(ending):
                return f"is {what}: {cure}"
    return ""
