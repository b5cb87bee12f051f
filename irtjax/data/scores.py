"""Scores in [0, 1] as the models of scores use them: logits, and codes of the two ends.

A logit of 0 adds nothing to any statistic of a family of scores, as a missing cell
must. An end has no logit: it is either moved inside ("squeezed"), and counted, or
stored as a code for families that give the ends a probability of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from irtjax.data.reversal import metric_of, reported
from irtjax.data.table import ResponseTable
from irtjax.numerics.dispersion import share_dispersion

#: Stored in place of a logit by a score at an end: -END for 0, END for 1. No score
#: between them has a logit half as large in double precision.
END = 2000.0

#: Largest n of a squeeze: at twice that, 1 - 1 / (2 n) would round to 1.
LARGEST_SQUEEZE = 1e15


class Logits(NamedTuple):
    """Scores for ``jit``: `[subjects, items]` logits, codes of ends, or counts."""

    values: np.ndarray
    num_squeezed: int  # Scores that were moved from an end.
    squeeze: float | dict[str, float]  # The n of `to_logits`.


#: Degrees of freedom, (subjects - 1) (items - 1), below which the scores of a benchmark
#: hardly determine their dispersion: of 12 x 3 scores it was .16 to .74 where .55 was
#: true (20 data sets).
FEW_DEGREES = 30


#: Lowest and highest possible score: of all, or by benchmark.
Bounds = tuple[float, float] | Mapping[str, tuple[float, float]]


def rescale(
    table: ResponseTable, bounds: Bounds, columns: np.ndarray | None = None
) -> ResponseTable:
    """Scores between two bounds as scores between 0 and 1, with a note of it.

    `columns` is an `[items]` mask of the items with scores. With bounds by benchmark
    (or metric), the scores of those not named are from 0 to 1 already.

    >>> table = ResponseTable.from_arrays([[-1.0, 0.5], [0.0, 1.0]])
    >>> rescale(table, (-1, 1)).values.tolist()
    [[0.0, 0.75], [0.5, 1.0]]
    >>> graded = ResponseTable.from_arrays([[0.1, 7.0]], benchmark=["rouge", "judge"])
    >>> rescale(graded, {"judge": (1, 9)}).values.tolist()
    [[0.1, 0.75]]
    """
    columns = np.ones(table.num_items, bool) if columns is None else columns
    by_name = isinstance(bounds, Mapping)
    benchmarks = sorted(benchmarks_of(table)) if by_name else []
    scaled, notes = table.values.astype(np.float64), []
    for name, (low, high) in bounds.items() if by_name else [(None, bounds)]:
        whose = "" if name is None else f" of {name!r}"
        low, high = float(low), float(high)
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError(
                f"bounds{whose} ({low:g}, {high:g}) are not two rising numbers"
            )
        if by_name and name not in benchmarks:
            shown = ", ".join(map(repr, benchmarks)) or "no labels"
            raise ValueError(f"bounds are given of {name!r}; benchmarks are: {shown}")
        chosen = columns if name is None else columns & (table.benchmarks == name)
        if table.trials is not None and np.any(table.trials[:, chosen] > 1):
            raise ValueError(f"bounds{whose} are for scores, not for counts of trials")
        check_range(table, (low, high), chosen)
        inside = (table.values - low) / (high - low)
        scaled = np.where(chosen, inside, scaled)
        column = int(np.argmax(chosen))
        first, last = (reported(table, column, x) for x in (low, high))
        notes.append(
            f"scores{whose} from {first:g} to {last:g} were rescaled to 0 to 1"
        )
    if table.observed is not None:
        scaled = np.where(table.observed, scaled, 0.0)
    return dataclasses.replace(table, values=scaled, notes=(*table.notes, *notes))


def to_bounds(
    values: np.ndarray, bounds: Bounds, benchmarks: np.ndarray | None
) -> np.ndarray:
    """Scores between 0 and 1 on the scale they were rescaled from; see `rescale`.

    >>> to_bounds(np.array([[0.5, 0.5]]), {"b": (1, 9)}, np.array(["a", "b"])).tolist()
    [[0.5, 5.0]]
    """
    low, high = _ends(bounds, benchmarks)
    return low + (high - low) * values


def within_bounds(
    values: np.ndarray, bounds: Bounds, benchmarks: np.ndarray | None
) -> np.ndarray:
    """Scores between 0 and 1 of those between bounds, without a check of their range.

    >>> within_bounds(np.array([[0.5, 5.0]]), {"b": (1, 9)}, np.array(["a", "b"]))
    array([[0.5, 0.5]])
    """
    low, high = _ends(bounds, benchmarks)
    return (values - low) / (high - low)


def _ends(bounds: Bounds, benchmarks: np.ndarray | None) -> Any:
    """Lowest and highest score, of all or `[items]`."""
    if not isinstance(bounds, Mapping):
        return bounds
    assert benchmarks is not None
    low, high = np.zeros(len(benchmarks)), np.ones(len(benchmarks))
    for name, ends in bounds.items():
        low[benchmarks == name], high[benchmarks == name] = ends
    return low, high


def item_ends(bounds: Bounds, benchmarks: np.ndarray) -> np.ndarray:
    """Lowest and highest score of each item, `[2, items]`.

    >>> item_ends({"b": (1, 9)}, np.array(["a", "b"])).tolist()
    [[0.0, 1.0], [1.0, 9.0]]
    """
    low, high = _ends(bounds, benchmarks)
    ends = [np.broadcast_to(x, len(benchmarks)) for x in (low, high)]
    return np.stack(ends).astype(np.float64)


def benchmarks_of(table: ResponseTable) -> list[str]:
    """Names of the benchmarks of a table, in order; none without labels."""
    names = list(dict.fromkeys(table.benchmarks.tolist()))
    return [] if names == [""] else names


def check_range(
    table: ResponseTable, bounds: tuple[float, float], columns: np.ndarray
) -> None:
    """Refuses scores outside the bounds, in the items of a mask `[items]`."""
    low, high = bounds
    # A missing cell holds 0, which need not be between the bounds.
    seen = True if table.observed is None else table.observed
    wrong = ((table.values < low) | (table.values > high)) & seen & columns
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        where = f"{table.sources[0]}: " if table.sources else ""
        value = reported(table, column, float(table.values[row, column]))
        # Reversed scores from 0 to 1 are reported from 0 to 1, whatever the formula.
        if bounds != (0.0, 1.0):
            low, high = sorted(reported(table, column, x) for x in bounds)
        raise ValueError(
            f"{where}subject {str(table.subjects[row])!r}, item"
            f" {str(table.items[column])!r}: score {value:g} is not"
            f" between {low:g} and {high:g}; give the lowest and highest scores"
            f" with {_bounds_option(table, column)}{_range_of(table, column)}"
        )


def _range_of(table: ResponseTable, column: int) -> str:
    """The range of errors, which rarely have a highest value, as the end of a message.

    Of the scores of the same formula as the item's; nothing of other scores.
    """
    formulas = table.reversed_scores or {}
    text = formulas.get(str(table.items[column]))
    if text is None:
        return ""
    same = [k for k, name in enumerate(table.items) if formulas.get(str(name)) == text]
    seen = table.select(items=np.array(same)).seen
    low, high = sorted(
        reported(table, column, float(x)) for x in (seen.min(), seen.max())
    )
    return f"; those of {metric_of(text)} are from {low:g} to {high:g}"


def _bounds_option(table: ResponseTable, column: int) -> str:
    """The options for the bounds of an item's scores, in Python and as commands."""
    if len(benchmarks_of(table)) < 2:
        return "bounds=(low, high) (--bounds LOW HIGH)"
    name = str(table.benchmarks[column])
    return f"bounds={{{name!r}: (low, high)}} (--bounds-of {name}=LOW:HIGH)"


