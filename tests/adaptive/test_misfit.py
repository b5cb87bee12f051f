"""Tests under wrong items, and targets that a bank cannot reach."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.adaptive import (
    AdaptiveTest,
    Design,
    ItemBank,
    draw_items,
    misfit_study,
)
from irtjax.adaptive.labels import label
from irtjax.adaptive.misfit import _designs, true_bank
from irtjax.models.catalogue import rasch
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.model import Population
from tests.adaptive.test_adaptive_factors import bank_of as factor_bank
from tests.small_fits import small_fit, small_table

KEY = jax.random.key(6)


@pytest.mark.slow
def test_drawn_items_have_the_covariance_of_the_calibration():
    fit = small_fit()
    keys = jax.random.split(KEY, 3000)
    one = lambda key: fit.model.unconstrain(draw_items(fit, key, 0.5))
    drawn = np.asarray(jax.vmap(one)(keys))
    known = fit.model.unconstrain(jax.tree.map(jnp.asarray, fit.parameters.items))
    want = 0.25 * np.asarray(fit.item_covariance)
    sd = np.sqrt(np.diagonal(want, axis1=1, axis2=2))
    # Five standard errors of a mean, and of a covariance of normals.
    assert (np.abs(drawn.mean(0) - known) < 5 * sd / np.sqrt(3000) + 1e-12).all()
    for j in range(len(want)):
        width = np.sqrt((np.outer(sd[j], sd[j]) ** 2 + want[j] ** 2) / 3000)
        assert (np.abs(np.cov(drawn[:, j].T) - want[j]) < 5 * width).all()


def test_the_items_of_another_calibration_are_in_the_order_of_the_bank():
    bank, other = label(rasch_bank(15), 3, None, None, {}), small_fit(errors=False)
    order = np.random.default_rng(0).permutation(15)
    bank = bank._replace(names=other.item_names[order])
    true = true_bank(None, bank, other, KEY)
    want = other.parameters.items.intercept[order]
    np.testing.assert_array_equal(true.items.intercept, want)


@pytest.mark.slow
def test_subjects_respond_by_the_items_of_another_calibration():
    # Items of another calibration that nobody gets wrong: every response is right.
    other = irtjax.fit(small_table(), "2pl", standard_errors="none")
    items = other.parameters.items
    easy = items._replace(intercept=np.full_like(items.intercept, 60.0))
    object.__setattr__(other, "parameters", other.parameters._replace(items=easy))
    bank = small_fit(errors=False)
    for truth in (other, easy):
        tests = irtjax.simulate_tests(bank, 20, key=KEY, num_items=5, truth=truth)
        assert (tests.responses == 1).all()


@pytest.mark.slow
def test_subjects_respond_by_drawn_items():
    fit = small_fit()
    plain = irtjax.simulate_tests(fit, 20, key=KEY, num_items=5)
    assert 0 < plain.responses.mean() < 1
    drawn = irtjax.simulate_tests(fit, 20, key=KEY, num_items=5, truth="draw")
    np.testing.assert_array_equal(drawn.truth, plain.truth)
    assert (drawn.responses != plain.responses).any()


@pytest.mark.slow
def test_selection_seeks_overestimated_slopes():
    study = misfit_study(small_fit(), 300, key=KEY, sizes=[0, 2], draws=6, num_items=5)
    rows = study.table.to_pylist()
    found = {(row["size"], row["select"]): row for row in rows}
    exact, wrong = (found[size, "information"] for size in (0.0, 2.0))
    # 1,800 tests: four binomial standard errors, and a hundredth for posteriors of five
    # responses, which are not normal.
    assert abs(exact["coverage"] - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 1800) + 0.01
    assert exact["slope_ratio"] == 1 and exact["rmse_se"] >= 0
    assert wrong["slope_ratio"] > max(1.1, found[2.0, "random"]["slope_ratio"])
    assert wrong["rmse"] > exact["rmse"] and wrong["coverage"] < exact["coverage"]


@pytest.mark.slow
def test_a_study_has_a_row_for_each_size_and_rule():
    study = misfit_study(small_fit(), 40, key=KEY, sizes=[1], draws=2, num_items=4)
    rows = study.table
    assert rows["select"].to_pylist() == ["information", "random"]
    assert rows["num_items"].to_pylist() == [4, 4]
    numbers = rows.drop_columns(["select"]).to_pandas().to_numpy()
    assert np.isfinite(numbers).all()


def test_random_items_of_a_study_have_no_rule_of_choice_and_no_end_but_the_budget():
    known = label(rasch_bank(9), 4, None, None, {})
    rules = dict(randomesque=3, standard_error=0.5, scoring="map", budget=5.0)
    rules |= dict(cost=np.ones(9), gain=0.1, price=0.01)
    chosen, random = _designs(known, 4, rules)
    assert (chosen.select, chosen.randomesque) == ("information", 3)
    assert chosen.standard_error is not None
    assert (random.select, random.randomesque, random.scoring) == ("random", 1, "map")
    assert random.budget is not None and random.cost is not None
    assert random.standard_error is random.gain is random.price is None
    assert len(_designs(known, 4, dict(select="random", standard_error=0.5))) == 1


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (dict(truth="both"), "neither 'bank', 'draw', a calibration nor"),
        (dict(truth="draw"), "no errors of items"),
        (dict(truth=3), "truth is of type int"),
        (dict(truth="draw", replay=0), "leave replay out"),
    ],
)
def test_what_does_not_suit_is_refused(call, match):
    fit = small_fit(errors=False)
    if "responses" in call:
        call = call | {"replay": small_table()}
    with pytest.raises(ValueError, match=match):
        irtjax.simulate_tests(fit, 5, key=KEY, num_items=3, **call)


def test_subjects_respond_by_an_item_record():
    bank = rasch_bank(15)
    items = bank.items
    hard = items._replace(intercept=np.where(np.arange(15) % 2, 60.0, -60.0))
    found = irtjax.simulate_tests(bank, 20, key=KEY, num_items=5, truth=hard)
    np.testing.assert_array_equal(found.responses, found.given % 2)
    # The items of the bank itself are its truth.
    usual = irtjax.simulate_tests(bank, 20, key=KEY, num_items=5)
    same = irtjax.simulate_tests(bank, 20, key=KEY, num_items=5, truth=items)
    np.testing.assert_array_equal(same.responses, usual.responses)
    np.testing.assert_array_equal(same.truth, usual.truth)


def test_an_item_record_of_several_abilities_is_the_truth():
    known = label(factor_bank(), 3, None, None, {})
    items = known.bank.items
    moved = items._replace(intercept=np.asarray(items.intercept) + 1)
    true = true_bank(None, known, moved, KEY)
    np.testing.assert_allclose(true.items.intercept, items.intercept + 1, atol=1e-6)
    assert true.errors is None


def test_an_item_record_of_another_kind_or_size_is_refused():
    known = label(rasch_bank(15), 3, None, None, {})
    nan = np.full(15, np.nan)
    for items, match in (
        (rasch_bank(14).items, r"discrimination has shape \(14,\), .* \(15,\): give"),
        (Population(jnp.array(0.0), jnp.array(1.0)), "of type Population"),
        (known.bank.items._replace(intercept=nan), "intercept has values that are no"),
    ):
        with pytest.raises(ValueError, match=match):
            true_bank(None, known, items, KEY)


def rasch_bank(size: int) -> ItemBank:
    ones, zeros = jnp.ones(size), jnp.zeros(size)
    items = LogisticItems(ones, zeros, zeros, ones)
    return ItemBank.create(rasch(), items, Population(jnp.array(0.0), jnp.array(1.0)))


def test_a_target_out_of_reach_has_a_sentence():
    known = label(rasch_bank(50), 30, None, None, {})
    said = known.warnings(known.design(30, reliability=0.95))
    assert "reliability 0.95 cannot be reached: 30 items" in said[0]
    assert known.warnings(known.design(30, reliability=0.7)) == ()
    # The book's difficulties (seed 42): all its 50 items give at most .898.
    state = np.random.RandomState(42)
    difficulty = state.normal(0, 1, 100), state.normal(0, 1.5, 50)
    bank = rasch_bank(50)
    bank = ItemBank.create(
        bank.model,
        bank.items._replace(intercept=jnp.asarray(-difficulty[1])),
        Population(jnp.array(0.0), jnp.array(1.0)),
    )
    book = label(bank, 50, None, None, {})
    (said,) = book.warnings(book.design(50, reliability=0.95))
    assert "(reliability 0.898)" in said


@pytest.mark.slow
def test_a_target_out_of_reach_is_named_with_what_can_be_reached():
    """The book's example: 30 Rasch items give at most 1 - 1 / (1 + 7.5) = 0.882."""
    tests = irtjax.simulate_tests(
        rasch_bank(50), 20, key=KEY, num_items=30, reliability=0.95
    )
    assert "reliability 0.95 cannot be reached: 30 items" in tests.notes[0]
    assert "(reliability 0.882)" in tests.notes[0]
    # The whole bank reaches 0.926, and no more than it has.
    test = AdaptiveTest(rasch_bank(50), reliability=0.95)
    assert "50 items" in test.warnings[0] and "0.926" in test.warnings[0]
    names = [f"item {k + 1}" for k in range(9)]
    few = AdaptiveTest(rasch_bank(50), 9, items=names, standard_error=0.3)
    assert f"{1 / np.sqrt(1 + 9 / 4):.3g}" in few.warnings[0]
    assert AdaptiveTest(rasch_bank(50), 30, reliability=0.7).warnings == ()
    rare = AdaptiveTest(rasch_bank(50), 30, reliability=0.88).warnings[0]
    assert "of the population alone" in rare


@pytest.mark.slow
def test_the_smallest_error_of_several_abilities_is_a_bound():
    bank = factor_bank((1.0, -0.5))
    allowed = jnp.ones(bank.num_items, bool)
    errors, weights = bank.smallest_errors(Design.create(4), allowed)
    assert float(weights.sum()) == pytest.approx(1)
    # Any four items at an ability: the variance of the composite by whole matrices.
    rng, points = np.random.default_rng(0), np.asarray(bank.points()[0])
    slopes, inverse = np.asarray(bank.items.discrimination), np.asarray(bank.precision)
    c = np.array([1.0, -0.5])
    for k in range(0, len(points), 128):
        weight = np.asarray(bank.information(jnp.asarray(points[k])))
        found = []
        for _ in range(300):
            four = rng.permutation(bank.num_items)[:4]
            more = (slopes[four].T * weight[four]) @ slopes[four]
            found.append(np.sqrt(c @ np.linalg.inv(inverse + more) @ c))
        assert min(found) >= float(errors[k])
