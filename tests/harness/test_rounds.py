"""Adaptive tests in rounds of lm-evaluation-harness, with logs in its exact form."""

import dataclasses
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

import irtjax
from irtjax.cli.harness import HarnessOptions
from irtjax.cli.harness import _run as run_rounds_of
from irtjax.harness.estimate import estimate
from irtjax.harness.lm_eval import Rounds, documents, markdown
from tests.cli.test_adapt import run
from tests.harness.logs import NAMES, TASKS, right_of, toy_fit, write_logs


def samples(rounds: Rounds) -> dict[str, list[int]]:
    return json.loads(rounds.logs.with_name("samples.json").read_text())


def renamed() -> irtjax.Calibration:
    items = np.array([name.replace("toy", "real") for name in NAMES])
    labels = np.array([name.split("/")[0] for name in items.tolist()])
    return dataclasses.replace(toy_fit(), item_names=items, benchmarks=labels)


def answer(rounds: Rounds, **more) -> None:
    write_logs(samples(rounds), rounds.logs, **more)


def finish(rounds: Rounds, **more) -> Rounds:
    rounds.step()
    while not rounds.over:
        answer(rounds, **more)
        assert rounds.step()
    return rounds


def test_a_test_in_rounds_is_one_with_the_same_responses(tmp_path):
    rounds = Rounds.begin(toy_fit(), tmp_path, round_size=4, num_items=10)
    finish(rounds)
    assert rounds.number == 3 and rounds.model == "org/new"
    given = rounds.test.responses
    assert len(given) == 10
    assert given == {item: right_of("org/new", item) for item in given}
    # The harness's own test of the same length, one item at a time.
    one = irtjax.AdaptiveTest(toy_fit(), num_items=10)
    while (item := one.next_item()) is not None:
        one.record(item, right_of("org/new", item))
    # Rounds choose with less knowledge, but not by much.
    assert rounds.test.standard_error < 1.1 * one.standard_error


def test_each_round_resumes_in_a_new_process(tmp_path):
    whole = finish(Rounds.begin(toy_fit(), tmp_path / "a", round_size=3, num_items=9))
    Rounds.begin(toy_fit(), tmp_path / "b", round_size=3, num_items=9)
    for _ in range(4):
        rounds = Rounds.resume(toy_fit(), tmp_path / "b")
        rounds.step()
        # Again, before the logs are there: nothing changes.
        before = {p: p.read_bytes() for p in tmp_path.rglob("*.json")}
        assert not Rounds.resume(toy_fit(), tmp_path / "b").step()
        assert before == {p: p.read_bytes() for p in tmp_path.rglob("*.json")}
        if rounds.test.handed_out:
            answer(rounds)
    assert rounds.over and rounds.test.responses == whole.test.responses


@pytest.mark.parametrize("round", [1, 2])
def test_a_kill_between_two_files_loses_nothing(tmp_path, round):
    rounds = Rounds.begin(toy_fit(), tmp_path, round_size=3, num_items=9)
    for _ in range(round):
        state = (tmp_path / "adaptive.json").read_bytes()
        rounds.step()
        waiting = samples(rounds)
        answer(rounds)
    # The file of samples and the logs are there, the state is that before.
    (tmp_path / "adaptive.json").write_bytes(state)
    again = Rounds.resume(toy_fit(), tmp_path)
    again.step()
    assert {f"{t}/{k}" for t, ks in waiting.items() for k in ks} <= {
        *again.test.responses,
        *again.test.handed_out,
    }
    whole = finish(Rounds.begin(toy_fit(), tmp_path / "w", round_size=3, num_items=9))
    assert finish(again).test.responses == whole.test.responses


def test_the_command_names_the_tasks_of_the_file_alone(tmp_path):
    rounds = Rounds.begin(toy_fit(), tmp_path / "a b", round_size=1, num_items=2)
    assert rounds.command() == "" and rounds.step()
    (task,) = samples(rounds)
    assert rounds.command("lm_eval --model hf") == (
        f"lm_eval --model hf --tasks {task} --samples"
        f" '{tmp_path}/a b/round-1/samples.json' --output_path"
        f" '{tmp_path}/a b/round-1/logs' --log_samples"
    )
    answer(rounds)
    assert all(numbers == sorted(numbers) for numbers in samples(rounds).values())


