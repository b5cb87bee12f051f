"""The experiments on the AIMS book's models, at small sizes."""

import csv
import json
import re
import sys
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

import irtjax.models.priors
from experiments.aims import (
    book,
    factor_search,
    factors,
    fairness,
    few_subjects,
    figures,
    generalise,
    heterogeneity,
    item_clusters,
    reliability,
    short_tests,
    size_and_time,
    validity,
)
from irtjax.cli.app import app

PAGE = Path(figures.__file__).parent / "README.md"


def test_the_area_under_the_curve_counts_pairs():
    right, predicted = np.array([1, 0, 1, 0]), np.array([0.9, 0.8, 0.3, 0.1])
    assert factors.auc(right, predicted) == pytest.approx(3 / 4)


def test_the_adjusted_rand_index():
    first, second = np.array([0, 0, 1, 2]), np.array([0, 0, 1, 1])
    # One pair in both; 1 and 2 pairs in each, of 6: (1 - 1/3) / (3/2 - 1/3).
    assert item_clusters.adjusted_rand(first, second) == pytest.approx(4 / 7)
    assert item_clusters.adjusted_rand(first, first + 5) == pytest.approx(1)


def test_without_published_factors_a_table_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(factors, "SHARED", tmp_path)
    assert factors.called("k16") == "k16 (drawn, none published)"
    (tmp_path / "open_llm_5suite_k16.npz").touch()
    assert factors.called("k16") == "k16"


def test_clauses_name_commands_options_and_calls_that_exist():
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (A\d+) \| (.*)$", text, re.M)
    assert [name for name, _ in rows] == [f"A{k}" for k in range(1, 105)]
    commands = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    for name, row in rows:
        command = commands["fit"]
        for code in re.findall(r"`([^`]+)`", row):
            if code.startswith("irtjax "):
                command = commands[code.split()[1]]
            names = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
            options = set(re.findall(r"--[a-z-]+", code))
            assert options <= names, (name, command.name, options - names)
            for call in re.findall(r"^([A-Za-z_.]+)\(", code):
                places = irtjax, irtjax.models.priors
                assert any(_has(place, call) for place in places), (name, call)


def _has(place, name: str) -> bool:
    """Whether a module has an attribute, dotted or not."""
    try:
        attrgetter(name)(place)
    except AttributeError:
        return False
    return True


