"""Figures: they draw what the tables say, for any size and any name."""

import dataclasses
import sys

import jax
import numpy as np
import pyarrow as pa
import pytest

import irtjax
from irtjax import plots
from irtjax.calibration.result_tables import AbilityTable, ItemTable
from irtjax.plots.changes import rank_changes
from irtjax.plots.curves import ability_grid, distinct, expected_information
from irtjax.plots.parameters import FLAT, parameter_columns
from irtjax.plots.style import new_figure, save_figure
from irtjax.plots.wright import spread
from tests.small_fits import small_fit

ALL = [
    plots.plot_abilities,
    plots.plot_wright_map,
    plots.plot_item_response_functions,
    plots.plot_test_information,
]


@pytest.mark.parametrize("plot", ALL)
@pytest.mark.parametrize("model", ["2pl", pytest.param("4pl", marks=pytest.mark.slow)])
def test_every_figure_is_drawn_and_saved(tmp_path, plot, model):
    path = plots.save_figure(plot(small_fit(model)), tmp_path / "f.png", dpi=50)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    # An empty page of this size takes about 2 kB.
    assert len(data) > 5000


def test_no_global_state_is_touched():
    import matplotlib

    # A copy: looking values up one by one makes matplotlib choose a backend.
    before = matplotlib.rcParams.copy()
    loaded = "matplotlib.pyplot" in sys.modules
    for plot in ALL:
        plot(small_fit())
    assert matplotlib.rcParams.copy() == before
    assert ("matplotlib.pyplot" in sys.modules) == loaded


def test_abilities_are_drawn_where_the_table_says():
    fit = small_fit()
    (axes,) = plots.plot_abilities(fit).axes
    drawn = np.concatenate([np.asarray(c.get_offsets()) for c in axes.collections])
    drawn = drawn[np.isfinite(drawn).all(1)]
    points = {
        round(float(x), 9)
        for c in axes.collections
        if type(c).__name__ == "PathCollection"
        for x, _ in np.asarray(c.get_offsets())
    }
    ability = fit.abilities.table.column("ability").to_pylist()
    assert points == {round(x, 9) for x in ability}
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert len(labels) == 24 and labels[0].endswith(" 1")
    assert "95 %" in " ".join(text.get_text() for text in axes.texts)


def test_legends_hide_no_curve_and_no_interval():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    fit = small_fit()
    for plot in (
        plots.plot_abilities,
        plots.plot_item_response_functions,
        plots.plot_item_information,
        plots.plot_test_information,
    ):
        figure = plot(fit)
        FigureCanvasAgg(figure).draw()
        inside = [x.get_legend() for x in figure.axes if x.get_legend()]
        legends = [x.get_window_extent() for x in [*figure.legends, *inside]]
        assert legends, plot
        for axes in figure.axes:
            assert not any(x.overlaps(axes.bbox) for x in legends), plot
            below = axes.xaxis.get_label().get_window_extent()
            assert not any(x.overlaps(below) for x in legends), plot


def test_whiskers_are_drawn_whole():
    from irtjax.plots import style

    # With ten items in a box a whisker ends beyond 99 % of all items.
    values, codes = (
        np.r_[np.linspace(0, 1, 10), np.linspace(0, 3, 10)],
        np.repeat([0, 1], 10),
    )
    _, (axes,) = style.new_figure(4, 3)
    style.boxplots(axes, values, codes, ["a", "b"])
    low, high = axes.get_xlim()
    assert low < 0 and high > 3
    # One of a thousand that is far away does not squeeze the box.
    values = np.r_[np.linspace(0, 1, 1000), 100.0]
    _, (axes,) = style.new_figure(4, 3)
    style.boxplots(axes, values, np.zeros(1001, int), ["a"])
    assert axes.get_xlim()[1] < 2


def test_boxes_without_outlying_values_keep_their_size(tmp_path):
    from irtjax.plots import style

    figure = style.empty_figure(7, 4)
    panels = style.panels(figure, 2, 2, 4).ravel()
    for axes in panels:
        style.boxplots(axes, np.linspace(-2, 2, 100), np.zeros(100, int), ["a"])
    style.save_figure(figure, tmp_path / "boxes")
    assert min(axes.get_position().width for axes in panels) > 0.4
    assert min(axes.get_position().height for axes in panels) > 0.3


