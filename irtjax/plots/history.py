"""Scores of subjects over time, with those that were added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.plots.style import GREY, PALETTE, label, new_figure, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from irtjax.storage.history import History

#: Subjects that are named.
NAMED = 40


def plot_history(found: History) -> Figure:
    """Draws the expected score of each subject at each time, with its interval.

    Subjects that were added after the first time are coloured, and so are those that
    passed another one significantly, or were passed.

    >>> import tempfile, irtjax
    >>> data = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]
    >>> table = irtjax.ResponseTable.from_arrays(data)
    >>> folder = irtjax.save(irtjax.fit(table, "rasch"), tempfile.mkdtemp())
    >>> plot_history(irtjax.history(folder)).axes[0].get_ylabel()
    'expected score'
    """
    times = [snapshot.date[:10] for snapshot in found.snapshots]
    lines: dict[str, list[tuple[int, float, float, float]]] = {}
    names = ("subject", "expected_score", "expected_score_lower")
    for at, snapshot in enumerate(found.snapshots):
        table = snapshot.subjects.select([*names, "expected_score_upper"])
        for name, *values in zip(*table.to_pydict().values(), strict=True):
            if None not in values:
                lines.setdefault(name, []).append((at, *values))
    added = {name for step in found.steps for name in step.subjects_added}
    moved = {move.subject for step in found.steps for move in step.moves}
    figure, (axes,) = new_figure(max(6.0, 1.2 * len(times) + 3), 5.0)
    last: list[tuple[float, str, Any]] = []
    for name, points in lines.items():
        at, score, low, high = np.array(points).T
        color = PALETTE[0] if name in added else PALETTE[1] if name in moved else GREY
        gaps = np.maximum([score - low, high - score], 0)
        style: dict[str, Any] = {"marker": "o", "markersize": 4, "capsize": 2}
        axes.errorbar(at, score, gaps, color=color, linewidth=1.2, **style)
        last.append((score[-1], name, color))
    for score, name, color in sorted(last, reverse=True)[:NAMED]:
        here = (len(times) - 0.9, score)
        axes.annotate(label(name), here, color=color, fontsize=8, annotation_clip=False)
    axes.set_xticks(range(len(times)), times)
    axes.set_xlim(-0.3, len(times) - 0.2)
    axes.set_ylabel("expected score")
    title(axes, "Scores over time: blue models were added")
    return figure
