"""The expected score on all items over ability, with the scores of subjects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from irtjax.data.wording import counted
from irtjax.models.model import response_ends
from irtjax.plots import style
from irtjax.plots.curves import ability_grid
from irtjax.plots.style import INK, PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration


def expected_score_band(
    fit: Calibration, theta: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean score on all items at abilities, and the interval that observed ones have.

    The variance of a mean of J independent responses is the sum of theirs over J^2; the
    interval is normal, within the lowest and the highest response.
    """
    import jax
    import jax.numpy as jnp

    family, items = fit.model.family, fit.parameters.items
    codes = np.asarray(family.category_codes, float)
    over_items = jax.vmap(family.category_log_probs, in_axes=(0, None))
    over_nodes = jax.vmap(over_items, in_axes=(None, 0))
    nodes = jnp.asarray(theta, items[0].dtype)
    chance = np.exp(np.asarray(over_nodes(items, nodes), float))
    mean = chance @ codes
    variance = chance @ codes**2 - mean**2
    error = np.sqrt(variance.sum(1)) / mean.shape[1]
    reach = float(ndtri((1 + level) / 2)) * error
    ends, score = response_ends(fit.model), mean.mean(1)
    low, high = (np.clip(score + x, ends["low"], ends["top"]) for x in (-reach, reach))
    return score, low, high


def plot_test_score(fit: Calibration, level: float = 0.95) -> Figure:
    """Draws the expected mean score over ability, with a band of observed scores.

    The band holds a share `level` of the scores that subjects of an ability would have
    if they responded again. Points are subjects who responded to every item, at their
    estimated abilities: near the curve, since abilities are estimated from the same
    responses. Points on one side of it show abilities at which the model expects too
    high or too low scores.

    Args:
        fit: A fit of one ability, of responses in categories.
        level: Share of scores that the band holds.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If the model has several abilities or responses are not in
            categories.
    """
    if fit.model.family.num_categories < 2:
        raise ValueError(
            f"the band of scores needs responses in categories, not {fit.model.name}"
        )
    grid = ability_grid(fit)
    score, low, high = expected_score_band(fit, grid, level)
    table = fit.abilities.table
    ability, observed, number = (
        style.column(table, x) for x in ("ability", "accuracy", "observed")
    )
    whole = np.isfinite(ability) & (number == len(fit.item_names))
    figure, (axes,) = style.new_figure(7.5, 4.8, grid="both")
    text = f"{level:.0%} of the scores".replace("%", " %")
    axes.fill_between(grid, low, high, color=PALETTE[0], alpha=0.18, lw=0, label=text)
    axes.plot(grid, score, color=INK, lw=2, label="expected score")
    axes.scatter(
        ability[whole],
        observed[whole],
        s=10,
        color=PALETTE[1],
        alpha=0.5,
        lw=0,
        label=counted(int(whole.sum()), "subject"),
    )
    axes.set_xlim(grid[0], grid[-1])
    axes.set_xlabel(style.ability_label(fit.model))
    axes.set_ylabel(f"Mean score on {counted(len(fit.item_names), 'item')}")
    style.legend_under(axes, columns=3)
    below = "points: subjects who responded to every item"
    style.title(axes, "Expected test score", below if whole.any() else "")
    return figure
