"""Which items discriminate negatively: a permutation test with error control.

An item is compared with the rest of its test. The rest score of a subject is the mean,
over the other items observed, of response less item mean. If the item is unrelated to
the rest, every permutation of its responses over its subjects is equally likely.
The test needs no model, so it serves every model of one ability per item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from irtjax.data.sparse_table import SparseCells
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
#: Cells of a block that is multiplied, in the cache: ten times faster than beyond it.
BLOCK_OF_PRODUCT = 100_000


class ResponseBlock(NamedTuple):
    """Responses and mask of some items, `[rows, items]`.

    Rows of a matrix are its subjects. Of observed cells each column has those of its
    item, and `subject` `[rows, items]` has the subject of each.
    """

    part: Any  # places of the items
    values: np.ndarray
    seen: np.ndarray
    subject: np.ndarray | None = None

    def of_subjects(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers `[subjects]` at the cells, or so that they broadcast to them."""
        return numbers[:, None] if self.subject is None else numbers[self.subject]


class Rest(NamedTuple):
    """Sum of response less item mean and number of responses by subject; item means."""

    total: np.ndarray
    answers: np.ndarray
    means: np.ndarray

    def scores(self, own: np.ndarray, block: ResponseBlock) -> np.ndarray:
        """Rest scores of the cells of a block; `own` is response less item mean."""
        others = block.of_subjects(np.maximum(self.answers - 1, 1))
        return (block.of_subjects(self.total) - own) / others


