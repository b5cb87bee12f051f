"""Figures of clusters of items: their correlations, and two subjects' profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from irtjax.plots import style
from irtjax.plots.multilevel import COLOURS
from irtjax.plots.style import GREY, INK, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.validity.heterogeneity import Heterogeneity

#: Benchmarks drawn at most, and columns of panels.
MOST, COLUMNS = 5, 3
#: Clusters whose cells get an interval, and a number.
WITH_INTERVALS, NUMBERED = 4, 10
#: Mean responses this close count as equal.
EQUAL = 0.01


class Twins(NamedTuple):
    """Two subjects with nearly equal mean responses and different profiles."""

    subjects: tuple[str, str]
    score: np.ndarray  # [2, clusters]
    responses: np.ndarray  # [2, clusters]
    mean: np.ndarray  # [2]


def plot_clusters(found: Heterogeneity) -> Figure:
    """Draws the correlations of clusters of each benchmark, and two subjects' profiles.

    Correlations are corrected for unreliability. Of many benchmarks the five with the
    lowest correlations are drawn. The two subjects have mean responses within 0.01, and
    their scores on the two clusters that correlate least differ most.

    Args:
        found: What `irtjax.heterogeneity` returned.

    Returns:
        The figure; nothing is shown or saved.
    """
    rows = [row for row in found.table.to_pylist() if (row["clusters"] or 0) > 1]
    least = lambda row: 2.0 if row["smallest"] is None else row["smallest"]
    rows = sorted(rows, key=least)
    pair = twins(found, rows[0]["benchmark"]) if rows else None
    used = min(len(rows), MOST) + (pair is not None)
    columns = min(max(used, 1), COLUMNS)
    height = -(-max(used, 1) // columns)
    figure = style.empty_figure(3.9 * columns + 0.5, 3.7 * height)
    panels = style.panels(figure, height, columns, max(used, 1)).ravel()
    picture = None
    for axes, row in zip(panels, rows[:MOST], strict=False):
        picture = _draw_correlations(axes, row, found)
    if pair is not None:
        _draw_twins(panels[used - 1], rows[0]["benchmark"], pair)
    if picture is None:
        panels[0].set_axis_off()
        style.title(panels[0], "Clusters of items", "every benchmark is one cluster")
        return figure
    drawn = panels[: used - (pair is not None)].tolist()
    bar = figure.colorbar(picture, ax=drawn, shrink=0.6, pad=0.02)
    bar.set_label("Correlation of cluster scores, corrected", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure


def _draw_correlations(axes: Axes, row: dict[str, Any], found: Heterogeneity) -> Any:
    """A matrix of correlations as colours with numbers."""
    name, count = row["benchmark"], row["clusters"]
    matrix = np.full((count, count), np.nan)
    texts: dict[tuple[int, int], str] = {}
    for pair in found.correlations.to_pylist():
        value = pair["correlation"]
        if pair["benchmark"] != name or value is None:
            continue
        at = pair["cluster_1"] - 1, pair["cluster_2"] - 1
        matrix[at] = matrix[at[::-1]] = value
        text = _short(value)
        if count <= WITH_INTERVALS and pair["correlation_lower"] is not None:
            ends = (pair[f"correlation_{end}"] for end in ("lower", "upper"))
            text += "\n" + " … ".join(map(_short, ends))
        texts[at] = texts[at[::-1]] = text if pair["compared"] else f"({text})"
    limits = {"cmap": COLOURS, "vmin": -1, "vmax": 1}
    picture = axes.imshow(np.clip(matrix, -1, 1), interpolation="nearest", **limits)
    axes.set_facecolor("#EEEEEE")
    axes.spines[["left", "bottom"]].set_visible(False)
    sizes = [
        f"{part['cluster']} ({part['items']:,})"
        for part in found.clusters.to_pylist()
        if part["benchmark"] == name
    ]
    turned = {"rotation": 45, "ha": "right"} if count > 5 else {}
    axes.set_xticks(range(count), sizes, **turned)
    axes.set_yticks(range(count), sizes)
    axes.tick_params(length=0, labelsize=7)
    axes.set_xlabel("Cluster (items)")
    for at, text in texts.items() if count <= NUMBERED else ():
        ink = "white" if abs(matrix[at]) > 0.6 else INK
        look = {"ha": "center", "va": "center", "fontsize": 8 if count <= 5 else 6}
        axes.text(at[1], at[0], text, color=ink, **look)
    low, high = _short(row["band_lower"]), _short(row["band_upper"])
    # Simulated tables of one skill may have no two clusters to compare.
    alone = row["band_lower"] >= 1
    band = "nothing to compare" if alone else f"{low} … {high}"
    below = f"{row['verdict']}; one skill: {band}"
    style.title(axes, style.label(name or "All items", 30), below)
    return picture


def _short(value: float) -> str:
    """A correlation in two digits, without the 0 before the point."""
    text = f"{value:.2f}".replace("0.", ".", 1)
    return text if abs(value) < 0.995 else f"{value:.2f}"


def _draw_twins(axes: Axes, name: str, pair: Twins) -> None:
    """Two subjects' scores by cluster with intervals."""
    places = np.arange(pair.score.shape[1])
    axes.grid(axis="y", color=style.PALE, linewidth=0.7)
    for k, subject in enumerate(pair.subjects):
        score, count = pair.score[k], pair.responses[k]
        error = np.abs(_wilson(score, count) - score)
        shift, colour = 0.08 * (2 * k - 1), PALETTE[k]
        look = {"fmt": "o-", "color": colour, "ms": 5, "lw": 1.2, "capsize": 2}
        text = f"{style.label(subject, 34)}: mean {pair.mean[k]:.3f}"
        axes.errorbar(places + shift, score, error, label=text, **look)
        axes.axhline(pair.mean[k], color=colour, ls="--", lw=0.8)
    axes.set_xticks(places, [str(k + 1) for k in places])
    axes.set_xlim(-0.5, len(places) - 0.5)
    low, high = axes.get_ylim()
    # Room for the legend above the points.
    axes.set_ylim(low, high + 0.25 * (high - low))
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= 1.001])
    axes.set_ylim(low, high + 0.25 * (high - low))
    axes.set_xlabel("Cluster")
    axes.set_ylabel("Mean response")
    axes.legend(fontsize=7, frameon=False, loc="upper left")
    axes.spines[["left", "bottom"]].set_color(GREY)
    below = "bars: 95 % intervals of the proportions"
    style.title(axes, f"Equal means: {style.label(name or 'all items', 22)}", below)


