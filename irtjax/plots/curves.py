"""Curves over ability: item response functions and test information."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.calibration.parts import Structure
from irtjax.data.wording import counted
from irtjax.models.model import check_one_ability, response_ends
from irtjax.plots import style
from irtjax.plots.style import GREY, INK, PALETTE, WIDEST

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration

#: Benchmarks with a curve of their own.
CURVES = 7


def ability_grid(fit: Calibration, num_points: int = 201) -> np.ndarray:
    """Returns abilities that span the population and all subjects."""
    check_one_ability(fit.model, "this figure")
    population = fit.parameters.population
    mean, sd = float(population.mean), float(population.sd)
    ability = style.finite_abilities(fit)
    low = min(mean - 3 * sd, ability.min(initial=mean))
    high = max(mean + 3 * sd, ability.max(initial=mean))
    return np.linspace(max(low, -WIDEST), min(high, WIDEST), num_points)


def expected_information(fit: Calibration) -> np.ndarray:
    """Returns each item's mean information over the normal population, `[items]`."""
    from irtjax.inference.information import mean_information

    check_one_ability(fit.model, "this figure")
    population = fit.parameters.population
    standard = np.linspace(-4, 4, 33)
    weight = np.exp(-0.5 * standard**2)
    nodes = float(population.mean) + float(population.sd) * standard
    items = fit.parameters.items
    rule = (x.astype(items[0].dtype) for x in (nodes, weight / weight.sum()))
    return np.asarray(mean_information(fit.model, items, *rule)) * _worth(fit)


def _worth(fit: Calibration) -> np.ndarray:
    """Information of a score in that of one right or wrong response, `[items]`."""
    from irtjax.models.families.bounded import worth_of

    return worth_of(fit.options, fit.benchmarks, len(fit.item_names))


def information_by_group(
    fit: Calibration, nodes: np.ndarray, codes: np.ndarray, num_groups: int
) -> np.ndarray:
    """Returns the test information of each group of items, `[groups, nodes]`."""
    from irtjax.inference.information import group_information

    items = fit.parameters.items
    nodes = nodes.astype(items[0].dtype)
    worth, information = _worth(fit), np.zeros((num_groups, len(nodes)))
    for each in np.unique(worth):
        # Items with another worth have a code of no group.
        some = np.where(worth == each, codes, num_groups)
        part = group_information(fit.model, items, nodes, some, num_groups)
        information += each * np.asarray(part).T
    return information


