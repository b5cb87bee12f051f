"""Sample logs of lmms-eval, as far as they differ from those of lm-evaluation-harness.

A file is ``MODEL/DATE_samples_TASK.jsonl``. The value of a metric is often an object of
what its aggregation needs: with a score, or with the answer and the prediction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from irtjax.data.reading.record_files import number_of

#: The names of files, without ending.
NAME = re.compile(r"(?P<run>\d{8}_\d{4,6})_samples_(?P<task>.+)")
_SCORES = "score acc accuracy correct is_correct hit true_false exact_match".split()
_ANSWERS = "answer gt_answer gt_ans ground_truth gt gold target label".split()
_PREDICTIONS = (
    "parsed_pred pred_answer pred_ans pred prediction parsed_prediction".split()
)
#: What is sent to a server that scores it.
_SUBMITTED = "submission"
#: Totals are rounded, and some are in per cent.
_ROUNDED = 0.006


def take_scores(
    rows: Sequence[dict[str, Any]], means: Mapping[str, Any]
) -> tuple[dict[str, str], set[str]]:
    """Puts scores in the place of objects, where their mean is that of the run.

    Args:
        rows: Of each record its metrics by name; changed.
        means: Means of metrics by name, as far as the results of the run have them.

    Returns:
        Notes by metric, and the metrics that have no score of each record.
    """
    notes: dict[str, str] = {}
    without = set[str]()
    for metric in dict.fromkeys(name for row in rows for name in row):
        values = [row[metric] for row in rows if metric in row]
        if metric == _SUBMITTED or any(isinstance(value, str) for value in values):
            for row in rows:
                row.pop(metric, None)  # Texts, such as the prompt, are no metrics.
            continue
        if not any(isinstance(value, dict) for value in values):
            continue
        scores = [_score(value) for value in values]
        numbers = [score for score in scores if score is not None]
        mean = sum(numbers) / len(numbers) if numbers else None
        if None in scores or mean is None or not _agree(mean, means.get(metric)):
            without.add(metric)
            continue
        for row, score in zip((x for x in rows if metric in x), scores, strict=True):
            row[metric] = score
        if any(_has_pair(value) for value in values):
            notes[metric] = f"{metric!r} is 1 where the prediction is the answer"
    return notes, without


def _score(value: Any) -> float | None:
    """The score of a record; None where an object has none."""
    if not isinstance(value, dict):
        return number_of(value)
    for name in _SCORES:
        if (score := number_of(value.get(name))) is not None:
            return score
    if not _has_pair(value):
        return None
    answer, prediction = _of(value, _ANSWERS), _of(value, _PREDICTIONS)
    if isinstance(prediction, list):
        return None  # Of open questions, where parts of a text count, too.
    answers = answer if isinstance(answer, list) else [answer]
    plain = lambda x: str(x).strip().lower()
    return float(plain(prediction) in map(plain, answers))


def _has_pair(value: Any) -> bool:
    """Whether a value has no score, but the answer and a prediction."""
    if not isinstance(value, dict) or any(name in value for name in _SCORES):
        return False
    return _of(value, _ANSWERS) is not None and _of(value, _PREDICTIONS) is not None


def _of(value: dict[str, Any], names: Sequence[str]) -> Any:
    """The first of several fields that is there."""
    return next((value[name] for name in names if value.get(name) is not None), None)


def _agree(mean: float, total: Any) -> bool:
    """Whether a mean is the total that the results have, if they have one."""
    total = number_of(total)
    if total is None:
        return True
    return min(abs(mean - total), abs(mean - total / 100)) <= _ROUNDED
