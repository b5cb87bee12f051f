"""Correlations as observed and without errors, with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.data.wording import counted, percent
from irtjax.plots.style import (
    GREY,
    INK,
    PALETTE,
    column,
    draw_segments,
    label,
    legend_under,
    new_figure,
    title,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.validity.correlates import Correlates


def plot_correlates(result: Correlates, most: int = 40) -> Figure:
    """Draws each correlation as observed and without errors, the largest on top.

    The grey band has the correlations that count as no relation. Pairs without a
    correlation are left out.

    Args:
        result: What `irtjax.correlates` returned.
        most: Number of pairs at most, those with the largest correlations.

    Returns:
        The figure; nothing is shown or saved.
    """
    value = column(result.table, "correlation")
    order = np.argsort(-np.nan_to_num(np.abs(value)), kind="stable")
    order = order[np.isfinite(value[order])][:most]
    order = order[np.argsort(value[order], kind="stable")]
    rows = result.table.take(order)
    names = [
        f"{label(x, 28)} – {label(y, 28)}"
        for x, y in zip(
            *(rows[k].to_pylist() for k in ("measure", "other")), strict=True
        )
    ]
    figure, (axes,) = new_figure(7.2, 1.7 + 0.24 * max(len(names), 2), grid="x")
    place = np.arange(len(names))
    lower, upper = column(rows, "lower"), column(rows, "upper")
    band = {"color": GREY, "alpha": 0.18, "lw": 0}
    axes.axvspan(-result.margin, result.margin, **band)
    axes.axvline(0, color=GREY, lw=0.8)
    begin, end = (np.stack([x, place], axis=1) for x in (lower, upper))
    draw_segments(axes, begin, end, colors=PALETTE[0], linewidths=1.6)
    without = f"without errors, {percent(result.level)} interval"
    axes.plot(column(rows, "correlation"), place, "o", color=PALETTE[0], label=without)
    look = {"markerfacecolor": "white", "markeredgecolor": INK, "label": "as observed"}
    axes.plot(column(rows, "raw"), place, "o", markersize=4, **look)
    axes.set_yticks(place, names)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.set_xlim(min(-0.05, *lower, -result.margin) - 0.05, 1.05)
    axes.set_xlabel(f"Correlation (grey: at most {result.margin:g} in size)")
    hidden = result.table.num_rows - len(names)
    below = "" if hidden == 0 else f"{counted(hidden, 'pair')} not drawn"
    title(axes, "Correlations as observed and without errors", below)
    legend_under(axes, columns=2)
    return figure
