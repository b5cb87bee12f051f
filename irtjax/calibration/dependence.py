r"""Residual dependence between subjects, and between items, from one fit.

With s_ij the slope of the log-likelihood of a response in ability and w_ij its
information, both at the estimates, two responses that depend on ability alone have
E[s_ij s_kl] = 0 and Var[s_ij s_kl] = w_ij w_kl. A shift of ability that a group of
subjects share on an item, or a subject on a cluster of items, of variance v, adds
v w_ij w_kl. So with S, E and W the sums of s_ij s_kl, of its mean and of w_ij w_kl
over the ordered pairs of a group,

    v = (S - E) / W,    z = (S - E) / sqrt(2 W),                                    (1)

and z is about N(0, 1) where responses are independent (Yen 1984 has the correlation of
two items; Liang 1987, the test of a variance of 0).

E is not 0, for abilities and items were estimated from the same responses. The slopes
are made free of them: z_ij = s_ij / sqrt(w_ij) less its projections on what a subject's
ability, and an item's parameters (a polynomial in ability), change. The projected cells
have the covariance of the projection, which is E.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

#: Degree of the polynomial in ability that is taken out of each item, with so many
#: subjects. The square is for items whose curve is another one (guessing): subjects of
#: equal ability would be relatives.
DEGREE, FEW_SUBJECTS, DEGREE_OF_FEW = 2, 12, 1
#: Alternating projections on subjects and items.
PROJECTIONS = 4
#: Rounds of moves and merges of groups, and the share of their mean z.
SWEEPS, SHARE = 8, 0.75
#: z above which dependence is found: of 30 groupings that are tried, one in a thousand
#: data sets has one by chance.
CRITICAL = 4.0
#: Shuffles of labels, and standard deviations above their mean of relatives.
SHUFFLES, ABOVE_SHUFFLED = 200, 3.0
#: Subjects among whom groups without names are looked for, and the fewest items.
SEARCHED, FEWEST = (8, 1000), 40
#: Draws of independent residuals that give the null of the search, and standard
#: deviations above their mean; subjects from which binary responses are drawn anew.
#: Of fewer, items fit the responses too well to draw from them, and pairs are few.
FLIPS, ABOVE, MANY = 10, 4.5, 100


class Dependence(NamedTuple):
    """The variance v of a shared shift of ability, and z; see the module."""

    variance: float
    z: float


class FreeSlopes(NamedTuple):
    """Slopes that are free of estimates, their information, and their projections.

    Attributes:
        slope: `[subjects, items]`; 0 where a response is missing.
        information: `[subjects, items]`.
        basis: `[terms, subjects]` powers of ability.
        inverse: `[terms, terms, items]` of the weighted products of the basis.
        part: `[items]` benchmark of each item.
        raw: `[subjects, items]` slopes that are not projected.
    """

    slope: np.ndarray
    information: np.ndarray
    basis: np.ndarray
    inverse: np.ndarray
    part: np.ndarray
    raw: np.ndarray


def residuals_of(
    slope: np.ndarray, information: np.ndarray, ability: np.ndarray, part: np.ndarray
) -> FreeSlopes:
    """The residuals of a fit from slopes and information `[subjects, items]`.

    `part` numbers the benchmark of each item: subjects have an ability on each.
    """
    count = len(ability)
    degree = DEGREE if count >= FEW_SUBJECTS else DEGREE_OF_FEW
    spread = max(float(np.std(ability)), 1e-9)
    basis = ((ability - ability.mean()) / spread) ** np.arange(degree + 1)[:, None]
    weight = np.where(information > 1e-3 * information.mean(), information, 0.0)
    products = np.einsum("an,bn,nj->abj", basis, basis, weight, optimize=True)
    # Items of few responses have no polynomial: the ridge leaves them as they are.
    ridge = 1e-6 * np.trace(products).max(initial=1e-12) * np.eye(degree + 1)
    moved = np.moveaxis(products, -1, 0) + ridge
    inverse = np.moveaxis(np.linalg.inv(moved), 0, -1)
    slope = np.where(weight > 0, slope, 0.0)
    return _projected(FreeSlopes(slope, weight, basis, inverse, part, slope))


def _projected(residuals: FreeSlopes) -> FreeSlopes:
    """Slopes less what abilities and items explain."""
    slope, weight, basis, inverse, part, _ = residuals
    onto = _indicator(part)
    total = weight @ onto
    total = np.where(total > 0, total, 1.0)
    for _ in range(PROJECTIONS):
        slope = slope - weight * ((slope @ onto) / total)[:, part]
        for_items = np.einsum("abj,bj->aj", inverse, basis @ slope)
        slope = slope - weight * (basis.T @ for_items)
    return residuals._replace(slope=slope)


def _indicator(codes: np.ndarray) -> np.ndarray:
    """Ones where a row has a code, `[rows, codes]`."""
    return np.eye(int(codes.max(initial=0)) + 1)[codes]


def _groups(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The members of groups of two and more, by group, and where each group starts.

    Thousands of names are mostly alone in their groups, and have no pair.

    >>> members, starts = _groups(np.array([3, 0, 3, 1, 0, 3]))
    >>> members.tolist(), starts.tolist()
    ([1, 4, 0, 2, 5], [0, 2])
    """
    members = np.argsort(codes, kind="stable")
    members = members[np.bincount(codes)[codes[members]] > 1]
    return members, np.flatnonzero(np.diff(codes[members], prepend=-1))


