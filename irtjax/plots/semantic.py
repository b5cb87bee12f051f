"""Correlations of responses by the similarity of items' features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.data.wording import counted
from irtjax.plots.style import PALETTE, legend_below, new_figure, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.validity.semantic import SemanticSpace


def plot_semantic_space(space: SemanticSpace) -> Figure:
    """Draws tetrachoric and residual correlations by the cosine of items' features.

    Left: a point for each pair of items. With few subjects tetrachoric correlations
    range from -1 to 1 by chance. The other panels therefore have means over bins with
    equal numbers of pairs, and the band of simulated tables of one ability.

    Args:
        space: What `irtjax.semantic_space` returned.

    Returns:
        The figure; nothing is shown or saved.
    """
    figure, (left, *others) = new_figure(11.5, 3.9, 3, grid="y")
    cosine, tetrachoric = (
        space.pairs[name].to_numpy() for name in ("cosine", "tetrachoric")
    )
    # Some 20,000 points as lines of a vector file are slow to show.
    look = {"s": 3, "alpha": 0.15, "lw": 0, "color": PALETTE[0], "rasterized": True}
    left.scatter(cosine, tetrachoric, **look)
    left.set_ylabel("Tetrachoric correlation")
    number = counted(int(np.isfinite(tetrachoric).sum()), "pair")
    title(left, "Pairs of items", f"{number}, {counted(space.subjects, 'subject')}")
    for axes, name in zip(others, ("tetrachoric", "residual"), strict=True):
        _draw_means(axes, space, name)
    legend_below(figure, others[:1], 2)
    left.set_ylim(-1.05, 1.05)
    for axes in (left, *others):
        axes.set_xlabel("Cosine of features")
        axes.set_xlim(*left.get_xlim())
    return figure


def _draw_means(axes: Axes, space: SemanticSpace, name: str) -> None:
    """Means of bins of cosines at the middle of each, with the band of one ability."""
    rows = space.table.slice(0, space.table.num_rows - 1)
    begin, end = (rows[f"cosine_{x}"].to_numpy() for x in ("from", "to"))
    middle = (begin + end) / 2
    lower, upper = (rows[f"{name}_{x}"].to_numpy() for x in ("lower", "upper"))
    if np.isfinite(lower).all():
        band = {"color": PALETTE[1], "alpha": 0.25, "lw": 0, "label": "one ability"}
        axes.fill_between(middle, lower, upper, **band)
    mean = rows[name].to_numpy()
    axes.plot(middle, mean, color=PALETTE[0], marker="o", ms=4, label="responses")
    axes.set_ylabel(f"Mean {name} correlation")
    value, low, high = space.correlation[name]
    text = f"with cosines: r = {value:.3f}"
    band_text = f"; one ability: {low:.3f} to {high:.3f}" if np.isfinite(low) else ""
    title(axes, f"Mean {name} correlations", text + band_text)
