"""Shares of points of each pair of models: observed, and as the fit expects them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.comparisons.arena import win_shares
from irtjax.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.comparisons.arena import Arena

#: Models with a name, and numbers in their cells.
NAMED, WRITTEN = 60, 12


def plot_wins(arena: Arena) -> Figure:
    """Draws who wins against whom, best models first: observed and expected shares.

    Args:
        arena: The fit of comparisons; pairs without a comparison are white.

    Returns:
        The figure; nothing is shown or saved.
    """
    order = np.argsort(-arena.abilities.estimates, kind="stable")
    names = np.asarray(arena.abilities.names)[order].tolist()
    share, expected, games = win_shares(arena, names)
    expected = np.where(games > 0, expected, np.nan)
    count = len(names)
    size = float(np.clip(0.55 * count, 3.0, 7.0))
    texts = [style.label(name, 28) for name in names]
    # Inches of the longest name, beside the panels and below them.
    room = 0.07 * max(map(len, texts)) if count <= NAMED else 0.0
    figure, panels = style.new_figure(2 * size + room + 1.5, size + room + 0.8, 2)
    heads = ("Observed", "share of points of the row"), ("Expected", "by the fit")
    image = None
    for axes, values, head in zip(panels, (share, expected), heads, strict=True):
        image = axes.imshow(values, cmap="RdBu", vmin=0, vmax=1)
        style.title(axes, *head)
        for line in axes.spines.values():
            line.set_visible(False)
        axes.tick_params(length=0, labelsize=7 if count <= 30 else 5)
        some = np.arange(count) if count <= NAMED else np.array([], int)
        axes.set_xticks(some, [texts[k] for k in some], rotation=90)
        axes.set_yticks(some, [texts[k] for k in some] if axes is panels[0] else [])
        if count > WRITTEN:
            continue
        for i, j in np.argwhere(np.isfinite(values)):
            text = f"{values[i, j]:.2f}".replace("0.", ".", 1)
            far = abs(values[i, j] - 0.5) > 0.3
            look = {"ha": "center", "va": "center", "fontsize": 8}
            axes.text(j, i, text, color="white" if far else style.INK, **look)
    if image is not None:
        figure.colorbar(image, ax=panels, shrink=0.7, label="share of points")
    return figure
