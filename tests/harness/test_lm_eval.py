"""The real lm-evaluation-harness with a dummy model.

Skipped where lm-eval is missing; `.ci/run` installs it.
"""

import contextlib
import json
import os
import shlex
import sys
from pathlib import Path

import pytest

import irtjax
from irtjax.harness.lm_eval import Rounds, markdown
from tests.cli.test_adapt import run
from tests.harness import newcomer
from tests.harness import toy_lm_eval as toy
from tests.harness.logs import TASKS, toy_fit

lm_eval = pytest.importorskip("lm_eval", reason="lm-eval is missing")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory) -> Path:
    # Nothing is loaded from another host.
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    os.environ["HF_HOME"] = str(tmp_path_factory.mktemp("hf"))
    toy.register()
    return toy.write_tasks(tmp_path_factory.mktemp("tasks"), TASKS)


def evaluate(tasks, folder, *, ability=0.5, model="org/new", samples=None, names=TASKS):
    """What the harness's own command does, without its index of all tasks."""
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    tracker = EvaluationTracker(output_path=str(folder))
    found = lm_eval.simple_evaluate(
        model="toy",
        model_args=f"model={model},ability={ability},tasks={tasks}",
        tasks=list(names if samples is None else samples),
        samples=samples,
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        evaluation_tracker=tracker,
        bootstrap_iters=10,
    )
    assert found is not None
    logged = found.pop("samples")
    tracker.save_results_aggregated(results=found, samples=logged)
    for name in logged:
        tracker.save_results_samples(task_name=name, samples=logged[name])
    return found


def right(tasks, item, ability=0.5, model="org/new"):
    task, number = item.split("/")
    line = (tasks / f"{task}.jsonl").read_text().splitlines()[int(number)]
    return int(toy.is_right(model, ability, json.loads(line)["question"]))


def test_rounds_of_the_real_harness(tmp_path, tasks):
    rounds = Rounds.begin(toy_fit(), tmp_path, round_size=4, num_items=10)
    rounds.step()
    while not rounds.over:
        file = rounds.logs.with_name("samples.json")
        evaluate(tasks, rounds.logs, samples=json.loads(file.read_text()))
        assert rounds.step()
    given = rounds.test.responses
    assert rounds.number == 3 and len(given) == 10 and rounds.model == "org/new"
    assert given == {item: right(tasks, item) for item in given}
    assert rounds.notes == ()
    line = rounds.table().splitlines()[2]
    assert line.startswith("|toy_math|      3|none  |     0|acc ")


def test_the_table_is_printed_as_the_harness_prints_it(tmp_path, tasks):
    from lm_eval.utils import make_table

    found = evaluate(tasks, tmp_path)
    rows = []
    for name in TASKS:
        numbers = found["results"][name]
        value, error = numbers["acc,none"], numbers["acc_stderr,none"]
        cells = ["3", "none", "0", "acc", "↑", f"{value:.4f}", "±", f"{error:.4f}"]
        rows.append([name, *cells])
    assert markdown(rows) == make_table(found).strip()


@pytest.mark.slow
def test_the_command_runs_the_harness_itself(tmp_path, tasks):
    fit = irtjax.save(toy_fit(), tmp_path / "fit")
    words = [sys.executable, toy.__file__, "--model", "toy", "--include_path", tasks]
    words += ["--model_args", f"model=org/new,ability=0.5,tasks={tasks}"]
    rules = ("--num-items", 6, "--round-size", 3, "--out", tmp_path / "out")
    program = shlex.join(map(str, words))
    # Its own output is not that of irtjax.
    with (tmp_path / "log").open("w") as file, redirected(file):
        done = run("adapt", fit, "--harness", "lm-eval", *rules, "--run", program)
    assert done.exit_code == 0, done.stderr
    assert "org/new: ability" in done.stdout and "from 6 items" in done.stdout
    found = Rounds.resume(toy_fit(), tmp_path / "out").test.responses
    assert found == {item: right(tasks, item) for item in found}


@contextlib.contextmanager
def redirected(file):
    """The output of child processes in a file."""
    saved = [os.dup(number) for number in (1, 2)]
    try:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        yield
    finally:
        for number, place in zip((1, 2), saved, strict=True):
            os.dup2(place, number)


@pytest.mark.slow
def test_the_three_commands_of_a_newcomer(tmp_path, tasks, monkeypatch):
    """Logs of the harness to a leaderboard, bad items and a subset of 50 items."""
    place = toy.write_tasks(tmp_path / "tasks", {"arith": newcomer.ITEMS})
    for name, row in newcomer.responses().items():
        # The toy model answers by this table.
        known = lambda model, ability, question, row=row: bool(
            row[int(question.split(" ")[1].rstrip(":"))]
        )
        monkeypatch.setattr(toy, "is_right", known)
        evaluate(place, tmp_path / "logs", model=name, names=["arith"])
    bad = [f"arith/{k}" for k in newcomer.BAD]
    newcomer.check_three_commands(tmp_path, bad)
    # The harness takes the file of the subset, and evaluates its items only.
    file = tmp_path / "subset" / "lm_eval_samples.json"
    chosen = json.loads(file.read_text())
    found = tmp_path / "subset-logs"
    evaluate(place, found, samples=chosen)
    table = irtjax.read(found)
    assert table.num_subjects == 1 and len(chosen["arith"]) == 50
    newcomer.check_score_of_subset(tmp_path, set(table.items.tolist()))
