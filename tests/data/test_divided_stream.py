"""Several processes have one stream between them, whatever their number.

Processes are threads here, which exchange bytes in memory.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import irtjax
from irtjax.data import stream as streams
from irtjax.data.reading import first_pass, row_groups
from irtjax.data.reading.first_pass import make_stream, subject_names
from irtjax.data.reading.options import ReadOptions
from irtjax.data.streamed_responses import StreamedResponses
from irtjax.likelihood import streamed_counts
from irtjax.numerics import processes
from irtjax.numerics.processes import NUM_SEGMENTS, Processes

SHAPE = 61, 9


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks and batches of a few subjects."""
    monkeypatch.setattr(streams, "BLOCK_CELLS", 30)
    monkeypatch.setattr(first_pass, "_PART", 50)
    monkeypatch.setattr(first_pass, "_ROWS", 64)
    monkeypatch.setattr(first_pass, "_RUNS", 5)
    # More than one exchange for a sum.
    monkeypatch.setattr(processes, "_CHUNK", 64)


def in_processes(count, function, monkeypatch):
    """What `function` of its `Processes` returns in each of several threads."""
    barrier, sent, own = threading.Barrier(count), [b""] * count, threading.local()

    def exchange(part, step):
        sent[own.number] = part.copy()
        barrier.wait(60)
        received = sent[own.number ^ step].copy()
        barrier.wait(60)
        return received

    def run(number):
        own.number = number
        return function(Processes(count, number, NUM_SEGMENTS))

    monkeypatch.setattr(processes, "_exchange", exchange)
    with ThreadPoolExecutor(count) as pool:
        return [task.result() for task in [pool.submit(run, k) for k in range(count)]]


def responses(share=0.7):
    """Random responses 1 and 2; the last subjects alone have responded to item 0."""
    rng = np.random.default_rng(0)
    values = rng.integers(1, 3, SHAPE).astype(float)
    missing = rng.random(SHAPE) >= share
    missing[:, 0] = np.arange(SHAPE[0]) < 55
    return np.where(missing, np.nan, values)


def long_table(values, kind="long"):
    row, column = np.nonzero(~np.isnan(values))
    if kind == "mixed":
        order = np.random.default_rng(1).permutation(len(row))
        row, column = row[order], column[order]
    labels = {"model": [f"m{i:02d}" for i in row], "item": [f"q{j}" for j in column]}
    score = pa.array(values[row, column].astype(np.int8))
    benchmarks = [f"b{j % 3}" for j in column]
    return pa.table({**labels, "score": score, "benchmark": benchmarks})


def wide_table(values):
    names = pa.array([f"m{i:02d}" for i in range(len(values))])
    columns = {f"q{j}": pa.array(x, from_pandas=True) for j, x in enumerate(values.T)}
    return pa.table({"model": names, **columns})


def in_folders(path):
    """A function of processes: the stream of a file."""

    def make(own):
        folder = path.parent / f"{path.stem}-{own.number}-of-{own.count}"
        folder.mkdir()
        return make_stream(path, folder, ReadOptions(), own)

    return make


def passes(stream):
    """What fits sum over subjects and gather from them, as bytes."""
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(stream.shape[0], 2))
    table = rng.normal(size=(*stream.counts.shape, 3))
    arrays = stream.row_sums(table), stream.category_sums(vectors)
    return [array.tobytes() for array in arrays]


FIELDS = "items codes is_matrix counts observed total squares benchmarks".split()


