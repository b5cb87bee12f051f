"""Abilities of models in two sources: who differs from what the other expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from irtjax.data.wording import percent
from irtjax.plots.style import GREY, PALETTE, column, label, new_figure, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.comparisons.joint import Joint

#: Models that are named: those that differ most.
NAMED = 14


def plot_sources(joint: Joint, first: str, second: str) -> Figure:
    """Draws the second source's abilities against the first's, with intervals.

    The line is what the other sources expect of the second. Models that differ from it
    significantly are coloured, the farthest ones named.

    Args:
        joint: The result of `irtjax.fit_jointly`.
        first: Source of the horizontal axis.
        second: Source of the vertical axis.

    Raises:
        ValueError: If a name is not that of a source.
    """
    for name in (first, second):
        if name not in joint.sources:
            raise ValueError(f"no source {name!r}: {', '.join(joint.sources)}")
    source = np.array(joint.residuals["source"].to_pylist())
    sides = [
        joint.residuals.take(np.flatnonzero(source == name)) for name in (first, second)
    ]
    names = [x["subject"].to_pylist() for x in sides]
    common = [name for name in names[0] if name in set(names[1])]
    x, y = (
        table.take([own.index(name) for name in common])
        for table, own in zip(sides, names, strict=True)
    )
    figure, panels = new_figure(7.5, 5.6, grid="both")
    axes, half = panels[0], float(ndtri(0.5 + joint.level / 2))
    residual, q_value = column(y, "residual"), column(y, "q_value")
    differs = q_value <= 1 - joint.level
    colours = np.where(differs, np.where(residual > 0, PALETTE[0], PALETTE[1]), GREY)
    values = [column(table, "ability") for table in (x, y)]
    errors = [half * column(table, "ability_se") for table in (x, y)]
    axes.errorbar(
        *values, errors[1], errors[0], fmt="none", ecolor=colours, elinewidth=0.8
    )
    axes.scatter(*values, s=14, c=colours, zorder=3)
    order = np.argsort(values[0])
    axes.plot(values[0][order], column(y, "expected")[order], color=GREY, lw=1)
    far = np.argsort(-np.where(differs, abs(residual), -1.0), kind="stable")[:NAMED]
    for k in far[differs[far]]:
        axes.annotate(
            label(common[k], 28),
            (values[0][k], values[1][k]),
            (4, 4 if residual[k] > 0 else -9),
            textcoords="offset points",
            fontsize=7,
            color=colours[k],
        )
    row = next(r for r in joint.agreement if {r.first, r.second} == {first, second})
    axes.set_xlabel(f"ability: {first}")
    axes.set_ylabel(f"ability: {second}")
    title(
        axes,
        f"{second} and {first}: correlation {row.correlation:.2f}"
        f" [{row.lower:.2f}, {row.upper:.2f}]",
        f"of true abilities of {row.num_common} models; bars are"
        f" {percent(joint.level)} intervals; coloured: differs from the line",
    )
    return figure
