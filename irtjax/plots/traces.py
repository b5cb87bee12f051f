"""Traces of draws of a posterior, and the distributions that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from irtjax.estimators.posterior.convergence import entries
from irtjax.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.estimators.posterior.nuts import Draws

#: Rows without `names`, points of a line, and bars of a histogram.
MOST, POINTS, BARS = 6, 1000, 40


def plot_trace(
    draws: Draws,
    names: Sequence[str] | None = None,
    truth: Mapping[str, float] | None = None,
) -> Figure:
    """Draws the trace of each chain, with the distribution beside it.

    Chains that agree overlap everywhere and have no trend (Gelman and others 2013,
    Bayesian data analysis, section 11.4).

    Args:
        draws: Draws, such as `fit.structure.draws` of `nuts`.
        names: Parameters as `estimators.posterior.summary` names them, such as
            "ability[3,0]"; the first six when None.
        truth: Values to mark, by the same names.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: A name is not among the draws.
    """
    every = {
        name: (key, k)
        for key, values in draws.values.items()
        for k, name in enumerate(entries(key, values.shape[2:]))
    }
    chosen = [*every][:MOST] if names is None else list(names)
    for name in chosen:
        if name not in every:
            one = next(iter(every))
            raise ValueError(
                f"{name!r} is not among the draws: name one such as {one!r}"
            )
    chains = next(iter(draws.values.values())).shape[0]
    figure = style.empty_figure(7.0, 0.5 + 1.3 * len(chosen))
    panels = style.panels(
        figure,
        len(chosen),
        2,
        2 * len(chosen),
        sharey="row",
        gridspec_kw={"width_ratios": [3, 1]},
    )
    for name, (left, right) in zip(chosen, panels, strict=True):
        key, place = every[name]
        values = np.asarray(draws.values[key])
        values = values.reshape(*values.shape[:2], -1)[:, :, place]
        step = max(1, values.shape[1] // POINTS)
        for chain, color in zip(values, _colors(len(values)), strict=True):
            at = np.arange(0, len(chain), step)
            left.plot(at, chain[::step], color=color, linewidth=0.5, alpha=0.8)
        edges = np.histogram_bin_edges(values, BARS)
        for chain, color in zip(values, _colors(len(values)), strict=True):
            right.hist(
                chain,
                edges,
                density=True,
                histtype="step",
                color=color,
                orientation="horizontal",
            )
        for axes in (left, right):
            axes.axhline(values.mean(), color=style.INK, linewidth=0.8)
            if truth is not None and name in truth:
                axes.axhline(
                    truth[name], color=style.INK, linewidth=0.8, linestyle="--"
                )
        left.set_ylabel(style.label(name, 24))
        right.set_xticks([])
    lines = "line: mean of all draws" + ("" if truth is None else "; dashed: truth")
    style.title(panels[0, 0], "Traces", f"{chains} chains; {lines}")
    panels[-1, 0].set_xlabel("draw")
    panels[-1, 1].set_xlabel("density")
    return figure


def _colors(count: int) -> list[str]:
    """A colour for each chain."""
    return [style.PALETTE[k % len(style.PALETTE)] for k in range(count)]
