"""An evaluation engineer with logs of the real Inspect, three epochs of two tasks.

No option but paths. `.ci/run` installs inspect-ai.
"""

import csv
import json

import pytest

import irtjax
from tests.cli.test_cli import strict
from tests.people import inspect_world as harness
from tests.people import world
from tests.people.person import check_short, line_of, said

inspect_ai = pytest.importorskip("inspect_ai", reason="inspect-ai is missing")
pytestmark = pytest.mark.slow
FIRST, SECOND, *_ = world.MODELS


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder with logs, that of the run, and what it printed."""
    folder = tmp_path_factory.mktemp("inspect")
    for model in world.MODELS:
        harness.evaluate(folder / "logs", model)
    out = folder / "report"
    return folder, out, said("run", folder / "logs", "--out", out)


def rows_of(folder) -> dict[str, dict]:
    return {x["subject"]: x for x in strict(said("show", folder, "--json"))["subjects"]}


def truth(model: str) -> float:
    asked = harness.asked_questions()
    ability = {**world.MODELS, world.NEW: world.NEW_ABILITY}[model]
    return sum(world.expected(ability, x) for x in asked) / len(asked)


def named(model: str) -> str:
    return f"mockllm/{model}"


def test_the_run_has_the_right_answer_on_one_screen(made):
    _, out, text = made
    check_short(text, out)
    size = len(harness.asked_questions())
    assert text.startswith(f"10 models · {size} items · 2 tasks · complete")
    assert "llama-70b" in line_of(text, "First") or "qwen-72b" in line_of(text, "First")
    rows = rows_of(out)
    inside = [
        rows[named(name)]["expected_score_lower"]
        <= truth(name)
        <= rows[named(name)]["expected_score_upper"]
        for name in world.MODELS
    ]
    assert len(rows) == 10 and sum(inside) >= 8
    assert {row["observed"] for row in rows.values()} <= {size, 3 * size}
    line = said("compare", named(FIRST), named(SECOND), "--fit", out)
    assert line.startswith(f"{named(FIRST)} − ") and "tied" in line


def test_inspect_evaluates_the_subset_of_a_run(made):
    folder, out, _ = made
    check_subset(folder, out / "subset", 20)


def check_subset(folder, place, size):
    """Inspect evaluates the items of a subset, and their logs predict the score."""
    ids = json.loads((place / "inspect_samples.json").read_text())
    commands = (place / "inspect_samples.txt").read_text()
    for task, chosen in ids.items():
        assert task in commands and str(chosen[0]) in commands
    rows = csv.DictReader((place / "subset.csv").open())
    listed = {row["item"] for row in rows}
    logs = folder / f"{place.name}-logs"
    harness.evaluate(logs, world.NEW, ids=ids)
    assert {*irtjax.read(logs).items.tolist()} == listed and len(listed) == size
    found = strict(said("score", logs, "--fit", place, "--json"))["subjects"]
    (row,) = found
    low, high = row["expected_score_lower"], row["expected_score_upper"]
    assert low < truth(world.NEW) < high


def test_an_eleventh_model_is_ranked_and_stored(made):
    folder, out, _ = made
    logs = folder / "new-logs"
    harness.evaluate(logs, world.NEW)
    # That epochs are repeats is the one note.
    assert said("score", logs, "--fit", out).count("note:") == 1
    assert "1 new model of 11" in said("add", logs, "--to", out)
    row = rows_of(out)[named(world.NEW)]
    assert row["expected_score_lower"] < truth(world.NEW) < row["expected_score_upper"]
    assert row["tied_rank_lower"] <= 3 <= row["tied_rank_upper"]
    assert "1 model added" in said("history", out)
