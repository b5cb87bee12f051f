"""Figures of the comparisons: means over trials against what was varied."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from irtjax.plots import save_figure
from irtjax.plots.style import PALETTE, label, new_figure, title

#: What may be varied along the axis, and what tells panels apart.
ALONG = {"share": "share of cells trained on", "items": "items scored"}
PANELS = ("data", "hyperparameters", "measure")


def draw(name: str, rows: list[dict], trials: list[dict], path: Path) -> None:
    """Draws means over trials with standard errors, or the trials' densities.

    Args:
        name: Of the comparison.
        rows: As `run.summary` gives them.
        trials: The rows they summarise.
        path: Where the figure goes.
    """
    if name == "stability":
        save_figure(densities(trials), path, dpi=120)
        return
    if name == "sbc":
        save_figure(histograms(trials), path, dpi=120)
        return
    if name in ("distances", "coverage"):
        # A panel for each method, a dot for each quantity.
        names = {"method": "measure", "quantity": "model"}
        rows = [{names.get(key, key): row[key] for key in row} for row in rows]
    if name == "structure":  # From the least sensitive model to the most.
        rows = sorted(rows, key=lambda row: row["mean"])
    along = next((k for k in ALONG if k in rows[0]), None)
    kinds = list(dict.fromkeys(panel_of(row) for row in rows))
    figure, panels = new_figure(4.4 * min(len(kinds), 6), 3.6, len(kinds))
    for kind, axes in zip(kinds, panels, strict=True):
        mine = [row for row in rows if panel_of(row) == kind]
        if along is None:
            dots(axes, mine)
        else:
            lines(axes, mine, along)
        title(axes, name.replace("_", " "), kind)
        if name == "structure":
            title(axes, "sensitivity", kind)
            axes.set_xlabel("sd of residual abilities")
    save_figure(figure, path, dpi=120)


def panel_of(row: dict) -> str:
    """What tells the panel of a row."""
    return ", ".join(str(row[k]) for k in PANELS if k in row)


def lines(axes, rows: list[dict], along: str) -> None:
    """One line per model, the mean of its subjects; per subject if there is one model.

    With two standard errors, or with intervals where rows have them.
    """
    key = "model" if len({row["model"] for row in rows}) > 1 else "subject"
    key = key if key in rows[0] else "model"
    series = list(dict.fromkeys(row[key] for row in rows))
    for k, name in enumerate(series):
        part = [row for row in rows if row[key] == name]
        x = np.unique([row[along] for row in part])
        groups = [[row for row in part if row[along] == place] for place in x]
        y = np.asarray([np.mean([row["mean"] for row in group]) for group in groups])
        squares = [np.sum([row["se"] ** 2 for row in group]) for group in groups]
        spread = 2 * np.sqrt(squares) / [len(group) for group in groups]
        if "lower" in rows[0]:
            ends = np.asarray([[row["lower"], row["upper"]] for row in part])
            spread = np.abs(ends - y[:, None]).T
        if "lower" in rows[0] or len(x) == 1:
            x = x * 1.02 ** (k - len(series) / 2)  # Side by side.
        axes.errorbar(
            x, y, yerr=spread, color=PALETTE[k % len(PALETTE)], lw=1.2, elinewidth=0.6,
            marker="o", ms=3 if len(x) > 1 else 6,
            ls="-" if k < len(PALETTE) else "--", label=label(name, 34),
        )  # fmt: skip
    places = {row[along] for row in rows}
    if len(places) == 1:
        axes.set_xticks(sorted(places))
        axes.margins(x=0.5)
    axes.set_xlabel(ALONG[along])
    if along == "items":
        axes.set_xscale("log")
    axes.legend(frameon=False, fontsize=6)


def dots(axes, rows: list[dict]) -> None:
    """One dot per row with its standard deviation, or its interval where it has one."""
    skipped = ("mean", "sd", "se", "n", *PANELS, "lower", "upper", "rank", "ability")
    unnamed = (*skipped, "highest", "lowest", "truth")
    keys = [k for k in rows[0] if k not in unnamed]
    place = np.arange(len(rows))
    mean = np.asarray([row["mean"] for row in rows])
    if "lower" in rows[0]:
        ends = np.asarray([[row["lower"], row["upper"]] for row in rows])
        error = np.abs(ends.T - mean)
    else:
        error = np.asarray([row["sd"] for row in rows])
    axes.errorbar(mean, place, xerr=error, fmt="o", color=PALETTE[0], ms=3, lw=0.8)
    if "truth" in rows[0]:
        truth = [row["truth"] for row in rows]
        axes.plot(truth, place, "|", color=PALETTE[1], ms=8, label="truth")
        axes.legend(frameon=False, fontsize=6)
    names = [label(", ".join(str(row[k]) for k in keys), 40) for row in rows]
    axes.set_yticks(place, names)
    axes.tick_params(axis="y", labelsize=5)
    axes.invert_yaxis()


def densities(trials: list[dict]):
    """Of every subject, the density over trials of each model's values."""
    from scipy.stats import gaussian_kde

    subjects = list(dict.fromkeys(row["subject"] for row in trials))
    models = list(dict.fromkeys(row["model"] for row in trials))
    figure, panels = new_figure(2.9 * len(subjects), 2.8, len(subjects))
    values = [row["value"] for row in trials]
    x = np.linspace(min(values), max(values), 300)
    for subject, axes in zip(subjects, panels, strict=True):
        for colour, model in zip(PALETTE, models, strict=False):
            mine = [
                row["value"]
                for row in trials
                if row["subject"] == subject and row["model"] == model
            ]
            y = gaussian_kde(mine)(x)
            text = f"{model}, sd {np.std(mine, ddof=1):.3f}"
            axes.plot(x, y, color=colour, lw=1.3, label=text)
            axes.fill_between(x, y, color=colour, alpha=0.15, lw=0)
        axes.axvline(0, color="#8A8A8A", lw=0.8, ls="--")
        axes.set_xlabel("less the estimate from all items (sd)")
        axes.legend(frameon=False, fontsize=6)
        title(axes, label(subject, 24))
    return figure


def histograms(rows: list[dict]):
    """Ranks of the truth in equal bins, a line per quantity, a panel per model.

    The band holds 99 % of the counts of a uniform rank, bin by bin.
    """
    from scipy import stats

    kinds = list(dict.fromkeys(row["model"] for row in rows))
    figure, panels = new_figure(4.4 * len(kinds), 3.6, len(kinds))
    for kind, axes in zip(kinds, panels, strict=True):
        mine = [row for row in rows if row["model"] == kind]
        counts = np.asarray([row["counts"].split() for row in mine], int)
        num_bins = counts.shape[1]
        lower, upper = stats.binom.interval(0.99, counts[0].sum(), 1 / num_bins)
        axes.axhspan(lower, upper, color="#8A8A8A", alpha=0.2, lw=0)
        edges = np.linspace(0, 1, num_bins + 1)
        for k, count in enumerate(counts):
            colour = PALETTE[k % len(PALETTE)]
            axes.stairs(count, edges, color=colour, lw=0.6, alpha=0.6)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("rank of the truth among the draws")
        title(axes, kind, f"{counts[0].sum()} data sets, {len(mine)} quantities")
    return figure
