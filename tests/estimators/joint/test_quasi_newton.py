"""Joint fits of factors by L-BFGS: the optimum of MM, from cells of both layouts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.data.sparse_responses import SparseResponses
from irtjax.estimators.driver import run_jit
from irtjax.estimators.joint.bound import BilinearParameters
from irtjax.estimators.joint.objective import log_penalty
from irtjax.estimators.joint.quasi_newton import QuasiNewton
from irtjax.estimators.noise_rank import factor_problem
from tests.estimators.test_noise_rank import ITEMS, SUBJECTS, responses

DTYPE = jnp.zeros(()).dtype


def fits_of(size: int, data=None, **change):
    """Fits of so many of three factors by both methods, from the same start."""
    data = dataclasses.replace(responses(), **change) if data is None else data
    problem, start = factor_problem(data, size, 3, 1.0, DTYPE)
    goal = lambda x: jnp.asarray(x, DTYPE)
    methods = QuasiNewton(goal(1e-3)), irtjax.MM(tolerance=goal(1e-6))
    fits = [run_jit(problem, method, start, max_steps=2000) for method in methods]
    return problem, *fits


@pytest.mark.parametrize(
    ("size", "change"),
    [
        (0, {}),
        (2, {}),
        (
            2,
            {
                "subject_weight": jnp.arange(SUBJECTS) % 3 + 0.5,
                "item_weight": jnp.arange(ITEMS) % 2 + 1.0,
            },
        ),
        pytest.param(3, {}, marks=pytest.mark.slow),
    ],
)
def test_the_optimum_is_that_of_mm(size, change):
    problem, found, wanted = fits_of(size, **change)
    assert int(found.status) == int(wanted.status) == irtjax.Status.CONVERGED
    # About n t^2 / 2 nats below the maximum: n = 580 coordinates, t = 1e-3 of a
    # standard error, which is approximate by a factor of two.
    assert float(found.objective) == pytest.approx(float(wanted.objective), abs=2e-3)
    assert float(found.log_lik) == pytest.approx(float(wanted.log_lik), abs=0.05)
    # Logits, the same up to some thousandths of standard errors below 1.
    eta = [
        np.asarray(fit.parameters.theta @ fit.parameters.items.discrimination.T
                   + fit.parameters.items.intercept)
        for fit in (found, wanted)
    ]  # fmt: skip
    np.testing.assert_allclose(*eta, atol=0.02)
    # The objective is that of the point, by another formula.
    best, items = found.state.best, found.parameters.items
    items = items._replace(discrimination=best.discrimination, intercept=best.intercept)
    weight = change.get("subject_weight", jnp.ones(SUBJECTS))
    total = jnp.sum(weight * found.subject_log_lik)
    total = total + log_penalty(problem, items, best.theta)
    assert float(found.objective) == pytest.approx(float(total), rel=1e-9)


def test_the_observed_cells_alone_have_the_same_fit():
    data = responses()
    _, wanted, _ = fits_of(2, data)
    problem, start = factor_problem(SparseResponses.of(data), 2, 3, 1.0, DTYPE)
    found = run_jit(problem, QuasiNewton(), start, max_steps=2000)
    assert float(found.objective) == pytest.approx(float(wanted.objective), abs=2e-3)


def test_slopes_that_are_fixed_stay():
    _, found, _ = fits_of(2)
    assert not np.asarray(found.state.best.discrimination)[:, 2].any()


def test_single_precision_ends_where_rounding_does():
    data = responses()
    problem, start = factor_problem(data, 2, 3, 1.0, jnp.float32)
    found = run_jit(problem, QuasiNewton(jnp.float32(1e-2)), start, max_steps=500)
    assert found.objective.dtype == jnp.float32
    assert int(found.status) == irtjax.Status.CONVERGED
    _, wanted, _ = fits_of(2, data)
    # n t^2 / 2 with 1e-2, and the sum of 4,300 cells in single precision.
    assert float(found.objective) == pytest.approx(float(wanted.objective), abs=0.1)


def test_a_start_without_factors_is_a_saddle_point():
    """All gradients of factors are 0 there: the fit is that without factors."""
    problem, start = factor_problem(responses(), 2, 2, 1.0, DTYPE)
    nothing = jax.tree.map(jnp.zeros_like, BilinearParameters(
        start.items.discrimination, start.items.intercept, start.theta))  # fmt: skip
    items = start.items._replace(discrimination=nothing.discrimination)
    start = start._replace(items=items, theta=nothing.theta)
    found = run_jit(problem, QuasiNewton(), start, max_steps=200)
    assert not np.asarray(found.state.best.theta).any()
    assert int(found.status) == irtjax.Status.CONVERGED
