"""Tables and sentences as plain text: widths, names, other alphabets, ASCII."""

import io

import pytest

from irtjax.data.text_table import (
    cut,
    display_width,
    has_unicode,
    terminal_width,
    text_table,
    wrapped,
)

HEADER = ["model", "rank", "mean discrimination", "flags"]
ROWS = [
    ["模型-7b-instruct-of-a-very-long-name", "1", "1.25", "wrong key; saturated"],
    ["e\u0301cole\x1b[31m\u202e", "12", "-0.50", ""],
    ["b" * 50_000 + "end", "3", "0.00", "misfit"],
]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_a_table_is_never_wider_than_the_screen(width, unicode):
    text = text_table(
        HEADER, ROWS, left=("model", "flags"), width=width, unicode=unicode
    )
    assert max(map(display_width, text.splitlines())) <= width
    assert "\x1b" not in text and "\u202e" not in text
    assert text.isascii() or unicode


def test_columns_are_aligned_where_characters_are_wide_or_combine():
    lines = text_table(["model", "n"], ROWS[:2], width=80).splitlines()
    assert {display_width(line) for line in lines} == {display_width(lines[0])}


def test_numbers_stay_whole_and_columns_left_out_are_named():
    header, row = ["name", "a", "b", "c"], ["x", "1" * 9, "2" * 9, "3" * 9]
    text = text_table(header, [row], spare=["b"], width=34)
    assert "1" * 9 in text and "3" * 9 in text and "b" not in text
    text = text_table(header, [row], width=28)
    assert "2" * 9 in text and "3" not in text
    assert text.splitlines()[-1] == " (a wider screen has: c)"


def test_different_names_stay_different_where_they_are_cut():
    names = [f"organisation/model-{k}b-instruct-quantised-to-4-bits" for k in (7, 8)]
    lines = text_table(["model"], [[name] for name in names], width=30).splitlines()
    assert lines[1] != lines[2] and max(map(len, lines)) <= 30


def test_columns_counts_first_and_a_pipe_has_eighty(monkeypatch):
    monkeypatch.setattr("sys.__stdout__", io.StringIO())
    for given, width in ((None, 80), ("132", 132), ("61", 61), ("x", 80), ("0", 80)):
        monkeypatch.delenv("COLUMNS", raising=False)
        if given is not None:
            monkeypatch.setenv("COLUMNS", given)
        assert terminal_width() == width


def test_ascii_where_the_stream_has_no_unicode():
    assert not has_unicode(io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert not has_unicode(io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert has_unicode(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


def test_lines_of_sentences_fit_and_keep_long_words():
    lines = wrapped("Written to /a/very/long/path/of/a/folder: 95 % of it.", 20)
    assert lines == ["Written to", "/a/very/long/path/of/a/folder:", "95 % of it."]
    assert cut("…", 1) == "…" and wrapped("", 10) == [""]
