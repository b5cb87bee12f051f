"""Names in CSV files are no formulas of spreadsheets, and come back."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

import irtjax
from irtjax.data.side_files import read_side_file
from irtjax.data.spreadsheets import defuse, restore
from irtjax.storage import write_table

NAMES = [
    "=1+1",
    "+a",
    "-b",
    "@cf/meta",
    "\tc",
    "\rd",
    "\uff1de",
    "'=f",
    "'g",
    "-5",
    "h",
]


def is_formula(text):
    try:
        float(text)
    except ValueError:
        return text[:1] in tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
    return False


def test_every_name_is_defused_and_restored():
    names = ["".join(x) for n in range(5) for x in itertools.product("'=-5a", repeat=n)]
    table = pa.table({"=n": names, "d": pa.array(names).dictionary_encode()})
    safe = defuse(table)
    assert safe.column_names == ["'=n", "d"]
    for column in safe.columns:
        assert not any(map(is_formula, column.to_pylist()))
    # No two names become one.
    assert len(set(safe["d"].to_pylist())) == len(names)
    for column in restore(safe).columns:
        assert column.to_pylist() == names


def test_names_of_other_files_never_become_one():
    names = ["".join(x) for n in (1, 2, 3) for x in itertools.product("'=-5", repeat=n)]
    for pair in itertools.combinations(names, 2):
        assert len(set(restore(pa.table({"n": pair}))["n"].to_pylist())) == 2


@pytest.mark.parametrize("form", ["long", "wide"])
def test_names_in_a_csv_file_come_back(tmp_path, form):
    names = [name for name in NAMES if name == name.strip()]
    values = (np.add.outer(np.arange(len(names)), np.arange(len(names))) % 3) // 2
    if form == "wide":
        columns = dict(zip(names, values.T, strict=True))
        table = pa.table({"subject": names, **columns})
    else:
        who, which = np.indices(values.shape).reshape(2, -1)
        columns = {"subject": np.array(names)[who], "item": np.array(names)[which]}
        table = pa.table({**columns, "score": values.ravel()})
    write_table(table, tmp_path / "responses.csv")
    text = (tmp_path / "responses.csv").read_text()
    cells = {cell.strip('"') for line in text.split("\n") for cell in line.split(",")}
    assert not any(map(is_formula, cells))
    found = irtjax.read(tmp_path / "responses.csv")
    assert sorted(found.subjects) == sorted(names) == sorted(found.items)
    order = [found.subjects.tolist().index(x) for x in names]
    across = [found.items.tolist().index(x) for x in names]
    np.testing.assert_array_equal(found.values[np.ix_(order, across)], values)


def test_an_anchor_and_a_side_table_in_csv_have_their_names(tmp_path):
    from irtjax.cli.side_tables import read_content
    from irtjax.fitting.anchors import read_anchor

    table = pa.table({"item": NAMES, "discrimination": np.ones(len(NAMES))})
    write_table(table, tmp_path / "items.csv")
    assert list(read_anchor(tmp_path / "items.csv")) == NAMES
    content = read_content("--item-table", tmp_path / "items.csv")
    assert content["item"].to_pylist() == NAMES


def test_names_in_a_side_table_keep_leading_zeros(tmp_path):
    path = tmp_path / "side.csv"
    path.write_text("item,subject,level\n007,1e3,2\n008,1.0,3\n")
    table = read_side_file(path, "side")
    assert table["item"].to_pylist() == ["007", "008"]
    assert table["subject"].to_pylist() == ["1e3", "1.0"]
    assert table["level"].to_pylist() == [2, 3]
