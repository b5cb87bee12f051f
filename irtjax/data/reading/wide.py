"""Wide tables: a matrix of responses with a row per subject or per item."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from irtjax.data.answers import Answers, coded_answers
from irtjax.data.arrays import as_labels, check_unique, compact, names_of
from irtjax.data.reading import missing_codes, suggest
from irtjax.data.reading.cells import (
    CORRECT,
    asks_for_right,
    cure_of,
    in_per_cent,
    is_number,
    is_text,
    is_verdict,
    is_wordy,
    to_labels,
    to_numbers,
)
from irtjax.data.reading.columns import (
    ITEM,
    OUTCOME,
    SUBJECT,
    SUBJECT_FACETS,
    UNNAMED,
    Columns,
    NoResponsesError,
    find,
    one_number_message,
    parameter_columns,
    parameter_message,
    plain_name,
)
from irtjax.data.reading.covariates import covariates
from irtjax.data.reading.leave_out import columns_without, rows_without, sound
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import Coded, Records
from irtjax.data.reading.repeats import UNSURE
from irtjax.data.reading.roles import describing
from irtjax.data.reading.scoring import score_matrix
from irtjax.data.reading.tabular import Frame
from irtjax.data.reading.totals import totals_of
from irtjax.data.table import ResponseTable
from irtjax.data.wording import NOUNS, counted, listing, noun_of, were
from irtjax.numerics.memory import available_memory

Piece: TypeAlias = ResponseTable | Records
#: Names of columns without one, also as `pandas` and `tabular` number them.
_NAMELESS = re.compile(r"(\.\d+|Unnamed: \d+)?")
#: Names of the indices that `pandas` wrote.
_INDEX = re.compile(r"Unnamed: \d+(\.\d+)*")
#: Rows with one label of a column without a usual name, from which it describes them.
_MANY = 8
#: Distinct words of a matrix that may be responses.
_FEW_WORDS = 6
_KEYS = {*SUBJECT, *ITEM} - {"id"}


@dataclasses.dataclass
class _Matrix:
    """Responses as they are in a file.

    Attributes:
        values: `[rows, columns]`, 0 where missing.
        observed: The mask of the values, or None.
        rows: Names of the rows, or None.
        names: Names of the columns.
        side: Texts that describe the rows, by column.
    """

    values: np.ndarray
    observed: np.ndarray | None
    rows: np.ndarray | None
    names: list[str]
    side: dict[str, np.ndarray]

    def leave_totals_out(self) -> list[str]:
        """Keeps the rows and columns that are no totals; returns notes on the others.

        Arrays are copied only where there are totals: a matrix may be large.
        """
        totals = totals_of(self.rows, self.names, self.values, self.observed)
        if totals.columns.any():
            stay = ~totals.columns
            self.names = [self.names[k] for k in np.flatnonzero(stay)]
            self.values = self.values[:, stay]
            self.observed = None if self.observed is None else self.observed[:, stay]
        if totals.rows.any():
            stay = ~totals.rows
            self.rows = None if self.rows is None else self.rows[stay]
            self.values = self.values[stay]
            self.observed = None if self.observed is None else self.observed[stay]
            self.side = {name: texts[stay] for name, texts in self.side.items()}
        return totals.notes


def read_wide(frame: Frame, layout: Columns, options: ReadOptions) -> Piece:
    """Reads a matrix of responses as a table, or as `Records` if subjects repeat."""
    whole, source = frame, frame.source
    layout, kinds = _without_kinds(frame, layout, options)
    frame, scored = score_matrix(frame, layout, options)
    subject = _column_of_rows(frame, layout, options)
    names, side, notes = _columns(frame, subject, kinds, layout, scored)
    table = missing_codes.without_words(frame.table, names, options)
    _refuse_unknown(table, names, subject, layout, source)
    table = _sound(table, names, subject, layout, options)
    values, observed = _responses(table, names, source)
    rows = None
    if subject is not None:
        rows = to_labels(table.column(subject), subject, source).texts()
    if "freq" in names:
        return _expand(names, values, source)
    matrix = _Matrix(values, observed, rows, names, side)
    if not frame.headerless:
        notes += matrix.leave_totals_out()
    values, observed, of_codes = missing_codes.of_matrix(
        matrix.values, matrix.observed, options, source
    )
    notes += of_codes
    rows, names, side = matrix.rows, matrix.names, matrix.side
    columns = None if layout.transposed and frame.headerless else as_labels(names)
    if layout.transposed:
        values, rows, columns = values.T, columns, rows
        observed = None if observed is None else observed.T
        notes.append("rows were read as items and columns as subjects")
    elif rows is None and values.shape[0] > 3 * values.shape[1]:
        notes.append(_tall_note(*values.shape))
    whole.unnamed = rows is None and options.subject_name is None
    if options.subject_name is not None:
        rows = as_labels([options.subject_name] * len(values))
    if rows is not None and len(set(rows.tolist())) < len(rows):
        # The options determine what becomes of the repeats.
        items = names_of("item", columns, values.shape[1])
        conditions = {} if layout.transposed else side
        seen = True if observed is None else observed
        scores = np.where(seen, values, np.nan)
        return _records_of_rows(scores, rows, items, conditions, notes, source)
    try:
        read = ResponseTable.from_arrays(
            values, subjects=rows, items=columns, observed=observed, notes=notes
        )
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    return dataclasses.replace(
        read,
        metric=options.metric if isinstance(options.metric, str) else None,
        nouns=(noun_of(None if layout.transposed else subject), NOUNS[1]),
        answers=_answers(frame, names, read, layout) if options.texts else None,
        **{"item_facets" if layout.transposed else "subject_facets": side},
    )


def _columns(
    frame: Frame,
    subject: str | None,
    kinds: list[str],
    layout: Columns,
    scored: list[str],
) -> tuple[list[str], dict[str, np.ndarray], list[str]]:
    """Columns of responses; those that describe the rows, with their texts; notes.

    Args:
        frame: The matrix, with scores.
        subject: The column that names the rows.
        kinds: Columns of kinds of rows.
        layout: Which way the matrix lies.
        scored: Notes on the scores.

    Raises:
        ValueError: The table is long, or has no columns of responses.
    """
    table, source = frame.table, frame.source
    names = [name for name in table.column_names if name != subject]
    names, notes = _without_numbers(frame, names, subject)
    if layout.transposed is None and suggest.is_long(table):
        raise _unknown(ValueError, table, source)
    side, names, of_rows = _sides(table, names, kinds, layout, source)
    if not names:
        cure = ""
        if table.num_columns == 1:
            cure = (
                "; columns are separated by commas, tabs or semicolons: write one"
                " between all responses, also of a string such as 1101"
            )
        raise NoResponsesError(
            f"{source}: there are no columns of responses in it{cure}"
        )
    return names, side, [*notes, *scored, *of_rows]


def _responses(
    table: pa.Table, names: list[str], source: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """`[rows, columns]` responses and their mask; refuses parameters of a model."""
    try:
        values, observed = _matrix(table, names, source)
    except ValueError as error:
        wordy = any(is_wordy(table.column(name)) for name in names)
        raise ValueError(f"{error}{suggest.hint_of(table) * wordy}") from None
    parameters = parameter_columns(names)
    if parameters and values.dtype != np.int8:
        if 2 * len(parameters) >= len(names) or len(names) < 12:
            raise NoResponsesError(parameter_message(table.column_names, source))
    return values, observed


def _tall_note(num_rows: int, num_columns: int) -> str:
    """The note on a matrix without names of rows, which may hold items as rows."""
    return (
        f"the {counted(num_rows, 'row')} {were(num_rows)} read as subjects and the"
        f" {counted(num_columns, 'column')} as items; if it is the other way round,"
        " pass orientation='items_by_subjects'"
    )


def _answers(
    frame: Frame, names: Sequence[str], read: ResponseTable, layout: Columns
) -> Answers | None:
    """The choices of a matrix that was scored with a key."""
    choices = [(frame.choices or {}).get(name, []) for name in names]
    height = read.num_items if layout.transposed else read.num_subjects
    if any(len(column) != height for column in choices):
        return None  # Rows of totals were left out, say.
    codes, texts = coded_answers(text for column in choices for text in column)
    codes = codes.reshape(len(choices), height)
    codes = codes if layout.transposed else codes.T
    seen = np.ones(codes.shape, bool) if read.observed is None else read.observed
    subject, item = np.nonzero(seen)
    wrong = read.values[seen] <= 0
    return Answers.of(subject, item, codes[seen], wrong, texts, codes.shape)


def _records_of_rows(
    scores: np.ndarray,
    rows: np.ndarray,
    items: np.ndarray,
    conditions: dict[str, np.ndarray],
    notes: list[str],
    source: str,
) -> Records:
    """Records of a matrix in which names of rows repeat.

    Args:
        scores: Scores, NaN where missing, `[rows, items]`.
        rows: Names of rows.
        items: Names of items.
        conditions: Columns of text that may tell repeats apart, by name.
        notes: Notes on the table.
        source: Where the matrix is from.
    """
    try:
        check_unique("item", items)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None

    def coded(texts: np.ndarray) -> Coded:
        labels, codes = np.unique(texts, return_inverse=True)
        return Coded(np.repeat(codes.astype(np.int32), len(items)), labels)

    return Records(
        subject=coded(rows),
        item=Coded(np.tile(np.arange(len(items), dtype=np.int32), len(rows)), items),
        response=scores.ravel(),
        conditions={name: coded(texts) for name, texts in conditions.items()},
        notes=notes,
        source=source,
    )


def _sides(
    table: pa.Table,
    names: list[str],
    kinds: list[str],
    layout: Columns,
    source: str,
) -> tuple[dict[str, np.ndarray], list[str], list[str]]:
    """Columns that describe rows, the names of the others, and notes."""
    side = _facets(table, names, layout, source)
    for name in kinds:
        side[name] = to_labels(table.column(name), name, source, optional=True).texts()
    names = [name for name in names if name not in side]
    what = "items" if layout.transposed else "subjects"
    texts, notes = covariates(table, names, what, source)
    side |= {name: column for name, column in texts.items() if column is not None}
    return side, [name for name in names if name not in texts], notes


def _column_of_rows(frame: Frame, layout: Columns, options: ReadOptions) -> str | None:
    """The column that names the rows; it may be "", the header of a pandas index."""
    name = layout.subject
    if name is not None and options.subject is None and _describes_rows(frame, name):
        name = None
    return _column_of_names(frame) if name is None else name


def _without_kinds(
    frame: Frame, layout: Columns, options: ReadOptions
) -> tuple[Columns, list[str]]:
    """The layout without a column of sources that repeat: kinds of rows, not names."""
    name = layout.subject
    if name is None or options.subject is not None or plain_name(name) != "source":
        return layout, []
    column = frame.table.column(name)
    if len(column.unique()) == len(column):
        return layout, []
    return dataclasses.replace(layout, subject=None), [name]


def _without_numbers(
    frame: Frame, names: list[str], subject: str | None
) -> tuple[list[str], list[str]]:
    """Columns without one that numbers the rows, and empty ones without a name; notes.

    The first is an index that pandas wrote next to a column of names, the others are of
    commas at the ends of lines.
    """
    table = frame.table
    left = [
        name
        for name in names
        if not _NAMELESS.fullmatch(name)
        or table.column(name).null_count < table.num_rows
    ]
    if subject is None:
        return left, []
    # Pandas writes one more each time that it reads a table and writes it.
    may = lambda name: name.strip() in UNNAMED or _INDEX.fullmatch(name.strip())
    gone = [name for name in left if may(name) and _counts_rows(table.column(name))]
    notes = [f"column {name!r} numbers the rows and was left out" for name in gone]
    return [name for name in left if name not in gone], notes


def _counts_rows(column: pa.ChunkedArray) -> bool:
    """Whether a column holds the numbers from 0 or from 1."""
    if not pa.types.is_integer(column.type) or column.null_count:
        return False
    numbers, size = column.to_numpy(), len(column)
    ranges = (np.arange(size), np.arange(1, size + 1))
    return any(np.array_equal(numbers, r) for r in ranges)


def _sound(
    table: pa.Table,
    names: list[str],
    subject: str | None,
    layout: Columns,
    options: ReadOptions,
) -> pa.Table:
    """The matrix in which cells of subjects to leave out need not be sound."""
    if options.leave_out is None or options.subject_name is not None:
        return table
    if layout.transposed:
        gone = columns_without(names, options.leave_out)
        return sound(table, np.ones(table.num_rows, bool), gone)
    if subject is None:
        return table
    rows = rows_without(table.column(subject), options.leave_out)
    return table if rows is None else sound(table, rows, names)


def _describes_rows(frame: Frame, name: str) -> bool:
    """Whether a column such as "source" has the same few values in many rows."""
    column = frame.table.column(name)
    if plain_name(name) not in UNSURE or pa.types.is_nested(column.type):
        return False
    return _MANY * len(column.unique()) < frame.table.num_rows


def _column_of_names(frame: Frame) -> str | None:
    """The first column, if it alone holds words, or counts many rows."""
    table = frame.table
    first, *rest = table.column_names
    column = table.column(first)
    if pa.types.is_integer(column.type) and not frame.headerless:
        # Beyond any usual score.
        return first if table.num_rows > 10 and _counts_rows(column) else None
    if not is_text(column.type) or not is_wordy(column):
        return None
    # Genders and countries are no names of the rows.
    labels = column.combine_chunks().unique()
    if describing(table.column_names[:1]) or _MANY * len(labels) < table.num_rows:
        return None
    return None if any(is_wordy(table.column(name)) for name in rest) else first


def _facets(
    table: pa.Table, names: list[str], layout: Columns, source: str
) -> dict[str, np.ndarray]:
    """Columns of text next to a matrix that describe its rows, by column name."""
    out = {}
    for facet in ["benchmark"] if layout.transposed else SUBJECT_FACETS:
        name = find(names, [facet])
        if name is not None and is_text(table.column(name).type):
            column = table.column(name)
            out[name] = to_labels(column, name, source, optional=True).texts()
    return out


def _refuse_unknown(
    table: pa.Table, names: list[str], subject: str | None, layout: Columns, source: str
) -> None:
    """Refuses a table that is mostly text: it is no matrix, nor a known long table."""
    oriented = layout.transposed is not None
    if len(names) == 1 and not oriented:
        column = table.column(names[0])
        if subject is not None and in_per_cent(column):
            raise NoResponsesError(one_number_message(names[0], source))
        if is_number(column.type) and _are_strings(column.to_pylist()):
            raise ValueError(
                f"{source}: column {names[0]!r:.80} holds strings of responses, such as"
                f" {column[0]}: write a comma between all responses, and a header with"
                " a name for each"
            )
    wordy = [name for name in names if is_wordy(table.column(name))]
    if not wordy or 2 * len(wordy) < len(names):
        return
    # A table of a folder that is not known to be without responses is not left out.
    describes = _describes(table, names, subject, layout)
    kind = NoResponsesError if describes else ValueError
    column = table.column(wordy[0])
    row = int(np.argmax(column.is_valid().to_numpy()))
    first = str(column[row])
    if cure_of(first) != CORRECT:
        raise kind(
            f"{source}: row {row + 1}, column {wordy[0]!r:.80} is {first!r:.40};"
            f" {cure_of(first)}"
        )
    if all(is_verdict(table.column(name)) for name in wordy):
        words = [x for name in wordy for x in table.column(name).to_pylist() if x]
        raise ValueError(f"{source}: it {asks_for_right(words)}")
    if _share_words(table, wordy):
        words = [x for name in wordy for x in table.column(name).to_pylist() if x]
        raise ValueError(f"{source}: it {asks_for_right(words)}")
    raise _unknown(kind, table, source)


def _share_words(table: pa.Table, wordy: list[str]) -> bool:
    """Whether columns hold few words, each with one of another: those of responses."""
    if len(wordy) < 2 or not all(is_text(table.column(name).type) for name in wordy):
        return False
    words = [{*table.column(x).unique().to_pylist()} - {None, "", "-"} for x in wordy]
    count = Counter(word for cell_words in words for word in cell_words)
    shared = all(
        any(count[word] > 1 for word in cell_words)
        for cell_words in words
        if cell_words
    )
    return shared and len(count) <= _FEW_WORDS


def _unknown(kind: type[ValueError], table: pa.Table, source: str) -> ValueError:
    """The refusal of a table whose columns are not known."""
    columns = listing(table.column_names)
    nested = any(pa.types.is_nested(column.type) for column in table.columns)
    if kind is NoResponsesError and not nested:
        return kind(
            f"{source} has one row for each name and no column of responses"
            f" ({columns}): give the file of responses"
        )
    cure = "; a wide one has a column of numbers for each item"
    hint = suggest.hint_of(table)
    if nested and table.num_rows == 1 and not hint:
        return kind(
            f"{source} is one record with nested fields ({columns}), such as the"
            " estimates of a fitted model, and has no responses: give the file of the"
            " responses, a row for each with the columns model, item and response"
        )
    lacks = "" if hint else suggest.without_items(table)
    if lacks:
        return kind(f"{source}: {lacks} ({columns}): add a column of item names")
    return kind(
        f"{source}: its columns do not show who answered what"
        f" ({columns}); for a long table name its columns with"
        f" subject=, item= and response={hint or cure}"
    )


def _are_strings(values: list[Any]) -> bool:
    """Whether numbers of many digits are 0 and 1 alone: right and wrong in a row."""
    texts = {str(value) for value in values}
    digits = len(texts) > 1 and all(re.fullmatch("[01]+", text) for text in texts)
    return digits and max(map(len, texts)) > 3


def _describes(
    table: pa.Table, names: list[str], key: str | None, layout: Columns
) -> bool:
    """Whether a table has a row for each subject or item, and no responses to it.

    Verdicts can be responses: one column of them in a table of items (of one model),
    and half of the columns in a table of subjects. So can a column of any words whose
    name is that of outcomes.
    """
    # "id" may number the rows of a log.
    if key is None or plain_name(key) not in _KEYS:
        return False
    column = table.column(key)
    # Records and lists have no order, and name nothing.
    if pa.types.is_nested(column.type):
        return False
    if column.null_count or len(column.unique()) < len(column):
        return False
    if find(names, OUTCOME) is not None:
        return False
    verdicts = sum(is_verdict(table.column(name)) for name in names)
    return not verdicts if layout.transposed else 2 * verdicts < len(names)


def _matrix(
    table: pa.Table, names: list[str], source: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns `[rows, columns]` values and the mask."""
    # Transposed, and int8 until a column needs more, to save memory.
    out = np.zeros((len(names), table.num_rows), np.int8)
    observed: np.ndarray | None = None
    for k, name in enumerate(names):
        values, mask = to_numbers(table.column(name), name, source)
        values = compact(values)
        out = out.astype(np.result_type(out, values), copy=False)
        out[k] = values
        if mask is not None:
            observed = np.ones(out.shape, bool) if observed is None else observed
            observed[k] = mask
    signed = np.array([in_per_cent(table.column(name)) for name in names])
    large = (out > 1).any(axis=1) & ~signed
    if signed.any() and large.any():
        one, other = (names[int(np.argmax(columns))] for columns in (signed, large))
        raise ValueError(
            f"{source}: column {one!r:.80} is in per cent, and column {other!r:.80} has"
            " numbers beyond 1: write all with a percent sign, or none"
        )
    seen = None if observed is None else np.ascontiguousarray(observed.T)
    return np.ascontiguousarray(out.T), seen


def _expand(names: list[str], values: np.ndarray, source: str) -> ResponseTable:
    """Repeats each response pattern as often as its column ``freq`` gives."""
    is_item = np.array(names) != "freq"
    counts = values[:, ~is_item].ravel()
    if not np.array_equal(counts, np.rint(counts)) or counts.min() < 0:
        raise ValueError(f"{source}: column 'freq' must hold whole numbers of subjects")
    if counts.sum(dtype=np.float64) * values.shape[1] * 16 > available_memory():
        raise ValueError(
            f"{source}: column 'freq' repeats its rows {counts.sum():,.0f} times, which"
            " is more than the memory holds"
        )
    return ResponseTable.from_arrays(
        np.repeat(values[:, is_item], counts.astype(np.int64), axis=0),
        items=np.array(names)[is_item],
        notes=[f"{len(values)} response patterns were repeated by their column 'freq'"],
    )
