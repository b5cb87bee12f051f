"""Directions that logs state, by the reader of each format."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from irtjax import read


def noted(table, text):
    """Whether a note has this text."""
    return any(text in note for note in table.notes)


@pytest.mark.parametrize("lower", [True, False])
def test_lighteval(tmp_path, lower):
    details = tmp_path / "details" / "org" / "a" / "2026-03-01T10-20-30.123456"
    details.mkdir(parents=True)
    rows = {
        "doc": [{"query": f"q{k}", "id": str(k), "choices": ["x"]} for k in range(2)],
        "metric": [{"gap": 0.25}, {"gap": 0.5}],
        "model_response": [{"text": ["x"]}] * 2,
    }
    name = "details_t|0_2026-03-01T10-20-30.123456.parquet"
    pq.write_table(pa.table(rows), details / name)
    results = tmp_path / "results" / "org" / "a"
    results.mkdir(parents=True)
    metric = {"metric_name": "gap", "higher_is_better": not lower}
    for kind, value in (
        ("metric", metric),
        ("metrics", {"metric_name": ["gap"], "higher_is_better": {"gap": not lower}}),
    ):
        content = {"results": {}, "config_tasks": {"t|0": {kind: [value]}}}
        path = results / "results_2026-03-01T10-20-30.123456.json"
        path.write_text(json.dumps(content))
        table = read(tmp_path)
        expected = [[0.75, 0.5]] if lower else [[0.25, 0.5]]
        assert table.values.tolist() == expected
        assert noted(table, "lower gap is better: scores are 1 - gap") == lower


def test_helm(tmp_path):
    folder = tmp_path / "runs" / "v1" / "toy:model=org_a"
    folder.mkdir(parents=True)
    stats = [
        {
            "instance_id": f"id{k}",
            "train_trial_index": 0,
            "stats": [{"name": {"name": "bias_gap"}, "count": 1, "mean": 0.2}],
        }
        for k in range(3)
    ]
    (folder / "per_instance_stats.json").write_text(json.dumps(stats))
    schema = {"metrics": [{"name": "bias_gap", "lower_is_better": True}]}
    (folder.parent / "schema.json").write_text(json.dumps({**schema, "run_groups": []}))
    table = read(tmp_path)
    assert table.values.tolist() == [[0.8] * 3]
    assert noted(table, "lower bias_gap is better: scores are 1 - bias_gap")


def test_every_eval_ever_by_result(tmp_path):
    lines = [
        {
            "evaluation_id": "t/m/1772360430",
            "model_id": "m",
            "evaluation_name": "t",
            "evaluation_result_id": result,
            "sample_id": "0",
            "sample_hash": "h",
            "evaluation": {"score": 0.25, "is_correct": False},
        }
        for result in ("gap", "acc")
    ]
    (tmp_path / "a_samples.jsonl").write_text("\n".join(map(json.dumps, lines)))
    config = lambda low: {"metric_config": {"lower_is_better": low}}
    results = [
        {"evaluation_name": "t", "evaluation_result_id": "gap", **config(True)},
        {"evaluation_name": "t", "evaluation_result_id": "acc", **config(False)},
    ]
    (tmp_path / "a.json").write_text(json.dumps({"evaluation_results": results}))
    assert read(tmp_path, metric="gap").values.tolist() == [[0.75]]
    assert read(tmp_path, metric="acc").values.tolist() == [[0.25]]


def test_lm_eval_by_task(tmp_path):
    from tests.data.test_lm_eval import DATE, sample, write_log

    write_log(tmp_path, "a", [sample(0, 0.25, metric="gap")])
    path = tmp_path / "a" / f"results_{DATE}.json"
    for task, expected in (("t", 0.75), ("u", 0.25)):
        ways = {task: {"gap": False}}
        path.write_text(json.dumps({"results": {}, "higher_is_better": ways}))
        assert read(tmp_path).values.tolist() == [[expected]]
    shutil.rmtree(tmp_path / "a")
