"""Logs of HELM, lighteval, OpenCompass, EvalPlus, SWE-bench and others.

Each fixture has two models or more; expected values are written out.
"""

import json
import shutil
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from irtjax.cli.app import app
from irtjax.data import read
from irtjax.data.formats import LOGS, evalplus, irw, lighteval
from irtjax.data.reading.recognise import identify
from tests.reading_cases import refused

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The fixtures under the names that the tools give them."""
    root = tmp_path_factory.mktemp("logs")
    for path in FIXTURES.rglob("*"):
        if path.is_file():
            target = root / unquote(str(path.relative_to(FIXTURES)))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return root


def cells(table):
    """Responses by subject, each by item; None where missing."""
    rows = {}
    for row, subject in enumerate(table.subjects.tolist()):
        seen = table.observed
        rows[subject] = {
            item: float(table.values[row, k]) if seen is None or seen[row, k] else None
            for k, item in enumerate(table.items.tolist())
        }
    return rows


def noted(table, text):
    return any(text in note for note in table.notes)


ANATOMY = [f"mmlu:subject=anatomy/id{k}" for k in (10, 11, 12, 13)]


@pytest.mark.parametrize(
    ("folder", "options", "items", "rows"),
    [
        (
            "helm",
            {},
            ANATOMY,
            {"toyorg/toy-1b": [1, 0, 0, 1], "toyorg/toy-7b": [1, 1, 0, 1]},
        ),
        (
            "lighteval",
            {},
            ["gsm8k|0/0", "gsm8k|0/1", "gsm8k|0/2"],
            {"toyorg/toy-1b": [1, 0, 0], "toyorg/toy-7b": [1, 1, 0]},
        ),
        (  # Rows of the second file are in another order.
            "lighteval_old",
            {},
            ["gsm8k|0/0", "gsm8k|0/1", "gsm8k|0/2"],
            {"toyorg/toy-1b": [1, 0, 0], "toyorg/toy-7b": [1, 1, 0]},
        ),
        (
            "open_llm_v1",
            {},
            ["hendrycksTest-anatomy|5/0", "hendrycksTest-anatomy|5/1"],
            {"toyorg/toy-1b": [1, 0], "toyorg/toy-7b": [1, 1]},
        ),
        (
            "opencompass",
            {},
            ["gsm8k/0", "gsm8k/1", "gsm8k/2"],
            {"toy-1b": [1, 0, 0], "toy-7b": [1, 1, 0]},
        ),
        (  # Two seeds of one model.
            "nemo_skills",
            {},
            ["aime24/a-0", "aime24/a-1", "aime24/a-2"],
            {"toy-1b": [2, 0, 1], "toy-7b": [1, 1, 0]},
        ),
        (  # Plus needs both tests; a completion without plus tests is missing.
            "evalplus",
            {"trials": "mean"},
            ["HumanEval/0", "HumanEval/1"],
            {"toyorg/toy-1b": [0.5, 0], "toyorg/toy-7b": [1, 0]},
        ),
        (
            "evalplus",
            {"trials": "mean", "metric": "base"},
            ["HumanEval/0", "HumanEval/1"],
            {"toyorg/toy-1b": [1, 0.5], "toyorg/toy-7b": [1, 0.5]},
        ),
        (
            "alpaca_eval",
            {},
            ["helpful_base/22bffdcc", "koala/9965e7c0", "koala/aedfe145"],
            {"toy-1b": [0.3421, 0.5, None], "toy-7b": [0.9, 0.5, 0.2]},
        ),
        (  # An empty patch is wrong, an error missing, a task not submitted absent.
            "swe_bench",
            {},
            [f"swe_bench/toy__repo-{k}" for k in (1, 2, 3, 4, 5)],
            {
                "toyorg/toy-1b": [1, 0, 0, None, 0],
                "toyorg/toy-7b": [1, 1, 0, None, None],
                "toyorg/toy-70b": [1, 1, 0, None, None],
            },
        ),
        (
            "swe_bench_board",
            {},
            [f"swe_bench_lite/toy__repo-{k}" for k in (1, 2, 3)],
            {"20260301_alpha": [1, 0, 0], "20260401_beta": [1, 1, 0]},
        ),
        (  # One of two trials failed, and counts for nothing.
            "tau_bench",
            {"trials": "mean"},
            ["retail/0", "retail/1", "retail/2"],
            {"toy-1b": [0.5, 0, 0], "toy-7b": [1, 0.5, 0]},
        ),
        (
            "tau2_bench",
            {},
            ["airline/0", "airline/1", "airline/2"],
            {"toyorg/toy-1b": [1, 0, None], "toyorg/toy-7b": [1, 1, 0]},
        ),
        (
            "livecodebench",
            {"trials": "counts"},
            ["codegeneration/q0", "codegeneration/q1", "codegeneration/q2"],
            {"toy-1b": [1, 0, 2], "toy-7b": [2, 1, 2]},
        ),
        (
            "eee_turns",
            {},
            [f"toy_{kind}/{k}" for kind in ("multi_turn", "agentic") for k in (0, 1)],
            {"toyorg/toy-1b": [1, 0, 0.5, 0], "toyorg/toy-7b": [1, 1, 1, 0.25]},
        ),
        (  # Items of two benchmarks have the same name in their sources.
            "measurement_db",
            {},
            ["alpha/q1", "alpha/q2", "beta/q1", "beta/q2"],
            {
                "Toy 1B": [1, 0, 0, 0],
                "Toy 7B": [1, 1, 1, 0],
                "Toy 7B (loop)": [1, None, None, None],
            },
        ),
    ],
)
def test_a_folder_of_logs(logs, folder, options, items, rows):
    table = read(logs / folder, **options)
    found = cells(table)
    assert list(table.items) == items
    assert found.keys() == rows.keys()
    for subject, row in rows.items():
        assert list(found[subject].values()) == pytest.approx(row), subject
    assert {name.split("/")[0] for name in items} == set(table.benchmarks.tolist())


@pytest.mark.parametrize("name", sorted(LOGS))
def test_every_format_has_a_fixture_that_is_recognised(logs, name):
    folder = "eee" if name == "every_eval_ever" else name
    files = [path for path in (logs / folder).rglob("*") if path.is_file()]
    assert name in {identify(path).format for path in files}


def lengths_of(table):
    assert table.lengths is not None
    return table.lengths.tolist()


def test_lengths_are_tokens_of_the_response(logs):
    assert lengths_of(read(logs / "helm")) == [[2, 3, 4, 5], [2, 3, 4, 5]]
    assert lengths_of(read(logs / "lighteval")) == [[2, 3, 4], [5, 6, 7]]
    # Those of the agent, not of the simulated user.
    assert lengths_of(read(logs / "tau2_bench"))[1] == [10, 20, 30]
    assert read(logs / "alpaca_eval").lengths is None


def test_usual_metrics_are_noted(logs):
    assert noted(read(logs / "helm"), "exact_match, not quasi_exact_match")
    assert noted(read(logs / "open_llm_v1"), "acc, not acc_norm")
    assert read(logs / "helm", metric="quasi_exact_match").values.all()


def test_texts_travel_with_the_items(logs):
    def texts(folder, **options):
        return read(logs / folder, **options).item_texts

    assert texts("helm")[ANATOMY[0]][:2] == ("toy?", "a")
    assert texts("lighteval")["gsm8k|0/1"][:2] == ("toy 1?", "12")
    assert texts("lighteval_old")["gsm8k|0/1"][:2] == ("toy 1?", "12")
    assert texts("opencompass")["gsm8k/0"][:2] == ("toy?", "12")
    assert texts("livecodebench", trials="first")["codegeneration/q0"].prompt == "toy"
    assert texts("alpaca_eval")["koala/9965e7c0"].prompt == "count to two"
    assert texts("measurement_db")["beta/q1"][:2] == ("What is i3?", "3")
    for folder in ("helm", "lighteval", "alpaca_eval", "measurement_db"):
        assert not texts(folder, texts=False)


# HELM


def copy_of(logs, folder, tmp_path):
    shutil.copytree(logs / folder, tmp_path / folder)
    return tmp_path / folder


def helm_run(logs, tmp_path):
    """The runs of both models, and the folder of the first."""
    root = copy_of(logs, "helm", tmp_path)
    return root, sorted((root / "runs" / "toy-suite").iterdir())[0]


def test_helm_leaves_perturbed_instances_out(logs):
    table = read(logs / "helm")
    assert noted(table, "2 scores of perturbed instances (typos) were left out")


def test_helm_predictions_serve_without_statistics(logs, tmp_path):
    root, _ = helm_run(logs, tmp_path)
    for path in root.rglob("per_instance_stats.json"):
        path.unlink()
    assert cells(read(root)) == cells(read(logs / "helm"))


def test_helm_names_come_from_the_folder_without_a_specification(logs, tmp_path):
    root, run = helm_run(logs, tmp_path)
    for path in root.rglob("run_spec.json"):
        path.unlink()
    assert cells(read(root)) == cells(read(logs / "helm"))
    run = run.rename(run.parent / "renamed")
    message = refused(run / "per_instance_stats.json")
    assert "names no model" in message
    assert "subject_name=" in message
    named = read(run / "per_instance_stats.json", subject_name="m")
    assert named.subjects.tolist() == ["m"]


def test_helm_main_metric_is_that_of_the_schema(logs, tmp_path):
    root, _ = helm_run(logs, tmp_path)
    group = {"name": "mmlu", "environment": {"main_name": "quasi_exact_match"}}
    schema = {"metric_groups": [], "run_groups": [group, {"name": "core"}]}
    (root / "runs" / "toy-suite" / "schema.json").write_text(json.dumps(schema))
    table = read(root)
    assert table.metric == "quasi_exact_match"
    assert table.values.all()


def test_helm_main_metric_is_that_of_the_latest_release(logs, tmp_path, monkeypatch):
    root, run = helm_run(logs, tmp_path)
    for release, metric in (("v1.10.0", "quasi_exact_match"), ("v1.9.0", "f1_score")):
        group = {"name": "mmlu", "environment": {"main_name": metric}}
        folder = root / "releases" / release
        folder.mkdir(parents=True)
        (folder / "schema.json").write_text(json.dumps({"run_groups": [group]}))
    assert read(root / "runs").metric == "quasi_exact_match"
    # From within the folder of a run, and not from folders that HELM did not make.
    monkeypatch.chdir(run)
    assert read(".").metric == "quasi_exact_match"
    (root / "runs").rename(root / "other")
    assert read(root / "other").metric == "exact_match"


def test_helm_runs_of_several_suites(logs, tmp_path):
    root, _ = helm_run(logs, tmp_path)
    (root / "runs" / "toy-suite").rename(root / "runs" / "v1.9.0")
    shutil.copytree(root / "runs" / "v1.9.0", root / "runs" / "v1.10.0")
    for path in (root / "runs" / "v1.10.0").rglob("per_instance_stats.json"):
        path.write_text(path.read_text().replace('"mean": 1.0', '"mean": 0.0'))
    table = read(root)
    assert not table.values.any()
    assert noted(table, "the latest run was taken")


def test_helm_runs_that_asked_in_two_ways_need_a_choice(logs, tmp_path):
    root, run = helm_run(logs, tmp_path)
    other = run.parent / f"{run.name},stop=hash"
    shutil.copytree(run, other)
    (other / "run_spec.json").unlink()
    message = refused(root)
    assert "several filters on benchmark 'mmlu:subject=anatomy'" in message
    assert "stop:hash" in message


def test_helm_statistics_without_a_count_are_missing(logs, tmp_path):
    root, run = helm_run(logs, tmp_path)
    path = run / "per_instance_stats.json"
    entries = json.loads(path.read_text())
    entries[0]["stats"][0] |= {"count": 0, "mean": 0.0}
    entries[1]["stats"][0] = {"name": {"name": "exact_match"}, "count": 2, "sum": 1.0}
    path.write_text(json.dumps(entries))
    row = cells(read(root))["toyorg/toy-1b"]
    assert row[ANATOMY[0]] is None
    assert row[ANATOMY[1]] == 0.5


# The others


def test_lighteval_in_other_spellings(tmp_path):
    rows = {
        "__doc__": [{"query": "a?"}, {"query": "b?"}],
        "__metric__": ["{'em': 1.0}", "{'em': 0.0}"],
        "__model_response__": [{"text": ["x", "y"], "output_tokens": [[1], [2]]}] * 2,
    }
    path = tmp_path / "org__m" / "details_t|5_2026-03-01T10-20-30.1.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table(rows), path)
    table = read(path)
    assert table.subjects.tolist() == ["org/m"]
    assert cells(table) == {"org/m": {"t|5/0": 1, "t|5/1": 0}}
    assert table.lengths is None  # of two responses


@pytest.mark.parametrize(
    ("folder", "model"),
    [
        ("details/gpt2/{}", "gpt2"),
        ("details/one/org/m/{}", "one/org/m"),
        ("details/other/org/m/{}", "other/org/m"),
        ("details/org/m", "org/m"),
        ("details/one/org/m", "one/org/m"),
        ("details/org__m", "org/m"),
        ("mine/org__m", "org/m"),
        ("details_org__m_private/{}", "org/m"),
    ],
)
def test_lighteval_model_has_any_number_of_parts(folder, model):
    date = "2026-03-01T10-20-30.123456"
    place = Path("/logs") / folder.format(date)
    assert lighteval.subject_of(place / f"details_t|5_{date}.parquet") == model


def test_lighteval_rows_of_texts_join_rows_of_lists(tmp_path):
    """lighteval 0.3 writes all columns as texts where one of them has mixed types."""
    open_ = {"example": "a?", "gold": ["12"], "choices": [""], "cont_tokens": [[1, 2]]}
    choice = {
        "example": "b?",
        "gold": [""],
        "choices": ["x", "y"],
        "cont_tokens": [[1]],
    }
    rows = [
        {"full_prompt": "", "metrics": {"em": 1.0}, **row} for row in (open_, choice)
    ]
    for model, kind in (("m", lambda x: x), ("n", str)):
        path = (
            tmp_path / f"details/org/{model}/details_t|5_2024-03-01T10-20-30.1.parquet"
        )
        path.parent.mkdir(parents=True)
        table = [{name: kind(value) for name, value in row.items()} for row in rows]
        pq.write_table(pa.Table.from_pylist(table), path)
    table = read(tmp_path)
    assert cells(table) == dict.fromkeys(["org/m", "org/n"], {"t|5/0": 1, "t|5/1": 1})
    assert table.lengths.tolist() == [[2, 1], [2, 1]]


def test_opencompass_details_without_verdicts(logs, tmp_path):
    root = copy_of(logs, "opencompass", tmp_path)
    example = {"prompt": "p", "origin_prediction": "x", "predictions": "A"}
    details = {"type": "GEN", "0": example | {"references": "B"}}
    path = next(root.rglob("results/toy-1b")) / "gen.json"
    path.write_text(json.dumps({"score": 50.0, "details": details}))
    assert "holds details of OpenCompass without verdicts" in refused(path)
    assert set(read(root, trials="mean").benchmarks) == {"gsm8k"}


def test_opencompass_runs_are_repeats_and_gaps_are_missing(tmp_path):
    path = tmp_path / "results" / "m" / "toy.json"
    path.parent.mkdir(parents=True)
    details = [
        {"example_abbr": "toy_7", "correct": [True, False]},
        {"example_abbr": "toy_8", "cascade_correct": True},
        {"example_abbr": "toy_9", "pred": ["?"]},
    ]
    path.write_text(json.dumps({"accuracy": 50.0, "details": details}))
    table = read(path, trials="mean")
    assert cells(table) == {"m": {"toy/7": 0.5, "toy/8": 1, "toy/9": None}}
    assert noted(table, "1 example without a verdict is missing")


def test_evalplus_without_plus_tests(logs, tmp_path):
    root = copy_of(logs, "evalplus", tmp_path)
    path = next(root.glob("*toy-1b*"))
    text = path.read_text()
    for status in ("pass", "fail"):
        text = text.replace(f'"plus_status": "{status}"', '"plus_status": null')
    path.write_text(text)
    both = read(root, trials="first")
    assert (both.num_subjects, both.metric) == (2, "base")
    table = read(root, trials="first", metric="plus")
    assert table.subjects.tolist() == ["toyorg/toy-7b"]
    assert noted(table, "toyorg/toy-1b ran with --base-only")
    assert read(path, trials="first").metric == "base"


@pytest.mark.parametrize("ending", ["-sanitized", ".raw", ".raw-sanitized"])
@pytest.mark.parametrize("name", ["{}_eval_results.json", "{}/eval_results.json"])
def test_evalplus_sanitized_completions_are_no_other_model(tmp_path, ending, name):
    for stem, status in (("", "fail"), (ending, "pass")):
        path = tmp_path / name.format(f"org--m_hf_temp_0.8{stem}")
        path.parent.mkdir(exist_ok=True)
        done = {"base_status": status, "plus_status": status}
        file = {"date": "", "hash": "h", "eval": {"HumanEval/0": [done]}}
        path.write_text(json.dumps(file))
    for stem, score in (("", 0), (ending, 1)):
        table = read(tmp_path, filter=f"hf_temp_0.8{stem}")
        assert cells(table) == {"org/m": {"HumanEval/0": score}}


def test_alpaca_eval_baselines_and_judges_are_not_mixed(logs, tmp_path):
    root = copy_of(logs, "alpaca_eval", tmp_path)
    path = next(root.glob("results/toy-1b/*/annotations.json"))
    old = path.with_name("old.json")
    old.write_text(path.read_text().replace("gpt4_1106_preview", "text_davinci_003"))
    message = refused(root)
    assert "several filters" in message
    assert "text_davinci_003" in message
    old.write_text(
        path.read_text().replace("weighted_alpaca_eval_gpt4_turbo", "claude")
    )
    assert read(root, metric="claude").subjects.tolist() == ["toy-1b"]


def test_swe_bench_runs_are_repeats(logs, tmp_path):
    root = copy_of(logs, "swe_bench", tmp_path)
    shutil.rmtree(root / "logs")
    report = root / "toyorg__toy-7b.run_1.json"
    shutil.copyfile(report, root / "toyorg__toy-7b.run_2.json")
    assert "trials='mean', 'first' or 'counts'" in refused(root, trials="error")
    assert read(root).kind == "counts"
    wrong = read(root, trials="first", missing_as="wrong")
    assert noted(wrong, "1 task whose evaluation ended in an error counts as wrong")
    assert wrong.observed is None
    # A file of the first layout has no list of unresolved tasks.
    fields = json.loads(report.read_text())
    del fields["unresolved_ids"], fields["completed_ids"]
    report.write_text(json.dumps(fields))
    row = cells(read(report))["toyorg/toy-7b"]
    assert list(row.values()) == [1, 1, 0]


def write_report(path, resolved, unresolved=(), **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {"resolved_ids": resolved, "unresolved_ids": [*unresolved], **more}
    path.write_text(json.dumps(fields))


def test_swe_bench_failures_of_the_machine_are_missing(tmp_path):
    """SWE-bench 5 names them; they are among the unresolved ones, too."""
    report = tmp_path / "org__m.run.json"
    write_report(report, ["a"], ["b", "c"], infra_failure_ids=["c"])
    assert cells(read(report)) == {
        "org/m": {"swe_bench/a": 1, "swe_bench/b": 0, "swe_bench/c": None}
    }
    fields = {"patch_exists": True, "resolved": False}
    for task, failed in (("b", False), ("c", True)):
        path = tmp_path / "logs/run_evaluation/run/org__m" / task / "report.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({task: {**fields, "infra_failure": failed}}))
    row = cells(read(tmp_path / "logs"))["org/m"]
    assert row == {"swe_bench/b": 0, "swe_bench/c": None}


def test_swe_bench_reports_of_one_name_are_all_read(tmp_path):
    """As of two data sets: SWE-bench names files by model and run alone."""
    write_report(tmp_path / "lite/org__m.run.json", ["a"], ["b"])
    write_report(tmp_path / "verified/org__m.run.json", ["c"], ["b"])
    row = {"swe_bench/a": 1, "swe_bench/b": 0, "swe_bench/c": 1}
    assert cells(read(tmp_path)) == {"org/m": row}
    write_report(tmp_path / "other/org__m.run.json", ["b"], ["a"])
    assert noted(read(tmp_path), "2 subject-item pairs had repeats")
    assert cells(read(tmp_path, trials="mean"))["org/m"]["swe_bench/b"] == 0.5


def test_swe_bench_run_with_a_dot(tmp_path):
    write_report(tmp_path / "org__m.v1.0.json", ["a"], ["b"])
    path = tmp_path / "logs/run_evaluation/v1.0/org__m/b/report.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"b": {"patch_exists": True, "resolved": False}}))
    assert cells(read(tmp_path)) == {"org/m": {"swe_bench/a": 1, "swe_bench/b": 0}}


def test_swe_bench_report_of_the_service(tmp_path):
    path = tmp_path / "swe-bench_lite__dev__my.run.json"
    path.write_text(json.dumps({"resolved_ids": ["a"], "unresolved_ids": ["b"]}))
    assert cells(read(path)) == {
        "my.run": {"swe-bench_lite/a": 1, "swe-bench_lite/b": 0}
    }


POLICIES = {
    "airline": "# Airline Agent Policy\n\nThe current time is",
    "retail": "# Retail agent policy\n\nAs a retail agent",
}


def write_tau(folder, model, user, domain, rewards, time="0301102030", **more):
    """A file as `run.py` of tau-bench writes it: no name has the domain."""
    strategy = more.get("strategy", "tool-calling")
    temperature = more.get("temperature", "0.0")
    attempts = [
        {
            "task_id": k,
            "reward": reward,
            "info": {
                "task": {"user_id": "u", "actions": [], "instruction": f"ask {k}"},
                "source": "user",
                "user_cost": 0.1,
                "reward_info": None,
            },
            "traj": [
                {"role": "system", "content": POLICIES[domain]},
                {"role": "user", "content": "hi"},
            ],
            "trial": 0,
        }
        for k, reward in enumerate(rewards)
    ]
    # A call that failed has no conversation.
    attempts[0] |= {"info": {"error": "e", "traceback": "t"}, "traj": []}
    name = f"{strategy}-{model}-{temperature}_range_0--1_user-{user}-llm_{time}.json"
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(attempts, indent=2))


def test_tau_bench_domains_of_one_folder_stay_apart(tmp_path):
    for user in ("gpt-4o", "deepseek/v4"):  # The slash makes a folder.
        model = "m1" if user == "gpt-4o" else "m2"
        write_tau(tmp_path, model, user, "retail", [0.0, 1.0, 1.0])
        write_tau(tmp_path, model, user, "airline", [0.0, 0.0], time="0301112030")
    table = read(tmp_path, missing_as="wrong")
    assert (
        cells(table)["m1"]
        == cells(table)["m2"]
        == {
            "retail/0": 0,
            "retail/1": 1,
            "retail/2": 1,
            "airline/0": 0,
            "airline/1": 0,
        }
    )
    assert table.item_texts["retail/1"].prompt == "ask 1"


def test_tau_bench_runs_in_other_settings_are_not_repeats(tmp_path):
    write_tau(tmp_path, "m", "gpt-4o", "retail", [0.0, 1.0, 1.0])
    write_tau(tmp_path, "m", "gpt-4o", "retail", [0.0, 0.0, 0.0], temperature="0.7")
    write_tau(tmp_path, "m", "claude", "retail", [0.0, 1.0, 0.0], time="0401102030")
    message = refused(tmp_path)
    assert "temperature 0.7, user gpt-4o" in message
    assert "temperature 0.0, user claude" in message
    # The same settings on another day are repeats.
    repeats = tmp_path / "repeats"
    write_tau(repeats, "m", "gpt-4o", "retail", [0.0, 1.0, 1.0])
    write_tau(repeats, "m", "gpt-4o", "retail", [0.0, 0.0, 1.0], time="0401102030")
    assert cells(read(repeats, trials="mean"))["m"]["retail/1"] == 0.5


def test_tau2_bench_settings_and_texts(logs, tmp_path):
    content = json.loads((logs / "tau2_bench/toy-7b_airline.json").read_text())
    asked = {"domain": "airline", "reason_for_call": "cancel", "known_info": None}
    content["tasks"] = [{"id": "0", "user_scenario": {"instructions": asked}}]
    (tmp_path / "one.json").write_text(json.dumps(content))
    assert read(tmp_path).item_texts["airline/0"].prompt == (
        "domain: airline\nreason_for_call: cancel"
    )
    content["info"]["agent_info"] |= {
        "implementation": "llm_agent_solo",
        "llm_args": {"temperature": 0.0, "api_key": "secret"},
    }
    (tmp_path / "two.json").write_text(json.dumps(content))
    message = refused(tmp_path, trials="mean")
    assert "llm_agent_solo, temperature 0.0" in message
    assert "secret" not in message


def test_tau2_bench_folder_with_an_index(logs, tmp_path):
    content = json.loads((logs / "tau2_bench/toy-7b_airline.json").read_text())
    one = content.pop("simulations")
    index = [{"id": "s", "task_id": k, "trial": 0, "reward": 1.0 - k} for k in (0, 1)]
    content["simulation_index"] = index
    (tmp_path / "simulations").mkdir()
    (tmp_path / "simulations" / "s.json").write_text(json.dumps(one[0]))
    (tmp_path / "results.json").write_text(json.dumps(content))
    assert cells(read(tmp_path)) == {"toyorg/toy-7b": {"airline/0": 1, "airline/1": 0}}
    assert "give the results.json" in refused(tmp_path / "simulations" / "s.json")


def test_livecodebench_site_and_names_of_parts(tmp_path):
    site = tmp_path / "performances.json"
    rows = [
        {"question_id": "q", "model": m, "pass@1": p} for m, p in (("a", 10), ("b", 90))
    ]
    site.write_text(json.dumps({"performances": rows, "models": [], "date_marks": []}))
    table = read(site)
    assert table.metric == "pass@1"
    assert table.values.tolist() == [[10], [90]]
    path = tmp_path / "m" / "testoutputprediction_1_0.2_eval_all.json"
    path.parent.mkdir()
    parts = [
        {"question_id": "q", "test_id": k, "graded_list": [k == 0]} for k in (0, 1)
    ]
    path.write_text(json.dumps(parts))
    name = "testoutputprediction"
    assert cells(read(path)) == {"m": {f"{name}/q/0": 1, f"{name}/q/1": 0}}


def responses(path, conditions, benchmark="b"):
    """Two responses of one subject to one item under conditions."""
    size = len(conditions)
    columns = {
        "subject_id": ["s"] * size,
        "item_id": ["i"] * size,
        "benchmark_id": [benchmark] * size,
        "trial": [1] * size,
        "test_condition": pa.array(conditions, pa.string()),
        "interactors": pa.array([None] * size, pa.string()),
        "response": [float(k) for k in range(size)],
    }
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def test_measurement_db_conditions_need_a_choice(tmp_path):
    path = responses(tmp_path / "responses.parquet", ["temperature=0", None])
    message = refused(path)
    assert "several filters on benchmark 'b'" in message
    assert "temperature:0" in message
    assert cells(read(path, filter="temperature:0")) == {"s": {"b/i": 0}}
    assert cells(read(path, filter="none")) == {"s": {"b/i": 1}}


def test_measurement_db_notes(logs):
    table = read(logs / "measurement_db")
    assert noted(table, "conditions of responses (temperature:0, temperature:1) are")


def test_measurement_db_direction(tmp_path):
    responses(tmp_path / "responses.parquet", [None])
    scale = '{"kind":"interval","min":0,"max":1,"direction":"lower_is_better"}'
    columns = {"benchmark_id": ["b"], "response_type": ["x"], "response_scale": [scale]}
    pq.write_table(pa.table(columns), tmp_path / "benchmarks.parquet")
    table = read(tmp_path)
    assert noted(table, "lower b is better: scores are 1 - b")
    assert set(table.reversed_scores.values()) == {"1 - b"}


@pytest.mark.parametrize("name", ["_registry/items", "alpha/responses"])
def test_measurement_db_of_other_bytes_than_text(logs, tmp_path, name):
    folder = shutil.copytree(logs / "measurement_db", tmp_path / "bank")
    path = folder / f"{name}.parquet"
    table = pq.read_table(path)
    bad = pa.array([b"\xe9"] * table.num_rows, pa.binary()).view(pa.string())
    place = table.column_names.index("item_id")
    pq.write_table(table.set_column(place, "item_id", bad), path)
    with pytest.raises(ValueError, match=f"{path.name} is damaged.*UTF"):
        read(folder)
    pq.write_table(table, path, compression="none")
    path.write_bytes(path.read_bytes().replace(b"item_id", b"\xe9tem_id"))
    with pytest.raises(ValueError, match="is damaged.*utf-8|holds several kinds"):
        read(folder)


def test_measurement_db_of_schema_3(tmp_path):
    """Names, types and nulls of the public schema; the file's name on Hugging Face."""
    names = {"subject_id": ["s", "t"], "display_name": ["m", "n"]}
    pq.write_table(pa.table(names), tmp_path / "subjects.parquet")
    scale = {"kind": "interval", "min": 0, "max": 1, "direction": "lower_is_better"}
    criteria = [
        {"reference_answer": "4", "rule": None},
        {"reference_answer": None, "rule": "tests pass", "response_scale": scale},
    ]
    items = {
        "item_id": ["i", "j"],
        "benchmark_id": ["b"] * 2,
        "raw_item_id": ["q1", "q2"],
        "content": ["What is 2 + 2?", "Sort a list"],
        "grading_criterion": [json.dumps(x) for x in criteria],
        "verifier": ["{}"] * 2,
    }
    pq.write_table(pa.table(items), tmp_path / "items.parquet")
    known = {"benchmark_id": ["b", "other"], "response_type": ["mixed", "binary"]}
    scales = ['{"kind":"mixed"}', '{"kind":"discrete","direction":"lower_is_better"}']
    registry = {**known, "response_scale": scales}
    pq.write_table(pa.table(registry), tmp_path / "benchmarks.parquet")
    rows = {
        "subject_id": ["s", "s", "t", "t"],
        "item_id": ["i", "j"] * 2,
        "response_id": list("abcd"),
        "benchmark_id": ["b"] * 4,
        "trial": pa.array([1] * 4, pa.int64()),
        "test_condition": pa.nulls(4, pa.string()),
        "interactors": pa.nulls(4, pa.string()),
        "response": pa.array([1.0, 0.5, None, 0.0], pa.float64()),
    }
    pq.write_table(pa.table(rows), tmp_path / "response.parquet")
    table = read(tmp_path, texts=True)
    # An attempt without a grade is missing, not wrong.
    assert cells(table) == {
        "m": {"b/q1": 1, "b/q2": 0.5},
        "n": {"b/q1": None, "b/q2": 1},
    }
    assert table.item_texts["b/q1"].answer == "4"
    assert noted(table, "lower b is better: scores of 1 item are 1 - b")
    assert table.reversed_scores == {"b/q2": "1 - b"}
    assert not any("other" in note and "lower" in note for note in table.notes)
    scales[0] = '{"kind":"discrete","values":[0,1],"direction":"unordered"}'
    registry = {**known, "response_scale": scales}
    pq.write_table(pa.table(registry), tmp_path / "benchmarks.parquet")
    assert noted(read(tmp_path), "responses of b are categories without an order")


