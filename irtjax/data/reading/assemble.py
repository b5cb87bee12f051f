"""From records to a table: repeats, missing cells, and the dense matrix."""

from __future__ import annotations

import dataclasses

import numpy as np

from irtjax.data.reading.choose import choose
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import Coded, Records
from irtjax.data.table import ResponseTable
from irtjax.data.wording import listing

# A dense table of more cells than this would not fit into the memory of any machine
# known to us; more likely a wrong column was taken for a name.
_MAX_CELLS = 20_000_000_000


def assemble(records: Records, options: ReadOptions) -> ResponseTable:
    """Returns the dense table of one measure.

    Args:
        records: scored attempts.
        options: how to treat several metrics, repeats and missing values.

    Raises:
        ValueError: a choice is needed, everything is missing, or pairs repeat.
    """
    if len(records) == 0:
        raise ValueError(f"{records.source}: there are no responses in it")
    records, metric = choose(records, options)
    subject, item = records.subject.compact(), records.item.compact()
    shape = (len(subject.labels), len(item.labels))
    if shape[0] * shape[1] > _MAX_CELLS:
        raise ValueError(
            f"{records.source}: {shape[0]:,} subjects by {shape[1]:,} items is too"
            " large; name the right columns with subject= and item="
        )
    known = ~np.isnan(records.response)
    if not known.any():
        raise ValueError(f"{records.source}: every response is missing")
    cell = subject.codes.astype(np.int64) * shape[1] + item.codes
    if np.isinf(records.response).any():
        row = int(np.argmax(np.isinf(records.response)))
        raise ValueError(
            f"{records.source}: the response of {subject.text(row)!r} to"
            f" {item.text(row)!r} is infinite; scores must be finite"
        )
    if not known.all():
        seen = records.take(known)
        cell = cell[known]
    else:
        seen = records
    notes = list(records.notes)
    values, count, trials = _dense(seen, cell, shape, options, notes)
    lengths = None
    if seen.length is not None:
        lengths = _lengths(seen.length, cell, shape, options)
    observed = count > 0
    table = ResponseTable.from_arrays(
        values,
        subjects=subject.labels,
        items=item.labels,
        observed=None if observed.all() else observed,
        trials=trials,
        benchmark=_benchmark_of_item(records, item),
        metric=metric,
        lengths=lengths,
        notes=notes,
    )
    # What an item is made of can be a level of it, such as the rater of a rating.
    parts = {
        name: np.asarray([values[label] for label in item.labels.tolist()])
        for name, values in records.item_parts.items()
        if name != "benchmark" and values.keys() >= set(item.labels.tolist())
    }
    facets = {**parts, **table.item_facets}
    return dataclasses.replace(table, item_facets=facets)


