"""Choosing one metric, filter, epoch and run among those found in the records."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from irtjax.data.reading.every_metric import EVERY, by_metric
from irtjax.data.reading.options import Choices, Metric, ReadOptions
from irtjax.data.reading.records import UNFINISHED, Coded, Records
from irtjax.data.wording import counted, listing, were

#: Benchmarks whose usual metric is listed.
SHOWN = 8
#: The note on the usual choice, and a choice in it.
_USUAL = "usual metrics and filters were read"
_CHOICE = re.compile(r"[(;] ?([^(;]+): (\S+?)(?: with ([^,;]+))?, not ")

_Groups = dict[str, dict[str, np.ndarray]]
_Choice = tuple[Records, str | None]


def choose(records: Records, options: ReadOptions) -> _Choice:
    """Returns the rows of one run, epoch, metric and filter, and the metric's name.

    Metric and filter are chosen by benchmark: as asked for, else the only one, else
    the usual one of the log's format.
    """
    records, options = _of_one_run(records, options)
    before = records
    records, metrics, usual = _choose_metric(records, options)
    records, filters = _choose_filter(records, options, metrics, usual)
    for name, (metric, _) in metrics.items():
        if before.metric is not None and (name, metric) in records.unscored:
            others = _numeric(records, name, _groups(before, before.metric)[name])
            cure = f", or choose another with metric= among {listing(others)}"
            raise ValueError(records.unscored[name, metric] + cure * bool(others))
    for name in _names(records.metric):
        records.notes = [*records.notes, *records.metric_notes.get(name, [])]
    if usual:
        records.notes = [*records.notes, _usual_note(usual, metrics, filters)]
    names = set()
    for benchmark, (name, _) in metrics.items():
        chosen = filters.get(benchmark, "none")
        no_filter = chosen in ("", "none") or not name
        names.add(name if no_filter else f"{name},{chosen}")
    return records, " / ".join(sorted(names - {""})) or None


def _of_one_run(records: Records, options: ReadOptions) -> tuple[Records, ReadOptions]:
    """The records of one run and epoch, and the options with names by benchmark."""
    if EVERY in (options.metric or ()):
        records, options = by_metric(records, options)
    records = _choose_epoch(_choose_run(records, options), options)
    return records, _resolved(records, options)


def missing_choices(records: Records, options: ReadOptions) -> dict[str, Any]:
    """A metric and a filter for each benchmark that leaves one open.

    The first that scores right and wrong, else the first.
    """
    records, options = _of_one_run(records, options)
    choices: dict[str, Any] = {}
    of_metric: dict[str, str] = {}  # filters of names as "metric,filter"
    for option in ("metric", "filter"):
        labels = getattr(records, option)
        if labels is None:
            continue
        groups, asked = _groups(records, labels), getattr(options, option)
        wish = _Wish.of(asked)
        whole = option == "metric" and isinstance(asked, str)
        if option == "metric":
            _check_known(asked, groups, records.source)
        named, keep = {}, np.zeros(len(records), bool)
        for name, rows in groups.items():
            pair = _pick(wish[name], list(rows))
            label = pair[0] if pair else None
            if option == "metric" and pair and pair[1] is not None:
                of_metric[name] = pair[1]
            if label is None and wish[name] is None and option == "filter":
                label = of_metric.get(name)
                if label is not None and label not in rows:
                    continue  # `choose` refuses the name.
            if label is None and (wish[name] is None or whole):
                label = _usual_of(records, option, name, rows)
            if label is None and option == "filter" and len(rows) == 1:
                label = next(iter(rows))
            if label is None and name in wish.named:
                continue  # `choose` leaves the benchmark out, or refuses the name.
            if label is None:
                label = _first_binary(records, name, rows)
                named[name] = label
            keep[rows[label]] = True
        records = records.take(keep)
        if named:
            others = {} if wish.others is None else {"*": wish.others}
            every = {**wish.named, **others, **named}
            one = len(_names(records.benchmark)) < 2 and len(every) == 1
            choices[option] = next(iter(every.values())) if one else every
    return choices


def check_response(records: Records, options: ReadOptions) -> None:
    """Refuses a name of the response that is no metric of logs."""
    metrics = _names(records.metric)
    if options.response is not None and options.response not in metrics:
        raise ValueError(
            f"{records.source}: no metric {options.response!r:.80} for response=; there"
            f" are: {listing(metrics) or 'no names of metrics'}"
        )


def _resolved(records: Records, options: ReadOptions) -> ReadOptions:
    """Options in which what was typed is a name, or a mapping by benchmark."""
    choices: dict[str, Any] = {}
    if options.metric is None and options.response in _names(records.metric):
        options = dataclasses.replace(options, metric=options.response)
    for option in ("metric", "filter"):
        typed, column = getattr(options, option), getattr(records, option)
        if not isinstance(typed, Choices):
            continue
        benchmarks, labels = _names(records.benchmark) or [""], _names(column)
        named: dict[str, str] = {}
        for text in typed:
            benchmark, name = _split(text, benchmarks, labels)
            if benchmark in named:
                what = "all" if benchmark == "*" else f"benchmark {benchmark!r:.80}"
                raise ValueError(f"{option}: {text}: there is one already for {what}")
            named[benchmark] = name
        choices[option] = named["*"] if list(named) == ["*"] else named
    return dataclasses.replace(options, **choices)


def _split(text: str, benchmarks: list[str], labels: list[str]) -> tuple[str, str]:
    """Benchmark ("*" for all) and name of BENCHMARK=NAME, or of a name."""
    parts = text.split("=")
    if len(parts) > 1 and text not in labels:
        for k in range(len(parts) - 1, 0, -1):
            if "=".join(parts[:k]) in benchmarks:
                return "=".join(parts[:k]), "=".join(parts[k:])
        return parts[0], "=".join(parts[1:])  # No benchmark, which is refused.
    return "*", text


def _first_binary(records: Records, benchmark: str, rows: dict[str, np.ndarray]) -> str:
    """The first label whose scores are all 0 or 1, else the first with numbers."""
    numeric = _numeric(records, benchmark, rows)
    for label in numeric:
        scores = records.response[rows[label]]
        if np.isin(scores[~np.isnan(scores)], (0.0, 1.0)).all():
            return label
    return next(iter(numeric or rows))


def _numeric(records: Records, benchmark: str, labels: Iterable[str]) -> list[str]:
    """The labels that are no metrics with scores that are text or objects."""
    return [label for label in labels if (benchmark, label) not in records.unscored]


def _usual_of(
    records: Records, option: str, benchmark: str, rows: dict[str, np.ndarray]
) -> str | None:
    """The first usual name that every subject of a benchmark has, else the first."""
    usual = [x for x in records.usual(option, benchmark) if x in rows]
    if option == "filter" and records.first_filter:
        # As the harness lists them.
        rest = [x for x in rows if x not in usual]
        usual += sorted(rest, key=lambda x: int(rows[x][0]))
    if len(usual) < 2:
        return next(iter(usual), None)
    having = {label: _subjects(records, [rows[label]]) for label in rows}
    everyone = np.logical_or.reduce(list(having.values()))
    complete = (x for x in usual if np.array_equal(having[x], everyone))
    return next(complete, usual[0])


def _subjects(records: Records, rows: Iterable[np.ndarray]) -> np.ndarray:
    """The mask of subjects that have one of the rows."""
    has = np.zeros(len(records.subject.labels), bool)
    for places in rows:
        has[records.subject.codes[places]] = True
    return has


class _Lost:
    """Subjects with rows on a benchmark of which the choice kept none."""

    def __init__(self, records: Records, option: str) -> None:
        self._records, self._option = records, option
        #: By name and subjects, their number on it and the benchmarks.
        self._found: dict[tuple[str, tuple[int, ...], int], list[str]] = {}

    def add(self, benchmark: str, label: str, rows: dict[str, np.ndarray]) -> None:
        """Looks for them, given the rows of each name on a benchmark."""
        if len(rows) < 2:
            return
        had = _subjects(self._records, rows.values())
        left = np.flatnonzero(had & ~_subjects(self._records, [rows[label]]))
        if len(left):
            key = label, tuple(left.tolist()), int(had.sum())
            self._found.setdefault(key, []).append(benchmark)

    def notes(self) -> list[str]:
        """One note for each set of subjects that lack one name."""
        notes = []
        for (label, left, total), benchmarks in self._found.items():
            names = self._records.subject.labels[list(left)].tolist()
            has, was = ("has", "was") if len(left) == 1 else ("have", "were")
            where = f" on {listing(benchmarks, SHOWN)}" if benchmarks != [""] else ""
            notes.append(
                f"{len(left)} of {counted(total, 'subject')} {has} no {self._option}"
                f" {label!r}"
                f"{where} and {was} left out there: {listing(names, SHOWN)}"
            )
        return notes


def _names(column: Coded | None) -> list[str]:
    """The labels of a column that occur."""
    return [] if column is None else column.compact().labels.tolist()


def _choose_run(records: Records, options: ReadOptions) -> Records:
    """Keeps the latest run of each subject on each benchmark that succeeded, if any."""
    if records.run is None:
        return records
    rank = _run_ranks(records.run.labels)[records.run.codes]
    pair = records.subject.codes.astype(np.int64)
    if records.benchmark is not None:
        pair = pair * len(records.benchmark.labels) + records.benchmark.codes
    pair = np.unique(pair, return_inverse=True)[1]
    latest = np.full(pair.max() + 1, -1)
    np.maximum.at(latest, pair, rank)
    older = rank < latest[pair]
    if not older.any():
        return records
    if options.run == "all":
        # Runs become repeats: give each run its own block of trial numbers.
        trial = np.zeros(1, np.int64) if records.trial is None else records.trial
        return dataclasses.replace(records, trial=trial + rank * (trial.max() + 1))
    again = np.unique(pair[older])
    notes = [
        f"{counted(len(again), 'subject-benchmark pair')} {were(len(again))} run more"
        " than once:"
        " the latest run"
        " was taken (run='all' keeps all as repeats)"
    ]
    times = [label.removeprefix(UNFINISHED) for label in records.run.labels.tolist()]
    by_time = np.unique(times, return_inverse=True)[1]
    later = by_time[records.run.codes]
    taken = np.full(len(latest), -1)
    taken[pair[~older]] = later[~older]
    passed = np.unique(pair[older & (later > taken[pair])])
    if len(passed):
        notes.append(
            f"of {len(passed)} of them a run that succeeded was taken, and a later one"
            " that did not was left out"
        )
    return records.take(~older, *notes, *_short_runs(records, pair, rank, latest))


def _run_ranks(labels: np.ndarray) -> np.ndarray:
    """Places of runs: those that did not succeed, then the others, each by time."""
    succeeded = ~np.char.startswith(labels, UNFINISHED)
    return np.argsort(np.lexsort((labels, succeeded)))


def _short_runs(
    records: Records, pair: np.ndarray, rank: np.ndarray, latest: np.ndarray
) -> list[str]:
    """A note on the runs that were taken and have fewer responses than another."""
    several = np.zeros(len(latest), bool)
    several[pair[rank < latest[pair]]] = True
    rows = np.flatnonzero(several[pair] & ~np.isnan(records.response))
    runs, items = int(rank.max()) + 1, len(records.item.labels)
    run = pair[rows].astype(np.int64) * runs + rank[rows]
    cells = np.unique(run * items + records.item.codes[rows])
    run, count = np.unique(cells // items, return_counts=True)
    most, taken = np.zeros(len(latest), int), np.zeros(len(latest), int)
    np.maximum.at(most, run // runs, count)
    mine = run % runs == latest[run // runs]
    taken[run[mine] // runs] = count[mine]
    short = np.flatnonzero(taken < most)
    if not len(short):
        return []
    parts = []
    for place in short[:SHOWN].tolist():
        row = int(np.argmax(pair == place))
        name = "" if records.benchmark is None else records.benchmark.text(row)
        where = f" on {name}" if name else ""
        parts.append(
            f"{records.subject.text(row)}{where}: {taken[place]} of"
            f" {counted(most[place], 'item')}"
        )
    left = f"; and so on for {len(short) - SHOWN} more" * (len(short) > SHOWN)
    return [
        f"the run that was taken has fewer responses than another ({'; '.join(parts)}"
        f"{left}): leave out the files of runs that are not complete"
    ]


def _choose_epoch(records: Records, options: ReadOptions) -> Records:
    """The records of the epoch that was asked for."""
    if options.epoch is None:
        return records
    trial = np.zeros(0) if records.trial is None else records.trial
    if options.epoch not in trial:
        shown = listing([str(k) for k in np.unique(trial).tolist()]) or "none"
        raise ValueError(
            f"{records.source}: no epoch or trial {options.epoch}; there are: {shown}"
        )
    keep = trial == options.epoch
    # Where a benchmark was tried once only, there is nothing to choose.
    for groups in _groups(records, Coded.constant("", len(records))).values():
        rows = groups[""]
        if len(np.unique(trial[rows])) == 1:
            keep[rows] = True
    return records.take(keep, f"only epoch {options.epoch} was read")


def _groups(records: Records, column: Coded) -> _Groups:
    """Rows of each label within each benchmark, labels in order of their codes."""
    out: _Groups = {}
    benchmark = records.benchmark or Coded.constant("", len(records))
    size = len(column.labels)
    pair = benchmark.codes.astype(np.int64) * size + column.codes
    for code, rows in rows_by_code(pair):
        name, label = benchmark.labels[code // size], column.labels[code % size]
        out.setdefault(str(name), {})[str(label)] = rows
    return out


def rows_by_code(codes: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields each code in ascending order, with its rows."""
    order = np.argsort(codes, kind="stable")
    distinct, start = np.unique(codes[order], return_index=True)
    yield from zip(distinct.tolist(), np.split(order, start[1:]), strict=True)


