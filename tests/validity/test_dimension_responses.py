"""The number of factors by observed cell is that of the matrix."""

import jax
import numpy as np
import pytest

import irtjax
from irtjax.data.sparse_table import SparseCells
from irtjax.numerics import memory
from irtjax.plots import plot_dimensions
from irtjax.validity import dimensionality
from irtjax.validity.tetrachoric import tetrachoric
from tests.estimators.test_folds import ITEMS, SUBJECTS, tables


@pytest.mark.slow
def test_the_evidence_is_that_of_the_matrix(monkeypatch):
    dense, few = tables()
    monkeypatch.setattr(dimensionality, "MOST_ITEMS", 15)
    wanted = irtjax.dimensions(dense, most=2)
    shapes: list[tuple[int, int]] = []
    full = SparseCells.__dict__["dense"].fget
    noted = lambda cells: shapes.append(cells.shape) or full(cells)
    monkeypatch.setattr(SparseCells, "dense", property(noted))
    found = irtjax.dimensions(few, most=2)
    # A matrix is made of the items of parallel analysis alone.
    assert set(shapes) <= {(SUBJECTS, 15)}
    assert found.chosen == wanted.chosen == 2 and found.by_jic == wanted.by_jic
    # Residuals of noise are other draws.
    assert found.by_penalty == wanted.by_penalty
    assert found.certificate == pytest.approx(wanted.certificate, abs=5e-3)
    for name in wanted.table.column_names:
        x, y = (part.table[name].to_pylist() for part in (found, wanted))
        for one, other in zip(x, y, strict=True):
            if other is None:
                assert one is None, name
            else:
                assert one == pytest.approx(other, rel=2e-4, abs=2e-4), name
    assert found.notes == wanted.notes


def _found(eigenvalues, permuted):
    """Evidence on one factor, without its fits."""
    out = dimensionality._HeldOut(np.zeros((5, 2)), np.zeros((5, 2)))
    rows = dimensionality._rows(out, np.zeros(2), np.zeros(2), eigenvalues, permuted)
    return dimensionality.Dimensions(rows, 1, 1, 1, None, 1, 1.0)


def test_areas_are_of_folds_with_right_and_wrong_responses():
    area = np.array([[0.5, 0.6], [np.nan, np.nan], [0.7, 0.8]])
    held = lambda area: dimensionality._HeldOut(np.zeros_like(area), area)
    assert held(area).mean_area == pytest.approx([0.6, 0.7])
    assert held(area[1:2]).mean_area == [None, None]


def test_parallel_analysis_of_pairs_without_common_subjects_is_left_out():
    few = tables(0.06)[1]
    *found, notes = dimensionality._parallel(few, 1, jax.random.key(0))
    assert [x.size for x in found] == [0, 0] and len(notes) == 1
    assert "of the pairs of items have no correlation, since too few" in notes[0]
    given = _found(*found)
    assert "JIC at least 1; no parallel analysis; rank" in given.sentence
    assert given.table["eigenvalue"].to_pylist() == [None, None]
    assert len(plot_dimensions(given).axes) == 1


def test_parallel_analysis_takes_as_many_subjects_as_its_errors_need(monkeypatch):
    monkeypatch.setattr(dimensionality, "ENOUGH_PAIRED", SUBJECTS // 2)
    monkeypatch.setattr(dimensionality, "PERMUTATIONS", 2)
    sizes = []
    noted = lambda part, solved: (
        sizes.append(part.num_subjects) or tetrachoric(part, solved)
    )
    monkeypatch.setattr(dimensionality, "tetrachoric", noted)
    dense, part = tables()[0], f"of {SUBJECTS // 2} subjects drawn at random"
    whole = irtjax.ResponseTable.from_arrays(dense.values)
    *_, notes = dimensionality._parallel(whole, 1, jax.random.key(0))
    assert sizes == [SUBJECTS // 2] * 3 and f"parallel analysis is {part}" in notes
    # Where few are observed, all subjects are needed.
    sizes.clear()
    *_, notes = dimensionality._parallel(dense, 1, jax.random.key(0))
    assert set(sizes) == {SUBJECTS} and not any("subjects drawn" in x for x in notes)


def test_a_matrix_of_chances_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 50_000.0)
    size = f"{SUBJECTS} subjects by {ITEMS} items: 0 MB of memory needed, 0 MB"
    cure = "select fewer subjects or items"
    with pytest.raises(ValueError, match=f"^dimensions of {size} available: {cure}$"):
        irtjax.dimensions(tables()[0], most=1)


def test_a_matrix_of_parallel_analysis_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 50_000.0)
    monkeypatch.setattr(dimensionality, "MOST_ITEMS", 20)
    size = f"{SUBJECTS} subjects by 20 items: 0 MB of memory needed, 0 MB available"
    message = f"^parallel analysis of {size}: select fewer subjects$"
    with pytest.raises(ValueError, match=message):
        irtjax.dimensions(tables()[1], most=1)


def test_a_fold_without_a_response_is_refused():
    table = irtjax.ResponseTable.from_arrays(np.eye(3))
    message = "9 responses are too few for 5 folds: add subjects or items$"
    with pytest.raises(ValueError, match=message):
        irtjax.dimensions(table, most=1)


def test_items_whose_observed_responses_are_equal_have_no_variation(monkeypatch):
    right = np.array([[1, 0, 1, np.nan], [1, 1, 0, 1], [np.nan, 0, 1, 0], [1, 1, 0, 1]])
    dense = irtjax.ResponseTable.from_arrays(right)
    monkeypatch.setattr(dimensionality, "PERMUTATIONS", 1)
    for table in (dense, dense.replace(values=dense.cells, observed=None)):
        notes = dimensionality._parallel(table, 1, jax.random.key(0))[-1]
        assert notes[0] == "parallel analysis leaves out 1 item without variation"
