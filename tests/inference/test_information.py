"""Information against formulas, finite differences and numerical integration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, logsumexp
from scipy.stats import norm

from irtjax.inference import information
from irtjax.models.catalogue import (
    BINARY_MODELS,
    four_parameter,
    graded,
    nominal,
    partial_credit,
    partial_credit_unit,
    rasch,
    two_parameter,
)
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.model import Population
from irtjax.models.simulate import simulate_items

THETA = jnp.linspace(-5, 5, 21)
#: Of the slow run only: others in the default run have their formulas.
RELATIVES = ("rasch", "1pl", "3pl", "probit1pl", "pcm")


def _names(models) -> list:
    return [
        pytest.param(name, marks=pytest.mark.slow) if name in RELATIVES else name
        for name in models
    ]


ALL = {name: make() for name, make in BINARY_MODELS.items()}
ALL |= {"graded": graded(4), "partial credit": partial_credit(3)}
ALL |= {"pcm": partial_credit_unit(3), "nominal": nominal(4)}
UNIT = Population(jnp.array(0.0), jnp.array(1.0))


def curves(model, items, theta):
    """P, 1 - P and dP / d theta in plain numpy, without loss in the tails."""
    slope, intercept, low, high = (np.asarray(leaf) for leaf in items)
    predictor = slope * np.asarray(theta)[:, None] + intercept
    if model.name == "cloglog2pl":
        rate = np.exp(predictor)
        wrong = np.maximum(np.exp(-rate), 1e-300)
        return -np.expm1(-rate), wrong, slope * rate * np.exp(-rate)
    probit = model.family.link == "probit"
    curve = norm.cdf if probit else expit
    density = norm.pdf(predictor) if probit else expit(predictor) * expit(-predictor)
    right = low + (high - low) * curve(predictor)
    wrong = 1 - high + (high - low) * curve(-predictor)
    return right, wrong, (high - low) * slope * density


@pytest.mark.parametrize("name", _names(BINARY_MODELS))
def test_binary_items_have_squared_slope_over_variance(name):
    model = ALL[name]
    items = simulate_items(model, 6, jax.random.key(0), discrimination=(0.3, 2.5))
    right, wrong, slope = curves(model, items, THETA)
    got = information.item_information(model, items, THETA)
    assert got.shape == (21, 6)
    # A cloglog item that nobody fails has none: P(0) below 2e-24 is another there.
    wanted = slope**2 / (right * wrong)
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-18)


@pytest.mark.parametrize("name", _names(ALL))
def test_information_is_minus_the_expected_second_derivative(name):
    model = ALL[name]
    items = simulate_items(model, 4, jax.random.key(3))

    def negative_expectation(item, theta):
        log_probs = lambda t: model.family.category_log_probs(item, t)
        second = jax.jacfwd(jax.jacfwd(log_probs))(theta)
        return -jnp.sum(jnp.exp(log_probs(theta)) * second)

    over_items = jax.vmap(negative_expectation, in_axes=(0, None))
    expected = jax.jit(jax.vmap(over_items, in_axes=(None, 0)))(items, THETA)
    got = information.item_information(model, items, THETA)
    np.testing.assert_allclose(got, expected, rtol=1e-8, atol=1e-12)


def test_four_parameter_closed_form():
    model = four_parameter()
    items = simulate_items(model, 6, jax.random.key(1))
    slope, _, low, high = (np.asarray(leaf) for leaf in items)
    right, wrong, _ = curves(model, items, THETA)
    closed = slope**2 * (right - low) ** 2 * (high - right) ** 2
    closed /= (high - low) ** 2 * right * wrong
    got = information.item_information(model, items, THETA)
    np.testing.assert_allclose(got, closed, rtol=1e-9)


def test_rasch_information_is_a_quarter_at_the_difficulty():
    items = LogisticItems(jnp.ones(1), jnp.array([-1.5]), jnp.zeros(1), jnp.ones(1))
    theta = jnp.linspace(-4, 4, 801)
    curve = information.item_information(rasch(), items, theta)[:, 0]
    assert float(theta[jnp.argmax(curve)]) == pytest.approx(1.5, abs=1e-9)
    assert float(curve.max()) == pytest.approx(0.25, abs=1e-12)


@pytest.mark.parametrize(
    "dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.slow)]
)
def test_far_abilities_give_no_nan(dtype):
    theta = jnp.array([-1e3, -100, -40, 40, 100, 1e3], dtype)
    for model in ALL.values():
        items = simulate_items(model, 3, jax.random.key(1), dtype=dtype)
        got = information.item_information(model, items, theta)
        assert got.dtype == dtype
        assert jnp.isfinite(got).all() and (got >= 0).all()


def test_test_information_and_standard_errors():
    model = two_parameter()
    items = simulate_items(model, 8, jax.random.key(2))
    weight = jnp.array([1.0, 0, 2, 1, 1, 0, 0, 3])
    each = information.item_information(model, items, THETA)
    total = information.test_information(model, items, THETA)
    np.testing.assert_allclose(total, each.sum(axis=1), rtol=1e-12)
    weighted = information.standard_error_curve(model, items, THETA, None, weight)
    np.testing.assert_allclose(weighted, (each @ weight) ** -0.5, rtol=1e-12)
    population = Population(jnp.array(3.0), jnp.array(0.5))
    curve = information.standard_error_curve(model, items, THETA, population)
    np.testing.assert_allclose(curve, (total + 4) ** -0.5, rtol=1e-12)
    nothing = information.standard_error_curve(model, items, THETA, None, 0 * weight)
    assert jnp.isnan(nothing).all()


def test_marginal_reliability_is_an_integral():
    model = two_parameter()
    items = simulate_items(model, 12, jax.random.key(5))
    slope, intercept = np.asarray(items[0]), np.asarray(items[1])

    def integrand(theta, mean, sd):
        right = expit(slope * theta + intercept)
        info = (slope**2 * right * (1 - right)).sum()
        return norm.pdf(theta, mean, sd) * info / (info + 1 / sd**2)

    for mean, sd in ((0.0, 1.0), (0.5, 2.0)):
        population = Population(jnp.array(mean), jnp.array(sd))
        got = float(information.marginal_reliability(model, items, population))
        exact = quad(integrand, mean - 8 * sd, mean + 8 * sd, args=(mean, sd))[0]
        assert got == pytest.approx(exact, abs=1e-6)


def test_marginal_reliability_over_a_histogram():
    model = two_parameter()
    items = simulate_items(model, 12, jax.random.key(5))
    at = np.full(7, -np.inf)
    at[[2, 4]] = np.log(0.5)
    population = Population(jnp.array(0.0), jnp.array(1.0), jnp.asarray(at))
    info = information.test_information(model, items, jnp.array([-2.0, 2.0]))
    expected = (info / (info + 1)).mean()
    got = information.marginal_reliability(model, items, population)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    normal = np.linspace(-6, 6, 121)
    log_weights = -0.5 * normal**2 - logsumexp(-0.5 * normal**2)
    same = UNIT._replace(log_weights=jnp.asarray(log_weights))
    np.testing.assert_allclose(
        information.marginal_reliability(model, items, same),
        information.marginal_reliability(model, items, UNIT),
        rtol=1e-12,
    )


def test_empirical_reliability_is_a_squared_correlation():
    # theta ~ N(0, 1), score = theta + error: both forms estimate 1 / (1 + E).
    keys = jax.random.split(jax.random.key(0))
    size, error = 20_000, 0.6
    theta = jax.random.normal(keys[0], (size,))
    raw = theta + error * jax.random.normal(keys[1], (size,))
    truth = 1 / (1 + error**2)
    shrunk = raw * truth
    posterior = jnp.full(size, np.sqrt(1 - truth))
    # The variance of a sample variance is 2 / n: four standard errors.
    tolerance = 4 * np.sqrt(2 / size)
    ml = information.empirical_reliability(raw, jnp.full(size, error), shrunk=False)
    assert float(ml) == pytest.approx(truth, abs=tolerance)
    eap = information.empirical_reliability(shrunk, posterior)
    assert float(eap) == pytest.approx(truth, abs=tolerance)
    assert float(jnp.corrcoef(theta, raw)[0, 1] ** 2) == pytest.approx(truth, abs=0.02)


def test_empirical_reliability_stays_a_share():
    same = jnp.zeros(5)
    assert float(information.empirical_reliability(same, jnp.ones(5))) == 0
    unshrunk = information.empirical_reliability(same, jnp.ones(5), shrunk=False)
    assert float(unshrunk) == 0


def test_difficulty():
    items = LogisticItems(
        jnp.array([2.0, -0.5, 0.0, 1e-9]), jnp.ones(4), jnp.zeros(4), jnp.ones(4)
    )
    got = np.asarray(information.difficulty(items))
    np.testing.assert_allclose(got, [-0.5, 2.0, np.nan, np.nan])
    ordered = simulate_items(graded(4), 3, jax.random.key(0))
    thresholds = information.difficulty(ordered)
    assert thresholds.shape == (3, 3)
    assert (jnp.diff(thresholds, axis=1) > 0).all()
