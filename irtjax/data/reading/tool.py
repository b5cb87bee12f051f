"""Readers of tools whose records have subject, item and scores at known paths.

`record_files` has the paths. Labels of a path become names of metrics.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from irtjax.data.answers import short_answer
from irtjax.data.item_texts import text_of
from irtjax.data.reading.described import Described
from irtjax.data.reading.identity import ItemKey, copies
from irtjax.data.reading.logs import digest, missing, missing_note, variants
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.record_files import (
    PlacedRecord,
    file_names,
    first_at,
    listed,
    name_of,
    number_of,
    objects,
    text_at,
    values,
    whole_of,
)
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.reading.tabular import PLAIN_WORDS, parse_number
from irtjax.data.wording import counted, listing, several, were

_WORDS = {**PLAIN_WORDS, "pass": 1.0, "fail": 0.0}


class _Row(NamedTuple):
    """What a record has of a response."""

    place: str
    subject: str
    name: str
    content: str
    scores: list[tuple[str, Any]]
    main: str
    benchmark: str
    failed: bool
    length: float | None
    texts: tuple[str, str]
    answer: str


class _Place(NamedTuple):
    """What a response is of, other than its record."""

    subject: str
    benchmark: str
    filter: str
    run: str
    copy: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool, where its files have what, and the reader of them.

    Attributes:
        name: The tool, as messages name it.
        marks: Sets of fields; a file of responses has all of one of them, or its first
            record has.
        lists: Paths of lists of records in a file that is one object.
        rows: The records of a file, if they are not those of `lists`, nor JSON lines
            or an array of records.
        keep: Whether a record is one of a response.
        subject: Paths of which the first that is there names the subject.
        subject_of: The subject of a file whose records name none. Where it is "", the
            name of the file, or else of its folder, is the subject.
        common: The part of names of files that is no part of the subject's name.
        own_subject: Whether each file is of a subject of its own.
        item: Paths of which the first that is there names the item.
        content: Paths of what an item asks, by which items join.
        has_ids: Whether an item that has a name joins by it alone.
        repeats: Whether records of equal content are of one item, not of several.
        benchmark: The benchmark of a file.
        benchmark_at: Paths of which the first that is there names that of a record.
        run: The run of a file; later ones sort last.
        filter: What tells files of a subject on a benchmark apart; one is read.
        scores: Paths of scores. The name of a metric is its label, or the last step.
        usual: Metrics to take where no other is asked for.
        main: Path of the name of the usual metric.
        lower: Metrics of which lower is better, and others whose names suggest it.
        higher: Whether higher is better in all metrics, whatever their names.
        failed: Paths of which one is set where the call failed.
        length: Paths of which the first that is there is a number of output tokens.
        prompt: Paths of which the first that is there is what an item asks.
        answer: Paths of which the first that is there is what is expected.
        prediction: Paths of which the first that is there is what the subject answered.
        without: Fields of other files of the tool, and why they are not read.
        start: How a damaged file begins, or else the name it has.
        note: What a response is, if its name does not show it.
    """

    name: str
    marks: tuple[set[str], ...]
    lists: tuple[str, ...] = ()
    rows: Callable[[Path], Iterable[PlacedRecord]] | None = None
    keep: Callable[[dict[str, Any]], bool] = lambda record: True
    subject: tuple[str, ...] = ()
    subject_of: Callable[[Path], str] = lambda path: ""
    common: str = ""
    own_subject: bool = False
    item: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    has_ids: bool = False
    repeats: bool = False
    benchmark: Callable[[Path], str] = lambda path: ""
    benchmark_at: tuple[str, ...] = ()
    run: Callable[[Path], str] = lambda path: ""
    filter: Callable[[Path], str] = lambda path: ""
    scores: tuple[str, ...]
    usual: tuple[str, ...] = ()
    main: str = ""
    lower: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    higher: bool = False
    failed: tuple[str, ...] = ()
    length: tuple[str, ...] = ()
    prompt: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    prediction: tuple[str, ...] = ()
    without: tuple[tuple[set[str], str], ...] = ()
    start: str = ""
    note: str = ""

    def recognise(self, fields: dict[str, Any], name: str) -> bool | str:
        """Whether a first record is of the tool, or why the file has no responses."""
        lists = (x for path in self.lists for _, x in values(fields, path))
        firsts = [x[0] for x in lists if isinstance(x, list) and x]
        for first in (fields, *(x for x in firsts if isinstance(x, dict))):
            if any(mark <= first.keys() for mark in self.marks):
                return True
        reasons = (why for mark, why in self.without if mark <= fields.keys())
        return next(reasons, False)

    def recognise_start(self, head: bytes, path: Path) -> bool:
        """Whether a damaged file begins as one of the tool, or is named like it."""
        text = head.decode("utf-8", "ignore") if head.strip() else path.name
        return bool(self.start) and re.match(self.start, text, re.DOTALL) is not None

    def read_files(self, paths: Sequence[Path], options: ReadOptions) -> Records:
        """Reads files; several responses of a subject to an item are repeats."""
        builder = RecordBuilder()
        builder.described = Described(wanted=options.texts)
        files = [
            (path, [self._row(x) for x in self.records_in(path) if self.keep(x.record)])
            for path in paths
        ]
        benchmarks = [self.benchmark(path) for path in paths]
        labels = [self.filter(path) for path in paths]
        subjects = self._subjects(files, labels, options)
        filters = variants([*map(frozenset, subjects)], benchmarks, labels)
        trials: Counter[Any] = Counter()
        for (path, rows), names, benchmark, filter_name in zip(
            files, subjects, benchmarks, filters, strict=True
        ):
            builder.begin(path)
            run = self.run(path)
            pairs = [(row.name, row.content) for row in rows if row.content]
            copy = {} if self.repeats else copies(pairs)
            for row, subject in zip(rows, names, strict=True):
                task, number = row.benchmark or benchmark, copy.get(row.name, 0)
                place = _Place(subject, task, filter_name, run, number)
                _add(builder, row, place, trials, options)
        if len(builder) == 0:
            raise ValueError(f"{several(paths)}: no record has a score")
        builder.notes += self._notes(files, subjects, options)
        metrics = {x for _, rows in files for row in rows for x, _ in row.scores}
        lower = dict.fromkeys(metrics, False) if self.higher else self.lower
        builder.directions |= {("", name): x for name, x in lower.items()}
        records = builder.finish(paths, options.join)
        records.usual_metrics = (*self.usual, *_plain_metric(records))
        records.main_metrics = {
            benchmark: row.main
            for benchmark, (_, rows) in zip(benchmarks, files, strict=True)
            for row in rows
            if row.main
        }
        return records

    def _notes(
        self,
        files: Sequence[tuple[Path, list[_Row]]],
        subjects: Sequence[Sequence[str]],
        options: ReadOptions,
    ) -> list[str]:
        """What was left out, and how subjects were named."""
        rows = [row for _, labels in files for row in labels]
        notes = [self.note] * bool(self.note)
        bare = sum(not row.scores for row in rows)
        if bare:
            what = counted(bare, "record")
            notes.append(f"{what} without a score {were(bare)} left out")
        failed = sum(row.failed and bool(row.scores) for row in rows)
        if failed:
            notes.append(missing_note(failed, "failed call", "", options))
        names = (name for labels in subjects for name in labels)
        pairs = zip(rows, names, strict=True)
        shared = {x.subject for x, name in pairs if name.startswith(f"{x.subject} (")}
        shared -= {""}
        if shared:
            notes.append(
                f"several files are of {listing(sorted(shared), 3)}: each is a subject,"
                " with the name of the file"
            )
        return notes

    def records_in(self, path: Path) -> Iterable[PlacedRecord]:
        """The records of a file."""
        if self.rows is not None:
            return self.rows(path)
        if self.lists and (whole := whole_of(path, self.lists)):
            return listed(path, self.lists, whole)
        return objects(path)

    def _row(self, placed: PlacedRecord) -> _Row:
        """What a record has of a response."""
        item = name_of(first_at(placed, self.item))
        by_id = self.has_ids and item
        contents = [] if by_id else [text_at(placed, (path,)) for path in self.content]
        scores = [
            (label or path.rpartition(".")[2], value)
            for path in self.scores
            for label, value in values(placed.record, path)
        ]
        failures = [x for path in self.failed for _, x in values(placed.record, path)]
        length = number_of(first_at(placed, self.length))
        return _Row(
            place=placed.place,
            subject=name_of(first_at(placed, self.subject)),
            name=item or placed.place.rpartition(" ")[2],
            content=digest(*contents) if any(contents) else "",
            scores=scores,
            main=name_of(first_at(placed, [self.main])),
            benchmark=name_of(first_at(placed, self.benchmark_at)),
            failed=any(failures),
            length=length,
            texts=(text_at(placed, self.prompt), text_at(placed, self.answer)),
            answer=short_answer(text_at(placed, self.prediction)),
        )

    def _subjects(
        self,
        files: Sequence[tuple[Path, list[_Row]]],
        labels: Sequence[str],
        options: ReadOptions,
    ) -> list[list[str]]:
        """The subject of each record of each file."""
        if options.subject_name is not None:
            return [[options.subject_name] * len(rows) for _, rows in files]
        named = [{row.subject for row in rows} for _, rows in files]
        pairs = list(zip(named, labels, strict=True))
        counts = Counter((name, label) for names, label in pairs for name in names)
        by_file = file_names([path for path, _ in files], self.common)
        out = []
        for (path, rows), (names, filter_name), file in zip(
            files, pairs, by_file, strict=True
        ):
            shared = self.own_subject
            shared = shared and any(counts[x, filter_name] > 1 for x in names)
            file = self.subject_of(path) or file
            label = {x: f"{x} ({file})" if shared and x else x or file for x in names}
            out.append([label[row.subject] for row in rows])
        return out


