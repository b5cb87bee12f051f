"""The leaderboard as a short text table: rank, score, its interval drawn, and ties."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.calibration.shown_names import NONE, bare_names, short_names, tie_text
from irtjax.data.text_table import (
    cut_names,
    display_width,
    has_unicode,
    plain,
    terminal_width,
    text_table,
)
from irtjax.data.wording import counted, percent, points, visible

if TYPE_CHECKING:
    import pyarrow as pa

#: Subjects of a table that is shown whole, and those of a longer one at either end.
WHOLE, TOP, BOTTOM = 12, 8, 3
#: Columns of the drawing: fewest, usual, most.
_LEAST_PLOT, _PLOT, _MOST_PLOT = 12, 22, 40
#: Columns of a name and of the ties: fewest, and those that the drawing leaves them.
_LEAST_NAME, _NAME, _LEAST_TIES, _TIES = 16, 28, 9, 16
#: Names that are cut with regard to each other.
_MOST_CUT = 1000
#: Beginnings of the columns that the table of numbers has.
_SCORES = ("expected_score", "accuracy")
_AXIS, _LINE, _POINT = "┊", "━", "●"


def leaderboard_text(
    ranked: Any,
    *,
    place: str = "",
    everything: bool = False,
    width: int | None = None,
    unicode: bool | None = None,
) -> str:
    """Returns the leaderboard, of `RankedSubjects`, as text that fits the screen.

    The score is the expected mean response on all items of the fit. A subject's ranks
    go from 1 + the number of subjects that are significantly better to their number
    less those that are significantly worse, the two that its ties allow: a confidence
    set of its rank by pairwise tests (Mogstad, Romano, Shaikh and Wilhelm 2024), with
    the false discovery rate of the pairs. "tied with" names the subjects between.

    Args:
        ranked: The ranking.
        place: A file to name on the right of the heading.
        everything: All subjects; else the first and the last ones of more than 12.
        width: Columns of the screen; None takes those of the terminal.
        unicode: Whether other characters than ASCII are used; None asks the stream.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> fit = irtjax.fit(irtjax.ResponseTable.from_arrays(data), "rasch")
    >>> leaderboard_text(irtjax.rank(fit)).splitlines()[0]
    '4 subjects · 4 items · complete'
    """
    unicode = has_unicode() if unicode is None else unicode
    width = terminal_width() if width is None else width
    count = ranked.table.num_rows
    lines = _heading(ranked.heading or counted(count, ranked.noun), place, width)
    if count:
        lines.append(_Board(ranked, everything, width).text(unicode))
    else:
        lines.append(f" No {ranked.noun} has a finite ability.")
    return "\n".join(plain(line, unicode) for line in lines)


def leaderboard_rows(
    ranked: Any, everything: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows of the leaderboard, without the drawing.

    The ties of a row are all named.
    """
    if not ranked.table.num_rows:
        return ["rank", ranked.noun, "score"], []
    board = _Board(ranked, everything, 0)
    columns = board.numbers()
    short = list(short_names(ranked.table.column("subject").to_pylist()).values())
    columns["tied with"] = [", ".join(names) or NONE for names in board.ties(short)]
    return list(columns), [list(cells) for cells in zip(*columns.values(), strict=True)]


def leaderboard_table(ranked: Any) -> pa.Table:
    """Returns the leaderboard as numbers: ranks that ties allow, scores, accuracies."""
    import pyarrow as pa

    names = [x for x in ranked.table.column_names if x.startswith(_SCORES)]
    low, high = (pa.array(ends) for ends in tie_ranks(ranked))
    columns = {
        "rank": ranked.table.column("rank"),
        "tied_rank_lower": low,
        "tied_rank_upper": high,
        ranked.noun: ranked.table.column("subject"),
        **{name: ranked.table.column(name) for name in names},
    }
    return pa.table(columns)