def test_a_table_in_the_columns_of_the_measurement_db_keeps_benchmarks_apart(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "subject_id,item_id,benchmark_id,trial,test_condition,response\n"
        "m,1,alpha,1,,1\nm,1,beta,1,,0\nn,1,alpha,1,,0\nn,1,beta,1,,0\n"
    )
    assert cells(read(path))["m"] == {"alpha/1": 1, "beta/1": 0}


def test_irw_items_without_a_family_and_occasions(tmp_path):
    """R writes NA, and tables name the occasion of a repeat in several ways."""
    path = tmp_path / "t.csv"
    path.write_text(
        "id,item,resp,timepoint,item_family,cov_age,itemcov_part,Qmatrix__a\n"
        "1,a,1,1,f,20,x,1\n1,b,0,1,f,20,x,0\n1,c,1,1,NA,20,y,1\n"
        "2,a,NA,1,f,21,x,1\n2,b,1,1,f,21,x,0\n2,c,0,1,NA,21,y,1\n"
        "2,c,1,2,NA,21,y,1\n"
    )
    assert noted(read(path), "had repeats by column 'timepoint' (1, 2)")
    table = read(path, epoch=1)
    assert cells(table) == {
        "1": {"a": 1, "b": 0, "c": 1},
        "2": {"a": None, "b": 1, "c": 0},
    }
    assert table.benchmarks.tolist() == ["f", "f", ""]