def default_squeeze(scores: np.ndarray) -> float:
    """The n of `to_logits` at which only scores of exactly 0 or 1 move.

    These move by half the smallest distance of another score from an end, or by 1/4 if
    that is above 1/2: squeezing never changes the order of scores.

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
    squeeze: float | Mapping[str, float] | None = None,
    ends: float | None = None,
) -> Logits:
    """Logits log y - log(1 - y) of scores; other columns stay as they are.

    Scores nearer to an end than 1 / (2 n) are put there: for 0 and 1 that is
    (y (n - 1) + 1/2) / n of Smithson and Verkuilen (2006), and scores in between keep
    their order and, if not that near, their value.

    `columns` is the mask of items with scores; a ValueError refuses any outside [0, 1].
    `squeeze` is n, one for each benchmark, or None for `default_squeeze` of the scores
    of each, since metrics differ in their steps. Scores within `ends`, in [0, 1/2), of
    an end get its code instead.
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
    sizes = _squeezes(table, scores, seen, squeeze)
    # Items without scores have no n, and their columns are left as they are.
    by_item = [
        sizes.get(name, 2.0) if isinstance(sizes, dict) else sizes
        for name in table.benchmarks.tolist()
    ]
    for size in by_item:
        if not 2 <= size <= LARGEST_SQUEEZE:
            raise ValueError(f"squeeze {size:g} is not from 2 to {LARGEST_SQUEEZE:g}")
    distance = 1 / (2 * np.array(by_item))
    near = ((scores < distance) | (1 - scores < distance)) & seen
    scores = np.clip(scores, distance, 1 - distance)
    logits = np.log(scores) - np.log1p(-scores)
    return Logits(np.where(columns, logits, table.values), int(near.sum()), sizes)


def as_shares(table: ResponseTable) -> ResponseTable:
    """Counts of trials as shares of right responses; any other table as it is.

    >>> counts = ResponseTable.from_arrays([[1, 0]], trials=[[4, 2]])
    >>> as_shares(counts).values.tolist()
    [[0.25, 0.0]]
    """
    if table.trials is None:
        return table
    shares = table.values / np.maximum(table.trials, 1)
    return dataclasses.replace(table, values=shares, trials=None)


#: What examines right and wrong responses where they are counts.
MAJORITY = (
    "repeated responses to an item count as one, which is right where at least half of"
    " them are"
)