@pytest.mark.parametrize("kind", ["long", "sparse", "mixed", "wide"])
@pytest.mark.parametrize("rows", [70, 1000])
def test_streams_of_several_processes_have_the_bits_of_one(
    kind, rows, tmp_path, monkeypatch
):
    values = responses(0.1 if kind == "sparse" else 0.7)
    table = wide_table(values) if kind == "wide" else long_table(values, kind)
    path = tmp_path / "x.parquet"
    pq.write_table(table, path, row_group_size=rows // (9 if kind == "wide" else 1))
    (one,) = in_processes(1, in_folders(path), monkeypatch)
    names = pa.chunked_array([*subject_names(one.folder)]).to_pylist()
    assert one.is_matrix == (kind != "sparse")
    plain = make_stream(path, tmp_path, ReadOptions())
    np.testing.assert_array_equal(plain.counts, one.counts)
    for count in (2, 8):
        several = in_processes(count, in_folders(path), monkeypatch)
        for stream in several:
            for field in FIELDS:
                wanted, own = (getattr(x, field) for x in (one, stream))
                np.testing.assert_array_equal(own, wanted, err_msg=field)
            of_all = pa.chunked_array([*subject_names(stream.folder)]).to_pylist()
            assert of_all == names
        if kind != "mixed":
            # Each has the responses of its own subjects, and no others.
            name = streams.MATRIX if one.is_matrix else streams.VALUES
            sizes = [(x.folder / name).stat().st_size for x in (one, *several)]
            assert sizes[0] == sum(sizes[1:]) > 1.5 * max(sizes[1:])
        results = in_processes(
            count, lambda x, of=several: passes(of[x.number]), monkeypatch
        )
        assert all(result == passes(one) for result in results)


def test_only_row_groups_with_rows_of_the_process_are_read(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    pq.write_table(long_table(responses(1.0)), path, row_group_size=70)
    read = pq.ParquetFile.iter_batches
    groups = []

    def counted(self, size, *, row_groups, columns, **options):
        groups.append((row_groups, columns))
        return read(self, size, row_groups=row_groups, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    in_processes(2, in_folders(path), monkeypatch)
    of_names = sorted(x for x, columns in groups if columns == ["model"])
    assert of_names == [[0, 1, 2, 3], [4, 5, 6, 7]]
    rest = sorted(x for x, columns in groups if columns != ["model"])
    # Both have subjects in the fourth.
    assert rest == [[0, 1, 2, 3], [3, 4, 5, 6, 7]]


@pytest.mark.parametrize("kind", ["long", "wide"])
def test_a_process_without_subjects_has_an_empty_share(kind, tmp_path, monkeypatch):
    values = responses(0.9)[-3:]
    table = wide_table(values) if kind == "wide" else long_table(values)
    path = tmp_path / "x.parquet"
    pq.write_table(table, path)
    (one,) = in_processes(1, in_folders(path), monkeypatch)
    several = in_processes(8, in_folders(path), monkeypatch)
    results = in_processes(8, lambda x: passes(several[x.number]), monkeypatch)
    assert all(result == passes(one) for result in results)


def test_a_pass_has_the_same_bits_in_one_and_two_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(streamed_counts, "PIECE", 61 * 3)
    path = tmp_path / "x.parquet"
    pq.write_table(long_table(responses() - 1), path, row_group_size=70)
    model = irtjax.MODELS["2pl"]()
    items = model.constrain(jnp.asarray(np.random.default_rng(3).normal(size=(9, 2))))
    nodes = jnp.linspace(-5, 5, 41)

    def counts(own):
        data = StreamedResponses.of(in_folders(path)(own))
        weights = -(nodes**2) / 2
        sums = streamed_counts.streamed_counts(model, items, nodes, weights, data)
        return [np.asarray(x).tobytes() for x in (*sums[:2], *sums.statistics)]

    (one,) = in_processes(1, counts, monkeypatch)
    assert in_processes(2, counts, monkeypatch) == [one, one]


def test_what_one_process_refuses_all_of_them_refuse(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    table = long_table(responses())
    score = table["score"].to_numpy().astype(float)
    score[-1] = 0.5
    table = table.set_column(2, "score", pa.array(score))
    pq.write_table(table, path, row_group_size=70)

    def refusal(own):
        with pytest.raises(ValueError, match="has the response 0.5") as error:
            in_folders(path)(own)
        return str(error.value)

    first, second = in_processes(2, refusal, monkeypatch)
    assert first == second


def test_numbers_of_processes_that_do_not_divide_segments_are_refused(monkeypatch):
    monkeypatch.setattr("jax.process_count", lambda: 3)
    with pytest.raises(ValueError, match="3 processes .* start one of 1, 2, 4, 8"):
        Processes.connected()


def test_rows_of_a_subject_apart_are_no_order():
    names = pa.array(["a", "b", "a"])
    alone = Processes()
    assert row_groups.subjects_of_all(names, np.array([1, 2, 3]), alone) is None
    assert row_groups.subjects_of_all(names, np.array([]), alone) is None
