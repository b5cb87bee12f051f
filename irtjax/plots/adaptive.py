"""Error against the number of items, and how often each item was used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.plots.style import INK, PALETTE, new_figure, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.adaptive import SimulatedTests


def plot_adaptive(
    tests: SimulatedTests, baseline: SimulatedTests | None = None
) -> Figure:
    """Draws the error of simulated tests by length, and the use of their items.

    Lines are root mean squared errors, dashes the root mean squared standard errors:
    where they differ, standard errors are wrong. Tests that have ended count with
    their last score. Of tests with costs, errors are drawn against these.

    Args:
        tests: What `irtjax.simulate_tests` returned.
        baseline: Tests of random items, to compare with.

    Returns:
        The figure; nothing is shown or saved.
    """
    figure, (left, right) = new_figure(10.5, 4.2, 2, grid="y")
    series = [(tests, PALETTE[0], "adaptive" if baseline else "")]
    if baseline is not None:
        series.append((baseline, PALETTE[1], "random"))
    for one, colour, name in series:
        prefix = f"{name}: " if name else ""
        _draw_errors(left, one, colour, prefix)
        used = np.sort(one.exposure())[::-1]
        right.plot(np.arange(1, len(used) + 1), used, color=colour, lw=1.8, label=name)
    left.set_xlabel("Number of items" if tests.cost is None else "Cost of a test")
    left.set_ylabel("Error of the ability")
    right.set_xlabel("Items, most used first")
    right.set_ylabel("Share of tests that used the item")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        whole = axes is right or tests.cost is None
        axes.set_xlim(left=1 if whole and axes.get_xlim()[1] > 1 else 0)
    for axes in (left,) if baseline is None else (left, right):
        axes.legend(fontsize=8, frameon=False, labelcolor=INK)
    against = "scores from all responses" if tests.replayed else "true abilities"
    title(left, "Error", f"{len(tests.subjects):,} subjects, against {against}")
    title(right, "Use of the items", f"bank of {len(tests.items):,} items")
    return figure


def _draw_errors(axes: Axes, tests: SimulatedTests, colour: str, prefix: str) -> None:
    """Errors by number of items; with costs, by what a test may cost."""
    if tests.cost is not None:
        budgets = np.linspace(0, tests.cost[:, -1].max(), 101)
        errors = tests.rmse_by_cost(budgets)
        axes.plot(budgets, errors, color=colour, lw=1.8, label=f"{prefix}RMSE")
        return
    count = np.arange(1, tests.ability.shape[1] + 1)
    axes.plot(count, tests.rmse(), color=colour, lw=1.8, label=f"{prefix}RMSE")
    error, text = tests.mean_standard_error(), f"{prefix}standard error"
    axes.plot(count, error, color=colour, lw=1.2, ls="--", label=text)
