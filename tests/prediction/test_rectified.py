"""Scores from a few answers: unbiased, with intervals that hold."""

import numpy as np
import pytest

import irtjax
from irtjax.prediction.rectified import estimate_score

ITEMS = 120


def rasch(subjects, seed, items=ITEMS):
    """Right and wrong responses of a Rasch model with fixed difficulties."""
    difficulty = np.random.default_rng(99).normal(0, 1.5, items)
    rng = np.random.default_rng(seed)
    logit = rng.normal(size=(subjects, 1)) - difficulty
    return (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)


@pytest.fixture(scope="module")
def fit():
    """Items from 150 subjects."""
    table = irtjax.ResponseTable.from_arrays(rasch(150, 1))
    return irtjax.fit(table, "rasch", method="em", standard_errors="none")


def few_of(fit, values, number, seed):
    """Answers to random items of each subject."""
    rng = np.random.default_rng(seed)
    chosen = rng.random(values.shape).argsort(axis=1)[:, :number]
    few = np.full(values.shape, np.nan)
    np.put_along_axis(few, chosen, np.take_along_axis(values, chosen, 1), 1)
    return irtjax.ResponseTable.from_arrays(few, items=fit.item_names)


def test_random_answers_are_unbiased_and_better_than_their_mean(fit):
    values = rasch(300, 2)
    result = estimate_score(fit, few_of(fit, values, 30, 3))
    rows = result.table.to_pandas()
    true = values.mean(axis=1)
    error = rows["score"] - true
    # The error of the mean of 300 errors.
    assert abs(error.mean()) < 3 * error.std() / np.sqrt(300)
    covered = np.mean((rows["lower"] <= true) & (true <= rows["upper"]))
    assert 0.91 <= covered <= 0.985  # .95 with three binomial errors of .0126.
    # With the true chances it is .78 of the error of the mean, within .03.
    assert np.mean(error**2) < 0.88 * np.mean((rows["mean"] - true) ** 2)
    assert rows["effective_answers"].median() > 30


def test_draws_with_known_chances_are_unbiased(fit):
    """Items of middle difficulty three times as often: the mean alone is biased."""
    values, rng = rasch(200, 4), np.random.default_rng(5)
    rate = values.mean(axis=0)
    weight = np.where(rate > 0.5, 3.0, 1.0)
    few, chance, order = np.full((3, *values.shape), np.nan)
    for subject in range(len(values)):
        left = weight.copy()
        for place in range(25):
            q = left / left.sum()
            item = rng.choice(len(q), p=q)
            few[subject, item] = values[subject, item]
            chance[subject, item], order[subject, item] = q[item], place
            left[item] = 0
    table = irtjax.ResponseTable.from_arrays(few, items=fit.item_names)
    result = estimate_score(fit, table, probabilities=chance, order=order)
    rows, true = result.table.to_pandas(), values.mean(axis=1)
    error = rows["score"] - true
    assert abs(error.mean()) < 3 * error.std() / np.sqrt(200)
    assert (rows["mean"] - true).mean() > 0.08
    covered = np.mean((rows["lower"] <= true) & (true <= rows["upper"]))
    assert 0.90 <= covered <= 0.99  # .95 with three binomial errors of .0154.


def test_all_answers_are_the_score(fit):
    values = rasch(3, 6)
    table = irtjax.ResponseTable.from_arrays(values, items=fit.item_names)
    row = estimate_score(fit, table).table.to_pylist()[0]
    assert row["score"] == row["lower"] == row["upper"] == values[0].mean()


def test_without_a_factor_it_is_the_plain_mean(fit, monkeypatch):
    few = few_of(fit, rasch(3, 11), 30, 12)
    rectified = estimate_score(fit, few).table.to_pandas()
    assert (rectified["score"] != rectified["mean"]).all()
    monkeypatch.setattr("irtjax.prediction.rectified.LARGEST", 0.0)
    plain = estimate_score(fit, few).table.to_pandas()
    np.testing.assert_allclose(plain["score"], plain["mean"], atol=1e-12)
    # A degree of freedom is that of the factor.
    ratio = plain["score_se"] / plain["mean_se"]
    np.testing.assert_allclose(ratio, np.sqrt(29 / 28), rtol=1e-9)


def test_few_answers_are_averaged(fit):
    result = estimate_score(fit, few_of(fit, rasch(2, 7), 4, 8))
    assert "fewer than 6 answers" in result.warnings[0]
    row = result.table.to_pylist()[0]
    assert row["score"] == row["mean"]


def test_bad_input_is_refused_in_a_line(fit):
    other = irtjax.ResponseTable.from_arrays(rasch(2, 9), items=range(1000, 1120))
    with pytest.raises(ValueError, match="none of 120 items is of the fit"):
        estimate_score(fit, other)
    one = few_of(fit, rasch(2, 9), 1, 0)
    with pytest.raises(ValueError, match="fewer than 2 answers"):
        estimate_score(fit, one)
    some = few_of(fit, rasch(2, 9), 9, 0)
    with pytest.raises(ValueError, match="probabilities of answered items"):
        estimate_score(fit, some, probabilities=np.zeros((2, ITEMS)))
    with pytest.raises(ValueError, match="level is between"):
        estimate_score(fit, some, level=95)
