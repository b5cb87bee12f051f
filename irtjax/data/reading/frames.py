"""From a table of columns to responses: long tables here, wide ones in `wide`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from irtjax.data.answers import coded_answers
from irtjax.data.arrays import as_labels
from irtjax.data.formats import irw
from irtjax.data.item_texts import ItemText
from irtjax.data.reading import cells, missing_codes, scoring, suggest
from irtjax.data.reading.columns import (
    JUDGED,
    TRIAL,
    UNNAMED,
    Columns,
    decide,
    find,
    plain_name,
)
from irtjax.data.reading.leave_out import rows_without, sound
from irtjax.data.reading.nested import with_paths
from irtjax.data.reading.options import ReadOptions, paths_in, unanswered_note
from irtjax.data.reading.records import (
    Coded,
    Records,
    as_texts,
    concatenate,
    join_coded,
)
from irtjax.data.reading.repeats import MOST_ROWS, numbers_of, repeated_rows, telling
from irtjax.data.reading.roles import is_sure
from irtjax.data.reading.suggest import Roles
from irtjax.data.reading.tabular import Frame
from irtjax.data.reading.wide import Piece, read_wide
from irtjax.data.wording import are, counted
from irtjax.numerics.memory import require_memory

#: Rows at a time, and pairs of names for which a table of all of them is small.
_BLOCK = 1 << 20
_FEW_PAIRS = 1 << 20
#: Empty cells of text and of numbers.
_NOTHING = "", "None", "nan"


def read_frame(frame: Frame, options: ReadOptions) -> Piece:
    """Reads a wide matrix as a `ResponseTable`, a long table as `Records`."""
    if frame.table.num_rows == 0:
        raise ValueError(f"{frame.source} has a header but no rows")
    paths = paths_in(options, frame.table.column_names)
    if paths:
        frame = with_paths(frame, paths)
    layout = _layout(frame, options)
    roles = _certain(frame, layout, options)
    if roles is not None:
        columns = {"subject": roles.subject, "item": roles.item}
        options = dataclasses.replace(options, response=roles.response, **columns)
        note = (
            f"columns {roles.subject!r}, {roles.item!r} and {roles.response!r} were"
            " read as subjects, items and responses (subject=, item= and response= name"
            " others)"
        )
        layout = dataclasses.replace(_layout(frame, options), notes=(note,))
    frame = _without_blank_rows(frame, layout)
    if layout.item:
        return _read_long(frame, layout, options)
    return read_wide(frame, layout, options)


def _layout(frame: Frame, options: ReadOptions) -> Columns:
    """The roles of the columns: those of the whole file, if these were read."""
    # Records and lists are no names and no numbers; one may report an error.
    may = lambda x: not pa.types.is_nested(x.type) or plain_name(x.name) == "error"
    flat = [field.name for field in frame.table.schema if may(field)]
    names = flat or frame.table.column_names
    if frame.take is not None:
        layout = decide(frame.names, frame.index, options, frame.source)
        if layout.item and {*(layout.used() or ())} <= {*names}:
            return layout
    return decide(names, frame.index, options, frame.source)


def _certain(frame: Frame, layout: Columns, options: ReadOptions) -> Roles | None:
    """The roles of columns of a long table that has no usual name of an item."""
    free = (options.subject, options.item, options.response, options.orientation)
    free = (*free, options.subject_name, options.key, options.right)
    if layout.item or layout.transposed is not None or frame.headerless:
        return None
    if any(value is not None for value in free):
        return None
    return suggest.certain(frame.table)


def _without_blank_rows(frame: Frame, layout: Columns) -> Frame:
    """The table without rows of empty cells, which spreadsheets write as commas."""
    table = frame.table
    if layout.subject is None or not cells.is_text(table.column(layout.subject).type):
        return frame
    subject = cells.to_labels(table.column(layout.subject), "", "", optional=True)
    blank = np.flatnonzero(subject.labels == "")
    rows = np.flatnonzero(np.isin(subject.codes, blank)) if len(blank) else blank
    for name in table.column_names:
        if len(rows):
            column = table.column(name).take(pa.array(rows)).to_pylist()
            rows = rows[[str(cell).strip() in _NOTHING for cell in column]]
    if len(rows) == 0 or len(rows) == table.num_rows:
        return frame
    stays = np.ones(table.num_rows, bool)
    stays[rows] = False
    # Messages count the rows that stay.
    inner = int(np.count_nonzero(rows < np.flatnonzero(stays)[-1]))
    source = frame.source
    if inner:
        source = f"{source} without {counted(inner, 'empty row')}"
    # Rows of texts that are read later are counted in the file.
    table = table.filter(pa.array(stays))
    return dataclasses.replace(frame, table=table, source=source, take=None)


def _read_long(frame: Frame, layout: Columns, options: ReadOptions) -> Records:
    """The records of a table with one response a row."""
    table, source = _sound(frame.table, layout, options), frame.source
    table = missing_codes.without_words(table, layout.responses, options)
    labels = functools.partial(_labels, table, source)
    subject = labels(layout.subject, optional=False)
    columns = [cells.to_labels(table.column(x), x, source) for x in layout.item]
    if options.subject_name is not None:
        subject = Coded.constant(options.subject_name, table.num_rows)
    if subject is None:
        raise ValueError(_without_subject(frame, layout))
    benchmark, metric = labels(layout.benchmark), labels(layout.metric)
    if benchmark is not None and plain_name(layout.benchmark or "") == irw.FAMILY:
        benchmark = irw.without_na(benchmark)
    bare = functools.reduce(_pair, columns)
    item = qualify(bare, benchmark, layout.inspect)
    item_parts = _item_parts(layout.item, columns, item)
    trial, trial_names = _trials(table, layout.trial, source, options.trial is not None)
    errors, notes = _errors(table, layout, options, source)
    if layout.time is not None:
        notes.append(irw.time_note(layout.time, source))
    notes += [*layout.notes, *_notes_on_responses(layout, options)]
    whole = Records(
        subject=subject,
        item=item,
        response=np.zeros(0),  # of each part below
        benchmark=benchmark,
        metric=metric,
        filter=labels(layout.filter),
        first_filter=plain_name(layout.filter or "") == "filter",
        trial=trial,
        length=_lengths(table, layout, source),
        notes=notes,
        source=source,
        item_parts=item_parts,
        conditions=_conditions(table, layout, source),
        roles=_roles(layout, source),
        item_texts=_texts(frame, layout, item) if options.texts else {},
        unsure_answers=_is_own(layout.answer) and len(subject.labels) == 1,
    )
    if options.texts:
        whole.answer = _predictions(frame, layout, item, len(subject.labels))
    if options.trials == "auto" and whole.subject is not None:
        whole, trial_names = _with_unknown(frame, layout, whole, trial_names)
    parts = [
        _counted(part, table, layout, options)
        for part in _parts(frame, table, layout, options, whole, bare, errors)
    ]
    records = concatenate(parts)
    if benchmark is not None and not layout.inspect:
        records.qualified = item is not bare
    records.trial_names = trial_names
    return records


def _labels(
    table: pa.Table, source: str, name: str | None, *, optional: bool = True
) -> Coded | None:
    """The names in a column, if there is one."""
    if name is None:
        return None
    return cells.to_labels(table.column(name), name, source, optional=optional)


def _conditions(table: pa.Table, layout: Columns, source: str) -> dict[str, Coded]:
    """Columns that may tell repeated pairs apart, by name."""
    return {
        name: cells.to_labels(table.column(name), name, source, optional=True)
        for name in layout.conditions
        if not pa.types.is_nested(table.column(name).type)
    }


def _lengths(table: pa.Table, layout: Columns, source: str) -> np.ndarray | None:
    """The response lengths, if a column has them."""
    return None if layout.length is None else _numbers(table, layout.length, source)


def _without_subject(frame: Frame, layout: Columns) -> str:
    """Refuses a long table without a column of subjects; names one that may be."""
    names = frame.names if frame.take is not None else frame.table.column_names
    used = layout.used() or []
    others = [x for x in names if x not in used and x not in (*UNNAMED,)]
    rows = np.arange(min(frame.table.num_rows, suggest.ROWS))
    may_be = ""
    with contextlib.suppress(pa.ArrowException, OSError, EOFError, zlib.error):
        item, *texts = frame.texts([layout.item[0], *others], rows)
        name = suggest.subject_of(dict(zip(others, texts, strict=True)), item)
        may_be = f"; it may be subject={name!r}" if name else ""
    return (
        f"{frame.source}: no column of subjects; name it with subject=, or give the one"
        f" subject's name with subject_name={may_be}"
    )


def _parts(
    frame: Frame,
    table: pa.Table,
    layout: Columns,
    options: ReadOptions,
    whole: Records,
    item: Coded,
    errors: np.ndarray,
) -> Iterator[Records]:
    """The records of each column of responses; `whole` has what they share."""
    several = len(layout.responses) > 1 or layout.inspect
    for name in layout.responses:
        response, column_notes = _scores(
            table, name, layout, item, options, whole.source
        )
        names = frame.names or table.column_names
        codes = missing_codes.of_column(response, names, options)
        column_notes += codes.notes
        gone = errors if codes.missing is None else errors | codes.missing
        if gone.any():
            response = np.where(gone, _missing(options), response)
        part = dataclasses.replace(whole, response=response, measure=name)
        if several or name == options.metric:
            label = name.removeprefix("score_")
            part.metric = Coded.constant(label, table.num_rows)
            part.metric_notes = {label: column_notes}
            column_notes = []
        part.notes = [*whole.notes, *column_notes]
        yield part


def _notes_on_responses(layout: Columns, options: ReadOptions) -> list[str]:
    """Names columns of responses whose names leave a doubt."""
    if options.response is not None:
        return []
    return [
        f"column {name!r} was read as the responses (response= names another)"
        for name in layout.responses
        if plain_name(name) in JUDGED
    ]


def _item_parts(
    names: tuple[str, ...], columns: list[Coded], item: Coded
) -> dict[str, dict[str, str]]:
    """What each of several columns of an item has for each item, by its name."""
    if len(columns) < 2:
        return {}
    rows = np.unique(item.codes, return_index=True)[1]
    items = item[rows].texts().tolist()
    return {
        name: dict(zip(items, column[rows].texts().tolist(), strict=True))
        for name, column in zip(names, columns, strict=True)
    }


def _roles(layout: Columns, source: str) -> dict[str, str]:
    """Names of the columns of subjects, items and repeats, for notes."""
    roles = {"subject": layout.subject, "trial": layout.trial}
    if len(layout.item) == 1:
        roles["item"] = layout.item[0]
    return {role: name for role, name in roles.items() if name is not None}


def _with_unknown(
    frame: Frame, layout: Columns, records: Records, trial_names: Any
) -> tuple[Records, Any]:
    """Records with a column of another name that tells repeated pairs apart, if any."""
    size = len(records.subject.codes)
    used = {*(layout.used() or ()), layout.prompt, layout.answer, layout.prediction}
    names = frame.table.column_names if frame.take is None else frame.names
    others = [name for name in names if name not in used]
    rows = repeated_rows(records) if others and size <= MOST_ROWS else np.zeros(0, int)
    if not len(rows):
        return records, trial_names
    pair = np.stack([records.subject.codes[rows], records.item.codes[rows]])
    pair = np.unique(pair, axis=1, return_inverse=True)[1].reshape(-1)
    try:
        columns_of_repeats = telling(others, frame.texts(others, rows), pair)
        name = next(columns_of_repeats, None)
        if name is None:
            return records, trial_names
        [texts] = frame.texts([name], np.arange(size))
    except (pa.ArrowException, OSError, EOFError, zlib.error):
        return records, trial_names
    labels, codes = np.unique(as_labels(texts), return_inverse=True)
    column = Coded(codes.reshape(-1).astype(np.int32), labels)
    if records.trial is None and numbers_of(labels.tolist()):
        roles = {**records.roles, "trial": name}
        trial = labels.astype(np.int64)[column.codes]
        return dataclasses.replace(records, trial=trial, roles=roles), None
    conditions = {**records.conditions, name: column}
    return dataclasses.replace(records, conditions=conditions), trial_names


def _sound(table: pa.Table, layout: Columns, options: ReadOptions) -> pa.Table:
    """The table in which cells of subjects to leave out need not be sound."""
    if options.leave_out is None or options.subject_name is not None:
        return table
    if layout.subject is None:
        return table
    rows = rows_without(table.column(layout.subject), options.leave_out)
    if rows is None:
        return table
    others = [layout.trials, layout.trial, layout.length]
    numbers = [*layout.responses, *(x for x in others if x is not None)]
    if layout.trial is not None and cells.is_text(table.column(layout.trial).type):
        numbers.remove(layout.trial)  # Its names are numbered.
    return sound(table, rows, numbers, layout.item, verdicts=True)


def _texts(frame: Frame, layout: Columns, item: Coded) -> dict[str, ItemText]:
    """Prompts and answers of items, from the first row of each."""
    prompt, answer = layout.prompt or "", layout.answer or ""
    columns = [name for name in (prompt, answer) if name]
    if not columns or len(item.codes) == 0:
        return {}
    rows, others = _first_rows(item)
    try:
        by_name = dict(zip(columns, frame.texts(columns, rows), strict=True))
        if _is_own(answer) and len(others):
            # What the subjects answered differs between them.
            expected = dict(zip(item.codes[rows], by_name[answer], strict=True))
            [again] = frame.texts([answer], others)
            pairs = zip(item.codes[others], again, strict=True)
            if any(expected[code] != text for code, text in pairs):
                del by_name[answer]
    except (pa.ArrowException, OSError, EOFError, zlib.error):
        return {}  # They are for people to read, and no reason to refuse responses.
    blank = [""] * len(rows)
    prompts, answers = by_name.get(prompt, blank), by_name.get(answer, blank)
    names = item[rows].texts().tolist()
    texts = map(ItemText, prompts, answers)
    return {x: text for x, text in zip(names, texts, strict=True) if any(text)}


def _predictions(
    frame: Frame, layout: Columns, item: Coded, subjects: int
) -> Coded | None:
    """What the subjects answered, by row; None where the table does not have it."""
    name, size = layout.prediction, len(item.codes)
    if name is None and layout.key is not None and len(layout.responses) == 1:
        name = layout.responses[0]  # Choices that are scored with the key.
        if not cells.is_text(frame.table.column(name).type):
            return None
    names = frame.table.column_names if frame.take is None else frame.names
    if name is None or not 0 < size <= MOST_ROWS or name not in names:
        return None
    try:
        [texts] = frame.texts([name], np.arange(size))
    except (pa.ArrowException, OSError, EOFError, zlib.error):
        return None
    codes, labels = coded_answers(texts)
    if len(codes) != size or len(labels) < 2:
        return None
    if name == layout.answer:
        # What is expected does not differ within an item.
        pairs = np.unique(item.codes.astype(np.int64) * len(labels) + codes)
        shared = len(pairs) == len(np.unique(item.codes))
        if shared and subjects > 1:
            return None
    return Coded(codes, as_texts(labels))


def _is_own(answer: str | None) -> bool:
    """Whether a column of answers may hold what the subjects answered."""
    return (answer or "").strip().lower() == "answer"


def _first_rows(item: Coded) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each item, and the next one of those that soon have another."""
    size, count = len(item.codes), len(item.labels)
    first = np.full(count, size)
    for start in reversed(range(0, size, _BLOCK)):
        # Written last to first, so that the first row stays.
        codes = item.codes[start : start + _BLOCK]
        first[codes[::-1]] = np.arange(start, start + len(codes))[::-1]
    rows = np.sort(first[first < size])
    # Not the last row: a file need not be read to its end to find the text of items.
    near = np.setdiff1d(np.arange(min(2 * (rows[-1] + 1), size, _BLOCK)), rows)
    place = np.unique(item.codes[near], return_index=True)[1]
    return rows, np.sort(near[place])


