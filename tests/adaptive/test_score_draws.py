"""Draws with known chances: they are what they state, and the score has no bias."""

import numpy as np
import pytest

import irtjax
from irtjax.adaptive import AdaptiveTest

SUBJECTS, ITEMS = 200, 80


@pytest.fixture(scope="module")
def table():
    """Responses of a Rasch model."""
    rng = np.random.default_rng(0)
    logit = rng.normal(size=(SUBJECTS, 1)) - 1.5 * rng.normal(size=ITEMS)
    values = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)
    return irtjax.ResponseTable.from_arrays(values)


@pytest.fixture(scope="module")
def fit(table):
    """A Rasch fit of half of the subjects."""
    old = table.select(subjects=np.arange(SUBJECTS // 2))
    return irtjax.fit(old, "rasch", method="em", standard_errors="none")


def given(fit, responses, parallel=1, **rules):
    """A test to its end, items answered by their responses."""
    test = AdaptiveTest(fit, select="score", **rules)
    while items := test.next_items(parallel):
        for item in reversed(items):
            test.record(item, responses[item])
    return test


def test_scores_have_no_bias_and_their_errors(fit, table):
    """One subject, many tests; predictions that are wrong for it."""
    rng = np.random.default_rng(1)
    values = (rng.random(ITEMS) < 0.5).astype(int)
    responses = dict(zip(fit.item_names.tolist(), values.tolist(), strict=True))
    tests = [given(fit, responses, 3, num_items=10, key=k) for k in range(100)]
    scores = [test.score() for test in tests]
    error = np.array([x.score for x in scores]) - values.mean()
    assert abs(error.mean()) < 3 * error.std() / np.sqrt(len(error))
    square = np.mean([x.standard_error**2 for x in scores])
    # The variance of 100 numbers has a relative standard error of 0.14.
    assert 0.58 < square / error.var() < 1.42
    covered = np.mean([x.lower <= values.mean() <= x.upper for x in scores])
    assert covered > 0.95 - 3 * 0.022


def test_predicted_scores_are_near_with_the_right_model(fit, table):
    new = np.asarray(table.values)[SUBJECTS // 2 : SUBJECTS // 2 + 30].astype(int)
    gaps, squares = [], []
    for key, values in enumerate(new.tolist()):
        responses = dict(zip(fit.item_names.tolist(), values, strict=True))
        score = given(fit, responses, num_items=16, key=key).score()
        gaps.append((score.predicted - np.mean(values)) / score.predicted_error)
        squares.append((score.predicted - np.mean(values)) ** 2)
    # The mean square of 30 standard normal numbers has a standard deviation of 0.26.
    assert 0.22 < np.mean(np.square(gaps)) < 1.78
    plain = np.mean(new.mean(axis=1) * (1 - new.mean(axis=1))) / 16 * (1 - 16 / ITEMS)
    assert np.mean(squares) < plain


def test_a_test_ends_at_the_error_and_resumes(fit, table, tmp_path):
    values = np.asarray(table.values)[150].astype(int).tolist()
    responses = dict(zip(fit.item_names.tolist(), values, strict=True))
    whole = given(fit, responses, key=3, score_error=0.07)
    assert whole.stopped == "error of the score"
    assert 20 <= whole.num_given < ITEMS and whole.score().standard_error < 0.07
    test = AdaptiveTest(fit, select="score", key=3, score_error=0.07)
    for _ in range(7):
        item = test.next_item()
        test.record(item, responses[item])
    test.next_items(2)
    again = AdaptiveTest.load(test.save(tmp_path / "test.json"), fit)
    assert again.handed_out == test.handed_out
    assert again.score() == test.score()
    every = given(fit, responses, key=4).score()
    assert every.score == every.lower == every.upper == np.mean(values)
    assert every.predicted == pytest.approx(np.mean(values))


def test_what_changes_the_chances_is_refused(fit):
    for rules in ({"randomesque": 3}, {"cost": np.ones(ITEMS)}):
        with pytest.raises(ValueError, match="changes the chances"):
            AdaptiveTest(fit, select="score", **rules)
    with pytest.raises(ValueError, match="score_error requires"):
        AdaptiveTest(fit, score_error=0.1)
    with pytest.raises(ValueError, match="begin the test with"):
        AdaptiveTest(fit).score()
    with pytest.raises(ValueError, match="use next_items"):
        AdaptiveTest(fit, select="score").hand_out(str(fit.item_names[0]))
