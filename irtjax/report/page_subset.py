"""`report.html` of a subset: its items with weights and curves, errors to expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.data.wording import NOUNS, are, counted, percent
from irtjax.report import page_data
from irtjax.report.page_data import labels
from irtjax.report.page_figures import scale_of
from irtjax.report.page_html import SENTENCE, now, render, version_of_irtjax
from irtjax.report.page_items import item_rows
from irtjax.report.words import number, short, worded

if TYPE_CHECKING:
    from irtjax.subsets.errors import SubsetErrors
    from irtjax.subsets.subset import Shrunken

#: Chosen items in the section of a page.
CHOSEN = 100


def subset_page(
    small: Shrunken,
    errors: SubsetErrors | None = None,
    *,
    sentences: Sequence[str] = (),
    notes: Sequence[str] = (),
    command: str | None = None,
    title: str | None = None,
) -> str:
    """Returns a subset of `irtjax.shrink` as an HTML page.

    Args:
        small: The subset.
        errors: Errors by rule and size, if they were estimated.
        sentences: The subset in words.
        notes: How the data were read.
        command: The command that wrote the page.
        title: The title; None takes the numbers of items.

    Returns:
        The page: its items with weights and curves, and the errors to expect.
    """
    table = _subset_items(small)
    places = np.arange(small.size)
    flags = [""] * small.size
    names = labels(small.items)
    ends = float(small.nodes.min()), float(small.nodes.max())
    items = page_data.item_data(table, places, flags, names)
    items["weight"] = page_data.whole(small.weights, 100_000)
    curves = page_data.curve_data(small.model, small.parameters, places, ends)
    content = {"items": items, "curves": curves, "ends": ends, "subjects": None}
    content |= {"cloud": False, "nouns": NOUNS, **scale_of(small.model)}
    warnings = [*small.warnings, *(() if errors is None else errors.warnings)]
    warnings = list(dict.fromkeys(warnings))
    rows = item_rows(table, places, flags, names)
    for row, weight in zip(rows, small.weights, strict=False):
        row["weight"] = number(float(weight), 4)
    how = "at random" if small.rule == "random" else f"by {small.rule}"
    context = {
        "title": short(title or "", 200)
        if title
        else f"{small.size:,} of {counted(small.num_items, 'item')}",
        "facts": f"Chosen {how}; parameters of a {small.model.name} model",
        "date": now(),
        "sentences": [short(x, SENTENCE) for x in sentences],
        "warnings": [short(x, SENTENCE) for x in worded(dict.fromkeys(warnings))],
        "notes": [short(x, SENTENCE) for x in worded(notes)],
        "subset": _subset(small, errors),
        "items": {
            "heading": "Chosen items",
            "caption": "Items in the order of choice",
            "note": "Choose an item for its response curve.",
            "rows": rows,
            "weights": True,
            "benchmarks": "benchmark" in items,
        },
        "provenance": [("Written by", command or "irtjax.report.subset_page", True)]
        + [("irtjax", version_of_irtjax(), False)],
    }
    return render(context, content)


def section(small: Shrunken, sentences: Sequence[str] = ()) -> dict[str, Any]:
    """A subset as a section of a page: its items, and the rules that were compared."""
    table = _subset_items(small)
    names, benchmarks = labels(small.items), page_data.labels_of_benchmarks(table)
    columns = [table[x].to_pylist() for x in ("difficulty", "discrimination")]
    rows = [
        [names[k], benchmarks[k], number(float(small.weights[k]), 4)]
        + [number(column[k]) for column in columns]
        for k in range(min(small.size, CHOSEN))
    ]
    header = ["item", "benchmark", "weight", "difficulty", "discrimination"]
    if small.benchmarks is None:
        rows, header = [[x[0], *x[2:]] for x in rows], [header[0], *header[2:]]
    chosen = {"caption": "Items in the order of choice", "header": header, "rows": rows}
    chosen["words"] = 1 if small.benchmarks is None else 2
    rules = _subset(small, None)
    left = small.size - len(rows)
    return {
        "chosen": chosen,
        "sentences": [short(x, SENTENCE) for x in sentences],
        "tables": rules["tables"] if rules else [],
        "left": f"{counted(left, 'more item')} {are(left)} in subset.csv."
        if left > 0
        else "",
    }


def _subset_items(small: Shrunken) -> Any:
    """The chosen items as a table with columns of `items.csv`."""
    import pyarrow as pa

    from irtjax.inference.information import difficulty
    from irtjax.numerics.programs import stored_jit

    slope = np.asarray(small.parameters.discrimination, float)
    place = np.asarray(stored_jit(difficulty)(small.parameters), float)
    if slope.ndim > 1:
        slope = np.linalg.norm(slope, axis=1)
    if place.ndim > 1:
        place = place.mean(axis=1)
    benchmarks = [None] * small.size
    if small.benchmarks is not None:
        benchmarks = small.benchmarks.tolist()
    return pa.table(
        {
            "item": pa.array(small.items.tolist(), pa.string()),
            "benchmark": pa.array(benchmarks, pa.string()),
            "discrimination": slope,
            "difficulty": pa.array(place, mask=~np.isfinite(place)),
            "observed": np.zeros(small.size, int),
        }
    )


def _subset(small: Shrunken, errors: SubsetErrors | None) -> dict[str, Any] | None:
    """Tables of the rules that were compared, and of errors by size."""
    tables = []
    if small.rules:
        names = ("mean_absolute_error", "standard_error", "excess", "excess_se")
        rows = [
            [row["rule"], *(number(row[x], 4) for x in names)]
            + ["yes" if row["taken"] else ""]
            for row in small.rules
        ]
        header = ["rule", "mean error", "SE", "above the best", "SE", "taken"]
        text = f"Rules compared on held-out subjects, {counted(small.size, 'item')}"
        table = {"caption": text, "header": header, "rows": rows, "words": 1}
        tables.append(table)
    if errors is not None:
        names = ("coverage", "width", "kendall", "spearman")
        rows = [
            [row["rule"], f"{row['size']:,}", number(row["mean_absolute_error"], 4)]
            + [number(row[x], 3) for x in names]
            for row in errors.rows
        ]
        cover = f"{percent(errors.level)} intervals cover"
        header = ["rule", "items", "mean error", cover, "width", "tau", "Spearman"]
        text = f"Errors of predicted full scores, {errors.num_subjects:,} held-out"
        table = {"caption": f"{text} subjects", "header": header, "rows": rows}
        tables.append({**table, "words": 1})
    return {"tables": tables} if tables else None
