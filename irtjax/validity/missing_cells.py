"""`missing_matrix` by observed cell: sums over subjects without a response as well.

A subject's ability without item j differs from that of all its responses only if it
answered j. So sums over all subjects, or over those who ran a benchmark, are sums of
one number for each subject, corrected in the observed cells. Only items of the same
mask are linked, and blocks are benchmarks alone, as in every table of so many masks.
"""

from __future__ import annotations

import numpy as np

from irtjax.data.sparse_table import SparseCells
from irtjax.numerics.tails import CONSTANT, ENUMERATED, ScoreSums, tails_of_sums
from irtjax.validity.missing_draws import FEW, LOOK, TailDraws
from irtjax.validity.missing_matrix import (
    BLOCK,
    CHANGE,
    FEWEST,
    ROUNDS,
    Additive,
    MissingByAbility,
    add_blocks,
    join_absent,
    links_of,
    masks_of,
    missing_by_ability,
    of_several,
    product,
    variances,
    without_linked,
)

#: Subjects by benchmarks up to which blocks are distinguished, a byte each.
MOST_RAN = 500_000_000


def missing_in_cells(
    cells: SparseCells, value: np.ndarray, benchmarks: np.ndarray | None = None
) -> MissingByAbility:
    """`missing_matrix.missing_by_ability` of observed cells, `value` `[cells]`.

    >>> cells = SparseCells.of([0, 1, 2], [0, 1, 0], [1, 0, 1], (3, 2))
    >>> missing_in_cells(cells, cells.value).missing.tolist()
    [1, 2]
    """
    subjects, items = cells.shape
    if subjects <= ENUMERATED:
        # All permutations, of a matrix with few rows.
        values = np.zeros(cells.shape)
        values[cells.row, cells.column] = value
        return missing_by_ability(values, cells.dense[1], benchmarks)
    count = cells.count(0)
    missing = subjects - count
    difference, p_value = np.full(items, np.nan), np.full(items, np.nan)
    weak, mask = np.zeros(items, bool), np.full(items, -1)
    result = MissingByAbility(missing, difference, p_value, weak, mask)
    chosen = np.flatnonzero((missing > 0) & (count > 0))
    if not chosen.size or subjects < FEWEST:
        return result
    first, places = cells.by_item
    row = cells.row[places]
    rows = (row[first[j] : first[j + 1]].tobytes() for j in chosen)
    mask[chosen], leader = masks_of(rows, chosen)
    rest = _additive(cells, value)
    # The subjects of each mask, in the order of its first item.
    size, width = count[leader], np.bincount(mask[chosen])
    begin = np.concatenate([[0], np.cumsum(size)])
    of_cell = mask[cells.column[places]]
    inside = np.arange(len(places)) - first[cells.column[places]]
    tested = of_cell >= 0
    pair = begin[of_cell[tested]] + inside[tested]
    left = (value - rest.item[cells.column])[places][tested]
    own = np.bincount(pair, left, minlength=begin[-1])
    who = np.empty(begin[-1], np.int64)
    who[pair] = cells.row[places][tested]
    group = np.repeat(np.arange(leader.size), size)
    block, ran = _blocks(cells, benchmarks)
    among = block[leader]
    masks = _tested(who, group, own, width[group], rest, among, ran)
    by_item = [x[mask[chosen]] for x in masks]
    whole = np.flatnonzero(~ran.all(0))
    if whole.size:
        tests = _of_blocks(cells, value, rest, block, whole, ran)
        mask[chosen] = add_blocks(by_item, tests, block[chosen], whole, mask[chosen])
    difference[chosen], p_value[chosen], weak[chosen] = by_item
    mask[np.isnan(p_value)] = -1
    return result


