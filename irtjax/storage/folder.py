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
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.calibration.calibration import Calibration
from irtjax.data import writing
from irtjax.data.decode import Record, decode
from irtjax.data.files import check_parquet, check_text, read_bytes
from irtjax.data.item_texts import contents_table, texts_from_rows, texts_table
from irtjax.data.spreadsheets import defuse
from irtjax.storage.arrays import read_arrays

if TYPE_CHECKING:
    import pyarrow as pa

FIT_FORMAT = "irtjax.fit"
FIT_VERSION = 2
#: Names that a fit uses in its folder; other files stay as they are.
FIT_FILES = tuple(
    "fit.json parameters.npz items.parquet items.csv abilities.parquet abilities.csv"
    " leaderboard.md report.html abilities.png wright_map.png latency.png"
    " item_response_functions.png test_information.png item_parameters.png".split()
)
#: Those of a multilevel fit or a factor model, and of items with texts, in addition.
STRUCTURE_FILES = tuple(
    "effects.csv variance_components.csv subject_effects.csv group_abilities.csv"
    " correlations.csv diagnostics.csv trajectories.csv draws.nc group_abilities.png"
    " correlations.png loadings.csv structure.csv"
    " factor_correlations.csv factor_correlation_errors.csv structure.png biplot.png"
    " item_texts.parquet item_contents.parquet".split()
)
#: Those of `irtjax run`, whose folder is that of its fit: what became of each part.
RUN_FILES = ("run.json", "summary.md")
#: Prompts and answers of the items, where the data had them.
_TEXTS = "item_texts.parquet"
#: Hashes of the content of the items, where the data had them.
_CONTENTS = "item_contents.parquet"
#: The files that `load` reads, in addition to `fit.json`.
_READ = ("parameters.npz", "items.parquet", "abilities.parquet", _TEXTS, _CONTENTS)


def save(
    calibration: Calibration,
    folder: str | Path,
    *,
    overwrite: bool = False,
    extras: Sequence[Callable[[Path], None]] = (),
) -> Path:
    """Writes a calibration to a folder, whole or not at all, and returns the folder.

    Args:
        calibration: What `irtjax.fit` returned.
        folder: Folder to make, or one that holds an earlier fit, which is replaced.
        overwrite: Whether to write into a folder that has other files, too; those
            stay, unless they have the name of a file of a fit.
        extras: Functions that write more files (a report, figures) into a given folder.

    Raises:
        ValueError: If the folder holds something else, or cannot be written.

    >>> import tempfile, pathlib, irtjax
    >>> table = irtjax.ResponseTable.from_arrays([[1, 0, 1], [0, 0, 1], [1, 1, 0]])
    >>> fit = irtjax.fit(table, "rasch")
    >>> folder = save(fit, pathlib.Path(tempfile.mkdtemp(), "fit"))
    >>> load(folder).status == fit.status
    True
    """
    folder = check_folder(folder, overwrite=overwrite)
    stale = (*FIT_FILES, *STRUCTURE_FILES, *RUN_FILES)
    with writing.together(folder, stale=stale) as place:
        _write_files(calibration, place)
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


def is_fit(folder: str | Path) -> bool:
    """Whether a folder holds a fit that irtjax wrote, of any version."""
    path = Path(folder, "fit.json")
    try:
        return decode(read_bytes(path), _Mark, str(path)).format == FIT_FORMAT
    except ValueError:
        return False


def _write_files(calibration: Calibration, folder: Path) -> None:
    """Writes all files of a fit into a folder."""
    from irtjax.storage.checks import digest_of, digests
    from irtjax.storage.encoding import to_arrays, to_json
    from irtjax.storage.factors import factor_tables
    from irtjax.storage.multilevel import best_first, structure_tables

    abilities = best_first(calibration.abilities.table)
    for ending in ("parquet", "csv"):
        write_table(calibration.items.table, folder / f"items.{ending}")
        write_table(abilities, folder / f"abilities.{ending}")
    tables = structure_tables(calibration) | factor_tables(calibration)
    for name, table in tables.items():
        write_table(table, folder / f"{name}.csv")
    if calibration.item_texts:
        write_table(texts_table(calibration.item_texts), folder / _TEXTS)
    if calibration.item_contents:
        write_table(contents_table(calibration.item_contents), folder / _CONTENTS)
    arrays: dict[str, Any] = to_arrays(calibration)
    np.savez_compressed(folder / "parameters.npz", **arrays)
    content = {"format": FIT_FORMAT, "version": FIT_VERSION, **to_json(calibration)}
    content["digests"] = digests(folder, _READ)
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
            raise _damaged(folder, f"{name} is missing")
    try:
        arrays = read_arrays(folder / "parameters.npz")
        tables = {name: _read_table(folder / name) for name in files}
        texts = []
        contents = _contents(folder)
        if (folder / _TEXTS).is_file():
            texts = _read_table(folder / _TEXTS).to_pylist()
        content = decode(data, FitDocument, "fit.json")
    except (OSError, ValueError) as error:
        raise _damaged(folder, str(error)) from None
    try:
        found = from_parts(content, arrays, tables)
        if content.digests is not None:
            check_digests(folder, data, content.digests)
        about = {"item_texts": texts_from_rows(texts), "item_contents": contents}
        return dataclasses.replace(found, **about)
    except KeyError as error:
        raise _damaged(folder, f"{error} is missing") from None
    except UndefinedClassError as error:
        raise ValueError(f"{folder}: {error}") from None
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _damaged(folder, str(error)) from None


def load_contents(folder: str | Path) -> dict[str, str]:
    """Hashes of the content of the items of a saved fit, by name; of many fits none."""
    folder = Path(folder)
    try:
        return _contents(folder)
    except (OSError, ValueError, KeyError) as error:
        raise _damaged(folder, str(error)) from None


def _contents(folder: Path) -> dict[str, str]:
    """Contents of items by name; empty where the fit has no such file."""
    if not (folder / _CONTENTS).is_file():
        return {}
    rows = _read_table(folder / _CONTENTS).to_pylist()
    return {str(row["item"]): str(row["content"]) for row in rows}


class _Mark(Record):
    """The fields that mark a fit of this version."""

    format: Any = None
    version: Any = None


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
        mark = decode(data, _Mark, "fit.json")
    except ValueError as error:
        raise _damaged(folder, str(error)) from None
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


def _read_table(path: Path) -> pa.Table:
    """A Parquet table of at most the size that is allowed, whose texts are UTF-8."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        check_parquet(path, pq.read_metadata(path), None)
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise ValueError(f"{path.name}: {error}") from None
    check_text(path, table)
    return table


def _damaged(folder: Path, reason: str) -> ValueError:
    """The refusal of a damaged fit."""
    reason = " ".join(reason.split())
    return ValueError(f"the fit in {folder} is damaged: {reason}; run the fit again")
