"""Aider's benchmark, ``DATE--NAME/LANGUAGE/…/practice/TASK/.aider.results.json``.

A file has the outcomes of the tests after each try. The leaderboard is YAML of totals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from irtjax.data.reading.logs import load
from irtjax.data.reading.record_files import PlacedRecord
from irtjax.data.reading.tool import Tool

_DATE = re.compile(r"(\d{4}(-\d\d){5})--")
_TOTALS = (
    "holds the totals of Aider's leaderboard, not responses to items; give the folder"
    " of the runs (tmp.benchmarks), where each exercise has a file .aider.results.json"
)


def recognise_yaml(head: bytes) -> str:
    """The reason why a leaderboard is not read."""
    return _TOTALS if re.search(rb"(?m)^\s*-?\s*pass_(rate|num)_1\s*:", head) else ""


def _rows(path: Path) -> Iterator[PlacedRecord]:
    """The one record of a file, with the first and the last outcome."""
    record = load(path, dict[str, Any])
    outcomes = record.get("tests_outcomes")
    outcomes = outcomes if isinstance(outcomes, list) else []
    place = [*Path(str(record.get("testdir") or path.absolute().parent)).parts]
    # Two languages have exercises of one name.
    language = place[place.index("exercises") - 1] if "exercises" in place[1:] else ""
    task = str(record.get("testcase") or path.absolute().parent.name)
    scores = {"pass": True in outcomes, "pass_1": outcomes[0]} if outcomes else {}
    item = "/".join(filter(None, [language, task]))
    yield PlacedRecord(str(path), {**record, "item": item, "scores": scores})


def _run(path: Path) -> str:
    """When a run began, by the name of its folder."""
    dates = [x for part in path.absolute().parts if (x := _DATE.match(part))]
    return dates[-1][1] if dates else ""


TOOL = Tool(
    name="Aider",
    marks=({"testcase", "tests_outcomes", "edit_format"},),
    rows=_rows,
    subject=("model",),
    item=("item",),
    run=_run,
    scores=("scores.*",),
    usual=("pass",),
    without=(({"pass_rate_1", "edit_format"}, _TOTALS),),
    start=r'\s*\{\s*"testdir"|\.aider\.results\.json',
)
recognise = TOOL.recognise
recognise_start = TOOL.recognise_start
read_files = TOOL.read_files