def between_subjects(residuals: FreeSlopes, codes: np.ndarray) -> Dependence:
    """Dependence of the subjects of one group, over all groups; see the module.

    >>> rng = np.random.default_rng(0)
    >>> slope = np.repeat(rng.normal(size=(10, 200)), 2, axis=0)
    >>> one, ability = np.ones((20, 200)), rng.normal(size=20)
    >>> part = np.zeros(200, int)
    >>> residuals = residuals_of(slope, one, ability, part)
    >>> between_subjects(residuals, np.arange(20) // 2).z > 20
    True
    >>> abs(between_subjects(residuals, np.arange(20) % 10).z) < 4
    True
    """
    slope, weight, basis, inverse, *_ = residuals
    members, starts = _groups(codes)
    if not members.size:
        return _dependence(0.0, 0.0)
    slope, weight, basis = slope[members], weight[members], basis[:, members]
    totals = lambda x: np.add.reduceat(x, starts, axis=0)
    pairs = lambda x, y: np.sum(totals(x) * totals(y), 0) - np.sum(x * y, 0)
    products = float(np.sum(pairs(slope, slope)))
    size = float(np.sum(pairs(weight, weight)))
    lost = 0.0
    moved = [weight * power[:, None] for power in basis]
    for a, first in enumerate(moved):
        for b, second in enumerate(moved):
            lost += float(inverse[a, b] @ pairs(first, second))
    return _dependence(products + lost, size)


def between_items(residuals: FreeSlopes, codes: np.ndarray) -> Dependence:
    """Dependence of the items of one cluster, over all clusters; see the module.

    A cluster lies within a benchmark: items of two count as two clusters.

    >>> rng = np.random.default_rng(0)
    >>> slope = np.repeat(rng.normal(size=(30, 40)), 5, axis=1)
    >>> one, part = np.ones((30, 200)), np.zeros(200, int)
    >>> residuals = residuals_of(slope, one, rng.normal(size=30), part)
    >>> between_items(residuals, np.arange(200) // 5).z > 20
    True
    """
    slope, weight, _, _, part, _ = residuals
    codes, home = _within_parts(codes, part)
    of_subjects = weight @ _indicator(part)
    of_subjects = np.where(of_subjects > 0, of_subjects, 1.0)[:, home]
    members, starts = _groups(codes)
    if not members.size:
        return _dependence(0.0, 0.0)
    slope, weight = slope[:, members], weight[:, members]
    of_subjects = of_subjects[:, codes[members[starts]]]
    totals = lambda x: np.add.reduceat(x, starts, axis=1)
    pairs = lambda x: totals(x) ** 2 - totals(x**2)
    squares = pairs(weight)
    lost = float(np.sum(squares / of_subjects))
    return _dependence(float(np.sum(pairs(slope))) + lost, float(squares.sum()))


