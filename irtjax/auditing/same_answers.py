r"""How surprising it is that models give the same wrong answer to an item.

Two readings of an item are compared: its key k is right, or another answer a is. Under
either, models err independently given their abilities, and wrong answers have a
popularity of their own in each item. With R the models that gave the right answer of a
reading and n_b the numbers of those that gave each wrong one,

    L = mean_l prod_{i in R} P_il prod_{i not in R} (1 - P_il)  x  E(n_1, ...)     (1)

over the curves P of the items of the fit, except the item's own: a key that is wrong
makes its own curve fit it. E is the probability of a partition by a symmetric
Dirichlet-multinomial distribution over K wrong options,

    E = K! / (K - c)!  prod_b G(s + n_b) / G(s)  x  G(K s) / G(K s + n)            (2)

with G the gamma function, c the number of blocks and n their sum. Items differ in K s:
where it is small one distractor is popular, on which models agree although the key is
right. The distribution of K s over items, on a grid, is estimated from all of them
(`popularity_of`). Free answers have K = 1000, nearly the Chinese restaurant process.
Under the other reading the key is one more wrong answer, that of the author. The sum
of the ratios L_a / L_k over answers a has mean 1 at most if k is right, so that its
inverse is a p-value; that by simulation of (1) and (2) is less conservative (`null`).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp

#: Wrong options of an item with free answers.
FREE = 1000.0
#: The grid of K s, and the items that each of its points is taken to have besides.
_GRID = np.array([0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0])
_BESIDES, _STEPS = 0.25, 200
#: Answers of an item that may be its key: its most common ones. Many subjects give
#: thousands of free answers, and rare ones have no evidence.
_MOST_ANSWERS = 8
#: Sums of shares that exceed 1 by no more are 1.
_ROUNDING = 1e-6
#: Numbers of a block of rows by curves.
_BLOCK = 8_000_000


class AnswerShares(NamedTuple):
    """Wrong answers: a row for each unit (model or family), item and answer.

    Rows are sorted by item, then by answer; shares are those of a unit's attempts.
    """

    item: np.ndarray  # [rows]
    answer: np.ndarray  # [rows] any numbers, distinct within an item
    unit: np.ndarray  # [rows]
    share: np.ndarray  # [rows]


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Answers of items, each the sum of its rows."""

    item: np.ndarray  # [blocks]
    start: np.ndarray  # [blocks] first row of each
    count: np.ndarray  # [blocks]


class AnswerEvidence(NamedTuple):
    """The evidence of items, and of each of their answers."""

    total: np.ndarray  # [items] log of the sum of ratios; -inf without an answer
    log_ratio: np.ndarray  # [blocks]; -inf of answers that one unit gave
    blocks: Blocks


class AnswerCurves(NamedTuple):
    """Logarithms of the chances of right and wrong responses, `[units, curves]`."""

    right: np.ndarray
    wrong: np.ndarray

    @staticmethod
    def of(chance: np.ndarray) -> AnswerCurves:
        """Those of chances, which stay off 0 and 1: nobody is certain to be right."""
        chance = np.clip(chance, 0.01, 0.99)
        return AnswerCurves(np.log(chance), np.log1p(-chance))


def blocks_of(shares: AnswerShares) -> Blocks:
    """The answers of items."""
    new = np.ones(len(shares.item), bool)
    new[1:] = np.diff(shares.item) != 0
    new[1:] |= np.diff(shares.answer) != 0
    start = np.flatnonzero(new)
    count = np.add.reduceat(shares.share, start) if len(start) else np.zeros(0)
    return Blocks(shares.item[start], start, count)


def _common(blocks: Blocks) -> np.ndarray:
    """The most common answers of each item that more than one unit gave, `[tried]`."""
    order = np.lexsort((-blocks.count, blocks.item))
    item = blocks.item[order]
    rank = np.arange(len(order)) - np.searchsorted(item, item)
    tried = order[(rank < _MOST_ANSWERS) & (blocks.count[order] > 1 + _ROUNDING)]
    return np.sort(tried)


