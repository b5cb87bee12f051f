"""What uncertain items add to the standard errors of scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.data.responses import Responses
from irtjax.inference import Covariance, score, score_on_nodes
from irtjax.models.catalogue import one_parameter
from tests.scoring_cases import (
    ALL,
    BOUNDS,
    NODES,
    UNIT,
    delta_method,
    logistic_items,
    make_data,
    uncertain_items,
)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("1pl", "eap"),
        ("2pl", "ml"),
        pytest.param("3pl", "eap", marks=pytest.mark.slow),
        ("3pl", "map"),
        pytest.param("graded", "ml", marks=pytest.mark.slow),
    ],
)
def test_item_uncertainty_follows_the_delta_method(name, method):
    model, items, data, covariance = uncertain_items(name)
    settings = {"scoring": method, "nodes": NODES}
    plain = score(model, items, UNIT, data, **settings)
    uncertain = Covariance.of_independent(covariance)
    got = score(model, items, UNIT, data, item_covariance=uncertain, **settings)

    def ability_at(moved):
        return score(model, moved, UNIT, data, **settings).ability

    added = delta_method(ability_at, model, items, covariance)
    inner = np.asarray(plain.flag) == 0
    assert inner.sum() >= 3
    # With the observed information in the denominator the two are the same to the
    # error of the differences, about step^2.
    np.testing.assert_allclose(
        (got.standard_error**2 - plain.standard_error**2)[inner],
        added[inner],
        rtol=1e-4,
        atol=1e-9,
    )
    np.testing.assert_allclose(got.ability, plain.ability, rtol=1e-12)


@pytest.mark.slow
def test_item_uncertainty_matches_redrawn_items():
    model = one_parameter()
    items = logistic_items(1.0, np.linspace(-1.5, 1.5, 8))
    data = Responses(jnp.array([[1, 1, 0, 1, 0, 1, 0, 0]], jnp.int8))
    sd = 0.3
    covariance = Covariance.of_independent(jnp.full((8, 1, 1), sd**2))
    draws = 4000
    noise = sd * jax.random.normal(jax.random.key(0), (draws, 8))

    @jax.jit
    def rescored(shift):
        moved = items._replace(intercept=items.intercept + shift)
        return score_on_nodes(model, moved, UNIT, data, NODES, BOUNDS, scoring="wle")

    plain = score(model, items, UNIT, data, scoring="wle", nodes=NODES)
    got = score(
        model, items, UNIT, data, scoring="wle", nodes=NODES, item_covariance=covariance
    )
    added = float(got.standard_error[0] ** 2 - plain.standard_error[0] ** 2)
    # A variance of 4,000 draws has relative error sqrt(2 / 4000); four of them, and
    # 10 % for what the linear formula and the omitted term leave out.
    spread = float(jnp.var(jax.vmap(rescored)(noise).ability))
    assert added == pytest.approx(spread, rel=4 * np.sqrt(2 / draws) + 0.1)


@pytest.mark.parametrize(
    ("name", "method", "rescaled"),
    [
        ("1pl", "eap", True),
        pytest.param("1pl", "map", True, marks=pytest.mark.slow),
        ("1pl", "wle", True),
        ("rasch", "eap", False),
        ("2pl", "map", False),
    ],
)
def test_errors_shared_by_all_subjects_follow_the_delta_method(name, method, rescaled):
    # Item coordinates, and the population's mean and log sd, move together along a
    # few directions. For a 1PL the log sd is reported as the common discrimination.
    model = ALL[name]
    items, data = make_data(model, "missing", num_subjects=6, num_items=5)
    rng = np.random.default_rng(1)
    columns = model.family.num_columns
    shared = rng.normal(size=(3, 5, columns)) * 0.2
    scale = rng.normal(size=(3, 2)) * 0.2
    if rescaled:
        scale[:, 0] = 0
    covariance = Covariance.of_independent(
        jnp.asarray(np.einsum("rja,rjb->jab", shared, shared))
    )._replace(
        shared=jnp.asarray(shared),
        shared_scale=jnp.asarray(scale),
        rescaled=jnp.asarray(rescaled),
    )
    settings = {"scoring": method, "nodes": NODES}
    plain = score(model, items, UNIT, data, **settings)
    got = score(model, items, UNIT, data, item_covariance=covariance, **settings)
    step = 1e-4

    def moved(direction, size):
        new = model.constrain(model.unconstrain(items) + size * shared[direction])
        mean, log_sd = size * scale[direction]
        population = UNIT._replace(mean=jnp.asarray(mean), sd=jnp.exp(log_sd))
        slope = items.discrimination
        if rescaled:
            slope, population = slope * jnp.exp(log_sd), UNIT
        if rescaled or not model.family.has_slope:
            new = new._replace(discrimination=slope)
        # Wide enough for either population.
        nodes = (NODES - population.mean) / population.sd
        return score(model, new, population, data, scoring=method, nodes=nodes).ability

    slopes = np.stack(
        [(moved(r, step) - moved(r, -step)) / (2 * step) for r in range(3)], axis=1
    )
    inner = np.asarray(plain.flag) == 0
    assert inner.sum() >= 3
    # WLE leaves out the change of J / (2 I), a few percent with five items.
    close = {"rtol": 0.1, "atol": 0.02} if method == "wle" else {"rtol": 1e-4}
    np.testing.assert_allclose(
        np.asarray(got.shared)[inner], slopes[inner], **{"atol": 1e-7} | close
    )
    np.testing.assert_allclose(
        (got.standard_error**2 - plain.standard_error**2)[inner],
        np.sum(np.asarray(got.shared) ** 2, axis=1)[inner],
        rtol=1e-9,
    )
