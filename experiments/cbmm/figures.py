"""Figures of the studies: boxplots over replicates, as A.1 to A.7 of the paper.

`discrimination` has the relation of section 4.4, with bootstrap intervals, and `speed`
figure 1 (`figures_1_to_3.py`). With fewer than five replicates points stand for boxes.

A study has one file for each way in which its settings vary; `redundancy` has the curve
of precision and recall of its l1 path too. Errors and seconds have a logarithmic axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.cbmm import figures_1_to_3

Row = dict[str, Any]
#: Measures of the paper, a panel each: column, label, whether the axis is logarithmic.
MEASURES = (
    ("spearman_theta", "Spearman's correlation, ability", False),
    ("spearman_a", "Spearman's correlation, discrimination", False),
    ("rmse_d", "RMSE, intercept", True),
    ("relative_error", "relative error of the logits", True),
    ("hellinger", "squared Hellinger distance", True),
    ("seconds", "seconds", True),
)
#: Of correlations, on Fisher's scale.
TICKS = (0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
PAIR = ("recall", "precision")
SELECTED = tuple((name, name, False) for name in PAIR)
#: A box of fewer replicates is a line.
FEWEST = 5


class Drawing(NamedTuple):
    """A figure of a study: its setting, its rows, further panels."""

    setting: str
    label: str
    keeps: Callable[[Row, list[Row]], bool] = lambda row, rows: True
    more: tuple[tuple[str, str, bool], ...] = ()


def _fixed(name: str) -> Callable[[Row, list[Row]], bool]:
    """Rows in which one side has the size that occurs with most of the other's."""

    def keeps(row: Row, rows: list[Row]) -> bool:
        other = {"rows": "columns", "columns": "rows"}[name]
        sizes = {x[name] for x in rows}
        seen = {n: len({x[other] for x in rows if x[name] == n}) for n in sizes}
        return row[name] == max(sizes, key=lambda n: seen[n])

    return keeps


def _pattern(name: str) -> Callable[[Row, list[Row]], bool]:
    return lambda row, rows: row["pattern"] == name and "30 x 20" not in row["method"]


#: Figures by study; the key is the end of the file's name.
STUDIES: Mapping[str, Mapping[str, Drawing]] = {
    "sizes": {
        "items": Drawing("columns", "items", _fixed("rows")),
        "subjects": Drawing("rows", "subjects", _fixed("columns")),
    },
    "temperature": {"": Drawing("log10_s", "log10 s")},
    "missing": {
        kind: Drawing("rate", f"share missing ({name})", _pattern(kind))
        for kind, name in (
            ("mcar", "at random"),
            ("mar", "by place"),
            ("mnar", "gated items"),
        )
    },
    "discrimination": {},
    "speed": {},
    "redundancy": {
        "": Drawing("zeros", "share of items that do not discriminate", more=SELECTED),
    },
}


def draw(folder: Path, study: str, rows: list[Row]) -> list[Path]:
    """Writes the figures of a study; their paths."""
    found = []
    if study == "discrimination":
        found.append(folder / "discrimination.png")
        discriminations(rows).savefig(found[0], dpi=120)
    if study == "speed":
        figure = figures_1_to_3.speed(rows)
        found.append(figures_1_to_3.save(figure, folder / "speed.png"))
    for ending, drawing in STUDIES[study].items():
        path = folder / f"{'_'.join(filter(None, (study, ending)))}.png"
        mine = [row for row in rows if drawing.keeps(row, rows)]
        figure = boxplots(mine, drawing)
        figure.savefig(path, dpi=120)
        found.append(path)
    if any(_number(row, "level") is not None for row in rows):
        found.append(folder / f"{study}_path.png")
        precision_recall(rows).savefig(found[-1], dpi=120)
    return found


def _number(row: Row, name: str) -> float | None:
    """A finite number of a row, if it has one there."""
    value = row.get(name)
    usable = isinstance(value, int | float | np.number) and np.isfinite(value)
    return float(value) if usable else None


