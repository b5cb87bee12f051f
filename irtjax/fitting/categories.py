"""Items on which some of the categories of a model have no response."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, listing
from irtjax.models.catalogue import weak_priors
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.model import Model

#: Items that a note names.
SHOWN = 5


def observed_categories(table: ResponseTable, codes: tuple[int, ...]) -> np.ndarray:
    """Which categories the responses to each item have, `[items, categories]`.

    >>> table = ResponseTable.from_arrays([[1, 1], [3, 2]])
    >>> observed_categories(table, (1, 2, 3)).astype(int).tolist()
    [[1, 0, 1], [1, 1, 0]]
    """
    exists = np.zeros((table.num_items, len(codes)), bool)
    cells = table.sparse
    for k, code in enumerate(codes):
        if cells is not None:
            exists[cells.column[cells.value == code], k] = True
            continue
        here = table.values == code
        if table.observed is not None:
            here &= table.observed
        exists[:, k] = here.any(axis=0)
    return exists


def with_categories(
    model: Model, table: ResponseTable
) -> tuple[Model, np.ndarray | None]:
    """The model whose items have the categories of their responses, and these.

    None where every item has all. Items with one category keep a neighbour of it, as
    items that all subjects solve have a chance to fail. Categories of models whose
    items share their steps are those of all items.
    """
    family = model.family
    if family.num_categories < 3 or not family.by_intercept().closable:
        return model, None
    exists = observed_categories(table, family.category_codes)
    alone = exists.sum(axis=1) < 2
    first = np.argmax(exists, axis=1)
    beside = np.where(first > 0, first - 1, 1)
    exists[alone, first[alone]] = exists[alone, beside[alone]] = True
    if exists.all():
        return model, None
    if not family.closable:
        priors = weak_priors(family.by_intercept())
        if model.priors != weak_priors(family):
            priors = {name: x for name, x in model.priors.items() if name in priors}
        family = family.by_intercept()
        model = dataclasses.replace(model, priors=priors)
    closing: Any = family
    family = dataclasses.replace(closing, gaps=True)
    return dataclasses.replace(model, family=family), exists


def categories_note(table: ResponseTable, model: Model, exists: np.ndarray) -> str:
    """Which items lack which categories, in one sentence."""
    codes = np.array(model.family.category_codes)
    lack = np.flatnonzero(~exists.all(axis=1))
    parts = [
        f"{str(table.items[j])!r} has no {listing([*map(str, codes[~exists[j]])])}"
        for j in lack[:SHOWN].tolist()
    ]
    rest = f" and {len(lack) - SHOWN:,} more" if len(lack) > SHOWN else ""
    verb = "lack" if len(lack) > 1 else "lacks"
    return (
        f"{counted(len(lack), 'item')} {verb} some of the responses {codes[0]} to"
        f" {codes[-1]} ({'; '.join(parts)}{rest}): an item is fitted with the"
        " categories that its responses have"
    )


def codes_note(family: AbstractResponseFamily) -> str:
    """Which responses are the categories, where numbers between them do not occur."""
    codes = family.category_codes
    if not codes or codes[-1] - codes[0] + 1 == len(codes):
        return ""
    shown = listing([str(code) for code in codes])
    return f"the responses {shown} were taken as {len(codes)} categories in this order"
