"""Ranks by accuracy, or another fit, flowing into ranks by ability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.plots.style import GREY, INK, PALETTE, label, new_figure, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration

#: Half the height of a ribbon, and where the two columns are.
HALF, LEFT, RIGHT = 0.38, 0.0, 1.0
UP, DOWN = PALETTE[2], PALETTE[1]


def plot_rank_flow(
    fit: Calibration,
    top: int = 50,
    against: Calibration | str = "accuracy",
    *,
    data: Any = None,
) -> Figure:
    """Draws how the ranks by accuracy become the ranks by ability.

    A ribbon is a subject in the first `top` of both; green ones move up, orange ones
    down, pale ones within the rank interval of their ability. Subjects of equal rank
    share a bar.

    Args:
        fit: A calibration.
        top: Number of first subjects, of both rankings.
        against: "accuracy", or another calibration.
        data: The responses: adds the item that contributes most to the moves beyond the
            rank interval.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: As `irtjax.calibration.flow.rank_flow`.
    """
    from irtjax.calibration.flow import rank_flow

    flow = rank_flow(fit, top, against, data=data)
    rows = flow.table.to_pylist()
    before = np.array([row["rank_before"] for row in rows])
    after = np.array([row["rank"] for row in rows])
    # Places among those drawn; equal ranks in the order of the other side.
    order = np.lexsort((after, before))
    left = np.empty(len(rows), int)
    left[order] = np.arange(len(rows))
    right = np.arange(len(rows))
    figure, (axes,) = new_figure(8.2, 1.9 + 0.2 * len(rows))
    ease = _ease()
    for k, row in enumerate(rows):
        colour, alpha = GREY, 0.3
        if row["move"]:
            colour = UP if row["move"] > 0 else DOWN
            alpha = 0.3 if row["beyond"] is False else 0.75
        middle = left[k] + (right[k] - left[k]) * ease[1]
        look = {"color": colour, "alpha": alpha, "lw": 0}
        axes.fill_between(ease[0], middle - HALF, middle + HALF, **look)
        name = label(row["subject"], 34)
        reason = row.get("item_1") if row["beyond"] else None
        if reason:
            name += f"  ({label(reason, 18)})"
        _name(axes, RIGHT + 0.05, right[k], "left", name)
        _name(axes, LEFT - 0.05, left[k], "right", label(row["subject"], 34))
    for x, ranks, places in ((LEFT, before, left), (RIGHT, after, right)):
        _bars(axes, x, ranks, places)
    axes.set_xlim(-1.05, 2.15)
    axes.set_ylim(len(rows) - 0.2, -0.8)
    axes.set_xticks([LEFT, RIGHT], [f"by {flow.against}", "by ability"])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0, labelsize=9)
    beyond = sum(bool(row["beyond"]) for row in rows)
    below = (
        f"{len(rows):,} subjects in the first {top:,} of both; green up, orange down;"
        f" strong: beyond the rank interval ({beyond:,})"
    )
    title(axes, f"Ranks by {flow.against} and by ability", below)
    return figure


def _ease() -> tuple[np.ndarray, np.ndarray]:
    """Places across a ribbon, and its height there: level at both ends."""
    x = np.linspace(0, 1, 40)
    return LEFT + 0.04 + (RIGHT - LEFT - 0.08) * x, x**2 * (3 - 2 * x)


def _name(axes: Axes, x: float, y: float, side: str, text: str) -> None:
    """Writes a name next to a point."""
    axes.annotate(text, (x, y), ha=side, va="center", fontsize=6.5)


def _bars(axes: Axes, x: float, ranks: np.ndarray, places: np.ndarray) -> None:
    """A bar for each rank, as high as the subjects that share it, with its number."""
    for rank in np.unique(ranks):
        mine = places[ranks == rank]
        low, high = mine.min() - HALF, mine.max() + HALF
        tied = mine.size > 1
        axes.bar(x, high - low, 0.07, low, color=INK if tied else GREY, zorder=3)
        text = f"{rank}=" if tied else f"{rank}"
        look = {"ha": "center", "va": "center", "fontsize": 5.5, "zorder": 4}
        axes.annotate(text, (x, (low + high) / 2), color="white", **look)
