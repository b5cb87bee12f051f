"""Which items are missing more often for weak, or for strong, subjects.

`missing_matrix` has the test and its formula, `missing_cells` that by observed cell.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.calibration.discrimination import FALSE_DISCOVERY_RATE
from irtjax.calibration.tables import number_column
from irtjax.data import ResponseTable, read
from irtjax.data.frames import HasTable
from irtjax.data.wording import percent
from irtjax.validity.missing_cells import missing_in_cells
from irtjax.validity.missing_matrix import MissingByAbility, missing_by_ability

if TYPE_CHECKING:
    import pyarrow as pa

#: Items that a sentence names.
SHOWN = 5


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Missingness(HasTable):
    """Which items are missing more often for weak or for strong subjects.

    Attributes:
        table: A row for each item: `item`, `missing` (subjects without a response),
            `share_missing`, `difference` (the mean ability of these subjects less that
            of the others, in standard deviations of ability, in the test of the smaller
            p-value: with the item's benchmark, or among those who ran it; null if
            either group is empty, or abilities do not vary), `p_value` (two-sided),
            `q_value` (adjusted by Benjamini and Hochberg; items that the same subjects
            miss count as one) and `missing_more_for`: "weak", "strong" or null.
        false_discovery_rate: The level of these decisions.
        sentence: The result in words.
    """

    title = "Missing responses"

    table: pa.Table
    false_discovery_rate: float
    sentence: str


def missingness(
    data: ResponseTable | Any, *, false_discovery_rate: float = FALSE_DISCOVERY_RATE
) -> Missingness:
    """Tests for each item whether its missing responses depend on ability.

    Abilities are estimated without the item, so the test needs no model; see
    `missing_matrix` for the formula. An item that is missing more often for weak or for
    strong subjects is no bad item. If responses are missing because they would have
    been wrong, though, estimates are biased, and a fit cannot show it.

    Args:
        data: A `ResponseTable`, or what `irtjax.read` takes.
        false_discovery_rate: Level over the items (Benjamini and Hochberg 1995).

    Returns:
        A table of the items and a sentence.

    Raises:
        ValueError: If the rate is not between 0 and 1.

    >>> rng = np.random.default_rng(0)
    >>> ability, easy = rng.normal(size=(200, 1)), rng.normal(size=40)
    >>> right = 1.0 * (rng.random((200, 40)) < 1 / (1 + np.exp(-ability - easy)))
    >>> right[:, 3] = np.where(right[:, 3] == 0, np.nan, 1)  # Failed calls are lost.
    >>> right[rng.random((200, 40)) < 0.1] = np.nan
    >>> test = missingness(ResponseTable.from_arrays(right))
    >>> [row["item"] for row in test.table.to_pylist() if row["missing_more_for"]]
    ['item 4']
    """
    import pyarrow as pa

    table = data if isinstance(data, ResponseTable) else read(data)
    level = false_discovery_rate
    if not 0 < level < 1:
        raise ValueError(f"false_discovery_rate {level:g} is not between 0 and 1")
    missing = missing_of_table(table)
    more_for = missing.more_for(level)
    columns: dict[str, Any] = {
        "item": pa.array(table.items.tolist(), pa.string()),
        "missing": pa.array(missing.missing),
        "share_missing": number_column(missing.missing / max(table.num_subjects, 1)),
        "difference": number_column(missing.difference),
        "p_value": number_column(missing.p_value),
        "q_value": number_column(missing.q_value),
        "missing_more_for": pa.array(more_for.tolist(), pa.string()),
    }
    sentence = describe(missing, table.items, table.benchmarks, level)
    return Missingness(pa.table(columns), level, sentence)


def missing_of_table(table: ResponseTable) -> MissingByAbility:
    """The test of each item, by observed cell where a table has these alone."""
    benchmarks = table.item_facets.get("benchmark")
    if table.sparse is not None:
        return missing_in_cells(table.sparse, unit_values(table), benchmarks)
    return missing_by_ability(*unit_responses(table), benchmarks)


def unit_responses(table: ResponseTable) -> tuple[np.ndarray, np.ndarray | None]:
    """Responses from 0 to 1 `[subjects, items]`, 0 where missing, and the mask.

    Counts are shares of their trials; other responses are divided by the range of
    their item.

    >>> table = ResponseTable.from_arrays([[0, 1], [4, 3], [2, np.nan]])
    >>> unit_responses(table)[0].tolist()
    [[0.0, 0.0], [1.0, 1.0], [0.5, 0.0]]
    """
    values, observed = table.values, table.observed
    if table.trials is not None:
        observed = table.trials > 0
        return values / np.maximum(table.trials, 1), observed
    if table.kind == "binary":
        return values, observed
    values = values.astype(np.float64)
    seen = np.ones(values.shape, bool) if observed is None else observed
    low = np.where(seen, values, np.inf).min(0, initial=np.inf)
    size = np.where(seen, values, -np.inf).max(0, initial=-np.inf) - low
    scaled = (values - np.where(np.isfinite(low), low, 0)) / np.where(size > 0, size, 1)
    return np.where(seen, scaled, 0), observed


def unit_values(table: ResponseTable) -> np.ndarray:
    """Observed responses `[cells]` of a sparse table, as by `unit_responses`."""
    cells = table.cells
    value = cells.value.astype(np.float64)
    if table.kind == "binary":
        return value
    first, places = cells.by_item
    some = np.flatnonzero(np.diff(first) > 0)
    low, high = np.zeros((2, cells.num_items))
    low[some] = np.minimum.reduceat(value[places], first[some])
    high[some] = np.maximum.reduceat(value[places], first[some])
    size = np.where(high > low, high - low, 1)
    return (value - low[cells.column]) / size[cells.column]


def describe(
    test: MissingByAbility, items: np.ndarray, benchmarks: np.ndarray, level: float
) -> str:
    """The test in words; `items` and `benchmarks` are names `[items]`."""
    if not test.missing.any():
        return "No response is missing."
    tested = int(np.isfinite(test.p_value).sum())
    more_for, rate = test.more_for(level), percent(level)
    if not tested:
        return (
            "No item was answered by some subjects and not by others who can be"
            " compared by further items."
        )
    noun = "item" if tested == 1 else "items"
    parts = []
    for side in ("weak", "strong"):
        chosen = np.flatnonzero(more_for == side)
        chosen = chosen[np.argsort(test.p_value[chosen], kind="stable")]
        if chosen.size:
            verb = "is" if chosen.size == 1 else "are"
            parts.append(
                f"{chosen.size:,} {verb} missing more often for {side} subjects"
                f" ({_named(chosen, items, benchmarks)})"
            )
    if not parts:
        return (
            f"Of {tested:,} {noun} with missing responses, none is missing more often"
            f" for weak or for strong subjects (false discovery rate {rate})."
        )
    return (
        f"Of {tested:,} {noun} with missing responses, {' and '.join(parts)} (false"
        f" discovery rate {rate}). An item is not bad for that, but estimates are"
        " biased if responses are missing because they would have been wrong."
    )


def _named(chosen: np.ndarray, items: np.ndarray, benchmarks: np.ndarray) -> str:
    """Items in words: a benchmark of which more than half are among them as one."""
    names, kinds = [], benchmarks[chosen].tolist()
    several = len(set(benchmarks.tolist())) > 1
    whole = {}
    for kind in dict.fromkeys(kinds) if several else ():
        here, all_here = kinds.count(kind), int(np.sum(benchmarks == kind))
        if here > 1 and 2 * here > all_here:
            share = "all" if here == all_here else f"{here:,} of the"
            whole[kind] = f"{share} {all_here:,} items of {kind or 'no benchmark'}"
    names = list(whole.values())
    names += [x for x, k in zip(items[chosen], kinds, strict=True) if k not in whole]
    left = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(" ".join(str(x).split())[:80] for x in names[:SHOWN]) + left
