"""Simulated responses: probabilities, missing cells, counts and blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.models import simulate as module
from irtjax.models.catalogue import BINARY_MODELS, graded, two_parameter
from irtjax.models.model import Population
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items


@pytest.fixture(name="parts")
def parts_fixture():
    model = two_parameter()
    keys = jax.random.split(jax.random.key(11), 3)
    items = simulate_items(model, 30, keys[0])
    return model, items, simulate_abilities(4000, keys[1]), keys[2]


def test_design_of_items_and_abilities():
    items = simulate_items(two_parameter(), 20_000, jax.random.key(0))
    assert 0.5 <= items.discrimination.min() and items.discrimination.max() <= 1.0
    # Uniform on (0.5, 1): mean 0.75, sd 0.1443; d: mean 0, sd 0.5. 4.5 standard errors.
    root = np.sqrt(20_000)
    assert abs(items.discrimination.mean() - 0.75) < 4.5 * 0.1443 / root
    assert abs(items.intercept.mean()) < 4.5 * 0.5 / root
    assert abs(items.intercept.std() - 0.5) < 4.5 * 0.5 / np.sqrt(2) / root
    population = Population(jnp.array(1.0), jnp.array(2.0))
    theta = simulate_abilities(20_000, jax.random.key(0), population)
    assert abs(theta.mean() - 1) < 4.5 * 2 / root
    assert abs(theta.std() - 2) < 4.5 * 2 / np.sqrt(2) / root


@pytest.mark.parametrize("name", BINARY_MODELS)
def test_items_are_valid_for_every_model(name):
    model = BINARY_MODELS[name]()
    items = simulate_items(model, 500, jax.random.key(2))
    assert (items.lower_asymptote >= 0).all() and (items.upper_asymptote <= 1).all()
    assert (items.lower_asymptote < items.upper_asymptote).all()
    assert jnp.isfinite(model.unconstrain(items)).all()


def test_proportions_match_the_model(parts):
    model, items, theta, key = parts
    data = simulate(model, items, theta, key)
    assert data.values.dtype == jnp.int8 and data.observed is None
    expected = jax.nn.sigmoid(items.discrimination * theta[:, None] + items.intercept)
    error = np.sqrt((expected * (1 - expected)).sum(axis=0)) / theta.size
    z = (data.values.mean(axis=0) - expected.mean(axis=0)) / error
    # 30 standard normal numbers: beyond 4.5 once in 5,000 data sets.
    assert np.abs(z).max() < 4.5


def test_missing_cells_hold_zero(parts):
    model, items, theta, key = parts
    data = simulate(model, items, theta, key, missing=0.3)
    cells = data.values.size
    share = 1 - data.observed.mean()
    assert abs(share - 0.3) < 4.5 * np.sqrt(0.3 * 0.7 / cells)
    assert (data.values[~data.observed] == 0).all()
    # The responses that are there are the same as without missing cells.
    complete = simulate(model, items, theta, key)
    np.testing.assert_array_equal(data.values, complete.values * data.observed)
    keep = jnp.zeros(complete.values.shape, bool).at[:, :3].set(True)
    both = simulate(model, items, theta, key, missing=0.3, observed=keep)
    np.testing.assert_array_equal(both.observed, data.observed & keep)


def test_counts_of_trials(parts):
    model, items, theta, key = parts
    data = simulate(model, items, theta, key, missing=0.5, trials=5)
    assert int(data.values.max()) == 5
    np.testing.assert_array_equal(data.trials, 5 * data.observed)
    expected = jax.nn.sigmoid(items.discrimination * theta[:, None] + items.intercept)
    spread = np.sqrt(5 * (expected * (1 - expected) * data.observed).sum())
    residual = (data.values - 5 * expected * data.observed).sum()
    assert abs(residual) < 4.5 * spread
    # Of all cells' counts, the variance is binomial, not that of one trial times 25.
    z = (data.values - 5 * expected) / np.sqrt(5 * expected * (1 - expected))
    seen = np.asarray(data.observed)
    assert abs(np.asarray(z)[seen].var() - 1) < 4.5 * np.sqrt(2 / seen.sum()) * 1.5


def test_blocks_differ_and_repeat(parts, monkeypatch):
    model, items, theta, key = parts
    monkeypatch.setattr(module, "_DRAW_BYTES", 30 * 2 * 8 * 1500)
    data = simulate(model, items, theta, key, missing=0.2)
    again = simulate(model, items, theta, key, missing=0.2)
    np.testing.assert_array_equal(data.values, again.values)
    assert module._block_size(model, 4000, 30, 8) == 1334
    first, second = data.values[:1334], data.values[1334:2668]
    assert (first != second).mean() > 0.3
    same_mask = (data.observed[:1334] == data.observed[1334:2668]).mean()
    assert same_mask < 0.75  # 0.68 when independent


def test_under_jit_and_in_float32(parts):
    model, items, theta, key = parts
    small = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (items, theta))
    data = jax.jit(lambda i, t, k: simulate(model, i, t, k))(*small, key)
    plain = simulate(model, *small, key)
    np.testing.assert_array_equal(data.values, plain.values)


def test_bad_arguments_are_refused(parts):
    model, items, theta, key = parts
    with pytest.raises(ValueError, match="missing 1.0"):
        simulate(model, items, theta, key, missing=1.0)
    with pytest.raises(ValueError, match="trials 200"):
        simulate(model, items, theta, key, trials=200)
    ordered = graded(3)
    with pytest.raises(ValueError, match="no right responses"):
        simulate(ordered, simulate_items(ordered, 3, key), theta, key, trials=2)