class Popularity(NamedTuple):
    """The distribution of K s over items."""

    concentration: np.ndarray  # [points]
    weight: np.ndarray  # [points]


def log_partition(
    terms: np.ndarray, blocks: np.ndarray, total: np.ndarray, options, concentration
) -> np.ndarray:
    """The logarithm of (2), given the sums of log G(s + n_b) / G(s), and K s."""
    options = np.maximum(options, blocks)
    orders = gammaln(options + 1) - gammaln(options - blocks + 1)
    return terms + orders + gammaln(concentration) - gammaln(concentration + total)


def _log_partitions(blocks: Blocks, size: int, options: np.ndarray) -> np.ndarray:
    """The logarithm of (2) of each item, `[points, items]`."""
    number = np.bincount(blocks.item, minlength=size)
    total = np.bincount(blocks.item, blocks.count, size)
    out = np.empty((len(_GRID), size))
    for k, whole in enumerate(_GRID):
        s = (whole / options)[blocks.item]
        terms = gammaln(s + blocks.count) - gammaln(s)
        terms = np.bincount(blocks.item, terms, size)
        out[k] = log_partition(terms, number, total, options, whole)
    return out


def popularity_of(blocks: Blocks, size: int, options: np.ndarray) -> Popularity:
    """The distribution of K s at which (2) is most likely over all items.

    >>> same = Blocks(np.arange(9), np.arange(9), np.full(9, 5.0))
    >>> popularity = popularity_of(same, 9, np.full(9, 3.0))
    >>> bool(popularity.weight[0] > popularity.weight[-1])
    True
    """
    logs = _log_partitions(blocks, size, options)
    logs = logs[:, np.bincount(blocks.item, blocks.count, size) > 1]
    weight = np.full(len(_GRID), 1 / len(_GRID))
    likely = np.exp(logs - logs.max(axis=0, initial=-np.inf))
    for _ in range(_STEPS):
        each = weight[:, None] * likely
        each /= each.sum(axis=0)
        weight = each.sum(axis=1) + _BESIDES
        weight /= weight.sum()
    return Popularity(_GRID, weight)


def evidence(
    right: np.ndarray,
    seen: np.ndarray,
    shares: AnswerShares,
    curves: AnswerCurves,
    own: np.ndarray,
    options: np.ndarray,
    popularity: Popularity,
) -> AnswerEvidence:
    """The ratios of (1), by item and answer.

    Args:
        right: `[items, units]` shares of right attempts.
        seen: `[items, units]` 1 where a unit responded, else 0.
        shares: The wrong answers.
        curves: Those of the population of items.
        own: `[items]` the place of the item's own curve, or -1.
        options: `[items]` wrong options K.
        popularity: The distribution of K s.
    """
    size = len(right)
    blocks = blocks_of(shares)
    tried = _common(blocks)
    items = blocks.item[tried]
    as_right = np.zeros((len(tried), right.shape[1]))
    place = np.full(len(blocks.count), -1)
    place[tried] = np.arange(len(tried))
    row = np.repeat(place, np.diff(blocks.start, append=len(shares.item)))
    placed = row >= 0
    np.add.at(as_right, (row[placed], shares.unit[placed]), shares.share[placed])
    of_key = _log_mean(right, seen, curves, own)
    of_other = _log_mean(as_right, seen[items], curves, own[items])
    before = _log_partitions(blocks, size, options)
    # The author of the key gave its answer, as those did who count as right.
    with_key = (right * seen).sum(1)[items] + 1
    total = np.bincount(blocks.item, blocks.count, size)[items]
    after = np.empty((len(_GRID), len(tried)))
    for k, whole in enumerate(_GRID):
        s = whole / options[items]
        # One block leaves the partition, and another comes in: the number is the same.
        change = gammaln(s + with_key) - gammaln(s + blocks.count[tried])
        rest = total - blocks.count[tried] + with_key
        whole_before = gammaln(whole + total) - gammaln(whole + rest)
        after[k] = before[k, items] + change + whole_before
    weights = np.log(popularity.weight)[:, None]
    after, before = (logsumexp(x + weights, axis=0) for x in (after, before))
    log_ratio = np.full(len(blocks.count), -np.inf)
    log_ratio[tried] = of_other - of_key[items] + after - before[items]
    top = np.full(size, -np.inf)
    np.maximum.at(top, blocks.item, log_ratio)
    finite = np.where(np.isfinite(top), top, 0.0)
    sums = np.bincount(
        blocks.item, np.exp(log_ratio - finite[blocks.item]), minlength=size
    )
    with np.errstate(divide="ignore"):
        return AnswerEvidence(finite + np.log(sums), log_ratio, blocks)


