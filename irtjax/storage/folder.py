"""Saving a calibration to a folder and loading it back, without pickle.

The folder has tables for people (`items.parquet`, `abilities.parquet`, both also as
CSV), `fit.json` for settings and totals, and `parameters.npz` with the estimates to the
last bit. All files appear together (`data/writing.py`); `fit.json` comes last, so a
folder that has one is complete.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from irtjax.calibration.calibration import Calibration
from irtjax.data import writing
from irtjax.data.arrays import as_labels
from irtjax.data.decode import decode
from irtjax.data.files import read_bytes
from irtjax.data.fit_folder import (
    ARENA_FORMAT,
    CONTENTS,
    FIT_FILES,
    FIT_FORMAT,
    RESPONSES,
    RUN_FILES,
    STRUCTURE_FILES,
    TEXTS,
    Mark,
    contents_of,
    damaged,
    is_fit,
    read_rows,
    read_table,
)
from irtjax.data.item_texts import contents_table, texts_from_rows, texts_table
from irtjax.data.matching import find_names
from irtjax.data.spreadsheets import defuse
from irtjax.storage.arrays import read_arrays
from irtjax.storage.snapshots import FILES, FOLDER, now, snapshot_files

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.data import ResponseTable

FIT_VERSION = 2
#: The files that `load` reads or checks, in addition to `fit.json`.
READ = (
    *("parameters.npz", "items.parquet", "abilities.parquet"),
    *(TEXTS, CONTENTS, RESPONSES),
)


class SaveOptions(TypedDict, total=False):
    """Options of `save`, which explains them."""

    overwrite: bool
    extras: Sequence[Callable[[Path], None]]
    responses: ResponseTable | None


def save(
    calibration: Calibration,
    folder: str | Path,
    *,
    overwrite: bool = False,
    extras: Sequence[Callable[[Path], None]] = (),
    responses: ResponseTable | None = None,
) -> Path:
    """Writes a calibration to a folder, whole or not at all, and returns the folder.

    Args:
        calibration: What `irtjax.fit` returned.
        folder: Folder to make, or one that holds an earlier fit, which is replaced.
        overwrite: Whether to write into a folder that has other files, too; those
            stay, unless they have the name of a file of a fit.
        extras: Functions that write more files (a report, figures) into a given folder.
        responses: The responses of the fit as they were read, to keep them in the
            folder: `irtjax.storage.load_responses` reads them.

    Raises:
        ValueError: If the folder holds something else, or cannot be written, or a
            subject or an item of the fit has no responses in those given.

    >>> import tempfile, pathlib, irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> fit = irtjax.fit(table, "rasch")
    >>> folder = save(fit, pathlib.Path(tempfile.mkdtemp(), "fit"))
    >>> load(folder).status == fit.status
    True
    """
    folder = check_folder(folder, overwrite=overwrite)
    if responses is not None:
        find_names(responses.subjects, calibration.subject_names.tolist(), "subject")
        find_names(responses.items, calibration.item_names.tolist(), "item")
    stale = (*FIT_FILES, *STRUCTURE_FILES, *RUN_FILES)
    with writing.together(folder, stale=stale) as place:
        _write_files(calibration, place, responses, _snapshots(folder))
        for extra in extras:
            extra(place)
    return folder


def check_folder(folder: str | Path, *, overwrite: bool = False) -> Path:
    """Refuses, before a long computation, a folder that a fit cannot be written to."""
    folder = writing.full_path(folder)
    # This completes, or deletes, what a process that was killed has left there.
    writing.check_place(folder, (*FIT_FILES, *STRUCTURE_FILES))
    others = not overwrite and folder.is_dir() and not is_fit(folder)
    if others and any(x for x in folder.iterdir() if not writing.is_staging(x)):
        raise ValueError(
            f"{folder} holds something other than an irtjax fit: choose another"
            " folder, or pass overwrite (--overwrite) to write into it"
        )
    return folder


def _snapshots(folder: Path) -> dict[str, str]:
    """Digests of the snapshots that stand in the folder of a fit, by path."""
    from irtjax.storage.checks import digests

    place = folder / FOLDER
    if not place.is_dir():
        return {}
    names = [x.name for x in place.iterdir() if (x / FILES[0]).is_file()]
    return digests(folder, snapshot_files(names))


def _write_files(
    calibration: Calibration,
    folder: Path,
    responses: ResponseTable | None,
    snapshots: dict[str, str],
) -> None:
    """Writes all files of a fit into a folder."""
    from irtjax.storage.checks import digest_of, digests
    from irtjax.storage.encoding import to_arrays, to_json
    from irtjax.storage.tables import best_first, factor_tables, structure_tables

    abilities = best_first(calibration.abilities.table)
    for ending in ("parquet", "csv"):
        write_table(calibration.items.table, folder / f"items.{ending}")
        write_table(abilities, folder / f"abilities.{ending}")
    tables = structure_tables(calibration) | factor_tables(calibration)
    for name, table in tables.items():
        write_table(table, folder / f"{name}.csv")
    if calibration.item_texts:
        write_table(texts_table(calibration.item_texts), folder / TEXTS)
    if calibration.item_contents:
        write_table(contents_table(calibration.item_contents), folder / CONTENTS)
    if responses is not None:
        # Texts and contents have files of their own.
        about = {"item_texts": {}, "item_contents": {}}
        responses.replace(**about).save(folder / RESPONSES)
    arrays: dict[str, Any] = to_arrays(calibration)
    np.savez_compressed(folder / "parameters.npz", **arrays)
    content = {"format": FIT_FORMAT, "version": FIT_VERSION, **to_json(calibration)}
    content["saved"] = now()
    content["digests"] = digests(folder, READ) | snapshots
    content["digests"] |= {"fit.json": digest_of(content)}
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    (folder / "fit.json").write_text(text + "\n", encoding="utf-8")


def write_table(table: pa.Table, path: Path) -> None:
    """Writes an Arrow table as CSV or, by any other ending, as Parquet.

    In CSV, names that a spreadsheet would run as formulas begin with an apostrophe.
    """
    if path.suffix == ".csv":
        import pyarrow.csv as pc

        pc.write_csv(defuse(table), path)
    else:
        import pyarrow.parquet as pq

        pq.write_table(table, path, compression="zstd")


def load(folder: str | Path) -> Calibration:
    """Reads a calibration that `save` or the command line wrote to a folder.

    It is equal in parameters, tables, status and options.

    Raises:
        ValueError: If there is no fit, it is damaged, a newer irtjax wrote it, or it
            has a family or prior of your own whose module is not imported.
    """
    folder = Path(os.path.expanduser(folder))
    # One that another process makes after the lock would be read without it.
    if not folder.exists():
        raise ValueError(f"no such folder: {folder}; make one with `irtjax fit --out`")
    with writing.undisturbed(folder):
        return _load(folder)


def _load(folder: Path) -> Calibration:
    """The fit in a folder, or a refusal that names the damage."""
    from irtjax.storage.checks import check_digests
    from irtjax.storage.encoding import FitDocument, UndefinedClassError, from_parts

    data = _read_json(folder)
    files = ("items.parquet", "abilities.parquet")
    for name in ("parameters.npz", *files):
        if not (folder / name).is_file():
            raise damaged(folder, f"{name} is missing")
    try:
        arrays = read_arrays(folder / "parameters.npz")
        tables = {name: read_table(folder / name) for name in files}
        texts, contents = read_rows(folder / TEXTS), contents_of(folder)
        content = decode(data, FitDocument, "fit.json")
        # Of a streamed fit its table alone has the names of the subjects.
        subjects = tables["abilities.parquet"].column("subject").to_pylist()
        arrays.setdefault("subject_names", as_labels(subjects))
    except (OSError, ValueError) as error:
        raise damaged(folder, str(error)) from None
    try:
        fit = from_parts(content, arrays, tables)
        if content.digests is not None:
            check_digests(folder, data, content.digests)
        about = {"item_texts": texts_from_rows(texts), "item_contents": contents}
        return dataclasses.replace(fit, **about)
    except KeyError as error:
        raise damaged(folder, f"{error} is missing") from None
    except UndefinedClassError as error:
        raise ValueError(f"{folder}: {error}") from None
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise damaged(folder, str(error)) from None


def load_contents(folder: str | Path) -> dict[str, str]:
    """Hashes of the content of the items of a saved fit, by name; of many fits none."""
    folder = Path(folder)
    try:
        return contents_of(folder)
    except (OSError, ValueError, KeyError) as error:
        raise damaged(folder, str(error)) from None


def _read_json(folder: Path) -> bytes:
    """The content of `fit.json`, of this version."""
    path = folder / "fit.json"
    if not path.is_file():
        raise ValueError(
            f"{folder} is not the folder of a fit: it has no fit.json; make one with"
            " `irtjax fit --out`"
        )
    try:
        data = read_bytes(path)
        mark = decode(data, Mark, "fit.json")
    except ValueError as error:
        raise damaged(folder, str(error)) from None
    if mark.format == ARENA_FORMAT:
        raise ValueError(
            f"{folder} was written by `irtjax arena`: comparisons have no items; show,"
            " rank, compare and report take it, and irtjax.storage.load_arena"
        )
    if mark.format != FIT_FORMAT:
        raise ValueError(f"{path} was not written by irtjax")
    version = mark.version
    if version != FIT_VERSION:
        older = isinstance(version, int) and version < FIT_VERSION
        age, cure = (
            ("an older", "run the fit again")
            if older
            else ("a newer", "upgrade irtjax")
        )
        raise ValueError(
            f"{path} was written by {age} irtjax (format {version}, this one reads"
            f" {FIT_VERSION}): {cure}"
        )
    return data