@dataclasses.dataclass(frozen=True)
class _Wish:
    """Names asked for, in order of preference: by benchmark, and for the others."""

    named: Mapping[str, tuple[str, ...]]
    others: tuple[str, ...] | None

    @classmethod
    def of(cls, option: Metric) -> _Wish:
        """The wish that an option states for all or for each benchmark."""
        tuple_of = lambda x: (x,) if isinstance(x, str) else tuple(x)
        if isinstance(option, Mapping):
            named = {name: tuple_of(x) for name, x in option.items()}
            return cls(named, named.pop("*", None))
        return cls({}, None if option is None else tuple_of(option))

    def __getitem__(self, benchmark: str) -> tuple[str, ...] | None:
        return self.named.get(benchmark, self.others)

    def check(self, what: str, benchmarks: Sequence[str], source: str) -> None:
        """Refuses a benchmark that is not there."""
        for name in self.named:
            if name not in benchmarks:
                raise ValueError(
                    f"{source}: {what}: no benchmark {name!r:.80}; there are:"
                    f" {listing(list(benchmarks))}"
                )


#: By benchmark, the metric and the filter that its name contains.
_Pairs = dict[str, tuple[str, str | None]]
#: By benchmark, what was not chosen where the usual name was taken.
_Usual = dict[str, list[str]]


