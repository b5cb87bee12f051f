"""Items against groups of subjects with similar scores: S-X2, and guessing.

Subjects are put into groups of neighbouring number-right scores. The model determines
the share of each group that is right on an item, the item being part of the score,
without estimates of single abilities (Orlando and Thissen 2000).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincc, ndtr

from irtjax.numerics.progress import watched
from irtjax.validity.asymptotes import (
    LEAST_EXPECTED,
    Asymptotes,
    GroupedResponses,
    drawn_test,
)

#: Groups at the most, and subjects in each at the least.
MOST_GROUPS, LEAST_IN_GROUP = 16, 30
#: Groups from which a test is made.
LEAST_GROUPS = 4
#: Items up to which the distribution of the score is exact; normal beyond.
EXACT = 128
#: Numbers of a block of items by groups by nodes.
BLOCK = 3_000_000


class GroupTests(NamedTuple):
    """S-X2 and tests of lower asymptotes, each `[items]`, NaN without a test."""

    s_x2: np.ndarray
    degrees: np.ndarray  # Degrees of freedom of S-X2.
    p_misfit: np.ndarray
    asymptotes: Asymptotes
    right: np.ndarray  # `[items, groups]`
    expected: np.ndarray  # `[items, groups]` right responses.
    sizes: np.ndarray  # `[groups]`
    ability: np.ndarray  # `[groups]` mean abilities under the model.

    def of_items(self, places: np.ndarray) -> GroupTests:
        """The tests of the items at these places, of which some may be the same."""
        by_item = ("s_x2", "degrees", "p_misfit", "right", "expected")
        return self._replace(
            asymptotes=Asymptotes(*(x[places] for x in self.asymptotes)),
            **{name: getattr(self, name)[places] for name in by_item},
        )


def group_edges(scores: np.ndarray) -> np.ndarray:
    """Edges of groups of scores of equal sizes, as far as ties allow.

    The scores of group g are above edge g, up to edge g + 1.

    >>> group_edges(np.repeat(np.arange(8), 60)).tolist()
    [-1, 0, 1, 2, 3, 4, 5, 6, 7]
    """
    wanted = min(MOST_GROUPS, scores.size // LEAST_IN_GROUP)
    if wanted < 2:
        return np.array([scores.min(initial=0) - 1, scores.max(initial=0)])
    cuts = np.quantile(scores, np.arange(1, wanted) / wanted, method="inverted_cdf")
    inner = np.unique(cuts[cuts < scores.max()])
    # A cut at the lowest scores may leave next to nobody below it.
    edges, before = [], 0
    for cut in inner:
        below = np.count_nonzero(scores <= cut)
        if below - before >= LEAST_IN_GROUP and scores.size - below >= LEAST_IN_GROUP:
            edges.append(cut)
            before = below
    return np.array([scores.min() - 1, *edges, scores.max()]).astype(int)


def score_windows(chance, edges, part):
    """Chances of groups of scores, `[items, groups, nodes]`: item right, item wrong."""
    own, size = chance[part], chance.shape[0] + 1
    if size - 1 <= EXACT:
        # The characteristic function of the score at the nodes; a factor is 0 only
        # where a chance is exactly one half.
        angle = np.exp(2j * np.pi * np.arange(size) / size)
        safe = np.where(np.abs(chance - 0.5) < 1e-9, 0.5 + 1e-9, chance)
        factors = np.log(1 + safe[:, :, None] * (angle - 1))
        rest = np.exp(factors.sum(0)[None] - factors[part])
        below = np.cumsum(np.fft.fft(rest, axis=-1).real / size, -1)
        # Chance that the score of the other items is at most this, `[items, nodes]`.
        cdf = lambda x: np.where(x < 0, 0.0, below[..., np.clip(x, 0, size - 1)])
    else:
        edges = np.array([-np.inf, *edges[1:-1], np.inf])
        mean = chance.sum(0) - own
        sd = np.sqrt((chance * (1 - chance)).sum(0) - own * (1 - own))
        cdf = lambda x: ndtr((x + 0.5 - mean) / sd)
    # The score of the other items lies between the edges less the item's own point.
    values = (np.stack([cdf(edge - point) for edge in edges], 1) for point in (1, 0))
    return [np.maximum(np.diff(x, axis=1), 0) for x in values]


def shares_of_groups(weights, windows, chance, slopes):
    """Shares `[items, groups]` of chances `[items, nodes]`, and their derivatives."""
    one, zero = windows
    sums = lambda window, values: np.matmul(window, values[..., None])[..., 0]
    weighted = chance * weights
    top = sums(one, weighted)
    bottom = np.maximum(top + sums(zero, weights - weighted), 1e-300)
    share = np.clip(top / bottom, 1e-9, 1 - 1e-9)
    derivatives = []
    for slope in slopes:
        up, down = sums(one, slope * weights), sums(zero, slope * weights)
        derivatives.append((up * (1 - share) + down * share) / bottom)
    return share, derivatives


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
    joined until each expects `LEAST_EXPECTED` right and wrong responses, against
    chi-squared with as many degrees of freedom as groups less item parameters. The
    second test is that of `irtjax.validity.asymptotes`, over groups. None where there
    are too few subjects for `LEAST_GROUPS` groups.

    `values` are 0 and 1, complete; `chance` `[items, nodes]` those of a right response
    under the fit; `weights` those of the nodes, summing to 1; `start` slopes and
    intercepts; `guess` lower asymptotes that are not suspicious.
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
    for begin in watched(range(0, values.shape[1], width)):
        part = slice(begin, begin + width)
        right[part] = values[:, part].T.astype(np.float32) @ member
        windows = score_windows(chance, edges, part)
        through = partial(shares_of_groups, weights, windows)
        at = start[0][part], start[1][part]
        test = drawn_test(
            GroupedResponses(right[part], count, nodes, through, at, guess[part])
        )
        parts.append((through(chance[part], [])[0], *test))
    share, estimate, p_value = (np.concatenate(x) for x in zip(*parts, strict=True))
    statistic, cells = pooled_chi_squared(right, share, count)
    degrees = cells - num_parameters
    ones = right.sum(1)
    varied = (ones > 0) & (ones < count.sum())
    tested = (degrees > 0) & varied
    p_misfit = gammaincc(np.where(tested, degrees, 1) / 2, statistic / 2)
    # Mean abilities of the groups, the score taken as normal.
    sd = np.sqrt(np.maximum((chance * (1 - chance)).sum(0), 1e-12))
    bounds = np.array([-np.inf, *edges[1:-1] + 0.5, np.inf])[:, None]
    inside = np.diff(ndtr((bounds - chance.sum(0)) / sd), axis=0) * weights
    ability = (inside * nodes).sum(1) / np.maximum(inside.sum(1), 1e-300)
    s_x2, p_misfit = (np.where(tested, x, np.nan) for x in (statistic, p_misfit))
    degrees = np.where(tested, degrees, 0)
    tests = Asymptotes(*(np.where(varied, x, np.nan) for x in (estimate, p_value)))
    return GroupTests(
        s_x2, degrees, p_misfit, tests, right, share * count, count, ability
    )


def pooled_chi_squared(
    right, share, count, least: float = LEAST_EXPECTED
) -> tuple[np.ndarray, np.ndarray]:
    """Pearson's statistic over joined cells `[items, groups]`, and their number.

    `count` are the subjects of each group, `[groups]` or `[items, groups]`. Cells that
    expect fewer right or wrong responses than `least` are joined.
    """
    size = right.shape[0]
    statistic, cells = np.zeros(size), np.zeros(size, int)
    # Observed and expected right responses, and subjects.
    cell, last = np.zeros((2, 3, size))

    def term(cell):
        """Pearson's term of each item's cell; 0 for an empty one."""
        observed, expected, n = cell
        variance = expected * (n - expected) / np.maximum(n, 1)
        fine = variance > 0
        gap = (observed - expected) ** 2
        return np.where(fine, gap / np.where(fine, variance, 1), 0)

    counts = np.broadcast_to(count, right.shape)
    for y, p, n in zip(right.T, share.T, counts.T, strict=True):
        cell = cell + np.stack([y, p * n, n])
        full = np.minimum(cell[1], cell[2] - cell[1]) >= least
        # A cell is counted once the next one is full: the remainder joins the last.
        statistic += np.where(full, term(last), 0)
        last = np.where(full, cell, last)
        cells += full
        cell = np.where(full, 0, cell)
    return statistic + term(last + cell), cells
