"""Responses in words, letters and per cent, in long tables and in matrices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from irtjax import read
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.verdicts import verdicts_of
from tests.reading_cases import refused

RIGHT_AND_WRONG = [
    ("TRUE", "FALSE"),
    ("WAHR", "FALSCH"),
    ("vrai", "faux"),
    ("Verdadero", "Falso"),
    ("VERO", "FALSO"),
    ("VERDADEIRO", "FALSO"),
    ("WAAR", "ONWAAR"),
    ("PRAWDA", "FAŁSZ"),
    ("SANT", "FALSKT"),
    ("ИСТИНА", "ЛОЖЬ"),
    ("да", "нет"),
    ("DOĞRU", "YANLIŞ"),
    ("是", "否"),
    ("正确", "错误"),
    ("はい", "いいえ"),
    ("예", "아니요"),
    ("right", "wrong"),
    ("Passed", "Failed"),
    ("yes", "no"),
    ("Y", "N"),
    ("T", "F"),
    ("J", "N"),
    ("C", "I"),
    ("✓", "✗"),
    ("✔️", "❌"),
    ("√", "×"),
    ("[[Correct]]", "**incorrect.**"),
    ("solved", "unsolved"),
    ("100%", "0%"),
    ("100 %", "0,0 %"),
]
VALUES = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]])


def long(values) -> str:
    """A long table of texts of responses."""
    rows = [
        f'm{i},q{j},"{text}"\n'
        for i, row in enumerate(values)
        for j, text in enumerate(row)
    ]
    return "".join(["model,item,score\n", *rows])


def wide(values) -> str:
    """A matrix of texts of responses."""
    rows = [f"m{i}," + ",".join(f'"{x}"' for x in row) for i, row in enumerate(values)]
    return "\n".join(["model,q0,q1,q2", *rows]) + "\n"


@pytest.mark.parametrize("form", [long, wide])
@pytest.mark.parametrize(("right", "wrong"), RIGHT_AND_WRONG)
def test_words_of_right_and_wrong(tmp_path, form, right, wrong):
    path = tmp_path / "t.csv"
    path.write_text(form(np.where(VALUES, right, wrong)), encoding="utf-8")
    table = read(path)
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.num_observed == VALUES.size


def test_every_word_has_one_meaning():
    scores = verdicts_of([]).scores
    assert {*scores.values()} == {0.0, 0.5, 1.0} and scores["p"] == 0.5
    assert not {*scores} & verdicts_of([]).no_answer


@pytest.mark.parametrize("form", [long, wide])
def test_no_answer_is_missing(tmp_path, form):
    words = np.where(VALUES, "CORRECT", "Incorrect")
    words = words.astype(object)
    words[0, 0] = "NOT_ATTEMPTED"
    path = tmp_path / "t.csv"
    path.write_text(form(words))
    table = read(path)
    assert table.observed is not None and not table.observed[0, 0]
    assert table.num_observed == 11
    wrong = read(path, missing_as="wrong")
    assert wrong.values[0, 0] == 0 and wrong.observed is None


def test_percentages(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(long([["85%", "7.5 %"], ["0", ""]]))
    table = read(path)
    np.testing.assert_allclose(table.values, [[0.85, 0.075], [0, 0]])
    path.write_text(long([["85%", "70"], ["1%", "0"]]))
    assert "row 2 is '70' and row 1 is '85%': write all with" in refused(path)
    path.write_text("model,q1,q2\nm,85%,70\nn,1%,50\n")
    message = refused(path)
    assert "column 'q2'" in message and "percent sign" in message


def test_words_of_unknown_meaning_are_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(long(np.where(VALUES, "good", "bad")))
    message = refused(path)
    assert "'good' (6), 'bad' (6)" in message and "right='good'" in message
    np.testing.assert_array_equal(read(path, right="good").values, VALUES)
    words = [["good", "fair", "bad"], ["great", "", "not attempted"]]
    path.write_text(long(words))
    table = read(path, right=["good", "great"])
    assert table.values.tolist() == [[1, 0, 0], [1, 0, 0]]
    assert table.num_observed == 4
    assert "no response is that word, of 'good' (1)" in refused(path, right="Good one")


def test_right_words_of_a_matrix(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(wide(np.where(VALUES, "win", "loss")))
    assert "right='win'" in refused(path)
    np.testing.assert_array_equal(read(path, right="win").values, VALUES)


def test_a_misspelt_cell_among_numbers_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(long([[1, 0], [1, "oops"]]))
    assert "row 4, column 'score' is 'oops', which is not a number" in refused(path)


def test_a_column_of_words_next_to_numbers_is_no_item(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("student,native,q1,q2,q3\na,yes,1,0,1\nb,no,0,1,1\n")
    try:
        table = read(path)
    except ValueError as error:
        assert "native" in str(error)
    else:
        assert table.items.tolist() == ["q1", "q2", "q3"]


def test_a_matrix_of_letters_without_header(tmp_path):
    path = tmp_path / "t.csv"
    rows = ["A,B,B,C", "A,B,C,C", "B,B,B,D"]
    path.write_text("\n".join([*rows, "A,D,B,C"]) + "\n")
    key = tmp_path / "key.csv"
    key.write_text("A,B,B,C\n")
    table = read(path, key=key)
    assert table.values.tolist() == [
        [1, 1, 1, 1],
        [1, 1, 0, 1],
        [0, 1, 1, 0],
        [1, 0, 1, 1],
    ]


@pytest.mark.parametrize("given", [None, "A", ("A", "B")])
def test_the_option_takes_one_word_or_several(given):
    assert ReadOptions(right=given).right == given


def test_grades_of_published_logs(shared_cases):
    table = read(shared_cases / "C71")
    assert (table.num_subjects, table.num_items) == (10, 25)
    counts = table.seen.sum(), table.num_observed
    assert counts == (149, 198)
    message = refused(shared_cases / "C71b")
    assert "'A' (149), 'B' (55), 'C' (46)" in message and "right='A'" in message
    graded = read(shared_cases / "C71b", right="A")
    assert (graded.seen.sum(), graded.num_observed) == (149, 250)


def test_tables_of_other_locales_and_percentages(shared_cases):
    table = read(shared_cases / "C77")
    text = (shared_cases / "C77" / "antworten.csv").read_text()
    assert table.seen.sum() == text.count("WAHR")
    shares = read(shared_cases / "C75")
    rows = (shared_cases / "C75" / "percent.csv").read_text().split()[1:]
    wanted = [float(row.rpartition(",")[2].rstrip("%")) / 100 for row in rows]
    np.testing.assert_allclose(shares.values.ravel(), wanted)


def test_order_of_letters_does_not_matter():
    for letters in itertools.permutations("yn"):
        assert verdicts_of(letters).scores["y"] == 1
    assert not verdicts_of(["A", "B", "C", "D"]).knows("C")


@pytest.mark.parametrize("form", [long, wide])
def test_letters_of_no_answer_are_missing_if_told(tmp_path, form):
    """As of SimpleQA: A is correct, B is incorrect, C is not attempted."""
    path = tmp_path / "t.csv"
    letters = np.where(VALUES, "A", "B")
    letters[0, 1] = "C"
    path.write_text(form(letters))
    table = read(path, right="A", missing_values="C")
    np.testing.assert_array_equal(table.values, VALUES)
    assert np.argwhere(~table.observed).tolist() == [[0, 1]]