def test_irw_repeats_have_the_names_of_its_columns(tmp_path):
    for name in irw.REPEATS:
        path = tmp_path / f"{name}.csv"
        path.write_text(f"id,item,resp,{name}\n1,a,1,x\n1,a,0,y\n2,a,1,x\n2,a,1,y\n")
        assert noted(read(path), f"had repeats by column {name!r} (x, y)")
        assert cells(read(path, trials="mean")) == {"1": {"a": 0.5}, "2": {"a": 1}}


def test_irw_time_is_no_length(logs):
    table = read(logs / "wide" / "irw.csv")
    assert cells(table) == {"toy-1b": {"gsm8k_0": 1, "gsm8k_1": 0}}
    assert table.lengths is None
    assert noted(table, "column 'rt' is a time, not a length in tokens")
    asked = read(logs / "wide" / "irw.csv", length="rt")
    assert lengths_of(asked) == [[12.5, 40.1]]


@pytest.mark.parametrize(
    "path", sorted((FIXTURES / "arena").iterdir()), ids=lambda path: path.name
)
def test_battles_are_told_where_they_belong(path):
    message = refused(path)
    assert "holds battles (a row compares two models)" in message
    assert "irtjax arena" in message
    assert path.name in message


def test_frames_and_parquet_of_battles(logs, tmp_path):
    battles = pa.table({"Model_A": ["a"], "model_b": ["b"], "winner": ["tie"]})
    pq.write_table(battles, tmp_path / "t.parquet")
    for source in (battles, tmp_path / "t.parquet", logs / "wide" / "irw_comp.csv"):
        assert "holds battles" in refused(source)


