"""Frames of Inspect without Inspect, and tables as frames of other libraries."""

import ast
import dataclasses
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import irtjax
from irtjax.data.frames import HasTable
from tests.small_fits import small_table

NAMES = ["id", "epoch", "model", "task_name", "score_match", "model_usage", "log"]


def frame(*rows):
    usage = '{{"{}": {{"output_tokens": {}, "input_tokens": 9}}}}'
    full = [
        (*row[:5], usage.format(row[2], len(row[0])), *(row[5:] or ("l",)))
        for row in rows
    ]
    found = pd.DataFrame(full, columns=NAMES)
    return found.assign(eval_id=found["log"], sample_id="u", total_tokens=99)


def test_verdicts_numbers_and_missing_scores():
    rows = [("a", 1, "m", "t", "C"), ("b", 1, "m", "t", "I"), ("cc", 1, "m", "t", "P")]
    rows += [("a", 1, "n", "t", "1"), ("b", 1, "n", "t", None), ("cc", 1, "n", "t", 0)]
    found = irtjax.from_inspect(frame(*rows).astype({"score_match": str}))
    assert found.items.tolist() == ["t/a", "t/b", "t/cc"]
    assert found.metric == "match" and found.benchmarks.tolist() == ["t"] * 3
    np.testing.assert_array_equal(found.values[0], [1, 0, 0.5])
    assert not found.observed[1, 1]
    # Tokens that the model wrote, not those of the input.
    np.testing.assert_array_equal(found.lengths[0], [1, 1, 2])
    rows = [("a", 1, "m", "t", "N"), ("b", 1, "m", "t", "C")]
    assert irtjax.from_inspect(frame(*rows)).num_observed == 1
    wrong = irtjax.from_inspect(frame(*rows), missing_as="wrong")
    assert wrong.num_observed == 2 and wrong.values.sum() == 1


def test_the_latest_log_of_a_task_counts():
    old, new = "/x/2026-01-02T0_t.eval", "/a/2026-01-03T0_t.eval"
    rows = [("a", 1, "m", "t", 0, old), ("a", 1, "m", "t", 1, new)]
    rows += [("a", 1, "m", "u", 1, old)]
    found = irtjax.from_inspect(frame(*rows))
    assert found.values.tolist() == [[1, 1]] and "1 older logs" in found.notes[-1]
    both = irtjax.from_inspect(frame(*rows), run="all", trials="mean")
    assert both.values[0, both.items.tolist().index("t/a")] == 0.5
    # A copy of a log has the same rows.
    copy = frame(*rows[:1], (*rows[0][:5], "/y/2026-01-02T9.eval")).assign(eval_id="e")
    assert irtjax.from_inspect(copy).num_observed == 1


def test_frames_that_lack_something_are_refused():
    good = frame(("a", 1, "m", "t", 1))
    for lacking in ("model", "task_name", "epoch"):
        with pytest.raises(ValueError, match=f"no column {lacking}: make the frame"):
            irtjax.from_inspect(good.drop(columns=lacking))
    with pytest.raises(ValueError, match="no column score_NAME"):
        irtjax.from_inspect(good.drop(columns="score_match"))
    with pytest.raises(ValueError, match="run='some' is not one of"):
        irtjax.from_inspect(good, run="some")
    with pytest.raises(ValueError, match="row 1, column 'model_usage'"):
        irtjax.from_inspect(good.assign(model_usage="{"))
    with pytest.raises(ValueError, match="frame of samples_df: cannot read a dict"):
        irtjax.from_inspect({})
    with pytest.raises(ValueError, match="several metrics.*choose one with metric="):
        irtjax.from_inspect(good.assign(score_other=1))
    assert irtjax.from_inspect(pl.from_pandas(good)).num_observed == 1


def test_tables_become_frames():
    table = small_table()
    arrow = table.to_frame("arrow")
    assert arrow.num_rows == table.num_observed
    assert arrow.column_names == ["subject", "item", "response", "benchmark"]
    assert isinstance(table.to_frame("pandas"), pd.DataFrame)
    assert isinstance(table.to_frame(), pl.DataFrame)
    again = irtjax.read(table.to_frame("polars"))
    order = again.select(subjects=table.subjects, items=table.items)
    np.testing.assert_array_equal(order.observed, table.observed)
    np.testing.assert_array_equal(order.values, table.values)
    np.testing.assert_array_equal(order.benchmarks, table.benchmarks)
    counts = irtjax.ResponseTable.from_arrays(
        [[3, 1]], trials=[[4, 0]], lengths=[[2.0, np.nan]]
    )
    (row,) = counts.to_frame("arrow").to_pylist()
    assert row["response"] == 3 and row["trials"] == 4 and row["length"] == 2

    class Result:
        scores = pa.table({"a": [1]})

    assert irtjax.to_frame(Result.scores, "polars").shape == (1, 1)
    with pytest.raises(ValueError, match="give one of its tables: scores"):
        irtjax.to_frame(Result())

    @dataclasses.dataclass(frozen=True)
    class Audited:
        items: pa.Table
        control: pa.Table | None = None

    with pytest.raises(ValueError, match="give one of its tables: items$"):
        irtjax.to_frame(Audited(arrow))
    with pytest.raises(ValueError, match="a str is no table of results: it has no"):
        irtjax.to_frame("x")
    with pytest.raises(ValueError, match="kind 'excel' is not one of polars"):
        table.to_frame("excel")


def test_every_result_with_a_table_gives_it_as_a_frame():
    @dataclasses.dataclass(frozen=True)
    class Result(HasTable):
        table: pa.Table

    frame = Result(pa.table({"a": [1, 2]})).to_frame("polars")
    assert isinstance(frame, pl.DataFrame) and frame["a"].to_list() == [1, 2]
    found = []
    for path in Path(irtjax.__path__[0]).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "pa.Table" not in text or "data" in path.parts:  # Readers have no results.
            continue
        for node in ast.walk(ast.parse(text)):
            bases = [ast.unparse(x) for x in getattr(node, "bases", ())]
            if not isinstance(node, ast.ClassDef) or "NamedTuple" in bases:
                continue
            parts = [ast.unparse(part) for part in node.body]
            own = r"^table: pa\.Table|def table\(self\) -> pa\.Table"
            if any(re.search(own, part) for part in parts):
                assert "HasTable" in bases, (path, node.name)
                found.append(node.name)
    assert len(found) > 14


def test_data_sets_of_hugging_face():
    datasets = pytest.importorskip("datasets", reason="datasets is missing")
    rows = small_table().to_frame("datasets")
    assert isinstance(rows, datasets.Dataset)
    same = irtjax.read(small_table().to_frame())
    assert irtjax.read(rows).data_hash() == same.data_hash()
    assert rows.num_rows == same.num_observed == small_table().num_observed
    # Rows that were selected, not those of the file behind them.
    part = rows.select(range(10))
    assert irtjax.read(part).num_observed == 10
    split = datasets.DatasetDict({"a": part, "b": rows.select(range(10, 25))})
    assert irtjax.read(split).num_observed == 25
    with pytest.raises(ValueError, match="IterableDataset is read as it comes"):
        irtjax.read(rows.to_iterable_dataset())
    table = irtjax.to_frame(pa.table({"a": [1, 2]}), "datasets")
    assert table["a"][:] == [1, 2]
