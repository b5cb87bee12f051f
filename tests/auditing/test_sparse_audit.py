"""Audits, missing responses and flows of observed cells are those of the matrix."""

import dataclasses
import functools
import sys
from typing import Any

import jax
import numpy as np
import pytest

import irtjax
from irtjax.auditing import agreement, items_to_read, permuted
from irtjax.auditing.control import simulated
from irtjax.auditing.copies import duplicates
from irtjax.auditing.examine import OrderedFit
from irtjax.calibration.flow import rank_flow
from irtjax.data import cell_sums, sparse_table
from irtjax.data.sparse_table import SparseCells
from irtjax.numerics import memory
from irtjax.numerics.progress import watching
from irtjax.plots import plot_flagged_items
from irtjax.validity.asymptotes import by_subjects
from irtjax.validity.classical import classical
from irtjax.validity.dimensionality import dimensions
from irtjax.validity.missing_cells import missing_in_cells
from irtjax.validity.missing_matrix import missing_by_ability
from irtjax.validity.missingness import (
    missing_of_table,
    unit_responses,
    unit_values,
)
from irtjax.validity.residuals import dependence, item_fit
from irtjax.validity.stability import _without_responses, stability


@functools.cache
def case() -> tuple[Any, Any, Any]:
    """A table, the same by observed cell, and a fit: 4 % observed, but for a few."""
    rng = np.random.default_rng(4)
    subjects, items = 700, 60
    ability, easy = rng.normal(size=(subjects, 1)), rng.normal(0, 0.8, items)
    slope = rng.uniform(0.6, 1.6, items)
    slope[3] = -1.5
    right = rng.random((subjects, items)) < 1 / (1 + np.exp(-slope * ability - easy))
    seen = rng.random(right.shape) < rng.choice([0.1, 0.5], (subjects, 1))
    right[:, 11], right[:, 21] = right[:, 10], True  # A duplicate; no variation.
    seen[:, 31] = seen[:, 30]  # One mask.
    seen[5], seen[:, 40] = False, False
    seen[:150] = seen[:150] | (np.arange(items) != 40)
    names = [f"b{k % 3}" for k in range(items)]
    dense = irtjax.ResponseTable.from_arrays(
        np.where(seen, right, np.nan), benchmark=names
    )
    few: Any = dense.replace(values=dense.cells, observed=None)
    fit = irtjax.fit(dense, "2pl", "em", standard_errors="none")
    return dense, few, fit


@pytest.fixture
def no_matrix(monkeypatch):
    """Making the matrix of a large table of observed cells fails."""
    dense = SparseCells.dense.fget

    def refused(cells):
        assert cells.shape[0] * cells.shape[1] < 20_000, "the matrix was made"
        return dense(cells)

    monkeypatch.setattr(SparseCells, "dense", property(refused))


def agree(found, wanted, tolerance: float) -> None:
    assert found.column_names == wanted.column_names
    for name in wanted.column_names:
        x, y = found[name].to_pylist(), wanted[name].to_pylist()
        assert [v is None for v in x] == [v is None for v in y], name
        if not any(isinstance(v, float) for v in y):
            assert x == y, name
            continue
        x, y = (np.array([v for v in z if v is not None], float) for z in (x, y))
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=1e-9, err_msg=name)


@pytest.mark.slow
def test_an_audit_of_observed_cells_is_that_of_the_matrix(no_matrix, monkeypatch):
    dense, few, fit = case()
    # Masks of a matrix are linked if they are few.
    monkeypatch.setattr("irtjax.validity.missing_matrix.MOST_MASKS", 5)
    monkeypatch.setattr(cell_sums, "BLOCK", 1000)
    # Items to read are found in the matrix, and have a test of their own.
    module = sys.modules[irtjax.audit.__module__]
    monkeypatch.setattr(module, "items_to_read", lambda *args, **options: None)
    shares: list[Any] = []
    with watching(lambda share, _: shares.append(share)):
        found = irtjax.audit(fit, few)
    # Pairs for dependence, pairs for duplicates, and the rest.
    assert shares[:-1] == sorted(shares[:-1]) and shares[-2:] == [1, None]
    assert len({x for x in shares[:-1] if x < 1 / 3}) > 2
    assert len({x for x in shares[:-1] if 1 / 3 < x < 2 / 3}) > 2
    wanted = irtjax.audit(fit, dense)
    # Dependence of a matrix is in single precision.
    agree(found.items, wanted.items, 2e-4)
    agree(found.benchmarks, wanted.benchmarks, 1e-9)
    assert found.warnings == wanted.warnings
    assert found.flagged("negative discrimination") == ["item 4"]
    assert set(found.flagged("duplicate")) == {"item 11", "item 12"}
    assert plot_flagged_items(found, few).axes