# Folders, and files that are bad


def test_the_command_line_lists_what_there_is_to_choose(logs, monkeypatch):
    monkeypatch.chdir(logs)
    for folder, more, command in (
        ("helm", [], None),
        ("evalplus", [], None),
        (
            "evalplus",
            ["--trials", "error"],
            "irtjax fit evalplus --out calibrated",
        ),
    ):
        result = CliRunner().invoke(app, ["info", folder, *more, "--json"])
        document = json.loads(result.stdout)
        assert document.get("command") == command
        assert len(document["offers"]) == 2
        assert document["suggested_model"] == "rasch"  # Of two subjects.


def test_other_json_and_text_next_to_logs_is_not_read(logs):
    table = read(logs / "helm")
    assert noted(table, "other files in")
    assert read(logs / "opencompass").num_subjects == 2  # a summary in text
    assert read(logs / "swe_bench").num_subjects == 3  # the output of tests


def test_tables_next_to_logs_are_a_question(logs, tmp_path):
    root = copy_of(logs, "opencompass", tmp_path)
    (root / "more.csv").write_text("model,q1\nm,1\n")
    message = refused(root)
    assert "several kinds of files (csv, opencompass)" in message
    assert "read together" in message


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (
            "helm/runs/toy-suite/*1b/stats.json",
            "give the run's per_instance_stats.json",
        ),
        ("helm/runs/toy-suite/*1b/run_spec.json", "without scores by instance"),
        ("opencompass/*/*/*/predictions/toy-1b/gsm8k.json", "give the folder results"),
        ("alpaca_eval/results/toy-1b/model_outputs.json", "were not judged"),
        ("livecodebench/output/toy-1b/*_0.2.json", "without grades"),
        ("livecodebench/output/toy-1b/*_eval.json", "the totals of LiveCodeBench"),
        ("measurement_db/_registry/items.parquet", "give its responses.parquet"),
    ],
)
def test_a_file_without_responses_names_the_one_to_give(logs, path, part):
    assert part in refused(next(logs.glob(path)))


