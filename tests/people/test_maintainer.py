"""The maintainer of a leaderboard: many models, weekly additions, a smaller test."""

import csv
import resource

import numpy as np
import pytest

import irtjax
from irtjax.data.text_table import display_width
from tests.cli.test_cli import strict
from tests.people.person import check_short, said

MODELS, WEEKS = 60, 3
#: Seconds of processor time that a weekly addition may take, compiled.
ADD_SECONDS = 3.0


def write_week(folder, seed, models, items, begin=0):
    """A table of results with a row for each response; abilities by name."""
    rng = np.random.default_rng(seed)
    slope = np.exp(np.random.default_rng(1).normal(0, 0.3, items))
    level = np.random.default_rng(2).normal(0, 1.2, items)
    ability = np.linspace(2, -2, MODELS + 10)
    order = np.random.default_rng(3).permutation(MODELS + 10)
    folder.mkdir(parents=True, exist_ok=True)
    place, truth = folder / f"week{begin}.csv", {}
    with place.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["model", "item", "correct"])
        for k in range(begin, begin + models):
            name = f"lab-{k % 7}/model-{k}"
            p = 1 / (1 + np.exp(-(slope * ability[order[k]] + level)))
            truth[name] = p.mean()
            right = (rng.random(items) < p).astype(int).tolist()
            out.writerows([name, f"q{j}", x] for j, x in enumerate(right))
    return place, truth


def check_weeks(folder, out, truth, items, add_seconds=None):
    """Weekly additions to a fit of 60 models in the folder `out`, and its history."""
    assert (out / "report.html").stat().st_size < 500_000
    for week in range(WEEKS):
        size = 1 + week % 2
        new, more = write_week(folder / "new", 20 + week, size, items, len(truth))
        truth |= more
        before = resource.getrusage(resource.RUSAGE_SELF)
        text = said("add", new, "--to", out)
        after = resource.getrusage(resource.RUSAGE_SELF)
        spent = after.ru_utime - before.ru_utime
        # The first one compiles.
        if add_seconds is not None and week:
            assert spent < add_seconds, f"{spent:.1f} s"
        assert f"{size} new model" in text and "Traceback" not in text
    rows = strict(said("show", out, "--json"))["subjects"]
    assert len(rows) == len(truth) == MODELS + WEEKS + 1
    inside = [
        row["expected_score_lower"]
        <= truth[row["subject"]]
        <= row["expected_score_upper"]
        for row in rows
    ]
    # 95 % intervals of 64 models: fewer than 55 contain the truth in 1 of 1,000 runs.
    assert sum(inside) >= 55
    history = said("history", out)
    assert history.count("model added") + history.count("models added") == WEEKS
    # What changed is on the screen, of however many models.
    assert history.splitlines()[0].split()[-1] == "change"
    assert all(display_width(x) <= 80 for x in history.splitlines())
    irtjax.load(out)


@pytest.mark.slow
def test_weeks_of_a_leaderboard(tmp_path):
    first, truth = write_week(tmp_path / "logs", 10, MODELS, 300)
    out = tmp_path / "board"
    text = said("run", first, "--out", out)
    check_short(text, out)
    assert text.startswith(f"{MODELS} models · 300 items")
    assert "(49 more)" in text  # The first eight and the last three of 60.
    check_weeks(tmp_path, out, truth, 300)
    text = said("shrink", out, "--size", 40, "--out", tmp_path / "small")
    assert "40 items give the full score to ±." in text
    few = list(csv.DictReader((tmp_path / "small" / "subset.csv").open()))
    assert len(few) == 40
    new, truth = write_week(tmp_path / "last", 30, 1, 300, MODELS + 5)
    (row,) = strict(said("score", new, "--fit", tmp_path / "small", "--json"))[
        "subjects"
    ]
    ((_, true),) = truth.items()
    assert row["expected_score_lower"] < true < row["expected_score_upper"]


@pytest.mark.slow
def test_weeks_of_a_large_leaderboard(tmp_path):
    """60 models and 5,000 items: an addition in 3 seconds of processor time."""
    first, truth = write_week(tmp_path / "logs", 10, MODELS, 5_000)
    # Without the subset of `run`, whose five fits are minutes of its own test.
    said("fit", first, "--out", tmp_path / "board")
    check_weeks(tmp_path, tmp_path / "board", truth, 5_000, ADD_SECONDS)
