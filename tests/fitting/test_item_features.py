"""Features of items in a 2PL: difficulties and slopes of items with few responses."""

import numpy as np
import pytest

import irtjax

SUBJECTS, OLD, NEW, FEATURES = 60, 100, 40, 5
EFFECTS = np.array([[0.3, 0.0], [-0.25, 0.7], [0.0, -0.9], [0.0, 0.0], [0.0, 0.3]])
RESIDUAL = np.array([0.25, 0.6])


@pytest.mark.slow
def test_effects_and_new_items_of_a_2pl():
    """Effects within their errors, and new items within intervals of 95 %."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(OLD + NEW, FEATURES))
    coordinates = features @ EFFECTS + RESIDUAL * rng.normal(size=(OLD + NEW, 2))
    theta = rng.normal(size=(SUBJECTS, 1))
    logit = np.exp(coordinates[:, 0]) * theta + coordinates[:, 1]
    right = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)
    right[:, OLD:] = np.nan
    table = irtjax.ResponseTable.from_arrays(right)
    fit = irtjax.fit(table, "hierarchical", item_model="2pl", item_features=features)
    names, effects = fit.structure.effects
    assert names[1:].tolist() == [f"features: {k + 1}" for k in range(FEATURES)]
    # A least-squares effect has the error sqrt((residual^2 + v) / items), with v the
    # error of an item: with 60 responses 0.3 of a log slope and 0.35 of an intercept.
    error = np.sqrt((RESIDUAL**2 + np.array([0.3, 0.35]) ** 2) / OLD)
    assert (
        np.abs(effects[1:] - EFFECTS * features.std(axis=0)[:, None]) < 4 * error
    ).all()
    records = fit.parameters.items
    estimated = np.stack([np.log(records.discrimination), records.intercept], axis=1)
    variance = np.diagonal(np.asarray(fit.item_covariance), axis1=1, axis2=2)
    standard = ((estimated - coordinates) / np.sqrt(variance))[OLD:]
    # 95 % of 80 intervals; the binomial standard deviation is 0.024.
    assert 0.87 < np.mean(np.abs(standard) < 1.96) <= 1
    # Items of no responses have the prior's width, and old ones have less.
    assert (variance[OLD:, 1] > RESIDUAL[1] ** 2 / 2).all()
    assert variance[:OLD, 1].mean() < variance[OLD:, 1].mean() / 2
    chance = irtjax.predict(fit).expected[:, OLD:]
    order = [fit.subject_names.tolist().index(x) for x in table.subjects.tolist()]
    true = 1 / (1 + np.exp(-logit[:, OLD:]))
    assert np.corrcoef(chance[order].ravel(), true.ravel())[0, 1] > 0.85
