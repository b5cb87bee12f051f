"""Figure 4 of the PSN-IRT paper: difficulty and discrimination, a panel a benchmark."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

#: Difficulties beyond are drawn at the edge.
WIDEST = 4.0
#: Equal counts of items from which the median of discrimination is drawn.
GROUPS = 12


def panels(difficulty, discrimination, benchmark, title: str) -> Figure:
    """A point for each item, and medians of discrimination along difficulty.

    Args:
        difficulty: `[items]`, NaN where it is not defined.
        discrimination: `[items]`.
        benchmark: `[items]` names.
        title: Of the figure: where the parameters are from.
    """
    names = sorted(set(benchmark))
    figure = Figure(figsize=(14, 3.1 * -(-len(names) // 4)), layout="constrained")
    shape = -(-len(names) // 4), 4
    grid = np.ravel(figure.subplots(*shape, sharex=True, sharey=True, squeeze=False))
    for k, (axes, name) in enumerate(zip(grid, names, strict=False)):
        mine = (np.asarray(benchmark) == name) & np.isfinite(difficulty)
        x = np.clip(np.asarray(difficulty)[mine], -WIDEST, WIDEST)
        y = np.asarray(discrimination)[mine]
        axes.scatter(x, y, s=5, alpha=0.25, lw=0, color=f"C{k % 10}", rasterized=True)
        parts = np.array_split(np.argsort(x, kind="stable"), min(GROUPS, x.size))
        middle = np.array([[np.median(x[p]), np.median(y[p])] for p in parts])
        axes.plot(*middle.T, "-", color="black", linewidth=1.3)
        axes.set_title(f"{name} ({x.size:,})", fontsize=10)
        axes.axhline(0, color="0.7", linewidth=0.7)
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    for axes in grid[len(names) - 4 : len(names)]:
        axes.set_xlabel("difficulty")
        axes.tick_params(labelbottom=True)
    for axes in grid[::4]:
        axes.set_ylabel("discrimination")
    figure.suptitle(title, fontsize=11)
    return figure


def extremes(difficulty, discrimination) -> dict[str, float]:
    """Mean discrimination of the easiest, middle and hardest tenths of the items."""
    known = np.isfinite(difficulty)
    order = np.argsort(np.asarray(difficulty)[known], kind="stable")
    slope = np.asarray(discrimination)[known][order]
    tenth = max(len(slope) // 10, 1)
    middle = slice((len(slope) - tenth) // 2, (len(slope) + tenth) // 2)
    parts = {"easiest": slice(tenth), "middle": middle, "hardest": slice(-tenth, None)}
    return {name: float(np.mean(slope[part])) for name, part in parts.items()}
