"""What an arena depends on: checks of its fit, its fragile first place, what decides.

Each costs further fits, so that large tables have none.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from irtjax.data.wording import counted

if TYPE_CHECKING:
    from irtjax.comparisons.arena import Arena
    from irtjax.comparisons.diagnostics import PairDiagnostics
    from irtjax.comparisons.influence import Influence
    from irtjax.data.comparison_table import ComparisonTable

#: Rows up to which the fit is checked, and comparisons up to which influence is sought:
#: about two seconds each.
MOST_ROWS, MOST_COMPARISONS = 200_000, 50_000
#: Battles that nobody collects for one pair.
MOST_BATTLES = 1e6


@dataclasses.dataclass(frozen=True)
class ArenaAnswers:
    """Answers beyond the leaderboard.

    Attributes:
        diagnostics: Checks of the fit, or None.
        influence: The fewest comparisons on which the first place depends, or None.
        decision: The best two models, and the number of further comparisons that
            decides between them (0: they differ by now), or None.
    """

    diagnostics: PairDiagnostics | None = None
    influence: Influence | None = None
    decision: tuple[str, str, float] | None = None

    def lines(self) -> dict[str, str]:
        """Lines of the verdict by name."""
        found = {}
        if self.influence is not None:
            found["Fragile"] = self.influence.sentence
        if self.decision is not None and self.decision[2]:
            found["Plan"] = _plan(*self.decision)
        texts = self.diagnostics.significant() if self.diagnostics else []
        if texts:
            found["Misfit"] = "; ".join(texts)
        return found

    def tiles(self) -> list[dict[str, str]]:
        """The same for the head of the page."""
        found = []
        if self.influence is not None:
            count, unit = self.influence.count, self.influence.unit
            value = counted(count, unit) if count else "Stable"
            found.append(
                {"label": "Fragile", "value": value, "text": self.influence.sentence}
            )
        if self.decision is not None and self.decision[2]:
            text = _plan(*self.decision)
            number = self.decision[2]
            value = f"{number:,.0f} battles" if number <= MOST_BATTLES else "Tied"
            found.append({"label": "To decide", "value": value, "text": text})
        return found

    def sentences(self) -> list[str]:
        """All checks of the fit, one sentence each."""
        return self.diagnostics.lines() if self.diagnostics else []


def _plan(first: str, second: str, number: float) -> str:
    """What decides between the best two."""
    if not math.isfinite(number) or number > MOST_BATTLES:
        return f"{first} and {second} do not differ by any number of battles in reach."
    return (
        f"{counted(math.ceil(number), 'more battle')} of {first} and {second} would"
        " decide between them with a power of .8."
    )


def arena_answers(
    arena: Arena, table: ComparisonTable, options: Mapping[str, Any]
) -> ArenaAnswers:
    """Returns the answers of a fit.

    Args:
        arena: The fit.
        table: Its comparisons.
        options: Model, ties, both_bad, covariates and order, as they were fitted.

    >>> import irtjax
    >>> rows = [[30, 10, 0, 0], [40, 20, 0, 0], [30, 20, 0, 0]]
    >>> table = irtjax.ComparisonTable.of("abc", [0, 0, 1], [1, 2, 2], rows)
    >>> answers = arena_answers(irtjax.fit_comparisons(table), table, {})
    >>> answers.lines()["Fragile"]
    'Without 24 of 150 comparisons (16 %), b is first instead of a.'
    """
    from irtjax.comparisons.checks import TIMES
    from irtjax.comparisons.diagnostics import diagnose
    from irtjax.comparisons.influence import influence
    from irtjax.comparisons.plan import battles_to_decide

    names = arena.abilities.table.column("subject").to_pylist()
    if len(names) < 2:
        return ArenaAnswers()
    decision = (names[0], names[1], battles_to_decide(arena, *names[:2]))
    checks, fragile = None, None
    # Checks and influence are of plain comparisons.
    option = arena.options.get
    others = [option(x) for x in ("preset", "category", "judge", "tie_rates")]
    others.append(option("model") == "plackett_luce" or option("both_bad") == "outcome")
    if any(others):
        return ArenaAnswers(decision=decision)
    if len(table.first) <= MOST_ROWS:
        clusters = arena.options.get("cluster") or [None]
        time = next((x for x in TIMES if x in table.labels), None)
        checks = diagnose(table, cluster=clusters[0], time=time, **options)
    if table.num_comparisons <= MOST_COMPARISONS:
        fragile = influence(table, **options)
    return ArenaAnswers(checks, fragile, decision)
