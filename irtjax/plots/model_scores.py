"""Log scores of models and priors on responses left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from irtjax.plots.style import INK, PALETTE, new_figure, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.prediction.cross_validation import CrossValidation


def plot_model_scores(result: CrossValidation) -> Figure:
    """Draws the loss of each model against the best, by the scale of its prior if any.

    Bars are standard errors of the differences, paired over folds.

    Args:
        result: What `irtjax.cross_validate` returned.

    Returns:
        The figure; nothing is shown or saved.
    """
    figure, (axes,) = new_figure(6.4, 4.2, grid="y")
    rows = result.table.to_pylist()
    scaled = rows[0]["prior_scale"] is not None
    models = list(dict.fromkeys(row["model"] for row in rows))
    bars = {"marker": "o", "ms": 4, "capsize": 3, "lw": 1.6}
    for place, model in enumerate(models):
        mine = [row for row in rows if row["model"] == model]
        where = [row["prior_scale"] if scaled else place for row in mine]
        loss, error = ([row[x] for row in mine] for x in ("loss", "loss_se"))
        colour = PALETTE[place % len(PALETTE)]
        axes.errorbar(where, loss, error, color=colour, label=model, **bars)
    axes.axhline(0, color=INK, lw=0.8)
    axes.set_ylabel("Loss against the best, nats a response")
    if scaled:
        axes.set_xscale("log")
        scales = sorted({row["prior_scale"] for row in rows})
        axes.set_xticks(scales, [f"{scale:g}" for scale in scales])
        axes.minorticks_off()
        axes.set_xlabel("Factor of the standard deviations of item priors")
        axes.legend(fontsize=8, frameon=False, labelcolor=INK)
    else:
        axes.set_xticks(range(len(models)), models)
    title(axes, "Responses left out", f"chosen: {result.chosen}")
    return figure
