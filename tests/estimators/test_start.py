"""Start values: near the truth, finite, weighted, and the same by blocks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from irtjax.data import responses
from irtjax.data.responses import Responses
from irtjax.estimators import start
from irtjax.estimators.start import start_values
from irtjax.models.catalogue import (
    graded,
    latency_response,
    probit_two_parameter,
    rasch,
    two_parameter,
)
from irtjax.models.lengths import LengthParameters
from irtjax.models.simulate import (
    simulate,
    simulate_abilities,
    simulate_items,
    simulate_length_items,
    simulate_log_lengths,
)
from tests.tables import NAMES, case


@pytest.mark.parametrize("how", start.STARTS)
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


@pytest.mark.parametrize("name", NAMES)
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
    monkeypatch.setattr(responses, "block_size_for", lambda *_: 70)
    rows = data.row_products(jnp.asarray(right), jnp.asarray(right[:, ::-1]))
    np.testing.assert_allclose(rows, values @ right + seen @ right[:, ::-1], atol=1e-12)
    (with_statistic,), with_values, with_exposure = data.column_products(
        jnp.asarray(left), two_parameter().family.statistics
    )
    np.testing.assert_allclose(with_statistic, values.T @ left, atol=1e-12)
    np.testing.assert_allclose(with_values, values.T @ left, atol=1e-12)
    np.testing.assert_allclose(with_exposure, seen.T @ left, atol=1e-12)


def test_an_unknown_way_is_named():
    simulated = case("2pl")
    with pytest.raises(ValueError, match="start 'random' is none of proportions"):
        start_values(simulated.model, simulated.data, how="random")


def large_draw(missing: float):
    """Probit responses and lengths of 800 subjects and 120 items."""
    keys = jax.random.split(jax.random.key(2), 6)
    model = latency_response()
    items = simulate_items(model, 120, keys[0])
    theta = simulate_abilities(800, keys[1])
    lengths = LengthParameters(simulate_length_items(120, keys[2]), jnp.asarray(-0.8))
    log_length, tau = simulate_log_lengths(lengths, theta, keys[3])
    data = simulate(model, items, theta, keys[4], missing=missing)
    known = jax.random.bernoulli(keys[5], 1 - missing, log_length.shape)
    data = dataclasses.replace(
        data, log_length=jnp.where(known, log_length, 0), length_observed=known
    )
    return data, items, theta, lengths


@pytest.mark.parametrize("missing", [pytest.param(0.0, marks=pytest.mark.slow), 0.3])
def test_the_low_rank_start_is_near_the_truth(missing):
    data, items, theta, lengths = large_draw(missing)
    first = start_values(latency_response(), data, how="low_rank")
    # Consistent: with 120 items of slope near 0.75 an ability has standard error 0.2,
    # and an item with 800 subjects one of 0.07.
    # Missing cells as 0, the rest divided by their share 0.7, raise the variance of an
    # entry from p - p^2 to p / 0.7 - p^2, twofold and more.
    assert np.corrcoef(first.theta, theta)[0, 1] > (0.85 if missing else 0.95)
    assert np.corrcoef(first.items.discrimination, items.discrimination)[0, 1] > 0.5
    assert np.corrcoef(first.items.intercept, items.intercept)[0, 1] > 0.95
    found = first.lengths
    assert found is not None
    omega, phi, variance = (np.asarray(x) for x in found.items)
    # Five standard errors of a mean, a slope and a log variance of 800 (or 560) values.
    spread = np.sqrt(np.asarray(lengths.items.residual_variance) / 500)
    scale = 5 * np.sqrt(spread**2 + 2 / 500)
    assert (np.abs(omega - lengths.items.speed_intercept) < scale).all()
    assert (np.abs(phi - lengths.items.speed_discrimination) < scale).all()
    ratio = variance / np.asarray(lengths.items.residual_variance)
    # Missing lengths count as the mean, which shrinks speeds and leaves more over.
    largest = np.log(2) if missing else 5 * np.sqrt(2 / 500)
    assert np.abs(np.log(ratio)).max() < largest
    # Attenuated by the errors of ability, not more.
    assert -0.85 < float(found.correlation) < -0.7
    # Signs: more able and faster are up.
    assert float(first.items.discrimination.sum()) > 0 and phi.sum() > 0


@pytest.mark.parametrize("epsilon", [pytest.param(1e-9, marks=pytest.mark.slow), 0.05])
def test_the_low_rank_start_is_finite_in_either_precision(epsilon):
    simulated = case("2pl")
    data = simulated.data
    assert data.observed is not None
    values = data.values.at[:, 0].set(1).at[:, 1].set(0)
    bad = Responses(values, data.observed.at[3].set(False).at[:, 2].set(False))
    for dtype in (jnp.float32, jnp.float64):
        first = start_values(
            probit_two_parameter(), bad, how="low_rank", dtype=dtype, truncation=epsilon
        )
        for leaf in jax.tree.leaves(first):
            assert leaf.dtype == dtype and bool(jnp.isfinite(leaf).all())
        assert float(jnp.abs(first.items.intercept).max()) <= start.LARGEST_INTERCEPT


def test_the_low_rank_start_refuses_what_it_cannot_do():
    data = case("2pl").data
    for model in (graded(3), rasch()):
        with pytest.raises(ValueError, match="use 'spectral'"):
            start_values(model, data, how="low_rank")
    with pytest.raises(ValueError, match="epsilon 0.5"):
        start_values(two_parameter(), data, how="low_rank", truncation=0.5)
    with pytest.raises(ValueError, match="none of proportions, spectral, low_rank"):
        start_values(two_parameter(), data, how="guess")
