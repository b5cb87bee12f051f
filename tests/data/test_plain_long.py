"""Large plain long files are read as the others are, in less memory."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import irtjax
from irtjax.data import sparse_table
from irtjax.data.reading import plain_long


def long_file(path, share, shuffled):
    """Binary responses as Parquet or CSV."""
    rng = np.random.default_rng(0)
    row, column = np.nonzero(rng.random((60, 50)) < share)
    order = rng.permutation(len(row)) if shuffled else np.arange(len(row))
    names = [f"m{i}" for i in row[order]], [f"q{j}" for j in column[order]]
    score = rng.integers(0, 2, len(row))
    table = pa.table({"model": names[0], "item": names[1], "score": score})
    write = pq.write_table if path.suffix == ".parquet" else pyarrow.csv.write_csv
    write(table, path)


def arrays(value):
    """The arrays of stored cells; of anything else itself."""
    if isinstance(value, sparse_table.SparseCells):
        return [value.start, value.column, value.value, value.num_items]
    return [value]


@pytest.mark.parametrize("name", ["x.parquet", "x.csv"])
@pytest.mark.parametrize(("share", "shuffled"), [(1, False), (0.6, True), (0.05, True)])
def test_a_table_read_in_little_memory_is_the_same(
    name, share, shuffled, tmp_path, monkeypatch
):
    monkeypatch.setattr(sparse_table, "MANY_CELLS", 1000)
    long_file(tmp_path / name, share, shuffled)
    usual = irtjax.read(tmp_path / name)
    monkeypatch.setattr(plain_long, "LEAST_BYTES", 0)
    monkeypatch.setattr(plain_long, "LEAST_ROWS", 0)
    calls = []
    make = plain_long.make_stream
    monkeypatch.setattr(
        plain_long, "make_stream", lambda *x: calls.append(x) or make(*x)
    )
    table = irtjax.read(tmp_path / name)
    assert calls and (table.sparse is not None) == (share == 0.05)
    for field in dataclasses.fields(usual):
        pairs = zip(
            arrays(getattr(table, field.name)),
            arrays(getattr(usual, field.name)),
            strict=True,
        )
        for one, other in pairs:
            assert np.array_equal(one, other), field.name
    assert table.data_hash() == usual.data_hash()


def test_other_files_are_read_in_the_usual_way(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_long, "LEAST_BYTES", 0)
    monkeypatch.setattr(plain_long, "LEAST_ROWS", 0)
    pq.write_table(
        pa.table({"model": ["a", "b"] * 2, "item": ["q", "q", "r", "r"],
                  "score": [0.5, 0.25, 1.0, 0.0]}),
        tmp_path / "x.parquet",
    )  # fmt: skip
    assert irtjax.read(tmp_path / "x.parquet").values.tolist() == [[0.5, 1], [0.25, 0]]
