r"""Which items are missing more often for weak, or for strong, subjects.

Responses y are explained by a subject effect plus an item effect, by least squares over
the observed cells, so that subjects who met other items can be compared. With m_k the
item effects, the ability of subject i without item j is

    s_ij = mean over the observed k that are not linked to j of (y_ik - m_k),

of variance tau^2 + v / n_ij over subjects: tau^2 and v are those of a one-way analysis
of variance, n_ij the number of responses in the mean. Divided by its standard
deviation, s_ij has the same mean and variance for all subjects, however many responses
they have.

A block is a benchmark of three or more items of which some subjects have no response.
Without names of benchmarks it is a group of three or more items that nearly the same
subjects miss: the correlation of their masks, less each subject's mean if there are
five masks or more, is at least 1/2 along a chain of items. A subject ran a block if it
has a response to any of its items; items that all subjects miss who did not run it join
it. Whether a response is missing with its block is tested once for the block. Other
missing responses of its items are compared among the subjects who ran it. Where an item
has both tests, its p-value is twice the smaller.

A mask is linked to itself, and to masks that are nearly the same or nearly the reverse:
the squared correlation is at least 1/2. So where some subjects did not run a block,
they are compared with the others on items that both met. Responses to items that one
group alone met would depend on errors of the item effects, and on another scale:
responses to an easy item vary less. If that leaves nobody to compare, masks of the
others are not linked. In a table with very many masks, only items of the same mask are
linked, and blocks are benchmarks alone.

If whether j is missing does not depend on ability, every choice of the subjects whose
response is missing is equally likely: a permutation test of the sum of s_ij over them,
exact up to 14 subjects, and else with the exact mean, variance and skewness
(`irtjax.numerics.tails`). Small p-values of few missing responses, or of few others,
are drawn (`missing_draws`). Where a subject's rate of missing responses has nothing to
do with its ability, this holds too, as abilities are then exchangeable. Items that the
same subjects miss have one p-value, and count as one test.

The test is of the association alone. It cannot find responses that are missing because
of what they would have been: given ability, no data are about them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from irtjax.numerics.tails import ENUMERATED, permutation_tails
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.validity.missing_draws import draw_few

#: Subjects below which nothing is tested.
FEWEST = 3
#: Subjects by masks, and masks, up to which masks are correlated.
MOST_CELLS, MOST_MASKS = 10_000_000, 1500
#: Squared correlation of masks from which items are linked.
LINKED = 0.5
#: Masks from which they are correlated less each subject's mean: of fewer, the mean
#: is mostly the masks themselves. Two masks less their mean are each other's reverse.
CENTRED = 5
#: The same from which items are of one block, and items of a block at least.
ALIKE, FEWEST_ITEMS = 0.25, 3
#: Cells of a block of subjects by masks; its arrays stay in the processor's cache.
BLOCK = 200_000
#: Rounds of the least squares, and the change of a subject effect that ends them.
ROUNDS, CHANGE = 100, 1e-6


class MissingByAbility(NamedTuple):
    """Missing responses of each item and ability, each `[items]`.

    `difference` and `p_value` are NaN for items that nobody or everybody misses, or
    where no subjects can be compared, and `difference` where abilities have no variance
    beyond that of their errors.
    """

    missing: np.ndarray  # Subjects without a response.
    difference: np.ndarray  # Their mean ability less that of the others, in sds.
    p_value: np.ndarray  # Two-sided.
    weak: np.ndarray  # Whether their mean ability is the lower one.
    mask: np.ndarray  # A number for each mask of missing responses; -1 if not tested.

    @property
    def q_value(self) -> np.ndarray:
        """P-values adjusted by Benjamini and Hochberg; items of one mask count once."""
        adjusted = np.full(self.p_value.shape, np.nan)
        tested = self.mask >= 0
        _, first, place = np.unique(
            self.mask[tested], return_index=True, return_inverse=True
        )
        adjusted[tested] = benjamini_hochberg(self.p_value[tested][first])[place]
        return adjusted

    def more_for(self, level: float) -> np.ndarray:
        """For each item "weak", "strong" or None, at this false discovery rate."""
        adjusted = np.nan_to_num(self.q_value, nan=1.0)
        side = np.where(self.weak, "weak", "strong").astype(object)
        side[adjusted > level] = None
        return side


class Additive(NamedTuple):
    """Item effects, sums of response less item effect, responses, and variances."""

    item: np.ndarray  # [items]
    total: np.ndarray  # [subjects]
    answers: np.ndarray  # [subjects]
    between: float  # tau^2
    within: float  # v


def missing_by_ability(
    values: np.ndarray,
    observed: np.ndarray | None,
    benchmarks: np.ndarray | None = None,
) -> MissingByAbility:
    """The test of each item; see the module.

    `values` and `observed` are `[subjects, items]`, values of about 0 to 1 and 0 where
    missing. `benchmarks` are names `[items]`; without two of them blocks are found by
    the masks.

    >>> complete = missing_by_ability(np.eye(3), None)
    >>> complete.missing.tolist(), complete.p_value.tolist()
    ([0, 0, 0], [nan, nan, nan])
    """
    size = values.shape[1]
    missing = np.zeros(size, np.int64)
    difference, p_value = np.full(size, np.nan), np.full(size, np.nan)
    weak, mask = np.zeros(size, bool), np.full(size, -1)
    result = MissingByAbility(missing, difference, p_value, weak, mask)
    if observed is None:
        return result
    missing[:] = len(observed) - observed.sum(0)
    chosen = np.flatnonzero((missing > 0) & (missing < len(observed)))
    if not chosen.size or len(values) < FEWEST:
        return result
    columns = (np.packbits(observed[:, j]).tobytes() for j in chosen)
    mask[chosen], first = masks_of(columns, chosen)
    rest, places = _additive(values, observed), mask[chosen]
    block = _blocks(observed, chosen, mask, first, benchmarks)
    ran = _ran(observed, block)
    # Of a block, the subjects who ran it: they miss single responses of it.
    single = observed[:, first] | ~ran[:, block[first]]
    among = _Among(ran, block)
    masks = _of_masks(values, observed, rest, chosen, places, among, links_of(single))
    by_item = [x[places] for x in masks]
    whole = np.flatnonzero(~ran.all(0))
    if whole.size:
        inside = np.flatnonzero(np.isin(block, whole))
        code, own = np.searchsorted(whole, block[inside]), ran[:, whole]
        tests = _of_masks(
            values, observed, rest, inside, code, None, links_of(own), own
        )
        mask[chosen] = add_blocks(by_item, tests, block[chosen], whole, places)
    difference[chosen], p_value[chosen], weak[chosen] = by_item
    mask[np.isnan(p_value)] = -1
    return result


class _Among(NamedTuple):
    """The subjects who ran the block of an item."""

    ran: np.ndarray  # [subjects, blocks + 1], the last column all true
    block: np.ndarray  # [items], -1 for none

    def of(self, items: np.ndarray) -> np.ndarray:
        """Those of some items, `[subjects, items]`."""
        return self.ran[:, self.block[items]]


def add_blocks(by_item, tests, block, whole, mask) -> np.ndarray:
    """Adds to the tests of items, in place, those of the blocks `whole`.

    Returns the masks of the items. Those without a test of their own count as one item
    for each block, `block` `[items]`.
    """
    of = np.isin(block, whole)
    number = np.searchsorted(whole, block[of])
    together, apart = [x[number] for x in tests], [x[of] for x in by_item]
    one, other = apart[1], together[1]
    # Two tests of an item: Bonferroni's correction.
    times = 1 + (np.isfinite(one) & np.isfinite(other))
    smaller = np.isnan(one) | (other <= one)
    for x, mine, its in zip(by_item, apart, together, strict=True):
        x[of] = np.where(smaller, its, mine)
    by_item[1][of] = np.minimum(1, times * np.fmin(one, other))
    mask = mask.copy()
    mask[of] = np.where(np.isnan(one), mask.max() + 1 + block[of], mask[of])
    return mask


def _of_masks(values, observed, rest, items, number, among, links, seen=None):
    """The tests of masks `[masks]`: differences, p-values, and whether below 0.

    `items` have the masks `number`; `seen` `[subjects, masks]` if these are not the
    masks of the items. Subjects are compared who are `among` those of the items.
    """
    order = np.argsort(number, kind="stable")
    items = items[order]
    count = int(number.max()) + 1
    starts = np.searchsorted(number[order], np.arange(count + 1))
    # Masks at once; all of them if they are linked to each other.
    width = count if links else max(1, BLOCK // len(values))
    parts = []
    for start in range(0, count, width):
        end = min(start + width, count)
        mine = items[starts[start] : starts[end]]
        places = starts[start:end] - starts[start]
        own, answers = _own(values, observed, rest, mine, places)
        lit = observed[:, mine[places]] if seen is None else seen[:, start:end]
        some = np.ones_like(lit) if among is None else among.of(mine[places])
        parts.append(without_linked(lit, some, own, answers, rest, links))
    return [np.concatenate(x) for x in zip(*parts, strict=True)]


def _blocks(observed, chosen, mask, first, benchmarks) -> np.ndarray:
    """The number of each item's block `[items]`, -1 for items of none.

    Benchmarks that some subjects did not run, and other items of nearly one mask.
    """
    block = np.full(observed.shape[1], -1)
    if benchmarks is not None:
        names, code = np.unique(benchmarks, return_inverse=True)
        code = of_several(code.reshape(-1))
        if len(names) > 1:
            block = np.where(
                np.logical_and.reduce(_ran(observed, code))[code], -1, code
            )
    links = links_of(observed[:, first], ALIKE)
    if links:
        from scipy.sparse.csgraph import connected_components

        component = np.full(block.size, -1)
        number: Any = connected_components(links[1], directed=False)[1]
        component[chosen] = number[mask[chosen]]
        component = of_several(np.where(block < 0, component, -1))
        block = np.where(component < 0, block, component + block.max() + 1)
    met = lambda alone, absent: observed[:, alone][absent].any(0)
    return join_absent(block, ~_ran(observed, block), met)


def join_absent(block: np.ndarray, absent: np.ndarray, met: Any) -> np.ndarray:
    """Adds to blocks `[items]` the items that everybody misses who did not run one.

    `absent` `[subjects, blocks + 1]` did not run a block. `met(items, subjects)` states
    which of the items some of the subjects answered.
    """
    size = absent.sum(0)
    for k in np.argsort(size, kind="stable")[::-1]:
        alone = np.flatnonzero(block < 0)
        if size[k] < FEWEST or not alone.size:
            break
        block[alone[~met(alone, absent[:, k])]] = k
    return block


def of_several(code: np.ndarray) -> np.ndarray:
    """Codes of groups of at least `FEWEST_ITEMS`; -1 for the others."""
    count = np.bincount(code + 1, minlength=2)
    return np.where(count[code + 1] < FEWEST_ITEMS, -1, code)


def _ran(observed: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Whether a subject has a response in a block `[subjects, blocks + 1]`.

    True in the last column, for items of no block, and in blocks that nobody ran.
    """
    ran = np.ones((len(observed), int(block.max()) + 2), bool)
    some = np.flatnonzero(block >= 0)
    some = some[np.argsort(block[some], kind="stable")]
    for mine in np.split(some, np.flatnonzero(np.diff(block[some])) + 1):
        if mine.size:
            ran[:, block[mine[0]]] = observed[:, mine].any(1)
    ran[:, ~ran.any(0)] = True
    return ran


