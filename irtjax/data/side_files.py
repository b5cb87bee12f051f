"""Tables of subjects or items: a CSV or Parquet file as Arrow columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from irtjax.data.files import check_parquet, check_text, read_bytes, special
from irtjax.data.spreadsheets import restore

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns of names.
_NAMES = ("item", "subject", "benchmark")


def read_side_file(path: Path, what: str) -> pa.Table:
    """Returns the rows of a CSV file, or of a Parquet file by its ending.

    Args:
        path: The file.
        what: The path with the option that named it, for messages.

    Raises:
        ValueError: It is no file, it is damaged, a text in it is not UTF-8, or a
            column holds lists or records.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    if path.exists() and special(path):
        raise ValueError(f"{what}: cannot read it: it is {special(path)}, not a file")
    try:
        if path.suffix == ".parquet":
            check_parquet(path, parquet.read_metadata(path), None)
            table = parquet.read_table(path)
            check_text(path, table)
        else:
            # As text, names such as 007 keep their leading zeros.
            names = csv.ConvertOptions(column_types=dict.fromkeys(_NAMES, pa.string()))
            content = pa.BufferReader(read_bytes(path))
            table = restore(csv.read_csv(content, convert_options=names))
    except (OSError, ValueError, pa.ArrowException) as error:
        text = " ".join(str(error).removeprefix(f"cannot read {path}: ").split())
        raise ValueError(f"{what}: cannot read it: {text}") from None
    for field in table.schema:
        if pa.types.is_nested(field.type):
            raise ValueError(
                f"{what}: column {field.name!r} holds {field.type}; leave it out"
            )
    return table
