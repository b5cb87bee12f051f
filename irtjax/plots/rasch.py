"""Difficulties of items in two groups of subjects, of which Rasch models have one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.plots.style import GREY, INK, PALETTE, column, label, new_figure, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.validity.rasch import Rasch

#: Items that are named: those that differ most.
NAMED = 6


def plot_rasch(result: Rasch) -> Figure:
    """Draws how much the difficulty of each item differs between two groups.

    Bars are 95 % intervals of the differences. Items with q below .05 are coloured,
    and those that differ most are named.

    Args:
        result: What `irtjax.rasch` returned of two groups.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If there are more groups than two.
    """
    if len(result.groups) != 2:
        raise ValueError(
            f"the figure is of two groups, and there are {len(result.groups)}: give"
            " groups=2, or a column with two values"
        )
    names = ("difficulty", "difference", "difference_se", "q_value")
    difficulty, gap, error, q_value = (column(result.table, x) for x in names)
    figure, (axes,) = new_figure(7.2, 4.6, grid="y")
    differs = q_value < 0.05
    for mask, colour in ((~differs, GREY), (differs, PALETTE[1])):
        look = {"fmt": "o", "ms": 4, "elinewidth": 0.8, "color": colour}
        axes.errorbar(difficulty[mask], gap[mask], 1.96 * error[mask], **look)
    axes.axhline(0, color=INK, lw=0.8)
    order = np.argsort(-np.where(differs, np.abs(gap), -1.0), kind="stable")[:NAMED]
    items = result.table.column("item").to_pylist()
    for k in order[differs[order]]:
        place = {"textcoords": "offset points", "fontsize": 7, "color": INK}
        axes.annotate(label(items[k], 28), (difficulty[k], gap[k]), (5, 3), **place)
    first, second = result.groups
    axes.set_xlabel("Difficulty (logits)")
    axes.set_ylabel(f"Difference (logits): {second} less {first}")
    below = f"root mean square beyond errors {result.rms_difference:.2f} logits"
    title(axes, "Difficulties in two groups", f"{below}; coloured: q below .05")
    return figure
