"""Logs of OpenAI Evals: recognised, and not read.

The package (``oaieval``) writes JSON lines: ``{"spec": …}`` of the run, an event a
line, and ``{"final_report": …}``. The API returns a list of output items.
"""

from __future__ import annotations

from typing import Any

_EVENT = {"run_id", "event_id", "sample_id", "type", "data"}
_TABLE = "as rows of a CSV table with the columns"
MESSAGE = (
    "is a log of OpenAI Evals, which irtjax does not read; write its events of type"
    f" match {_TABLE} model (completion_fns of the spec), item (sample_id) and correct"
    " (data.correct)"
)
API_MESSAGE = (
    "holds output items of OpenAI's Evals API, which irtjax does not read; write them"
    f" {_TABLE} model (sample.model), item (datasource_item_id) and correct (status)"
)


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """The reason why a log of the package, or a list of the API, is not read."""
    spec = fields.get("spec")
    is_run = isinstance(spec, dict) and {"eval_name", "base_eval"} <= spec.keys()
    if is_run or fields.keys() >= _EVENT or fields.keys() == {"final_report"}:
        return MESSAGE
    items = fields.get("data") if fields.get("object") == "list" else None
    first = items[0] if isinstance(items, list) and items else fields
    if isinstance(first, dict) and first.get("object") == "eval.run.output_item":
        return API_MESSAGE
    return False
