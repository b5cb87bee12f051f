"""Distributions of the parameters of items by benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.plots.style import boxplots, item_benchmarks, label_width, new_figure, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration

#: Benchmarks with a box of their own.
MOST = 8
#: A quotient by a slope smaller than this locates nothing.
FLAT = 0.1


def parameter_columns(fit: Calibration) -> list[tuple[str, str, np.ndarray]]:
    """Returns title, formula and value of each item, NaN where there is none.

    Of several abilities the discrimination is the length of the item's slopes, as in
    the table of items.
    """
    items, size = fit.parameters.items, "a"
    slope = np.asarray(items.discrimination, float)
    if slope.ndim > 1:
        slope, size = np.linalg.norm(slope, axis=1), "|a|"
    name = fit.model.family.intercept_name
    middle = np.asarray(getattr(items, name), float)
    middle = np.where(fit.model.family.in_use(items, name), middle, np.nan)
    middle = np.nanmean(middle.reshape(len(slope), -1), axis=1)

    def over(values, divisor):
        return values / np.where(np.abs(divisor) < FLAT, np.nan, divisor)

    columns = [
        ("Discrimination", size, slope),
        ("Difficulty", f"−d / {size}", over(-middle, slope)),
    ]
    lengths = fit.parameters.lengths
    if lengths is not None:
        omega, phi, variance = (np.asarray(x, float) for x in lengths.items)
        columns += [
            ("Speed discrimination", "φ", phi),
            ("Time intensity", "ω / φ", over(omega, phi)),
            ("Residual variance", "λ", variance),
        ]
    return columns


def plot_item_parameters(fit: Calibration) -> Figure:
    """Draws boxplots of the item parameters, one box per benchmark.

    Boxes span the quartiles, whiskers 1.5 times as much, and the median is marked.
    Items whose quotient does not exist (a slope near 0) are left out and counted.

    Args:
        fit: A calibration.

    Returns:
        The figure; nothing is shown or saved.
    """
    codes, groups = item_benchmarks(fit, MOST)
    columns = parameter_columns(fit)
    width = 2.6 * len(columns) + label_width(groups)
    figure, panels = new_figure(width, 2.0 + 0.35 * len(groups), len(columns))
    for axes, (name, formula, values) in zip(panels, columns, strict=True):
        boxplots(axes, values, codes, groups, named=axes is panels[0])
        lost = int(np.count_nonzero(~np.isfinite(values)))
        title(axes, name, f"{formula}; {lost:,} without" if lost else formula)
    return figure