def _within_parts(codes: np.ndarray, part: np.ndarray):
    """Clusters cut at the ends of benchmarks, and the benchmark of each cluster."""
    joined = np.stack([part, codes])
    kinds, inside = np.unique(joined, axis=1, return_inverse=True)
    return inside.reshape(-1), kinds[0]


def _dependence(excess: float, size: float) -> Dependence:
    if size <= 0:
        return Dependence(0.0, 0.0)
    return Dependence(excess / size, excess / (2 * size) ** 0.5)


def above_shuffled(residuals: FreeSlopes, codes: np.ndarray) -> float:
    """Standard deviations of the z within groups above those of shuffled labels.

    Where responses depend on more than one ability all pairs of subjects depend on each
    other a little, and with many items significantly: relatives do so more than others.

    >>> rng = np.random.default_rng(0)
    >>> slope = np.repeat(rng.normal(size=(10, 200)), 2, axis=0)
    >>> one, part = np.ones((20, 200)), np.zeros(200, int)
    >>> residuals = residuals_of(slope, one, np.linspace(-1, 1, 20), part)
    >>> above_shuffled(residuals, np.arange(20) // 2) > 5
    True
    """
    z, same, rng = _pairs(residuals), _same(codes), np.random.default_rng(0)
    shuffled = [
        float(z[np.ix_(order, order)][same].sum())
        for order in (rng.permutation(len(z)) for _ in range(SHUFFLES))
    ]
    excess = float(z[same].sum()) - float(np.mean(shuffled))
    return excess / max(float(np.std(shuffled)), 1e-12)


def search_groups(
    residuals: FreeSlopes, *, is_binary: bool = False
) -> np.ndarray | None:
    """Groups of dependent subjects without names, `[subjects]`, or None.

    Average linkage by the z of pairs; of its partitions the one with the largest z over
    all pairs within groups. It is compared with that of independent residuals. Subjects
    then move to the group that they depend on most, and groups that depend on each
    other merge.

    Independent residuals are those of responses drawn anew: a response s of variance w
    that may be right or wrong has one other value, -w / s, and stays what it is with
    chance w / (s^2 + w). Their products are skewed: two subjects who both fail an easy
    item agree much, which makes groups of hundreds of subjects with few items. Of other
    responses, and of fewer than `MANY` subjects, the signs are drawn.

    >>> rng = np.random.default_rng(0)
    >>> slope = np.repeat(rng.normal(size=(10, 200)), 2, axis=0)
    >>> one, part = np.ones((20, 200)), np.zeros(200, int)
    >>> residuals = residuals_of(slope, one, np.linspace(-1, 1, 20), part)
    >>> groups = search_groups(residuals)
    >>> bool((groups[::2] == groups[1::2]).all()), len(set(groups.tolist()))
    (True, 10)
    """
    count, size = residuals.slope.shape
    if not SEARCHED[0] <= count <= SEARCHED[1] or size < FEWEST:
        return None
    z = _pairs(residuals)
    best, groups = _partition(z)
    rng, null = np.random.default_rng(0), []
    for _ in range(FLIPS):
        drawn = _projected(residuals._replace(slope=_drawn(residuals, rng, is_binary)))
        null.append(_partition(_pairs(drawn))[0])
    # With few draws the spread of the maximum is uncertain: it is at least this.
    if best < np.mean(null) + ABOVE * max(float(np.std(null)), 0.25):
        return None
    return _refined(z, groups)


