"""Tests of all pairs of subjects, and the groups that they leave together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.ranking.mixture import Mixture
from irtjax.ranking.pair_counts import decisive_places, pair_counter

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float

#: Pairs in one block.
BLOCK = 2_000_000
#: Subjects up to which every pair is tested. 2,000 take 0.5 s; beyond, pairs are
#: counted from a histogram and `critical_z` differs by less than 0.001.
EXACT_SUBJECTS = 2000
#: Subjects from which on the error of the scale of ability is separated from others. By
#: the 2PL with it, 23 % of pairs of three equal subjects were significant at 5 %, and
#: 9 % of five.
LEAST_OF_SCALE = 5


class Pairs(NamedTuple):
    """All pairwise z-tests of rows less columns, two-sided.

    `p_adjusted` is by Benjamini and Hochberg over all pairs; `different` where that is
    at most 1 - level.
    """

    difference: Float[np.ndarray, "subjects subjects"]
    z: Float[np.ndarray, "subjects subjects"]
    p_value: Float[np.ndarray, "subjects subjects"]
    p_adjusted: Float[np.ndarray, "subjects subjects"]
    different: Bool[np.ndarray, "subjects subjects"]


class PairTests(NamedTuple):
    """How many pairs there are, and the function z -> how many have |z| >= z."""

    pairs: int
    number: Callable[[float], float]


class ScoreErrors(NamedTuple):
    """Standard errors `[subjects]`, and their covariance or the loadings of a part.

    With the loadings u `[subjects, rank]` the covariance of two scores is u_i'u_k, and
    each squared error includes u_i'u_i.
    """

    error: np.ndarray
    covariance: np.ndarray | None
    shared: np.ndarray | None

    def standard_error(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Standard errors of differences, `[rows, columns]`."""
        variance = self.error[rows, None] ** 2 + self.error[None, columns] ** 2
        if self.covariance is not None:
            variance = variance - 2 * self.covariance[np.ix_(rows, columns)]
        if self.shared is not None:
            variance = variance - 2 * self.shared[rows] @ self.shared[columns].T
        return np.sqrt(np.maximum(variance, 0))

    def at(self, rows: np.ndarray) -> ScoreErrors:
        """The errors of these subjects, in this order."""
        error, covariance, shared = self
        covariance = None if covariance is None else covariance[np.ix_(rows, rows)]
        return ScoreErrors(
            error[rows], covariance, None if shared is None else shared[rows]
        )

    def own(self) -> np.ndarray:
        """The part of each error that no other score shares, `[subjects]`."""
        if self.shared is None:
            return self.error
        rest = self.error**2 - np.einsum("ij,ij->i", self.shared, self.shared)
        return np.sqrt(np.maximum(rest, 0))


def leading_loadings(shared: np.ndarray, rank: int) -> np.ndarray:
    """The `rank` leading directions of loadings `[subjects, any]`, rotated.

    The rest counts as each subject's own error, which is cautious.
    """
    if shared.shape[1] <= rank:
        return shared
    _, vectors = np.linalg.eigh(shared.T @ shared)
    return shared @ vectors[:, ::-1][:, :rank]


