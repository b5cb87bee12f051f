"""Nested JSON and Parquet, whose fields are named by paths."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irtjax import read
from tests.reading_cases import refused

PATHS: dict[str, Any] = {
    "subject": "meta.model",
    "item": "doc.id",
    "response": "metric.bleu",
}


def records(models=("m", "n")) -> list[dict]:
    """Records with a score of each model for each document."""
    return [
        {
            "meta": {"model": model, "run": {"id": k}},
            "doc": {"id": f"d{j}", "text": "?"},
            "metric": {"bleu": (k + j) % 2, "chrf": 0.5 + 0.1 * j},
        }
        for k, model in enumerate(models)
        for j in range(3)
    ]


def write(path, content) -> None:
    """Writes records in the format of the file's name."""
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, content)))
    elif path.suffix == ".json":
        path.write_text(json.dumps(content, indent=1))
    else:
        pq.write_table(pa.Table.from_pylist(content), path)


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.parquet"])
def test_paths_name_fields(tmp_path, name):
    path = tmp_path / name
    write(path, records())
    table = read(path, **PATHS)
    assert table.subjects.tolist() == ["m", "n"]
    assert table.items.tolist() == ["d0", "d1", "d2"]
    assert table.values.tolist() == [[0, 1, 0], [1, 0, 1]]
    several = read(path, **{**PATHS, "item": ["doc.id", "meta.run.id"]})
    assert several.num_items == 6
    for source in (path, tmp_path):
        message = refused(source)
        assert all(f"{x}='{y}'" in message for x, y in PATHS.items() if x != "response")
        assert "response='metric." in message
    message = refused(path, **{**PATHS, "response": "metric.blue"})
    assert "no field 'metric.blue'; fields with numbers are: " in message
    assert "metric.bleu, metric.chrf" in message


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.parquet"])
def test_a_list_of_records_is_a_row_for_each(tmp_path, name):
    content = [
        {"model": m, "results": [{"q": {"id": f"q{j}"}, "ok": x[j]} for j in range(3)]}
        for m, x in {"a": [True, False, True], "b": [True, True, False]}.items()
    ]
    path = tmp_path / name
    write(path, content)
    options: dict[str, Any] = {
        "subject": "model",
        "item": "results.q.id",
        "response": "results.ok",
    }
    table = read(path, **options)
    assert table.subjects.tolist() == ["a", "b"]
    assert table.values.tolist() == [[1, 0, 1], [1, 1, 0]]
    message = refused(path)
    assert "item='results.q.id', response='results.ok'" in message


def test_one_record_over_several_lines_for_each_model(tmp_path):
    for name, scores in {"a": [1, 0], "b": [0, 0]}.items():
        results = [{"id": f"q{j}", "score": x} for j, x in enumerate(scores)]
        text = json.dumps({"model": {"name": name}, "results": results}, indent=2)
        (tmp_path / f"{name}.json").write_text(text)
    options: dict[str, Any] = {"item": "results.id", "response": "results.score"}
    table = read(tmp_path, subject="model.name", **options)
    assert table.subjects.tolist() == ["a", "b"]
    assert table.values.tolist() == [[1, 0], [0, 0]]
    assert read(tmp_path, subject_from="file", **options).subjects.tolist() == [
        "a",
        "b",
    ]


def test_lists_of_different_lengths_are_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    write(path, [{"model": "m", "a": {"x": [1, 0]}, "b": {"x": ["p", "q", "r"]}}])
    message = refused(path, subject="model", item="b.x", response="a.x")
    assert "lists of 2 and 3 values" in message


def test_lists_of_values_and_names_with_dots(tmp_path):
    path = tmp_path / "t.jsonl"
    content = [
        {"model": m, "x": {"ids": ["p", "q"], "f1.5": s}}
        for m, s in {"m": [0.5, 1], "n": [0, 0.25]}.items()
    ]
    write(path, content)
    table = read(path, subject="model", item="x.ids", response="x.f1.5")
    assert table.values.tolist() == [[0.5, 1], [0, 0.25]]


def test_a_column_with_dots_in_its_name_is_itself(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("meta.model,doc.id,metric.bleu\nm,a,1\nm,b,0\nn,a,0\nn,b,0\n")
    assert read(path, **PATHS).values.tolist() == [[1, 0], [0, 0]]


def test_nested_files_next_to_a_table_stay_unread(tmp_path):
    (tmp_path / "t.csv").write_text("model,item,score\nm,a,1\nn,a,0\n")
    (tmp_path / "config.json").write_text('{"model": {"name": "m"}, "task": {}}')
    assert read(tmp_path, response="score").num_observed == 2


def test_published_nested_logs(shared_cases):
    reviews: dict[str, Any] = {
        "item": "sample_score.sample_id",
        "response": "sample_score.score.value.acc",
    }
    files = sorted((shared_cases / "C43").rglob("*.jsonl"))
    table = read(files, format="json", subject_from="folder", **reviews)
    assert (table.num_subjects, table.num_items) == (6, 30)
    assert "alpha-70b" in table.subjects.tolist()
    factuality: dict[str, Any] = {
        "item": "dataset_record_id",
        "response": "scores.Factuality",
    }
    files = sorted((shared_cases / "C19").rglob("*.jsonl"))
    table = read(files, format="json", subject="metadata.model", **factuality)
    assert (table.num_subjects, table.num_items) == (5, 20)