def test_points_at_the_end_of_an_axis_are_drawn_whole():
    from irtjax.plots import style

    values = np.r_[np.linspace(0, 1, 1000), 2.0, 100.0]
    _, (axes,) = style.new_figure(4, 3)
    style.boxplots(axes, values, np.zeros(1002, int), ["a"])
    (fliers,) = (x for x in axes.lines if x.get_marker() == ".")
    # None is cut by the axis, and none is drawn outside of the figure's panel.
    assert not fliers.get_clip_on() and max(fliers.get_xdata(), default=0) < 2
    figure = plots.plot_abilities(many(small_fit(), 2000))
    whole = figure.axes[1]
    figure.canvas.draw()
    (first, *_), radius = whole.transData.transform([[0, 0]]), 0.0
    for points in whole.collections:
        if type(points).__name__ == "PathCollection":
            radius = max(radius, points.get_sizes().max() ** 0.5 / 2)
    assert radius > 0
    below_top = whole.bbox.y1 - first[1]
    assert below_top > radius * figure.dpi / 72


def many(fit: irtjax.Calibration, count: int) -> irtjax.Calibration:
    """The calibration with so many subjects, by repeating rows with new names."""
    import dataclasses

    rows = fit.abilities.table.take(pa.array(np.arange(count) % len(fit.subject_names)))
    names = pa.array([f"a_very_long_vendor_name/model-{k}" for k in range(count)])
    rows = rows.set_column(0, "subject", names)
    rows = rows.set_column(1, "ability", pa.array(np.linspace(3, -3, count)))
    return dataclasses.replace(fit, abilities=AbilityTable(rows))


def test_thousands_of_subjects_are_thinned_not_piled_up():
    figure = plots.plot_abilities(many(small_fit(), 5000))
    ticks = figure.axes[1].get_yticks(), figure.axes[1].get_yticklabels()
    # The first is at place 1, and each line at the place that its label has.
    found = {text.get_text(): at for at, text in zip(*ticks, strict=True)}
    assert found["1"] == 0 and found["5,000"] == 4999 and "0" not in found
    axes, whole = figure.axes
    # The first ones have names, and a panel of their own scale.
    texts = [text.get_text() for text in axes.get_yticklabels()]
    assert len(texts) == 25 and texts[0].split("  ")[0].endswith("model-0")
    assert axes.get_xlim()[0] > whole.get_xlim()[0]
    points = [c for c in whole.collections if type(c).__name__ == "PathCollection"]
    assert sum(len(np.asarray(c.get_offsets())) for c in points) == 5000
    assert figure.get_size_inches()[1] < 14
    figure.canvas.draw()
    # No two labels overlap once drawn.
    boxes = [t.get_window_extent() for t in axes.get_yticklabels()]
    ends = sorted((b.y0, b.y1) for b in boxes)
    assert all(a[1] <= b[0] + 1 for a, b in zip(ends, ends[1:], strict=False))


def test_item_panels_hold_the_most_and_least_informative():
    fit = small_fit()
    information = expected_information(fit)
    best, worst = (
        fit.item_names[information.argmax()],
        fit.item_names[information.argmin()],
    )
    left, right = plots.plot_item_response_functions(fit, 3).axes
    assert best in left.get_lines()[0].get_label().replace(r"\$", "$")
    assert worst in right.get_lines()[0].get_label().replace(r"\$", "$")
    # Curves are the response function itself.
    k = int(information.argmax())
    a = fit.parameters.items.discrimination[k]
    d = fit.parameters.items.intercept[k]
    grid = ability_grid(fit)
    np.testing.assert_allclose(
        left.get_lines()[0].get_ydata(), 1 / (1 + np.exp(-a * grid - d)), atol=1e-12
    )


