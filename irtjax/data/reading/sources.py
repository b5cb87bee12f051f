"""Finding input files and telling by their content what they hold."""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import re
from pathlib import Path
from typing import Any

from irtjax.data.files import read_head, read_text
from irtjax.data.reading.options import FORMATS
from irtjax.data.wording import TABLE_FORMAT

_PICKLE_ENDINGS = (".pkl", ".pickle", ".pt", ".pth", ".joblib", ".dill", ".rds")
_INSPECT = re.compile(rb'"eval"\s*:\s*\{[^{}]*"(eval_id|run_id|task)"')
_PARAMETER_KEYS = {"ability", "diff", "disc", "item_ids", "subject_ids"}


@dataclasses.dataclass(frozen=True)
class Source:
    """One input file and what it holds: a key of ``FORMATS``, or a reason why not.

    Attributes:
        path: the file.
        format: how to read it, or None.
        reason: why it cannot be read, when ``format`` is None.
        asked: whether the caller named this file, rather than its folder.
    """

    path: Path
    format: str | None
    reason: str = ""
    asked: bool = True


def understood() -> str:
    """Lists the formats that can be read, for messages."""
    return "irtjax reads: " + "; ".join(FORMATS.values())


def expand(path: str | os.PathLike[str]) -> list[tuple[Path, bool]]:
    """Returns the files of a path, folder or glob, each with whether it was named.

    A glob names files only if it matches a single one.

    Raises:
        ValueError: nothing is there.
    """
    text = os.path.expanduser(os.fspath(path))
    place = Path(text)
    if place.is_dir():
        return [(file, False) for file in _files_in(place)]
    if place.exists():
        return [(place, True)]
    if glob.has_magic(text):
        found = sorted(Path(name) for name in glob.glob(text, recursive=True))
        if not found:
            raise ValueError(f"no file matches {text}")
        return [
            pair
            for one in found
            for pair in (
                [(f, False) for f in _files_in(one)]
                if one.is_dir()
                else [(one, len(found) == 1)]
            )
        ]
    raise ValueError(f"no such file or folder: {text}")


def _files_in(folder: Path) -> list[Path]:
    out = []
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        out += [Path(root, name) for name in sorted(files) if name[0] != "."]
    if not out:
        raise ValueError(f"{folder} is a folder without files")
    return out


def identify(path: Path, asked: bool = True) -> Source:
    """Detects the content of a file from its first bytes; never unpickles anything."""
    head = read_head(path)
    name = path.name.lower()

    def unread(reason: str) -> Source:
        return Source(path, None, reason, asked)

    if name.endswith(_PICKLE_ENDINGS) or _is_pickle(head):
        return unread(
            "is a pickle (or a saved object of another program): opening one can run"
            " any code, so irtjax never does; save it as CSV, Parquet or JSON lines"
        )
    if not head.strip():
        return unread("is empty")
    if head[:4] == b"PAR1" or head[:6] == b"ARROW1":
        return Source(path, "parquet", asked=asked)
    if head[:2] == b"PK" or name.endswith(".eval"):
        if name.endswith(".npz"):
            return unread("is a numpy archive; save its matrix as CSV or Parquet")
        return Source(path, "inspect", asked=asked)
    if b"\0" in head:
        return unread("is a binary file of no known kind")
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        found = _identify_json(path, head)
        if isinstance(found, str):
            return unread(found)
        return Source(path, found.format, asked=asked)
    if name.endswith((".md", ".py", ".html", ".yaml", ".yml", ".toml", ".log")):
        return unread("is not a data file")
    return Source(path, "csv", asked=asked)


def _is_pickle(head: bytes) -> bool:
    # Protocols 2 to 5 open with PROTO; torch's zip archives hold a data.pkl.
    protocol = head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    return protocol or (head[:2] == b"PK" and b"data.pkl" in head[:512])


def first_object(path: Path, text: str) -> Any:
    """Parses the first JSON value of a text: a line, an element, or the whole."""
    decoder = json.JSONDecoder()
    start = text.lstrip()
    if start.startswith("["):
        start = start[1:].lstrip()
    try:
        return decoder.raw_decode(start)[0]
    except json.JSONDecodeError:
        # The head was cut in the middle of a long object.
        whole = read_text(path).lstrip()
        if whole.startswith("["):
            whole = whole[1:].lstrip()
        return decoder.raw_decode(whole)[0]


def _identify_json(path: Path, head: bytes) -> Any:
    """Returns a `Source`, or the reason why the file cannot be read."""
    # These two may be one object of many megabytes, recognised by its beginning.
    if TABLE_FORMAT.encode() in head[:200]:
        return Source(path, "table")
    if _INSPECT.search(head) and b'"status"' in head:
        return Source(path, "inspect")
    try:
        first = first_object(path, head.decode("utf-8-sig", errors="replace"))
    except json.JSONDecodeError as error:
        return f"is not valid JSON (line {error.lineno}: {error.msg})"
    if not isinstance(first, dict):
        return "holds JSON, but not records with named fields"
    keys = set(first)
    for name, required in (
        ("py_irt", {"subject_id", "responses"}),
        ("every_eval_ever", {"evaluation_id", "sample_id", "evaluation"}),
    ):
        if required <= keys:
            return Source(path, name)
    if "doc_id" in keys and keys & {"doc", "resps", "filtered_resps", "target"}:
        return Source(path, "lm_eval")
    return _unread_json(first, keys) or Source(path, "json")


def _unread_json(first: dict[str, Any], keys: set[str]) -> str | None:
    if len(keys & _PARAMETER_KEYS) >= 2:
        return (
            "holds the parameters of a fitted model, not responses; give the file of"
            " responses that they were fitted to"
        )
    if "results" in keys and keys & {"configs", "n-shot", "versions", "config"}:
        return (
            "holds the totals of an evaluation, not single responses; run it with"
            " --log_samples and give the samples_*.jsonl files"
        )
    if "evaluation_results" in keys:
        return "holds the totals of an evaluation; give its *_samples.jsonl file"
    nested = [key for key, value in first.items() if isinstance(value, dict | list)]
    if nested and not any(isinstance(v, int | float | bool) for v in first.values()):
        return f"is JSON of no known kind (fields {', '.join(sorted(keys)[:12])})"
    return None
