"""The groups that a user gives: families and populations of subjects, item clusters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from irtjax.calibration.calibration import Calibration
from irtjax.data.arrays import as_labels
from irtjax.data.split_items import split_items
from irtjax.data.table import ResponseTable
from irtjax.estimators.catalogue import method_class
from irtjax.fitting.anchors import read_anchor

#: Settings, what each labels, and the field of a table with such labels.
GROUPS = {"family": "subjects", "cluster": "items", "groups": "subjects"}
#: Names of parameters, of all items or by item.
FreeByGroup = str | Sequence[str] | Mapping[str, str | Sequence[str]]
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


def with_populations(
    table: ResponseTable,
    method: Any,
    facet: str | None,
    settings: Mapping[str, Any],
) -> tuple[ResponseTable, Any]:
    """The method that gives each group of subjects a population, and its table.

    Items with parameters that are free by group are divided (`split_items`).

    Args:
        table: The responses.
        method: A method, or the name of one.
        facet: The facet of the groups; without it table and method stay.
        settings: Those of the fit, of which this reads `free_by_group`.

    Raises:
        ValueError: For methods other than "em", groups of one subject, and items that
            the table does not have.
    """
    free_by_group: FreeByGroup | None = settings.get("free_by_group")
    if facet is None:
        if free_by_group:
            raise ValueError("free_by_group requires groups: give groups= as well")
        return table, method
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
    method = method.by_group(codes, tuple(names.tolist()))
    if not free_by_group:
        return table, method
    kind = settings.get("standard_errors", "observed")
    if kind not in ("observed", "none"):
        raise ValueError(
            f"free_by_group has no {kind} standard errors: use"
            " standard_errors='observed'"
        )
    by_item = _names_by_item(table, free_by_group)
    anchor = settings.get("anchor")
    for item in () if anchor is None else read_anchor(anchor):
        if item in by_item:
            raise ValueError(
                f"free_by_group divides item {item!r}, which has anchored parameters:"
                " leave it out of free_by_group, or of the anchors"
            )
    parameters = sorted({name for names in by_item.values() for name in names})
    table = split_items(table, list(by_item), by=facet)
    before = table.item_facets["item"]
    items, sets = np.unique(before, return_inverse=True)
    is_free = [
        [name in by_item.get(item, ()) for name in parameters]
        for item in items.tolist()
    ]
    return table, dataclasses.replace(
        method,
        sets=jnp.asarray(sets),
        free_names=tuple(parameters),
        is_free=jnp.asarray(np.array(is_free)[sets]),
    )


def divided_as(fit: Calibration, table: ResponseTable) -> ResponseTable:
    """The responses of a fit with the items that it divided by group, if it did.

    Args:
        fit: The fit.
        table: The responses that it was made of, with items as they were read.
    """
    if not fit.options.get("free_by_group"):
        return table
    facet = fit.options["groups"]
    labels = fit.abilities.table.column("population").to_pylist()
    by_subject = dict(zip(fit.subject_names.tolist(), labels, strict=True))
    own = np.array([by_subject[x] for x in table.subjects.tolist()])
    table = table.replace(subject_facets={**table.subject_facets, facet: own})
    items = table.items[~np.isin(table.items, fit.item_names)].tolist()
    return split_items(table, items, by=facet)


def _names_by_item(
    table: ResponseTable, free_by_group: FreeByGroup
) -> dict[str, tuple[str, ...]]:
    """The names of free parameters of each item that has some."""
    as_names = lambda x: (x,) if isinstance(x, str) else tuple(map(str, x))
    if isinstance(free_by_group, Mapping):
        return {str(item): as_names(x) for item, x in free_by_group.items()}
    return dict.fromkeys(table.items.tolist(), as_names(free_by_group))
