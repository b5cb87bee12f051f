"""Finding input files and detecting their formats by their content."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import filecmp
import glob
import importlib
import io
import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from irtjax.data.decode import decode, json_values
from irtjax.data.files import MOST_COLUMNS, delimiter_of, read_bytes, read_head, special
from irtjax.data.fit_folder import (
    RESPONSES,
    is_file_of_fit,
    is_fit,
    without_responses,
)
from irtjax.data.formats import HEADERS, HIDDEN, LOGS, OTHERS, TABLES
from irtjax.data.reading import json_tables
from irtjax.data.reading.kinds import foreign_kind
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
_DAMAGE = "is not valid JSON", "is nested too deeply", "holds bytes that are not UTF-8"
#: Files that show, next to a page of irtjax, which command wrote a folder.
_WRITTEN = ("fit.json", "subset.json", "run.json", "summary.md")
_PAGE = re.compile(rb'<meta name="generator" content="irtjax')
#: What makes the name of a copy: "a (1).json", "a copy.json", "a - Copy.json".
_COPY = re.compile(r"( \(\d+\)| copy( \d+)?| - [Cc]opy( \(\d+\))?)(?=\.\w)")
#: Names may have braces in them.
_INSPECT = re.compile(
    rb'"eval"\s*:\s*\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*?"(eval_id|run_id|task)"'
)
#: Records that are looked at for a message.
_FEW = 200
#: Begins the reason of JSON that is read where the options name its fields.
_UNKNOWN_JSON = "is JSON of no known kind"
_PARAMETER_KEYS = {"ability", "diff", "disc", "item_ids", "subject_ids"}


@dataclasses.dataclass(frozen=True)
class Source:
    """A file, its format or the reason why it has none, and whether it was named."""

    path: Path
    format: str | None
    reason: str = ""
    asked: bool = True
    damaged: bool = False  # Or empty: it may have held responses.


def expand(path: str | os.PathLike[str]) -> list[tuple[Path, bool]]:
    """Returns the files of a path, folder or glob, and whether each alone was named."""
    text = os.path.expanduser(os.fspath(path))
    place = Path(text)
    if place.exists():
        places = [place]
    elif glob.has_magic(text):
        places = sorted(Path(name) for name in glob.glob(text, recursive=True))
        if not places:
            raise ValueError(f"no file matches {text}")
    else:
        raise ValueError(f"no such file or folder: {text}")
    files: list[tuple[Path, bool]] = []
    for one in places:
        if one.is_dir():
            files += _of_folder(one)
        else:
            files.append((one, len(places) == 1))
    return files


def _of_folder(folder: Path) -> list[tuple[Path, bool]]:
    """The files of a folder, those of a fit in it left out; or those of the fit.

    A folder that holds nothing else is read as the responses that the fit keeps.
    """
    files = _files_in(folder)
    if not is_fit(folder):
        return [(file, False) for file in files]
    others = [file for file in files if not is_file_of_fit(file, folder)]
    if any(file.name.endswith(DATA) for file in others):
        return [(file, False) for file in others]
    if not (folder / RESPONSES).is_file():
        raise without_responses(folder)
    return [(folder / RESPONSES, True)]


def without_copies(
    files: list[tuple[Path, bool]],
) -> tuple[list[tuple[Path, bool]], list[Path]]:
    """The files without copies that a browser or a file manager made, and these.

    A copy has the name and the content of another file of its folder: "a (1).json".
    """
    paths = {path for path, _ in files}
    copies = []
    for path, asked in files:
        first = path.with_name(_COPY.sub("", path.name))
        if not asked and first != path and first in paths and _same(first, path):
            copies.append(path)
    gone = {*copies}
    return [pair for pair in files if pair[0] not in gone], copies


def is_output(folder: Path) -> bool:
    """Whether irtjax wrote a folder: of a fit, an audit or a small benchmark."""
    page = folder / "report.html"
    if is_fit(folder):
        return True
    if not any((folder / name).is_file() for name in _WRITTEN):
        return False
    return page.is_file() and _PAGE.search(read_head(page)) is not None


def without_outputs(
    files: list[tuple[Path, bool]], top: Path
) -> tuple[list[tuple[Path, bool]], list[Path]]:
    """The files without those in folders below `top` that irtjax wrote, and these.

    All files, and no folder, where nothing else is left.
    """
    output: dict[Path, Path | None] = {top: None}

    def of(folder: Path) -> Path | None:
        if folder not in output:
            above = of(folder.parent) if top in folder.parents else None
            output[folder] = above or (folder if is_output(folder) else None)
        return output[folder]

    inputs = [pair for pair in files if pair[1] or of(pair[0].parent) is None]
    if not inputs:
        return files, []
    outputs = {of(file.parent) for file, asked in files if not asked}
    return inputs, sorted(folder for folder in outputs if folder is not None)


def _same(first: Path, second: Path) -> bool:
    """Whether two files have the same bytes."""
    if special(first) or special(second):
        return False
    return filecmp.cmp(first, second, shallow=False)


def _files_in(folder: Path) -> list[Path]:
    """All files below a folder, hidden ones and caches left out."""
    out = []
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if {"blobs", "snapshots"} <= set(folders):
            folders.remove("blobs")  # A cache of Hugging Face: links lead to them.
        seen = (name for name in files if name[0] != "." or name in HIDDEN)
        out += [Path(root, name) for name in sorted(seen)]
    if not out:
        raise ValueError(f"{folder} is a folder without files")
    return out


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
    other = foreign_kind(head, name)
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
        for log in HEADERS:
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
