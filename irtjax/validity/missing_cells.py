"""`missing_matrix` by observed cell: sums over subjects without a response as well.

A subject's ability without item j differs from that of all its responses only if it
answered j. So sums over all subjects are sums of one number for each subject, corrected
in the observed cells. Only items of the same mask are linked, as in every table of so
many cells, and no blocks are distinguished.
"""

from __future__ import annotations

import numpy as np

from irtjax.data.sparse_table import SparseCells
from irtjax.numerics.tails import CONSTANT, ENUMERATED, Sums, tails_of_sums
from irtjax.validity.missing_draws import FEW, LOOK, Draws
from irtjax.validity.missing_matrix import (
    CHANGE,
    FEWEST,
    ROUNDS,
    Additive,
    MissingByAbility,
    missing_by_ability,
    variances,
)


def missing_in_cells(cells: SparseCells, value: np.ndarray) -> MissingByAbility:
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
        return missing_by_ability(values, cells.dense[1])
    count = cells.count(0)
    missing = subjects - count
    difference, p_value = np.full(items, np.nan), np.full(items, np.nan)
    weak, mask = np.zeros(items, bool), np.full(items, -1)
    result = MissingByAbility(missing, difference, p_value, weak, mask)
    chosen = np.flatnonzero((missing > 0) & (count > 0))
    if not chosen.size or subjects < FEWEST:
        return result
    first, places = cells.by_item
    mask[chosen], leader = _masks(cells.row[places], first, chosen)
    rest = _additive(cells, value)
    # The subjects of each mask, in the order of its first item.
    size, width = count[leader], np.bincount(mask[chosen])
    begin = np.concatenate([[0], np.cumsum(size)])
    of_cell = mask[cells.column[places]]
    inside = np.arange(len(places)) - first[cells.column[places]]
    known = of_cell >= 0
    pair = begin[of_cell[known]] + inside[known]
    left = (value - rest.item[cells.column])[places][known]
    own = np.bincount(pair, left, minlength=begin[-1])
    who = np.empty(begin[-1], np.int64)
    who[pair] = cells.row[places][known]
    group = np.repeat(np.arange(leader.size), size)
    found = _tested(who, group, own, width[group], rest, leader.size)
    of = mask[chosen]
    difference[chosen], p_value[chosen], weak[chosen] = (x[of] for x in found)
    mask[np.isnan(p_value)] = -1
    return result


def _masks(row, first, chosen) -> tuple[np.ndarray, np.ndarray]:
    """The number of each item's mask `[chosen]`, and an item of each `[masks]`."""
    number, leader = np.empty(chosen.size, np.int64), []
    known: dict[bytes, int] = {}
    for k, j in enumerate(chosen):
        key = row[first[j] : first[j + 1]].tobytes()
        number[k] = known.setdefault(key, len(known))
        if number[k] == len(leader):
            leader.append(j)
    return number, np.array(leader)


def _tested(who, group, own, answers, rest: Additive, size: int):
    """Differences, p-values and whether they are below 0, `[masks]`.

    `who`, `group`, `own` and `answers` `[pairs]` are the subject, the mask, the sum and
    the number of responses in the mask of each subject who has them.
    """
    some = rest.answers > 0.5
    before = _scores(rest.total, rest.answers, rest)
    left = rest.answers[who] - answers
    known = left > 0.5
    after = _scores(rest.total[who] - own, left, rest)
    centre = before.standard[some].mean()
    of_mask = lambda numbers: np.bincount(group, numbers, minlength=size)
    # Of the subjects without a response: all of them, less those with one.
    lacking = lambda numbers: numbers[some].sum() - of_mask(numbers[who])
    ones, answered = lacking(np.ones(some.size)), of_mask(known * 1.0)
    count = ones + answered
    z, z_after = before.standard - centre, after.standard - centre
    powers = [lacking(z**k) + of_mask(known * z_after**k) for k in (1, 2, 3)]
    mean = powers[0] / np.maximum(count, 1)
    second = powers[1] - count * mean**2
    third = powers[2] - 3 * mean * powers[1] + 2 * count * mean**3
    square = lacking(before.standard**2) + of_mask(known * after.standard**2)
    sums = Sums(second, third, CONSTANT * (count + square))
    tails = tails_of_sums(count, ones, lacking(z) - ones * mean, sums)
    values = z, z_after
    _draw(tails, values, some, known, who, group, ones, answered, lacking(z))
    varied = (ones > 0.5) & (answered > 0.5)
    means = [
        lacking(before.weighted) / np.maximum(lacking(before.weight), 1e-300),
        of_mask(known * after.weighted)
        / np.maximum(of_mask(known * after.weight), 1e-300),
    ]
    apart = means[0] - means[1]
    sd = np.sqrt(rest.between) if rest.between > 0 else np.nan
    both = np.minimum(1, 2 * np.minimum(*tails))
    return (
        np.where(varied, apart / sd, np.nan),
        np.where(varied, both, np.nan),
        apart < 0,
    )


def _draw(tails, values, some, known, who, group, ones, answered, total) -> None:
    """`missing_draws.draw_few` by the subjects of each mask, in place."""
    (before, after), (upper, lower) = values, tails
    least = np.minimum(ones, answered)
    small = (np.minimum(upper, lower) < LOOK) & (least > 0.5) & (least <= FEW)
    draws, begin = Draws(), np.searchsorted(group, np.arange(ones.size + 1))
    for k in np.flatnonzero(small):
        pairs = slice(begin[k], begin[k + 1])
        lacking = some.copy()
        lacking[who[pairs]] = False
        own = after[pairs][known[pairs]]
        turned = ones[k] > least[k]
        both = np.concatenate([before[lacking], own])
        group_total = own.sum() if turned else total[k]
        draws.put(upper, lower, k, both, group_total, least[k], turned)


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
