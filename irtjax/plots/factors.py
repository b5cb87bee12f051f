"""Figures of factor models: which items measure which factor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.plots import style
from irtjax.plots.abilities import named_rows
from irtjax.plots.multilevel import COLOURS, NAMED
from irtjax.plots.style import GREY, PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration
    from irtjax.validity.dimensionality import Dimensions


def plot_structure(fit: Calibration) -> Figure:
    """Draws correlations of items and factors as colours, items sorted by factor.

    An item stands with the factor that it correlates with most, strongest first.

    Args:
        fit: A calibration of a factor model.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If the fit has no factors.
    """
    found = fit.factors
    if found is None:
        raise ValueError("this fit has no factors: fit model='factor'")
    strength = np.abs(found.structure)
    own = strength.argmax(axis=1)
    order = np.lexsort((-strength.max(axis=1), own))
    count, width = found.structure.shape
    height = 1.9 + 0.16 * min(count, NAMED)
    figure, (axes,) = style.new_figure(3.2 + 0.5 * width, height)
    limits = {"cmap": COLOURS, "vmin": -1, "vmax": 1, "aspect": "auto"}
    picture = axes.imshow(found.structure[order], interpolation="nearest", **limits)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xticks(range(width), [style.label(str(n), 24) for n in found.names])
    names = fit.items[order].tolist()
    shown = named_rows(count, NAMED)
    axes.set_yticks(shown, [style.label(names[k], 30) for k in shown])
    axes.tick_params(length=0, labelsize=7)
    for place in np.flatnonzero(np.diff(own[order])):
        axes.axhline(place + 0.5, color="white", lw=1.2)
    bar = figure.colorbar(picture, ax=axes, shrink=0.6, pad=0.02)
    bar.set_label("Correlation of item and factor", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    style.title(
        axes, "Structure of items", f"{count:,} items, {found.rotation} rotation"
    )
    return figure


def plot_dimensions(found: Dimensions) -> Figure:
    """Draws the loss of held-out cells and the eigenvalues by number of factors.

    Args:
        found: What `irtjax.dimensions` returned.

    Returns:
        The figure; nothing is shown or saved.
    """
    table = found.table.to_pydict()
    factors = np.asarray(table["factors"])
    figure, (left, right) = style.new_figure(8.6, 3.4, 2, grid="y")
    loss, error = (np.asarray(table[name]) for name in ("loss", "loss_se"))
    left.errorbar(factors, loss, error, fmt="o-", color=PALETTE[0], ms=4, lw=1.2)
    left.axvline(found.chosen, color=GREY, ls="--", lw=0.8)
    left.set_xlabel("Factors")
    left.set_ylabel("Loss per held-out response (nats)")
    below = f"bars: one standard error; {found.chosen} chosen"
    style.title(left, "Held-out responses", below)
    known = factors[1:]
    for name, colour, text in (
        ("eigenvalue", PALETTE[0], "responses"),
        ("eigenvalue_permuted", PALETTE[1], "permuted, 95 % quantile"),
    ):
        values = np.asarray(table[name][1:], float)
        right.plot(known, values, "o-", color=colour, ms=4, lw=1.2, label=text)
    right.set_xlabel("Factor")
    right.set_ylabel("Eigenvalue of tetrachoric correlations")
    right.legend(fontsize=8, frameon=False)
    style.title(right, "Scree", f"parallel analysis: {found.by_parallel}")
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
    return figure
