"""Adaptive tests whose items have errors, against draws of items and exact banks."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.adaptive import AdaptiveTest, Design, ItemBank, start, update
from irtjax.adaptive.labels import LabelledBank, label
from irtjax.adaptive.session import fingerprint
from irtjax.adaptive.simulation import run_tests_jit
from irtjax.calibration.item_error import ItemErrors, item_errors
from irtjax.calibration.score import _with_errors as with_item_errors
from irtjax.harness.estimate import estimate
from irtjax.inference.scale_error import with_scale_error
from irtjax.models.model import Population
from irtjax.models.simulate import simulate_items
from tests.adaptive.test_adaptive_factors import bank_of as factor_bank
from tests.scoring_cases import ALL
from tests.small_fits import small_fit, small_table

KEY = jax.random.key(4)
UNIT = Population(jnp.array(0.0), jnp.array(1.0))
MODEL, SIZE = ALL["2pl"], 12
ITEMS = simulate_items(MODEL, SIZE, jax.random.key(5), discrimination=(0.8, 2.0))
COVARIANCE = np.broadcast_to(np.array([[0.16, 0.03], [0.03, 0.3]]), (SIZE, 2, 2))
SCALE = np.array([[0.1, 0.01], [0.01, 0.05]])


def bank_of(**options) -> ItemBank:
    return ItemBank.create(MODEL, ITEMS, UNIT, num_items=8, **options)


def tried(bank: ItemBank, **rules):
    design = Design.create(8, **{"select": "fixed", **rules})
    return run_tests_jit(bank, design, key=KEY, theta=jnp.linspace(-2, 2, 6))


def test_a_bank_without_errors_is_the_same_bank():
    exact = bank_of()
    for options in (
        {},
        dict(covariance=np.zeros((SIZE, 2, 2)), scale=np.zeros((2, 2))),
    ):
        same = bank_of(**options)
        assert jax.tree.structure(same) == jax.tree.structure(exact)
        pairs = zip(jax.tree.leaves(same), jax.tree.leaves(exact), strict=True)
        assert all(np.array_equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("score", [pytest.param("eap", marks=pytest.mark.slow), "map"])
def test_tiny_errors_give_the_numbers_of_exact_items(score):
    exact, tiny = bank_of(), bank_of(covariance=1e-12 * COVARIANCE)
    want, found = (tried(bank, scoring=score) for bank in (exact, tiny))
    np.testing.assert_array_equal(found.observations, want.observations)
    # The mode is that of a polynomial between nodes; EAP is a sum over the same ones.
    error = dict(eap=1e-6, map=2e-3)[score]
    np.testing.assert_allclose(found.ability, want.ability, atol=error)
    np.testing.assert_allclose(found.standard_error, want.standard_error, atol=error)
    at = exact.information(jnp.array(0.31))
    np.testing.assert_allclose(tiny.information(jnp.array(0.31)), at, rtol=0.02)


def test_the_posterior_is_that_of_drawn_items():
    """Given items drawn from their errors, posteriors are averaged by evidence."""
    bank, rng, draws = bank_of(covariance=COVARIANCE), np.random.default_rng(0), 20_000
    given, responses = np.array([3, 0, 7, 8]), np.array([1, 1, 0, 1])
    design = Design.create(4, select="fixed")
    state, step = start(bank, design, key=KEY), jax.jit(update)
    for item, response in zip(given, responses, strict=True):
        state = step(bank, design, state, jnp.int32(item), jnp.int32(response))
    theta = np.asarray(bank.theta)[::2]
    rows = np.asarray(MODEL.unconstrain(ITEMS))[given]
    noise = rng.multivariate_normal(np.zeros(2), COVARIANCE[0], (draws, 4))
    slope, intercept = (rows + noise)[..., 0], (rows + noise)[..., 1]
    likelihood = np.ones((draws, len(theta)))
    for k in range(4):
        logits = slope[:, k, None] * theta + intercept[:, k, None]
        likelihood /= 1 + np.exp(-(2 * responses[k] - 1) * logits)
    joint = likelihood * np.exp(-(theta**2) / 2)
    # Twenty batches of draws, whose spread is the error of their mean.
    found = []
    for part in joint.reshape(20, -1, len(theta)):
        weight = part.sum(0) / part.sum()
        mean = weight @ theta
        found.append((mean, weight @ (theta - mean) ** 2))
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(20)
    actual = np.array([state.ability, state.standard_error**2])
    # Five errors of the draws, and the error of the rule.
    assert (np.abs(actual - mean) < 5 * error + 0.003).all()
    # The same responses give more precision on exact items.
    exact = bank_of()
    state = start(exact, design, key=KEY)
    for item, response in zip(given, responses, strict=True):
        state = step(exact, design, state, jnp.int32(item), jnp.int32(response))
    assert float(state.standard_error) ** 2 < mean[1] - 10 * error[1]


def test_standard_errors_count_location_and_scale():
    plain, bank = (bank_of(covariance=COVARIANCE, scale=x) for x in (None, SCALE))
    without, found = tried(plain), tried(bank)
    np.testing.assert_array_equal(found.ability, without.ability)
    known = SCALE, without.ability, without.standard_error**2, (0.0, 1.0)
    want = np.sqrt(np.asarray(with_scale_error(*known)))
    np.testing.assert_allclose(found.standard_error, want, rtol=1e-9)
    # Before the first item the error is that of the population.
    first = [start(x, Design.create(2), key=KEY).standard_error for x in (plain, bank)]
    np.testing.assert_allclose(first, 1, atol=1e-7)
    theta = jnp.full(20_000, 1.5)
    gap = np.asarray(bank.placed(theta, KEY) - theta)
    variance = 0.1 + 2 * 0.01 * 1.5 + 0.05 * 1.5**2
    assert abs(gap.var() / variance - 1) < 5 * np.sqrt(2 / 20_000)
    np.testing.assert_array_equal(plain.placed(theta, KEY), theta)


def test_targets_below_the_error_of_the_scale_cannot_be_reached():
    bank = bank_of(covariance=1e-4 * COVARIANCE, scale=SCALE)
    known = LabelledBank(bank, np.array([f"q{k}" for k in range(SIZE)]), None, None)
    said = known.warnings(known.design(8, standard_error=0.3))
    assert said and said[0].startswith("standard_error 0.3 cannot be reached: 8 items")
    smallest = np.asarray(
        bank.smallest_errors(known.design(8), jnp.ones(SIZE, bool))[0]
    )
    assert smallest.min() > np.sqrt(0.1 / 1.1)


def test_items_without_finite_errors_and_several_abilities_have_a_sentence():
    covariance = COVARIANCE.copy()
    covariance[2] = np.nan
    names = np.array([f"q{k}" for k in range(SIZE)])
    fit: Any = SimpleNamespace(options={})
    known = LabelledBank(bank_of(covariance=covariance), names, None, None, fit)
    assert known.warnings(known.design(8)) == (
        "1 item has no finite errors: no response to such an item counts",
    )
    repeated = known._replace(bank=bank_of(covariance=covariance, repeats=2))
    assert repeated.warnings(repeated.design(8, repeats=2, icc=0.1)) == (
        "1 item has no finite errors: items without errors are taken as known",
    )
    known = known._replace(bank=bank_of())
    assert "the fit has no errors of its items" in known.warnings(known.design(8))[0]
    chosen: Any = SimpleNamespace(options={"item_uncertainty": False})
    said = known._replace(source=chosen).warnings(known.design(8))[0]
    assert said == "items are taken as known, as in the fit (item_uncertainty=False)"
    bank = factor_bank(None)
    names = np.array([f"q{k}" for k in range(bank.num_items)])
    known = LabelledBank(bank, names, None, np.array(["a", "b"]), fit)
    assert "the fit has no errors of its items" in known.warnings(known.design(2))[0]


def test_responses_to_one_item_share_its_error():
    """The added variance is that of a posterior mean moved with the items."""
    bank = bank_of(covariance=COVARIANCE, repeats=3)
    exact, icc, theta = bank_of(repeats=3), 0.2, np.asarray(bank.theta)
    design = Design.create(4, select="fixed", repeats=3, icc=icc)
    asked, replies, step = (3, 3, 7, 3), (1, 1, 0, 0), jax.jit(update)
    states = [start(x, design, key=KEY) for x in (bank, exact)]
    for item, response in zip(asked, replies, strict=True):
        cell = jnp.int32(item), jnp.int32(response)
        states = [
            step(x, design, state, *cell)
            for x, state in zip((bank, exact), states, strict=True)
        ]
    found, plain = states
    assert float(found.ability) == pytest.approx(float(plain.ability), abs=1e-12)
    odds, rows = icc / (1 - icc), np.asarray(MODEL.unconstrain(ITEMS), float)

    def mean_of(rows):
        total = -(theta**2) / 2
        for item, right, wrong in ((3, 2, 1), (7, 0, 1)):
            chance = 1 / (1 + np.exp(-(rows[item, 0] * theta + rows[item, 1])))
            total += sum(np.log(chance + i * odds) for i in range(right))
            total += sum(np.log(1 - chance + i * odds) for i in range(wrong))
        weight = np.exp(total)
        return weight @ theta / weight.sum()

    gradient = np.zeros_like(rows)
    for place in np.ndindex(*rows.shape):
        up, down = rows.copy(), rows.copy()
        up[place] += 1e-4
        down[place] -= 1e-4
        gradient[place] = (mean_of(up) - mean_of(down)) / 2e-4
    assert mean_of(rows) == pytest.approx(float(found.ability), abs=1e-9)
    want = np.einsum("jp,jpq,jq->", gradient, COVARIANCE, gradient)
    variances = [float(x.standard_error) ** 2 for x in states]
    assert variances[0] - variances[1] == pytest.approx(want, rel=1e-6)
    with pytest.raises(ValueError, match=r"ItemBank.create\(repeats=3\)"):
        bank_of(covariance=COVARIANCE).check(design)


def test_a_saved_test_belongs_to_the_errors_of_its_bank():
    names = np.array([f"q{k}" for k in range(SIZE)])
    hashes = [
        fingerprint(LabelledBank(bank_of(**options), names, None, None))
        for options in (
            {},
            dict(covariance=COVARIANCE),
            dict(covariance=2 * COVARIANCE),
            dict(covariance=COVARIANCE, scale=SCALE),
            dict(covariance=COVARIANCE, repeats=2),
        )
    ]
    assert len(set(hashes)) == 5
    same = bank_of(covariance=COVARIANCE)
    flipped = dataclasses.replace(
        same, errors=same.errors._replace(root=-same.errors.root)
    )
    assert fingerprint(LabelledBank(flipped, names, None, None)) == hashes[1]


@pytest.mark.slow
def test_rules_of_one_ability_run_on_items_with_errors():
    bank = bank_of(covariance=COVARIANCE, scale=SCALE)
    for rules in (dict(select="kl"), dict(select="mutual_information")):
        found = tried(bank, **rules)
        assert np.isfinite(found.ability).all() and (found.num_given == 8).all()
    design = Design.create(8, pass_mark=0.0, indifference=0.3, risk=0.1)
    state = start(bank, design, key=KEY)
    state = update(bank, design, state, jnp.int32(0), jnp.int32(1))
    # Five nodes or the sum over the errors of the item: the same likelihood.
    want = bank.log_prob(0, jnp.int32(1), 0.3) - bank.log_prob(0, jnp.int32(1), -0.3)
    assert float(bank.odds(state, -0.3, 0.3)) == pytest.approx(float(want), abs=1e-3)


@pytest.mark.slow
def test_a_test_of_all_items_is_the_score_of_a_calibration():
    fit, table = small_fit(), small_table()
    scored = irtjax.score(fit, table)
    assert not any("items are taken as known" in note for note in scored.notes)
    rules = dict(num_items=15, select="fixed", replay=table)
    tests = irtjax.simulate_tests(fit, key=KEY, **rules)
    ability = scored.table["ability"].to_numpy()
    np.testing.assert_allclose(tests.truth, tests.ability[:, -1], atol=1e-4)
    # The curves of tests are averages over the errors of items.
    error = scored.table["ability_se"].to_numpy()
    assert np.sqrt(np.mean((tests.ability[:, -1] - ability) ** 2)) < error.mean() / 3
    np.testing.assert_allclose(tests.standard_error[:, -1] / error, 1, atol=0.3)
    assert (scored.own_error < error + 1e-9).all()
    # Items as known, as the fit may choose, have smaller errors.
    options = {**fit.options, "item_uncertainty": False}
    exact = dataclasses.replace(fit, options=options)
    assert (
        item_errors(exact) is None
        and label(exact, 5, None, None, {}).bank.errors is None
    )
    plain = irtjax.score(exact, table)
    assert "items are taken as known" in " ".join(plain.notes)
    smaller = plain.table["ability_se"].to_numpy()
    assert np.mean(smaller) < np.mean(scored.own_error)
    assert (plain.own_error == smaller).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["eap", "map", "ml", "wle"])
def test_scores_are_those_of_items_as_known_with_larger_errors(method):
    fit, table = small_fit(), small_table()
    exact = dataclasses.replace(fit, item_covariance=None, ability_shared=None)
    found, plain = (irtjax.score(x, table, scoring=method) for x in (fit, exact))
    ability = [x.table["ability"].to_numpy() for x in (found, plain)]
    np.testing.assert_array_equal(*ability)
    assert np.isfinite(found.own_error).all()
    assert (found.own_error >= plain.own_error).all()
    assert found.own_error.mean() > plain.own_error.mean()


def test_items_without_errors_are_known_to_scores_and_have_a_note():
    covariance = COVARIANCE.copy()
    covariance[2] = np.nan
    errors = ItemErrors(covariance, None)
    options, notes = with_item_errors(errors, MODEL, np.arange(SIZE))
    blocks = np.asarray(options["item_covariance"].items)
    np.testing.assert_array_equal(blocks[3], COVARIANCE[3])
    assert not blocks[2].any()
    assert notes[0].startswith("1 item has no finite errors: items without")


@pytest.mark.slow
def test_counts_of_trials_take_errors_of_items_to_first_order():
    fit, table = small_fit(), small_table()
    counts = irtjax.ResponseTable.from_arrays(
        np.nan_to_num(np.asarray(table.values, float)) * 3,
        trials=np.full(table.values.shape, 3),
        items=table.items,
        subjects=table.subjects,
    )
    exact = dataclasses.replace(fit, item_covariance=None, ability_shared=None)
    found, plain = (irtjax.score(x, counts) for x in (fit, exact))
    ability = [x.table["ability"].to_numpy() for x in (found, plain)]
    np.testing.assert_allclose(*ability, atol=1e-9)
    assert (found.own_error > plain.own_error).all()


@pytest.mark.slow
def test_expected_scores_are_those_of_drawn_items():
    fit = small_fit()
    names = fit.item_names.tolist()
    found = estimate(fit, dict.fromkeys(names[1:8], 1))
    exact = dataclasses.replace(fit, item_covariance=None, ability_shared=None)
    plain = estimate(exact, dict.fromkeys(names[1:8], 1))
    assert found.ability.standard_error > plain.ability.standard_error
    table = irtjax.ResponseTable.from_arrays(
        np.ones((1, 7)), items=names[1:8], subjects=["new"]
    )
    scored = irtjax.score(fit, table)
    rng, draws = np.random.default_rng(0), 4000
    theta = found.ability.value + scored.own_error[0] * rng.normal(size=draws)
    rows = np.asarray(fit.model.unconstrain(fit.parameters.items))
    values, vectors = np.linalg.eigh(np.asarray(fit.item_covariance))
    roots = vectors * np.sqrt(np.maximum(values, 0))[:, None, :]
    noise = rng.normal(size=(draws, *rows.shape))
    drawn = rows + np.einsum("jpq,djq->djp", roots, noise)
    chance = 1 / (1 + np.exp(-(drawn[..., 0] * theta[:, None] + drawn[..., 1])))
    score = chance.mean(1)
    assert (
        abs(found.score.value - score.mean()) < 5 * score.std() / np.sqrt(draws) + 0.004
    )
    ratio = found.score.standard_error / score.std()
    assert abs(ratio - 1) < 5 / np.sqrt(2 * draws) + 0.03


@pytest.mark.slow
def test_simulated_errors_are_those_stated():
    tests = irtjax.simulate_tests(small_fit(), 2000, key=KEY, num_items=8)
    gap = tests.ability[:, -1] - tests.truth
    inside = np.abs(gap) < 1.959964 * tests.standard_error[:, -1]
    # Four binomial standard errors, and a hundredth for posteriors of eight responses.
    assert abs(inside.mean() - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000) + 0.01
    test = AdaptiveTest(small_fit(), num_items=4)
    assert test.standard_error == pytest.approx(test.prior[1])


@pytest.mark.slow
def test_intervals_cover_after_a_calibration_of_ten_subjects():
    """New subjects on chosen items, over calibrations of simulated subjects."""
    from experiments.coverage.adaptive import simulated

    rows = [row for seed in range(100, 106) for row in simulated(10, seed, False)]
    for name in ("ability", "score"):
        at = lambda errors, name=name: np.array(
            [
                row[f"{name}_coverage"]
                for row in rows
                if (row["errors"], row["select"], row["items"])
                == (errors, "information", 30)
            ]
        )
        found, known = at("counted"), at("known")
        # Subjects of one calibration share its errors: its coverage varies by more
        # than the binomial error of 100 subjects.
        spread = max(found.std(ddof=1), np.sqrt(0.95 * 0.05 / 100)) / np.sqrt(6)
        assert abs(found.mean() - 0.95) < 4 * spread
        assert known.mean() < found.mean()
