"""What all figures share: palette, labels, axes, saving."""

from __future__ import annotations

import unicodedata
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.calibration import Calibration

#: Okabe and Ito's palette, told apart with every common form of colour blindness.
PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8C6D1F",
    "#000000",
)
INK, GREY, PALE = "#222222", "#8A8A8A", "#E6E6E6"
#: Abilities and difficulties beyond this many units are drawn at the edge.
WIDEST = 8.0


def new_figure(width: float, height: float, columns: int = 1, **options: Any):
    """Returns a figure and its row of axes, `[columns]`, in the common style."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    axes = figure.subplots(1, columns, squeeze=False, **options)[0]
    for one in axes:
        style_axes(one)
    return figure, axes


def style_axes(axes: Axes) -> None:
    """Leaves only the lines that carry information."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(colors=INK, labelsize=8, width=0.6, length=3)
    axes.xaxis.label.set_fontsize(9)
    axes.yaxis.label.set_fontsize(9)
    axes.set_axisbelow(True)


def title(axes: Axes, text: str, below: str = "") -> None:
    """Sets a bold title at the left and, under it, a line of small print."""
    room = 17 if below else 6
    axes.set_title(text, loc="left", fontsize=11, fontweight="bold", pad=room)
    if below:
        axes.annotate(
            below,
            (0, 1),
            (0, 5),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=8,
            color="#555555",
            annotation_clip=False,
        )


def label(name: str, limit: int = 44) -> str:
    r"""Returns a name as a figure can show it.

    Long names lose their middle, control characters go, and a dollar sign is kept
    from starting mathematics.

    >>> label("cost $5 or $6", 10)
    'cost …r \\$6'
    """
    text = "".join(c for c in str(name) if unicodedata.category(c)[0] != "C")
    if len(text) > limit:
        tail = (limit - 1) // 2
        text = text[: limit - 1 - tail] + "…" + text[-tail:]
    return text.replace("$", r"\$")


def number(values: Any) -> np.ndarray:
    """Returns an Arrow column as floats, NaN where there is no number."""
    import pyarrow as pa

    return values.cast(pa.float64()).to_numpy(zero_copy_only=False)


def column(table: Any, name: str) -> np.ndarray:
    """Returns a column of numbers of an Arrow table; see `number`."""
    return number(table.column(name).combine_chunks())


def ability_unit(fit: Calibration) -> str:
    """Says in which unit the abilities of a calibration are."""
    if fit.model.scale != "unit_slope":
        return "standard deviations of the population"
    return "probits" if getattr(fit.model.family, "link", "") == "probit" else "logits"


def percent(level: float) -> str:
    """Returns a level as text.

    >>> percent(0.95), percent(0.999)
    ('95 %', '99.9 %')
    """
    return f"{100 * level:.6g} %"


def item_benchmarks(fit: Calibration, most: int) -> tuple[np.ndarray, list[str]]:
    """Returns the code of each item's benchmark and the names by code.

    Beyond `most` benchmarks the smallest ones share the name "other".
    """
    if fit.benchmarks is None:
        return np.zeros(len(fit.items), int), [""]
    names, codes, sizes = np.unique(
        np.asarray(fit.benchmarks), return_inverse=True, return_counts=True
    )
    if len(names) <= most:
        return codes, names.tolist()
    kept = np.sort(np.argsort(-sizes, kind="stable")[: most - 1])
    place = np.full(len(names), most - 1)
    place[kept] = np.arange(most - 1)
    return place[codes], [*names[kept].tolist(), f"{len(names) - most + 1} others"]


def save_figure(figure: Figure, path: str | Path, dpi: int = 160) -> Path:
    """Draws a figure into a PNG file."""
    path = Path(path)
    with warnings.catch_warnings():
        # A name in a script the font lacks is drawn as boxes; that is no news here.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        # Drawn by the Agg canvas whatever the user's default backend.
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        FigureCanvasAgg(figure)
        figure.savefig(path, dpi=dpi, metadata={"Software": "irtjax"})
    return path
