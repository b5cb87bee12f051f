"""Bijections: there and back, ends of intervals, slopes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irtjax.numerics.bijections import (
    IDENTITY,
    MARGIN,
    POSITIVE,
    UNIT,
    Parameter,
    correlation_cholesky,
    correlation_coordinates,
    lkj_height,
    lkj_log_density,
)
from tests.tables import MODELS, NAMES, true_items

BIJECTIONS = {"identity": IDENTITY, "positive": POSITIVE, "unit": UNIT}


@pytest.mark.parametrize("bijection", BIJECTIONS.values(), ids=BIJECTIONS)
@settings(max_examples=30, deadline=None)
@given(coordinate=st.floats(-12, 12))
def test_there_and_back(bijection, coordinate):
    value = bijection.forward(jnp.asarray(coordinate))
    assert float(bijection.inverse(value)) == pytest.approx(coordinate, abs=1e-6)


def test_forward_maps_are_the_named_functions():
    x = jnp.linspace(-3, 3, 7)
    np.testing.assert_allclose(POSITIVE.forward(x), np.exp(x))
    np.testing.assert_allclose(UNIT.forward(x), 1 / (1 + np.exp(-x)))
    np.testing.assert_array_equal(IDENTITY.forward(x), x)


@pytest.mark.parametrize(
    ("bijection", "end"), [(POSITIVE, 0.0), (UNIT, 0.0), (UNIT, 1.0), (POSITIVE, -2.0)]
)
def test_ends_have_finite_coordinates_close_by(bijection, end):
    coordinate = bijection.inverse(jnp.asarray(end))
    assert np.isfinite(float(coordinate))
    inside = min(max(end, 0.0), 1.0)
    assert float(bijection.forward(coordinate)) == pytest.approx(inside, abs=2 * MARGIN)


def test_a_vector_parameter_takes_as_many_columns():
    assert Parameter("intercept").columns == 1
    assert Parameter("intercept", size=3).columns == 3


@pytest.mark.parametrize("name", NAMES)
def test_item_records_survive_their_coordinates(name):
    model = MODELS[name]()
    items = true_items(model)
    coordinates = model.unconstrain(items)
    assert coordinates.shape == (6, model.family.num_columns)
    back = model.constrain(coordinates)
    for field in items._fields:
        if field == "discrimination" and not model.family.has_slope:
            np.testing.assert_array_equal(back.discrimination, 1)
            continue
        np.testing.assert_allclose(
            getattr(back, field), getattr(items, field), rtol=1e-9, atol=1e-12
        )


def test_the_upper_asymptote_stays_above_the_lower_one():
    model = MODELS["4pl"]()
    rng = np.random.default_rng(0)
    items = model.constrain(jnp.asarray(rng.normal(scale=4, size=(500, 4))))
    lower, upper = np.asarray(items.lower_asymptote), np.asarray(items.upper_asymptote)
    assert (lower > 0).all() and (upper <= 1).all() and (lower < upper).all()


@pytest.mark.parametrize("name", NAMES)
def test_folding_the_scale_leaves_the_response_functions_alone(name):
    model = MODELS[name]()
    coordinates = model.unconstrain(true_items(model))
    # A family without slopes can only be shifted.
    sd = 1.7 if model.family.has_slope else 1.0
    folded = model.fold(coordinates, jnp.asarray(0.4), jnp.asarray(sd))
    theta = jnp.linspace(-2, 2, 5)
    before = model.family.table(model.constrain(coordinates), 0.4 + sd * theta)
    after = model.family.table(model.constrain(folded), theta)
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@given(st.permutations(range(4)), st.floats(1.0, 4.0))
@settings(max_examples=10, deadline=None)
def test_the_height_of_a_prior_of_correlations_knows_no_order(order, concentration):
    at = jnp.asarray([0.4, -0.3, 0.8, 0.1, -0.6, 0.2])
    factor = np.asarray(correlation_cholesky(at, 4), float)
    whole = (factor @ factor.T)[np.ix_(order, order)]
    moved = correlation_coordinates(jnp.asarray(np.linalg.cholesky(whole)))
    heights = [float(lkj_height(x, 4, concentration)) for x in (at, moved)]
    np.testing.assert_allclose(*heights, rtol=1e-4)
    # Two variables have one order, and the density of the coordinate itself.
    pair = [at[:1], at[1:2]]
    density = [float(lkj_log_density(x, 2, concentration)) for x in pair]
    height = [float(lkj_height(x, 2, concentration)) for x in pair]
    np.testing.assert_allclose(np.diff(density), np.diff(height), rtol=1e-4)
