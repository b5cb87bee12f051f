"""Pictures of small studies, with one replicate or one place, show every method."""

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from experiments.cbmm import figures
from experiments.lart import compare
from experiments.lego_irt import drawing
from irtjax.plots.style import PALETTE

METHODS = ("one", "two", "three")


def pixels(path, color) -> int:
    """How many pixels of a picture have a colour."""
    picture = matplotlib.image.imread(path)[..., :3]
    return int(np.sum(np.abs(picture - to_rgb(color)).max(axis=-1) < 0.15))


@pytest.mark.parametrize("along", ["models", "fold"])
@pytest.mark.parametrize("places", [1, 2, 5])
def test_comparisons_of_response_lengths(along, places, tmp_path):
    rows = [
        {along: 20 + 5 * place, "parameter": "intercept", "model": name,
         "mean": 1.0 + k, "se": 0.0, "n": 1}
        for place in range(places) for k, name in enumerate(METHODS)
    ]  # fmt: skip
    compare.draw_figure("distance", rows, tmp_path / "x.png")
    empty = [row | {"mean": np.nan} for row in rows]
    compare.draw_figure("distance", empty, tmp_path / "empty.png")
    for k in range(len(METHODS)):
        # More than the mark in the legend.
        shown, legend = (
            pixels(tmp_path / f"{name}.png", PALETTE[k]) for name in ("x", "empty")
        )
        assert shown > legend + 20


@pytest.mark.parametrize("shares", [(0.5,), (0.2, 0.5)])
def test_comparisons_of_scores(shares, tmp_path):
    rows = [
        {"data": "simulated", "measure": "MSE", "share": share, "model": name,
         "mean": 0.1 * k, "sd": 0.0, "se": 0.0, "n": 1}
        for share in shares for k, name in enumerate(METHODS)
    ]  # fmt: skip
    drawing.draw("prediction", rows, rows, tmp_path / "x.png")
    for k in range(len(METHODS)):
        assert pixels(tmp_path / "x.png", PALETTE[k]) > 60


def test_one_replicate_of_sizes(tmp_path):
    rows = [
        {"rows": 60, "columns": 60, "method": name, "replicate": 0, "level": None}
        | {measure: 1.0 + k for measure, *_ in figures.MEASURES}
        for k, name in enumerate(METHODS)
    ]
    for path in figures.draw(tmp_path, "sizes", rows):
        for k in range(len(METHODS)):
            # A point in each of six panels.
            assert pixels(path, f"C{k}") > 6 * 20
