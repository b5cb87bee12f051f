"""Figures of multilevel fits: abilities by group, profiles, and correlations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.calibration.parts import Structure
from irtjax.data.matching import find_names
from irtjax.data.wording import counted, percent
from irtjax.plots import style
from irtjax.plots.abilities import named_rows
from irtjax.plots.style import GREY, INK, PALE, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration

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
    general = style.column(fit.abilities.table, "ability")
    order = np.argsort(-general, kind="stable")
    values = np.column_stack([general, structure.ability])[order]
    names = fit.subject_names[order].tolist()
    groups = ["general", *map(str, structure.groups)]
    count, width = values.shape
    height = 1.9 + 0.16 * min(count, NAMED)
    figure, (axes,) = style.new_figure(2.8 + 0.34 * width, height)
    limit = float(np.nanmax(np.abs(values)))
    picture = _matrix(axes, values, groups, limit, aspect="auto")
    axes.axvline(0.5, color="white", lw=2.5)
    shown = named_rows(count, NAMED)
    axes.set_yticks(shown, [style.label(names[k], 30) for k in shown])
    bar = figure.colorbar(picture, ax=axes, shrink=0.6, pad=0.02)
    bar.set_label("Ability (sd of the general ability)", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    below = f"{counted(count, 'subject')} by {counted(width - 1, 'group')}, best on top"
    style.title(axes, "Abilities by group", below)
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
    names = np.array(fit.abilities.table.column("subject").to_pylist())
    rows = find_names(names, subjects, "subject")
    half = float(ndtri(0.5 + fit.level / 2)) * structure.error
    lowest = float((structure.ability - half)[rows].min())
    angles = np.linspace(0, 2 * np.pi, len(groups) + 1)
    figure = style.empty_figure(6.4, 5.4)
    axes = figure.add_subplot(projection="polar")
    for colour, row, name in zip(PALETTE, rows, subjects, strict=False):
        # The first group again closes the line.
        line, width = (np.append(x[row], x[row, 0]) for x in (structure.ability, half))
        axes.plot(angles, line, color=colour, lw=1.6, label=style.label(name))
        band = line - width, line + width
        axes.fill_between(angles, *band, color=colour, alpha=0.14, lw=0)
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(turn, np.zeros(200), color=GREY, lw=0.8, ls="--")
    axes.set_ylim(bottom=min(lowest, 0) - 0.3)
    axes.set_xticks(angles[:-1], [style.label(g, 22) for g in groups])
    axes.tick_params(labelsize=7, colors=INK)
    axes.grid(color=PALE, linewidth=0.7)
    axes.spines["polar"].set_color(PALE)
    place = {"loc": "upper left", "bbox_to_anchor": (-0.28, 1.0)}
    axes.legend(fontsize=8, frameon=False, **place)
    text = f"Abilities by group, with {percent(fit.level)} intervals"
    figure.suptitle(text, fontsize=11)
    return figure


def plot_correlations(fit: Calibration) -> Figure:
    """Draws correlations of groups: of mean responses, and with ability taken out.

    On the left correlations of subjects' mean responses, on the right those of the
    group-specific abilities, without the general ability (`Structure`).

    Args:
        fit: A calibration of a multilevel model with several groups.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If the fit has no groups.
    """
    structure = _structure(fit)
    groups = [str(g) for g in structure.groups]
    count = len(groups)
    size = 1.9 + 0.3 * count
    figure, panels = style.new_figure(2 * size + 0.6, size + 0.9, 2)
    pictures = (
        ("Mean responses", "correlations over subjects", structure.raw_correlation),
        (
            "Group-specific abilities",
            "without the general ability",
            structure.specific_correlation,
        ),
    )
    for axes, (name, below, matrix) in zip(panels, pictures, strict=True):
        _matrix(axes, matrix, groups, 1)
        axes.set_yticks(range(count), [style.label(g, 24) for g in groups])
        style.title(axes, name, below)
        if count <= NUMBERED:
            for i, j in np.ndindex(count, count):
                ink = "white" if abs(matrix[i, j]) > 0.6 else INK
                text = f"{matrix[i, j]:.2f}".replace("0.", ".")
                axes.text(j, i, text, ha="center", va="center", fontsize=5.5, color=ink)
    bar = figure.colorbar(panels[0].images[0], ax=list(panels), shrink=0.7, pad=0.01)
    bar.ax.tick_params(labelsize=7)
    return figure


def _matrix(axes: Axes, values: np.ndarray, columns: list, limit: float, **more: Any):
    """Draws a matrix as colours, with names of its columns."""
    picture = axes.imshow(values, cmap=COLOURS, vmin=-limit, vmax=limit, **more)
    axes.spines[["left", "bottom"]].set_visible(False)
    names = [style.label(name, 24) for name in columns]
    axes.set_xticks(range(len(names)), names, rotation=55, ha="right")
    axes.tick_params(length=0, labelsize=7)
    return picture


def _structure(fit: Calibration) -> Structure:
    """The estimates by group of a fit; refuses one without groups."""
    if fit.factor_names:
        raise ValueError(
            "abilities of a factor model belong to no groups of items: use"
            " plots.plot_structure or plots.plot_biplot"
        )
    if fit.num_groups < 2:
        raise ValueError(Structure.absence)
    return fit.require(Structure)
