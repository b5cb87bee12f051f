"""Groups of subjects, and of items, that are given or found to be dependent.

Labels of the data and beginnings of names are tried, then blocks of adjacent items of
equal size, and subjects are searched (`calibration.dependence`).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from irtjax.calibration.dependence import (
    CRITICAL,
    Dependence,
    Residuals,
    between_items,
    between_subjects,
    search_groups,
)
from irtjax.data.table import ResponseTable

#: Sizes of blocks of adjacent items that are tried as clusters.
BLOCKS = range(2, 11)
#: Fewest clusters that are tried, and the largest share of items in one.
FEWEST_CLUSTERS, LARGEST = 5, 0.25


class Grouping(NamedTuple):
    """Groups of subjects or of items.

    Attributes:
        codes: `[subjects]` or `[items]`.
        names: Of the groups, or None where they have none.
        of: What the groups are, for a note.
        given: Whether the user gave them.
        dependence: The test of these groups.
    """

    codes: np.ndarray
    names: np.ndarray | None
    of: str
    given: bool
    dependence: Dependence

    @property
    def labels(self) -> np.ndarray:
        """Name of the group of each, or its number from 1."""
        if self.names is None:
            return (self.codes + 1).astype(str)
        return self.names[self.codes]


def families_of(
    table: ResponseTable, found: Residuals, given: str | None
) -> Grouping | None:
    """Families of subjects: given, or those with the most dependence."""
    if given is not None:
        return _labelled(
            table.subject_facets[given], f"families by {given}", found, between_subjects
        )
    tried = [
        _labelled(labels, f"families by {name}", found, between_subjects)
        for name, labels in table.subject_facets.items()
    ]
    stems = np.array([_stem_of_subject(x) for x in table.subjects.tolist()])
    tried.append(_labelled(stems, "families by name", found, between_subjects))
    best = _best(tried, table.num_subjects)
    if best is not None:
        return best
    groups = search_groups(found)
    if groups is None:
        return None
    test = between_subjects(found, groups)
    return Grouping(groups, None, "families found in the responses", False, test)


def clusters_of_items(
    table: ResponseTable, found: Residuals, given: str | None
) -> Grouping | None:
    """Clusters of items: given, or those with the most dependence."""
    if given is not None:
        return _labelled(
            table.item_facets[given], f"clusters by {given}", found, between_items
        )
    size = table.num_items
    tried = [
        _labelled(labels, f"clusters by {name}", found, between_items)
        for name, labels in table.item_facets.items()
        if name != "benchmark"
    ]
    stems = np.array([_stem_of_item(x) for x in table.items.tolist()])
    tried.append(_labelled(stems, "clusters by name", found, between_items))
    best = _best(tried, size, FEWEST_CLUSTERS, LARGEST)
    if best is not None:
        return best
    blocks = [
        Grouping(
            codes := np.arange(size) // width,
            None,
            f"clusters of {width} adjacent items",
            False,
            between_items(found, codes),
        )
        for width in BLOCKS
        if size >= FEWEST_CLUSTERS * width
    ]
    return _best(blocks, size, FEWEST_CLUSTERS, LARGEST)


def _labelled(labels: np.ndarray, of: str, found: Residuals, test: Any) -> Grouping:
    """Groups by label; each without a label is alone."""
    texts = np.asarray(labels).astype(str)
    alone = np.char.strip(texts) == ""
    names, codes = np.unique(texts, return_inverse=True)
    codes = np.where(alone, len(names) + np.arange(len(codes)), codes)
    kept, codes = np.unique(codes, return_inverse=True)
    names = np.array([names[k] if k < len(names) else "" for k in kept.tolist()])
    return Grouping(codes, names, of, True, test(found, codes))


def _best(
    tried: list[Grouping], size: int, fewest: int = 2, largest: float = 1.0
) -> Grouping | None:
    """Of the groupings that depend significantly the one with the largest z."""
    kept = []
    for one in tried:
        sizes = np.bincount(one.codes)
        groups = len(sizes)
        fits = fewest <= groups < size and sizes.max() <= max(largest * size, 2)
        if fits and one.dependence.z > CRITICAL:
            kept.append(one._replace(given=False))
    return max(kept, key=lambda one: one.dependence.z, default=None)


def _stem_of_subject(name: str) -> str:
    """The first letters of a model's name, after its organisation.

    >>> _stem_of_subject("meta-llama/Llama-3-8B"), _stem_of_subject("qwen2.5-7b")
    ('llama', 'qwen')
    """
    found = re.match(r"[^\W\d_]+", name.rsplit("/", 1)[-1].strip())
    return found.group().lower() if found else ""


def _stem_of_item(name: str) -> str:
    """An item's name without its last part.

    >>> _stem_of_item("passage12_q3"), _stem_of_item("7")
    ('passage12', '')
    """
    found = re.match(r"(.*?)[-_/.:#|@\s]+[^-_/.:#|@\s]+$", name)
    return found.group(1) if found else ""
