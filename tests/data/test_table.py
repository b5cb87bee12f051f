"""The response table: shapes, kinds, selection, hashes, saving and loading."""

import json
import os

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import irtjax
from irtjax.data import Responses, ResponseTable, read
from irtjax.data.arrays import as_bytes


def small(**more) -> ResponseTable:
    return ResponseTable.from_arrays(
        [[1, 0, np.nan], [1, 1, 0]],
        subjects=["m", "n"],
        items=["a/x", "a/y", "b/z"],
        benchmark=["a", "a", "b"],
        **more,
    )


def test_from_arrays_keeps_missing_apart_from_wrong():
    table = small()
    assert table.values.dtype == np.int8
    assert table.values.tolist() == [[1, 0, 0], [1, 1, 0]]
    assert table.observed is not None
    assert table.observed.tolist() == [[True, True, False], [True, True, True]]
    assert table.num_observed == 5
    assert table.item_accuracy().tolist() == [1.0, 0.5, 0.0]
    assert table.subject_accuracy().tolist() == [0.5, 2 / 3]


def test_complete_data_has_no_mask():
    assert ResponseTable.from_arrays(np.ones((3, 2))).observed is None


@pytest.mark.parametrize(
    ("values", "kind", "dtype"),
    [
        ([[0, 1]], "binary", np.int8),
        ([[0.0, np.nan]], "binary", np.int8),
        ([[1, 4]], "ordinal", np.int8),
        ([[-1, 1]], "ordinal", np.int8),
        ([[0, 300]], "ordinal", np.float64),
        ([[0.0, 0.5]], "continuous", np.float64),
    ],
)
def test_kind_and_dtype(values, kind, dtype):
    table = ResponseTable.from_arrays(values)
    assert table.kind == kind
    assert table.values.dtype == dtype


def test_counts_have_accuracy_per_trial():
    table = ResponseTable.from_arrays([[3, 0], [1, 2]], trials=[[4, 0], [4, 2]])
    assert table.kind == "counts"
    assert table.num_observed == 3
    assert table.item_accuracy().tolist() == [0.5, 1.0]


def test_item_without_responses_has_no_accuracy():
    table = ResponseTable.from_arrays([[1, np.nan], [0, np.nan]])
    assert np.isnan(table.item_accuracy()[1])
    assert table.values[:, 1].tolist() == [0, 0]


def test_select_by_name_mask_and_position():
    table = small()
    assert table.select(subjects=["n", "m"]).values.tolist() == [[1, 1, 0], [1, 0, 0]]
    part = table.select(items=np.array([True, True, False]))
    assert part.observed is None
    assert part.benchmarks.tolist() == ["a", "a"]
    assert table.select(items=[2]).items.tolist() == ["b/z"]
    with pytest.raises(ValueError, match="no item named 'nope'"):
        table.select(items=["a/x", "nope"])


def test_select_of_integers_becomes_compact():
    table = ResponseTable.from_arrays([[0.5, 1], [0.25, 0]])
    assert table.select(items=[1]).values.dtype == np.int8


def test_responses_carry_arrays_and_facet_codes():
    data = small().responses()
    assert isinstance(data, Responses)
    assert data.values.dtype == jnp.int8
    assert np.asarray(data.observed).tolist() == [[1, 1, 0], [1, 1, 1]]
    assert np.asarray(data.item_facets["benchmark"]).tolist() == [0, 0, 1]
    scores = ResponseTable.from_arrays([[0.5, 0.25]]).responses(jnp.float32)
    assert scores.values.dtype == jnp.float32


@pytest.mark.parametrize("names", [["a", "bcd", "", "x\0y"], ["é", "語x", "b", ""]])
def test_bytes_of_names_are_those_of_each_name(names):
    each = [name.encode() for name in names]
    expected = b"".join(len(name).to_bytes(8, "little") + name for name in each)
    # Every other name of an array: rows that are not next to each other.
    twice = np.array([part for name in names for part in (name, "other")])
    for labels in (np.array(names), twice[::2]):
        assert as_bytes(labels) == expected


def test_the_hash_of_named_data_stays_the_same():
    # Saved fits are compared with data by it.
    assert small().data_hash()[:16] == "2cecd50019c9d948"


