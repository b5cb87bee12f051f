"""Figures of multilevel fits draw the numbers that the fit holds."""

import functools

import numpy as np
import pytest

import irtjax
from irtjax import plots
from irtjax.calibration.parts import Structure
from tests.small_fits import NASTY, small_fit

ALL = [
    plots.plot_abilities_by_group,
    plots.plot_correlations,
    plots.plot_test_information,
    lambda fit: plots.plot_profiles(fit, ["vendor/model_3", NASTY]),
]


@functools.cache
def structured_fit(groups: int = 4) -> irtjax.Calibration:
    """The small calibration with abilities by group of its own."""
    fit = small_fit()
    rng = np.random.default_rng(2)
    root = rng.normal(size=(groups, groups))
    own = root @ root.T + np.eye(groups)
    sd = np.sqrt(np.diag(own))
    structure = Structure(
        np.asarray([*(f"b{k}" for k in range(groups - 1)), NASTY]),
        np.arange(15) % groups,
        rng.normal(size=(24, groups)),
        np.full((24, groups), 0.2),
        own,
        own / sd / sd[:, None],
        None,
        None,
        np.corrcoef(rng.normal(size=(groups, 24))),
        (np.asarray(["all items"]), np.zeros((1, 2))),
    )
    return fit.with_part(structure)


@pytest.mark.parametrize("plot", ALL)
def test_structures_are_drawn_and_saved(tmp_path, plot):
    path = plots.save_figure(plot(structured_fit()), tmp_path / "f.png", dpi=50)
    # An empty page of this size takes about 2 kB.
    assert len(path.read_bytes()) > 5000


def test_the_heat_map_has_the_general_ability_first():
    fit = structured_fit()
    axes = plots.plot_abilities_by_group(fit).axes[0]
    drawn = np.asarray(axes.images[0].get_array())
    general = fit.abilities.table.column("ability").to_numpy()
    best = np.argsort(-general)
    general = general[best]
    np.testing.assert_array_equal(drawn[:, 0], general)
    np.testing.assert_array_equal(drawn[:, 1:], fit.structure.ability[best])
    low, high = axes.images[0].get_clim()
    assert low == -high == -np.abs(drawn).max()
    labels = [text.get_text() for text in axes.get_xticklabels()]
    assert labels[:2] == ["general", "b0"] and "\x1b" not in labels[-1]


def test_profiles_close_at_the_abilities():
    fit = structured_fit()
    names = fit.abilities.table.column("subject").to_pylist()
    (axes,) = plots.plot_profiles(fit, ["vendor/model_3", names[0]]).axes
    lines = axes.get_lines()
    for line, name in zip(lines, ["vendor/model_3", names[0]], strict=False):
        own = fit.structure.ability[names.index(name)]
        np.testing.assert_array_equal(line.get_ydata(), [*own, own[0]])
    half = 1.959964 * 0.2
    assert (
        axes.get_ylim()[0] < fit.structure.ability[names.index(names[0])].min() - half
    )


def test_correlations_stand_side_by_side():
    fit = structured_fit()
    left, right = plots.plot_correlations(fit).axes[:2]
    found = fit.structure
    np.testing.assert_array_equal(left.images[0].get_array(), found.raw_correlation)
    np.testing.assert_array_equal(
        right.images[0].get_array(), found.specific_correlation
    )
    assert left.images[0].get_clim() == right.images[0].get_clim() == (-1, 1)


def test_what_cannot_be_drawn_is_refused():
    fit = structured_fit()
    with pytest.raises(ValueError, match="one ability per subject"):
        plots.plot_correlations(small_fit())
    with pytest.raises(ValueError, match="radar of 2 groups"):
        plots.plot_profiles(structured_fit(2), ["vendor/model_3"])
    with pytest.raises(ValueError, match="no subject is called 'nobody'"):
        plots.plot_profiles(fit, ["nobody"])
    with pytest.raises(ValueError, match="0 subjects are not 1 to 8"):
        plots.plot_profiles(fit, [])


@pytest.mark.parametrize("groups", [4, 9])
def test_information_on_different_abilities_is_not_added_up(groups):
    fit = structured_fit(groups)
    figure = plots.plot_test_information(fit)
    curves, errors = (axes.get_lines() for axes in figure.axes)
    assert len(curves) == len(errors) == min(groups, 7)
    grid = curves[1].get_xdata()
    mine = np.asarray(fit.structure.group) == 1
    family, items = fit.model.family, fit.parameters.items
    at = slice(None, None, 20)
    wanted = np.zeros(len(grid[at]))
    for row in np.flatnonzero(mine):
        item = type(items)(*(np.asarray(part)[row] for part in items))
        wanted += [float(family.information(item, x)) for x in grid[at]]
    np.testing.assert_allclose(curves[1].get_ydata()[at], wanted, rtol=1e-4)
    np.testing.assert_allclose(errors[1].get_ydata()[at], wanted**-0.5, rtol=1e-4)
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert not any("all" in text for text in said)
