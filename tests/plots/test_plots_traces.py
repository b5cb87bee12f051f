"""Traces of draws: a line for each chain, at the draws' values."""

import types
from typing import Any

import numpy as np
import pytest

from irtjax.plots import plot_trace


@pytest.fixture
def draws() -> Any:
    """Draws of a number and of a vector, by two chains."""
    rng = np.random.default_rng(0)
    values = {"mu": rng.normal(size=(2, 30)), "theta": rng.normal(size=(2, 30, 3))}
    return types.SimpleNamespace(values=values)


def test_traces_are_those_of_the_draws(draws):
    figure = plot_trace(draws, ["theta[1]", "mu"], truth={"mu": 0.25})
    rows = np.reshape(figure.axes, (2, 2))
    assert [axes.get_ylabel() for axes in rows[:, 0]] == ["theta[1]", "mu"]
    for axes, values in zip(
        rows[:, 0], (draws.values["theta"][..., 1], draws.values["mu"]), strict=True
    ):
        lines = axes.get_lines()
        for line, chain in zip(lines[:2], values, strict=True):
            assert np.asarray(line.get_ydata()) == pytest.approx(chain)
        assert lines[2].get_ydata()[0] == pytest.approx(values.mean())
    assert rows[1, 0].get_lines()[3].get_ydata()[0] == 0.25
    assert len(plot_trace(draws).axes) == 8


def test_an_unknown_parameter_is_refused(draws):
    with pytest.raises(ValueError, match="'tau' is not among the draws: name one such"):
        plot_trace(draws, ["tau"])
