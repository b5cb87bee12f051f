"""Figures of correlations and of Rasch models: the numbers of their tables."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from irtjax.plots import plot_correlates, plot_rasch
from irtjax.validity.correlates import Correlates
from irtjax.validity.rasch import Rasch


def test_correlations_are_those_of_the_table_the_largest_on_top():
    value = np.array([0.2, np.nan, 0.9, -0.4])
    table = pa.table(
        {
            "measure": list("abcd"),
            "other": ["x"] * 4,
            "raw": value / 2,
            "correlation": pa.array(value, from_pandas=True),
            "lower": value - 0.1,
            "upper": value + 0.05,
        }
    )
    fields: Any = pa.table({}), pa.table({}), 0.3, 0.95, "", ()
    (axes,) = plot_correlates(Correlates(table, *fields)).axes
    labels = [x.get_text() for x in axes.get_yticklabels()]
    # The first place is the lowest.
    assert labels == ["d – x", "a – x", "c – x"]
    _, without, observed = axes.get_lines()
    assert np.asarray(without.get_xdata()) == pytest.approx([-0.4, 0.2, 0.9])
    assert np.asarray(observed.get_xdata()) == pytest.approx([-0.2, 0.1, 0.45])
    segments: Any = axes.collections[0]
    ends = np.array(segments.get_segments())[..., 0]
    np.testing.assert_allclose(ends, [[-0.5, -0.35], [0.1, 0.25], [0.8, 0.95]])


def rasch_of(groups: dict[str, int]) -> Rasch:
    """Three items, of which the second differs and the third is not compared."""
    table = pa.table(
        {
            "item": ["easy", "odd", "rare"],
            "difficulty": [-1.0, 0.5, 0.5],
            "difference": [0.1, -2.0, None],
            "difference_se": [0.2, 0.3, None],
            "q_value": [0.6, 0.001, None],
        }
    )
    return Rasch(table, -1.0, None, None, groups, 0.4, 40)


def test_differences_are_those_of_the_table_and_the_largest_is_named():
    (axes,) = plot_rasch(rasch_of({"old": 20, "new": 20})).axes
    similar, odd = (np.asarray(x[0].get_xydata()) for x in axes.containers)
    assert similar[0] == pytest.approx([-1.0, 0.1])
    assert odd == pytest.approx(np.array([[0.5, -2.0]]))
    (bars,) = axes.containers[1][2]
    assert bars.get_segments()[0][:, 1] == pytest.approx([-2 - 0.588, -2 + 0.588])
    assert [x.get_text() for x in axes.texts if x.get_text() == "odd"] == ["odd"]
    assert "new less old" in axes.get_ylabel()
    with pytest.raises(ValueError, match="of two groups, and there are 3: give"):
        plot_rasch(rasch_of({"a": 1, "b": 1, "c": 1}))
