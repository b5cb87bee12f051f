"""The complementary log-log 2PL against an independent computation by scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

import irtjax
from irtjax.models.catalogue import cloglog_two_parameter
from irtjax.models.families.cloglog import HIGHEST, LOWEST, ComplementaryLogLog
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.simulate import simulate, simulate_abilities, simulate_items

NODES = np.linspace(-6, 6, 61)


def item(slope=1.0, intercept=0.0):
    return LogisticItems(*map(jnp.asarray, (slope, intercept, 0.0, 1.0)))


@pytest.mark.parametrize("eta", [-40.0, -17.5, -16.5, -3.0, 0.0, 1.5, 3.5])
def test_log_probabilities_to_the_last_digits(eta):
    got = ComplementaryLogLog().category_log_probs(item(), jnp.asarray(eta))
    rate = np.exp(eta)
    right = special.log1p(-np.exp(-rate)) if rate > 1 else np.log(-np.expm1(-rate))
    np.testing.assert_allclose(got, [-rate, right], rtol=1e-14, atol=1e-14)


@jax.jit
def natural_and_derivatives(theta, known):
    natural = lambda t: jnp.stack(ComplementaryLogLog().natural(known, t))
    first = jax.jacfwd(natural)
    return natural(theta), first(theta), jax.jacfwd(first)(theta)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("eta", [-1e4, LOWEST, HIGHEST, 1e4])
def test_values_and_two_derivatives_are_finite_everywhere(eta, dtype):
    known = jax.tree.map(lambda x: x.astype(dtype), item())
    for found in natural_and_derivatives(jnp.asarray(eta, dtype), known):
        assert np.isfinite(found).all()


def test_float32_keeps_the_digits_of_a_right_response():
    known = jax.tree.map(lambda x: x.astype(jnp.float32), item())
    got = ComplementaryLogLog().category_log_probs(known, jnp.float32(9.0))
    assert got.dtype == jnp.float32
    # Log P(1) is 0, as a difference of two values of about 300 that have 7 digits.
    assert abs(float(got[1])) < 1e-4


def negative_log_likelihood(vector, values):
    slope, intercept = np.reshape(vector, (2, -1))
    rate = np.exp(slope * NODES[:, None] + intercept)
    right = np.log(-np.expm1(-rate))
    cells = values @ right.T - (1 - values) @ rate.T
    weight = -(NODES**2) / 2
    log_weight = weight - special.logsumexp(weight)
    return -special.logsumexp(cells + log_weight, axis=1).sum()


@pytest.mark.slow
def test_the_fit_is_the_maximum_that_scipy_finds():
    model = cloglog_two_parameter(None)
    keys = jax.random.split(jax.random.key(3), 3)
    truth = simulate_items(model, 5, keys[0], discrimination=(0.6, 1.2))
    theta = simulate_abilities(800, keys[1])
    values = np.asarray(simulate(model, truth, theta, keys[2]).values, float)
    table = irtjax.ResponseTable.from_arrays(values)
    fit = irtjax.fit(table, "cloglog2pl", priors=None)
    assert fit.status is irtjax.Status.CONVERGED
    start = np.r_[np.ones(5), np.zeros(5)]
    found = optimize.minimize(
        negative_log_likelihood, start, values, options={"gtol": 1e-3}
    )
    assert float(fit.log_likelihood) == pytest.approx(-found.fun, abs=1e-4)
    mine = np.concatenate(fit.parameters.items[:2])
    # BFGS by finite differences stops within hundredths of a standard error of 0.1.
    np.testing.assert_allclose(mine, found.x, atol=5e-3)
    error = np.concatenate(
        [fit.items.table.column(f"{n}_se").to_numpy() for n in truth._fields[:2]]
    )
    assert (np.abs(mine - np.concatenate(truth[:2])) < 4 * error).all()


def test_mirrored_responses_are_another_model():
    # Unlike the logistic link this one is not symmetric: P(eta) + P(-eta) is not 1.
    at = jnp.asarray(1.0)
    sums = sum(ComplementaryLogLog().expected_response(item(), t) for t in (at, -at))
    assert float(sums) == pytest.approx(
        2 - np.exp(-np.e) - np.exp(-1 / np.e), abs=1e-12
    )
    assert abs(float(sums) - 1) > 0.1
