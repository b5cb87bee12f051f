"""New subjects among those of a fit: rank, score, ties, and who is above, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from irtjax.data.wording import counted
from irtjax.report.words import interval, number

#: Header of the table of new subjects, and what it does without where it is narrow.
HEADER = ("rank", "model", "score", "interval", "accuracy", "tied with")
SPARE = ("accuracy",)
#: Names shown of those that are tied with a subject, or above it.
SHOWN = 3


def standing_rows(rows: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Cells of the table, of the rows of `ScoredSubjects.table`, best first."""
    having = [row for row in rows if row.get("rank") is not None]
    having.sort(key=lambda row: row["rank"])
    return [
        [
            ranks(row),
            row["subject"],
            number(row["expected_score"], 3),
            interval(row["expected_score_lower"], row["expected_score_upper"], 3),
            number(row["accuracy"], 3),
            few(row["tied_with"]),
        ]
        for row in having
    ]


def ranks(row: Mapping[str, Any]) -> str:
    """The interval of a rank.

    >>> ranks({"rank_lower": 1, "rank_upper": 2}), ranks({"rank_lower": 3})
    ('1–2', '3')
    """
    low, high = row["rank_lower"], row.get("rank_upper", row["rank_lower"])
    return f"{low}" if low == high else f"{low}–{high}"


def few(names: str) -> str:
    """Some of the names that a cell has, and how many more there are.

    >>> few("a; b; c; d; e"), few("")
    ('a, b, c and 2 more', '–')
    """
    listed = names.split("; ") if names else []
    more = len(listed) - SHOWN
    shown = ", ".join(listed[:SHOWN])
    return (shown or "–") + (f" and {more} more" if more > 0 else "")


def above_sentences(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Who is significantly above each new subject, for a few of these."""
    found = []
    for row in list(rows)[:SHOWN]:
        if row.get("rank") is None:
            continue
        if row["above"]:
            count = counted(len(row["above"].split("; ")), "model")
            found.append(f"{count} above {row['subject']}: {few(row['above'])}.")
        else:
            found.append(f"No model is significantly above {row['subject']}.")
    return found