@pytest.mark.parametrize(
    ("fixture", "old", "new", "parts"),
    [
        (
            "helm/runs/toy-suite/*1b/per_instance_stats.json",
            '"count": 1',
            '"count": "one"',
            ["record 1: field 'stats[0].count' is text, not a number", "as HELM wrote"],
        ),
        (
            "helm/runs/toy-suite/*1b/per_instance_stats.json",
            '"train_trial_index": 0',
            '"train_trial_index": 99999999999999999999',
            ["train_trial_index"],
        ),
        (
            "opencompass/*/*/*/results/toy-1b/*.json",
            "true",
            '"yes"',
            [
                "field 'details[0].correct[0]' is text, not true or false",
                "as OpenCompass wrote",
            ],
        ),
        (
            "evalplus/*toy-1b*",
            '"base_status": "pass"',
            '"base_status": "crashed"',
            ["task 'HumanEval/0' has the status 'crashed'", "known are pass"],
        ),
        (
            "alpaca_eval/results/toy-1b/*/annotations.json",
            "1.3421",
            "13.421",
            ["record 1 has the preference 13.421", "not between 1"],
        ),
        (
            "swe_bench/toyorg__toy-1b.run_1.json",
            '"toy__repo-4"',
            "4",
            [
                "field 'submitted_ids[3]' is a whole number, not text",
                "as SWE-bench wrote",
            ],
        ),
        (
            "tau_bench/retail/*1b*",
            '"reward": 1.0',
            '"reward": "1"',
            ["record 1: field 'reward' is text, not a number or null"],
        ),
        (
            "tau2_bench/toy-1b_airline.json",
            '"task_id": "0"',
            '"task_id": [0]',
            ["field 'simulations[0].task_id'", "as tau2-bench wrote"],
        ),
        (
            "livecodebench/output/toy-1b/*eval_all.json",
            "true",
            '"true"',
            ["graded_list", "as LiveCodeBench wrote"],
        ),
    ],
)
def test_a_bad_field_is_one_line_with_its_place(
    logs, tmp_path, fixture, old, new, parts
):
    source = next(logs.glob(fixture))
    folder = tmp_path / source.parent.name
    folder.mkdir()
    path = folder / source.name
    text = source.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    message = refused(path, trials="mean")
    for part in [path.name, *parts]:
        assert part in message


