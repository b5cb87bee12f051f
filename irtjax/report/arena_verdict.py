"""The verdict on an arena, in lines: first place, style, what limits it, what next."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from irtjax._types import Status
from irtjax.data.text_table import terminal_width
from irtjax.report.arena_answers import answer_lines
from irtjax.report.verdict import MOST_WARNINGS, brief, first, following
from irtjax.report.words import number

#: Models that a line names.
MOST_NAMED = 3

if TYPE_CHECKING:
    from irtjax.calibration.rank import RankedSubjects
    from irtjax.comparisons.arena import Arena


def verdict(
    arena: Arena,
    ranked: RankedSubjects,
    *,
    folder: Path | str | None = None,
    width: int | None = None,
) -> dict[str, str]:
    """Returns the lines by name, those that have something to state.

    Args:
        arena: The fit.
        ranked: Its ranking.
        folder: The folder that the next command names.
        width: Columns for the names of the first; None takes those of the terminal.
    """
    width = terminal_width() if width is None else width
    lines = {
        "First": first(ranked, arena.status == Status.CONVERGED, width),
        "Style": style(arena),
        "Category": categories(arena),
        "Judges": judges(arena),
        **answer_lines(arena),
        "Mind": mind(arena),
        "Next": following(ranked, folder) if ranked.table.num_rows > 1 else "",
    }
    return {name: text for name, text in lines.items() if text}


def style(arena: Arena) -> str:
    """Returns effects of covariates, and the model whose ability they change most."""
    effects = [
        f"{name} {_signed(*effect)}" for name, effect in arena.covariate_effects.items()
    ]
    if not effects:
        return ""
    text = f"{', '.join(effects)} a standard deviation"
    if arena.style is None:
        return f"{text}."
    rows = arena.style.to_pylist()
    most = max(rows, key=lambda row: abs(row["difference"]))
    change = _signed(most["difference"], most["difference_se"])
    return f"{text}; changes {most['subject']} most, by {change}. It may be a mediator."


def categories(arena: Arena) -> str:
    """Returns who is first in how many categories, and how far abilities differ."""
    if "categories" not in arena.tables:
        return ""
    # The first row of each category is that of its best model.
    best: dict[str, str] = {}
    for row in arena.tables["categories"].to_pylist():
        best.setdefault(row["category"], row["subject"])
    count = Counter(best.values())
    (first_name, most), *others = count.most_common(MOST_NAMED)
    listed = [f"{first_name} is first in {most:,} of {len(best):,}"]
    listed += [f"{name} in {k:,}" for name, k in others]
    return (
        f"{', '.join(listed)}. Abilities differ between categories by a standard"
        f" deviation of {_measured(*arena.effects['category_sd'])}."
    )


def judges(arena: Arena) -> str:
    """Returns the most and the least reliable judge."""
    if "judges" not in arena.tables:
        return ""
    rows = arena.tables["judges"].to_pylist()
    named = (
        f"{row['judge']} ({_measured(row['reliability'], row['reliability_se'])})"
        for row in (rows[0], rows[-1])
    )
    return "Reliability, with a mean of 1, from {} to {}.".format(*named)


def _measured(value: float, error: float) -> str:
    """A number with its standard error."""
    return f"{number(value)} ± {number(error)}"


def _signed(value: float, error: float) -> str:
    """The same with its sign."""
    return f"{'+' if value >= 0 else '−'}{_measured(abs(value), error)}"


def mind(arena: Arena) -> str:
    """Returns the warnings that matter most, and that errors are not clustered."""
    sentences = [brief(text) for text in arena.warnings]
    if not arena.options.get("cluster"):
        unit = (
            "ranking" if arena.options.get("model") == "plackett_luce" else "comparison"
        )
        sentences.append(f"errors take {unit}s as independent (--cluster COLUMN)")
    return "; ".join(sentences[:MOST_WARNINGS])
