"""Saving and loading a response table without loss, as JSON or Parquet.

A table is here a mapping of its fields, so that the table can import this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from irtjax.data import answers
from irtjax.data.arrays import as_labels
from irtjax.data.decode import Count, Record, decode
from irtjax.data.files import check_parquet, read_bytes, read_head
from irtjax.data.item_texts import (
    ItemText,
    ids_from_lists,
    texts_from_rows,
    texts_to_rows,
)
from irtjax.data.runs import RunErrors
from irtjax.data.sparse_table import SparseCells
from irtjax.data.wording import TABLE_FORMAT
from irtjax.data.writing import atomic_path

if TYPE_CHECKING:
    import pyarrow as pa

Fields: TypeAlias = dict[str, Any]

#: Of dense tables, of those that have observed cells alone, and of Parquet with its
#: facts in a column.
_VERSION, _SPARSE_VERSION, _COLUMN_VERSION = 1, 2, 3
_PARQUET_KEY = TABLE_FORMAT.encode()
#: Before the name of a subject facet, as a column of Parquet.
_FACET = "facet:"
#: Column of Parquet with the numbers of the items that `values` are of.
_PLACES = "places"
#: Columns of Parquet with the texts of all items, and with the facts of the table.
_TEXTS, _FACTS = "item_texts", "facts"
#: Before the name of a column of Parquet with the answers of all subjects.
_ANSWERS = "answers:"


def write_fields(table: Fields, path: Path) -> Path:
    """Writes fields to a ``.json`` or ``.parquet`` file, whole or not at all."""
    if path.suffix == ".json":
        if isinstance(table["values"], SparseCells):
            values, observed = table["values"].dense
            table = {**table, "values": values, "observed": observed}
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(_to_json(table)), encoding="utf-8")
    elif path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with atomic_path(path) as temporary:
            pq.write_table(_to_arrow(table), temporary, compression="zstd")
    else:
        raise ValueError(f"cannot save to {path}: the name must end in .json, .parquet")
    return path


class _Mark(Record):
    """The field that marks a saved table."""

    format: str | None = None
    version: float = 0
    num_items: Count | None = None


class _Facts(Record, kw_only=True):
    """What both forms of a saved table have as JSON."""

    items: list[str]
    item_facets: dict[str, list[str]]
    metric: str | None
    notes: list[str]
    sources: list[str]
    dtype: Literal["int8", "float64"]
    item_ids: dict[str, list[tuple[str, str, str]]] = {}
    item_contents: dict[str, str] = {}
    reversed_scores: dict[str, str] = {}
    run_error: list[float] | None = None
    own_run_errors: dict[str, list[float]] = {}


class _Text(Record):
    """The text of an item."""

    item: str
    prompt: str
    answer: str
    wrong: str
    wrong_count: int


class _Table(_Facts, kw_only=True):
    """A table saved as JSON."""

    subjects: list[str]
    subject_facets: dict[str, list[str]]
    values: list[list[float | None]]
    trials: list[list[Count]] | None
    lengths: list[list[float | None]] | None
    item_texts: list[_Text] = []
    answers: dict[str, list[Any]] | None = None


def read_fields(path: Path, make: Callable[..., Any]) -> Any:
    """Reads a file that `write_fields` wrote and makes a table of its fields."""
    if not path.is_file():
        raise ValueError(f"no such file: {path}")
    try:
        if read_head(path)[:4] != b"PAR1":
            return make(**_from_json(read_bytes(path)))
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            check_parquet(path, pq.read_metadata(path), None)
            return make(**_from_arrow(pq.read_table(path)))
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"it is damaged ({str(error).splitlines()[0]})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = str(error).replace(f"{path}: ", "")
        if isinstance(error, UnicodeDecodeError):
            message = "text in it is not UTF-8"
        raise ValueError(f"{path} is not a saved response table: {message}") from None


def _meta(table: Fields) -> dict[str, Any]:
    """What both forms write as JSON; `_from_meta` reads it."""
    values = table["values"]
    few, runs = isinstance(values, SparseCells), table["runs"]
    return {
        "format": TABLE_FORMAT,
        "version": _SPARSE_VERSION if few else _VERSION,
        "items": table["items"].tolist(),
        "item_facets": {k: v.tolist() for k, v in table["item_facets"].items()},
        "metric": table["metric"],
        "notes": list(table["notes"]),
        "sources": list(table["sources"]),
        "dtype": str(values.value.dtype if few else values.dtype),
        "item_ids": table["item_ids"],
        "item_contents": table["item_contents"],
        "reversed_scores": table["reversed_scores"] or {},
        **({} if runs is None else _meta_of_runs(runs)),
    }


def _meta_of_runs(runs: RunErrors) -> dict[str, Any]:
    """What both forms write of errors by runs."""
    own = {name: error.tolist() for name, error in runs.own.items()}
    return {"run_error": runs.common.tolist(), "own_run_errors": own}


def _from_meta(meta: _Facts, values: np.ndarray) -> Fields:
    """The fields that `_meta` wrote, and values in their dtype, without loss."""
    with np.errstate(invalid="ignore"):
        typed = values.astype(meta.dtype)
    if not np.isfinite(values).all() or not np.array_equal(typed, values):
        raise ValueError(f"a value is no {meta.dtype}")
    return {
        "items": as_labels(meta.items),
        "item_facets": {k: as_labels(v) for k, v in meta.item_facets.items()},
        "metric": meta.metric,
        "notes": tuple(meta.notes),
        "sources": tuple(meta.sources),
        "values": typed,
        "item_ids": ids_from_lists(meta.item_ids),
        "item_contents": meta.item_contents,
        "reversed_scores": meta.reversed_scores,
        "runs": None
        if meta.run_error is None
        else RunErrors(
            np.array(meta.run_error),
            {name: np.array(x) for name, x in meta.own_run_errors.items()},
        ),
    }


_Kind = TypeVar("_Kind", bound=_Facts)


def _checked(content: bytes, type: type[_Kind]) -> _Kind:
    """The facts of a table of this version."""
    mark = decode(content, _Mark, "its JSON")
    if mark.format != TABLE_FORMAT:
        raise ValueError(f"it has no mark {TABLE_FORMAT}")
    if mark.version > _COLUMN_VERSION:
        raise ValueError(
            f"a newer irtjax wrote it (form {mark.version:g}); upgrade irtjax"
        )
    return decode(content, type, "its JSON")


def _to_json(table: Fields) -> dict[str, Any]:
    """The fields of a table as JSON has them."""
    values, lengths, trials = table["values"], table["lengths"], table["trials"]
    if table["observed"] is not None:
        values = np.where(table["observed"], values, np.array(None))
    if lengths is not None:
        lengths = np.where(np.isnan(lengths), np.array(None), lengths).tolist()
    return {
        **_meta(table),
        "subjects": table["subjects"].tolist(),
        "subject_facets": {k: v.tolist() for k, v in table["subject_facets"].items()},
        "values": values.tolist(),
        "trials": None if trials is None else trials.tolist(),
        "lengths": lengths,
        "item_texts": texts_to_rows(table["item_texts"]),
        "answers": table["answers"] and answers.to_lists(table["answers"]),
    }


def _from_json(data: bytes) -> Fields:
    """The fields of a table that `_to_json` wrote."""
    content = _checked(data, _Table)
    shape = (len(content.subjects), len(content.items))

    def matrix(name: str, dtype: type) -> Any:
        rows = getattr(content, name)
        if rows is None:
            return None
        if len(rows) != shape[0] or any(len(row) != shape[1] for row in rows):
            raise ValueError(f"its {name} are not {shape[0]} rows of {shape[1]}")
        return np.array(rows, dtype=dtype).reshape(shape)

    values = matrix("values", np.float64)
    observed = ~np.isnan(values)
    return dict(
        subjects=as_labels(content.subjects),
        observed=None if observed.all() else observed,
        trials=matrix("trials", np.int32),
        subject_facets={k: as_labels(v) for k, v in content.subject_facets.items()},
        lengths=matrix("lengths", np.float64),
        item_texts={
            x.item: ItemText(x.prompt, x.answer, x.wrong, x.wrong_count)
            for x in content.item_texts
        },
        answers=content.answers and answers.from_lists(content.answers, shape),
        **_from_meta(content, np.where(observed, values, 0)),
    )


def _to_arrow(table: Fields) -> pa.Table:
    """One row per subject, its responses as one list: small, and fast to read."""
    # A column per item would cost a millisecond of metadata for each ten items.
    import pyarrow as pa

    size, values = len(table["items"]), table["values"]
    offsets = np.arange(len(table["subjects"]) + 1, dtype=np.int64) * size

    def rows(matrix: np.ndarray, missing: np.ndarray | None) -> pa.Array:
        mask = None if missing is None else missing.ravel()
        return pa.LargeListArray.from_arrays(
            pa.array(offsets), pa.array(narrowed(matrix).ravel(), mask=mask)
        )

    missing = None if table["observed"] is None else ~table["observed"]
    columns: dict[str, Any] = {
        "subject": pa.array(table["subjects"].tolist(), pa.string())
    }
    if isinstance(values, SparseCells):
        offsets = values.start
        columns[_PLACES] = rows(values.column, None)
        columns["values"] = rows(values.value, None)
    else:
        columns["values"] = rows(values, missing)
    if table["trials"] is not None:
        columns["trials"] = rows(table["trials"], None)
    if table["lengths"] is not None:
        columns["lengths"] = rows(table["lengths"], np.isnan(table["lengths"]))
    for name, labels in table["subject_facets"].items():
        columns[_FACET + name] = pa.array(labels.tolist(), pa.string())
    meta = _meta(table)
    texts = texts_to_rows(table["item_texts"])
    if len(table["subjects"]):
        # With the first subject: metadata would not be compressed, and stand there
        # twice.
        rest: list[Any] = [None] * (len(table["subjects"]) - 1)
        if texts:
            columns[_TEXTS] = pa.array([texts, *rest])
        if table["answers"] is not None:
            for name, numbers in answers.to_arrays(table["answers"]).items():
                columns[_ANSWERS + name] = pa.array([numbers, *rest])
        columns[_FACTS] = pa.array([json.dumps(meta), *rest], pa.string())
        meta = {"format": TABLE_FORMAT, "version": _COLUMN_VERSION, "num_items": size}
    about = {_PARQUET_KEY: json.dumps(meta).encode()}
    return pa.table(columns).replace_schema_metadata(about)


def narrowed(values: np.ndarray) -> np.ndarray:
    """The same numbers in the smallest floating type that has them all.

    >>> narrowed(np.array([0.5, np.nan])).dtype, narrowed(np.array([0.1])).dtype
    (dtype('float16'), dtype('float64'))
    """
    if values.dtype == np.float64:
        for kind in (np.float16, np.float32):
            with np.errstate(over="ignore"):
                small = values.astype(kind)
            if np.array_equal(small, values, equal_nan=True):
                return small
    return values


def is_saved_table(schema: pa.Schema) -> bool:
    """Whether a Parquet schema is that of a saved response table."""
    return _PARQUET_KEY in (schema.metadata or {})


def num_items(schema: pa.Schema) -> int:
    """Number of items of a saved table with a matrix; 0 of one of observed cells."""
    if _PLACES in schema.names:
        return 0
    content = (schema.metadata or {})[_PARQUET_KEY]
    count = decode(content, _Mark, "its JSON").num_items
    return len(_checked(content, _Facts).items) if count is None else count


def _from_arrow(frame: pa.Table) -> Fields:
    """The fields of a table that was saved as Parquet."""
    import pyarrow.compute

    pc: Any = pyarrow.compute  # Its functions are made when it is loaded.
    facts = (frame.schema.metadata or {}).get(_PARQUET_KEY, b"{}")
    if _FACTS in frame.column_names and frame.num_rows:
        facts = (frame.column(_FACTS)[0].as_py() or "{}").encode()
    meta = _checked(facts, _Facts)
    shape = (frame.num_rows, len(meta.items))

    cells = None
    if _PLACES in frame.column_names:
        places, observed = _numbers(frame, _PLACES).to_numpy(), None
        counts = pc.list_value_length(frame.column(_PLACES)).to_numpy()
        values = _numbers(frame, "values").to_numpy()
        cells = _checked_cells(places, counts, values, shape)
    else:
        values, observed = _matrix(frame, "values", shape)
    texts = []
    if _TEXTS in frame.column_names and frame.num_rows:
        texts = frame.column(_TEXTS)[0].as_py() or []
    of_answers = {
        name.removeprefix(_ANSWERS): frame.column(name)[0].values.to_numpy(
            zero_copy_only=False
        )
        for name in frame.column_names
        if name.startswith(_ANSWERS) and frame.num_rows
    }
    fields = _from_meta(meta, values)
    if cells is not None:
        fields["values"] = SparseCells(*cells, fields["values"], shape[1])
    return dict(
        subjects=as_labels(frame.column("subject").to_pylist()),
        observed=observed,
        trials=_matrix(frame, "trials", shape)[0],
        subject_facets={
            name.removeprefix(_FACET): as_labels(frame.column(name).to_pylist())
            for name in frame.column_names
            if name.startswith(_FACET)
        },
        lengths=_matrix(frame, "lengths", shape, np.nan)[0],
        item_texts=texts_from_rows(texts),
        answers=answers.from_lists(of_answers, shape) if of_answers else None,
        **fields,
    )


def _numbers(frame: pa.Table, name: str) -> Any:
    """The numbers in the lists of a column, one after another."""
    import pyarrow as pa

    column = frame.column(name)
    lists = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    inner = column.type.value_type if lists else column.type
    if not lists or not (pa.types.is_integer(inner) or pa.types.is_floating(inner)):
        raise ValueError(f"its column {name} holds {column.type}")
    chunks = [chunk.flatten() for chunk in column.chunks]
    return pa.chunked_array(chunks, inner).combine_chunks()


def _matrix(
    frame: pa.Table, name: str, shape: tuple[int, int], fill: float = 0
) -> tuple[Any, Any]:
    """`[subjects, items]` numbers of a column of lists, and their mask; None without.

    Args:
        frame: A table that was saved as Parquet.
        name: The column.
        shape: Subjects and items.
        fill: Takes the place of missing numbers.
    """
    if name not in frame.column_names:
        return None, None
    flat, observed = _numbers(frame, name), None
    if flat.null_count:
        observed = flat.is_valid().to_numpy(zero_copy_only=False).reshape(shape)
        flat = flat.fill_null(fill)
    return flat.to_numpy(zero_copy_only=False).reshape(shape).copy(), observed


def _checked_cells(
    places: np.ndarray, counts: np.ndarray, values: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Starts and columns of observed cells, which must be in order and in the table."""
    start = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    fits = len(places) == len(values) == start[-1] and places.dtype.kind == "i"
    if fits and len(places):
        rising = np.diff(places) > 0
        # The first cell of a subject may be of any item.
        first = start[1:-1]
        rising[first[(first > 0) & (first < len(places))] - 1] = True
        fits = rising.all() and places.min() >= 0 and places.max() < shape[1]
    if not fits:
        raise ValueError(f"its {_PLACES} are no numbers of {shape[1]} items in order")
    return start, places.astype(np.int32)
