"""Items against groups of subjects with like scores: S-X2, and guessing.

Subjects are put into groups of neighbouring number-right scores. The model determines
which share of each group is right on an item, the item being part of the score, and
nothing has to be known of single abilities (Orlando and Thissen 2000).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincc, ndtr

from irtjax.validity.asymptotes import Asymptotes, score_test

#: Groups at the most, and subjects in each at the least.
MOST_GROUPS, LEAST_IN_GROUP = 16, 30
#: Groups from which a test is made.
LEAST_GROUPS = 4
#: Items up to which the distribution of the score is exact; normal beyond.
EXACT = 128
#: Expected right and wrong responses of a cell of S-X2: the customary five, below which
#: the tails of chi-squared are too light.
LEAST_EXPECTED = 5.0
#: Numbers of a block of items by groups by nodes.
BLOCK = 3_000_000


class GroupTests(NamedTuple):
    """Tests by groups of scores, each `[items]` unless another shape is given.

    Attributes:
        s_x2: The statistic; NaN without a test.
        degrees: Its degrees of freedom.
        p_misfit: Its p-value.
        asymptotes: Estimates and tests of the lower asymptotes.
        right: `[items, groups]` right responses.
        expected: `[items, groups]` as many as the model expects.
        sizes: `[groups]` subjects.
        ability: `[groups]` their mean ability under the model.
    """

    s_x2: np.ndarray
    degrees: np.ndarray
    p_misfit: np.ndarray
    asymptotes: Asymptotes
    right: np.ndarray
    expected: np.ndarray
    sizes: np.ndarray
    ability: np.ndarray

    def of_items(self, places: np.ndarray) -> GroupTests:
        """The tests of the items at these places, of which some may be the same."""
        items = {
            name: values[places]
            for name, values in self._asdict().items()
            if name not in ("asymptotes", "sizes", "ability")
        }
        asymptotes = Asymptotes(*(x[places] for x in self.asymptotes))
        return self._replace(asymptotes=asymptotes, **items)


def group_edges(scores: np.ndarray) -> np.ndarray:
    """Bounds of groups of scores: group g holds those above edge g, up to edge g + 1.

    Groups are of equal sizes as far as ties allow.

    >>> group_edges(np.repeat(np.arange(8), 60)).tolist()
    [-1, 0, 1, 2, 3, 4, 5, 6, 7]
    """
    wanted = min(MOST_GROUPS, scores.size // LEAST_IN_GROUP)
    if wanted < 2:
        return np.array([scores.min(initial=0) - 1, scores.max(initial=0)])
    cuts = np.quantile(scores, np.arange(1, wanted) / wanted, method="inverted_cdf")
    inner = np.unique(cuts[cuts < scores.max()])
    # A cut at the lowest scores may leave next to nobody below it.
    kept = []
    before = 0
    for cut in inner:
        below = np.count_nonzero(scores <= cut)
        if below - before >= LEAST_IN_GROUP and scores.size - below >= LEAST_IN_GROUP:
            kept.append(cut)
            before = below
    return np.array([scores.min() - 1, *kept, scores.max()]).astype(int)


def _windows(chance, edges, part):
    """Chances that the score lies in each group: item right, and item wrong.

    `[items, groups, nodes]` twice, for the items of a slice: the score of the other
    items lies between the bounds less the item's own point.
    """
    own = chance[part]
    if chance.shape[0] <= EXACT:
        size = chance.shape[0] + 1
        # The characteristic function of the score at the nodes; a factor is 0 only
        # where a chance is exactly one half.
        angle = np.exp(2j * np.pi * np.arange(size) / size)
        safe = np.where(np.abs(chance - 0.5) < 1e-9, 0.5 + 1e-9, chance)
        factors = np.log(1 + safe[:, :, None] * (angle - 1))
        rest = np.exp(factors.sum(0)[None] - factors[part])
        mass = np.fft.fft(rest, axis=-1).real / size
        below = np.cumsum(mass, -1)

        def cdf(score):
            """Chance that the other items' score is at most this, `[items, nodes]`."""
            inside = np.clip(score, 0, size - 1)
            return np.where(score < 0, 0.0, below[..., inside])

        def window(shift):
            """Chance of each group where the item itself adds `shift`."""
            values = np.stack([cdf(edge - shift) for edge in edges], 1)
            return np.maximum(np.diff(values, axis=1), 0)

        return window(1), window(0)
    mean = chance.sum(0) - own
    spread = np.sqrt((chance * (1 - chance)).sum(0) - own * (1 - own))

    def normal_window(shift):
        """`window` by a normal distribution of the other items' score."""
        bounds = edges.astype(float)[None, :, None] + 0.5 - shift
        bounds[:, 0], bounds[:, -1] = -np.inf, np.inf
        place = (bounds - mean[:, None]) / spread[:, None]
        return np.diff(ndtr(place), axis=1)

    return normal_window(1), normal_window(0)


def _expected(chance, weights, windows):
    """Share right in each group, `[items, groups]`, and what its slope needs."""
    one, zero = windows
    p = chance[:, None] * weights
    top = np.matmul(one, p[:, 0, :, None])[..., 0]
    bottom = top + np.matmul(zero, (weights - p)[:, 0, :, None])[..., 0]
    bottom = np.maximum(bottom, 1e-300)
    share = np.clip(top / bottom, 1e-9, 1 - 1e-9)
    return share, bottom


