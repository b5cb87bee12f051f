"""The comparisons of the PSN-IRT paper at a small size."""

import csv

import numpy as np
import pytest

import irtjax
from experiments.lego_irt.tables import simulated_groups
from experiments.psn_irt import figure_4, networks, quality, subsets, table2
from experiments.shrink import run


def test_cells_are_split_once_and_judged_by_hand():
    parts = table2.split(simulated_groups(20, 15, 2, scores=False), seed=3)
    whole = [parts.train, parts.validation, parts.test]
    assert (np.sum(whole, axis=0) == 1).all()
    again = table2.split(parts.table, seed=3)
    np.testing.assert_array_equal(again.test, parts.test)
    values = np.array([[1, 0, 1, 0]])
    chance = np.array([[0.9, 0.6, 0.4, 0.2]])
    found = table2.measures(values, chance, np.ones((1, 4), bool))
    # One hit of two calls and two right answers; three of four pairs in order.
    assert found["ACC"] == 0.5 and found["F1"] == 0.5 and found["AUC"] == 0.75
    wanted = -np.mean(np.log([0.9, 0.4, 0.4, 0.8]))
    assert found["log-loss"] == pytest.approx(wanted)


def test_embeddings_need_a_row_for_each_item(tmp_path):
    path = tmp_path / "texts.npy"
    np.save(path, np.ones((3, 2)))
    assert table2.read_embeddings(path, 3).shape == (3, 2)
    with pytest.raises(SystemExit, match="one row for each of the 4 items"):
        table2.read_embeddings(path, 4)


@pytest.mark.slow
def test_rows_of_the_ablation_and_the_baseline(tmp_path, capsys):
    np.save(tmp_path / "texts.npy", np.random.default_rng(0).normal(size=(30, 4)))
    named = ["--rows", "additive", "--rows", "ablation"]
    named += ["--embeddings", str(tmp_path / "texts.npy"), "--out", str(tmp_path)]
    rows = table2.main(["--small", *named])
    names = ["additive", "twin 4pl, graph", "twin 4pl, three layers"]
    names += ["twin 4pl, items by benchmark", "twin 4pl, items by embeddings"]
    assert [row["row"] for row in rows] == names
    printed = capsys.readouterr().out
    with (tmp_path / "table2.csv").open(encoding="utf-8") as file:
        for row, kept in zip(rows, csv.DictReader(file), strict=True):
            assert kept["row"] == row["row"] and f"{row['AUC']:.4f}" in printed
            assert 0 < row["AUC"] < 1 and np.isfinite(row["log-loss"])


@pytest.mark.slow
def test_small_benchmarks_and_marginal_fits(tmp_path, capsys):
    """Tables 4, 6 and 7 on simulated responses: rows of every kind, within bounds."""
    found = subsets.main(["--small", "--out", str(tmp_path)])
    assert set(found) == {"subsets", "stability", "prediction"}
    for name, rows in found.items():
        with (tmp_path / f"{name}.csv").open(encoding="utf-8") as file:
            assert len(list(csv.DictReader(file))) == len(rows) > 0
    assert {row["method"] for row in found["subsets"]} >= {"random", "information"}
    for row in found["prediction"]:
        assert 0.5 < row["AUC"] < 1 and 0 < row["log-loss"] < 1
    assert capsys.readouterr().out


@pytest.mark.slow
def test_errors_of_small_benchmarks(tmp_path, capsys):
    errors = run.main(["--out", str(tmp_path)])
    mean = {
        (row["rule"], row["size"]): row["mean_absolute_error"] for row in errors.rows
    }
    assert all(mean[key, 40] < mean[key, 5] for key in {k for k, _ in mean})
    assert any(tmp_path.iterdir()) and capsys.readouterr().out


@pytest.mark.slow
def test_benchmarks_of_a_fit_are_ranked_and_drawn(tmp_path):
    """The paper's benchmarks, as hard as it says: their order comes out again."""
    random = np.random.default_rng(0)
    names = np.repeat(list(quality.TABLE_5), 30)
    rank = np.array([quality.TABLE_5[name][0] for name in names])
    theta, slope = random.normal(size=(60, 1)), random.uniform(0.8, 2, names.size)
    place = slope * (theta - (6 - rank) / 3 + 0.2 * random.normal(size=names.size))
    table = irtjax.ResponseTable.from_arrays(
        (random.random(place.shape) < 1 / (1 + np.exp(-place))).astype(float),
        benchmark=names.tolist(),
    )
    for found in (
        quality.fitted(table, "2pl", tmp_path),
        quality.by_pattern(table, "2pl"),
    ):
        assert found["status"] == "CONVERGED"
        assert found["spearman"]["difficulty"] > 0.95
    drawn = {path.name for path in (tmp_path / "2pl").iterdir()}
    assert drawn == {
        *("item_properties.png", "difficulty_discrimination.png", "figure_4.png")
    }


def test_figure_4_has_a_panel_for_each_benchmark():
    names = np.repeat([f"benchmark {k:02d}" for k in range(11)], 30)
    difficulty = np.tile(np.linspace(-9, -0.5, 30), 11)
    slope = 2 - np.abs(difficulty) / 9
    difficulty[0] = np.nan
    shown = [x for x in figure_4.panels(difficulty, slope, names, "x").axes if x.axison]
    assert [x.get_title() for x in shown[:2]] == [
        "benchmark 00 (29)",
        "benchmark 01 (30)",
    ]
    assert len(shown) == 11
    points = shown[1].collections[0].get_offsets()
    np.testing.assert_allclose(points[:, 0], np.maximum(difficulty[30:60], -4))
    # Medians of equal counts of items, in order of difficulty.
    assert (np.diff(shown[1].lines[0].get_ydata()) > 0).all()
    found = figure_4.extremes(difficulty[30:60], slope[30:60])
    assert found["easiest"] < found["middle"] < found["hardest"]
    assert found["hardest"] == pytest.approx(slope[57:60].mean())


def test_parameters_of_networks_agree_item_by_item():
    whole = {name: np.arange(6.0) for name in networks.NAMES}
    kept = np.array([0, 2, 5])
    part = {name: values[kept] for name, values in whole.items()}
    part["guessing"] = -part["guessing"]
    part["difficulty"] = np.array([np.nan, 1.0, 9.0])
    found = networks.agreement(part, whole, kept)
    assert found["feasibility"] == pytest.approx(1) == found["difficulty"]
    assert found["guessing"] == pytest.approx(-1) == found["guessing, Spearman"]


@pytest.mark.slow
def test_networks_on_shares_of_the_items(tmp_path, capsys):
    """Table 4 on simulated responses: a row for each share and a second training."""
    rows = networks.main(["--small", "--design", "two layers", "--out", str(tmp_path)])
    assert [row["items"] for row in rows] == ["30 %", "50 %", "70 %", "100 %"]
    assert all(row["difficulty, Spearman"] > 0.7 for row in rows)
    with (tmp_path / "networks.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    assert (tmp_path / "figure_4_two.png").stat().st_size > 10_000
    assert "100 %" in capsys.readouterr().out
