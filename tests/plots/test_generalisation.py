"""The figure of predictions by scheme: areas, intervals and baselines of the table."""

import numpy as np
import pyarrow as pa
import pytest

from irtjax.plots import plot_generalisation
from irtjax.plots.style import GREY
from irtjax.prediction.generalise import Generalisation

AREAS = {
    ("entry", "item means", "baseline"): 0.7,
    ("entry", "mean", "baseline"): 0.5,
    ("entry", "2pl", "joint"): 0.9,
    ("rows", "item means", "baseline"): 0.6,
    ("rows", "2pl", "joint"): 0.8,
    ("rows", "2pl", "staged"): 0.75,
    # Of one outcome there is no area.
    ("temporal", "2pl", "joint"): None,
}


def test_areas_are_those_of_the_table():
    rows = [
        {"scheme": scheme, "model": model, "stages": stages, "auc": area}
        | {f"auc_{x}": area and area + y for x, y in (("lower", -0.1), ("upper", 0.05))}
        for (scheme, model, stages), area in AREAS.items()
    ]
    table = pa.Table.from_pylist(rows)
    figure = plot_generalisation(Generalisation(table, pa.table({}), 0.9, ()))
    (axes,) = figure.axes
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == ["entry", "rows", "temporal"]
    names = [x.get_label() for x in axes.containers]
    assert names == ["2pl (joint)", "2pl (staged)", "item means (baseline)"]
    joint, staged, means = (np.asarray(x[0].get_xydata()) for x in axes.containers)
    assert joint[:, 0] == pytest.approx([0.9, 0.8, np.nan], nan_ok=True)
    # Each in the row of its scheme.
    assert joint[:, 1].round().tolist() == [0, 1, 2]
    assert staged[:, 0] == pytest.approx([0.75]) and staged[0, 1].round() == 1
    assert means[:, 0] == pytest.approx([0.7, 0.6])
    assert axes.containers[2][0].get_color() == GREY
    (bars,) = axes.containers[0][2]
    assert bars.get_segments()[0][:, 0] == pytest.approx([0.8, 0.95])
