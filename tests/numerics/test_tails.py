"""Tail probabilities against scipy and enumeration."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from irtjax.numerics.tails import bennett_bound, permutation_tails, upper_tail


def test_tails():
    z = np.array([-1.0, 0.5, 3.0, 6.0])
    for skew in (-1.2, -0.01, 0.3, 2.0):
        expected = stats.pearson3.sf(z, skew)
        np.testing.assert_allclose(upper_tail(z, np.full(4, skew)), expected, 1e-6)
    np.testing.assert_allclose(upper_tail(z, np.zeros(4)), stats.norm.sf(z))
    # Of a binomial sum, centred: the bound is above the exact tail everywhere.
    n, p = 40, 0.2
    k = np.arange(9, 41)
    bound = bennett_bound(k - n * p, np.full(k.size, n * p * (1 - p)))
    assert (bound >= stats.binom.sf(k - 1, n, p)).all()


def test_permutation_p_values_of_few_subjects_are_exact():
    random = np.random.default_rng(1)
    right = random.random((9, 6)) < 0.5
    seen = random.random((9, 6)) < 0.9
    right &= seen
    score = random.integers(0, 4, (9, 6)).astype(float)
    upper, lower = permutation_tails(right, seen, score)
    for j in range(6):
        values = score[seen[:, j], j]
        size = int(right[:, j].sum())
        total = score[right[:, j], j].sum()
        if size in (0, values.size):
            assert upper[j] == lower[j] == 1
            continue
        sums = np.array([sum(x) for x in combinations(values, size)])
        assert upper[j] == pytest.approx(np.mean(sums >= total - 1e-9))
        assert lower[j] == pytest.approx(np.mean(sums <= total + 1e-9))


def test_permutation_p_values_of_many_subjects_hold_their_level():
    """At 1,000 tests an error of 1.4 % at 0.25; five of them, at three shares right."""
    random = np.random.default_rng(2)
    score = np.exp(random.standard_normal((200, 1))) * np.ones(3000)
    share = np.repeat([0.03, 0.5, 0.97], 1000)
    right = random.random((200, 3000)) < share
    tails = permutation_tails(right, np.ones_like(right), score)
    for p_value in tails:
        for part in range(3):
            some = p_value[part * 1000 : (part + 1) * 1000]
            for level in (0.01, 0.05, 0.25):
                error = np.sqrt(level * (1 - level) / 1000)
                assert np.mean(some <= level) < level + 5 * error
