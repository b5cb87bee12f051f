"""Finding inputs: the files of a path, folder or glob that can be read.

Copies and folders that irtjax wrote are left out, as are files that lie next to logs or
tables. Tables that are larger than the memory are refused before one is read.
"""

from __future__ import annotations

import csv
import dataclasses
import filecmp
import glob
import importlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from irtjax.data.files import (
    delimiter_of,
    file_size,
    is_encoded,
    read_head,
    special,
)
from irtjax.data.fit_folder import RESPONSES, is_file_of_fit, is_fit, without_responses
from irtjax.data.formats import HIDDEN, LOGS
from irtjax.data.reading.columns import NoResponsesError, decide
from irtjax.data.reading.open import Opened, open_table
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.recognise import (
    DATA,
    TABLE_KINDS,
    Source,
    identify,
    is_damaged_log,
    with_named_fields,
)
from irtjax.data.table_files import is_saved_table, num_items
from irtjax.data.wording import counted, listing, were
from irtjax.numerics import memory
from irtjax.numerics.progress import watched

#: Files that show, next to a page of irtjax, which command wrote a folder.
_WRITTEN = ("fit.json", "subset.json", "run.json", "summary.md")
_PAGE = re.compile(rb'<meta name="generator" content="irtjax')
#: What makes the name of a copy: "a (1).json", "a copy.json", "a - Copy.json".
_COPY = re.compile(r"( \(\d+\)| copy( \d+)?| - [Cc]opy( \(\d+\))?)(?=\.\w)")
#: Endings of tables; other text next to logs, such as console output, is none.
_TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
#: Bytes of a file that is read for a message, and how many files are.
_SMALL, _FEW = 10_000_000, 100
#: Bytes of a value of a matrix while it is read, and while several are merged.
_READ, _MERGED = 8.0, 14.0
#: Bytes of memory that a byte of a file can take at most: in CSV a value has two.
_OF_TEXT, _OF_PARQUET = 8, 1000
#: Bytes in the middle of a file whose values are counted.
_SAMPLE = 1 << 20


def find_files(
    path: str | os.PathLike[str], options: ReadOptions, notes: list[str]
) -> list[Source]:
    """The readable files of a path; adds notes on the others.

    Raises:
        ValueError: Nothing can be read, or files are of several formats.
    """
    sources = _identified(_candidates(path, notes), options)
    readable = [x for x in sources if x.format and options.format in (None, x.format)]
    if not readable:
        raise _nothing_readable(path, sources, options)
    readable = _logs_first(readable)
    readable, damaged = _with_damaged_logs(readable, [x for x in sources if x.damaged])
    notes += _not_read(damaged)
    noted = {file.path for file in (*readable, *damaged)}
    if len(_kinds(readable)) > 1:
        readable = _with_responses(readable, options, notes)
    kinds = _kinds(readable)
    if len(kinds) > 1:
        _refuse_output(path)
        raise ValueError(
            f"{path} holds several kinds of files ({', '.join(kinds)}): choose one with"
            " format=, or name the files or folders to read together, of"
            f" {_names_of(readable, options)}"
        )
    sides = [pattern for kind in kinds for pattern in _side_files(kind)]
    others = {file.path for file in sources} - noted
    others = {x for x in others if not any(map(x.match, sides))}
    if others:
        text = f"{counted(len(others), 'other file')} in {path}"
        text += f" {were(len(others))} not read"
        example = min(file.name for file in others)
        notes.append(text if len(others) == 1 else f"{text}, such as {example}")
    return readable


def _candidates(
    path: str | os.PathLike[str], notes: list[str]
) -> list[tuple[Path, bool]]:
    """The files of a path without copies and output of irtjax, which notes name."""
    files, outputs = without_outputs(expand(path), Path(path).expanduser())
    if outputs:
        names = listing([str(folder) for folder in outputs], 4)
        count = counted(len(outputs), "folder")
        notes.append(
            f"{count} that irtjax wrote {were(len(outputs))} not read: {names}"
        )
    files, copies = without_copies(files)
    if copies:
        names = listing([file.name for file in copies], 4)
        count = counted(len(copies), "copy", "copies")
        notes.append(f"{count} of other files {were(len(copies))} not read: {names}")
    return files


def _identified(
    files: Sequence[tuple[Path, bool]], options: ReadOptions
) -> list[Source]:
    """The files with their formats; refuses one that was named and cannot be read."""
    sources = []
    for file, asked in watched(files, "file"):
        source = with_named_fields(identify(file, asked), options)
        firm = re.search("pickle|not a file", source.reason)
        if options.format is not None and asked and not firm:
            source = Source(file, options.format)
        if asked and source.format is None:
            raise ValueError(f"{source.path} {source.reason}")
        sources.append(source)
    return sources


def _nothing_readable(
    path: str | os.PathLike[str], sources: Sequence[Source], options: ReadOptions
) -> ValueError:
    """The refusal of a path without a readable file."""
    _refuse_output(path)
    shown = f" as {options.format}" if options.format else ""
    # What is damaged first, then data: other files may only describe what it held.
    order = lambda s: (not s.damaged, not s.path.name.endswith(DATA), s.path.name)
    first = min((s for s in sources if s.reason), key=order, default=None)
    why = f"; for example {first.path.name} {first.reason}" if first else ""
    return ValueError(f"nothing in {path} can be read{shown}{why}")


