"""Results with a table: as text, JSON and data frames of other libraries."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from irtjax.data.result_text import as_html, as_text, lines_below
from irtjax.data.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

LIBRARIES = ("polars", "pandas", "arrow", "datasets")


def to_frame(result: Any, kind: str | None = None) -> Any:
    """Returns a table of results as a data frame.

    Args:
        result: A result with a table, such as `fit.items`, `fit.abilities`, or that of
            `irtjax.rank`, `score`, `predict`, `shrink` or `simulate_tests`; an Arrow
            table; or a `ResponseTable`, of which each observed response is a row:
            subject, item, response, facets, trials and length where there are any.
        kind: "polars", "pandas", "arrow" or "datasets" (a data set of Hugging Face).
            By default polars if it is installed, else pandas if it is, else Arrow.

    Returns:
        The frame.

    Raises:
        ImportError: If the library is not installed.
        ValueError: If it is another, or the result is no table and has none.

    >>> import irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> ranks = irtjax.rank(irtjax.fit(table, "rasch"))
    >>> list(to_frame(ranks).columns[:3])
    ['subject', 'ability', 'ability_se']
    """
    if kind not in (None, *LIBRARIES):
        raise ValueError(f"kind {kind!r} is not one of {', '.join(LIBRARIES)}")
    table = _table_of(result)
    if kind is None:
        # `find_spec` does not import them.
        kind = next((x for x in LIBRARIES[:2] if find_spec(x) is not None), "arrow")
    if kind == "arrow":
        return table
    try:
        module = importlib.import_module(kind)
    except ModuleNotFoundError as error:
        if error.name != kind:
            raise
        raise ImportError(
            f"{kind} is not installed: pip install {kind}, or to_frame('arrow')"
        ) from None
    if kind == "pandas":
        return table.to_pandas()
    return module.from_arrow(table) if kind == "polars" else module.Dataset(table)


class HasTable:
    """A result with a table: it prints as one, and gives it as a data frame or JSON.

    A class has the table itself, `table`, and may say how it is shown.

    Attributes:
        title: A line above.
        columns: The columns to show, of those that the table has; all by default.
    """

    title: ClassVar[str] = ""
    columns: ClassVar[Sequence[str]] = ()

    def _heading(self) -> str:
        """The line above the table."""
        return self.title

    def _shown(self) -> pa.Table:
        """The table that is shown."""
        return _table_of(self)

    def _below(self) -> list[str]:
        """Sentences below the table: what the result says in words, and warnings."""
        texts = getattr(self, "sentences", None)
        texts = (getattr(self, "sentence", ""),) if texts is None else texts
        warnings = getattr(self, "warnings", ())
        first = [f"Warning: {text}" for text in warnings[:1]]
        rest = [f"{counted(len(warnings), 'warning')}: see .warnings"]
        return [x for x in texts if x] + first + rest * (len(warnings) > 1)

    def _text(self) -> str:
        """The table as text that fits the terminal."""
        return as_text(self._shown(), self.columns, self._heading())

    def __repr__(self) -> str:
        """The table as text, and the sentences below it."""
        return "\n".join([self._text(), *lines_below(self._below())])

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        return as_html(self._shown(), self.columns, self._heading(), self._below())

    def to_frame(self, kind: str | None = None) -> Any:
        """Returns the table as a data frame: see `irtjax.to_frame`.

        Args:
            kind: As there, and so are the errors raised.

        >>> import irtjax
        >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
        >>> table = irtjax.ResponseTable.from_arrays(data)
        >>> irtjax.rank(irtjax.fit(table, "rasch")).to_frame("arrow").num_rows
        4
        """
        return to_frame(self, kind)

    def to_json(self) -> str:
        """Returns the rows of the table as JSON, null where there is no number.

        >>> import irtjax
        >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
        >>> table = irtjax.ResponseTable.from_arrays(data)
        >>> irtjax.fit(table, "rasch").items.to_json()[:18]
        '[{"item": "item 1"'
        """
        rows = [
            {name: _finite(value) for name, value in row.items()}
            for row in _table_of(self).to_pylist()
        ]
        return json.dumps(rows, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    """A value of a cell; None for a number that JSON has not."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _table_of(result: Any) -> pa.Table:
    """The table of a result; refuses a result that has none or several."""
    import pyarrow as pa

    table = result if isinstance(result, pa.Table) else getattr(result, "table", None)
    # A `ResponseTable`, whose module imports this one, or a result that has one.
    for responses in (result, table):
        if hasattr(responses, "item_facets"):
            return long_table(responses)
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
        row, column = cells.row, cells.column
    else:
        observed = True if table.observed is None else table.observed
        row, column = np.nonzero(np.broadcast_to(observed, table.values.shape))
    names = lambda labels, rows: pa.array(labels.tolist(), pa.string()).take(rows)
    columns = {
        "subject": names(table.subjects, row),
        "item": names(table.items, column),
        "response": pa.array(table.seen),
    }
    facets = [(table.item_facets, column), (table.subject_facets, row)]
    for facet, rows in facets:
        for name, labels in facet.items():
            # A facet may have the name of a column.
            columns.setdefault(name, names(labels, rows))
    if table.reversed_scores:
        # A reader must not reverse them again.
        formulas = [table.reversed_scores.get(x, "score") for x in table.items.tolist()]
        if all(_one_each(formulas, table.benchmarks.tolist())):
            columns["metric"] = names(np.array(formulas), column)
    if table.trials is not None:
        columns["trials"] = pa.array(table.trials[row, column])
    if table.has_lengths:
        columns["length"] = pa.array(table.length_cells[row, column], from_pandas=True)
    return pa.table(columns)


def _one_each(formulas: list[str], benchmarks: list[str]) -> list[bool]:
    """Whether each item has the formula of its benchmark's first item."""
    first: dict[str, str] = {}
    pairs = zip(formulas, benchmarks, strict=True)
    return [first.setdefault(name, text) == text for text, name in pairs]