def tie_ranks(ranked: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best and the worst rank of every subject that its ties allow.

    Groups are runs of subjects in the order of the table.
    """
    first, last = (
        np.asarray(ranked.table.column(name), np.int64)
        for name in ("first_group", "last_group")
    )
    # Those whose last group is before the first one of a subject are better.
    better = np.searchsorted(last, first, side="left")
    return better + 1, np.searchsorted(first, last, side="right")


def rank_span(low: int, high: int) -> str:
    """Returns ranks from one to another as text.

    >>> rank_span(1, 2), rank_span(1003, 1003)
    ('1–2', '1,003')
    """
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def score_digits(halves: Sequence[float], highest: float) -> int:
    """Returns the digits of scores: two, and one more where intervals are narrower.

    >>> score_digits([0.03], 0.9), score_digits([0.004], 0.9), score_digits([2], 80)
    (2, 3, 1)
    """
    digits = 2 - (highest > 10) - (highest > 1000)
    positive = [half for half in halves if half > 0]
    fine = bool(positive) and float(np.median(positive)) < 10.0**-digits
    return digits + fine


def _heading(heading: str, place: str, width: int) -> list[str]:
    """The first line, with a file at its right end if there is room for both."""
    place = visible(place)
    room = min(width, 80) - display_width(heading) - display_width(place)
    if not place:
        return [heading]
    return [f"{heading}{' ' * room}{place}"] if room > 2 else [heading, f" {place}"]


@dataclasses.dataclass(frozen=True)
class _Scale:
    """Values drawn in columns of text, the first of which is the axis."""

    low: float
    high: float
    width: int

    def column(self, value: float) -> int:
        share = (value - self.low) / (self.high - self.low)
        return 1 + round(min(max(share, 0.0), 1.0) * (self.width - 2))

    def line(self, value: float, low: float, high: float) -> str:
        """An interval with its point."""
        cells = [_AXIS, *" " * (self.width - 1)]
        first, last = self.column(low), self.column(high)
        cells[first : last + 1] = _LINE * (last + 1 - first)
        cells[self.column(value)] = _POINT
        return "".join(cells).rstrip()

    def labels(self) -> str:
        """Labels of round values, each above its column."""
        span = self.high - self.low
        cells = [" "] * self.width
        for step in _steps(span):
            digits = max(0, -math.floor(math.log10(step) + 1e-9))
            ticks = np.arange(math.ceil(self.low / step), self.high / step + 1e-9)
            texts = [points(k * step, digits) for k in ticks]
            starts = [
                self.column(k * step) - len(text) // 2
                for k, text in zip(ticks, texts, strict=True)
            ]
            placed = [
                (start, text)
                for start, text in zip(starts, texts, strict=True)
                if start > 0 and start + len(text) <= self.width
            ]
            free = all(
                one[0] + len(one[1]) + 1 <= two[0]
                for one, two in zip(placed, placed[1:], strict=False)
            )
            if free and placed:
                for start, text in placed:
                    cells[start : start + len(text)] = text
                break
        return "".join(cells).rstrip() or " "


def _steps(span: float):
    """Round distances of ticks, the finest first."""
    power = 10.0 ** math.floor(math.log10(span / 10))
    for factor in (1, 2, 5, 10, 20, 50, 100):
        yield factor * power


class _Board:
    """The shown rows of a ranking and their cells."""

    def __init__(self, ranked: Any, everything: bool, width: int) -> None:
        self.ranked, self.width = ranked, width
        count = ranked.table.num_rows
        self.whole = everything or count <= WHOLE
        ends = [(0, count)] if self.whole else [(0, TOP), (count - BOTTOM, count)]
        self.places = [k for start, stop in ends for k in range(start, stop)]
        self.rows = [row for start, stop in ends for row in ranked.rows(start, stop)]
        self.low, self.high = tie_ranks(ranked)
        scored = any(_known(row["expected_score"]) for row in self.rows)
        self.measure = "expected_score" if scored else "ability"
        prefix = "expected_score_" if scored else ""
        self.ends = f"{prefix}lower", f"{prefix}upper"
        bounds = [self._interval(row) for row in self.rows]
        halves = [(pair[1] - pair[0]) / 2 for pair in bounds if pair]
        sizes = [abs(row[self.measure] or 0.0) for row in self.rows]
        self.has_ends = bool(halves)
        self.digits = score_digits(halves, max(sizes))
        self.bare = scored and max(sizes) <= 1

    def text(self, unicode: bool) -> str:
        """The table, below a note where words that all names have are left out."""
        columns = self.numbers()
        noun, mark = self.ranked.noun, "…" if unicode else ".."
        words = {"rank", noun}
        taken = sum(
            max(map(display_width, [name, *cells])) + 2
            for name, cells in columns.items()
            if name != noun
        )
        note, names, ties, sizes = self._named(self.width - taken - 5)
        shown = [names[k] for k in self.places]
        if len(names) <= _MOST_CUT:
            # Different from those that are not shown too.
            names = cut_names(names, sizes[0], mark)
            shown = [names[k] for k in self.places]
        columns[noun] = cut_names(shown, sizes[0], mark)
        if sizes[1]:
            scale = self._scale(sizes[1])
            columns[scale.labels()] = [self._drawn(scale, row) for row in self.rows]
            words.add(scale.labels())
        if sizes[2]:
            columns["tied with"] = [tie_text(x, sizes[2], mark) for x in ties]
            words.add("tied with")
        rows = [list(cells) for cells in zip(*columns.values(), strict=True)]
        if not self.whole:
            rows.insert(TOP, ["…", self.gap()] + [""] * (len(columns) - 2))
        options: dict[str, Any] = {"width": self.width, "unicode": unicode}
        table = text_table(list(columns), rows, left=words, **options)
        return f" {note}\n{table}" if note else table

    def _named(
        self, room: int
    ) -> tuple[str, list[str], list[list[str]], tuple[int, int, int]]:
        """A note, all names, ties of rows, and the columns of these and the drawing.

        Names are whole if there is room, else without what they can do without.
        """
        every = [visible(x) for x in self.ranked.table.column("subject").to_pylist()]
        short, (bare, note) = list(short_names(every).values()), bare_names(every)
        forms = [every, short]
        # A note that does not fit is worse than a name that is cut.
        forms += [bare] if note and display_width(note) < self.width else []
        least = [display_width(self.ranked.noun)]
        least += [] if self.whole else [display_width(self.gap())]
        names, ties, sizes = every, [[""]], (0, 0, 0)
        for names in forms:
            ties = self.ties(short if names is every else names)
            wanted = max([*(display_width(names[k]) for k in self.places), *least])
            longest = max(display_width(", ".join(tied)) for tied in ties)
            single = [display_width(tied[0]) + 3 for tied in ties if tied]
            one = float(np.median(single)) if single else 0
            sizes = _shared(room, wanted, longest, one > _TIES)
            if sizes[0] >= wanted and sizes[1]:
                break
        return note if names is bare else "", names, ties, sizes

    def gap(self) -> str:
        """What stands for the rows that are left out."""
        return f"({self.ranked.table.num_rows - len(self.rows):,} more)"

    def numbers(self) -> dict[str, list[str]]:
        """The columns before the drawing, by their names."""
        number = lambda value: points(value, self.digits, self.bare)
        columns = {
            "rank": [rank_span(self.low[k], self.high[k]) for k in self.places],
            self.ranked.noun: [visible(row["subject"]) for row in self.rows],
            self.measure.removeprefix("expected_"): [
                number(row[self.measure]) for row in self.rows
            ],
        }
        if self.has_ends:
            columns[percent(self.ranked.level)] = [
                "–".join(map(number, self._interval(row))) or NONE for row in self.rows
            ]
        return columns

    def _interval(self, row: dict[str, Any]) -> tuple[float, ...]:
        """The ends of a row's interval; nothing without one."""
        ends = tuple(row[name] for name in self.ends)
        return ends if all(map(_known, ends)) else ()

    def ties(self, names: list[str]) -> list[list[str]]:
        """Of the names of all subjects, those that each row is tied with."""
        return [
            names[self.low[k] - 1 : k] + names[k + 1 : self.high[k]]
            for k in self.places
        ]

    def _drawn(self, scale: _Scale, row: dict[str, Any]) -> str:
        value = row[self.measure]
        if not _known(value):
            return _AXIS
        return scale.line(value, *(self._interval(row) or (value, value)))

    def _scale(self, width: int) -> _Scale:
        """The scale of all subjects, shown or not."""
        rows = self.rows if self.whole else self.ranked.rows()
        names = (self.measure, *self.ends)
        values = [row[name] for row in rows for name in names if _known(row[name])]
        low, high = min(values, default=0.0), max(values, default=1.0)
        slack = 0.0 if high > low else max(abs(high), 1.0) / 20
        return _Scale(low - slack, high + slack, width)


def _known(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def _shared(
    room: int, name: int, tied: int, counted_ties: bool
) -> tuple[int, int, int]:
    """Columns of names, of the drawing and of ties; 0 where there is no room.

    Ties that are counted, since their names are long, are named where there is more.
    """
    sizes = [min(name, _LEAST_NAME), _LEAST_PLOT, _LEAST_TIES]
    if room < sum(sizes):
        # Without the drawing, then without the ties; each had a gap before it.
        sizes[1], room = 0, room + 2
    if room < sum(sizes):
        sizes[2], room = 0, room + 2
    most = max(tied, _LEAST_TIES)
    usual = _LEAST_TIES if counted_ties else min(most, _TIES)
    wanted = [(0, min(name, _NAME)), (2, usual), (1, _PLOT)]
    wanted += [(0, name), (2, most), (1, _MOST_PLOT)]
    for k, size in wanted:
        if sizes[k]:
            sizes[k] += max(min(size - sizes[k], room - sum(sizes)), 0)
    return sizes[0], sizes[1], sizes[2]