def test_a_file_that_was_cut_off(logs, tmp_path):
    for fixture in ("evalplus/*toy-1b*", "tau2_bench/toy-1b*"):
        source = next(logs.glob(fixture))
        path = tmp_path / source.name
        path.write_bytes(source.read_bytes()[:300])
        assert "not valid JSON, or cut off" in refused(path)
    source = next((logs / "lighteval").rglob("*.parquet"))
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes()[:-50])
    assert "damaged or cut off" in refused(path)


@pytest.mark.parametrize(
    ("columns", "part"),
    [
        ({"metrics": [1.0]}, "row 1 has no metrics by name"),
        ({"metrics": ["{'em': "]}, "row 1 has no metrics by name"),
        ({"metrics": [{"em": [1.0, 2.0]}]}, "no sample has a score that is a number"),
    ],
)
def test_details_without_scores(tmp_path, columns, part):
    path = tmp_path / "details_t_2026-03-01T10-20-30.parquet"
    pq.write_table(pa.table({"example": ["a"], "full_prompt": ["a"], **columns}), path)
    assert part in refused(path)


def test_columns_of_one_name_and_text_that_is_none(tmp_path):
    columns = ["example", "full_prompt", "metrics", "metrics"]
    scores = pa.array([{"em": 1.0}])
    path = tmp_path / "details_t_2026-03-01T10-20-30.parquet"
    texts = pa.array(["a"])
    pq.write_table(pa.table([texts, texts, scores, scores], names=columns), path)
    assert "is no table of lighteval's details" in refused(path)
    broken = pa.array([b"\xe7x"]).cast(pa.binary()).view(pa.string())
    pq.write_table(pa.table([broken, texts, scores], names=columns[:3]), path)
    assert "text in it is not UTF-8" in refused(path)


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("e.eval_results.json", {"hash": "x", "eval": {}}, "no task has completions"),
        ("m.r.json", {"resolved_ids": []}, "no task was submitted"),
        ("r.json", {"details": {"0": {"correct": 1}, "size": 3}}, None),
        (
            "q_eval_all.json",
            [{"question_id": "q", "graded_list": []}],
            "no question has grades",
        ),
        (
            "results.json",
            {"info": {}, "tasks": [], "simulations": []},
            "there are no attempts",
        ),
    ],
)
def test_a_file_without_attempts(tmp_path, name, content, part):
    path = tmp_path / name
    path.write_text(json.dumps(content))
    if part is None:
        assert read(path).num_items == 1
    else:
        assert part in refused(path)


