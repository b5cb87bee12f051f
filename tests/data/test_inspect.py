"""Inspect logs: archives of every form, JSON, and values of every kind."""

import io
import json
import math
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from irtjax.cli.app import app
from irtjax.data import read
from irtjax.data.formats import inspect

FIXTURES = Path(__file__).parent.parent / "fixtures"
INSPECT = FIXTURES / "inspect"


@pytest.mark.parametrize("name", ["toy-task_TaskToy1.eval", "toy-task_TaskToy1.json"])
def test_inspect(name):
    path = next(INSPECT.glob(f"*{name}"))
    table = read(path, epoch=1)
    assert table.subjects.tolist() == ["toyorg/toy-1b"]
    assert table.items.tolist() == ["toy_task/q1", "toy_task/q2"]
    assert table.values.tolist() == [[1, 0]]
    assert table.metric == "match"
    assert table.lengths is not None
    assert table.lengths.tolist() == [[30, 30]]
    assert read(path, epoch=2).num_observed == 1
    counts = read(path, trials="counts")
    assert counts.trials is not None
    assert (counts.values.tolist(), counts.trials.tolist()) == ([[2, 0]], [[2, 1]])
    assert read(path).data_hash() == counts.data_hash()
    with pytest.raises(ValueError, match="2 epochs or trials"):
        read(path, trials="error")


def test_inspect_zstandard_equals_deflate():
    plain = read(next(INSPECT.glob("*toy-task_*.eval")), trials="mean")
    packed = read(next(INSPECT.glob("*zstd*.eval")), trials="mean")
    assert packed.data_hash() == plain.data_hash()


def test_inspect_log_in_two_forms_is_read_once():
    table = read(INSPECT, epoch=1)
    assert table.num_subjects == 1
    assert sum("same evaluation" in note for note in table.notes) == 2


def test_inspect_json_logs_are_read_once(tmp_path, monkeypatch):
    """To find the later of two logs, both were read and decoded in full."""
    log = json.loads(next(INSPECT.glob("*TaskToy1.json")).read_text())
    for k, task in enumerate("ab"):
        more = {"eval_id": f"e{k}", "task": task}
        changed = {**log, "eval": {**log["eval"], **more}}
        (tmp_path / f"{task}.json").write_text(json.dumps(changed, indent=k or None))
    counted = []
    whole = inspect.read_bytes
    count = lambda path: counted.append(path.name) or whole(path)
    monkeypatch.setattr(inspect, "read_bytes", count)
    table = read(tmp_path, trials="mean")
    assert table.num_items == 4 and sorted(counted) == ["a.json", "b.json"]


@pytest.mark.parametrize(
    "text",
    [
        '{"samples": [], "status": "success", "eval": {"model": "m", "task": "t"}}',
        '{"status": "success", "eval": {"model": "m", "task',
        '{"status": "success" "eval": 1}',
        "[" * 5000,
        '{"a": ' + "[" * 5000,
        '{"status": "success", "eval": {"model": 1, "task": "t"}}',
        "",
    ],
)
def test_inspect_first_fields_that_are_not_there_are_not_guessed(tmp_path, text):
    path = tmp_path / "log.json"
    path.write_text(text)
    assert inspect._first_fields(path) is None


def test_inspect_first_fields_are_those_of_the_log(tmp_path):
    path = next(INSPECT.glob("*TaskToy1.json"))
    found, whole = inspect._first_fields(path), inspect._load(path)[0]
    assert found is not None
    assert (found.status, found.eval) == (whole.status, whole.eval)