def as_majority(table: ResponseTable) -> ResponseTable:
    """Counts of trials as right where at least half are; any other table as it is.

    >>> counts = ResponseTable.from_arrays([[1, 2]], trials=[[4, 3]])
    >>> as_majority(counts).values.tolist()
    [[0, 1]]
    """
    if table.trials is None:
        return table
    right = (2 * table.values >= np.maximum(table.trials, 1)).astype(np.int8)
    if table.observed is not None:
        right *= table.observed
    return dataclasses.replace(table, values=right, trials=None)


def trial_dependence(table: ResponseTable) -> float:
    """Times that errors of independent trials are too small for counts.

    The dispersion of shares (`share_dispersion`) is compared with that of independent
    trials, the mean of one over their number. 1 where it is not two standard errors
    above that; for a mean of so many squares the error is sqrt(2 / degrees).
    """
    assert table.trials is not None
    seen = table.trials > 1
    if not seen.any():
        return 1.0
    least = float((1 / table.trials[seen]).mean())
    ratio = share_dispersion(as_shares(table).values, seen) / least
    lines = seen.any(axis=1).sum() + seen.any(axis=0).sum()
    degrees = max(int(seen.sum()) - int(lines) + 1, 1)
    return float(np.sqrt(ratio)) if ratio > 1 + 2 * np.sqrt(2 / degrees) else 1.0


class ScoreShares(NamedTuple):
    """Scores as shares of right responses, for ``jit``."""

    values: np.ndarray  # [subjects, items] scores times what each is worth
    trials: np.ndarray  # [subjects, items] what each is worth, 0 if missing
    worth: float | dict[str, float]  # Right or wrong responses that a score is worth.


def to_shares(
    table: ResponseTable, worth: float | Mapping[str, float] | None = None
) -> ScoreShares:
    """Scores as shares of `worth` independent right or wrong responses.

    `worth` is one over the dispersion of the scores, or this for each benchmark; None
    estimates it (`irtjax.numerics.dispersion.share_dispersion`). Benchmarks with fewer
    than `FEW_DEGREES` have one estimate together. A ValueError refuses scores outside
    [0, 1].

    >>> table = ResponseTable.from_arrays([[0.0, 0.5], [0.5, 1.0]])
    >>> to_shares(table, 2.0).values.tolist()
    [[0.0, 1.0], [1.0, 2.0]]
    """
    everything = np.ones(table.num_items, bool)
    check_range(table, (0.0, 1.0), everything)
    seen = np.ones(table.values.shape, bool)
    if table.observed is not None:
        seen = np.asarray(table.observed)
    scores = np.where(seen, table.values, 0.0).astype(np.float64)
    names = benchmarks_of(table)
    if isinstance(worth, Mapping) or (worth is None and len(names) > 1):
        worths = {name: float(n) for name, n in (worth or {}).items()}
        unknown = [name for name in names if name not in worths]
        columns = {name: table.benchmarks == name for name in unknown}
        small = [n for n in unknown if _is_small(scores, seen & columns[n])]
        groups = [[name] for name in unknown if name not in small]
        groups += [small] if small else []
        for group in groups:
            chosen = np.isin(table.benchmarks, group)
            each = 1 / share_dispersion(scores[:, chosen], seen[:, chosen])
            worths |= dict.fromkeys(group, each)
        worths = {name: worths[name] for name in names}
        by_item = np.array([worths[name] for name in table.benchmarks.tolist()])
    else:
        worths = 1 / share_dispersion(scores, seen) if worth is None else float(worth)
        by_item = np.full(table.num_items, worths)
    return ScoreShares(scores * by_item, seen * by_item, worths)


def _is_small(scores: np.ndarray, seen: np.ndarray) -> bool:
    """Whether scores of a mask, not all 0 or 1, hardly determine a dispersion."""
    subjects, items = (int(seen.any(axis=k).sum()) for k in (1, 0))
    inside = (scores > 0) & (scores < 1) & seen
    return seen.sum() - subjects - items + 1 < FEW_DEGREES and bool(inside.any())


def _squeezes(
    table: ResponseTable,
    scores: np.ndarray,
    seen: np.ndarray,
    squeeze: float | Mapping[str, float] | None,
) -> float | dict[str, float]:
    """The n of `to_logits`: one number, or one for each benchmark with scores."""
    if squeeze is not None and not isinstance(squeeze, Mapping):
        return float(squeeze)
    names, by_name = benchmarks_of(table), dict(squeeze or {})
    unknown = sorted(set(by_name) - set(names))
    if unknown:
        shown = ", ".join(map(repr, names)) or "no labels"
        raise ValueError(f"squeeze is given of {unknown[0]!r}; benchmarks are: {shown}")
    if len(names) < 2:
        return float(by_name[names[0]] if by_name else default_squeeze(scores[seen]))
    squeezes = {}
    for name in names:
        chosen = seen & (table.benchmarks == name)
        if name in by_name:
            squeezes[name] = float(by_name[name])
        elif chosen.any():
            squeezes[name] = default_squeeze(scores[chosen])
    return squeezes
