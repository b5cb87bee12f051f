r"""Subjects that copy each other: the same responses, or nearly so.

One model under two names, or a merge of it, counts twice: discriminations are estimated
from subjects as if they were independent, so a model of slopes moves towards what the
copies share, and ranks them too high.

Independent subjects differ on an item that subject i has right with probability P_ij by
chance alone, on

    E_ik = \sum_j P_ij (1 - P_kj) + (1 - P_ij) P_kj

items in expectation. P_ij comes from the margins: logit P_ij = k (c_i + logit p_j), p_j
the share of subjects that have the item right, c_i such that subject i's expected
number of right responses is the observed one, in each benchmark: a model may fail a
whole one, because its format was not read for example, as others do. The steepness k is
1 or more: where every subject has right nearly the same easiest items, as with large
discriminations, subjects of equal ability agree by ability alone. It is the slope of
the logistic regression of x_i on logit p_j without subject i that nine subjects in ten
exceed, so that copies, who predict each other, do not raise it. Where a subject has all
items of a benchmark right, or wrong, P_ij is 1 or 0. Items that all have right, or
wrong, are left out. The number of differences is Poisson-binomial, so its lower tail is
at most about that of a Poisson variable of mean E_ik.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit, pdtr

from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, listing

#: Chance, over all pairs, below which agreement is none.
LEVEL = 0.01
#: Copies differ on at most this share of the items that independent subjects differ on.
MOST_DIFFERENT = 0.1
#: Subjects above which copies matter little and are not looked for.
MOST_SUBJECTS = 1000
#: Items from which the candidates are found, drawn at random.
MOST_ITEMS = 1000
#: Share of subjects who may follow the margins less than the steepness k says.
LESS_STEEP = 0.1
#: Subjects whose regressions determine it, and iterations of these.
REGRESSED, ITERATIONS = 100, 20
#: Halvings of the interval in which c_i is, 80 or fewer logits wide.
HALVINGS = 20
#: Items of a benchmark below which it has no c_i of its own: small ones share one.
FEWEST_ITEMS = 20
#: Groups that a warning names, and subjects of each.
MOST_GROUPS, MOST_NAMES = 3, 5


class Copies(NamedTuple):
    """Subjects that gave nearly the same responses.

    Attributes:
        groups: Positions of the subjects of each group, two or more.
        different: Most items on which two subjects of each group that are copies of
            each other differ.
        shared: Items that both of these met.
        expected: Items on which independent subjects would differ.
    """

    groups: tuple[np.ndarray, ...]
    different: tuple[int, ...]
    shared: tuple[int, ...]
    expected: tuple[float, ...]

    def flagged(self, size: int) -> np.ndarray:
        """Which of `size` subjects are copies."""
        flagged = np.zeros(size, bool)
        for group in self.groups:
            flagged[group] = True
        return flagged


NONE = Copies((), (), (), ())


def copies_of(
    values: np.ndarray,
    observed: np.ndarray | None,
    trials: np.ndarray | None = None,
    benchmarks: np.ndarray | None = None,
) -> Copies:
    """Finds copies in responses `[subjects, items]` of any kind.

    For expected differences a response counts as right above its item's mean; for
    observed ones two responses differ unless they are equal, missing ones never.
    `benchmarks` are names `[items]`; None for one benchmark.

    >>> right = np.random.default_rng(0).integers(0, 2, (8, 60))
    >>> right[5] = right[2]
    >>> found = copies_of(right, None)
    >>> [group.tolist() for group in found.groups], found.different
    ([[2, 5]], (0,))
    """
    count, size = values.shape
    if not 1 < count <= MOST_SUBJECTS:
        return NONE
    some = np.arange(size)
    if size > MOST_ITEMS:
        some = np.sort(np.random.default_rng(0).choice(size, MOST_ITEMS, replace=False))
    seen = np.ones((count, some.size)) if observed is None else observed[:, some] * 1.0
    if trials is not None:
        seen = (trials[:, some] > 0) * 1.0
    right = _right(values[:, some], seen, None if trials is None else trials[:, some])
    names = np.zeros(size, int) if benchmarks is None else benchmarks
    expected = _expected_differences(right, seen, names[some])
    wrong = seen - right
    different = right @ wrong.T + wrong @ right.T
    pairs = count * (count - 1) / 2
    close = np.triu(different <= MOST_DIFFERENT * expected, 1)
    close[close] = pdtr(different[close], expected[close]) * pairs <= LEVEL
    close_pairs: list[tuple[int, int, int, int, float]] = []
    for first, second in zip(*np.nonzero(close), strict=True):
        shared = np.ones(size, bool)
        for mask in (observed, trials):
            if mask is not None:
                shared &= (mask[first] > 0) & (mask[second] > 0)
        unequal = values[first] != values[second]
        if trials is not None:
            unequal |= trials[first] != trials[second]
        met, apart = int(shared.sum()), int((unequal & shared).sum())
        # Of the items that were not drawn as many are expected to differ.
        wanted = float(
            expected[first, second] * met / max(seen[first] @ seen[second], 1)
        )
        if apart <= MOST_DIFFERENT * wanted:
            close_pairs.append((int(first), int(second), apart, met, wanted))
    return _grouped(close_pairs, count)


def of_table(table: ResponseTable) -> Copies:
    """`copies_of` the responses of a table; of a sparse one none are looked for."""
    if table.sparse is not None:
        return NONE
    cells = table.values, table.observed, table.trials
    return copies_of(*cells, table.benchmarks)


def _right(values, seen, trials) -> np.ndarray:
    """1 above the mean of the item and 0 below, and where nothing was seen."""
    share = values if trials is None else values / np.maximum(trials, 1)
    share = np.where(seen > 0, share, 0.0).astype(float)
    mean = share.sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    return ((share > mean) & (seen > 0)) * 1.0


def _expected_differences(right, seen, benchmarks) -> np.ndarray:
    """E of the module, `[subjects, subjects]`."""
    _, part, sizes = np.unique(benchmarks, return_inverse=True, return_counts=True)
    part = np.where(sizes[part] < FEWEST_ITEMS, -1, part)
    expected = np.zeros((len(seen), len(seen)))
    for code in np.unique(part):
        mine = part == code
        chance, other = _chances(right[:, mine], seen[:, mine])
        expected += chance @ other.T + other @ chance.T
    return expected


def _chances(right: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Chances of right and of wrong responses to the items of a benchmark."""
    count, total = seen.sum(axis=0), right.sum(axis=0)
    # On items that all others have right, or wrong, nobody is expected to differ.
    varied = (total > 0) & (total < count)
    right, seen = right[:, varied], seen[:, varied]
    ease = logit(total[varied] / count[varied])
    steep = _steepness(right, seen)
    target, most = right.sum(axis=1), seen.sum(axis=1)
    high = np.full((len(seen), 1), np.abs(ease).max(initial=0) + 30 / steep)
    low = -high
    for _ in range(HALVINGS):
        level = (low + high) / 2
        above = (expit(steep * (level + ease)) * seen).sum(axis=1) > target
        high, low = np.where(above[:, None], (level, low), (high, level))
    chance = expit(steep * (low + high + 2 * ease) / 2) * seen
    # Subjects without variation have no finite level.
    constant = (target == 0) | (target == most)
    chance[constant] = right[constant]
    return chance, seen - chance


