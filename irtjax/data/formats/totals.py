"""Totals of tools that write no responses: recognised, and not read."""

from __future__ import annotations

from typing import Any

EUROEVAL = (
    "holds the totals of EuroEval (raw has the scores of bootstrap samples of a data"
    " set), not responses to items, of which EuroEval keeps none; evaluate the data"
    " sets with a harness that logs samples, such as lm-evaluation-harness with"
    " --log_samples"
)
BIGCODE = (
    "holds the totals of the BigCode harness, not responses to items; count the right"
    " generations of each problem (--save_generations), and write a CSV table with the"
    " columns model, item, response and trials"
)


BFCL = (
    "holds the wrong responses of BFCL alone, after its totals; write a CSV table with"
    " the columns model, item and response, with 0 for each id of this file and 1 for"
    " the others of the result file"
)
OLD_LMMS = (
    "is a log of lmms-eval of a version that wrote one object a task; write each record"
    " of its list logs as a line of MODEL/20260301_102030_samples_TASK.jsonl"
)


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """The reason why a file of totals is not read."""
    if {"args", "model_configs", "logs"} <= fields.keys():
        return OLD_LMMS
    if {"accuracy", "correct_count", "total_count"} <= fields.keys():
        return BFCL
    results, config = fields.get("results"), fields.get("config")
    if {"dataset", "task", "model"} <= fields.keys() and isinstance(results, dict):
        versions = {"euroeval_version", "scandeval_version"} & fields.keys()
        if versions or {"raw", "total"} <= results.keys():
            return EUROEVAL
    if isinstance(config, dict) and {"model", "tasks", "n_samples"} & config.keys():
        others = [x for key, x in fields.items() if key != "config"]
        if any(isinstance(x, dict) and any(map(_is_total, x)) for x in others):
            return BIGCODE
    return False


def _is_total(name: str) -> bool:
    """Whether a field is a total of a task of code."""
    return name.startswith("pass@") or name in ("bleu", "avg_accuracy", "codebleu")
