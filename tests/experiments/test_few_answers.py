"""The experiment on scores from few answers: its bound and its ends."""

import numpy as np
import pytest

from experiments.few_answers import run


def test_the_least_error_with_equal_chances_is_that_of_random_draws():
    chance, number = np.full(200, 0.3), 30
    expected = 0.3 * 0.7 * (1 / number - 1 / 200)
    assert run.least_square(chance, number) == pytest.approx(expected, rel=1e-6)
    # Sure responses need no draws.
    half = np.where(np.arange(200) < 100, 0.5, 1 - 1e-12)
    assert run.least_square(half, 100) < 1e-6


def test_effective_samples_of_the_mean_are_one():
    rng = np.random.default_rng(0)
    true, items, number = rng.uniform(0.2, 0.8, 2000), 1000, 50
    spread = true * (1 - true) / number * (1 - number / items)
    value = true + np.sqrt(spread) * rng.normal(size=2000)
    reach = 1.96 * np.sqrt(spread)
    row = run.summary("mean", (value, value - reach, value + reach), true, 50, 1000)
    assert abs(row["effective"] - 1) < 3 * row["se"] < 0.15
    assert abs(row["coverage"] - 0.95) < 3 * 0.005
