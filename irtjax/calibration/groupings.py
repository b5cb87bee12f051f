"""Groups of subjects, and of items, that are given or found to be dependent.

Labels of the data and beginnings of names are tried, then blocks of adjacent items of
equal size, and subjects are searched (`calibration.dependence`).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from irtjax.calibration.dependence import (
    ABOVE_SHUFFLED,
    CRITICAL,
    SEARCHED,
    Dependence,
    FreeSlopes,
    above_shuffled,
    between_items,
    between_subjects,
    search_groups,
)
from irtjax.data.table import ResponseTable

#: Sizes of blocks of adjacent items that are tried as clusters.
BLOCKS = range(2, 11)
#: Numbers of words of a name that are tried as a family, first or cut at the end.
WORDS = range(1, 4)
#: Fewest clusters that are tried, and the largest share of items in one.
FEWEST_CLUSTERS, LARGEST = 5, 0.25


class Grouping(NamedTuple):
    """Groups of subjects or of items.

    Attributes:
        codes: `[subjects]` or `[items]`.
        names: Of the groups, or None where they have none.
        of: What the groups are, for a note.
        is_named: Whether the user named their facet.
        dependence: The test of these groups.
    """

    codes: np.ndarray
    names: np.ndarray | None
    of: str
    is_named: bool
    dependence: Dependence

    @property
    def labels(self) -> np.ndarray:
        """Name of the group of each, or its number from 1."""
        if self.names is None:
            return (self.codes + 1).astype(str)
        return self.names[self.codes]


def families_of(
    table: ResponseTable, residuals: FreeSlopes, facet: str | None
) -> Grouping | None:
    """Families of subjects: given, or those with the most dependence."""
    if facet is not None:
        return _labelled(
            table.subject_facets[facet],
            f"families by {facet}",
            residuals,
            between_subjects,
        )
    tried = [
        _labelled(labels, f"families by {name}", residuals, between_subjects)
        for name, labels in table.subject_facets.items()
    ]
    stems = [_stems_of_subject(x) for x in table.subjects.tolist()]
    tried += [
        _labelled(np.array(labels), "families by name", residuals, between_subjects)
        for labels in zip(*stems, strict=True)
    ]
    best = _best(tried, table.num_subjects)
    few = table.num_subjects <= SEARCHED[1]
    if best and (not few or above_shuffled(residuals, best.codes) > ABOVE_SHUFFLED):
        return best
    groups = search_groups(residuals, is_binary=table.kind == "binary")
    if groups is None:
        return None
    test = between_subjects(residuals, groups)
    return Grouping(groups, None, "families found in the responses", False, test)


def clusters_of_items(
    table: ResponseTable, residuals: FreeSlopes, facet: str | None
) -> Grouping | None:
    """Clusters of items: given, or those with the most dependence."""
    if facet is not None:
        return _labelled(
            table.item_facets[facet], f"clusters by {facet}", residuals, between_items
        )
    size = table.num_items
    tried = [
        _labelled(labels, f"clusters by {name}", residuals, between_items)
        for name, labels in table.item_facets.items()
        if name != "benchmark"
    ]
    stems = np.array([_stem_of_item(x) for x in table.items.tolist()])
    tried.append(_labelled(stems, "clusters by name", residuals, between_items))
    best = _best(tried, size, FEWEST_CLUSTERS, LARGEST)
    if best is not None:
        return best
    blocks = [
        Grouping(
            codes := np.arange(size) // width,
            None,
            f"clusters of {width} adjacent items",
            False,
            between_items(residuals, codes),
        )
        for width in BLOCKS
        if size >= FEWEST_CLUSTERS * width
    ]
    return _best(blocks, size, FEWEST_CLUSTERS, LARGEST)


def _labelled(
    labels: np.ndarray, of: str, residuals: FreeSlopes, test: Any
) -> Grouping:
    """Groups by label; each without a label is alone."""
    texts = np.asarray(labels).astype(str)
    alone = np.char.strip(texts) == ""
    names, codes = np.unique(texts, return_inverse=True)
    codes = np.where(alone, len(names) + np.arange(len(codes)), codes)
    used, codes = np.unique(codes, return_inverse=True)
    names = np.array([names[k] if k < len(names) else "" for k in used.tolist()])
    return Grouping(codes, names, of, True, test(residuals, codes))


def _best(
    tried: list[Grouping], size: int, fewest: int = 2, largest: float = 1.0
) -> Grouping | None:
    """Of the groupings that depend significantly the one with the largest z."""
    dependent = []
    for one in tried:
        sizes = np.bincount(one.codes)
        groups = len(sizes)
        fits = fewest <= groups < size and sizes.max() <= max(largest * size, 2)
        if fits and one.dependence.z > CRITICAL:
            dependent.append(one._replace(is_named=False))
    return max(dependent, key=lambda one: one.dependence.z, default=None)


def _stems_of_subject(name: str) -> list[str]:
    """The organisation, the first letters, and the first and all but the last words.

    Of these the one with the most dependence is taken: one-shot and zero-shot runs of
    a model are relatives, where models of its organisation need not be.

    >>> _stems_of_subject("Qwen/Qwen3-8B_zero-shot")[:4]
    ['qwen', 'qwen', 'qwen3 8b', 'qwen3 8b zero']
    >>> _stems_of_subject("Qwen/Qwen3-8B_zero-shot")[-3:]
    ['qwen3 8b zero', 'qwen3 8b', 'qwen3']
    """
    home, _, own = name.strip().lower().rpartition("/")
    letters = re.match(r"[^\W\d_]+", own)
    words = re.split(r"[-_/:@|\s]+", own)
    whole = " ".join(words)
    first = [" ".join(words[:k]) for k in WORDS]
    cut = [" ".join(words[:-k]) or whole for k in WORDS]
    return [home, letters.group() if letters else "", *first[1:], *cut]


def _stem_of_item(name: str) -> str:
    """An item's name without its last part.

    >>> _stem_of_item("passage12_q3"), _stem_of_item("7")
    ('passage12', '')
    """
    match = re.match(r"(.*?)[-_/.:#|@\s]+[^-_/.:#|@\s]+$", name)
    return match.group(1) if match else ""
