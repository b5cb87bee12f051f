"""Large tables: read in batches, and refused where they have absurdly many columns."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import irtjax
from irtjax.data import files
from irtjax.data.reading import frames, tabular
from irtjax.data.reading.records import Coded


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of about ten rows, so that a small file has many."""
    monkeypatch.setattr(tabular, "_BLOCK", 256)


def long_frame(scores=(1, 0, 1, 1, 0)) -> pd.DataFrame:
    rows = [
        {"model": f"m{i}", "item": f"{j:03d}", "task": f"t{j % 2}", "score": score}
        for i in range(7)
        for j in range(13)
        for score in [scores[(3 * i + j) % len(scores)]]
    ]
    return pd.DataFrame(rows)


def same(a: irtjax.ResponseTable, b: irtjax.ResponseTable) -> bool:
    return (
        a.data_hash() == b.data_hash()
        and a.benchmarks.tolist() == b.benchmarks.tolist()
        and np.array_equal(np.array(a.lengths, float), np.array(b.lengths, float), True)
    )


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize(
    "scores", [(1, 0, 1), (1, 0.25, ""), ("C", "I", "N"), ("true", "False", "")]
)
def test_csv_in_blocks_is_that_of_one_read(
    tmp_path, small_blocks, monkeypatch, scores, quote
):
    frame = long_frame(scores)
    frame["item"] = quote + frame["item"] + quote
    text = frame.to_csv(index=False, quoting=3)
    (tmp_path / "long.csv").write_bytes(b"\xef\xbb\xbf\r\n" + text.encode())
    with gzip.open(tmp_path / "long.csv.gz", "wt") as file:  # read as a whole
        file.write(text)
    with monkeypatch.context() as patch:
        patch.setattr(tabular, "_whole_csv", None)
        streamed = irtjax.read(tmp_path / "long.csv")
    assert same(streamed, irtjax.read(tmp_path / "long.csv.gz"))
    assert streamed.items[0] == "000" and streamed.num_items == 13


def test_types_that_change_after_the_first_block(tmp_path, small_blocks):
    frame = long_frame((1, 0))
    frame["tokens"] = [*range(60), *([2.5] * 31)]
    frame["error"] = [None] * 80 + ["out of memory"] * 11
    whole = irtjax.read(frame, length="tokens")
    path = tmp_path / "long.csv"
    frame.to_csv(path, index=False)
    assert same(irtjax.read(path, length="tokens"), whole)
    assert whole.num_observed == 80
    frame["score"] = [*frame["score"][:70], *["C"] * 21]
    frame.to_csv(path, index=False)
    assert same(irtjax.read(path), irtjax.read(frame.astype({"score": str})))


@pytest.mark.parametrize("number", [False, True])
def test_parquet_in_batches_is_the_frame(tmp_path, number):
    frame = long_frame((1, 0, None))
    frame["item"] = frame["item"].astype(int) if number else frame["item"]
    frame["wrong"] = frame["score"] == 0  # a column that is not read
    pq.write_table(pa.table(frame), tmp_path / "a.parquet", row_group_size=10)
    assert same(irtjax.read(tmp_path / "a.parquet"), irtjax.read(frame))
    types = frame.astype({"model": "category"}).rename(columns={"score": "x"})
    pq.write_table(
        pa.table(types.assign(score=frame["score"] == 1)), tmp_path / "b.parquet"
    )
    right = frame.assign(score=(frame["score"] == 1).astype(int))
    assert same(irtjax.read(tmp_path / "b.parquet"), irtjax.read(right))


def test_columns_that_no_batch_holds_are_read_as_a_whole(tmp_path):
    frame = long_frame().astype({"item": float})  # such as after a missing value
    pq.write_table(pa.table(frame), tmp_path / "a.parquet")
    assert irtjax.read(tmp_path / "a.parquet").items[1] == "1"


def test_pairs_of_names_do_not_depend_on_the_way(monkeypatch):
    rng = np.random.default_rng(0)
    first = Coded(rng.integers(0, 4, 500).astype(np.int32), np.array(list("abcd")))
    names = np.array([f"{'a/' * (k % 2)}{k}" for k in range(30)])
    second = Coded(rng.integers(0, 30, 500).astype(np.int32), names)
    want = [
        y if y.startswith(f"{x}/") else f"{x}/{y}"
        for x, y in zip(first.texts(), second.texts(), strict=True)
    ]
    for few, block in ((1 << 20, 64), (0, 64)):
        monkeypatch.setattr(frames, "_FEW_PAIRS", few)
        monkeypatch.setattr(frames, "_BLOCK", block)
        pair = frames._pair(first, second, repeat=False)
        assert pair.texts().tolist() == want
        assert pair.labels.tolist() == list(dict.fromkeys(want))


def test_a_missing_name_is_refused_with_its_row(tmp_path, small_blocks):
    frame = long_frame()
    frame.loc[77, "item"] = ""
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(
        ValueError, match=r"a\.csv: row 78 has no name in column 'item'"
    ):
        irtjax.read(tmp_path / "a.csv")