def test_the_second_leaderboard_has_logs_of_lm_eval(tmp_path):
    for model, right in (("org__a", (1.0, 0.0)), ("org__b", (1.0, 1.0))):
        folder = tmp_path / model
        folder.mkdir()
        rows = [
            {"doc_id": k, "doc": {}, "target": "0", "doc_hash": f"h{k}", "acc_norm": x}
            for k, x in enumerate(right)
        ]
        name = "samples_leaderboard_gpqa_main_2024-07-01T10-20-30.123456.json"
        (folder / name).write_text("\n".join(map(json.dumps, rows)))
    table = read(tmp_path)
    assert cells(table)["org/a"] == {
        "leaderboard_gpqa_main/0": 1,
        "leaderboard_gpqa_main/1": 0,
    }


# Files in a cache of Hugging Face, and links


@pytest.mark.parametrize("folder", ["open_llm_v1", "lighteval", "opencompass"])
def test_links_to_files_keep_the_names_of_their_folders(logs, folder, tmp_path):
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for k, path in enumerate(sorted((logs / folder).rglob("*"))):
        if path.is_file():
            link = tmp_path / "links" / path.relative_to(logs)
            link.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, blobs / str(k))
            link.symlink_to(blobs / str(k))
    assert cells(read(tmp_path / "links" / folder)) == cells(read(logs / folder))


