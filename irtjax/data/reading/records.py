"""The long form that every reader of responses produces: one row per scored attempt."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from irtjax.data.arrays import as_labels
from irtjax.data.wording import several


@dataclasses.dataclass
class Coded:
    """A text column as integer codes into its distinct labels."""

    codes: np.ndarray
    labels: np.ndarray

    def __getitem__(self, rows: Any) -> Coded:
        """Returns the chosen rows; the labels stay."""
        return Coded(self.codes[rows], self.labels)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.codes)

    def text(self, row: int) -> str:
        """Label of one row."""
        return str(self.labels[self.codes[row]])

    def compact(self) -> Coded:
        """Drops labels without a row and keeps the order of the others."""
        used = np.bincount(self.codes, minlength=len(self.labels)) > 0
        if used.all():
            return self
        new = np.cumsum(used) - 1
        return Coded(new[self.codes].astype(np.int32), self.labels[used])

    @staticmethod
    def constant(label: str, size: int) -> Coded:
        """A column that holds one label throughout."""
        return Coded(np.zeros(size, np.int32), as_labels([label]))


@dataclasses.dataclass
class Records:
    """Scored attempts as columns of equal length; numpy only.

    Attributes:
        subject: test taker of each row.
        item: item of each row; its labels are final.
        response: score, NaN where missing.
        benchmark: benchmark of each row ("" where unknown).
        metric: metric of each row, or None when the source names none.
        filter: answer filter of each row, or None.
        trial: number of the repeat, or None.
        run: label of the run, later ones sorting last, or None.
        length: answer length in tokens with NaN, or None.
        unscored: for a metric, a message saying why its values are no numbers.
        notes: plain-language notes.
        metric_notes: notes that matter only if a metric is chosen.
        source: short name for messages.
        item_parts: where several columns make an item, by column its value for every
            item name.
    """

    subject: Coded
    item: Coded
    response: np.ndarray
    benchmark: Coded | None = None
    metric: Coded | None = None
    filter: Coded | None = None
    trial: np.ndarray | None = None
    run: Coded | None = None
    length: np.ndarray | None = None
    unscored: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    metric_notes: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    source: str = ""
    item_parts: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.response)

    def take(self, rows: np.ndarray) -> Records:
        """Returns the chosen rows (a mask or positions)."""

        def cut(column: Any) -> Any:
            return None if column is None else column[rows]

        return dataclasses.replace(
            self,
            subject=self.subject[rows],
            item=self.item[rows],
            response=self.response[rows],
            benchmark=cut(self.benchmark),
            metric=cut(self.metric),
            filter=cut(self.filter),
            trial=cut(self.trial),
            run=cut(self.run),
            length=cut(self.length),
        )


def concatenate(parts: Sequence[Records]) -> Records:
    """Joins records of several files; equal labels become one."""
    if len(parts) == 1:
        return parts[0]
    sizes = [len(part) for part in parts]

    def numbers(name: str, fill: float, dtype: Any) -> np.ndarray | None:
        columns = [getattr(part, name) for part in parts]
        if all(column is None for column in columns):
            return None
        return np.concatenate(
            [
                np.full(size, fill, dtype) if column is None else column
                for size, column in zip(sizes, columns, strict=True)
            ]
        )

    def coded(name: str) -> Coded | None:
        columns = [getattr(part, name) for part in parts]
        if all(column is None for column in columns):
            return None
        return join_coded(
            [
                Coded.constant("", size) if column is None else column
                for size, column in zip(sizes, columns, strict=True)
            ]
        )

    subject, item = coded("subject"), coded("item")
    response = numbers("response", np.nan, np.float64)
    assert subject is not None and item is not None and response is not None
    return Records(
        subject=subject,
        item=item,
        response=response,
        benchmark=coded("benchmark"),
        metric=coded("metric"),
        filter=coded("filter"),
        trial=numbers("trial", 0, np.int64),
        run=coded("run"),
        length=numbers("length", np.nan, np.float64),
        unscored={k: v for part in parts for k, v in part.unscored.items()},
        metric_notes=_join_notes([part.metric_notes for part in parts]),
        notes=list(dict.fromkeys(note for part in parts for note in part.notes)),
        source=several([part.source for part in parts]),
        item_parts=_join_parts(parts),
    )


def _join_parts(records: Sequence[Records]) -> dict[str, dict[str, str]]:
    out: dict[str, dict[str, str]] = {}
    for each in records:
        for name, values in each.item_parts.items():
            out.setdefault(name, {}).update(values)
    return out


def _join_notes(parts: Sequence[dict[str, list[str]]]) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for part in parts:
        for metric, notes in part.items():
            out.setdefault(metric, []).extend(notes)
    return out


def join_coded(columns: Sequence[Coded]) -> Coded:
    """Joins coded columns end to end over the union of their labels."""
    union: dict[str, int] = {}
    codes = []
    for column in columns:
        new = [union.setdefault(k, len(union)) for k in column.labels.tolist()]
        codes.append(np.asarray(new, np.int32)[column.codes])
    return Coded(np.concatenate(codes), as_labels(union))


class RecordBuilder:
    """Collects attempts one by one from logs whose records are Python objects."""

    def __init__(self) -> None:
        """Starts empty."""
        self._names: dict[str, dict[Any, int]] = {}
        self._columns: dict[str, list[Any]] = {
            name: [] for name in ("response", "trial", "length")
        }
        self.unscored: dict[str, str] = {}
        self.notes: list[str] = []
        self.metric_notes: dict[str, list[str]] = {}

    def __len__(self) -> int:
        """Number of attempts so far."""
        return len(self._columns["response"])

    def add(
        self,
        *,
        subject: str,
        item: Any,
        response: float | None,
        benchmark: str = "",
        metric: str = "",
        filter: str = "",
        run: str = "",
        trial: int = 0,
        length: float | None = None,
    ) -> None:
        """Adds one attempt; ``item`` is any hashable key, named in `finish`."""
        for name, value in (
            ("subject", subject),
            ("item", item),
            ("benchmark", benchmark),
            ("metric", metric),
            ("filter", filter),
            ("run", run),
        ):
            known = self._names.setdefault(name, {})
            code = known.setdefault(value, len(known))
            self._columns.setdefault(name, []).append(code)
        nan = float("nan")
        self._columns["response"].append(nan if response is None else response)
        self._columns["trial"].append(trial)
        self._columns["length"].append(nan if length is None else length)

    def note(self, metric: str, text: str) -> None:
        """Adds a note that matters only if ``metric`` is chosen."""
        self.metric_notes.setdefault(metric, []).append(text)

    def item_keys(self) -> list[Any]:
        """The distinct item keys in order of appearance."""
        return list(self._names.get("item", {}))

    def finish(self, item_labels: Iterable[str], source: str) -> Records:
        """Returns the records.

        Args:
            item_labels: a label per item key; keys with equal labels are one item.
            source: short name for messages.
        """

        def coded(name: str, labels: Iterable[str] | None = None) -> Coded:
            names = self._names.get(name, {}) if labels is None else labels
            codes = np.asarray(self._columns.get(name, []), np.int32)
            # join_coded merges keys that were given the same label.
            return join_coded([Coded(codes, as_labels(names))])

        def optional(name: str) -> Coded | None:
            column = coded(name)
            return None if column.labels.tolist() == [""] else column

        length = np.asarray(self._columns["length"], np.float64)
        return Records(
            subject=coded("subject"),
            item=coded("item", item_labels),
            response=np.asarray(self._columns["response"], np.float64),
            benchmark=optional("benchmark"),
            metric=optional("metric"),
            filter=optional("filter"),
            trial=np.asarray(self._columns["trial"], np.int64),
            run=optional("run"),
            length=None if np.isnan(length).all() else length,
            unscored=self.unscored,
            notes=self.notes,
            metric_notes=self.metric_notes,
            source=source,
        )