def _steepness(right: np.ndarray, seen: np.ndarray) -> float:
    """The k of the module, from responses to items that vary."""
    constant = (right.sum(axis=1) == 0) | (right.sum(axis=1) == seen.sum(axis=1))
    some = np.flatnonzero(~constant)
    if some.size < 3:
        return 1.0
    if some.size > REGRESSED:
        some = some[np.linspace(0, some.size - 1, REGRESSED).astype(int)]
    x, w = right[some], seen[some]
    others = (right.sum(axis=0) - x + 0.5) / (seen.sum(axis=0) - w + 1)
    ease = logit(others)
    place, steep = np.zeros((some.size, 1)), np.ones((some.size, 1))
    for _ in range(ITERATIONS):
        # Newton; where the two responses are separated the slope grows without limit.
        chance = expit(place + steep * ease)
        weight, rest = chance * (1 - chance) * w, (x - chance) * w
        sums = [(weight * ease**n).sum(1, keepdims=True) for n in range(3)]
        first, second = ((rest * ease**n).sum(1, keepdims=True) for n in range(2))
        size = np.maximum(sums[0] * sums[2] - sums[1] ** 2, 1e-12)
        most = 2 * np.maximum(steep, 1)
        moves = sums[2] * first - sums[1] * second, sums[0] * second - sums[1] * first
        place = place + np.clip(moves[0] / size, -most, most)
        steep = steep + np.clip(moves[1] / size, -most / 2, most / 2)
    return max(1.0, float(np.quantile(steep, LESS_STEEP, method="lower")))


def _grouped(pairs: list[tuple[int, int, int, int, float]], count: int) -> Copies:
    if not pairs:
        return NONE
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first, second, apart, met, wanted = (np.array(x) for x in zip(*pairs, strict=True))
    links = coo_array((np.ones(first.size), (first, second)), shape=(count, count))
    _, component = connected_components(links, directed=False)
    columns: list[tuple] = []
    for name in dict.fromkeys(component[first].tolist()):
        mine = component[first] == name
        worst = np.flatnonzero(mine)[np.argmax(apart[mine])]
        group = np.flatnonzero(component == name)
        columns.append(
            (group, int(apart[worst]), int(met[worst]), float(wanted[worst]))
        )
    return Copies(*(tuple(x) for x in zip(*columns, strict=True)))


def warnings_of(alike: Copies, names: np.ndarray) -> list[str]:
    """One warning that names copies and what to do; none without copies.

    >>> found = Copies((np.array([0, 2]),), (0,), (60,), (24.6,))
    >>> print(warnings_of(found, np.array(["a", "b", "c"]))[0][:68])
    subjects a, c gave the same 60 responses (independent subjects would
    """
    if not alike.groups:
        return []
    parts = []
    for group, apart, met, wanted in list(zip(*alike, strict=True))[:MOST_GROUPS]:
        what = f"the same {met:,} responses"
        if apart:
            what = f"{met - apart:,} of {met:,} responses alike"
        parts.append(
            f"subjects {listing(names[group].tolist(), MOST_NAMES)} gave {what}"
            f" (independent subjects would differ on {wanted:,.0f})"
        )
    others = len(alike.groups) - len(parts)
    if others:
        parts.append(f"{counted(others, 'more group')} likewise")
    return [
        f"{'; '.join(parts)}: one model under several names, or a mistake in the data?"
        " Copies count as independent subjects, so discriminations and ranks move"
        " towards them: leave out all but one with leave_out="
    ]
