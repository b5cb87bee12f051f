"""Scores of several abilities: against brute-force quadrature and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import irtjax
import irtjax.numerics.sparse as numerics
from irtjax.data.responses import Responses
from irtjax.data.sparse_responses import SparseResponses
from irtjax.inference import marginal_covariance as marginal
from irtjax.inference.joint_covariance import (
    factor_covariance,
)
from irtjax.inference.marginal_covariance import marginal_covariance
from irtjax.inference.vector_scores import (
    expected_on_items,
    expected_with_items,
    score_factors,
    watched_on_items,
    watched_score_factors,
)
from irtjax.likelihood.cubature import points_for
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.model import Population
from irtjax.numerics import kernels, progress
from irtjax.numerics.progress import watching
from tests.scoring_cases import check_errors_of_items

SUBJECTS, ITEMS = 7, 25


@pytest.fixture(scope="module")
def case():
    """A model, items, a correlated population, and responses with missing cells."""
    rng = np.random.default_rng(4)
    slopes, intercept = rng.normal(0.8, 0.7, (ITEMS, 2)), rng.normal(size=ITEMS)
    population = Population(
        jnp.zeros(2), jnp.ones(2), None, jnp.array([[1, 0.3], [0.3, 1]])
    )
    theta = rng.normal(size=(SUBJECTS, 2))
    right = rng.random((SUBJECTS, ITEMS)) < expit(theta @ slopes.T + intercept)
    seen = rng.random(right.shape) < 0.85
    items = LogisticItems(
        *map(jnp.asarray, (slopes, intercept, np.zeros(ITEMS), np.ones(ITEMS)))
    )
    values = jnp.asarray((right & seen).astype(np.int8))
    data = irtjax.Responses(values, jnp.asarray(seen))
    return factor_model(Factor()), items, population, data


def test_modes_and_expected_scores_are_those_of_quadrature(case):
    model, items, population, data = case
    found = score_factors(model, items, population, data)
    assert bool(found.converged.all())
    score, error = expected_on_items(model, items, found)
    line = np.linspace(-6, 6, 241)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    slopes, intercept = np.asarray(items.discrimination), np.asarray(items.intercept)
    chance = expit(grid @ slopes.T + intercept)
    inverse = np.linalg.inv(np.asarray(population.covariance))
    prior = -0.5 * np.einsum("tk,kl,tl->t", grid, inverse, grid)
    for i in range(SUBJECTS):
        y, seen = np.asarray(data.values[i]), np.asarray(data.observed[i])
        logs = (np.log(np.where(y == 1, chance, 1 - chance)) * seen).sum(1) + prior
        weight = np.exp(logs - logs.max())
        weight /= weight.sum()
        # The mode is the best node up to its spacing.
        assert np.abs(np.asarray(found.ability[i]) - grid[logs.argmax()]).max() < 0.05
        mean = weight @ chance.mean(1)
        sd = np.sqrt(weight @ (chance.mean(1) - mean) ** 2)
        # A normal approximation errs by a share of the order of 1 / sqrt(responses).
        share = 1 / np.sqrt(seen.sum())
        assert float(score[i]) == pytest.approx(mean, abs=share * sd)
        assert float(error[i]) == pytest.approx(sd, rel=share)


def test_errors_of_items_enter_as_derivatives_do(case):
    """Equation (2): the gradient in an item's parameters by finite differences."""
    model, items, population, data = case
    rng = np.random.default_rng(1)
    root = 0.05 * rng.normal(size=(ITEMS, 3, 3))
    blocks = jnp.asarray(root @ root.swapaxes(1, 2))
    modes = score_factors(model, items, population, data)
    _, plain = expected_on_items(model, items, modes)
    found = expected_with_items(model, items, data, modes, blocks)

    def score_at(slopes, intercept):
        moved = items._replace(discrimination=slopes, intercept=intercept)
        at = score_factors(model, moved, population, data)
        return expected_on_items(model, moved, at._replace(covariance=modes.covariance))

    move = jax.jacfwd(lambda *x: score_at(*x)[0], argnums=(0, 1))
    by_slope, by_intercept = move(items.discrimination, items.intercept)
    gradient = np.concatenate([by_slope, np.asarray(by_intercept)[:, :, None]], -1)
    check_errors_of_items(found, plain, gradient, blocks, data)


