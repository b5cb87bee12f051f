"""Ranks of the truth: uniform for a right posterior, caught where it is wrong."""

import doctest
import itertools

import jax
import numpy as np
import pytest
from scipy import stats

from experiments.lego_irt import sbc
from experiments.lego_irt.sbc import rank_statistics, uniformity

REPLICATES, DRAWS = 200, 99


def normal_posteriors(shift=0.0, width=1.0, seed=0):
    """Ranks for x ~ N(mu, 1), mu ~ N(0, 1): the posterior is N(x / 2, 1 / 2).

    `shift` and `width`, in standard deviations of it, make draws from a wrong one.
    """
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(REPLICATES, 2))
    data = truth + rng.normal(size=truth.shape)
    noise = width * rng.normal(size=(REPLICATES, DRAWS, 2)) + shift
    return rank_statistics(data[:, None] / 2 + np.sqrt(0.5) * noise, truth)


def test_the_right_posterior_passes():
    found = uniformity(normal_posteriors(), DRAWS)
    # Four tests of a right posterior: below 1e-3 once in a thousand seeds, and the seed
    # is fixed.
    assert found.smallest_p > 1e-3
    assert found.counts.shape == (20, 2) and (found.counts.sum(axis=0) == 200).all()
    # Mean and spread of 200 uniform numbers: standard errors 0.020 and 0.032.
    np.testing.assert_allclose(found.mean, 0.5, atol=5 * 0.0204)
    np.testing.assert_allclose(found.sd_ratio, 1, atol=5 * 0.032)


def test_a_posterior_too_narrow_too_wide_or_off_is_caught():
    narrow = uniformity(normal_posteriors(width=0.6), DRAWS)
    assert narrow.smallest_p < 1e-4 and (narrow.sd_ratio > 1.1).all()
    wide = uniformity(normal_posteriors(width=1.5), DRAWS)
    assert wide.smallest_p < 1e-4 and (wide.sd_ratio < 0.9).all()
    # Draws too high: ranks too low.
    high = uniformity(normal_posteriors(shift=0.5), DRAWS)
    assert high.smallest_p < 1e-4 and (high.mean < 0.4).all()


def test_probabilities_of_the_empirical_distribution_are_exact():
    # All 4^5 equally likely sequences of ranks, one by one.
    every = np.array(list(itertools.product(range(4), repeat=5))).T
    found = uniformity(every, 3, num_bins=4)
    # A p-value is at most p with a probability of at most p, and is met exactly where
    # it can be: it is the share of sequences at least as extreme.
    for p in np.unique(found.ecdf_p.round(12)):
        share = np.mean(found.ecdf_p < p * (1 + 1e-9) + 1e-12)
        assert share == pytest.approx(p, abs=1e-9)
    statistic = ((found.counts - 5 / 4) ** 2).sum(axis=0) / (5 / 4)
    np.testing.assert_allclose(found.chi_square_p, stats.chi2.sf(statistic, 3))


def test_ties_and_what_cannot_be_ranked():
    draws, truth = np.zeros((400, 3)), np.zeros(400)
    with pytest.raises(ValueError, match="draws equal the truth; pass key="):
        rank_statistics(draws, truth)
    ranks = rank_statistics(draws, truth, key=jax.random.key(0))
    assert uniformity(ranks, 3, num_bins=4).smallest_p > 1e-3
    with pytest.raises(ValueError, match="not finite; leave such"):
        rank_statistics(draws, truth + np.nan)
    with pytest.raises(ValueError, match="do not match"):
        rank_statistics(draws, truth[1:])
    with pytest.raises(ValueError, match="7 bins do not divide the 100 ranks"):
        uniformity(ranks, 99, num_bins=7)
    with pytest.raises(ValueError, match="among 2 draws they go from 0 to 2"):
        uniformity(ranks, 2)


def test_the_examples_print_what_they_show():
    assert doctest.testmod(sbc) == (0, 4)
