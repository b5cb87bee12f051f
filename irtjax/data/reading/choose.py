"""Choosing one metric, filter, epoch and run among those found in the records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from irtjax.data.reading.options import Metric, ReadOptions
from irtjax.data.reading.records import Coded, Records
from irtjax.data.wording import listing

_Groups = dict[str, dict[str, np.ndarray]]
_Choice = tuple[Records, str | None]


def choose(records: Records, options: ReadOptions) -> _Choice:
    """Returns the rows of one run, epoch, metric and filter, and the metric's name."""
    records = _choose_epoch(_choose_run(records, options), options)
    records, metric = _choose_metric(records, options)
    records, filter_name = _choose_filter(records, options)
    for name in _names(records.metric):
        if name in records.unscored:
            raise ValueError(records.unscored[name])
        records.notes = [*records.notes, *records.metric_notes.get(name, [])]
    if metric and filter_name and filter_name != "none":
        metric = f"{metric},{filter_name}"
    return records, metric


def _names(column: Coded | None) -> list[str]:
    return [] if column is None else column.compact().labels.tolist()


def _choose_run(records: Records, options: ReadOptions) -> Records:
    """Keeps the latest run of each subject on each benchmark."""
    if records.run is None:
        return records
    rank = np.argsort(np.argsort(records.run.labels))[records.run.codes]
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
    return records.take(
        ~older,
        f"{len(np.unique(pair[older]))} subject-benchmark pairs were run more than"
        " once: the latest run was taken (run='all' keeps all as repeats)",
    )


def _choose_epoch(records: Records, options: ReadOptions) -> Records:
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
            keep |= rows
    return records.take(keep, f"only epoch {options.epoch} was read")


def _groups(records: Records, column: Coded) -> _Groups:
    """Rows of each label within each benchmark, labels in order of appearance."""
    out: _Groups = {}
    benchmark = records.benchmark or Coded.constant("", len(records))
    size = len(column.labels)
    pair = benchmark.codes.astype(np.int64) * size + column.codes
    for code in np.unique(pair).tolist():
        name, label = benchmark.labels[code // size], column.labels[code % size]
        out.setdefault(str(name), {})[str(label)] = pair == code
    return out


def _choose_metric(records: Records, options: ReadOptions) -> _Choice:
    asked, source = options.metric, records.source
    if records.metric is None:
        if isinstance(asked, str) and options.response is None:
            raise ValueError(
                f"{source}: no metric {asked!r}: the input names no metrics"
            )
        return records, None
    groups = _groups(records, records.metric)
    wanted = asked
    if isinstance(asked, str) and not any(asked in rows for rows in groups.values()):
        wanted = asked.rsplit(",", 1)[0]  # A 'metric,filter' name.
    keep = np.zeros(len(records), bool)
    chosen: dict[str, str] = {}
    notes: list[str] = []
    lacking: dict[str, list[str]] = {}
    for name, rows in groups.items():
        label = _pick(wanted, name, list(rows))
        if label is not None:
            keep |= rows[label]
            chosen[name] = label
        elif asked is None:
            raise ValueError(
                f"{source}: several metrics{_where(name)}: choose one with"
                f" metric= among {_choices(records, rows)}"
            )
        elif isinstance(asked, str) and len(rows) > 1:
            lacking[name] = list(rows)
        else:
            notes.append(
                f"benchmark {name!r} has no metric {asked!r} and was left"
                f" out (it has {listing(list(rows))})"
            )
    if not chosen:
        found = sorted({label for rows in groups.values() for label in rows})
        raise ValueError(f"{source}: no metric {asked!r}; there are: {listing(found)}")
    if lacking:
        raise ValueError(f"{source}: {_lacking_message(wanted, lacking, chosen)}")
    names = sorted(set(chosen.values()))
    if len(names) > 1:
        shown = [f"{k}: {v}" for k, v in sorted(chosen.items())]
        notes.append(f"the metric differs by benchmark ({listing(shown)})")
    return records.take(keep, *notes), " / ".join(names)


def _pick(wanted: Metric, benchmark: str, found: Sequence[str]) -> str | None:
    unnamed = list(found) == [""]  # a table that names no metric
    left_open = isinstance(wanted, Mapping) and benchmark not in wanted
    if wanted is None or unnamed or left_open:
        return found[0] if len(found) == 1 else None
    if isinstance(wanted, Mapping):
        wanted = wanted[benchmark]
    preferred = [wanted] if isinstance(wanted, str) else wanted
    return next((name for name in preferred if name in found), None)


def _lacking_message(
    wanted: Metric, lacking: dict[str, list[str]], chosen: dict[str, str]
) -> str:
    """Refuses a metric that some benchmarks lack; the cure is a metric by benchmark."""
    name, found = next(iter(lacking.items()))
    having = [k for k, v in chosen.items() if v == wanted]
    example = {**dict.fromkeys(having[:1], wanted), name: found[0]}
    more = f" (nor have {len(lacking) - 1} more)" if len(lacking) > 1 else ""
    return (
        f"benchmark {name!r} has no metric {wanted!r}{more}; it has {listing(found)}:"
        f" choose by benchmark, as in metric={example} (one that is not named there is"
        " left out), or leave its files out"
    )


def _where(benchmark: str) -> str:
    return f" on benchmark {benchmark!r}" if benchmark else ""


def _choices(records: Records, groups: dict[str, np.ndarray]) -> str:
    """Lists metrics as 'metric,filter' where filters are many, as logs write them."""
    shown: list[str] = []
    for label, rows in groups.items():
        filters = _names(None if records.filter is None else records.filter[rows])
        shown += [f"{label},{f}" for f in filters] if len(filters) > 1 else [label]
    return listing(shown)


def _choose_filter(records: Records, options: ReadOptions) -> _Choice:
    wanted, source = options.filter, records.source
    if records.filter is None:
        if wanted is not None:
            raise ValueError(f"{source}: no filter {wanted!r}: the input names none")
        return records, None
    if wanted is None and isinstance(options.metric, str) and "," in options.metric:
        wanted = options.metric.rsplit(",", 1)[1]
    preferred = [wanted] if isinstance(wanted, str) else wanted or ()
    keep = np.zeros(len(records), bool)
    chosen = set()
    for name, rows in _groups(records, records.filter).items():
        # A benchmark with one filter leaves nothing to choose.
        only = next(iter(rows)) if len(rows) == 1 else None
        label = next((f for f in preferred if f in rows), only)
        if label is None:
            what = f"no filter {wanted!r}" if wanted else "several filters"
            raise ValueError(
                f"{source}: {what}{_where(name)}: choose one with filter="
                f" among {listing(list(rows))}"
            )
        keep |= rows[label]
        chosen.add(label)
    if preferred and not chosen & set(preferred):
        raise ValueError(
            f"{source}: no filter {wanted!r}; there are: {listing(sorted(chosen))}"
        )
    return records.take(keep), " / ".join(sorted(chosen))
