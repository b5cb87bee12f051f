"""Ranks, pair tests and groups of many subjects against draws and against all pairs."""

import jax
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from irtjax.ranking import pairs, rank, rank_intervals
from irtjax.ranking.extremes import extremes
from irtjax.ranking.mixture import mixture_of, quantile_ranks
from irtjax.ranking.pair_counts import decisive_places, pair_counter
from irtjax.ranking.pairs import EXACT_SUBJECTS, checked, critical_z, groups_of

KEY = jax.random.key(4)
SIZE = 2500


def subjects(rank, seed=0, size=SIZE):
    """Abilities, errors that grow towards the ends, and smooth and rough loadings."""
    rng = np.random.default_rng(seed)
    theta = np.sort(0.93 * rng.normal(size=size))[::-1]
    own = 0.35 * rng.uniform(0.8, 1.3, size) * np.sqrt(1 + 0.2 * theta**2)
    if not rank:
        return theta, own, own, None
    columns = [0.3 * np.ones(size), 0.2 * theta]
    columns += [0.05 * np.sin((k + 1) * theta) for k in range(rank - 2)]
    shared = np.stack(columns, axis=1) + 0.02 * rng.normal(size=(size, rank))
    return theta, np.sqrt(own**2 + np.sum(shared**2, axis=1)), own, shared


def quantiles_of_sums(theta, error, i, level):
    """Ends of the rank interval of subject i by exact Poisson-binomial distributions.

    Given T_i the number above is a sum of independent events, whose distribution is a
    discrete Fourier transform; it is averaged over T_i by the trapezoid rule.
    """
    others = np.arange(theta.size) != i
    nodes = np.linspace(-5, 5, 51)
    weights = norm.pdf(nodes)
    weights /= weights.sum()
    place = np.arange(theta.size)
    turn = np.exp(-2j * np.pi * place / theta.size)
    mass = np.zeros(theta.size)
    for node, weight in zip(nodes, weights, strict=True):
        chance = ndtr((theta - theta[i] - node * error[i]) / error)[others]
        logs = np.zeros(theta.size, complex)
        for p in np.array_split(chance, 10):
            logs += np.log(1 - p[:, None] + p[:, None] * turn).sum(axis=0)
        mass += weight * np.fft.ifft(np.exp(logs)).real
    total = np.cumsum(mass)
    tail = (1 - level) / 2
    return 1 + np.searchsorted(total, tail), 1 + np.searchsorted(total, 1 - tail)


def test_expected_numbers_are_the_sums():
    theta, error, _, _ = subjects(0)
    mixture = mixture_of(theta, error, None)
    x = np.linspace(-4, 4, 41)
    chance = ndtr((theta[:, None] - x) / error[:, None])
    # Of 2,500 subjects; classes and bins are exact to the second order.
    np.testing.assert_allclose(mixture.number_above(x), chance.sum(0), atol=0.03)
    np.testing.assert_allclose(
        mixture.at(mixture.variance, x), (chance * (1 - chance)).sum(0), atol=0.03
    )
    mirror = mixture.mirrored()
    below = (1 - chance).sum(0)
    np.testing.assert_allclose(mirror.number_above(-x), below, atol=0.03)


def test_rank_intervals_are_those_of_poisson_binomial_sums():
    theta, error, _, _ = subjects(0, size=300)
    lower, upper = quantile_ranks(theta, mixture_of(theta, error, None), 0.9)
    for i in (90, 150):
        low, high = quantiles_of_sums(theta, error, i, 0.9)
        # One rank of rounding, one of the normal form of the number above.
        assert abs(lower[i] - low) <= 2 and abs(upper[i] - high) <= 2


SLOW = pytest.mark.slow
#: Two loadings are between none and sixteen.
LOADINGS = [0, pytest.param(2, marks=SLOW), 16]


