"""The ``.jsonlines`` of py-irt: one subject per line, its responses by item."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from irtjax.data.decode import Record, Score, decode, json_values, repeated_keys
from irtjax.data.reading.identity import ItemKey
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records


class Subject(Record):
    """A subject with its responses by item."""

    cure: ClassVar[str] = "a record of py-irt has subject_id and responses by item"

    subject_id: int | float | str
    responses: dict[str, Score]


def recognise(fields: dict[str, Any], name: str) -> bool:
    """Whether a first record is of this format."""
    return {"subject_id", "responses"} <= fields.keys()


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file has the ending that py-irt uses."""
    return path.suffix == ".jsonlines"


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads py-irt files; an item that a subject does not list is missing."""
    builder = RecordBuilder()
    for path in paths:
        for place, line in json_values(path):
            record = decode(line, Subject, place)
            builder.notes += repeated_keys(bytes(line), place)
            subject = options.subject_name or str(record.subject_id)
            for item, value in record.responses.items():
                number = _number(value, f"{place}, item {item!r}")
                builder.add(subject=subject, item=ItemKey("", item), response=number)
    return builder.finish(paths, options.join)


def _number(value: Any, place: str) -> float | None:
    """A response; refuses what is no number."""
    if value is not None and not isinstance(value, bool | float):
        raise ValueError(
            f"{place} is {value!r:.60}, which is not a number; correct it, or write"
            " null where it is missing"
        )
    return value
