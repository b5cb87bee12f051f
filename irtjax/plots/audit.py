"""Figures of an audit: item properties by benchmark, and the curves of bad items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.plots.style import (
    GREY,
    PALE,
    PALETTE,
    WIDEST,
    column,
    label,
    new_figure,
    style_axes,
    title,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.auditing import Audit
    from irtjax.data import ResponseTable

#: Benchmarks with a box of their own, and points of a cloud, at the most.
MOST, POINTS = 15, 20_000
#: Groups of subjects behind the empirical proportions.
GROUPS = 8


def _benchmarks(audit: Audit, most: int) -> tuple[np.ndarray, list[str]]:
    names = np.array(audit.items.column("benchmark").to_pylist(), np.str_)
    names, codes, sizes = np.unique(names, return_inverse=True, return_counts=True)
    if len(names) <= most:
        return codes, [str(name) for name in names]
    kept = np.sort(np.argsort(-sizes, kind="stable")[: most - 1])
    place = np.full(len(names), most - 1)
    place[kept] = np.arange(most - 1)
    return place[codes], [
        *(str(name) for name in names[kept]),
        f"{len(names) - most + 1} others",
    ]


def plot_item_properties(audit: Audit) -> Figure:
    """Draws boxplots of the six item properties, one box per benchmark.

    Boxes span the quartiles, whiskers 1.5 times as much; axes span 98 % of the items.

    Args:
        audit: An audit.

    Returns:
        The figure; nothing is shown or saved.
    """
    from matplotlib.figure import Figure as NewFigure

    from irtjax.auditing import PROPERTIES

    codes, names = _benchmarks(audit, MOST)
    figure = NewFigure(
        figsize=(10.5, 3.0 + 0.5 * len(names)), layout="constrained", facecolor="white"
    )
    panels = figure.subplots(2, 3)
    titles = {"leh": "LEH", "information": "Information at the strongest"}
    for axes, name in zip(panels.ravel(), PROPERTIES, strict=True):
        style_axes(axes)
        values = column(audit.items, name)
        known = np.isfinite(values)
        parts = [values[known & (codes == code)] for code in range(len(names))]
        boxes = axes.boxplot(
            parts[::-1],
            orientation="horizontal",
            widths=0.6,
            patch_artist=True,
            flierprops={"marker": ".", "markersize": 2, "markeredgecolor": GREY},
            medianprops={"color": "black"},
        )
        for code, box in enumerate(boxes["boxes"][::-1]):
            box.set_facecolor(PALETTE[code % len(PALETTE)])
            box.set_alpha(0.5)
        texts = [label(name, 20) for name in names[::-1]]
        axes.set_yticks(range(1, len(names) + 1), texts)
        if axes not in panels[:, 0]:
            axes.tick_params(labelleft=False)
        low, high = np.percentile(values[known], [1, 99]) if known.any() else (0, 1)
        # A property that the model holds fixed is a line.
        room = 0.1 * (high - low) if high - low > 1e-9 else 0.1
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlim(low - room, high + room)
        title(axes, titles.get(name, name.capitalize()))
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
    x, y = (column(audit.items, name) for name in ("difficulty", "discrimination"))
    x = np.clip(x, -WIDEST, WIDEST)
    flags = audit.items.column("flags").to_pylist()
    bad = np.array([not set(TESTED).isdisjoint(f.split("; ")) for f in flags], bool)
    figure, (axes,) = new_figure(7.5, 5.0)
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if known.size > POINTS:
        known = np.sort(np.random.default_rng(0).choice(known, POINTS, replace=False))
    for code, name in enumerate(names):
        here = known[codes[known] == code]
        axes.scatter(
            x[here],
            y[here],
            s=7,
            alpha=0.5,
            lw=0,
            color=PALETTE[code % len(PALETTE)],
            label=label(name or "items", 24),
        )
    rings = known[bad[known]]
    if rings.size:
        axes.scatter(
            x[rings],
            y[rings],
            s=32,
            facecolors="none",
            edgecolors="black",
            lw=0.7,
            label="with a tested defect",
        )
    axes.axhline(0, color=GREY, lw=0.8)
    axes.grid(color=PALE, linewidth=0.7)
    axes.set_xlabel("Difficulty")
    axes.set_ylabel("Discrimination")
    figure.legend(
        *axes.get_legend_handles_labels(),
        fontsize=8,
        frameon=False,
        loc="outside lower center",
        ncols=3,
    )
    title(axes, "Difficulty and discrimination", f"{bad.sum():,} items with a defect")
    return figure


def plot_flagged_items(audit: Audit, data: ResponseTable, num_items: int = 9) -> Figure:
    """Draws the curves of flagged items beside the shares that were really right.

    Items are taken from the defects in turn, the surest of each first. Points are
    groups of subjects of neighbouring ability, with bars of one standard error on
    either side.

    Args:
        audit: An audit.
        data: The `ResponseTable` that was audited.
        num_items: Items to draw, at the most.

    Returns:
        The figure; nothing is shown or saved.
    """
    from matplotlib.figure import Figure as NewFigure

    from irtjax.auditing.examine import Known
    from irtjax.plots.curves import ability_grid

    chosen = _surest(audit, num_items)
    known = Known.of(audit.fit, data)
    rows = max(1, -(-len(chosen) // 3))
    figure = NewFigure(
        figsize=(10.5, 0.6 + 2.5 * rows), layout="constrained", facecolor="white"
    )
    panels = figure.subplots(rows, 3, squeeze=False).ravel()
    grid = ability_grid(audit.fit)
    curves = known.curves(grid)
    order = np.argsort(known.ability, kind="stable")
    parts = np.array_split(order, min(GROUPS, max(2, order.size // 4)))
    place = {name: k for k, name in enumerate(audit.items.column("item").to_pylist())}
    for axes in panels:
        style_axes(axes)
    for axes, (name, defect) in zip(panels, chosen, strict=False):
        item = place[name]
        axes.plot(grid, curves[item], color=PALETTE[0], lw=1.6)
        for part in parts:
            seen = np.ones(part.size, bool)
            if data.observed is not None:
                seen = data.observed[part, item]
            if not seen.any():
                continue
            answers = data.values[part, item][seen]
            share = answers.mean()
            middle = known.ability[part][seen].mean()
            error = np.sqrt(max(share * (1 - share), 0.01) / seen.sum())
            axes.errorbar(middle, share, error, fmt="o", ms=3.5, color=PALETTE[1], lw=1)
        axes.set_ylim(-0.05, 1.05)
        axes.set_xlim(grid[0], grid[-1])
        axes.grid(color=PALE, linewidth=0.7)
        title(axes, label(name, 30), defect)
    for axes in panels[len(chosen) :]:
        axes.set_axis_off()
    if not chosen:
        title(panels[0], "No item has a tested defect")
    return figure


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
