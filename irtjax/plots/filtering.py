"""Negative correlations by round of a filter of items, with their null."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.plots.style import GREY, INK, PALETTE, new_figure, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.validity.filtering import Filtered


def plot_filter(result: Filtered) -> Figure:
    """Draws the share of negative correlations by round, and where the filter ends.

    The band is that of the same filter on simulated tables of one ability; the dashed
    line is the share in subjects that did not choose the items. A round within the band
    has no more negative correlations than one ability would give.

    Args:
        result: What `irtjax.filter_items` returned.

    Returns:
        The figure; nothing is shown or saved.
    """
    figure, (axes,) = new_figure(6.4, 4.0, grid="y")
    table = result.table
    items, negative, lower, upper, other = (
        table[name].to_numpy()
        for name in ("items", "negative", "null_lower", "null_upper", "other_half")
    )
    if np.isfinite(lower).all():
        band = {"color": PALETTE[1], "alpha": 0.25, "lw": 0}
        axes.fill_between(items, 100 * lower, 100 * upper, label="one ability", **band)
    line = {"color": PALETTE[0], "marker": "o", "ms": 4}
    axes.plot(items, 100 * negative, label="responses", **line)
    text = "half of the subjects, items chosen by the other"
    axes.plot(items, 100 * other, color=PALETTE[0], ls="--", lw=1.2, label=text)
    if result.stop is not None:
        axes.axvline(items[result.stop], color=GREY, lw=0.8)
    axes.set_xlim(items[0], items[-1])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("Items left")
    axes.set_ylabel("Negative correlations, % of pairs")
    axes.legend(fontsize=8, frameon=False, labelcolor=INK)
    stop = result.stop
    end = "" if stop is None else f"; within the band from {items[stop]:,} items on"
    text = f"{table.num_rows - 1} rounds{end}"
    title(axes, "Filter by negative correlations", text)
    return figure
