"""`irtjax.read`: results of every kind as one response table.

The steps, each in a file of its own:

1. `find`: the files of a path; `recognise`: the format of each, by its content.
2. `open`: each file or data frame as records, one a response, or as a table. `tabular`
   reads CSV, Parquet and JSON, `columns` finds what each column means, `frames` reads
   long tables and `wide` matrices; `formats` has the readers of logs.
3. `choose`: one metric, filter, run and epoch of the records.
4. `assemble`: the records as a table; `merge`: several tables as one.
5. `finish`: benchmarks, lengths, missing cells and notes of the table.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.data.arrays import places_of
from irtjax.data.formats import LOGS, TABLES
from irtjax.data.reading.options import ReadOptions, takes_read_options
from irtjax.data.table import ResponseTable
from irtjax.data.wording import NOUNS, noun_of

if TYPE_CHECKING:
    from irtjax.data.reading.directions import ScoreDirections
    from irtjax.data.reading.open import Opened
    from irtjax.data.reading.recognise import Source
    from irtjax.data.reading.records import Records
    from irtjax.data.reading.wide import Piece


@takes_read_options
def read(source: Any, **options: Any) -> ResponseTable:
    r"""Reads evaluation results into one response table.

    The content of a file determines how it is read. A cell that is absent, empty, NaN
    or in error is missing, never wrong, unless ``missing_as`` is "wrong".

    Args:
        source: a file, folder, glob, data frame (any that narwhals supports), data set
            of Hugging Face (all splits of a `DatasetDict`), or a list of them, which
            are merged; or a list of records, dictionaries of the same fields.
        **options: the options below, of `data.reading.options.ReadOptions`.

    Keyword Args:
        format: one of "csv", "parquet", "json", "table", or a format of logs, such as
            "lm_eval", "inspect" or "helm"; None looks at the content.
        subject: column of subject names.
        item: column of item names, or several that together name an item; in logs of
            lm-evaluation-harness, a dotted path such as "doc.id".
        response: column of scores.
        metric: metric to read; also a list in order of preference, or a mapping from
            benchmark to either, "*" for the other benchmarks. Needed where items have
            several and none is usual. "metric,filter" names both. "all" reads each as a
            benchmark.
        filter: answer filter to read where logs have several; as ``metric``.
        trials: for several responses of a subject to an item: "auto" counts those that
            are right or wrong and averages scores; "error" refuses them; "mean",
            "first", or "counts" of right ones.
        missing_as: "missing", or "wrong" to count missing cells as 0.
        benchmark: column of benchmark names.
        length: column of response lengths; for a wide matrix, the file or frame of
            lengths with the same names.
        trial: column that numbers the repeats.
        epoch: read only the repeat of this number.
        run: of several runs of a benchmark by one subject, the "latest", or "all".
        join: identify items of logs by the "hash" of their content, or by "id".
        parts: of a metric that is a list, take the "mean", or make its parts "items".
        orientation: "subjects_by_items" or "items_by_subjects" for a wide matrix.
        header: whether the first line of a CSV file holds names.
        subject_name: name of the one subject of a file without subject names.
        subject_from: name the subject of each table after its "file" or "folder"; of
            several files without subject names that is the default.
        key: right choices of items that have letters or numbers of choices as
            responses: a file, a mapping by item, or the name of the row or column.
        right: words that are right responses; all others are then wrong.
        leave_out: subjects to leave out, by name or by pattern ("*-4bit").
        missing_values: numbers or words that mean no score, such as 99 or [-1, "skip"];
            "none" takes all numbers as scores. Without it usual codes are found.
        lower_is_better: metrics, benchmarks or items of which lower is better, by name
            or pattern; they are reversed, as those are that a log or their name states.
        higher_is_better: those of which higher is better, whatever these state.
        texts: whether to keep the prompts and answers of items (`item_texts`).

    Returns:
        The table; its ``notes`` list the choices made.

    Raises:
        ValueError: the input cannot be read or leaves a choice open, or there is no
            such option; the message names the place and the cure.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "scores.csv")
    >>> _ = path.write_text("model,item,correct\nm,q1,1\nm,q2,0\nn,q1,1\n")
    >>> table = read(path)
    >>> table.subjects.tolist(), table.values.tolist(), table.num_observed
    (['m', 'n'], [[1, 0], [1, 0]], 3)
    """
    chosen = ReadOptions.of(options)
    return gather(source, chosen).table(chosen)


@dataclasses.dataclass
class Gathered:
    """What the inputs hold, before anything is chosen from it."""

    records: Records | None
    tables: list[ResponseTable]
    notes: list[str]
    sources: list[str]
    asked: frozenset[str] = frozenset()  # Files that were named one by one.
    nouns: tuple[str, str] = NOUNS

    def table(self, options: ReadOptions) -> ResponseTable:
        """The one table of responses, with everything chosen."""
        from irtjax.data.reading.directions import ScoreDirections, of_tables
        from irtjax.data.reading.lengths import refuse_lengths

        directions = ScoreDirections(options)
        tables, notes, sources = self.tables, self.notes, self.sources
        if tables:
            tables, length_notes = refuse_lengths(
                tables,
                self.asked,
                forced=options.format is not None,
                with_responses=options.length is not None,
            )
            stay = {source for table in tables for source in table.sources}
            gone = {x for table in self.tables for x in table.sources} - stay
            sources = [x for x in sources if x not in gone]
            notes = [*notes, *length_notes]
            tables = of_tables(tables, directions)
        tables = self._with_records(tables, options, directions)
        directions.check()
        return self._finished(tables, options, notes, sources)

    def lengths(self, options: ReadOptions) -> ResponseTable:
        """The one table, of response lengths, which have no direction."""
        from irtjax.data.reading.directions import ScoreDirections

        tables = self._with_records(self.tables, options, ScoreDirections(options))
        return self._finished(tables, options, self.notes, self.sources)

    def _with_records(
        self,
        tables: Sequence[ResponseTable],
        options: ReadOptions,
        directions: ScoreDirections,
    ) -> Sequence[ResponseTable]:
        """The tables after that of the records, if there are any."""
        from irtjax.data.reading.assemble import assemble
        from irtjax.data.reading.repeats import is_of_items, of_items_message

        if options.join == "id":
            # Names that the caller trusts are not compared with others by content.
            tables = [table.replace(item_contents={}) for table in tables]
        if self.records is not None:
            # Choosing adds notes.
            records = dataclasses.replace(self.records, notes=[*self.records.notes])
            if not tables and is_of_items(records, options):
                raise ValueError(of_items_message(records))
            tables = [assemble(records, options, directions), *tables]
        return tables

    def _finished(
        self,
        tables: Sequence[ResponseTable],
        options: ReadOptions,
        notes: Sequence[str],
        sources: Sequence[str],
    ) -> ResponseTable:
        """The tables as one, with benchmarks, lengths, notes and nouns of inputs."""
        from irtjax.data.reading.finish import finish
        from irtjax.data.reading.merge import merge

        table = tables[0] if len(tables) == 1 else merge(tables, options)
        lengths = None
        if not table.has_lengths and options.length is not None:
            lengths = _lengths_of(table, options.length)
        table = finish(table, options, notes, sources, lengths)
        return table.replace(nouns=self.nouns)


def gather(source: Any, options: ReadOptions) -> Gathered:
    """Finds and opens the inputs, without a choice of metric, filter or epoch."""
    from irtjax.data.reading.find import check_sizes, find_files, left_out_note
    from irtjax.data.reading.open import Opened, open_files, open_frame

    opened = Opened()
    files: list[Source] = []
    notes: list[str] = []
    names: list[str] = []
    for entry in _entries(source):
        if isinstance(entry, str | os.PathLike):
            own = find_files(entry, options, notes)
            files += own
            names += [str(file.path) for file in own]
        else:
            opened.pieces.append(open_frame(entry, options, opened))
            names.append(type(entry).__name__)
    logs = {*LOGS} - {*TABLES}
    are_logs = len(files) > 0 and all(file.format in logs for file in files)
    if are_logs and not opened.pieces:
        _refuse_options_of_tables(options)
    check_sizes(files, options)
    open_files(files, options, opened)
    notes += map(left_out_note, opened.empty)
    unread = {str(path) for path in (*opened.empty, *opened.left_out)}
    records, tables = _joined(opened, options, are_logs, notes)
    return Gathered(
        records,
        tables,
        notes,
        [name for name in names if name not in unread],
        frozenset(str(file.path) for file in files if file.asked),
        _nouns({str(file.format) for file in files}, opened.pieces),
    )


def _entries(source: Any) -> list[Any]:
    """The paths and data frames of an input, or of a list of them."""
    from irtjax.data.reading.open import splits
    from irtjax.data.reading.tabular import of_records

    entries = list(source) if isinstance(source, list | tuple) else [source]
    if isinstance(source, list) and source and all(isinstance(x, dict) for x in source):
        entries = [of_records(source)]
    entries = [part for entry in entries for part in splits(entry)]
    if not entries:
        raise ValueError("there is nothing to read: the list of inputs is empty")
    return entries


def _refuse_options_of_tables(options: ReadOptions) -> None:
    """Refuses options that name columns, where all inputs are logs."""
    for option in "subject benchmark trial orientation subject_from key right".split():
        if getattr(options, option) is not None:
            raise ValueError(
                f"{option}= is for tables; a log contains it (subject_name= sets"
                " the name of its subject)"
            )


def _joined(
    opened: Opened, options: ReadOptions, are_logs: bool, notes: list[str]
) -> tuple[Records | None, list[ResponseTable]]:
    """The records of all inputs as one, and the tables; adds notes."""
    from irtjax.data.reading.choose import check_response
    from irtjax.data.reading.frames import agree
    from irtjax.data.reading.leave_out import without
    from irtjax.data.reading.lengths import is_named_lengths
    from irtjax.data.reading.merge import numbered_on
    from irtjax.data.reading.records import Records, concatenate, settled

    tables = [piece for piece in opened.pieces if isinstance(piece, ResponseTable)]
    parts = agree([piece for piece in opened.pieces if isinstance(piece, Records)])
    if opened.nameless:
        rows = [table for table in opened.nameless if not is_named_lengths(table)]
        tables = numbered_on(tables, rows, notes)
    records = concatenate(settled(parts)) if parts else None
    if records is not None and are_logs:
        check_response(records, options)
    if options.leave_out is not None:
        others = opened.left_out.values()
        records, tables, own = without(records, tables, options.leave_out, others)
        notes += own
    return records, tables


def _nouns(formats: set[str], pieces: Sequence[Piece]) -> tuple[str, str]:
    """What the inputs call a subject and a benchmark."""
    is_model = not formats.isdisjoint(LOGS) or "model" in {
        x.nouns[0] if isinstance(x, ResponseTable) else noun_of(x.roles.get("subject"))
        for x in pieces
    }
    is_task = not formats.isdisjoint(("lm_eval", "inspect"))
    return "model" if is_model else NOUNS[0], "task" if is_task else NOUNS[1]


def _lengths_of(table: ResponseTable, source: Any) -> np.ndarray:
    """Reads a matrix of lengths and puts it in the order of the table."""
    plain = ReadOptions(missing_values="none")
    other = gather(source, plain).lengths(plain)
    row = places_of(other.subjects, table.subjects)
    column = places_of(other.items, table.items)
    if (row < 0).all() or (column < 0).all():
        raise ValueError(
            f"length: {source} shares no subject or no item with the responses"
        )
    observed = True if other.observed is None else other.observed
    values = np.where(observed, other.values.astype(np.float64), np.nan)
    # A name that is not there has the place -1: of the row and column added here.
    padded = np.pad(values, ((0, 1), (0, 1)), constant_values=np.nan)
    return padded[np.ix_(row, column)]
