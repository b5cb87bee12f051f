"""Tables as data frames of other libraries, which need not be installed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

LIBRARIES = ("pandas", "polars", "datasets", "arrow")


def to_frame(result: Any, library: str = "pandas") -> Any:
    """Returns a table of results as a data frame of another library.

    Args:
        result: An Arrow table, such as `fit.items.table`; a result with one, such as
            that of `irtjax.rank`, `score`, `predict`, `shrink` or `simulate_tests`; or
            a `ResponseTable`, of which each response is a row.
        library: "pandas", "polars", "datasets" (a data set of Hugging Face) or "arrow".

    Returns:
        The frame.

    Raises:
        ImportError: If the library is not installed.
        ValueError: If it is another, or the result is no table and has none.

    >>> import irtjax
    >>> data = irtjax.ResponseTable.from_arrays([[1, 1, 0], [1, 0, 0], [0, 1, 0]])
    >>> ranks = irtjax.rank(irtjax.fit(data, "rasch"))
    >>> list(to_frame(ranks).columns[:3])
    ['subject', 'ability', 'ability_se']
    """
    if library not in LIBRARIES:
        raise ValueError(f"library {library!r} is not one of {', '.join(LIBRARIES)}")
    table = _table_of(result)
    if library == "arrow":
        return table
    try:
        module = importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise ImportError(
            f"{library} is not installed: pip install {library}"
        ) from None
    if library == "pandas":
        return table.to_pandas()
    return module.from_arrow(table) if library == "polars" else module.Dataset(table)


class HasTable:
    """A result with a table, which it gives as a data frame."""

    def to_frame(self, library: str = "pandas") -> Any:
        """Returns the table as a data frame of another library: `irtjax.to_frame`.

        Args:
            library: As there, and so are the errors raised.

        >>> import irtjax
        >>> table = irtjax.ResponseTable.from_arrays([[1, 1, 0], [1, 0, 0], [0, 1, 0]])
        >>> irtjax.rank(irtjax.fit(table, "rasch")).to_frame("arrow").num_rows
        3
        """
        return to_frame(self, library)


def _table_of(result: Any) -> pa.Table:
    """The table of a result; refuses a result that has none or several."""
    import pyarrow as pa

    # A `ResponseTable`, whose module imports this one.
    if hasattr(result, "item_facets"):
        return long_table(result)
    table = result if isinstance(result, pa.Table) else getattr(result, "table", None)
    table = table() if callable(table) else table
    if not isinstance(table, pa.Table):
        # Fields, and not what is computed on request.
        fields = {**vars(type(result)), **getattr(result, "__dict__", {})}
        has = [name for name, value in fields.items() if isinstance(value, pa.Table)]
        cure = f"give one of its tables: {', '.join(has)}" if has else "it has no table"
        raise ValueError(f"a {type(result).__name__} is no table of results: {cure}")
    return table


def long_table(table: Any) -> pa.Table:
    """The observed responses of a `ResponseTable`, a row for each."""
    import pyarrow as pa

    cells = table.sparse
    if cells is not None:
        who, which = cells.row, cells.column
    else:
        observed = True if table.observed is None else table.observed
        who, which = np.nonzero(np.broadcast_to(observed, table.values.shape))
    names = lambda labels, rows: pa.array(labels.tolist(), pa.string()).take(rows)
    columns = {
        "subject": names(table.subjects, who),
        "item": names(table.items, which),
        "response": pa.array(table.seen),
    }
    facets = [(table.item_facets, which), (table.subject_facets, who)]
    for found, rows in facets:
        for name, labels in found.items():
            # A facet may have the name of a column.
            columns.setdefault(name, names(labels, rows))
    if table.reversed_scores:
        # A reader must not reverse them again.
        formulas = [table.reversed_scores.get(x, "score") for x in table.items.tolist()]
        if all(_one_each(formulas, table.benchmarks.tolist())):
            columns["metric"] = names(np.array(formulas), which)
    if table.trials is not None:
        columns["trials"] = pa.array(table.trials[who, which])
    if table.lengths is not None:
        columns["length"] = pa.array(table.lengths[who, which], from_pandas=True)
    return pa.table(columns)


def _one_each(formulas: list[str], benchmarks: list[str]) -> list[bool]:
    """Whether each item has the formula of its benchmark's first item."""
    first: dict[str, str] = {}
    pairs = zip(formulas, benchmarks, strict=True)
    return [first.setdefault(name, text) == text for text, name in pairs]
