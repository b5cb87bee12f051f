"""MM over observed cells alone is MM over all cells."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
import irtjax.numerics.sparse as numerics
from experiments.scaling.factors import segment_sums
from irtjax.data import responses as responses_module
from irtjax.data.responses import Responses
from irtjax.data.sparse_responses import SparseResponses
from irtjax.estimators.driver import Run
from irtjax.estimators.joint import sparse
from irtjax.estimators.joint.bound import BilinearParameters, subject_sweep, sweep
from irtjax.estimators.joint.cells import cells_of
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.timing import Clock
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor

SUBJECTS, ITEMS = 40, 23


def responses(trials=False, weights=False) -> Responses:
    """One subject without a response, one with many, an item without any."""
    rng = np.random.default_rng(0)
    share = np.linspace(0.02, 0.5, SUBJECTS)[:, None]
    seen = rng.random((SUBJECTS, ITEMS)) < share
    seen[3], seen[4], seen[:, 5] = False, True, False
    count = seen * (rng.integers(1, 4, seen.shape) if trials else 1)
    values = rng.binomial(count, 0.6)
    weight = lambda n: jnp.asarray(rng.integers(0, 3, n), float) if weights else None
    return Responses(
        jnp.asarray(values, jnp.int8),
        jnp.asarray(seen),
        jnp.asarray(count, jnp.int32) if trials else None,
        weight(SUBJECTS),
        weight(ITEMS),
    )


def point(dims: int) -> BilinearParameters:
    rng = np.random.default_rng(1)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape))
    return BilinearParameters(draw(ITEMS, dims), draw(ITEMS), draw(SUBJECTS, dims))


@pytest.mark.parametrize("curvature", ["uniform", "cell"])
@pytest.mark.parametrize(
    ("dims", "trials", "weights"),
    [
        (1, False, False),
        (3, True, True),
        pytest.param(1, True, True, marks=pytest.mark.slow),
        pytest.param(3, False, False, marks=pytest.mark.slow),
    ],
)
def test_the_passes_are_the_dense_ones(dims, trials, weights, curvature, monkeypatch):
    monkeypatch.setattr(numerics, "CHUNK", 60)  # Several chunks, with padding.
    data, at = responses(trials, weights), point(dims)
    cells = cells_of(factor_model(Factor(factors=dims)), curvature)
    few = SparseResponses.of(data)
    assert len(few.subjects) > 2
    given = at, 0.7, cells
    found = (sparse.sparse_sweep(few, *given), sparse.sparse_subject_sweep(few, *given))
    wanted = sweep(data, *given), subject_sweep(data, *given)
    for x, y in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dims", [1, 3])
def test_sums_are_segment_sums_of_sorted_cells(dims):
    data, at = responses(), point(dims)
    row, column = np.nonzero(np.asarray(data.observed).T)
    value = np.asarray(data.values).T[row, column]
    own, other = at.stacked, jnp.column_stack([jnp.ones(SUBJECTS), at.theta])
    wanted = segment_sums((row, column, value), (ITEMS, SUBJECTS), own, other)
    cells = cells_of(factor_model(Factor(factors=dims)), "uniform")
    given = own, other, None, cells, True, 1 + dims
    found = sparse.sums_of(SparseResponses.of(data).map_items, *given)
    for x, y in zip((found[0], found[1], found[3]), wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_a_fit_is_the_dense_fit(monkeypatch):
    data = responses()
    table = irtjax.ResponseTable.from_arrays(
        np.asarray(data.values), observed=np.asarray(data.observed)
    )
    dense = irtjax.fit(table, "2pl", method="mm")
    monkeypatch.setattr(responses_module, "MANY_CELLS", 1)
    monkeypatch.setattr(responses_module, "FEW_OBSERVED", 1.0)
    problem = Problem.create(dense.model, data)
    assert isinstance(MM().laid_out(problem).data, SparseResponses)
    few = irtjax.fit(table, "2pl", method="mm")
    note = sparse.cells_note(data)
    assert note in few.notes and note not in dense.notes
    assert few.log_likelihood == pytest.approx(dense.log_likelihood, abs=1e-8)
    for name in ("ability", "ability_se"):
        x, y = (fit.abilities.table[name].to_numpy() for fit in (few, dense))
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_missing_values_change_nothing():
    data = responses()
    values = jnp.where(data.observed, data.values, 1)
    few = SparseResponses.of(data)
    other = SparseResponses.of(dataclasses.replace(data, values=values))
    assert eqx.tree_equal(few, other)


def test_complete_data_and_small_data_stay_dense():
    data = responses()
    assert not data.is_sparse  # Few cells in all.
    large = Responses(jnp.zeros((1024, 1024), jnp.int8))
    assert not large.is_sparse
    seen = jnp.zeros((1024, 1024), bool).at[:50].set(True)
    some = dataclasses.replace(large, observed=seen)
    assert some.is_sparse
    note = "mm visited the observed cells alone: 4.9 % of all cells"
    for data in (some, SparseResponses.of(some)):
        assert sparse.cells_note(data) == note


@pytest.mark.slow
def test_a_start_without_abilities(monkeypatch):
    monkeypatch.setattr(responses_module, "MANY_CELLS", 1)
    monkeypatch.setattr(responses_module, "FEW_OBSERVED", 1.0)
    data = responses()
    problem = Problem.create(irtjax.MODELS["2pl"](), data)
    start = irtjax.start_values(problem.model, data)
    given = MM(memory=0), start._replace(theta=None), Run(Clock(), max_steps=2)
    found = given[0].solve(problem, *given[1:]).fit
    assert np.isfinite(found.parameters.theta).all()
