"""From records to a table: repeats, missing cells, and the matrix or its cells."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from irtjax.data.answers import Answers
from irtjax.data.arrays import compact
from irtjax.data.item_texts import chosen
from irtjax.data.reading import missing_codes
from irtjax.data.reading.choose import choose
from irtjax.data.reading.directions import ScoreDirections, of_records
from irtjax.data.reading.finish import infer_benchmarks
from irtjax.data.reading.options import ReadOptions, Trials
from irtjax.data.reading.records import Coded, Records
from irtjax.data.reading.repeats import are_repeats, separated, shown_trials
from irtjax.data.reading.run_errors import run_errors
from irtjax.data.reversal import metric_of
from irtjax.data.sparse_table import SparseCells, is_sparse
from irtjax.data.table import ResponseTable
from irtjax.data.wording import counted, listing, were
from irtjax.numerics.memory import available_memory, require_memory

# Of the dense table while it is made: counts, values, and what is known; and of each
# response of a sparse one, whose cells are sorted.
_BYTES_A_CELL, _BYTES_A_RESPONSE = 24, 48
#: Responses of a subject and of an item below which the columns are the wrong ones.
_FEWEST_EACH = 1.5


def assemble(
    records: Records, options: ReadOptions, directions: ScoreDirections
) -> ResponseTable:
    """Returns the table of one measure: dense, or of observed cells where few are."""
    if len(records) == 0:
        raise ValueError(f"{records.source}: there are no responses in it")
    records, metric = choose(records, options)
    records = missing_codes.of_records(records, options)
    if options.trials == "auto":
        records = separated(records)
    records, formulas = of_records(records, directions)
    subject, item = records.subject.compact(), records.item.compact()
    shape = (len(subject.labels), len(item.labels))
    few = _is_few(records, shape, options)
    if few and options.trials == "auto":
        options = dataclasses.replace(options, trials="mean")  # Without trials.
    require_memory(
        float(_BYTES_A_RESPONSE) * len(records)
        if few
        else float(_BYTES_A_CELL) * shape[0] * shape[1],
        f"{records.source}: {shape[0]:,} subjects by {shape[1]:,} items is too large",
        "name the right columns with subject= and item=",
    )
    records, is_response = _responses(records, subject, item, options)
    cell = subject.codes.astype(np.int64)
    cell *= shape[1]
    cell += item.codes
    seen = records
    if not is_response.all():
        cell, seen = cell[is_response], records.take(is_response)
    del is_response
    names = item.labels.tolist()
    make = _sparse_table if few else _dense_table
    table = make(
        seen,
        cell,
        shape,
        options,
        subjects=subject.labels,
        items=item.labels,
        benchmark=_benchmark_of_item(records, item),
        metric=_named(metric, formulas),
    )
    answers = None
    if seen.answer is not None and options.texts:
        answers = _answers(seen, cell, shape, options, names)
    return table.replace(
        item_facets={**_levels(records, names), **table.item_facets},
        item_texts=chosen(records.item_texts, names),
        item_ids=chosen(records.item_ids, names),
        # Names that the caller trusts are not compared with others by content.
        item_contents={}
        if options.join == "id"
        else chosen(records.item_contents, names),
        reversed_scores=formulas,
        answers=answers,
    )


def _sparse_table(
    records: Records,
    cell: np.ndarray,
    shape: tuple[int, int],
    options: ReadOptions,
    **about: Any,
) -> ResponseTable:
    """The table of observed cells; `cell` is the cell of each response."""
    place, number = _distinct(cell)
    values, _, _, notes = _one_value(records, number, len(place), options)
    cells = SparseCells.of_places(place, values, shape)
    return ResponseTable.from_cells(cells, notes=[*records.notes, *notes], **about)


def _dense_table(
    records: Records,
    cell: np.ndarray,
    shape: tuple[int, int],
    options: ReadOptions,
    **about: Any,
) -> ResponseTable:
    """The table of all cells, with response lengths if there are any."""
    values, count, trials, notes = _one_value(
        records, cell, shape[0] * shape[1], options
    )
    if records.length is not None:
        lengths = _one_per_cell(
            records.length, records, cell, count.size, options.trials
        )
        about["lengths"] = lengths.reshape(shape)
    table = ResponseTable.from_arrays(
        values.reshape(shape),
        observed=count.reshape(shape) > 0,
        trials=None if trials is None else trials.reshape(shape),
        notes=[*records.notes, *notes],
        **about,
    )
    run = _runs_of(records)
    if run is None or options.trials == "first" or not np.any(count > 1):
        return table
    labels = table.item_facets.get("benchmark")
    if labels is None and not records.item_parts:
        labels = infer_benchmarks(table.items)
    runs = run_errors(cell, run, records.response, shape, labels)
    return table.replace(runs=runs)


def _runs_of(records: Records) -> np.ndarray | None:
    """The run of each response: its trial, or its file where files are runs.

    Trials that were made from numbers right begin with the right ones.
    """
    if "counts" in records.roles:
        return None
    if records.trial is not None:
        return records.trial
    file = None if records.file is None else records.file.compact()
    if file is None or not are_repeats(file.labels.tolist()):
        return None
    return file.codes


def _levels(records: Records, items: list[str]) -> dict[str, np.ndarray]:
    """What an item is made of can be a level of it, such as the rater of a rating."""
    return {
        column: np.asarray([values[name] for name in items])
        for column, values in records.item_parts.items()
        if column != "benchmark" and values.keys() >= set(items)
    }


def _answers(
    records: Records,
    cell: np.ndarray,
    shape: tuple[int, int],
    options: ReadOptions,
    items: list[str],
) -> Answers | None:
    """The answers of the attempts that the responses are of."""
    assert records.answer is not None
    rows: Any = slice(None)
    if options.trials == "first":
        order = np.arange(len(cell))
        if records.trial is not None:
            order = np.argsort(records.trial, kind="stable")
        rows = order[np.unique(cell[order], return_index=True)[1]]
    counts = [records.item_options.get(name, 0) for name in items]
    return Answers.of(
        cell[rows] // shape[1],
        cell[rows] % shape[1],
        records.answer.codes[rows],
        records.response[rows] <= 0,
        records.answer.labels.tolist(),
        shape,
        np.asarray(counts, np.int16),
    )


def _named(metric: str | None, formulas: dict[str, str]) -> str | None:
    """The metric of a table, as the formula of its scores where they were reversed."""
    metrics = {metric_of(text): text for text in formulas.values()}
    if metric is None:
        return " / ".join(sorted(metrics.values())) or None
    names = metric.split(" / ")
    return " / ".join(metrics.get(x, metrics.get(x.split(",")[0], x)) for x in names)


def _responses(
    records: Records, subject: Coded, item: Coded, options: ReadOptions
) -> tuple[Records, np.ndarray]:
    """Records with missing responses as the options say, and a mask of the others."""
    source = records.source
    observed = ~np.isnan(records.response)
    if not observed.any():
        raise ValueError(f"{source}: every response is missing")
    if options.missing_as == "wrong" and not observed.all():
        # Here, not in the finished table: a failed repeat enters the mean of its cell.
        count = np.count_nonzero(~observed)
        records = dataclasses.replace(
            records,
            response=np.where(observed, records.response, 0.0),
            notes=[
                *records.notes,
                f"{counted(count, 'missing response')}"
                f" {'counts' if count == 1 else 'count'} as"
                " wrong",
            ],
        )
        observed[:] = True
    if np.isinf(records.response).any():
        row = int(np.argmax(np.isinf(records.response)))
        raise ValueError(
            f"{source}: the response of {subject.text(row)!r:.80} to"
            f" {item.text(row)!r:.80} is infinite; scores must be finite"
        )
    return records, observed


def _is_few(records: Records, shape: tuple[int, int], options: ReadOptions) -> bool:
    """Whether the table will have observed cells alone.

    Trials and lengths are matrices, and where missing responses are wrong none is
    missing.
    """
    if records.length is not None or options.trials == "counts":
        return False
    fits = float(_BYTES_A_CELL) * shape[0] * shape[1] < available_memory()
    if fits and options.trials == "auto" and _repeats(records):
        return False
    enough = len(records) > _FEWEST_EACH * min(shape)
    return (
        enough and options.missing_as == "missing" and is_sparse(len(records), *shape)
    )


def _repeats(records: Records) -> bool:
    """Whether a pair of a subject and an item has several responses."""
    subject, item = records.subject.codes, records.item.codes
    pair = subject.astype(np.int64) * len(records.item.labels) + item
    pair = pair[~np.isnan(records.response)]
    return not np.all(pair[1:] > pair[:-1]) and len(np.unique(pair)) < len(pair)


def _distinct(cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cells with a response in ascending order, and the number of each row's."""
    if np.all(cell[1:] > cell[:-1]):  # As most files are written.
        return cell, np.arange(len(cell))
    return np.unique(cell, return_inverse=True)