def _choose_metric(
    records: Records, options: ReadOptions
) -> tuple[Records, _Pairs, _Usual]:
    """The records of one metric for each benchmark, and what was chosen."""
    asked, source = options.metric, records.source
    if records.metric is None:
        mapped = isinstance(asked, Mapping)
        if mapped or (isinstance(asked, str) and options.response is None):
            raise ValueError(
                f"{source}: no metric {_shown(asked)}: the input names no metrics"
            )
        names = _names(records.benchmark) or [""]
        return records, dict.fromkeys(names, ("", None)), {}
    groups = _groups(records, records.metric)
    wish = _Wish.of(asked)
    wish.check("metric", list(groups), source)
    _check_known(asked, groups, source)
    keep = np.zeros(len(records), bool)
    chosen: _Pairs = {}
    usual: _Usual = {}
    notes: list[str] = []
    lost = _Lost(records, "metric")
    lacking: dict[str, list[str]] = {}
    instead: list[str] = []
    for name, rows in groups.items():
        labels, wanted = list(rows), wish[name]
        pair = _pick(wanted, labels)
        if pair is None and (wanted is None or isinstance(asked, str)):
            # One name for all: a folder of two kinds of tasks is read whole.
            pair = _usual_metric(records, name, rows, wanted)
            if pair is not None and wanted is None:
                usual[name] = [label for label in labels if label != pair[0]]
            elif pair is not None:
                instead.append(f"{name}: {pair[0]}")
        if pair is not None:
            keep[rows[pair[0]]] = True
            chosen[name] = pair
            lost.add(name, pair[0], rows)
        elif isinstance(asked, str) and len(rows) > 1:
            lacking[name] = labels
        else:
            notes.append(_without_metric(name, labels, wanted, wish, source))
    if lacking:
        raise ValueError(f"{source}: {_lacking_message(str(asked), lacking, chosen)}")
    if instead:
        lack = "lacks" if len(instead) == 1 else "lack"
        notes.append(
            f"{counted(len(instead), 'benchmark')} {lack} the metric {asked!r}: the"
            f" usual one was read ({listing(instead)}); leave its files out, or give"
            " another by benchmark"
        )
    elif len({metric for metric, _ in chosen.values()}) > 1 and not usual:
        shown = [f"{k}: {v}" for k, (v, _) in sorted(chosen.items())]
        notes.append(f"the metric differs by benchmark ({listing(shown)})")
    return records.take(keep, *notes, *lost.notes()), chosen, usual


