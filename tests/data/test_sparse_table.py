"""Large tables of which few cells are observed have these cells alone."""

import numpy as np
import pandas as pd
import pytest

import irtjax
from irtjax.data import sparse_table
from irtjax.data.sparse_table import SparseCells
from irtjax.numerics import memory

DESIGNS = [0, 1, 2]


def frame_of(seed: int, scores: bool = False) -> pd.DataFrame:
    """Responses in any order; items of two benchmarks, of which one was never right."""
    rng = np.random.default_rng(seed)
    subjects, items = rng.integers(4, 30), rng.integers(3, 40)
    row, column = np.nonzero(rng.random((subjects, items)) < 0.3)
    value = rng.random(row.size) if scores else rng.integers(0, 2, row.size)
    value[column == column[0]] = 0
    order = rng.permutation(row.size)
    frame = pd.DataFrame(
        {
            "model": [f"m{k}" for k in row],
            "item": [f"q{k}" for k in column],
            "benchmark": [f"b{k % 2}" for k in column],
            "score": value,
        }
    )
    return frame.iloc[order]


@pytest.fixture
def always(monkeypatch):
    """Any table is stored by observed cell."""
    monkeypatch.setattr(sparse_table, "MANY_CELLS", 0)
    monkeypatch.setattr(sparse_table, "FEW_OBSERVED", 1.0)


@pytest.fixture
def read_both(monkeypatch):
    """Reads responses as a dense and as a sparse table."""

    def both(source, **options):
        dense = irtjax.read(source, **options)
        with monkeypatch.context() as patch:
            patch.setattr(sparse_table, "MANY_CELLS", 0)
            patch.setattr(sparse_table, "FEW_OBSERVED", 1.0)
            return dense, irtjax.read(source, **options)

    return both


def check_same(few: irtjax.ResponseTable, dense: irtjax.ResponseTable) -> None:
    assert few.sparse is not None and dense.sparse is None
    assert few.subjects.tolist() == dense.subjects.tolist()
    assert few.items.tolist() == dense.items.tolist()
    assert few.kind == dense.kind and few.num_observed == dense.num_observed
    assert few.benchmarks.tolist() == dense.benchmarks.tolist()
    assert few.notes == dense.notes and few.size == dense.size
    np.testing.assert_array_equal(few.seen, dense.seen)
    np.testing.assert_array_equal(few.values, dense.values)
    np.testing.assert_array_equal(few.observed, dense.observed)
    assert few.values.dtype == dense.values.dtype
    for one in ("item_accuracy", "subject_accuracy"):
        found, wanted = getattr(few, one)(), getattr(dense, one)()
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert few.to_frame("arrow").equals(dense.to_frame("arrow"))


@pytest.mark.parametrize("seed", DESIGNS)
@pytest.mark.parametrize("scores", [False, True])
def test_a_file_is_read_as_the_dense_table(tmp_path, read_both, seed, scores):
    frame_of(seed, scores).to_csv(tmp_path / "long.csv", index=False)
    dense, few = read_both(tmp_path / "long.csv")
    check_same(few, dense)


def test_sorted_files_and_missing_responses(read_both):
    frame = frame_of(3).sort_values(["model", "item"])
    frame.loc[frame.index[::5], "score"] = np.nan
    dense, few = read_both(frame.astype({"score": float}))
    check_same(few, dense)
    dropped = read_both(frame.dropna())[1]
    assert few.select(dropped.subjects, dropped.items).seen.tolist() == (
        dropped.seen.tolist()
    )


@pytest.mark.parametrize("trials", ["mean", "first"])
def test_repeated_responses_are_pooled(read_both, trials):
    frame = frame_of(4)
    again = frame.iloc[::3].assign(score=1)
    dense, few = read_both(pd.concat([frame, again]), trials=trials)
    check_same(few, dense)


def test_repeated_responses_are_refused_in_the_same_words(read_both, always):
    frame = frame_of(4)
    twice = pd.concat([frame, frame.iloc[:2]])
    with pytest.raises(ValueError) as few:
        irtjax.read(twice, trials="error")
    sparse_table.MANY_CELLS = 2**25
    with pytest.raises(ValueError) as dense:
        irtjax.read(twice, trials="error")
    assert str(few.value) == str(dense.value)


