"""The E-step and its derivatives with two abilities, against brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from irtjax.data.responses import Responses
from irtjax.likelihood.counts import expected_counts
from irtjax.likelihood.item_steps import expected_derivatives, expected_value
from irtjax.models.families.logistic import Binary
from irtjax.models.model import Model
from irtjax.models.predictor import AbilityProducts

SUBJECTS, ITEMS, DIMS = 30, 7, 2
GRID = np.linspace(-4, 4, 9)
NODES = jnp.asarray(np.stack(np.meshgrid(GRID, GRID), -1).reshape(-1, DIMS))
LOG_WEIGHTS = jax.nn.log_softmax(-0.5 * jnp.sum(NODES**2, axis=1))


def problem(slopes="free", asymptotes=0):
    """A model of two abilities, coordinates, and responses with missing cells."""
    rng = np.random.default_rng(2)
    model = Model("factor", Binary(asymptotes=asymptotes, slopes=slopes, dims=DIMS))
    coordinates = rng.normal(0, 0.6, (ITEMS, model.family.num_columns))
    values = rng.integers(0, 2, (SUBJECTS, ITEMS))
    seen = rng.random(values.shape) < 0.8
    data = Responses(jnp.asarray(values * seen, jnp.int8), jnp.asarray(seen))
    return model, jnp.asarray(coordinates), data


def log_joint(model, coordinates, data):
    """Log-likelihood plus log weight `[subjects, nodes]`, response by response."""
    items = model.constrain(coordinates)
    eta = NODES @ items.discrimination.T + items.intercept
    lower, upper = items.lower_asymptote, items.upper_asymptote
    right = lower + (upper - lower) / (1 + jnp.exp(-eta))
    values, seen = data.values[:, None, :], data.observed[:, None, :]
    cells = jnp.where(values == 1, jnp.log(right), jnp.log(1 - right))
    return jnp.sum(jnp.where(seen, cells, 0), axis=2) + LOG_WEIGHTS


@pytest.mark.parametrize("slopes", ["free", "positive"])
@pytest.mark.parametrize("asymptotes", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_derivatives_are_those_of_the_likelihood(slopes, asymptotes):
    model, coordinates, data = problem(slopes, asymptotes)
    frame = jnp.zeros(2)
    items = model.constrain(coordinates)
    counts = jax.jit(expected_counts)(model, items, NODES, LOG_WEIGHTS, data)
    joint = jax.jit(log_joint)(model, coordinates, data)
    marginal = logsumexp(joint, axis=1)
    np.testing.assert_allclose(counts.log_marginal, marginal, rtol=1e-10)
    posterior = np.exp(joint - marginal[:, None])
    np.testing.assert_allclose(counts.nodes, posterior.sum(axis=0), atol=1e-10)
    found = jax.jit(expected_derivatives)(model, coordinates, NODES, counts, frame)
    # Fisher's identity: the gradient of the expected objective is the likelihood's.
    total = lambda x: jnp.sum(jax.nn.logsumexp(log_joint(model, x, data), axis=1))
    np.testing.assert_allclose(
        found.gradient, jax.jit(jax.grad(total))(coordinates), atol=1e-9
    )
    value = lambda x: expected_value(model, x, NODES, counts, frame)
    np.testing.assert_allclose(found.value, jax.jit(value)(coordinates), rtol=1e-10)
    hessian = jax.jit(jax.hessian(lambda x: jnp.sum(value(x))))(coordinates)
    own = hessian[np.arange(ITEMS), :, np.arange(ITEMS)]
    np.testing.assert_allclose(found.curvature, -own, atol=1e-9)


def test_a_change_of_the_abilities_folds_into_the_items():
    model, coordinates, _ = problem()
    mean, root = jnp.asarray([0.3, -0.5]), jnp.asarray([[1.2, 0.0], [0.4, 0.8]])
    theta = jnp.asarray(np.random.default_rng(0).normal(size=(SUBJECTS, DIMS)))
    moved = mean + theta @ root.T
    before = model.family.table(model.constrain(coordinates), moved)
    folded = model.fold(coordinates, mean, root)
    after = model.family.table(model.constrain(folded), theta)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_moments_are_products_of_the_abilities():
    one, two = AbilityProducts.of(jnp.asarray(GRID)), AbilityProducts.of(NODES)
    np.testing.assert_array_equal(one.products, [GRID**0, GRID, GRID**2])
    for j, k in np.ndindex(DIMS, DIMS):
        product = two.products[two.pair[j, k]]
        np.testing.assert_array_equal(product, NODES[:, j] * NODES[:, k])
