"""The table of MLflow's evaluations, ``eval_results_table.json``.

Its columns are what was given to the model, what is expected, the outputs, and scores
named ``METRIC/VERSION/score``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from irtjax.data.reading.logs import load
from irtjax.data.reading.record_files import PlacedRecord
from irtjax.data.reading.tool import Tool

_SCORE = "/score"
_TABLE = "eval_results_table"


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """Whether a file is a table with scores, or why it is not read."""
    columns = fields.get("columns")
    if not isinstance(columns, list) or not isinstance(fields.get("data"), list):
        return False
    if any(str(x).endswith(_SCORE) for x in columns):
        return True
    is_named = name.startswith(_TABLE)
    why = "holds a table of MLflow without a column of scores (METRIC/VERSION/score)"
    return f"{why}; evaluate with extra_metrics" if is_named else False


def _rows(path: Path) -> Iterator[PlacedRecord]:
    """The rows of a table."""
    table = load(path, dict[str, Any])
    columns, data = table.get("columns"), table.get("data")
    if not (isinstance(columns, list) and isinstance(data, list)):
        raise ValueError(f"{path} has no columns and data; give {_TABLE}.json")
    for number, cells in enumerate(data, 1):
        place = f"{path}: row {number}"
        if not isinstance(cells, list) or len(cells) != len(columns):
            raise ValueError(
                f"{place} has not {len(columns)} cells, as its header has; give the"
                " file as MLflow wrote it"
            )
        row = dict(zip(map(str, columns), cells, strict=True))
        scores = {
            column.removesuffix(_SCORE): value
            for column, value in row.items()
            if column.endswith(_SCORE)
        }
        yield PlacedRecord(place, row | {"scores": scores})


_INPUTS = ("inputs", "input", "question", "questions", "query", "prompt", "request")
_TARGETS = ("ground_truth", "targets", "target", "expected_response", "answer")

TOOL = Tool(
    name="MLflow",
    marks=(),
    rows=_rows,
    subject=("model", "model_name"),
    common=f"^{_TABLE}$",
    content=_INPUTS,
    scores=("scores.*",),
    usual=("exact_match/v1", "answer_correctness/v1"),
    length=("token_count",),
    prompt=_INPUTS,
    answer=_TARGETS,
    prediction=("outputs", "output", "prediction", "predictions", "response"),
    start=r'\s*\{\s*"columns"\s*:.*/score"|eval_results_table\.json',
)
recognise_start = TOOL.recognise_start
read_files = TOOL.read_files
