"""Figures of factor models: items, subjects and factors; how many factors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.calibration.parts import Factors
from irtjax.data.wording import counted
from irtjax.plots import style
from irtjax.plots.abilities import named_rows
from irtjax.plots.multilevel import COLOURS, NAMED
from irtjax.plots.style import GREY, INK, PALE, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration
    from irtjax.validity.dimensionality import Dimensions
    from irtjax.validity.heterogeneity import Heterogeneity


#: Items drawn as arrows; more are drawn as points, of which so many are named.
ARROWS, NAMED_ITEMS = 30, 8
#: Times the largest eigenvalue is that of permuted responses, from which the scree is
#: drawn on a logarithmic axis.
FLAT = 8


def plot_structure(fit: Calibration, clusters: Heterogeneity | None = None) -> Figure:
    """Draws correlations of items and factors as colours, items sorted.

    An item stands with the factor that it correlates with most, strongest first. With
    clusters it stands in the cluster of its benchmark; items in none are left out.

    Args:
        fit: A calibration of a factor model.
        clusters: What `irtjax.heterogeneity` returned for it.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If the fit has no factors.
    """
    factors = fit.require(Factors)
    strength = np.abs(factors.structure)
    own = strength.argmax(axis=1)
    order = np.lexsort((-strength.max(axis=1), own))
    blocks, names = own, []
    if clusters is not None:
        blocks, names = _blocks(fit, clusters)
        order = np.lexsort((-strength.max(axis=1), own, blocks))
        order = order[blocks[order] >= 0]
    count, width = len(order), factors.structure.shape[1]
    height = 1.9 + 0.16 * min(count, NAMED)
    figure, (axes,) = style.new_figure(3.2 + 0.5 * width, height)
    limits = {"cmap": COLOURS, "vmin": -1, "vmax": 1, "aspect": "auto"}
    picture = axes.imshow(factors.structure[order], interpolation="nearest", **limits)
    axes.spines[["left", "bottom"]].set_visible(False)
    slanted = {"rotation": 30, "ha": "right"} if width > 2 else {}
    axes.set_xticks(
        range(width), [style.label(str(n), 24) for n in factors.names], **slanted
    )
    if names:
        _name_blocks(axes, blocks[order], names)
    else:
        shown = named_rows(count, NAMED)
        items = fit.item_names[order].tolist()
        axes.set_yticks(shown, [style.label(items[k], 30) for k in shown])
    axes.tick_params(length=0, labelsize=7)
    for place in np.flatnonzero(np.diff(blocks[order])):
        axes.axhline(place + 0.5, color="white", lw=1.2)
    bar = figure.colorbar(picture, ax=axes, shrink=0.6, pad=0.02)
    bar.set_label("Correlation of item and factor", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    sorted_by = "" if clusters is None else ", sorted by cluster"
    turned = (
        f"{factors.rotation} rotation" if factors.rotation != "none" else "not rotated"
    )
    below = f"{counted(count, 'item')}, {turned}{sorted_by}"
    style.title(axes, "Structure of items", below)
    return figure


def _blocks(fit: Calibration, clusters: Heterogeneity) -> tuple[np.ndarray, list[str]]:
    """The block of each item, -1 for none, and the names of blocks in order."""
    rows = {row["item"]: row for row in clusters.items.to_pylist()}
    keys = [
        (row["benchmark"], row["cluster"]) if (row := rows.get(item)) else ("", None)
        for item in fit.item_names.tolist()
    ]
    named = sorted({key for key in keys if key[1] is not None})
    place = {key: k for k, key in enumerate(named)}
    codes = np.array([place.get(key, -1) for key in keys])
    sizes = np.bincount(codes[codes >= 0], minlength=len(named))
    lead = lambda name: f"{style.label(name, 22)} " if name else "cluster "
    names = [
        f"{lead(name)}{k} ({size:,})"
        for (name, k), size in zip(named, sizes, strict=True)
    ]
    return codes, names


def _name_blocks(axes: Axes, blocks: np.ndarray, names: list[str]) -> None:
    """Names blocks of rows at their middles; of crowded ones every few."""
    starts = np.flatnonzero(np.diff(blocks, prepend=-1))
    middles = (starts + np.append(starts[1:], len(blocks)) - 1) / 2
    room = len(blocks) / NAMED
    shown, last = [], -np.inf
    for k, middle in enumerate(middles):
        if middle - last >= room:
            shown.append(k)
            last = middle
    axes.set_yticks(middles[shown], [names[blocks[starts[k]]] for k in shown])


def plot_biplot(fit: Calibration, factors: tuple[int, int] = (1, 2)) -> Figure:
    """Draws subjects and items on two factors.

    A subject is a point at its abilities, an item an arrow or, of more than 30, a point
    at its standardised loadings, on the scale at the top and right. The projection of a
    subject on an item's direction is higher the likelier a right response.

    Args:
        fit: A calibration of a factor model.
        factors: Numbers of the two factors, the first being 1.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If the fit does not have these factors.
    """
    solution = fit.require(Factors)
    size = len(solution.names)
    two = [number - 1 for number in factors]
    if len(two) != 2 or two[0] == two[1] or not all(0 <= k < size for k in two):
        raise ValueError(
            f"factors {tuple(factors)}: give the numbers of two factors, from 1 to"
            f" {size}"
        )
    ability, loadings = solution.ability[:, two], solution.loadings[:, two]
    figure, (axes,) = style.new_figure(6.6, 5.6)
    axes.axhline(0, color=PALE, lw=0.8, zorder=0)
    axes.axvline(0, color=PALE, lw=0.8, zorder=0)
    count, items = len(ability), len(loadings)
    dot = float(np.clip(4000 / count, 4, 24))
    look = {"edgecolors": GREY, "facecolors": "none", "lw": 0.7}
    look["alpha"] = 0.8 if count < 500 else 0.35
    axes.scatter(*ability.T, s=dot, label=f"{counted(count, 'subject')}", **look)
    # The longest item reaches as far as most subjects.
    longest = max(float(np.linalg.norm(loadings, axis=1).max(initial=0)), 1e-6)
    reach = float(np.quantile(np.abs(ability), 0.98)) / longest
    ends = loadings * max(reach, 1e-6)
    codes, groups = style.item_benchmarks(fit, len(PALETTE) - 1)
    for code, name in enumerate(groups):
        own = ends[codes == code]
        colour = PALETTE[(code + (len(groups) == 1)) % len(PALETTE)]
        text = style.label(name, 26) or "items"
        if items <= ARROWS:
            zero = np.zeros_like(own)
            style.draw_segments(axes, zero, own, color=colour, lw=1.0, alpha=0.8)
        mark = {"marker": "^" if len(groups) == 1 else "o", "lw": 0}
        alpha = 0.9 if items <= 200 else 0.55
        place = float(np.clip(3000 / items, 6, 26))
        label = f"{text} ({len(own):,})"
        axes.scatter(*own.T, s=place, color=colour, alpha=alpha, label=label, **mark)
    strength = np.linalg.norm(loadings, axis=1)
    named = _spread_out(ends, strength, ARROWS if items <= ARROWS else NAMED_ITEMS)
    _name_points(axes, ends[named], [str(fit.item_names[k]) for k in named])
    scale = lambda x: x / reach, lambda x: x * reach
    for side in ("top", "right"):
        add = axes.secondary_xaxis if side == "top" else axes.secondary_yaxis
        other = add(side, functions=scale)
        # No standardised loading of uncorrelated factors lies beyond.
        other.set_ticks([-1, -0.5, 0, 0.5, 1])
        other.tick_params(colors=GREY, labelsize=7, width=0.6, length=2)
        other.spines[side].set_visible(False)
    names = [style.label(str(solution.names[k]), 30) for k in two]
    axes.set_xlabel(f"Ability on {names[0]}")
    axes.set_ylabel(f"Ability on {names[1]}")
    style.legend_below(figure, [axes], 4)
    phi = solution.correlation[two[0], two[1]]
    below = f"items: loadings, at the top and right; the factors correlate at {phi:.2f}"
    axes.set_title(
        "Subjects and items", loc="left", fontsize=11, fontweight="bold", pad=32
    )
    place = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(below, (0, 1), (0, 20), fontsize=8, color="#555555", **place)
    return figure


def _name_points(axes: Axes, ends: np.ndarray, names: list[str]) -> None:
    """Writes names outwards of points, and makes room for them at the sides."""
    low, high = axes.get_xlim()
    sides = np.where(ends[:, 0] >= 0, 1, -1)
    texts = [style.label(name, 22) for name in names]
    for end, text, side in zip(ends, texts, sides, strict=True):
        look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 6.5}
        align: dict[str, Any] = {"ha": "left" if side > 0 else "right", "va": "center"}
        axes.annotate(text, end, (4 * int(side), 0), color=INK, **look, **align)
    letters = np.array([len(text) + 3 for text in texts])
    # A letter takes 0.055 of the 5.4 inches of the axes; wider limits make it wider.
    for _ in range(3):
        reach = ends[:, 0] + sides * letters * (high - low) * 0.055 / 5.4
        low, high = min(low, reach.min()), max(high, reach.max())
    axes.set_xlim(low, high)


def _spread_out(ends: np.ndarray, strength: np.ndarray, most: int) -> list[int]:
    """Strong items far from each other, whose names do not lie on each other.

    The strongest is first, then each time the one that is farthest from those before.
    Items less than half as strong have names where there are few items.
    """
    room = np.array([0.25, 0.06]) * max(
        float(np.ptp(ends, axis=0).max(initial=0)), 1e-9
    )
    few = len(ends) <= most
    strong = (strength >= 0.5 * strength.max(initial=0)) | few
    chosen: list[int] = []
    apart = np.where(strong, 1e9 + strength, 0.0)
    while len(chosen) < most and apart.max(initial=0) > 0:
        k = int(np.argmax(apart))
        chosen.append(k)
        away = np.abs(ends - ends[k])
        covered = (away <= room).all(axis=1)
        distance = np.where(covered, 0.0, np.linalg.norm(away, axis=1))
        apart = np.minimum(apart, distance)
    return chosen


def plot_dimensions(found: Dimensions) -> Figure:
    """Draws the loss of held-out cells and the eigenvalues by number of factors.

    Without parallel analysis there are no eigenvalues.

    Args:
        found: What `irtjax.dimensions` returned.

    Returns:
        The figure; nothing is shown or saved.
    """
    table = found.table.to_pydict()
    factors = np.asarray(table["factors"])
    has_scree = found.by_parallel is not None
    size = (8.6, 3.4, 2) if has_scree else (4.3, 3.4, 1)
    figure, axes = style.new_figure(*size, grid="y")
    left = axes[0]
    loss, error = (np.asarray(table[name]) for name in ("loss", "loss_se"))
    left.errorbar(factors, loss, error, fmt="o-", color=PALETTE[0], ms=4, lw=1.2)
    left.axvline(found.chosen, color=GREY, ls="--", lw=0.8)
    left.set_xlabel("Factors")
    left.set_ylabel("Loss per held-out response (nats)")
    below = f"bars: one standard error; {found.chosen} chosen"
    style.title(left, "Held-out responses", below)
    if has_scree:
        _scree(axes[1], found, factors[1:])
    for each in axes:
        each.xaxis.get_major_locator().set_params(integer=True)
    return figure


def _scree(axes: Axes, found: Dimensions, factors: np.ndarray) -> None:
    """Draws the eigenvalues, and the band of those of permuted responses."""
    names = "eigenvalue_permuted_lower", "eigenvalue_permuted", "eigenvalue"
    values = [np.asarray(found.table[x].to_pylist()[1:], float) for x in names]
    text = "permuted responses, 5 to 95 %"
    look = {"color": PALETTE[1], "alpha": 0.3, "lw": 0, "label": text}
    axes.fill_between(factors, values[0], values[1], **look)
    axes.plot(factors, values[1], color=PALETTE[1], lw=1.0)
    axes.plot(
        factors, values[2], "o-", color=PALETTE[0], ms=4, lw=1.2, label="responses"
    )
    if min(map(np.min, values)) > 0 and values[2].max() > FLAT * values[1].max():
        from matplotlib.ticker import LogLocator, NullLocator

        # Else the band would be a line at the foot.
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("Factor")
    axes.set_ylabel("Eigenvalue of tetrachoric correlations")
    axes.legend(fontsize=8, frameon=False)
    style.title(axes, "Scree", f"parallel analysis: {found.by_parallel}")
