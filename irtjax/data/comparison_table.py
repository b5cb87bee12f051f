"""Comparisons of two subjects each, with labels, on the host."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from irtjax.data.frames import HasTable
from irtjax.data.wording import counted

#: Columns of `outcomes`: the first wins, the second wins, a tie, both are bad.
OUTCOMES = ("first", "second", "tie", "both_bad")


class Label(NamedTuple):
    """A text of each row, as a whole number that stands for it.

    Attributes:
        code: `[rows]` places in `names`.
        names: The distinct texts, an array of NumPy or Arrow in any order; a name may
            be of no row.
    """

    code: np.ndarray
    names: Any

    @classmethod
    def of(cls, texts: Any) -> Label:
        """Codes of the texts of all rows.

        >>> Label.of(["b", "a", "b"]).code.tolist()
        [1, 0, 1]
        """
        names, code = np.unique(np.asarray(texts), return_inverse=True)
        return cls(code.reshape(-1), names)

    @property
    def words(self) -> np.ndarray:
        """`names` as an array of NumPy."""
        if isinstance(self.names, np.ndarray):
            return self.names
        return np.array(self.names.to_pylist(), str)

    def texts(self) -> np.ndarray:
        """The text of each row."""
        return self.words[self.code]

    def text(self, row: int) -> str:
        """The text of a row."""
        return str(self.names[int(self.code[row])])

    def used(self) -> np.ndarray:
        """Whether each name is that of a row."""
        used = np.zeros(len(self.names), bool)
        used[self.code] = True
        return used

    def sorted(self) -> Label:
        """Codes in the order of the names, without names of no row.

        >>> Label(np.array([2, 0]), np.array(["b", "x", "a"])).sorted()
        Label(code=array([0, 1]), names=array(['a', 'b'], dtype='<U1'))
        """
        used = np.flatnonzero(self.used())
        words = self.words[used]
        order = np.argsort(words, kind="stable")
        place = np.zeros(len(self.names), np.int64)
        place[used[order]] = np.arange(len(used))
        return Label(place[self.code], words[order])


class Labels(Mapping[str, np.ndarray]):
    """Texts of each row by name, stored as codes.

    >>> labels = Labels({"judge": ["x", "y", "x"]})
    >>> labels["judge"].tolist(), labels.coded("judge").code.tolist()
    (['x', 'y', 'x'], [0, 1, 0])
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = {
            name: x if isinstance(x, Label) else Label.of(x)
            for name, x in columns.items()
        }

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name].texts()

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def coded(self, name: str) -> Label:
        """The codes of a label."""
        return self._columns[name]

    def select(self, rows: np.ndarray) -> Labels:
        """The labels of some rows."""
        columns = self._columns.items()
        return Labels({name: Label(x.code[rows], x.names) for name, x in columns})


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ComparisonTable(HasTable):
    """Who was compared with whom, and what came of it.

    A row is one comparison or several alike: `outcomes` has how many of them ended in
    each way. A judge's probability that the first is better is such a share too.

    Attributes:
        subjects: `[subjects]` names, sorted.
        first, second: `[rows]` places of the two in `subjects`.
        verdicts: `[rows, 4]` numbers of wins of the first, of the second, ties, and
            verdicts that both are bad; 0 or more, not all 0. Where each row is one
            comparison, `[rows]` places in `OUTCOMES` suffice; `outcomes` has the
            numbers in both cases.
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
    verdicts: np.ndarray
    features: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    labels: Labels = dataclasses.field(default_factory=lambda: Labels({}))
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.labels, Labels):
            object.__setattr__(self, "labels", Labels(self.labels))

    @classmethod
    def of(
        cls, subjects: Any, first: Any, second: Any, outcomes: Any, **parts: Any
    ) -> ComparisonTable:
        """Returns a table of checked arrays.

        `outcomes` are numbers `[rows, 4]`, or `[rows]` places in `OUTCOMES`.

        Raises:
            ValueError: If there is no row, shapes differ, a place is not that of a
                subject, a subject is compared with itself, names are equal, or
                outcomes are negative, not finite, or all 0.
        """
        names = np.asarray(list(subjects))
        if len(np.unique(names)) != len(names):
            raise ValueError("two subjects have the same name; rename one")
        first, second = np.asarray(first), np.asarray(second)
        outcomes = np.asarray(outcomes)
        single = outcomes.ndim == 1 and outcomes.dtype.kind in "iu"
        outcomes = outcomes if single else np.asarray(outcomes, np.float64)
        if not len(first):
            raise ValueError("there are no comparisons: give rows of two models")
        shape = (len(first), len(OUTCOMES))[: outcomes.ndim if single else 2]
        if first.shape != second.shape or outcomes.shape != shape:
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
        if single:
            sound = (outcomes >= 0) & (outcomes < len(OUTCOMES))
        else:
            sound = (np.isfinite(outcomes) & (outcomes >= 0)).all(axis=1)
            sound &= outcomes.any(axis=1)
        if not sound.all():
            row = int(np.argmin(sound))
            raise ValueError(
                f"row {row} has the outcomes {outcomes[row].tolist()}: give numbers of"
                " 0 or more, one of them above 0, or a place in OUTCOMES"
            )
        return cls(names, first, second, outcomes, **parts)

    @property
    def num_subjects(self) -> int:
        """Number of subjects."""
        return len(self.subjects)

    @functools.cached_property
    def outcomes(self) -> np.ndarray:
        """`[rows, 4]` numbers of outcomes."""
        if self.verdicts.ndim == 2:
            return self.verdicts
        return np.eye(len(OUTCOMES))[self.verdicts]

    @functools.cached_property
    def totals(self) -> np.ndarray:
        """`[4]` numbers of outcomes of all rows."""
        if self.verdicts.ndim == 2:
            return self.verdicts.sum(axis=0)
        return np.bincount(self.verdicts, minlength=len(OUTCOMES)).astype(float)

    @property
    def num_comparisons(self) -> float:
        """Number of comparisons, not of rows."""
        return float(self.totals.sum())

    def select(self, rows: np.ndarray) -> ComparisonTable:
        """Returns the table of some rows, with the same subjects."""
        return dataclasses.replace(
            self,
            first=self.first[rows],
            second=self.second[rows],
            verdicts=self.verdicts[rows],
            features={name: x[rows] for name, x in self.features.items()},
            labels=self.labels.select(rows),
        )

    def among(self, present: np.ndarray) -> ComparisonTable:
        """Returns the comparisons of some subjects with each other.

        Args:
            present: `[subjects]` whether each is one of them.
        """
        place = (np.cumsum(present) - 1).astype(np.int32)
        rows = present[self.first] & present[self.second]
        table = self if rows.all() else self.select(np.flatnonzero(rows))
        return dataclasses.replace(
            table,
            subjects=self.subjects[present],
            first=place[table.first],
            second=place[table.second],
        )

    def merged(self) -> ComparisonTable:
        """Returns a row for each pair, without features and labels.

        >>> wins = [[1, 0, 0, 0], [0, 3, 0, 0]]
        >>> ComparisonTable.of("ab", [0, 1], [1, 0], wins).merged().outcomes.tolist()
        [[4.0, 0.0, 0.0, 0.0]]
        """
        if self._is_merged():
            return self
        first, second, sums = self._pairs()
        return dataclasses.replace(
            self,
            first=first,
            second=second,
            verdicts=sums,
            features={},
            labels=Labels({}),
        )

    def _is_merged(self) -> bool:
        """Whether each row is a pair of its own, in order."""
        if self.features or self.labels or self.verdicts.ndim == 1:
            return False
        key = self.first.astype(np.int64) * self.num_subjects + self.second
        return bool((np.diff(key) > 0).all() and (self.first < self.second).all())

    def _pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sorted pairs, the smaller place first, and `[pairs, 4]` their outcomes."""
        count, swap = self.num_subjects, [1, 0, 2, 3]
        keys, place = ordered_pairs(self.first, self.second, count)
        if self.verdicts.ndim == 2:
            columns = [np.bincount(place, x, len(keys)) for x in self.verdicts.T]
            sums = np.stack(columns, axis=1)
        else:
            size = len(keys) * len(OUTCOMES)
            cells = np.bincount(place * len(OUTCOMES) + self.verdicts, None, size)
            sums = cells.reshape(len(keys), -1).astype(float)
        if len(keys) == count**2:
            # Pairs and those of the other order are each other's transpose.
            square = sums.reshape(count, count, -1)
            square = square + square.transpose(1, 0, 2)[:, :, swap]
            first, second = np.nonzero(np.triu(square.any(axis=2), 1))
            return first, second, square[first, second]
        first, second = keys // count, keys % count
        sums = np.where((first > second)[:, None], sums[:, swap], sums)
        low, high = np.minimum(first, second), np.maximum(first, second)
        keys, place = np.unique(low * count + high, return_inverse=True)
        columns = [np.bincount(place.reshape(-1), x, len(keys)) for x in sums.T]
        return keys // count, keys % count, np.stack(columns, axis=1)

    def data_hash(self) -> str:
        """Returns a SHA-256 of names and outcomes by pair, independent of notes.

        The order of the rows and of the two within a row does not matter.
        """
        pairs = self.merged()
        digest = hashlib.sha256("\0".join(map(str, self.subjects)).encode())
        for values in (pairs.first, pairs.second, pairs.verdicts):
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
        wins = self.totals
        parts = [
            counted(self.num_subjects, "model"),
            counted(round(self.num_comparisons), "comparison"),
            f"{wins[2] / wins.sum():.0%} ties" if wins[2] else "",
            f"{wins[3] / wins.sum():.0%} both bad" if wins[3] else "",
        ]
        return " · ".join(filter(None, parts))


def ordered_pairs(
    first: np.ndarray, second: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Keys first x count + second of ordered pairs, and the places of rows there.

    Where rows are many, keys are those of all pairs, so that a key is its place.

    >>> ordered_pairs(np.array([0, 2, 0]), np.array([1, 1, 1]), 50)
    (array([  1, 101]), array([0, 1, 0]))
    """
    if count**2 > 4 * len(first) + 1000:
        key = first.astype(np.int64) * count + second
        keys, place = np.unique(key, return_inverse=True)
        return keys, place.reshape(-1)
    # Room for the four outcomes of a pair in the smaller type.
    kind = np.int32 if count**2 < 2**29 else np.int64
    return np.arange(count**2), first.astype(kind) * kind(count) + second.astype(kind)


def pairs_of(
    first: np.ndarray, second: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Keys first x count + second of the ordered pairs that occur, and rows' places.

    >>> pairs_of(np.array([0, 2, 0]), np.array([1, 1, 1]), 3)
    (array([1, 7]), array([0, 1, 0]))
    """
    keys, place = ordered_pairs(first, second, count)
    if len(keys) < count**2:
        return keys, place
    # Without a sort.
    occurs = np.zeros(count**2, bool)
    occurs[place] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[place]
