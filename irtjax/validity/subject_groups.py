"""Groups of subjects that are compared, by name or from a number."""

from __future__ import annotations

import datetime
import re
from typing import Any, NamedTuple

import numpy as np

from irtjax.data.features import numbers_or_days
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted

#: Groups into which a number divides subjects, for their abilities.
NUM_QUARTERS = 4
#: Values of a column of numbers up to which each is a group.
MOST_GROUPS = 10
#: The beginning of a date.
DATE = re.compile(r"\d{4}-\d{2}")


class SubjectGroups(NamedTuple):
    """Codes of the subjects, the first for the reference; numbers if there are any."""

    names: list[str]
    codes: np.ndarray
    number: np.ndarray | None = None


def numbers_of(labels: np.ndarray, names: np.ndarray, place: str) -> np.ndarray | None:
    """The labels as numbers, if most are and there are too many for groups.

    Dates (2025-03-31) are years since 1970.

    Args:
        labels: `[subjects]` text.
        names: `[subjects]`, for messages.
        place: What has the labels, for messages.

    Raises:
        ValueError: For a label that is no number or date where most are.

    >>> names = np.arange(20).astype(str)
    >>> numbers_of(np.repeat(["1", "2"], 10), names, "size")
    >>> numbers_of(names, names, "size")[:3].tolist()
    [0.0, 1.0, 2.0]
    >>> dates = np.array([f"2025-01-{day:02}" for day in range(1, 21)])
    >>> numbers_of(dates, names, "date")[:2].round(3).tolist()
    [55.001, 55.003]
    """
    if len(np.unique(labels)) <= MOST_GROUPS:
        return None
    numbers = numbers_or_days(labels.tolist(), names, place)
    if numbers is None or not DATE.match(str(labels[0])):
        return numbers
    return (numbers - datetime.date(1970, 1, 1).toordinal()) / 365.25


def quarters_of(numbers: np.ndarray) -> SubjectGroups:
    """Subjects in quarters by their number, equal numbers in one.

    >>> quarters_of(np.arange(8.0)).codes.tolist()
    [0, 0, 1, 1, 2, 2, 3, 3]
    """
    edges = np.quantile(numbers, np.arange(1, NUM_QUARTERS) / NUM_QUARTERS)
    codes = np.unique(np.searchsorted(edges, numbers), return_inverse=True)[1]
    names = [f"quarter {k + 1}" for k in range(codes.max() + 1)]
    return SubjectGroups(names, codes, numbers)


def check_labels(
    labels: np.ndarray, names: np.ndarray, place: str, noun: str = "subject"
) -> None:
    """Refuses subjects without a label, and groups of one subject."""
    empty = labels == ""
    if empty.any():
        raise ValueError(
            f"{place} has no label of subject {str(names[empty][0])!r}"
            f" ({int(empty.sum()):,} of {len(labels):,} have none): give one, or leave"
            " the subject out"
        )
    values, sizes = np.unique(labels, return_counts=True)
    if len(values) < 2:
        raise ValueError(f"{place!r} is the same for every {noun}: give two groups")
    if sizes.min() < 2:
        raise ValueError(
            f"group {str(values[np.argmin(sizes)])!r} of {place} has one {noun}:"
            " join it with another group, or leave the subject out"
        )


def labels_of(data: ResponseTable, labels: Any, what: str) -> np.ndarray:
    """A facet by name, or labels as they are."""
    if isinstance(labels, str):
        if labels not in data.subject_facets:
            listed = ", ".join(data.subject_facets) or "none"
            raise ValueError(
                f"no facet {labels!r} of subjects for {what} (there are: {listed})"
            )
        return data.subject_facets[labels]
    labels = np.asarray(labels)
    if len(labels) != data.num_subjects:
        raise ValueError(
            f"{what} has {len(labels):,} labels, but there are"
            f" {data.num_subjects:,} subjects: give one for each"
        )
    return labels


def subject_groups(
    data: ResponseTable, group: Any, reference: str | None
) -> tuple[str, SubjectGroups]:
    """The name of the facet, and the groups, the reference first."""
    name = group if isinstance(group, str) else "group"
    labels = labels_of(data, group, "group")
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            where = str(data.subjects[~np.isfinite(labels)][0])
            raise ValueError(
                f"{name} has no number for subject {where!r}: give one, or leave the"
                " subject out"
            )
        return name, quarters_of(labels)
    labels = labels.astype(str)
    check_labels(labels, data.subjects, name)
    names, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if reference is not None and reference not in names:
        raise ValueError(
            f"no group {reference!r} of {name}; there are {', '.join(names)}"
        )
    largest = names[np.argmax(sizes)]
    first = names.tolist().index(largest if reference is None else reference)
    order = [first, *(k for k in range(len(names)) if k != first)]
    return name, SubjectGroups(names[order].tolist(), np.argsort(order)[codes])


def comparable(data: ResponseTable, groups: SubjectGroups) -> np.ndarray:
    """`[items]` whether all groups answered the item; two of those of a number."""
    seen = observed_of(data)
    if seen is None:
        return np.ones(data.num_items, bool)
    by_group = [seen[groups.codes == k].any(0) for k in range(len(groups.names))]
    enough = len(by_group) if groups.number is None else 2
    return np.sum(by_group, axis=0) >= enough


def check_groups(data: ResponseTable, name: str, groups: SubjectGroups) -> None:
    """Refuses a number that does not vary, and groups without items in common."""
    if len(groups.names) < 2:
        raise ValueError(f"{name!r} is the same for every subject: give two groups")
    common = int(comparable(data, groups).sum())
    if common < 2:
        raise ValueError(
            f"{counted(common, 'item')} in common of the groups of {name}, which are"
            " compared by two or more: give groups that answered the same items"
        )


def observed_of(data: ResponseTable) -> np.ndarray | None:
    """`[subjects, items]` whether observed; None if all are."""
    return None if data.observed is None else np.asarray(data.observed, bool)


def right_of(data: ResponseTable) -> np.ndarray:
    """`[subjects, items]` responses, 0 where missing."""
    values = np.asarray(data.values, np.float64)
    seen = observed_of(data)
    return values if seen is None else np.where(seen, values, 0)


def pairs_of(
    groups: SubjectGroups, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the subjects of the reference and of the other group, by pair.

    Subjects whose label the other group does not have are left out.

    Raises:
        ValueError: For a label that two subjects of a group have, or fewer than two
            pairs.
    """
    rows = [np.flatnonzero(groups.codes == k) for k in (0, 1)]
    for name, one in zip(groups.names, rows, strict=False):
        values, counts = np.unique(labels[one], return_counts=True)
        if counts.max() > 1:
            raise ValueError(
                f"{values[np.argmax(counts)]!r} has {counts.max()} subjects of group"
                f" {name!r}, and a pair has one: leave the others out, or use"
                " method='score' with cluster"
            )
    first, second = (labels[x] for x in rows)
    _, *places = np.intersect1d(first, second, return_indices=True)
    if len(places[0]) < 2:
        raise ValueError(
            f"{len(places[0])} subjects are in both groups {groups.names[0]!r} and"
            f" {groups.names[1]!r}: method 'paired' needs two; give a cluster whose"
            " labels are the same for both subjects of a pair"
        )
    return rows[0][places[0]], rows[1][places[1]]
