"""The long form that every reader of responses produces: one row per scored attempt."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from irtjax.data.answers import short_answer
from irtjax.data.arrays import as_labels
from irtjax.data.item_texts import Contents, Ids, Texts, joined_ids, joined_texts
from irtjax.data.reading.described import Described
from irtjax.data.reading.identity import ItemKey, label_items
from irtjax.data.wording import several

_NAMES = ("subject", "item", "benchmark", "metric", "filter", "run")
_NUMBERS = {"response": np.nan, "trial": 0, "length": np.nan}
#: Begins the name of a run that did not succeed.
UNFINISHED = "!"
#: All columns, with what fills one that other files have and this one lacks.
_FILL: dict[str, Any] = {
    **dict.fromkeys((*_NAMES, "file", "answer"), ""),
    **_NUMBERS,
}


@dataclasses.dataclass
class Coded:
    """A text column as integer codes into its distinct labels."""

    codes: np.ndarray
    labels: np.ndarray

    def __getitem__(self, rows: Any) -> Coded:
        return Coded(self.codes[rows], self.labels)

    def text(self, row: int) -> str:
        """Label of one row."""
        return str(self.labels[self.codes[row]])

    def texts(self) -> np.ndarray:
        """Labels of all rows."""
        return self.labels[self.codes]

    def compact(self) -> Coded:
        """Drops labels without a row and keeps the order of the others."""
        used = np.zeros(len(self.labels), bool)
        used[self.codes] = True
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
    """Scored attempts as columns of equal length, None where the source has no such."""

    subject: Coded
    item: Coded
    response: np.ndarray  # NaN where missing.
    benchmark: Coded | None = None  # "" where unknown.
    metric: Coded | None = None
    filter: Coded | None = None
    trial: np.ndarray | None = None
    run: Coded | None = None  # Later runs sort last; see also UNFINISHED.
    length: np.ndarray | None = None  # In tokens; NaN where unknown.
    file: Coded | None = None  # For messages; None if it is the source, or unknown.
    answer: Coded | None = None  # As `short_answer` has it; "" where there is none.
    notes: list[str] = dataclasses.field(default_factory=list)
    # Only if a metric is chosen: why its values on a benchmark are no numbers (by
    # benchmark and metric), and notes on it.
    unscored: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    metric_notes: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    # Those to take where nothing else is asked for, in order of preference.
    usual_metrics: tuple[str, ...] = ()
    usual_filters: tuple[str, ...] = ()
    # Whether the first filter of a benchmark is the usual one, if none is by its name.
    first_filter: bool = False
    # Benchmarks with logs that do not name their filter, which is then "none".
    unnamed_filters: frozenset[str] = frozenset()
    # By benchmark, the metric to take in place of the usual ones.
    main_metrics: dict[str, str] = dataclasses.field(default_factory=dict)
    source: str = ""
    # Name of the column of scores, where no metric names them.
    measure: str = ""
    # Whether lower is better, by benchmark ("" for all) and metric ("" for all), where
    # logs state it; and items of which they do.
    directions: dict[tuple[str, str], bool] = dataclasses.field(default_factory=dict)
    lower_items: frozenset[str] = frozenset()
    # Whether the expected answers may be what the one subject answered.
    unsure_answers: bool = False
    # Where several columns make an item, by column its value for every item name.
    item_parts: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    # Of a long table with benchmarks, whether they were put before its items.
    qualified: bool | None = None
    # Where repeats have names, such as raters: the names that `trial` numbers.
    trial_names: np.ndarray | None = None
    # Columns that may tell repeated pairs apart, and the columns of other roles.
    conditions: dict[str, Coded] = dataclasses.field(default_factory=dict)
    roles: dict[str, str] = dataclasses.field(default_factory=dict)
    # By item name.
    item_texts: Texts = dataclasses.field(default_factory=dict)
    item_ids: Ids = dataclasses.field(default_factory=dict)
    item_contents: Contents = dataclasses.field(default_factory=dict)
    # Numbers of options to choose from.
    item_options: dict[str, int] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.response)

    def usual(self, option: str, benchmark: str) -> tuple[str, ...]:
        """The names of a "metric" or "filter" that are usual, the first before all."""
        if option == "filter":
            return self.usual_filters
        main = self.main_metrics.get(benchmark)
        return self.usual_metrics if main is None else (main, *self.usual_metrics)

    def take(self, rows: np.ndarray, *notes: str) -> Records:
        """Returns the chosen rows (a mask or positions), with more notes."""
        columns = {name: getattr(self, name) for name in _FILL}
        cut = {name: c[rows] for name, c in columns.items() if c is not None}
        cut["conditions"] = {name: c[rows] for name, c in self.conditions.items()}
        return dataclasses.replace(self, notes=[*self.notes, *notes], **cut)


def concatenate(parts: Sequence[Records]) -> Records:
    """Joins records of several files; equal labels become one."""
    if len(parts) == 1:
        return parts[0]
    if len({part.source for part in parts}) > 1:
        parts = [part if part.file else _with_file(part) for part in parts]
    columns: dict[str, Any] = {}
    for name, fill in _FILL.items():
        per_part = [getattr(part, name) for part in parts]
        if all(column is None for column in per_part):
            continue
        full = [
            _constant(fill, len(part)) if column is None else column
            for column, part in zip(per_part, parts, strict=True)
        ]
        is_text = isinstance(fill, str)
        columns[name] = join_coded(full) if is_text else np.concatenate(full)
    metric_notes: dict[str, list[str]] = {}
    item_parts: dict[str, dict[str, str]] = {}
    conditions = dict.fromkeys(name for part in parts for name in part.conditions)
    for part in parts:
        for metric, notes in part.metric_notes.items():
            metric_notes.setdefault(metric, []).extend(notes)
        for name, values in part.item_parts.items():
            item_parts.setdefault(name, {}).update(values)
    return Records(
        **columns,
        unscored={k: v for part in parts for k, v in part.unscored.items()},
        metric_notes=metric_notes,
        usual_metrics=_union(part.usual_metrics for part in parts),
        usual_filters=_union(part.usual_filters for part in parts),
        first_filter=any(part.first_filter for part in parts),
        unnamed_filters=frozenset().union(*(x.unnamed_filters for x in parts)),
        main_metrics={k: v for part in parts for k, v in part.main_metrics.items()},
        measure=next((x.measure for x in parts if x.measure), ""),
        directions={k: v for part in parts for k, v in part.directions.items()},
        lower_items=frozenset().union(*(x.lower_items for x in parts)),
        notes=list(dict.fromkeys(note for part in parts for note in part.notes)),
        source=several([part.source for part in parts]),
        unsure_answers=any(part.unsure_answers for part in parts),
        item_parts=item_parts,
        conditions={
            name: join_coded(
                [x.conditions.get(name) or Coded.constant("", len(x)) for x in parts]
            )
            for name in conditions
        },
        roles={k: v for part in parts for k, v in part.roles.items()},
        item_texts=joined_texts(part.item_texts for part in parts),
        item_ids=joined_ids(part.item_ids for part in parts),
        item_contents={k: v for part in parts for k, v in part.item_contents.items()},
        item_options={k: v for part in parts for k, v in part.item_options.items()},
    )


def _with_file(records: Records) -> Records:
    """The records with the name of their file."""
    file = Coded.constant(records.source, len(records))
    return dataclasses.replace(records, file=file)


def settled(parts: Sequence[Records]) -> list[Records]:
    """Records of files without answers that are likely those of their one subject.

    They are expected answers where different subjects have the same in other files.
    """
    first: dict[str, tuple[str, str]] = {}
    shared = differ = False
    for part in parts:
        if part.unsure_answers and len(part):
            subject = part.subject.text(0)
            for name, text in part.item_texts.items():
                whose, answer = first.setdefault(name, (subject, text.answer))
                shared |= whose != subject
                differ |= answer != text.answer
    if shared and not differ:
        return [_without_given(part) if part.unsure_answers else part for part in parts]
    return [_without_answers(part) if part.unsure_answers else part for part in parts]


def _without_given(records: Records) -> Records:
    """The records without answers of subjects, which are those that are expected."""
    return dataclasses.replace(records, answer=None)


def _without_answers(records: Records) -> Records:
    """The records without right answers of items."""
    bare = {x: text._replace(answer="") for x, text in records.item_texts.items()}
    texts = {name: text for name, text in bare.items() if any(text)}
    return dataclasses.replace(records, item_texts=texts)


def _union(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The distinct names, in order of first occurrence."""
    return tuple(dict.fromkeys(name for group in groups for name in group))


