"""Battles of two models, such as Chatbot Arena's: recognised, and not read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_PAIRS = ({"model_a", "model_b"}, {"agent_a", "agent_b"})

MESSAGE = (
    "holds battles (a row compares two models), not responses to items; irtjax has no"
    " model of comparisons yet: rank the models with a package for Bradley-Terry"
    " models, such as arena-rank or choix"
)


def is_battles(names: Iterable[str]) -> bool:
    """Whether columns are those of a table of battles."""
    lower = {name.strip().lower() for name in names}
    return any(pair <= lower for pair in _PAIRS)


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """The reason why a file of battles is not read."""
    return MESSAGE if is_battles(fields) else False


def recognise_columns(names: set[str], name: str) -> bool | str:
    """The reason why a table of battles is not read."""
    return MESSAGE if is_battles(names) else False
