"""Folds of observed cells are those of the matrix, and so are residuals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import irtjax
from irtjax.data.sparse_table import SparseCells
from irtjax.estimators import folds
from irtjax.estimators.folds import Folds, folds_of
from irtjax.estimators.noise_rank import fit_factors, leading_residual
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor

SUBJECTS, ITEMS = 90, 24


def tables(share: float = 0.6) -> tuple[Any, Any]:
    """A table of two factors, some cells missing, and the same by observed cell."""
    rng = np.random.default_rng(3)
    theta = rng.normal(size=(SUBJECTS, 2))
    eta = 1.5 * theta[:, np.arange(ITEMS) % 2] + rng.normal(size=ITEMS)
    seen = rng.random(eta.shape) < share
    seen[4], seen[:, 5] = False, False
    right = np.where(seen, rng.random(eta.shape) < expit(eta), np.nan)
    dense = irtjax.ResponseTable.from_arrays(right)
    few = dense.replace(values=dense.cells, observed=None)
    return dense, few


def of_cells(pair, key: int = 0) -> list[Any]:
    """Folds of both storages."""
    return [folds_of(table, jax.random.key(key), what="a test") for table in pair]


@pytest.mark.slow
def test_fits_and_predictions_of_a_fold_are_those_of_the_matrix():
    matrix, cells = of_cells(tables())
    dtype = jnp.zeros(()).dtype
    for fold in (0, 3):
        trainings = [x.without(fold) for x in (matrix, cells)]
        for size in (0, 2):
            found = []
            for one, training in zip((matrix, cells), trainings, strict=True):
                fit = fit_factors(training, size, 2, dtype) if size else None
                found.append(one.judge(fold, training, fit))
            np.testing.assert_allclose(found[0], found[1], rtol=1e-4)
    # Held-out cells are not in the sums.
    other = np.where(cells.number == 3, 1 - cells.cells.value, cells.cells.value)
    turned = SparseCells(cells.cells.start, cells.cells.column, other, ITEMS)
    again = Folds(turned, cells.number, cells.layout).without(3)
    for x, y in zip(jax.tree.leaves(again), jax.tree.leaves(trainings[1]), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
def test_residuals_and_proportions_are_those_of_the_matrix():
    pair = tables()
    matrix, cells = of_cells(pair)
    assert matrix.num_observed == cells.num_observed
    expected = matrix.log_likelihood_of_means()
    assert cells.log_likelihood_of_means() == pytest.approx(expected, rel=1e-6)
    rng = np.random.default_rng(0)
    model = factor_model(Factor(2))
    d = jnp.asarray(rng.normal(size=ITEMS))
    slopes = jnp.asarray(rng.normal(size=(ITEMS, 2)))
    items = model.family.start((jnp.full(ITEMS, 0.5),), jnp.ones(ITEMS))
    items = items._replace(discrimination=slopes, intercept=d)
    theta = jnp.asarray(rng.normal(size=(SUBJECTS, 2)))
    wanted = leading_residual(model, items, theta, matrix.whole)
    found = leading_residual(model, items, theta, cells.whole)
    dense, _ = pair
    chance = expit(np.asarray(theta) @ np.asarray(slopes).T + np.asarray(d))
    residual = np.where(dense.observed, dense.values - chance, 0)
    left, values, right = np.linalg.svd(residual)
    for pair in (wanted, found):
        assert float(pair.value) == pytest.approx(values[0], rel=1e-6)
        assert abs(left[:, 0] @ np.asarray(pair.subjects)) == pytest.approx(1, abs=1e-5)
        assert abs(right[0] @ np.asarray(pair.items)) == pytest.approx(1, abs=1e-5)
        # Of one sign: the product of the two is a direction of the residuals.
        assert pair.subjects @ residual @ pair.items == pytest.approx(values[0])


def test_areas_are_of_right_and_wrong_responses():
    right, chance = np.array([True, False, True]), np.array([0.9, 0.2, 0.1])
    assert folds._auc(right, chance) == 0.5
    assert np.isnan(folds._auc(right[::2], chance[::2]))
