"""The delimiter of a table is the one that its rows agree on."""

import numpy as np
import pytest

import irtjax


@pytest.mark.parametrize("mark", [",", "\t", ";"])
def test_names_with_other_delimiters(mark, tmp_path):
    others = [x for x in ",\t;" if x != mark]
    names = [f"it{x}em{x}{k}" for k, x in enumerate(others * 2)]
    file = tmp_path / "wide.csv"
    rows = [["model", *names], ["a", "1", "0", "1", "1"], ["b", "0", "0", "1", "0"]]
    lines = [mark.join(cell for cell in row) for row in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    table = irtjax.read(file)
    assert table.items.tolist() == names
    np.testing.assert_array_equal(table.values, [[1, 0, 1, 1], [0, 0, 1, 0]])


def test_decimal_commas_are_no_delimiters(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text(
        "model;first try;second try\nx;0,5;0,25\ny;0,75;1,0\n", encoding="utf-8"
    )
    assert irtjax.read(file).values.tolist() == [[0.5, 0.25], [0.75, 1.0]]