def _log_mean(
    right: np.ndarray, seen: np.ndarray, curves: AnswerCurves, own: np.ndarray
) -> np.ndarray:
    """The logarithm of the first factor of (1), `[rows]`."""
    size = curves.right.shape[1]
    out = np.empty(len(right))
    step = max(_BLOCK // size, 1)
    for start in range(0, len(right), step):
        part = slice(start, start + step)
        logs = right[part] @ curves.right + (seen[part] - right[part]) @ curves.wrong
        mine = own[part]
        placed = np.flatnonzero(mine >= 0)
        if size > 1:
            logs[placed, mine[placed]] = -np.inf
        out[part] = logsumexp(logs, axis=1) - np.log(size)
    return out


def null(
    seen: np.ndarray,
    curves: AnswerCurves,
    options: np.ndarray,
    popularity: Popularity,
    unanswered: float,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Evidence of items with right keys, drawn from (1) and (2), in rising order.

    Args:
        seen: `[items, units]` who responded; each drawn item has the pattern and the
            options of an item of the data.
        curves: As for `evidence`.
        options: `[items]`.
        popularity: The distribution of K s.
        unanswered: Share of wrong responses without an answer.
        count: Items to draw.
        rng: Random numbers.
    """
    units, size = curves.right.shape
    like = rng.integers(len(seen), size=count)
    seen, options = seen[like], options[like]
    own = rng.integers(size, size=count)
    right = seen * (np.log(rng.random((count, units))) < curves.right[:, own].T)
    answered = (seen > right) & (rng.random((count, units)) >= unanswered)
    answer = np.full((count, units), -1)
    total = np.zeros(count)
    order = rng.permuted(np.tile(np.arange(units), (count, 1)), axis=1)
    rows = np.arange(count)
    weight = rng.choice(popularity.concentration, count, p=popularity.weight)
    # A wrong answer is that of another model at random, or one of all at random.
    earlier = np.full((count, units), -1)
    for k in range(units):
        unit = order[:, k]
        mine = answered[rows, unit]
        copies = rng.random(count) * (total + weight) < total
        pick = (rng.random(count) * np.maximum(total, 1)).astype(int)
        fresh = (rng.random(count) * options).astype(int)
        chosen = np.where(copies, earlier[rows, pick], fresh)
        answer[rows[mine], unit[mine]] = chosen[mine]
        earlier[rows[mine], total[mine].astype(int)] = chosen[mine]
        total += mine
    item, unit = np.nonzero(answer >= 0)
    codes = answer[item, unit]
    sort = np.lexsort((codes, item))
    shares = AnswerShares(item[sort], codes[sort], unit[sort], np.ones(len(item)))
    drawn = evidence(right, seen, shares, curves, own, options, popularity)
    return np.sort(drawn.total)


def p_values(total: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Chances of so much evidence, beyond the drawn items by the bound of its mean."""
    reached = len(drawn) - np.searchsorted(drawn, total, side="left")
    p = (reached + 1) / (len(drawn) + 1)
    bound = np.exp(-np.maximum(total, 0.0))
    p = np.where(reached == 0, np.minimum(p, bound), p)
    return np.where(np.isfinite(total), p, 1.0)
