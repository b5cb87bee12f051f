"""The AI Measurement Data Bank: ``responses.parquet`` with its registries.

A row is a response: ``subject_id, item_id, benchmark_id, trial, test_condition,
response``, and in schema 3 ``interactors``. Readable names are in ``subjects.parquet``
and ``items.parquet``, next to it or in the folder ``_registry``. On Hugging Face the
file of responses is ``response.parquet``.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from irtjax.data.arrays import as_labels
from irtjax.data.decode import Record, decode
from irtjax.data.files import check_parquet, damaged
from irtjax.data.item_texts import ItemText, cut
from irtjax.data.reading.cells import to_labels
from irtjax.data.reading.frames import qualify, read_frame
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import Coded, Records, concatenate, join_coded
from irtjax.data.reading.tabular import Frame
from irtjax.data.wording import listing

_REQUIRED = "subject_id", "item_id", "benchmark_id", "response"
_CONDITIONS = "test_condition", "interactors"
# What makes a subject more than its model.
_SETTINGS = "harness", "harness_version", "reasoning_effort", "subject_features_extra"
_ITEM = "item_id", "benchmark_id", "raw_item_id", "grading_criterion"
_TEXTS = "content", "correct_answer"
_OTHERS = (
    {"subject_id", "display_name"},
    {"item_id", "raw_item_id"},
    {"benchmark_id", "response_type"},
    {"subject_id", "item_id", "trace"},
    {"asset_id", "byte_size"},
)


class _Scale(Record):
    direction: Any = None


class _Criterion(Record):
    """How an item is graded, in schema 3; with a scale where items differ in it."""

    reference_answer: Any = None
    response_scale: _Scale | None = None


def recognise_columns(names: set[str], name: str) -> bool | str:
    """Whether columns are of responses; the reason for another table of the bank."""
    if names.issuperset(_REQUIRED):
        return True
    if any(other <= names for other in _OTHERS):
        return "is a registry of the Measurement Data Bank; give its responses.parquet"
    return False


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file has the name of responses."""
    return path.name in ("responses.parquet", "response.parquet")


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads responses with the names of subjects and items; benchmarks stay apart."""
    return concatenate([_read(path, options) for path in paths])


def _read(path: Path, options: ReadOptions) -> Records:
    """The responses of one file, with the names of subjects and items."""
    table = _columns(path, [*_REQUIRED, "trial", *_CONDITIONS])
    if len(set(table.column_names)) < table.num_columns:
        raise ValueError(f"{path} has two columns of one name; give the file as it was")
    lacking = [name for name in _REQUIRED if name not in table.column_names]
    if lacking:
        raise ValueError(
            f"{path} has no column {lacking[0]!r} of the Measurement Data Bank; its"
            f" columns are: {listing(table.column_names)}"
        )
    for name in _REQUIRED[:3]:
        place = table.column_names.index(name)
        table = table.set_column(place, name, _text(table[name], name, path, True))
    wanted = (*_ITEM, *_TEXTS) if options.texts else _ITEM
    items = _registry(path, "items.parquet", wanted)
    columns = {
        "subject": _renamed(table["subject_id"], _subjects(path)),
        "item": _renamed(table["item_id"], _named(items)),
        "benchmark": table["benchmark_id"],
        "response": table["response"],
    }
    if "trial" in table.column_names:
        columns["trial"] = table["trial"]
    # The names of columns are known here, and options for tables do not apply.
    own = ("subject", "item", "response", "benchmark", "trial", "length")
    plain = dataclasses.replace(options, **dict.fromkeys(own))
    records = read_frame(Frame(pa.table(columns), None, str(path)), plain)
    assert isinstance(records, Records)  # noqa: S101 (a long table)
    records.item = qualify(records.item, records.benchmark, True)
    records.qualified = None  # Names of this bank are no matter of other tables.
    if options.texts:
        records.item_texts = _texts(items, path)
    present = set(table["benchmark_id"].unique().to_pylist())
    _add_directions(records, path, items, present)
    condition = _conditions(table, path)
    return records if condition is None else _conditioned(records, condition, options)


def _columns(path: Path, wanted: Sequence[str]) -> pa.Table:
    """Those of the wanted columns that a Parquet file has."""
    try:
        file = pq.ParquetFile(path)
        columns = [name for name in wanted if name in file.schema_arrow.names]
        twice = [name for name in columns if file.schema_arrow.names.count(name) > 1]
        if twice:
            raise ValueError(f"{path} has two columns {twice[0]!r}; leave one out")
        check_parquet(path, file.metadata, columns)
        table = file.read(columns=columns)
        table.validate(full=True)  # Its texts may be no UTF-8.
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise damaged(path, error) from None
    return table


def _registry(path: Path, name: str, wanted: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a registry, none if it is not there."""
    for folder in (".", "_registry", "../_registry"):
        file = path.parent / folder / name
        if file.is_file():
            return _as_text(_columns(file, wanted), wanted[0], file).to_pylist()
    return []


def _as_text(table: pa.Table, key: str, path: Path) -> pa.Table:
    """A registry whose columns are text, with the column that names its rows."""
    if key not in table.column_names:
        raise ValueError(f"{path} has no column {key!r}; copy the registry again")
    for k, field in enumerate(table.schema):
        column = _text(table.column(k), field.name, path, field.name == key)
        table = table.set_column(k, field.name, column)
    return table


