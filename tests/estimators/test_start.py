"""Start values: near the truth, finite, weighted, and the same by blocks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from irtjax.data.responses import Responses
from irtjax.estimators import start
from irtjax.estimators.start import column_products, row_products, start_values
from irtjax.models.catalogue import two_parameter
from tests.tables import MODELS, case


@pytest.mark.parametrize("how", ["proportions", "spectral"])
def test_they_order_subjects_and_items_as_the_truth_does(how):
    simulated = case("2pl", missing=False)
    first = start_values(simulated.model, simulated.data, how=how)
    assert float(first.theta.mean()) == pytest.approx(0, abs=1e-9)
    assert float(first.theta.std()) == pytest.approx(1, abs=1e-6)
    # Six items: a reliability near a half, so a correlation near 0.7, less 4 of its
    # standard errors of 0.05.
    assert stats.spearmanr(first.theta, simulated.theta).statistic > 0.5
    assert stats.spearmanr(first.items.intercept, simulated.items.intercept)[0] > 0.8
    assert (np.asarray(first.items.discrimination) > 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_they_are_finite_and_in_range_without_variation(name):
    simulated = case(name)
    model, data = simulated.model, simulated.data
    top = model.family.num_categories - 1
    assert data.observed is not None
    values = data.values.at[:, 0].set(top).at[:, 1].set(0).at[0].set(0)
    seen = data.observed.at[:, 2].set(False).at[1].set(False)
    first = start_values(model, Responses(values * seen, seen))
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(first))
    coordinates = model.unconstrain(first.items)
    assert bool(jnp.isfinite(coordinates).all())
    assert bool(jnp.isfinite(model.family.table(first.items, jnp.zeros(1))[0]).all())


def test_weights_are_numbers_of_copies():
    simulated = case("2pl")
    data = simulated.data
    assert data.observed is not None
    rows = np.r_[np.arange(240), np.arange(30)]
    copied = Responses(data.values[rows], data.observed[rows])
    weight = jnp.ones(240).at[:30].set(2.0)
    weighted = dataclasses.replace(data, subject_weight=weight)
    a = start_values(simulated.model, copied).items
    b = start_values(simulated.model, weighted).items
    np.testing.assert_allclose(a.discrimination, b.discrimination, rtol=1e-6)
    np.testing.assert_allclose(a.intercept, b.intercept, rtol=1e-6)


@pytest.mark.parametrize("name", ["2pl", "4pl", "probit2pl"])
def test_single_precision_is_kept(name):
    simulated = case(name)
    first = start_values(simulated.model, simulated.data, dtype=jnp.float32)
    assert {x.dtype for x in jax.tree.leaves(first)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize("missing", [True, False])
def test_products_by_blocks_are_products(monkeypatch, missing):
    data = case("2pl", missing).data
    values = np.asarray(data.values, float)
    seen = np.ones_like(values) if data.observed is None else np.asarray(data.observed)
    rng = np.random.default_rng(0)
    right, left = rng.normal(size=(6, 2)), rng.normal(size=(240, 3))
    monkeypatch.setattr(start, "block_size_for", lambda *_: 70)
    rows = row_products(data, jnp.asarray(right), jnp.asarray(right[:, ::-1]))
    np.testing.assert_allclose(rows, values @ right + seen @ right[:, ::-1], atol=1e-12)
    (with_statistic,), with_values, with_exposure = column_products(
        two_parameter(), data, jnp.asarray(left)
    )
    np.testing.assert_allclose(with_statistic, values.T @ left, atol=1e-12)
    np.testing.assert_allclose(with_values, values.T @ left, atol=1e-12)
    np.testing.assert_allclose(with_exposure, seen.T @ left, atol=1e-12)


def test_an_unknown_way_is_named():
    simulated = case("2pl")
    with pytest.raises(ValueError, match="start 'random' is neither 'proportions'"):
        start_values(simulated.model, simulated.data, how="random")
