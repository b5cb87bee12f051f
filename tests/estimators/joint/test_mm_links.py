"""MM of ordered categories and of the probit link: optima, safeguards, empty cells."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import irtjax
from irtjax._types import Status
from irtjax.estimators.driver import run_jit
from irtjax.estimators.joint.gradient import Gradient
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models import catalogue

SHAPE = (60, 8)
MAKE = {
    "graded": lambda: catalogue.graded(4),
    "partial_credit": lambda: catalogue.partial_credit(4),
    "probit2pl": catalogue.probit_two_parameter,
    "2pl": catalogue.two_parameter,
    "graded of two": lambda: catalogue.graded(2),
}


@functools.cache
def drawn(categories):
    rng = np.random.default_rng(5)
    slope, theta = rng.uniform(0.7, 1.8, SHAPE[1]), rng.normal(size=SHAPE[0])
    cuts = np.linspace(1.2, -1.2, categories - 1) if categories > 2 else np.zeros(1)
    level = rng.normal(size=SHAPE[1])[:, None] * 0.6 + cuts
    eta = theta[:, None, None] * slope[:, None] + level
    values = (rng.random((*SHAPE, 1)) < 1 / (1 + np.exp(-eta))).sum(-1)
    seen = rng.random(SHAPE) < 0.85
    return (values * seen).astype(np.int8), seen


def responses(categories):
    values, seen = drawn(categories)
    return irtjax.Responses(jnp.asarray(values), jnp.asarray(seen))


def fitted(name, data=None, method=None):
    model = MAKE[name]()
    data = responses(model.family.num_categories) if data is None else data
    method = MM(tolerance=jnp.asarray(1e-9)) if method is None else method
    problem = Problem.create(model, data)
    return run_jit(problem, method, start_values(model, data), max_steps=3000)


def probabilities(name, slope, cuts, theta):
    """Of all categories, written for this test."""
    eta = theta[:, None, None] * slope[:, None] + cuts
    if name == "graded":
        ones = jnp.ones_like(eta[..., :1])
        above = jnp.concatenate([ones, jax.nn.sigmoid(eta), 0 * ones], -1)
        return above[..., :-1] - above[..., 1:]
    if name == "partial_credit":
        steps = jnp.cumsum(eta, -1)
        return jax.nn.softmax(jnp.concatenate([0 * steps[..., :1], steps], -1), -1)
    right = jax.scipy.stats.norm.cdf(eta)
    return jnp.concatenate([1 - right, right], -1)


@pytest.mark.parametrize(
    "name",
    ["graded", "probit2pl", pytest.param("partial_credit", marks=pytest.mark.slow)],
)
def test_the_optimum_is_that_of_another_optimiser(name):
    fit, categories = fitted(name), MAKE[name]().family.num_categories
    assert fit.status == Status.CONVERGED
    trace = np.asarray(fit.trace)[: int(fit.num_steps)]
    # Rounding of a sum of 60 log-likelihoods of about ten nats.
    assert np.diff(trace).min() > -1e-11
    values, seen = drawn(categories)
    (count, items), cuts = SHAPE, categories - 1

    def loss(x):
        slope, theta = x[:items], x[items : items + count]
        levels = x[items + count :].reshape(items, cuts)
        chances = probabilities(name, slope, levels, theta)
        chance = jnp.take_along_axis(chances, jnp.asarray(values)[..., None], -1)
        # A step of the line search may leave the order of the intercepts.
        height = jnp.sum(
            jnp.where(seen, jnp.log(jnp.maximum(chance[..., 0], 1e-300)), 0)
        )
        height -= jnp.sum(theta**2) / 2 + count * jnp.log(2 * jnp.pi) / 2
        height -= jnp.sum((slope - 1) ** 2) / 2 + items * jnp.log(2 * jnp.pi) / 2
        height -= jnp.sum(levels**2) / 18
        return -height + levels.size * jnp.log(3 * jnp.sqrt(2 * jnp.pi))

    first = np.concatenate(
        [np.ones(items), np.zeros(count), np.tile(np.linspace(1, -1, cuts), items)]
    )
    derivative = jax.jit(jax.value_and_grad(loss))
    found = minimize(
        lambda x: tuple(np.asarray(y, float) for y in derivative(x)),
        first,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 9000, "ftol": 1e-15, "gtol": 1e-7},
    )
    assert float(fit.objective) == pytest.approx(-found.fun, abs=1e-6)


@pytest.mark.slow  # Programs of their own.
@pytest.mark.parametrize("name", ["graded", "partial_credit", "probit2pl"])
def test_the_optimum_is_that_of_the_gradient_method(name):
    fit = fitted(name)
    other = fitted(name, method=Gradient(tolerance=jnp.asarray(1e-6)))
    assert float(fit.objective) == pytest.approx(float(other.objective), abs=1e-6)
    for one, two in zip(fit.parameters.items, other.parameters.items, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)
    plain = fitted(name, method=MM(tolerance=jnp.asarray(1e-7), memory=0))
    assert float(plain.objective) == pytest.approx(float(fit.objective), abs=1e-6)
    cold = MM(tolerance=jnp.asarray(1e-9), temperature=jnp.asarray(0.5), penalty=0.0)
    trace = np.asarray(fitted(name, method=cold).trace)
    assert np.diff(trace[np.isfinite(trace)][:200]).min() > -1e-9


@pytest.mark.slow
def test_two_ordered_categories_are_the_binary_fit():
    one, other = fitted("2pl"), fitted("graded of two")
    assert int(one.num_steps) == int(other.num_steps)
    assert float(one.objective) == pytest.approx(float(other.objective), abs=1e-9)


def test_a_masked_subject_and_a_dropped_subject_are_the_same():
    values, seen = drawn(4)
    values, seen = values.copy(), seen.copy()
    values[:6], seen[:6] = 0, False
    masked = fitted("graded", irtjax.Responses(jnp.asarray(values), jnp.asarray(seen)))
    assert masked.status == Status.CONVERGED
    # Their abilities are at the mean of the prior, and count for nothing else. Padding
    # of weight 0 keeps the program of the other tests.
    values[:6], seen[:6] = 3, True
    weight = jnp.asarray(np.r_[np.zeros(6), np.ones(SHAPE[0] - 6)])
    data = irtjax.Responses(
        jnp.asarray(values), jnp.asarray(seen), subject_weight=weight
    )
    dropped = fitted("graded", data)
    height = float(masked.objective) + 6 * np.log(2 * np.pi) / 2
    assert float(dropped.objective) == pytest.approx(height, abs=1e-8)
    for one, two in zip(masked.state.best, dropped.state.best, strict=True):
        np.testing.assert_allclose(
            one[6:] if one.shape[0] == 60 else one,
            two[6:] if two.shape[0] == 60 else two,
            atol=1e-6,
        )


def test_a_category_that_nobody_chose_has_no_width():
    values, seen = drawn(4)
    values = values.copy()
    values[:, 0][values[:, 0] == 2] = 1
    values[:, 1][values[:, 1] > 0] = 1
    values[:, 2] = 0
    fit = fitted("graded", irtjax.Responses(jnp.asarray(values), jnp.asarray(seen)))
    assert fit.status == Status.CONVERGED
    cuts = np.asarray(fit.parameters.items.intercept)
    assert np.isfinite(cuts).all()
    gaps = -np.diff(cuts)
    empty = [gaps[0, 1], gaps[1, 1], *gaps[2]]
    np.testing.assert_allclose(empty, 1e-4, rtol=1e-6)
    assert min(gaps[0, 0], gaps[1, 0], *gaps[3:].ravel()) > 0.01


def test_positive_graded_slopes_need_the_default_priors():
    table = irtjax.ResponseTable.from_arrays(drawn(4)[0])
    settings = {"positive": True, "priors": None}
    with pytest.raises(ValueError, match="under the default priors alone: leave pri"):
        irtjax.fit(table, "graded", method="mm", **settings)


@pytest.mark.slow  # The whole road, of other priors.
def test_positive_graded_slopes_may_be_0():
    values, seen = (x.copy() for x in drawn(4))
    values[:, 0] = 3 - values[:, 0]  # Against all others: its slope is below 0.
    table = irtjax.ResponseTable.from_arrays(values * seen, observed=seen)
    fit = irtjax.fit(table, "graded", method="mm", positive=True)
    assert fit.status is Status.CONVERGED
    slope = np.asarray(fit.parameters.items.discrimination)
    assert slope[0] == 0 and (slope[1:] > 0.3).all()