def _text(
    column: pa.ChunkedArray, name: str, path: Path, is_key: bool
) -> pa.ChunkedArray:
    """A column as text; one of identifiers must be of names or numbers."""
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        if is_key:
            raise ValueError(
                f"{path}: column {name!r} holds {column.type}, not names; copy the file"
                " again"
            ) from None
    texts = [None if cell is None else str(cell) for cell in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _subjects(path: Path) -> dict[str, str]:
    """The name of each subject, with its settings where it has some."""
    wanted = ["subject_id", "display_name", *_SETTINGS]
    names = {}
    for row in _registry(path, "subjects.parquet", wanted):
        settings = ", ".join(str(row[key]) for key in _SETTINGS if row.get(key))
        name = row.get("display_name") or row["subject_id"]
        names[row["subject_id"]] = f"{name} ({settings})" if settings else name
    return _distinct(names, {})


def _named(rows: list[dict[str, Any]]) -> dict[str, str]:
    """The name of each item in its source; the benchmark is put before it later."""
    names = {row["item_id"]: row.get("raw_item_id") or row["item_id"] for row in rows}
    return _distinct(names, {r["item_id"]: r.get("benchmark_id") for r in rows})


def _texts(rows: list[dict[str, Any]], path: Path) -> dict[str, ItemText]:
    """What items ask, by their names with the benchmark."""
    names = _named(rows)
    texts = {}
    for row in rows:
        name, benchmark = names[row["item_id"]], row.get("benchmark_id")
        label = _label(name, benchmark)
        if row.get("content"):
            answer = row.get("correct_answer")
            if not answer:
                answer = _decoded(row.get("grading_criterion"), _Criterion, path)
                answer = answer.reference_answer
            answer = cut(answer if isinstance(answer, str) else "")
            texts[label] = ItemText(cut(row["content"]), answer)
    return texts


def _decoded(text: str | None, kind: type[Any], path: Path) -> Any:
    """A record of a registry; an empty one where there is none."""
    try:
        return decode((text or "{}").encode(), kind, str(path))
    except ValueError:
        return kind()  # Before schema 3 it was prose.


def _distinct(names: dict[str, str], groups: dict[str, Any]) -> dict[str, str]:
    """Adds the identifier to a name that several of a group have."""
    count = Counter((groups.get(key), name) for key, name in names.items())
    return {
        key: name if count[groups.get(key), name] == 1 else f"{name} [{key}]"
        for key, name in names.items()
    }


def _renamed(column: pa.ChunkedArray, names: dict[str, str]) -> pa.ChunkedArray:
    """A column of identifiers as names, where there are any."""
    if not names:
        return column
    coded = column.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    labels = [names.get(key, key) for key in coded.dictionary.to_pylist()]
    return pa.chunked_array([pc.take(pa.array(labels, pa.string()), coded.indices)])


def _conditions(table: pa.Table, path: Path) -> Coded | None:
    """The conditions of each response, "" for none; None where no row has one."""
    conditions = [name for name in _CONDITIONS if name in table.column_names]
    conditions = [
        name for name in conditions if table[name].null_count < table.num_rows
    ]
    if not conditions:
        return None
    parts = [
        to_labels(table[name], name, str(path), optional=True) for name in conditions
    ]
    sizes = [len(part.labels) for part in parts]
    codes = np.ravel_multi_index([part.codes for part in parts], sizes)
    kinds, codes = np.unique(codes, return_inverse=True)
    texts = [
        ";".join(str(p.labels[k]) for p, k in zip(parts, one, strict=True)).strip(";")
        for one in zip(*np.unravel_index(kinds, sizes), strict=True)
    ]
    # "temperature:0", since "=" parts a benchmark from a filter.
    labels = [text.replace("=", ":") or "none" for text in texts]
    # Two conditions may have one label.
    return join_coded([Coded(codes.astype(np.int32), as_labels(labels))])


def _conditioned(records: Records, condition: Coded, options: ReadOptions) -> Records:
    """Makes conditions filters, where a subject met an item under several."""
    cell = records.subject.codes.astype(np.int64) * len(records.item.labels)
    cell = np.unique(cell + records.item.codes, return_inverse=True)[1]
    apart = cell.astype(np.int64) * len(condition.labels) + condition.codes
    # Trials of a cell are numbered within each condition.
    if len(np.unique(apart)) > cell.max() + 1 or options.filter is not None:
        records.filter = condition
        return records
    shown = listing(condition.compact().labels.tolist(), 4)
    records.notes.append(
        f"{records.source}: conditions of responses ({shown}) are read together: no"
        " subject met an item under two of them"
    )
    return records


def _add_directions(
    records: Records, path: Path, items: list[dict[str, Any]], present: set
) -> None:
    """Adds benchmarks and items of which lower is better; notes those without order."""
    low = "lower_is_better"
    for row in _registry(
        path, "benchmarks.parquet", ["benchmark_id", "response_scale"]
    ):
        name = row["benchmark_id"]
        way = _decoded(row.get("response_scale"), _Scale, path).direction
        if name in present and way in (low, "higher_is_better"):
            records.directions[name, ""] = way == low
        elif name in present and way == "unordered":
            records.notes.append(
                f"responses of {name} are categories without an order: use"
                " model='nominal'"
            )
    names, lower = _named(items), set()
    for row in items:
        if row.get("benchmark_id") in present and low in (
            row.get("grading_criterion") or ""
        ):
            scale = _decoded(row["grading_criterion"], _Criterion, path).response_scale
            if scale is not None and scale.direction == low:
                lower.add(_label(names[row["item_id"]], row.get("benchmark_id")))
    records.lower_items = frozenset(lower)


def _label(name: str, benchmark: Any) -> str:
    """The name of an item, with its benchmark before it."""
    return name if name.startswith(f"{benchmark}/") else f"{benchmark}/{name}"
