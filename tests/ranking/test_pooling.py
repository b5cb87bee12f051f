"""Partial pooling of estimates, against published numbers and simulation."""

import jax
import numpy as np
import pytest

from irtjax.ranking import rank, rank_intervals
from irtjax.ranking.pooling import pooled_means, spread_of

# Rubin (1981), "Estimation in parallel randomized experiments", Table 1.
EFFECT = np.array([28.39, 7.94, -2.75, 6.82, -0.64, 0.63, 18.01, 12.16])
ERROR = np.array([14.9, 10.2, 16.3, 11.0, 9.4, 11.4, 10.4, 17.6])


def test_eight_schools():
    spread = spread_of(EFFECT, ERROR)
    mean, error = pooled_means(EFFECT, ERROR)
    # Gelman et al. (2013), Table 5.3: medians 10, 8, 6, 7, 5, 6, 10, 8, and of school A
    # an interval of -2 to 31; draws there have errors of about 0.5.
    assert mean == pytest.approx([11.4, 7.9, 6.2, 7.6, 5.1, 6.1, 10.6, 8.4], abs=0.6)
    assert error[0] == pytest.approx(8.3, abs=0.6)
    # The density of tau falls from 0 on (figure 5.5).
    assert spread.weight[0] > spread.weight[60] > spread.weight[120]


def test_draws_have_the_moments_of_the_posterior():
    """P(best) of two of many against the normal posterior by quadrature over tau."""
    found = rank_intervals(
        EFFECT, ERROR, key=jax.random.key(0), num_draws=40_000, pooled=True
    )
    rng = np.random.default_rng(0)
    spread = spread_of(EFFECT, ERROR)
    tau = rng.choice(spread.tau, 40_000, p=spread.weight)[:, None]
    kept = tau**2 / (tau**2 + ERROR**2)
    middle = spread.mean[np.searchsorted(spread.tau, tau[:, 0])][:, None]
    noise = rng.normal(size=(len(tau), 8)) * ERROR
    draws = middle + kept * (EFFECT - middle) + kept**0.5 * noise
    best = np.bincount(draws.argmax(axis=1), minlength=8) / len(tau)
    assert found.probability_best == pytest.approx(best, abs=0.015)


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0])
def test_rank_intervals_of_estimates_cover(spread):
    """Around the estimates of nearly equal subjects they would cover about 75 %."""
    rng = np.random.default_rng(0)
    covered, plain = [], []
    for _ in range(20):
        # Equal ones are a limit: then every rank is a true one.
        truth = (spread or 1e-6) * rng.normal(size=60)
        estimate = truth + rng.normal(size=60)
        places = (-truth).argsort().argsort() + 1
        for pooled, into in ((True, covered), (False, plain)):
            found = rank_intervals(
                estimate, np.ones(60), key=jax.random.key(0), pooled=pooled
            )
            low, high = found.rank_lower, found.rank_upper
            into.append(np.mean((low <= places) & (places <= high)))
    assert np.mean(covered) > 0.95 - 2 * (0.95 * 0.05 / 1200) ** 0.5
    assert spread > 1 or np.mean(plain) < 0.9


def test_what_moves_all_scores_alike_is_no_error_of_ranks():
    ability, error = np.arange(5.0), np.full(5, 0.5)
    options = {"key": jax.random.key(0), "pooled": True}
    alone = rank(ability, error, **options)
    moved = rank(ability, np.sqrt(error**2 + 9), shared=np.full((5, 1), 3.0), **options)
    assert alone.rank_upper.tolist() == moved.rank_upper.tolist()
    assert alone.probability_best == pytest.approx(moved.probability_best, abs=1e-9)


def test_two_are_not_pooled():
    options = {"key": jax.random.key(0)}
    found = rank(np.array([0.0, 1.0]), np.ones(2), pooled=True, **options)
    plain = rank(np.array([0.0, 1.0]), np.ones(2), **options)
    assert (found.probability_best == plain.probability_best).all()


def test_many_subjects_are_pooled_too():
    rng = np.random.default_rng(0)
    estimate = rng.normal(size=2100) * 2**0.5
    found = rank_intervals(estimate, np.ones(2100), key=jax.random.key(0), pooled=True)
    middle = np.abs(estimate).argmin()
    width = found.rank_upper[middle] - found.rank_lower[middle]
    # With tau = 1 the middle one is N(0, 1/2) among N(0, 1): a share of .83.
    assert width / 2100 == pytest.approx(0.834, abs=0.03)
