"""Figures of a filter and of similar items: points, means and bands of the tables."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from irtjax.plots import plot_filter, plot_semantic_space
from irtjax.validity.filtering import Filtered
from irtjax.validity.semantic import SemanticSpace

EDGES = np.array([-1.0, -0.4, 0.4, 1.0])


def space_of(band: float) -> Any:
    """Three bins of cosines; NaN for the band of a comparison without null."""
    mean = np.array([0.2, 0.3, 0.5])
    columns: dict[str, Any] = {
        "cosine_from": [*EDGES[:-1], -1.0],
        "cosine_to": [*EDGES[1:], 1.0],
    }
    for name in ("tetrachoric", "residual"):
        columns[name] = [*mean, 0.33]
        for end, sign in (("lower", -1), ("upper", 1)):
            columns[f"{name}_{end}"] = [*(mean + sign * band), 0.33]
    pairs = {"cosine": [-0.5, 0.0, 0.5, 0.9], "tetrachoric": [0.1, np.nan, 0.4, -0.8]}
    values = (0.4, 0.4 - band, 0.4 + band)
    correlation = {"tetrachoric": values, "residual": values}
    return SemanticSpace(pa.table(columns), pa.table(pairs), correlation, 40, "")


def test_pairs_and_means_are_those_of_the_tables():
    left, *others = plot_semantic_space(space_of(0.1)).axes
    points = np.ma.compress_rows(left.collections[0].get_offsets())
    assert points.tolist() == [[-0.5, 0.1], [0.5, 0.4], [0.9, -0.8]]
    assert left.get_ylim() == (-1.05, 1.05)
    for axes in others:
        (line,) = axes.get_lines()
        assert np.asarray(line.get_xdata()) == pytest.approx([-0.7, 0.0, 0.7])
        assert np.asarray(line.get_ydata()) == pytest.approx([0.2, 0.3, 0.5])
        (band,) = axes.collections
        heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
        assert [heights.min(), heights.max()] == pytest.approx([0.1, 0.6])


def test_without_a_null_there_is_no_band():
    _, *others = plot_semantic_space(space_of(np.nan)).axes
    assert [len(axes.collections) for axes in others] == [0, 0]
    assert "one ability" not in "".join(t.get_text() for x in others for t in x.texts)


def filtered(stop: int | None, band: float = 0.01) -> Any:
    """Three rounds of a filter."""
    negative = np.array([0.2, 0.1, 0.02])
    table = pa.table(
        {
            "round": [0, 1, 2],
            "items": [30, 25, 20],
            "negative": negative,
            "null": negative,
            "null_lower": negative - band,
            "null_upper": negative + band,
            "other_half": negative + 0.05,
        }
    )
    return Filtered(table, pa.table({"item": ["a"]}), stop, "")


@pytest.mark.parametrize("stop", [None, 2])
def test_rounds_of_a_filter_are_those_of_the_table(stop):
    (axes,) = plot_filter(filtered(stop)).axes
    share, other, *end = axes.get_lines()
    assert np.asarray(share.get_xdata()).tolist() == [30, 25, 20]
    assert np.asarray(share.get_ydata()) == pytest.approx([20, 10, 2])
    assert np.asarray(other.get_ydata()) == pytest.approx([25, 15, 7])
    assert [np.asarray(x.get_xdata())[0] for x in end] == ([] if stop is None else [20])
    assert len(axes.collections) == 1
    assert len(plot_filter(filtered(stop, np.nan)).axes[0].collections) == 0