def test_items_with_one_curve_are_drawn_once():
    import dataclasses

    fit = small_fit()
    twice = np.concatenate([np.arange(15), [4, 4, 9]])
    items = jax.tree.map(lambda x: x[twice], fit.parameters.items)
    parameters = fit.parameters._replace(items=items)
    fit = dataclasses.replace(
        fit, parameters=parameters, item_names=fit.item_names[twice]
    )
    order = np.argsort(-expected_information(fit), kind="stable")
    rows, alike = distinct(fit, order)
    assert sorted(rows.tolist()) == list(range(15))
    assert {int(k): int(n) for k, n in zip(rows, alike, strict=True) if n} == {
        4: 2,
        9: 1,
    }
    # The order given is kept.
    places = [order.tolist().index(row) for row in rows]
    assert places == sorted(places)


def test_expected_information_is_the_average_over_the_population():
    fit = small_fit()
    items = fit.parameters.items
    theta = np.linspace(-8, 8, 4001)[:, None]
    p = 1 / (1 + np.exp(-items.discrimination * theta - items.intercept))
    weight = np.exp(-0.5 * theta**2)
    exact = (weight * items.discrimination**2 * p * (1 - p)).sum(0) / weight.sum()
    # Nodes end at 4 standard deviations, beyond which 6e-5 of the population lies.
    np.testing.assert_allclose(expected_information(fit), exact, rtol=3e-4)


def test_test_information_is_the_sum_of_its_parts():
    axes = plots.plot_test_information(small_fit()).axes[0]
    b0, b1, total = (line.get_ydata() for line in axes.get_lines())
    np.testing.assert_allclose(b0 + b1, total, rtol=1e-12)
    error = plots.plot_test_information(small_fit()).axes[1].get_lines()[0]
    np.testing.assert_allclose(error.get_ydata(), total**-0.5, rtol=1e-12)


def test_the_wright_map_counts_what_it_does_not_draw():
    import dataclasses

    fit = small_fit()
    column = fit.items.table.column_names.index("difficulty")
    values = fit.items.table.column("difficulty").to_pylist()
    table = fit.items.table.set_column(
        column, "difficulty", pa.array([None, 500.0, *values[2:]])
    )
    changed = dataclasses.replace(fit, items=ItemTable(table))
    axes = plots.plot_wright_map(changed).axes[1]
    text = " ".join(t.get_text() for t in axes.texts)
    assert "1 without a difficulty" in text and "beyond the scale" in text


def test_spread_keeps_order_and_gap():
    values = np.array([0.0, 0.01, 0.02, 3.0, 3.0])
    placed = spread(values, 0.5, -9.0, 9.0)
    assert (np.diff(placed) >= 0.5 - 1e-12).all()
    assert abs(placed[:3].mean() - values[:3].mean()) < 1e-12
    inside = spread(np.full(4, 9.0), 0.5, -9.0, 9.0)
    assert inside.max() <= 9.0 + 1e-12


@pytest.mark.slow
def test_rank_changes_are_those_of_the_subjects_that_both_have():
    first, second = small_fit("2pl"), small_fit("2pl", "mm")
    names, before, after = rank_changes(first, second)
    assert set(names) == set(first.abilities.table.column("subject").to_pylist())
    assert sorted(before.tolist()) == list(range(1, len(names) + 1))
    place = {row["subject"]: row["rank"] for row in second.abilities.table.to_pylist()}
    assert after.tolist() == [place[name] for name in names]
    (axes,) = plots.plot_rank_changes(first, second, labels=("EM", "MM")).axes
    lines = [line.get_ydata() for line in axes.lines if line.get_lw() >= 0.8]
    drawn = {(int(a), int(b)) for a, b in lines}
    assert drawn == set(zip(before.tolist(), after.tolist(), strict=True))
    assert [t.get_text() for t in axes.get_xticklabels()] == ["EM", "MM"]


def test_a_subject_without_an_ability_has_no_rank():
    fit = small_fit("2pl")
    table = fit.abilities.table
    where = table.column_names.index("ability")
    values = np.array(table.column("ability").to_pylist())
    best = int(np.argmax(values))
    values[best] = np.nan
    partly = table.set_column(where, "ability", pa.array(values))
    partly = dataclasses.replace(fit, abilities=AbilityTable(partly))
    names, before, after = rank_changes(fit, partly)
    assert table.column("subject")[best].as_py() not in names
    assert len(names) == table.num_rows - 1 and before.tolist() == after.tolist()


