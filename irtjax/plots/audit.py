"""Figures of an audit: item properties by benchmark, and the curves of bad items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.data.wording import counted
from irtjax.plots import style
from irtjax.plots.style import GREY, PALE, PALETTE, WIDEST

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.auditing import Audit
    from irtjax.data import ResponseTable

#: Benchmarks with a box of their own, and points of a cloud, at the most.
MOST, POINTS = 15, 20_000
#: Groups of subjects behind the empirical proportions.
GROUPS = 8
#: Items drawn where none is flagged.
NEAREST = 3


def _benchmarks(audit: Audit, most: int) -> tuple[np.ndarray, list[str]]:
    """Code of each item's benchmark, and names by code."""
    names = np.array(audit.items.column("benchmark").to_pylist(), np.str_)
    return style.group_codes(names, most)


def plot_item_properties(audit: Audit) -> Figure:
    """Draws boxplots of the item properties, one box per benchmark.

    A property that the model gives the same value everywhere, such as the guessing of a
    2PL, has no panel. Boxes span the quartiles, whiskers 1.5 times as much; axes span
    the whiskers and 98 % of the items, and difficulties beyond 8 are drawn there.

    Args:
        audit: An audit.

    Returns:
        The figure; nothing is shown or saved.
    """
    from irtjax.auditing import PROPERTIES

    codes, names = _benchmarks(audit, MOST)
    titles = {"leh": "LEH", "information": "Information at the strongest"}
    drawn = []
    for name in PROPERTIES:
        values = style.column(audit.items, name)
        if name == "difficulty":
            values = np.clip(values, -WIDEST, WIDEST)
        finite = values[np.isfinite(values)]
        if finite.size and (np.ptp(finite) > 1e-9 or name == "difficulty"):
            drawn.append((titles.get(name, name.capitalize()), values))
    columns = 2 if len(drawn) <= 4 else 3
    rows = max(1, -(-len(drawn) // columns))
    width = 3.5 * columns + style.label_width(names)
    figure = style.empty_figure(width, rows * (1.2 + 0.25 * len(names)) + 0.4)
    axes_of = style.panels(figure, rows, columns, len(drawn))
    for axes, (text, values) in zip(axes_of.flat, drawn, strict=False):
        style.boxplots(axes, values, codes, names, named=axes in axes_of[:, 0])
        style.title(axes, text)
    return figure


def plot_difficulty_discrimination(audit: Audit) -> Figure:
    """Draws discrimination against difficulty, items with a tested defect ringed.

    Args:
        audit: An audit.

    Returns:
        The figure; nothing is shown or saved.
    """
    from irtjax.auditing import TESTED

    codes, names = _benchmarks(audit, len(PALETTE))
    x = np.clip(style.column(audit.items, "difficulty"), -WIDEST, WIDEST)
    y = style.column(audit.items, "discrimination")
    flags = audit.items.column("flags").to_pylist()
    bad = np.array([not set(TESTED).isdisjoint(f.split("; ")) for f in flags], bool)
    figure, (axes,) = style.new_figure(7.5, 5.0, grid="both")
    places = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if places.size > POINTS:
        places = np.sort(np.random.default_rng(0).choice(places, POINTS, replace=False))
    # Small benchmarks together are grey, and lie below the others.
    together = len(set(audit.items.column("benchmark").to_pylist())) > len(names)
    for code, name in enumerate(names):
        here = places[codes[places] == code]
        look = {"color": PALETTE[code % len(PALETTE)], "zorder": 2}
        if together and code == len(names) - 1:
            look = {"color": GREY, "zorder": 1.5}
        text = style.label(name or "items", 24)
        axes.scatter(x[here], y[here], s=9, alpha=0.6, lw=0, label=text, **look)
    rings = places[bad[places]]
    if rings.size:
        look = {"facecolors": "none", "edgecolors": "black", "lw": 0.7}
        text = "with a tested defect"
        axes.scatter(x[rings], y[rings], s=32, label=text, **look)
    axes.axhline(0, color=GREY, lw=0.8)
    axes.set_xlabel("Difficulty")
    axes.set_ylabel("Discrimination")
    style.legend_below(figure, [axes], 3)
    below = f"{counted(bad.sum(), 'item')} with a tested defect"
    style.title(axes, "Difficulty and discrimination", below)
    return figure


def plot_flagged_items(audit: Audit, data: ResponseTable, num_items: int = 9) -> Figure:
    """Draws the curves of flagged items with the observed shares of right responses.

    Items are taken from the defects in turn, the smallest p-values first; where none is
    flagged, the three nearest to a flag are drawn, with a note in the figure. Points
    are groups of subjects of neighbouring ability, with bars of one standard error on
    either side.

    Args:
        audit: An audit.
        data: The `ResponseTable` that was audited.
        num_items: Items to draw, at the most.

    Returns:
        The figure; nothing is shown or saved.
    """
    from irtjax.auditing.examine import OrderedFit
    from irtjax.plots.curves import ability_grid

    chosen = _surest(audit, num_items)
    heading = ""
    if not chosen:
        chosen = [
            (name, f"{defect}, p = {p:.2g}: not flagged")
            for name, defect, p in audit.nearest(min(num_items, NEAREST))
        ]
        heading = "No item has a tested defect"
        heading += ". Nearest to a flag:" if chosen else ", and none could be tested"
    ordered = OrderedFit.of(audit.fit, data)
    rows = -(-len(chosen) // 3)
    figure = style.empty_figure(10.5, 0.6 + 2.5 * rows)
    if heading:
        figure.suptitle(heading, fontsize=11, x=0.01, ha="left")
    if not chosen:
        return figure
    axes_of = style.panels(figure, rows, 3, len(chosen))
    grid = ability_grid(audit.fit)
    place = {name: k for k, name in enumerate(data.items.tolist())}
    curves = ordered.curves(grid)
    order = np.argsort(ordered.ability, kind="stable")
    parts = np.array_split(order, min(GROUPS, max(2, order.size // 4)))
    for axes, (name, below) in zip(axes_of.flat, chosen, strict=False):
        item = place[name]
        axes.plot(grid, curves[item], color=PALETTE[0], lw=1.6)
        _observed_shares(axes, data, ordered.ability, item, parts)
        axes.set_ylim(-0.05, 1.05)
        axes.set_xlim(grid[0], grid[-1])
        axes.grid(color=PALE, linewidth=0.7)
        style.title(axes, style.label(name, 30), below)
    for axes in axes_of[:, 0]:
        axes.set_ylabel("Share right")
    for axes in axes_of.ravel()[: len(chosen)][-3:]:
        axes.set_xlabel("Ability")
    return figure


def _observed_shares(axes: Axes, data: ResponseTable, ability, item: int, parts):
    """A point for each group of subjects of whom some answered the item."""
    of_item = data.select(items=np.array([item]))
    for part in parts:
        if of_item.observed is not None:
            part = part[of_item.observed[part, 0]]
        if not part.size:
            continue
        share = of_item.values[part, 0].mean()
        error = np.sqrt(max(share * (1 - share), 0.01) / part.size)
        middle = ability[part].mean()
        # A share has no values below 0 or above 1.
        bars = np.array([[min(error, share)], [min(error, 1 - share)]])
        axes.errorbar(middle, share, bars, fmt="o", ms=3.5, color=PALETTE[1], lw=1)


def _surest(audit: Audit, num_items: int) -> list[tuple[str, str]]:
    """Names and defects of flagged items, from the defects in turn."""
    from irtjax.auditing import TESTED

    queues = {defect: audit.flagged(defect) for defect in TESTED}
    chosen: dict[str, str] = {}
    for turn in range(max([len(queue) for queue in queues.values()], default=0)):
        for defect, queue in queues.items():
            if turn < len(queue) and len(chosen) < num_items:
                chosen.setdefault(queue[turn], defect)
    return list(chosen.items())