def test_items_to_read_of_cells_are_those_of_the_matrix(monkeypatch):
    dense, few, fit = case()
    found, wanted = (items_to_read(fit, x) for x in (few, dense))
    assert len(wanted) > 0 and found.significant == wanted.significant
    assert found.table.equals(wanted.table)
    # A matrix that does not fit is not made, and a line states it.
    monkeypatch.setattr(agreement, "available_memory", lambda: 1.0)
    lost = items_to_read(fit, few)
    assert len(lost) == 0 and lost.sentence().startswith("not examined: a matrix of")
    assert items_to_read(fit, dense).table.equals(wanted.table)


def test_classical_statistics_and_asymptotes_of_cells():
    dense, few, fit = case()
    known = OrderedFit.of(fit, dense)
    found, wanted = classical(few.stored), classical(dense.stored)
    for name, x, y in zip(found._fields, found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12, err_msg=name)
    slope, intercept = known.items[:2]
    zero = np.zeros(slope.size)
    curves, error = (slope, intercept, zero, zero + 1), known.error.copy()
    error[:20] = [0, np.nan] * 10  # Not scored.
    found, wanted = (
        by_subjects(x.stored, known.ability, error, curves, zero) for x in (few, dense)
    )
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-9)
    assert np.isfinite(found.p_value).sum() > 40


def test_statistics_of_cells_do_not_depend_on_the_blocks(monkeypatch):
    dense, few, fit = case()
    known = OrderedFit.of(fit, dense)
    of_fit = fit.model.family, jax.tree.map(np.asarray, known.items), known.ability
    data = dense.stored
    wanted = item_fit(*of_fit, data), dependence(*of_fit, data)
    for size in (700, 2**22):
        monkeypatch.setattr(cell_sums, "BLOCK", size)
        for x, y in zip(item_fit(*of_fit, few.sparse), wanted[0], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
        found = dependence(*of_fit, few.sparse)
        np.testing.assert_array_equal(found.partner, wanted[1].partner)
        np.testing.assert_allclose(found.q3, wanted[1].q3, atol=1e-5)
        found = duplicates(*of_fit, few.sparse)
        for x, y in zip(found, duplicates(*of_fit, data), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9)


@pytest.mark.parametrize("kind", ["binary", "scores"])
def test_missing_responses_of_cells(kind, monkeypatch):
    dense, _, _ = case()
    if kind == "scores":
        scale = np.linspace(0.1, 1, dense.num_items)
        dense = dense.replace(values=dense.values * scale + 0.2 * dense.observed)
    # Links of a matrix of so many masks are left out.
    monkeypatch.setattr("irtjax.validity.missing_matrix.MOST_MASKS", 5)
    few: Any = dense.replace(values=dense.cells, observed=None)
    found = missing_in_cells(few.sparse, unit_values(few))
    wanted = missing_by_ability(*unit_responses(dense))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-12)
    assert np.isfinite(found.p_value).sum() > 50
    # Of so few responses small p-values are drawn.
    rows = dense.select(subjects=np.arange(500, 540))
    few = rows.replace(values=rows.cells, observed=None)
    part = missing_in_cells(few.sparse, unit_values(few))
    wanted = missing_by_ability(*unit_responses(rows))
    assert (part.p_value < 0.1).any()
    for x, y in zip(part, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-12)
    assert found.mask[30] == found.mask[31]


@pytest.mark.parametrize("num_blocks", [3, 30])
def test_benchmarks_that_some_did_not_run_of_cells(num_blocks, monkeypatch):
    """Also single items, a benchmark of two items, and one that all ran."""
    monkeypatch.setattr("irtjax.validity.missing_matrix.MOST_MASKS", num_blocks + 1)
    monkeypatch.setattr("irtjax.validity.missing_matrix.MOST_CELLS", 300 * num_blocks)
    rng = np.random.default_rng(num_blocks)
    block = np.repeat(np.arange(num_blocks + 3), 4)[:-2]
    ability = rng.normal(size=(300, 1))
    right = rng.random((300, block.size)) < 1 / (1 + np.exp(-ability))
    ran = rng.random((300, num_blocks + 3)) < 0.3
    ran[:, 1], ran[:, -2] = ability[:, 0] > 0.5, True
    seen = ran[:, block] & (rng.random(right.shape) < 0.9)
    # Of the last benchmark, of two items, those have responses who ran the first.
    seen[:, -2:] = ran[:, :1] & (rng.random((300, 2)) < 0.9)
    seen[7] = False
    names = [f"b{k}" for k in block]
    dense = irtjax.ResponseTable.from_arrays(
        np.where(seen, right, np.nan), benchmark=names
    )
    few: Any = dense.replace(values=dense.cells, observed=None)
    found, wanted = (missing_of_table(x) for x in (few, dense))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-12)
    assert set(found.more_for(0.05)[block == 1]) == {"weak"}
    alone = missing_in_cells(few.sparse, unit_values(few))
    assert not np.allclose(alone.p_value, found.p_value, equal_nan=True)
    monkeypatch.setattr("irtjax.validity.missing_cells.MOST_RAN", 300)
    for x, y in zip(missing_of_table(few), alone, strict=True):
        np.testing.assert_array_equal(x, y)


