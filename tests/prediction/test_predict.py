"""Predictions of a fit: labels, loaded fits, every kind of model, brute force."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, logit

import irtjax
from irtjax.models.families.continuous import AbstractScoreFamily
from irtjax.prediction.responses import predict
from tests import brute_force, tables
from tests.small_fits import small_fit


def plain_calibration(name: str):
    """The data of a case in the table of models, fitted from its labels."""
    case = tables.case(name)
    values = np.asarray(case.data.values, float)
    family = case.model.family
    if isinstance(family, AbstractScoreFamily):
        scores = np.clip(expit(np.clip(values, -30, 30)), 0.0, 1.0)
        if name == "mixed":
            binary = np.asarray(family.binary)
            scores = np.where(binary, values, scores)
        if name == "inflated_beta":
            scores = np.where(values <= -30, 0.0, np.where(values >= 30, 1.0, scores))
        values = scores
    observed = np.asarray(case.data.observed)
    table = irtjax.ResponseTable.from_arrays(np.where(observed, values, np.nan))
    model = case.model
    return irtjax.fit(table, model, standard_errors="none", max_steps=20), model


@pytest.mark.parametrize(
    "name",
    [
        name if name == "2pl" else pytest.param(name, marks=pytest.mark.slow)
        for name in tables.MODELS
    ],
)
def test_every_model_is_the_mean_over_the_ability_by_brute_force(name):
    fit, model = plain_calibration(name)
    found = predict(fit)
    ability = np.array(fit.abilities.table.column("ability").to_pylist())
    error = np.array(fit.abilities.table.column("ability_se").to_pylist())
    fine = np.linspace(-8, 8, 4001)
    weight = np.exp(-0.5 * ((fine - ability[:5, None]) / error[:5, None]) ** 2)
    weight /= weight.sum(axis=1, keepdims=True)
    items = jax.tree.map(jnp.asarray, fit.parameters.items)
    if isinstance(model.family, AbstractScoreFamily):
        over = jax.vmap(fit.model.family.expected_response, in_axes=(0, None))
        at = np.asarray(jax.vmap(over, in_axes=(None, 0))(items, fine))
    else:
        chance = brute_force.category_probabilities(model.name, items, fine)
        at = np.asarray(chance) @ np.arange(chance.shape[-1])
    mean = weight @ at
    sd = np.sqrt(weight @ at**2 - mean**2)
    # Fifteen nodes over errors of more than half a standard deviation.
    np.testing.assert_allclose(found.expected[:5], mean, atol=2e-4)
    np.testing.assert_allclose(found.standard_error[:5], sd, atol=1e-3)
    assert found.expected.shape == (tables.NUM_SUBJECTS, tables.NUM_ITEMS)
    # Means over items are expected scores: with six items the posterior of an ability
    # is not quite the normal one that predictions are over.
    score = np.array(fit.abilities.table.column("expected_score").to_pylist())
    spread = np.array(fit.abilities.table.column("expected_score_se").to_pylist())
    assert np.abs((found.expected.mean(axis=1) - score) / spread).max() < 0.25


def test_names_choose_and_order_rows_and_columns(tmp_path):
    fit = small_fit()
    whole = predict(fit)
    assert whole.subjects.tolist() == fit.subject_names.tolist()
    some = predict(
        fit,
        subject_names=["vendor/model_5", "vendor/model_2"],
        item_names=["b1/q3", "b0/q0"],
    )
    rows = [whole.subjects.tolist().index(n) for n in some.subjects.tolist()]
    columns = [whole.items.tolist().index(n) for n in some.items.tolist()]
    assert some.items.tolist() == ["b1/q3", "b0/q0"]
    np.testing.assert_allclose(
        some.expected, whole.expected[np.ix_(rows, columns)], rtol=1e-12
    )
    again = predict(irtjax.load(irtjax.save(fit, tmp_path / "fit")))
    np.testing.assert_array_equal(again.expected, whole.expected)
    np.testing.assert_array_equal(again.standard_error, whole.standard_error)
    for options, words in (
        (
            {"subject_names": ["vendor/modl_5"]},
            "no subject .* did you mean vendor/model_5",
        ),
        ({"item_names": ["b1/q33"]}, "no item .* did you mean"),
    ):
        with pytest.raises(ValueError, match=words):
            predict(fit, **options)


def test_the_table_is_long_and_labelled():
    found = predict(small_fit(), subject_names=["vendor/model_1", "vendor/model_0"])
    rows = found.table.to_pylist()
    assert len(rows) == 30
    assert list(rows[0]) == ["subject", "item", "expected", "expected_se"]
    assert rows[15]["subject"] == "vendor/model_0"
    assert rows[16]["item"] == small_fit().item_names[1]
    assert rows[16]["expected"] == found.expected[1, 1]


def test_blocks_of_subjects_change_nothing(monkeypatch):
    whole = predict(small_fit())
    monkeypatch.setattr("irtjax.prediction.responses.BLOCK_CELLS", 7 * 15)
    part = predict(small_fit())
    np.testing.assert_allclose(part.expected, whole.expected, rtol=1e-12)
    np.testing.assert_allclose(part.standard_error, whole.standard_error, rtol=1e-9)


@pytest.mark.slow
def test_categories_add_up():
    fit, _ = plain_calibration("graded")
    found = predict(fit, subject_names=fit.subject_names[:4], categories=True)
    assert found.probabilities.shape == (4, tables.NUM_ITEMS, 3)
    np.testing.assert_allclose(found.probabilities.sum(axis=2), 1, rtol=1e-9)
    np.testing.assert_allclose(
        found.probabilities @ np.arange(3), found.expected, rtol=1e-9
    )
    names = found.table.column_names
    assert names[4:] == ["probability_0", "probability_1", "probability_2"]
    scores, _ = plain_calibration("mixed")
    with pytest.raises(ValueError, match="without categories"):
        predict(scores, categories=True)


@functools.cache
def grouped():
    """Two benchmarks on which subjects stand in opposite orders."""
    rng = np.random.default_rng(8)
    own = np.stack([np.linspace(-1.5, 1.5, 16), np.linspace(1.5, -1.5, 16)], axis=1)
    group = np.arange(60) % 2
    chance = expit(own[:, group] + rng.normal(0, 0.8, 60))
    values = (rng.random(chance.shape) < chance).astype(float)
    values[rng.random(values.shape) < 0.3] = np.nan
    table = irtjax.ResponseTable.from_arrays(
        values, benchmark=[f"b{g}" for g in group.tolist()]
    )
    return irtjax.fit(table, "multibenchmark"), chance, group


@pytest.mark.slow
def test_each_benchmark_is_predicted_by_its_own_ability(tmp_path):
    fit, chance, group = grouped()
    found = predict(irtjax.load(irtjax.save(fit, tmp_path / "fit")))
    for g in (0, 1):
        mine = np.where(group == g)[0]
        means = found.expected[:, mine].mean(axis=1)
        assert np.corrcoef(means, chance[:, mine].mean(axis=1))[0, 1] > 0.9
    # By a dense product grid over the ability and the item's two coordinates.
    row, item = 3, 10
    ability = fit.structure.ability[row, group[item]]
    error = fit.structure.error[row, group[item]]
    items = jax.tree.map(lambda x: np.asarray(x)[item], fit.parameters.items)
    centre = np.array([np.log(items.discrimination), items.intercept])
    root = np.linalg.cholesky(fit.item_covariance[item])
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(400_000, 3))
    x = centre + draws[:, 1:] @ root.T
    mean = expit(np.exp(x[:, 0]) * (ability + error * draws[:, 0]) + x[:, 1])
    # A cubature of degree 3 leaves out fourth moments: a percent here; draws less.
    assert found.expected[row, item] == pytest.approx(mean.mean(), abs=0.01)
    # It differs from what the estimates say.
    plug = expit(items.discrimination * ability + items.intercept)
    assert abs(logit(plug)) > abs(logit(found.expected[row, item])) or plug == 0.5
    # What the table has for all items is the mean of what is predicted of each.
    score = np.array(fit.abilities.table.column("expected_score").to_pylist())
    spread = np.array(fit.abilities.table.column("expected_score_se").to_pylist())
    assert np.abs(found.expected.mean(axis=1) - score).max() < 0.5 * spread.min()
