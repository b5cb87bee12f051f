"""Judgments of MT-bench (FastChat), and of LiveBench, which writes the same fields."""

from __future__ import annotations

from collections.abc import Sequence

_FIELDS = {"question_id", "model", "score", "turn", "tstamp"}


def is_judgments(names: Sequence[str]) -> bool:
    """Whether columns are those of judgments, in which -1 is one that failed.

    >>> is_judgments(["question_id", "model", "score", "turn", "tstamp", "judge"])
    True
    """
    return _FIELDS <= set(names)