def repack(path: Path, target: Path, rename) -> Path:
    """Copies an archive, renaming members; None drops one."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            if rename(name):
                new.writestr(rename(name), old.read(name))
    return target


@pytest.mark.parametrize("form", ["samples", "folders", "journal"])
def test_inspect_archives_of_every_form(tmp_path, form):
    path = next(INSPECT.glob("*toy-task_*.eval"))

    def rename(name: str) -> str | None:
        if name == "summaries.json":
            return None
        if form == "folders" and name.startswith("samples/"):
            return name.replace(".json", "/sample.json")
        if form == "journal" and not name.startswith("_journal/"):
            return None
        return name

    other = repack(path, tmp_path / "log.eval", rename)
    table = read(other, trials="counts")
    assert table.data_hash() == read(path, trials="counts").data_hash()
    ended = [note for note in table.notes if "ended as 'started'" in note]
    assert len(ended) == (form == "journal")


def inspect_log(path: Path, scores: list, **spec) -> Path:
    """Writes an Inspect log with one sample for each entry of ``scores``."""
    log = {
        "version": 2,
        "status": spec.pop("status", "success"),
        "eval": {"task": "t", "model": "m", "eval_id": path.name, **spec},
        "samples": [
            {"id": k, "epoch": 1, **(s if "scores" in s else {"scores": s})}
            for k, s in enumerate(scores, 1)
        ],
    }
    path.write_text(json.dumps(log))
    return path


def test_inspect_values_of_every_kind(tmp_path):
    values = ["C", "I", "P", "N", True, "yes", "false", "0.25", 2, math.nan, [1, 0]]
    path = inspect_log(tmp_path / "a.json", [{"s": {"value": v}} for v in values])
    table = read(path)
    assert table.values[0].tolist() == [1, 0, 0.5, 0, 1, 1, 0, 0.25, 2, 0, 0.5]
    assert table.observed is not None
    assert np.flatnonzero(~table.observed[0]).tolist() == [3, 9]


@pytest.mark.parametrize("missing_as", ["missing", "wrong"])
def test_inspect_no_answer_is_wrong_only_if_asked(tmp_path, missing_as):
    values = ["C", "N", ["C", "N"], {"a": "N"}]
    scores = [{"s": {"value": v}} for v in values]
    path = inspect_log(tmp_path / "a.json", [*scores, scores[0], scores[1]])
    log = json.loads(path.read_text())
    log["samples"][-1].update(id=1, epoch=2)
    path.write_text(json.dumps(log))
    table = read(path, metric="s", trials="mean", missing_as=missing_as)
    # The first sample has the repeats C and N: as wrong, N has its half of the mean.
    expected = {"missing": [1, None, None, 1], "wrong": [0.5, 0, 0.5, 1]}[missing_as]
    known = np.ones((1, 4), bool) if table.observed is None else table.observed
    cells = zip(table.values[0].tolist(), known[0].tolist(), strict=True)
    assert [value if seen else None for value, seen in cells] == expected
    said = {"missing": "3 scores of no answer.* are missing", "wrong": "count as wrong"}
    # The 'N' of the other metric, s/a, is not counted here.
    told = [note for note in table.notes if re.search("no answer", note)]
    assert len(told) == 1
    assert re.search(said[missing_as], told[0])


def test_inspect_error_is_missing_and_mapping_is_metrics(tmp_path):
    path = inspect_log(
        tmp_path / "a.json",
        [
            {"s": {"value": {"first": 1, "second": "?"}}},
            {"scores": {}, "error": {"message": "timeout"}},
            {"scores": {"s": {"value": {"first": 0}}}, "invalidation": {"by": "me"}},
        ],
        status="error",
    )
    with pytest.raises(ValueError, match="among s/first .*of s/second are no num"):
        read(path)
    table = read(path, metric="s/first")
    assert table.items.tolist() == ["t/1", "t/2", "t/3"]
    assert table.num_observed == 1
    assert any("ended as 'error'" in note for note in table.notes)
    place = r"a.json: sample 1, epoch 1, field 'scores.s.value.second'"
    with pytest.raises(ValueError, match=f'{place}: the score is "\\?", not a number'):
        read(path, metric="s/second")


@pytest.mark.parametrize("value", ["splendid", ["good", "bad"], [], {"a": {"b": "hi"}}])
def test_inspect_scores_of_text_or_objects_name_sample_field_and_cure(tmp_path, value):
    scores = [{"a/b": {"value": 1}}, {"a/b": {"value": value}}]
    path = inspect_log(tmp_path / "a.json", scores)
    metric = "a/b/a/b" if isinstance(value, dict) else "a/b"
    field = "scores.a/b.value" + ".a.b" * isinstance(value, dict)
    with pytest.raises(ValueError) as error:
        read(path, metric=metric)
    assert f"a.json: sample 2, epoch 1, field '{field}': " in str(error.value)
    assert "`inspect score LOG --scorer NAME`" in str(error.value)
    # Where another metric has numbers, that is the other cure.
    other = "or choose another with metric= among a/b"
    assert (other in str(error.value)) == isinstance(value, dict)


def test_inspect_text_on_one_task_leaves_the_metric_of_others(tmp_path):
    for task, value in (("x", "splendid"), ("y", 1)):
        scores = [{"s": {"value": value}, "r": {"value": 0}}] * 2
        inspect_log(tmp_path / f"{task}.json", scores, task=task)
    table = read(tmp_path, metric={"x": "r", "y": "s"})
    assert table.values.tolist() == [[0, 0, 1, 1]]
    with pytest.raises(ValueError, match="x.json: sample 1.*among r"):
        read(tmp_path, metric="s")


def test_inspect_info_chooses_a_metric_of_numbers(tmp_path):
    """Scores of text were all missing, and so "0 or 1", and suggested first."""
    for model in "mn":
        scores = [{"a": {"value": "fine"}, "b": {"value": k % 2}} for k in range(3)]
        inspect_log(tmp_path / f"{model}.json", scores, model=model)
    result = CliRunner().invoke(app, ["info", str(tmp_path), "--json"])
    document = json.loads(result.stdout)
    assert "--metric b " in document["command"] and document["num_items"] == 3
    assert [offer["numeric"] for offer in document["offers"]] == [False, True]
    shown = CliRunner().invoke(app, ["info", str(tmp_path)]).stdout
    assert "no numbers" in shown and shown.count("0 or 1") == 1


def test_inspect_later_log_of_the_same_task_wins(tmp_path):
    inspect_log(tmp_path / "a.json", [{"s": {"value": "I"}}], created="2026-01-02")
    inspect_log(tmp_path / "b.json", [{"s": {"value": "C"}}], created="2026-01-03")
    assert read(tmp_path).values.tolist() == [[1]]


@pytest.mark.parametrize(
    "damage", ["cut", "bit", "checksum", "name", "not_a_log", "no_zip", "bad_json"]
)
def test_inspect_archive_that_is_damaged(tmp_path, damage):
    content = bytearray(next(INSPECT.glob("*zstd*.eval")).read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "bit":
        start = content.index(b"summaries.json")
        content[start + 40] ^= 0xFF
    elif damage == "checksum":
        # In the directory at the end, it stands 30 bytes before the name.
        content[content.rindex(b"summaries.json") - 30] ^= 0xFF
    elif damage == "name":  # Marked as UTF-8, and none.
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("é.json", "{}")
        content = buffer.getvalue().replace("é".encode(), b"\xbf\xbf")
    elif damage == "no_zip":
        content = bytearray(b"hello, this is no archive")
    else:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("header.json" if damage == "bad_json" else "x", "{")
        content = bytearray(buffer.getvalue())
    path = tmp_path / "log.eval"
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match="log.eval.*(damaged|no Inspect log|or cut off)"
    ):
        read(path)


def test_a_folder_of_failed_evaluations_says_which_errors_ended_them(tmp_path):
    eval_ = {"model": "org/m", "task": "t"}
    errors = ["Rate limit\nfor ever"] * 3 + ["Timeout"] * 2 + ["a", "b", "c"]
    for k in range(2):
        samples = [
            {"id": j, "epoch": 1, "error": {"message": message}}
            for j, message in enumerate(errors)
        ]
        log = {"status": "error", "eval": eval_ | {"eval_id": f"e{k}"}}
        path = tmp_path / f"log{k}.json"
        path.write_text(json.dumps(log | {"samples": samples}))
    # One that ended before its first sample.
    log = {"status": "error", "eval": eval_ | {"eval_id": "e9"}, "samples": []}
    log["error"] = {"message": "Rate limit"}
    (tmp_path / "log9.json").write_text(json.dumps(log))
    with pytest.raises(ValueError) as caught:
        read(tmp_path)
    assert str(caught.value).endswith(
        ": there are no scored samples in it: 7 ended in 'Rate limit', 4 ended in"
        " 'Timeout', 2 ended in 'a', 4 in others"
    )


def test_inspect_models_of_one_run_without_ids_of_their_own(tmp_path):
    for model in "AB":
        inspect_log(
            tmp_path / f"{model}.json",
            [{"m": 1}],
            model=model,
            eval_id=None,
            run_id="R",
        )
    assert read(tmp_path).subjects.tolist() == ["A", "B"]


def test_inspect_runs_are_ordered_by_time_in_any_zone(tmp_path):
    for name, score, hour in (("early", 0, "11:00:00+05:00"), ("late", 1, "10:00:00Z")):
        created = f"2026-03-01T{hour}"
        inspect_log(tmp_path / f"{name}.json", [{"m": score}], created=created)
    assert read(tmp_path).values.tolist() == [[1]]


def samples(*inputs):
    """Right where the input begins with 1."""
    return [
        {"scores": {"m": {"value": int(x.startswith("1"))}}, "input": x, "target": "?"}
        for x in inputs
    ]


def test_inspect_samples_join_by_input_where_ids_are_shuffled(tmp_path):
    inspect_log(tmp_path / "a.json", samples("1+1", "2+2", "same", "same"), model="A")
    inspect_log(tmp_path / "b.json", samples("2+2", "1+1", "same", "same"), model="B")
    table = read(tmp_path)
    assert table.items.tolist() == ["t/1", "t/2", "t/3", "t/4"]
    assert table.values.tolist() == [[1, 0, 0, 0]] * 2
    assert any("2 items were joined by content" in note for note in table.notes)
    assert read(tmp_path, join="id").values[1, :2].tolist() == [0, 1]


def test_inspect_samples_join_by_id_where_inputs_agree(tmp_path):
    long = "1" * 6000
    picture = [{"role": "user", "content": [{"type": "image"}, {"text": "1 what?"}]}]
    thin = [{"role": "user", "content": [{"text": "(Image)"}, {"text": "1 what?"}]}]
    full, cut = samples(long, "1", "1"), samples(long[:5117] + "...", "1", "1")
    full[1]["input"], cut[1]["input"] = picture, thin
    inspect_log(tmp_path / "a.json", full, model="A")
    inspect_log(tmp_path / "b.json", cut, model="B")
    table = read(tmp_path)
    assert table.items.tolist() == ["t/1", "t/2", "t/3"]
    assert table.observed is None
    assert not any("content" in note for note in table.notes)
