"""Logs whose harness was stopped while it wrote: one line, and no subject lost."""

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app

FIXTURES = Path(__file__).parent.parent / "fixtures"
#: One log with responses of each format, and options that its folder needs.
LOGS = {
    "alpaca_eval/**/toy-1b/*/annotations.json": {},
    "eee/**/*_samples.jsonl": {},
    "evalplus/*1b*.json": {"trials": "mean"},
    "helm/**/*toy-1b/per_instance_stats.json": {},
    "inspect/*task_TaskToy1.eval": {},
    "lighteval/**/toy-1b/*/*.parquet": {},
    "lighteval_old/**/toy-1b/*/*.parquet": {},
    "livecodebench/**/toy-1b/*_eval_all.json": {"trials": "mean"},
    "lm_eval/**/*gsm8k*.jsonl": {"filter": "strict-match"},
    "measurement_db/alpha/responses.parquet": {"trials": "mean"},
    "open_llm_v1/**/*1b/*/*.parquet": {},
    "opencompass/**/results/toy-1b/*.json": {},
    "py_irt/*.jsonlines": {},
    "swe_bench/*1b.run_1.json": {},
    "swe_bench/**/toy__repo-3/report.json": {},
    "swe_bench_board/**/20260301_alpha/results/results.json": {},
    "tau2_bench/toy-1b_airline.json": {"trials": "mean"},
    "tau_bench/**/*toy-1b*.json": {"trials": "mean"},
}


def cut(tmp_path, pattern, share):
    """A folder of one format in which a log is cut off after a share of its bytes."""
    root = tmp_path / pattern.split("/")[0]
    shutil.copytree(FIXTURES / root.name, root)
    path = min(tmp_path.glob(pattern))
    content = path.read_bytes().rstrip()
    path.write_bytes(content[: int(share * (len(content) - 1))])
    return root, path


@pytest.mark.parametrize("share", [0, 0.15, 0.4, 0.6, 0.8, 1])
@pytest.mark.parametrize("pattern", LOGS)
def test_a_log_that_is_cut_off_is_named(tmp_path, pattern, share):
    root, path = cut(tmp_path, pattern, share)
    with pytest.raises(ValueError) as refusal:
        irtjax.read(root, **LOGS[pattern])
    message = str(refusal.value)
    assert path.name in message
    assert re.search("cut off|is empty|not valid JSON|cannot read", message), message
    assert "\n" not in message


@pytest.mark.parametrize("share", [0, 0.6])
def test_the_subject_of_a_log_that_is_cut_off_is_named(tmp_path, share):
    root, _ = cut(tmp_path, "tau_bench/**/*toy-1b*.json", share)
    cure = "leave_out='toy-1b' reads the others without its subject$"
    with pytest.raises(ValueError, match=cure):
        irtjax.read(root, trials="mean")
    others = irtjax.read(root, trials="mean", leave_out="toy-1b")
    assert others.subjects.tolist() == ["toy-7b"]


def test_other_files_that_are_damaged_are_told(tmp_path):
    root, path = cut(tmp_path, "alpaca_eval/**/toy-1b/model_outputs.json", 0.5)
    notes = irtjax.read(root).notes
    assert any(
        x.startswith("model_outputs.json was not read: it is not") for x in notes
    )
    second = min(root.glob("**/toy-7b/model_outputs.json"))
    second.write_bytes(b"")
    told = (
        "2 damaged or empty files were not read: model_outputs.json, model_outputs.js"
    )
    assert any(note.startswith(told) for note in irtjax.read(root).notes)


def test_empty_files_next_to_tables_are_told(tmp_path):
    (tmp_path / "a.csv").write_text("model,item,correct\nm,q1,1\nn,q1,0\n")
    (tmp_path / "b.csv").write_text("")
    (tmp_path / "c.txt").write_text("")  # No ending of data: as other files.
    found = CliRunner().invoke(app, ["info", str(tmp_path)])
    assert found.exit_code == 0, found.output
    text = " ".join(found.output.split())
    assert "b.csv was not read: it is empty" in text
    assert "1 other file in" in text


def test_a_log_that_ends_early_at_the_end_of_a_line(tmp_path):
    root = tmp_path / "lm_eval"
    shutil.copytree(FIXTURES / "lm_eval", root)
    path = min(root.glob("**/samples_gsm8k*"))
    whole = irtjax.read(path, filter="strict-match")
    assert not any("cut off" in note for note in whole.notes)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(x for x in lines if json.loads(x)["doc_id"] == 0))
    told = f"{whole.subjects[0]}: {path.name} has 1 of the 2 documents of its run: copy"
    assert any(told in x for x in irtjax.read(path, filter="strict-match").notes)
    # Another document is not the beginning of the log, but a subset.
    path.write_text("".join(x for x in lines if json.loads(x)["doc_id"] == 1))
    found = irtjax.read(path, filter="strict-match")
    assert not any("cut off" in note for note in found.notes)