def _constant(fill: Any, size: int) -> Any:
    """A column of one value."""
    return Coded.constant(fill, size) if isinstance(fill, str) else np.full(size, fill)


def join_coded(columns: Sequence[Coded]) -> Coded:
    """Joins coded columns end to end over the union of their labels."""
    union: dict[str, int] = {}
    codes = []
    for column in columns:
        new = [union.setdefault(k, len(union)) for k in column.labels.tolist()]
        codes.append(np.asarray(new, np.int32)[column.codes])
    return Coded(np.concatenate(codes), _labels_like(columns[0].labels, union))


def _labels_like(labels: np.ndarray, names: Iterable[str]) -> np.ndarray:
    """Names as other labels are stored: texts of differing length are objects."""
    return as_texts(names) if labels.dtype == object else as_labels(names)


def as_texts(texts: Iterable[str]) -> np.ndarray:
    """Texts of differing length as labels: none takes the width of the longest."""
    plain = list(texts)
    out = np.empty(len(plain), object)
    out[:] = plain
    return out


class RecordBuilder:
    """Collects attempts one by one from logs whose records are Python objects."""

    def __init__(self) -> None:
        #: The distinct names of each text column, with their codes.
        self._names: dict[str, dict[Any, int]] = {name: {} for name in _NAMES}
        self._columns: dict[str, list[Any]] = {name: [] for name in _FILL}
        self._answers: dict[str, int] = {"": 0}
        self.unscored: dict[tuple[str, str], str] = {}
        self.notes: list[str] = []
        self.metric_notes: dict[str, list[str]] = {}
        self.directions: dict[tuple[str, str], bool] = {}
        #: Files with their first rows, where a reader keeps them for messages.
        self._files: list[tuple[str, int]] = []
        #: What readers learn about items.
        self.described = Described()

    def __len__(self) -> int:
        return len(self._columns["response"])

    def add(
        self,
        *,
        subject: str,
        item: ItemKey,
        response: float | None,
        benchmark: str = "",
        metric: str = "",
        filter: str = "",
        run: str = "",
        trial: int = 0,
        length: float | None = None,
        answer: Any = None,
    ) -> None:
        """Adds one attempt; None is a missing response or an unknown length."""
        names = (subject, item, benchmark, metric, filter, run)
        for column, name in zip(_NAMES, names, strict=True):
            codes = self._names[column]
            self._columns[column].append(codes.setdefault(name, len(codes)))
        for column, number in zip(_NUMBERS, (response, trial, length), strict=True):
            self._columns[column].append(number)
        wanted = answer is not None and self.described.wanted
        text = short_answer(answer) if wanted else ""
        self._columns["answer"].append(
            self._answers.setdefault(text, len(self._answers))
        )

    def begin(self, path: Path) -> None:
        """Marks the rows from here on as those of a file."""
        self._files.append((str(path), len(self)))

    def note(self, metric: str, text: str) -> None:
        """Adds a note that matters only if ``metric`` is chosen."""
        self.metric_notes.setdefault(metric, []).append(text)

    def finish(
        self,
        paths: Sequence[Path],
        join: Literal["hash", "id"],
        identify: Callable[[ItemKey], ItemKey] | None = None,
    ) -> Records:
        """Returns the records of files; `label_items` names the items.

        Args:
            paths: The files, for messages.
            join: What identifies items.
            identify: Gives the keys by which items join, once all files are known.
        """
        keys = list(self._names["item"])
        joined = keys if identify is None else list(map(identify, keys))
        item_labels, notes = label_items(joined, join)
        texts, ids = self.described.by_label(keys, item_labels)
        columns: dict[str, Any] = {}
        for name in _NAMES:
            labels = item_labels if name == "item" else self._names[name]
            codes = np.asarray(self._columns[name], np.int32)
            # join_coded merges keys that were given the same label.
            column = join_coded([Coded(codes, as_labels(labels))])
            if name in ("subject", "item") or column.labels.tolist() != [""]:
                columns[name] = column
        if len(self._files) > 1:
            files, starts = zip(*self._files, strict=True)
            codes = np.repeat(np.arange(len(files)), np.diff([*starts, len(self)]))
            columns["file"] = Coded(codes.astype(np.int32), as_labels(files))
        if len(self._answers) > 1:
            codes = np.asarray(self._columns["answer"], np.int32)
            columns["answer"] = Coded(codes, as_texts(self._answers))
        length = np.asarray(self._columns["length"], np.float64)
        return Records(
            **columns,
            response=np.asarray(self._columns["response"], np.float64),
            trial=np.asarray(self._columns["trial"], np.int64),
            length=None if np.isnan(length).all() else length,
            unscored=self.unscored,
            notes=[*self.notes, *notes],
            metric_notes=self.metric_notes,
            directions=self.directions,
            source=several(paths),
            item_texts=texts,
            item_ids=ids,
            item_contents=self.described.contents(keys, item_labels),
            item_options=self.described.options(keys, item_labels),
        )
