"""Abilities of all subjects with their intervals, best on top."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.data.wording import percent
from irtjax.plots import style
from irtjax.plots.style import GREY, INK, PALE, PALETTE

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
    wanted = ("ability", "lower", "upper", "rank", "rank_lower")
    ability, lower, upper, rank, rank_lower = (style.column(table, c) for c in wanted)
    names = table.column("subject").to_pylist()
    order = np.argsort(-np.nan_to_num(ability, nan=-np.inf), kind="stable")
    order = order[np.isfinite(ability[order])]
    count = len(order)
    # Thin lines let thousands of intervals read as one band.
    crowd = max(1.0, count / NAMED)
    figure, (axes,) = style.new_figure(7.5, 1.5 + 0.155 * min(count, NAMED), grid="x")
    place = np.arange(count)
    first = rank_lower[order] <= 1
    size, width = max(1.5, 16 / crowd), max(0.35, 1.6 / crowd)
    alpha = 0.75 if crowd < 4 else 0.45
    ties = first, PALETTE[1], "rank interval includes 1"
    for chosen, colour, text in (ties, (~first, PALETTE[0], "others")):
        rows = order[chosen]
        line = {"color": colour, "linewidths": width, "alpha": alpha}
        ends = (np.column_stack([x[rows], place[chosen]]) for x in (lower, upper))
        style.draw_segments(axes, *ends, **line)
        point = {"color": colour, "linewidths": 0, "zorder": 3}
        point["label"] = f"{text} ({chosen.sum():,})"
        axes.scatter(ability[rows], place[chosen], s=size, **point)
    shown = named_rows(count)
    texts = [f"{style.label(names[k])}  {rank[k]:.0f}" for k in order[shown]]
    axes.set_yticks(shown, texts)
    axes.tick_params(axis="y", labelsize=7, length=0)
    axes.set_ylim(count - 0.4, -0.6)
    if fit.model.family.dims:
        axes.set_xlabel("Expected score on all items")
    else:
        mean = float(fit.parameters.population.mean)
        axes.axvline(mean, color=GREY, lw=0.8, ls="--", label="mean of the population")
        axes.set_xlabel(f"Ability ({style.ability_unit(fit)})")
    spaced = "" if len(shown) == count else f"; {len(shown)} of the names are shown"
    below = f"{count:,} subjects with {percent(fit.level)} intervals{spaced}"
    style.title(axes, "Abilities", below)
    box = {"loc": "lower right", "frameon": True, "edgecolor": PALE}
    axes.legend(fontsize=8, labelcolor=INK, markerscale=4 / np.sqrt(size), **box)
    return figure


def named_rows(count: int, most: int = NAMED) -> np.ndarray:
    """Returns the rows to name: all, or evenly spaced ones with the first and last.

    >>> named_rows(3).tolist(), named_rows(100, 4).tolist()
    ([0, 1, 2], [0, 33, 66, 99])
    """
    if count <= most:
        return np.arange(count)
    return np.round(np.linspace(0, count - 1, most)).astype(int)