def test_rank_changes_need_common_subjects():
    fit = small_fit()
    table = fit.abilities.table
    others = table.set_column(
        0, "subject", pa.array([f"new {k}" for k in range(table.num_rows)])
    )
    with pytest.raises(ValueError, match="0 subjects in both"):
        plots.plot_rank_changes(
            fit, dataclasses.replace(fit, abilities=AbilityTable(others))
        )


def of_abilities(ability, low=None, high=None) -> irtjax.Calibration:
    """A fit of subjects s0, s1, … with these abilities and rank intervals."""
    count = len(ability)
    low = np.arange(1, count + 1) if low is None else low
    high = low if high is None else high
    columns = {
        "subject": [f"s{k:02d}" for k in range(count)],
        "ability": np.asarray(ability, float),
        "ability_se": np.full(count, 0.1),
        "rank_lower": np.asarray(low, float),
        "rank_upper": np.asarray(high, float),
    }
    table = AbilityTable(pa.table(columns))
    return dataclasses.replace(small_fit(), abilities=table)


def coloured(figure) -> list[tuple[int, ...]]:
    """Places of the lines of subjects that move."""
    lines = [line for line in figure.axes[0].lines if line.get_lw() > 1]
    return [tuple(int(y) for y in line.get_ydata()) for line in lines]


def test_tied_subjects_do_not_move():
    # Ten subjects are equal, but for rounding, in the first fit; apart in the second.
    rng = np.random.default_rng(0)
    top, places = [9.0, 8.0], np.arange(1, 13)
    first = of_abilities([*top, *(1e-9 * rng.normal(size=10))], places, places)
    second = of_abilities([*top, *rng.permutation(10)[:10] / 5.0], places, places)
    figure = plots.plot_rank_changes(first, second)
    assert coloured(figure) == []
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert sum("3=" in text for text in texts) == 10
    # Lines of subjects that are tied on one side do not cross.
    ends = np.array([line.get_ydata() for line in figure.axes[0].lines])
    assert (ends[:, 0] == ends[:, 1]).all()


def test_only_moves_beyond_rank_intervals_are_coloured():
    ability = np.arange(10.0)[::-1]
    swapped = ability.copy()
    swapped[[0, 5]] = swapped[[5, 0]]
    sure = np.arange(1, 11)
    both = (
        of_abilities(ability, sure),
        of_abilities(swapped, [6, *sure[1:5], 1, *sure[6:]]),
    )
    assert sorted(coloured(plots.plot_rank_changes(*both))) == [(1, 6), (6, 1)]
    # By the first fit all ranks are uncertain.
    wide = of_abilities(ability, np.full(10, 1), np.full(10, 10))
    assert coloured(plots.plot_rank_changes(wide, both[1])) == []
    assert coloured(plots.plot_rank_changes(both[1], wide)) == []


def test_boxes_of_item_parameters_hold_the_items():
    fit = small_fit()
    figure = plots.plot_item_parameters(fit)
    assert len(figure.axes) == 2
    (name, _, slope), (_, formula, difficulty) = parameter_columns(fit)
    assert name == "Discrimination" and formula == "−d / a"
    np.testing.assert_allclose(slope, fit.parameters.items.discrimination)
    steep = np.abs(slope) >= FLAT
    wanted = -np.asarray(fit.parameters.items.intercept) / slope
    np.testing.assert_allclose(difficulty[steep], wanted[steep])
    assert np.isnan(difficulty[~steep]).all()


def test_a_figure_is_saved_in_the_format_of_its_name(tmp_path):
    figure, _ = new_figure(2.0, 1.0)
    dpi = figure.dpi
    assert save_figure(figure, tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    for name in ("a", "a.png"):
        written = save_figure(figure, tmp_path / name)
        assert written == tmp_path / "a.png"
        assert written.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(OSError):
        save_figure(figure, tmp_path / "none" / "a.png")
    assert figure.dpi == dpi
