"""What every response family must satisfy, whatever its formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.models.catalogue import (
    BINARY_MODELS,
    graded,
    nominal,
    partial_credit,
    partial_credit_unit,
    rating_scale,
)
from irtjax.models.families.logistic import Binary, LogisticItems
from irtjax.models.simulate import simulate_items

FAMILIES = {name: make() for name, make in BINARY_MODELS.items()}
FAMILIES["2pl positive"] = BINARY_MODELS["2pl"](positive=True)
FAMILIES["4pl positive"] = BINARY_MODELS["4pl"](positive=True)
FAMILIES["graded 4"] = graded(4)
FAMILIES["graded 2"] = graded(2)
FAMILIES["graded 4 positive"] = graded(4, positive=True)
FAMILIES["partial credit 3"] = partial_credit(3)
FAMILIES["partial credit 3 positive"] = partial_credit(3, positive=True)
FAMILIES["pcm 3"] = partial_credit_unit(3)
FAMILIES["rsm 4"] = rating_scale(4)
FAMILIES["nominal 3"] = nominal(3)
FAMILIES["nominal 4 positive"] = nominal(4, positive=True)
THETA = np.linspace(-4, 4, 9)


#: Those of the slow run only: another family stands for each in the default one.
RELATIVES = (
    "1pl",
    "3pl",
    "probit1pl",
    "4pl positive",
    "graded 2",
    "partial credit 3 positive",
    "nominal 4 positive",
)


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.slow) if name in RELATIVES else name
        for name in FAMILIES
    ],
    name="model",
)
def model_fixture(request):
    return FAMILIES[request.param]


def items_of(model, num_items=5):
    return simulate_items(model, num_items, jax.random.key(1), discrimination=(0.4, 2))


def item_at(items, index):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], items)


def test_probabilities_sum_to_one_and_stay_finite_far_out(model):
    items = items_of(model)
    over = jax.jit(jax.vmap(model.family.category_log_probs, in_axes=(0, None)))
    for theta in (-300.0, -6.0, 0.0, 6.0, 300.0):
        log_probs = over(items, jnp.array(theta))
        assert jnp.isfinite(log_probs).all()
        np.testing.assert_allclose(jnp.exp(log_probs).sum(axis=1), 1, rtol=1e-12)


def test_statistics_vanish_at_zero(model):
    # A missing cell holds 0; it must add nothing but the base term.
    for statistic in model.family.statistics(jnp.zeros((2, 3), jnp.int8)):
        np.testing.assert_array_equal(statistic, np.zeros((2, 3)))


def test_log_prob_picks_the_category(model):
    family, items = model.family, items_of(model)
    top = family.num_categories
    values = jnp.asarray(np.arange(THETA.size * 5).reshape(-1, 5) % top, float)
    log_prob = jax.jit(family.log_prob)
    got = np.asarray(log_prob(values, items, THETA))
    one = jax.jit(family.category_log_probs)
    for i, theta in enumerate(THETA):
        for j in range(5):
            every = np.asarray(one(item_at(items, j), theta))
            np.testing.assert_allclose(got[i, j], every[int(values[i, j])], rtol=1e-12)
    mask = jnp.asarray(np.arange(values.size).reshape(values.shape) % 2 == 0)
    masked = log_prob(values * mask, items, THETA, exposure=mask)
    np.testing.assert_allclose(masked, jnp.where(mask, got, 0), atol=1e-14)


def test_slope_acts_only_through_the_intercepts(model):
    # Estimators take d/da = theta * sum_h d/dd_h as given.
    family = model.family
    item = item_at(items_of(model), 0)
    slopes = jax.jit(jax.jacfwd(lambda it, t: jnp.stack(family.natural(it, t))))
    for theta in THETA:
        jacobian = slopes(item, theta)
        by_intercepts = jnp.reshape(jacobian.intercept, (family.num_categories, -1))
        np.testing.assert_allclose(
            jacobian.discrimination, theta * by_intercepts.sum(axis=1), atol=1e-10
        )


def test_coordinates_and_back(model):
    items = items_of(model)
    coordinates = model.unconstrain(items)
    assert coordinates.shape == (5, model.family.num_columns)
    assert len(set(model.family.coordinate_names)) == model.family.num_columns
    for there, back in zip(items, model.constrain(coordinates), strict=True):
        np.testing.assert_allclose(back, there, rtol=1e-9, atol=1e-12)


def test_fold_moves_the_ability_scale_into_the_items(model):
    family, items = model.family, items_of(model)
    mean, sd = jnp.array(0.7), jnp.array(1.6 if family.has_slope else 1.0)
    folded = model.constrain(model.fold(model.unconstrain(items), mean, sd))
    values = jnp.asarray(np.arange(THETA.size * 5).reshape(-1, 5) % 2, float)
    log_prob = jax.jit(family.log_prob)
    np.testing.assert_allclose(
        log_prob(values, folded, THETA),
        log_prob(values, items, mean + sd * THETA),
        rtol=1e-9,
        atol=1e-12,
    )


def test_expected_response_rises_with_ability(model):
    items = items_of(model)
    over = jax.jit(jax.vmap(model.family.expected_response, in_axes=(0, None)))
    curves = jnp.stack([over(items, theta) for theta in THETA])
    # Where the link saturates fast the mean is the top category to the last bit.
    at_top = curves[:-1] > model.family.num_categories - 1 - 1e-9
    assert ((jnp.diff(curves, axis=0) > 0) | at_top).all()


def test_samples_have_the_stated_probabilities(model):
    item = item_at(items_of(model), 2)
    one = jax.tree.map(lambda leaf: leaf[None], item)
    size = 20_000
    values = jax.jit(model.family.sample)(jax.random.key(5), one, jnp.full(size, 0.3))
    assert values.dtype == jnp.int8
    seen = np.bincount(np.asarray(values[:, 0]), minlength=model.family.num_categories)
    log_probs = jax.jit(model.family.category_log_probs)(item, 0.3)
    expected = np.exp(log_probs)
    # Each count is binomial: 4.5 standard errors.
    error = np.sqrt(expected * (1 - expected) / size)
    assert (np.abs(seen / size - expected) < 4.5 * error).all()


def test_start_is_finite_even_for_items_without_variation(model):
    top = model.family.num_categories
    shares = [np.full(3, 1 / top) for _ in range(1, top)]
    shares[0] = np.array([1 / top, 0.0, 0.0])  # a category nobody chose
    shares[-1][2] = 1.0  # an item everyone solved
    if top > 2:
        shares[-1][1], shares[0][2] = 0.4, 0.0
    start = jax.jit(model.family.start)(
        tuple(map(jnp.asarray, shares)), jnp.array([1.0, -0.5, 2])
    )
    coordinates = model.unconstrain(start)
    assert jnp.isfinite(coordinates).all()
    values = jnp.zeros((THETA.size, 3))
    assert jnp.isfinite(model.family.log_prob(values, start, THETA)).all()


def test_float32_stays_float32(model):
    items = simulate_items(model, 3, jax.random.key(0), dtype=jnp.float32)
    theta = THETA.astype(jnp.float32)
    for table in model.family.table(items, theta):
        assert table.dtype == jnp.float32
        assert table.shape == (THETA.size, 3)


class _Twice(Binary):
    """A binary family of a user, at twice the ability."""

    def natural(self, item, theta):
        """Log Q and log P - log Q at twice the ability."""
        return super().natural(item, 2 * theta)


def test_a_family_that_changes_the_link_changes_what_follows_from_it():
    plain, item = Binary(), LogisticItems(1.5, 0.3, 0.0, 1.0)
    theta = jnp.asarray(0.4)
    assert float(_Twice().expected_response(item, theta)) == pytest.approx(
        float(plain.expected_response(item, 2 * theta))
    )
    # The slope in ability is twice as large.
    assert float(_Twice().information(item, theta)) == pytest.approx(
        4 * float(plain.information(item, 2 * theta))
    )
