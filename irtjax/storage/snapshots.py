"""What a fit was before `add` replaced it: small dated folders in that of the fit.

`DIR/snapshots/DATE-NUMBER` has the subjects with their abilities, errors and ranks,
the names of the items, and a document. The digests of its files are in `fit.json`, so
that a snapshot is of the history of this fit or refused.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from irtjax.calibration.tables import floats
from irtjax.data import writing
from irtjax.data.decode import Record, decode
from irtjax.data.files import read_bytes
from irtjax.data.fit_folder import damaged, read_table
from irtjax.ranking import without_scale

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.calibration.calibration import Calibration

FORMAT = "irtjax.snapshot"
FOLDER = "snapshots"
FILES = ("snapshot.json", "subjects.parquet", "items.parquet")
#: Columns of the ability table that a snapshot keeps.
_COLUMNS = ("subject", "ability", "rank", "rank_lower", "rank_upper", "expected_score")
_COLUMNS += ("expected_score_lower", "expected_score_upper", "accuracy", "observed")


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshot:
    """A fit at one time.

    Attributes:
        name: Of its folder; empty for the fit as it is.
        date: When it was written, by ISO 8601.
        calibrated: Why its items were fitted again; empty where they were not.
        level: Of its intervals.
        subjects: The columns of the ability table on ranks and scores, the error of
            each ability given the scale, and the loadings of what errors share.
        items: Names of the items.
    """

    name: str
    date: str
    calibrated: str
    level: float
    subjects: pa.Table
    items: np.ndarray


class _Document(Record):
    """The document of a snapshot."""

    format: str
    date: str
    calibrated: str
    level: float


def snapshot_of(fit: Calibration, date: str) -> Snapshot:
    """The snapshot of a calibration."""
    import pyarrow as pa

    table = fit.abilities.table
    (error,) = floats(table, "ability_se")
    own, shared = without_scale(error, fit.ability_shared, fit.ability_scale)
    rows = np.zeros((len(own), 0)) if shared is None else shared
    snapshot = table.select(_COLUMNS).append_column("error", pa.array(own))
    snapshot = snapshot.append_column(
        "shared", pa.array(list(rows), pa.list_(pa.float64()))
    )
    reason = str(fit.options.get("calibrated_because", ""))
    return Snapshot("", date, reason, fit.level, snapshot, fit.item_names)


def write_snapshot(snapshot: Snapshot, folder: Path) -> Path:
    """Writes a snapshot into the folder of its fit, whole or not at all.

    One of the same time stays: a process that was killed before the fit has left it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    day, number = snapshot.date[:10], 1
    while (place := folder / FOLDER / f"{day}-{number}").exists():
        if read_snapshot(folder, place.name).date == snapshot.date:
            return place
        number += 1
    content = {"format": FORMAT, "date": snapshot.date, "level": snapshot.level}
    content |= {"calibrated": snapshot.calibrated}
    items = pa.table({"item": pa.array(snapshot.items.tolist(), pa.string())})
    with writing.together(place) as staged:
        text = json.dumps(content, ensure_ascii=False) + "\n"
        writing.write_text(text, staged / "snapshot.json")
        for name, table in (("subjects", snapshot.subjects), ("items", items)):
            pq.write_table(table, staged / f"{name}.parquet", compression="zstd")
    return place


def snapshot_files(names: Iterable[str]) -> list[str]:
    """Paths of the files of snapshots within the folder of a fit."""
    return [f"{FOLDER}/{name}/{file}" for name in names for file in FILES]


def names_in(paths: Iterable[str]) -> list[str]:
    """Names of the snapshots of which such paths are, the oldest first."""
    names = {x.split("/")[1] for x in paths if x.startswith(f"{FOLDER}/")}

    def order(name: str) -> tuple[str, int]:
        day, _, number = name.rpartition("-")
        return day, int(number) if number.isdigit() else 0

    return sorted(names, key=order)


def read_snapshot(folder: Path, name: str) -> Snapshot:
    """Reads a snapshot of the fit in a folder."""
    place = folder / FOLDER / name
    try:
        content = decode(read_bytes(place / FILES[0]), _Document, FILES[0])
        subjects = read_table(place / FILES[1])
        items = read_table(place / FILES[2]).column("item").to_pylist()
        if content.format != FORMAT or {*_COLUMNS} - {*subjects.column_names}:
            raise ValueError("it is no snapshot")
    except (OSError, ValueError, KeyError) as error:
        raise damaged(folder, f"{FOLDER}/{name}: {error}") from None
    return Snapshot(
        name,
        content.date,
        content.calibrated,
        content.level,
        subjects,
        np.array(items),
    )


class Version(Record):
    """Time and digests in `fit.json`, which differ between versions of a fit."""

    saved: str = ""
    digests: dict[str, str] | None = None


def version_of(folder: Path) -> Version:
    """The version of the fit in a folder."""
    return decode(read_bytes(folder / "fit.json"), Version, "fit.json")


def saved_at(folder: Path) -> str:
    """When the fit in a folder was written."""
    if saved := version_of(folder).saved:
        return saved
    # A fit of before has no time.
    changed = (folder / "fit.json").stat().st_mtime
    when = datetime.datetime.fromtimestamp(changed, datetime.UTC)
    return when.isoformat(timespec="microseconds")


def without(names: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """Names that are not among others, in their order."""
    excluded = {*others}
    return tuple(name for name in names if name not in excluded)


def now() -> str:
    """The time, by ISO 8601, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
