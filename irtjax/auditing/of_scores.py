"""The statistics of items with scores: what needs no right and wrong responses.

Tested are negative discrimination, by permutations of the scores over subjects, and
duplicates. The other tests of an audit are of right and wrong responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from irtjax.auditing.copies import Duplicates
from irtjax.auditing.examine import TESTED, ItemStatistics, OrderedFit
from irtjax.auditing.low_scores import tails
from irtjax.auditing.properties import PROPERTIES
from irtjax.calibration.discrimination import rest_of
from irtjax.data import ResponseTable
from irtjax.data.stored_cells import DenseCells
from irtjax.data.wording import listing
from irtjax.validity.asymptotes import Asymptotes
from irtjax.validity.classical import Classical, alphas
from irtjax.validity.residuals import Partners, Residuals

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

#: Tests that are made of scores.
OF_SCORES = ("negative discrimination", "duplicate")
#: Distinct scores from which two items with the same ones are no accident.
FEWEST_DISTINCT = 3


def left_out() -> str:
    """The sentence on the tests that are not made.

    >>> left_out().startswith("of scores, negative discrimination and duplicates")
    True
    """
    others = listing([name for name in TESTED if name not in OF_SCORES], 9)
    return (
        f"of scores, negative discrimination and duplicates are tested; {others} are"
        " tests of right and wrong responses and are left out"
    )


def examine_scores(fit: Calibration, table: ResponseTable) -> ItemStatistics:
    """The statistics of items with scores; NaN for tests that are not made."""
    values = np.asarray(table.values, float)
    observed = table.observed
    size, blank = table.num_items, np.full(table.num_items, np.nan)
    zeros = np.zeros(size)
    ability, error = np.zeros((2, table.num_subjects))
    ordered = OrderedFit(fit, None, ability, error)
    partner = np.full(size, -1)
    return ItemStatistics(
        ordered,
        _classical(table, values, observed),
        {**dict.fromkeys(PROPERTIES, blank), "chance": blank},
        Residuals(blank, blank, zeros, zeros, zeros),
        Partners(blank, partner, blank),
        _duplicates(values, observed),
        None,
        Asymptotes(blank, blank),
        0,
    )


def _classical(
    table: ResponseTable, values: np.ndarray, observed: np.ndarray | None
) -> Classical:
    """Classical statistics of scores; each item is compared within its benchmark."""
    size, blank = values.shape[1], np.full(values.shape[1], np.nan)
    seen = np.ones(values.shape, bool) if observed is None else observed
    rest = rest_of(DenseCells(values, observed))
    own = np.where(seen, values - rest.means, 0.0)
    square, count = (own**2).sum(0), seen.sum(0).astype(float)
    with_rest = (own * (rest.total[:, None] - own)).sum(0)
    pairs = np.where(seen, rest.answers[:, None] - 1, 0.0).sum(0)
    alpha, without = alphas(square, with_rest, pairs, count)
    upper, lower, r = blank.copy(), blank.copy(), blank.copy()
    names, codes = np.unique(table.benchmarks, return_inverse=True)
    parts = [np.flatnonzero(codes.reshape(-1) == k) for k in range(len(names))]
    if min(map(len, parts)) < 3:
        parts = [np.arange(size)]
    for part in parts:
        mine = values[:, part], None if observed is None else observed[:, part]
        upper[part], lower[part], r[part] = tails(*mine)
    return Classical(
        observed=count,
        right=np.where(seen, values, 0.0).sum(0),
        item_rest=r,
        biserial=blank,
        alpha_without=without,
        rest_table=(blank, blank, blank, blank),
        p_positive=upper,
        p_negative=lower,
        p_weak=blank,
        p_wrong_key=blank,
        alpha=alpha,
    )


def _duplicates(values: np.ndarray, observed: np.ndarray | None) -> Duplicates:
    """Items with the same scores from everybody.

    The p-value is the share of the orders of an item's scores that are the same as
    those of the twin, times the number of other items. It takes subjects as alike, and
    items of few distinct scores are not compared.
    """
    size = values.shape[1]
    group, twin = np.full((2, size), -1)
    p = np.ones(size)
    cells = values if observed is None else np.where(observed, values, np.inf)
    same: dict[bytes, list[int]] = {}
    for k in range(size):
        same.setdefault(np.ascontiguousarray(cells[:, k]).tobytes(), []).append(k)
    for number, items in enumerate(x for x in same.values() if len(x) > 1):
        scores = cells[np.isfinite(cells[:, items[0]]), items[0]]
        ties = np.unique(scores, return_counts=True)[1]
        if len(ties) < FEWEST_DISTINCT:
            continue
        log_orders = gammaln(len(scores) + 1) - gammaln(ties + 1.0).sum()
        group[items], twin[items] = number, [items[1], *items[:1] * (len(items) - 1)]
        p[items] = min(np.exp(np.log(size) - log_orders), 1.0)
    return Duplicates(group, twin, p)
