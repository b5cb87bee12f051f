"""Files: bytes and text read from plain or gzip files.

What a file unpacks to is counted while it is read, so that a small file that unpacks to
gigabytes is refused before they are in memory.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from irtjax.numerics.memory import available_memory

_HEAD = 1 << 16
#: Encodings without a mark, and the letters beyond ASCII in names written in them.
_ENCODINGS = {"GB18030": r"[\u3000-\u9fff\uff00-\uffef]", "CP1252": r"\w"}
#: What separates the cells of a table in text.
DELIMITERS = ",\t;"
#: How text in UTF-16 begins.
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CHUNK = 1 << 20
#: Bytes that any file may unpack to, and beyond them, times its size: logs of
#: evaluations pack to a twentieth or a fortieth, and files of zeros to a thousandth.
_UNPACKED, _RATIO = 64 << 20, 100
#: What gzip raises for files that are cut off or altered.
_DAMAGE = (OSError, EOFError, zlib.error)
#: Rows of a Parquet file that are always read, and beyond them, the most for each byte:
#: a quarter of a bit a row is below what right and wrong responses pack to.
_MANY_ROWS, _ROWS_A_BYTE = 10_000_000, 32
#: Arrow takes 60 microseconds and 3 kB for each column.
MOST_COLUMNS = 100_000
#: Kinds of repositories in a cache of Hugging Face.
_REPOSITORIES = ("datasets", "models", "spaces")
_SPECIAL = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


def special(path: Path) -> str:
    """What a path is if it is no file, such as "a pipe"; "" for a file.

    Opening a pipe or a device can wait for ever.

    Raises:
        ValueError: There is no such path, or it is not accessible.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot read {path}: {reason}") from None
    return next((word for check, word in _SPECIAL if check(mode)), "")


def located(path: Path) -> Path:
    """The absolute path, in which links stay.

    What a link leads to has other names: a cache of Hugging Face links every file of a
    data set to one in a folder `blobs`.
    """
    return Path(os.path.abspath(path))


def folders_of(path: Path) -> list[str]:
    """Names of the folders of a file, the last one its own.

    In a cache of Hugging Face, `datasets--ORG--NAME/snapshots/REVISION` is ORG, NAME.

    >>> folders_of(Path("/hub/datasets--org--logs/snapshots/1f2e/m/a.json"))[1:]
    ['hub', 'org', 'logs', 'm']
    """
    folders = list(located(path).parent.parts)
    for k in range(1, len(folders) - 1):
        kind, *names = folders[k - 1].split("--")
        if folders[k] == "snapshots" and kind in _REPOSITORIES and names:
            folders[k - 1 : k + 2] = names
            break
    return folders


def file_size(path: Path) -> int:
    """Size of a file; a ValueError refuses what is no file, without opening it."""
    kind = special(path)
    if kind:
        raise ValueError(
            f"cannot read {path}: it is {kind}, not a file; write its content to a file"
            " and give that"
        )
    return path.stat().st_size


