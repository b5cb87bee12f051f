"""Sums over observed cells are those over all cells."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
import irtjax.numerics.sparse as numerics
from irtjax.data.responses import Responses
from irtjax.data.sparse_responses import SparseResponses
from irtjax.estimators.start import start_values
from irtjax.inference import covariance, expected_scores, score
from irtjax.inference.gradients import (
    Whitening,
    fold_blocks,
    make_setting,
    sparse_gram,
    sparse_products,
)
from irtjax.likelihood.counts import expected_counts
from irtjax.likelihood.problem import Problem
from irtjax.likelihood.quadrature import choose_nodes
from irtjax.models.model import Population
from irtjax.numerics.kernels import equal_nodes, normal_log_weights

SUBJECTS, ITEMS = 60, 12
NODES = jnp.asarray(equal_nodes(-5.0, 5.0, 31))


def check_close(found, wanted, tolerance: float = 1e-10) -> None:
    for x, y in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def responses(seed: int = 0) -> Responses:
    """One subject without a response, one with all, an item without any."""
    rng = np.random.default_rng(seed)
    seen = rng.random((SUBJECTS, ITEMS)) < np.linspace(0.1, 0.6, SUBJECTS)[:, None]
    seen[3], seen[4], seen[:, 5] = False, True, False
    values = seen & (rng.random(seen.shape) < 0.6)
    return Responses(jnp.asarray(values, jnp.int8), jnp.asarray(seen))


@pytest.fixture(scope="module")
def both():
    data = responses()
    patch = pytest.MonkeyPatch()
    # Several chunks, with rows and columns of padding.
    patch.setattr(numerics, "CHUNK", 60)
    patch.setattr(numerics, "TABLE_WIDTH", 16)
    patch.setattr(numerics, "MOST_NUMBERS", 8_000)
    yield data, SparseResponses.of(data)
    patch.undo()


@pytest.fixture(scope="module", params=["1pl", "2pl"])
def fitted(request, both):
    """A model at the start values of sparse responses, which are the dense ones."""
    model = irtjax.MODELS[request.param]()
    few, dense = (start_values(model, data) for data in reversed(both))
    check_close(few, dense)
    return model, dense


def test_expected_counts(both, fitted):
    model, start = fitted
    given = model, start.items, NODES, normal_log_weights(NODES)
    dense, few = (expected_counts(*given, data, moments=True) for data in both)
    check_close(few, dense)
    unit = Population(jnp.zeros(()), jnp.ones(()))
    nodes = [choose_nodes(model, start.items, unit, data) for data in both]
    check_close(nodes[0], nodes[1])


@pytest.mark.slow
def test_scores(both, fitted):
    model, start = fitted
    unit, coordinates = Population(jnp.zeros(()), jnp.ones(())), None
    coordinates = model.unconstrain(start.items)
    problem = Problem.create(model, both[0])
    given = problem, coordinates, unit, NODES
    errors = covariance.item_covariance(*given, num_terms=3, how="leading")
    found = []
    for data in both:
        for_scores = model, start.items, unit, data
        options = {"nodes": NODES, "item_covariance": errors}
        scores = [score(*for_scores, scoring=x, **options) for x in ("eap", "map")]
        plain = expected_scores(*for_scores, NODES)
        found.append((scores, plain, expected_scores(*for_scores, NODES, errors)))
    for x, y in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_products_with_gradients(both, fitted):
    """C'C V and its blocks are those of the rows that dense responses have."""
    model, start = fitted
    sd = jnp.asarray(0.8 if model.family.has_slope else 1.2)
    population, terms = Population(jnp.zeros(()), sd), 4
    rng = np.random.default_rng(3)
    size = model.family.num_columns
    turn = jnp.asarray(rng.normal(size=(ITEMS, size, size)))
    white = Whitening(turn, jnp.asarray(rng.normal(size=(2, 2))))
    vectors = jnp.asarray(rng.normal(size=(ITEMS * size + 2, 3)))
    weight = jnp.asarray(rng.integers(0, 3, SUBJECTS), float)
    found = []
    for data in both:
        data = eqx.tree_at(
            lambda x: x.subject_weight, data, weight, is_leaf=lambda x: x is None
        )
        problem = Problem.create(model, data)
        setting = make_setting(
            problem, model.unconstrain(start.items), population, NODES
        )
        if isinstance(data, SparseResponses):
            found.append(sparse_products(setting, white, terms, vectors))
            gram = sparse_gram(setting, white, terms)
            np.testing.assert_allclose(gram @ vectors, found[-1][0], atol=1e-9)
            continue
        keep = lambda carry, rows, _: (
            carry + jnp.einsum("tbp,tbq->pq", rows[1:], rows[1:])
        )
        zero = jnp.zeros((len(vectors), len(vectors)))
        matrix: Any = fold_blocks(setting, white, terms, keep, zero)
        own = matrix[:-2, :-2].reshape(ITEMS, size, ITEMS, size)
        found.append((matrix @ vectors, jnp.einsum("jajb->jab", own)))
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_errors_of_items():
    """Within the noise of 48 probes: 1,000 x 100 responses, a tenth observed."""
    rng = np.random.default_rng(0)
    seen = rng.random((1000, 100)) < 0.1
    ability, easiness = rng.normal(size=(1000, 1)), rng.normal(size=100)
    right = seen & (rng.random(seen.shape) < 1 / (1 + np.exp(-ability - easiness)))
    data = Responses(jnp.asarray(right, jnp.int8), jnp.asarray(seen))
    model = irtjax.MODELS["2pl"]()
    coordinates = jnp.stack([jnp.ones(100), jnp.asarray(easiness)], 1)
    unit, sizes = Population(jnp.zeros(()), jnp.ones(())), []
    both: list[Any] = [data, SparseResponses.of(data)]
    for each in both:
        given = Problem.create(model, each), coordinates, unit, NODES
        found = covariance.item_covariance(*given, num_terms=5)
        sizes.append(np.sqrt(np.diagonal(found.items, axis1=1, axis2=2)))
    ratio = sizes[1] / sizes[0]
    assert abs(np.median(ratio) - 1) < 0.01
    assert np.abs(ratio - 1).max() < 0.08


@pytest.mark.parametrize("name", ["2pl", pytest.param("3pl", marks=pytest.mark.slow)])
def test_few_cells_of_a_matrix_give_the_errors_of_all(name, monkeypatch):
    """A product over the observed cells is that over a matrix with a mask."""
    rng = np.random.default_rng(1)
    seen = rng.random((300, 40)) < 0.1
    data = Responses(jnp.asarray(rng.random(seen.shape) < 0.6), jnp.asarray(seen))
    model = irtjax.MODELS[name]()
    problem = Problem.create(model, data)
    coordinates = jnp.asarray(rng.normal(size=(40, model.family.num_columns)))
    unit = Population(jnp.zeros(()), jnp.ones(()))
    given = problem, jnp.abs(coordinates), unit, NODES
    monkeypatch.setattr(covariance, "EXACT_LIMIT", 0)
    both, ways = [], []
    program = covariance._covariance
    spy = lambda *x: ways.append(type(x[0].data)) or program(*x)
    monkeypatch.setattr(covariance, "_covariance", spy)
    for share in (0.0, 1.0):
        monkeypatch.setattr(covariance, "FEW_CELLS", share)
        both.append(covariance.item_covariance(*given))
    assert ways == [Responses, SparseResponses]
    for x, y in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-8, atol=1e-10)
