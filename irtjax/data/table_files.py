"""Saving and loading a response table without loss, as JSON or Parquet.

A table is here a mapping of its fields, so that the table can import this module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from irtjax.data.arrays import as_labels
from irtjax.data.files import atomic_path, read_head, read_text
from irtjax.data.wording import TABLE_FORMAT

if TYPE_CHECKING:
    import pyarrow as pa

Fields: TypeAlias = dict[str, Any]

_VERSION = 1
_PARQUET_KEY = TABLE_FORMAT.encode()


def write_fields(table: Fields, path: Path) -> Path:
    """Writes fields to a ``.json`` or ``.parquet`` file, whole or not at all."""
    if path.suffix == ".json":
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(_to_json(table)), encoding="utf-8")
    elif path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with atomic_path(path) as temporary:
            pq.write_table(_to_arrow(table), temporary, compression="zstd")
    else:
        raise ValueError(f"cannot save to {path}: the name must end in .json, .parquet")
    return path


def read_fields(path: Path) -> Fields:
    """Reads a file that `write_fields` wrote."""
    if not path.is_file():
        raise ValueError(f"no such file: {path}")
    try:
        if read_head(path)[:4] != b"PAR1":
            return fields_from_json(json.loads(read_text(path)))
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return fields_from_arrow(pq.read_table(path))
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"it is damaged ({str(error).splitlines()[0]})") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        message = str(error).replace(f"{path}: ", "")
        if isinstance(error, UnicodeDecodeError):
            message = "text in it is not UTF-8"
        raise ValueError(f"{path} is not a saved response table: {message}") from None


def _meta(table: Fields) -> dict[str, Any]:
    return {
        "format": TABLE_FORMAT,
        "version": _VERSION,
        "items": table["items"].tolist(),
        "item_facets": {k: v.tolist() for k, v in table["item_facets"].items()},
        "metric": table["metric"],
        "notes": list(table["notes"]),
        "sources": list(table["sources"]),
        "dtype": str(table["values"].dtype),
    }


def _to_json(table: Fields) -> dict[str, Any]:
    values: list[list[float | None]] = table["values"].tolist()
    if table["observed"] is not None:
        for row, column in np.argwhere(~table["observed"]).tolist():
            values[row][column] = None
    lengths = None
    if table["lengths"] is not None:
        lengths = [
            [None if cell != cell else cell for cell in row]
            for row in table["lengths"].tolist()
        ]
    return {
        **_meta(table),
        "subjects": table["subjects"].tolist(),
        "subject_facets": {k: v.tolist() for k, v in table["subject_facets"].items()},
        "values": values,
        "trials": None if table["trials"] is None else table["trials"].tolist(),
        "lengths": lengths,
    }


def _check_meta(meta: Any) -> None:
    if not isinstance(meta, dict) or meta.get("format") != TABLE_FORMAT:
        raise ValueError(f"it has no mark {TABLE_FORMAT}")
    if meta["version"] > _VERSION:
        raise ValueError(f"a newer irtjax wrote it (form {meta['version']}); upgrade")


def _typed(values: np.ndarray, dtype: str) -> np.ndarray:
    """Returns values in the dtype that they were saved in; none may be lost."""
    if dtype not in ("int8", "float64"):
        raise ValueError(f"its values are {dtype}")
    with np.errstate(invalid="ignore"):
        typed = values.astype(dtype)
    if not np.isfinite(values).all() or not np.array_equal(typed, values):
        raise ValueError(f"a value is no {dtype}")
    return typed


def _matrix(rows: Any, shape: tuple[int, int], dtype: Any = np.float64) -> Any:
    return None if rows is None else np.array(rows, dtype=dtype).reshape(shape)


def fields_from_json(content: dict[str, Any]) -> Fields:
    """Returns the fields in the parsed JSON of a saved table."""
    _check_meta(content)
    shape = (len(content["subjects"]), len(content["items"]))
    values = _matrix(content["values"], shape)
    observed = ~np.isnan(values)
    return dict(
        subjects=as_labels(content["subjects"]),
        values=_typed(np.where(observed, values, 0), content["dtype"]),
        observed=None if observed.all() else observed,
        trials=_matrix(content["trials"], shape, np.int32),
        subject_facets=_facets(content["subject_facets"]),
        lengths=_matrix(content["lengths"], shape),
        **_common(content),
    )


def _facets(content: dict[str, list[str]]) -> dict[str, np.ndarray]:
    return {name: as_labels(labels) for name, labels in content.items()}


def _common(meta: dict[str, Any]) -> dict[str, Any]:
    return {
        "items": as_labels(meta["items"]),
        "item_facets": _facets(meta["item_facets"]),
        "metric": meta["metric"],
        "notes": tuple(meta["notes"]),
        "sources": tuple(meta["sources"]),
    }


def _to_arrow(table: Fields) -> pa.Table:
    """One row per subject, its responses as one list: small, and fast to read.

    A column per item would cost a millisecond of metadata for each ten items.
    """
    import pyarrow as pa

    size = len(table["items"])
    offsets = np.arange(len(table["subjects"]) + 1, dtype=np.int64) * size

    def rows(matrix: np.ndarray, missing: np.ndarray | None) -> pa.Array:
        mask = None if missing is None else missing.ravel()
        return pa.LargeListArray.from_arrays(
            pa.array(offsets), pa.array(matrix.ravel(), mask=mask)
        )

    missing = None if table["observed"] is None else ~table["observed"]
    columns: dict[str, Any] = {
        "subject": pa.array(table["subjects"].tolist(), pa.string()),
        "values": rows(table["values"], missing),
    }
    if table["trials"] is not None:
        columns["trials"] = rows(table["trials"], None)
    if table["lengths"] is not None:
        columns["lengths"] = rows(table["lengths"], np.isnan(table["lengths"]))
    for name, labels in table["subject_facets"].items():
        columns[f"facet:{name}"] = pa.array(labels.tolist(), pa.string())
    meta = json.dumps(_meta(table)).encode()
    return pa.table(columns).replace_schema_metadata({_PARQUET_KEY: meta})


def is_saved_table(schema: pa.Schema) -> bool:
    """Whether a Parquet schema is that of a saved response table."""
    return _PARQUET_KEY in (schema.metadata or {})


def fields_from_arrow(frame: pa.Table) -> Fields:
    """Returns the fields in the Arrow table of a saved table."""
    import pyarrow as pa

    if not is_saved_table(frame.schema):
        raise ValueError(f"it has no mark {TABLE_FORMAT}")
    meta = json.loads(frame.schema.metadata[_PARQUET_KEY])
    _check_meta(meta)
    shape = (frame.num_rows, len(meta["items"]))

    def matrix(name: str, fill: float) -> tuple[Any, Any]:
        if name not in frame.column_names:
            return None, None
        flat = pa.chunked_array(
            [chunk.flatten() for chunk in frame.column(name).chunks]
        ).combine_chunks()
        known = None
        if flat.null_count:
            known = flat.is_valid().to_numpy(zero_copy_only=False).reshape(shape)
            flat = flat.fill_null(fill)
        return flat.to_numpy(zero_copy_only=False).reshape(shape).copy(), known

    values, observed = matrix("values", 0)
    prefix = "facet:"
    facets = {
        name.removeprefix(prefix): as_labels(frame.column(name).to_pylist())
        for name in frame.column_names
        if name.startswith(prefix)
    }
    return dict(
        subjects=as_labels(frame.column("subject").to_pylist()),
        values=_typed(values, meta["dtype"]),
        observed=observed,
        trials=matrix("trials", 0)[0],
        subject_facets=facets,
        lengths=matrix("lengths", np.nan)[0],
        **_common(meta),
    )