def _missing(options: ReadOptions) -> float:
    """A missing response; one that counts as wrong enters the means of repeats."""
    return 0.0 if options.missing_as == "wrong" else np.nan


def _numbers(
    table: pa.Table, name: str, source: str, *, verdicts: bool = False
) -> np.ndarray:
    """Returns a column as numbers, NaN where missing."""
    column = table.column(name)
    if column.type == pa.float64() and column.num_chunks == 1 and not column.null_count:
        values = column.chunk(0).to_numpy()  # As it is: this may be very large.
        if not np.isinf(values).any():
            return values
    out = np.empty(len(column), np.float64)
    if cells.is_number(column.type):
        start = 0
        for chunk in column.chunks:
            # In pieces, which take no memory of their own; NaN for nulls.
            part = chunk.to_numpy(zero_copy_only=False)
            out[start : start + len(part)] = part
            start += len(part)
        if not np.isinf(out).any():
            return out
    values, mask = cells.to_numbers(column, name, source, verdicts=verdicts)
    out[:] = values
    if mask is not None:
        out[~mask] = np.nan
    return out


def _scores(
    table: pa.Table,
    name: str,
    layout: Columns,
    item: Coded,
    options: ReadOptions,
    source: str,
) -> tuple[np.ndarray, list[str]]:
    """Returns the scores of a column, NaN where missing, and notes on them."""
    scored = None
    is_text = cells.is_text(table.column(name).type)
    if is_text or options.right is not None or options.key is not None:
        scored = scoring.score_column(table, name, layout, item, options, source)
    if scored is not None:
        response, notes = scored
        response[np.isnan(response)] = _missing(options)
        return response, notes
    response = _numbers(table, name, source, verdicts=True)
    no_answer = cells.unanswered(table.column(name))
    if not no_answer.any():
        return response, []
    response[no_answer] = _missing(options)
    coded = cells.to_labels(table.column(name), "", "", optional=True)
    words = coded[no_answer].compact().labels.tolist()
    note = unanswered_note(int(no_answer.sum()), options, words)
    return response, [f"{source}: column {name!r}: {note}"]