def _dense(
    records: Records,
    cell: np.ndarray,
    shape: tuple[int, int],
    options: ReadOptions,
    notes: list[str],
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Puts the responses into a matrix; returns values, counts and trials."""
    size = shape[0] * shape[1]
    count = np.bincount(cell, minlength=size)
    repeated = int(np.count_nonzero(count > 1))
    response = records.response
    if repeated and options.trials == "error":
        raise ValueError(_repeat_message(records, cell, count, repeated))
    if options.trials == "counts":
        if not np.isin(response, (0.0, 1.0)).all():
            odd = response[~np.isin(response, (0.0, 1.0))][0]
            raise ValueError(
                f"{records.source}: trials='counts' needs responses of 0 and 1, but"
                f" there is {odd:g}; use trials='mean'"
            )
        notes.append(f"repeats were summed: up to {int(count.max())} trials per cell")
        total = np.bincount(cell, response, minlength=size)
        trials = count.astype(np.int32).reshape(shape)
        return total.reshape(shape), trials, trials
    if not repeated:
        values = np.zeros(size, _small_dtype(response))
        values[cell] = response
        return values.reshape(shape), count.reshape(shape), None
    if options.trials == "first":
        values = np.zeros(size, np.float64)
        order = np.arange(len(cell))
        if records.trial is not None:
            order = np.argsort(records.trial, kind="stable")
        # Written last to first, so that the first trial of a cell stays.
        values[cell[order][::-1]] = response[order][::-1]
    else:
        total = np.bincount(cell, response, minlength=size)
        values = np.divide(total, count, out=np.zeros(size), where=count > 0)
    what = "averaged" if options.trials == "mean" else "cut to the first"
    notes.append(f"{repeated} subject-item pairs had repeats, which were {what}")
    return values.reshape(shape), count.reshape(shape), None


def _small_dtype(response: np.ndarray) -> type:
    low, high = response.min(), response.max()
    if -128 <= low and high <= 127 and np.array_equal(response, np.rint(response)):
        return np.int8
    return np.float64


def _repeat_message(
    records: Records, cell: np.ndarray, count: np.ndarray, repeated: int
) -> str:
    row = int(np.argmax(count[cell] > 1))
    times = int(count[cell[row]])
    pair = f"({records.subject.text(row)!r}, {records.item.text(row)!r})"
    rows = cell == cell[row]
    more = f"; {repeated} pairs repeat" if repeated > 1 else ""
    found: list[int] = []
    if records.trial is not None and len(np.unique(records.trial[rows])) > 1:
        found = np.unique(records.trial[count[cell] > 1]).tolist()
    epochs = len(found) > 0
    what = "epochs or trials" if epochs else "responses"
    cure = "choose trials='mean', 'first' or 'counts'"
    if epochs:
        shown = listing([str(k) for k in found], 10)
        cure += f", or one of them with epoch= (epochs found: {shown})"
    else:
        cure += ", or name with item= all columns that together make an item"
    return f"{records.source}: {pair} has {times} {what}{more}: {cure}"


def _lengths(
    length: np.ndarray, cell: np.ndarray, shape: tuple[int, int], options: ReadOptions
) -> np.ndarray:
    size = shape[0] * shape[1]
    known = ~np.isnan(length)
    out = np.full(size, np.nan)
    if options.trials == "first":
        out[cell[known][::-1]] = length[known][::-1]
    else:
        count = np.bincount(cell[known], minlength=size)
        total = np.bincount(cell[known], length[known], minlength=size)
        np.divide(total, count, out=out, where=count > 0)
    return out.reshape(shape)


def _benchmark_of_item(records: Records, item: Coded) -> np.ndarray | None:
    if records.benchmark is None:
        return None
    labels = np.zeros(len(item.labels), np.int32)
    labels[item.codes] = records.benchmark.codes
    clash = labels[item.codes] != records.benchmark.codes
    if clash.any():
        row = int(np.argmax(clash))
        raise ValueError(
            f"{records.source}: item {item.text(row)!r} is in two benchmarks,"
            f" {str(records.benchmark.labels[labels[item.codes[row]]])!r} and"
            f" {records.benchmark.text(row)!r}: give items distinct names"
        )
    return records.benchmark.labels[labels]


def finish(
    table: ResponseTable, options: ReadOptions, sources: tuple[str, ...]
) -> ResponseTable:
    """Applies ``missing_as``, counts what is missing, and records the sources."""
    notes = list(table.notes)
    values, observed, trials = table.values, table.observed, table.trials
    if table.num_observed == 0:
        raise ValueError(f"{sources[0]}: every response is missing")
    if observed is not None:
        missing = values.size - table.num_observed
        share = f"{missing:,} of {values.size:,} cells ({missing / values.size:.2%})"
        if options.missing_as == "wrong":
            notes.append(f"{share} were missing and count as wrong")
            trials = None if trials is None else np.maximum(trials, 1)
            observed = None
        else:
            notes.append(f"{share} are missing")
    return dataclasses.replace(
        table,
        observed=observed,
        trials=trials,
        notes=tuple(dict.fromkeys(notes)),
        sources=sources,
    )
