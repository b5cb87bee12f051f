"""Records of files, values at paths in them, and names of files.

A path has steps between dots, as in ``metadata.model``. The step ``*`` is every field
of an object, and ``metrics[name]`` is every element of the list ``metrics``, labelled
by its field ``name``. A path that begins with ``^`` is one of the whole file, others
are of a record.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from irtjax.data.decode import decode, json_values
from irtjax.data.files import delimiter_of, read_bytes, read_text
from irtjax.data.item_texts import text_of
from irtjax.data.reading.file_subjects import place_names


class PlacedRecord(NamedTuple):
    """A record of a file, where it is, and the whole file if that is one object."""

    place: str
    record: dict[str, Any]
    whole: dict[str, Any] = {}


def values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The values at a path, each with the label of its steps `*` and `[name]`.

    >>> record = {"a": {"x": 1, "y": 2}, "b": [{"id": "p", "s": 3}]}
    >>> list(values(record, "a.*")), list(values(record, "b[id].s"))
    ([('x', 1), ('y', 2)], [('p', 3)])
    >>> list(values(record, "a.x")), list(values(record, "a.z"))
    ([('', 1)], [])
    """
    step, _, rest = path.partition(".")
    if not isinstance(value, dict):
        return
    if step == "*":
        named_parts = [(str(name), part) for name, part in value.items()]
    elif step.endswith("]"):
        field, _, name = step[:-1].partition("[")
        parts = value.get(field)
        parts = parts if isinstance(parts, list) else []
        named_parts = [(name_of(x.get(name)), x) for x in parts if isinstance(x, dict)]
    elif step in value:
        named_parts = [("", value[step])]
    else:
        return
    for label, part in named_parts:
        if not rest:
            yield label, part
            continue
        for steps, inner in values(part, rest):
            yield "/".join(filter(None, [label, steps])), inner


def objects(path: Path) -> Iterator[PlacedRecord]:
    """The objects of JSON lines or of one array."""
    for place, value in json_values(path):
        yield PlacedRecord(place, decode(value, dict[str, Any], place))


def table_rows(path: Path) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The header of a CSV file, and its rows with their places."""
    text = read_text(path)
    delimiter = delimiter_of(text)
    try:
        lines = [x for x in csv.reader(io.StringIO(text), delimiter=delimiter) if x]
    except csv.Error as error:
        raise ValueError(f"{path} is no readable table: {error}") from None
    header = [name.strip() for name in lines[0]] if lines else []
    for number, line in enumerate(lines[1:], 1):
        if len(line) != len(header):
            raise ValueError(
                f"{path}: row {number} has {len(line)} cells, and the header has"
                f" {len(header)}; give the file as it was exported"
            )
    return header, [(f"{path}: row {k}", x) for k, x in enumerate(lines[1:], 1)]


def file_names(paths: Sequence[Path], common: str = "") -> list[str]:
    """Names of files that tell them apart: their own, else those of folders.

    Args:
        paths: Files.
        common: A pattern of what is no part of the name.

    >>> file_names([Path("a/scores.json"), Path("b/scores.json")])
    ['a', 'b']
    >>> file_names([Path("run_a.json"), Path("run_b.json")], "run_")
    ['a', 'b']
    """
    if not paths:
        return []
    places = place_names(paths)
    # A name that every file of the tool has, such as results.json, is cut to nothing.
    own = [re.sub(common, "", places[path].file) for path in paths]
    is_own = all(own) and len({*own}) == len(own)
    names = own if is_own else [places[path].folder for path in paths]
    return [name.replace("__", "/", 1) for name in names]


def whole_of(path: Path, lists: Sequence[str]) -> dict[str, Any]:
    """The one object of a file with lists of records; nothing for JSON lines."""
    data = read_bytes(path).removeprefix(b"\xef\xbb\xbf").lstrip()
    if data[:1] != b"{":
        return {}
    line = data[: data.find(b"\n") + 1]
    with contextlib.suppress(ValueError):
        first = decode(line, dict[str, Any], "")
        if not any(part for place in lists for part in values(first, place)):
            return {}
    return decode(data, dict[str, Any], str(path))


def listed(
    path: Path, lists: Sequence[str], whole: dict[str, Any]
) -> Iterator[PlacedRecord]:
    """The records in the lists of a file of one object."""
    for place in lists:
        for _, part in values(whole, place):
            if not isinstance(part, list):
                continue
            for number, record in enumerate(part, 1):
                where = f"{path}: {place} {number}"
                if not isinstance(record, dict):
                    raise ValueError(f"{where} is no object; give the file as written")
                yield PlacedRecord(where, record, whole)


def value_at(placed: PlacedRecord, path: str) -> Any:
    """The first value at a path of a record, or of its file; None without one."""
    source = placed.whole if path.startswith("^") else placed.record
    return next((x for _, x in values(source, path.removeprefix("^"))), None)


def first_at(placed: PlacedRecord, paths: Sequence[str]) -> Any:
    """The first value at one of several paths that is not empty; None without one."""
    each = (value_at(placed, path) for path in paths)
    return next((x for x in each if x not in (None, "")), None)


def text_at(placed: PlacedRecord, paths: Sequence[str]) -> str:
    """The first text at a path; of a chat, what its messages say, without their ids."""
    value = first_at(placed, paths)
    if isinstance(value, list) and all(isinstance(x, dict) for x in value):
        said = [text_of(x["content"]) for x in value if "content" in x]
        return "\n".join(said) or text_of(value)
    return text_of(value)


def number_of(value: Any) -> float | None:
    """A number as float; None for another value, or one that no float holds."""
    if isinstance(value, bool | int | float):
        with contextlib.suppress(OverflowError):
            return float(value)
    return None


def name_of(value: Any) -> str:
    """A name as text; "" for null."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return text_of(value)
