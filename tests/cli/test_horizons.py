"""`irtjax horizons`: horizons in human time, from files with a row for each run."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from irtjax.cli.app import app
from irtjax.cli.horizons import TABLES


def write_runs(path, names=("subject", "task", "minutes", "success", "released")):
    """Runs of three models on 60 tasks, which double their horizon twice."""
    rng = np.random.default_rng(0)
    minutes = 2 ** rng.uniform(0, 9, 60)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for model, horizon in enumerate((8, 32, 128)):
            for task, length in enumerate(minutes):
                right = rng.random(3) < 1 / (1 + length / horizon)
                row = [f"model {model}", f"task {task}", length]
                writer.writerows([*row, int(x), f"2024-0{model + 1}-01"] for x in right)
    return path


def run(*words, fails=False):
    """The result of `irtjax horizons`."""
    result = CliRunner().invoke(app, ["horizons", *map(str, words)])
    assert bool(result.exit_code) == fails, result.output
    return result


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A file of runs."""
    return write_runs(tmp_path_factory.mktemp("horizons") / "runs.csv")


def test_horizons_and_their_sensitivity_are_shown_and_written(file, tmp_path):
    out = tmp_path / "out"
    shown = run(file, "--date", "released", "--out", out).stdout
    assert "Horizons in minutes" in shown and "Ratio to the horizons above" in shown
    assert "model 2 has the longest 50 % horizon" in shown
    assert "horizons double every" in shown
    assert {path.name for path in out.iterdir()} == {*TABLES}
    rows = [*csv.DictReader((out / "horizons.csv").open())]
    assert [row["subject"] for row in rows] == ["model 2", "model 1", "model 0"]
    assert float(rows[0]["horizon_50_lower"]) < 128 < float(rows[0]["horizon_50_upper"])


def test_dates_may_be_in_a_table_of_their_own(file, tmp_path):
    dates = tmp_path / "dates.csv"
    dates.write_text(
        "subject,date\nmodel 0,2024-01-01\nmodel 1,2024-02-01\nmodel 2,2024-03-01\n"
    )
    found = json.loads(run(file, "--dates", dates, "--json").stdout)
    same = json.loads(run(file, "--date", "released", "--json").stdout)
    assert found["trend"] == same["trend"]
    assert found["trend"]["subjects"] == ["model 0", "model 1", "model 2"]
    # Twice two doublings in 60 days.
    assert 10 < found["trend"]["doubling_days"] < 25
    assert found["subjects"][0]["date"] == "2024-03-01"
    assert found["sensitivity"][0]["assumption"] == "chosen"
    dates.write_text("subject,date\nmodel 0,soon\n")
    result = run(file, "--dates", dates, fails=True)
    text = " ".join(result.output.split())
    assert "date 'soon' of 'model 0' is none: write it as 2024-05-13" in text


def test_columns_have_other_names(file, tmp_path):
    names = ("who", "what", "time", "ok", "released")
    other = write_runs(tmp_path / "other.csv", names)
    words = ["--subject", "who", "--task", "what", "--minutes", "time"]
    found = json.loads(run(other, *words, "--response", "ok", "--json").stdout)
    same = json.loads(run(file, "--json").stdout)
    assert found["subjects"] == same["subjects"] and found["trend"] is None
    text = run(other, "--json", fails=True).output
    assert "there is no column of subject, such as subject or alias" in text


def test_assumptions_are_options(file):
    words = [file, "--link", "probit", "--slope", "own", "--difficulty", "none"]
    found = json.loads(run(*words, "--weights", "tasks", "--json").stdout)
    first = found["sensitivity"][0]
    assert (first["link"], first["slope"]) == ("probit", "own")
    assert first["difficulty_sd"] == 0 and first["weights"] == "tasks"
    result = run(file, "--link", "cauchit", fails=True)
    assert "none of logit, probit, loglog" in " ".join(result.output.split())


def test_an_extreme_subject_has_a_bound(file, tmp_path):
    text = file.read_text().splitlines()
    first = [line for line in text if line.startswith("model 0")]
    best = [line.split(",") for line in first]
    lines = [",".join(["best", x[1], x[2], "1", x[4]]) for x in best]
    more = tmp_path / "more.csv"
    more.write_text("\n".join([*text, *lines]))
    found = json.loads(run(more, "--json").stdout)
    row = found["subjects"][0]
    assert row["subject"] == "best" and row["horizon_50"] is None
    assert row["horizon_50_lower"] > 128 and row["horizon_50_upper"] is None
    assert "best always succeeds: its horizon is at least" in found["warnings"][0]