@pytest.mark.slow
def test_factors_small(tmp_path, capsys):
    found = factors.main(["--out", str(tmp_path)])
    assert "held_out" in capsys.readouterr().out
    by_model = {row["model"]: row["auc"] for row in found["held_out"]}
    assert by_model["truth"] == max(by_model.values())
    rows = {row["quantity"]: row["value"] for row in found["coverage"]}
    assert rows["converged"] == 1
    # Two data sets of 80 subjects and 30 items: five standard errors of a share.
    assert abs(rows["expected scores"] - 0.95) < 5 * (0.05 * 0.95 / 160) ** 0.5
    with (tmp_path / "coverage.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)


@pytest.mark.slow
def test_factor_search_small(tmp_path):
    found = factor_search.main(["--out", str(tmp_path)])
    # Slopes from U(.5, 1.5) are well above noise; q is 1 at the best fit.
    assert found["rank"][0]["right"] == 1
    assert abs(found["rank"][0]["largest q - 1"]) < 1e-3
    weak, held_out = found["prior"]
    assert weak["slope sd"] == 1.0 and held_out["one standard error"] > 0
    # One scale of at least three: the chosen one is at most as bad on other cells, up
    # to five standard errors (0.6 / 480^.5) of a mean loss.
    assert held_out["log_loss"] < weak["log_loss"] + 5 * 0.6 / 480**0.5
    priors = {row["prior"] for row in found["coverage"]}
    assert priors == {"weak", "held_out"}
    assert {x.stem for x in tmp_path.iterdir()} == {"rank", "prior", "coverage"}


@pytest.mark.slow
def test_intervals_of_correlations_cover():
    """By 100 data sets of 80 x 12: five standard errors of a share and a deviation."""
    (row,) = short_tests.compared(80, 12, 2, 100, methods=("gvem",))
    assert row["converged"] == 1
    error = (0.05 * 0.95 / 100) ** 0.5
    assert abs(row["correlations covered"] - 0.95) < 5 * error
    ratio = row["error of correlations"] / row["deviation of correlations"]
    assert abs(ratio - 1) < 5 / 200**0.5


@pytest.mark.slow
def test_one_skill_is_seldom_called_several(tmp_path):
    command = ["--replicates", "20", "--correlations", "1", "0"]
    rows = heterogeneity.main([*command, "--out", str(tmp_path)])
    one, two = (row["related skills"] + row["conflicting skills"] for row in rows)
    # With a chance of 2.5 % four of 20 have a chance of 1 in 1,000.
    assert one <= 3 / 20
    # Measured: 96 %, so fewer than 16 of 20 have a chance of 1 in 1,000.
    assert two >= 16 / 20
    assert (tmp_path / "heterogeneity.csv").is_file()


@pytest.mark.slow
def test_short_tests_small(tmp_path, capsys):
    rows = short_tests.main(["--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "loadings over truth" in out.splitlines()[0] and "gvem" in out
    assert [row["method"] for row in rows] == list(short_tests.METHODS)
    assert all(row["converged"] == 1 for row in rows)
    # Joint estimates of loadings are larger, on the same data.
    assert rows[0]["loadings over truth"] > rows[1]["loadings over truth"]
    with (tmp_path / "short_tests.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2


@pytest.mark.slow
def test_few_subjects_small(tmp_path):
    (row,) = few_subjects.main(["--out", str(tmp_path)])
    # Errors of ten subjects are too small: intervals cover less than 95 %.
    assert 0.5 < row["scores covered"] < 0.95
    assert row["standard error"] < row["root mean squared error"]
    assert (tmp_path / "few_subjects.csv").is_file()


@pytest.mark.slow
def test_coefficients_are_the_printed_ones(shared_data):
    for row in reliability.main([])["coefficients"]:
        assert row["E rho^2"] == pytest.approx(row["printed"], abs=5e-5)
        assert row["Phi"] == pytest.approx(row["printed Phi"], abs=5e-5)


@pytest.mark.slow
def test_size_and_date_explain_open_models(shared_data):
    rows = size_and_time.main(["--only", "LiveCodeBench"])
    assert rows[0]["models"] == 10 and rows[0]["explained"] > 0.7
    assert rows[1]["predicted"] == 6


@pytest.mark.slow
def test_penalties_small(tmp_path):
    generalise.main(["--only", "penalty", "--out", str(tmp_path)])
    with (tmp_path / "generalise_penalty.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["penalty"]) for row in rows] == pytest.approx([1, 0.5])
    # The book's best of plug-in estimates on these folds is -.5096.
    assert all(-0.512 < float(row["log_score"]) < -0.508 for row in rows)


@pytest.mark.slow
def test_the_printouts_of_the_book_small(tmp_path):
    result = book.main(["--out", str(tmp_path)])
    rows = {row["method"]: row for row in result["estimates"]}
    # scipy's L-BFGS: joint, MAP with a mean ability of 0, marginal with a free sd.
    ours = {"gradient ascent": -2385.046, "L-BFGS": -2385.046}
    ours |= {"MAP": -2451.316, "EM": -2535.745}
    for name, value in ours.items():
        assert float(rows[name]["ours"]) == pytest.approx(value, abs=1.1e-3)
    assert rows["MAP"]["sd theta"] == pytest.approx(0.8293, abs=1e-4)
    assert rows["EM"]["sd theta"] == pytest.approx(0.8952, abs=1e-4)
    assert all(row["converged"] == row["starts"] for row in result["optimisers"])
    adaptive, random = result["tests"][2:]
    # Another 100 subjects in the printed program: errors are of a difference of means.
    for row in (adaptive, random):
        assert abs(row["items"] - row["items printed"]) < 4 * 2**0.5 * row["items se"]
    assert adaptive["items"] < random["items"]


@pytest.mark.slow
def test_figures_of_the_book(tmp_path):
    parts = ["matrix", "curves", "gradient", "em", "shrinkage", "information", "tests"]
    tables = figures.main(["--out", str(tmp_path), "--only", *parts])
    assert {x.stem for x in tmp_path.glob("*.png")} == {*parts}
    # What the printed programs end at, and the maximum.
    ends = [row["log-likelihood"] for row in tables["gradient"]]
    assert ends == ["-2,385.945", "-2,385.046", "-2,385.046"]
    ends = [row["log-likelihood"] for row in tables["em"]]
    assert ends == ["-2,536.837", "-2,535.745"]
    chosen, random, printed = (row["sum"] for row in tables["information"])
    assert random < chosen < printed
    assert tables["shrinkage"][0]["sd MAP"] == pytest.approx(0.829, abs=5e-4)


@pytest.mark.slow
def test_the_loss_by_penalty_is_the_printed_one(tmp_path):
    rows = figures.main(["--out", str(tmp_path), "--only", "penalty"])["penalty"]
    # Recomputed by an independent program, to four digits.
    printed = [-0.5146, -0.5144, -0.5132, -0.5103, -0.5096, -0.5118, -0.5248]
    assert [row["printed"] for row in rows] == pytest.approx(printed, abs=6e-5)
    # Abilities that are integrated over lose less without a penalty.
    assert sum(row["ours"] is not None for row in rows) == 2
    assert all(row["ours"] > row["printed"] for row in rows if row["ours"])
    assert (tmp_path / "penalty.png").is_file()


@pytest.mark.slow
def test_figures_of_similar_tasks_and_of_a_filter(tmp_path, shared_data):
    parts = ["semantic", "filtering"]
    tables = figures.main(["--out", str(tmp_path), "--only", *parts])
    assert {x.stem for x in tmp_path.glob("*.png")} == {*parts}
    # One ability alone spreads similar tasks' correlations about as widely.
    responses, simulated = tables["semantic"]
    width, null = (x["97.5 %"] - x["2.5 %"] for x in (responses, simulated))
    assert 0.5 < width / null < 2
    negative = [row["negative"] for row in tables["filtering"]]
    assert negative[0] > 0.05 and negative[-1] < 0.01


@pytest.mark.slow
def test_correlations_without_errors_small(tmp_path):
    tables = validity.main(["--out", str(tmp_path)])
    # 20 intervals of 95 %: four standard errors are 19 points.
    assert min(row["coverage"] for row in tables["quantities"]) > 0.75
    assert tables["fits"][0]["median raw"] < tables["fits"][0]["median"]


def test_leaked_items_are_found(capsys):
    name, draw, tests = fairness.designs()["leaks"][0]
    test = next(test for test in tests if test.name == "mh")
    (row,) = fairness.measure(name, draw, [test], 2)
    # The README has a power of .96: of 20 items fewer than 16 have a chance of 1 in
    # 1,000. Of its false ones, 3 % +- 1.6 in 12 tables, a table has an error of 5.5 %.
    assert row["power"] >= 16 / 20
    assert row["false"] < 0.03 + 4 * 0.055 / 2**0.5
    assert "10 leaked to 50% of later models" in capsys.readouterr().out


@pytest.mark.slow
def test_fairness_of_clusters_small(tmp_path, monkeypatch):
    monkeypatch.setattr(fairness, "ITEMS", 30)
    path = tmp_path / "fairness.json"
    words = ["fairness.py", "--replicates", "3", "--only", "clusters"]
    monkeypatch.setattr(sys, "argv", [*words, "--json", str(path)])
    fairness.main()
    rows = json.loads(path.read_text())
    assert [row["test"] for row in rows] == 4 * ["score", "score, cluster"]
    without, clustered = rows[2:4]
    # At 100 items: 25.8 % false ones without clusters, 3.7 % with.
    assert without["power"] > 0 and clustered["false"] <= without["false"]