def _usual_metric(
    records: Records,
    benchmark: str,
    rows: dict[str, np.ndarray],
    wanted: tuple[str, ...] | None,
) -> tuple[str, None] | None:
    """The usual metric of a benchmark; refuses several without one, if any will do."""
    preferred = _usual_of(records, "metric", benchmark, rows)
    if preferred is None and wanted is None:
        raise ValueError(
            f"{records.source}: several metrics{_where(benchmark)}: choose one with"
            f" metric= among {_choices(records, benchmark, rows)}"
            f"{_and_bounds(records, benchmark, rows)}"
        )
    return None if preferred is None else (preferred, None)


def _without_metric(
    benchmark: str,
    labels: list[str],
    wanted: tuple[str, ...] | None,
    wish: _Wish,
    source: str,
) -> str:
    """The note on a benchmark without the metric; refused if it was named for it."""
    shown = wanted[0] if wanted and len(wanted) == 1 else wanted
    if benchmark in wish.named:
        raise ValueError(
            f"{source}: no metric {shown!r}{_where(benchmark)}; there are:"
            f" {listing(labels)}"
        )
    return (
        f"benchmark {benchmark!r:.80} has no metric {shown!r} and was left out (it"
        f" has {listing(labels)})"
    )


def _check_known(asked: Any, groups: _Groups, source: str) -> None:
    """Refuses metrics for all benchmarks that none of them has."""
    wish = _Wish.of(asked)
    if wish.others is None or wish.named:
        return
    if all(_pick(wish.others, list(rows)) is None for rows in groups.values()):
        labels = sorted({label for rows in groups.values() for label in rows})
        raise ValueError(f"{source}: no metric {asked!r}; there are: {listing(labels)}")


