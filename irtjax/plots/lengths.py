"""Ability against speed, and the parameters of items for both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from irtjax.plots import style
from irtjax.plots.style import GREY, PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration

#: Subjects named in the figure, and the most whose error bars are drawn.
NAMED, BARRED = 6, 300
#: Benchmarks with a colour of their own.
COLOURS = 7


def plot_latency(fit: Calibration) -> Figure:
    """Draws ability against speed, and discrimination against speed discrimination.

    Left, subjects with one standard error each way; right, items by benchmark. Abler
    subjects who answer at greater length make the left panel fall.

    Args:
        fit: A calibration with response lengths.

    Returns:
        The figure; nothing is shown or saved.

    Raises:
        ValueError: If the calibration has no response lengths.
    """
    lengths = fit.parameters.lengths
    if lengths is None:
        raise ValueError(f"a {fit.model.name} fit has no response lengths to draw")
    figure, (left, right) = style.new_figure(10.5, 4.6, 2, grid="both")
    table = fit.abilities.table
    wanted = ("ability", "speed", "ability_se", "speed_se")
    ability, speed, ability_se, speed_se = (style.column(table, x) for x in wanted)
    if len(ability) <= BARRED:
        bars = {"fmt": "none", "ecolor": GREY, "elinewidth": 0.6, "alpha": 0.6}
        left.errorbar(ability, speed, speed_se, np.nan_to_num(ability_se), **bars)
    left.scatter(ability, speed, s=14, color=PALETTE[0], zorder=3)
    names = table.column("subject").to_pylist()
    middle = (ability.min() + ability.max()) / 2
    for row in _outer(ability, speed):
        x, side = (-4, "right") if ability[row] > middle else (4, "left")
        look = {"textcoords": "offset points", "ha": side, "fontsize": 7}
        point = ability[row], speed[row]
        left.annotate(style.label(names[row], 28), point, (x, 4), **look)
    bounds = fit.correlation_interval
    small = f"correlation in the population {float(lengths.correlation):.2f}"
    if bounds is not None:
        small += f" ({bounds[0]:.2f} to {bounds[1]:.2f}, {100 * fit.level:g} %)"
    style.title(left, "Ability and speed", small)
    left.set_xlabel("Ability (standard deviations of the population)")
    left.set_ylabel("Speed (standard deviations)")

    slope = np.asarray(fit.parameters.items.discrimination, float)
    phi = np.asarray(lengths.items.speed_discrimination, float)
    codes, groups = style.item_benchmarks(fit, COLOURS)
    for code, group in enumerate(groups):
        rows = codes == code
        look = {"color": PALETTE[code % len(PALETTE)], "label": style.label(group, 24)}
        right.scatter(slope[rows], phi[rows], s=14, alpha=0.7, **look)
    right.axhline(0, color=GREY, lw=0.8, ls="--")
    right.axvline(0, color=GREY, lw=0.8, ls="--")
    style.title(right, "Items", "how sharply responses and lengths follow the subject")
    right.set_xlabel("Discrimination (of ability)")
    right.set_ylabel("Speed discrimination (of log length)")
    if len(groups) > 1:
        style.legend_under(right, 7.5, 2)
    return figure


def _outer(ability: np.ndarray, speed: np.ndarray) -> list[int]:
    """A few subjects at the ends of both scales, none close to another."""
    ends = [np.argmax(ability), np.argmin(ability), np.argmax(speed), np.argmin(speed)]
    across, up = (np.ptp(x) or 1.0 for x in (ability, speed))
    apart = (ability - ability.mean()) / across, (speed - speed.mean()) / up
    far = np.argsort(-np.hypot(*apart))
    chosen: list[int] = []
    for row in [*ends, *far]:
        near = np.abs(ability[row] - ability[chosen]) < 0.25 * across
        near &= np.abs(speed[row] - speed[chosen]) < 0.06 * up
        if not near.any() and len(chosen) < NAMED:
            chosen.append(int(row))
    return chosen
