"""Ranks under resampling: how far up or down other items could move a subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.plots.style import (
    GREY,
    INK,
    PALETTE,
    column,
    draw_segments,
    label,
    legend_below,
    new_figure,
    title,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.validity.stability import Stability

#: Subjects drawn with their names; more are drawn as a band.
NAMED = 60
#: Shares of replicates from which, and up to which, a subject is in the top.
ALWAYS, NEVER = 0.95, 0.05
#: What replicates are, for the title.
VARIED = {
    "items": "replicates with resampled items",
    "halves": "random halves of the items",
    "benchmarks": "replicates without one benchmark each",
    "subjects": "replicates with items calibrated on resampled subjects",
    "families": "replicates with items calibrated without one family each",
}


def plot_rank_ribbons(found: Stability) -> Figure:
    """Draws the interval of each subject's rank over replicates, best first.

    Colours distinguish subjects that are in the top in at least 95 % of the replicates,
    in some, and in at most 5 %. More than 60 subjects are drawn as a band.

    Args:
        found: What `irtjax.stability` returned for resampled responses.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If it is about starts, or no subject has a rank.
    """
    if found.kind == "starts":
        raise ValueError("starts have no rank intervals: resample items or subjects")
    names = ("rank", "rank_lower", "rank_upper", "share_in_top")
    rank, low, high, share = (column(found.table, name) for name in names)
    finite = np.isfinite(rank)
    if not finite.any():
        raise ValueError("no subject has responses to rank it by")
    rank, low, high, share = (x[finite] for x in (rank, low, high, share))
    subjects = np.asarray(found.table.column("subject").to_pylist())[finite]
    count = len(rank)
    place = np.arange(1, count + 1)
    group = np.where(share >= ALWAYS, 0, np.where(share > NEVER, 1, 2))
    texts = (
        f"in the first {found.top} in at least {100 * ALWAYS:.0f} %",
        "in some replicates",
        f"in at most {100 * NEVER:.0f} %",
    )
    colours = PALETTE[2], PALETTE[4], PALETTE[0]
    named = count <= NAMED
    size = (7.0, 1.8 + 0.19 * count) if named else (7.0, 5.2)
    figure, (axes,) = new_figure(*size, grid="x")
    axes.axvline(found.top + 0.5, color=GREY, ls="--", lw=0.8)
    for k, text in enumerate(texts):
        mine = np.flatnonzero(group == k)
        if not len(mine):
            continue
        look = {"color": colours[k], "zorder": 3}
        if named:
            ends = low[mine] - 0.4, high[mine] - low[mine] + 0.8
            axes.barh(
                place[mine], ends[1], 0.62, ends[0], alpha=0.55, label=text, **look
            )
            axes.scatter(rank[mine], place[mine], s=14, color=INK, zorder=4)
        else:
            ends = [np.c_[x, place[mine]] for x in (low[mine] - 0.5, high[mine] + 0.5)]
            # The axes are about 290 points high.
            draw_segments(axes, *ends, alpha=0.5, lw=350 / count, label=text, **look)
    if named:
        axes.set_yticks(place, [label(str(name), 34) for name in subjects])
        axes.tick_params(axis="y", length=0, labelsize=7)
    else:
        axes.plot(rank, place, color=INK, lw=0.9, zorder=4)
        axes.set_ylabel("Subjects, best first")
    axes.set_ylim(count + 0.8, 0.2)
    axes.set_xlim(0.4, count + 0.6)
    axes.set_xlabel("Rank")
    axes.xaxis.get_major_locator().set_params(integer=True)
    runs = found.runs.num_rows
    below = f"central {100 * found.level:.3g} % of {runs:,} {VARIED[found.kind]}"
    title(axes, "Ranks under resampling", below)
    legend_below(figure, [axes], 3)
    return figure
