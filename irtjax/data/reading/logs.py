"""What readers of logs share: typed JSON files, labels of files, missing scores."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TypeVar

from irtjax.data.decode import decode
from irtjax.data.files import read_bytes, read_head
from irtjax.data.reading.options import ReadOptions, missing_or_wrong
from irtjax.data.wording import counted

T = TypeVar("T")


def load(path: Path, type: type[T]) -> T:
    """Reads a file of one JSON value as a record.

    Raises:
        ValueError: It is not as declared: one line with the file, field and cure.
    """
    return decode(read_bytes(path), type, str(path))


def is_list(path: Path) -> bool:
    """Whether a JSON file holds a list."""
    return read_head(path).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["


def missing(options: ReadOptions) -> float | None:
    """The score of an attempt that failed outside the model."""
    # Among repeats, one that counts as wrong enters their mean.
    return 0.0 if options.missing_as == "wrong" else None


def missing_note(count: int, noun: str, what: str, options: ReadOptions) -> str:
    """Returns the note on scores that `missing` replaced: so many of what noun."""
    scores = " ".join(filter(None, [counted(count, noun), what]))
    return f"{scores} {missing_or_wrong(count, options)}"


def digest(*texts: str) -> str:
    """A hash of the content of an item."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def variants(
    subjects: Sequence[Hashable], benchmarks: Sequence[Hashable], labels: Sequence[str]
) -> list[str]:
    """Labels of files on benchmarks where some subject has several, else "".

    Files of the other subjects are labelled, too: one label is read of all.

    >>> variants(["a", "a", "b", "b"], ["x", "x", "x", "y"], ["t0", "t1", "t0", "t0"])
    ['t0', 't1', 't0', '']
    """
    labels_of: dict[tuple[Hashable, Hashable], set[str]] = {}
    for subject, benchmark, label in zip(subjects, benchmarks, labels, strict=True):
        labels_of.setdefault((subject, benchmark), set()).add(label)
    several = {benchmark for (_, benchmark), own in labels_of.items() if len(own) > 1}
    return [
        (label or "plain") if benchmark in several else ""
        for benchmark, label in zip(benchmarks, labels, strict=True)
    ]


def natural(text: str) -> str:
    """A text whose numbers sort by size: "v1.10" after "v1.9"."""
    return re.sub(r"\d+", lambda match: match.group().zfill(12), text)
