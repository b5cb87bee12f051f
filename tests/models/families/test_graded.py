"""Graded response and partial credit against their textbook formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from irtjax.data.responses import Responses
from irtjax.estimators.driver import run
from irtjax.estimators.marginal.em import EM
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import graded, partial_credit, two_parameter
from irtjax.models.families.graded import (
    Graded,
    GradedItems,
    PartialCredit,
    SpacedGraded,
    SpacedItems,
)
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items


@pytest.mark.parametrize("theta", [-2.0, 0.0, 1.3])
def test_graded_is_a_difference_of_logistic_curves(theta):
    slope, intercepts = 1.4, np.array([2.0, 0.3, -1.1])
    item = GradedItems(jnp.array(slope), jnp.array(intercepts))
    above = np.concatenate([[1.0], expit(slope * theta + intercepts), [0.0]])
    got = np.exp(Graded(4).category_log_probs(item, jnp.array(theta)))
    np.testing.assert_allclose(got, above[:-1] - above[1:], rtol=1e-12)


@pytest.mark.parametrize("theta", [-2.0, 0.0, 1.3])
def test_spaced_intercepts_are_ordered_logistic_as_numpyro_writes_it(theta):
    slope, spacing = 1.4, np.array([0.4, 1.7, 0.2])
    item = SpacedItems(*map(jnp.asarray, (slope, -0.3, spacing)))
    # Cuts c with P(y <= k) = sigmoid(c_k - a theta), neighbours `spacing` apart.
    cuts = np.concatenate([[0.0], np.cumsum(spacing)])
    cuts = cuts - cuts.mean() + 0.3
    wanted = dist.OrderedLogistic(slope * theta, cuts).log_prob(np.arange(5))
    got = SpacedGraded(5).category_log_probs(item, jnp.array(theta))
    np.testing.assert_allclose(got, wanted, rtol=1e-9)


@pytest.mark.parametrize("theta", [-2.0, 0.0, 1.3])
def test_partial_credit_adjacent_odds_are_logistic(theta):
    slope, intercepts = 0.8, np.array([-0.5, 1.0])
    item = GradedItems(jnp.array(slope), jnp.array(intercepts))
    probs = np.exp(PartialCredit(3).category_log_probs(item, jnp.array(theta)))
    np.testing.assert_allclose(
        probs[1:] / (probs[1:] + probs[:-1]),
        expit(slope * theta + intercepts),
        rtol=1e-12,
    )


@pytest.mark.parametrize("family", [Graded, PartialCredit])
def test_two_categories_are_the_2pl(family):
    item = GradedItems(jnp.array(1.2), jnp.array([-0.4]))
    binary = LogisticItems(*map(jnp.array, (1.2, -0.4, 0.0, 1.0)))
    for theta in map(jnp.array, (-1.0, 2.0)):
        np.testing.assert_allclose(
            family(2).category_log_probs(item, theta),
            two_parameter().family.category_log_probs(binary, theta),
            rtol=1e-12,
        )


def test_intercepts_out_of_order_have_no_probability():
    item = GradedItems(jnp.array(1.0), jnp.array([-1.0, 1.0]))
    log_probs = Graded(3).category_log_probs(item, jnp.array(0.0))
    assert jnp.isnan(log_probs[1])


def test_one_category_is_refused():
    for make in (graded, partial_credit):
        with pytest.raises(ValueError, match="at least 2"):
            make(1)


@pytest.mark.slow
@pytest.mark.parametrize("make", [graded, partial_credit])
def test_em_recovers_simulated_items(make):
    model = make(4, None)
    keys = jax.random.split(jax.random.key(3), 3)
    truth = simulate_items(model, 8, keys[0], discrimination=(0.8, 1.8))
    data = simulate(model, truth, simulate_abilities(3000, keys[1]), keys[2])
    fit = run(
        Problem.create(model, data),
        EM(jnp.linspace(-6, 6, 61)),
        start_values(model, data),
        max_steps=200,
    )
    assert int(fit.status) == 0
    trace = np.asarray(fit.trace)
    rises = np.diff(trace[~np.isnan(trace)])
    assert rises.min() >= -1e-8
    # Standard errors at 3,000 subjects are about 0.07 (slopes) and 0.1 (intercepts of
    # rare categories); five of them.
    items = fit.parameters.items
    assert np.abs(items.discrimination - truth.discrimination).max() < 0.35
    assert np.abs(items.intercept - truth.intercept).max() < 0.5
    # The maximum is above the truth, and by about half the number of parameters.
    gain = float(fit.log_lik) - _log_lik(model, truth, data)
    assert 0 < gain < 40


def _log_lik(model, items, data):
    from irtjax.likelihood.counts import expected_counts
    from irtjax.numerics.kernels import normal_log_weights

    nodes = jnp.linspace(-6, 6, 61)
    counts = expected_counts(model, items, nodes, normal_log_weights(nodes), data)
    return float(counts.log_marginal.sum())


@pytest.mark.slow
def test_a_category_that_nobody_chose_leaves_graded_finite():
    model = graded(4)
    keys = jax.random.split(jax.random.key(4), 3)
    truth = simulate_items(model, 5, keys[0])
    data = simulate(model, truth, simulate_abilities(400, keys[1]), keys[2])
    values = data.values.at[:, 0].set(
        jnp.where(data.values[:, 0] == 2, 3, data.values[:, 0])
    )
    data = Responses(values)
    fit = run(
        Problem.create(model, data),
        EM(jnp.linspace(-6, 6, 61)),
        start_values(model, data),
        max_steps=200,
    )
    items = fit.parameters.items
    assert jnp.isfinite(items.intercept).all() and jnp.isfinite(fit.objective)
    assert (jnp.diff(items.intercept, axis=1) < 0).all()
    assert float(items.intercept[0, 1] - items.intercept[0, 2]) < 0.05


@pytest.mark.parametrize("categories", [2, 4, 7])
def test_loadings_of_partial_credit_are_about_those_of_graded_items(categories):
    """Of the partial credit item that is nearest to a graded one."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(31)
    weights = (weights / weights.sum())[:, None]
    graded, credit = Graded(categories), PartialCredit(categories)
    for slope, distance in ((0.8, 0.8), (1.5, 1.2), (2.5, 1.8)):
        cuts = -distance * (np.arange(categories - 1) - categories / 2 + 1)
        above = expit(slope * nodes[:, None] + cuts)
        ends = np.ones((len(nodes), 1)), np.zeros((len(nodes), 1))
        above = np.hstack([ends[0], above, ends[1]])
        chance = above[:, :-1] - above[:, 1:]

        def loss(x, chance=chance):
            terms = np.cumsum(x[0] * nodes[:, None] + x[1:], axis=1)
            terms = np.hstack([0 * terms[:, :1], terms])
            logs = terms - logsumexp(terms, axis=1, keepdims=True)
            return -np.sum(weights * chance * logs)

        near = minimize(loss, np.r_[slope, cuts]).x[0]
        loading = lambda a, family: a / np.sqrt(a**2 + family.link_variance)
        gap = loading(near, credit) - loading(slope, graded)
        assert abs(gap) < (1e-4 if categories == 2 else 0.1)