@pytest.mark.parametrize("loadings", LOADINGS)
def test_rank_intervals_are_those_of_draws(loadings):
    theta, error, _, shared = subjects(loadings)
    found = rank_intervals(theta, error, key=KEY, shared=shared)
    draws = 8000
    other = rank_intervals(
        theta, error, key=jax.random.key(5), shared=shared, num_draws=draws
    )
    np.testing.assert_array_equal(found.rank, other.rank)
    width = np.maximum(other.rank_upper - other.rank_lower, 20)
    # The 2.5 % quantile of 8,000 draws has standard error sqrt(0.025 * 0.975 / 8000)
    # / 0.058 = 0.030 standard deviations, 0.0077 of the width; 2,500 subjects, not all
    # normal: 6 of them, and two ranks. Two sets of draws differ by 0.0095 on average.
    for name in ("rank_lower", "rank_upper"):
        difference = getattr(found, name) - getattr(other, name)
        assert np.abs(difference).max() < 2 + (6 * 0.0077 * width).max()
        assert np.mean(np.abs(difference) / width) < 0.012
        assert abs(np.mean(difference / width)) < 0.01
    best = other.probability_best
    tolerance = 5 * np.sqrt(np.maximum(best, 1e-3) * (1 / 4000 + 1 / draws))
    assert (np.abs(found.probability_best - best) < tolerance).all()
    assert found.probability_best.sum() == pytest.approx(1)
    # The top ranks, one by one.
    assert np.abs(found.rank_lower - other.rank_lower)[:30].max() <= 2
    assert np.abs(found.rank_upper - other.rank_upper)[-30:].max() <= 2


@pytest.mark.slow
def test_the_draws_of_the_top_have_the_chances_of_integrals():
    theta, error, _, _ = subjects(0, 1)
    found = extremes(
        theta, mixture_of(theta, error, None), 0.95, 40_000, np.random.default_rng(0)
    )
    assert found is not None
    # Steps of a twentieth of the least error: the trapezoid rule is exact.
    x = np.linspace(1, 8, 501)
    log_below = np.log(ndtr((x - theta[:, None]) / error[:, None]))
    density = norm.pdf(x, theta[:, None], error[:, None])
    exact = np.sum(density * np.exp(log_below.sum(0) - log_below), axis=1) * (
        x[1] - x[0]
    )
    assert exact.sum() == pytest.approx(1, abs=1e-3)
    tolerance = 5 * np.sqrt(np.maximum(exact, 1e-4) / 40_000)
    assert (np.abs(found.probability_best - exact) < tolerance).all()


def test_a_shift_that_all_share_changes_no_rank():
    theta, _, own, _ = subjects(0)
    shift = np.full((SIZE, 1), 3.0)
    alone = quantile_ranks(theta, mixture_of(theta, own, None), 0.95)
    moved = quantile_ranks(theta, mixture_of(theta, own, shift), 0.95)
    for there, here in zip(alone, moved, strict=True):
        assert np.abs(there - here).max() <= 2


@pytest.mark.parametrize("loadings", LOADINGS)
@pytest.mark.parametrize("level", [pytest.param(0.8, marks=SLOW), 0.95])
def test_pairs_and_groups_are_those_of_all_pairs(loadings, level):
    theta, error, own, shared = subjects(loadings, 3)
    _, errors = checked(theta, error, None, shared, level)
    mixture = mixture_of(theta, own, shared)
    every = pairs.pair_tests(theta, errors, None)
    critical, count = critical_z(every, 1 - level)
    near, nearly = critical_z(pairs.pair_tests(theta, errors, mixture), 1 - level)
    # Rough loadings enter as errors of their own.
    assert near == pytest.approx(critical, rel=2e-3)
    assert nearly == pytest.approx(count, rel=1.5e-2)
    # At one critical value the groups are those of all pairs.
    whole = groups_of(theta, errors, critical, None)
    found = groups_of(theta, errors, critical, mixture)
    for there, here in zip(whole, found, strict=True):
        np.testing.assert_array_equal(there, here)