def _add(
    builder: RecordBuilder,
    row: _Row,
    place: _Place,
    trials: Counter[Any],
    options: ReadOptions,
) -> None:
    """Adds the scores of a record, and what its item asks."""
    key = ItemKey(place.benchmark, row.name, row.content, place.copy)
    item = place.benchmark, row.name, row.content
    if any(row.texts) and builder.described.needs(item):
        builder.described.text(item, *row.texts)
    joined = (row.content, place.copy) if row.content else row.name
    for metric, value in row.scores:
        this = place, joined, metric
        builder.add(
            subject=place.subject,
            item=key,
            response=_score(builder, key, row, metric, value, options),
            benchmark=place.benchmark,
            metric=metric,
            filter=place.filter,
            run=place.run,
            trial=trials[this],
            length=row.length,
            answer=row.answer,
        )
        trials[this] += 1


def _score(
    builder: RecordBuilder,
    item: ItemKey,
    row: _Row,
    metric: str,
    value: Any,
    options: ReadOptions,
) -> float | None:
    """A score as a number; the metric of another value is noted as one without."""
    if row.failed:
        return missing(options)
    number = number_of(value)
    is_valid = value is None or number is not None
    if isinstance(value, str):
        number, is_valid = parse_number(value, _WORDS)
    if not is_valid:
        builder.unscored.setdefault(
            (item.benchmark, metric),
            f"{row.place}: {metric!r:.80} is {text_of(value)!r:.60}, which is not a"
            " number; correct it",
        )
    return number


def _plain_metric(records: Records) -> list[str]:
    """The one metric that scores right and wrong, or the one that has numbers."""
    if records.metric is None:
        return []
    unscored = {metric for _, metric in records.unscored}
    numeric, binary = [], []
    for code, name in enumerate(records.metric.labels.tolist()):
        scores = records.response[records.metric.codes == code]
        scores = scores[~np.isnan(scores)]
        if name not in unscored and len(scores):
            numeric.append(name)
            binary += [name] * bool(np.isin(scores, (0.0, 1.0)).all())
    return numeric if len(numeric) == 1 else binary if len(binary) == 1 else []
