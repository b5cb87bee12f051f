"""Bock's nominal model, and partial credit with slopes of 1, against other models."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import irtjax
from irtjax.data.responses import Responses
from irtjax.estimators.driver import run
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import (
    nominal,
    partial_credit,
    partial_credit_unit,
    rasch,
)
from irtjax.models.families.graded import GradedItems, PartialCredit
from irtjax.models.families.nominal import Nominal
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items
from tests import brute_force

NODES = jnp.linspace(-6, 6, 61)
run_jit = eqx.filter_jit(run)


def fitted(model, data):
    return run_jit(
        Problem.create(model, data), EM(NODES), start_values(model, data), max_steps=500
    )


def drawn(model, num_subjects=600, num_items=6, seed=8):
    keys = jax.random.split(jax.random.key(seed), 3)
    items = simulate_items(model, num_items, keys[0], discrimination=(0.6, 1.4))
    return simulate(model, items, simulate_abilities(num_subjects, keys[1]), keys[2])


@pytest.mark.parametrize("theta", [-2.0, 0.0, 1.3])
def test_the_probabilities_are_those_of_bock(theta):
    slopes, intercepts = (
        np.array([0.0, 1.2, -0.4, 1.5]),
        np.array([0.0, 0.3, 1.0, -0.2]),
    )
    a, d = slopes[3] / 3, intercepts[3] / 3
    scoring = slopes[1:3] / a
    fields = a, d, scoring, intercepts[1:3] - d * scoring
    names = "discrimination", "intercept", "scoring", "offset"
    item = Nominal(4).complete(dict(zip(names, map(jnp.asarray, fields), strict=True)))
    np.testing.assert_allclose(item.category_slope, slopes[1:], rtol=1e-12)
    np.testing.assert_allclose(item.category_intercept, intercepts[1:], rtol=1e-12)
    odds = np.exp(slopes * theta + intercepts)
    got = np.exp(Nominal(4).category_log_probs(item, jnp.asarray(theta)))
    np.testing.assert_allclose(got, odds / odds.sum(), rtol=1e-12)
    # Of the slopes, information is the variance (Bock 1972).
    share = odds / odds.sum()
    information = share @ slopes**2 - (share @ slopes) ** 2
    found = Nominal(4).information(item, jnp.asarray(theta))
    np.testing.assert_allclose(found, information, rtol=1e-10)


def test_equal_steps_of_the_slopes_are_partial_credit():
    steps = jnp.array([0.7, -0.2, 0.4])
    known = GradedItems(jnp.array(1.3), steps)
    intercepts = jnp.cumsum(steps)
    d = intercepts[-1] / 3
    fields = {
        "discrimination": known.discrimination,
        "intercept": d,
        "scoring": jnp.array([1.0, 2.0]),
        "offset": intercepts[:2] - d * jnp.array([1.0, 2.0]),
    }
    item = Nominal(4).complete(fields)
    for theta in map(jnp.asarray, (-1.5, 0.3, 2.0)):
        np.testing.assert_allclose(
            Nominal(4).category_log_probs(item, theta),
            PartialCredit(4).category_log_probs(known, theta),
            rtol=1e-12,
        )


@pytest.mark.slow
def test_the_nominal_model_fits_at_least_as_well_as_partial_credit():
    # Nested: twice the gain is chi-square with one scoring coefficient per item.
    data = drawn(partial_credit(3, None))
    small, large = (fitted(make(3, None), data) for make in (partial_credit, nominal))
    assert int(small.status) == int(large.status) == 0
    gain = 2 * float(large.log_lik - small.log_lik)
    assert -1e-6 < gain < 22.5  # The 1 - 1e-3 quantile of 6 degrees of freedom.


def test_reversed_categories_mirror_the_slopes():
    # Values counted from the other end change the sign of every slope and of ability:
    # orientation must bring back the same fit, last category against the first.
    model = nominal(3, None)
    data = drawn(model)
    forth, back = fitted(model, data), fitted(model, Responses(2 - data.values))
    assert float(forth.log_lik) == pytest.approx(float(back.log_lik), abs=1e-5)
    one, other = forth.parameters.items, back.parameters.items
    assert one.discrimination.sum() > 0 and other.discrimination.sum() > 0
    # Category k is 2 - k there: s'_1 = 2 - s_1 from the same end, ability mirrored.
    np.testing.assert_allclose(other.discrimination, one.discrimination, atol=2e-3)
    np.testing.assert_allclose(other.intercept, -one.intercept, atol=2e-3)
    np.testing.assert_allclose(other.scoring, 2 - one.scoring, atol=1e-2)


@pytest.mark.slow
def test_a_category_without_order_keeps_its_own_slope():
    # The middle category is that of the least able: its slope is below both others.
    model = nominal(3, None)
    size = 8
    ones = jnp.ones(size)
    fields = {
        "discrimination": 0.8 * ones,
        "intercept": jnp.linspace(-0.5, 0.5, size),
        "scoring": -1.0 * ones[:, None],
        "offset": 0.2 * ones[:, None],
    }
    items = model.family.complete(fields)
    keys = jax.random.split(jax.random.key(1))
    theta = simulate_abilities(2000, keys[0])
    fit = fitted(model, simulate(model, items, theta, keys[1]))
    assert int(fit.status) == 0
    truth = brute_force.marginal_log_likelihood(
        "nominal", items, simulate(model, items, theta, keys[1]), NODES,
        brute_force.normal_weights(NODES),
    )  # fmt: skip
    # 32 parameters: the 1 - 1e-4 quantile is 69.
    assert 0 < 2 * (float(fit.log_lik) - float(truth)) < 69
    slopes = fit.parameters.items.category_slope
    # Standard errors are about 0.1 at 2,000 subjects; four of them.
    np.testing.assert_allclose(slopes[:, 0], -0.8, atol=0.5)
    np.testing.assert_allclose(slopes[:, 1], 1.6, atol=0.5)


def test_two_categories_are_refused_by_the_family_and_are_the_2pl():
    with pytest.raises(ValueError, match="no inner one to score"):
        Nominal(2)
    assert nominal(2).family.num_categories == 2


@pytest.mark.slow  # `test_two_categories_are_the_binary_model` has free slopes.
@pytest.mark.parametrize("priors", ["weak", None])
def test_partial_credit_of_two_categories_is_rasch(priors):
    data = drawn(rasch(), num_items=8)
    one, other = (
        fitted(model, data) for model in (partial_credit_unit(2, priors), rasch(priors))
    )
    assert float(one.objective) == pytest.approx(float(other.objective), abs=1e-6)
    np.testing.assert_allclose(
        one.parameters.items.intercept[:, 0],
        other.parameters.items.intercept,
        atol=1e-4,
    )
    sd = one.parameters.population.sd, other.parameters.population.sd
    np.testing.assert_allclose(*sd, atol=1e-4)


def pcm_log_likelihood(values, point):
    """Of intercepts and log sd, by numpy and log-sum-exps on 61 nodes."""
    steps = jnp.reshape(point[:-1], (values.shape[1], -1))
    theta = jnp.exp(point[-1]) * NODES
    odds = jnp.cumsum(theta[:, None, None] + steps, -1)
    odds = jnp.concatenate([jnp.zeros_like(odds[..., :1]), odds], -1)
    log_probs = jax.nn.log_softmax(odds)
    cells = log_probs[:, np.arange(values.shape[1])[None], values].sum(-1)
    return jnp.sum(jax.nn.logsumexp(cells.T - NODES**2 / 2, axis=1)) - len(
        values
    ) * jax.nn.logsumexp(-(NODES**2) / 2)


@pytest.mark.slow
def test_unit_slopes_maximise_the_likelihood_and_have_its_errors():
    data = drawn(partial_credit_unit(3), num_subjects=400, num_items=5)
    values = np.asarray(data.values)
    loss = jax.jit(lambda x: -pcm_log_likelihood(values, x))
    slope = jax.jit(jax.grad(loss))
    found = optimize.minimize(
        lambda x: (float(loss(x)), np.asarray(slope(x))),
        np.zeros(11),
        jac=True,
        options={"gtol": 1e-7},
    )
    table = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(table, "pcm", priors=None)
    assert fit.status is irtjax.Status.CONVERGED
    assert float(fit.log_likelihood) == pytest.approx(-found.fun, abs=1e-4)
    assert fit.num_parameters == 11
    intercepts = np.reshape(found.x[:-1], (5, 2))
    np.testing.assert_allclose(fit.parameters.items.intercept, intercepts, atol=1e-3)
    assert float(fit.parameters.population.sd) == pytest.approx(
        np.exp(found.x[-1]), abs=1e-3
    )
    assert (np.asarray(fit.parameters.items.discrimination) == 1).all()
    error = np.sqrt(np.diag(np.linalg.inv(jax.jit(jax.hessian(loss))(found.x))))
    for k in (1, 2):
        mine = fit.items.table.column(f"intercept_{k}_se").to_numpy()
        np.testing.assert_allclose(mine, error[:-1].reshape(5, 2)[:, k - 1], rtol=2e-3)


@pytest.mark.slow
def test_standard_errors_of_the_nominal_model_are_those_of_the_hessian():
    model = nominal(3, None)
    data = drawn(model, num_subjects=500, num_items=4)
    fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data.values), model)
    weights = brute_force.normal_weights(NODES)

    def bock(vector):
        slopes, intercepts = jnp.moveaxis(jnp.reshape(vector, (4, 2, 2)), 1, 0)
        items = fit.parameters.items._replace(
            category_slope=slopes, category_intercept=intercepts
        )
        return brute_force.marginal_log_likelihood(
            "nominal", items, data, NODES, weights
        )

    items = fit.parameters.items
    point = jnp.ravel(jnp.stack([items.category_slope, items.category_intercept], 1))
    # The maximum over Bock's own parameters, and their errors.
    both = jax.jit(lambda x: (jax.grad(bock)(x), jax.hessian(bock)(x)))
    gradient, hessian = both(point)
    assert np.abs(gradient).max() < 0.05
    error = np.sqrt(np.diag(np.linalg.inv(-hessian))).reshape(4, 2, 2)
    for index, name in enumerate(("category_slope", "category_intercept")):
        for k in (1, 2):
            mine = fit.items.table.column(f"{name}_{k}_se").to_numpy()
            np.testing.assert_allclose(mine, error[:, index, k - 1], rtol=5e-3)
