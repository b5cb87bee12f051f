"""The groups that a user gives: families and populations of subjects, item clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from irtjax.data.arrays import as_labels
from irtjax.data.table import ResponseTable
from irtjax.estimators.catalogue import method_class

#: Settings, what each labels, and the field of a table with such labels.
GROUPS = {"family": "subjects", "cluster": "items", "groups": "subjects"}
#: Fewest subjects of a group with a population of its own.
FEWEST_SUBJECTS = 2


def with_groups(
    table: ResponseTable, settings: Mapping[str, Any]
) -> tuple[ResponseTable, dict[str, str]]:
    """The table with labels that were given as such, and names of facets by setting.

    A name is that of a facet of the table; anything else is a label for each subject,
    or item, and becomes a facet of the name of the setting.

    >>> table = ResponseTable.from_arrays([[1, 0], [0, 1], [1, 1]])
    >>> found, names = with_groups(table, {"family": ["a", "a", "b"]})
    >>> names, found.subject_facets["family"].tolist()
    ({'family': 'family'}, ['a', 'a', 'b'])
    """
    names: dict[str, str] = {}
    for setting, what in GROUPS.items():
        facet = settings.get(setting)
        if facet is None:
            continue
        field = f"{what[:-1]}_facets"
        facets, size = getattr(table, field), len(getattr(table, what))
        if not isinstance(facet, str):
            labels = as_labels(["" if x is None else str(x) for x in facet])
            if len(labels) != size:
                raise ValueError(
                    f"{setting} has {len(labels):,} labels, but there are {size:,}"
                    f" {what}: give one for each"
                )
            facets = {**facets, setting: labels}
            table = table.replace(**{field: facets})
            facet = setting
        if facet not in facets:
            listed = ", ".join(facets) or "none"
            raise ValueError(
                f"no facet {facet!r} of {what} for {setting} (there are:"
                f" {listed}): give one of them, or a label for each of the {size:,}"
                f" {what}"
            )
        groups = len(np.unique(facets[facet]))
        if groups < 2:
            raise ValueError(
                f"{setting} {facet!r} has the same label for all {what}: give labels"
                " that differ, or leave it out"
            )
        names[setting] = facet
    return table, names


def with_populations(method: Any, table: ResponseTable, facet: str | None) -> Any:
    """The method, or the one that gives each group of subjects a population.

    Raises:
        ValueError: For methods other than "em", and groups of one subject.
    """
    if facet is None:
        return method
    if isinstance(method, str):
        method = method_class("em" if method == "auto" else method)()
    labels = table.subject_facets[facet]
    labels = np.where(labels == "", "(none)", labels)
    names, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    small = names[sizes < FEWEST_SUBJECTS]
    if len(small):
        raise ValueError(
            f"group {str(small[0])!r} of {facet!r} has one subject, and a population"
            f" needs {FEWEST_SUBJECTS}: join it with another group"
        )
    return method.by_group(codes, tuple(names.tolist()))
