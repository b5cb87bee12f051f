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
_SIDES = (("a", "b"), ("1", "2"), ("left", "right"))
#: Sides that have names of their own.
_NAMED = (
    *(("model", "opponent"), ("player", "opponent"), ("agent", "opponent")),
    *(("home_team", "away_team"), ("white", "black"), ("first", "second")),
)
#: Of a column with the outcome; a matrix with columns of two models has none.
_OUTCOME = re.compile(
    r".*(winner|prefer|verdict|outcome|judg).*|(home_|away_)?score(_?(a|b|1|2))?|tie"
    r"|result|wins?(_(a|b|1|2))?|won|vote|choice|rating|.*(chosen|first_wins)"
)
_WON = (
    *(("winner", "loser"), ("winner_id", "loser_id"), ("winner_name", "loser_name")),
    ("winning_model", "losing_model"),
)

MESSAGE = (
    "holds battles (a row compares two models), not responses of models to items: rank"
    " the models with irtjax arena FILE, or irtjax.read_comparisons in Python"
)
FEEDBACK = (
    "holds battles of Open WebUI, not responses of models to items: write a table of"
    " model_a, model_b and winner, and rank the models with irtjax arena FILE"
)


def is_battles(names: Iterable[str]) -> bool:
    """Whether columns are those of a table of comparisons.

    >>> is_battles(["model_a", "model_b", "winner"]), is_battles(["winner", "loser"])
    (True, True)
    >>> is_battles(["item", "model_a", "model_b", "model_c"])
    False
    """
    names = list(names)
    if won_of(names):
        return True
    pair = sides_of(names)
    if pair is None or {x.strip().lower() for x in pair} == {"first", "second"}:
        return False  # These are names of much else.
    return any(_OUTCOME.fullmatch(name.strip().lower()) for name in names)


def won_of(names: Iterable[str]) -> tuple[str, str] | None:
    """Columns of the winner and the loser, if there are any."""
    own = {name.strip().lower(): name for name in names}
    pair = next((x for x in _WON if {*x} <= own.keys()), None)
    return None if pair is None else (own[pair[0]], own[pair[1]])


def sides_of(names: Iterable[str]) -> tuple[str, str] | None:
    """Columns of the two models, if there are any.

    >>> sides_of(["winner", "Model_B", "Model_A"])
    ('Model_A', 'Model_B')
    """
    own = {name.strip().lower(): name for name in names}
    sides: dict[str, dict[str, str]] = {}
    for name, column in own.items():
        if match := _SIDE.fullmatch(name):
            stem, side = match["stem"] or match["what"], match["side"] or match["of"]
            sides.setdefault(stem, {})[side] = column
    for one, other in _SIDES:
        for columns in sides.values():
            if {one, other} <= columns.keys():
                return columns[one], columns[other]
    pair = next((x for x in _NAMED if {*x} <= own.keys()), None)
    return None if pair is None else (own[pair[0]], own[pair[1]])


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """The reason why a file of comparisons is not read."""
    feedback = fields.get("data")
    if isinstance(feedback, dict) and {"model_id", "rating"} <= feedback.keys():
        return FEEDBACK
    return MESSAGE if is_battles(fields) else False


def recognise_columns(names: set[str], name: str) -> bool | str:
    """The reason why a table of comparisons is not read."""
    return MESSAGE if is_battles(names) else False