def _errors(
    table: pa.Table, layout: Columns, options: ReadOptions, source: str
) -> tuple[np.ndarray, list[str]]:
    """Rows whose call failed, and notes: their score, often 0, is no response."""
    rows, notes = np.zeros(table.num_rows, bool), []
    if layout.error is None:
        return rows, notes
    column = table.column(layout.error)
    if not cells.is_number(column.type):
        rows = cells.failed(column)
    # It may be a measure, such as an absolute error, or the opposite of a score.
    elif np.nan_to_num(column.to_numpy().astype(np.float64)).any():
        notes.append(
            f"{source}: column {layout.error!r} holds numbers and was not read as a"
            " sign of failed calls"
        )
    if rows.any():
        count = int(rows.sum())
        what = f"{are(count)} missing"
        if options.missing_as == "wrong":
            what = f"{'counts' if count == 1 else 'count'} as wrong"
        notes.append(
            f"{source}: {counted(count, 'response')} of rows with an error"
            f" (column {layout.error!r}) {what}"
        )
    return rows, notes


def _counted(
    records: Records, table: pa.Table, layout: Columns, options: ReadOptions
) -> Records:
    """Records with a row for each trial, where a row has the successes of several."""
    name = layout.trials
    if name is None:
        return records
    source, successes = records.source, records.response
    trials = np.nan_to_num(_numbers(table, name, source), nan=1.0)
    if (trials == 1).all():
        return records
    answered = ~np.isnan(successes)
    [response] = layout.responses
    if not (response == "response" or is_sure(response)):
        # The name may also be that of responses right or wrong.
        whole = successes[answered] == np.rint(successes[answered])
        within = (successes[answered] >= 0) & (successes[answered] <= trials[answered])
        if not (whole & within).all() or successes[answered].max(initial=0) <= 1:
            return records
    valid = (trials >= answered) & (trials == np.floor(trials))
    valid &= ~answered | ((successes == np.floor(successes)) & (successes >= 0))
    valid &= ~answered | (successes <= trials)
    if not valid.all():
        row = int(np.argmin(valid))
        raise ValueError(
            f"{source}: row {row + 1} has {successes[row]:g} successes in"
            f" {trials[row]:g} trials; correct it, or leave the column {name!r} out"
        )
    if options.trials not in ("auto", "counts", "mean"):
        raise ValueError(
            f"{source}: responses are numbers of successes (column {name!r}): choose"
            " trials='counts' or 'mean', or leave the column out"
        )
    require_memory(
        64.0 * trials.sum(),
        f"{source}: {trials.sum():,.0f} trials are too many",
        f"correct the column {name!r}",
    )
    size = np.maximum(trials, 1).astype(np.int64)
    rows = np.repeat(np.arange(len(size)), size)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(size) - size, size)
    out = records.take(rows)
    right = np.where(np.isnan(out.response), np.nan, number < out.response)
    notes = out.notes
    if response != "response":
        what = f"column {response!r} was read as numbers of right responses out of"
        notes = [*notes, f"{what} those in {name!r}"]
    roles = {k: v for k, v in out.roles.items() if k != "trial"} | {"counts": name}
    trial = number + 1
    return dataclasses.replace(
        out, response=right, trial=trial, roles=roles, notes=notes
    )