def boxplots(rows: list[Row], drawing: Drawing) -> Figure:
    """A panel for each measure, a box or points for each setting and method."""
    rows = [row for row in rows if _number(row, "level") is None]
    settings = sorted({row[drawing.setting] for row in rows})
    names = list(dict.fromkeys(row["method"] for row in rows))
    panels = [*MEASURES, *drawing.more]
    figure = Figure(figsize=(15, 3.4 * -(-len(panels) // 3)), layout="constrained")
    grid = np.ravel(figure.subplots(-(-len(panels) // 3), 3))
    width = 0.8 / len(names)
    shown: dict[str, Any] = {}
    for axes, (column, label, logarithmic) in zip(grid, panels, strict=False):
        for k, name in enumerate(names):
            values = [
                [
                    number
                    for row in rows
                    if row["method"] == name
                    and row[drawing.setting] == setting
                    and (number := _number(row, column)) is not None
                ]
                for setting in settings
            ]
            if any(values):
                place = np.arange(len(settings)) + (k - (len(names) - 1) / 2) * width
                look = _boxes if max(map(len, values)) >= FEWEST else _points
                mark = look(axes, values, place, width, f"C{k}")
                shown.setdefault(name, mark)
        axes.set_xticks(range(len(settings)), [f"{x:g}" for x in settings])
        axes.set_xlim(-0.5, len(settings) - 0.5)
        axes.set_xlabel(drawing.label)
        axes.set_title(label)
        if logarithmic:
            axes.set_yscale("log")
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.legend(shown.values(), shown.keys(), loc="outside right upper")
    return figure


def _boxes(axes, values: list[list[float]], place, width: float, color: str) -> Any:
    drawn = axes.boxplot(
        values,
        positions=place,
        widths=0.8 * width,
        patch_artist=True,
        flierprops={"markersize": 2},
        medianprops={"color": "black"},
        manage_ticks=False,
    )
    for box in drawn["boxes"]:
        box.set_facecolor(color)
    return drawn["boxes"][0]


def _points(axes, values: list[list[float]], place, width: float, color: str) -> Any:
    """A point for each replicate and a bar at their median."""
    x = np.repeat(place, [len(v) for v in values])
    (mark,) = axes.plot(x, np.concatenate(values), "o", color=color, ms=5, alpha=0.8)
    for middle, own in zip(place, values, strict=True):
        if len(own) > 1:
            ends = middle + 0.4 * width * np.array([-1, 1])
            axes.plot(ends, 2 * [np.median(own)], color=color, linewidth=1.5)
    return mark


def discriminations(rows: list[Row]) -> Figure:
    """Rank correlation of ability and accuracy against the variation of slopes (4.4).

    A point for each suite with its 95 % bootstrap intervals: all subjects at the left,
    the best fifth at the right. The variation is without errors of estimation.
    """
    rows = [row for row in rows if _number(row, "cv_corrected") is not None]
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    panels = (
        ("all subjects", "spearman", "lower", "upper"),
        ("best fifth by accuracy", "spearman_top_fifth", "top_lower", "top_upper"),
    )
    sides = figure.subplots(1, 2, sharex=True)
    for axes, (title, column, low, high) in zip(sides, panels, strict=True):
        for k, sharp in enumerate((False, True)):
            mine = [row for row in rows if ("64" in row["suite"]) == sharp]
            x, y = (_of(mine, name) for name in ("cv_corrected", column))
            bars = {"xerr": _sides(mine, x, "cv_lower", "cv_upper")}
            bars |= {"yerr": _sides(mine, y, low, high)}
            label = "draws from 64 factors" if sharp else "responses, or 16 factors"
            look = {"fmt": "os"[k], "ms": 4, "lw": 1, "color": f"C{k}", "label": label}
            axes.errorbar(x, y, **bars, **look)
            for row, *end in zip(mine, x, y, strict=True):
                text = {"textcoords": "offset points", "fontsize": 7, "color": f"C{k}"}
                text |= {"ha": "right"} if sharp else {}
                name = row["suite"].split(" (")[0]
                axes.annotate(name, end, (-4 if sharp else 4, -8 * sharp), **text)
        axes.set_xscale("log")
        # Correlations near 1 are apart on it.
        axes.set_yscale("function", functions=(_fisher, np.tanh))
        axes.set_yticks(TICKS, [f"{x:g}" for x in TICKS])
        axes.set_title(title)
        axes.set_xlabel("coefficient of variation of discriminations")
        axes.set_ylabel("Spearman's correlation, ability and accuracy")
    axes.legend()
    return figure


def _fisher(correlation: np.ndarray) -> np.ndarray:
    most = np.tanh(4.5)
    return np.arctanh(np.clip(correlation, -most, most))


def _of(rows: list[Row], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def _sides(rows: list[Row], middle: np.ndarray, low: str, high: str) -> np.ndarray:
    """Lengths of bars; an interval of a CV need not hold its corrected estimate."""
    return np.maximum([middle - _of(rows, low), _of(rows, high) - middle], 0)


def precision_recall(rows: list[Row]) -> Figure:
    """Mean precision and recall of the l1 path by level, a line for each share."""
    figure = Figure(figsize=(6, 4.5), layout="constrained")
    axes = figure.subplots()
    rows = [row for row in rows if _number(row, "level") is not None]
    for share in sorted({row["zeros"] for row in rows}):
        points = []
        for level in sorted({row["level"] for row in rows}, reverse=True):
            mine = [x for x in rows if (x["zeros"], x["level"]) == (share, level)]
            points.append([np.mean([x[c] for x in mine]) for c in PAIR])
        axes.plot(*zip(*points, strict=True), ".-", label=f"{share:g}")
    axes.set_xlabel("recall")
    axes.set_ylabel("precision")
    axes.legend(title="share at 0")
    return figure
