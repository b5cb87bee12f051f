"""Ranks and rank correlations, against SciPy."""

import numpy as np
import pytest
from scipy import stats

from irtjax.numerics import order


@pytest.mark.parametrize("size", [2, 9, 60, 2100])
@pytest.mark.parametrize("levels", [3, 10_000])
def test_ranks_and_correlations_are_those_of_scipy(size, levels):
    rng = np.random.default_rng(size)
    first, second = rng.integers(levels, size=(2, size)).astype(float)
    first[:2], second[:2] = (0, 1), (1, 0)
    assert order.average_ranks(first).tolist() == stats.rankdata(first).tolist()
    tau, rho = stats.kendalltau(first, second), stats.spearmanr(first, second)
    # Sums of whole numbers: a few roundings.
    assert order.kendall(first, second) == pytest.approx(tau.statistic, abs=1e-12)
    assert order.spearman(first, second) == pytest.approx(rho.statistic, abs=1e-12)


def test_without_variation_there_is_no_correlation():
    assert np.isnan(order.kendall(np.ones(4), np.arange(4.0)))