def _wilson(share: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Bounds `[2, ...]` of the 95 % interval of a proportion (Wilson 1927)."""
    z2 = 1.96**2
    half = np.sqrt(z2 * (share * (1 - share) / count + z2 / (4 * count**2)))
    middle = share + z2 / (2 * count)
    return np.stack([middle - half, middle + half]) / (1 + z2 / count)


def twins(found: Heterogeneity, benchmark: str) -> Twins | None:
    """Two subjects with means within 0.01 whose profiles differ most; None without."""
    rows = [row for row in found.scores.to_pylist() if row["benchmark"] == benchmark]
    count = max(row["cluster"] for row in rows)
    score = np.array([np.nan if r["accuracy"] is None else r["accuracy"] for r in rows])
    responses = np.array([r["observed"] for r in rows]).reshape(-1, count)
    names = [row["subject"] for row in rows[::count]]
    score = score.reshape(-1, count)
    mean = np.nansum(score * responses, axis=1) / np.maximum(responses.sum(axis=1), 1)
    pairs = [p for p in found.correlations.to_pylist() if p["benchmark"] == benchmark]
    fine = [p for p in pairs if p["correlation"] is not None] or pairs
    of = lambda p: (not p["compared"], p["correlation"] or 0)
    least = min(fine, key=of)
    gap = score[:, least["cluster_1"] - 1] - score[:, least["cluster_2"] - 1]
    scored = np.flatnonzero(np.isfinite(score).all(axis=1))
    if len(scored) < 2:
        return None
    # Within a bin any two means are close enough.
    bins = np.floor(mean[scored] / EQUAL).astype(int)
    best = (0.0, -1, -1)
    for place in np.unique(bins):
        here = scored[bins == place]
        low, high = here[gap[here].argmin()], here[gap[here].argmax()]
        best = max(best, (gap[high] - gap[low], int(high), int(low)))
    if best[1] < 0:
        return None
    two = list(best[1:])
    return Twins(
        (str(names[two[0]]), str(names[two[1]])), score[two], responses[two], mean[two]
    )
