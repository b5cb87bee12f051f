"""Choosing one metric, filter, epoch and run among those found in the records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from irtjax.data.reading.options import Metric, ReadOptions
from irtjax.data.reading.records import Coded, Records
from irtjax.data.wording import listing

_Pairs = dict[str, dict[str, np.ndarray]]


def choose(records: Records, options: ReadOptions) -> tuple[Records, str | None]:
    """Returns the rows of one run, epoch, metric and filter, and the metric's name.

    Raises:
        ValueError: several metrics or filters are there and none, or an unknown one,
            was requested; the message lists the choices.
    """
    records = _choose_run(records, options)
    records = _choose_epoch(records, options)
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
    if column is None:
        return []
    return column.compact().labels.tolist()


def _choose_run(records: Records, options: ReadOptions) -> Records:
    """Keeps the latest run of each subject on each benchmark."""
    if records.run is None:
        return records
    order = np.argsort(np.argsort(records.run.labels))
    rank = order[records.run.codes]
    pair = records.subject.codes.astype(np.int64)
    if records.benchmark is not None:
        pair = pair * len(records.benchmark.labels) + records.benchmark.codes
    pair = np.unique(pair, return_inverse=True)[1]
    latest = np.full(pair.max(initial=-1) + 1, -1)
    np.maximum.at(latest, pair, rank)
    older = rank < latest[pair]
    if not older.any():
        return records
    if options.run == "all":
        # Runs become repeats: give each run its own block of trial numbers.
        trial = records.trial if records.trial is not None else np.zeros(len(rank))
        block = int(trial.max()) + 1
        return dataclasses.replace(
            records, trial=(trial + rank * block).astype(np.int64)
        )
    pairs = len(np.unique(pair[older]))
    kept = records.take(~older)
    kept.notes = [
        *records.notes,
        f"{pairs} subject-benchmark pairs were run more than once: the latest run was"
        " taken (run='all' keeps all as repeats)",
    ]
    return kept


def _choose_epoch(records: Records, options: ReadOptions) -> Records:
    if options.epoch is None:
        return records
    found = [] if records.trial is None else np.unique(records.trial).tolist()
    if options.epoch not in found:
        shown = listing([str(k) for k in found]) or "none"
        raise ValueError(
            f"{records.source}: no epoch or trial {options.epoch}; there are: {shown}"
        )
    assert records.trial is not None
    keep = records.trial == options.epoch
    benchmark = records.benchmark or Coded.constant("", len(records))
    # Where a benchmark was tried once only, there is nothing to choose.
    for rows in _groups(records, benchmark).values():
        for mask in rows.values():
            if len(np.unique(records.trial[mask])) == 1:
                keep |= mask
    kept = records.take(keep)
    kept.notes = [*records.notes, f"only epoch {options.epoch} was read"]
    return kept


def _groups(records: Records, column: Coded) -> _Pairs:
    """Rows of each label within each benchmark, labels in order of appearance."""
    out: _Pairs = {}
    benchmark = records.benchmark or Coded.constant("", len(records))
    size = len(column.labels)
    pair = benchmark.codes.astype(np.int64) * size + column.codes
    for code in np.unique(pair).tolist():
        name = str(benchmark.labels[code // size])
        label = str(column.labels[code % size])
        out.setdefault(name, {})[label] = pair == code
    return out


def _choose_metric(
    records: Records, options: ReadOptions
) -> tuple[Records, str | None]:
    if records.metric is None or len(records.metric) == 0:
        if isinstance(options.metric, str) and options.response is None:
            known = "the input names no metrics"
            raise ValueError(f"{records.source}: no metric {options.metric!r}: {known}")
        return records, None
    groups = _groups(records, records.metric)
    wanted = _split_filter(options.metric, groups)
    keep = np.zeros(len(records), bool)
    chosen: dict[str, str] = {}
    notes = list(records.notes)
    lacking: dict[str, list[str]] = {}
    for name, rows in groups.items():
        label = _pick(wanted, name, list(rows))
        if label is not None:
            keep |= rows[label]
            chosen[name] = label
        elif options.metric is None:
            raise ValueError(
                f"{records.source}: several metrics{_where(name)}: choose one with"
                f" metric= among {_choices(records, keep_rows=rows)}"
            )
        elif isinstance(options.metric, str) and len(rows) > 1:
            lacking[name] = list(rows)
        else:
            notes.append(
                f"benchmark {name!r} has no metric {options.metric!r} and was left"
                f" out (it has {listing(list(rows))})"
            )
    if not chosen:
        found = sorted({label for rows in groups.values() for label in rows})
        raise ValueError(
            f"{records.source}: no metric {options.metric!r}; there are:"
            f" {listing(found)}"
        )
    if lacking:
        raise ValueError(
            f"{records.source}: {_lacking_message(wanted, lacking, chosen)}"
        )
    names = sorted(set(chosen.values()))
    if len(names) > 1:
        shown = [f"{k}: {v}" for k, v in sorted(chosen.items())]
        notes.append(f"the metric differs by benchmark ({listing(shown)})")
    kept = records.take(keep)
    kept.notes = notes
    return kept, " / ".join(names)


def _split_filter(metric: Metric, groups: _Pairs) -> Metric:
    """Cuts the filter off a 'metric,filter' name, unless that is itself a metric."""
    if not isinstance(metric, str) or "," not in metric:
        return metric
    if any(metric in rows for rows in groups.values()):
        return metric
    return metric.rsplit(",", 1)[0]


def _pick(wanted: Metric, benchmark: str, found: Sequence[str]) -> str | None:
    if wanted is None or list(found) == [""]:  # a table that names no metric
        return found[0] if len(found) == 1 else None
    if isinstance(wanted, Mapping):
        if benchmark not in wanted:
            return found[0] if len(found) == 1 else None
        preferred: Sequence[str] = [wanted[benchmark]]
    else:
        preferred = [wanted] if isinstance(wanted, str) else wanted
    return next((name for name in preferred if name in found), None)


def _lacking_message(
    wanted: Metric, lacking: dict[str, list[str]], chosen: dict[str, str]
) -> str:
    """Refuses a metric that some benchmarks lack; the cure is a metric by benchmark."""
    name, found = next(iter(lacking.items()))
    example = {k: v for k, v in chosen.items() if v == wanted}
    example = {**dict(list(example.items())[:1]), name: found[0]}
    more = f" (nor have {len(lacking) - 1} more)" if len(lacking) > 1 else ""
    return (
        f"benchmark {name!r} has no metric {wanted!r}{more}; it has {listing(found)}:"
        f" choose by benchmark, as in metric={example} (one that is not named there is"
        " left out), or leave its files out"
    )


def _where(benchmark: str) -> str:
    return f" on benchmark {benchmark!r}" if benchmark else ""


def _choices(records: Records, keep_rows: dict[str, np.ndarray]) -> str:
    """Lists metrics as 'metric,filter' where filters are many, as logs write them."""
    shown: list[str] = []
    for label, rows in keep_rows.items():
        filters = (
            [] if records.filter is None else _names(records.filter[rows].compact())
        )
        several = len(filters) > 1
        shown += [f"{label},{f}" for f in filters] if several else [label]
    return listing(shown)


def _choose_filter(
    records: Records, options: ReadOptions
) -> tuple[Records, str | None]:
    wanted = options.filter
    if wanted is None and isinstance(options.metric, str) and "," in options.metric:
        wanted = options.metric.rsplit(",", 1)[1]
    if records.filter is None or len(records.filter) == 0:
        if options.filter is not None:
            raise ValueError(
                f"{records.source}: no filter {options.filter!r}: the input names none"
            )
        return records, None
    groups = _groups(records, records.filter)
    preferred = [wanted] if isinstance(wanted, str) else wanted
    keep = np.zeros(len(records), bool)
    chosen = set()
    for name, rows in groups.items():
        found = list(rows)
        label = next((f for f in preferred or () if f in rows), None)
        if label is None and len(found) == 1:
            label = found[0]  # a benchmark with one filter leaves nothing to choose
        if label is None:
            said = f"no filter {wanted!r}" if wanted else "several filters"
            raise ValueError(
                f"{records.source}: {said}{_where(name)}: choose one with filter="
                f" among {listing(found)}"
            )
        keep |= rows[label]
        chosen.add(label)
    if preferred and not chosen & set(preferred):
        raise ValueError(
            f"{records.source}: no filter {wanted!r}; there are:"
            f" {listing(sorted(chosen))}"
        )
    kept = records.take(keep)
    return kept, " / ".join(sorted(chosen))
