"""Tables of one subject each, which has the name of the file or of its folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from irtjax.data.arrays import as_labels
from irtjax.data.decode import decode, json_values
from irtjax.data.files import folders_of
from irtjax.data.reading import columns, tabular
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.recognise import DATA, TABLE_KINDS, Source
from irtjax.data.reading.records import Coded, Records
from irtjax.data.reading.wide import Piece
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, listing

#: Stands for the subject until it is named.
UNNAMED = "(file)"


class Name(NamedTuple):
    """What the place of a file names: the end of its path, and its folder."""

    file: str
    folder: str


def without_subjects(files: Sequence[Source], options: ReadOptions) -> set[Path]:
    """Files of tables to be named after their files or folders.

    Those are all tables if the options say so. Else they are several files of which
    none has a column of subjects.
    """
    tables = [file for file in files if file.format in TABLE_KINDS]
    if options.subject_name is not None:
        return set()
    if options.subject_from is not None:
        return {file.path for file in tables}
    if options.subject is not None or len(tables) < 2:
        return set()
    lacking = [file.path for file in tables if _lacks_subject(file, options)]
    return {*lacking} if len(lacking) == len(tables) else set()


def anonymous(options: ReadOptions) -> ReadOptions:
    """The options of reading a table whose subject is named later."""
    return dataclasses.replace(options, subject_from=None, subject_name=UNNAMED)


def _lacks_subject(file: Source, options: ReadOptions) -> bool:
    """Whether a table has items and responses, and no column of subjects."""
    try:
        names, source = _column_names(file), str(file.path)
        subject = columns.find(names, columns.SUBJECT)
        if subject is not None and not (
            columns.plain_name(subject) == "id"
            and columns.find(names, columns.ITEM)
            and _numbers_rows(file, subject, options)
        ):
            return False
        # A column named after its subject is one of a matrix with items as rows.
        if columns.decide(names, None, options, source).transposed:
            return False
        plain = columns.decide(names, None, anonymous(options), source)
    except (ValueError, OSError, StopIteration):
        return False  # Reading it raises the error.
    return bool(plain.item and plain.responses) and plain.subject is None


def _numbers_rows(file: Source, name: str, options: ReadOptions) -> bool:
    """Whether a column has another value in each row, so that it names no subjects."""
    if file.format == "csv":
        table = tabular.read_csv(file.path, options).table
    elif file.format == "parquet":
        table = tabular.read_parquet(file.path, options).table
    else:
        table = tabular.read_json(file.path).table
    return 1 < table.num_rows == len(table.column(name).unique())


def _column_names(file: Source) -> list[str]:
    """Names of the columns of a table, from its first lines."""
    if file.format == "csv":
        return tabular.header_of(file.path)
    if file.format == "parquet":
        import pyarrow.parquet as pq

        return pq.read_schema(file.path).names
    _, value = next(json_values(file.path))
    return list(decode(value, dict[str, object], str(file.path)))


def name_subjects(pieces: Mapping[Path, Piece], options: ReadOptions) -> list[Piece]:
    """Tables with their subjects, and benchmarks where a subject has several files.

    Raises:
        ValueError: The places of the files leave open what names a subject.
    """
    if not pieces:
        return []
    names = place_names(list(pieces))
    how = options.subject_from or _usual(names, pieces)
    if how == "file" and len({name.file for name in names.values()}) == 1 < len(names):
        how = "folder"  # Files of one name are named after their folders.
    other = "folder" if how == "file" else "file"
    subjects = {path: getattr(name, how) for path, name in names.items()}
    several = len(set(subjects.values())) < len(subjects)
    tables = []
    for path, piece in pieces.items():
        benchmark = getattr(names[path], other) if several else None
        tables.append(_named(piece, subjects[path], benchmark))
    if options.subject_from is None:
        note = (
            f"{counted(len(pieces), 'file')} without a column of subjects were read as"
            f" one subject each, with the name of the {how} (subject_from= chooses)"
        )
        tables[0] = dataclasses.replace(tables[0], notes=(*tables[0].notes, note))
    return tables


def place_names(paths: Sequence[Path]) -> dict[Path, Name]:
    """The names of files without their endings, and what their folders differ in.

    >>> a, b = place_names([Path("/x/m1/r/t.csv"), Path("/x/m2/r/t.csv")]).values()
    >>> a, b
    (Name(file='t', folder='m1'), Name(file='t', folder='m2'))
    """
    folders = [folders_of(path) for path in paths]
    depth = max(map(len, folders))
    levels = [{tuple(parts[k : k + 1]) for parts in folders} for k in range(depth)]
    varying = [k for k, names in enumerate(levels) if len(names) > 1]
    count = len({tuple(parts) for parts in folders})
    # The topmost folder that alone differs wherever folders do.
    alone = next((k for k in varying if len(levels[k]) == count), None)
    own = varying if alone is None else [alone]
    names = {}
    for path, parts in zip(paths, folders, strict=True):
        label = "/".join(parts[k] for k in own if k < len(parts)) or parts[-1]
        ending = max((e for e in DATA if path.name.endswith(e)), key=len, default="")
        names[path] = Name(path.name.removesuffix(ending) or path.name, label)
    return names


def _usual(names: Mapping[Path, Name], pieces: Mapping[Path, Piece]) -> str:
    """What names the subjects where the options leave it open: "file" or "folder"."""
    by_file, by_folder = (
        _overlaps(names, pieces, "file"),
        _overlaps(names, pieces, "folder"),
    )
    files = {name.file for name in names.values()}
    if len(files) == len(names):
        if len(names) > 1 and not _overlap(list(pieces.values())):
            raise ValueError(
                f"{_shown(names)} share no item and have no column of subjects: give"
                " subject_from='file' if each is one subject, or subject_name= if all"
                " are of one"
            )
        return "file"
    if len(files) == 1 or (by_file and not by_folder):
        return "folder"
    if by_folder and not by_file:
        return "file"
    raise ValueError(
        f"{_shown(names)} have no column of subjects, and their names repeat: give"
        " subject_from='folder' if a folder holds the files of one subject, or"
        " subject_from='file'"
    )


def _shown(names: Mapping[Path, Name]) -> str:
    """The files in a message."""
    return f"{counted(len(names), 'file')} ({listing([str(x) for x in names], 2)})"


def _overlaps(
    names: Mapping[Path, Name], pieces: Mapping[Path, Piece], what: str
) -> bool:
    """Whether files that have the same file or folder name share items."""
    groups: dict[str, list[Piece]] = {}
    for path, piece in pieces.items():
        groups.setdefault(getattr(names[path], what), []).append(piece)
    return any(_overlap(group) for group in groups.values())


def _overlap(pieces: Sequence[Piece]) -> bool:
    """Whether two tables share an item."""
    seen: set[str] = set()
    for piece in pieces:
        own = piece.item.labels if isinstance(piece, Records) else piece.items
        if not seen.isdisjoint(own.tolist()):
            return True
        seen.update(own.tolist())
    return False


def _named(piece: Piece, subject: str, benchmark: str | None) -> Piece:
    """A table with the name of its one subject, and of its benchmark if it has none."""
    if isinstance(piece, ResponseTable):
        facets = dict(piece.item_facets)
        if benchmark is not None and "benchmark" not in facets:
            facets["benchmark"] = np.full(piece.num_items, benchmark)
        return piece.replace(subjects=as_labels([subject]), item_facets=facets)
    changes = {}
    if benchmark is not None and piece.benchmark is None:
        changes = {
            "benchmark": Coded.constant(benchmark, len(piece)),
            "qualified": False,
        }
    return dataclasses.replace(
        piece, subject=Coded.constant(subject, len(piece)), **changes
    )
