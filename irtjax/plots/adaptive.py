"""Errors of adaptive tests, the use of their items, and the course of one test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.data.wording import counted
from irtjax.plots.style import INK, PALETTE, legend_below, new_figure, title
from irtjax.plots.style import label as style_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.adaptive import AdaptiveTest, SimulatedTests


def plot_adaptive(
    tests: SimulatedTests, baseline: SimulatedTests | None = None
) -> Figure:
    """Draws the error of simulated tests by length, and the use of their items.

    Lines are root mean squared errors, dashes the root mean squared standard errors:
    where they differ, standard errors are wrong. Tests that have ended count with
    their last score. Of tests with costs, errors are drawn against these. Where tests
    have several lengths, a third panel has their histogram.

    Args:
        tests: What `irtjax.simulate_tests` returned.
        baseline: Tests of random items, to compare with.

    Returns:
        The figure; nothing is shown or saved.
    """
    varied = any(np.ptp(x.num_given) > 0 for x in (tests, baseline) if x is not None)
    width = 14.5 if varied else 10.5
    figure, panels = new_figure(width, 4.2, 3 if varied else 2, grid="y")
    left, right = panels[:2]
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
    if varied:
        _draw_lengths(panels[2], series)
    if tests.cost is None:
        _count(left)
    against = "scores from all responses" if tests.replayed else "true abilities"
    title(
        left, "Error", f"{counted(len(tests.subjects), 'subject')}, against {against}"
    )
    title(right, "Use of the items", f"bank of {counted(len(tests.items), 'item')}")
    return figure


def _count(axes: Axes) -> None:
    """Marks whole numbers alone."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


def _draw_lengths(axes: Axes, series: list) -> None:
    """Histogram of the numbers of items of tests."""
    longest = max(int(one.num_given.max()) for one, _, _ in series)
    step = max(1, -(-longest // 30))
    edges = np.arange(0, longest + 2 * step, step) - 0.5
    for one, colour, name in series:
        share = np.full(len(one.num_given), 1 / len(one.num_given))
        look = {"color": colour, "alpha": 0.55, "label": name or None}
        axes.hist(one.num_given, edges.tolist(), weights=share, **look)
    axes.set_xlabel("Number of items")
    axes.set_ylabel("Share of tests")
    axes.set_xlim(-0.5, longest + 0.5)
    if len(series) > 1:
        axes.legend(fontsize=8, frameon=False, labelcolor=INK)
    _count(axes)
    title(axes, "Lengths of the tests", "the number of items at which each ended")


def plot_trajectory(
    test: AdaptiveTest | SimulatedTests, subject: int | str = 0, level: float = 0.95
) -> Figure:
    """Draws one test: the ability after each item, with a band of its error.

    Marks at the foot are the responses, filled where the response was above 0. A test
    of several abilities shows the expected score, or the composite.

    Args:
        test: A test item by item, or simulated tests.
        subject: Of simulated tests, the subject: its place or its name.
        level: Level of the band.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If there is no such subject, or the level is none.
    """
    from scipy.special import ndtri

    if not 0 < level < 1:
        raise ValueError(f"level {level} is not between 0 and 1")
    ability, error, responses, truth, name = _path(test, subject)
    count = np.arange(len(ability))
    reach = ndtri((1 + level) / 2) * error
    figure, (axes,) = new_figure(7.2, 4.2, grid="y")
    band = {"color": PALETTE[0], "alpha": 0.18, "lw": 0}
    label = f"{100 * level:g} % interval"
    axes.fill_between(count, ability - reach, ability + reach, label=label, **band)
    axes.plot(count, ability, color=PALETTE[0], lw=1.8, label="estimate")
    if truth is not None:
        text = "all responses" if getattr(test, "replayed", False) else "true ability"
        axes.axhline(truth, color=PALETTE[1], lw=1.3, ls="--", label=text)
    where = axes.get_xaxis_transform()
    for right, text in ((True, "response above 0"), (False, "response 0")):
        at = count[1:][(responses > 0) == right]
        look = {"facecolors": INK if right else "white", "edgecolors": INK, "s": 16}
        axes.scatter(at, np.full(len(at), 0.03), transform=where, label=text, **look)
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.08 * (high - low), high)
    axes.set_xlim(0, max(len(ability) - 0.6, 1))
    _count(axes)
    axes.set_xlabel("Number of items")
    axes.set_ylabel("Ability")
    legend_below(figure, [axes], 5)
    title(axes, "One adaptive test", name)
    return figure


def _path(test: Any, subject: int | str):
    """Abilities and errors from before the first item, responses, truth and a line."""
    mean, sd = test.prior
    if hasattr(test, "next_item"):
        table = test.table
        names = "ability", "ability_se", "response"
        ability, error, responses = (table[x].to_numpy() for x in names)
        name = f"ended by: {test.stopped}" if test.over else "not over yet"
        return np.r_[mean, ability], np.r_[sd, error], responses, None, name
    from irtjax.adaptive import StopFlag

    names = test.subjects.tolist()
    if isinstance(subject, str) and subject not in names:
        raise ValueError(f"no subject is called {subject!r} in these tests")
    row = names.index(subject) if isinstance(subject, str) else int(subject)
    if not -len(names) <= row < len(names):
        raise ValueError(f"there are {len(names):,} subjects, and no {row}")
    steps = slice(int(test.num_given[row]))
    ability, error = np.r_[mean, test.ability[row, steps]], test.standard_error
    error, responses = np.r_[sd, error[row, steps]], test.responses[row, steps]
    ended = StopFlag(int(test.stopped[row])).explain()
    name = f"{style_label(names[row])}; ended by: {ended}"
    return ability, error, responses, float(test.truth[row]), name


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
