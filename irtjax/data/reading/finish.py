"""The last step of reading: benchmarks, lengths, missing cells and notes of a table."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from irtjax.data.arrays import as_labels
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.roles import side_of
from irtjax.data.table import ResponseTable
from irtjax.data.wording import are, counted, percent, were

# Endings such as math500_017 or anatomy.236: a benchmark's name and a number.
_NUMBERED = re.compile(r"^(.*\D.*)[_.]\d+$")
_NO_BENCHMARK = {"item", "question", "q", "i", "x", "v", "problem", "task", "subject"}
#: Names beyond which no pair of them is looked for: it takes a second for a million.
_MOST_COMPARED = 200_000


def finish(
    table: ResponseTable,
    options: ReadOptions,
    notes: Sequence[str],
    sources: Sequence[str],
    lengths: np.ndarray | None = None,
) -> ResponseTable:
    """The table with benchmarks, lengths, notes and sources.

    Args:
        table: Everything that was read, as one table.
        options: Those of reading; ``missing_as="wrong"`` makes missing cells 0.
        notes: On the inputs.
        sources: Names of the inputs.
        lengths: `[subjects, items]` response lengths, where the table has none.

    Raises:
        ValueError: Every response is missing.
    """
    notes = [*table.notes, *notes]
    facets = dict(table.item_facets)
    inferred = None if "benchmark" in facets else infer_benchmarks(table.items)
    if inferred is not None and any(
        side_of(name) == "item" and np.array_equal(labels, inferred)
        for name, labels in facets.items()
    ):
        inferred = None  # Languages, judges and the like are no benchmarks.
    if inferred is not None:
        facets["benchmark"] = inferred
        notes.append("benchmarks were read off the names of the items")
    trials, changes = table.trials, {}
    size, missing = table.size, table.size - table.num_observed
    if missing == size:
        raise ValueError(f"{sources[0]}: every response is missing")
    if table.sparse is not None or table.observed is not None:
        what = f"{are(missing)} missing"
        if options.missing_as == "wrong":
            what = (
                f"{were(missing)} missing and {'counts' if missing == 1 else 'count'}"
                " as wrong"
            )
            trials = None if trials is None else np.maximum(trials, 1)
            changes = {"values": table.values, "observed": None}
        share = percent(round(missing / size, 4))
        notes.append(f"{missing:,} of {counted(size, 'cell')} ({share}) {what}")
    for what, names in (("subjects", table.subjects), ("items", table.items)):
        notes += alike(what, names)
    notes += with_provider(table.subjects)
    return table.replace(
        **changes,
        item_facets=facets,
        lengths=table.lengths if lengths is None else lengths,
        trials=trials,
        notes=tuple(dict.fromkeys(notes)),
        sources=tuple(dict.fromkeys(sources)),
        item_texts=table.item_texts if options.texts else {},
    )


def infer_benchmarks(items: np.ndarray) -> np.ndarray | None:
    """Returns the benchmark of each item from its name, if all names contain one.

    >>> infer_benchmarks(np.array(["gsm8k/1", "gsm8k/2", "arc/7"])).tolist()
    ['gsm8k', 'gsm8k', 'arc']
    >>> infer_benchmarks(np.array(["math500_000", "math500_001"])).tolist()
    ['math500', 'math500']
    >>> infer_benchmarks(np.array(["Item.1", "Item.2"])) is None
    True
    """
    out = []
    for name in items.tolist():
        match = _NUMBERED.match(name)
        prefix = match.group(1) if match else ""
        if "/" in name:
            prefix = name.split("/", 1)[0]
        if not prefix or prefix.lower() in _NO_BENCHMARK:
            return None
        out.append(prefix)
    # A different "benchmark" for every item is an accident of how they are named.
    return as_labels(out) if out and len(set(out)) < len(out) else None


def alike(what: str, names: np.ndarray) -> list[str]:
    """The note on names that differ only in case, spaces or forms of characters.

    Args:
        what: What the names are of, such as "subjects".
        names: Distinct names.

    >>> alike("items", np.array(["Q 1", "q2", "q1"]))
    ["the names of items 'Q 1' and 'q1' are alike: give them one name if they are one"]
    """
    if len(names) > _MOST_COMPARED:
        return []
    first: dict[str, str] = {}
    pairs = []
    for name in map(str, names):
        other = first.setdefault(_plain(name), name)
        if other != name:
            pairs.append((other, name))
    cure = "give them one name if they are one"
    return [f"the names of {what} {named} are alike: {cure}" for named in _pairs(pairs)]


def with_provider(names: np.ndarray) -> list[str]:
    """The note on subjects whose names differ only in what is before a slash.

    Harnesses name a model with its provider or without.

    >>> with_provider(np.array(["org/m", "hf/org/m", "org/m2"]))  # doctest: +ELLIPSIS
    ["subjects 'org/m' and 'hf/org/m' may be one model in two harnesses: ...]
    """
    if len(names) > _MOST_COMPARED:
        return []
    plain_names = {_plain(str(name)): str(name) for name in names}
    pairs = []
    for name in map(str, names):
        ending = _plain(name)
        while "/" in ending:
            ending = ending.partition("/")[2]
            if ending in plain_names and not ending.isdecimal():
                pairs.append((plain_names[ending], name))
                break
    known_as = "may be one model in two harnesses"
    so = "they are two subjects until they have one name"
    return [f"subjects {named} {known_as}: {so}" for named in _pairs(pairs)]


def _pairs(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The first pair of names and how many others there are; nothing without one."""
    if not pairs:
        return []
    (one, two), num_others = pairs[0], len(pairs) - 1
    others = f" (and {counted(num_others, 'other pair')})" if num_others else ""
    return [f"{one!r:.80} and {two!r:.80}{others}"]


def _plain(name: str) -> str:
    """A name without case, spaces, and characters that cannot be seen.

    A space between two digits stays: "1 12" is another item than "11 2".
    """
    text = name if name.isascii() else unicodedata.normalize("NFKC", name)
    words = text.split()
    if len(words) > 1:
        text = re.sub(r"(?<!\d) | (?!\d)", "", " ".join(words))
    if not text.isprintable():
        text = "".join(c for c in text if c.isprintable())
    # Numbers of items as a table of floats has them.
    is_float = text.endswith(".0") and text[:-2].isdecimal()
    return text[:-2] if is_float else text.casefold()
