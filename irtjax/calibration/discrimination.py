"""Which items discriminate negatively: a permutation test with error control.

An item is compared with the rest of its test. The rest score of a subject is the mean,
over the other items observed, of response less item mean. If the item is unrelated to
the rest, every permutation of its responses over its subjects is equally likely.
The test needs no model, so it serves every model of one ability per item.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from irtjax.data.stored_cells import AbstractStoredCells, ItemBlock
from irtjax.numerics.tails import (
    CONSTANT,
    ENUMERATED,
    ScoreSums,
    permutation_tails,
    permutation_tails_of_scores,
    tails_of_sums,
)
from irtjax.ranking.discoveries import benjamini_hochberg

#: Share of flagged items that may be flagged wrongly, in expectation.
FALSE_DISCOVERY_RATE = 0.05
#: Subjects, and items in a group, below which no item is tested (as in an audit).
FEWEST = 3
#: Cells of a block of subjects by items; its arrays stay in the processor's cache.
BLOCK = 200_000


class Rest(NamedTuple):
    """Sum of response less item mean and number of responses by subject; item means."""

    total: np.ndarray
    answers: np.ndarray
    means: np.ndarray

    def scores(self, own: np.ndarray, block: ItemBlock) -> np.ndarray:
        """Rest scores of the cells of a block; `own` is response less item mean."""
        others = block.of_subjects(np.maximum(self.answers - 1, 1))
        return (block.of_subjects(self.total) - own) / others


def rest_of(cells: AbstractStoredCells) -> Rest:
    """Sums of response less item mean, so that hard items do not lower a subject."""
    means = cells.sum(0) / np.maximum(cells.count(0), 1)
    total = cells.sum(1) - cells.over_items(means)
    return Rest(total, cells.count(1).astype(np.float64), means)


def negative_discrimination(
    cells: AbstractStoredCells, group: np.ndarray | None = None
) -> np.ndarray:
    """Whether stronger subjects do worse on each item, `[items]`.

    Benjamini and Hochberg's procedure over all tested items. For right and wrong
    responses of one group the decisions are those of `irtjax.audit`. The rest of an
    item is the rest of its group (`group`, `[items]`).

    Not tested, and never flagged: items without variation; items of a group of fewer
    than three items; items whose numbers of trials differ between subjects; items that
    are not binary and have at most `ENUMERATED` subjects, where the approximation of
    the permutation distribution has not been checked.

    >>> from irtjax.data.stored_cells import DenseCells
    >>> ability = np.linspace(-1, 1, 40)[:, None]
    >>> right = (ability > np.linspace(-0.5, 0.5, 9)).astype(np.int8)
    >>> right[:, 0] = 1 - right[:, 0]
    >>> negative_discrimination(DenseCells(right)).nonzero()[0].tolist()
    [0]
    """
    num_items = cells.shape[1]
    p_value, shares = np.full(num_items, np.nan), cells.per_trial()
    groups = np.zeros(num_items, int) if group is None else np.asarray(group)
    for name in np.unique(groups):
        mine = np.flatnonzero(groups == name)
        part = shares if mine.size == num_items else shares.select(None, mine)
        if min(part.shape) >= FEWEST:
            p_value[mine] = p_negative(part)
    p_value[cells.unequal_trials()] = np.nan
    return np.nan_to_num(benjamini_hochberg(p_value), nan=1.0) <= FALSE_DISCOVERY_RATE


def tails_for(subjects: int) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """The permutation test for so many subjects, however many answered an item."""
    return permutation_tails if subjects <= ENUMERATED else permutation_tails_of_scores


def p_negative(cells: AbstractStoredCells) -> np.ndarray:
    """Chance of so low a covariance with the rest; NaN where an item is not tested.

    The permutations of an item's responses are over the subjects who answered it.
    """
    rest, subjects, binary = rest_of(cells), cells.shape[0], cells.is_binary
    if binary and cells.is_complete and subjects > ENUMERATED:
        return _p_of_complete(cells, rest)
    p_value, tails = np.full(cells.shape[1], np.nan), tails_for(subjects)
    # Blocks of few subjects are wide: enumeration forms its sets once a block.
    for block in cells.item_blocks(BLOCK):
        values, seen = block.values, block.seen
        own = np.where(seen, values - rest.means[block.items], 0)
        score = rest.scores(own, block)
        lowest = np.where(seen, values, np.inf).min(0, initial=np.inf)
        highest = np.where(seen, values, -np.inf).max(0, initial=-np.inf)
        if binary or np.isin(values, (0, 1)).all():
            chance = tails(values > 0, seen, score)[1]
            tested = highest > lowest
        else:
            chance = permutation_tails_of_scores(values, seen, score)[1]
            tested = (highest > lowest) & (seen.sum(0) > ENUMERATED)
        p_value[block.items] = np.where(tested, chance, np.nan)
    return p_value


def _p_of_complete(cells: AbstractStoredCells, rest: Rest) -> np.ndarray:
    """`p_negative` of complete responses 0 and 1, by products with the matrix.

    The centred rest score is u_i - c (y_ij - p_j), u_i the centred total over c =
    1 / (items - 1), so its sums over subjects are those of y, y u and y u^2.
    """
    subjects, items = cells.shape
    c, share = 1 / (items - 1), rest.means
    u = (rest.total - rest.total.mean()) * c
    first, square = cells.item_products(np.stack([u, u**2], axis=1)).T
    ones = np.rint(share * subjects)
    right, wrong = -c * (1 - share), c * share
    zeros, whole = subjects - ones, np.sum(u**2)
    total = first + right * ones
    second = whole + 2 * (right - wrong) * first + right**2 * ones + wrong**2 * zeros
    third = np.sum(u**3) + 3 * (right * square + wrong * (whole - square))
    third += 3 * (right**2 - wrong**2) * first + right**3 * ones + wrong**3 * zeros
    count = np.full(items, float(subjects))
    # Rounding is in proportion to what cancels in `second`.
    size = whole + c**2 * ones * zeros / subjects
    sums = ScoreSums(second, third, CONSTANT * count + 1e-12 * size)
    lower_tail = tails_of_sums(count, ones, total, sums)[1]
    return np.where((ones > 0) & (zeros > 0), lower_tail, np.nan)
