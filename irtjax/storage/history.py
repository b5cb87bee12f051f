"""What changed in a fit over time: subjects, items, and moves that are significant.

A subject has passed another one where both differ significantly at both times, in
opposite orders (pairs as `irtjax.rank` tests them, false discoveries controlled). Ranks
that change by new subjects or by errors of abilities alone are no moves. That holds on
any scale, so also where the items were fitted again in between.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from irtjax.calibration.leaderboard_text import score_digits
from irtjax.data import writing
from irtjax.data.frames import HasTable
from irtjax.data.wording import counted, listing, points
from irtjax.ranking import pairwise
from irtjax.storage.snapshots import (
    Snapshot,
    names_in,
    read_snapshot,
    saved_at,
    snapshot_of,
    version_of,
    without,
)

if TYPE_CHECKING:
    import pyarrow as pa

#: Subjects of both times up to which their pairs are tested.
MOST = 2000


class Move(NamedTuple):
    """A subject whose order with others changed, with its ranks among all."""

    subject: str
    before: int
    after: int
    passed: tuple[str, ...]
    passed_by: tuple[str, ...]


class Step(NamedTuple):
    """What changed from one time to the next.

    `below` has, of each subject of before, the new subjects significantly above it.
    `calibrated` states why the items were fitted again; empty where they were not.
    """

    date: str
    calibrated: str
    subjects_added: tuple[str, ...]
    subjects_gone: tuple[str, ...]
    items_added: tuple[str, ...]
    items_retired: tuple[str, ...]
    moves: tuple[Move, ...]
    below: dict[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class History(HasTable):
    """The times of a fit, the oldest first.

    Attributes:
        table: A row for each time and subject: date, subject, rank and expected score
            with their intervals, and whether the subject is new.
        steps: What changed from each time to the next.
        snapshots: The fit at each time; the last one is as it is.
        advised: Why the items should be fitted again, or nothing.
    """

    table: pa.Table
    steps: tuple[Step, ...]
    snapshots: tuple[Snapshot, ...]
    advised: str = ""

    def standings(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows of what is shown: ranks at each time, and what changed."""
        times = [snapshot.date[:10] for snapshot in self.snapshots]
        places = [_intervals(snapshot) for snapshot in self.snapshots]
        scores = _scores(self.snapshots[-1])
        names = sorted(places[-1], key=lambda name: places[-1][name][0])
        names += sorted({x for place in places for x in place} - {*names})
        rows = []
        for name in names:
            cells = [place[name][1] if name in place else "" for place in places]
            change = "; ".join(_changes(name, self.steps))
            rows.append([cells[-1], name, scores.get(name, ""), *cells[:-1], change])
        return ["rank", "model", "score", *times[:-1], "change"], rows

    def _shown(self) -> pa.Table:
        """The standings as a table."""
        import pyarrow as pa

        header, rows = self.standings()
        columns = list(zip(*rows, strict=True)) or [()] * len(header)
        arrays = [pa.array(list(column), pa.string()) for column in columns]
        # Two times of one day have the same name.
        return pa.Table.from_arrays(arrays, names=_distinct(header))

    @property
    def sentences(self) -> list[str]:
        """What changed, a sentence for each time, and whether to fit again."""
        lines = [sentence_of(step) for step in self.steps]
        lines += [f"Refit advised: {self.advised}"] if self.advised else []
        return lines


def history(folder: str | Path) -> History:
    """Reads what changed in the fit of a folder each time that `add` replaced it.

    Args:
        folder: The folder of the fit.

    Raises:
        ValueError: If there is no fit, or it or a snapshot was changed.

    >>> import tempfile, irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> folder = irtjax.save(irtjax.fit(table, "rasch"), tempfile.mkdtemp())
    >>> len(history(folder).steps)
    0
    """
    from irtjax.storage.folder import load
    from irtjax.storage.growth import advised

    folder = writing.full_path(folder)
    fit = load(folder)
    with writing.undisturbed(folder):
        names = names_in(version_of(folder).digests or {})
        snapshots = [read_snapshot(folder, name) for name in names]
    snapshots.append(snapshot_of(fit, saved_at(folder)))
    pairs = zip(snapshots[:-1], snapshots[1:], strict=True)
    steps = tuple(_step(*pair) for pair in pairs)
    return History(_table(snapshots), steps, tuple(snapshots), advised(fit))


def _distinct(names: list[str]) -> list[str]:
    """Names, numbered where they occur again."""
    counts: dict[str, int] = {}
    snapshots = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        snapshots.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return snapshots


def _intervals(snapshot: Snapshot) -> dict[str, tuple[int, str]]:
    """Rank of each subject, and its interval as text."""
    ranks, table = _order(snapshot), snapshot.subjects
    columns = ("subject", "rank_lower", "rank_upper")
    intervals = {}
    for row in zip(*(table.column(x).to_pylist() for x in columns), strict=True):
        if row[0] in ranks:
            shown = f"{row[1]}" if row[1] == row[2] else f"{row[1]}–{row[2]}"
            intervals[row[0]] = ranks[row[0]], shown
    return intervals