def _one_value(
    records: Records, cell: np.ndarray, size: int, options: ReadOptions
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, list[str]]:
    """Values, counts and trials of each of `size` cells, and notes."""
    count = np.zeros(size, bool)
    count[cell] = True
    # Counts of whole numbers would take eight times the memory.
    if np.count_nonzero(count) < len(cell):
        count = np.bincount(cell, minlength=size)
    repeated = int(np.count_nonzero(count > 1))
    response = records.response
    how, trials, notes = options.trials, None, []
    if how == "auto" and repeated:
        how = "mean" if _scored(records)[0].all() else "counts"
        if _clash(records, cell, int(np.count_nonzero(count))):
            how = "error"
    if repeated and how == "error":
        raise ValueError(_repeat_message(records, cell, count, repeated))
    if how == "counts":
        values, count, notes = _counts(records, cell, count)
        trials = count = count.astype(np.int32)
    elif not repeated:
        response = compact(response)
        values = np.zeros(size, response.dtype)
        values[cell] = response
    else:
        values = _one_per_cell(response, records, cell, size, how)
    if how == "counts" and options.trials == "counts":
        notes = [
            f"repeats were summed: up to {counted(int(count.max()), 'trial')} per cell",
            *notes,
        ]
    elif repeated and "counts" not in records.roles:
        notes = [_repeats_note(records, cell, count, how, options), *notes]
    return values, count, trials, notes


