"""The table of items in `report.html`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.data.wording import are, counted
from irtjax.report.page_data import Sources, column, labels, labels_of_benchmarks
from irtjax.report.summary import constant_items, constant_sentence
from irtjax.report.words import number

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

#: Rows that stand in the page without its script.
ITEM_ROWS = 20
#: Subjects and items from which on items are drawn by difficulty and discrimination:
#: errors of fewer are as large as the cloud.
CLOUD, CLOUD_ITEMS = 20, 10


def item_rows(
    table: Any, places: np.ndarray, flags: Sequence[str], names: Sequence[str]
) -> list[dict[str, Any]]:
    """The first rows of a table of items, as text."""
    columns = {
        name: column(table, name)
        for of in ("difficulty", "discrimination", "accuracy")
        for name in (of, f"{of}_se")
    }
    benchmarks = labels_of_benchmarks(table)
    observed = table["observed"].to_pylist()
    rows = []
    for k in places[:ITEM_ROWS].tolist():
        row = {"name": names[k], "benchmark": benchmarks[k], "flags": flags[k]}
        row["observed"] = f"{observed[k]:,}"
        row["accuracy"] = number(float(columns["accuracy"][k]), 3)
        for name in ("difficulty", "discrimination"):
            error = float(columns[f"{name}_se"][k])
            row[name] = number(float(columns[name][k]))
            row[f"{name}_error"] = f"± {number(error)}" if math.isfinite(error) else ""
        rows.append(row)
    return rows


def has_cloud(fit: Calibration) -> bool:
    """Whether a fit has enough subjects and items for a figure of its items."""
    return len(fit.subject_names) >= CLOUD and len(fit.item_names) >= CLOUD_ITEMS


def item_table(of: Sources, flags: list[str], places: np.ndarray) -> dict[str, Any]:
    """The table of items, its first rows, and what the figure is."""
    fit, table = of.fit, of.fit.items.table
    names = labels(fit.item_names)
    rows = item_rows(table, places, flags, names)
    note = "Choose an item for its response curve."
    if has_cloud(fit):
        note = "Choose an item, or a dot of the figure, for its response curve."
    if fit.model.several:
        note += (
            " Items have several discriminations: shown is that in the steepest"
            " direction, and the difficulty along it."
        )
    constant = constant_sentence(constant_items(fit), len(fit.item_names))
    left = [constant] if constant else []
    if len(places) < len(flags):
        left.append(
            f"{len(places):,} of {counted(len(flags), 'item')} {are(len(places))}"
            " shown, the flagged ones and an even sample of the others; items.csv has"
            " all."
        )
    return {
        "heading": "Items",
        "caption": f"{counted(len(places), 'item')}, estimates ± standard errors",
        "cloud": has_cloud(fit),
        "rows": rows,
        "accuracies": True,
        "observed": len({*table["observed"].to_pylist()}) > 1,
        "flags": any(flags),
        "task": fit.nouns[1],
        "benchmarks": len({*labels_of_benchmarks(table)}) > 1,
        "note": " ".join([note, *left]),
    }
