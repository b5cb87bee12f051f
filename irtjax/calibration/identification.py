r"""What a fit does not identify: equal abilities, discriminations of 0.

Ranks of abilities and discriminations are identified if abilities differ and some
discrimination is not 0 (docs/evidence/joint-estimation.md). Three cases are stated by
name.

- **The same responses.** No item has different responses, so no two subjects differ on
  an item that both answered.
- **Equal abilities.** With t_i the sum over a subject's items of response less item
  mean, s_j^2 the variance of item j and n_j its responses,

      X = sum_i t_i^2 / sum_j m_ij s_j^2 (1 - 1 / n_j)

  is about chi^2 with (subjects - 1) degrees of freedom if responses do not depend on
  subjects. Where discriminations of both signs cancel in t_i, responses of pairs of
  items still correlate. With r_jk these correlations, of n_jk subjects each (Schott
  2005, Testing for complete independence in high dimensions),

      sum_{j<k} ((n_jk - 1) r_jk^2 - 1) / sqrt(sum_{j<k} 2 (n_jk - 2) / (n_jk + 1))

  is about N(0, 1). Abilities differ where one is significant (Bonferroni's
  correction). Two subjects have the first test alone, and so have large tables of
  which few responses are observed.
- **All discriminations are 0.**

**How well slopes are determined.** With r the mean correlation of two items, X is about
(subjects - 1) (1 + m r), of m responses of a subject. The n responses to an item
determine its slope the better, the larger

    strength = n r = subjects (X / (subjects - 1) - 1) / items,

of items that vary. Where slopes of both signs cancel, n |r| follows from the excess of
(n_jk - 1) r_jk^2 over 1, less 1.64 standard errors; the larger one counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc, ndtr

from irtjax.calibration.discrimination import rest_of
from irtjax.data.sparse_table import is_sparse
from irtjax.data.stored_cells import BLOCK_CELLS, AbstractStoredCells
from irtjax.data.table import ResponseTable
from irtjax.estimators.estimates import Estimates

#: Level at which abilities differ.
LEVEL = 0.05
#: Subjects and items, at most, whose correlations are taken.
MOST_SUBJECTS, MOST_ITEMS = 2000, 500
#: Standard errors that are taken off the strength of correlations: one-sided 5 %.
ONE_SIDED = 1.645


class Variation(NamedTuple):
    """How abilities vary, from responses alone.

    Attributes:
        varied: Whether some item has different responses.
        p_value: P-value of equal abilities; 1 where there is nothing to compare.
        strength: Responses to an item times the mean correlation of two items; 0 where
            that is negative.
    """

    varied: bool
    p_value: float
    strength: float


def warnings_of(
    table: ResponseTable, estimates: Estimates, differences: Variation | None = None
) -> list[str]:
    """`not_identified` of a fit."""
    family = estimates.problem.model.family
    return not_identified(
        table, estimates.parameters.items, family.has_slope, differences
    )


def not_identified(
    table: ResponseTable,
    items: Any,
    estimated_slopes: bool,
    differences: Variation | None = None,
) -> list[str]:
    """A sentence for each case of the module that holds for these data and estimates.

    `items` are estimated records; `estimated_slopes`, whether discriminations were
    estimated; `found`, the variation of the table if it is known.

    >>> from irtjax.models.families.logistic import LogisticItems
    >>> one, zero = np.ones(3), np.zeros(3)
    >>> same = ResponseTable.from_arrays([[1, 0, 1], [1, 0, 1]])
    >>> not_identified(same, LogisticItems(one, zero, zero, one), False)[0][:39]
    'all 2 subjects have the same responses:'
    """
    varied, p_value, _ = differences or variation(table)
    said = []
    slopes = "ranks and discriminations are" if estimated_slopes else "ranks are"
    count = table.num_subjects
    if count > 1 and not varied:
        complete = table.num_observed == table.size
        on = "" if complete else " to the items that they share"
        said.append(
            f"all {count:,} subjects have the same responses{on}: abilities are equal,"
            f" and {slopes} not identified; add subjects with other responses"
        )
    elif count > 1 and p_value > LEVEL:
        said.append(
            f"abilities of the {count:,} subjects are not significantly different as a"
            f" whole (p = {p_value:.2g}): {slopes} not identified if they are equal;"
            " add items, or subjects that differ more"
        )
    slope = np.asarray(getattr(items, "discrimination", np.ones(1)))
    if slope.size and not slope.any():
        said.append(
            "all discriminations are 0: responses do not depend on ability, and ranks"
            " are not identified; allow negative discriminations, use a smaller"
            " penalty, or add items"
        )
    return said


def variation(table: ResponseTable) -> Variation:
    """How abilities vary, from responses alone; see the module for the formulas.

    >>> rng = np.random.default_rng(0)
    >>> coin = rng.random((30, 20)) < 0.5
    >>> varied, p_value, strength = variation(ResponseTable.from_arrays(coin))
    >>> varied, p_value > 0.05, strength < 1
    (True, True, True)
    >>> ordered = ResponseTable.from_arrays(np.sort(coin, axis=0))
    >>> _, p_value, strength = variation(ordered)
    >>> p_value < 1e-6, strength > 5
    (True, True)
    """
    cells = table.stored.per_trial()
    rest = rest_of(cells)
    own = rest.means * (1 - rest.means)
    if not cells.is_binary:
        for block in cells.item_blocks(BLOCK_CELLS):
            square, count = _centred(block.values, block.seen)[1:]
            own[block.items] = square / np.maximum(count, 1)  # s^2 (1 - 1 / n).
    varied, variance = own > 0, cells.over_items(own)
    p_value, strength = _of_sums(rest.total, variance, int(varied.sum()))
    of_pairs, few = None, is_sparse(table.num_observed, *cells.shape)
    if varied.any() and not few and (2 * p_value > LEVEL or strength < 1):
        of_pairs = _of_pairs(cells, varied)
    if of_pairs is not None:
        if 2 * p_value > LEVEL:
            p_value = min(1.0, 2 * min(p_value, of_pairs[0]))
        strength = max(strength, of_pairs[1])
    return Variation(bool(varied.any()), p_value, strength)


def _centred(values: np.ndarray, seen: np.ndarray):
    """Responses less item mean, their sum of squares, and responses."""
    y, count = values.astype(np.float64), seen.sum(0)
    mean = np.where(seen, y, 0).sum(0) / np.maximum(count, 1)
    left = np.where(seen, y - mean, 0)
    square = np.sum(left**2, axis=0)
    # Equal responses, up to the rounding of their mean.
    return left, np.where(square > 1e-20 * count * mean**2, square, 0), count


def _of_sums(total, variance, items: int) -> tuple[float, float]:
    """P-value and strength of sums by subject; 1 if they vary as responses by chance.

    `total` and `variance` are `[subjects]`, `items` the number of items that vary.
    """
    varies = variance > 0
    count = int(varies.sum())
    if count < 2:
        return 1.0, 0.0
    ratio = float(np.mean(total[varies] ** 2 / variance[varies]))
    # One degree of freedom is lost to the item means.
    p_value = float(chdtrc(count - 1, ratio * (count - 1)))
    return p_value, count * max(ratio - 1, 0.0) / items


def _of_pairs(
    cells: AbstractStoredCells, varied: np.ndarray
) -> tuple[float, float] | None:
    """P-value and strength of correlations of items; None without any."""
    rng = np.random.default_rng(0)
    rows, columns = np.arange(cells.shape[0]), np.flatnonzero(varied)
    if len(rows) > MOST_SUBJECTS:
        rows = rng.choice(rows, MOST_SUBJECTS, replace=False)
    if len(columns) > MOST_ITEMS:
        columns = rng.choice(columns, MOST_ITEMS, replace=False)
    values, seen = cells.select(rows, columns).dense
    left, square, count = _centred(values, seen)
    z = left / np.sqrt(np.where(square > 0, square / np.maximum(count, 1), 1))
    together = seen.astype(np.float64).T @ seen
    upper = np.triu((together > 2) & np.outer(square > 0, square > 0), 1)
    n = together[upper]
    if not n.size:
        return None
    excess = (n - 1) * ((z.T @ z)[upper] / n) ** 2 - 1
    total, error = excess.sum(), np.sqrt(np.sum(2 * (n - 2) / (n + 1)))
    # The mean excess over n is about r^2.
    square = np.mean(count) ** 2 * (total - ONE_SIDED * error) / n.sum()
    return float(ndtr(-total / error)), float(np.sqrt(max(square, 0.0)))
