"""Adjusted mean responses and the errors of their differences."""

import numpy as np
import pytest
from scipy.special import ndtri, stdtrit

from irtjax.data.sparse_table import SparseCells
from irtjax.ranking import paired
from irtjax.ranking.accuracy import paired_difference
from irtjax.ranking.paired import paired_means, variance_between


def coins(subjects: int, items: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.random((subjects, items)) < 0.5).astype(np.int8)


def z_of(found, first: int, second: int) -> float:
    """The difference of two over its error."""
    own, together = found.standard_error**2, found.shared @ found.shared.T
    variance = own[first] + own[second] - 2 * together[first, second]
    return (found.mean[first] - found.mean[second]) / np.sqrt(variance)


def enlarged(clusters: int, subjects: int) -> float:
    tail = 0.05 / subjects
    return stdtrit(clusters - 1, 1 - tail) / ndtri(1 - tail)


@pytest.mark.parametrize("benchmarks", [None, np.repeat(np.arange(8), 5)])
def test_differences_are_those_of_the_paired_test(benchmarks):
    values = coins(6, 40)
    found = paired_means(values, benchmarks=benchmarks)
    clusters = 40 if benchmarks is None else 8
    for first, second in ((0, 1), (2, 5)):
        pair = paired_difference(values[[first, second]], None, benchmarks)
        t = pair.difference / pair.standard_error
        gap = found.mean[first] - found.mean[second]
        assert gap == pytest.approx(pair.difference)
        # Equal up to the rounding of an eigendecomposition.
        wanted = t / enlarged(clusters, 6)
        assert z_of(found, first, second) == pytest.approx(wanted, rel=1e-6)


def test_two_subjects_are_compared_on_shared_items():
    values, seen = coins(2, 40), np.random.default_rng(1).random((2, 40)) < 0.6
    pair = paired_difference(values * seen, seen)
    found = paired_means(values * seen, seen)
    assert found.mean[0] - found.mean[1] == pytest.approx(pair.difference)
    t = pair.difference / pair.standard_error / enlarged(seen.all(axis=0).sum(), 2)
    assert z_of(found, 0, 1) == pytest.approx(t, rel=1e-6)


def test_trials_are_shares():
    values, trials = coins(3, 30) * 4, np.full((3, 30), 4)
    found, single = paired_means(values, trials), paired_means(coins(3, 30))
    np.testing.assert_allclose(found.mean, single.mean)
    np.testing.assert_allclose(found.standard_error, single.standard_error)


def test_difficulty_of_the_items_that_were_answered_counts():
    # Both answered the same share right: the first of hard items, the second of easy.
    rng = np.random.default_rng(0)
    easy = np.arange(60) < 30
    seen = np.ones((12, 60), bool)
    seen[0, easy], seen[1, ~easy] = False, False
    values = (rng.random((12, 60)) < np.where(easy, 0.8, 0.2)) & seen
    values[0], values[1] = (
        seen[0] & (rng.random(60) < 0.5),
        seen[1] & (rng.random(60) < 0.5),
    )
    found = paired_means(values.astype(np.int8), seen)
    assert found.mean[0] > found.mean[2:].max() > found.mean[2:].min() > found.mean[1]


def test_parts_without_a_common_item_do_not_differ():
    seen = np.zeros((4, 40), bool)
    seen[:2, :20] = seen[2:, 20:] = True
    values = np.where(seen, coins(4, 40), 0)
    values[0, :20], values[1, :20], values[2, 20:] = 1, 0, 1
    values[0, 0], values[1, 1] = 0, 1
    found = paired_means(values, seen)
    assert abs(z_of(found, 0, 1)) > 3 and abs(z_of(found, 0, 2)) < 1


@pytest.mark.parametrize("complete", [True, False])
def test_many_subjects_have_the_same_means_and_own_errors(monkeypatch, complete):
    values = coins(40, 30)
    seen = np.ones(values.shape, bool)
    if not complete:
        seen = np.random.default_rng(1).random(values.shape) < 0.8
    values = values * seen
    whole = paired_means(values, None if complete else seen)
    monkeypatch.setattr(paired, "MOST_SUBJECTS", 10)
    rows, columns = np.nonzero(seen)
    cells = SparseCells.of(rows, columns, values[rows, columns], values.shape)
    for found in (
        paired_means(values, None if complete else seen),
        paired_means(cells),
    ):
        np.testing.assert_allclose(found.mean, whole.mean, atol=1e-6)
        # Items count as known: of 30 subjects an error is less by up to 2 or 3 %.
        np.testing.assert_allclose(
            found.standard_error, whole.standard_error, rtol=0.04
        )
        assert found.shared.shape == (40, 0)


def test_what_has_no_variation_has_an_error():
    all_right = paired_means(np.ones((3, 10), np.int8))
    assert np.all(all_right.mean == 0) and np.all(all_right.standard_error > 0)
    one_item = paired_means(np.array([[1], [0]]))
    assert abs(z_of(one_item, 0, 1)) < 1
    nothing = paired_means(coins(3, 8), np.array([[1], [1], [0]]) * np.ones(8, bool))
    assert np.all(np.isfinite(nothing.mean)) and nothing.standard_error[2] >= 1


def test_equal_subjects_differ_as_seldom_as_the_level_says():
    # The first of eight in 300 tables at 5 %: 15 expected, SD 3.8; no more than 4 of
    # these off, and fewer, since errors are enlarged for all pairs.
    significant = 0
    for seed in range(300):
        rng = np.random.default_rng([seed, 8])
        chance = 1 / (1 + np.exp(-1.2 * rng.normal(size=50)))
        values = (rng.random((8, 50)) < chance).astype(np.int8)
        significant += abs(z_of(paired_means(values), 0, 1)) > 1.959964
    assert 1 <= significant <= 30


@pytest.mark.parametrize("sizes", [(60, 60), (60, 60, 60, 60), (120, 60, 40, 20)])
@pytest.mark.parametrize("complete", [True, False])
def test_errors_count_the_choice_of_benchmarks(sizes, complete):
    # What benchmarks of a population measure is missed by the noise of responses and
    # by the choice of benchmarks; both have the stated variances.
    names, missed = np.repeat(np.arange(len(sizes)), sizes), []
    for seed in range(60):
        rng = np.random.default_rng([seed, *sizes])
        general = rng.uniform(-0.2, 0.2, size=12)
        specific = rng.normal(0, 0.08, size=(12, len(sizes)))
        chance = 0.5 + general[:, None] + specific[:, names]
        values = (rng.random(chance.shape) < chance).astype(np.int8)
        seen = None if complete else rng.random(values.shape) < 0.7
        values = values if complete else values * seen
        found = paired_means(values, seen)
        more = variance_between(values, seen, names, found.mean)
        assert more.min() >= 0
        error = np.sqrt(found.standard_error**2 + more) / enlarged(sum(sizes), 12)
        missed.append((found.mean - general + general.mean()) / error)
    # The mean of 12 takes a twelfth away. Of 60 tables the variance has an error of
    # about .06, and two benchmarks give tau^2 with a relative error of .4 each.
    assert np.var(missed) == pytest.approx(1 - 1 / 12, abs=0.25)


def test_benchmarks_that_agree_add_nothing():
    more = [
        variance_between(values, None, np.repeat(np.arange(4), 15), values.mean(axis=1))
        for values in (coins(30, 60, seed) for seed in range(40))
    ]
    # tau^2 s^2 of noise, cut at 0, is a small part of the variance of a mean.
    assert np.mean(more) < 0.1 * 0.25 / 60
