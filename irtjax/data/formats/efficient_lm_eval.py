"""Metrics of efficient-lm-eval (LEGO-IRT), JSON lines: a record for each response.

A record has ``request_model``, ``metric`` (an object of scores by name), ``dataset``
and ``payload``, with the item's number in its data set and what it asks. The package
itself fits tables with ``model_id`` and ``benchmark`` in their place.
"""

from __future__ import annotations

from typing import Any

from irtjax.data.reading.tool import Tool

_SUBJECTS = ("request_model", "model_id", "query_model")

TOOL = Tool(
    name="efficient-lm-eval",
    marks=tuple({name, "metric", x} for name in _SUBJECTS for x in ("payload", "key")),
    subject=_SUBJECTS,
    item=("payload.sample_id", "payload.id", "key"),
    has_ids=True,
    benchmark_at=("dataset", "benchmark", "payload.dataset_name"),
    scores=("metric.*",),
    # The one that the paper takes where a benchmark has several.
    usual=("is_correct", "bleu"),
    prompt=("payload.question", "payload.prompt", "payload.messages", "messages"),
    answer=("ground_truth", "payload.GT", "payload.true_answer"),
    prediction=("candidate",),
    start=r'\s*\{[^{]*"payload"\s*:\s*\{"(old_)?sample_id"',
)


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """Whether a first record has scores by name; a failed call has none."""
    scores = fields.get("metric", "")
    return (scores is None or isinstance(scores, dict)) and TOOL.recognise(fields, name)


recognise_start = TOOL.recognise_start
read_files = TOOL.read_files
