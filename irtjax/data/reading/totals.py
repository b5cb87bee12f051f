"""Rows and columns of a matrix that hold the mean or the sum of the others."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

_NAMES = {"average", "avg", "mean", "total", "sum", "overall"}
#: Largest difference by rounding to two decimals, with the error of the last bit.
_ROUNDED = 0.005 + 1e-9


class Totals(NamedTuple):
    """Masks of the rows and of the columns that are totals, and notes on them."""

    rows: np.ndarray
    columns: np.ndarray
    notes: list[str]


def totals_of(
    rows: np.ndarray | None,
    names: list[str],
    values: np.ndarray,
    observed: np.ndarray | None,
) -> Totals:
    """Totals of a matrix: rows and columns of such a name that have such values.

    Args:
        rows: `[rows]`, names of the rows, or None.
        names: Names of the columns.
        values: `[rows, columns]`.
        observed: The mask of the values, or None.

    Returns:
        The totals, and notes on those and on others of such a name.
    """
    notes: list[str] = []
    mask = np.ones(values.shape, bool) if observed is None else observed
    columns = _are_totals("column", names, values, mask, notes)
    if rows is None:
        return Totals(np.zeros(len(values), bool), columns, notes)
    if columns.any():
        values, mask = values[:, ~columns], mask[:, ~columns]
    are_rows = _are_totals("row", rows.tolist(), values.T, mask.T, notes)
    return Totals(are_rows, columns, notes)


def is_total(name: str) -> bool:
    """Whether a name is that of a mean or a sum.

    >>> is_total("Average"), is_total("age")
    (True, False)
    """
    return _plain(name) in _NAMES


def _plain(name: str) -> str:
    """A name without what surrounds its words, such as an arrow: "Average \u2b06"."""
    return re.sub(r"^[\W_]+|[\W_]+$", "", name).lower()


def _are_totals(
    what: str,
    names: list[str],
    values: np.ndarray,
    mask: np.ndarray,
    notes: list[str],
) -> np.ndarray:
    """Which columns are totals of the others; adds notes.

    Whole numbers that the others have, too, may be those of an item or a subject, so
    they do not suffice: a model named "mean" may be right wherever two others are.
    """
    named = np.array([is_total(str(name)) for name in names], bool)
    gone = np.zeros(len(names), bool)
    if not named.any() or named.sum() > len(names) - 2:
        return gone
    whole = np.unique(values[:, ~named][mask[:, ~named]])
    whole = whole[whole == np.rint(whole)]
    others = np.where(mask, values, 0.0)[:, ~named].astype(np.float64)
    total, count = others.sum(1), mask[:, ~named].sum(1)
    mean = total / np.maximum(count, 1)
    for place in np.flatnonzero(named).tolist():
        seen = mask[:, place] & (count > 0)
        totals = values[seen, place]
        is_sure = not np.isin(totals, whole).all()
        # Means in per cent may have no decimals.
        forms = (mean, _ROUNDED, "mean"), (100 * mean, 100 * _ROUNDED, "mean")
        for expected, most, how in (*forms, (total, _ROUNDED, "sum")):
            if is_sure and (np.abs(totals - expected[seen]) <= most).all():
                gone[place] = True
                notes.append(
                    f"{what} {names[place]!r:.80} is the {how} of the others and was"
                    " left out"
                )
                break
        else:
            notes.append(
                f"{what} {names[place]!r:.80} was read like the others: leave it out if"
                " it is a total"
            )
    return gone