def masks_of(
    observed: Iterable[bytes], items: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The number of each item's mask `[items]`, and the first item of each `[masks]`.

    `observed` states for each item who responded; equal bytes are the same mask.
    """
    number, first = np.empty(items.size, np.int64), []
    numbers: dict[bytes, int] = {}
    for k, (key, item) in enumerate(zip(observed, items, strict=True)):
        number[k] = numbers.setdefault(key, len(numbers))
        if number[k] == len(first):
            first.append(item)
    return number, np.array(first)


def links_of(seen: np.ndarray, least: float = LINKED) -> list[np.ndarray]:
    """Which masks are linked `[masks, masks]`: by any sign, and by the same.

    Empty if there are too many masks.
    """
    if seen.size > MOST_CELLS or seen.shape[1] > MOST_MASKS:
        return []
    z = seen - seen.mean(0, dtype=np.float32)
    # Subjects with few responses, wherever they are, link no items.
    z -= z.mean(1, keepdims=True) if seen.shape[1] >= CENTRED else 0
    z /= np.maximum(np.sqrt(np.sum(z**2, axis=0)), 1e-12)
    phi = z.T @ z
    np.fill_diagonal(phi, 1)
    return [x**2 * np.sign(x) >= least for x in (np.abs(phi), phi)]


def _own(values, observed, rest: Additive, items, starts) -> tuple[np.ndarray, ...]:
    """Sums of response less item effect, and responses, by mask `[subjects, masks]`.

    `items` are in the order of their masks, whose first places are `starts`.
    """
    own = np.empty((len(values), starts.size))
    answers = np.empty(own.shape)
    height = max(1, 4_000_000 // items.size)
    for start in range(0, len(values), height):
        rows = slice(start, start + height)
        seen = observed[rows][:, items]
        part = np.where(seen, values[rows][:, items] - rest.item[items], 0)
        own[rows] = np.add.reduceat(part, starts, axis=1)
        answers[rows] = np.add.reduceat(seen, starts, axis=1, dtype=float)
    return own, answers


def without_linked(seen, among, own, answers, rest: Additive, links):
    """`_without` the linked masks: the first of `links` that leaves who to compare."""
    if not links:
        return _without(seen, among, own, answers, rest)
    tests = _in_blocks(seen, among, own, answers, rest, links[0])
    lacking = np.flatnonzero(np.isnan(tests[1]))
    if lacking.size:
        same = _in_blocks(seen, among, own, answers, rest, links[1], lacking)
        for x, part in zip(tests, same, strict=True):
            x[lacking] = part
    return tests


def _in_blocks(seen, among, own, answers, rest, links, chosen=None):
    """`_without` the linked masks, of chosen masks."""
    chosen = np.arange(seen.shape[1]) if chosen is None else chosen
    width, parts = max(1, BLOCK // len(seen)), []
    for start in range(0, chosen.size, width):
        part = chosen[start : start + width]
        left, count = own[:, part], answers[:, part]
        # Most masks are linked to themselves alone.
        several = np.flatnonzero(links[:, part].sum(0) > 1)
        if several.size:
            linked = links[:, part[several]].astype(float)
            left[:, several], count[:, several] = own @ linked, answers @ linked
        parts.append(_without(seen[:, part], among[:, part], left, count, rest))
    return tuple(np.concatenate(x) for x in zip(*parts, strict=True))


def _without(seen, among, own, answers, rest: Additive) -> tuple[np.ndarray, ...]:
    """Differences, p-values and whether they are below 0, `[masks]`.

    `own` and `answers` `[subjects, masks]` are those that abilities are without.
    """
    count = rest.answers[:, None] - answers
    comparable = (count > 0.5) & among
    count = np.maximum(count, 1)
    score = np.where(comparable, rest.total[:, None] - own, 0) / count
    variance = rest.between + rest.within / count
    missing = ~seen & comparable
    varied = missing.any(0) & (seen & comparable).any(0)
    standard = score / np.sqrt(variance)
    upper, lower = permutation_tails(missing, comparable, standard)
    if len(seen) > ENUMERATED:
        draw_few(upper, lower, missing, comparable, standard)
    p_value = np.minimum(1, 2 * np.minimum(upper, lower))
    means = []
    for group in (missing, seen & comparable):
        weight = np.where(group, 1 / variance, 0)
        means.append((weight * score).sum(0) / np.maximum(weight.sum(0), 1e-300))
    # Precision-weighted, so abilities known from few responses do not shrink it.
    apart = means[0] - means[1]
    sd = np.sqrt(rest.between) if rest.between > 0 else np.nan
    return (
        np.where(varied, apart / sd, np.nan),
        np.where(varied, p_value, np.nan),
        apart < 0,
    )


def _additive(values: np.ndarray, observed: np.ndarray) -> Additive:
    """Effects of subjects and items by least squares, and variances of abilities."""
    answers, count = observed.sum(1).astype(float), observed.sum(0)
    by_row, by_item = values.sum(1, dtype=float), values.sum(0, dtype=float)
    subject = np.zeros(len(values))
    item, total = by_item, by_row
    for _ in range(ROUNDS):
        item = (by_item - product(observed.T, subject)) / np.maximum(count, 1)
        total = by_row - product(observed, item)
        old, subject = subject, total / np.maximum(answers, 1)
        if np.abs(subject - old).max() < CHANGE:
            break
    # One-way analysis of variance of response less item effect, by subject.
    square = np.zeros(len(values))
    for start, rows in _rows(values):
        part = np.where(observed[rows], values[rows] - item, 0)
        square[start : start + len(part)] = np.sum(part**2, axis=1)
    return variances(item, total, answers, float(square.sum()))


def variances(
    item: np.ndarray, total: np.ndarray, answers: np.ndarray, square: float
) -> Additive:
    """Variances of abilities, from sums of responses less item effects, and squares."""
    subject = total / np.maximum(answers, 1)
    cells, some = answers.sum(), int(np.sum(answers > 0))
    within = (square - np.sum(total * subject)) / max(cells - some, 1)
    centre = np.sum(answers * subject) / cells
    between = np.sum(answers * (subject - centre) ** 2) - (some - 1) * within
    between /= max(cells - np.sum(answers**2) / cells, 1)
    within, between = max(float(within), 1e-12), max(float(between), 0.0)
    # A subject with few responses counts less in the centre of abilities.
    weight = np.where(answers > 0, 1 / (between + within / np.maximum(answers, 1)), 0)
    centre = np.sum(weight * subject) / max(weight.sum(), 1e-300)
    # Of item effects too: sums without some items are of responses less both.
    return Additive(item + centre, total - centre * answers, answers, between, within)


def _rows(matrix: np.ndarray):
    """Blocks of rows."""
    height = max(1, 4_000_000 // max(matrix.shape[1], 1))
    for start in range(0, len(matrix), height):
        yield start, slice(start, start + height)


def product(mask: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """A mask times a vector, in blocks: a mask of numbers takes eight times as much."""
    parts = [mask[rows] @ vector for _, rows in _rows(mask)]
    return np.concatenate(parts) if parts else np.zeros(0)
