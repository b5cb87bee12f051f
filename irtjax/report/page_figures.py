"""The figures of `report.html` that stand in it without its script, as coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.data.wording import counted
from irtjax.models.model import response_ends
from irtjax.report.page_data import column, labels

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

#: Benchmarks with a colour and a curve of their own.
COLOURS = 7


def scale_of(model: Any) -> dict[str, Any]:
    """The scale of responses, and of abilities, for labels."""
    from irtjax.plots.style import ability_label

    count = model.family.num_categories
    kind = {0: "score", 2: "share right"}.get(count, "mean response")
    return {**response_ends(model), "kind": kind, "unit": ability_label(model)}


def ability_ends(fit: Calibration) -> tuple[float, float] | None:
    """Abilities that curves span; None for models of several abilities of an item."""
    if fit.abilities_are_scores:
        return None
    from irtjax.plots.curves import ability_grid
    from irtjax.plots.style import WIDEST

    grid = ability_grid(fit)
    low, high = float(grid[0]), float(grid[-1])
    for part in fit.parts:
        ability = part.group_abilities[np.isfinite(part.group_abilities)]
        low = max(min(low, float(ability.min(initial=low))), -WIDEST)
        high = min(max(high, float(ability.max(initial=high))), WIDEST)
    return round(low, 4), round(high, 4)


def nice_step(low: float, high: float, count: int) -> float:
    """A distance of ticks: 1, 2 or 5 times a power of ten."""
    raw = max(high - low, 1e-9) / count
    power = 10.0 ** math.floor(math.log10(raw))
    return next(k * power for k in (1, 2, 5, 10) if k * power >= raw * 0.999)


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers between two ends, about `count`."""
    step = nice_step(low, high, count)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _scaler(
    domain: tuple[float, float], ends: tuple[float, float]
) -> Callable[[float], float]:
    """A linear scale from a domain to coordinates, which are rounded."""
    low, high = domain
    slope = (ends[1] - ends[0]) / max(high - low, 1e-12)
    return lambda value: round(ends[0] + slope * (value - low), 1)


def information_figure(fit: Calibration) -> dict[str, Any] | None:
    """The figure of test information, by benchmark or by group of items, if any."""
    ends = ability_ends(fit)
    if ends is None:
        return None  # Several abilities have no curve over one.
    from irtjax.plots import style
    from irtjax.plots.curves import information_by_group

    grid = np.linspace(*ends, 201)
    structure, several = fit.structure, fit.num_groups > 1
    codes, names = style.item_benchmarks(fit, COLOURS)
    if several and structure is not None:
        codes, names = style.group_codes(structure.groups[structure.group], COLOURS)
    parts = information_by_group(fit, grid, codes, len(names))
    sizes = np.bincount(codes, minlength=len(names))
    total = parts.sum(0)
    left, right, top, bottom = 60, 740, 26, 300
    high = 1.08 * max(float((parts if several else total).max()), 1e-6)
    at_x, at_y = _scaler(ends, (left, right)), _scaler((0, high), (bottom, top))
    lines, errors = [], []
    if len(names) > 1:
        for k, (name, row) in enumerate(zip(labels(names), parts, strict=True)):
            text = f"{name} ({counted(sizes[k], 'item')})"
            lines.append((text, f"s{k}", f"k{k}", _path(grid, row, at_x, at_y)))
    if not several:
        text = f"all {counted(len(fit.item_names), 'item')}"
        lines.append((text, "all", "", _path(grid, total, at_x, at_y)))
        path, errors = _error_curve(grid, total, at_x, (bottom, top))
        lines.append(("standard error, all items (right scale)", "dashed", "kd", path))
    ability = column(fit.abilities.table, "ability")
    ability = ability[np.isfinite(ability)]
    inside = ability[(ability >= ends[0]) & (ability <= ends[1])]
    feet = sorted({at_x(x) for x in inside.tolist()})
    best = f"Information is highest at ability {grid[int(np.argmax(total))]:.2g}."
    kinds = "name", "kind", "key", "path"
    return {
        "note": _OF_GROUPS if several else _OF_ALL,
        "unit": style.ability_label(fit.model),
        "curves": [dict(zip(kinds, line, strict=True)) for line in lines],
        "subjects": "".join(f"M{x:g} {bottom}v-7" for x in feet),
        "x": [{"at": at_x(x), "text": f"{x:.3g}"} for x in ticks(*ends, 8)],
        "y": [{"at": at_y(x), "text": f"{x:,.3g}"} for x in ticks(0, high, 5)],
        "errors": errors,
        "left": left,
        "right": right,
        "bottom": bottom,
        "width": 800,
        "height": bottom + 42,
        "description": "A curve for each group of items." if several else best,
    }


#: Notes under the figure of information.
_OF_ALL = (
    "Where the curve is high, items measure ability well. The standard error, 1 /"
    " √information, is that of all items as if these were known; the leaderboard's"
    " is larger where it counts their uncertainty."
)
_OF_GROUPS = (
    "Each group of items measures an ability of its own; information on different"
    " abilities does not add up."
)


def _error_curve(
    grid: np.ndarray, total: np.ndarray, at_x: Any, ends: tuple[float, float]
) -> tuple[str, list[dict[str, Any]]]:
    """The path of the standard errors by information, and ticks of their scale."""
    error = 1 / np.sqrt(np.maximum(total, 1e-12))
    most = 1.08 * min(float(error.max()), 6 * float(error.min()))
    at_error = _scaler((0, most), ends)
    # The part around the smallest error that lies within the scale.
    beyond, least = np.flatnonzero(error > most), int(np.argmin(error))
    begin = max(beyond[beyond < least], default=-1) + 1
    end = min(beyond[beyond > least], default=grid.size)
    marks = [{"at": at_error(x), "text": f"{x:.3g}"} for x in ticks(0, most, 5) if x]
    return _path(grid[begin:end], error[begin:end], at_x, at_error), marks


def _path(
    x: np.ndarray,
    y: np.ndarray,
    at_x: Callable[[float], float],
    at_y: Callable[[float], float],
) -> str:
    """A line through points."""
    points = zip(x.tolist(), y.tolist(), strict=True)
    return "M" + "L".join(f"{at_x(a):g} {at_y(b):g}" for a, b in points)
