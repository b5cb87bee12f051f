"""Side tables: labels and numbers of items, numbers of subjects."""

from __future__ import annotations

import dataclasses
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.data.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.data import ResponseTable


#: Endings of files whose columns are read for `--family` and `--cluster`.
_FLAT = (".csv", ".parquet")


@dataclasses.dataclass(frozen=True)
class SideTable:
    """Rows of a file in the order of `names`; `option` named it, for messages.

    Rows of other names are left out; `left` counts them.
    """

    option: str
    path: Path
    names: list[str]
    content: pa.Table
    left: int = 0

    @classmethod
    def read(
        cls, option: str, path: Path, key: str, names: np.ndarray, every: bool = True
    ) -> SideTable:
        """Reads a CSV or Parquet file: the one row of each name in the column `key`.

        Without such a column names are in that with most of them, such as model.
        Unless `every` name needs a row, those without one are left out.
        """
        import pyarrow

        content = read_content(option, path)
        columns = content.column_names
        again = next((x for x in columns if columns.count(x) > 1), None)
        if again is not None:
            raise ValueError(
                f"{option} {path} has two columns {again!r}: name them apart"
            )
        content = with_names(option, path, content, key, names)
        keys = [str(name) for name in column(option, path, content, key)]
        row = {name: k for k, name in enumerate(keys)}
        wanted = names.tolist()
        lacking = [name for name in wanted if name not in row]
        if not every and len(lacking) < len(wanted):
            wanted = [name for name in wanted if name in row]
        elif lacking:
            raise ValueError(
                f"{option} {path} has no row for {key} {lacking[0]!r} ({len(lacking):,}"
                f" of {len(wanted):,} are missing): give each {key} one"
            )
        if len(row) < len(keys):
            twice = next(n for k, n in enumerate(keys) if row[n] != k)
            raise ValueError(f"{option} {path} has two rows for {key} {twice!r}")
        content = content.take(pyarrow.array([row[name] for name in wanted]))
        return cls(option, path, wanted, content, len(row) - len(wanted))

    def noted(self, table: ResponseTable) -> ResponseTable:
        """The responses with a note of the rows left out, if there are any."""
        if not self.left:
            return table
        note = (
            f"{counted(self.left, 'row')} of {self.option} {self.path}: no such item in"
            " the responses, left out"
        )
        return table.replace(notes=(*table.notes, note))

    def has(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self.content.column_names

    def others(self, key: str) -> list[str]:
        """The columns other than that of names."""
        return [name for name in self.content.column_names if name != key]

    def labels(self, name: str) -> np.ndarray:
        """Returns a column as text, `[names]`, "" where it is missing."""
        return np.asarray([_text(x) for x in self._column(name)])

    def _column(self, name: str) -> list[Any]:
        return column(self.option, self.path, self.content, name)

    def numbers(self, name: str, empty: bool = False) -> np.ndarray:
        """Returns a column as finite numbers, `[names]`; NaN where it may be empty.

        Dates are days.
        """
        from irtjax.data.features import numbers_or_days

        cells, names = self._column(name), np.asarray(self.names)
        place = f"{self.option} {self.path}: column {name!r}"
        has_value = np.array([x is not None and x != "" for x in cells], bool)
        if not (has_value.all() or empty):
            first = str(names[~has_value][0])
            raise ValueError(
                f"{place}, {first!r}: no value; give one, or leave the column out"
            )
        some = [x for x, has in zip(cells, has_value, strict=True) if has]
        numbers = numbers_or_days(some, names[has_value], place)
        if numbers is None:
            raise ValueError(
                f"{place}, {str(names[has_value][0])!r}: {str(some[0])!r} is not a"
                " number; code labels as 0 and 1"
            )
        values = np.full(len(cells), np.nan)
        values[has_value] = numbers
        return values

    def features(self, patterns: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Columns of numbers by name, `[names]`; "emb_*" is all of that form."""
        chosen: dict[str, np.ndarray] = {}
        for pattern in patterns:
            matches = [x for x in self.content.column_names if fnmatchcase(x, pattern)]
            # A name as it is comes first; one that matches no column is refused below.
            for name in [pattern] if self.has(pattern) or not matches else matches:
                chosen[name] = self.numbers(name)
        return chosen


def read_content(option: str, path: Path) -> pa.Table:
    """Returns the rows of a CSV or Parquet file."""
    from irtjax.data.side_files import read_side_file

    return read_side_file(path, f"{option} {path}")


def with_names(
    option: str, path: Path, content: pa.Table, key: str, names: np.ndarray
) -> pa.Table:
    """The table with the column of names called `key`."""
    columns = content.column_names
    if key in columns:
        return content
    wanted = set(names.tolist())
    present = [len(wanted.intersection(map(_text, x.to_pylist()))) for x in content]
    most = max(present, default=0)
    if not most:
        raise ValueError(
            f"{option} {path} has no column {key!r}, nor one with names such as"
            f" {str(names[0])!r}; it has {', '.join(columns)}"
        )
    place = present.index(most)
    return content.rename_columns([*columns[:place], key, *columns[place + 1 :]])


def column(option: str, path: Path, content: pa.Table, name: str) -> list[Any]:
    """Returns the cells of a column."""
    if name not in content.column_names:
        raise ValueError(
            f"{option} {path} has no column {name!r}; it has"
            f" {', '.join(content.column_names)}"
        )
    return content[name].to_pylist()


def with_groups(
    table: ResponseTable,
    option: str,
    name: str,
    path: Path | None,
    kind: str,
    flag: str = "",
) -> ResponseTable:
    """The table with the column of `--family` or the like as a facet.

    `path` is the value of the option `flag`, --subject-table or --item-table.
    """
    flag = flag or f"--{kind}-table"
    field, names = f"{kind}_facets", getattr(table, f"{kind}s")
    facets = getattr(table, field)
    labels = None
    if path is not None:
        side = SideTable.read(flag, path, kind, names)
        if side.has(name) or name not in facets:
            labels = side.labels(name)
    elif name not in facets:
        labels = _labels_in_files(table, f"--{option}", name, names)
    if labels is not None:
        return table.replace(**{field: {**facets, name: labels}})
    if name in facets:
        return table
    raise ValueError(
        f"--{option} {name}: no such column; give a table with the columns {kind} and"
        f" {name}, a row for each {kind}: {flag} FILE --{option} {name}"
    )


def _labels_in_files(
    table: ResponseTable, option: str, name: str, names: np.ndarray
) -> np.ndarray | None:
    """Labels in a column of the files that were read, or None.

    The names of subjects or items are in the first column that has some of them in
    each of its rows.
    """
    wanted, labels = set(names.tolist()), {}
    for source in table.sources:
        path = Path(source)
        if path.suffix.lower() not in _FLAT or not path.is_file():
            continue
        content = read_content(option, path)
        if name not in content.column_names:
            continue
        values = [_text(x) for x in content[name].to_pylist()]
        for other in content.column_names:
            keys = [_text(x) for x in content[other].to_pylist()]
            if other == name or not keys or not wanted.issuperset(keys):
                continue
            for key, value in zip(keys, values, strict=True):
                if labels.setdefault(key, value) != value:
                    raise ValueError(
                        f"{option} {name}: {path} has two values for {key!r},"
                        f" {labels[key]!r} and {value!r}; give each one"
                    )
            break
    if len(labels) < len(wanted):
        return None
    return np.array([labels[x] for x in names.tolist()])


def _text(value: Any) -> str:
    return "" if value is None else str(value)


@dataclasses.dataclass(frozen=True)
class StructureOptions:
    """The options of `irtjax fit` that name side tables, their columns and facets."""

    facets: tuple[str, ...] = ()
    shared_items: str | None = None
    item_table: Path | None = None
    item_covariates: tuple[str, ...] = ()
    item_features: tuple[str, ...] = ()
    subject_table: Path | None = None
    subject_covariates: tuple[str, ...] = ()
    loadings: Path | None = None
    target: Path | None = None
    family: str | None = None
    cluster: str | None = None
    groups: str | None = None
    free_by_group: str | None = None

    def __post_init__(self) -> None:
        for columns, path, kind, what in (
            (self.item_covariates, self.item_table, "item", "covariates"),
            (self.item_features, self.item_table, "item", "features"),
            (self.subject_covariates, self.subject_table, "subject", "covariates"),
        ):
            if columns and path is None:
                raise ValueError(
                    f"--{kind}-{what} are columns of a table: name it with"
                    f" --{kind}-table"
                )

    def read(self, table: ResponseTable) -> tuple[ResponseTable, dict[str, Any]]:
        """Returns responses with labels, and the settings of `irtjax.fit`."""
        settings: dict[str, Any] = {
            "facets": self.facets,
            "shared_items": self.shared_items,
        }
        for name, column_name, path, kind in (
            ("family", self.family, self.subject_table, "subject"),
            ("cluster", self.cluster, self.item_table, "item"),
            ("groups", self.groups, self.subject_table, "subject"),
        ):
            if column_name is not None:
                table = with_groups(table, name, column_name, path, kind)
                settings[name] = column_name
                if name == "groups":
                    table = _with_quarters(table, column_name)
        if self.free_by_group is not None:
            settings["free_by_group"] = _read_free_by_group(self.free_by_group)
        if self.item_table is not None:
            table = self._read_items(table, self.item_table, settings)
        if self.loadings is not None:
            table, settings["loadings"] = _read_loadings(table, self.loadings)
        if self.target is not None:
            table, settings["target"] = _read_target(table, self.target)
        if self.subject_table is not None:
            side = SideTable.read(
                "--subject-table", self.subject_table, "subject", table.subjects
            )
            covariates = {x: side.numbers(x) for x in self.subject_covariates}
            settings["subject_covariates"] = covariates
        return table, settings

    def _read_items(
        self, table: ResponseTable, path: Path, settings: dict[str, Any]
    ) -> ResponseTable:
        """The responses with facets of the item table, whose numbers are settings."""
        side = SideTable.read("--item-table", path, "item", table.items)
        facets = [part for facet in self.facets for part in facet.split("/")]
        facets += [self.shared_items] if self.shared_items else []
        # "benchmark" and the like are known from reading.
        labels = {
            name: side.labels(name)
            for name in facets
            if side.has(name) or name not in {*table.item_facets, "benchmark", "stem"}
        }
        if self.item_covariates:
            covariates = {x: side.numbers(x) for x in self.item_covariates}
            settings["item_covariates"] = covariates
        if self.item_features:
            settings["item_features"] = side.features(self.item_features)
        return table.replace(item_facets={**table.item_facets, **labels})


def _with_quarters(table: ResponseTable, name: str) -> ResponseTable:
    """Groups of subjects by quarters of a column of numbers or dates, as of DIF."""
    from irtjax.validity.subject_groups import numbers_of, quarters_of

    labels = table.subject_facets[name]
    numbers = numbers_of(labels, table.subjects, f"--groups {name}")
    if numbers is None:
        return table
    groups = quarters_of(numbers)
    names, order = np.asarray(groups.names), np.argsort(numbers, kind="stable")
    first = np.unique(groups.codes[order], return_index=True)[1]
    last = [*first[1:], len(order)]
    ranges = [
        f"{text} {labels[order[low]]} to {labels[order[high - 1]]}"
        for text, low, high in zip(groups.names, first, last, strict=True)
    ]
    note = f"groups by {name}: {', '.join(ranges)}"
    facets = {**table.subject_facets, name: names[groups.codes]}
    return table.replace(subject_facets=facets, notes=(*table.notes, note))


def _read_free_by_group(text: str) -> list[str] | dict[str, list[str]]:
    """Names of parameters, of all items, or by item where a file is named."""
    path, option = Path(text), "--free-by-group"
    if path.suffix.lower() not in _FLAT:
        return [part.strip() for part in text.split(",") if part.strip()]
    content, by_item = read_content(option, path), {}
    items, parameters = (
        column(option, path, content, x) for x in ("item", "parameter")
    )
    for item, parameter in zip(items, parameters, strict=True):
        by_item.setdefault(str(item), []).append(str(parameter))
    return by_item


def _read_loadings(
    table: ResponseTable, path: Path
) -> tuple[ResponseTable, dict[str, list[str]]]:
    """The responses with a note of rows left out, and the factors of each item."""
    side = SideTable.read("--loadings", path, "item", table.items)
    columns = side.others("item")
    if not columns:
        raise ValueError(
            f"--loadings {path} has no factor: give each a column, 1 where an item"
            " measures it"
        )
    table = side.noted(table)
    mask = np.stack([side.numbers(name) for name in columns], axis=1) != 0
    empty = [name for name, one in zip(columns, mask.T, strict=True) if one.sum() == 0]
    if empty:
        raise ValueError(
            f"--loadings {path}: {empty[0]} has 0 items: a factor needs at least 3, or"
            " no column"
        )
    return table, {
        item: [name for name, one in zip(columns, row, strict=True) if one]
        for item, row in zip(table.items.tolist(), mask, strict=True)
    }


def _read_target(
    table: ResponseTable, path: Path
) -> tuple[ResponseTable, dict[str, dict[str, float]]]:
    """The responses with a note of rows left out, and loadings by item and factor."""
    side = SideTable.read("--target", path, "item", table.items, every=False)
    table = side.noted(table)
    factors = side.others("item")
    if len(factors) < 2:
        raise ValueError(
            f"--target {path} has fewer than two factors: give each a column"
        )
    columns = {name: side.numbers(name, empty=True) for name in factors}
    return table, {
        item: {name: values[k] for name, values in columns.items()}
        for k, item in enumerate(side.names)
    }
