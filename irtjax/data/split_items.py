"""Items with parameters of their own in groups of subjects, as items of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from irtjax.data.arrays import as_labels
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted


def split_items(
    table: ResponseTable,
    items: Sequence[str],
    by: str,
    equal: Sequence[Sequence[str]] = (),
) -> ResponseTable:
    """The responses with some items divided by groups of subjects.

    An item x becomes x [a], x [b], one for each group, which only subjects of that
    group answered. So its parameters are free in each group, and the other items stay
    common to all: the constraints of a multiple-group model
    (`irtjax.fit(..., groups=by)`).

    Args:
        table: Responses with the facet.
        items: Names of the items to divide.
        by: A facet of subjects.
        equal: Sets of groups in which the parameters stay equal; every other group is
            a set of its own.

    Returns:
        The table, with items that are not divided first. The facet "item" of items has
        the names before the division.

    Raises:
        ValueError: For names that the table does not have.

    >>> table = ResponseTable.from_arrays([[1, 0], [0, 1], [1, 1]], items=["x", "y"])
    >>> table = table.replace(subject_facets={"family": np.array(["a", "a", "b"])})
    >>> divided = split_items(table, ["y"], by="family")
    >>> divided.items.tolist(), divided.observed.tolist()[2]
    (['x', 'y [a]', 'y [b]'], [True, False, True])
    """
    if by not in table.subject_facets:
        listed = ", ".join(table.subject_facets) or "none"
        raise ValueError(f"no facet {by!r} of subjects (there are: {listed})")
    labels = table.subject_facets[by]
    names = np.unique(labels).tolist()
    _check(items, table.items.tolist(), "item")
    _check([x for one in equal for x in one], names, "group")
    sets = [list(one) for one in equal]
    alone = [[x] for x in names if not any(x in one for one in sets)]
    sets = sorted([*sets, *alone])
    divided = np.isin(table.items, list(items))
    common, own = np.flatnonzero(~divided), np.flatnonzero(divided)
    columns = np.concatenate([common, np.repeat(own, len(sets))])
    in_set = np.stack([np.isin(labels, one) for one in sets], axis=1)
    everyone = np.ones((len(labels), len(common)), bool)
    answers = np.concatenate([everyone, np.tile(in_set, (1, len(own)))], axis=1)
    suffixes = [f" [{', '.join(one)}]" for one in sets]
    new = [f"{table.items[k]}{x}" for k in own for x in suffixes]
    cut = lambda array: None if array is None else array[:, columns]
    facets = {name: x[columns] for name, x in table.item_facets.items()}
    observed = cut(table.observed)
    items = [*table.items[common].tolist(), *new]
    before = dict(zip(items, table.items[columns].tolist(), strict=True))
    of_new = lambda by_item: {x: by_item[y] for x, y in before.items() if y in by_item}
    return table.replace(
        items=as_labels(items),
        values=np.where(answers, table.values[:, columns], 0),
        observed=answers if observed is None else observed & answers,
        trials=cut(table.trials),
        lengths=cut(table.lengths),
        item_facets={**facets, "item": table.items[columns]},
        item_texts=of_new(table.item_texts),
        item_ids=of_new(table.item_ids),
        item_contents=of_new(table.item_contents),
        reversed_scores=of_new(table.reversed_scores or {}) or None,
        answers=None,
    )


def _check(values: Sequence[str], known: list[str], what: str) -> None:
    """Refuses names that are not there."""
    unknown = [x for x in values if x not in known]
    if unknown:
        raise ValueError(
            f"no {what} {unknown[0]!r} ({counted(len(known), what)}: {known[0]!r}, …)"
        )
