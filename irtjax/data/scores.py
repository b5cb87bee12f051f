"""Scores in [0, 1] as models of scores hold them: logits, and codes for the two ends.

A logit of 0 adds nothing to any statistic of a family of scores, as a missing cell
must. An end has no logit: it is either moved inside ("squeezed"), and counted, or
kept as a code for families that give the ends a probability of their own.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from irtjax.data.table import ResponseTable

#: Stored in place of a logit by a score at an end: -END for 0, END for 1. No score
#: between them has a logit half as large in double precision.
END = 2000.0


#: Largest n of a squeeze: at twice that, 1 - 1 / (2 n) would round to 1.
LARGEST_SQUEEZE = 1e15


class Logits(NamedTuple):
    """Scores as they enter ``jit``.

    Attributes:
        values: `[subjects, items]` logits, codes of ends, or counts; 0 where missing.
        num_squeezed: Scores that were moved away from an end.
        squeeze: The n that says how far; see `to_logits`.
    """

    values: np.ndarray
    num_squeezed: int
    squeeze: float


def rescale(table: ResponseTable, bounds: tuple[float, float]) -> ResponseTable:
    """Scores between two bounds as scores between 0 and 1, with a note of it.

    Args:
        table: Scores.
        bounds: Lowest and highest possible score.

    Raises:
        ValueError: If the bounds are not in order or a score is outside them.

    >>> table = ResponseTable.from_arrays([[-1.0, 0.5], [0.0, 1.0]])
    >>> rescale(table, (-1, 1)).values.tolist()
    [[0.0, 0.75], [0.5, 1.0]]
    """
    low, high = (float(bound) for bound in bounds)
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"bounds ({low:g}, {high:g}) are not two rising numbers")
    if table.trials is not None:
        raise ValueError("bounds are for scores, not for counts of trials")
    check_range(table, (low, high), np.ones(table.num_items, bool))
    values = (table.values - low) / (high - low)
    if table.observed is not None:
        values = np.where(table.observed, values, 0.0)
    note = f"scores from {low:g} to {high:g} were rescaled to 0 to 1"
    return dataclasses.replace(table, values=values, notes=(*table.notes, note))


def check_range(
    table: ResponseTable, bounds: tuple[float, float], columns: np.ndarray
) -> None:
    """Refuses scores outside the bounds.

    Args:
        table: Scores.
        bounds: Lowest and highest possible score.
        columns: `[items]` mask of the items to look at.

    Raises:
        ValueError: Naming the first such cell.
    """
    low, high = bounds
    # A missing cell holds 0, which need not be between the bounds.
    seen = True if table.observed is None else table.observed
    wrong = ((table.values < low) | (table.values > high)) & seen & columns
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        where = f"{table.sources[0]}: " if table.sources else ""
        raise ValueError(
            f"{where}subject {str(table.subjects[row])!r}, item"
            f" {str(table.items[column])!r}: score {table.values[row, column]:g} is not"
            f" between {low:g} and {high:g}; say what the lowest and highest scores are"
            " with bounds=(low, high) (--bounds LOW HIGH)"
        )


def default_squeeze(scores: np.ndarray) -> float:
    """The n of `to_logits` at which only scores of exactly 0 or 1 move.

    These go half-way to where the score nearest to any end is, or to 1/2 in as many as
    there are scores if none is nearer: squeezing never changes the order of scores.

    >>> default_squeeze(np.array([0.0, 0.25, 0.5]))
    4.0
    """
    inside = scores[(scores > 0) & (scores < 1)]
    nearest = min(inside.min(initial=0.5), (1 - inside).min(initial=0.5))
    return float(min(1 / nearest, LARGEST_SQUEEZE))


def to_logits(
    table: ResponseTable,
    columns: np.ndarray,
    *,
    squeeze: float | None = None,
    ends: float | None = None,
) -> Logits:
    """Logits log y - log(1 - y) of scores; other columns stay as they are.

    Scores nearer to an end than 1 / (2 n) are put there: for 0 and 1 that is
    (y (n - 1) + 1/2) / n of Smithson and Verkuilen (2006), and scores in between keep
    their order and, if not that near, their value.

    Args:
        table: Scores in [0, 1].
        columns: `[items]` mask of the items with scores.
        squeeze: n; None for `default_squeeze`.
        ends: Scores at most this far from an end are at it, and get its code; None
            squeezes them instead.

    Raises:
        ValueError: If a score is outside [0, 1], n is out of range, or `ends` is not in
            [0, 1/2).
    """
    check_range(table, (0.0, 1.0), columns)
    seen = np.broadcast_to(columns, table.values.shape)
    if table.observed is not None:
        seen = seen & table.observed
    scores = np.where(seen, table.values, 0.5).astype(np.float64)
    if ends is not None:
        if not 0 <= ends < 0.5:
            raise ValueError(f"ends {ends:g} is not a distance from 0 to below 1/2")
        # A difference such as 1 - 0.99 must not round to above 0.01.
        reach = ends * (1 + 1e-9)
        low, high = scores <= reach, 1 - scores <= reach
        inside = np.where(low | high, 0.5, scores)
        logits = np.log(inside) - np.log1p(-inside)
        values = np.where(low, -END, np.where(high, END, logits))
        return Logits(np.where(columns, values, table.values), 0, 0.0)
    size = default_squeeze(scores[seen]) if squeeze is None else float(squeeze)
    if not 2 <= size <= LARGEST_SQUEEZE:
        raise ValueError(f"squeeze {size:g} is not from 2 to {LARGEST_SQUEEZE:g}")
    distance = 1 / (2 * size)
    near = (scores < distance) | (1 - scores < distance)
    scores = np.clip(scores, distance, 1 - distance)
    logits = np.log(scores) - np.log1p(-scores)
    return Logits(np.where(columns, logits, table.values), int(near.sum()), size)
