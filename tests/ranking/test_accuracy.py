"""Accuracies with errors over items: against plain loops, scipy and simulation."""

import numpy as np
import pytest
from scipy import stats

from irtjax.data.stored_cells import DenseCells
from irtjax.ranking.accuracy import (
    ENOUGH_CLUSTERS,
    accuracies,
    difference_p_value,
    paired_difference,
    wilson_interval,
)


def drawn(rng, benchmarks: int, items: int = 60):
    values = (rng.random((5, items)) < 0.6).astype(float)
    seen = rng.random((5, items)) < 0.8
    label = np.array([f"b{k}" for k in rng.integers(0, benchmarks, items)])
    return values * seen, seen, label


@pytest.mark.parametrize("missing", [False, True])
def test_responses_of_0_and_1_have_the_errors_of_any_numbers(missing):
    values, seen, _ = drawn(np.random.default_rng(1), 1)
    seen[0] = False
    values = values * seen
    found = accuracies(DenseCells(values.astype(np.int8), seen if missing else None))
    same = accuracies(DenseCells(values, seen if missing else None))
    np.testing.assert_allclose(found, same, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("benchmarks", [1, ENOUGH_CLUSTERS - 1, 8])
def test_errors_are_those_of_the_formula(benchmarks):
    values, seen, label = drawn(np.random.default_rng(0), benchmarks)
    found = accuracies(DenseCells(values, seen), label)
    for i in range(5):
        at = seen[i]
        y = values[i, at]
        residual = y - y.mean()
        if benchmarks < ENOUGH_CLUSTERS:
            error = y.std(ddof=1) / np.sqrt(len(y))
            count = len(y)
        else:
            names = np.unique(label[at])
            sums = np.array([residual[label[at] == b].sum() for b in names])
            count = len(names)
            error = np.sqrt(count / (count - 1) * (sums**2).sum()) / len(y)
        assert found.accuracy[i] == pytest.approx(y.mean())
        assert found.standard_error[i] == pytest.approx(error)
        # Wilson's bounds p0 are where |p - p0| is t standard errors at p0.
        size = y.mean() * (1 - y.mean()) / error**2
        t = stats.t.ppf(0.975, count - 1)
        for bound in (found.lower[i], found.upper[i]):
            z = (y.mean() - bound) / np.sqrt(bound * (1 - bound) / size)
            assert abs(z) == pytest.approx(t)


def test_blocks_trials_categories_and_empty_subjects(monkeypatch):
    rng = np.random.default_rng(1)
    trials = rng.integers(0, 5, (7, 30))
    trials[3], trials[4] = 0, 0
    trials[4, 2] = 2
    values = rng.binomial(trials, 0.4)
    counts = DenseCells(values, None, trials)
    whole = accuracies(counts)
    monkeypatch.setattr("irtjax.data.stored_cells.BLOCK_CELLS", 15)
    for one, other in zip(whole, accuracies(counts), strict=True):
        np.testing.assert_array_equal(one, other)
    assert whole.accuracy[0] == pytest.approx(values[0].sum() / trials[0].sum())
    # The error of a ratio of sums over items.
    kept = trials[0] > 0
    residual = (values[0] - whole.accuracy[0] * trials[0])[kept]
    factor = kept.sum() / (kept.sum() - 1)
    error = np.sqrt(factor * (residual**2).sum()) / trials[0].sum()
    assert whole.standard_error[0] == pytest.approx(error)
    assert np.isnan(whole.accuracy[3])
    # One item has no variance over items.
    assert np.isfinite(whole.accuracy[4]) and np.isnan(whole.standard_error[4])
    # Categories of 0 to 2: twice the bounds of halves.
    graded = rng.integers(0, 3, (4, 20))
    double = accuracies(DenseCells(graded), top=2.0)
    half = accuracies(DenseCells(graded / 2))
    np.testing.assert_allclose(double.upper, 2 * half.upper)
    perfect = accuracies(DenseCells(np.ones((1, 10))))
    assert perfect.standard_error[0] == 0 and perfect.upper[0] == 1
    assert 0.5 < perfect.lower[0] < 0.8


def test_paired_difference_is_the_paired_t_test():
    values, seen, label = drawn(np.random.default_rng(2), 3, items=80)
    pair, both = values[:2], seen[:2]
    found = paired_difference(pair, both, label)
    shared = both.all(axis=0)
    expected = stats.ttest_rel(pair[0, shared], pair[1, shared])
    assert found.p_value == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (found.lower, found.upper) == pytest.approx((interval.low, interval.high))
    assert not found.by_cluster and found.clusters == shared.sum()
    back = paired_difference(pair[::-1], both[::-1], label)
    assert back.difference == -found.difference and back.p_value == found.p_value
    same = paired_difference(pair[[0, 0]], both[[0, 0]], label)
    assert same.difference == 0 and same.p_value == 1
    assert paired_difference(pair, np.zeros_like(both)) is None


def test_clustered_difference_holds_its_level_where_an_unclustered_one_does_not():
    rng = np.random.default_rng(3)
    rounds, groups, each = 2000, 10, 20
    label = np.repeat(np.arange(groups), each)
    rejected = np.zeros(2)
    for _ in range(rounds):
        # The difference varies between benchmarks around a mean of 0.
        own = rng.normal(0, 0.2, groups)[label]
        gap = own + rng.normal(0, 0.5, groups * each)
        pair = np.stack([gap, np.zeros_like(gap)])
        for k, names in enumerate((label, None)):
            rejected[k] += paired_difference(pair, None, names).p_value < 0.05
    rejected /= rounds
    # Three binomial standard errors of a share of 0.05 in 2,000.
    assert abs(rejected[0] - 0.05) < 3 * np.sqrt(0.05 * 0.95 / rounds)
    assert rejected[1] > 0.15


def test_intervals_of_accuracies_hold_their_level():
    rng = np.random.default_rng(4)
    # Few items, and a chance near 1: where a normal interval fails.
    for items, chance in ((10, 0.9), (30, 0.5), (200, 0.97)):
        values = (rng.random((20000, items)) < chance).astype(np.int8)
        found = accuracies(DenseCells(values))
        held = np.mean((found.lower <= chance) & (chance <= found.upper))
        # Ten items leave few values: 0.987 is the share that holds 0.9.
        assert 0.93 < held < 0.99


def test_intervals_of_many_subjects_are_those_of_each():
    accuracy, error = np.array([0.2, 0.9, 0.5, 0.4]), np.array([0.1, 0.05, 0.0, np.nan])
    clusters = np.array([9, 4, 9, 1])
    together = wilson_interval(accuracy, error, clusters)
    for k in range(4):
        part = slice(k, k + 1)
        alone = wilson_interval(accuracy[part], error[part], clusters[part])
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_array_equal(a[part], b)


@pytest.mark.parametrize("size", [2, 5, 6, 40])
def test_the_same_difference_on_all_items_is_no_certainty(size):
    """Of right or wrong responses it is the sign test, and its exact interval."""
    found = paired_difference(np.repeat([[0], [1]], size, axis=1))
    assert (found.difference, found.standard_error) == (-1, 0)
    exact = stats.binomtest(size, size)
    assert found.p_value == pytest.approx(exact.pvalue)
    assert found.p_value == pytest.approx(2 ** (1 - size))
    # Of the share of items on which the second is better.
    share = exact.proportion_ci(0.95, method="exact").low
    assert (found.lower, found.upper) == (-1, pytest.approx(1 - 2 * share))
    assert (found.p_value < 0.05) == (found.upper < 0) == (size >= 6)
    double = paired_difference(np.repeat([[0], [2]], size, axis=1), top=2)
    assert double.p_value == found.p_value and double.upper == 2 * found.upper


def test_the_exact_interval_and_p_value_agree_and_hold_their_level():
    rng = np.random.default_rng(5)
    # Shares with a rounding of 1e-17, which is no error.
    pair = np.array([[0.3, 0.1, 0.8], [0.2, 0.0, 0.7]])
    found = paired_difference(pair)
    assert found.standard_error == 0 and found.lower < 0 < found.upper
    for d, clusters in rng.uniform([-1, 2], [1, 30], size=(50, 2)):
        clusters = int(clusters)
        values = np.full((2, clusters), [[max(d, 0)], [max(-d, 0)]])
        found = paired_difference(values)
        for end in (found.lower, found.upper):
            p_value = difference_p_value(d, 0.0, clusters, place=end)
            assert p_value == pytest.approx(0.05)
    equal = paired_difference(np.ones((2, 20)))
    assert equal.p_value == 1 and -0.2 < equal.lower < 0 < equal.upper < 0.2
    # Worst case: a share of items that all K miss with a chance of 5 % / 2.
    share, rounds = 1 - 0.025 ** (1 / 4), 4000
    missed = 0
    for gap in np.where(rng.random((rounds, 4)) < share, 1.0, -1.0):
        if (gap == -1).all():
            found = paired_difference(np.stack([gap > 0, gap < 0]).astype(float))
            missed += found.upper < 2 * share - 1 - 1e-12
    assert missed <= 0.025 * rounds
