"""The command line on files of other tools: `info` and the command that it prints."""

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from irtjax.cli.app import app

FIXTURES = Path(__file__).parent.parent / "fixtures"
TOOLS = [
    *("aider", "arena_hard", "bigcodebench", "braintrust", "deepeval", "evalscope"),
    *("harbor", "langfuse", "lmms_eval", "mlflow", "mteb", "promptfoo"),
    *("swe_bench_info", "terminal_bench", "wildbench"),
]


def run(*words):
    return CliRunner().invoke(app, [*map(str, words)], prog_name="irtjax")


@pytest.mark.parametrize("tool", TOOLS)
def test_the_command_that_info_prints_reads_the_same(tool, monkeypatch):
    monkeypatch.chdir(FIXTURES)
    result = run("info", tool, "--json")
    assert result.exit_code == 0, result.stderr or result.exception
    facts = json.loads(result.stdout)
    assert "command" not in facts  # Nothing is left to choose.
    assert facts["num_subjects"] == 2
    assert facts["num_items"] == 3
    if "usual" in facts:
        _, command, *rest = shlex.split(facts["usual"])
        assert command == "fit"
        again = run("info", *rest[: rest.index("--out")], "--json")
        assert again.exit_code == 0, again.stderr
        assert json.loads(again.stdout)["data_hash"] == facts["data_hash"]


@pytest.mark.parametrize(
    ("case", "metric", "mean"),
    [("C18", "correctness", 0.625), ("C51", "exact_match/v1", 0.68)],
)
def test_options_that_people_give(shared_cases, case, metric, mean):
    result = run("info", shared_cases / case, "--metric", metric, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["mean"] == pytest.approx(mean)
    bad = run("info", shared_cases / case, "--metric", "none of these")
    assert bad.exit_code == 2
    assert metric in bad.stderr


def test_columns_of_langfuse_by_option(shared_cases):
    path = shared_cases / "C18" / "scores_export.csv"
    named = ["--subject", "datasetRunName", "--item", "datasetItemId"]
    options = [*named, "--response", "value", "--metric", "correctness", "--json"]
    result = run("info", path, *options)
    assert result.exit_code == 0, result.stderr
    facts = json.loads(result.stdout)
    assert (facts["num_subjects"], facts["num_items"]) == (6, 20)
