"""Error and rank agreement of subsets against their size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from irtjax.data.wording import counted
from irtjax.plots.style import INK, PALETTE, new_figure, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.subsets.errors import SubsetErrors


def plot_subset_errors(errors: SubsetErrors) -> Figure:
    """Draws the error of predicted full scores and their ranks against the size.

    Bands are 95 % intervals: of the mean absolute error over subjects, of Kendall's
    tau over the folds (none where folds are small).

    Args:
        errors: What `irtjax.subset_errors` returned.

    Returns:
        The figure; nothing is shown or saved.
    """
    figure, (left, right) = new_figure(10.5, 4.2, 2, grid="y")
    rules = list(dict.fromkeys(row["rule"] for row in errors.rows))
    for place, rule in enumerate(rules):
        mine = [row for row in errors.rows if row["rule"] == rule]
        style = {"color": PALETTE[place % len(PALETTE)], "label": rule}
        _line(left, mine, "mean_absolute_error", 100.0, **style)
        _line(right, mine, "kendall", 1.0, **style)
    left.set_ylabel("Mean absolute error, points of the full score")
    right.set_ylabel("Kendall's tau with the full ranking")
    left.set_ylim(bottom=0)
    right.set_ylim(top=1.005)
    sizes = sorted({row["size"] for row in errors.rows})
    for axes in (left, right):
        axes.set_xlabel("Number of items")
        if len(sizes) > 1 and sizes[-1] >= 8 * sizes[0]:
            axes.set_xscale("log")
            axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
            axes.minorticks_off()
    left.legend(fontsize=8, frameon=False, labelcolor=INK)
    small = (
        f"{counted(errors.num_subjects, 'held-out subject')},"
        f" {counted(errors.num_items, 'item')}"
    )
    title(left, "Error", small)
    title(right, "Ranks", "bands: 95 %")
    return figure


def _line(axes: Axes, rows: list, name: str, unit: float, **style: Any) -> None:
    """Draws a quantity against the size with its band."""
    size = [row["size"] for row in rows]
    # None is NaN.
    value = unit * np.array([row[name] for row in rows], float)
    error = unit * np.array([row[f"{name}_se"] for row in rows], float)
    half = ndtri(0.975) * np.nan_to_num(error)
    axes.plot(size, value, lw=1.8, marker="o", ms=3, **style)
    band = {"color": style["color"], "alpha": 0.15, "lw": 0}
    axes.fill_between(size, value - half, value + half, **band)