def test_files_of_two_models_may_be_links_to_one(tmp_path):
    details = [{"example_abbr": "toy_1", "correct": True}]
    content = json.dumps({"accuracy": 100.0, "details": details})
    for model in "AB":
        (tmp_path / "results" / model).mkdir(parents=True)
    path = tmp_path / "results" / "A" / "toy.json"
    path.write_text(content)
    path.with_name("latest.json").symlink_to(path)  # A second name of the same.
    (tmp_path / "results" / "B" / "toy.json").symlink_to(path)
    assert cells(read(tmp_path / "results")) == {x: {"toy/1": 1} for x in "AB"}


def test_a_revision_in_a_cache_is_no_model(logs, tmp_path):
    for path in sorted((logs / "open_llm_v1").rglob("*.parquet")):
        names = path.relative_to(logs / "open_llm_v1").parts
        cache = tmp_path / f"datasets--board--{names[0]}"
        to = cache.joinpath("snapshots", "1f2e", *names[1:])
        for folder in (to.parent, cache / "blobs"):
            folder.mkdir(parents=True)
        shutil.copy(path, cache / "blobs" / "9a8b")
        to.symlink_to(cache / "blobs" / "9a8b")
    assert cells(read(tmp_path)) == cells(read(logs / "open_llm_v1"))


def test_lighteval_items_of_one_text_differ_in_their_choices(tmp_path):
    docs = [
        {"query": "Which?", "choices": ["a", "b"], "gold_index": 0},
        {"query": "Which?", "choices": ["c", "d"], "gold_index": 1},
    ]
    for model, order in (("A", [0, 1]), ("B", [1, 0])):
        rows = {
            "doc": [docs[k] for k in order],
            "metric": [{"acc": float(k)} for k in order],
            "model_response": [{"output_tokens": [[1]]}] * 2,
        }
        path = tmp_path / f"org__{model}" / "details_t|5_2026-03-01T10-20-30.1.parquet"
        path.parent.mkdir()
        pq.write_table(pa.table(rows), path)
    wanted = {"t|5/0": 0, "t|5/1": 1}
    assert cells(read(tmp_path)) == {"org/A": wanted, "org/B": wanted}


def test_measurement_db_conditions_of_one_label_are_one(tmp_path):
    path = responses(tmp_path / "responses.parquet", ["a=1", "a:1", "b"])
    table = read(path, filter="a:1", trials="counts")
    assert table.values.tolist() == [[1]]
    assert table.trials is not None
    assert table.trials.tolist() == [[2]]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("gpt-4_temp_0.0", "gpt-4"),
        ("my_coder_temp_0.8-contract-code", "my_coder"),
        ("my_coder_temp_0.0-sanitized", "my_coder"),
        ("org--my_coder_hf_gaudi_temp_0.0", "org/my_coder"),
        ("org--m_vllm_temp_1e-05", "org/m"),
    ],
)
def test_evalplus_model_of_a_name(name, model):
    assert evalplus.subject_of(Path(f"/logs/{name}_eval_results.json")) == model


def test_evalplus_of_the_first_releases(tmp_path):
    entry = {"nfiles": 1, "base": [["success", [True]]], "plus": [["failed", [False]]]}
    content = {"date": "x", "hash": "h", "eval": {"HumanEval/0": entry}}
    path = tmp_path / "m_temp_0.0_eval_results.json"
    path.write_text(json.dumps(content))
    assert read(path).values.tolist() == [[0]]
    assert read(path, metric="base").values.tolist() == [[1]]
    del entry["plus"]
    path.write_text(json.dumps(content))
    assert read(path).metric == "base"


@pytest.mark.parametrize(
    "header",
    [
        "Model Name,Question,Result",
        "model-name,Item ID,Verdict",
        "Model,task id,judgement",
        "llm,problem,Grade",
    ],
)
def test_columns_as_people_name_them(header, tmp_path):
    path = tmp_path / "sheet.csv"
    path.write_text(f"{header}\nm,a,PASS\nn,a,Fail\nm,b,incorrect\nn,b,Yes\n")
    table = read(path)
    assert table.subjects.tolist() == ["m", "n"]
    assert table.items.tolist() == ["a", "b"]
    assert table.values.tolist() == [[1, 0], [0, 1]]
    column = header.rpartition(",")[2]
    text = f"column '{column}' was read as the responses (response= names another)"
    assert text in table.notes
    assert text not in read(path, response=column).notes


@pytest.mark.parametrize(
    "header",
    [
        "model,problem_id,rating,solved",  # of the difficulty
        "model,problem_id,rating,status",
        "model,question_id,grade,is_right",  # of a school
        "model,question_id,result,match",  # the answer
        "id,question_id,result,seconds",  # one model, a row for each item
    ],
)
def test_a_column_that_may_be_something_else_is_to_be_chosen(header, tmp_path):
    path = tmp_path / "sheet.csv"
    path.write_text(f"{header}\nm,a,1200,1\nn,a,1200,0\n")
    with pytest.raises(ValueError, match="no column of responses; name it with resp"):
        read(path)
    subject, _, _, last = header.split(",")
    table = read(path, response=last, subject=subject, higher_is_better="*")
    assert table.values.tolist() == [[1], [0]]


def test_of_two_outcomes_one_is_to_be_chosen(tmp_path):
    path = tmp_path / "sheet.csv"
    path.write_text("model,item,result,grade\nm,a,pass,1\nn,a,fail,0\n")
    with pytest.raises(ValueError, match="name it with response= among: result, grade"):
        read(path)
    assert read(path, response="grade").values.tolist() == [[1], [0]]
    # Words that are no verdicts are refused with their place.
    path.write_text("model,item,result\nm,a,splendid\nn,a,fail\n")
    with pytest.raises(ValueError, match="row 1, column 'result'.*'splendid'"):
        read(path)
    # Another column has priority.
    path.write_text("model,item,result,score\nm,a,x,1\nn,a,y,0\n")
    assert read(path).values.tolist() == [[1], [0]]


@pytest.mark.parametrize("name", ["item_id", "Item ID"])
def test_an_index_of_items_may_have_spaces_in_its_name(name):
    index = pd.Index(["a", "b", "c"], name=name)
    table = read(pd.DataFrame({"m": [1, 0, 1], "n": [0, 0, 1]}, index=index))
    assert table.subjects.tolist() == ["m", "n"]
    assert table.items.tolist() == ["a", "b", "c"]
