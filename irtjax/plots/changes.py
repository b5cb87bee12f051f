"""Who moves up and who down between two fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.data.wording import counted
from irtjax.plots.style import GREY, PALETTE, column, label, new_figure, title
from irtjax.ranking.ranks import TIED, places_gained, tied_places

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration

#: Subjects drawn, and those named when there are more than that.
DRAWN, NAMED = 60, 40


def rank_changes(first: Calibration, second: Calibration):
    """Returns the names that both fits have, and their ranks among these in each."""
    names, before, after = _places(first, second)
    return names, before[0], after[0]


def _places(first: Calibration, second: Calibration):
    """Names in both fits, with the first and the last place of each: `tied_places`."""
    abilities = [_abilities(one) for one in (first, second)]
    shared = set(abilities[0]) & set(abilities[1])
    if len(shared) < 2:
        raise ValueError(
            f"{counted(len(shared), 'subject')} in both fits: a comparison of"
            " ranks needs two (subjects are matched by name)"
        )
    common = [name for name in abilities[0] if name in shared]
    before, after = (
        tied_places(*np.transpose([ability[name] for name in common]))
        for ability in abilities
    )
    return common, before, after


def _abilities(fit: Calibration) -> dict[str, tuple[float, float]]:
    """Abilities by subject, of those that have one, and how close equal ones are."""
    names = fit.abilities.table.column("subject").to_pylist()
    values = column(fit.abilities.table, "ability")
    slack = np.nan_to_num(TIED * column(fit.abilities.table, "ability_se"))
    rows = zip(names, values, slack, strict=True)
    return {name: (x, close) for name, x, close in rows if np.isfinite(x)}


def _beyond(fit: Calibration, names: list[str], places) -> np.ndarray:
    """Whether a subject's places in another fit lie outside its rank interval here.

    Where the fit has other subjects too, its rank intervals are not of these places,
    and exclude none.
    """
    table = fit.abilities.table
    if table.num_rows != len(names):
        return np.ones(len(names), bool)
    at = {name: k for k, name in enumerate(table.column("subject").to_pylist())}
    rows = [at[name] for name in names]
    low, high = (column(table, name)[rows] for name in ("rank_lower", "rank_upper"))
    first, last = places
    # Comparisons with bounds that are not known are False.
    return ~((first <= high) & (low <= last))


def plot_rank_changes(
    first: Calibration,
    second: Calibration,
    *,
    labels: tuple[str, str] = ("first fit", "second fit"),
) -> Figure:
    """Draws the ranks of the subjects that two fits share, joined by lines (bump plot).

    Lines of subjects that move by a tenth of the field or more are coloured: up in one
    colour, down in another. Subjects that are tied do not move: neither within places
    that equal abilities share ("3=" on the figure), nor within their rank intervals. Of
    many subjects those are drawn that move most, and the first of either fit.

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

    names, places_before, places_after = _places(first, second)
    before, after = places_before[0], places_after[0]
    gained = places_gained(places_before, places_after)
    clear = _beyond(first, names, places_after) & _beyond(second, names, places_before)
    count = len(names)
    rows = np.arange(count)
    if count > DRAWN:
        best = np.argsort(np.minimum(before, after), kind="stable")[: DRAWN // 2]
        moved = np.argsort(-np.abs(gained * clear), kind="stable")
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
        colour, width = GREY, 0.8
        if clear[row] and abs(gained[row]) >= far:
            colour, width = (PALETTE[2] if gained[row] > 0 else PALETTE[1]), 1.6
        axes.plot([0, 1], [left, right], color=colour, lw=width, alpha=0.8)
        axes.scatter([0, 1], [left, right], s=8, color=colour, zorder=3)
        name = label(names[row], 36)
        for x, y, side, text in (
            (-0.03, left, "right", f"{name}  {_rank(places_before, row)}"),
            (1.03, right, "left", f"{_rank(places_after, row)}  {name}"),
        ):
            axes.annotate(text, (x, y), ha=side, va="center", fontsize=6.5)
    axes.set_xlim(-0.9, 1.9)
    axes.set_ylim(len(rows) + 0.7, 0.3)
    axes.set_xticks([0, 1], [label(name, 30) for name in labels])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    tau = float(np.asarray(kendalltau(before, after))[0])
    text = f"{counted(count, 'subject')} in both, Kendall's tau {tau:.2f}"
    far_moved = int((clear & (np.abs(gained) >= far)).sum())
    text += f"; {far_moved} beyond ties" if far_moved else "; none moves beyond ties"
    text += f"; {len(rows)} drawn" if len(rows) < count else ""
    title(axes, "Ranks in two fits", text)
    return figure


def _rank(places, row: int) -> str:
    """The rank of a subject, marked where others share it."""
    first, last = (int(x[row]) for x in places)
    return f"{first}=" if last > first else f"{first}"
