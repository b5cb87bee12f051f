"""Predictions stacked with those of effects of subjects and items."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

import irtjax
from irtjax.prediction.stacking import (
    _left_out,
    additive,
    best_stack,
    cells_of,
    is_stacked,
    stack_of,
)
from tests.small_fits import small_fit


def test_additive_chances_are_the_marginal_optimum_with_known_items():
    """Items answered by 4,000 subjects have the difficulties that they were drawn with.

    Standard errors of items are about 0.035, and abilities are free, so logits of two
    items differ by what they were drawn with.
    """
    rng = np.random.default_rng(0)
    ability, items = rng.normal(size=(4000, 1)), np.linspace(-1, 1, 40)
    right = (rng.random((4000, 40)) < expit(ability + items)).astype(float)
    found = logit(additive(right, np.ones(right.shape)))
    gap = (found - found[:, :1]).mean(axis=0)
    # Maximum likelihood of 40 items stretches logits by a fortieth.
    np.testing.assert_allclose(gap, (items + 1) * 40 / 39, atol=0.15)
    assert np.corrcoef(found[:, 0], ability[:, 0])[0, 1] > 0.9


def test_counts_are_as_many_right_and_wrong_responses():
    rng = np.random.default_rng(1)
    counts = rng.binomial(4, 0.6, size=(6, 10)).astype(float)
    as_counts = additive(counts, np.full(counts.shape, 4.0))
    # Four copies of each cell: the same sums for effects of subjects and items.
    assert as_counts.mean() == pytest.approx(counts.mean() / 4, abs=0.01)
    missing = additive(np.where(counts > 2, 0, counts), np.where(counts > 2, 0, 4.0))
    assert np.isfinite(missing).all() and missing.mean() < as_counts.mean()


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("slope", [0.8, 1.0, 1.2])
def test_the_stack_that_generated_responses_is_found(weight, slope):
    rng = np.random.default_rng(2)
    first, second = rng.normal(0, 1.5, (2, 20_000))
    chance = expit(slope * (weight * first + (1 - weight) * second))
    right = (rng.random(first.size) < chance).astype(float)
    found = best_stack(right, np.ones(first.size), expit(first), expit(second))
    # The slope has an error of 0.017, the weight one of 0.01. Weights are 0.1 apart;
    # the smallest within one standard error is taken.
    assert found[0] == pytest.approx(weight, abs=0.11) and found[0] <= weight + 0.05
    assert found[1] == pytest.approx(slope, abs=0.08)


def test_without_evidence_for_slopes_predictions_are_additive():
    rng = np.random.default_rng(4)
    first = rng.normal(0, 1.5, 2000)
    right = (rng.random(2000) < expit(first)).astype(float)
    noisy = expit(first + 0.05 * rng.normal(size=2000))
    # Their log-losses differ by less than one standard error.
    assert best_stack(right, np.ones(2000), expit(first), noisy)[0] < 1
    assert best_stack(right, np.ones(2000), noisy, expit(first))[0] == 0


def test_folds_leave_each_subject_and_item_a_response():
    seen = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1]], bool)
    fold = np.ones(seen.shape, bool)
    assert not _left_out(seen, fold).any()
    out = _left_out(seen, np.array([[1, 0, 0], [1, 0, 0], [0, 1, 1]], bool))
    assert np.argwhere(out).tolist() == [[2, 1]]
    assert _left_out(seen, np.array([[1, 0, 0], [0, 0, 0], [0, 1, 0]], bool)).sum() == 2


@pytest.mark.slow
def test_predictions_with_data_are_the_stack_of_both():
    rng = np.random.default_rng(3)
    chance = expit(rng.normal(size=(8, 1)) - rng.normal(size=60))
    right = (rng.random(chance.shape) < chance).astype(int)
    table = irtjax.ResponseTable.from_arrays(right)
    fit = irtjax.fit(table, "2pl", "em", standard_errors="none")
    model, found = irtjax.predict(fit), irtjax.predict(fit, data=table)
    stack = stack_of(fit, table, irtjax.predict)
    assert 0 <= stack.weight <= 1 and 0.7 < stack.slope < 1.3
    np.testing.assert_allclose(stack.additive, additive(*cells_of(table)))
    mean = stack.weight * logit(model.expected)
    mean = stack.slope * (mean + (1 - stack.weight) * logit(stack.additive))
    np.testing.assert_allclose(logit(found.expected), mean, rtol=1e-6, atol=1e-9)
    # Names are matched: the order of the data is not that of the fit.
    turned = table.select(subjects=np.arange(8)[::-1], items=np.arange(60)[::-1])
    some = {"subjects": ["subject 3"], "items": ["item 5", "item 2"]}
    one = irtjax.predict(fit, **some, data=turned, categories=True)
    np.testing.assert_allclose(one.expected, found.expected[2:3][:, [4, 1]], rtol=1e-9)
    np.testing.assert_allclose(one.probabilities[..., 1], one.expected)
    with pytest.raises(ValueError, match="no item"):
        irtjax.predict(fit, data=table.select(items=np.arange(50)))


def test_only_right_and_wrong_responses_of_few_subjects_are_stacked():
    table = irtjax.ResponseTable.from_arrays([[1, 0], [0, 1]])
    assert is_stacked(small_fit(), table)
    many = irtjax.ResponseTable.from_arrays(np.eye(201, 3, dtype=int))
    assert not is_stacked(small_fit(), many)
