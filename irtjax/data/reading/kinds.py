"""Files of other programs, named in messages with how to convert them."""

from __future__ import annotations

#: First bytes of a file, what it is, and what to do with it.
_MAGIC = (
    (b"\x28\xb5\x2f\xfd", "packed with zstd", "unpack it with `zstd -d`"),
    (b"\xfd7zXZ\0", "packed with xz", "unpack it with `xz -d`"),
    (b"BZh", "packed with bzip2", "unpack it with `bzip2 -d`"),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it and give the files in it"),
    (b"Rar!", "a RAR archive", "unpack it and give the files in it"),
    (b"SQLite format 3", "an SQLite database", "export the table as CSV"),
    (b"\x89HDF", "an HDF5 file", "save its matrix as CSV or Parquet"),
    (b"\x93NUMPY", "a numpy array", "save it as CSV or Parquet"),
    (b"MATLAB 5", "a MATLAB file", "save its matrix as CSV"),
    (b"RDX", "data saved by R", "save the data frame with write.csv"),
    (b"FEA1", "a Feather file of version 1", "save it as Parquet"),
    (b"ORC", "an ORC file", "save it as Parquet"),
    (b"Obj\x01", "an Avro file", "save it as Parquet or JSON lines"),
    (b"\xd0\xcf\x11\xe0", "an old Office document", "save the sheet as CSV"),
    (b"%PDF", "a PDF document", "give the file of responses"),
    (b"\x89PNG", "an image", "give the file of responses"),
    (b"\xff\xd8\xff", "an image", "give the file of responses"),
    (b"GIF8", "an image", "give the file of responses"),
    (b"\x7fELF", "a program", "give the file of responses"),
    (b"<!DOCTYPE", "a web page", "download the file itself, not its page"),
    (b"<html", "a web page", "download the file itself, not its page"),
    (b"<?xml", "XML", "save it as CSV or JSON lines"),
    (b"version https://git-lfs", "a Git LFS pointer", "fetch it with `git lfs pull`"),
)
#: Endings of zip archives that are no logs.
_ZIPS = {
    ".xlsx": ("an Excel workbook", "save the sheet as CSV"),
    ".ods": ("a spreadsheet", "save the sheet as CSV"),
    ".docx": ("a document", "give the file of responses"),
    ".npz": ("a numpy archive", "save its matrix as CSV or Parquet"),
}
#: Endings of configuration files, which may begin as JSON does.
_CONFIGURATION = {".toml": "TOML", ".ini": "INI", ".cfg": "INI"}


def foreign_kind(head: bytes, name: str) -> str:
    """Why a file with these first bytes is not read; "" if it may be.

    >>> foreign_kind(b"SQLite format 3", "a.db")
    'is an SQLite database: export the table as CSV'
    """
    for ending, what in _CONFIGURATION.items():
        if name.endswith(ending):
            return f"is a configuration file ({what}): give the file of responses"
    for magic, what, cure in _MAGIC:
        # Letters alone can begin a table, too.
        if head.startswith(magic) and (not magic.isalnum() or b"\0" in head):
            return f"is {what}: {cure}"
    if head[257:262] == b"ustar":
        return "is a tar archive: unpack it and give the files in it"
    if head[:2] == b"PK":
        for ending, (what, cure) in _ZIPS.items():
            if name.endswith(ending):
                return f"is {what}: {cure}"
    return ""
