"""Figures 1 to 3 of the paper: seconds by suite, abilities by date, levels of items."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.scaling import mirt, pyirt

Row = dict[str, Any]
#: Suites of the leaderboard by their number of items.
SUITES = {541: "IFEval", 756: "MuSR", 1192: "GPQA", 1324: "MATH", 5761: "BBH"}
SUITES |= {12032: "MMLU-Pro"}
#: Methods that end at the same place, ours first: a panel of figure 1.
ENDS = {
    "to the optimum": ("mm", "mm, penalty 0", "scipy", mirt.NAME, pyirt.NAME),
    "to a relative change of the loss of 1e-4": ("mm, 1e-4", "printed", "scipy, 1e-4"),
}
#: What our method is compared with.
BASELINES = ("scipy", "scipy, 1e-4", mirt.NAME, pyirt.NAME)
#: Tiers of the paper by billions of parameters; a size on a border is in the upper one.
TIERS = (("small", 0, 7), ("medium", 7, 20), ("large", 20, np.inf))
#: Colours of the largest families (without grey, that of others); models named a tier.
COLORS, NAMED = [f"C{k}" for k in range(10) if k != 7], 3


def speed(rows: list[Row]) -> Figure:
    """Seconds of the processors by number of items, and our speedup (figure 1).

    Points are means over runs, with bars from the fastest to the slowest. The bars
    behind them are the ratio of the fastest baseline to the first method of the panel.
    """
    sizes = sorted({int(row["items"]) for row in rows})
    place = {size: k for k, size in enumerate(sizes)}
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    sides = figure.subplots(1, len(ENDS), sharey=True)
    for axes, (title, names) in zip(sides, ENDS.items(), strict=True):
        means: dict[str, dict[int, float]] = {}
        for k, name in enumerate(names):
            taken = _seconds(rows, name)
            if not taken:
                continue
            x = [place[size] + 0.1 * (k - 1) for size in taken]
            middle = np.array([np.mean(v) for v in taken.values()])
            low, high = ([f(v) for v in taken.values()] for f in (min, max))
            bars = {"yerr": np.maximum([middle - low, high - middle], 0)}
            axes.errorbar(x, middle, **bars, fmt="o-", ms=5, capsize=3, label=name)
            means[name] = dict(zip(taken, middle.tolist(), strict=True))
        _speedups(axes, means, names[0], place)
        axes.set_yscale("log")
        axes.set_xticks(
            range(len(sizes)), [f"{x:,}\n{SUITES.get(x, '')}" for x in sizes]
        )
        axes.set_xlabel("items")
        axes.set_title(title)
        if means:
            axes.legend(loc="upper left", fontsize=8)
    sides[0].set_ylabel("seconds of the processors")
    return figure


def _seconds(rows: list[Row], name: str) -> dict[int, list[float]]:
    """Seconds of the runs of a method by number of items."""
    found: dict[int, list[float]] = {}
    for row in rows:
        seconds = row.get("processor_seconds")
        if row["method"] == name and isinstance(seconds, int | float):
            found.setdefault(int(row["items"]), []).append(float(seconds))
    return dict(sorted(found.items()))


def _speedups(axes, means, ours: str, place: dict[int, int]) -> None:
    """Bars of the ratio of the fastest baseline to ours, on an axis at the right."""
    behind = axes.twinx()
    ratios = {
        size: min(others) / taken
        for size, taken in means.get(ours, {}).items()
        if (others := [means[n][size] for n in BASELINES if size in means.get(n, {})])
    }
    x = [place[size] for size in ratios]
    bars = behind.bar(x, list(ratios.values()), 0.7, color="0.88", zorder=0)
    behind.bar_label(bars, [f"{ratio:.0f}×" for ratio in ratios.values()], fontsize=9)
    behind.set_ylim(0, 3 * max(ratios.values(), default=1))
    behind.set_ylabel(f"fastest baseline over {ours} (grey)")
    # Points lie in front of the bars.
    axes.set_zorder(behind.get_zorder() + 1)
    axes.patch.set_visible(False)


def abilities(ability, names: list[str], size, date, pairs) -> Figure:
    """Ability by date, or by size without dates (figure 2).

    A panel for each tier, a colour for each family, a line between the two prompts of a
    model. The ablest models of a tier and the weakest large one are named.
    """
    x, label = (size, "billions of parameters") if date is None else (date, "date")
    figure = Figure(figsize=(13, 4.6), layout="constrained")
    panels = figure.subplots(1, len(TIERS), sharey=True, sharex=date is not None)
    families = [re.split(r"[_-]", name)[0] for name in names]
    many = sorted(set(families), key=lambda f: (-families.count(f), f))[: len(COLORS)]
    for axes, (tier, low, high) in zip(panels, TIERS, strict=True):
        mine = np.isfinite(x) & (size >= low) & (size < high)
        for first, second in pairs:
            if mine[first] and mine[second]:
                both = [first, second]
                axes.plot(x[both], ability[both], color="0.7", linewidth=1, zorder=1)
        for k, family in enumerate([*many, "others"]):
            own = [f == family if family in many else f not in many for f in families]
            of = mine & np.array(own)
            color = "0.6" if family == "others" else COLORS[k]
            axes.scatter(x[of], ability[of], s=16, color=color, label=family)
        inside = np.flatnonzero(mine)
        order = inside[np.argsort(-ability[inside], kind="stable")]
        ends = _models(order[: 2 * NAMED], names)[:NAMED]
        for k, index in enumerate(ends):
            _name(axes, x[index], ability[index], names[index], (-26, 12 - 11 * k))
        if tier == "large" and order.size:
            last = order[-1]
            _name(axes, x[last], ability[last], names[last], (20, -12))
        until = f" to {high:g} B" if np.isfinite(high) else " B and more"
        axes.set_title(f"{tier}: {low:g}{until}")
        axes.set_xlabel(label)
        axes.margins(y=0.12)
        if date is None:
            axes.set_xscale("log")
    panels[0].set_ylabel("ability")
    figure.legend(*panels[-1].get_legend_handles_labels(), loc="outside right upper")
    return figure


def _models(order: Sequence[int], names: list[str]) -> list[int]:
    """The first of the rows of each model: its prompts are one model."""
    seen: dict[str, int] = {}
    for index in order:
        seen.setdefault(re.sub(r"_(zero|one)_shot$", "", names[index]), int(index))
    return list(seen.values())


def _name(axes, x: float, y: float, name: str, at: tuple[float, float]) -> None:
    """Writes the name of a model, without its publisher, `at` points from its point."""
    short = re.sub(r"^(01_ai|deepseek_ai|[a-z]+)_|_(zero|one)_shot$", "", name)
    line = {"arrowstyle": "-", "color": "0.5", "lw": 0.6}
    text = {"fontsize": 7, "va": "center", "arrowprops": line}
    text |= {"ha": "right" if at[0] < 0 else "left"}
    short = short.replace("_", " ")
    axes.annotate(short, (x, y), at, textcoords="offset points", **text)


def levels(difficulty, level, subject) -> Figure:
    """Difficulty of items by level, of all and of each subject (figure 3).

    Args:
        difficulty: `[items]` logit of a wrong response at the mean ability.
        level: `[items]` 1 to 5, or 0 of items without one.
        subject: `[items]` names.
    """
    kinds = ["all", *sorted(set(subject[level > 0]))]
    count = -(-len(kinds) // 4)
    figure = Figure(figsize=(13, 3.1 * count), layout="constrained")
    grid = np.ravel(figure.subplots(count, 4, sharey=True, squeeze=False))
    there = sorted(set(level[level > 0].tolist()))
    for axes, kind in zip(grid, kinds, strict=False):
        mine = (level > 0) & ((subject == kind) | (kind == "all"))
        values = [difficulty[mine & (level == x)] for x in there]
        drawn = axes.boxplot(
            values,
            positions=there,
            widths=0.6,
            patch_artist=True,
            flierprops={"markersize": 3},
            medianprops={"color": "black", "linewidth": 1.5},
        )
        for k, box in enumerate(drawn["boxes"]):
            box.set_facecolor(f"C{k}")
            box.set_alpha(0.7)
        middle = [np.median(v) if v.size else np.nan for v in values]
        axes.plot(there, middle, ":", color="0.3", linewidth=1)
        axes.set_title(f"{kind} ({int(mine.sum())} items)", fontsize=10)
        axes.set_xlabel("level")
    for axes in grid[len(kinds) :]:
        axes.set_axis_off()
    for axes in grid[::4]:
        axes.set_ylabel("difficulty, logits")
    return figure


def save(figure: Figure, path: Path) -> Path:
    """Writes a figure; its path."""
    figure.savefig(path, dpi=130)
    return path
