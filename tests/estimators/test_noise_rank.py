"""The rank at the penalty of noise: the certificate, and one optimum from any start."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import irtjax
from irtjax.estimators import noise_rank
from irtjax.estimators.driver import run_jit
from irtjax.estimators.joint.bound import BilinearParameters
from irtjax.estimators.noise_rank import factor_problem, fit_factors, rank_above_noise

DTYPE = jnp.zeros(()).dtype
SUBJECTS, ITEMS, FACTORS = 60, 80, 2
#: The prior of the example: 1 / s is above the norm of noise, (60^.5 + 80^.5) / 2.
SLOPE_SD = 0.12


def responses(factors: int = FACTORS, subjects: int = SUBJECTS, seed: int = 0):
    """Items of simple structure, a tenth of the cells missing."""
    rng = np.random.default_rng(seed)
    slopes = np.zeros((ITEMS, max(factors, 1)))
    if factors:
        slopes[np.arange(ITEMS), np.arange(ITEMS) % factors] = 1.5
    eta = rng.normal(size=(subjects, slopes.shape[1])) @ slopes.T
    eta = eta + rng.normal(size=ITEMS)
    right = (rng.random(eta.shape) < expit(eta)).astype(np.int8)
    table = irtjax.ResponseTable.from_arrays(
        right, observed=rng.random(eta.shape) < 0.9
    )
    return table.responses(DTYPE).with_mask()


def certificate(fit, data, slope_sd: float = SLOPE_SD) -> float:
    """q by the singular values of the residuals, computed here."""
    best = fit.state.best
    eta = np.asarray(best.theta) @ np.asarray(best.discrimination).T
    residual = np.asarray(data.values) - expit(eta + np.asarray(best.intercept))
    residual = np.where(np.asarray(data.observed), residual, 0)
    return slope_sd * float(np.linalg.norm(residual, 2))


def fit_from(data, factors: int, seed: int):
    """The fit of so many factors from a random start."""
    problem, start = factor_problem(data, factors, factors, SLOPE_SD, DTYPE)
    rng = np.random.default_rng(seed)
    drawn = lambda *shape: jnp.asarray(rng.normal(size=shape), DTYPE)
    used = np.arange(max(factors, 2)) < factors
    slopes = drawn(ITEMS, len(used)) * used
    start = start._replace(
        items=start.items._replace(discrimination=slopes, intercept=drawn(ITEMS)),
        theta=drawn(SUBJECTS, len(used)) * used,
    )
    method = irtjax.MM(tolerance=jnp.asarray(1e-6, DTYPE))
    return run_jit(problem, method, start, max_steps=5000)


@pytest.mark.slow
def test_ten_random_starts_have_one_objective_from_the_rank_on():
    data = responses()
    wanted = float(fit_factors(data, 2, 2, DTYPE, SLOPE_SD, 1e-6).objective)
    for factors in (2, 3, 4, 6):
        fits = [fit_from(data, factors, seed) for seed in range(10)]
        for fit in fits:
            assert certificate(fit, data) == pytest.approx(1, abs=1e-3)
            # The densities of more slopes and abilities of 0 are constants.
            more = (factors - 2) * (
                -0.5 * np.log(2 * np.pi) * (SUBJECTS + ITEMS) - ITEMS * np.log(SLOPE_SD)
            )
            assert float(fit.objective) - more == pytest.approx(wanted, abs=1e-3)
    # Too few factors are not the best fit, and q is above 1.
    assert certificate(fit_from(data, 1, 0), data) > 1.1


@pytest.mark.slow
@pytest.mark.parametrize("factors", [0, 1, 2, 4])
def test_the_planted_number_is_found(factors):
    data = responses(factors, 200, seed=factors)
    found = rank_above_noise(data, 6, DTYPE, jax.random.key(0))
    assert found.rank == factors
    assert found.certificate <= 1.001
    if factors:
        fit = fit_factors(data, 6, 6, DTYPE, found.slope_sd)
        q = certificate(fit, data, found.slope_sd)
        assert found.certificate == pytest.approx(q, abs=1e-3)
        assert found.log_likelihood == float(fit.log_lik)


def test_a_mask_of_all_cells_is_made_once():
    data = responses()
    assert data.with_mask() is data
    whole = dataclasses.replace(data, observed=None).with_mask()
    assert whole.observed is not None and bool(whole.observed.all())


@pytest.mark.slow
def test_a_factor_that_has_vanished_begins_again(monkeypatch):
    """Without slopes and abilities all gradients of factors are 0: a saddle."""
    data, begun = responses(), []

    def from_nothing(*given):
        *rest, begin = given
        begun.append(begin is not None)
        dims = max(given[1], 2)
        zeros = lambda *shape: jnp.zeros(shape, DTYPE)
        nothing = BilinearParameters(
            zeros(ITEMS, dims), zeros(ITEMS), zeros(SUBJECTS, dims)
        )
        return fit_factors(*rest, nothing if begin is None else begin)

    light = fit_factors(data, FACTORS, 3, DTYPE)
    given = data, light, 3, DTYPE, jax.random.key(0)
    usual = noise_rank.noise_rank(*given)
    monkeypatch.setattr(noise_rank, "fit_factors", from_nothing)
    found = noise_rank.noise_rank(*given)
    assert begun[0] is False and sum(begun) >= FACTORS
    assert found.rank == usual.rank == FACTORS
    assert found.certificate == pytest.approx(1, abs=1e-3)
    # Objectives of two runs that end at a KKT residual of 1e-4.
    assert found.objective == pytest.approx(usual.objective, abs=0.05)