def test_many_logs_that_end_early_have_one_note(tmp_path):
    old = min((FIXTURES / "lm_eval").glob("**/samples_gsm8k*"))
    results = min(old.parent.glob(f"results_{old.stem.split('_')[-1]}*"))
    name = irtjax.read(old, filter="strict-match").subjects[0]
    lines = old.read_text().splitlines(keepends=True)
    first = "".join(x for x in lines if json.loads(x)["doc_id"] == 0)
    for k in range(5):
        (tmp_path / f"m{k}").mkdir()
        text = results.read_text().replace(name, f"model-{k}")
        (tmp_path / f"m{k}" / results.name).write_text(text)
        (tmp_path / f"m{k}" / old.name).write_text(first)
    notes = irtjax.read(tmp_path, filter="strict-match").notes
    (note,) = (x for x in notes if "cut off" in x)
    assert note.startswith("5 logs have fewer documents than their runs: copy them")
    assert note.count("1 of the 2 documents") == 3 and note.endswith("and 2 more)")


def change(root, pattern, place, value):
    """Sets one field of the JSON value in a file of a copy of the fixtures."""
    path = min(root.glob(pattern))
    content = found = json.loads(path.read_text())
    for key in place[:-1]:
        found = found[key]
    found[place[-1]] = value
    path.write_text(json.dumps(content, indent=1))


@pytest.mark.parametrize(
    "pattern, place, value, told",
    [
        (
            "opencompass/**/20250301_102030/results/*/gsm8k.json",
            ("details", "1"),
            None,
            "gsm8k.json: field 'details.1' is no object; give the file as OpenCompass",
        ),
        (
            "swe_bench/**/toy__repo-3/report.json",
            ("toy__repo-3", "resolved"),
            "x",
            "report.json: field '[...].resolved' is text, not true or false or null;"
            " give the file as SWE-bench wrote it, or leave it out",
        ),
        (
            "swe_bench/toyorg__toy-1b.run_1.json",
            ("resolved_ids",),
            "x",
            "run_1.json: field 'resolved_ids' is text, not a list; give the file",
        ),
        (
            "swe_bench_board/**/20260301_alpha/results/results.json",
            ("no_generation",),
            3,
            "results.json: field 'no_generation' is a whole number, not a list; give",
        ),
        (
            "evalplus/*1b*.json",
            ("eval", "HumanEval/0", 0),
            {"x": 1},
            "no field 'base_status' in 'eval[...][0]'; give the file as EvalPlus wrote",
        ),
    ],
    ids=["opencompass", "swe task", "swe run", "swe board", "evalplus"],
)
def test_a_damaged_field_is_named(tmp_path, pattern, place, value, told):
    root = tmp_path / pattern.split("/")[0]
    shutil.copytree(FIXTURES / root.name, root)
    change(tmp_path, pattern, place, value)
    with pytest.raises(ValueError, match=re.escape(told)):
        irtjax.read(root, trials="mean")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("x", "text"),
        ({"a": 1}, "an object"),
        ([], "an empty list"),
        ([1, "x"], "a list with others than numbers"),
    ],
)
def test_a_score_of_lm_eval_that_is_no_number(tmp_path, value, kind):
    root = tmp_path / "lm_eval"
    shutil.copytree(FIXTURES / "lm_eval", root)
    path = min(root.glob("**/samples_arc_easy*"))
    lines = path.read_text().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), "acc_norm": value})
    path.write_text("\n" + "\n".join(lines))  # An empty line is a line, too.
    told = (
        f"{path}: line 3, field 'acc_norm': it is {kind}, not a number; the score is"
        " missing, as of 'acc_norm' in 1 record in all: write a number or null, or"
        " evaluate the task again"
    )
    assert told in irtjax.read(path).notes


def test_only_scores_of_lm_eval_that_are_no_numbers(tmp_path):
    fields = {"doc_id": 0, "doc": {}, "resps": [], "metrics": ["acc"], "acc": "x"}
    path = tmp_path / "samples_t_2026-01-01T00-00-00.jsonl"
    path.write_text(json.dumps(fields))
    told = "no record has a score that is a number; .*line 1, field 'acc': it is text"
    with pytest.raises(ValueError, match=told):
        irtjax.read(path)