def _shown(asked: Metric) -> str:
    """What was asked for, in a message."""
    if not isinstance(asked, Mapping):
        return repr(asked)
    shown = []
    for name, wanted in asked.items():
        text = wanted if isinstance(wanted, str) else " or ".join(wanted)
        shown.append(text if name == "*" else f"{name}={text}")
    return ", ".join(shown)


def _pick(
    wanted: Sequence[str] | None, labels: Sequence[str]
) -> tuple[str, str | None] | None:
    """The metric to take, and the filter of a 'metric,filter' name."""
    unnamed = list(labels) == [""]  # a table that names no metric
    if wanted is None or unnamed:
        return (labels[0], None) if len(labels) == 1 else None
    for name in wanted:
        metric, _, part = name.rpartition(",")
        if name in labels:
            return name, None
        if metric in labels:
            return metric, part
    return None


def _lacking_message(wanted: str, lacking: dict[str, list[str]], chosen: _Pairs) -> str:
    """Refuses a metric that some benchmarks lack; the cure is a metric by benchmark."""
    name, labels = next(iter(lacking.items()))
    having = [k for k, (metric, _) in chosen.items() if metric == wanted]
    example = {**dict.fromkeys(having[:1], wanted), name: labels[0]}
    others = f" (nor have {len(lacking) - 1} more)" if len(lacking) > 1 else ""
    return (
        f"benchmark {name!r:.80} has no metric {wanted!r}{others}; it has"
        f" {listing(labels)}: choose by benchmark, as in metric={example}, or"
        " leave its files out"
    )


def _where(benchmark: str) -> str:
    """The benchmark, for a message; nothing where it has no name."""
    return f" on benchmark {benchmark!r:.80}" if benchmark else ""


def _and_bounds(records: Records, benchmark: str, groups: dict[str, np.ndarray]) -> str:
    """The bounds that a fit of scores beyond 0 and 1 needs, to be added at once."""
    scores = [records.response[groups[x]] for x in _numeric(records, benchmark, groups)]
    values = np.concatenate([*scores, np.zeros(0)])
    values = values[np.isfinite(values)]
    if not len(values) or (values.min() >= 0 and values.max() <= 1):
        return ""
    low, high = (f"{x:g}" for x in (values.min(), values.max()))
    return f"; scores run from {low} to {high}: add bounds=({low}, {high})"


