"""Tables in one JSON object, as pandas and Weights & Biases write them.

``DataFrame.to_json`` writes by default an object of columns, each by row number; with
``orient`` the columns and a list of rows, or the rows by number. Tables of Weights &
Biases are columns and a list of rows, too.
"""

from __future__ import annotations

from typing import Any


def is_table(whole: dict[str, Any]) -> bool:
    """Whether an object is a table of several columns."""
    return bool(_split(whole) or _by_schema(whole) or _lists(whole) or _numbered(whole))


def rows_of(whole: dict[str, Any], place: str) -> list[dict[str, Any]]:
    """The rows of a table; none if the object is not one.

    Raises:
        ValueError: Two columns have one name, or a row lacks cells.

    >>> rows_of({"columns": ["a", "b"], "data": [[1, 2]]}, "t.json")
    [{'a': 1, 'b': 2}]
    >>> rows_of({"a": {"0": 1, "1": 3}, "b": {"0": 2}}, "t.json")
    [{'a': 1, 'b': 2}, {'a': 3, 'b': None}]
    """
    if _split(whole):
        names = list(map(str, whole["columns"]))
        twice = next((x for k, x in enumerate(names) if x in names[:k]), None)
        if twice is not None:
            raise ValueError(
                f"{place}: two columns have the name {twice!r:.80}; rename one"
            )
        for number, row in enumerate(whole["data"], 1):
            if not isinstance(row, list) or len(row) != len(names):
                raise ValueError(
                    f"{place}: row {number} of data has not {len(names)} cells, as"
                    " columns has; correct it"
                )
        return [dict(zip(names, row, strict=True)) for row in whole["data"]]
    if _by_schema(whole):
        return whole["data"]
    if _lists(whole):
        columns = zip(*whole.values(), strict=True)
        return [dict(zip(whole, row, strict=True)) for row in columns]
    if not _numbered(whole):
        return []
    if all(map(str.isdecimal, whole)):
        return list(whole.values())
    numbers = dict.fromkeys(number for cells in whole.values() for number in cells)
    return [{name: whole[name].get(k) for name in whole} for k in numbers]


def _split(whole: dict[str, Any]) -> bool:
    """Whether an object has columns, and data in lists."""
    columns, data = whole.get("columns"), whole.get("data")
    return (
        isinstance(columns, list)
        and len(columns) > 1
        and isinstance(data, list)
        and any(isinstance(row, list) for row in data)
    )


def _by_schema(whole: dict[str, Any]) -> bool:
    """Whether an object has rows, and a schema of them."""
    data = whole.get("data")
    is_rows = isinstance(data, list) and all(isinstance(row, dict) for row in data)
    return is_rows and bool(data) and isinstance(whole.get("schema"), dict)


def _lists(whole: dict[str, Any]) -> bool:
    """Whether an object is of columns, which are equally long lists."""
    columns = list(whole.values())
    if len(columns) < 2 or not all(isinstance(x, list) for x in columns):
        return False
    return len({len(x) for x in columns}) == 1 and len(columns[0]) > 1


def _numbered(whole: dict[str, Any]) -> bool:
    """Whether an object is of columns by row number, or of rows by number."""
    parts = list(whole.values())
    if len(parts) < 2 or not all(isinstance(x, dict) and x for x in parts):
        return False
    if all(map(str.isdecimal, whole)):
        return True
    return all(all(map(str.isdecimal, x)) for x in parts)
