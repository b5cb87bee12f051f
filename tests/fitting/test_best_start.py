"""Several starts of non-negative factor models: the best end, and the spread."""

import functools

import numpy as np
import pytest
from scipy.special import expit

import irtjax
from irtjax.fitting import best_start

SUBJECTS, ITEMS, FACTORS = 60, 18, 5


@functools.cache
def table() -> irtjax.ResponseTable:
    """Three factors: of five, two are noise, and there are several optima."""
    rng = np.random.default_rng(1)
    slopes = rng.uniform(0, 1.5, (ITEMS, 3)) * (rng.random((ITEMS, 3)) < 0.5)
    eta = rng.normal(size=(SUBJECTS, 3)) @ slopes.T + rng.normal(size=ITEMS)
    return irtjax.ResponseTable.from_arrays(rng.random(eta.shape) < expit(eta))


@functools.cache
def fitted(num: int, factors: int = FACTORS):
    given = {"factors": factors, "positive": True, "standard_errors": "none"}
    return irtjax.fit(table(), "factor", "mm", num_starts=num, **given)


@pytest.mark.slow
def test_the_best_of_the_ends_is_kept_and_the_spread_stated():
    one, several = fitted(1), fitted(3)
    found = several.options["starts"]
    assert found["num"] == len(found["gap"]) == 3 and min(found["gap"]) == 0
    # The first start is the usual one: its end is that of a fit from it alone.
    usual = several.trace[-1] - found["gap"][0]
    assert one.trace[-1] == pytest.approx(usual, abs=1e-4)
    assert several.trace[-1] > one.trace[-1] + 0.1
    assert max(found["gap"]) > 0.1 and found["reached"] == 1
    note = next(x for x in several.notes if "starts reached" in x)
    assert note.startswith("1 of 3 starts reached the highest objective")
    assert f"the others end up to {max(found['gap']):.3g} nats lower" in note
    assert np.asarray(several.parameters.items.discrimination).min() >= 0
    assert "starts" not in one.options


@pytest.mark.slow
def test_factors_that_responses_determine_have_one_optimum():
    fit = fitted(4, factors=3)
    assert fit.options["starts"]["reached"] == 4
    assert "all 4 starts reached one objective" in fit.notes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_starts": 3}, "num_starts is for positive=True"),
        ({"num_starts": 0, "positive": True}, "give a whole number from 1"),
        ({"num_starts": 3, "positive": True, "method": "gvem"}, "requires method='mm'"),
        ({"num_starts": 3, "positive": True, "factors": 1}, "leave it out"),
    ],
)
def test_it_is_refused_where_it_does_nothing(settings, message):
    given = {"factors": FACTORS, "method": "mm", **settings}
    with pytest.raises(ValueError, match=message):
        irtjax.fit(table(), "factor", **given)


def test_large_tables_have_one_start_unless_more_are_asked_for(monkeypatch):
    asked = []

    def seen(task, num, key):
        asked.append(num)
        return task

    monkeypatch.setattr("irtjax.fitting.several_abilities.with_best_start", seen)
    given = {"factors": 2, "positive": True, "standard_errors": "none"}
    irtjax.fit(table(), "factor", "mm", **given)
    monkeypatch.setattr(best_start, "MANY_CELLS", SUBJECTS * ITEMS - 1)
    irtjax.fit(table(), "factor", "mm", **given)
    irtjax.fit(table(), "factor", "mm", num_starts=2, **given)
    assert asked == [best_start.USUAL, 2]
