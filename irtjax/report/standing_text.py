"""New subjects among those of a fit: rank, score, ties, and who is above, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from irtjax.calibration.leaderboard_text import score_digits
from irtjax.calibration.shown_names import listed
from irtjax.data.text_table import display_width, terminal_width
from irtjax.data.wording import counted, percent, points, short_names, visible

#: New subjects of which those above are named.
SHOWN = 3
#: Columns of the names of those that a subject is tied with, at least.
_TIES = 16


def standing_table(
    rows: Iterable[Mapping[str, Any]], level: float, noun: str = "model"
) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the table, of the rows of `ScoredSubjects.table`, best first.

    Scores and ties are as on the leaderboard.
    """
    header = ["rank", noun, "score", percent(level), "tied with"]
    having = [row for row in rows if row.get("rank") is not None]
    having.sort(key=lambda row: row["rank"])
    ends = [[row[f"expected_score_{x}"] for x in ("lower", "upper")] for row in having]
    sizes = [abs(row["expected_score"]) for row in having]
    digits = score_digits([(b - a) / 2 for a, b in ends], max(sizes, default=0))
    shown = lambda value: points(value, digits, max(sizes) <= 1)
    cells = [
        [
            ranks(row),
            visible(row["subject"]),
            shown(row["expected_score"]),
            "–".join(map(shown, pair)),
        ]
        for row, pair in zip(having, ends, strict=True)
    ]
    taken = sum(
        max(map(display_width, x)) + 2 for x in zip(header[:-1], *cells, strict=True)
    )
    room = max(terminal_width() - taken - 1, _TIES)
    ties = [listed(_names(row["tied_with"]), room) for row in having]
    return header, [[*row, tied] for row, tied in zip(cells, ties, strict=True)]


def ranks(row: Mapping[str, Any]) -> str:
    """The interval of a rank.

    >>> ranks({"rank_lower": 1, "rank_upper": 2}), ranks({"rank_lower": 3})
    ('1–2', '3')
    """
    low, high = row["rank_lower"], row.get("rank_upper", row["rank_lower"])
    return f"{low}" if low == high else f"{low}–{high}"


def _names(cell: str) -> list[str]:
    """Short names of the subjects that a cell has."""
    return list(short_names(cell.split("; ")).values()) if cell else []


def above_sentences(
    rows: Iterable[Mapping[str, Any]], noun: str = "model"
) -> list[str]:
    """Who is significantly above each new subject, for a few of these."""
    sentences = []
    for row in list(rows)[:SHOWN]:
        if row.get("rank") is None:
            continue
        name = visible(row["subject"])
        if row["above"]:
            names = _names(row["above"])
            start = f"{counted(len(names), noun)} above {name}: "
            room = max(terminal_width() - len(start) - 1, _TIES)
            sentences.append(f"{start}{listed(names, room)}.")
        else:
            sentences.append(f"No {noun} is significantly above {name}.")
    return sentences
