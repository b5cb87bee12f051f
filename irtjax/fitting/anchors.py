"""Items whose parameters are known: elementwise fixed values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from irtjax.data.item_texts import Contents, refuse_other_contents
from irtjax.data.side_files import read_side_file
from irtjax.likelihood.problem import Start
from irtjax.models.families.graded import CLOSED
from irtjax.models.model import Model

#: A value to fix: one number, or the numbers of a parameter that has several.
Fixed = float | Sequence[float]
Anchor = Mapping[str, Mapping[str, Fixed]] | str | Path | Any
#: What `storage` writes next to the items of a fit.
_CONTENTS = "item_contents.parquet"


def read_anchor(anchor: Anchor) -> dict[str, dict[str, Fixed]]:
    """Fixed values by item and parameter, from a mapping, a file or a data frame.

    A table (a CSV or Parquet file, or a data frame) has a column "item" and any of the
    item parameters' columns, as in the `items.csv` or `items.parquet` of a fit; cells
    left empty stay free. A parameter of several numbers has numbered columns, such as
    "intercept_1" and "intercept_2"; in a mapping it may be a list under "intercept".

    Raises:
        ValueError: If the table has no item column or no parameter column, or a value
            is not a number.
    """
    if isinstance(anchor, Mapping):
        return {str(item): dict(values) for item, values in anchor.items()}
    where = "the anchor table"
    if isinstance(anchor, str | Path):
        where = str(anchor)
        path = Path(anchor)
        if not path.is_file():
            raise ValueError(f"{where}: no such anchor file")
        table = read_side_file(path, where)
    else:
        import narwhals as nw

        table = nw.from_native(anchor, eager_only=True).to_arrow()
    if "item" not in table.column_names:
        raise ValueError(
            f"{where}: no column 'item'; it has {', '.join(table.column_names)}"
        )
    pattern = re.compile(rf"({'|'.join(PARAMETER_COLUMNS)})(_\d+)?")
    cuts = [n for n in table.column_names if re.fullmatch(r"intercept_\d+", n)]
    names = [n for n in table.column_names if pattern.fullmatch(n)]
    if not names:
        raise ValueError(
            f"{where}: no parameter column; use any of {', '.join(PARAMETER_COLUMNS)}"
        )
    result: dict[str, dict[str, Fixed]] = {}
    for number, row in enumerate(table.select(["item", *names]).to_pylist(), 1):
        fixed = result[str(row.pop("item"))] = {}
        some = any(row[name] is not None for name in cuts)
        for name, value in row.items():
            if value is None:
                # The item lacks the category, if it has others.
                fixed |= {name: np.nan} if some and name in cuts else {}
                continue
            if not isinstance(value, int | float) or not np.isfinite(value):
                raise ValueError(
                    f"{where}: row {number}, column {name!r}: {value!r} is no number"
                )
            fixed[name] = float(value)
    return result


def refuse_other_anchors(
    anchor: Anchor, anchored: Mapping[str, Any], contents: Contents
) -> None:
    """Refuses anchored items that are others than those of the same names in the data.

    Args:
        anchor: The anchors; those of a table in the folder of a fit have contents.
        anchored: What `read_anchor` returned for them.
        contents: Hashes of the items of the data.

    Raises:
        ValueError: An item has another content, or the table of contents is damaged.
    """
    if not isinstance(anchor, str | Path) or not contents:
        return
    path = Path(anchor).with_name(_CONTENTS)
    if not path.is_file():
        return
    table = read_side_file(path, str(path))
    if not {"item", "content"} <= set(table.column_names):
        raise ValueError(f"{path}: no columns 'item' and 'content': run the fit again")
    rows = table.select(["item", "content"]).to_pylist()
    recorded = {str(x["item"]): str(x["content"]) for x in rows}
    recorded = {name: content for name, content in recorded.items() if name in anchored}
    refuse_other_contents(contents, recorded, f"the fit of {anchor}")


PARAMETER_COLUMNS = (
    "discrimination",
    "intercept",
    "difficulty",
    "lower_asymptote",
    "upper_asymptote",
    "dispersion",
    "lower_cut",
    "upper_cut",
    "scoring",
    "offset",
    "spacing",
)


def apply_anchor(
    model: Model, start: Start, names: np.ndarray, anchor: dict[str, dict[str, Fixed]]
) -> tuple[Start, jnp.ndarray]:
    """Start values with the fixed values in place, and the mask of what stays free.

    `names` are those of the items. A difficulty fixes the intercept -a * difficulty and
    needs the discrimination fixed too, unless the model has none.

    Raises:
        ValueError: If no anchored item is in the data, a parameter is not of this
            model, or a value is outside its range or has another number of parts.
    """
    index = {name: position for position, name in enumerate(names)}
    shared = [item for item in anchor if item in index]
    if not shared:
        raise ValueError(
            f"none of the {len(anchor)} anchored items is in the data; item names there"
            f" look like {str(names[0])!r}"
        )
    fields = {name: np.array(value) for name, value in start.items._asdict().items()}
    columns, first = {}, 0
    for parameter in model.family.parameters:
        columns[parameter.name] = slice(first, first + parameter.columns)
        first += parameter.columns
    free = np.array(model.family.free_columns(len(names)))
    for item in shared:
        for name, value in _checked(model, item, dict(anchor[item])).items():
            if name in columns:
                fields[name][index[item]] = value
                free[index[item], columns[name]] = False
    items = type(start.items)(**{k: jnp.asarray(v) for k, v in fields.items()})
    return start._replace(items=items), jnp.asarray(free)


def _checked(model: Model, item: str, values: dict[str, Any]) -> dict[str, Any]:
    """Values of an item that the model can take, a difficulty made an intercept."""
    where = f"anchor of item {item!r}:"
    _join_numbered(model, where, values)
    if "difficulty" in values:
        difficulty = values.pop("difficulty")
        if "intercept" not in values:
            if "discrimination" not in values and model.family.has_slope:
                raise ValueError(f"{where} a difficulty requires a discrimination")
            slope = _numbers(where, "discrimination", values.get("discrimination", 1.0))
            values["intercept"] = -slope * _numbers(where, "difficulty", difficulty)
    for name, value in values.items():
        _check_range(model, where, name, value)
    if ("lower_cut" in values) != ("upper_cut" in values):
        raise ValueError(f"{where} fix both cuts, or neither")
    limits = {"lower_asymptote": 0, "upper_asymptote": 1, **values}
    for kind in ("asymptote", "cut"):
        lower, upper = f"lower_{kind}", f"upper_{kind}"
        if lower in limits and not limits[lower] < limits[upper]:
            raise ValueError(
                f"{where} {lower} {limits[lower]:g} is not below {upper}"
                f" {limits[upper]:g}"
            )
    return values


def _join_numbered(model: Model, where: str, values: dict[str, Any]) -> None:
    """Makes one value of intercept_1, intercept_2 and so on.

    It replaces an "intercept", which is their mean in the table of a fit.
    """
    sizes = {parameter.name: parameter.size for parameter in model.family.parameters}
    sizes["difficulty"] = sizes.get("intercept", 0)
    for name, size in sizes.items():
        numbered = [f"{name}_{k + 1}" for k in range(size)]
        numbers = [values.pop(column) for column in numbered if column in values]
        if name == "intercept" and np.isnan(numbers).any():
            numbers = _closed(model, numbers)
        if name == "difficulty" and "intercept" in values:
            continue
        if 0 < len(numbers) < size:
            raise ValueError(f"{where} fix all of {', '.join(numbered)}, or none")
        if numbers:
            values[name] = numbers


def _closed(model: Model, numbers: list[float]) -> list[float]:
    """Marks of the categories that an item lacks; none for models without them."""
    if not model.family.closable:
        return [value for value in numbers if not np.isnan(value)]
    first = int(np.argmin(np.isnan(numbers)))
    marks = [CLOSED if k < first else -CLOSED for k in range(len(numbers))]
    pairs = zip(numbers, marks, strict=True)
    return [mark if np.isnan(value) else value for value, mark in pairs]


def _numbers(where: str, name: str, value: Any) -> np.ndarray:
    """A value of an anchor as numbers; refuses any other value."""
    try:
        numbers = np.asarray(np.nan if isinstance(value, str) else value, float)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if not np.isfinite(numbers).all():
        raise ValueError(f"{where} {name} {value!r} is no number")
    return numbers


def _check_range(model: Model, where: str, name: str, value: Any) -> None:
    """Refuses a fixed value that the model does not have."""
    numbers, family = _numbers(where, name, value), model.family
    # Slopes of 1 of models in which no discrimination can be fixed.
    constant = {"lower_asymptote": 0.0, "upper_asymptote": 1.0}
    constant |= {} if family.has_slope else {"discrimination": 1.0}
    estimated = {parameter.name: parameter for parameter in family.parameters}
    if name not in estimated:
        if name in constant and (numbers == constant[name]).all():
            return
        raise ValueError(
            f"{where} a {model.name} model has no {name} to fix at {value}; fit a"
            " model that has one"
        )
    _, bijection, size = estimated[name]
    if numbers.size != max(size, 1) or (numbers.ndim and not size):
        wanted = f"a list of {size} numbers" if size else "one number"
        raise ValueError(
            f"{where} {name} {value} does not suit this {model.name} model: give"
            f" {wanted}"
        )
    if bijection.kind == "unit" and not np.all((numbers >= 0) & (numbers <= 1)):
        raise ValueError(f"{where} {name} {value} is not in [0, 1]")
    if bijection.kind == "positive" and name != "upper_cut" and np.any(numbers <= 0):
        raise ValueError(f"{where} {name} {value} is not positive")
    rest = numbers[np.abs(numbers) < CLOSED] if numbers.ndim else numbers
    if name in family.decreasing and np.any(np.diff(rest) >= 0):
        raise ValueError(
            f"{where} {name} {value} must decrease from category to category in a"
            f" {model.name} model"
        )
