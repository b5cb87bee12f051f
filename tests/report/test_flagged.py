"""Flagged items with their texts: the worst first, and nothing in them is markup."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from irtjax.auditing.examine import TESTED, column_of
from irtjax.data.item_texts import ItemText
from irtjax.report import flagged

HOSTILE = "````\n<script>alert(1)</script>\x1b[31m\n![x](http://a)\t|\n```"


def audit(flags: dict[str, str], p_value: float = 0.5) -> Any:
    names = list(flags)
    columns = {
        "item": names,
        "benchmark": ["b"] * len(names),
        "flags": list(flags.values()),
        "observed": [1200] * len(names),
        "accuracy": [0.25] * len(names),
        "item_rest": pa.array([None] * len(names), pa.float64()),
    }
    p_values = [p_value / (k + 1) for k in range(len(names))]
    columns |= {column_of(x): p_values for x in TESTED}
    return SimpleNamespace(items=pa.table(columns))


FLAGS = {
    "top": "saturated",
    "fine": "",
    "less": "misfit",
    "low": "misfit",
    "worst": "negative discrimination; misfit",
}


def test_the_worst_come_first():
    names = [row["item"] for row in flagged.worst_first(audit(FLAGS))]
    assert names == ["worst", "low", "less", "top"]


def test_a_table_has_texts_where_they_are_known():
    table = flagged.flagged_table(audit(FLAGS), {"low": ItemText("p", "a", "w", 3)})
    rows = table.to_pylist()
    assert rows[1] | {"flags": ""} == {
        "item": "low",
        "benchmark": "b",
        "flags": "",
        "observed": 1200,
        "accuracy": 0.25,
        "item_rest": None,
        "prompt": "p",
        "answer": "a",
        "wrong": "w",
        "wrong_count": 3,
    }
    assert rows[0]["prompt"] == "" and table.num_rows == 4
    empty = flagged.flagged_table(audit({"fine": ""}), {})
    assert empty.num_rows == 0 and empty.schema == table.schema


def test_texts_are_no_markup_on_the_page():
    texts = {"worst": ItemText(HOSTILE, HOSTILE, "<b>\x1b[31m*", 1)}
    page = flagged.flagged_page(audit(FLAGS), texts)
    assert "\x1b" not in page and "4 of 5 items have a flag" in page
    before, fence, rest = page.partition("`````text\n")
    block, end, after = rest.partition("\n`````\n")
    assert fence and end and "<script>" in block and "<" not in before + after
    assert "most frequent wrong answer (once): &lt;b&gt;" in before


def test_the_screen_shows_the_worst_that_a_test_found():
    texts = {name: ItemText(f"{HOSTILE} {name}?", "a" * 500) for name in FLAGS}
    lines = flagged.flagged_lines(audit(FLAGS), texts)
    shown = [line for line in lines if "item-rest" in line]
    assert [line.split()[0] for line in shown] == ["worst", "low", "less"]
    assert shown[0] == (
        "worst (negative discrimination; misfit): 0.250 right of 1,200, item-rest"
        " correlation –"
    )
    assert "\x1b" not in "".join(lines) and max(map(len, lines)) < 300
    assert lines[2].endswith("worst?")
    assert flagged.flagged_lines(audit({"top": "saturated"}), texts) == []


def test_a_fence_is_chosen_for_what_is_shown():
    hidden = "``\u200b`\n<img src=x onerror=alert(1)>\n# injected"
    lines = flagged._fenced(hidden)
    assert lines[0] == "````text" and lines[1] == "```" and lines[-1] == "````"
