"""What votes show before any fit: judges who only tie, and votes of the future."""

from __future__ import annotations

import datetime
import time

import numpy as np

from irtjax.data.comparison_table import ComparisonTable
from irtjax.data.wording import counted

#: Labels of judges, and of the time of a vote.
JUDGES = ("judge", "annotator", "rater", "grader", "user_id")
TIMES = ("tstamp", "timestamp", "created_at", "time", "date")
#: Probability, of all judges together, below which ties alone are no chance.
RATE = 0.05
#: Seconds that the clock of a vote may be ahead.
SLACK = 86_400.0
#: Names that a warning lists.
MOST_NAMED = 3


def findings(table: ComparisonTable, now: float | None = None) -> list[str]:
    """Returns warnings on the votes of a table.

    Args:
        table: The comparisons.
        now: The present in seconds since 1970; None asks the clock.

    >>> votes = [[0, 0, 1, 0]] * 9 + [[1, 0, 0, 0], [0, 1, 0, 0]] * 9
    >>> judges = {"judge": np.array(["x"] * 9 + ["y"] * 18)}
    >>> table = ComparisonTable.of("ab", [0] * 27, [1] * 27, votes, labels=judges)
    >>> findings(table)
    ['1 judge gave ties alone: x (9 comparisons)']
    """
    texts = [_only_ties(table, name) for name in JUDGES if name in table.labels]
    present = time.time() if now is None else now
    texts += [_future(table, name, present) for name in TIMES if name in table.labels]
    return [text for text in texts if text]


def _only_ties(table: ComparisonTable, name: str) -> str:
    """Judges whose ties alone are no chance at the share of the others' ties."""
    codes, judges = table.labels.coded(name).sorted()
    votes = table.outcomes.sum(axis=1)
    even = table.outcomes[:, 2:].sum(axis=1)
    total = np.bincount(codes, votes, len(judges))
    ties = np.bincount(codes, even, len(judges))
    others = np.maximum(total.sum() - total, 1e-300)
    share = np.clip((ties.sum() - ties) / others, 0, 1)
    # (share of the others' ties)^votes, corrected for the number of judges.
    chance = share**total * len(judges)
    suspects = np.flatnonzero((ties == total) & (chance < RATE) & (judges != ""))
    if not suspects.size:
        return ""
    suspects = suspects[np.argsort(-total[suspects], kind="stable")]
    named = [
        f"{judges[k]} ({counted(round(float(total[k])), 'comparison')})"
        for k in suspects[:MOST_NAMED]
    ]
    left = len(suspects) - len(named)
    listed = ", ".join(named) + (f" and {left} more" if left else "")
    return f"{counted(len(suspects), name)} gave ties alone: {listed}"


def _future(table: ComparisonTable, name: str, now: float) -> str:
    """Votes of the future."""
    label = table.labels.coded(name)
    texts = label.words
    moments = np.array([seconds(str(text)) for text in texts])
    late = np.flatnonzero((moments > now + SLACK) & label.used())
    if not late.size:
        return ""
    rows = np.isin(label.code, late)
    count = round(float(table.outcomes[rows].sum()))
    last = str(texts[late[np.argmax(moments[late])]])
    return (
        f"{counted(count, 'comparison')} of the future ({name} {last}): check the clock"
        " and the unit"
    )


def seconds(text: str) -> float:
    """Seconds since 1970 of a number in s, ms, µs or ns, or of a date; else NaN.

    >>> seconds("1690000000"), seconds("1690000000000"), seconds("1970-01-02")
    (1690000000.0, 1690000000.0, 86400.0)
    """
    try:
        value = float(text)
        # A number of this century is below 4.1e9 seconds.
        for unit in (1e9, 1e6, 1e3):
            if 1e9 <= value / unit <= 4.1e9:
                return value / unit
        return value
    except ValueError:
        pass
    try:
        date = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return float("nan")
    date = date if date.tzinfo else date.replace(tzinfo=datetime.UTC)
    return date.timestamp()