def _scores(snapshot: Snapshot) -> dict[str, str]:
    """Expected scores by subject, with the digits of the leaderboard."""
    ends = "expected_score_lower", "expected_score_upper"
    columns = (
        snapshot.subjects.column(x) for x in ("subject", "expected_score", *ends)
    )
    names, score, lower, upper = (column.to_pylist() for column in columns)
    finite = [x for x in score if x is not None]
    pairs = zip(lower, upper, strict=True)
    halves = [(high - low) / 2 for low, high in pairs if None not in (low, high)]
    highest = max(finite, default=1.0)
    digits = score_digits(halves, highest)
    return {
        name: points(x, digits, highest <= 1)
        for name, x in zip(names, score, strict=True)
        if x is not None
    }


def _changes(name: str, steps: tuple[Step, ...]) -> list[str]:
    """What happened to a subject."""
    moves = []
    for step in steps:
        if name in step.subjects_added:
            moves.append("new")
        if name in step.subjects_gone:
            moves.append("gone")
        for move in step.moves:
            if move.subject == name:
                for word, others in (
                    ("passed", move.passed),
                    ("passed by", move.passed_by),
                ):
                    moves += [f"{word} {listing(others, 2)}"] if others else []
        if name in step.below:
            moves.append(f"below {listing(step.below[name], 2)}")
    return moves


def _names(snapshot: Snapshot) -> list[str]:
    return snapshot.subjects.column("subject").to_pylist()


def _step(before: Snapshot, after: Snapshot) -> Step:
    """What changed between two times."""
    old, new = _names(before), _names(after)
    items = before.items.tolist(), after.items.tolist()
    first, last = _order(before), _order(after)
    shared = [name for name in old if name in last and name in first]
    moves = []
    if 2 <= len(shared) <= MOST:
        ahead = [_ahead(snapshot, shared) for snapshot in (before, after)]
        # [i, k]: i was significantly behind k and is significantly ahead of it.
        passed = ahead[0].T & ahead[1]
        for k in np.flatnonzero(passed.any(0) | passed.any(1)):
            by = [shared[i] for i in np.flatnonzero(passed[:, k])]
            over = [shared[i] for i in np.flatnonzero(passed[k])]
            place = first[shared[k]], last[shared[k]]
            moves.append(Move(shared[k], *place, tuple(over), tuple(by)))
    added = [name for name in without(new, old) if name in last]
    below: dict[str, tuple[str, ...]] = {}
    if added and shared and len(shared) + len(added) <= MOST:
        everyone = [*added, *shared]
        ahead = _ahead(after, everyone)[: len(added)]
        for k, name in enumerate(shared, len(added)):
            above = tuple(added[i] for i in np.flatnonzero(ahead[:, k]))
            below |= {name: above} if above else {}
    return Step(
        after.date,
        after.calibrated if after.calibrated != before.calibrated else "",
        without(new, old),
        without(old, new),
        without(items[1], items[0]),
        without(items[0], items[1]),
        tuple(sorted(moves, key=lambda move: move.after)),
        below,
    )


def _order(snapshot: Snapshot) -> dict[str, int]:
    """Ranks by subject, of those that have one."""
    table = snapshot.subjects
    columns = (table.column(x).to_pylist() for x in ("subject", "ability", "rank"))
    rows = zip(*columns, strict=True)
    return {name: int(rank) for name, ability, rank in rows if ability is not None}


def _ahead(snapshot: Snapshot, names: list[str]) -> np.ndarray:
    """Whether a subject is significantly ahead of another, `[names, names]`."""
    rows = {name: k for k, name in enumerate(_names(snapshot))}
    part = snapshot.subjects.take([rows[name] for name in names])
    numbers = lambda name: np.asarray(part.column(name).to_pylist(), float)
    shared = np.asarray(part.column("shared").to_pylist(), float).reshape(len(part), -1)
    options: Any = {"shared": shared} if shared.shape[1] else {}
    pairs = pairwise(
        numbers("ability"), numbers("error"), level=snapshot.level, **options
    )
    return np.asarray(pairs.different) & (np.asarray(pairs.difference) > 0)


def _table(snapshots: list[Snapshot]) -> pa.Table:
    """A row for each time and subject, by rank."""
    import pyarrow as pa

    parts, subjects = [], None
    for snapshot in snapshots:
        part = snapshot.subjects.drop_columns(["error", "shared"])
        part = part.sort_by([("rank", "ascending")])
        names = part.column("subject").to_pylist()
        new = [subjects is not None and name not in subjects for name in names]
        subjects = {*names} | (subjects or set())
        dates = pa.array([snapshot.date] * len(names), pa.string())
        part = part.add_column(0, "date", dates)
        parts.append(part.append_column("new", pa.array(new, pa.bool_())))
    return pa.concat_tables(parts, promote_options="permissive")


def sentence_of(step: Step) -> str:
    """What changed, in a sentence.

    >>> step = Step("2026-01-09", "", ("a",), (), (), ("q1",), (), {})
    >>> sentence_of(step)
    '2026-01-09: 1 model added (a), 1 item retired (q1), no significant move'
    """
    parts = []
    for names, noun, what in (
        (step.subjects_added, "model", "added"),
        (step.subjects_gone, "model", "gone"),
        (step.items_added, "item", "added"),
        (step.items_retired, "item", "retired"),
    ):
        if names:
            parts.append(f"{counted(len(names), noun)} {what} ({listing(names, 3)})")
    for move in step.moves:
        if move.passed:
            parts.append(f"{move.subject} passed {listing(move.passed, 3)}")
    if not step.moves:
        parts.append("no significant move")
    if step.calibrated:
        parts.append(f"items fitted again: {step.calibrated}")
    return f"{step.date[:10]}: {', '.join(parts)}"
