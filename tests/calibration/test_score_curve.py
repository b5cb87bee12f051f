"""The slope of the expected score, and what `compare` makes of it."""

import numpy as np
import pytest

import irtjax
from irtjax.calibration.score_curve import score_slope

#: Two of the best are equal; the next one is far below them.
ABILITY = np.array([2.0, 2.0, 0.3, 0.0, -0.4, -0.8, -1.2, -1.6])


def fit_of(seed: int, items: int = 300):
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(0, 1, items)
    chance = 1 / (1 + np.exp(-(ABILITY[:, None] - difficulty)))
    right = rng.random(chance.shape) < chance
    names = [f"org{k}/m{k}" for k in range(len(ABILITY))]
    table = irtjax.ResponseTable.from_arrays(right, subjects=names)
    return irtjax.fit(table, "rasch", "em", standard_errors="none"), table


def test_the_slope_is_the_derivative_of_the_mean_response():
    fit, _ = fit_of(0)
    slopes = np.asarray(fit.parameters.items.discrimination)
    levels = np.asarray(fit.parameters.items.intercept)
    p = 1 / (1 + np.exp(-(slopes * 1.5 + levels)))
    # Linear between nodes 0.05 apart, and an error of 0.01: both below a thousandth.
    assert score_slope(fit, 1.5, 0.01) == pytest.approx(
        np.mean(slopes * p * (1 - p)), rel=2e-3
    )


def test_the_interval_of_two_equal_ones_is_that_of_their_scores():
    """No wider because the others are far below, where scores are steeper."""
    for seed in range(40):
        fit, table = fit_of(seed, items=100)
        found = irtjax.compare(fit, "m0", "m1", data=table)
        if abs(found.z) < 0.5:
            break
    assert (found.first, found.second) == ("org0/m0", "org1/m1")
    rows = fit.abilities.table.to_pylist()
    errors = [rows[k]["expected_score_se"] for k in (0, 1)]
    half = (found.score_upper - found.score_lower) / 2
    # Errors of items are left out, so the two scores are independent; the slopes at
    # the two abilities differ from that between them by a tenth at most.
    assert half == pytest.approx(1.96 * np.hypot(*errors), rel=0.1)
