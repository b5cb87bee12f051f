"""Which items of several logs are the same: by content where there is a hash of it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Literal

from irtjax.data.wording import counted, were


@dataclasses.dataclass(frozen=True)
class ItemKey:
    """Identity of an item in one log; other logs may name it in another way."""

    benchmark: str
    name: str
    content: str = ""  # A hash of it; "" where the log has none.
    copy: int = 0  # Counts items of this content in the log.
    part: str = ""  # Number of a part of its score, such as "#1".

    @property
    def label(self) -> str:
        """Readable name."""
        prefix = f"{self.benchmark}/" if self.benchmark else ""
        return f"{prefix}{self.name}{self.part}"


def copies(contents: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Numbers items (name, content) of equal content in one log, so that none merge.

    They are numbered in the order of their names: rows have another order in each log.

    >>> copies([("0", "aa"), ("1", "bb"), ("2", "aa"), ("0", "aa")])
    {'0': 0, '1': 0, '2': 1}
    """
    out: dict[str, int] = {}
    seen: dict[str, int] = {}
    # Digits without leading zeros sort as numbers by length.
    order = lambda pair: (len(pair[0]) if pair[0].isdecimal() else 0, pair[0])
    for name, content in sorted(contents, key=order):
        if name not in out:
            out[name] = seen.get(content, 0)
            seen[content] = out[name] + 1
    return out


def label_items(
    keys: Sequence[ItemKey], join: Literal["hash", "id"]
) -> tuple[list[str], list[str]]:
    """Names items so that equal names mean the same item; returns labels and notes.

    Equal content under different identifiers is one item; one identifier with two
    contents is two. An identifier without a hash is that of the only item of that
    identifier, if there is just one. With join="id" only identifiers count.

    >>> ids_and_hashes = [("0", "aa"), ("5", "aa"), ("0", "b")]
    >>> label_items([ItemKey("t", *pair) for pair in ids_and_hashes], "hash")[0]
    ['t/0', 't/0', 't/0~b']
    """
    if join == "id":
        return [key.label for key in keys], []
    label_of: dict[ItemKey, str] = {}
    contents_of: dict[str, list[ItemKey]] = {}
    taken: set[str] = set()
    merged = split = 0
    for key in keys:
        if not key.content:
            continue
        group = dataclasses.replace(key, name="")
        contents_of.setdefault(key.label, []).append(group)
        if group in label_of:
            merged += label_of[group] != key.label
            continue
        label = key.label
        if label in taken:
            label = f"{label}~{key.content[:8]}"
            numbered = (f"{label}.{k}" for k in itertools.count(2))
            names = itertools.chain([label], numbered)
            label = next(name for name in names if name not in taken)
            split += 1
        taken.add(label)
        label_of[group] = label
    labels = []
    for key in keys:
        groups = [dataclasses.replace(key, name="")]
        if not key.content:
            groups = contents_of.get(key.label, [])
        labels.append(label_of[groups[0]] if len(groups) == 1 else key.label)
    notes = []
    if merged:
        notes.append(
            f"{counted(merged, 'item')} {were(merged)} joined by content under"
            " differing ids"
        )
    if split:
        notes.append(
            f"{counted(split, 'id')} {'stands' if split == 1 else 'stand'} for items"
            " of differing content, which were"
            " kept apart"
            " (join='id' joins them by id)"
        )
    return labels, notes
