"""Every Eval Ever, py-irt, and logs merged with tables."""

import dataclasses
import json
from pathlib import Path

import pytest

from irtjax.data import read

FIXTURES = Path(__file__).parent.parent / "fixtures"
INSPECT = FIXTURES / "inspect"


def test_every_eval_ever():
    table = read(FIXTURES / "eee")
    assert table.subjects.tolist() == ["toyorg/toy-1b"]
    assert table.values.tolist() == [[1, 0]]
    assert table.items.tolist() == ["gsm8k/strict-match/0", "gsm8k/strict-match/1"]
    assert table.metric == "gsm8k.exact_match"
    assert table.lengths is not None
    assert table.lengths.tolist() == [[30, 30]]


def test_converted_logs_of_lm_eval_are_read_as_the_logs():
    """By the converter of the package, from logs of lm-eval with a toy model."""
    folder = FIXTURES / "eee_converted" / "lm_eval"
    table = read(folder)
    assert table.subjects.tolist() == ["org/model-a", "org/model-d"]
    assert table.items.tolist() == [f"{t}/{k}" for t in ("arith", "gsm") for k in KEPT]
    assert table.values.tolist() == [[1, 1, 1, 1, 1, 0], [0] * 6]
    # A metric without filter has no comma.
    assert table.metric == "acc_norm / exact_match,strict-match"
    usual = "arith: acc_norm, not acc; gsm: exact_match with strict-match, not flexible"
    assert any(usual in note for note in table.notes)
    other = read(folder, metric={"arith": "acc"}, filter={"gsm": "flexible-extract"})
    assert other.values.tolist() == [[1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1]]
    assert other.metric == "acc / exact_match,flexible-extract"


#: Documents of the converted logs.
KEPT = (0, 6, 16)


def test_converted_logs_of_inspect_have_means_of_epochs():
    """By the converter, from logs of two scorers and epochs, with a failed sample."""
    folder = FIXTURES / "eee_converted" / "inspect"
    with pytest.raises(ValueError, match="includes:accuracy"):
        read(folder)
    table = read(folder, metric="match:accuracy", trials="mean")
    assert table.subjects.tolist() == ["openai/model-a", "openai/model-b"]
    assert table.items.tolist() == ["quiz/q0", "quiz/q2", "quiz/q4"]
    # What Inspect's own logs have as mean of the epochs; the failure is missing.
    assert table.values.tolist() == [[0, 0.5, 0.5], [0.5, 0, 0]]
    assert table.observed.tolist() == [[True, True, True], [True, True, False]]
    assert table.lengths[:, :2].tolist() == [[3, 5], [3, 5]]
    other = read(folder, metric="includes:accuracy", trials="mean")
    assert other.values.tolist() == [[0.5, 1, 0.5], [0.5, 0.5, 0]]


def test_converted_runs_of_helm_are_read_as_the_runs():
    """By the converter, from two runs of HELM that differ in the scenario's argument.

    The converter writes the split of an instance into the metric, and leaves the
    argument out: both runs have ids 1 to 3 on one benchmark.
    """
    folder = FIXTURES / "eee_converted" / "helm"
    table = read(folder)
    # HELM's own files have 1, 0, 0 of toy_echo:part=a, and of part=b.
    assert table.values.tolist() == [[1, 0, 0, 1, 0, 0]]
    assert [x.split("~")[0] for x in table.items] == [
        f"toy_echo/id{k}" for k in (1, 2, 3)
    ] * 2
    assert table.metric == "exact_match"
    assert not any("more than once" in note for note in table.notes)
    assert read(folder, metric="quasi_exact_match").values.tolist() == [[1, 0, 1] * 2]


