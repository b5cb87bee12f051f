"""The Wright map: abilities and difficulties on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.models.model import check_one_ability
from irtjax.plots import style
from irtjax.plots.style import GREY, INK, PALETTE, WIDEST

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration

#: Items that are drawn one by one with their names.
NAMED = 45
#: Benchmarks with a column of their own.
COLUMNS = 12


def plot_wright_map(fit: Calibration) -> Figure:
    """Draws subjects (left) and items (right) along one ability scale.

    A subject stands level with the items that it solves half the time (without
    asymptotes). Items far from all subjects have little information about them.

    Args:
        fit: The calibration.

    Returns:
        The figure; nothing is shown or saved.
    """
    check_one_ability(fit.model, "this figure")
    ability = style.finite_abilities(fit)
    difficulty = style.column(fit.items.table, "difficulty")
    finite = np.isfinite(difficulty)
    low, high = _range(ability, difficulty[finite])
    codes, names = style.item_benchmarks(fit, COLUMNS)
    width = 4.2 + max(3.4, 0.95 * len(names))
    shape = {"sharey": True, "width_ratios": [1, (width - 2.2) / 2.6]}
    figure, (left, right) = style.new_figure(width, 6.2, 2, grid="y", **shape)
    bins = np.linspace(low, high, 41 if len(difficulty) > 40 * len(names) else 27)
    left.hist(ability, bins=list(bins), orientation="horizontal", color=GREY)
    left.invert_xaxis()
    left.xaxis.get_major_locator().set_params(integer=True)
    left.set_xlabel("Number of subjects")
    left.set_ylabel(f"Ability and difficulty ({style.ability_unit(fit.model)})")
    right.tick_params(axis="y", length=0)
    if len(difficulty) <= NAMED and len(names) <= 4:
        items = fit.items.table.column("item").to_pylist()
        _draw_named(right, items, difficulty, codes, names, (low, high))
    else:
        _draw_columns(right, difficulty, codes, names, bins)
    left.set_ylim(low, high)
    style.title(left, "Subjects", f"{len(ability):,}")
    outside = int(np.sum((difficulty[finite] < low) | (difficulty[finite] > high)))
    parts = [f"{len(difficulty):,}"]
    if outside:
        parts.append(f"{outside:,} beyond the scale, drawn at its ends")
    if not finite.all():
        parts.append(f"{int((~finite).sum()):,} without a difficulty, not drawn")
    style.title(right, "Items", "; ".join(parts))
    return figure


def _range(ability: np.ndarray, difficulty: np.ndarray) -> tuple[float, float]:
    """Ends of the scale: all subjects, and the bulk of the items."""
    low, high = ability.min(), ability.max()
    if len(difficulty):
        # A nearly flat item has a difficulty of hundreds; it must not set the scale.
        inner = np.quantile(difficulty, [0.01, 0.99])
        low, high = min(low, inner[0]), max(high, inner[1])
    low, high = max(low, -WIDEST), min(high, WIDEST)
    margin = 0.05 * max(high - low, 1.0)
    return low - margin, high + margin


def _draw_named(axes: Axes, items: list, difficulty, codes, names: list, ends) -> None:
    """Items as points with names, moved apart where they would overlap."""
    rows = np.flatnonzero(np.isfinite(difficulty))
    rows = rows[np.argsort(difficulty[rows], kind="stable")]
    low, high = ends
    true = np.clip(difficulty[rows], low, high)
    text = spread(true, (high - low) / 46, low, high)
    for row, at, height in zip(rows, true, text, strict=True):
        colour = PALETTE[codes[row] % len(PALETTE)]
        axes.plot([0, 0.12, 0.2], [at, at, height], color=colour, lw=0.6)
        axes.plot(0, at, "o", color=colour, ms=4, clip_on=False)
        axes.text(0.22, height, style.label(items[row], 30), fontsize=7, va="center")
    axes.set_xlim(-0.03, 1)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    if len(names) > 1:
        from matplotlib.lines import Line2D

        handles = [
            Line2D([], [], ls="", marker="o", color=colour, label=style.label(name, 24))
            for colour, name in zip(PALETTE, names, strict=False)
        ]
        axes.legend(handles=handles, fontsize=8, frameon=False, loc="upper right")


def spread(values: np.ndarray, gap: float, low: float, high: float) -> np.ndarray:
    """Returns ascending values moved as little as needed to lie `gap` apart.

    >>> spread(np.array([0.0, 0.0, 5.0]), 1.0, -9.0, 9.0).tolist()
    [-0.5, 0.5, 5.0]
    """
    # Pool adjacent values into evenly spaced runs centred on their mean.
    runs: list[tuple[float, int]] = []
    for value in values:
        run = (float(value), 1)
        while runs and run[0] - runs[-1][0] < gap * (runs[-1][1] + run[1]) / 2:
            mean, size = runs.pop()
            total = size + run[1]
            run = ((mean * size + run[0] * run[1]) / total, total)
        runs.append(run)
    out = np.array([m + gap * (k - (n - 1) / 2) for m, n in runs for k in range(n)])
    if len(out):
        out += max(0.0, low - out[0]) - max(0.0, out[-1] - high)
    return out


def _draw_columns(axes: Axes, difficulty, codes, names: list, bins) -> None:
    """One column of mirrored histograms per benchmark, with its median."""
    centre = (bins[:-1] + bins[1:]) / 2
    step = bins[1] - bins[0]
    for code in range(len(names)):
        mine = difficulty[(codes == code) & np.isfinite(difficulty)]
        mine = np.clip(mine, bins[0], bins[-1])
        counts, _ = np.histogram(mine, bins)
        share = 0.43 * counts / max(counts.max(), 1)
        colour = PALETTE[code % len(PALETTE)]
        axes.barh(centre, 2 * share, step * 0.92, left=code - share, color=colour)
        if len(mine):
            middle = float(np.median(mine))
            axes.hlines(middle, code - 0.46, code + 0.46, color=INK, lw=1.2)
    axes.set_xlim(-0.6, len(names) - 0.4)
    sizes = np.bincount(codes, minlength=len(names))
    ticks = [
        f"{style.label(name, 22)}\n{size:,}" if name else ""
        for name, size in zip(names, sizes, strict=True)
    ]
    slanted = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(names)), ticks, **(slanted if len(names) > 4 else {}))
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel("Width: share of the benchmark's items; line: median")
