"""Files: bytes and text read from plain or gzip files."""

from __future__ import annotations

import gzip
from pathlib import Path

_HEAD = 1 << 16


def read_head(path: Path) -> bytes:
    """Returns the first bytes of a file, decompressed if it is gzip."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    if head[:2] != b"\x1f\x8b":
        return head
    try:
        with gzip.open(path, "rb") as file:
            return file.read(_HEAD)
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} is a damaged gzip file ({error})") from None


def read_bytes(path: Path) -> bytes:
    """Returns a whole file, decompressed if it is gzip."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError) as error:
        raise ValueError(f"cannot read {path}: {error}") from None


def read_text(path: Path) -> str:
    """Returns a UTF-8 file as text; a ValueError names the line that is not UTF-8."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}: line {line} is not UTF-8 text (byte {data[error.start]:#04x});"
            " save the file as UTF-8"
        ) from None