def _trials(
    table: pa.Table, name: str | None, source: str, is_given: bool
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Numbers of the repeats, and the names that are numbered in their order."""
    if name is None:
        return None, None
    column = table.column(name)
    if pa.types.is_nested(column.type):
        return None, None
    usual = is_given or find([name], TRIAL) is not None
    if cells.is_text(column.type) or not (usual or pa.types.is_integer(column.type)):
        coded = cells.to_labels(column, name, source, optional=True)
        order = np.argsort(coded.labels)
        return np.argsort(order)[coded.codes], coded.labels[order]
    values = cells.to_numbers(column, name, source)[0]
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    if not np.array_equal(whole, values):
        row = int(np.argmax(whole != values))
        raise ValueError(
            f"{source}: row {row + 1}, column {name!r} is {values[row]:g}, which is no"
            " whole number; name the column of trials with trial="
        )
    return whole, None


def agree(parts: Sequence[Records]) -> list[Records]:
    """Long tables of several files, named as if they were one table.

    Benchmarks are put before the items of all, where a name would clash in any of them
    or between two; and repeats that have names have one number for a name.
    """
    if len(parts) < 2:
        return list(parts)
    if any(part.qualified for part in parts) or _clash(parts):
        parts = [part if part.qualified is None else _qualified(part) for part in parts]
    named = [part.trial_names for part in parts if part.trial_names is not None]
    if named:
        union = np.unique(np.concatenate([names.astype(str) for names in named]))
        parts = [_renumbered(part, union) for part in parts]
    return list(parts)


def _clash(parts: Sequence[Records]) -> bool:
    """Whether an item has different benchmarks in two tables."""
    texts: dict[str, str] = {}
    for part in parts:
        if part.qualified is None or part.benchmark is None:
            continue
        rows = np.unique(part.item.codes, return_index=True)[1]
        names = part.item[rows].texts().tolist()
        for name, benchmark in zip(names, part.benchmark[rows].texts(), strict=True):
            if texts.setdefault(name, benchmark) != benchmark:
                return True
    return False


def _qualified(records: Records) -> Records:
    """Records with the benchmark before every item, in texts and parts of items too."""
    item = qualify(records.item, records.benchmark, True)
    rows = np.unique(records.item.codes, return_index=True)[1]
    names = records.item[rows].texts().tolist()
    new = dict(zip(names, item[rows].texts().tolist(), strict=True))
    renamed = lambda values: {new[x]: value for x, value in values.items() if x in new}
    return dataclasses.replace(
        records,
        item=item,
        qualified=True,
        item_texts=renamed(records.item_texts),
        item_parts={k: renamed(values) for k, values in records.item_parts.items()},
    )


def _renumbered(records: Records, names: np.ndarray) -> Records:
    """Records whose repeats have the numbers of their names in a longer list."""
    if records.trial_names is None or records.trial is None:
        return records
    place = np.searchsorted(names, records.trial_names.astype(str))
    return dataclasses.replace(records, trial=place[records.trial], trial_names=names)


def qualify(item: Coded, benchmark: Coded | None, always: bool) -> Coded:
    """Puts the benchmark before item names that would clash between benchmarks."""
    if benchmark is None:
        return item
    # The benchmark of each item, if it has only one: assignment keeps the last.
    of_item = np.zeros(len(item.labels), np.int32)
    of_item[item.codes] = benchmark.codes
    if not always and np.array_equal(of_item[item.codes], benchmark.codes):
        return item
    return _pair(benchmark, item, repeat=False)


def _pair(first: Coded, second: Coded, repeat: bool = True) -> Coded:
    """Joins names as first/second; ``repeat``: also those that start with the first."""
    start, codes = _distinct_pairs(first, second)
    names = []
    for row in start.tolist():
        prefix, name = first.text(row), second.text(row)
        done = not prefix or (not repeat and name.startswith(f"{prefix}/"))
        names.append(name if done else f"{prefix}/{name}")
    # Two pairs may have one name.
    return join_coded([Coded(codes, as_labels(names))])


def _distinct_pairs(first: Coded, second: Coded) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each pair of names, in order of appearance; codes of pairs."""
    width, size = len(first.labels), len(first.codes)
    num_pairs = width * len(second.labels)
    if num_pairs > max(size, _FEW_PAIRS):
        pair = second.codes.astype(np.int64) * width + first.codes
        _, start, inverse = np.unique(pair, return_index=True, return_inverse=True)
        order = np.argsort(start)
        return start[order], np.argsort(order)[inverse].astype(np.int32)
    blocks = [slice(k, k + _BLOCK) for k in range(0, size, _BLOCK)]
    pairs = lambda rows: second.codes[rows].astype(np.int64) * width + first.codes[rows]
    # Written last to first, so that the first row of a pair stays.
    start = np.full(num_pairs, size)
    for rows in reversed(blocks):
        places = np.arange(rows.start, min(rows.stop, size))
        start[pairs(rows)[::-1]] = places[::-1]
    repeats = np.flatnonzero(start < size)
    repeats = repeats[np.argsort(start[repeats])]
    code_of = np.zeros(num_pairs, np.int32)
    code_of[repeats] = np.arange(len(repeats))
    codes = np.empty(size, np.int32)
    for rows in blocks:
        codes[rows] = code_of[pairs(rows)]
    return start[repeats], codes
