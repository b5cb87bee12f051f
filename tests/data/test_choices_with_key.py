"""Responses that are choices of items, scored with a key."""

from __future__ import annotations

import numpy as np
import pytest

from irtjax import read
from tests.reading_cases import refused

KEY = "CADB"
CHOICES = ["CADB", "cbDB", "CA-A", "XADB", "DCBA"]
SCORES = [[1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0]]


def matrix(choices=CHOICES, first=None, name="student") -> str:
    """A matrix of choices, perhaps with a key in the first row."""
    rows = [f"s{k},{','.join(row)}" for k, row in enumerate(choices)]
    if first is not None:
        rows.insert(0, f"{first},{','.join(KEY)}")
    return "\n".join([f"{name},q1,q2,q3,q4", *rows]) + "\n"


def check(table) -> None:
    """The scores of `CHOICES`, of which one is missing."""
    assert table.values.tolist() == SCORES
    assert table.items.tolist() == ["q1", "q2", "q3", "q4"]
    assert np.argwhere(~table.observed).tolist() == [[2, 2]]


KEYS = {
    "rows": "item,key\nq1,C\nq2,A\nq3,D\nq4,B\n",
    "another order": "item;key\nq4;B\nq3;D\nq2;A\nq1;C\n",
    "no header": "q1,c\nq2,a\nq3,d\nq4,b\n",
    "more columns": "item,topic,answer\nq1,x,C\nq2,x,A\nq3,y,D\nq4,y,B\n",
    "row": "q1,q2,q3,q4\nC,A,D,B\n",
    "named row": "id,q1,q2,q3,q4\nKEY,C,A,D,B\n",
    "bare row": "C,A,D,B\n",
    "bare column": "C\nA\nD\nB\n",
    "one text": "CADB\n",
}


@pytest.mark.parametrize("form", KEYS)
def test_forms_of_a_key(tmp_path, form):
    path, key = tmp_path / "t.csv", tmp_path / "key.csv"
    path.write_text(matrix())
    key.write_text(KEYS[form])
    check(read(path, key=key))
    check(read(path, key=str(key)))


@pytest.mark.parametrize("first", ["KEY", "key", "Answer key", "ANS", "correct", ""])
@pytest.mark.parametrize("name", ["student", "id", "name", ""])
def test_the_key_is_a_row_of_the_file(tmp_path, first, name):
    path = tmp_path / "t.csv"
    path.write_text(matrix(first=first, name=name))
    table = read(path)
    check(table)
    assert any("scored with the key in row" in note for note in table.notes)


def test_a_row_of_another_name_is_the_key_if_told(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(matrix(first="row0"))
    message = refused(path)
    assert "key='key.csv'" in message and "key='row0'" in message
    check(read(path, key="row0"))


def test_a_mapping_and_several_keys(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(matrix())
    check(read(path, key={"q1": "C", "q2": "A", "q3": "D", "q4": "B"}))
    table = read(path, key={"q1": "C;x", "q2": "A/b", "q3": " d ", "q4": "B"})
    assert table.values[:, 0].tolist() == [1, 1, 1, 1, 0]
    assert table.values[:, 1].tolist() == [1, 1, 1, 1, 0]


def test_numbers_of_choices(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("student,q1,q2\na,1,4\nb,3,4\nc,3,\nKEY,3,4\n")
    table = read(path)
    assert table.subjects.tolist() == ["a", "b", "c"]
    assert table.values.tolist() == [[0, 1], [1, 1], [1, 0]]
    assert table.num_observed == 5
    path.write_text("student,q1,q2\na,1,4\nb,3,4\nc,3,2\n")
    assert read(path, key={"q1": "3", "q2": 4}).values.tolist() == [
        [0, 1],
        [1, 1],
        [1, 0],
    ]
    assert "same letters or numbers" in refused(path, key={"q1": "C", "q2": "D"})


def test_what_a_key_lacks_is_named(tmp_path):
    path, key = tmp_path / "t.csv", tmp_path / "key.csv"
    path.write_text(matrix())
    key.write_text("item,key\nq1,C\nq2,A\n")
    assert f"{key} has no key of 2 items: q3, q4" in refused(path, key=key)
    assert "is no file" in refused(path, key="nowhere.csv")


def test_items_as_rows(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("item,key,m,n\nq1,C,C,A\nq2,A,A,A\nq3,D,B,\n")
    table = read(path)
    assert table.subjects.tolist() == ["m", "n"]
    assert table.values.tolist() == [[1, 1, 0], [0, 1, 0]]
    path.write_text("item,m,n\nq1,C,A\nq2,A,A\nq3,B,\n")
    assert "key='key.csv'" in refused(path)
    key = {"q1": "C", "q2": "A", "q3": "D"}
    np.testing.assert_array_equal(read(path, key=key).values, table.values)


@pytest.mark.parametrize("column", ["answer_key", "key", "target", "answer"])
def test_long_tables(tmp_path, column):
    path = tmp_path / "t.csv"
    rows = ["m,q1,A,A", "m,q2,b,C", "n,q1,B,A", "n,q2,C,C", "o,q1,,A", "o,q2,D,C"]
    path.write_text("\n".join([f"model,item,response,{column}", *rows]) + "\n")
    if column in ("target", "answer"):
        assert f"key='{column}'" in refused(path)
        table = read(path, key=column)
    else:
        table = read(path)
    assert table.values.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert table.num_observed == 5


def test_long_tables_without_a_key(tmp_path):
    path, key = tmp_path / "t.csv", tmp_path / "key.csv"
    path.write_text("model,item,response\nm,q1,A\nm,q2,B\nn,q1,B\nn,q2,C\n")
    assert "'B' (2), 'A' (1), 'C' (1)" in refused(path)
    key.write_text("item,key\nq1,A\nq2,C\n")
    assert read(path, key=key).values.tolist() == [[1, 0], [0, 1]]


def test_a_log_has_no_key(tmp_path):
    path = tmp_path / "t.jsonlines"
    path.write_text('{"subject_id": "m", "responses": {"q1": 1, "q2": 0}}\n')
    assert "key= is for tables" in refused(path, key={"q1": "A"})


def test_published_letters(shared_cases):
    path = shared_cases / "C28" / "letters.csv"
    table = read(path)
    header, key, *rows = [line.split(",") for line in path.read_text().split()]
    assert key[0] == "KEY" and table.items.tolist() == header[1:]
    wanted = [[x == y for x, y in zip(row, key, strict=True)][1:] for row in rows]
    np.testing.assert_array_equal(table.values, wanted)
