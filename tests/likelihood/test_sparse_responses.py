"""Sums over observed cells are those over all cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
import irtjax.numerics.sparse as numerics
from irtjax.data.responses import Responses
from irtjax.data.sparse_responses import SparseResponses
from irtjax.estimators.start import start_values
from irtjax.likelihood.counts import expected_counts
from irtjax.likelihood.problem import Problem
from irtjax.likelihood.quadrature import choose_nodes
from irtjax.models.model import Population
from irtjax.numerics.kernels import equal_nodes, normal_log_weights
from irtjax.scoring import expected_scores, score
from irtjax.uncertainty import covariance

SUBJECTS, ITEMS, RANK = 60, 12, 6
NODES = jnp.asarray(equal_nodes(-5.0, 5.0, 31))
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


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
    patch.setattr(covariance, "DENSE_LIMIT", 0)
    patch.setattr("irtjax.uncertainty.inversion.RANK", RANK)
    yield data, SparseResponses.of(data)
    patch.undo()


@pytest.fixture(scope="module", params=["1pl", "2pl"])
def fitted(request, both):
    """A model at the start values of sparse responses, which are the dense ones."""
    model = irtjax.MODELS[request.param]()
    few, dense = (start_values(model, data) for data in reversed(both))
    for x, y in zip(*map(jax.tree.leaves, (few, dense)), strict=True):
        np.testing.assert_allclose(x, y, **CLOSE)
    return model, dense


def test_expected_counts(both, fitted):
    model, start = fitted
    given = model, start.items, NODES, normal_log_weights(NODES)
    dense, few = (expected_counts(*given, data, moments=True) for data in both)
    for x, y in zip(*map(jax.tree.leaves, (few, dense)), strict=True):
        np.testing.assert_allclose(x, y, **CLOSE)
    unit = Population(jnp.zeros(()), jnp.ones(()))
    nodes = [choose_nodes(model, start.items, unit, data) for data in both]
    np.testing.assert_allclose(*nodes)


@pytest.mark.slow
def test_errors_and_scores(both, fitted):
    model, start = fitted
    unit, coordinates = Population(jnp.zeros(()), jnp.ones(())), None
    found = []
    for data in both:
        problem = Problem.create(model, data)
        coordinates = model.unconstrain(start.items)
        given = problem, coordinates, unit, NODES
        errors = covariance.item_covariance(*given, num_terms=3, how="leading")
        # Which vectors span a space has no meaning, their products have.
        shared = jnp.einsum("rja,rkb->jakb", errors.shared, errors.shared)
        for_scores = model, start.items, unit, data
        options = {"nodes": NODES, "item_covariance": errors}
        scores = [score(*for_scores, method=x, **options) for x in ("eap", "map")]
        products = [x.shared @ x.shared.T for x in scores]
        numbers = [
            (x.ability, x.standard_error, x.log_marginal, x.flag) for x in scores
        ]
        expected = expected_scores(*for_scores, NODES, errors)
        parts = errors.items, errors.scale, errors.items_scale, shared
        found.append((parts, numbers, products, expected))
    for x, y in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-8, atol=1e-10)
