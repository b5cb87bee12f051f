"""Results of promptfoo: recognised, and not read.

``promptfoo eval --output`` writes one object with ``results`` and ``config``
(``.json``), or a result a line (``.jsonl``). A result is of one test, prompt and
provider.
"""

from __future__ import annotations

from typing import Any

MESSAGE = (
    "holds results of promptfoo, which irtjax does not read; write each result as a row"
    " of a CSV table with the columns model (provider.id), item (testIdx) and correct"
    " (success)"
)


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """The reason why a file of results, or its summary alone, is not read."""
    summary = fields.get("results")
    # The whole file has the summary as a field; `evaluate` of Node returns it alone.
    if not isinstance(summary, dict):
        summary = fields if "timestamp" in fields else {}
    parts = {"results", "prompts", "table", "outputs"}
    is_summary = isinstance(summary.get("stats"), dict) and parts & summary.keys()
    is_result = {"promptIdx", "testIdx"} <= fields.keys()
    return MESSAGE if is_summary or is_result else False
