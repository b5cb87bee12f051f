"""The quadratic bounds and block updates, in one and several dimensions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls as scipy_nnls

from irtjax.estimators.joint.bound import (
    BilinearParameters,
    subject_sweep,
    sweep,
    update_items,
    update_subjects,
)
from irtjax.estimators.joint.cells import LOGIT, LogitCells, logit_bend
from irtjax.numerics.nnls import nnls
from tests.estimators.joint.joint_cases import SHAPE, responses, simulated


@pytest.mark.parametrize("dims", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pattern", ["none", "mcar", "trials"])
@pytest.mark.parametrize("temperature", [0.4, 2.0])
@pytest.mark.parametrize("cells", [LOGIT, LogitCells(by_cell=True)])
def test_surrogate_touches_and_stays_below(dims, pattern, temperature, cells):
    rng = np.random.default_rng(dims)
    values, observed = simulated(pattern="mcar" if pattern == "mcar" else "none")
    rest = {}
    if pattern == "trials":
        trials = rng.integers(0, 5, SHAPE)
        values = rng.binomial(trials, 0.6).astype(np.int8)
        rest["trials"] = jnp.asarray(trials, jnp.int8)
    data = responses(values, observed, **rest)
    n = np.ones(SHAPE) if data.exposure is None else np.asarray(data.exposure, float)

    def log_lik(slope, intercept, theta):
        eta = (theta @ slope.T + intercept) / temperature
        return values * eta - n * np.logaddexp(0, eta)

    slope, intercept = rng.normal(size=(SHAPE[1], dims)), rng.normal(size=SHAPE[1])
    theta = rng.normal(size=(SHAPE[0], dims))
    factors = BilinearParameters(*(jnp.asarray(x) for x in (slope, intercept, theta)))
    seen = sweep(data, factors, temperature, cells)
    here = log_lik(slope, intercept, theta)
    np.testing.assert_allclose(seen.log_lik, here.sum(1), rtol=1e-12)

    def bound(quadratic, move):
        gradient, curvature = np.asarray(quadratic[0]), np.asarray(quadratic[1])
        curvature = np.broadcast_to(curvature, (*gradient.shape, gradient.shape[1]))
        square = np.einsum("ij,ijk,ik->i", move, curvature, move)
        return np.einsum("ij,ij->i", gradient, move) - square / 2

    for size in (1e-5, 0.1, 1.0, 5.0):
        move = size * rng.normal(size=(SHAPE[1], 1 + dims))
        there = log_lik(slope + move[:, 1:], intercept + move[:, 0], theta)
        gain = there.sum(0) - here.sum(0)
        lower = bound(seen.items, move)
        assert np.all(lower <= gain + 1e-9)
        step = size * rng.normal(size=theta.shape)
        there = log_lik(slope, intercept, theta + step)
        gain_theta = there.sum(1) - here.sum(1)
        lower_theta = bound(seen.subjects, step)
        assert np.all(lower_theta <= gain_theta + 1e-9)
        if size == 1e-5:  # tangent: what is left is second order, 1e-10 * curvature
            np.testing.assert_allclose(lower, gain, atol=1e-7)
            np.testing.assert_allclose(lower_theta, gain_theta, atol=1e-7)
    alone = subject_sweep(data, factors, temperature, cells)
    np.testing.assert_allclose(alone.gradient, seen.subjects.gradient, rtol=1e-9)
    np.testing.assert_allclose(alone.curvature, seen.subjects.curvature, rtol=1e-9)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_bend_of_a_cell_is_that_of_jaakkola_and_jordan(dtype):
    eta = np.concatenate([-np.geomspace(1e-9, 1e3, 200), [0], np.geomspace(1e-9, 1e3)])
    at = jnp.asarray(eta, dtype)
    found = np.asarray(logit_bend(at, jax.nn.sigmoid(at)), float)
    wanted = np.where(eta == 0, 1, 2 * np.tanh(eta / 2) / np.where(eta == 0, 1, eta))
    # Rounding of sigma(eta) - 1/2 at .05, where it is 1/80.
    np.testing.assert_allclose(found, wanted, rtol=80 * np.finfo(dtype).eps + 1e-10)


@pytest.mark.parametrize("dims", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pattern", ["none", "mcar"])
def test_block_updates_raise_the_likelihood_in_several_dimensions(dims, pattern):
    values, observed = simulated(pattern=pattern)
    data = responses(values, observed)
    rng = np.random.default_rng(1)
    free = jnp.ones((SHAPE[1], 1 + dims), bool)
    factors = BilinearParameters(
        jnp.asarray(rng.uniform(0, 1, (SHAPE[1], dims))),
        jnp.zeros(SHAPE[1]),
        jnp.asarray(rng.normal(size=(SHAPE[0], dims))),
    )

    @jax.jit
    def iterate(factors):
        seen = sweep(data, factors, 1.0)
        stacked = update_items(seen.items, factors.stacked, free, True)
        items = factors._replace(discrimination=stacked[:, 1:], intercept=stacked[:, 0])
        middle = jnp.sum(sweep(data, items, 1.0).log_lik)
        bound = subject_sweep(data, items, 1.0)
        theta = update_subjects(bound, items.theta)
        return items._replace(theta=theta), jnp.sum(seen.log_lik), middle

    heights = []
    for _ in range(30):
        factors, start, middle = iterate(factors)
        heights += [float(start), float(middle)]
    assert np.diff(heights).min() > -1e-9
    assert heights[-1] > heights[0] + 50
    slope = np.asarray(factors.discrimination)
    assert slope.min() == 0  # several dimensions: some loadings end at the bound


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(0, 10**6))
def test_nnls_equals_scipy(size, seed):
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(size + 4, size))
    response = rng.normal(size=size + 4)
    expected, _ = scipy_nnls(design, response)
    found = _nnls(jnp.asarray(design.T @ design), jnp.asarray(design.T @ response))
    # Normal equations of designs with condition numbers up to about 1e4.
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.min(found) >= 0


_nnls = jax.jit(nnls)
