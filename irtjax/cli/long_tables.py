"""Files with a row for each report or score, and columns of any names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def rows_of(files: list[str]) -> pa.Table:
    """The rows of all files: CSV, Parquet, JSON lines."""
    import pyarrow as pa

    from irtjax.data.files import located
    from irtjax.data.reading.tabular import read_json
    from irtjax.data.side_files import read_side_file

    tables = []
    for name in files:
        path = located(Path(name))
        is_json = {".json", ".jsonl"} & {*path.suffixes}
        tables.append(read_json(path).table if is_json else read_side_file(path, name))
    try:
        return pa.concat_tables(tables, promote_options="default")
    except pa.ArrowException as error:
        text = " ".join(str(error).split())
        raise ValueError(f"columns of the files differ in kind: {text}") from None
