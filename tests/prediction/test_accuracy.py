"""Scores of predictions against brute force, and intervals against simulation."""

import numpy as np
import pytest

from irtjax.prediction.accuracy import (
    SCORES,
    BootstrapDraws,
    PredictedCells,
    accuracy,
    area_under_curve,
    concordance,
    reliability_curve,
)


def by_pairs(right, wrong, chance, group):
    """The area under the curve by all pairs of cells."""
    higher = (chance[:, None] > chance) + 0.5 * (chance[:, None] == chance)
    weight = right[:, None] * wrong * (group[:, None] == group)
    return (weight * higher).sum() / weight.sum()


@pytest.fixture(scope="module")
def cells():
    """Counts of right responses of 30 subjects to 20 items, and chances with ties."""
    rng = np.random.default_rng(0)
    subject, item = (x.ravel() for x in np.indices((30, 20)))
    chance = np.round(rng.random(600), 1)
    count = rng.integers(1, 4, 600).astype(float)
    right = rng.binomial(count.astype(int), 0.2 + 0.6 * chance).astype(float)
    return PredictedCells(subject, item, right, count, rng.integers(0, 2, 600)), chance


def test_areas_are_those_of_all_pairs(cells):
    cells, chance = cells
    wrong = cells.responses - cells.right
    for group in (cells.split, cells.subject, cells.item):
        area, slope = concordance(cells.right, wrong, chance, group)
        assert area == pytest.approx(by_pairs(cells.right, wrong, chance, group))
        # The area does not depend on the size of the weights.
        assert slope.sum() == pytest.approx(0, abs=1e-12)
        step = np.zeros(600)
        step[7] = 1e-6
        moved = by_pairs(cells.right * (1 + step), wrong * (1 + step), chance, group)
        assert (moved - area) / 1e-6 == pytest.approx(slope[7], rel=1e-4)


def test_an_area_without_derivatives_is_the_same(cells):
    cells, chance = cells
    wrong, one = cells.responses - cells.right, np.zeros(600, int)
    for x in (chance, chance + np.linspace(0, 1e-3, 600)):
        area = concordance(cells.right, wrong, x, one)[0]
        assert area_under_curve(cells.right, wrong, x) == pytest.approx(area)
    assert np.isnan(area_under_curve(np.ones(3), np.zeros(3), np.arange(3.0)))


def test_no_pair_has_no_area():
    area, slope = concordance(np.ones(3), np.zeros(3), np.arange(3.0), np.zeros(3, int))
    assert np.isnan(area) and not slope.any()


def test_scores_and_their_draws(cells):
    cells, chance = cells
    draws = BootstrapDraws.of(30, 20, 1)
    result = accuracy(cells, chance, draws)
    near = np.clip(chance, 1e-6, 1 - 1e-6)
    log = cells.right * np.log(near) + (cells.responses - cells.right) * np.log1p(-near)
    assert result.value["log_score"] == pytest.approx(log.sum() / cells.responses.sum())
    # Weights of a draw, applied to the cells.
    weight = draws.subjects[3][cells.subject] * draws.items[3][cells.item]
    drawn = (weight * log).sum() / (weight * cells.responses).sum()
    assert result.draws["log_score"][3] == pytest.approx(drawn)
    assert set(result.draws) == set(SCORES)


def test_areas_of_draws_are_those_of_their_weights(cells):
    """To the first order: the standard deviation agrees within a twentieth."""
    cells, chance = cells
    draws = BootstrapDraws.of(30, 20, 2)
    linear = accuracy(cells, chance, draws).draws["auc"]
    exact = []
    for u, v in zip(draws.subjects[:200], draws.items[:200], strict=True):
        weight = u[cells.subject] * v[cells.item]
        parts = weight * cells.right, weight * (cells.responses - cells.right)
        exact.append(concordance(*parts, chance, cells.split)[0])
    assert np.corrcoef(linear[:200], exact)[0, 1] > 0.98
    assert linear[:200].std() == pytest.approx(np.std(exact), rel=0.05)


def test_calibrated_chances_have_a_small_error():
    rng = np.random.default_rng(3)
    chance = rng.random(50_000)
    right = (rng.random(50_000) < chance).astype(float)
    zeros = np.zeros(50_000, int)
    cells = PredictedCells(zeros, zeros, right, np.ones(50_000), zeros)
    curve = reliability_curve(cells, chance)
    # Ten groups of 5,000: a standard error of at most .007 each.
    assert np.abs(curve["chance"] - curve["right"]).max() < 0.028
    assert (
        accuracy(cells, chance, BootstrapDraws.of(1, 1, 0)).value["calibration"] < 0.012
    )
