"""The ``.jsonlines`` of py-irt: one subject per line, its responses by item."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from irtjax.data.files import read_text
from irtjax.data.reading.identity import ItemKey
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.reading.tabular import parse_json_records


def recognise(fields: dict[str, Any], name: str) -> bool:
    """Whether a first record is of this format."""
    return {"subject_id", "responses"} <= fields.keys()


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads py-irt files; an item that a subject does not list is missing."""
    builder = RecordBuilder()
    for path in paths:
        for number, record in enumerate(parse_json_records(path, read_text(path)), 1):
            responses = record.get("responses")
            if "subject_id" not in record or not isinstance(responses, dict):
                raise ValueError(
                    f"{path}: record {number} needs the fields subject_id and responses"
                )
            subject = options.subject_name or str(record["subject_id"])
            for item, value in responses.items():
                if value is not None and not isinstance(value, bool | int | float):
                    raise ValueError(
                        f"{path}: record {number}, item {item!r} is {value!r}, which is"
                        " not a number"
                    )
                builder.add(subject=subject, item=ItemKey("", item), response=value)
    return builder.finish(paths, options.join)
