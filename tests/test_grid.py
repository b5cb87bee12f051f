"""Every method on every model: converged, monotone, stationary, near the truth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from irtjax._types import Status
from tests import brute_force
from tests.tables import (
    METHODS,
    NODES,
    NUM_SUBJECTS,
    PAIRS,
    case,
    estimated_vector,
    frame_columns,
    free_columns,
    grid_fit,
    with_totals,
)


# A module-wide fixture keeps the tests of one fit together, which is made once.
@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: f"{pair[1]}-{pair[0]}")
def pair(request) -> tuple[str, str]:
    return request.param


def test_a_fit_converges_without_ever_losing_ground(pair):
    model, method = pair
    fit = grid_fit(model, method)
    assert Status(int(fit.status)) is Status.CONVERGED
    steps = int(fit.num_steps)
    trace = np.asarray(fit.trace)
    assert np.isfinite(trace[:steps]).all()
    assert np.isnan(trace[steps:]).all() and steps < len(trace)
    # Rounding of a sum of a thousand terms of a few nats each.
    assert np.diff(trace[:steps]).min() >= -1e-9
    finite = [bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(fit.parameters)]
    assert all(finite)
    assert float(fit.log_lik) == pytest.approx(float(fit.subject_log_lik.sum()))


def test_the_log_likelihood_is_that_of_independent_code(pair):
    name, method = pair
    simulated, fit = case(name), grid_fit(name, method)
    model, data = simulated.model, simulated.data
    items, population, theta, _ = fit.parameters
    if METHODS[method].joint:
        terms = brute_force.joint_log_likelihood(model.name, items, theta, data)
    else:
        nodes = population.mean + population.sd * NODES
        weights = brute_force.normal_weights(NODES)
        terms = jnp.log(
            brute_force.subject_likelihoods(model.name, items, data, nodes, weights)
        )
    np.testing.assert_allclose(fit.subject_log_lik, terms, rtol=0, atol=1e-8)


def test_a_fit_is_a_stationary_point_near_the_truth(pair):
    name, method = pair
    simulated, fit = case(name), grid_fit(name, method)
    model, data = simulated.model, simulated.data
    if METHODS[method].joint:
        # Five responses to items of slope near 1 carry an information of about 1, so
        # abilities correlate about sqrt(1 / 2) with the truth; 0.05 is the standard
        # error of such a correlation at 240 subjects.
        correlation = stats.spearmanr(fit.parameters.theta, simulated.theta).statistic
        assert correlation > np.sqrt(0.5) - 4 * 0.05
        return
    objective = jax.jit(brute_force.marginal_objective(model, data, NODES))
    best = estimated_vector(fit)
    assert float(objective(best)) == pytest.approx(float(fit.objective), abs=1e-8)
    estimated = free_columns(model)
    free = np.r_[estimated, frame_columns(model)]
    gradient = np.asarray(jax.jit(jax.grad(objective))(best))
    gradient = with_totals(model, gradient)[free]
    # EM stops at 1e-4 standard errors; no parameter has a standard error below
    # 1 / sqrt(subjects * trials' information), here at most sqrt(240).
    assert np.abs(gradient).max() < 1e-3 * np.sqrt(NUM_SUBJECTS)
    # The objective beats the truth's; by Wilks' theorem twice the gain in likelihood
    # is below a chi-square variable with as many degrees of freedom as parameters
    # (a prior only lowers it), here below its 1 - 1e-4 quantile.
    assert float(fit.objective) >= float(objective(simulated.vector))
    weights = brute_force.normal_weights(NODES)
    at_truth = brute_force.marginal_log_likelihood(
        model.name, simulated.items, data, NODES, weights
    )
    gain = 2 * (float(fit.log_lik) - float(at_truth))
    assert gain < stats.chi2.ppf(1 - 1e-4, estimated.size)