def scale_loadings(ability: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """The part of shared errors that stretches all abilities alike, `[subjects]`.

    The unit of ability is the subjects' standard deviation, which n subjects give with
    a relative variance of 1 / (2 (n - 1)). It multiplies all differences and changes no
    order. With e the shared errors, of the loadings `shared` `[subjects, rank]`, g the
    abilities less their mean and c = g'e / g'g the stretch, the result is
    Cov(e, c) / sd(c): e given c has the covariance of e less the outer product of the
    result. Tests of equal abilities use that. Where c has a larger variance, the rest
    of it is the responses': whether subjects differ at all is not sure then, so it
    stays an error of differences, and the result is so much smaller. It is 0 with
    fewer than five subjects, whose differences are hardly more than a scale.

    >>> ability = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    >>> scale_loadings(ability, 0.2 * ability[:, None] + 0.1).round(3).tolist()
    [-0.3, -0.1, 0.1, 0.3, 0.5]
    >>> scale_loadings(ability, ability[:, None]).round(3).tolist()
    [-0.707, -0.354, 0.0, 0.354, 0.707]
    """
    gap = ability - ability.mean()
    stretch = gap @ shared
    size = np.sqrt(np.sum(stretch**2))
    if size == 0 or len(gap) < LEAST_OF_SCALE:
        return np.zeros_like(gap)
    of_unit = gap @ gap / np.sqrt(2 * (len(gap) - 1))
    return shared @ stretch / size * min(1.0, of_unit / size)


def without_scale(
    error: np.ndarray, shared: np.ndarray | None, scale: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Errors and loadings given the scale of ability: for all that depends on order.

    They are those of the covariance of the errors less the outer product of `scale`,
    the result of `scale_loadings`. Without loadings or a scale nothing changes.

    >>> shared = np.array([[-0.3], [0.0], [0.3]])
    >>> error, rest = without_scale(np.full(3, 0.5), shared, shared[:, 0])
    >>> error.round(3).tolist(), bool(abs(rest).max() < 1e-6)
    ([0.4, 0.5, 0.4], True)
    """
    if shared is None or scale is None:
        return error, shared
    # The loadings are the leading ones, which need not span the scale's: the positive
    # part of the difference of the two products is kept.
    basis, root = np.linalg.qr(np.column_stack([shared, scale]))
    signs = np.append(np.ones(shared.shape[1]), -1.0)
    values, vectors = np.linalg.eigh((root * signs) @ root.T)
    rest = basis @ (vectors * np.sqrt(np.maximum(values, 0)))
    own = error**2 - np.sum(shared**2, axis=1)
    return np.sqrt(np.maximum(own, 0) + np.sum(rest**2, axis=1)), rest


def pairwise(
    ability: Float[Array, " subjects"] | np.ndarray,
    standard_error: Float[Array, " subjects"] | np.ndarray,
    *,
    covariance: Float[Array, "subjects subjects"] | np.ndarray | None = None,
    shared: Float[Array, "subjects rank"] | np.ndarray | None = None,
    level: float = 0.95,
) -> Pairs:
    """All pairwise z-tests as matrices, for a few thousand subjects at most.

    Args:
        ability: Scores.
        standard_error: Their standard errors.
        covariance: Covariance of the scores; see `rank`.
        shared: Loadings of shared errors; see `rank`.
        level: 1 - the false discovery rate.

    Returns:
        The tests; `rank` uses the same ones without the matrices.

    Raises:
        ValueError: As for `rank`.

    >>> pairwise(np.array([0.0, 3.0]), np.ones(2)).z.round(3).tolist()
    [[0.0, -2.121], [2.121, 0.0]]
    """
    theta, errors = checked(ability, standard_error, covariance, shared, level)
    rows = np.arange(theta.size)
    z = z_rows(theta, errors, rows, rows)
    p_value = 2 * ndtr(-np.abs(z))
    upper = np.triu_indices(theta.size, 1)
    adjusted = np.ones_like(p_value)
    adjusted[upper] = adjusted.T[upper] = benjamini_hochberg(p_value[upper])
    difference = theta[:, None] - theta[None, :]
    return Pairs(difference, z, p_value, adjusted, adjusted <= 1 - level)


def checked(
    ability, error, covariance, shared, level
) -> tuple[np.ndarray, ScoreErrors]:
    """Abilities and their errors as float64, or a ValueError."""
    theta, error = np.asarray(ability, np.float64), np.asarray(error, np.float64)
    if theta.ndim != 1 or theta.size == 0:
        raise ValueError(f"abilities have shape {theta.shape}, not [subjects]")
    if error.shape != theta.shape:
        count = f"there are {theta.size} abilities"
        raise ValueError(f"{count} but standard errors of shape {error.shape}")
    bad = np.flatnonzero(~(np.isfinite(theta) & np.isfinite(error) & (error >= 0)))
    if bad.size:
        row = int(bad[0])
        raise ValueError(
            f"subject {row} has ability {theta[row]} and standard error {error[row]};"
            " leave out subjects without a finite score before ranking"
        )
    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")
    if shared is not None:
        if covariance is not None:
            raise ValueError("give either the covariance of the scores or its factor")
        shared = np.asarray(shared, np.float64)
        if shared.ndim != 2 or shared.shape[0] != theta.size:
            raise ValueError(
                f"shared loadings have shape {shared.shape}, not [{theta.size}, rank]"
            )
        if not np.isfinite(shared).all():
            raise ValueError("shared loadings are not all finite")
    if covariance is not None:
        covariance = np.asarray(covariance, np.float64)
        square = (theta.size, theta.size)
        if covariance.shape != square or not np.isfinite(covariance).all():
            shape = f"its shape is {covariance.shape}"
            raise ValueError(f"the covariance must be finite and {[*square]}; {shape}")
        error = np.sqrt(np.maximum(np.diagonal(covariance), 0))
    return theta, ScoreErrors(error, covariance, shared)


def z_rows(theta, errors: ScoreErrors, rows, columns) -> np.ndarray:
    """Each z; without any error, 0 for ties and a large number otherwise."""
    difference = theta[rows, None] - theta[None, columns]
    standard_error = errors.standard_error(rows, columns)
    # 1e-300 keeps the quotient of representable numbers finite after the clip.
    with np.errstate(over="ignore"):
        z = difference / np.maximum(standard_error, 1e-300)
    return np.clip(z, -1e6, 1e6)


def pair_tests(theta, errors: ScoreErrors, mixture: Mixture | None) -> PairTests:
    """Counts the pairs by |z|, one by one or, given a mixture, from its histogram."""
    size, pairs = theta.size, theta.size * (theta.size - 1) // 2
    if mixture is not None:
        return PairTests(pairs, pair_counter(theta, mixture))
    blocks, start = [], 0
    while start < size:
        stop = min(size, start + max(1, BLOCK // (size - start)))
        rows, columns = np.arange(start, stop), np.arange(start, size)
        z = np.abs(z_rows(theta, errors, rows, columns))
        blocks.append(z[columns > rows[:, None]])
        start = stop
    sizes = np.sort(np.concatenate(blocks))
    return PairTests(pairs, lambda z: pairs - np.searchsorted(sizes, z))


def critical_z(tests: PairTests, rate: float) -> tuple[float, int]:
    """Smallest significant |z| over all pairs, and how many pairs reach it.

    Benjamini and Hochberg's threshold is the largest t with t = rate k(t) / pairs, k(t)
    the number of p-values at most t. Iterating t <- rate k(t) / pairs from t = rate
    decreases to exactly that t, and needs only counts.
    """
    count = float(tests.pairs)
    while count >= 1:
        critical = -float(ndtri(rate * count / tests.pairs / 2))
        new = float(tests.number(critical))
        # Counts from a histogram are real: 1e-9 is 0.001 of a pair in a million.
        if new >= count * (1 - 1e-9):
            return critical, round(count)
        count = new
    return float("nan"), 0


def groups_of(theta, errors: ScoreErrors, critical, mixture: Mixture | None):
    """Longest runs, in descending order of ability, without a significant pair.

    The first and the last of each subject; where each begins and ends.
    """
    size = theta.size
    places = np.arange(size)
    reach = np.full(size, size)
    if not np.isnan(critical):
        decisive = places
        if mixture is not None:
            error, sharing = mixture.local_residual, errors.shared is not None
            decisive = decisive_places(theta, error, critical, sharing=sharing)
            theta, errors = theta[decisive], errors.at(decisive)
        first = _first_different(theta, errors, critical)
        hit = first < decisive.size
        reach[decisive[hit]] = decisive[first[hit]]
    # A run from place i ends before the first place that differs from any member.
    reach = np.minimum.accumulate(reach[::-1])[::-1]
    begins = np.flatnonzero(np.diff(reach, prepend=0) > 0)
    ends = reach[begins]
    first = np.searchsorted(ends, places, side="right")
    last = np.searchsorted(begins, places, side="right") - 1
    return first, last, list(zip(begins.tolist(), ends.tolist(), strict=True))


def _first_different(theta, errors: ScoreErrors, critical) -> np.ndarray:
    """The place of the first later one that differs from each, or their number."""
    size, rows_at_once = theta.size, 256
    first = np.full(size, size)
    own = errors.own() if errors.covariance is None else np.zeros(size)
    columns_at_once = max(1, BLOCK // (4 * rows_at_once))
    for start in range(0, size, rows_at_once):
        rows = np.arange(start, min(start + rows_at_once, size))
        # Nobody nearer than this gap can differ from any of the rows.
        gap = critical * np.hypot(own.min(), own[rows].min())
        limit = theta[start] - gap * (1 - 1e-9)
        begin = max(start, int(np.searchsorted(-theta, -limit)))
        while begin < size and rows.size:
            columns = np.arange(begin, min(begin + columns_at_once, size))
            z = np.abs(z_rows(theta, errors, rows, columns))
            hit = (z >= critical) & (columns > rows[:, None])
            differs = hit.any(axis=1)
            first[rows[differs]] = columns[hit.argmax(axis=1)[differs]]
            rows, begin = rows[~differs], begin + columns_at_once
    return first
