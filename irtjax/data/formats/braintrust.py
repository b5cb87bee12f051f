"""Experiments of Braintrust, as its page or API exports them: a row a span.

The root span of a trace has the scores of a record of the data set. The model stands in
the metadata, if people write it there; else the file names the subject.
"""

from __future__ import annotations

from typing import Any

from irtjax.data.reading.tool import Tool


def _is_root(record: dict[str, Any]) -> bool:
    """Whether a span is the whole of a trace, not a part of the work."""
    return record.get("span_id") == record.get("root_span_id")


TOOL = Tool(
    name="Braintrust",
    marks=(
        {"span_id", "root_span_id", "scores"},
        {"experiment_id", "scores", "input"},
    ),
    lists=("events", "data", "rows"),
    keep=_is_root,
    subject=("metadata.model", "metadata.model_name", "experiment_name"),
    common="^experiment-",
    own_subject=True,
    item=("dataset_record_id", "origin.id"),
    content=("input", "expected"),
    has_ids=True,
    scores=("scores.*",),
    higher=True,
    failed=("error",),
    length=("metrics.completion_tokens",),
    prompt=("input",),
    answer=("expected",),
    prediction=("output",),
    start=r'\s*\[?\s*\{\s*"id"\s*:.*"(root_span_id|experiment_id)"',
)
recognise = TOOL.recognise
recognise_start = TOOL.recognise_start
read_files = TOOL.read_files
