"""Results print as a short table, in notebooks as HTML, and become frames and JSON."""

import dataclasses
import json
import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import irtjax
from irtjax.data import frames
from irtjax.data.frames import HasTable
from irtjax.data.result_text import FIRST, WHOLE, level_of, with_level

HOSTILE = "<img src=x onerror=alert(1)>&\x1b[31m"


@dataclasses.dataclass(frozen=True, repr=False)
class Scores(HasTable):
    title = "Scores"
    columns = ("subject", "rank", "rank_lower", "rank_upper", "ability", "lower")
    columns += ("upper", "p_value", "flags", "best", "not there")

    table: pa.Table
    sentence: str = ""
    warnings: tuple[str, ...] = ()


def scores(rows: int = 3, **more) -> Scores:
    place = np.arange(rows)
    columns = {
        "subject": [f"model-{k}" for k in place],
        "rank": place + 1,
        "rank_lower": np.maximum(place, 1),
        "rank_upper": place + 1,
        "ability": 1.5 - place,
        "lower": 1.0 - place,
        "upper": pa.array([None, *(2.0 - place[1:])], pa.float64()),
        "p_value": np.array([0.00001, 0.2, np.nan])[place % 3],
        "flags": ["", None, ""][:rows] + [""] * (rows - 3),
        "best": place == 0,
        "hidden": place,
    }
    return Scores(with_level(pa.table(columns | more), 0.9))


class Cells(HTMLParser):
    """Text of the cells, and the names of all tags."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts += [data.strip()] * bool(data.strip())


@pytest.fixture(autouse=True)
def width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_a_result_prints_as_its_table():
    lines = repr(scores()).splitlines()
    assert lines[0] == "Scores"
    assert [line.split() for line in lines[1:]] == [
        "subject rank 90 % ability 90 % p_value best".split(),
        "model-0 1 1 1.50 1.00 to – <.001 yes".split(),
        "model-1 2 1–2 0.50 0.00 to 1.00 .200 no".split(),
        "model-2 3 2–3 −0.50 −1.00 to 0.00 – no".split(),
    ]
    assert len({*map(len, lines[1:])}) == 1
    assert max(map(len, lines)) <= 80
    assert str(scores()) == repr(scores())


def test_long_tables_are_cut_and_say_so():
    assert len(repr(scores(WHOLE)).splitlines()) == WHOLE + 2
    lines = repr(scores(1200)).splitlines()
    assert len(lines) == FIRST + 3
    assert lines[-1].strip() == f"and {1200 - FIRST:,} more rows: to_frame() has all"


def test_what_a_result_says_stands_below_its_table():
    found = dataclasses.replace(
        scores(), sentence="All differ.", warnings=("Few items.", "Few subjects.")
    )
    assert repr(found).splitlines()[-3:] == [
        "All differ.",
        "Warning: Few items.",
        "2 warnings: see .warnings",
    ]
    assert "<p>Warning: Few items.</p>" in found._repr_html_()


def test_a_notebook_has_a_table_with_every_name_escaped():
    found = scores(subject=[HOSTILE, "b", "c"], **{"p_value": [0.1, 0.2, 0.3]})
    found = dataclasses.replace(found, sentence=HOSTILE)
    source = found._repr_html_()
    page = Cells(source)
    known = {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    assert page.tags == known
    assert "<img src=x onerror=alert(1)>&[31m" in page.texts
    assert source.count("<tr>") == 4 and "\x1b" not in source


def test_ascii_where_the_terminal_has_no_unicode(monkeypatch):
    class Stream:
        encoding = "ascii"

    monkeypatch.setattr(sys, "stdout", Stream())
    assert repr(scores()).isascii() and "1-2" in repr(scores())


def test_json_has_null_where_there_is_no_number():
    rows = json.loads(scores().to_json())
    assert [row["p_value"] for row in rows] == [0.00001, 0.2, None]
    assert rows[0]["upper"] is None and rows[0]["hidden"] == 0


def test_frames_are_of_the_library_that_is_installed(monkeypatch):
    found = scores()
    assert isinstance(found.to_frame(), pl.DataFrame)
    assert isinstance(found.to_frame("pandas"), pd.DataFrame)
    installed = {"pandas"}
    monkeypatch.setattr(frames, "find_spec", lambda x: x if x in installed else None)
    assert isinstance(found.to_frame(), pd.DataFrame)
    installed.clear()
    assert isinstance(found.to_frame(), pa.Table)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pandas is not installed.*'arrow'"):
        found.to_frame("pandas")
    assert found.to_frame("arrow").num_rows == 3


def test_the_level_of_intervals_is_in_the_metadata():
    assert level_of(scores().table) == 0.9
    assert level_of(pa.table({"lower": [0.1]})) is None


def test_a_table_of_responses_prints_its_subjects():
    table = irtjax.ResponseTable.from_arrays([[1, 0, np.nan], [1, 1, 1]])
    assert [line.split() for line in repr(table).splitlines()] == [
        "2 subjects · 3 items · 5 binary responses".split(),
        ["subject", "observed", "accuracy"],
        ["subject", "1", "2", ".500"],
        ["subject", "2", "3", "1.000"],
    ]
    empty = irtjax.ResponseTable.from_arrays([[np.nan, np.nan], [1, 1]])
    assert repr(empty).splitlines()[2].split()[-1] == "–"


def test_a_list_of_records_is_read():
    rows = [
        {"model": name, "question": item, "correct": name == "a"}
        for name in "ab"
        for item in "xyz"
    ]
    table = irtjax.read(rows)
    assert table.subjects.tolist() == ["a", "b"]
    assert table.values.tolist() == [[1, 1, 1], [0, 0, 0]]
    frame = irtjax.read(pl.DataFrame(rows))
    assert frame.data_hash() == table.data_hash()
    with pytest.raises(ValueError, match="cannot read a int: give a path"):
        irtjax.read([1, 2])
