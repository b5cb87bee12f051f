"""Correlations of cluster scores by their definitions, and their bounds."""

import numpy as np
import pytest

from irtjax.validity.cluster_scores import (
    cluster_sums,
    comparable,
    correlations,
    reliabilities,
    resampled_bounds,
    smallest_correlation,
)

SUBJECTS, SIZES = 40, (6, 5, 4)


def drawn(missing: float = 0.0):
    """Responses to three clusters of items, their mask, and the clusters one-hot."""
    rng = np.random.default_rng(5)
    label = np.repeat(np.arange(3), SIZES)
    skill = rng.normal(size=(SUBJECTS, 1)) + 0.7 * rng.normal(size=(SUBJECTS, 3))
    values = (rng.normal(size=(SUBJECTS, len(label))) < 1.5 * skill[:, label]).astype(
        float
    )
    seen = rng.random(values.shape) >= missing
    return values * seen, seen, np.eye(3)[label]


def alpha_of(part: np.ndarray) -> float:
    size, items = part.shape[1], part.var(axis=0).sum()
    return size / (size - 1) * (1 - items / part.sum(axis=1).var())


def test_complete_data_give_pearson_and_cronbach():
    values, seen, member = drawn()
    parts = [values[:, member[:, k] > 0] for k in range(3)]
    sums = cluster_sums(values, seen, member)
    alpha, _ = reliabilities(sums, np.array(SIZES))
    expected = np.array([alpha_of(part) for part in parts])
    np.testing.assert_allclose(alpha, expected, atol=1e-10)
    (raw,), (corrected,) = correlations(sums, np.ones((1, SUBJECTS)))
    pearson = np.corrcoef([part.mean(axis=1) for part in parts])
    np.testing.assert_allclose(raw, pearson, atol=1e-10)
    root = np.sqrt(expected)
    upper = np.triu_indices(3, 1)
    attenuated = (pearson / root / root[:, None])[upper]
    np.testing.assert_allclose(corrected[upper], attenuated, atol=1e-10)
    least = float(smallest_correlation(sums, np.array(SIZES)))
    assert least == pytest.approx(attenuated.min(), abs=1e-10)


def test_missing_cells_give_the_mean_over_observed_pairs():
    values, seen, member = drawn(0.3)
    mean = values.sum(axis=0) / seen.sum(axis=0)
    apart = np.where(seen, values - mean, 0)
    label = member.argmax(axis=1)
    covariance = np.zeros((3, 3))
    for g, h in np.ndindex(3, 3):
        total = pairs = 0.0
        for j in np.flatnonzero(label == g):
            for k in np.flatnonzero(label == h):
                if j != k:
                    total += (apart[:, j] * apart[:, k]).sum()
                    pairs += (seen[:, j] & seen[:, k]).sum()
        covariance[g, h] = total / pairs
    root = np.sqrt(np.diag(covariance))
    expected = covariance / root / root[:, None]
    sums = cluster_sums(values, seen, member)
    (raw,), (corrected,) = correlations(sums, np.ones((1, SUBJECTS)))
    upper = np.triu_indices(3, 1)
    np.testing.assert_allclose(corrected[upper], expected[upper], atol=1e-10)
    # Raw ones are of mean responses, adjusted for the items that a subject saw.
    for g, h in zip(*upper, strict=True):
        count = np.stack([seen[:, label == k].sum(axis=1) for k in (g, h)])
        total = np.stack([apart[:, label == k].sum(axis=1) for k in (g, h)])
        both = count.min(axis=0) > 0
        scores = total[:, both] / count[:, both]
        pearson = np.asarray(np.corrcoef(scores))[0, 1]
        assert raw[g, h] == pytest.approx(pearson, abs=1e-10)


def test_one_item_has_no_reliability():
    values, seen, _ = drawn()
    member = np.eye(2)[(np.arange(values.shape[1]) > 0).astype(int)]
    alpha, _ = reliabilities(cluster_sums(values, seen, member), member.sum(axis=0))
    assert np.isnan(alpha[0]) and alpha[1] > 0.5
    assert not bool(np.asarray(comparable(alpha, member.sum(axis=0)))[0])


def test_weights_of_a_resample_are_copies_of_subjects():
    values, seen, member = drawn()
    count = np.random.default_rng(0).multinomial(SUBJECTS, np.full(SUBJECTS, 1 / 40))
    sums = cluster_sums(values, seen, member)
    (raw,), (corrected,) = correlations(sums, count[None].astype(float))
    again = np.repeat(values, count, axis=0)
    parts = [again[:, member[:, k] > 0] for k in range(3)]
    pearson = np.corrcoef([part.mean(axis=1) for part in parts])
    np.testing.assert_allclose(raw, pearson, atol=1e-10)
    root = np.sqrt([alpha_of(part) for part in parts])
    upper = np.triu_indices(3, 1)
    # Variances of items are those around the means of all subjects, not of the copies:
    # the mean covariance in a cluster is off by v / (J - 1) c < 2 parts in `SUBJECTS`.
    expected = (pearson / root / root[:, None])[upper]
    np.testing.assert_allclose(corrected[upper], expected, rtol=2 / SUBJECTS)


def test_bounds_have_the_error_of_a_correlation():
    rng = np.random.default_rng(2)
    skill = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=400)
    # Long clusters of nearly continuous scores: Fisher's interval holds.
    values = np.repeat(skill, 20, axis=1) + 0.3 * rng.normal(size=(400, 40))
    member = np.eye(2)[np.repeat([0, 1], 20)]
    sums = cluster_sums(values, np.ones(values.shape), member)
    draw = lambda count: rng.multinomial(400, np.full(400, 1 / 400), count) * 1.0
    raw, corrected = resampled_bounds(sums, draw, 0.95)
    r = np.asarray(np.corrcoef(skill.T))[0, 1]
    fisher = np.tanh(np.arctanh(r) + np.array([-1, 1]) * 1.96 / np.sqrt(397))
    # Percentiles of 1,000 resamples have a tenth of their standard deviation as error.
    np.testing.assert_allclose(raw[:, 0, 1], fisher, atol=0.02)
    np.testing.assert_allclose(corrected[:, 0, 1], fisher, atol=0.02)


def test_clusters_without_reliability_are_not_compared_and_never_nan():
    values, seen, member = drawn()
    values[:, :6] = np.random.default_rng(1).random((SUBJECTS, 6)) < 0.5
    sums = cluster_sums(values, seen, member)
    sizes = np.array(SIZES)
    fine = np.asarray(comparable(reliabilities(sums, sizes)[0], sizes))
    assert fine.tolist() == [False, True, True]
    (_,), (corrected,) = correlations(sums, np.ones((1, SUBJECTS)))
    least = float(smallest_correlation(sums, sizes))
    assert least == pytest.approx(corrected[1, 2], abs=1e-10)
    # Two items are too few; nobody saw the third cluster.
    seen[:, 11:] = False
    small = np.array([6, 2, 4])
    none = cluster_sums(values * seen, seen, member)
    assert float(smallest_correlation(none, small)) == 1
    raw, bounds = resampled_bounds(none, lambda n: np.ones((n, SUBJECTS)), 0.9)
    assert np.isnan(raw[:, 0, 2]).all() and np.isnan(bounds[:, 0, 2]).all()
    assert np.isfinite(raw[:, 0, 1]).all()