def test_slots_of_ability_hardly_change_groups(monkeypatch):
    # Equal errors exclude nobody: then only slots bound the comparisons.
    size = 20_000
    rng = np.random.default_rng(2)
    theta = np.sort(rng.normal(size=size))[::-1]
    error = np.full(size, 0.3)
    assert decisive_places(theta, error, 2.4, sharing=False).size < size / 2
    _, errors = checked(theta, error, None, None, 0.95)
    found = groups_of(theta, errors, 2.4, mixture_of(theta, error, None))[:2]
    # By definition: a run ends before the first ability 2.4 errors below its first.
    ends = np.searchsorted(-theta, -(theta - 2.4 * 0.3 * np.sqrt(2)))
    begin, end = found[0], found[1]
    member = np.flatnonzero(begin[:-1] > end[0])[0]
    assert theta[0] - theta[member] == pytest.approx(2.4 * 0.3 * np.sqrt(2), rel=0.01)
    assert abs(member - ends[0]) < 0.01 * size


def test_counts_of_pairs():
    theta, error, _, _ = subjects(0, 5)
    count = pair_counter(theta, mixture_of(theta, error, None))
    upper = np.triu_indices(SIZE, 1)
    z = np.abs(theta[:, None] - theta) / np.hypot(error[:, None], error)
    for value in (0.5, 2.0, 4.0):
        assert count(value) == pytest.approx((z[upper] >= value).sum(), rel=5e-3)


def test_rank_intervals_of_many_hold_the_true_rank():
    # 20 sets of 2,500: each interval holds 95 %; ranks within a set are dependent, so
    # the standard error is taken from the sets.
    rng = np.random.default_rng(8)
    theta, error, own, shared = subjects(4)
    found = rank_intervals(theta, error, key=KEY, shared=shared)
    shares = []
    for _ in range(20):
        truth = theta + own * rng.normal(size=SIZE) + shared @ rng.normal(size=4)
        true = SIZE - truth.argsort().argsort()
        shares.append(np.mean((found.rank_lower <= true) & (true <= found.rank_upper)))
    error_of_mean = np.std(shares, ddof=1) / np.sqrt(20)
    assert abs(np.mean(shares) - 0.95) < 4 * error_of_mean + 0.002


@pytest.mark.slow
def test_order_of_subjects_changes_nothing():
    for size in (40, SIZE):
        theta, error, _, shared = subjects(2, size=size)
        mixed = np.random.default_rng(0).permutation(size)
        first = rank(theta, error, shared=shared, key=KEY)
        again = rank(theta[mixed], error[mixed], shared=shared[mixed], key=KEY)
        for name in ("rank_lower", "rank_upper", "probability_best", "first_group"):
            there, here = getattr(first, name)[mixed], getattr(again, name)
            np.testing.assert_array_equal(there, here)


def test_errors_of_zero_and_ties_among_many():
    size = EXACT_SUBJECTS + 100
    theta = np.linspace(1, -1, size)
    found = rank(theta, np.zeros(size), key=KEY)
    np.testing.assert_array_equal(found.rank_lower, np.arange(size) + 1)
    np.testing.assert_array_equal(found.rank_upper, np.arange(size) + 1)
    assert found.probability_best[0] == 1 and len(found.groups) == size
    half = np.where(np.arange(size) % 2, 0.0, 0.2)
    mixed = rank(theta, half, key=KEY)
    other = rank(theta, half, key=KEY, num_draws=2000)
    # Exact points keep the noise of the others only: 5 % of the widest interval.
    width = (other.rank_upper - other.rank_lower).max()
    assert np.abs(mixed.rank_lower - other.rank_lower).max() < 0.1 * width
    assert np.abs(mixed.rank_upper - other.rank_upper).max() < 0.1 * width
    same = rank(np.zeros(size), np.full(size, 0.2), key=KEY)
    assert same.rank.tolist() == [1] * size and len(same.groups) == 1
