"""Fields inside fields of JSON and Parquet, named by paths such as "metric.bleu"."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from irtjax.data.decode import decode
from irtjax.data.reading.tabular import Frame, column_of
from irtjax.data.wording import listing


class Leaf(NamedTuple):
    """A value at the end of a path, and the list in which it lies, "" for none."""

    value: Any
    inside: str


def with_paths(frame: Frame, paths: Sequence[str]) -> Frame:
    """A table with a column for each path that options name.

    A path through a list of records makes a row of each record.

    Raises:
        ValueError: A path leads nowhere; the message lists those with numbers.
    """
    roots = list(dict.fromkeys(path.split(".")[0] for path in paths))
    records = frame.table.select(roots).to_pylist()
    rows: list[int] = []
    columns: dict[str, list[Any]] = {path: [] for path in paths}
    for row, record in enumerate(records):
        values_by_path = [list(_at(record, path.split("."))) for path in paths]
        sizes = {len(values) for values in values_by_path if len(values) != 1}
        if len(sizes) > 1:
            raise ValueError(
                f"{frame.source}: row {row + 1}: {' and '.join(paths)} lead to lists of"
                f" {' and '.join(map(str, sorted(sizes)))} values: name paths into one"
                " list"
            )
        size = sizes.pop() if sizes else 1
        rows += [row] * size
        for path, values in zip(paths, values_by_path, strict=True):
            columns[path] += values * size if len(values) == 1 else values
    for path, values in columns.items():
        if all(value is None for value in values):
            numeric = number_paths(frame.table.slice(0, 100).to_pylist())
            raise ValueError(
                f"{frame.source}: no field {path!r:.80}; fields with numbers are:"
                f" {listing(numeric) or 'none'}"
            )
    table = frame.table.take(pa.array(rows, pa.int64()))
    for path, values in columns.items():
        table = table.append_column(path, column_of(values))
    return dataclasses.replace(frame, table=table, take=None, names=())


def _at(value: Any, parts: Sequence[str]) -> Iterator[Any]:
    """The values at the end of a path: one, or those of the records of a list."""
    if isinstance(value, str) and value[:1] in ("{", "[") and parts:
        value = _of_text(value)
    if not parts:
        if isinstance(value, list):
            yield from value
        else:
            yield value
    elif isinstance(value, Mapping):
        rest = ".".join(parts)
        # A name may have dots of its own.
        inner = value.get(rest)
        yield from (
            _at(inner, []) if inner is not None else _at(value.get(parts[0]), parts[1:])
        )
    elif isinstance(value, list):
        if parts[0].isdecimal():
            place = int(parts[0])
            yield from _at(value[place] if place < len(value) else None, parts[1:])
        else:
            for part in value:
                yield from _at(part, parts)
    else:
        yield None


def _of_text(text: str) -> Any:
    """The value of JSON in a cell, which stays text if it is none."""
    try:
        return decode(text.encode(), Any, "")
    except ValueError:
        return text


def leaves(value: Any, path: str = "", inside: str = "") -> Iterator[tuple[str, Leaf]]:
    """The values in a record with their paths; of lists those of all records."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from leaves(part, f"{path}.{name}" if path else str(name), inside)
    elif isinstance(value, list):
        if not inside and any(isinstance(part, Mapping) for part in value):
            for part in value:
                yield from leaves(part, path, path)
    else:
        yield path, Leaf(value, inside)


def number_paths(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Paths at which records have numbers."""
    pairs = (pair for record in records for pair in leaves(record))
    paths = (path for path, leaf in pairs if isinstance(leaf.value, bool | int | float))
    return list(dict.fromkeys(paths))


def flat(records: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Columns of the values in records, by path, with a row for each record of a list.

    Of several lists the one with most values is taken.

    >>> flat([{"m": "a", "r": [{"q": 1}, {"q": 2}]}])
    {'m': ['a', 'a'], 'r.q': [1, 2]}
    """
    records = list(records)
    nested = (Mapping, list)
    if not any(isinstance(x, nested) for record in records for x in record.values()):
        # Most tables: by paths they take ten times as long.
        names = dict.fromkeys(name for record in records for name in record)
        return {str(name): [row.get(name) for row in records] for name in names}
    inside = [leaf.inside for record in records for _, leaf in leaves(record)]
    lists = {name: inside.count(name) for name in {*inside} - {""}}
    taken = max(lists, key=lists.__getitem__) if lists else ""
    rows: list[dict[str, Any]] = []
    for record in records:
        outer = {path: x.value for path, x in leaves(record) if not x.inside}
        parts: list[dict[str, Any]] = []
        for path, leaf in leaves(record):
            if taken and leaf.inside == taken:
                if not parts or path in parts[-1]:
                    parts.append({})
                parts[-1][path] = leaf.value
        rows += [{**outer, **part} for part in parts or [{}]]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