def rest_of(values: np.ndarray | SparseCells, observed: np.ndarray | None) -> Rest:
    """Sums of response less item mean, so that hard items do not lower a subject."""
    if isinstance(values, SparseCells):
        means = values.sum(0) / np.maximum(values.count(0), 1)
        total = values.sum(1) - values.sum(1, means[values.column])
        return Rest(total, values.count(1).astype(np.float64), means)
    if observed is None:
        answers = np.full(values.shape[0], float(values.shape[1]))
        means = values.mean(0, dtype=np.float64)
        return Rest(values.sum(1, dtype=np.float64) - means.sum(), answers, means)
    count = observed.sum(0)
    means = values.sum(0, dtype=np.float64) / np.maximum(count, 1)
    answers = observed.sum(1).astype(np.float64)
    expected = np.empty(values.shape[0])
    height = max(1, 4_000_000 // max(values.shape[1], 1))
    for start in range(0, values.shape[0], height):
        expected[start : start + height] = observed[start : start + height] @ means
    return Rest(values.sum(1, dtype=np.float64) - expected, answers, means)


def negative_discrimination(
    values: np.ndarray,
    observed: np.ndarray | None,
    trials: np.ndarray | None = None,
    group: np.ndarray | None = None,
) -> np.ndarray:
    """Whether stronger subjects do worse on each item, `[items]`.

    Benjamini and Hochberg's procedure over all tested items of `values`
    `[subjects, items]`, 0 where missing. For right and wrong responses of one group the
    decisions are those of `irtjax.audit`. The rest of an item is the rest of its group
    (`group`, `[items]`).

    Not tested, and never flagged: items without variation; items of a group of fewer
    than three items; items whose numbers of trials differ between subjects; items that
    are not binary and have at most `ENUMERATED` subjects, where the approximation of
    the permutation distribution has not been checked.

    >>> ability = np.linspace(-1, 1, 40)[:, None]
    >>> right = (ability > np.linspace(-0.5, 0.5, 9)).astype(np.int8)
    >>> right[:, 0] = 1 - right[:, 0]
    >>> negative_discrimination(right, None).nonzero()[0].tolist()
    [0]
    """
    num_items = values.shape[1]
    p_value = np.full(num_items, np.nan)
    if trials is not None:
        observed = trials > 0
        values = np.where(observed, values / np.maximum(trials, 1), 0)
    groups = np.zeros(num_items, int) if group is None else np.asarray(group)
    for name in np.unique(groups):
        mine = np.flatnonzero(groups == name)
        # A slice copies nothing.
        mine = slice(None) if mine.size == num_items else mine
        part = values[:, mine]
        seen = None if observed is None else observed[:, mine]
        if min(part.shape) >= FEWEST:
            p_value[mine] = p_negative(part, seen)
    if trials is not None:
        p_value[((trials > 0) & (trials != trials.max(0))).any(0)] = np.nan
    return np.nan_to_num(benjamini_hochberg(p_value), nan=1.0) <= FALSE_DISCOVERY_RATE


def negative_in_cells(cells: SparseCells) -> np.ndarray:
    """`negative_discrimination` of right and wrong responses, few of them observed.

    The permutations of an item's responses are over the subjects who answered it: a
    block has these alone.
    """
    subjects, items = cells.shape
    p_value = np.full(items, np.nan)
    if min(subjects, items) < FEWEST:
        return np.zeros(items, bool)
    rest = rest_of(cells, None)
    tails = tails_for(subjects)
    for block in item_blocks(cells, None, BLOCK):
        right, seen = block.values > 0, block.seen
        own = np.where(seen, right - rest.means[block.part], 0)
        found = tails(right, seen, np.where(seen, rest.scores(own, block), 0))[1]
        varied = right.any(0) & (seen & ~right).any(0)
        p_value[block.part] = np.where(varied, found, np.nan)
    return np.nan_to_num(benjamini_hochberg(p_value), nan=1.0) <= FALSE_DISCOVERY_RATE


def tails_for(subjects: int) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """The permutation test for so many subjects, however many answered an item."""
    return permutation_tails if subjects <= ENUMERATED else permutation_tails_of_scores


def item_blocks(
    values: np.ndarray | SparseCells, observed: np.ndarray | None, cells: int
) -> Iterator[ResponseBlock]:
    """Blocks of items with so many cells, of a matrix or of observed cells."""
    if isinstance(values, SparseCells):
        for items, subject, value, seen in values.item_blocks(cells):
            yield ResponseBlock(items, value, seen, subject)
        return
    width = max(1, cells // max(values.shape[0], 1))
    for start in range(0, values.shape[1], width):
        part = slice(start, start + width)
        block = values[:, part]
        seen = np.ones(block.shape, bool) if observed is None else observed[:, part]
        yield ResponseBlock(part, block, seen)


def p_negative(values: np.ndarray, observed: np.ndarray | None) -> np.ndarray:
    """Chance of so low a covariance with the rest; NaN where an item is not tested."""
    rest = rest_of(values, observed)
    binary = values.dtype == np.int8 and values.max(initial=0) <= 1
    if binary and observed is None and len(values) > ENUMERATED:
        return _p_of_complete(values, rest)
    p_value = np.full(values.shape[1], np.nan)
    # Blocks of few subjects are wide: enumeration forms its sets once a block.
    for some in item_blocks(values, observed, BLOCK):
        part, block, seen, _ = some
        score = rest.scores(np.where(seen, block - rest.means[part], 0), some)
        if binary or (block[seen] == np.rint(block[seen])).all() and block.max() <= 1:
            found = permutation_tails(block > 0, seen, score)[1]
            tested = np.full(found.size, True)
        else:
            found = permutation_tails_of_scores(block, seen, score)[1]
            tested = seen.sum(0) > ENUMERATED
        lowest = np.where(seen, block, np.inf).min(0)
        highest = np.where(seen, block, -np.inf).max(0)
        p_value[part] = np.where(tested & (highest > lowest), found, np.nan)
    return p_value


def _p_of_complete(values: np.ndarray, rest: Rest) -> np.ndarray:
    """`p_negative` of complete responses 0 and 1, by products with the matrix.

    The centred rest score is u_i - c (y_ij - p_j), u_i the centred total over c =
    1 / (items - 1), so its sums over subjects are those of y, y u and y u^2.
    """
    subjects, items = values.shape
    c, share = 1 / (items - 1), rest.means
    u = (rest.total - rest.total.mean()) * c
    powers = np.stack([u, u**2], axis=1)
    height = max(1, BLOCK_OF_PRODUCT // items)
    sums = np.zeros((items, 2))
    for start in range(0, subjects, height):
        part = slice(start, start + height)
        sums += values[part].astype(np.float64).T @ powers[part]
    first, square = sums.T
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
    found = tails_of_sums(count, ones, total, sums)[1]
    return np.where((ones > 0) & (zeros > 0), found, np.nan)
