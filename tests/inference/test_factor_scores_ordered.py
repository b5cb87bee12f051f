"""Scores and errors of several abilities where items have several intercepts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.inference.joint_covariance import factor_covariance
from irtjax.inference.vector_scores import (
    expected_on_items,
    expected_with_items,
    score_factors,
)
from irtjax.likelihood.products import expected_categories, expected_cells, item_cells
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.families.graded import GradedItems
from irtjax.models.model import Population
from tests.scoring_cases import check_errors_of_items

SUBJECTS, ITEMS, CATEGORIES = 5, 14, 3
WIDTH = 2 + CATEGORIES - 1


@pytest.fixture(scope="module")
def case():
    """A graded model, items, a population, responses with missing cells, and modes."""
    rng = np.random.default_rng(4)
    slopes = rng.normal(1.0, 0.7, (ITEMS, 2))
    cuts = np.sort(rng.normal(size=(ITEMS, 2)), axis=1)[:, ::-1] + [0.3, -0.3]
    theta = rng.normal(size=(SUBJECTS, 2))
    above = 1 / (1 + np.exp(-(theta @ slopes.T)[:, :, None] - cuts))
    values = (rng.random((SUBJECTS, ITEMS, 1)) < above).sum(-1)
    seen = rng.random(values.shape) < 0.85
    items = GradedItems(jnp.asarray(slopes), jnp.asarray(cuts))
    data = irtjax.Responses(
        jnp.asarray((values * seen).astype(np.int8)), jnp.asarray(seen)
    )
    population = Population(jnp.zeros(2), jnp.ones(2))
    model = factor_model(Factor(item_model="graded"), CATEGORIES)
    return model, items, population, data, score_factors(model, items, population, data)


def log_prob(y, slope, cuts, theta):
    """Log P(y) of one cell, written for this test."""
    above = jax.nn.sigmoid(slope @ theta + cuts)
    above = jnp.concatenate([jnp.ones(1), above, jnp.zeros(1)])
    return jnp.log(above[y] - above[y + 1])


def test_the_covariance_of_items_is_its_formula(case):
    """The blocked products against a loop over subjects and items."""
    model, items, _, data, modes = case
    assert bool(modes.converged.all())
    problem = irtjax.Problem.create(model, data)
    found, _ = factor_covariance(problem, items, modes.ability, modes.covariance)

    def cell(x, theta, y):
        return log_prob(y, x[:2], x[2:], theta)

    own = jax.jit(jax.hessian(cell))
    mixed = jax.jit(jax.jacfwd(jax.grad(cell), argnums=1))
    compared = 0
    for j in range(ITEMS):
        information = np.diag([1, 1, 1 / 9, 1 / 9])
        x = jnp.concatenate([items.discrimination[j], items.intercept[j]])
        for i in np.flatnonzero(np.asarray(data.observed)[:, j]):
            at = x, modes.ability[i], data.values[i, j].astype(int)
            jacobian = np.asarray(mixed(*at))
            information = information - np.asarray(own(*at))
            information = information - jacobian @ modes.covariance[i] @ jacobian.T
        if np.linalg.eigvalsh(information)[0] > 1e-3:
            np.testing.assert_allclose(found[j], np.linalg.inv(information), rtol=1e-6)
            compared += 1
    assert compared > ITEMS / 2


@pytest.mark.slow
def test_errors_of_items_enter_as_derivatives_do(case):
    """The gradient of expected scores in an item's parameters, through the modes."""
    model, items, population, data, modes = case
    rng = np.random.default_rng(1)
    root = 0.05 * rng.normal(size=(ITEMS, WIDTH, WIDTH))
    blocks = jnp.asarray(root @ root.swapaxes(1, 2))
    _, plain = expected_on_items(model, items, modes)
    found = expected_with_items(model, items, data, modes, blocks)

    def score_at(slopes, intercept):
        moved = GradedItems(slopes, intercept)
        at = score_factors(model, moved, population, data)
        return expected_on_items(
            model, moved, at._replace(covariance=modes.covariance)
        )[0]

    parts = jax.jacfwd(score_at, argnums=(0, 1))(*items)
    gradient = np.concatenate(parts, -1)
    check_errors_of_items(found, plain, gradient, blocks, data)


def test_intercepts_together_are_a_shift_of_the_product():
    rng = np.random.default_rng(2)
    theta, slopes = rng.normal(size=(3, 2)), rng.normal(size=(4, 2))
    values = jnp.asarray(rng.integers(0, 3, (3, 4)), float)
    graded = factor_model(Factor(item_model="graded"), 3)
    cuts = np.stack([np.arange(4.0), np.arange(4.0) - 1], -1)
    items, theta = GradedItems(*map(jnp.asarray, (slopes, cuts))), jnp.asarray(theta)
    found = jax.jit(item_cells)(graded, items, theta, values, None)
    np.testing.assert_allclose(sum(found.mixed), found.curvature, atol=1e-12)
    total = sum(sum(row) for row in found.square)
    np.testing.assert_allclose(total, found.curvature, atol=1e-12)
    given = graded, items, theta @ slopes.T, jnp.full((3, 4), 0.3)
    expected = jax.jit(expected_cells)(*given)
    np.testing.assert_allclose(sum(expected.moves), expected.slope, atol=1e-12)
    chances = jax.jit(expected_categories)(*given)
    np.testing.assert_allclose(chances.sum(-1), 1, atol=1e-12)
    np.testing.assert_allclose(chances @ np.arange(3.0), expected.mean, atol=1e-12)
