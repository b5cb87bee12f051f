"""Side tables: labels and numbers of items, numbers of subjects."""

from __future__ import annotations

import dataclasses
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.data import ResponseTable


@dataclasses.dataclass(frozen=True)
class SideTable:
    """Rows of a file in the order of the names they belong to.

    Attributes:
        option: The option that named the file, for messages.
        path: The file.
        names: What the rows are of.
        content: The rows.
    """

    option: str
    path: Path
    names: list[str]
    content: pa.Table

    @classmethod
    def read(cls, option: str, path: Path, key: str, names: np.ndarray) -> SideTable:
        """Reads a CSV or Parquet file and finds the row of each name in it.

        Args:
            option: The option that named the file.
            path: The file.
            key: Its column of names.
            names: The names wanted.

        Raises:
            ValueError: If it cannot be read, or a name has no row or several.
        """
        import pyarrow

        content = read_content(option, path)
        _check_column(option, path, content, key)
        keys = [str(name) for name in content[key].to_pylist()]
        row = {name: k for k, name in enumerate(keys)}
        wanted = names.tolist()
        lacking = [name for name in wanted if name not in row]
        if lacking:
            raise ValueError(
                f"{option} {path} has no row for {key} {lacking[0]!r}"
                f" ({len(lacking):,} of {len(wanted):,} are missing)"
            )
        if len(row) < len(keys):
            twice = next(n for k, n in enumerate(keys) if row[n] != k)
            raise ValueError(f"{option} {path} has two rows for {key} {twice!r}")
        content = content.take(pyarrow.array([row[name] for name in wanted]))
        return cls(option, path, wanted, content)

    def has(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self.content.column_names

    def labels(self, name: str) -> np.ndarray:
        """Returns a column as text, `[names]`; what is missing there is a label too.

        Raises:
            ValueError: If there is no such column.
        """
        _check_column(self.option, self.path, self.content, name)
        return np.asarray([str(x) for x in self.content[name].to_pylist()])

    def numbers(self, name: str) -> np.ndarray:
        """Returns a column as numbers, `[names]`.

        Raises:
            ValueError: If there is no such column, or a row has no finite number.
        """
        _check_column(self.option, self.path, self.content, name)
        found = []
        for value, of in zip(self.content[name].to_pylist(), self.names, strict=True):
            where = f"{self.option} {self.path}: column {name!r}, {of!r}"
            if value is None or value == "":
                raise ValueError(
                    f"{where}: no value; give one, or leave the column out"
                )
            try:
                number = float(value)
            except (TypeError, ValueError):
                raise ValueError(
                    f"{where}: {value!r} is not a number; code labels as 0 and 1"
                ) from None
            if not np.isfinite(number):
                raise ValueError(f"{where}: {value!r} is not a finite number")
            found.append(number)
        return np.asarray(found)

    def matrix(self, patterns: tuple[str, ...]) -> np.ndarray:
        """Returns columns of numbers, `[names, columns]`; "emb_*" is all of that form.

        Raises:
            ValueError: If there is no such column, or a row has no finite number.
        """
        chosen = []
        for pattern in patterns:
            names = self.content.column_names
            found = [pattern]
            if pattern not in names:
                found = [x for x in names if fnmatchcase(x, pattern)]
            if not found:
                _check_column(self.option, self.path, self.content, pattern)
            chosen += [name for name in found if name not in chosen]
        return np.stack([self.numbers(name) for name in chosen], axis=1)


def read_content(option: str, path: Path) -> pa.Table:
    """Returns the rows of a CSV or Parquet file.

    Raises:
        ValueError: If it cannot be read.
    """
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if path.suffix == ".parquet":
            return pyarrow.parquet.read_table(path)
        return pyarrow.csv.read_csv(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise ValueError(f"{option} {path}: cannot read it: {error}") from None


def _check_column(option: str, path: Path, content: Any, name: str) -> None:
    if name not in content.column_names:
        raise ValueError(
            f"{option} {path} has no column {name!r}; it has"
            f" {', '.join(content.column_names)}"
        )


def structure_options(
    table: ResponseTable,
    *,
    levels: tuple[str, ...] = (),
    share_items: str | None = None,
    item_table: Path | None = None,
    item_covariates: tuple[str, ...] = (),
    item_features: tuple[str, ...] = (),
    subject_table: Path | None = None,
    subject_covariates: tuple[str, ...] = (),
) -> tuple[ResponseTable, dict[str, Any]]:
    """The responses with the labels of their items, and the options of `irtjax.fit`.

    Args:
        table: The responses.
        levels: Levels of items; "a/b" is b within a.
        share_items: The label that names what items measure.
        item_table: Table of the items, for labels and covariates.
        item_covariates: Columns of it.
        item_features: Columns of it that stand for items in twin networks.
        subject_table: Table of the subjects.
        subject_covariates: Columns of it.

    Raises:
        ValueError: If a table is not there, or lacks a column.
    """
    for columns, path, kind, what in (
        (item_covariates, item_table, "item", "covariates"),
        (item_features, item_table, "item", "features"),
        (subject_covariates, subject_table, "subject", "covariates"),
    ):
        if columns and path is None:
            raise ValueError(
                f"--{kind}-{what} are columns of a table: name it with --{kind}-table"
            )
    options: dict[str, Any] = {"levels": levels, "shared_items": share_items}
    if item_table is not None:
        side = SideTable.read("--item-table", item_table, "item", table.items)
        wanted = [part for level in levels for part in level.split("/")]
        wanted += [share_items] if share_items else []
        # "benchmark" and the like are known from reading.
        found = {
            name: side.labels(name)
            for name in wanted
            if side.has(name) or name not in {*table.item_facets, "benchmark", "stem"}
        }
        facets = {**table.item_facets, **found}
        table = dataclasses.replace(table, item_facets=facets)
        if item_covariates:
            columns = {name: side.numbers(name) for name in item_covariates}
            options["item_covariates"] = columns
        if item_features:
            options["item_features"] = side.matrix(item_features)
    if subject_table is not None:
        side = SideTable.read(
            "--subject-table", subject_table, "subject", table.subjects
        )
        if subject_covariates:
            columns = {name: side.numbers(name) for name in subject_covariates}
            options["subject_covariates"] = columns
    return table, options
