"""All metrics of a log at once: each is a benchmark, with an item for each output."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import Coded, Records, as_labels, join_coded
from irtjax.data.wording import counted, listing

#: The value of the option `metric` that reads all of them.
EVERY = "all"


def by_metric(records: Records, options: ReadOptions) -> tuple[Records, ReadOptions]:
    """Records whose benchmarks are their metrics, where the option asks for all.

    Where there are several benchmarks they are "BENCHMARK/METRIC", or the benchmark if
    it has one metric. An item is "METRIC/ITEM", so that the metrics of one output share
    what follows the metric's name ("stem").

    Returns:
        The records and the options of what is left to choose; both as they are where
        the option names metrics, or one is called "all".
    """
    asked = options.metric
    asked = asked if isinstance(asked, str) or asked is None else tuple(asked)
    if asked not in (EVERY, (EVERY,)) or records.metric is None:
        return records, options
    if EVERY in records.metric.labels.tolist():
        return records, options
    options = dataclasses.replace(options, metric=None)
    records = _with_numbers(records)
    group, item = _groups(records)
    if item is records.item:
        return records, options
    rows = np.unique(item.codes, return_index=True)[1]
    old, new = records.item[rows].texts().tolist(), item[rows].texts().tolist()
    renamed: dict[str, list[str]] = {}
    for before, after in zip(old, new, strict=True):
        renamed.setdefault(before, []).append(after)
    each = lambda values: {
        name: value for x, value in values.items() for name in renamed.get(x, ())
    }
    contents = {
        name: f"{value} {name}" for name, value in each(records.item_contents).items()
    }
    names = group.compact().labels.tolist()
    note = f"{counted(len(names), 'metric')} were read, each as a benchmark"
    notes = [x for of_metric in records.metric_notes.values() for x in of_metric]
    renamed_records = dataclasses.replace(
        records,
        item=item,
        benchmark=group,
        metric=None,
        metric_notes={},
        main_metrics={},
        directions=_directions(records, group),
        qualified=True if records.qualified is not None else None,
        notes=[*records.notes, *notes, f"{note} ({listing(names)})"],
        item_texts=each(records.item_texts),
        item_ids=each(records.item_ids),
        item_contents=contents,
        item_options=each(records.item_options),
        item_parts={k: each(x) for k, x in records.item_parts.items()},
    )
    return renamed_records, options


def _with_numbers(records: Records) -> Records:
    """Records without the metrics whose scores are text or objects."""
    metric = records.metric
    assert metric is not None
    if not records.unscored:
        return records
    benchmark = records.benchmark or Coded.constant("", len(records))
    pairs = zip(benchmark.texts().tolist(), metric.texts().tolist(), strict=True)
    keep = np.array([pair not in records.unscored for pair in pairs])
    if not keep.any():
        return records
    left = sorted({name for _, name in records.unscored})
    return records.take(keep, f"{listing(left)}: left out, the scores are no numbers")


def _groups(records: Records) -> tuple[Coded, Coded]:
    """The new benchmark and the new item of each row.

    Those of a benchmark with one metric keep their names.
    """
    metric, benchmark = records.metric, records.benchmark
    assert metric is not None
    benchmark = benchmark or Coded.constant("", len(records))
    pair, at = _pairs(benchmark, metric)
    tasks = [task for task, _ in pair]
    one = len(set(tasks)) < 2
    several = np.array([tasks.count(task) > 1 for task in tasks])
    if not several.any():
        return benchmark, records.item
    labels = [
        (name if one else f"{task}/{name}") if is_split else task
        for (task, name), is_split in zip(pair, several.tolist(), strict=True)
    ]
    group = Coded(at, as_labels(labels))
    pairs, codes = _pairs(group, records.item)
    split = {labels[k] for k in np.flatnonzero(several).tolist()}
    names = [f"{label}/{x}" if label in split else x for label, x in pairs]
    return join_coded([group]), join_coded([Coded(codes, as_labels(names))])


def _pairs(first: Coded, second: Coded) -> tuple[list[tuple[str, str]], np.ndarray]:
    """The distinct pairs of labels, and the place of each row among them."""
    size = len(second.labels)
    pair = first.codes.astype(np.int64) * size + second.codes
    distinct, at = np.unique(pair, return_inverse=True)
    labels = [
        (str(first.labels[code // size]), str(second.labels[code % size]))
        for code in distinct.tolist()
    ]
    return labels, at.astype(np.int32)


def _directions(records: Records, group: Coded) -> Mapping[tuple[str, str], bool] | Any:
    """What logs state of the direction of each metric, by its new benchmark."""
    metric = records.metric
    assert metric is not None
    rows = np.unique(group.codes, return_index=True)[1]
    benchmark = records.benchmark or Coded.constant("", len(records))
    triples = zip(
        *(x[rows].texts().tolist() for x in (benchmark, metric, group)), strict=True
    )
    directions = {}
    for task, name, label in triples:
        for key in ((task, name), ("", name), (task, ""), ("", "")):
            if key in records.directions:
                directions[label, ""] = records.directions[key]
                break
    return directions