def test_the_covariance_of_items_is_its_formula(case):
    """The blocked products against a loop over subjects and items."""
    model, items, population, data = case
    modes = score_factors(model, items, population, data)
    problem = irtjax.Problem.create(model, data)
    given = problem, items, modes.ability, modes.covariance
    # Priors with weight 1.5, of parameters times 0.8.
    found, lost = factor_covariance(*given, 1.5, 0.8)
    slopes, intercept = np.asarray(items.discrimination), np.asarray(items.intercept)
    theta, spread = np.asarray(modes.ability), np.asarray(modes.covariance)
    chance = expit(theta @ slopes.T + intercept)
    seen = np.asarray(data.observed)
    for j in range(ITEMS):
        information = 1.5 * 0.8**2 * np.diag([1, 1, 1 / 9])
        for i in range(SUBJECTS):
            r = seen[i, j] * (float(data.values[i, j]) - chance[i, j])
            w = seen[i, j] * chance[i, j] * (1 - chance[i, j])
            z = np.append(theta[i], 1)
            jacobian = r * np.eye(3)[:, :2] - w * np.outer(z, slopes[j])
            information = information + w * np.outer(z, z)
            information = information - jacobian @ spread[i] @ jacobian.T
        if np.linalg.eigvalsh(information)[0] > 1e-3:
            inverse = np.linalg.inv(information)
            np.testing.assert_allclose(found[j], inverse, rtol=1e-6)
            assert not np.any(lost[j])
        else:
            # Of no use: the variance of one direction at least is unknown.
            own, unknown = (np.diagonal(x[j]) for x in (found, lost))
            assert (unknown > 0.01 * own).any()


def test_solves_by_a_loop_are_those_written_out():
    from irtjax.numerics.kernels import WRITTEN_OUT, positive_definite_solve

    rng = np.random.default_rng(0)
    root = rng.normal(size=(30, 6, 6))
    matrix = jnp.asarray(root @ root.swapaxes(1, 2) + 0.1 * np.eye(6))
    vector = jnp.asarray(rng.normal(size=(30, 6)))
    assert WRITTEN_OUT < 6
    found, pivots = positive_definite_solve(matrix, vector)
    wanted = np.linalg.solve(matrix, vector[:, :, None])[:, :, 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(np.prod(pivots, -1), np.linalg.det(matrix), rtol=1e-8)


@pytest.mark.slow
def test_observed_cells_alone_give_the_scores_and_errors_of_all_cells(
    case, monkeypatch
):
    """One subject without a response, one item without any, weights of both."""
    monkeypatch.setattr(numerics, "CHUNK", 30)  # Several chunks, with padding.
    monkeypatch.setattr(numerics, "MOST_NUMBERS", 500)
    model, items, population, given = case
    rng = np.random.default_rng(2)
    seen = np.asarray(given.observed) & (rng.random(given.values.shape) < 0.4)
    seen[2], seen[:, 5] = False, False
    data = Responses(
        jnp.where(jnp.asarray(seen), given.values, 0),
        jnp.asarray(seen),
        subject_weight=jnp.asarray(rng.integers(1, 3, SUBJECTS), float),
        item_weight=jnp.asarray(rng.integers(1, 3, ITEMS), float),
    )
    few, found = SparseResponses.of(data), []
    for each in (data, few):
        modes = score_factors(model, items, population, each)
        problem = Problem.create(model, each)
        blocks = factor_covariance(problem, items, modes.ability, modes.covariance)
        shared = expected_with_items(model, items, each, modes, blocks[0])
        product = shared.shared @ shared.shared.T  # Signs of directions are free.
        found.append((modes, blocks, shared[:2], product))
    for x, y in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-8, atol=1e-9)
    start = jnp.asarray(rng.normal(size=(SUBJECTS, 2)))
    kept = [score_factors(model, items, population, x, start, 0) for x in (data, few)]
    for x, y in zip(*map(jax.tree.leaves, kept), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_modes_of_steep_items_and_odd_subjects_are_found(dtype):
    """Plain Newton steps jump from side to side of steep items of one difficulty.

    Subjects do not follow the model, as contaminated ones do not. SciPy is the truth.
    """
    rng = np.random.default_rng(0)
    slopes = rng.normal(0, 1, (60, 3)) + [5.0, 0, 0] * (rng.random((60, 1)) < 0.7)
    intercept = slopes[:, 0] + rng.normal(size=60)
    right = rng.random((40, 60)) < rng.random((40, 1))
    items = LogisticItems(
        *(jnp.asarray(x, dtype) for x in (slopes, intercept, np.zeros(60), np.ones(60)))
    )
    population = Population(jnp.zeros(3, dtype), jnp.ones(3, dtype))
    data = irtjax.Responses(jnp.asarray(right, jnp.int8))
    given = factor_model(Factor(factors=3)), items, population
    found = score_factors(*given, data)
    assert bool(found.converged.all())

    def loss(theta, y):
        eta = slopes @ theta + intercept
        chance = np.where(y, expit(eta), expit(-eta))
        gradient = slopes.T @ (y - expit(eta)) - theta
        return theta @ theta / 2 - np.log(chance).sum(), -gradient

    for i in range(40):
        best = minimize(loss, np.zeros(3), (right[i],), jac=True, method="BFGS")
        error = np.asarray(found.ability[i]) - best.x
        assert np.abs(error).max() < (1e-4 if dtype == jnp.float64 else 2e-3)
    seen = jnp.ones(right.shape, bool)
    sparse = SparseResponses.of(Responses(data.values, seen))
    assert jnp.allclose(score_factors(*given, sparse).ability, found.ability, atol=1e-3)


@pytest.fixture
def blocks_of_200(monkeypatch, case):
    """600 subjects of the case in three blocks, each taken by one call if watched."""
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 1)
    monkeypatch.setattr(marginal, "BLOCK_BYTES", 2**24)
    monkeypatch.setattr(progress, "STRETCH", 0.0)
    model, items, population, _ = case
    right = np.random.default_rng(3).integers(0, 2, (600, ITEMS)).astype(np.int8)
    return model, items, population, irtjax.Responses(jnp.asarray(right))


