"""What a newcomer does with a folder of logs: three commands."""

import csv
from pathlib import Path

import numpy as np

from tests.cli.test_adapt import run
from tests.harness.logs import chance

MODELS, ITEMS = 30, 60
#: Items with a wrong answer key.
BAD = (20, 47)


def responses() -> dict[str, np.ndarray]:
    """Right and wrong responses of each model to all items."""
    rng = np.random.default_rng(3)
    ability = np.linspace(-2.2, 2.2, MODELS)[:, None]
    p = chance(ability, rng.normal(size=ITEMS))
    p[:, BAD] = 1 - chance(ability, 0.0)
    right = rng.random(p.shape) < p
    return {f"org/model-{k}": row for k, row in enumerate(right)}


def check_three_commands(folder: Path, bad: list[str]) -> None:
    """A leaderboard, the bad items, and a subset of 50, from the folder `logs`."""

    def ok(*args):
        result = run(*args)
        assert result.exit_code == 0, result.stderr or result.exception
        return result.stdout

    logs = folder / "logs"
    ok("fit", logs, "--out", folder / "calibrated")
    page = (folder / "calibrated" / "leaderboard.md").read_text()
    assert (folder / "calibrated" / "report.html").stat().st_size > 10_000
    place = {name: page.find(name + " ") for name in responses()}
    assert min(place.values()) > 0
    assert place["org/model-29"] < place["org/model-15"] < place["org/model-0"]
    ok("audit", logs, "--out", folder / "audit", "--no-figures")
    rows = list(csv.DictReader((folder / "audit" / "items.csv").open()))
    wrong = [row["item"] for row in rows if "suspected wrong key" in row["flags"]]
    assert sorted(wrong) == sorted(bad)
    ok("shrink", logs, "--size", 50, "--out", folder / "subset")
    rows = list(csv.DictReader((folder / "subset" / "subset.csv").open()))
    assert len({row["item"] for row in rows}) == 50


def check_score_of_subset(folder: Path, chosen: set[str]) -> None:
    """The harness ran these items of the subset: their logs predict the full score."""
    rows = list(csv.DictReader((folder / "subset" / "subset.csv").open()))
    assert chosen == {row["item"] for row in rows}
    result = run(
        *("score", folder / "subset-logs", "--fit", folder / "subset"),
        *("--out", folder / "scores.csv"),
    )
    assert result.exit_code == 0, result.stderr or result.exception
    (row,) = csv.DictReader((folder / "scores.csv").open())
    assert (
        0 < float(row["expected_score_lower"]) < float(row["expected_score_upper"]) < 1
    )
