"""JSON decoded into typed records; every deviation is one line with its place."""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, get_args

import msgspec
import numpy as np

from irtjax.data.files import read_bytes

T = TypeVar("T")
_MARK = b"\xef\xbb\xbf"
#: Notes on repeated keys of a file.
_MOST_REPEATS = 3
#: The fields of an object by name, their values not decoded yet.
Fields: TypeAlias = dict[str, msgspec.Raw]
#: A score as logs write it, and a part of one: numbers become float.
Part: TypeAlias = bool | float | str | None | list[Any] | dict[str, Any]
Score: TypeAlias = bool | float | str | None | list[Part] | dict[str, Part]
#: A number of something, such as an epoch: within what an array can hold.
Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
#: A whole number that a float holds, such as a number of responses.
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
#: Half of a surrogate pair, which Python's own writer writes for broken text.
_HALVES = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}


class Record(msgspec.Struct, kw_only=True):
    """Base of the records of a format: other fields of a file are skipped unread.

    A field without a default must be there. msgspec checks the types.
    """

    #: What to do with a file that deviates, as the end of a message.
    cure: ClassVar[str] = ""


def decode(data: bytes | msgspec.Raw, type: type[T] | Any, place: str) -> T:
    """Decodes one JSON value.

    Args:
        data: UTF-8 text; the words NaN and Infinity, which Python writes, are known.
        type: A `Record`, or any other type that msgspec supports.
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
    ValueError: a.json: field 'score' is text, not a number or null
    """
    try:
        try:
            return _decoder(type).decode(data)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return _convert(bytes(data), type)
    except RecursionError:
        raise ValueError(f"{place}: nested too deeply to be read") from None
    except (msgspec.DecodeError, ValueError) as error:
        reason = _reason(error, bytes(data))
        deviates = isinstance(error, msgspec.ValidationError)
        cure = _cure(type) if deviates else ""
        message = f"{place}: {reason}; {cure}" if cure else f"{place}: {reason}"
        raise ValueError(message) from None


def _cure(type: Any) -> str:
    """The cure of a record, or of the first record in a list or an object."""
    own = getattr(type, "cure", "")
    return own or next(filter(None, map(_cure, get_args(type))), "")


@functools.lru_cache(128)
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a type, made once."""
    return msgspec.json.Decoder(type)


def _convert(data: bytes, type: Any) -> Any:
    """As `decode`, of what is not of the standard, but of Python's own writer.

    Slower, so only after the other way has failed. Half a surrogate pair, which is no
    character, becomes U+FFFD.
    """
    if not any(word in data for word in (b"NaN", b"Infinity", b"\\ud", b"\\uD", _MARK)):
        return _decoder(type).decode(data)  # Raises the error of the standard again.
    keep = lambda match: b"\\ufffd" if match[1] else match[0]
    value = json.loads(_HALVES.sub(keep, data.removeprefix(_MARK)))
    if type == Fields and isinstance(value, dict):
        return {k: msgspec.Raw(json.dumps(v).encode()) for k, v in value.items()}
    if type == list[msgspec.Raw] and isinstance(value, list):
        return [msgspec.Raw(json.dumps(v).encode()) for v in value]
    return msgspec.convert(value, type)


def repeated_keys(data: bytes, place: str) -> list[str]:
    """The note on keys that an object has twice, of which decoders take the last.

    Args:
        data: JSON that is decoded elsewhere too, which names what is no JSON.
        place: Where it is from.

    >>> repeated_keys(b'{"a": {"q1": 1, "q1": 0}}', "x.json")
    ["x.json: 'q1' stands twice in one object: the last was read"]
    """
    repeats: dict[str, None] = {}

    def note_repeats(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            repeats.update(dict.fromkeys(x for x in names if names.count(x) > 1))

    try:
        json.loads(data.removeprefix(_MARK), object_pairs_hook=note_repeats)
    except (ValueError, RecursionError):
        return []
    return [
        f"{place}: {name!r:.80} stands twice in one object: the last was read"
        for name in repeats
    ][:_MOST_REPEATS]


def json_values(path: Path) -> Iterator[tuple[str, bytes | msgspec.Raw]]:
    """Yields the values of JSON lines or of one JSON array, not decoded, with places.

    Raises:
        ValueError: The file cannot be read; of an array also that it is no JSON.
    """
    data = read_bytes(path).removeprefix(_MARK)
    if data[:4096].lstrip()[:1] == b"[":
        for number, value in enumerate(decode(data, list[msgspec.Raw], str(path)), 1):
            yield f"{path}: record {number}", value
        return
    for number, line in enumerate(io.BytesIO(data), 1):
        if not line.isspace():
            yield f"{path}: line {number}", line


def decode_lines(path: Path, type: type[T]) -> list[T]:
    """Decodes a file of JSON lines, or of one JSON array; a place is a line or number.

    Raises:
        ValueError: As for `decode`.
    """
    return [decode(value, type, place) for place, value in json_values(path)]


_DEPTH = np.zeros(256, np.int8)
_DEPTH[list(b"[{")], _DEPTH[list(b"]}")] = 1, -1


def is_nested(data: bytes, most: int = 200) -> bool:
    """Whether values may be nested deeper than this, at which some decoders crash.

    Brackets in texts count too, so that the answer may be wrong, but only as True.
    """
    depth = lowest = highest = 0
    for start in range(0, len(data), 1 << 20):
        part = np.frombuffer(data, np.uint8, min(1 << 20, len(data) - start), start)
        depths = depth + np.cumsum(_DEPTH[part], dtype=np.int32)
        depth = int(depths[-1])
        lowest, highest = min(lowest, depths.min()), max(highest, depths.max())
    return bool(highest - lowest > most)


def _reason(error: Exception, data: bytes) -> str:
    """The message of a decoder as the end of a sentence."""
    text = " ".join(str(error).split())
    # msgspec says so by an error of its own from 0.23 on.
    if isinstance(error, UnicodeError) or "Invalid UTF-8" in text:
        return "it holds bytes that are not UTF-8 text; save it as UTF-8"
    if not isinstance(error, msgspec.ValidationError):
        return _no_json(text, data)
    text, _, path = text.partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    lacking = re.fullmatch("Object missing required field `(.+)`", text)
    if lacking:
        return f"no field {lacking[1]!r}" + (f" in {field!r}" if field else "")
    what = f"field {field!r}" if field else "it"
    kinds = re.fullmatch("Expected `([a-z |]+)`, got `([a-z]+)`", text)
    if kinds is None:
        out = "is a number that is too large" if "out of range" in text else f": {text}"
        return f"{what} {out}".replace(" : ", ": ")
    expected = [_WORDS.get(kind, kind) for kind in kinds[1].split(" | ")]
    one_of = " or ".join(filter(None, [", ".join(expected[:-1]), expected[-1]]))
    return f"{what} is {_WORDS.get(kinds[2], kinds[2])}, not {one_of}"


def _no_json(text: str, data: bytes) -> str:
    """Why a text is no JSON, with the line where there are several."""
    cut = "truncated" in text or "Expecting" in text
    place = re.search(r"\(byte (\d+)\)", text)
    end = int(place[1]) if place else len(data) if cut else 0
    line = data.rstrip().count(b"\n", 0, end) + 1
    where = f" at line {line}" if line > 1 else ""
    if cut:
        return f"not valid JSON, or cut off{where} ({text}); copy the file again"
    return f"not valid JSON{where} ({text.removeprefix('JSON is malformed: ')})"
