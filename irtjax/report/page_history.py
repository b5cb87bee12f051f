"""The history of a fit in `report.html`: ranks over time, and what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from irtjax.data.wording import counted
from irtjax.report.page_data import labels
from irtjax.report.page_html import SENTENCE
from irtjax.report.page_scores import measure_of, name_class, noun_of
from irtjax.report.words import short

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

#: Subjects of the figure, times, letters of a name, and pixels from row to row.
DRAWN, TIMES, LABEL, STEP = 20, 12, 34, 20
#: Pixels above the first row.
TOP = 30


def history_section(fit: Calibration, history: Any) -> dict[str, Any] | None:
    """The best subjects at each time, the oldest first; None where there is one time.

    Args:
        fit: The fit as it is.
        history: Its `table` has a row for each time and subject: date, subject, rank,
            expected score with its interval, and whether the subject is new; its
            `sentences` state what changed.
    """
    if history is None or not len(history.sentences):
        return None
    times: dict[str, list[dict[str, Any]]] = {}
    for row in history.table.to_pylist():
        times.setdefault(row["date"], []).append(row)
    left = max(len(times) - TIMES, 0)
    shown = list(times.items())[left:]
    for _, rows in shown:
        rows.sort(key=lambda row: (row["rank"] is None, row["rank"]))
    last = shown[-1][1]
    measure = measure_of(last)
    chosen = [row["subject"] for row in last[:DRAWN]]
    names = dict(zip(chosen, labels(chosen, LABEL), strict=True))
    # Times of one day differ by their minutes.
    days = {date[:10] for date, _ in shown}
    letters = 10 if len(days) == len(shown) else 16
    share = 100 / max(len(shown) - 1, 1)
    places = [f"{share * k:.2f}%" for k in range(len(shown))]
    lines = [_line(name, names[name], shown, places, measure) for name in chosen]
    count = len(last)
    noun = noun_of(fit)
    note = "Places at each time; a ring is a new one."
    if count > len(chosen):
        note = f"The first {len(chosen)} of {counted(count, noun)}. {note}"
    return {
        "sentences": [short(x, SENTENCE) for x in [*history.sentences][::-1][:TIMES]],
        "lines": lines,
        "times": [
            {"at": at, "text": date[:letters].replace("T", " "), "anchor": anchor}
            for at, (date, _), anchor in zip(
                places, shown, _anchors(len(shown)), strict=True
            )
        ],
        "names": name_class(max(map(len, names.values()), default=0)),
        "bottom": TOP + STEP * len(chosen),
        "note": note,
        "description": "The places of the best at each time.",
    }


def _anchors(count: int) -> list[str]:
    """Where the text of each time is, so that none leaves the figure."""
    return ["start", *["middle"] * (count - 2), "end"][:count]


def _line(
    name: str,
    label: str,
    shown: Sequence[tuple[str, Sequence[Mapping[str, Any]]]],
    places: Sequence[str],
    measure: Any,
) -> dict[str, Any]:
    """The places of one subject over time."""
    points, titles = [], []
    for at, (date, rows) in zip(places, shown, strict=True):
        place = next((k for k, row in enumerate(rows) if row["subject"] == name), None)
        if place is None:
            continue
        row = rows[place]
        value, *ends = measure.of(row)
        # One that was below the figure comes from its lower end.
        y = TOP + STEP // 2 + STEP * min(place, DRAWN)
        points.append({"x": at, "y": y, "new": bool(row["new"])})
        span = measure.span(*ends)
        text = f"{date[:10]}: rank {row['rank']}, {measure.text(value)}"
        titles.append(text + f" ({span})" * bool(span))
    steps = [
        {"x1": a["x"], "y1": a["y"], "x2": b["x"], "y2": b["y"]}
        for a, b in zip(points, points[1:], strict=False)
    ]
    title = "\n".join([label, *titles])
    return {"name": label, "points": points, "steps": steps, "title": title}
