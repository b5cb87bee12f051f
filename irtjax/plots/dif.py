"""Figure of items that favour a group: curves and shares right by group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from irtjax.data.coding import coded
from irtjax.plots import style
from irtjax.plots.style import GREY, INK, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.data.table import ResponseTable
    from irtjax.validity.dif import DIF

#: Columns of panels, and groups of subjects of similar level whose shares are drawn.
COLUMNS, BINS = 3, 5
#: Fewest responses behind a point.
FEWEST = 5


def plot_dif(data: ResponseTable, result: DIF, most: int = 6) -> Figure:
    """Draws shares right by level and group of the items that differ most.

    Points are shares right of subjects of a group of similar level, in fifths, with
    their standard errors; lines are the response functions of each group, where the
    method has them. Without items that differ, those nearest to it are drawn.

    Args:
        data: The responses that were tested.
        result: What `irtjax.dif` returned of them.
        most: Number of panels at most.

    Returns:
        The figure; nothing is shown or saved.
    """
    data = coded(data)
    rows = [x for x in result.table.to_pylist() if x["statistic"] is not None]
    rows = sorted(rows, key=lambda x: (not x["differs"], -x["statistic"]))[:most]
    height = -(-max(len(rows), 1) // COLUMNS)
    columns = min(max(len(rows), 1), COLUMNS)
    figure = style.empty_figure(3.6 * columns + 0.3, 3.1 * height + 0.3)
    panels = style.panels(figure, height, columns, len(rows), sharey=True).ravel()
    for axes, row in zip(panels, rows, strict=False):
        _draw(axes, row["item"], data, result)
        below = f"{row['effect']:+.0f} points in {row['effect_group']}"
        style.title(
            axes, style.label(row["item"], 28), f"{below}, q {row['q_value']:.2g}"
        )
    if rows:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    return figure


def _draw(axes: Axes, item: str, data: ResponseTable, result: DIF) -> None:
    """Points and lines of one item."""
    subjects = result.subjects.to_pydict()
    rows = {name: k for k, name in enumerate(data.subjects.tolist())}
    places = np.array([rows[x] for x in subjects["subject"]])
    column = data.items.tolist().index(item)
    right = np.asarray(data.values, np.float64)[places, column]
    seen = np.ones(len(places), bool)
    if data.observed is not None:
        seen = np.asarray(data.observed)[places, column]
    level, group = np.array(subjects["level"]), np.array(subjects["group"])
    edges = np.quantile(level, np.arange(1, BINS) / BINS)
    bins = np.searchsorted(edges, level)
    grid = np.linspace(level.min(), level.max(), 101)
    for k, name in enumerate(result.sizes):
        colour = PALETTE[k % len(PALETTE)]
        points = []
        for b in range(BINS):
            cells = (bins == b) & (group == name) & seen
            if (count := cells.sum()) >= FEWEST:
                share = right[cells].mean()
                error = np.sqrt(max(share * (1 - share), 0.25 / count) / count)
                points.append((level[cells].mean(), share, error))
        if points:
            x, y, error = np.array(points).T
            look = {"fmt": "o", "markersize": 4, "linewidth": 1, "color": colour}
            axes.errorbar(x, y, error, label=style.label(name, 24), **look)
        curve = _curve(result, item, name)
        if curve is not None:
            axes.plot(grid, expit(curve[0] * grid + curve[1]), color=colour, lw=1.2)
    axes.set_ylim(-0.03, 1.03)
    axes.axhline(0.5, color=GREY, linewidth=0.4)
    ability = result.method == "score"
    axes.set_xlabel("Ability" if ability else "Share right", color=INK)
    axes.set_ylabel("Chance to be right", color=INK)


def _curve(result: DIF, item: str, group: str) -> tuple[float, float] | None:
    """Discrimination and intercept of an item in a group."""
    if result.parameters is None:
        return None
    for row in result.parameters.to_pylist():
        if (row["item"], row["group"]) == (item, group):
            return row["discrimination"], row["intercept"]
    return None
