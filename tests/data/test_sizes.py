"""A table that is too large is named before any table is read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irtjax import ResponseTable, read
from irtjax.data.reading import open as opening
from irtjax.data.reading.find import check_sizes
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.recognise import identify


def matrix(rows: int, columns: int, start: int = 0) -> ResponseTable:
    """Random responses."""
    values = np.random.default_rng(start).integers(0, 2, (rows, columns))
    names = [f"m{k + start}" for k in range(rows)]
    return ResponseTable.from_arrays(values, subjects=np.array(names))


def write(table: ResponseTable, path) -> None:
    """Writes a matrix as CSV, as Parquet, or as a saved table."""
    if path.name.startswith("saved"):
        table.save(path)
        return
    columns = {"model": table.subjects.tolist()}
    columns |= dict(zip(table.items.tolist(), table.values.T.tolist(), strict=True))
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
        return
    rows = [
        f"{x},{','.join(map(str, y))}"
        for x, y in zip(table.subjects, table.values.tolist(), strict=True)
    ]
    path.write_text("\n".join([",".join(columns), *rows]) + "\n")


@pytest.fixture
def limit(monkeypatch):
    """Sets the memory that is available, and lets no file be read."""

    def set_to(size: float) -> None:
        monkeypatch.setattr("irtjax.numerics.memory.available_memory", lambda: size)

        def fail(*_):
            raise AssertionError("a file was read")

        monkeypatch.setattr(opening, "open_table", fail)

    return set_to


@pytest.mark.parametrize("large", ["large.csv", "large.parquet", "saved.parquet"])
def test_the_file_that_is_too_large_is_named_first(tmp_path, limit, large):
    write(matrix(20, 10, 1000), tmp_path / "a.csv")
    write(matrix(400, 500), tmp_path / large)
    limit(1e6)
    with pytest.raises(
        ValueError, match=f"{large} has about (19|20)[0-9],.* values: 2 MB"
    ) as e:
        read([tmp_path / "a.csv", tmp_path / large])
    assert "give a part of it" in str(e.value)


def test_two_tables_that_do_not_fit_together(tmp_path, limit):
    for k in range(2):
        write(matrix(400, 500, 1000 * k), tmp_path / f"{k}.csv")
    limit(2e6)
    with pytest.raises(ValueError, match=r"\d.csv has about .* values: 3 MB of memory"):
        read(tmp_path)


def test_tables_that_fit_are_read(tmp_path, monkeypatch):
    write(matrix(40, 50), tmp_path / "a.csv")
    write(matrix(40, 50, 1000), tmp_path / "b.csv")
    monkeypatch.setattr("irtjax.numerics.memory.available_memory", lambda: 1e6)
    assert read(tmp_path).num_subjects == 80


def test_a_long_table_is_read_in_parts(tmp_path, monkeypatch):
    rows = [f"m{i},q{j},{(i + j) % 2}" for i in range(50) for j in range(200)]
    path = tmp_path / "long.csv"
    path.write_text("\n".join(["model,item,score", *rows]) + "\n")
    monkeypatch.setattr("irtjax.data.reading.find.memory.available_memory", lambda: 1e5)

    check_sizes([identify(path)], ReadOptions())
