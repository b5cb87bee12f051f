"""Items whose parameters are known: elementwise fixed values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from irtjax.likelihood.problem import Start
from irtjax.models.model import Model

Anchor = Mapping[str, Mapping[str, float]] | str | Path | Any


def read_anchor(anchor: Anchor) -> dict[str, dict[str, float]]:
    """Fixed values by item and parameter, from a mapping, a file or a data frame.

    A table has a column "item" and any of the item parameters' columns, as in the
    `items.csv` or `items.parquet` that a fit writes; cells left empty stay free.

    Args:
        anchor: Mapping of item name to parameter name to value, a data frame, or the
            path of a CSV or Parquet file.

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
        if path.suffix == ".parquet":
            from pyarrow import parquet

            table = parquet.read_table(path)
        else:
            from pyarrow import csv

            table = csv.read_csv(path)
    else:
        import narwhals as nw

        table = nw.from_native(anchor, eager_only=True).to_arrow()
    if "item" not in table.column_names:
        raise ValueError(
            f"{where}: no column 'item'; it has {', '.join(table.column_names)}"
        )
    names = [n for n in table.column_names if n in PARAMETER_COLUMNS]
    if not names:
        raise ValueError(
            f"{where}: no parameter column; use any of {', '.join(PARAMETER_COLUMNS)}"
        )
    items = [str(item) for item in table.column("item").to_pylist()]
    columns = {name: table.column(name).to_pylist() for name in names}
    result: dict[str, dict[str, float]] = {}
    for row, item in enumerate(items):
        fixed = {}
        for name in names:
            value = columns[name][row]
            if value is None:
                continue
            if isinstance(value, str) or not np.isfinite(value):
                raise ValueError(
                    f"{where}: row {row + 1}, column {name!r}: {value!r} is no number"
                )
            fixed[name] = float(value)
        result[item] = fixed
    return result


PARAMETER_COLUMNS = (
    "discrimination",
    "intercept",
    "difficulty",
    "lower_asymptote",
    "upper_asymptote",
    "dispersion",
    "lower_cut",
    "upper_cut",
)


def apply_anchor(
    model: Model, start: Start, names: np.ndarray, anchor: dict[str, dict[str, float]]
) -> tuple[Start, jnp.ndarray]:
    """Start values that hold the fixed values, and the mask of what stays free.

    Args:
        model: The model.
        start: Start values of every item.
        names: Item names, `[items]`.
        anchor: See `read_anchor`. A difficulty fixes the intercept -a * difficulty
            and needs the discrimination fixed too, unless the model has none.

    Raises:
        ValueError: If no anchored item is in the data, a parameter is not of this
            model, or a value is outside its range.
    """
    index = {name: position for position, name in enumerate(names)}
    shared = [item for item in anchor if item in index]
    if not shared:
        raise ValueError(
            f"none of the {len(anchor)} anchored items is in the data; item names there"
            f" look like {str(names[0])!r}"
        )
    fields = {
        field: np.array(getattr(start.items, field)) for field in start.items._fields
    }
    fixed = {field: np.zeros(len(names), bool) for field in fields}
    estimated = {parameter.name for parameter in model.family.parameters}
    for item in shared:
        values = dict(anchor[item])
        if "difficulty" in values:
            difficulty = values.pop("difficulty")
            if "intercept" not in values:
                slope = values.get("discrimination", 1.0)
                if "discrimination" not in values and model.family.has_slope:
                    raise ValueError(
                        f"anchor of item {item!r}: a difficulty needs a discrimination"
                        " beside it"
                    )
                values["intercept"] = -slope * difficulty
        for name, value in values.items():
            _check_range(model, item, name, value)
        lower, upper = (
            values.get("lower_asymptote", 0),
            values.get("upper_asymptote", 1),
        )
        if lower >= upper:
            raise ValueError(
                f"anchor of item {item!r}: lower_asymptote {lower:g} is not below"
                f" upper_asymptote {upper:g}"
            )
        if ("lower_cut" in values) != ("upper_cut" in values):
            raise ValueError(f"anchor of item {item!r}: fix both cuts, or neither")
        if "lower_cut" in values and not values["lower_cut"] < values["upper_cut"]:
            raise ValueError(
                f"anchor of item {item!r}: lower_cut {values['lower_cut']:g} is not"
                f" below upper_cut {values['upper_cut']:g}"
            )
        for name, value in values.items():
            if name in estimated:
                fields[name][index[item]] = value
                fixed[name][index[item]] = True
    free = np.array(model.family.free_columns(len(names)))
    column = 0
    for parameter in model.family.parameters:
        free[fixed[parameter.name], column : column + parameter.columns] = False
        column += parameter.columns
    items = type(start.items)(**{k: jnp.asarray(v) for k, v in fields.items()})
    return start._replace(items=items), jnp.asarray(free)


def _check_range(model: Model, item: str, name: str, value: float) -> None:
    if isinstance(value, str) or not np.isfinite(value):
        raise ValueError(f"anchor of item {item!r}: {name} {value!r} is no number")
    family = model.family
    constant = {"lower_asymptote": 0.0, "upper_asymptote": 1.0}
    estimated = {parameter.name: parameter for parameter in family.parameters}
    if name not in estimated:
        if name in constant and value == constant[name]:
            return
        if name == "discrimination" and not family.has_slope:
            return
        raise ValueError(
            f"anchor of item {item!r}: a {model.name} model has no {name} to fix at"
            f" {value:g}; fit a model that has one"
        )
    kind = estimated[name].bijection.kind
    if kind == "unit" and not 0 <= value <= 1:
        raise ValueError(f"anchor of item {item!r}: {name} {value:g} is not in [0, 1]")
    if kind == "positive" and value <= 0 and name != "upper_cut":
        raise ValueError(f"anchor of item {item!r}: {name} {value:g} is not positive")
