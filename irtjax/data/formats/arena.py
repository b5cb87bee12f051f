"""Comparisons of models, such as Chatbot Arena's battles: `read` refuses them.

A row compares two models. Tools name them ``model_a, model_b`` (Chatbot Arena),
``model_1, model_2`` (MT-bench), ``winner, loser`` (choix), ``agent_a, agent_b`` (Item
Response Warehouse), or ``model_id`` and ``sibling_model_ids`` (Open WebUI).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

#: Names of the two sides of a comparison, without what tells them apart.
_SIDE = re.compile(
    r"(?P<stem>(model|agent|player|system|assistant|llm|bot|team|generator)(_?(id|name))?)"
    r"[_ ]?(?P<side>a|b|1|2|left|right)(_?(id|name))?"
    r"|(answer|response)_?(?P<of>a|b|1|2)_(?P<what>model|generator)(_?(id|name))?"
)
_SIDES = ({"a", "b"}, {"1", "2"}, {"left", "right"})
#: Sides that have names of their own.
_NAMED = (
    *({"model", "opponent"}, {"player", "opponent"}, {"agent", "opponent"}),
    *({"home_team", "away_team"}, {"white", "black"}),
)
#: Of a column with the outcome; a matrix with columns of two models has none.
_OUTCOME = re.compile(
    r".*(winner|prefer|verdict|outcome|judg).*|(home_|away_)?score(_?(a|b|1|2))?|tie"
    r"|result|wins?|won|vote|choice|rating"
)
_WON = (
    *({"winner", "loser"}, {"winner_id", "loser_id"}, {"winner_name", "loser_name"}),
    {"winning_model", "losing_model"},
)

MESSAGE = (
    "holds battles (a row compares two models), not responses of models to items: rank"
    " the models with irtjax arena FILE, or irtjax.read_comparisons in Python"
)


def is_battles(names: Iterable[str]) -> bool:
    """Whether columns are those of a table of comparisons.

    >>> is_battles(["model_a", "model_b", "winner"]), is_battles(["winner", "loser"])
    (True, True)
    >>> is_battles(["item", "model_a", "model_b", "model_c"])
    False
    """
    lower = {name.strip().lower() for name in names}
    if any(pair <= lower for pair in _WON):
        return True
    sides: dict[str, set[str]] = {}
    for name in lower:
        if found := _SIDE.fullmatch(name):
            stem, side = found["stem"] or found["what"], found["side"] or found["of"]
            sides.setdefault(stem, set()).add(side)
    paired = any(pair <= x for pair in _SIDES for x in sides.values())
    paired = paired or any(pair <= lower for pair in _NAMED)
    return paired and any(map(_OUTCOME.fullmatch, lower))


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """The reason why a file of comparisons is not read."""
    feedback = fields.get("data")
    if isinstance(feedback, dict) and {"model_id", "rating"} <= feedback.keys():
        return MESSAGE
    return MESSAGE if is_battles(fields) else False


def recognise_columns(names: set[str], name: str) -> bool | str:
    """The reason why a table of comparisons is not read."""
    return MESSAGE if is_battles(names) else False
