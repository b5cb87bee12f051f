"""Areas under the curve of models and baselines by kind of newness."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.plots.style import (
    GREY,
    INK,
    PALE,
    PALETTE,
    label,
    legend_below,
    new_figure,
    title,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.prediction.generalise import Generalisation


def plot_generalisation(result: Generalisation) -> Figure:
    """Draws the area under the curve of each model and of the baselines by scheme.

    Bars are intervals at `result.level`. Baselines are grey: a model whose interval
    overlaps theirs may predict no better than means of subjects and items.

    Args:
        result: What `irtjax.generalise` returned.

    Returns:
        The figure; nothing is shown or saved.
    """
    # The mean of all responses has an area of 1/2, which is a line here.
    rows = [row for row in result.table.to_pylist() if row["model"] != "mean"]
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))
    # Stages of a model are series of their own: a joint fit has seen what is new.
    series = list(dict.fromkeys((row["model"], row["stages"]) for row in rows))
    series = sorted(series, key=lambda x: x[1] == "baseline")
    places = np.linspace(-0.33, 0.33, len(series))
    height = 1.4 + 0.16 * len(schemes) * (len(series) + 1)
    figure, (axes,) = new_figure(6.8, height, grid="x")
    models = iter(range(len(series)))
    marks = iter("s^Dv<>ph")
    for k, (model, stages) in enumerate(series):
        mine = [x for x in rows if (x["model"], x["stages"]) == (model, stages)]
        where = [schemes.index(x["scheme"]) + places[k] for x in mine]
        area, low, high = (
            np.array([x[name] for x in mine], float)
            for name in ("auc", "auc_lower", "auc_upper")
        )
        baseline = stages == "baseline"
        look = {
            "fmt": next(marks, "o") if baseline else "o",
            "color": GREY if baseline else PALETTE[next(models) % len(PALETTE)],
            "label": f"{label(model, 24)} ({stages})",
        }
        axes.errorbar(area, where, xerr=(area - low, high - area), ms=4, lw=1.2, **look)
    axes.set_yticks(range(len(schemes)), [label(x, 24) for x in schemes])
    axes.set_ylim(len(schemes) - 0.5, -0.5)
    for k in range(1, len(schemes)):
        axes.axhline(k - 0.5, color=PALE, lw=0.7)
    axes.axvline(0.5, color=INK, lw=0.8)
    axes.set_xlim(min(0.45, axes.get_xlim()[0]), 1)
    axes.set_xlabel("Area under the curve")
    legend_below(figure, [axes], 3)
    level = f"{100 * result.level:g} % intervals"
    title(axes, "Predictions of unseen responses", level)
    return figure
