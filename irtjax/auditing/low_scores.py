"""The evidence of items to read where no answers are known: able models score low."""

from __future__ import annotations

from typing import Any

import numpy as np

from irtjax.auditing.by_answers import sums_of_units, wrong_shares
from irtjax.calibration.discrimination import BLOCK, p_negative, rest_of
from irtjax.data import ResponseTable
from irtjax.data.stored_cells import DenseCells
from irtjax.numerics.tails import ENUMERATED, permutation_tails_of_scores

#: What the evidence is.
LOW_SCORES = "low scores of able models"
#: Permutations of the units, where scores of few of them are compared.
PERMUTATIONS = 20_000
#: Independent units below which no order is surprising: one of 24 has p = .04.
FEWEST_UNITS = 4


def low_scores(
    table: ResponseTable, units: np.ndarray, listed: set[int], seed: int
) -> list[dict[str, Any]]:
    """A row for each item that is not known already and varies.

    The statistic is the covariance of an item's score with the mean score on the other
    items; its p-value is the share of the orders of the units with one as low.

    Args:
        table: Responses of any kind.
        units: `[subjects]` the independent unit of each; -1 of those to leave out.
        listed: Places of items with other evidence.
        seed: Seed of the permutations.
    """
    values, observed = _of_units(table, units)
    if len(values) < FEWEST_UNITS or table.num_items < 3:
        return []
    rest = rest_of(DenseCells(values, observed))
    if ((values == 0) | (values == 1)).all():
        p = p_negative(DenseCells(values.astype(np.int8), observed))
    else:
        p = tails(values, observed, seed)[1]
    seen = np.ones(values.shape, bool) if observed is None else observed
    level = rest.total / np.maximum(rest.answers, 1)
    able = level > np.median(level)
    below = seen & (values < rest.means)
    rows = []
    for place in np.flatnonzero(np.isfinite(p)).tolist():
        if place in listed:
            continue
        text = table.item_texts.get(str(table.items[place]))
        rows.append(
            {
                "place": place,
                "answer": "",
                "count": float(np.count_nonzero(below[able, place])),
                "key": text.answer[:80] if text is not None else "",
                "p_value": float(p[place]),
                "weight": 0.0,
                "wrong": float(np.count_nonzero(below[:, place])),
                "models": int(np.count_nonzero(seen[:, place])),
                "evidence": LOW_SCORES,
            }
        )
    return rows


def _of_units(
    table: ResponseTable, units: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """Mean scores of units `[units, items]`, 0 where missing, and the mask."""
    if table.kind in ("binary", "counts"):
        wrong, seen = wrong_shares(table)
        values = np.where(seen, 1 - wrong, 0).astype(float)
    else:
        seen = np.ones(table.values.shape, bool)
        seen = seen if table.observed is None else table.observed
        values = table.values.astype(float)
    counts = sums_of_units(units, seen)
    total = sums_of_units(units, np.where(seen, values, 0.0))
    means = np.where(counts > 0, total / np.maximum(counts, 1), 0)
    return means, None if (counts > 0).all() else counts > 0


def tails(
    values: np.ndarray, observed: np.ndarray | None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chances of a covariance with the rest as high and as low, and correlations.

    All are `[items]`, NaN of items without variation. Up to `ENUMERATED` subjects
    `PERMUTATIONS` orders of the scores are drawn; the distribution over all orders of
    more subjects is approximated.
    """
    cells, size = DenseCells(values, observed), values.shape[1]
    rest = rest_of(cells)
    upper, lower, r = np.full((3, size), np.nan)
    rng = np.random.default_rng(seed)
    orders: dict[int, np.ndarray] = {}
    places = np.arange(size)
    for block in cells.item_blocks(BLOCK):
        seen = block.seen
        own = np.where(seen, block.values - rest.means[block.items], 0)
        score = rest.scores(own, block)
        if len(values) > ENUMERATED:
            upper[block.items], lower[block.items] = permutation_tails_of_scores(
                block.values, seen, score
            )
        for k, place in enumerate(places[block.items].tolist()):
            who = np.flatnonzero(seen[:, k])
            if len(who) < FEWEST_UNITS or np.ptp(block.values[who, k]) < 1e-12:
                upper[place] = lower[place] = np.nan
                continue
            x, y = (z[who, k] - z[who, k].mean() for z in (block.values, score))
            length = float(np.sqrt((x @ x) * (y @ y)))
            r[place] = (x @ y) / length if length > 1e-12 else np.nan
            if len(values) > ENUMERATED:
                continue
            if len(who) not in orders:
                start = np.tile(np.arange(len(who)), (PERMUTATIONS, 1))
                orders[len(who)] = rng.permuted(start, axis=1)
            drawn, covariance, near = (
                x[orders[len(who)]] @ y,
                float(x @ y),
                1e-9 * length,
            )
            lower[place], upper[place] = (
                (np.count_nonzero(side) + 1) / (PERMUTATIONS + 1)
                for side in (drawn <= covariance + near, drawn >= covariance - near)
            )
    return upper, lower, r