def test_absurdly_many_columns_are_refused_early(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_COLUMNS", 9000)
    monkeypatch.setattr(tabular, "MOST_COLUMNS", 9000)
    names = [f"question {k}" for k in range(9001)]
    row = ",".join("1" * 9001)
    (tmp_path / "w.csv").write_text(",".join(names) + f"\n{row}\n" * 3)
    with gzip.open(tmp_path / "w.csv.gz", "wt") as file:
        file.write(row)
    pq.write_table(pa.table([[1]] * 9001, names=names), tmp_path / "w.parquet")
    with pa.OSFile(str(tmp_path / "w.arrow"), "wb") as sink:
        table = pa.table([[1]] * 9001, names=names)
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    monkeypatch.setattr(tabular, "read_bytes", None)  # nothing is read as a whole
    for name in ("w.csv", "w.csv.gz", "w.parquet", "w.arrow"):
        with pytest.raises(
            ValueError, match=rf"{name} has .* columns, of at most 9,000; save"
        ):
            irtjax.read(tmp_path / name)
    with pytest.raises(ValueError, match="the pyarrow frame has 9,001 columns"):
        irtjax.read(table)


def test_repeated_names_of_columns_take_numbers_that_no_other_has(tmp_path):
    path = tmp_path / "w.csv"
    path.write_text("model,q,q,q.1,q\nm,1,0,1,0\nn,0,1,1,1\n")
    table = irtjax.read(path)
    assert table.items.tolist() == ["q", "q.2", "q.1", "q.3"]
    assert table.values.tolist() == [[1, 0, 1, 0], [0, 1, 1, 1]]


@pytest.mark.parametrize("by_item", [False, True])
def test_a_short_table_of_many_columns_is_read_in_parts(tmp_path, monkeypatch, by_item):
    rng = np.random.default_rng(0)
    names = [f"q{k}" for k in range(1500)]
    frame = pd.DataFrame(rng.integers(0, 2, (3, 1500)), columns=names)
    frame["q3"], frame.loc[1, "q700"] = [0.5, 1, 0], np.nan
    label = "item" if by_item else "model"
    frame.insert(0, label, ["007", "8", 'a "b", c'])
    path = tmp_path / "w.csv"
    frame.to_csv(path, index=False)
    whole = irtjax.read(path)
    read = []
    kept = csv.read_csv
    monkeypatch.setattr(csv, "read_csv", lambda *a: (read.append(1), kept(*a))[1])
    monkeypatch.setattr(tabular, "_FEW_COLUMNS", 400)
    parts = irtjax.read(path)
    assert len(read) == 4 and same(whole, parts)
    assert "007" in (parts.items if by_item else parts.subjects)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux only")
def test_memory_of_a_column(tmp_path):
    """At most 4 kB, of which Arrow takes 2."""
    for name, count in (("small", 20), ("large", 30_000)):
        header = ",".join(f"item{k}" for k in range(count))
        rows = [f"m{i}," + ",".join("01"[k % (i + 2) == 0] for k in range(count))
                for i in range(2)]  # fmt: skip
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join([f"model,{header}", *rows, ""]))
    places = [str(tmp_path / f"{name}.csv") for name in ("small", "large")]
    done = subprocess.run(
        [sys.executable, "-c", _READ, *places],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    count, memory, *_ = map(float, done.stdout.split())
    assert count == 30_000 and memory < 4096 * count


_READ = """
import re, sys, time, irtjax
status = lambda: open("/proc/self/status").read()
peak = lambda: 1024 * int(re.search("VmHWM: *\\t* *([0-9]+)", status())[1])
irtjax.read(sys.argv[1])
before, begun = peak(), time.process_time()
table = irtjax.read(sys.argv[2])
seconds = time.process_time() - begun
for _ in range(10**7):
    pass
loop = time.process_time() - begun - seconds
print(table.num_items, peak() - before, seconds, loop)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux only")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_memory_and_time_of_a_row(tmp_path, ending):
    """At most 60 bytes of peak memory and half a microsecond of processor time.

    Machines on which ten million turns of an empty loop take over 1/6 s have more time.
    """
    subjects, items = 1000, 10_000
    name = lambda start, count: pa.array([f"{start}{k}" for k in range(count)])
    for label, rows in (("small", 20), ("large", subjects)):
        k = np.arange(rows * items)
        columns = {
            "model": name("m", rows).take(pa.array(k // items)),
            "item": name("q", items).take(pa.array(k % items)),
            "score": pa.array((k * 7919 % 13 < 6).astype(np.int8)),
        }
        write = csv.write_csv if ending == "csv" else pq.write_table
        write(pa.table(columns), tmp_path / f"{label}.{ending}")
    places = [tmp_path / f"{label}.{ending}" for label in ("small", "large")]
    done = subprocess.run(
        [sys.executable, "-c", _READ, *map(str, places)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    count, memory, seconds, loop = map(float, done.stdout.split())
    assert count == items
    assert memory < 60 * subjects * items
    most = 0.5e-6 * subjects * items
    assert seconds < max(most, 6 * loop * most), (seconds, loop)
