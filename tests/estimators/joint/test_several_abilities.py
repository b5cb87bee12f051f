"""MM of several abilities: any mask, temperature and sign; optima; planted loadings."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import irtjax
from irtjax._types import Status
from irtjax.estimators.driver import run_jit
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.numerics.loadings import align

pytestmark = pytest.mark.slow  # A program for each number of factors.


def drawn(subjects: int, items: int, factors: int, temperature: float = 1.0):
    """Right and wrong responses to items of simple structure, and their slopes."""
    rng = np.random.default_rng(factors)
    slopes = np.zeros((items, factors))
    slopes[np.arange(items), np.arange(items) % factors] = rng.uniform(1, 2, items)
    eta = rng.normal(size=(subjects, factors)) @ slopes.T + rng.normal(size=items)
    right = rng.random(eta.shape) < expit(eta / temperature)
    return right.astype(np.int8), slopes


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("factors", [2, 3, 5])
def test_the_objective_never_falls_and_ends_at_a_kkt_point(factors, positive):
    method = MM()
    model = method.adapted(factor_model(Factor(factors=factors, positive=positive)))
    rng = np.random.default_rng(0)
    for temperature in (0.4, 2.0):
        right, _ = drawn(60, 40, factors, temperature)
        masks = {
            "none": np.ones(right.shape, bool),
            "mcar": rng.random(right.shape) < 0.6,
            "mnar": (right == 1) | (rng.random(right.shape[1]) < 0.8),
        }
        for name, seen in masks.items():
            data = irtjax.Responses(
                jnp.asarray(right * seen, jnp.int8), jnp.asarray(seen)
            )
            problem, start = Problem.create(model, data), start_values(model, data)
            how = MM(temperature=jnp.asarray(temperature))
            fit = run_jit(problem, how, start, max_steps=5000)
            trace = np.asarray(fit.trace)[: int(fit.num_steps)]
            assert np.diff(trace).min() > -1e-9, (temperature, name)
            assert int(fit.status) == Status.CONVERGED, (temperature, name)
            assert float(fit.residual) <= 1e-6
            slopes = np.asarray(fit.parameters.items.discrimination)
            assert not positive or slopes.min() >= 0


def test_planted_nonnegative_loadings_are_recovered():
    right, slopes = drawn(1000, 60, 3)
    table = irtjax.ResponseTable.from_arrays(right)
    given = {"factors": 3, "positive": True, "standard_errors": "none"}
    found = irtjax.fit(table, "factor", "mm", num_starts=2, **given)
    assert found.status is Status.CONVERGED
    loadings = jnp.asarray(found.parameters.items.discrimination)
    found = align(jnp.asarray(slopes), loadings).congruence
    print(found)
    assert float(found.min()) > 0.98


@pytest.mark.parametrize("factors", [2, 3, 4])
def test_slopes_of_any_sign_have_one_optimum(factors):
    right, _ = drawn(200, 60, factors)
    data, rng = irtjax.Responses(jnp.asarray(right)), np.random.default_rng(1)
    model = factor_model(Factor(factors=factors))
    problem, start = Problem.create(model, data), start_values(model, data)
    assert start.theta is not None
    heights = []
    for _ in range(5):
        slopes = jnp.asarray(rng.normal(size=(60, factors)))
        other = start._replace(
            items=start.items._replace(discrimination=slopes),
            theta=jnp.asarray(rng.normal(size=start.theta.shape)),
        )
        fit = run_jit(problem, MM(), other, max_steps=5000)
        assert int(fit.status) == Status.CONVERGED
        heights.append(float(fit.objective))
    assert np.ptp(heights) < 0.01
