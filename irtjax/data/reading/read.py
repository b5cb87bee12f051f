"""`irtjax.read`: results of every kind as one response table."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.data.arrays import places_of
from irtjax.data.files import located
from irtjax.data.formats import LOGS, TABLES
from irtjax.data.reading.options import ReadOptions, takes_read_options
from irtjax.data.table import ResponseTable
from irtjax.data.wording import NOUNS, are, counted, listing, noun_of, percent, were
from irtjax.numerics.progress import watched

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.data.reading.records import Records
    from irtjax.data.reading.sources import Source
    from irtjax.data.reading.wide import Piece

#: Endings of tables; other text next to logs, such as console output, is none.
_TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
#: Formats of any content.
_TABLE_KINDS = {"csv", "parquet", "json"}
#: Bytes of a file that is read for a message, and how many files are.
_SMALL, _FEW = 10_000_000, 100
#: In messages on logs that have lost responses.
_DAMAGED = re.compile("cut off|is empty")


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

    def table(self, options: ReadOptions, *, lengths: bool = False) -> ResponseTable:
        """The one table, with everything chosen; ``lengths``: of response lengths."""
        from irtjax.data.reading.assemble import assemble
        from irtjax.data.reading.directions import ScoreDirections, of_tables
        from irtjax.data.reading.lengths import refuse_lengths
        from irtjax.data.reading.merge import merge
        from irtjax.data.reading.repeats import is_of_items, of_items_message

        tables = list(self.tables)
        if options.join == "id":
            # Names that the caller trusts are not compared with others by content.
            tables = [x.replace(item_contents={}) for x in tables]
        notes, gone = self.notes, set()
        directions = ScoreDirections(options)
        if not lengths:
            everything = tables
            tables, length_notes = refuse_lengths(
                tables,
                self.asked,
                forced=options.format is not None,
                given=options.length is not None,
            )
            gone = {x for t in everything for x in t.sources}
            gone -= {x for t in tables for x in t.sources}
            notes = [*notes, *length_notes]
            tables = of_tables(tables, directions)
        if self.records is not None:
            # Choosing adds notes.
            records = dataclasses.replace(self.records, notes=[*self.records.notes])
            if not tables and is_of_items(records, options):
                raise ValueError(of_items_message(records))
            tables.insert(0, assemble(records, options, directions))
        if not lengths:
            directions.check()
        sources = [x for x in self.sources if x not in gone]
        table = _finish(merge(tables, options), options, notes, sources)
        return table.replace(nouns=self.nouns)


def gather(source: Any, options: ReadOptions) -> Gathered:
    """Reads the inputs, without a choice of metric, filter or epoch."""
    from irtjax.data.reading import tabular
    from irtjax.data.reading.choose import check_response
    from irtjax.data.reading.frames import agree
    from irtjax.data.reading.leave_out import without
    from irtjax.data.reading.lengths import is_named_lengths
    from irtjax.data.reading.merge import numbered_on
    from irtjax.data.reading.records import Records, concatenate, settled
    from irtjax.data.reading.sizes import check_sizes

    entries = list(source) if isinstance(source, list | tuple) else [source]
    if isinstance(source, list) and source and all(isinstance(x, dict) for x in source):
        entries = [tabular.of_records(source)]
    entries = [part for entry in entries for part in _splits(entry)]
    if not entries:
        raise ValueError("there is nothing to read: the list of inputs is empty")
    pieces: list[Piece] = []
    nameless: list[ResponseTable] = []  # Tables whose rows have no names.
    files: list[Source] = []
    notes: list[str] = []
    names: list[str] = []
    for entry in entries:
        if isinstance(entry, str | os.PathLike):
            sources = _find(entry, options, notes)
            files += sources
            names += [str(file.path) for file in sources]
        else:
            pieces.append(_read_native(entry, options, nameless))
            names.append(type(entry).__name__)
    logs = {*LOGS} - {*TABLES}
    if files and not pieces and all(file.format in logs for file in files):
        tables = "subject benchmark trial orientation subject_from key right"
        for option in tables.split():
            if getattr(options, option) is not None:
                raise ValueError(
                    f"{option}= is for tables; a log contains it (subject_name= sets"
                    " the name of its subject)"
                )
    check_sizes(files, options)
    left: list[Source] = []
    of_others: dict[Path, str] = {}
    pieces += _read_files(files, options, left, of_others, nameless)
    notes += map(_left_out, left)
    out = {str(path) for path in (*(file.path for file in left), *of_others)}
    names = [name for name in names if name not in out]
    records = agree([piece for piece in pieces if isinstance(piece, Records)])
    tables = [piece for piece in pieces if isinstance(piece, ResponseTable)]
    rows = [table for table in nameless if not is_named_lengths(table)]
    tables = numbered_on(tables, rows, notes)
    joined = concatenate(settled(records)) if records else None
    if joined is not None and files and all(file.format in logs for file in files):
        check_response(joined, options)
    joined, tables, notes_on_left = without(
        joined, tables, options.leave_out, of_others.values()
    )
    notes += notes_on_left
    asked = frozenset(str(file.path) for file in files if file.asked)
    nouns = _nouns({str(file.format) for file in files}, pieces)
    return Gathered(joined, tables, notes, names, asked, nouns)


def _nouns(formats: set[str], pieces: Sequence[Piece]) -> tuple[str, str]:
    """What the inputs call a subject and a benchmark."""
    is_model = not formats.isdisjoint(LOGS) or "model" in {
        x.nouns[0] if isinstance(x, ResponseTable) else noun_of(x.roles.get("subject"))
        for x in pieces
    }
    is_task = not formats.isdisjoint(("lm_eval", "inspect"))
    return "model" if is_model else NOUNS[0], "task" if is_task else NOUNS[1]


def _find(
    path: str | os.PathLike[str], options: ReadOptions, notes: list[str]
) -> list[Source]:
    """Returns the readable files of a path, and a note on the others."""
    from irtjax.data.reading.sources import (
        DATA,
        Source,
        expand,
        identify,
        with_named_fields,
        without_copies,
        without_outputs,
    )

    sources = []
    files, outputs = without_outputs(expand(path), Path(path).expanduser())
    if outputs:
        names = listing([str(folder) for folder in outputs], 4)
        count = counted(len(outputs), "folder")
        notes.append(
            f"{count} that irtjax wrote {were(len(outputs))} not read: {names}"
        )
    files, copies = without_copies(files)
    if copies:
        names = listing([file.name for file in copies], 4)
        these = (
            f"{counted(len(copies), 'copy', 'copies')} of other files"
            f" {were(len(copies))}"
        )
        notes.append(f"{these} not read: {names}")
    for file, asked in watched(files, "file"):
        source = with_named_fields(identify(file, asked), options)
        firm = re.search("pickle|not a file", source.reason)
        if options.format is not None and asked and not firm:
            source = Source(file, options.format)
        if asked and source.format is None:
            raise ValueError(f"{source.path} {source.reason}")
        sources.append(source)
    good = [s for s in sources if s.format and options.format in (None, s.format)]
    if not good:
        _refuse_output(path)
        shown = f" as {options.format}" if options.format else ""
        # What is damaged first, then data: other files may only describe what it held.
        order = lambda s: (not s.damaged, not s.path.name.endswith(DATA), s.path.name)
        first = min((s for s in sources if s.reason), key=order, default=None)
        why = f"; for example {first.path.name} {first.reason}" if first else ""
        raise ValueError(f"nothing in {path} can be read{shown}{why}")
    good = _logs_first(good)
    good, damaged = _with_damaged_logs(good, [file for file in sources if file.damaged])
    notes += _not_read(damaged)
    shown = [*good, *damaged]
    if len(_kinds(good)) > 1:
        good = _with_responses(good, options, notes)
    kinds = _kinds(good)
    if len(kinds) > 1:
        _refuse_output(path)
        raise ValueError(
            f"{path} holds several kinds of files ({', '.join(kinds)}): choose one with"
            " format=, or name the files or folders to read together, of"
            f" {_names_of(good, options)}"
        )
    others = {file.path for file in sources} - {file.path for file in shown}
    sides = [pattern for kind in kinds for pattern in _side_files(kind)]
    others = {x for x in others if not any(map(x.match, sides))}
    if others:
        left = len(others)
        text = f"{counted(left, 'other file')} in {path} {were(left)} not read"
        example = min(file.name for file in others)
        notes.append(text if left == 1 else f"{text}, such as {example}")
    return good


def _refuse_output(path: str | os.PathLike[str]) -> None:
    """Refuses a folder of results, where it cannot be read as responses."""
    from irtjax.data.reading.sources import is_output

    if is_output(Path(path).expanduser()):
        raise ValueError(
            f"{path} is a folder that irtjax wrote, not one of responses: give the"
            " files that it was made from"
        )


def _with_damaged_logs(
    good: list[Source], damaged: list[Source]
) -> tuple[list[Source], list[Source]]:
    """Readable files with damaged logs of their format, and other damaged files.

    Reading a damaged log is refused, since its responses would be missing.
    """
    from irtjax.data.reading.sources import is_damaged_log

    logs = [str(file.format) for file in good if file.format in LOGS]
    own = [file for file in damaged if logs and is_damaged_log(file, logs[0])]
    good = [*good, *(dataclasses.replace(file, format=logs[0]) for file in own)]
    return good, [file for file in damaged if file not in own]


def _not_read(damaged: list[Source]) -> list[str]:
    """The note on damaged or empty files of a folder that are no logs."""
    if len(damaged) == 1:
        return [f"{damaged[0].path.name} was not read: it {damaged[0].reason}"]
    if not damaged:
        return []
    names = listing([file.path.name for file in damaged], 4)
    return [f"{len(damaged)} damaged or empty files were not read: {names}"]


def _logs_first(files: list[Source]) -> list[Source]:
    """Logs of one tool alone, without the other JSON and text that it writes."""
    logs = {file.format for file in files if file.format in LOGS}
    if len(logs) != 1:
        return files

    def extra(file: Source) -> bool:
        name = file.path.name.lower()
        is_text = file.format == "csv" and not name.endswith(_TABLES)
        return file.format == "json" or is_text

    return [file for file in files if not extra(file)]


def _kinds(files: Iterable[Source]) -> list[str]:
    """Formats of the files of a folder."""
    return sorted({str(file.format) for file in files if not file.asked})


def _side_files(kind: str) -> list[str]:
    """Patterns of names of files that the reader of a format reads with the logs."""
    if kind not in LOGS:
        return []
    module = importlib.import_module(f"irtjax.data.formats.{kind}")
    pattern = getattr(module, "SIDE_FILES", None)
    return [] if pattern is None else [pattern]


def _with_responses(
    files: list[Source], options: ReadOptions, notes: list[str]
) -> list[Source]:
    """The files of a folder without tables that have no responses, as far as needed.

    Such tables describe subjects or items. The smallest are read first, until files of
    one format are left or a table has responses.
    """
    sizes: dict[str, int] = dict.fromkeys(_kinds(files), 0)
    for file in files:
        if not file.asked:
            sizes[str(file.format)] += file.path.stat().st_size
    tables = sizes.keys() & _TABLE_KINDS
    for kind in sorted(tables, key=sizes.__getitem__):
        if len(_kinds(files)) == 1:
            break
        own = [x for x in files if x.format == kind and not x.asked]
        if any(_has_responses(file, options) for file in own):
            break
        notes += map(_left_out, own)
        files = [file for file in files if file not in own]
    return files


def _names_of(files: list[Source], options: ReadOptions) -> str:
    """Names of the files of each kind.

    Where they are few, small tables that have no responses are not named.
    """

    def may(file: Source) -> bool:
        is_log = file.format not in _TABLE_KINDS
        is_large = file.path.stat().st_size > _SMALL
        return is_log or is_large or _has_responses(file, options)

    shown = [file for file in files if not file.asked]
    if len(shown) <= _FEW:
        shown = [file for file in shown if may(file)]
    of = lambda kind: list(
        dict.fromkeys(x.path.name for x in shown if x.format == kind)
    )
    parts = [f"{kind}: {listing(of(kind), 4)}" for kind in _kinds(shown)]
    return "; ".join(parts)


def _has_responses(file: Source, options: ReadOptions) -> bool:
    """Whether a table may have responses."""
    from irtjax.data.reading.columns import NoResponsesError

    try:
        _read_table_file(str(file.format), file.path, options, [])
    except NoResponsesError:
        return False
    except (ValueError, OSError):
        pass  # Reading it again raises the error.
    return True


def _left_out(file: Source) -> str:
    """The note on a table of a folder that has no responses."""
    return f"{file.path.name} has no responses and was left out"


def _read_files(
    files: list[Source],
    options: ReadOptions,
    left: list[Source],
    of_others: dict[Path, str],
    nameless: list[ResponseTable],
) -> Iterator[Piece]:
    """Reads files, each once; those of one format after each other.

    Tables of a folder without responses are added to `left` if others have some, and
    logs of subjects to leave out, which are not read, to `of_others`. Tables whose rows
    have no names are added to `nameless`.
    """
    from irtjax.data.reading import file_subjects
    from irtjax.data.reading.columns import NoResponsesError
    from irtjax.data.reading.leave_out import files_without
    from irtjax.data.reading.repeats import is_of_items
    from irtjax.data.reading.sources import Source

    unnamed = file_subjects.without_subjects(files, options)
    of_file: dict[Path, Piece] = {}
    asked = {file.path for file in files if file.asked}
    damaged = {file.path: file.reason for file in files if file.damaged}
    without: NoResponsesError | None = None
    count = 0
    groups: dict[str, dict[Path, Path]] = {}
    for file in files:
        groups.setdefault(str(file.format), {})[_place(file.path)] = file.path
    for kind, paths in groups.items():
        if kind in LOGS:
            # A log reader sees all its files at once, since items join across them.
            reader = importlib.import_module(f"irtjax.data.formats.{kind}")
            logs, subject_of = list(paths.values()), getattr(reader, "subject_of", None)
            if subject_of is not None and options.subject_name is None:
                logs, gone = files_without(logs, options.leave_out, subject_of)
                of_others |= gone
            try:
                for path in logs:
                    if path in damaged:
                        raise ValueError(f"{path} {damaged[path]}")
                pieces = [reader.read_files(_Watched(logs), options)] if logs else []
            except ValueError as error:
                name = _of_damaged_log(str(error), logs, subject_of)
                if name is None:
                    raise
                cure = f"leave_out={name!r} reads the others without its subject"
                raise ValueError(f"{error}; {cure}") from None
            yield from pieces
            count += 1
            continue
        for path in watched(paths.values(), "file"):
            try:
                if path in unnamed:
                    anonymous = file_subjects.anonymous(options)
                    piece = _read_table_file(kind, path, anonymous, nameless)
                    of_file[path] = piece
                else:
                    piece = _read_table_file(kind, path, options, nameless)
                    if len(paths) > 1 and is_of_items(piece, options):
                        # Its "id" names problems, as those of one subject do.
                        anonymous = file_subjects.anonymous(options)
                        piece = _read_table_file(kind, path, anonymous, nameless)
                        of_file[path] = piece
                    else:
                        yield piece
                count += 1
            except NoResponsesError as error:
                if path in asked:
                    raise
                without = without or error
                left.append(Source(path, None))
            except UnicodeDecodeError:
                raise ValueError(
                    f"{path} is damaged: text in it is not UTF-8"
                ) from None

    yield from file_subjects.name_subjects(of_file, options)
    if without is not None and not count:
        raise without


def _of_damaged_log(
    message: str, logs: list[Path], subject_of: Callable[[Path], str | None] | None
) -> str | None:
    """The subject of the log that a message names as cut off or empty, if known."""
    path = next((path for path in logs if message.startswith(str(path))), None)
    if subject_of is None or path is None or not _DAMAGED.search(message):
        return None
    try:
        return subject_of(path)
    except ValueError:
        return None


def _place(path: Path) -> Path:
    """What makes a path another file than the others: its folder and name.

    Two models may be links to one file, but a link in the same folder is a second name.
    """
    place, target = located(path), path.resolve()
    is_name = place.is_symlink() and target.parent == place.parent.resolve()
    return place.with_name(target.name) if is_name else place


class _Watched(list[Path]):
    """Files of a log reader, which reports how many it has read by reading them."""

    def __iter__(self) -> Iterator[Path]:
        return watched(tuple(super().__iter__()), "file")


def _read_table_file(
    kind: str, path: Path, options: ReadOptions, nameless: list[ResponseTable]
) -> Piece:
    """The records of a table in a file, or the table that irtjax saved there."""
    from irtjax.data.fit_folder import RESPONSES, is_fit, load_responses
    from irtjax.data.reading import frames, missing_codes, tabular
    from irtjax.data.table_files import is_saved_table

    if path.name == RESPONSES and is_fit(path.parent):
        return missing_codes.of_table(load_responses(path.parent), options)
    if kind == "table":
        return missing_codes.of_table(ResponseTable.load(path), options)
    if kind == "csv":
        frame = tabular.read_csv(path, options)
    elif kind == "parquet":
        frame = tabular.read_parquet(path, options)
        if is_saved_table(frame.table.schema):
            return missing_codes.of_table(ResponseTable.load(path), options)
    else:
        frame = tabular.read_json(path)
    piece = frames.read_frame(frame, options)
    if isinstance(piece, ResponseTable):
        piece = piece.replace(sources=(str(path),))
        nameless += [piece] * frame.unnamed
    return piece


def _is_of(value: Any, library: str) -> bool:
    """Whether a value is of a library, which need not be installed."""
    return type(value).__module__.split(".")[0] == library


def _splits(entry: Any) -> list[Any]:
    """The data sets of a `DatasetDict` of Hugging Face; anything else by itself."""
    if _is_of(entry, "datasets") and isinstance(entry, dict):
        return list(entry.values())
    return [entry]


def _read_native(
    frame: Any, options: ReadOptions, nameless: list[ResponseTable]
) -> Piece:
    """Reads a data frame of any library that narwhals supports."""
    from irtjax.data.reading import frames, missing_codes, tabular

    if isinstance(frame, ResponseTable):
        return missing_codes.of_table(frame, options)
    if isinstance(frame, np.ndarray):
        nameless.append(
            missing_codes.of_table(ResponseTable.from_arrays(frame), options)
        )
        return nameless[-1]
    source = f"the {type(frame).__module__.split('.')[0]} frame"
    table = tabular.from_arrow(to_arrow(frame, source), source)
    piece = frames.read_frame(table, options)
    if isinstance(piece, ResponseTable):
        nameless += [piece] * table.unnamed
    return piece


def to_arrow(frame: Any, source: str) -> pa.Table:
    """Returns a data frame, or a data set of Hugging Face, as an Arrow table.

    Raises:
        ValueError: it is none, or its columns are no columns of Arrow; the message
            begins with ``source``.
    """
    import narwhals as nw

    if _is_of(frame, "datasets"):
        if not hasattr(frame, "with_format") or not hasattr(frame, "num_rows"):
            raise ValueError(
                f"{source}: a {type(frame).__name__} is read as it comes: load it"
                " without streaming=True"
            )
        # Rows that were selected or sorted are still where they were in `.data`.
        return frame.with_format("arrow")[:]
    try:
        native = nw.from_native(_of_plain_objects(frame), pass_through=True)
        if not isinstance(native, nw.DataFrame | nw.LazyFrame):
            raise ValueError(
                f"cannot read a {type(frame).__name__}: give a path, a data frame, a"
                " matrix, a list of them, or a list of records"
            )
        return native.lazy().collect().to_arrow()
    except (ValueError, TypeError, OverflowError) as error:
        # Two columns of one name and the like: each library has its own message.
        raise ValueError(f"{source}: {' '.join(str(error).split())}") from None


def _of_plain_objects(frame: Any) -> Any:
    """A frame of pandas whose columns of several types, or wide integers, are text."""
    if not _is_of(frame, "pandas") or not hasattr(frame, "dtypes"):
        return frame
    from irtjax.data.reading.tabular import texts_of_mixed

    objects = [k for k, kind in enumerate(frame.dtypes) if str(kind) == "object"]
    changed = {k: texts_of_mixed(frame.iloc[:, k].tolist()) for k in objects}
    changed = {k: texts for k, texts in changed.items() if texts is not None}
    if changed:
        frame = frame.copy()
        for k, texts in changed.items():
            frame.isetitem(k, texts)
    return frame


def _finish(
    table: ResponseTable, options: ReadOptions, notes: list[str], sources: list[str]
) -> ResponseTable:
    """Adds benchmarks, lengths, notes and sources; applies ``missing_as``."""
    from irtjax.data.reading.frames import infer_benchmarks
    from irtjax.data.reading.identity import alike, with_provider
    from irtjax.data.reading.roles import side_of

    notes = [*table.notes, *notes]
    facets = dict(table.item_facets)
    inferred = None if "benchmark" in facets else infer_benchmarks(table.items)
    if inferred is not None and any(
        side_of(name) == "item" and np.array_equal(labels, inferred)
        for name, labels in facets.items()
    ):
        inferred = None  # Languages, judges and the like are no benchmarks.
    if inferred is not None:
        facets["benchmark"] = inferred
        notes.append("benchmarks were read off the names of the items")
    lengths, trials, changes = table.lengths, table.trials, {}
    if lengths is None and options.length is not None:
        lengths = _other_lengths(table, options.length)
    size, missing = table.size, table.size - table.num_observed
    if missing == size:
        raise ValueError(f"{sources[0]}: every response is missing")
    if table.sparse is not None or table.observed is not None:
        what = f"{are(missing)} missing"
        if options.missing_as == "wrong":
            what = (
                f"{were(missing)} missing and {'counts' if missing == 1 else 'count'}"
                " as wrong"
            )
            trials = None if trials is None else np.maximum(trials, 1)
            changes = {"values": table.values, "observed": None}
        share = percent(round(missing / size, 4))
        notes.append(f"{missing:,} of {counted(size, 'cell')} ({share}) {what}")
    for what, names in (("subjects", table.subjects), ("items", table.items)):
        notes += alike(what, names)
    notes += with_provider(table.subjects)
    return table.replace(
        **changes,
        item_facets=facets,
        lengths=lengths,
        trials=trials,
        notes=tuple(dict.fromkeys(notes)),
        sources=tuple(dict.fromkeys(sources)),
        item_texts=table.item_texts if options.texts else {},
    )


def _other_lengths(table: ResponseTable, source: Any) -> np.ndarray:
    """Reads a matrix of lengths and puts it in the order of the table."""
    plain = ReadOptions(missing_values="none")
    other = gather(source, plain).table(plain, lengths=True)
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
