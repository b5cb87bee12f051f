"""Curves with the errors of items integrated out, against quadrature."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, ndtr

from irtjax.likelihood.product_errors import (
    flat_log_probs,
    of_predictor,
    shift_shares,
)
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.families.graded import GradedItems
from irtjax.models.families.logistic import LogisticItems

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
SLOPES = np.array([[1.2, 0.0], [0.4, -0.8], [2.0, 1.0]])
INTERCEPT = np.array([0.5, -1.0, 1.5])
ROOTS = np.random.default_rng(0).normal(0, 0.35, (3, 3, 3))
BLOCKS = ROOTS @ np.swapaxes(ROOTS, 1, 2)
THETAS = np.array([[0.0, 0.0], [1.5, -1.0], [-2.0, 2.0]])


def flat(model, items, theta, values):
    given = items, jnp.asarray(BLOCKS), jnp.asarray(theta), jnp.asarray(values)
    return np.exp(np.asarray(flat_log_probs(model, *given)))


def predictors(theta):
    """Means and standard deviations of the three predictors."""
    wide = np.append(theta, 1)
    return SLOPES @ theta + INTERCEPT, np.sqrt(wide @ BLOCKS @ wide)


@pytest.mark.parametrize(("link", "error"), [("logit", 0.012), ("probit", 1e-12)])
def test_curves_are_means_over_the_errors_of_items(link, error):
    model = factor_model(Factor(factors=2, link=link))
    rest = jnp.zeros(3), jnp.ones(3)
    items = LogisticItems(jnp.asarray(SLOPES), jnp.asarray(INTERCEPT), *rest)
    curve = expit if link == "logit" else ndtr
    for theta in THETAS:
        mean, sd = predictors(theta)
        want = curve(mean[:, None] + sd[:, None] * NODES) @ WEIGHTS
        found = flat(model, items, theta, np.ones(3))
        # MacKay's factor; errors of items move these curves by up to 0.12.
        np.testing.assert_allclose(found, want, atol=error)
        wrong = flat(model, items, theta, np.zeros(3))
        np.testing.assert_allclose(wrong, 1 - found, atol=1e-12)
    # The last ability is far out: the curves move.
    assert np.abs(curve(mean) - want).max() > 0.03


def test_intercepts_of_ordered_responses_move_together():
    model = factor_model(Factor(factors=2, item_model="graded"), 3)
    cuts = np.array([[1.0, -0.5], [0.0, -1.0], [2.0, 0.0]])
    items = GradedItems(jnp.asarray(SLOPES), jnp.asarray(cuts))
    center = jnp.array([0.3, 0.1])
    shares = shift_shares(model, items, center)
    np.testing.assert_allclose(shares.sum(1), 1)
    # By hand: the expected response is a sum of sigmoids.
    slope = expit(SLOPES @ center[:, None] + cuts)
    slope = slope * (1 - slope)
    np.testing.assert_allclose(shares, slope / slope.sum(1, keepdims=True))
    whole = np.zeros((3, 4, 4))
    whole[:, 2, 2], whole[:, 3, 3] = 0.4, 0.1
    found = of_predictor(model, items, whole, center)
    np.testing.assert_allclose(found[:, 2, 2], shares**2 @ [0.4, 0.1])
    # One error of both intercepts and the slopes is that of the predictor.
    for theta in THETAS:
        wide = np.append(theta, 1)
        sd = np.sqrt(wide @ BLOCKS @ wide)
        product = (SLOPES @ theta)[:, None] + cuts
        above = expit(product[..., None] + sd[:, None, None] * NODES) @ WEIGHTS
        want = above[:, 0] - above[:, 1]
        np.testing.assert_allclose(
            flat(model, items, theta, np.ones(3)), want, atol=0.02
        )


def test_a_covariance_that_does_not_suit_is_refused():
    model = factor_model(Factor(factors=2))
    items = LogisticItems(jnp.asarray(SLOPES), *jnp.zeros((2, 3)), jnp.ones(3))
    center = jnp.zeros(2)
    with pytest.raises(ValueError, match=r"give \(3, 3, 3\) for a factor model"):
        of_predictor(model, items, np.zeros((3, 2, 2)), center)
    with pytest.raises(ValueError, match="values that are not finite"):
        of_predictor(model, items, np.full((3, 3, 3), np.nan), center)
