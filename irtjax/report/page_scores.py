"""Scores of models in `report.html`: the figure, the table, and scores by task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from irtjax.calibration.leaderboard_text import (
    points,
    rank_span,
    score_digits,
    tie_ranks,
)
from irtjax.calibration.shown_names import short_names
from irtjax.data.wording import are, counted, percent
from irtjax.report.leaderboard_page import benchmarks_with_accuracy
from irtjax.report.page_data import Sources, labels
from irtjax.report.page_figures import nice_step, ticks
from irtjax.report.words import interval, listing, number

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects

#: Rows that stand in the page without its script, and rows of the figure.
ROWS, DRAWN = 40, 60
#: Letters of a name in the figure, and names in a cell of ties.
DRAWN_LABEL, NAMED = 34, 2
#: Most lanes of brackets, and the pixels between two where they are few and many.
LANES, FAR, NEAR = 22, 11, 5
#: Items of a test of persons, of whom there may be few.
TEST = 100
#: Models and tasks of the table of scores by task, and its shades.
TASK_ROWS, TASKS, SHADES = 60, 24, 10


def noun_of(fit: Calibration) -> str:
    """What is ranked, such as "model"."""
    return fit.nouns[0]


class Measure(NamedTuple):
    """What subjects are shown by, as in the table on the screen.

    Attributes:
        name: Column of the score, or of the ability where there is no score.
        digits: Digits of a value.
        bare: Whether values have no zero before the point.
    """

    name: str
    digits: int
    bare: bool

    @property
    def is_score(self) -> bool:
        """Whether it is a score."""
        return self.name != "ability"

    def of(self, row: Mapping[str, Any]) -> tuple[float, float, float]:
        """The value of a row and the ends of its interval, NaN where it has none."""
        prefix = f"{self.name}_" if self.is_score else ""
        numbers = (row.get(x) for x in (self.name, f"{prefix}lower", f"{prefix}upper"))
        value, low, high = (math.nan if x is None else float(x) for x in numbers)
        return value, low, high

    def text(self, value: float) -> str:
        """A value as text."""
        return points(value, self.digits, self.bare)

    def span(self, low: float, high: float) -> str:
        """An interval as text; "" where there is none."""
        finite = math.isfinite(low) and math.isfinite(high)
        return f"{self.text(low)}–{self.text(high)}" if finite else ""


def measure_of(rows: Sequence[Mapping[str, Any]]) -> Measure:
    """Scores where there are any, else abilities."""
    scores = Measure("expected_score", 2, True)
    values = [scores.of(row) for row in rows]
    if not any(math.isfinite(x[0]) for x in values):
        return Measure("ability", 2, False)
    halves = [(high - low) / 2 for _, low, high in values if math.isfinite(high - low)]
    highest = max(abs(x[0]) for x in values if math.isfinite(x[0]))
    return Measure("expected_score", score_digits(halves, highest), highest <= 1)


def tied_places(ranked: RankedSubjects) -> list[tuple[int, int]]:
    """First and last row of those that each row is tied with, itself among them."""
    low, high = tie_ranks(ranked)
    return list(zip((low - 1).tolist(), (high - 1).tolist(), strict=True))


def tied_text(names: Sequence[str], k: int, ends: tuple[int, int]) -> str:
    """Names that row `k` is tied with; a dash without any.

    >>> tied_text(["a", "b", "c", "d", "e"], 1, (0, 4)), tied_text(["a"], 0, (0, 0))
    ('a, c and 2 more', '–')
    """
    others = [j for j in range(ends[0], ends[1] + 1) if j != k]
    # The nearest first; a list that is one name longer is not cut.
    others.sort(key=lambda j: (abs(j - k), j))
    named = others if len(others) <= NAMED + 1 else others[:NAMED]
    text = ", ".join(names[j] for j in sorted(named))
    left = len(others) - len(named)
    return text + f" and {left:,} more" * bool(left) or "–"


def score_figure(
    ranked: RankedSubjects, rows: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """The figure of scores with intervals and brackets of ties, of the first rows.

    Places are shares of its width, so that it is as wide as the window and letters keep
    their size; heights are pixels.
    """
    chosen = rows[:DRAWN]
    shown = measure_of(rows)
    values = [shown.of(row) for row in chosen]
    finite = [x for value in values for x in value if math.isfinite(x)]
    if len(chosen) < 2 or not finite:
        return None
    step = 24 if len(chosen) <= 20 else 18
    top, low, high = 24, min(finite), max(finite)
    room = max(0.03 * (high - low), 1e-9)
    low, high = low - room, high + room
    share = lambda x: f"{100 * (x - low) / (high - low):.2f}%"
    whole = labels(row["subject"] for row in rows)[: len(chosen)]
    names = labels(short_names(whole).values(), DRAWN_LABEL)
    drawn = []
    for k, (name, value) in enumerate(zip(names, values, strict=True)):
        at, *ends = value
        span = shown.span(*ends)
        place = {"y": top + step // 2 + step * k, "name": name, "at": share(at)}
        if span:
            place |= {"low": share(ends[0]), "high": share(ends[1])}
        text = f"{whole[k]}: {shown.text(at)}" + f" ({span})" * bool(span)
        drawn.append(place | {"title": text, "value": shown.text(at)})
        if not math.isfinite(at):
            drawn[-1]["at"] = None
    brackets, lanes, apart = _brackets(rows, len(chosen), top, step)
    kind = "Score" if shown.is_score else "Ability"
    level = percent(ranked.level)
    noun = ranked.noun
    left = len(rows) - len(chosen)
    note = f"{kind} with its {level} interval"
    if brackets:
        note += f"; a bracket joins {noun}s that are tied"
    if left:
        note += f". The first {len(chosen):,} of {counted(len(rows), noun)}"
    longest = max(map(len, names))
    return {
        "rows": drawn,
        "ticks": [
            {"at": share(x), "text": points(x, digits, shown.bare)}
            for x, digits in _ticks(low, high)
        ],
        "brackets": brackets,
        # Paddings of the style: for names, and for scores and brackets.
        "names": name_class(longest),
        "lanes": min(math.ceil(lanes * apart / 30), 4),
        "top": top,
        "bottom": top + step * len(chosen),
        "height": top + step * len(chosen) + 22,
        "note": f"{note}.",
        "kind": kind,
        "level": level,
        "description": f"{counted(len(drawn), noun)}, the best first; the table below"
        " has the same numbers.",
    }


def name_class(longest: int) -> int:
    """The class of the style that has room for names of so many letters."""
    return next(k for k, most in enumerate((12, 20, 28, 999)) if longest <= most)


def _ticks(low: float, high: float) -> list[tuple[float, int]]:
    """Round numbers between two ends, and the digits that they need."""
    digits = max(0, -math.floor(math.log10(nice_step(low, high, 9)) + 1e-9))
    return [(x, digits) for x in ticks(low, high, 9)]


def _brackets(
    rows: Sequence[Mapping[str, Any]], drawn: int, top: int, step: int
) -> tuple[list[str], int, int]:
    """Paths of the brackets of groups of ties, their lanes, and pixels between two.

    A bracket takes the first lane that is free; one without its end goes on below.
    """
    spans: dict[int, list[int]] = {}
    for k, row in enumerate(rows):
        if row["first_group"] > rows[drawn - 1]["last_group"]:
            break
        for group in range(row["first_group"], row["last_group"] + 1):
            spans.setdefault(group, []).append(k)
    ends = sorted((of[0], of[-1]) for of in spans.values() if len(of) > 1)
    free: list[int] = []
    placed = []
    for first, last in ends:
        if first >= drawn:
            continue
        lane = next((k for k, until in enumerate(free) if until < first), len(free))
        if lane == LANES:
            continue
        free[lane : lane + 1] = [last]
        placed.append((lane, first, last))
    apart = FAR if len(free) <= 8 else NEAR
    paths = []
    for lane, first, last in placed:
        x, tip = lane * apart, 4 if apart == FAR else 2
        y = top + step * first + 4
        path = f"M{x - tip} {y}h{tip}"
        if last < drawn:
            path += f"V{top + step * (last + 1) - 4}h{-tip}"
        else:
            path += f"V{top + step * drawn}"
        paths.append(path)
    return paths, len(free), apart


def score_table(
    ranked: RankedSubjects,
    rows: list[dict[str, Any]],
    meaning: str = "expected mean response over all items",
    *,
    note: str = "",
    abilities: bool = True,
) -> dict[str, Any]:
    """The table of models, its first rows.

    Args:
        ranked: The ranking.
        rows: Its rows.
        meaning: What the score is.
        note: A sentence after the caption.
        abilities: Whether abilities are a column of their own.
    """
    names = labels(row["subject"] for row in rows)
    others = list(short_names(names).values())
    places, measure = tied_places(ranked), measure_of(rows)
    shown = []
    for k, (row, name) in enumerate(zip(rows[:ROWS], names, strict=False)):
        value, *ends = measure.of(row)
        low, high = row["lower"], row["upper"]
        cells = {
            "rank": rank_span(*(place + 1 for place in places[k])),
            "name": name,
            "flags": row.get("flags"),
            "score": measure.text(value),
            "interval": measure.span(*ends),
            "ties": tied_text(others, k, places[k]),
            "ranks": f"{row['rank_lower']}–{row['rank_upper']}",
            "ability": number(row["ability"]),
            "half": number(None if None in (low, high) else (high - low) / 2),
            "best": number(row["probability_best"]),
        }
        ends = (row.get("accuracy_lower"), row.get("accuracy_upper"))
        cells["accuracy"] = number(row.get("accuracy"), 3)
        cells["accuracy_interval"] = "" if None in ends else interval(*ends)
        shown.append(cells)
    noun, left = ranked.noun, len(rows) - len(shown)
    caption = counted(len(rows), noun)
    if measure.is_score:
        caption += f". Score: {meaning}"
    return {
        "noun": noun,
        "rows": shown,
        "level": percent(ranked.level),
        "measure": "Score" if measure.is_score else "Ability",
        "abilities": measure.is_score and abilities,
        "accuracies": any(row.get("accuracy") is not None for row in rows[:1]),
        "caption": f"{caption}. {note}".rstrip(),
        "left": f"{counted(left, f'more {noun}')} {are(left)} in abilities.csv."
        if left > 0
        else "",
    }


def items_first(fit: Calibration) -> bool:
    """Whether a fit is of a test: of more persons than items, or many times as many."""
    items, subjects = len(fit.item_names), len(fit.subject_names)
    few = subjects > items and (items <= TEST or subjects >= 5 * items)
    return noun_of(fit) == "subject" and few


def task_table(of: Sources, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Mean responses by model and task, with a shade; None where there is one task.

    A shade is a share of the range of all cells.
    """
    from irtjax.calibration.tables import of_benchmark

    tasks = benchmarks_with_accuracy(of.ranked)
    if len(tasks) < 2 or of.fit.benchmarks is None:
        return None
    # Of many, those with the most items.
    sizes = Counter(of.fit.benchmarks.tolist())
    drawn = sorted(tasks, key=lambda name: (-sizes[name], name))[:TASKS]
    drawn = [name for name in tasks if name in {*drawn}]
    columns = [of_benchmark(name) for name in drawn]
    shown = rows[:TASK_ROWS]
    cells = [[[row.get(x) for x in four] for four in columns] for row in shown]
    levels = [c[0] for row in cells for c in row if c[0] is not None]
    low, high = min(levels, default=0.0), max(levels, default=1.0)
    measure = Measure("accuracy", score_digits([], high), high <= 1)
    shade = lambda x: int(min((x - low) / max(high - low, 1e-9), 0.999) * SHADES)
    task = of.fit.nouns[1]
    names = labels(row["subject"] for row in shown)
    body = []
    for name, row in zip(names, cells, strict=True):
        line = []
        for value, _, lower, upper in row:
            if value is None:
                line.append({"text": "", "shade": "", "title": ""})
                continue
            ends = [math.nan if x is None else x for x in (lower, upper)]
            text, span = measure.text(value), measure.span(*ends)
            line.append({"text": text, "shade": f"h{shade(value)}", "title": span})
        body.append({"name": name, "cells": line})
    left = [
        counted(count, what)
        for count, what in (
            (len(tasks) - len(drawn), f"more {task}"),
            (len(rows) - len(shown), f"more {noun_of(of.fit)}"),
        )
        if count > 0
    ]
    few = len(drawn) <= 6 and len(shown) <= 20
    return {
        "tasks": [
            {"name": name, "size": counted(sizes[one], "item")}
            for name, one in zip(labels(drawn, 40), drawn, strict=True)
        ],
        "rows": body,
        "intervals": few,
        "many": len(drawn) > 6,
        "noun": noun_of(of.fit),
        "caption": f"Mean response of each {task} over the items observed, from"
        f" {measure.text(low)} (light) to {measure.text(high)} (dark)."
        + (f" {listing(left)} {are(2)} in abilities.csv." if left else ""),
    }