def test_converted_runs_replace_those_that_share_samples(tmp_path):
    """Of two parts of a benchmark, the second was run again, with other responses."""
    runs = {1: {"x": 1, "y": 1}, 2: {"z": 0}, 3: {"z": 1}}
    for time, scores in runs.items():
        rows = [
            {**instance(k, score), "evaluation_id": f"t/m/{time}"}
            for k, score in scores.items()
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{time}_samples.jsonl").write_text(text)
    table = read(tmp_path)
    assert dict(zip(table.items.tolist(), table.values[0].tolist(), strict=True)) == {
        "t/x": 1,
        "t/y": 1,
        "t/z": 1,
    }
    assert any("run more than once" in note for note in table.notes)


def instance(sample_id, score, name="t", result="acc", **more):
    """One record of an Every Eval Ever instance file."""
    return {
        "evaluation_id": "t/m/1772360430",
        "model_id": "m",
        "evaluation_name": name,
        "evaluation_result_id": result,
        "sample_id": sample_id,
        "sample_hash": f"hash{sample_id}",
        "evaluation": {"score": score, "is_correct": score == 1},
        **more,
    }


def write_instances(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_every_eval_ever_needs_a_choice_of_metric(tmp_path):
    path = write_instances(
        tmp_path / "a_samples.jsonl",
        [instance("0", 1.0, result="f1"), instance("0", 0.0, result="bleu")],
    )
    with pytest.raises(ValueError, match="metric= among f1, bleu"):
        read(path)
    assert read(path, metric="bleu").values.tolist() == [[0]]


def test_every_eval_ever_failed_sample_without_a_result(tmp_path):
    """The converter of Inspect names no result of a sample that ended in an error."""
    failed = instance("1", 0.0, error="Timeout")
    del failed["evaluation_result_id"]
    records = [instance("0", 1.0), failed, instance("2", 0.0)]
    path = write_instances(tmp_path / "a_samples.jsonl", records)
    table = read(path)
    assert (table.metric, table.values[0, [0, 2]].tolist()) == ("acc", [1, 0])
    assert table.observed is not None
    assert table.observed.tolist() == [[True, False, True]]
    # It is missing in each of several results.
    write_instances(path, [*records, instance("0", 0.5, result="f1")])
    table = read(path, metric="f1")
    assert table.observed is not None
    assert table.values[table.observed].tolist() == [0.5]
    assert "t/1" in table.items.tolist()


def test_every_eval_ever_filters_are_not_benchmarks(tmp_path):
    path = write_instances(
        tmp_path / "a_samples.jsonl",
        [
            instance("0", score, f"gsm8k/{name}", f"exact_match:{name}")
            for name, score in (("strict", 0.0), ("flexible", 1.0))
        ],
    )
    assert read(path).values.tolist() == [[0]]
    table = read(path, filter="flexible")
    assert table.items.tolist() == ["gsm8k/0"]
    assert table.values.tolist() == [[1]]


def test_every_eval_ever_error_is_missing_and_direction_is_read(tmp_path):
    write_instances(
        tmp_path / "a_samples.jsonl",
        [instance("0", 0.0, error="timeout"), instance("1", 0.0)],
    )
    totals = {
        "evaluation_results": [
            {"evaluation_name": "t", "metric_config": {"lower_is_better": True}}
        ]
    }
    (tmp_path / "a.json").write_text(json.dumps(totals))
    table = read(tmp_path)
    assert table.num_observed == 1
    assert any("lower acc is better" in note for note in table.notes)
    assert table.values[table.observed].tolist() == [1]


def test_py_irt():
    table = read(FIXTURES / "py_irt" / "toy.jsonlines")
    assert table.subjects.tolist() == ["toy-1b", "toy-7b"]
    assert table.items.tolist() == ["q1", "q2", "q3"]
    assert table.num_observed == 5
    assert table.values.tolist() == [[1, 0, 1], [1, 1, 0]]


def test_logs_merge_with_tables(tmp_path):
    extra = tmp_path / "t.csv"
    extra.write_text("model,toy_task/q1\nother,1\n")
    table = read([next(INSPECT.glob("*.json")), extra], epoch=1, trials="error")
    assert table.subjects.tolist() == ["toyorg/toy-1b", "other"]
    assert table.values[:, 0].tolist() == [1, 1]


def test_column_names_for_logs_are_refused():
    with pytest.raises(ValueError, match="no metric 'x' for response="):
        read(FIXTURES / "py_irt" / "toy.jsonlines", response="x")


def numbered(folder, model, hashes):
    """The log of a model whose samples have these hashes; "a" is answered right."""
    folder.mkdir()
    records = [
        {**instance(f"{k}", float(x == "a")), "model_id": model, "sample_hash": x}
        for k, x in enumerate(hashes)
    ]
    return write_instances(folder / "x_samples.jsonl", records)


def test_tables_whose_logs_number_samples_in_another_way_do_not_merge(tmp_path):
    old = numbered(tmp_path / "old", "m", "abc")
    new = numbered(tmp_path / "new", "n", "cba")
    together = read([old, new])
    assert together.values.tolist() == [[1, 0, 0]] * 2
    tables = [read(old), read(new)]
    for ending in ("json", "parquet"):
        tables[0].save(tmp_path / f"t.{ending}")
        saved = read(tmp_path / f"t.{ending}")
        assert saved.item_contents == tables[0].item_contents
        with pytest.raises(ValueError, match="2 of the items are others .* 't/0': "):
            read([saved, tables[1]])
        trusted = read([tmp_path / f"t.{ending}", tables[1]], join="id")
        assert trusted.num_observed == 6 and not trusted.item_contents
        assert not read(tmp_path / f"t.{ending}", join="id").item_contents
    # What has no other content, and names that the caller takes for right.
    same = tables[1].select(items=["t/1"])
    assert list(same.item_contents) == ["t/1"]
    assert read([tables[0], same]).num_observed == 4
    assert read([tables[0], read(new, join="id")]).num_observed == 6
    other = {k: f"lm-eval:{v}" for k, v in tables[1].item_contents.items()}
    of_other_logs = dataclasses.replace(tables[1], item_contents=other)
    assert read([tables[0], of_other_logs]).num_observed == 6
