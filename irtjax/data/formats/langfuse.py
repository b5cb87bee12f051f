"""Scores of Langfuse, exported as CSV, JSON or JSON lines: a row is a score of a trace.

``name`` is the metric and ``value`` the score; of a categorical score the value is a
word. Rows that name the run and the item of a data set show the subject and the item.
An export without them has traces only: the run items of the data set, exported too,
show the item of a trace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from irtjax.data.decode import decode
from irtjax.data.files import read_head
from irtjax.data.item_texts import text_of
from irtjax.data.reading.columns import require
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.record_files import (
    PlacedRecord,
    listed,
    objects,
    table_rows,
    values,
    whole_of,
)
from irtjax.data.reading.records import Records
from irtjax.data.reading.tool import Tool
from irtjax.data.wording import counted, several, were

_SCORE = {"name", "value", "dataType", "traceId"}
_RUN_ITEM = {"datasetItemId", "traceId", "datasetName"}
_SUBJECT = "datasetRunName", "metadata.model", "metadata.model_name", "datasetRunId"
_ITEM = "datasetItemId", "metadata.datasetItemId", "metadata.item"
_CURE = (
    "add the columns datasetRunName and datasetItemId, or name such columns with"
    " subject= and item="
)


def recognise(fields: dict[str, Any], name: str) -> bool:
    """Whether a first record is a score, or the item of a run."""
    data = fields.get("data")
    first = data[0] if isinstance(data, list) and data else fields
    return isinstance(first, dict) and recognise_header([*first], ())


def recognise_header(names: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether columns are those of scores, or of items of runs."""
    return _SCORE <= {*names} or _RUN_ITEM <= {*names}


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads scores; those that are words are metrics without numbers."""
    scores: dict[Path, list[PlacedRecord]] = {}
    items: dict[str, str] = {}
    columns: dict[str, None] = {}
    for path in paths:
        for place, row in _rows(path):
            columns |= dict.fromkeys(row)
            if _SCORE <= row.keys():
                scores.setdefault(path, []).append(PlacedRecord(place, row))
            elif _RUN_ITEM <= row.keys():
                items[str(row["traceId"])] = str(row["datasetItemId"])
    named = [options.item] if isinstance(options.item, str) else [*(options.item or ())]
    for option, column in (("subject", options.subject), *(("item", x) for x in named)):
        if column is not None:
            require(list(columns), column, option, str(paths[0]))
    subject = (options.subject,) if options.subject else _SUBJECT
    rows = {path: [] for path in scores}
    lacking = 0
    for path, placed in scores.items():
        for place, record, _ in placed:
            item = "/".join(filter(None, (_text(record, (x,)) for x in named or _ITEM)))
            item = item or items.get(str(record["traceId"]), "")
            who = _text(record, subject)
            lacking += not item
            if item:
                score = {str(record["name"]): _value(record)}
                row = {"subject": who, "item": item, "scores": score}
                rows[path].append(PlacedRecord(place, row))
    _check(rows, options)
    tool = Tool(
        name="Langfuse",
        marks=(),
        rows=lambda path: rows[path],
        subject=("subject",),
        item=("item",),
        scores=("scores.*",),
    )
    records = tool.read_files(list(rows), options)
    if lacking:
        what = f"{counted(lacking, 'score')} of traces outside a data set"
        records.notes.append(f"{what} {were(lacking)} left out")
    return records


def _check(rows: dict[Path, list[PlacedRecord]], options: ReadOptions) -> None:
    """Refuses scores whose subjects or items are not known."""
    every = [placed.record for part in rows.values() for placed in part]
    where = several(list(rows)) if rows else "the input"
    if not every:
        why = "holds scores of Langfuse that name no item of a data set"
        raise ValueError(f"{where} {why}; {_CURE}")
    if options.subject_name is not None or all(row["subject"] for row in every):
        return
    for path, part in rows.items():
        cells = [(x.record["item"], *x.record["scores"]) for x in part]
        if len({*cells}) < len(cells):
            why = "holds several scores of an item, and nothing names their models"
            raise ValueError(f"{path} {why}; {_CURE}")


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file; metadata that is JSON in a text as an object."""
    start = read_head(path).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    records: Iterable[PlacedRecord]
    if start not in (b"{", b"["):
        header, lines = table_rows(path)
        records = (
            PlacedRecord(place, dict(zip(header, x, strict=True))) for place, x in lines
        )
    else:
        whole = whole_of(path, ("data",))
        records = listed(path, ("data",), whole) if whole else objects(path)
    for place, row, _ in records:
        metadata = row.get("metadata")
        if isinstance(metadata, str) and metadata.startswith("{"):
            with contextlib.suppress(ValueError):
                row = {**row, "metadata": decode(metadata.encode(), Any, place)}
        yield place, row


def _text(record: dict[str, Any], paths: Sequence[str]) -> str:
    """The first text at a path that is not empty."""
    texts = (record[x] if x in record else _inner(record, x) for x in paths)
    return next((text for x in texts if (text := text_of(x))), "")


def _inner(record: dict[str, Any], path: str) -> Any:
    """The value at a path; None without one."""
    return next((x for _, x in values(record, path)), None)


def _value(record: dict[str, Any]) -> Any:
    """The score of a row; of a categorical one its word."""
    if record["dataType"] == "CATEGORICAL":
        return record.get("stringValue") or record["value"]
    return record["value"]
