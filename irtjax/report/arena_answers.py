"""What an arena depends on: checks of its fit, its fragile first place, what decides.

Each costs further fits, so that large tables have none. The numbers are saved with the
fit, as `Arena.answers`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from irtjax.data.wording import counted

if TYPE_CHECKING:
    from irtjax.comparisons.arena import Arena
    from irtjax.data.comparison_table import ComparisonTable

#: Rows up to which the fit is checked, and comparisons up to which influence is sought:
#: about two seconds each.
MOST_ROWS, MOST_COMPARISONS = 200_000, 50_000
#: Effects of categories, judges and rates of ties up to which influence is sought:
#: about five seconds.
MOST_EFFECTS = 500
#: Options of a fit that its checks depend on.
OPTIONS = ("model", "ties", "both_bad", "covariates", "order")
OPTIONS += ("category", "judge", "tie_rates")
#: Battles that nobody collects for one pair.
MOST_BATTLES = 1e6
#: Fields of `comparisons.influence.Influence` that are saved; `removed` is long.
INFLUENCE = ("first", "rival", "count", "total", "unit")


def with_answers(arena: Arena, table: ComparisonTable) -> Arena:
    """Returns the fit with its answers, as far as its size and its model allow.

    Args:
        arena: The fit.
        table: Its comparisons.

    >>> import irtjax
    >>> rows = [[30, 10, 0, 0], [40, 20, 0, 0], [30, 20, 0, 0]]
    >>> table = irtjax.ComparisonTable.of("abc", [0, 0, 1], [1, 2, 2], rows)
    >>> arena = with_answers(irtjax.fit_comparisons(table), table)
    >>> answer_lines(arena)["Fragile"]
    'Without 24 of 150 comparisons (16 %), b is first instead of a.'
    """
    from irtjax.comparisons.checks import TIMES
    from irtjax.comparisons.diagnostics import diagnose
    from irtjax.comparisons.influence import influence
    from irtjax.comparisons.plan import battles_to_decide

    names = arena.abilities.table.column("subject").to_pylist()
    if len(names) < 2:
        return arena
    number = battles_to_decide(arena, *names[:2])
    battles = number if math.isfinite(number) else None
    answers: dict[str, Any] = {
        "decision": {"first": names[0], "second": names[1], "battles": battles}
    }
    option = arena.options.get
    options = {x: arena.options[x] for x in OPTIONS if x in arena.options}
    # Rankings have no pairs, and weights of a preset change with what is left out.
    pairs = option("model") != "plackett_luce" and option("preset") is None
    if pairs and len(table.first) <= MOST_ROWS:
        clusters = option("cluster") or [None]
        time = next((x for x in TIMES if x in table.labels), None)
        checks = diagnose(table, cluster=clusters[0], time=time, **options)
        answers |= {"checks": checks.lines(), "misfit": checks.significant()}
    effects = sum(x.num_rows for x in arena.tables.values())
    few = effects <= MOST_EFFECTS and table.num_comparisons <= MOST_COMPARISONS
    if pairs and few:
        fragile = influence(table, **options)
        answers["influence"] = {name: getattr(fragile, name) for name in INFLUENCE}
    return dataclasses.replace(arena, answers=answers)


def answer_lines(arena: Arena) -> dict[str, str]:
    """Returns lines of the verdict by name."""
    misfit = "; ".join(arena.answers.get("misfit", ()))
    lines = {"Fragile": _fragile(arena)[1], "Plan": _plan(arena)[1], "Misfit": misfit}
    return {name: text for name, text in lines.items() if text}


def answer_tiles(arena: Arena) -> list[dict[str, str]]:
    """Returns the head of the page: label, value and text of each answer."""
    tiles = {"Fragile": _fragile(arena), "To decide": _plan(arena)}
    return [
        {"label": name, "value": value, "text": text}
        for name, (value, text) in tiles.items()
        if text
    ]


def _fragile(arena: Arena) -> tuple[str, str]:
    """The fewest comparisons that the first place depends on: number and sentence."""
    from irtjax.comparisons.influence import Influence

    if "influence" not in arena.answers:
        return "", ""
    influence = Influence(**arena.answers["influence"], removed=None)
    value = counted(influence.count, influence.unit) if influence.count else "Stable"
    return value, influence.sentence


def _plan(arena: Arena) -> tuple[str, str]:
    """What decides between the best two: number and sentence."""
    decision = arena.answers.get("decision", {"battles": 0})
    number = decision["battles"]
    if number == 0:
        return "", ""
    pair = f"{decision['first']} and {decision['second']}"
    if number is None or number > MOST_BATTLES:
        return "Tied", f"{pair} do not differ by any number of battles in reach."
    return f"{number:,.0f} battles", (
        f"{counted(math.ceil(number), 'more battle')} of {pair} would decide between"
        " them with a power of .8."
    )
