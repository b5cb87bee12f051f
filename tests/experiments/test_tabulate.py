"""Rows of the small studies as tables of text."""

import numpy as np

from experiments.tabulate import aligned, write_csv


def test_rows_are_lines_below_their_titles():
    rows = [
        {"method": "mm", "error": 0.123456, "error se": 0.02, "steps": 12, "x": None},
        {"method": "gradient", "error": 10.0, "error se": None, "steps": 3, "x": None},
    ]
    lines = aligned(rows).splitlines()
    assert lines[0].split() == ["method", "error", "steps"]
    assert lines[1].split() == ["mm", "0.1235", "±", "0.02", "12"]
    assert lines[2].split() == ["gradient", "10", "3"]
    # Columns of numbers end at the same place.
    assert len({len(line) for line in lines}) == 1


def test_rows_of_other_fields_are_another_table():
    rows = [{"a": 1}, {"a": True}, {"b": float("nan"), "b_error": np.float64(0.5)}]
    first, second = aligned(rows).split("\n\n")
    assert [x.strip() for x in first.splitlines()] == ["a", "1", "yes"]
    assert [x.strip() for x in second.splitlines()] == ["b", "nan ± 0.5"]
    assert aligned([]) == ""


def test_rows_are_written_with_all_their_columns(tmp_path):
    write_csv(tmp_path / "new", "study", [{"a": 1}, {"a": 2, "b": "x"}])
    text = (tmp_path / "new" / "study.csv").read_text(encoding="utf-8")
    assert text.split() == ["a,b", "1,", "2,x"]
    write_csv(None, "study", [])