def test_what_needs_a_matrix_is_dense(always):
    frame = frame_of(5)
    assert irtjax.read(frame).sparse is not None
    assert irtjax.read(frame, trials="counts").sparse is None
    assert irtjax.read(frame, missing_as="wrong").sparse is None
    lengths = frame.assign(tokens=7)
    assert irtjax.read(lengths, length="tokens").sparse is None


def test_answers_are_those_of_the_dense_table(read_both):
    frame = frame_of(5)
    frame["answer"] = np.random.default_rng(5).choice([*"ABC"], len(frame))
    dense, few = read_both(frame)
    check_same(few, dense)
    assert few.answers.texts == dense.answers.texts
    for one in ("subject", "item", "code", "wrong"):
        wanted = getattr(dense.answers, one)
        np.testing.assert_array_equal(getattr(few.answers, one), wanted)


def test_subjects_and_items_are_selected(read_both, monkeypatch):
    dense, few = read_both(frame_of(6))
    rows = np.arange(few.num_subjects)[::-2]
    small = few.select(subjects=rows, items=few.items[[2, 0]])
    wanted = dense.select(subjects=rows, items=few.items[[2, 0]])
    assert small.sparse is None  # It is no large table.
    np.testing.assert_array_equal(small.values, wanted.values)
    np.testing.assert_array_equal(small.observed, wanted.observed)
    monkeypatch.setattr(sparse_table, "MANY_CELLS", 0)
    monkeypatch.setattr(sparse_table, "FEW_OBSERVED", 1.0)
    check_same(few.select(subjects=rows), dense.select(subjects=rows))


@pytest.mark.parametrize("ending", ["parquet", "json"])
@pytest.mark.parametrize("scores", [False, True])
def test_a_saved_table_is_read_without_loss(tmp_path, always, ending, scores):
    few = irtjax.read(frame_of(7, scores))
    again = irtjax.read(few.save(tmp_path / f"table.{ending}"))
    assert (again.sparse is None) == (ending == "json")
    np.testing.assert_array_equal(again.values, few.values)
    np.testing.assert_array_equal(again.observed, few.observed)
    # The hash is that of the responses, not of their storage.
    assert again.data_hash() == few.data_hash()
    other = few.replace(values=few.cells.select(np.arange(few.num_subjects), None))
    assert other.data_hash() == few.data_hash()


def test_a_damaged_table_is_refused(tmp_path, always):
    few = irtjax.read(frame_of(7))
    cells = few.cells
    column = cells.column.copy()
    column[0] = few.num_items + 3
    bad = few.replace(
        values=SparseCells(cells.start, column, cells.value, few.num_items)
    )
    with pytest.raises(ValueError, match="its places are no numbers of"):
        irtjax.read(bad.save(tmp_path / "bad.parquet"))


def test_a_matrix_that_does_not_fit_is_refused_with_a_cure(always, monkeypatch):
    few = irtjax.read(frame_of(8))
    monkeypatch.setattr(memory, "available_memory", lambda: 50.0)
    with pytest.raises(ValueError, match="a dense table of .* select fewer subjects"):
        few.values  # noqa: B018
    assert few.item_accuracy().shape == (few.num_items,)


def test_names_in_the_wrong_columns_are_refused(monkeypatch):
    # A name of its own in each row: no large table of few responses.
    monkeypatch.setattr(sparse_table, "MANY_CELLS", 100)
    frame = pd.DataFrame({"model": range(50), "item": range(50), "score": [0, 1] * 25})
    monkeypatch.setattr(memory, "available_memory", lambda: 50_000.0)
    with pytest.raises(ValueError, match="name the right columns"):
        irtjax.read(frame.astype({"model": str, "item": str}))


def test_a_table_of_few_cells_takes_bytes_for_these():
    rng = np.random.default_rng(0)
    place = np.sort(rng.choice(20_000 * 5_000, 200_000, replace=False))
    cells = SparseCells.of_places(place, np.ones(place.size), (20_000, 5_000))
    assert cells.column.itemsize + cells.value.itemsize == 5
    assert cells.count(0).sum() == cells.count(1).sum() == place.size
    first, places = cells.by_item
    item = int(cells.column[0])
    rows = cells.row[places[first[item] : first[item + 1]]]
    assert (np.diff(rows) > 0).all() and cells.row[0] in rows