def _blocks(
    cells: SparseCells, benchmarks: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of items and who ran them, as by `missing_matrix`, of benchmarks alone."""
    subjects, items = cells.shape
    block, ran = np.full(items, -1), np.ones((subjects, 1), bool)
    if benchmarks is None:
        return block, ran
    names, code = np.unique(benchmarks, return_inverse=True)
    code = of_several(code.reshape(-1))
    several = np.unique(code[code >= 0])
    if len(names) < 2 or subjects * several.size > MOST_RAN:
        return block, ran
    code = np.where(code >= 0, np.searchsorted(several, code), -1)
    ran = np.zeros((subjects, several.size + 1), bool)
    ran[cells.row, code[cells.column]] = True
    ran[:, ~ran.any(0)] = True
    ran[:, -1] = True
    by_all = np.logical_and.reduce(ran)
    block = np.where(by_all[code], -1, code)

    def met(alone: np.ndarray, absent: np.ndarray) -> np.ndarray:
        return cells.sum(0, absent[cells.row])[alone] > 0

    return join_absent(block, ~ran, met), ran


def _of_blocks(cells, value, rest: Additive, block, whole, ran):
    """The tests of the blocks `whole`, from their sums by subject."""
    number = np.full(ran.shape[1], -1)
    number[whole] = np.arange(whole.size)
    of_cell = np.where(block >= 0, number[block], -1)[cells.column]
    links = links_of(ran[:, whole])
    # Blocks at once; all of them if they are linked to each other.
    width = whole.size if links else max(1, BLOCK // len(ran))
    parts = []
    for start in range(0, whole.size, width):
        here = ran[:, whole[start : start + width]]
        inside = (of_cell >= start) & (of_cell < start + width)
        row, column = cells.row[inside], of_cell[inside] - start
        place = row.astype(np.int64) * here.shape[1] + column
        left = (value - rest.item[cells.column])[inside]
        own, answers = (
            np.bincount(place, x, here.size).reshape(here.shape)
            for x in (left, np.ones(left.size))
        )
        everybody = np.ones_like(here)
        parts.append(without_linked(here, everybody, own, answers, rest, links))
    return [np.concatenate(x) for x in zip(*parts, strict=True)]


def _tested(who, group, own, answers, rest: Additive, among, ran):
    """Differences, p-values and whether they are below 0, `[masks]`.

    `who`, `group`, `own` and `answers` `[pairs]` are the subject, the mask, the sum and
    the number of responses in the mask of each subject who has them. Subjects are
    compared who ran the block `among` `[masks]`, by `ran` `[subjects, blocks]`.
    """
    some, size = rest.answers > 0.5, among.size
    before = _scores(rest.total, rest.answers, rest)
    left = rest.answers[who] - answers
    comparable = left > 0.5
    after = _scores(rest.total[who] - own, left, rest)
    centre = before.standard[some].mean()
    of_mask = lambda numbers: np.bincount(group, numbers, minlength=size)
    # Of the subjects without a response: all who ran the block, less those with one.
    of_block = lambda numbers: product(ran.T, np.where(some, numbers, 0))
    lacking = lambda numbers: of_block(numbers)[among] - of_mask(numbers[who])
    ones, answered = lacking(np.ones(some.size)), of_mask(comparable * 1.0)
    count = ones + answered
    z, z_after = before.standard - centre, after.standard - centre
    powers = [lacking(z**k) + of_mask(comparable * z_after**k) for k in (1, 2, 3)]
    mean = powers[0] / np.maximum(count, 1)
    second = powers[1] - count * mean**2
    third = powers[2] - 3 * mean * powers[1] + 2 * count * mean**3
    square = lacking(before.standard**2) + of_mask(comparable * after.standard**2)
    sums = ScoreSums(second, third, CONSTANT * (count + square))
    tails = tails_of_sums(count, ones, lacking(z) - ones * mean, sums)
    values = z, z_after
    compared = lambda mask: some & ran[:, among[mask]]
    _draw(tails, values, compared, comparable, who, group, ones, answered, lacking(z))
    varied = (ones > 0.5) & (answered > 0.5)
    means = [
        lacking(before.weighted) / np.maximum(lacking(before.weight), 1e-300),
        of_mask(comparable * after.weighted)
        / np.maximum(of_mask(comparable * after.weight), 1e-300),
    ]
    apart = means[0] - means[1]
    sd = np.sqrt(rest.between) if rest.between > 0 else np.nan
    p_value = np.minimum(1, 2 * np.minimum(*tails))
    return (
        np.where(varied, apart / sd, np.nan),
        np.where(varied, p_value, np.nan),
        apart < 0,
    )


def _draw(
    tails, values, compared, comparable, who, group, ones, answered, total
) -> None:
    """`missing_draws.draw_few` by the subjects of each mask, in place."""
    (before, after), (upper, lower) = values, tails
    least = np.minimum(ones, answered)
    small = (np.minimum(upper, lower) < LOOK) & (least > 0.5) & (least <= FEW)
    draws, begin = TailDraws(), np.searchsorted(group, np.arange(ones.size + 1))
    for k in np.flatnonzero(small):
        pairs = slice(begin[k], begin[k + 1])
        lacking = compared(k)
        lacking[who[pairs]] = False
        own = after[pairs][comparable[pairs]]
        turned = ones[k] > least[k]
        scores = np.concatenate([before[lacking], own])
        group_total = own.sum() if turned else total[k]
        draws.put(upper, lower, k, scores, group_total, least[k], turned)


class _Scores:
    """Abilities over their standard deviations, weights, and weighted abilities."""

    def __init__(self, score: np.ndarray, variance: np.ndarray) -> None:
        self.standard, self.weight = score / np.sqrt(variance), 1 / variance
        self.weighted = self.weight * score


def _scores(total, answers, rest: Additive) -> _Scores:
    """Abilities from sums and numbers of responses; 0 without one."""
    count = np.maximum(answers, 1)
    score = np.where(answers > 0.5, total, 0) / count
    return _Scores(score, rest.between + rest.within / count)


def _additive(cells: SparseCells, value: np.ndarray) -> Additive:
    """Effects of subjects and items by least squares, and variances of abilities."""
    row, column = cells.row, cells.column
    answers, count = cells.count(1).astype(float), cells.count(0)
    by_row, by_item = cells.sum(1, value), cells.sum(0, value)
    subject = np.zeros(answers.size)
    item, total = by_item, by_row
    for _ in range(ROUNDS):
        item = (by_item - cells.sum(0, subject[row])) / np.maximum(count, 1)
        total = by_row - cells.sum(1, item[column])
        old, subject = subject, total / np.maximum(answers, 1)
        if np.abs(subject - old).max() < CHANGE:
            break
    square = float(np.sum((value - item[column]) ** 2))
    return variances(item, total, answers, square)