def _refuse_output(path: str | os.PathLike[str]) -> None:
    """Refuses a folder of results, where it cannot be read as responses."""
    if is_output(Path(path).expanduser()):
        raise ValueError(
            f"{path} is a folder that irtjax wrote, not one of responses: give the"
            " files that it was made from"
        )


def _with_damaged_logs(
    good: list[Source], damaged: list[Source]
) -> tuple[list[Source], list[Source]]:
    """Readable files with damaged logs of their format, and other damaged files.

    Reading a damaged log is refused, since its responses would be missing.
    """
    logs = [str(file.format) for file in good if file.format in LOGS]
    own = [file for file in damaged if logs and is_damaged_log(file, logs[0])]
    good = [*good, *(dataclasses.replace(file, format=logs[0]) for file in own)]
    return good, [file for file in damaged if file not in own]


def _not_read(damaged: list[Source]) -> list[str]:
    """The note on damaged or empty files of a folder that are no logs."""
    if len(damaged) == 1:
        return [f"{damaged[0].path.name} was not read: it {damaged[0].reason}"]
    if not damaged:
        return []
    names = listing([file.path.name for file in damaged], 4)
    return [f"{len(damaged)} damaged or empty files were not read: {names}"]


def _logs_first(files: list[Source]) -> list[Source]:
    """Logs of one tool alone, without the other JSON and text that it writes."""
    logs = {file.format for file in files if file.format in LOGS}
    if len(logs) != 1:
        return files

    def extra(file: Source) -> bool:
        name = file.path.name.lower()
        is_text = file.format == "csv" and not name.endswith(_TABLES)
        return file.format == "json" or is_text

    return [file for file in files if not extra(file)]


def _kinds(files: Iterable[Source]) -> list[str]:
    """Formats of the files of a folder."""
    return sorted({str(file.format) for file in files if not file.asked})


def _side_files(kind: str) -> list[str]:
    """Patterns of names of files that the reader of a format reads with the logs."""
    if kind not in LOGS:
        return []
    module = importlib.import_module(f"irtjax.data.formats.{kind}")
    pattern = getattr(module, "SIDE_FILES", None)
    return [] if pattern is None else [pattern]


def _with_responses(
    files: list[Source], options: ReadOptions, notes: list[str]
) -> list[Source]:
    """The files of a folder without tables that have no responses, as far as needed.

    Such tables describe subjects or items. The smallest are read first, until files of
    one format are left or a table has responses.
    """
    sizes: dict[str, int] = dict.fromkeys(_kinds(files), 0)
    for file in files:
        if not file.asked:
            sizes[str(file.format)] += file.path.stat().st_size
    tables = sizes.keys() & TABLE_KINDS
    for kind in sorted(tables, key=sizes.__getitem__):
        if len(_kinds(files)) == 1:
            break
        own = [x for x in files if x.format == kind and not x.asked]
        if any(_has_responses(file, options) for file in own):
            break
        notes += [left_out_note(file.path) for file in own]
        files = [file for file in files if file not in own]
    return files


def _names_of(files: list[Source], options: ReadOptions) -> str:
    """Names of the files of each kind.

    Where they are few, small tables that have no responses are not named.
    """

    def may(file: Source) -> bool:
        is_log = file.format not in TABLE_KINDS
        is_large = file.path.stat().st_size > _SMALL
        return is_log or is_large or _has_responses(file, options)

    shown = [file for file in files if not file.asked]
    if len(shown) <= _FEW:
        shown = [file for file in shown if may(file)]
    of = lambda kind: list(
        dict.fromkeys(x.path.name for x in shown if x.format == kind)
    )
    parts = [f"{kind}: {listing(of(kind), 4)}" for kind in _kinds(shown)]
    return "; ".join(parts)


def _has_responses(file: Source, options: ReadOptions) -> bool:
    """Whether a table may have responses."""
    try:
        open_table(str(file.format), file.path, options, Opened())
    except NoResponsesError:
        return False
    except (ValueError, OSError):
        pass  # Reading it again raises the error.
    return True


def left_out_note(path: Path) -> str:
    """The note on a table of a folder that has no responses."""
    return f"{path.name} has no responses and was left out"


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


def is_output(folder: Path) -> bool:
    """Whether irtjax wrote a folder: of a fit, an audit or a small benchmark."""
    page = folder / "report.html"
    if is_fit(folder):
        return True
    if not any((folder / name).is_file() for name in _WRITTEN):
        return False
    return page.is_file() and _PAGE.search(read_head(page)) is not None


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


def _same(first: Path, second: Path) -> bool:
    """Whether two files have the same bytes."""
    if special(first) or special(second):
        return False
    return filecmp.cmp(first, second, shallow=False)


def check_sizes(files: Sequence[Source], options: ReadOptions) -> None:
    """Refuses matrices that are larger than the memory, before one is read.

    Raises:
        ValueError: A file is too large, alone or merged with the others.
    """
    available = memory.available_memory()
    tables = {
        file.path: file for file in files if file.format in ("csv", "parquet", "table")
    }
    sizes = {path: _values(file, options, available) for path, file in tables.items()}
    for path, values in sizes.items():
        _require(_READ * values, path, values, "give a part of it")
    if len(tables) > 1:
        path = max(sizes, key=sizes.__getitem__)
        others = counted(len(tables) - 1, "other table")
        cure = f"read it without the {others}, or as one long table of all responses"
        _require(_MERGED * sizes[path], path, sizes[path], cure)


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
