"""Abilities of all subjects with their intervals, best on top."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.data.wording import percent
from irtjax.plots.style import (
    GREY,
    INK,
    PALE,
    PALETTE,
    ability_unit,
    column,
    label,
    new_figure,
    title,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration

#: Subjects that each get a line of their own with a name; of more, every k-th is named.
NAMED = 70


def plot_abilities(fit: Calibration) -> Figure:
    """Draws every subject's ability with its interval, in the order of the ranking.

    Subjects whose rank interval includes the first place are set apart by colour.

    Args:
        fit: The calibration; 2 to several thousand subjects.

    Returns:
        The figure; nothing is shown or saved.
    """
    table = fit.ability_table
    ability, lower, upper = (column(table, c) for c in ("ability", "lower", "upper"))
    rank, rank_lower = column(table, "rank"), column(table, "rank_lower")
    names = table.column("subject").to_pylist()
    order = np.argsort(-np.nan_to_num(ability, nan=-np.inf), kind="stable")
    order = order[np.isfinite(ability[order])]
    count = len(order)
    # Thin lines let thousands of intervals read as one band.
    crowd = max(1.0, count / NAMED)
    figure, (axes,) = new_figure(7.5, 1.5 + 0.155 * min(count, NAMED))
    place = np.arange(count)
    first = rank_lower[order] <= 1
    for chosen, colour, text in (
        (first, PALETTE[1], "rank interval includes 1"),
        (~first, PALETTE[0], "others"),
    ):
        rows = order[chosen]
        axes.hlines(
            place[chosen],
            lower[rows],
            upper[rows],
            color=colour,
            linewidth=max(0.35, 1.6 / crowd),
            alpha=0.75 if crowd < 4 else 0.45,
        )
        axes.scatter(
            ability[rows],
            place[chosen],
            s=max(1.5, 16 / crowd),
            color=colour,
            linewidths=0,
            zorder=3,
            label=f"{text} ({chosen.sum():,})",
        )
    shown = named_rows(count)
    axes.set_yticks(shown, [f"{label(names[k])}  {rank[k]:.0f}" for k in order[shown]])
    axes.tick_params(axis="y", labelsize=7, length=0)
    axes.set_ylim(count - 0.4, -0.6)
    axes.grid(axis="x", color=PALE, linewidth=0.7)
    mean = float(fit.parameters.population.mean)
    axes.axvline(mean, color=GREY, lw=0.8, ls="--", label="mean of the population")
    axes.set_xlabel(f"Ability ({ability_unit(fit)})")
    spaced = "" if len(shown) == count else f"; {len(shown)} of the names are shown"
    title(
        axes,
        "Abilities",
        f"{count:,} subjects with {percent(fit.level)} intervals{spaced}",
    )
    axes.legend(
        loc="lower right",
        fontsize=8,
        frameon=True,
        edgecolor=PALE,
        labelcolor=INK,
        markerscale=4 / np.sqrt(max(1.5, 16 / crowd)),
    )
    return figure


def named_rows(count: int, most: int = NAMED) -> np.ndarray:
    """Returns the rows to name: all, or evenly spaced ones with the first and last.

    >>> named_rows(3).tolist(), named_rows(100, 4).tolist()
    ([0, 1, 2], [0, 33, 66, 99])
    """
    if count <= most:
        return np.arange(count)
    return np.round(np.linspace(0, count - 1, most)).astype(int)
