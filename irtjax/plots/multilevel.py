"""Figures of multilevel fits: abilities by group, profiles, and correlations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from irtjax.data.wording import percent
from irtjax.plots.abilities import named_rows
from irtjax.plots.style import (
    GREY,
    INK,
    PALE,
    PALETTE,
    column,
    label,
    new_figure,
    title,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration, Structure

#: Rows and columns that each get a name, and cells that each get a number.
NAMED, NUMBERED = 60, 16
#: Blue to white to red: ends that are distinct with colour blindness.
COLOURS = "RdBu_r"


def plot_abilities_by_group(fit: Calibration) -> Figure:
    """Draws every subject's ability in every group (metric or benchmark) as colours.

    Subjects are in the order of the ranking; the first column is the general ability.

    Args:
        fit: A calibration of a multilevel model with several groups.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If the fit has no groups.
    """
    structure = _structure(fit)
    general = column(fit.ability_table, "ability")
    order = np.argsort(-general, kind="stable")
    values = np.column_stack([general, structure.ability])[order]
    names = fit.subjects[order].tolist()
    groups = ["general", *map(str, structure.groups)]
    count, width = values.shape
    figure, (axes,) = new_figure(2.8 + 0.34 * width, 1.9 + 0.16 * min(count, NAMED))
    limit = float(np.nanmax(np.abs(values)))
    picture = axes.imshow(values, cmap=COLOURS, vmin=-limit, vmax=limit, aspect="auto")
    axes.axvline(0.5, color="white", lw=2.5)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xticks(
        range(width), [label(g, 24) for g in groups], rotation=55, ha="right"
    )
    shown = named_rows(count, NAMED)
    axes.set_yticks(shown, [label(names[k], 30) for k in shown])
    axes.tick_params(length=0, labelsize=7)
    bar = figure.colorbar(picture, ax=axes, shrink=0.6, pad=0.02)
    bar.set_label("Ability (sd of the general ability)", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    below = f"{count:,} subjects by {width - 1} groups, best on top"
    title(axes, "Abilities by group", below)
    return figure


def plot_profiles(fit: Calibration, subjects: Sequence[str]) -> Figure:
    """Draws a few subjects' abilities by group as closed lines on spokes (a radar).

    Bands are intervals at the fit's level; the dashed circle is the mean, 0. A point is
    drawn at its ability, the centre being a little below the lowest of all.

    Args:
        fit: A calibration of a multilevel model with three or more groups.
        subjects: Names of one to eight subjects.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If the fit has fewer groups, or a name is not among its subjects.
    """
    from matplotlib.figure import Figure
    from scipy.special import ndtri

    structure = _structure(fit)
    groups = [str(g) for g in structure.groups]
    if len(groups) < 3:
        raise ValueError(
            f"a radar of {len(groups)} groups has no area: use plot_abilities_by_group"
        )
    if not 1 <= len(subjects) <= len(PALETTE):
        raise ValueError(
            f"{len(subjects)} subjects are not 1 to {len(PALETTE)}: choose fewer"
        )
    names = fit.ability_table.column("subject").to_pylist()
    for name in subjects:
        if name not in names:
            raise ValueError(f"no subject is called {name!r} in this fit")
    half = float(ndtri(0.5 + fit.level / 2)) * structure.error
    rows = [names.index(name) for name in subjects]
    lowest = float((structure.ability - half)[rows].min())
    angles = np.linspace(0, 2 * np.pi, len(groups), endpoint=False)
    figure = Figure(figsize=(6.4, 5.4), layout="constrained", facecolor="white")
    axes = figure.add_subplot(projection="polar")
    closed = lambda values: np.append(values, values[0])  # noqa: E731
    for colour, row, name in zip(PALETTE, rows, subjects, strict=False):
        line, width = structure.ability[row], half[row]
        axes.plot(closed(angles), closed(line), color=colour, lw=1.6, label=label(name))
        band = closed(line - width), closed(line + width)
        axes.fill_between(closed(angles), *band, color=colour, alpha=0.14, lw=0)
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(turn, np.zeros(200), color=GREY, lw=0.8, ls="--")
    axes.set_ylim(bottom=min(lowest, 0) - 0.3)
    axes.set_xticks(angles, [label(g, 22) for g in groups])
    axes.tick_params(labelsize=7, colors=INK)
    axes.grid(color=PALE, linewidth=0.7)
    axes.spines["polar"].set_color(PALE)
    axes.legend(
        loc="upper left", bbox_to_anchor=(-0.28, 1.0), fontsize=8, frameon=False
    )
    figure.suptitle(
        f"Abilities by group, with {percent(fit.level)} intervals", fontsize=11
    )
    return figure


def plot_correlations(fit: Calibration) -> Figure:
    """Draws correlations of groups: of mean responses, and with ability taken out.

    On the left correlations of subjects' mean responses, on the right those of the
    groups' own parts of ability, the general ability apart (`Structure`).

    Args:
        fit: A calibration of a multilevel model with several groups.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If the fit has no groups.
    """
    structure = _structure(fit)
    groups = [label(str(g), 24) for g in structure.groups]
    count = len(groups)
    size = 1.9 + 0.3 * count
    figure, panels = new_figure(2 * size + 0.6, size + 0.9, 2)
    pictures = (
        ("Mean responses", "correlations over subjects", structure.raw_correlation),
        ("Own parts of ability", "general ability apart", structure.own_correlation),
    )
    for axes, (name, below, matrix) in zip(panels, pictures, strict=True):
        axes.imshow(matrix, cmap=COLOURS, vmin=-1, vmax=1)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_xticks(range(count), groups, rotation=55, ha="right")
        axes.set_yticks(range(count), groups)
        axes.tick_params(length=0, labelsize=7)
        title(axes, name, below)
        if count <= NUMBERED:
            for i, j in np.ndindex(count, count):
                ink = "white" if abs(matrix[i, j]) > 0.6 else INK
                text = f"{matrix[i, j]:.2f}".replace("0.", ".")
                axes.text(j, i, text, ha="center", va="center", fontsize=5.5, color=ink)
    bar = figure.colorbar(panels[0].images[0], ax=list(panels), shrink=0.7, pad=0.01)
    bar.ax.tick_params(labelsize=7)
    return figure


def _structure(fit: Calibration) -> Structure:
    if fit.structure is None or len(fit.structure.groups) < 2:
        raise ValueError(
            "this fit has one ability per subject: fit model='multibenchmark' or"
            " 'multimetric' to have one for each group"
        )
    return fit.structure
