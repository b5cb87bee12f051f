"""Correlation of trials: SciPy's likelihood, its ends, and its error by simulation."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import betabinom

from irtjax.numerics.dispersion import LARGEST, intraclass


def drawn(rng, icc, shape=(60, 30), trials=4):
    chance = rng.beta(2, 2, shape)
    rest = (1 - icc) / icc if icc else np.inf
    own = rng.beta(chance * rest, (1 - chance) * rest) if icc else chance
    count = np.full(shape, trials)
    count[rng.random(shape) < 0.1] = 0
    return chance, rng.binomial(count, own), count


def test_it_is_the_maximum_of_scipys_likelihood():
    chance, right, trials = drawn(np.random.default_rng(0), 0.3)
    seen = trials > 0

    def loss(icc):
        rest = (1 - icc) / icc
        law = betabinom(trials[seen], chance[seen] * rest, (1 - chance[seen]) * rest)
        return -law.logpmf(right[seen]).sum()

    best = minimize_scalar(loss, bounds=(0.01, 0.9), method="bounded")
    found = intraclass(chance, right, trials)
    assert found is not None
    assert found.icc == pytest.approx(best.x, abs=1e-4)
    assert found.num_cells == seen.sum()


@pytest.mark.parametrize("icc", [0.0, 0.05, 0.4, 0.9])
def test_errors_are_the_spread(icc):
    """40 data sets: a standard deviation is known within 11 %, here within three."""
    rng = np.random.default_rng(1)
    found = [intraclass(*drawn(rng, icc)) for _ in range(40)]
    estimates = np.array([x.icc for x in found if x is not None])
    errors = np.array([x.standard_error for x in found if x is not None])
    assert abs(estimates.mean() - icc) < 4 * errors.mean() / 40**0.5
    if icc:
        assert 0.67 < errors.mean() / estimates.std(ddof=1) < 1.5
    else:  # Half of the estimates are 0, and the others half a normal distribution.
        assert 0.2 < (estimates == 0).mean() < 0.8
        assert (estimates < 3.5 * errors).all() and errors.max() < 0.02


def test_the_ends_and_few_subjects_have_an_error():
    rng = np.random.default_rng(2)
    half, four = np.full((30, 20), 0.5), np.full((30, 20), 4)
    equal = intraclass(half, 4 * rng.integers(0, 2, four.shape), four)
    assert equal is not None and equal.icc == LARGEST
    assert 0 < equal.standard_error < 0.01
    chance, right, trials = drawn(rng, 0.4, (1, 40))
    one = intraclass(chance, right, trials)
    assert one is not None and 0.03 < one.standard_error < 0.3
    assert intraclass(half, four * 0, four * 0 + 1) is None


def test_many_trials_are_thinned():
    chance, right, trials = drawn(np.random.default_rng(3), 0.2, (40, 20), 500)
    found = intraclass(chance, right, trials)
    assert found is not None
    assert abs(found.icc - 0.2) < 4 * found.standard_error < 0.06
