"""Posterior moments of several abilities with few responses, and errors of scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import irtjax
from irtjax.adaptive import Design, FactorBank
from irtjax.adaptive.simulation import run_tests_jit
from irtjax.inference.vector_scores import expected_on_items, score_factors
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.model import Population

ITEMS, SUBJECTS = 60, 150
MODEL, UNIT = factor_model(Factor(factors=2)), Population(jnp.zeros(2), jnp.ones(2))


def steep_items() -> LogisticItems:
    """Slopes of about 2.6, as on MATH-500."""
    rng = np.random.default_rng(3)
    slopes = rng.uniform(1, 2.5, (ITEMS, 2))
    parts = slopes, 1.5 * rng.normal(size=ITEMS), np.zeros(ITEMS), np.ones(ITEMS)
    return LogisticItems(*map(jnp.asarray, parts))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_scores_of_few_responses_have_the_errors_of_quadrature(count):
    rng, items = np.random.default_rng(count), steep_items()
    slopes, intercept = np.asarray(items.discrimination), np.asarray(items.intercept)
    theta = rng.normal(size=(SUBJECTS, 2))
    right = rng.random((SUBJECTS, ITEMS)) < expit(theta @ slopes.T + intercept)
    seen = rng.random(right.shape).argsort(axis=1) < count
    data = irtjax.Responses(jnp.asarray((right & seen) * 1), jnp.asarray(seen))
    found = score_factors(MODEL, items, UNIT, data)
    score, error = map(np.asarray, expected_on_items(MODEL, items, found))
    line = np.linspace(-5, 5, 121)
    grid = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
    product = grid @ slopes.T + intercept
    logs = -np.logaddexp(0, -product) @ (right & seen).T
    logs = logs - np.logaddexp(0, product) @ (~right & seen).T
    weight = np.exp(logs - np.sum(grid**2, 1)[:, None] / 2)
    weight /= weight.sum(0)
    value = expit(product).mean(1)
    mean = value @ weight
    sd = np.sqrt(value**2 @ weight - mean**2)
    # What the nearest normal distribution leaves. Around the mode errors were 10 to
    # 14 % too small, and means up to .24 standard deviations off.
    assert np.sqrt(np.mean(error**2) / np.mean(sd**2)) == pytest.approx(1, abs=0.03)
    assert np.sqrt(np.mean(((score - mean) / sd) ** 2)) < 0.06
    spread = np.einsum("gk,gl,gn->nkl", grid, grid, weight)
    center = weight.T @ grid
    spread = spread - center[:, :, None] * center[:, None]
    trace = [np.mean(np.trace(x, axis1=1, axis2=2)) for x in (found.spread, spread)]
    assert trace[0] == pytest.approx(trace[1], rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("of_items", [0.0, 0.04])
def test_errors_after_few_items_are_those_that_tests_make(of_items):
    blocks = np.tile(of_items * np.eye(3), (ITEMS, 1, 1))
    bank = FactorBank.create(MODEL, steep_items(), UNIT, covariance=blocks)
    theta = bank.draw_abilities(3000, jax.random.key(1))
    tests = run_tests_jit(bank, Design.create(3), key=jax.random.key(2), theta=theta)
    gap = np.asarray(tests.ability) - np.asarray(bank.truth(theta))[:, None]
    ratio = np.mean(np.asarray(tests.standard_error) ** 2, 0) / np.mean(gap**2, 0)
    # Four standard errors of a mean of 3,000 squares, which are chi-squared at most.
    np.testing.assert_allclose(ratio, 1, atol=4 * np.sqrt(2 / 3000))
