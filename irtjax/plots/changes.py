"""Who moves up and who down between two fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.data.wording import counted
from irtjax.plots.style import GREY, PALETTE, column, label, new_figure, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration

#: Subjects drawn, and those named when there are more than that.
DRAWN, NAMED = 60, 40


def rank_changes(first: Calibration, second: Calibration):
    """Returns the names that both fits have, and their ranks among these in each."""
    from scipy.stats import rankdata

    abilities = [_abilities(one) for one in (first, second)]
    both = set(abilities[0]) & set(abilities[1])
    if len(both) < 2:
        raise ValueError(
            f"{counted(len(both), 'subject')} in both fits: a comparison of"
            " ranks needs two (subjects are matched by name)"
        )
    common = [name for name in abilities[0] if name in both]
    values = [[-ability[name] for name in common] for ability in abilities]
    before, after = rankdata(values, "min", axis=1).astype(int)
    return common, before, after


def _abilities(fit: Calibration) -> dict[str, float]:
    """Abilities by subject, of those that have an estimate."""
    names = fit.abilities.table.column("subject").to_pylist()
    values = column(fit.abilities.table, "ability")
    return {n: v for n, v in zip(names, values, strict=True) if np.isfinite(v)}


def plot_rank_changes(
    first: Calibration,
    second: Calibration,
    *,
    labels: tuple[str, str] = ("first fit", "second fit"),
) -> Figure:
    """Draws the ranks of the subjects that two fits share, joined by lines (bump plot).

    Lines of subjects that move by a tenth of the field or more are coloured: up in one
    colour, down in another. Of many subjects those are drawn that move most, and the
    first of either fit.

    Args:
        first: A calibration.
        second: Another one: other items, another model.
        labels: Names of the two.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If fewer than two subjects are in both.
    """
    from scipy.stats import kendalltau

    names, before, after = rank_changes(first, second)
    count = len(names)
    rows = np.arange(count)
    if count > DRAWN:
        best = np.argsort(np.minimum(before, after), kind="stable")[: DRAWN // 2]
        moved = np.argsort(-np.abs(before - after), kind="stable")
        rest = [row for row in moved if row not in set(best)][: DRAWN - len(best)]
        rows = np.sort(np.r_[best, rest])
    figure, (axes,) = new_figure(7.5, 2.0 + 0.17 * len(rows))
    far = max(1.0, 0.1 * count)
    # The places of those drawn, in the order of their ranks; equal ranks in the order
    # of the other fit, so that lines do not cross without need.
    places = []
    for ranks, others in ((before, after), (after, before)):
        order = np.lexsort((others[rows], ranks[rows]))
        places.append(np.argsort(order) + 1)
    for row, left, right in zip(rows, *places, strict=True):
        change = int(after[row]) - int(before[row])
        colour, width = GREY, 0.8
        if abs(change) >= far:
            colour, width = (PALETTE[2] if change < 0 else PALETTE[1]), 1.6
        axes.plot([0, 1], [left, right], color=colour, lw=width, alpha=0.8)
        axes.scatter([0, 1], [left, right], s=8, color=colour, zorder=3)
        name = label(names[row], 36)
        for x, y, side, text in (
            (-0.03, left, "right", f"{name}  {before[row]}"),
            (1.03, right, "left", f"{after[row]}  {name}"),
        ):
            axes.annotate(text, (x, y), ha=side, va="center", fontsize=6.5)
    axes.set_xlim(-0.9, 1.9)
    axes.set_ylim(len(rows) + 0.7, 0.3)
    axes.set_xticks([0, 1], [label(name, 30) for name in labels])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    tau = float(np.asarray(kendalltau(before, after))[0])
    text = f"{counted(count, 'subject')} in both, Kendall's tau {tau:.2f}"
    text += f"; {len(rows)} drawn" if len(rows) < count else ""
    title(axes, "Ranks in two fits", text)
    return figure
