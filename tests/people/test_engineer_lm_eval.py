"""An evaluation engineer with logs of the real lm-evaluation-harness of ten models.

A multiple-choice task with two wrong keys, a generative task with two filters, and a
task with three repeats and a vote. No option but paths. `.ci/run` installs lm-eval.
"""

import csv
import json

import pytest

from tests.cli.test_cli import run, strict
from tests.people import lm_eval_world as harness
from tests.people import world
from tests.people.person import check_short, line_of, said

lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is missing")
pytestmark = pytest.mark.slow
FIRST, SECOND, *_ = world.MODELS


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Logs of ten models, the tasks, the folder of the run, and what it printed."""
    folder = tmp_path_factory.mktemp("engineer")
    tasks = harness.write_tasks(folder / "tasks")
    for model in world.MODELS:
        harness.evaluate(tasks, folder / "logs", model)
    out = folder / "report"
    return folder, tasks, out, said("run", folder / "logs", "--out", out)


def rows_of(folder) -> dict[str, dict]:
    """The rows of the leaderboard by model."""
    return {x["subject"]: x for x in strict(said("show", folder, "--json"))["subjects"]}


def test_the_run_has_the_right_answer_on_one_screen(made):
    _, _, out, text = made
    check_short(text, out)
    assert text.startswith("10 models · 220 items · 3 tasks · complete")
    assert "llama-70b" in line_of(text, "First") and "share it" in text
    assert "math_sim is strict-match, vote_sim is score-first" in line_of(text, "Mind")
    # The expected scores of ten models are in their 95 % intervals, all but two: more
    # are outside in 1 of 90 such runs.
    rows = rows_of(out)
    inside = [
        row["expected_score_lower"]
        <= world.expected_score(name)
        <= row["expected_score_upper"]
        for name, row in rows.items()
    ]
    assert len(rows) == 10 and sum(inside) >= 8
    # Of models that are half a unit of ability apart, the order is right.
    for name, ability in world.MODELS.items():
        for other, less in world.MODELS.items():
            if ability - less >= 0.9:
                assert rows[name]["rank"] < rows[other]["rank"]
                assert rows[name]["tied_rank_upper"] < rows[other]["tied_rank_lower"]


def test_the_files_of_the_run_name_items_of_the_logs(made):
    _, _, out, _ = made
    names = {x.name: x for x in world.questions().values()}
    rows = list(csv.DictReader((out / "items_to_read.csv").open()))
    assert list(rows[0])[:5] == ["item", "answer", "count", "key", "p_value"]
    for row in rows:
        question = names[row["item"]]
        assert row["key"] == question.key and row["answer"] != question.key
    # The wrong key that able models disagree with is the first to be read. Of the
    # other one half of the models gave the answer that happens to be its key.
    assert rows[0]["item"] == f"mcq_sim/{world.WRONG_KEYS[1]}"
    assert (out / "report.html").stat().st_size < 500_000


def test_what_is_shown_and_pasted(made):
    _, _, out, text = made
    shown = said("show", out)
    assert shown[shown.index(" rank") :] == text[text.index(" rank") :]
    assert said("show", out, "--format", "md").count("\n|") == 11
    tables = said("show", out, "--format", "lm-eval")
    assert tables.count("|strict-match|") == 10 and tables.count("|acc_norm ") == 10
    line = said("compare", FIRST, SECOND, "--fit", out)
    assert line.startswith(f"{FIRST} − {SECOND}: score ") and "tied, P(better)" in line
    # By short names, and one that is better.
    assert (
        said("compare", "llama-70b", "pythia-6b", "--fit", out)
        .rstrip()
        .endswith(f"{FIRST} is better, P > .99")
    )
    assert "10 times" not in said("history", out)


def test_the_subset_runs_in_the_harness(made):
    folder, tasks, out, _ = made
    chosen = json.loads((out / "subset" / "lm_eval_samples.json").read_text())
    logs = folder / "subset-logs"
    harness.evaluate(tasks, logs, world.NEW, samples=chosen)
    listed = {
        row["item"] for row in csv.DictReader((out / "subset" / "subset.csv").open())
    }
    given = set()
    for path in logs.rglob("samples_*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            task = path.name.removeprefix("samples_").rsplit("_", 1)[0]
            given.add(f"{task}/{record['doc_id']}")
    assert given == listed and len(listed) == 50
    rows = strict(said("score", logs, "--fit", out / "subset", "--json"))["subjects"]
    (row,) = rows
    truth = world.expected_score(world.NEW)
    assert row["expected_score_lower"] < truth < row["expected_score_upper"]
    assert row["observed"] == 50
    assert "Traceback" not in said("score", logs, "--fit", out)


def test_an_eleventh_model_is_ranked_and_stored(made):
    folder, tasks, out, _ = made
    logs = folder / "new-logs"
    harness.evaluate(tasks, logs, world.NEW)
    text = said("score", logs, "--fit", out)
    # Notes that every user would see are not printed.
    assert "note:" not in text and len(text.splitlines()) <= 6
    before = rows_of(out)
    text = said("add", logs, "--to", out)
    assert "1 new model of 11" in text
    rows = rows_of(out)
    row = rows[world.NEW]
    truth = world.expected_score(world.NEW)
    assert row["expected_score_lower"] < truth < row["expected_score_upper"]
    # Simulated below the first two and above the third: it is in that place, or tied.
    assert row["tied_rank_lower"] <= 3 <= row["tied_rank_upper"] <= 5
    for name, old in before.items():
        assert rows[name]["expected_score"] == old["expected_score"]
    changes = said("history", out)
    assert f"1 model added ({world.NEW})" in changes
    assert line_of(said("show", out), "Read").startswith("Read ")
    again = said("add", logs, "--to", out)
    assert "1 model of these is in the fit already" in again
    refused = run("compare", "org/none", FIRST, "--fit", out)
    assert refused.exit_code == 2 and refused.stderr.count("\n") == 1
