"""Tests of items given sum scores: exact windows, levels under the model."""

import numpy as np
import pytest

from irtjax.validity.sum_scores import (
    group_edges,
    group_tests,
    pooled_chi_squared,
    score_windows,
)


def test_windows_of_scores_are_exact_and_normal_ones_near():
    random = np.random.default_rng(4)
    chance = random.uniform(0.1, 0.9, (6, 3))
    edges = np.array([-1, 1, 3, 6])
    one, zero = score_windows(chance, edges, slice(0, 2))
    mass = np.ones((1, 3))
    for p in np.delete(chance, 0, 0):
        mass = np.pad(mass * (1 - p), ((0, 1), (0, 0))) + np.pad(
            mass * p, ((1, 0), (0, 0))
        )
    np.testing.assert_allclose(zero[0, 1], mass[2:4].sum(0), atol=1e-12)
    np.testing.assert_allclose(one[0, 1], mass[1:3].sum(0), atol=1e-12)
    np.testing.assert_allclose(one.sum(1), 1, atol=1e-12)
    # As many items as are exact, and one more: the two ways agree to 0.3 %.
    chance = random.uniform(0.2, 0.8, (128, 3))
    edges = np.array([-1, 55, 64, 72, 128])
    exact = score_windows(chance, edges, slice(0, 1))
    more = np.concatenate([chance, np.full((1, 3), 1e-9)])
    near = score_windows(more, edges, slice(0, 1))
    np.testing.assert_allclose(exact[0], near[0], atol=3e-3)


def test_joined_cells():
    right = np.array([[0.0, 40, 60, 90]])
    share = np.array([[0.01, 0.4, 0.5, 0.96]])
    count = np.full(4, 100.0)
    statistic, cells = pooled_chi_squared(right, share, count)
    # The first cell expects 1 right and joins the second; the last expects 4 wrong
    # and joins the third.
    first = (40 - 41) ** 2 / (41 * (200 - 41) / 200)
    second = (150 - 146) ** 2 / (146 * (200 - 146) / 200)
    assert cells[0] == 2
    assert statistic[0] == pytest.approx(first + second)


def test_p_values_of_sound_items_are_uniform_under_the_model():
    """400 items over 1,000 subjects at the true parameters: five binomial errors."""
    random = np.random.default_rng(6)
    subjects, items = 1000, 400
    theta = random.standard_normal((subjects, 1))
    slope, intercept = random.uniform(0.8, 2, items), random.standard_normal(items)
    chance = 1 / (1 + np.exp(-slope * theta - intercept))
    values = (random.random(chance.shape) < chance).astype(np.int8)
    nodes = np.linspace(-5, 5, 241)
    weights = np.exp(-0.5 * nodes**2)
    curves = 1 / (1 + np.exp(-slope[:, None] * nodes - intercept[:, None]))
    found = group_tests(
        values,
        curves,
        nodes,
        weights / weights.sum(),
        (slope, intercept),
        np.zeros(items),
        0,
    )
    assert found is not None
    for p_value in (found.p_misfit, found.asymptotes.p_value):
        for level in (0.05, 0.25, 0.5):
            error = np.sqrt(level * (1 - level) / items)
            assert abs(np.mean(p_value <= level) - level) < 5 * error
    assert group_edges(np.zeros(50, int)).size - 1 == 1
