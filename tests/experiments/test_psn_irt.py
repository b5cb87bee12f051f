"""The comparisons of the PSN-IRT paper at a small size."""

import csv

import numpy as np
import pytest

from experiments.lego_irt.tables import simulated_groups
from experiments.psn_irt import table2


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