def plot_item_response_functions(fit: Calibration, num_items: int = 5) -> Figure:
    """Draws expected responses of the most and the least informative items.

    Items are ordered by their information averaged over the population. Of items with
    the same parameters one is drawn.

    Args:
        fit: The calibration.
        num_items: Items per panel; fewer when there are not enough.

    Returns:
        The figure; nothing is shown or saved.
    """
    from irtjax.inference.expected import response_table_jit

    information = expected_information(fit)
    order = np.argsort(-np.nan_to_num(information), kind="stable")
    count = max(1, min(num_items, len(order) // 2))
    grid = ability_grid(fit)
    family = fit.model.family
    records = fit.parameters.items
    height = 4.2 + 0.16 * count
    figure, panels = style.new_figure(10.5, height, 2, grid="both", sharey=True)
    names, ends = fit.item_names.tolist(), response_ends(fit.model)
    ranked = (order, "Most informative items"), (order[::-1], "Least informative items")
    for axes, (ordered, heading) in zip(panels, ranked, strict=True):
        rows, alike = (part[:count] for part in distinct(fit, ordered))
        chosen = type(records)(*(np.asarray(x)[rows] for x in records))
        curves = response_table_jit(family, chosen, grid)
        for k, row in enumerate(rows):
            same = f" and {alike[k]:,} alike" if alike[k] else ""
            text = f"{style.label(names[row], 34)}{same}  ({information[row]:.2g})"
            dashes = ("-", "--", "-.", ":")[k // len(PALETTE) % 4]
            look = {"color": PALETTE[k % len(PALETTE)], "ls": dashes, "lw": 1.8}
            axes.plot(grid, np.asarray(curves)[:, k], label=text, **look)
        axes.set_xlabel(style.ability_label(fit.model))
        axes.set_xlim(grid[0], grid[-1])
        style.title(axes, heading, "in brackets: mean information over the population")
        style.legend_under(axes, 7.5)
    margin = 0.02 * (ends["top"] - ends["low"])
    panels[0].set_ylim(ends["low"] - margin, ends["top"] + margin)
    labels = {2: "Probability of a right response", 0: "Mean score"}
    panels[0].set_ylabel(labels.get(family.num_categories, "Expected response"))
    return figure


def plot_item_information(
    fit: Calibration, num_items: int = 6, ability: float | None = None
) -> Figure:
    """Draws the information of items, and how it adds up in an adaptive test.

    Left: curves of the items of the most information, averaged over the population; of
    items with the same parameters one is drawn. Right: the information at an ability
    that tests of so many items have, the best items first, and of random items (the
    mean). The scale at the right is the reliability, 1 - 1 / (1 + s^2 information).

    Args:
        fit: The calibration.
        num_items: Items with a curve.
        ability: Ability at the right; None for the mean of the population.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If the fit has several abilities.
    """
    from irtjax.inference.information import item_information

    mean = expected_information(fit)
    order, alike = distinct(fit, np.argsort(-np.nan_to_num(mean), kind="stable"))
    population, grid = fit.parameters.population, ability_grid(fit)
    at = float(population.mean) if ability is None else float(ability)
    items = fit.parameters.items
    nodes = np.append(grid, at).astype(items[0].dtype)
    table = np.asarray(item_information(fit.model, items, nodes)) * _worth(fit)
    height = 4.2 + 0.16 * min(num_items, len(order))
    figure, (left, right) = style.new_figure(10.5, height, 2, grid="both")
    for k, row in enumerate(order[:num_items]):
        same = f" and {alike[k]:,} alike" if alike[k] else ""
        text = f"{style.label(fit.item_names.tolist()[row], 34)}{same}"
        dashes = ("-", "--", "-.", ":")[k // len(PALETTE) % 4]
        look = {"color": PALETTE[k % len(PALETTE)], "ls": dashes, "lw": 1.8}
        left.plot(grid, table[:-1, row], label=text, **look)
    left.set_xlabel(style.ability_label(fit.model))
    left.set_ylabel("Item information")
    left.set_xlim(grid[0], grid[-1])
    left.set_ylim(bottom=0)
    style.legend_under(left, 7.5)
    style.title(left, "Item information", "the most informative items")
    best = np.sort(table[-1])[::-1]
    count = np.arange(len(best) + 1)
    chosen = np.r_[0, np.cumsum(best)]
    right.plot(count, chosen, color=PALETTE[0], lw=1.8, label="best items first")
    mean_line = count * best.mean()
    right.plot(count, mean_line, color=PALETTE[1], lw=1.8, label="random items")
    right.set_xlabel("Number of items")
    right.set_ylabel(f"Information at ability {at:.2g}")
    right.set_xlim(0, len(best))
    right.set_ylim(0, 1.05 * max(chosen[-1], 1e-6))
    variance = float(population.sd) ** 2
    _reliability_axis(right, variance)
    style.legend_under(right, 7.5)
    style.title(right, "Cumulated information", "right: reliability that it implies")
    return figure


def _reliability_axis(axes: Axes, variance: float) -> None:
    """Marks at the right of an axis of information: the reliability that it implies."""
    top = axes.get_ylim()[1]
    shown = [x for x in (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)]
    places = [x / (1 - x) / variance for x in shown]
    ticks, last = [], -np.inf
    for share, place in zip(shown, places, strict=True):
        # Labels need room.
        if place <= top and place - last > 0.05 * top:
            ticks.append((share, place))
            last = place
    other = axes.secondary_yaxis("right")
    other.set_yticks([p for _, p in ticks], [f"{x:g}" for x, _ in ticks])
    other.tick_params(colors=GREY, labelsize=8, width=0.6, length=3)
    other.spines["right"].set_visible(False)


def distinct(fit: Calibration, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns one item of each curve, as ordered, and how many others have it."""
    # Items with the same pattern of responses have the same parameters.
    parts = [np.asarray(x, float) for x in fit.parameters.items]
    rows = [x.reshape(len(x), -1)[order] for x in parts]
    curves = np.round(np.concatenate(rows, axis=1), 3)
    _, first, counts = np.unique(curves, axis=0, return_index=True, return_counts=True)
    place = np.argsort(first)
    return order[first[place]], counts[place] - 1


def plot_test_information(fit: Calibration) -> Figure:
    """Draws the test information and the standard error that it implies.

    The information is the sum over all items; the standard error of a maximum
    likelihood score is 1 / sqrt(information). With several benchmarks each has its
    own curve. Marks at the foot are the subjects. Where a multilevel fit has an ability
    for each group of items, information on different abilities does not add up: each
    group has its curves, for its own ability.

    Args:
        fit: The calibration.

    Returns:
        The figure; nothing is shown or saved.
    """
    if fit.num_groups > 1:
        return _plot_information_by_ability(fit, fit.require(Structure))
    grid = ability_grid(fit)
    codes, names = style.item_benchmarks(fit, CURVES)
    parts = information_by_group(fit, grid, codes, len(names))
    total = parts.sum(0)
    figure, axes, error_axes = _information_axes(fit, grid, total, len(names))
    if len(names) > 1:
        for k, name in enumerate(names):
            text = f"{style.label(name, 30)} ({counted((codes == k).sum(), 'item')})"
            axes.plot(grid, parts[k], color=PALETTE[k], lw=1.4, label=text)
    text = f"all {counted(len(fit.item_names), 'item')}"
    axes.plot(grid, total, color=INK, lw=2.2, label=f"Information, {text}")
    look = {"color": GREY, "lw": 1.5, "label": f"Standard error, {text}"}
    _draw_errors(error_axes, grid, total[None], [look])
    error_axes.set_ylabel("Standard error of ability", color="#555555", fontsize=9)
    _draw_subjects(axes, fit)
    style.legend_below(figure, [axes, error_axes], 2)
    style.title(axes, "Test information", "ticks at the foot: subjects")
    return figure


def _plot_information_by_ability(fit: Calibration, structure: Structure) -> Figure:
    """Information of each group's items on the group's ability, with its error."""
    grid, group = ability_grid(fit), np.asarray(structure.group)
    count = np.bincount(group, minlength=len(structure.groups))
    shown = np.sort(np.argsort(-count, kind="stable")[:CURVES])
    parts = information_by_group(fit, grid, group, len(count))[shown]
    figure, axes, error_axes = _information_axes(fit, grid, parts, len(shown))
    for k, place in enumerate(shown):
        name = style.label(str(structure.groups[place]), 30)
        text = f"{name} ({counted(count[place], 'item')})"
        axes.plot(grid, parts[k], color=PALETTE[k], lw=1.6, label=text)
    looks = [{"color": PALETTE[k], "lw": 1.2} for k in range(len(shown))]
    _draw_errors(error_axes, grid, parts, looks)
    text = "Standard error from a group's items alone"
    error_axes.set_ylabel(text, color="#555555", fontsize=9)
    style.legend_below(figure, [axes, error_axes], 2)
    less = "" if len(shown) == len(count) else f", {len(shown)} groups of most items"
    note = f"on each group's own ability{less}; dashed: standard errors, items known"
    style.title(axes, "Test information", note)
    return figure


def _information_axes(
    fit: Calibration, grid: np.ndarray, information: np.ndarray, num_curves: int
) -> tuple[Figure, Axes, Axes]:
    """A figure with axes of information, and of errors at the right."""
    figure, (axes,) = style.new_figure(7.5, 4.5 + 0.1 * num_curves, grid="both")
    axes.set_ylim(0, 1.12 * max(float(information.max()), 1e-6))
    axes.set_xlim(grid[0], grid[-1])
    axes.set_xlabel(style.ability_label(fit.model))
    axes.set_ylabel("Test information")
    error_axes = axes.twinx()
    error_axes.spines["top"].set_visible(False)
    error_axes.tick_params(colors=GREY, labelsize=8)
    return figure, axes, error_axes


def _draw_errors(axes: Axes, grid: np.ndarray, parts: np.ndarray, looks: list) -> None:
    """Standard errors, 1 / sqrt(information), of rows of information."""
    errors = 1 / np.sqrt(np.maximum(parts, 1e-12))
    for error, look in zip(errors, looks, strict=True):
        axes.plot(grid, error, ls="--", **look)
    # Where items have almost no information the error is unbounded; the axis is not.
    axes.set_ylim(0, 1.12 * np.minimum(errors.max(1), 6 * errors.min(1)).max())


def _draw_subjects(axes: Axes, fit: Calibration) -> None:
    """Draws a mark at the axis for the ability of each subject."""
    ability = style.finite_abilities(fit)
    width, alpha = (0.8, 0.8) if len(ability) < 200 else (0.3, 0.4)
    look = {"color": PALETTE[1], "linewidths": width, "alpha": alpha}
    begin, end = (np.column_stack([ability, 0 * ability + top]) for top in (0, 0.03))
    where = axes.get_xaxis_transform()
    style.draw_segments(axes, begin, end, y=False, transform=where, **look)
