"""A stream has the responses of its file, whatever the order of its rows."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import irtjax
from irtjax.data import stream as streams
from irtjax.data.reading import first_pass
from irtjax.data.reading.first_pass import make_stream, subject_names
from irtjax.data.reading.options import ReadOptions

SHAPE = 60, 9


def responses(share=1.0, top=1):
    """Random responses, NaN where missing; each subject and item has some."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, top + 1, SHAPE).astype(float)
    missing = rng.random(SHAPE) >= share
    missing[np.arange(60), np.arange(60) % 9] = False
    return np.where(missing, np.nan, values)


def long_table(values, order=None):
    """A row for each response."""
    row, column = np.nonzero(~np.isnan(values))
    order = np.arange(len(row)) if order is None else order(len(row))
    row, column = row[order], column[order]
    return pa.table(
        {
            "model": [f"m{i:02d}" for i in row],
            "item": [f"q{j}" for j in column],
            "score": values[row, column].astype(np.int8),
        }
    )


def cells_of(stream):
    """The responses by names, from the blocks of a pass."""
    subjects = pa.chunked_array([*subject_names(stream.folder)]).to_pylist()
    found = {}
    for block in stream.blocks():
        for k, row in enumerate(block.dense(len(stream.items))):
            for j in np.flatnonzero(row >= 0):
                name = subjects[block.first + k], str(stream.items[j])
                found[name] = int(stream.codes[row[j]])
    return found


def expected(values):
    return {
        (f"m{i:02d}", f"q{j}"): int(values[i, j])
        for i, j in zip(*np.nonzero(~np.isnan(values)), strict=True)
    }


def streamed(table, tmp_path, writer=None, **options):
    """The stream of a table that is written to a file."""
    path, folder = tmp_path / "x.parquet", tmp_path / "stream"
    folder.mkdir()
    if writer is None:
        pq.write_table(table, path, row_group_size=70)
    else:
        path = tmp_path / "x.csv"
        writer(table, path)
    return make_stream(path, folder, ReadOptions(**options))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of a few subjects, and several parts of a sort."""
    monkeypatch.setattr(streams, "BLOCK_CELLS", 50)
    monkeypatch.setattr(first_pass, "BLOCK_CELLS", 50)
    monkeypatch.setattr(first_pass, "_PART", 50)
    monkeypatch.setattr(first_pass, "_SORTED", 37)
    monkeypatch.setattr(first_pass, "_ROWS", 64)
    monkeypatch.setattr(first_pass, "_RUNS", 5)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.05])
@pytest.mark.parametrize("order", [None, np.random.default_rng(1).permutation])
@pytest.mark.parametrize("writer", [None, pyarrow.csv.write_csv])
def test_a_long_file_in_any_order_gives_its_responses(share, order, writer, tmp_path):
    values = responses(share)
    stream = streamed(long_table(values, order), tmp_path, writer)
    assert stream.shape == SHAPE and len(stream.edges()) >= 3
    assert stream.is_matrix == (share > 0.2)
    assert cells_of(stream) == expected(values)
    assert stream.is_complete == (share == 1)
    subjects = pa.chunked_array([*subject_names(stream.folder)]).to_pylist()
    rows = [int(name[1:]) for name in subjects]
    columns = [int(name[1:]) for name in stream.items]
    np.testing.assert_array_equal(stream.total, np.nansum(values, axis=1)[rows])
    np.testing.assert_array_equal(stream.observed, (values >= 0).sum(axis=1)[rows])
    ones = (values == 1).sum(axis=0)[columns]
    np.testing.assert_array_equal(stream.counts[:, 1], ones)
    left = sorted(path.name for path in stream.folder.iterdir())
    kinds = [streams.MATRIX] if share > 0.2 else [streams.COLUMNS, streams.VALUES]
    assert left == sorted([*kinds, first_pass.SUBJECTS])


def test_a_wide_file_with_missing_cells_and_codes_that_do_not_start_at_0(tmp_path):
    values = responses(0.7, top=2) * 2 + 1
    columns = {f"q{j}": pa.array(x, from_pandas=True) for j, x in enumerate(values.T)}
    names = pa.array([f"m{i:02d}" for i in range(60)])
    stream = streamed(pa.table({"model": names, **columns}), tmp_path)
    assert stream.codes.tolist() == [1, 3, 5] and stream.is_matrix
    assert cells_of(stream) == expected(values)
    np.testing.assert_array_equal(stream.squares, np.nansum(values**2, axis=1))
    by_code = [(values == code).sum(axis=0) for code in (1, 3, 5)]
    np.testing.assert_array_equal(stream.counts, np.stack(by_code, axis=1))


def test_a_file_that_is_cut_off_is_refused_in_one_line_with_its_name(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(long_table(responses()), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"x\.parquet is damaged or cut off") as error:
        make_stream(path, tmp_path, ReadOptions())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": lambda x: x + 0.5}, "has the response 1.5"),
        ({"score": lambda x: np.where(x > 0, "yes", "no")}, "holds string"),
        ({"item": lambda x: ["q0"] * len(x)}, "has several responses to item 'q0'"),
        ({"score": lambda x: 0 * x + 5}, "every response is 5"),
    ],
)
def test_what_a_stream_does_not_have_is_refused(change, message, tmp_path):
    table = long_table(responses())
    for name, function in change.items():
        column = function(table[name].to_numpy())
        at = table.column_names.index(name)
        table = table.set_column(at, name, pa.array(column))
    with pytest.raises(ValueError, match=message):
        streamed(table, tmp_path)


def test_a_column_that_tells_items_apart_is_refused(tmp_path):
    table = long_table(responses())
    table = table.append_column("metric", pa.array(["a"] * len(table)))
    with pytest.raises(ValueError, match="'metric' is another"):
        streamed(table, tmp_path)


@pytest.mark.parametrize("repeated", [False, True])
def test_items_have_the_names_and_benchmarks_of_the_table_in_memory(repeated, tmp_path):
    table = long_table(responses(0.6))
    number = np.array([int(x[1:]) for x in table["item"].to_pylist()])
    benchmark = np.array(["a", "b"])[number % 2]
    if repeated:
        table = table.set_column(1, "item", pa.array([f"q{j // 2}" for j in number]))
    table = table.append_column("benchmark", pa.array(benchmark.tolist()))
    stream = streamed(table, tmp_path)
    wanted = irtjax.read(tmp_path / "x.parquet")
    pairs = zip(stream.items.tolist(), stream.benchmarks.tolist(), strict=True)
    own = zip(wanted.items.tolist(), wanted.benchmarks.tolist(), strict=True)
    assert sorted(pairs) == sorted(own)
    by_item = dict(zip(wanted.items.tolist(), wanted.values.sum(axis=0), strict=True))
    names = stream.items.tolist()
    assert stream.counts[:, 1].tolist() == [by_item[name] for name in names]
