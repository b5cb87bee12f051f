"""`irtjax fit --stream` is `irtjax fit`, and its folder serves the other commands."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.calibration.tables import columns_by_benchmark
from irtjax.cli.app import app
from irtjax.data import stream as streams
from irtjax.data.reading.options import ReadOptions
from irtjax.fitting.streamed import fit_stream
from irtjax.likelihood import streamed_counts
from irtjax.storage.stream import save_stream


def long_file(path, shape=(80, 10), share=0.8, benchmarks=False):
    """Binary responses in random order, in row groups of which the last is short."""
    rng = np.random.default_rng(3)
    ability, slope = rng.normal(size=(shape[0], 1)), rng.uniform(0.7, 1.5, shape[1])
    logit = slope * ability + rng.normal(size=shape[1])
    right = (rng.random(shape) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    row, column = np.nonzero(rng.random(shape) < share)
    order = rng.permutation(len(row))
    row, column = row[order], column[order]
    names = [f"m{i:02d}" for i in row], [f"q{j}" for j in column]
    table = pa.table({"model": names[0], "item": names[1], "score": right[row, column]})
    labels = pa.array([f"b{j % 2}" for j in column])
    table = table.append_column("benchmark", labels) if benchmarks else table
    pq.write_table(table, path, row_group_size=97)
    return path


def compared(tmp_path, monkeypatch, errors):
    """Calibrations of one file, streamed in small blocks and in memory."""
    monkeypatch.setattr(streams, "BLOCK_CELLS", 200)
    monkeypatch.setattr(streamed_counts, "BLOCK_PAIRS", 1)
    monkeypatch.setattr(streamed_counts, "PIECE_PAIRS", 1)
    monkeypatch.setattr(streamed_counts, "PIECE", 61 * 7)
    path = long_file(tmp_path / "x.parquet")
    out = tmp_path / "fit"
    extra = ["--standard-errors", errors, "--model", "2pl"]
    call = ["fit", str(path), "--stream", "--out", str(out), "--json", *extra]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    assert [x.name for x in tmp_path.iterdir() if x.name.startswith(".")] == []
    summary = json.loads(result.stdout)
    assert summary["passes"] >= summary["num_steps"] + 5
    return irtjax.load(out), irtjax.fit(str(path), "2pl", "em", standard_errors=errors)


def assert_equal(one, other, names, sorted_by):
    """Columns of two tables are equal to 1e-8."""
    one, other = (table.sort_by(sorted_by) for table in (one, other))
    assert one[sorted_by].to_pylist() == other[sorted_by].to_pylist()
    for name in names:
        numbers = (x[name].to_numpy(zero_copy_only=False) for x in (one, other))
        np.testing.assert_allclose(*numbers, atol=1e-8, rtol=0, err_msg=name)


def test_a_streamed_fit_has_the_numbers_of_a_fit_in_memory(tmp_path, monkeypatch):
    streamed, fit = compared(tmp_path, monkeypatch, "none")
    assert streamed.status == fit.status == irtjax.Status.CONVERGED
    np.testing.assert_allclose(
        streamed.log_likelihood, fit.log_likelihood, rtol=1e-10, atol=0
    )
    names = "ability ability_se expected_score accuracy accuracy_se observed rank"
    tables = streamed.abilities.table, fit.abilities.table
    assert_equal(*tables, names.split(), "subject")
    names = ["discrimination", "intercept", "difficulty", "accuracy", "observed"]
    assert_equal(streamed.items.table, fit.items.table, names, "item")


def test_accuracies_by_benchmark_are_those_of_the_table(tmp_path):
    path = long_file(tmp_path / "x.parquet", benchmarks=True)
    (tmp_path / "blocks").mkdir()
    fit = fit_stream(path, tmp_path / "blocks", "2pl", standard_errors="none")
    streamed = irtjax.load(save_stream(fit, tmp_path / "fit"))
    table = irtjax.read(path)
    of_item = dict(zip(table.items.tolist(), table.benchmarks.tolist(), strict=True))
    assert streamed.benchmarks.tolist() == [of_item[x] for x in streamed.item_names]
    assert streamed.items.table["benchmark"].to_pylist() == streamed.benchmarks.tolist()
    wanted = columns_by_benchmark(table, {"low": 0.0, "top": 1.0}, 0.95)
    wanted = pa.table({"subject": table.subjects.tolist(), **wanted})
    assert_equal(streamed.abilities.table, wanted, wanted.column_names[1:], "subject")


@pytest.mark.slow
def test_errors_of_a_streamed_fit_are_those_of_a_fit_in_memory(tmp_path, monkeypatch):
    streamed, fit = compared(tmp_path, monkeypatch, "observed")
    names = ["ability_se", "expected_score_se", "expected_score_lower"]
    names += ["rank_lower", "rank_upper"]
    assert_equal(streamed.abilities.table, fit.abilities.table, names, "subject")
    names = ["discrimination_se", "intercept_se", "difficulty_se"]
    assert_equal(streamed.items.table, fit.items.table, names, "item")
    one, other = (irtjax.compare(x, "m03", "m17") for x in (streamed, fit))
    assert one.z == pytest.approx(other.z, rel=1e-7)
    assert one.standard_error == pytest.approx(other.standard_error, rel=1e-7)
    result = CliRunner().invoke(app, ["rank", str(tmp_path / "fit"), "--json"])
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["subjects"]) == 80


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "mm"], "--stream requires --method em, not mm"),
        (["--figures"], "ignores --figures"),
        (["--leave-out", "m00"], "ignores --leave-out"),
        (["--rotation", "none"], "rotation is no setting of a streamed fit"),
        (["--model", "factor"], "has no model 'factor'"),
    ],
)
def test_what_a_streamed_fit_does_not_have_is_refused(options, message, tmp_path):
    path = long_file(tmp_path / "x.parquet")
    call = ["fit", str(path), "--stream", "--out", str(tmp_path / "fit"), *options]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_a_file_that_is_cut_off_is_refused_in_one_line(tmp_path):
    path = long_file(tmp_path / "x.parquet")
    path.write_bytes(path.read_bytes()[:-500])
    call = ["fit", str(path), "--stream", "--out", str(tmp_path / "fit")]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 2
    text = " ".join(result.output.split())
    assert "x.parquet is damaged or cut off" in text
    assert [x.name for x in tmp_path.iterdir()] == ["x.parquet"]


def test_an_item_without_a_category_is_refused(tmp_path):
    values = np.array([[0, 2, 1], [1, 0, 2], [2, 1, 2], [0, 2, 1]])
    columns = {f"q{j}": x for j, x in enumerate(values.T)}
    names = [f"m{i}" for i in range(4)]
    pq.write_table(pa.table({"model": names, **columns}), tmp_path / "x.parquet")
    folder = tmp_path / "stream"
    folder.mkdir()
    with pytest.raises(ValueError, match="item 'q2' has no response 0"):
        fit_stream(tmp_path / "x.parquet", folder, reading=ReadOptions())