def watched(function):
    """What a function finds, and the shares that it reports."""
    shares = []
    with watching(lambda share, name: shares.append(share)):
        return function(), shares


def assert_equal(found, others):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(others), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_watcher_sees_shares_and_changes_no_factor_score(blocks_of_200):
    model, items, *_ = blocks_of_200

    def found():
        modes = watched_score_factors(*blocks_of_200)
        return modes, watched_on_items(model, items, modes)

    alone, (seen, shares) = found(), watched(found)
    assert shares == 2 * [0.0, 1 / 3, 2 / 3, None]
    assert_equal(alone, seen)
    # Another program, which may round otherwise.
    for x, y in zip(alone[1], expected_on_items(model, items, alone[0]), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-14)


@pytest.fixture
def sparse_case(monkeypatch, case):
    """40 subjects with few responses, the first with none, in several chunks."""
    monkeypatch.setattr(numerics, "CHUNK", 60)
    monkeypatch.setattr(numerics, "MOST_NUMBERS", 1000)
    monkeypatch.setattr(progress, "STRETCH", 0.0)
    model, items, population, _ = case
    rng = np.random.default_rng(6)
    seen = rng.random((40, ITEMS)) < 0.3
    seen[0] = False
    right = jnp.asarray(seen & (rng.random(seen.shape) < 0.6), jnp.int8)
    data = SparseResponses.of(Responses(right, jnp.asarray(seen)))
    return model, items, population, data


def test_a_watcher_sees_shares_and_changes_no_score_of_observed_cells(sparse_case):
    found = lambda: watched_score_factors(*sparse_case)
    alone, (seen, shares) = found(), watched(found)
    assert len(shares) > 4 and shares[-1] is None
    assert_equal(alone, seen)
    population = sparse_case[2]
    np.testing.assert_array_equal(alone.ability[0], population.mean)
    np.testing.assert_allclose(alone.covariance[0], population.covariance, rtol=1e-12)


@pytest.mark.slow
def test_a_watcher_sees_shares_and_changes_no_error_of_observed_cells(sparse_case):
    model, items, _, data = sparse_case
    problem, modes = Problem.create(model, data), score_factors(*sparse_case)
    given = problem, items, modes.ability, modes.covariance
    found = lambda: factor_covariance(*given)
    alone, (seen, shares) = found(), watched(found)
    assert len(shares) > 2 and shares[-1] is None
    assert_equal(alone, seen)
    # The scan over all chunks may be rounded otherwise than the loop over some.
    for x, y in zip(watched_score_factors(*sparse_case), modes, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_a_watcher_sees_shares_and_changes_no_error_of_factors(blocks_of_200):
    model, items, population, data = blocks_of_200
    modes, problem = score_factors(*blocks_of_200), Problem.create(model, data)
    posteriors = modes.ability, modes.covariance
    rule = points_for(2, 0, jax.random.key(0))

    def found():
        blocks = factor_covariance(problem, items, *posteriors)
        expected = expected_with_items(model, items, data, modes, blocks[0])
        return blocks, expected

    def marginal():
        given = problem, items, population, posteriors, rule
        return marginal_covariance(*given).items

    alone, (seen, shares) = found(), watched(found)
    # One pass over three blocks, and two.
    assert shares == [0.0, 1 / 3, 2 / 3, None, *(k / 6 for k in range(6)), None]
    assert_equal(alone, seen)
    alone, (seen, shares) = marginal(), watched(marginal)
    assert len(shares) > 2 and shares[-1] is None
    np.testing.assert_array_equal(alone, seen)
