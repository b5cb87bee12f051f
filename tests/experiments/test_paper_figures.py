"""Pieces of the comparisons with the papers of LaRT and LEGO-IRT."""

import numpy as np
import pandas as pd
import pytest

from experiments.lart import figures, validity
from experiments.lego_irt import arena, drawing


def test_the_partition_is_a_shuffle_of_seed_42():
    parts = validity.partition(500)
    assert [len(part) for part in parts] == [100] * 5
    assert sorted(np.concatenate(parts).tolist()) == list(range(500))
    # The first numbers of NumPy's legacy shuffle with this seed.
    np.random.seed(42)
    order = np.arange(500)
    np.random.shuffle(order)
    assert parts[0].tolist() == order[:100].tolist()


def test_the_authors_drop_eighteen_rows(shared_data):
    data, dropped, wrong = validity.read_kept(shared_data / "lart")
    assert (dropped, wrong, data.right.shape) == (18, 0, (140, 500))


def test_strengths_are_the_logarithms_of_odds(tmp_path):
    # Two models: log(wins / losses), a tie being half of each.
    path = tmp_path / "counts.parquet"
    columns = {"model_a": ["x"], "model_b": ["y"], "wins_a": [30], "wins_b": [10]}
    pd.DataFrame({**columns, "ties": [8], "both_bad": [12]}).to_parquet(path)
    found = arena.bradley_terry(path)
    # The ridge of 1e-6 moves strengths by some 1e-7.
    assert found["x"] - found["y"] == pytest.approx(np.log(40 / 20), abs=1e-5)


def test_models_of_the_arena_are_in_both_sets(shared_data):
    board = pd.read_parquet(
        shared_data / "arena" / "chatbot_arena_2024_08_counts.parquet"
    )
    names = {*board.model_a, *board.model_b}
    frame = pd.read_parquet(shared_data / "alpacaeval" / "preference_v2.parquet")
    assert set(arena.SAME) <= names
    assert set(arena.SAME.values()) <= set(frame.index)
    values = {"ability": np.arange(15.0), "arena": np.arange(15.0)}
    assert len(arena.draw(values, list(arena.SAME)).axes) == 1


def test_sensitivities_are_drawn_in_their_order(tmp_path):
    rows = [
        {"data": "d", "model": name, "mean": value, "sd": 0.1, "se": 0.1, "n": 1}
        for name, value in (("b", 2.0), ("a", 1.0), ("c", 3.0))
    ]
    drawing.draw("structure", rows, rows, tmp_path / "structure.png")
    assert (tmp_path / "structure.png").stat().st_size > 3000


def test_boxes_leave_out_items_that_hardly_discriminate():
    assert list(figures.FIGURE_4) == [
        *("discrimination a", "difficulty −b / a (a ≥ 0.05)")
    ]