def _drawn(
    residuals: FreeSlopes, rng: np.random.Generator, is_binary: bool
) -> np.ndarray:
    """Slopes of independent responses with the same information."""
    slope, weight = residuals.raw, residuals.information
    if not is_binary or len(slope) < MANY:
        return residuals.slope * rng.choice([-1.0, 1.0], slope.shape)
    square = slope**2
    stays = rng.random(slope.shape) * (square + weight) <= weight
    other = -weight / np.where(slope == 0, np.inf, slope)
    return np.where(stays, slope, other)


def _pairs(residuals: FreeSlopes) -> np.ndarray:
    """Z of each pair of subjects, 0 on the diagonal."""
    slope, weight, basis, inverse, *_ = residuals
    size = weight @ weight.T
    excess = slope @ slope.T
    for a, first in enumerate(basis):
        for b, second in enumerate(basis):
            left = weight * first[:, None] * inverse[a, b]
            excess = excess + left @ (weight * second[:, None]).T
    z = excess / np.sqrt(np.maximum(size, 1e-12))
    np.fill_diagonal(z, 0.0)
    return z


def _partition(z: np.ndarray) -> tuple[float, np.ndarray]:
    """The largest z of a partition by average linkage, and its groups."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    count = len(z)
    apart = z.max() - (z + z.T) / 2
    np.fill_diagonal(apart, 0.0)
    members = [[k] for k in range(count)]
    total, pairs, best, chosen = 0.0, 0, -np.inf, np.arange(count)
    code = np.arange(count)
    for first, second, *_ in linkage(squareform(apart, checks=False), "average"):
        one, other = members[int(first)], members[int(second)]
        total += float(z[np.ix_(one, other)].sum())
        pairs += len(one) * len(other)
        members.append(one + other)
        code[other] = code[one[0]]
        if total / pairs**0.5 > best:
            best, chosen = total / pairs**0.5, code.copy()
    return best, chosen


def _merged(z: np.ndarray, codes: np.ndarray, mean: float) -> np.ndarray:
    """Groups after the pairs of groups that add to the log-likelihood are merged."""
    codes = np.unique(codes, return_inverse=True)[1]
    while True:
        onto = _indicator(codes)
        gain = onto.T @ (z - mean / 2) @ onto
        np.fill_diagonal(gain, 0.0)
        if len(gain) < 2 or gain.max() <= 0:
            return codes
        first, second = np.unravel_index(np.argmax(gain), gain.shape)
        codes = np.where(codes == second, first, codes)
        codes = np.unique(codes, return_inverse=True)[1]


def _refined(z: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Groups after subjects moved, and groups merged, to where dependence is largest.

    Of pairs within a group z is N(m, 1), of others N(0, 1): a pair within adds
    m z - m^2 / 2 to the log-likelihood. The mean of the pairs that were selected is too
    large an m, so a share of it is used.
    """
    codes = np.unique(groups, return_inverse=True)[1]
    for _ in range(SWEEPS):
        same, before = _same(codes), codes
        mean = SHARE * float(z[same].mean()) if same.any() else 0.0
        if mean <= 0:
            break
        codes = _merged(z, _moved(z, codes.copy(), mean), mean)
        if (_same(codes) == _same(before)).all():
            break
    return codes


def _same(codes: np.ndarray) -> np.ndarray:
    """Which subjects are two of one group."""
    same = codes[:, None] == codes
    np.fill_diagonal(same, False)
    return same


def _moved(z: np.ndarray, codes: np.ndarray, mean: float) -> np.ndarray:
    """Groups after each subject moved to where it adds most, or alone."""
    count = len(z)
    for k in range(count):
        others = np.arange(count) != k
        gain = np.bincount(codes[others], z[k, others] - mean / 2, 2 * count)
        best = int(np.argmax(gain))
        free = int(np.argmin(np.bincount(codes[others], minlength=2 * count)))
        codes[k] = best if gain[best] > 0 else free
    return codes