def test_tables_without_signal_of_cells(no_matrix):
    dense, few, fit = case()
    new: Any = permuted(few, np.random.default_rng(0))
    np.testing.assert_array_equal(new.sparse.column, few.sparse.column)
    np.testing.assert_array_equal(new.sparse.sum(0), few.sparse.sum(0))
    assert (new.sparse.value != few.sparse.value).mean() > 0.2
    known = OrderedFit.of(fit, few)
    drawn, other = simulated(few, known, np.random.default_rng(1))
    assert drawn.sparse is not None
    # Means of 700 subjects, within five standard errors; scores of the new responses.
    gap = drawn.item_accuracy() - few.item_accuracy()
    assert np.nanmax(np.abs(gap)) < 0.35 and np.nanmean(np.abs(gap)) < 0.05
    many = few.sparse.count(1) > 30
    assert np.corrcoef(known.ability[many], other.ability[many])[0, 1] > 0.7


def test_flow_and_comparison_of_observed_cells(no_matrix, monkeypatch):
    monkeypatch.setattr(sparse_table, "MANY_CELLS", 0)
    monkeypatch.setattr(sparse_table, "FEW_OBSERVED", 1.0)
    dense, few, fit = case()
    found, wanted = (rank_flow(fit, 700, data=table).table for table in (few, dense))
    agree(found, wanted, 1e-12)
    assert found["item_1"].null_count < 350
    pair = fit.subject_names[0], fit.subject_names[1]
    found, wanted = (irtjax.compare(fit, *pair, data=x) for x in (few, dense))
    assert found == wanted and (found.shared or 0) > 50


def test_places_of_cells():
    cells = SparseCells.of([0, 0, 2], [2, 0, 1], [1, 0, 1], (3, 3))
    row, column = np.meshgrid(range(3), range(3), indexing="ij")
    found = cells.find(row.ravel(), column.ravel()).reshape(3, 3)
    assert found.tolist() == [[0, -1, 1], [-1, -1, -1], [-1, 2, -1]]
    nothing = dataclasses.replace(
        cells, start=np.zeros(4, int), column=cells.column[:0], value=cells.value[:0]
    )
    assert (nothing.find(row.ravel(), column.ravel()) == -1).all()
    blocks = list(nothing.item_blocks(10))
    assert not any(block.seen.any() for block in blocks)


def test_what_needs_the_matrix_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 1e9)
    monkeypatch.setattr(SparseCells, "dense", property(lambda cells: 1 / 0))
    place = np.arange(0, 20_000 * 10_000, 1_000_000)
    cells = SparseCells.of(place // 10_000, place % 10_000, place % 2, (20_000, 10_000))
    table = irtjax.ResponseTable.from_cells(
        cells, subjects=range(20_000), items=range(10_000)
    )
    size = "20,000 subjects by 10,000 items: {} GB of memory needed, 1.0 GB available:"
    cure = " select fewer subjects or items"
    with pytest.raises(ValueError, match=f"^a subset from {size.format(10)}{cure}$"):
        irtjax.shrink(table, 20)
    with pytest.raises(ValueError, match="give 1 to 9999 factors"):
        dimensions(table, most=10_000)


def test_subjects_without_responses_in_replicates():
    dense, few, _ = case()
    weight = np.random.default_rng(0).poisson(0.05, (4, dense.num_items)) * 1.0
    for unit in ("items", "subjects"):
        found, wanted = (_without_responses(x, weight, unit) for x in (few, dense))
        np.testing.assert_array_equal(found, wanted)
        assert 4 <= found.sum() < found.size


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["items", "subjects"])
def test_stability_of_observed_cells(kind, monkeypatch):
    dense, few, _ = case()
    monkeypatch.setattr(SparseCells, "dense", property(lambda cells: 1 / 0))
    takes = lambda table, share: table.sparse is not None
    monkeypatch.setattr(irtjax.ResponseTable, "takes_cells", takes)
    monkeypatch.setattr(irtjax.ResponseTable, "data_hash", lambda table: "")
    found, wanted = (
        stability(table, kind, num=3, model="2pl") for table in (few, dense)
    )
    assert found.warnings == wanted.warnings
    agree(found.agreement, wanted.agreement, 1e-3)
    assert "1 subject has no responses and no rank" in found.warnings