def test_rounds_of_drawn_documents_have_the_score(tmp_path):
    rules = dict(round_size=6, num_items=12, select="score", key=0)
    rounds = finish(Rounds.begin(toy_fit(), tmp_path, **rules))
    score = rounds.test.score()
    assert rounds.test.num_given == score.answers == 12
    row = rounds.table().splitlines()[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    numbers = f"{score.score:.4f}", "±", f"{score.standard_error:.4f}"
    assert cells[4] == "score" and tuple(cells[6:]) == numbers


def test_documents_without_a_score_and_others(tmp_path):
    rounds = Rounds.begin(toy_fit(), tmp_path, round_size=4, num_items=6)
    rounds.step()
    first = rounds.test.handed_out
    # The whole of both tasks was evaluated; one document has no score.
    everything = {task: list(range(size)) for task, size in TASKS.items()}
    write_logs(everything, rounds.logs, without=(first[0],))
    rounds.step()
    assert rounds.test.skipped == (first[0],)
    assert set(rounds.test.responses) == set(first[1:])
    assert "16 documents were not asked for and are ignored" in rounds.notes
    assert any("acc_norm" in note for note in rounds.notes)
    # The next round asks for others, although their logs are there.
    assert len(rounds.test.handed_out) == 3 and rounds.number == 2


def test_documents_that_are_not_in_the_logs_are_asked_for_again(tmp_path):
    rounds = Rounds.begin(toy_fit(), tmp_path, round_size=4, num_items=8)
    rounds.step()
    asked = samples(rounds)
    task = next(iter(asked))
    write_logs({task: asked[task][:1]}, rounds.logs)
    lost = set(rounds.test.handed_out) - {f"{task}/{asked[task][0]}"}
    assert rounds.step()
    assert lost < set(rounds.test.handed_out) and len(rounds.test.handed_out) == 4


def test_other_models_and_other_scores_are_refused(tmp_path):
    rounds = Rounds.begin(toy_fit(), tmp_path, round_size=3)
    rounds.step()
    answer(rounds)
    rounds.step()
    answer(rounds, model="org/other")
    with pytest.raises(ValueError, match="those before are of 'org/new': give each"):
        Rounds.resume(toy_fit(), tmp_path).step()
    answer(rounds)
    with pytest.raises(ValueError, match=r"logs of several models \(org/new, org/o"):
        Rounds.resume(toy_fit(), tmp_path).step()
    with pytest.raises(ValueError, match="has a test already"):
        Rounds.begin(toy_fit(), tmp_path)
    with pytest.raises(ValueError, match="no item named 'toy_math/0' in the bank"):
        Rounds.resume(renamed(), tmp_path)
    (tmp_path / "harness.json").write_text('{"format": "x", "version": 1}')
    with pytest.raises(ValueError, match="harness.json: .*round_size"):
        Rounds.resume(toy_fit(), tmp_path)


def test_only_items_with_a_number_of_their_own_are_documents():
    class Fit:
        item_names = np.array(["a/0", "a/1", "a/1~0f3a", "b/x/7", "a/2#1", "a/x"])
        benchmarks = np.array(["a", "a", "a", "b/x", "a", "a"])

    assert documents(Fit()) == ({"a/0": ("a", 0), "b/x/7": ("b/x", 7)}, 4)
    with pytest.raises(ValueError, match="no item of the fit is a document of lm-eval"):
        documents(
            dataclasses.replace(toy_fit(), item_names=np.array(["q1"]), benchmarks=None)
        )


def test_the_estimate_is_that_of_the_posterior():
    """Against sums over a fine grid, written a second time."""
    fit = toy_fit()
    given = {name: right_of("m", name) for name in NAMES[::2]}
    found = estimate(fit, given, level=0.9)
    slope = np.asarray(fit.parameters.items.discrimination)
    intercept = np.asarray(fit.parameters.items.intercept)
    population = fit.parameters.population
    grid = np.linspace(-8, 8, 4001)
    p = 1 / (1 + np.exp(-(slope * grid[:, None] + intercept)))
    weight = -0.5 * ((grid - float(population.mean)) / float(population.sd)) ** 2
    for k, name in enumerate(NAMES):
        if name in given:
            weight += np.log(p[:, k] if given[name] else 1 - p[:, k])
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    mean = weight @ grid
    error = np.sqrt(weight @ (grid - mean) ** 2)
    assert found.ability.value == pytest.approx(mean, abs=1e-4)
    assert found.ability.standard_error == pytest.approx(error, rel=1e-3)
    sets = {None: slice(None), "toy_math": slice(0, 12), "toy_text": slice(12, 20)}
    for name, chosen in sets.items():
        number = found.score if name is None else found.benchmarks[name]
        curve = p[:, chosen].mean(1)
        score = weight @ curve
        # The posterior of ten responses is normal but for its skewness, about 0.1.
        assert number.value == pytest.approx(score, abs=2e-3)
        spread = np.sqrt(weight @ (curve - score) ** 2)
        assert number.standard_error == pytest.approx(spread, rel=0.02)
        assert number.lower < score < number.upper
    with pytest.raises(ValueError, match="no item named 'x'"):
        estimate(fit, {"x": 1})
    with pytest.raises(ValueError, match="the response 2 is not 0 or 1"):
        estimate(fit, {NAMES[0]: 2})


def test_the_table_is_in_the_form_of_the_harness(tmp_path):
    rounds = finish(Rounds.begin(toy_fit(), tmp_path, round_size=5, num_items=5))
    found = rounds.estimate()
    lines = [line.replace(" ", "") for line in rounds.table().splitlines()]
    math = found.benchmarks["toy_math"]
    assert lines[0] == "|Tasks|Version|Filter|n-shot|Metric||Value||Stderr|"
    value, error = f"{math.value:.4f}", f"{math.standard_error:.4f}"
    assert lines[2] == f"|toy_math|3|none|0|acc_norm|↑|{value}|±|{error}|"
    assert lines[4].startswith("|irtjax||||ability||")
    assert r"a\|b" in markdown([["a|b", *[""] * 8]])
    hostile = ["arc_easy", "<img src=x>\n\n# hi \x1b[31m", *[""] * 7]
    assert markdown([hostile]).splitlines()[2].split("|")[1:3] == [
        "arc_easy",
        r"&lt;img src=x&gt;\# hi \[31m",
    ]


# The command.


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return irtjax.save(toy_fit(), tmp_path_factory.mktemp("fits") / "fit")


def adapt(saved, out, *more):
    return run("adapt", saved, "--harness", "lm-eval", "--out", out, *more)


def test_the_command_goes_on_from_round_to_round(tmp_path, saved):
    rules = ("--num-items", 6, "--round-size", 3, "--metric", "acc_norm")
    first = adapt(saved, tmp_path, *rules)
    assert first.exit_code == 0, first.stderr
    assert "Round 1 has 3 items" in first.stdout
    assert "lm_eval --model MODEL --tasks" in first.stdout
    assert f"irtjax adapt {saved} --harness lm-eval --out {tmp_path}" in first.stdout
    for _ in range(2):
        rounds = Rounds.resume(toy_fit(), tmp_path)
        rounds.step()
        answer(rounds)
        shown = adapt(saved, tmp_path)
    assert "org/new: ability" in shown.stdout and "on all 20 items" in shown.stdout
    assert "Ended by: number of items." in shown.stdout
    table = (tmp_path / "table.md").read_text()
    assert table in shown.stdout and "|acc_norm|" in table
    assert len((tmp_path / "adapt.csv").read_text().splitlines()) == 7
    content = json.loads(adapt(saved, tmp_path, "--json", "--level", 0.8).stdout)
    want = Rounds.resume(toy_fit(), tmp_path).estimate(0.8)
    assert content["over"] and content["table"] == table.strip()
    assert content["ability"]["lower"] == pytest.approx(want.ability.lower)
    assert content["expected_score"]["value"] == pytest.approx(want.score.value)


def test_the_command_refuses_other_rules_and_options(tmp_path, saved):
    assert adapt(saved, tmp_path, "--num-items", 6, "--se", 0.5).exit_code == 0
    again = adapt(saved, tmp_path, "--num-items", 6)
    assert again.exit_code == 0
    for options, message in [
        (("--num-items", 7), "--num-items differs from that of the test"),
        (("--se", 0.4), "was begun with 0.5: leave it out"),
        (("--metric", "acc"), "--metric differs"),
        (("--round-size", 2), "--round-size differs"),
        (("--num-subjects", 3), "--num-subjects is for simulated tests"),
        (("--level", 95), "--level 95 is not between 0 and 1"),
    ]:
        result = adapt(saved, tmp_path, *options)
        assert result.exit_code == 2 and message in result.stderr, result.stderr
        assert result.stderr.count("\n") == 1
    for options, message in [
        (("--round-size", 2), "--round-size requires --harness"),
        (("--harness", "lm-eval"), "--harness requires --out DIR"),
        (("--harness", "helm", "--out", tmp_path), "--harness helm is not one of"),
    ]:
        result = run("adapt", saved, *options)
        assert result.exit_code == 2 and message in result.stderr, result.stderr


def test_runs_that_fail_or_leave_nothing_end_in_one_line(tmp_path, saved):
    for program, message in [
        ("false", "round 1 ended with exit status 1; repeat this command to go on"),
        ("true", "round 1 has left no sample logs in"),
        ("/no/such/program", "--run /no/such/program: No such file"),
    ]:
        result = adapt(saved, tmp_path, "--run", program)
        assert result.exit_code == 2 and message in result.stderr, result.stderr
    assert HarnessOptions(harness="lm-eval").given() == ["--harness"]


def test_a_run_without_the_documents_asked_for_ends(tmp_path, monkeypatch):
    rounds = Rounds.begin(toy_fit(), tmp_path, round_size=3)
    rounds.step()

    def evaluate(words):
        # Numbers of another version of the data set.
        asked = samples(rounds)
        shifted = {task: [k + 1000 for k in found] for task, found in asked.items()}
        write_logs(shifted, rounds.logs)
        assert rounds.number < 3
        return 0

    monkeypatch.setattr(subprocess, "call", evaluate)
    with pytest.raises(ValueError, match="round 1 returned none of its 3 documents"):
        run_rounds_of(rounds, "lm_eval")
