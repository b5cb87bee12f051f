"""Simulation-based calibration: whether a sampler draws from the right posterior.

Parameters are drawn from the prior, data given these, and independent draws from the
posterior given the data. Truth and draws are then exchangeable, so the rank of the
truth among the draws is uniform, for every quantity (Talts, Betancourt, Simpson,
Vehtari and Gelman 2018). An error in prior, simulator, density or sampler makes it
non-uniform.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from irtjax._types import KeyArray

#: Fewest ranks that a bin of the chi-square test should expect.
FEWEST_EXPECTED = 10
#: Most bins of either test.
MOST_BINS = 20


def rank_statistics(
    draws, truth, *, key: KeyArray | None = None
) -> Int[np.ndarray, "replicates ..."]:
    """How many posterior draws are below the truth, in each replicate.

    Args:
        draws: `[replicates, draws, ...]`, nearly independent: thin a chain until so.
        truth: `[replicates, ...]` the parameters that the data were drawn with.
        key: Random key, required only where draws equal the truth, as those of counts
            do: the truth then takes a random place among them.

    Returns:
        Ranks 0 to `draws`, for `uniformity`.

    Raises:
        ValueError: If the shapes do not match, a number is not finite, or there are
            ties and no key.

    >>> rank_statistics([[0.1, 0.2, 0.3]], [0.25]).tolist()
    [2]
    """
    draws, truth = np.asarray(draws, float), np.asarray(truth, float)
    if draws.ndim < 2 or draws[:, 0].shape != truth.shape:
        raise ValueError(
            f"rank_statistics: draws {draws.shape} and truth {truth.shape} do not"
            " match; they are [replicates, draws, ...] and [replicates, ...]"
        )
    if not (np.isfinite(draws).all() and np.isfinite(truth).all()):
        raise ValueError(
            "rank_statistics: a draw or a true value is not finite; leave such"
            " replicates out and report how many"
        )
    below = np.sum(draws < truth[:, None], axis=1)
    ties = np.sum(draws == truth[:, None], axis=1)
    if ties.any():
        if key is None:
            raise ValueError(
                "rank_statistics: draws equal the truth; pass key=, to place the"
                " truth among them at random"
            )
        import jax

        place = jax.random.randint(key, below.shape, 0, ties + 1)
        below = below + np.asarray(place, below.dtype)
    return below


class Uniformity(NamedTuple):
    """Summaries of the ranks of a sampler, each of a quantity's shape but `counts`.

    Attributes:
        counts: Ranks in each of equal bins.
        chi_square_p: P-value of the chi-square test over the bins: any departure.
        ecdf_p: P-value of the largest departure of the empirical distribution function
            from the uniform: gradual departures, such as a bias, and the ends.
        mean: Mean of (rank + 1/2) / (draws + 1); above 1/2 draws are too low.
        sd_ratio: Standard deviation of the ranks over that of uniform ones; above 1 the
            posterior is too narrow, below 1 too wide.
    """

    counts: Int[np.ndarray, "bins ..."]
    chi_square_p: Float[np.ndarray, "..."]
    ecdf_p: Float[np.ndarray, "..."]
    mean: Float[np.ndarray, "..."]
    sd_ratio: Float[np.ndarray, "..."]

    @property
    def smallest_p(self) -> float:
        """The smallest p-value of all tests, times their number (Bonferroni)."""
        tests = np.concatenate([np.ravel(self.chi_square_p), np.ravel(self.ecdf_p)])
        return float(min(tests.min() * tests.size, 1.0))


def uniformity(ranks, num_draws: int, *, num_bins: int | None = None) -> Uniformity:
    """Tests of ranks for uniformity, for all quantities at once.

    The empirical distribution function is tested at the ends of the bins, each by the
    binomial probability of a count as extreme; the smallest of these has a distribution
    that a recursion over the bins gives exactly (Saeilynoja, Buerkner and Vehtari 2022,
    Section 3). Quantities of one posterior depend on each other: `smallest_p` is the
    smallest p-value times the number of tests, which is valid under any dependence.

    Args:
        ranks: `[replicates, ...]`, from `rank_statistics`.
        num_draws: Draws of each replicate.
        num_bins: Bins, a divisor of `num_draws` + 1; when None the largest with 10
            ranks to a bin, and at most 20.

    Returns:
        The tests. A `smallest_p` of 1e-4 or less, or below 0.01 in two runs, shows an
        error.

    Raises:
        ValueError: If a rank is out of range, or the bins do not divide the ranks.

    >>> fine = uniformity(np.arange(200) % 100, 99)
    >>> bool(fine.ecdf_p > 0.9), float(fine.mean)
    (True, 0.5)
    >>> bool(uniformity(np.repeat([0, 99], 100), 99).ecdf_p < 1e-9)
    True
    """
    from scipy import stats

    ranks = np.asarray(ranks)
    if ranks.size and not (0 <= ranks.min() and ranks.max() <= num_draws):
        raise ValueError(
            f"uniformity: ranks go from {ranks.min()} to {ranks.max()}; among"
            f" {num_draws} draws they go from 0 to {num_draws}"
        )
    count, places = ranks.shape[0], num_draws + 1
    if num_bins is None:
        most = min(MOST_BINS, max(count // FEWEST_EXPECTED, 2))
        divisors = [n for n in range(2, most + 1) if places % n == 0]
        num_bins = max(divisors, default=places)
    if places % num_bins:
        raise ValueError(
            f"uniformity: {num_bins} bins do not divide the {places} ranks that"
            f" {num_draws} draws have; keep a number of draws such as 99 or 199"
        )
    bins = ranks * num_bins // places
    counts = np.stack([np.sum(bins == k, axis=0) for k in range(num_bins)])
    expected = count / num_bins
    chi_square = np.sum((counts - expected) ** 2, axis=0) / expected
    return Uniformity(
        counts,
        np.asarray(stats.chi2.sf(chi_square, num_bins - 1)),
        _ecdf(np.cumsum(counts, axis=0)[:-1], count),
        (ranks.mean(axis=0) + 0.5) / places,
        ranks.std(axis=0) / np.sqrt((places**2 - 1) / 12),
    )


def _ecdf(below: np.ndarray, total: int) -> np.ndarray:
    """P-values of counts `[bins - 1, ...]` up to the end of each bin but the last."""
    from scipy import stats

    num_bins = len(below) + 1
    flat = below.reshape(len(below), -1)
    share = np.arange(1, num_bins)[:, None] / num_bins
    possible = np.arange(total + 1)
    # Twice the smaller binomial tail, either with the count itself; at most 1.
    lower = stats.binom.cdf(possible, total, share)
    upper = stats.binom.sf(possible - 1, total, share)
    extreme = np.minimum(2 * np.minimum(lower, upper), 1)
    # Probability of the most extreme count of each quantity, by itself.
    rarest = np.take_along_axis(extreme, flat, axis=1).min(axis=0)
    # Probability of every count so far with none as rare as that: bin by bin, each of
    # the remaining ranks falls into the next bin with a known probability.
    state = np.zeros((flat.shape[1], total + 1))
    state[:, 0] = 1.0
    for k in range(num_bins - 1):
        more = possible[None] - possible[:, None]
        chance = 1 / (num_bins - k)
        move = stats.binom.pmf(more, total - possible[:, None], chance)
        # Counts that are as rare up to rounding are excluded too.
        state = (state @ move) * (extreme[k] > rarest[:, None] * (1 + 1e-9))
    left_out = 1 - np.minimum(state.sum(axis=1), 1)
    # Below rounding of the sum: a bound, the sum of the probabilities over bins.
    bound = np.minimum(rarest * (num_bins - 1), 1)
    found = np.where(left_out > 1e-10, left_out, np.minimum(bound, 1e-10))
    return found.reshape(below.shape[1:])