class Unpacked:
    """Counts the bytes that a file unpacks to, and refuses too many.

    Allowed are 64 MiB or 100 times the size of the file, whichever is more, and half of
    the free memory at most.
    """

    def __init__(self, path: Path, ratio: int = _RATIO) -> None:
        size = file_size(path)
        self._path, self._size = path, size
        self._most = min(max(_UNPACKED, ratio * size), available_memory() // 2)
        self._count = 0

    def add(self, count: int) -> None:
        """Counts further bytes, or bytes that a file declares to have."""
        self._count += count
        if self._count > self._most:
            raise ValueError(
                f"{self._path} has {self._size:,} bytes and unpacks to more than"
                f" {self._most:,}: it is damaged or made to fill the memory; if it is"
                " right, unpack it and give the unpacked file"
            )

    def read(self, file: IO[bytes] | gzip.GzipFile) -> bytes:
        """Returns the rest of an unpacking stream, counted while it is read."""
        out = io.BytesIO()
        while chunk := file.read(_CHUNK):
            self.add(len(chunk))
            out.write(chunk)
        return out.getvalue()


def check_parquet(path: Path, metadata: Any, used: Sequence[str] | None) -> None:
    """Refuses, before it is read, a Parquet file that would fill the memory.

    Args:
        path: The file.
        metadata: Its `pyarrow.parquet.FileMetaData`.
        used: Names of the columns to read; None for all.

    Raises:
        ValueError: It has too many columns, its rows are all but equal, it unpacks to
            too much, or it takes more than half of the free memory.
    """
    rows, size = metadata.num_rows, file_size(path)
    if used is None:
        check_columns(path, metadata.num_columns)
    if rows > _MANY_ROWS and rows > _ROWS_A_BYTE * size:
        raise ValueError(
            f"{path} has {rows:,} rows in {size:,} bytes: they are all but equal, as no"
            " responses are; it is damaged or made to fill the memory"
        )
    width = metadata.num_columns if used is None else len(used)
    check_size(path, rows * width)
    unpacked = Unpacked(path)
    for group in range(metadata.num_row_groups):
        # Not column by column: a damaged one ends the process where it is looked at.
        unpacked.add(metadata.row_group(group).total_byte_size)


def check_text(path: Path, table: Any) -> None:
    """Refuses an Arrow table with names or texts that are not UTF-8.

    Arrow reads such texts without an error. The error would come where they are used.

    Args:
        path: The file that the table was read from, for messages.
        table: A `pyarrow.Table`.

    Raises:
        ValueError: A name or a value is not UTF-8, or a column is damaged otherwise.
    """
    import pyarrow as pa

    try:
        names = table.column_names
    except UnicodeDecodeError:
        reason = "the name of a column is not UTF-8 text"
        raise ValueError(f"cannot read {path}: {reason}") from None
    for name, column in zip(names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            what = f"is damaged ({' '.join(str(error).split())[:200]})"
            if "UTF8" in what:
                what = "holds bytes that are not UTF-8 text"
            raise ValueError(f"cannot read {path}: column {name!r} {what}") from None


def damaged(path: Path, error: Exception) -> ValueError:
    """Returns what to raise where a reader of Parquet fails with this error."""
    reason = str(error).splitlines()[0][:200]
    return ValueError(f"{path} is damaged or cut off ({reason}); copy the file again")


def check_size(path: Path, values: int) -> None:
    """Refuses a table of so many values that they take half of the free memory."""
    if values * 8 > available_memory() // 2:
        raise ValueError(
            f"{path} has {values:,} values, which take more than half of the free"
            " memory; give a part of it"
        )


def check_columns(path: Path | str, count: int | None) -> None:
    """Refuses a table that is too wide to be read in reasonable time.

    Args:
        path: The file, or a name of it for the message.
        count: Its columns; None for more than were counted.
    """
    if count is None or count > MOST_COLUMNS:
        size = "too many columns" if count is None else f"{count:,} columns"
        raise ValueError(
            f"{path} has {size}, of at most {MOST_COLUMNS:,}; save it with"
            " a row for each response (subject, item, response), or transposed with a"
            " row for each item"
        )


def delimiter_of(text: str) -> str:
    r"""Returns the delimiter of a table in text: comma, tab or semicolon.

    It is one that gives the first two rows the same number of cells, as a name may have
    others; of several the most frequent in the header.

    >>> delimiter_of("name,tab\tin\tit\nx,1\n"), delimiter_of("a;b\n0,5;0,25\n")
    (',', ';')
    """
    lines = text.lstrip("\r\n").split("\n", 2)
    first, second = (*lines[: max(len(lines) - 1, 1)], "")[:2]
    size = lambda line, mark: len(next(csv.reader([line], delimiter=mark), []))
    with contextlib.suppress(csv.Error):
        equal = [m for m in DELIMITERS if 1 < size(first, m) == size(second, m)]
        if equal:
            return max(equal, key=first.count)
    return max(DELIMITERS, key=first.count)


def read_head(path: Path, size: int = _HEAD) -> bytes:
    """Returns the first bytes of a file, decompressed if it is gzip."""
    if not file_size(path):
        return b""  # Files of the system, of which some wait for content.
    try:
        with open(path, "rb") as file:
            head = file.read(size)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    if head[:2] != b"\x1f\x8b":
        return _as_utf8(head, path, "ignore")
    try:
        with gzip.open(path, "rb") as file:
            return _as_utf8(file.read(size), path, "ignore")
    except _DAMAGE as error:
        raise ValueError(f"{path} is a damaged gzip file ({error})") from None


def is_encoded(path: Path) -> bool:
    """Whether a file is compressed by gzip, or text in UTF-16: not read as it is."""
    if not file_size(path):
        return False  # Files of the system, of which some wait for content.
    with open(path, "rb") as file:
        return file.read(2) in (b"\x1f\x8b", *_UTF16)


def _as_utf8(data: bytes, path: Path, errors: str = "strict") -> bytes:
    """Text in UTF-16, as Excel saves "Unicode text", in UTF-8; other bytes as is."""
    if data[:2] not in _UTF16 or data[2:4] == b"\0\0":
        return data
    try:
        return data.decode("utf-16", errors).encode("utf-8", errors)
    except UnicodeError:
        raise ValueError(f"{path} is damaged: it begins as UTF-16 text") from None


def read_bytes(path: Path) -> bytes:
    """Returns a whole file, decompressed if it is gzip.

    Raises:
        ValueError: It is no file, it is damaged, or it is larger than the memory.
    """
    size = file_size(path)
    if not size:
        return b""
    if size > available_memory():
        raise ValueError(
            f"{path} has {size:,} bytes, more than the free memory; give a part of it"
        )
    try:
        with open(path, "rb") as file:
            if file.read(2) != b"\x1f\x8b":
                file.seek(0)
                return _as_utf8(file.read(), path)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        with gzip.open(path, "rb") as packed:
            return _as_utf8(Unpacked(path).read(packed), path)
    except _DAMAGE as error:
        raise ValueError(f"{path} is a damaged gzip file ({error})") from None


def read_text(path: Path) -> str:
    """Returns a UTF-8 file as text; a ValueError names the line that is not UTF-8."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}: line {line} is not UTF-8 text (byte {data[error.start]:#04x});"
            f" save the file as UTF-8{_conversion(data, path)}"
        ) from None


def _conversion(data: bytes, path: Path) -> str:
    """How to convert text that is likely in GB 18030, or of Windows in Europe."""
    for name, letters in (
        ("GB18030", r"[\u3000-\u9fff\uff00-\uffef]"),
        ("CP1252", r"\w"),
    ):
        with contextlib.suppress(UnicodeDecodeError):
            others = [x for x in data.decode(name) if not x.isascii()]
            if all(re.fullmatch(letters, x) for x in others):
                new = path.with_stem(f"{path.stem}-utf8").name
                return f", such as with `iconv -f {name} -t UTF-8 {path} > {new}`"
    return ""
