"""Abilities of all subjects with their intervals, best on top."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from irtjax.data.wording import counted, percent
from irtjax.plots import style
from irtjax.plots.style import GREY, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects

#: Subjects that each get a line of their own with a name.
NAMED = 70
#: Of more, the first ones that do, in a panel of their own.
TOP = 25
#: What must be known to read the intervals.
OVERLAP = (
    "Intervals of two subjects that differ significantly may overlap; groups of ties"
    " state who is tied."
)


class _Axis(NamedTuple):
    """The scale of abilities: its label, and a value that is marked, with its name."""

    label: str
    middle: float | None = None
    name: str = ""


def plot_abilities(fit: Calibration) -> Figure:
    """Draws every subject's ability with its interval, in the order of the ranking.

    Subjects whose rank interval includes the first place are set apart by colour. Of
    more than 70 subjects the first 25 have a panel with their names.

    Args:
        fit: The calibration; 2 to several thousand subjects.

    Returns:
        The figure; nothing is shown or saved.
    """
    ability = style.column(fit.abilities.table, "ability")
    order = np.argsort(-np.nan_to_num(ability, nan=-np.inf), kind="stable")
    order = order[np.isfinite(ability[order])]
    axis = _Axis(style.ability_label(fit.model))
    if not fit.abilities_are_scores:
        mean = float(fit.parameters.population.mean)
        axis = axis._replace(middle=mean, name="mean of the population")
    return _figure(fit.abilities.table.take(order), fit.level, "subject", axis)


def plot_ranked(ranked: RankedSubjects) -> Figure:
    """Draws abilities from anywhere, best on top, as `plot_abilities` those of a fit.

    Args:
        ranked: What `irtjax.rank` returns.

    Returns:
        The figure; nothing is shown or saved.
    """
    mean = float(style.column(ranked.table, "ability").mean())
    axis = _Axis("Ability", mean, f"mean of the {ranked.noun}s")
    return _figure(ranked.table, ranked.level, ranked.noun, axis)


def _figure(table: Any, level: float, noun: str, axis: _Axis) -> Figure:
    """Abilities of a table with one row for each subject, best first."""
    count, several = table.num_rows, table.num_rows > NAMED
    shown = TOP if several else count
    width, height = (11.0 if several else 7.5), 1.9 + 0.155 * shown
    figure, panels = style.new_figure(width, height, 1 + several, grid="x")
    named, interval = table.slice(0, shown), percent(level)
    _draw_intervals(panels[0], named, axis, not several)
    names = named.column("subject").to_pylist()
    ranks = style.column(named, "rank")
    texts = [f"{style.label(x)}  {k:.0f}" for x, k in zip(names, ranks, strict=True)]
    panels[0].set_yticks(np.arange(shown), texts)
    panels[0].tick_params(axis="y", labelsize=7, length=0)
    heading = f"The first {shown} of {counted(count, noun)}" if several else "Abilities"
    below = f"with {interval} intervals; numbers are ranks"
    style.title(
        panels[0], heading, below if several else f"{counted(count, noun)} {below}"
    )
    if several:
        _draw_intervals(panels[1], table, axis, True)
        panels[1].set_ylabel("Place in the order of abilities")
        places = _places(count)
        panels[1].set_yticks(places - 1, [f"{k:,}" for k in places])
        style.title(panels[1], f"All {noun}s", f"{count:,}, with {interval} intervals")
    style.legend_below(figure, panels[-1:], 3, OVERLAP)
    return figure


def _draw_intervals(axes: Axes, table: Any, axis: _Axis, whole: bool) -> None:
    """Draws abilities with intervals, one below the other, and the mean of all."""
    wanted = ("ability", "lower", "upper", "rank_lower")
    ability, lower, upper, rank_lower = (style.column(table, c) for c in wanted)
    count = table.num_rows
    # Thin lines let thousands of intervals read as one band.
    crowd = max(1.0, count / NAMED)
    place, first = np.arange(count), rank_lower <= 1
    size, width = max(1.5, 16 / crowd), max(0.35, 1.6 / crowd)
    alpha = 0.75 if crowd < 4 else max(1.8 / crowd, 0.08)
    ties = first, PALETTE[1], "rank interval includes 1"
    for chosen, colour, text in (ties, (~first, PALETTE[0], "others")):
        line = {"color": colour, "linewidths": width, "alpha": alpha}
        ends = (np.column_stack([x[chosen], place[chosen]]) for x in (lower, upper))
        style.draw_segments(axes, *ends, **line)
        # Points of a crowd are small: the legend has some that can be seen.
        point = {"color": colour, "linewidths": 0, "zorder": 3}
        axes.scatter(ability[chosen], place[chosen], s=size, **point)
        label = f"{text} ({chosen.sum():,})"
        axes.plot([], [], "o-", color=colour, ms=4, lw=1.6, label=label)
    # Points have the same size however many there are: the first and last need room.
    room = max(0.6, 0.01 * count)
    axes.set_ylim(count - 1 + room, -room)
    axes.set_xlabel(axis.label)
    # Out of the panel of the first subjects, the mean is not drawn there.
    if axis.middle is not None and (whole or lower.min() <= axis.middle):
        look = {"color": GREY, "lw": 0.8, "ls": "--"}
        axes.axvline(axis.middle, label=axis.name, **look)


def _places(count: int) -> np.ndarray:
    """Places to name of so many, from the first on.

    >>> _places(120).tolist(), _places(5041).tolist()
    ([1, 20, 40, 60, 80, 100, 120], [1, 1000, 2000, 3000, 4000, 5000])
    """
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(8, steps=[1, 2, 5, 10]).tick_values(1, count)
    return np.array([1, *(int(k) for k in ticks if 1 < k <= count)])


def named_rows(count: int, most: int = NAMED) -> np.ndarray:
    """Returns the rows to name: all, or evenly spaced ones with the first and last.

    >>> named_rows(3).tolist(), named_rows(100, 4).tolist()
    ([0, 1, 2], [0, 33, 66, 99])
    """
    if count <= most:
        return np.arange(count)
    return np.round(np.linspace(0, count - 1, most)).astype(int)