def _clash(records: Records, cell: np.ndarray, num_cells: int) -> bool:
    """Whether tables of several files share pairs and may be of other benchmarks.

    Logs name their benchmarks.
    """
    if records.file is None or "subject" not in records.roles:
        return False
    file = records.file.compact()
    pair = cell.astype(np.int64) * len(file.labels) + file.codes
    return len(np.unique(pair)) > num_cells and not are_repeats(file.labels.tolist())


def _counts(
    records: Records, cell: np.ndarray, count: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Numbers of right responses and of responses of each cell, and notes."""
    scored, of_scores = _scored(records)
    if scored.all() and len(scored):
        odd = records.response[~np.isin(records.response, (0.0, 1.0))][0]
        raise ValueError(
            f"{records.source}: trials='counts' needs responses of 0 and 1, but there"
            f" is {odd:g}; use trials='mean'"
        )
    values = np.bincount(cell, records.response, minlength=len(count))
    if not len(of_scores):
        return values, count, []
    # The mean of scores is one score.
    mine = np.unique(cell[scored])
    count = count.astype(np.int64)
    values[mine] /= count[mine]
    count[mine] = 1
    shown = listing(of_scores)
    note = f"scores of benchmarks {shown} are no counts: they were averaged"
    return values, count, [note]


def _repeats_note(
    records: Records,
    cell: np.ndarray,
    count: np.ndarray,
    how: Trials,
    options: ReadOptions,
) -> str:
    """What became of repeats, and what tells them apart."""
    repeated = np.count_nonzero(count > 1)
    were_read = {
        "mean": f"which {were(repeated)} averaged",
        "first": f"which {were(repeated)} cut to the first",
        "counts": f"read as numbers right of up to {counted(count.max(), 'trial')}",
    }[how]
    by = shown_trials(records)
    if not by and records.file is not None:
        row = int(np.argmax(count[cell] > 1))
        files = records.file[cell == cell[row]].compact().labels.tolist()
        by = f" in files such as {' and '.join(files[:2])}" * (len(files) > 1)
    cure = " (trials= chooses otherwise)" * (options.trials == "auto")
    return (
        f"{counted(repeated, 'subject-item pair')} had repeats{by}, {were_read}{cure}"
    )


def _scored(records: Records) -> tuple[np.ndarray, list[str]]:
    """Rows of benchmarks with scores other than 0 and 1, and the benchmarks."""
    response, benchmark = records.response, records.benchmark
    odd = ~np.isin(response, (0.0, 1.0))
    if not odd.any():
        return odd, []
    labels = Coded.constant("", len(records)) if benchmark is None else benchmark
    codes = np.unique(labels.codes[odd])
    scored = np.isin(labels.codes, codes)
    return scored, labels.labels[codes].tolist()


def _one_per_cell(
    values: np.ndarray, records: Records, cell: np.ndarray, size: int, how: Trials
) -> np.ndarray:
    """The first or the mean of the values in each cell; NaN where there are none."""
    out = np.full(size, np.nan)
    if how == "first":
        # The same trial for responses and lengths, whether or not it has a length.
        if records.trial is not None:
            order = np.argsort(records.trial, kind="stable")
            values, cell = values[order], cell[order]
        # Written last to first, so that the first trial of a cell stays.
        out[cell[::-1]] = values[::-1]
        return out
    finite = ~np.isnan(values)
    values, cell = values[finite], cell[finite]
    count = np.bincount(cell, minlength=size)
    total = np.bincount(cell, values, minlength=size)
    return np.divide(total, count, out=out, where=count > 0)


def _repeat_message(
    records: Records, cell: np.ndarray, count: np.ndarray, repeated: int
) -> str:
    """The refusal of repeated responses: the first pair, and what to do."""
    row = int(np.argmax(count[cell] > 1))
    pair = f"({records.subject.text(row)!r:.80}, {records.item.text(row)!r:.80})"
    others = f"; {counted(repeated, 'pair')} repeat" if repeated > 1 else ""
    what = "responses"
    cure = "name with item= all columns that together make an item"
    trial = records.trial
    if trial is not None and len(np.unique(trial[cell == cell[row]])) > 1:
        what = "epochs or trials"
        trials = np.unique(trial[count[cell] > 1]).tolist()
        shown = listing([str(k) for k in trials], 10)
        cure = f"one of them with epoch= (epochs found: {shown})"
    where = ""
    if records.file is not None:
        files = records.file[cell == cell[row]].compact().labels.tolist()
        if len(files) > 1:
            # Whole, since paths often differ at their end.
            where = f", in {', '.join(' '.join(x.split()) for x in files[:2])}"
            where += f" and {len(files) - 2} more" * (len(files) > 2)
            cure = "if these are of two models or benchmarks, give these distinct names"
    return (
        f"{records.source}: {pair} has {count[cell[row]]} {what}{where}{others}: choose"
        f" trials='mean', 'first' or 'counts', or {cure}"
    )


def _benchmark_of_item(records: Records, item: Coded) -> np.ndarray | None:
    """`[items]` benchmarks; refuses an item that is in two."""
    if records.benchmark is None:
        return None
    labels = np.zeros(len(item.labels), np.int32)
    labels[item.codes] = records.benchmark.codes
    clash = labels[item.codes] != records.benchmark.codes
    if clash.any():
        row = int(np.argmax(clash))
        raise ValueError(
            f"{records.source}: item {item.text(row)!r:.80} is in two benchmarks,"
            f" {str(records.benchmark.labels[labels[item.codes[row]]])!r:.80} and"
            f" {records.benchmark.text(row)!r:.80}: give items distinct names"
        )
    return records.benchmark.labels[labels]
