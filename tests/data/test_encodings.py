"""Tables in other encodings and languages, and strings of responses."""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np
import pytest

from irtjax import read
from tests.reading_cases import refused

LONG = "Modell\tItem\tScore\nmüller\tq1\t1\nmüller\tq2\t0\nß\tq1\t0\nß\tq2\t1\n"
WIDE = "model,q1,q2,q3\nmüller,1,0,1\nß,0,1,1\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig", "utf-8"])
@pytest.mark.parametrize("packed", [False, True])
def test_text_with_a_mark_of_its_encoding(tmp_path, encoding, packed):
    for text, subject in ((LONG, "Modell"), (WIDE, None)):
        data = text.encode(encoding)
        if encoding == "utf-16-be":
            data = b"\xfe\xff" + data
        path = tmp_path / "t.txt"
        path.write_bytes(gzip.compress(data) if packed else data)
        table = read(path, subject=subject)
        assert table.subjects.tolist() == ["müller", "ß"]
        assert table.values[:, :2].tolist() == [[1, 0], [0, 1]]


def test_json_lines_in_utf16(tmp_path):
    path = tmp_path / "t.jsonl"
    rows = ['{"model": "ü", "item": "a", "score": 1}']
    path.write_text("\n".join([*rows, rows[0].replace("ü", "b")]), encoding="utf-16")
    assert read(path).subjects.tolist() == ["ü", "b"]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("GB18030", "模型,第一题,第二题\n模型一,1,0\n模型二,0,1\n"),
        ("CP1252", "model,q1,q2\nmüller,1,0\ngroß,0,1\n"),
    ],
)
def test_text_without_a_mark_is_refused_with_its_conversion(tmp_path, encoding, text):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode(encoding))
    message = refused(path)
    command = f"iconv -f {encoding} -t UTF-8 {path} > t-utf8.csv"
    assert "is not UTF-8 text" in message and command in message


def test_damaged_utf16(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("model,q1\nm,1\n".encode("utf-16") + b"\x00\xd8\x00")
    assert "UTF-16" in refused(path)


@pytest.mark.parametrize(
    "text", ["alpha 1101\nbeta 1011\n", "id,answers\nm,1101\nn,0011\n", "1101\n0011\n"]
)
def test_strings_of_responses_are_refused(tmp_path, text):
    path = tmp_path / "t.dat"
    path.write_text(text)
    message = refused(path)
    assert "between" in message and "responses" in message


def test_published_files(shared_cases):
    options: Any = {"subject": "模型", "item": "题目", "response": "得分"}
    table = read(shared_cases / "C62" / "chengji_utf8.csv", **options)
    assert table.num_observed == table.size > 0
    unnamed = read(shared_cases / "C62" / "chengji_utf8.csv")
    np.testing.assert_array_equal(unnamed.values, table.values)
    assert any(all(x in note for x in options.values()) for note in unnamed.notes)
    message = refused(shared_cases / "C62b" / "chengji_gbk.csv", **options)
    assert "iconv -f GB18030" in message
    table = read(shared_cases / "C63" / "unicode.txt")
    assert table.subjects[0] == "org-a/alpha-70b" and table.items[0] == "q0"
    assert "between all responses" in refused(shared_cases / "C66" / "kct.dat")
