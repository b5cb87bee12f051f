"""Opening the inputs: each file or data frame as a table of responses, or as records.

Logs of one format are read together, since items join across them; tables one by one.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.data.files import located
from irtjax.data.fit_folder import RESPONSES, is_fit, load_responses
from irtjax.data.formats import LOGS
from irtjax.data.reading import file_subjects, frames, missing_codes, tabular
from irtjax.data.reading.columns import NoResponsesError
from irtjax.data.reading.leave_out import files_without
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.plain_long import read_plain
from irtjax.data.reading.recognise import Source
from irtjax.data.reading.repeats import is_of_items
from irtjax.data.reading.wide import Piece
from irtjax.data.table import ResponseTable
from irtjax.data.table_files import is_saved_table
from irtjax.numerics.progress import watched

if TYPE_CHECKING:
    import pyarrow as pa

#: In messages on logs that have lost responses.
_DAMAGED = re.compile("cut off|is empty")


@dataclasses.dataclass
class Opened:
    """What inputs hold, and which of them hold nothing to be read."""

    pieces: list[Piece] = dataclasses.field(default_factory=list)
    #: Those of the pieces whose rows have no names.
    nameless: list[ResponseTable] = dataclasses.field(default_factory=list)
    #: Tables of folders without responses, and what the first was refused with.
    empty: list[Path] = dataclasses.field(default_factory=list)
    refusal: NoResponsesError | None = None
    #: Logs of subjects to leave out, with these subjects.
    left_out: dict[Path, str] = dataclasses.field(default_factory=dict)


def open_files(files: Sequence[Source], options: ReadOptions, opened: Opened) -> None:
    """Opens files, each once; those of one format after each other.

    Raises:
        ValueError: A file is damaged or has no responses.
    """
    groups: dict[str, dict[Path, Path]] = {}
    for file in files:
        groups.setdefault(str(file.format), {})[_place(file.path)] = file.path
    unnamed: set[Path] = set()
    if len(files) > 1 or options.subject_from is not None:
        unnamed = file_subjects.without_subjects(files, options)
    asked = {file.path for file in files if file.asked}
    damaged = {file.path: file.reason for file in files if file.damaged}
    before = len(opened.pieces)
    of_one_subject: dict[Path, Piece] = {}
    for kind, paths in groups.items():
        if kind in LOGS:
            _open_logs(kind, [*paths.values()], damaged, options, opened)
        else:
            of_one_subject |= _open_tables(
                kind, [*paths.values()], unnamed, asked, options, opened
            )
    if of_one_subject:
        opened.pieces += file_subjects.name_subjects(of_one_subject, options)
    only_empty = len(opened.pieces) == before and LOGS.keys().isdisjoint(groups)
    if opened.refusal is not None and only_empty:
        raise opened.refusal


def _open_logs(
    kind: str,
    paths: list[Path],
    damaged: dict[Path, str],
    options: ReadOptions,
    opened: Opened,
) -> None:
    """Opens logs of one format, whose reader sees them all."""
    reader = importlib.import_module(f"irtjax.data.formats.{kind}")
    subject_of = getattr(reader, "subject_of", None)
    if subject_of is not None and options.subject_name is None:
        paths, others = files_without(paths, options.leave_out, subject_of)
        opened.left_out |= others
    if not paths:
        return
    try:
        for path in paths:
            if path in damaged:
                raise ValueError(f"{path} {damaged[path]}")
        opened.pieces.append(reader.read_files(_Watched(paths), options))
    except ValueError as error:
        name = _of_damaged_log(str(error), paths, subject_of)
        if name is None:
            raise
        cure = f"leave_out={name!r} reads the others without its subject"
        raise ValueError(f"{error}; {cure}") from None


def _open_tables(
    kind: str,
    paths: list[Path],
    unnamed: Collection[Path],
    asked: Collection[Path],
    options: ReadOptions,
    opened: Opened,
) -> dict[Path, Piece]:
    """Opens tables of one format; returns those of one subject each, yet to be named.

    Args:
        kind: The format.
        paths: The files.
        unnamed: Files without a column of subjects.
        asked: Files that were named one by one, which must have responses.
        options: Those of reading.
        opened: Takes the others.
    """
    of_one_subject: dict[Path, Piece] = {}
    for path in watched(paths, "file"):
        try:
            is_one = path in unnamed
            piece = None if is_one else open_table(kind, path, options, opened)
            # A column "id" may name problems, as those of one subject do.
            if piece is None or (len(paths) > 1 and is_of_items(piece, options)):
                anonymous = file_subjects.anonymous(options)
                of_one_subject[path] = open_table(kind, path, anonymous, opened)
            else:
                opened.pieces.append(piece)
        except NoResponsesError as error:
            if path in asked:
                raise
            opened.refusal = opened.refusal or error
            opened.empty.append(path)
        except UnicodeDecodeError:
            raise ValueError(f"{path} is damaged: text in it is not UTF-8") from None
    return of_one_subject


def _of_damaged_log(
    message: str, logs: list[Path], subject_of: Callable[[Path], str | None] | None
) -> str | None:
    """The subject of the log that a message names as cut off or empty, if known."""
    path = next((path for path in logs if message.startswith(str(path))), None)
    if subject_of is None or path is None or not _DAMAGED.search(message):
        return None
    try:
        return subject_of(path)
    except ValueError:
        return None


def _place(path: Path) -> Path:
    """What makes a path another file than the others: its folder and name.

    Two models may be links to one file, but a link in the same folder is a second name.
    """
    place, target = located(path), path.resolve()
    is_name = place.is_symlink() and target.parent == place.parent.resolve()
    return place.with_name(target.name) if is_name else place


class _Watched(list[Path]):
    """Files of a log reader, which reports how many it has read by reading them."""

    def __iter__(self) -> Iterator[Path]:
        return watched(tuple(super().__iter__()), "file")


def open_table(kind: str, path: Path, options: ReadOptions, opened: Opened) -> Piece:
    """The records of a table in a file, or the table that irtjax saved there."""
    if path.name == RESPONSES and is_fit(path.parent):
        return missing_codes.of_table(load_responses(path.parent), options)
    if kind == "table":
        return missing_codes.of_table(ResponseTable.load(path), options)
    plain = read_plain(kind, path, options)
    if plain is not None:
        return plain
    if kind == "csv":
        frame = tabular.read_csv(path, options)
    elif kind == "parquet":
        frame = tabular.read_parquet(path, options)
        if is_saved_table(frame.table.schema):
            return missing_codes.of_table(ResponseTable.load(path), options)
    else:
        frame = tabular.read_json(path)
    piece = frames.read_frame(frame, options)
    if isinstance(piece, ResponseTable):
        piece = piece.replace(sources=(str(path),))
        opened.nameless += [piece] * frame.unnamed
    return piece


def _is_of(value: Any, library: str) -> bool:
    """Whether a value is of a library, which need not be installed."""
    return type(value).__module__.split(".")[0] == library


def splits(entry: Any) -> list[Any]:
    """The data sets of a `DatasetDict` of Hugging Face; anything else by itself."""
    if _is_of(entry, "datasets") and isinstance(entry, dict):
        return list(entry.values())
    return [entry]


def open_frame(frame: Any, options: ReadOptions, opened: Opened) -> Piece:
    """Reads a data frame of any library that narwhals supports."""
    if isinstance(frame, ResponseTable):
        return missing_codes.of_table(frame, options)
    if isinstance(frame, np.ndarray):
        table = ResponseTable.from_arrays(frame)
        opened.nameless.append(missing_codes.of_table(table, options))
        return opened.nameless[-1]
    source = f"the {type(frame).__module__.split('.')[0]} frame"
    columns = tabular.from_arrow(to_arrow(frame, source), source)
    piece = frames.read_frame(columns, options)
    if isinstance(piece, ResponseTable):
        opened.nameless += [piece] * columns.unnamed
    return piece


def to_arrow(frame: Any, source: str) -> pa.Table:
    """Returns a data frame, or a data set of Hugging Face, as an Arrow table.

    Raises:
        ValueError: it is none, or its columns are no columns of Arrow; the message
            begins with ``source``.
    """
    import narwhals as nw

    if _is_of(frame, "datasets"):
        if not hasattr(frame, "with_format") or not hasattr(frame, "num_rows"):
            raise ValueError(
                f"{source}: a {type(frame).__name__} is read as it comes: load it"
                " without streaming=True"
            )
        # Rows that were selected or sorted are still where they were in `.data`.
        return frame.with_format("arrow")[:]
    try:
        native = nw.from_native(_of_plain_objects(frame), pass_through=True)
        if not isinstance(native, nw.DataFrame | nw.LazyFrame):
            raise ValueError(
                f"cannot read a {type(frame).__name__}: give a path, a data frame, a"
                " matrix, a list of them, or a list of records"
            )
        return native.lazy().collect().to_arrow()
    except (ValueError, TypeError, OverflowError) as error:
        # Two columns of one name and the like: each library has its own message.
        raise ValueError(f"{source}: {' '.join(str(error).split())}") from None


def _of_plain_objects(frame: Any) -> Any:
    """A frame of pandas whose columns of several types, or wide integers, are text."""
    if not _is_of(frame, "pandas") or not hasattr(frame, "dtypes"):
        return frame
    objects = [k for k, kind in enumerate(frame.dtypes) if str(kind) == "object"]
    changed = {k: tabular.texts_of_mixed(frame.iloc[:, k].tolist()) for k in objects}
    changed = {k: texts for k, texts in changed.items() if texts is not None}
    if changed:
        frame = frame.copy()
        for k, texts in changed.items():
            frame.isetitem(k, texts)
    return frame
