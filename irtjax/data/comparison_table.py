"""Comparisons of two subjects each, with labels, on the host."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from irtjax.data.frames import HasTable
from irtjax.data.wording import counted

#: Columns of `outcomes`: the first wins, the second wins, a tie, both are bad.
OUTCOMES = ("first", "second", "tie", "both_bad")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ComparisonTable(HasTable):
    """Who was compared with whom, and what came of it.

    A row is one comparison or several alike: `outcomes` has how many of them ended in
    each way. A judge's probability that the first is better is such a share too.

    Attributes:
        subjects: `[subjects]` names, sorted.
        first, second: `[rows]` places of the two in `subjects`.
        outcomes: `[rows, 4]` numbers of wins of the first, of the second, ties, and
            verdicts that both are bad; 0 or more, not all 0.
        features: Numbers of each row by name, `[rows]`: what the first has more of
            than the second, such as length.
        labels: Texts of each row by name, `[rows]`: prompt, judge, category, time.
        notes: What the reader says of the data.

    >>> table = ComparisonTable.of("ab", [0, 0], [1, 1], [[1, 0, 0, 0], [0, 0, 1, 0]])
    >>> table.num_comparisons, table.subjects.tolist()
    (2.0, ['a', 'b'])
    """

    subjects: np.ndarray
    first: np.ndarray
    second: np.ndarray
    outcomes: np.ndarray
    features: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, subjects: Any, first: Any, second: Any, outcomes: Any, **parts: Any
    ) -> ComparisonTable:
        """Returns a table of checked arrays.

        Raises:
            ValueError: If there is no row, shapes differ, a place is not that of a
                subject, a subject is compared with itself, names are equal, or
                outcomes are negative, not finite, or all 0.
        """
        names = np.asarray(list(subjects))
        if len(np.unique(names)) != len(names):
            raise ValueError("two subjects have the same name; rename one")
        first, second = np.asarray(first), np.asarray(second)
        outcomes = np.asarray(outcomes, np.float64)
        if not len(first):
            raise ValueError("there are no comparisons: give rows of two models")
        if first.shape != second.shape or outcomes.shape != (len(first), len(OUTCOMES)):
            raise ValueError(
                f"there are {len(first)} first and {len(second)} second subjects with"
                f" outcomes of shape {outcomes.shape}: give [rows, {len(OUTCOMES)}]"
            )
        for side in (first, second):
            wrong = np.flatnonzero((side < 0) | (side >= len(names)))
            if wrong.size:
                place, row = side[wrong[0]], wrong[0]
                raise ValueError(f"row {row} has subject {place} of {len(names)}")
        same = np.flatnonzero(first == second)
        if same.size:
            name = str(names[first[same[0]]])
            raise ValueError(
                f"row {same[0]} compares {name!r} with itself: leave such rows out"
            )
        wrong = np.flatnonzero(~(np.isfinite(outcomes) & (outcomes >= 0)).all(axis=1))
        wrong = wrong if wrong.size else np.flatnonzero(outcomes.sum(axis=1) <= 0)
        if wrong.size:
            raise ValueError(
                f"row {wrong[0]} has the outcomes {outcomes[wrong[0]].tolist()}: give"
                " numbers of 0 or more, one of them above 0"
            )
        return cls(names, first, second, outcomes, **parts)

    @property
    def num_subjects(self) -> int:
        """Number of subjects."""
        return len(self.subjects)

    @property
    def num_comparisons(self) -> float:
        """Number of comparisons, not of rows."""
        return float(self.outcomes.sum())

    def select(self, rows: np.ndarray) -> ComparisonTable:
        """Returns the table of some rows, with the same subjects."""
        part = lambda columns: {name: x[rows] for name, x in columns.items()}
        return dataclasses.replace(
            self,
            first=self.first[rows],
            second=self.second[rows],
            outcomes=self.outcomes[rows],
            features=part(self.features),
            labels=part(self.labels),
        )

    def merged(self) -> ComparisonTable:
        """Returns a row for each pair, without features and labels.

        >>> wins = [[1, 0, 0, 0], [0, 3, 0, 0]]
        >>> ComparisonTable.of("ab", [0, 1], [1, 0], wins).merged().outcomes.tolist()
        [[4.0, 0.0, 0.0, 0.0]]
        """
        flip = self.first > self.second
        low, high = (f(self.first, self.second) for f in (np.minimum, np.maximum))
        keys, place = pairs_of(low, high, self.num_subjects)
        # The first's wins and losses where it is the second of its pair are swapped.
        where = place * 2 + flip
        sums = [np.bincount(where, x, 2 * len(keys)) for x in self.outcomes.T]
        one, other = (np.stack(sums, axis=1)[k::2] for k in (0, 1))
        return dataclasses.replace(
            self,
            first=keys // self.num_subjects,
            second=keys % self.num_subjects,
            outcomes=one + other[:, [1, 0, 2, 3]],
            features={},
            labels={},
        )

    def data_hash(self) -> str:
        """Returns a SHA-256 of names and comparisons, independent of notes."""
        digest = hashlib.sha256("\0".join(map(str, self.subjects)).encode())
        for values in (self.first, self.second, self.outcomes):
            digest.update(np.ascontiguousarray(values, np.float64).tobytes())
        return digest.hexdigest()

    @property
    def table(self) -> Any:
        """The rows: model_a, model_b, what came of them, labels and features."""
        import pyarrow as pa

        names = pa.array(self.subjects.tolist(), pa.string())
        columns: dict[str, Any] = {
            "model_a": names.take(pa.array(self.first)),
            "model_b": names.take(pa.array(self.second)),
        }
        columns |= dict(zip(OUTCOMES, self.outcomes.T, strict=True))
        columns |= {name: np.asarray(x, str) for name, x in self.labels.items()}
        columns |= dict(self.features)
        return pa.table(columns)

    def _text(self) -> str:
        """The numbers alone, in one line."""
        return self._heading()

    def _heading(self) -> str:
        wins = self.outcomes.sum(axis=0)
        parts = [
            counted(self.num_subjects, "model"),
            counted(round(self.num_comparisons), "comparison"),
            f"{wins[2] / wins.sum():.0%} ties" if wins[2] else "",
            f"{wins[3] / wins.sum():.0%} both bad" if wins[3] else "",
        ]
        return " · ".join(filter(None, parts))


def pairs_of(
    first: np.ndarray, second: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Keys first x count + second of the ordered pairs that occur, and rows' places.

    >>> pairs_of(np.array([0, 2, 0]), np.array([1, 1, 1]), 3)
    (array([1, 7]), array([0, 1, 0]))
    """
    key = first.astype(np.int64) * count + second
    if count**2 > 4 * len(key) + 1000:
        keys, place = np.unique(key, return_inverse=True)
        return keys, place.reshape(-1)
    # Without a sort.
    occurs = np.zeros(count**2, bool)
    occurs[key] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[key]


def coded(labels: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 of labels; those of labels that are such are these.

    >>> coded(np.array(["b", "a", "b"])).tolist()
    [1, 0, 1]
    """
    if labels.dtype.kind in "iu" and 0 <= labels.min() <= labels.max() < 4 * len(
        labels
    ):
        return labels
    return np.unique(labels, return_inverse=True)[1].reshape(-1)