@pytest.mark.parametrize("ending", [".json", ".parquet"])
@pytest.mark.parametrize(
    "table",
    [
        small(metric="acc", lengths=[[1, np.nan, 3], [4, 5, 6]], notes=["said"]),
        ResponseTable.from_arrays([[0.1, np.nan], [1 / 3, 2e-300]]),
        ResponseTable.from_arrays([[2, 0]], trials=[[3, 0]], subjects=['é,\n"x"']),
        ResponseTable.from_arrays(np.ones((1, 1))),
    ],
)
def test_round_trip_loses_nothing(tmp_path, table, ending):
    path = table.save(tmp_path / f"table{ending}")
    for back in (ResponseTable.load(path), read(path)):
        assert back.data_hash() == table.data_hash()
        assert back.values.dtype == table.values.dtype
        assert np.array_equal(back.values, table.values)
        for name in ("observed", "trials", "lengths"):
            ours, theirs = getattr(table, name), getattr(back, name)
            assert (ours is None) == (theirs is None)
            if ours is not None:
                np.testing.assert_array_equal(ours, theirs)
        assert back.subjects.tolist() == table.subjects.tolist()
        assert back.items.tolist() == table.items.tolist()
        assert back.benchmarks.tolist() == table.benchmarks.tolist()
        assert back.metric == table.metric
    assert ResponseTable.load(path).notes == table.notes


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(
            st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
            min_size=3,
            max_size=3,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_matrix_survives_json_and_parquet(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("any")
    table = ResponseTable.from_arrays(np.array(rows, dtype=np.float64))
    for name in ("t.json", "t.parquet"):
        back = ResponseTable.load(table.save(folder / name))
        assert back.data_hash() == table.data_hash()


def test_hash_sees_values_mask_and_names():
    tables = [
        ResponseTable.from_arrays([[1, 0]]),
        ResponseTable.from_arrays([[1, 1]]),
        ResponseTable.from_arrays([[1, np.nan]]),
        ResponseTable.from_arrays([[1, 0]], items=["1", "2"]),
        ResponseTable.from_arrays([[1, 0]], items=["12", ""]),
        ResponseTable.from_arrays([[1, 0]], trials=[[1, 2]]),
    ]
    assert len({table.data_hash() for table in tables}) == len(tables)


def test_saving_leaves_the_old_file_when_it_fails(tmp_path, monkeypatch):
    path = small().save(tmp_path / "t.json")
    before = path.read_text()
    monkeypatch.setattr(json, "dumps", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ResponseTable.from_arrays([[0]]).save(path)
    assert path.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_saved_file_is_as_readable_as_any_other(tmp_path):
    path = small().save(tmp_path / "t.parquet")
    (tmp_path / "other").touch()
    assert os.stat(path).st_mode == os.stat(tmp_path / "other").st_mode


def test_refused_saves_and_loads(tmp_path):
    with pytest.raises(ValueError, match="must end in .json, .parquet"):
        small().save(tmp_path / "t.pkl")
    with pytest.raises(ValueError, match="cannot write .*no_folder"):
        small().save(tmp_path / "no_folder" / "t.json")
    with pytest.raises(ValueError, match="no such file"):
        ResponseTable.load(tmp_path / "t.json")
    (tmp_path / "t.json").write_text('{"a": 1}')
    with pytest.raises(ValueError, match="not a saved response table"):
        ResponseTable.load(tmp_path / "t.json")
    (tmp_path / "t.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(ValueError, match="not a saved response table"):
        ResponseTable.load(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": [1, 0]}, "must be a matrix"),
        ({"values": [[1, 0]], "items": ["x"]}, "1 item names for 2 items"),
        ({"values": [[1, 0]], "items": ["x", "x"]}, "item 'x' occurs 2 times"),
        ({"values": [[1, np.inf]]}, "infinite value in row 1, column 2"),
        ({"values": [[1, 0]], "benchmark": ["b"]}, "facet 'benchmark' has 1 labels"),
        ({"values": [[1, 0]], "lengths": [[1]]}, "lengths has shape"),
    ],
)
def test_refused_arrays(arguments, message):
    with pytest.raises(ValueError, match=message):
        ResponseTable.from_arrays(**arguments)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones((2, 2), complex), "values are of type complex128, not numbers"),
        (np.zeros((1, 1), "datetime64[s]"), "values are of type datetime64"),
        (np.array([["1", "x"]]), r"row 1, column 2 is .*'x'.*, which is not a number"),
        (np.array([[1, None], [[2], 0]], object), "row 1, column 2 is None, which is"),
    ],
)
def test_a_matrix_of_something_else_is_refused_with_its_place(values, message):
    with pytest.raises(ValueError, match=message):
        ResponseTable.from_arrays(values)


def test_texts_of_numbers_are_numbers():
    table = ResponseTable.from_arrays(np.array([["1", "0"], [0, True]], object))
    assert table.kind == "binary" and table.num_observed == 4


def test_half_a_character_in_a_name_is_refused():
    with pytest.raises(ValueError, match=r"name 'a\\ud800' holds half of a surrogate"):
        ResponseTable.from_arrays([[1, 0]], items=["b", "a\ud800"])


def test_a_fit_in_another_precision_is_refused_at_once():
    with pytest.raises(ValueError, match="dtype.*'float64' or 'float32'"):
        irtjax.fit(ResponseTable.from_arrays([[1, 0], [0, 1]]), dtype=np.float16)
