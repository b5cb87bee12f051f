"""JSON decoded into typed records; every deviation is one line with its place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from irtjax.data.files import read_bytes

T = TypeVar("T")
_MARK = b"\xef\xbb\xbf"


class Record(msgspec.Struct, kw_only=True):
    """Base of the records of a format: other fields of a file are skipped unread.

    A field without a default must be there. msgspec checks the types.
    """


def decode(data: bytes, type: type[T], place: str) -> T:
    """Decodes one JSON value.

    Args:
        data: UTF-8 text; the words NaN and Infinity, which Python writes, are known.
        type: A `Record`, or any other type that msgspec knows.
        place: Where the text is from, for messages: a path, "PATH: line 3".

    Returns:
        The value.

    Raises:
        ValueError: It is no JSON or not of this type; the message begins with
            ``place`` and names the field.

    >>> class Sample(Record):
    ...     id: str
    ...     score: float | None = None
    >>> decode(b'{"id": "q1", "score": NaN, "other": [1]}', Sample, "a.json").score
    nan
    >>> decode(b'{"id": "q1", "score": "x"}', Sample, "a.json")
    Traceback (most recent call last):
    ...
    ValueError: a.json: Expected `float | null`, got `str` - at `$.score`
    """
    try:
        try:
            return msgspec.json.decode(data.removeprefix(_MARK), type=type)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            if b"NaN" not in data and b"Infinity" not in data:
                raise
            # Not of the standard, but of Python's own writer: slower, so only if met.
            return msgspec.convert(json.loads(data), type)
    except RecursionError:
        raise ValueError(f"{place}: values are nested too deeply to be read") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(f"{place}: {_tidy(error)}") from None


def decode_lines(path: Path, type: type[T]) -> list[T]:
    """Decodes a file of JSON lines, or of one JSON array; a place is a line or number.

    Raises:
        ValueError: As for `decode`.
    """
    data = read_bytes(path).removeprefix(_MARK)
    if data.lstrip()[:1] == b"[":
        return decode(data, list[type], str(path))  # type: ignore[valid-type]
    return list(_lines(path, data, type))


def _lines(path: Path, data: bytes, type: type[T]) -> Iterator[T]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield decode(line, type, f"{path}: line {number}")


def _tidy(error: Exception) -> str:
    """The message of a decoder as the end of a sentence."""
    text = " ".join(str(error).split())
    if isinstance(error, msgspec.ValidationError):
        return text
    if "truncated" in text or "Expecting" in text:
        return f"is cut off or no JSON ({text}); copy the file again"
    return f"is no JSON ({re.sub(r'^JSON is malformed: ', '', text)})"