def _choices(records: Records, benchmark: str, groups: dict[str, np.ndarray]) -> str:
    """Lists metrics as 'metric,filter' where filters are many, as logs write them.

    Those with scores that are no numbers are named last: they cannot be chosen.
    """
    shown: list[str] = []
    numeric = _numeric(records, benchmark, groups)
    for label in numeric or groups:
        filters = (
            [] if records.filter is None else _names(records.filter[groups[label]])
        )
        shown += [f"{label},{f}" for f in filters] if len(filters) > 1 else [label]
    rest = [label for label in groups if label not in numeric] if numeric else []
    others = f" (the scores of {listing(rest)} are no numbers)"
    return listing(shown) + others * bool(rest)


def _choose_filter(
    records: Records, options: ReadOptions, metrics: _Pairs, usual: _Usual
) -> tuple[Records, dict[str, str]]:
    """Keeps one filter of each benchmark; adds to `usual` where that was taken."""
    asked, source = options.filter, records.source
    if records.filter is None:
        if asked is not None:
            raise ValueError(
                f"{source}: no filter {_shown(asked)}: the input names none"
            )
        return records, {}
    groups, wish = _groups(records, records.filter), _Wish.of(asked)
    wish.check("filter", list(groups), source)
    keep = np.zeros(len(records), bool)
    lost = _Lost(records, "filter")
    chosen: dict[str, str] = {}
    unnamed_of_logs, taken = records.unnamed_filters, list[str]()
    for name, rows in groups.items():
        labels, of_metric = list(rows), metrics.get(name, ("", None))[1]
        wanted = wish[name]
        if wanted is None and of_metric is not None:
            wanted = (of_metric,)
        label = next((x for x in wanted or () if x in rows), None)
        if label is None and wanted is None and len(labels) > 1:
            label = _usual_of(records, "filter", name, rows)
            if label is not None:
                rest = [x for x in labels if x != label]
                usual[name] = [*usual.get(name, []), *rest]
        # One that was asked for by benchmark is read, or refused. Of all benchmarks,
        # those with one filter leave nothing to choose.
        by_name = name in wish.named or of_metric is not None
        unnamed = labels == [""] or (labels == ["none"] and name in unnamed_of_logs)
        if label is None and len(labels) == 1 and (not by_name or unnamed):
            label = labels[0]
            if wanted and labels == ["none"]:
                taken.append(name)
        if label is None:
            shown = wanted[0] if wanted and len(wanted) == 1 else wanted
            what = f"no filter {shown!r}" if wanted else "several filters"
            raise ValueError(
                f"{source}: {what}{_where(name)}: choose one with filter="
                f" among {listing(labels)}"
            )
        keep[rows[label]] = True
        chosen[name] = label
        lost.add(name, label, rows)
    taken = [name for name in taken if name in unnamed_of_logs]
    if wish.others and not taken and not set(chosen.values()) & set(wish.others):
        every = sorted({label for rows in groups.values() for label in rows})
        raise ValueError(
            f"{source}: no filter {_shown(asked)}; there are: {listing(every)}"
        )
    notes = lost.notes()
    if taken:
        notes.append(
            "the logs name no filters, and their only one was read for"
            f" {_shown(asked) if asked is not None else 'the one of the metric'}"
            f" ({listing(taken, SHOWN)})"
        )
    return records.take(keep, *notes), chosen


def usual_choices(notes: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Returns metric and filter of benchmarks, as far as a note on the usual ones goes.

    >>> note = "usual metrics and filters were read (a: acc, not b; c: d with e, not f)"
    >>> usual_choices([note])
    {'a': ('acc', ''), 'c': ('d', 'e')}
    """
    choices = {}
    for note in notes:
        if note.startswith(_USUAL):
            for name, metric, chosen in _CHOICE.findall(note[len(_USUAL) :]):
                choices[name.strip()] = metric, chosen
    return choices


def _usual_note(usual: _Usual, metrics: _Pairs, filters: dict[str, str]) -> str:
    """The usual choice that was taken, and the others."""
    parts = []
    for name, rest in sorted(usual.items()):
        metric, chosen = metrics[name][0], filters.get(name, "none")
        no_filter = chosen in ("", "none")
        label = metric if no_filter else f"{metric} with {chosen}"
        parts.append(f"{name or 'all'}: {label}, not {', '.join(rest)}")
    shown = "; ".join(parts[:SHOWN])
    left = f"; and so on for {len(parts) - SHOWN} more" * (len(parts) > SHOWN)
    return f"{_USUAL} ({shown}{left})"
