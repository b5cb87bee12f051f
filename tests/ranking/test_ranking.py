"""Ranks, tests of pairs and groups against definitions, scipy and exact integrals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binomtest, false_discovery_control, norm

import irtjax
from irtjax.data.responses import Responses
from irtjax.ranking import compare, pairs, pairwise, rank, ranks

KEY = jax.random.key(2)


def spread_out(size, seed=0, error=0.3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=size), error * rng.uniform(0.5, 1.5, size)


def test_ranks_count_the_higher():
    theta = np.array([0.3, 1.2, 0.3, -1.0, 1.2])
    result = rank(theta, np.full(5, 0.1), key=KEY)
    assert result.rank.tolist() == [3, 1, 3, 5, 1]


def test_two_subjects_have_the_exact_chance_of_being_best():
    theta, error = np.array([0.5, 0.0]), np.array([0.6, 0.3])
    draws = 40_000
    result = rank(theta, error, key=KEY, num_draws=draws)
    exact = norm.cdf(0.5 / np.hypot(0.6, 0.3))
    tolerance = 4.5 * np.sqrt(exact * (1 - exact) / draws)
    assert result.probability_best[0] == pytest.approx(exact, abs=tolerance)
    assert result.probability_best.sum() == pytest.approx(1)
    both = compare(theta, error, 0, 1)
    assert both.probability_greater == pytest.approx(exact, abs=1e-12)


def test_probability_best_is_an_integral():
    theta, error = spread_out(6, 3, 0.8)
    draws = 40_000
    result = rank(theta, error, key=KEY, num_draws=draws)
    for i in range(6):
        others = [j for j in range(6) if j != i]

        def density(t, i=i, others=others):
            below = norm.cdf(t, theta[others], error[others])
            return norm.pdf(t, theta[i], error[i]) * below.prod()

        exact = quad(density, theta[i] - 9 * error[i], theta[i] + 9 * error[i])[0]
        tolerance = 4.5 * np.sqrt(exact * (1 - exact) / draws) + 1e-9
        assert result.probability_best[i] == pytest.approx(exact, abs=tolerance)


def test_rank_intervals_hold_the_true_rank():
    # The truth drawn around the scores, as the intervals suppose: a 90 % interval of a
    # discrete rank holds at least 90 % on average. Over 200 data sets of 30 subjects
    # that depend on each other, the mean coverage has standard error below 0.01.
    rng = np.random.default_rng(1)
    theta, error = spread_out(30, 5)
    result = rank(theta, error, key=KEY, level=0.9)
    truth = theta + error * rng.normal(size=(200, 30))
    true_rank = 30 - truth.argsort(axis=1).argsort(axis=1)
    inside = (result.rank_lower <= true_rank) & (true_rank <= result.rank_upper)
    assert inside.mean() > 0.9 - 0.03
    assert (result.rank_lower <= result.rank).all()
    assert (result.rank <= result.rank_upper).all()
    # Not trivially wide: independent scores this precise fix ranks to about a third.
    assert (result.rank_upper - result.rank_lower).mean() < 15


def test_intervals_and_chances_of_being_best_agree():
    # 2,000 true orders of 10 subjects with shared and other errors of many sizes. The
    # truths are drawn as the intervals suppose; the binomial standard error of 2,000
    # sets is 0.005 for one subject, and no more for the mean over ten.
    rng = np.random.default_rng(11)
    inside, top = [], []
    for seed in range(200):
        theta, own = spread_out(10, seed, error=0.1 + rng.gamma(1.0))
        shared = rng.normal(size=(10, 2)) * rng.gamma(1.0)
        error = np.sqrt(own**2 + np.sum(shared**2, axis=1))
        found = rank(
            theta, error, shared=shared, key=jax.random.key(seed), num_draws=2000
        )
        # At most 2.5 % are left out at either end.
        assert (found.rank_lower[found.probability_best > 0.0255] == 1).all()
        assert (
            found.rank_upper[found.probability_best > 0.9755]
            == found.rank[found.probability_best > 0.9755]
        ).all()
        noise = own * rng.normal(size=(10, 10)) + rng.normal(size=(10, 2)) @ shared.T
        true = 10 - (theta + noise).argsort(axis=1).argsort(axis=1)
        held = (found.rank_lower <= true) & (true <= found.rank_upper)
        inside.append(held.mean(axis=1))
        top.append(held[:, found.rank.argmin()])
    assert np.mean(inside) > 0.95 - 3 * 0.005
    assert np.mean(top) > 0.95 - 3 * 0.005


def test_no_error_gives_certain_ranks():
    theta = np.array([0.0, 2.0, 1.0, 2.0])
    result = rank(theta, np.zeros(4), key=KEY)
    # The two at the top are tied: half each, and ranks 1 or 2.
    assert result.probability_best.tolist() == [0, 0.5, 0, 0.5]
    assert result.rank_lower.tolist()[0] == result.rank_upper.tolist()[0] == 4
    assert result.num_different == 5
    assert [sorted(g.tolist()) for g in result.groups] == [[1, 3], [2], [0]]


def test_equal_abilities_and_single_subjects():
    same = rank(np.zeros(5), np.full(5, 0.2), key=KEY)
    assert same.rank.tolist() == [1] * 5
    assert len(same.groups) == 1 and same.num_different == 0
    assert np.isnan(same.critical_z)
    np.testing.assert_allclose(same.probability_best, 0.2, atol=4.5 * 0.4 / 60)
    one = rank(np.array([3.0]), np.array([1.0]), key=KEY)
    assert one.rank.tolist() == one.rank_upper.tolist() == [1]
    assert one.probability_best.tolist() == [1.0]
    assert [g.tolist() for g in one.groups] == [[0]]


def test_same_key_same_ranking():
    theta, error = spread_out(20)
    first, again = (rank(theta, error, key=KEY) for _ in range(2))
    np.testing.assert_array_equal(first.probability_best, again.probability_best)
    other = rank(theta, error, key=jax.random.key(9))
    assert (first.probability_best != other.probability_best).any()


@pytest.mark.parametrize("error", [0.05, 0.3, 3.0])
def test_pairs_match_scipys_false_discovery_control(error):
    theta, errors = spread_out(40, 7, error)
    result = pairwise(theta, errors, level=0.9)
    upper = np.triu_indices(40, 1)
    z = (theta[:, None] - theta) / np.hypot(errors[:, None], errors)
    np.testing.assert_allclose(result.z, z, rtol=1e-12)
    p_value = 2 * norm.sf(np.abs(z[upper]))
    adjusted = false_discovery_control(p_value, method="bh")
    np.testing.assert_allclose(result.p_adjusted[upper], adjusted, rtol=1e-9)
    np.testing.assert_array_equal(result.p_adjusted, result.p_adjusted.T)
    whole = rank(theta, errors, key=KEY, level=0.9)
    assert whole.num_different == (adjusted <= 0.1).sum()
    assert whole.num_pairs == 780


def brute_force_groups(order, different):
    """Runs in order without a significant pair, those inside a longer one left out."""
    size = len(order)
    runs = [
        (i, j)
        for i in range(size)
        for j in range(i, size)
        if not different[np.ix_(order[i : j + 1], order[i : j + 1])].any()
    ]
    longest = [
        (i, j)
        for i, j in runs
        if not any((a <= i and j <= b) and (a, b) != (i, j) for a, b in runs)
    ]
    return [order[i : j + 1].tolist() for i, j in longest]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-20, 20).map(lambda x: x / 10),
            st.integers(1, 30).map(lambda x: x / 20),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_groups_are_the_longest_runs_without_a_difference(rows):
    theta, error = (np.array(column) for column in zip(*rows, strict=True))
    result = rank(theta, error, key=KEY, level=0.8, num_draws=10)
    order = np.argsort(-theta, kind="stable")
    different = pairwise(theta, error, level=0.8).different
    assert [g.tolist() for g in result.groups] == brute_force_groups(order, different)
    for subject in range(theta.size):
        inside = [n for n, g in enumerate(result.groups) if subject in g]
        assert inside[0] == result.first_group[subject]
        assert inside[-1] == result.last_group[subject]
        assert len(inside) == inside[-1] - inside[0] + 1


def test_small_blocks_change_nothing(monkeypatch):
    theta, error = spread_out(50)
    whole = rank(theta, error, key=KEY)
    monkeypatch.setattr(pairs, "BLOCK", 120)
    parts = rank(theta, error, key=KEY)
    for there, here in zip(whole[:6], parts[:6], strict=True):
        np.testing.assert_array_equal(there, here)
    # The chunks of draws have generators of their own: equal but for simulation error,
    # whose standard deviation here is below 0.5 / sqrt(4000) for P(best).
    monkeypatch.setattr(ranks, "CHUNK", 50 * 7)
    parts = rank(theta, error, key=KEY)
    np.testing.assert_array_equal(whole.rank, parts.rank)
    assert np.abs(whole.rank_lower - parts.rank_lower).max() <= 1
    assert np.abs(whole.rank_upper - parts.rank_upper).max() <= 1
    best = np.abs(whole.probability_best - parts.probability_best)
    assert best.max() < 5 * np.sqrt(2) * 0.5 / np.sqrt(4000)
    assert whole.critical_z == parts.critical_z
    assert whole.num_different == parts.num_different


def test_shared_error_cancels_in_differences():
    theta = np.array([1.0, 0.8, 0.0])
    own, shared = 0.05, 2.0
    covariance = np.eye(3) * own**2 + shared**2
    error = np.sqrt(np.diagonal(covariance))
    apart = compare(theta, error, 0, 1)
    together = compare(theta, error, 0, 1, covariance=covariance)
    assert apart.p_value > 0.9
    assert together.standard_error == pytest.approx(own * np.sqrt(2))
    assert together.p_value < 0.01
    result = rank(theta, error, key=KEY, covariance=covariance)
    assert result.num_different == 3 and result.rank_upper.tolist() == [1, 2, 3]
    # The same error as a factor.
    loading = np.full((3, 1), shared)
    factored = compare(theta, error, 0, 1, shared=loading)
    assert factored.z == pytest.approx(together.z, rel=1e-6)
    matrix, factor = (
        rank(theta, error, key=KEY, **{name: value})
        for name, value in {"covariance": covariance, "shared": loading}.items()
    )
    assert factor.rank_upper.tolist() == matrix.rank_upper.tolist()
    assert factor.num_different == 3
    tests = pairwise(theta, error, shared=loading)
    np.testing.assert_allclose(tests.z[0, 1], together.z, rtol=1e-6)
    singular = np.full((3, 3), 1.0)
    certain = rank(theta, error, key=KEY, covariance=singular)
    np.testing.assert_allclose(certain.probability_best, [1, 0, 0], atol=1e-3)


def test_compare_two_subjects():
    theta, error = np.array([1.0, 0.2, 0.0]), np.array([0.3, 0.4, 0.1])
    result = compare(theta, error, 0, 1, level=0.9)
    assert result.difference == pytest.approx(0.8)
    assert result.standard_error == pytest.approx(0.5)
    assert result.z == pytest.approx(1.6)
    assert result.p_value == pytest.approx(2 * norm.sf(1.6))
    half = norm.ppf(0.95) * 0.5
    assert (result.lower, result.upper) == pytest.approx((0.8 - half, 0.8 + half))
    back = compare(theta, error, 1, 0)
    assert back.z == pytest.approx(-1.6)
    assert back.probability_greater == pytest.approx(1 - result.probability_greater)
    assert result.shared is None


def test_compare_counts_shared_items():
    values = jnp.array([[1, 1, 1, 0, 1, 0, 1], [1, 0, 0, 0, 0, 1, 1]], jnp.int8)
    seen = jnp.array([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0]], bool)
    data = Responses(values * seen, seen)
    result = compare(np.zeros(2), np.ones(2), 0, 1, data=data)
    assert (result.shared, result.right_first, result.right_second) == (6, 4, 2)
    assert (result.only_first, result.only_second) == (3, 1)
    assert result.sign_p_value == pytest.approx(binomtest(3, 4).pvalue)
    complete = compare(np.zeros(2), np.ones(2), 0, 1, data=Responses(values))
    assert (complete.shared, complete.only_first) == (7, 3)


def test_compare_uses_rates_for_counts_of_trials():
    values = jnp.array([[3, 2, 0], [1, 4, 0]], jnp.int8)
    trials = jnp.array([[3, 2, 0], [2, 4, 5]], jnp.int8)
    data = Responses(values, trials > 0, trials)
    result = compare(np.zeros(2), np.ones(2), 0, 1, data=data)
    assert (result.shared, result.only_first, result.only_second) == (2, 1, 0)
    assert result.sign_p_value == 1.0


@pytest.mark.parametrize(
    ("theta", "error", "words"),
    [
        ([0.0, np.nan], [1.0, 1.0], "subject 1 has ability nan"),
        ([0.0, 1.0], [1.0, np.inf], "subject 1 .* standard error inf"),
        ([0.0, 1.0], [-1.0, 1.0], "subject 0 "),
        ([0.0, 1.0], [1.0], "2 abilities"),
        ([], [], "not \\[subjects\\]"),
    ],
)
def test_bad_scores_are_refused(theta, error, words):
    with pytest.raises(ValueError, match=words):
        rank(np.array(theta), np.array(error), key=KEY)


def test_bad_settings_are_refused():
    theta, error = spread_out(3)
    with pytest.raises(ValueError, match="level 95"):
        rank(theta, error, key=KEY, level=95)
    with pytest.raises(ValueError, match="covariance"):
        rank(theta, error, key=KEY, covariance=np.eye(2))
    for shared in (np.ones(2), np.ones((2, 1)), np.full((3, 1), np.nan)):
        with pytest.raises(ValueError, match="shared loadings"):
            rank(theta, error, key=KEY, shared=shared)
    with pytest.raises(ValueError, match="either the covariance"):
        compare(theta, error, 0, 1, covariance=np.eye(3), shared=np.ones((3, 1)))
    with pytest.raises(ValueError, match="itself"):
        compare(theta, error, 1, 1)
    with pytest.raises(ValueError, match="subject 3 is not one of 0 to 2"):
        compare(theta, error, 0, 3)


def test_abilities_that_differ_by_rounding_share_a_rank():
    """In a Rasch model the number of right responses determines the ability."""
    rng = np.random.default_rng(0)
    chance = 1 / (1 + np.exp(-rng.normal(size=(40, 1)) - rng.normal(size=30)))
    values = (rng.uniform(size=chance.shape) < chance).astype(int)
    table = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(table, "rasch", "em", standard_errors="none")
    score, rank = values.sum(axis=1), fit.abilities.table["rank"].to_numpy()
    wanted = 1 + (score[None, :] > score[:, None]).sum(axis=1)
    np.testing.assert_array_equal(rank, wanted)