def _through(weights, windows, chance, slopes):
    """Shares `[items, groups]` of chances `[items, nodes]`, and their derivatives."""
    one, zero = windows
    share, bottom = _expected(chance, weights, windows)
    found = []
    for slope in slopes:
        weighted = (slope * weights)[..., None]
        up = np.matmul(one, weighted)[..., 0]
        down = np.matmul(zero, weighted)[..., 0]
        found.append((up * (1 - share) + down * share) / bottom)
    return share, found


def group_tests(
    values: np.ndarray,
    chance: np.ndarray,
    nodes: np.ndarray,
    weights: np.ndarray,
    start: tuple[np.ndarray, np.ndarray],
    guess: np.ndarray,
    num_parameters: int,
) -> GroupTests | None:
    """S-X2, and a score test of the lower asymptote, for every item.

    S-X2 = sum_g n_g (o_g - e_g)^2 / (e_g (1 - e_g)) over groups of scores, neighbours
    joined until each expects right and wrong responses, against chi-squared with as
    many degrees of freedom as groups less item parameters.

    The second test is that of `irtjax.validity.asymptotes`, over groups.

    Args:
        values: `[subjects, items]` 0 and 1, complete.
        chance: `[items, nodes]` probabilities of a right response under the fit.
        nodes: `[nodes]` abilities.
        weights: `[nodes]` weights of the population, summing to 1.
        start: Slopes and intercepts to begin at, each `[items]`.
        guess: `[items]` lower asymptote that is not suspicious.
        num_parameters: Estimated parameters of each item.

    Returns:
        The tests, or None where there are too few subjects for `LEAST_GROUPS` groups.
    """
    scores = values.sum(1, dtype=np.int64)
    edges = group_edges(scores)
    edges[0], edges[-1] = -1, values.shape[1]
    num_groups = edges.size - 1
    if num_groups < LEAST_GROUPS:
        return None
    code = np.searchsorted(edges, scores, side="left") - 1
    member = (code[:, None] == np.arange(num_groups)).astype(np.float32)
    count = member.sum(0).astype(np.float64)
    right = np.empty((values.shape[1], num_groups))
    width = max(1, BLOCK // max(num_groups * nodes.size, values.shape[0]))
    parts = []
    for begin in range(0, values.shape[1], width):
        part = slice(begin, begin + width)
        right[part] = values[:, part].T.astype(np.float32) @ member
        windows = _windows(chance, edges, part)
        share, _ = _expected(chance[part], weights, windows)
        asymptote = score_test(
            right[part],
            count,
            nodes,
            partial(_through, weights, windows),
            (start[0][part], start[1][part]),
            guess[part],
        )
        parts.append((share, *asymptote))
    share, estimate, p_value = (np.concatenate(x) for x in zip(*parts, strict=True))
    statistic, cells = pooled_chi_squared(right, share, count)
    degrees = cells - num_parameters
    tested = degrees > 0
    p_misfit = gammaincc(np.where(tested, degrees, 1) / 2, statistic / 2)
    ones = right.sum(1)
    varied = (ones > 0) & (ones < count.sum())
    tested &= varied
    middle = _group_abilities(chance, edges, nodes, weights)
    return GroupTests(
        np.where(tested, statistic, np.nan),
        np.where(tested, degrees, 0),
        np.where(tested, p_misfit, np.nan),
        Asymptotes(*(np.where(varied, x, np.nan) for x in (estimate, p_value))),
        right,
        share * count,
        count,
        middle,
    )


def _group_abilities(chance, edges, nodes, weights):
    """Mean ability of each group under the model."""
    mean = chance.sum(0)
    spread = np.sqrt(np.maximum((chance * (1 - chance)).sum(0), 1e-12))
    bounds = edges.astype(float)[:, None] + 0.5
    bounds[0], bounds[-1] = -np.inf, np.inf
    inside = np.diff(ndtr((bounds - mean) / spread), axis=0) * weights
    total = np.maximum(inside.sum(1), 1e-300)
    return (inside * nodes).sum(1) / total


def pooled_chi_squared(right, share, count) -> tuple[np.ndarray, np.ndarray]:
    """Pearson's statistic over cells joined until they expect enough, and their number.

    Args:
        right: `[items, groups]` right responses.
        share: `[items, groups]` expected shares.
        count: `[groups]` subjects.
    """
    size = right.shape[0]
    statistic, cells = np.zeros(size), np.zeros(size, int)
    last = np.zeros((3, size))
    cell = np.zeros((3, size))

    def term(cell):
        """Pearson's term of each item's cell; 0 for an empty one."""
        observed, expected, n = cell
        spread = expected * (n - expected) / np.maximum(n, 1)
        fine = spread > 0
        gap = (observed - expected) ** 2
        return np.where(fine, gap / np.where(fine, spread, 1), 0)

    for g in range(count.size):
        new = (right[:, g], share[:, g] * count[g], np.full(size, count[g]))
        cell = cell + np.stack(new)
        full = np.minimum(cell[1], cell[2] - cell[1]) >= LEAST_EXPECTED
        # A cell is counted once the next one is full: what is left joins the last.
        statistic += np.where(full, term(last), 0)
        last = np.where(full, cell, last)
        cells += full
        cell = np.where(full, 0, cell)
    return statistic + term(last + cell), cells
