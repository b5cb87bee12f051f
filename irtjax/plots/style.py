"""What all figures share: palette, labels, axes, saving."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from irtjax.data.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.calibration.calibration import Calibration
    from irtjax.models.model import Model

#: Okabe and Ito's palette, distinct with every common form of colour blindness.
PALETTE = tuple(
    "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #8C6D1F #000000".split()
)
INK, GREY, PALE = "#222222", "#8A8A8A", "#E6E6E6"
#: Abilities and difficulties beyond this many units are drawn at the edge.
WIDEST = 8.0
#: Letters of a group's name next to its box.
LABEL = 30


def new_figure(
    width: float,
    height: float,
    columns: int = 1,
    grid: Literal["x", "y", "both"] | None = None,
    **options: Any,
) -> tuple[Figure, Any]:
    """Returns a figure and its row of axes, `[columns]`, in the common style."""
    figure = empty_figure(width, height)
    axes = panels(figure, 1, columns, columns, **options)[0]
    for one in axes if grid else ():
        one.grid(axis=grid, color=PALE, linewidth=0.7)
    return figure, axes


def empty_figure(width: float, height: float) -> Figure:
    """Returns a white figure without axes."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def panels(figure: Figure, rows: int, columns: int, used: int, **options: Any) -> Any:
    """Returns axes in the common style, `[rows, columns]`; the last ones are hidden."""
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for k, one in enumerate(axes.ravel()):
        style_axes(one) if k < used else one.set_axis_off()
    return axes


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
        place = {"xycoords": "axes fraction", "textcoords": "offset points"}
        look = {"fontsize": 8, "color": "#555555", "annotation_clip": False}
        axes.annotate(below, (0, 1), (0, 5), **place, **look)


def legend_below(
    figure: Figure, drawn: Sequence[Axes], columns: int, note: str = ""
) -> None:
    """Adds a legend of what is drawn on some axes under the figure, below a note."""
    parts = [axes.get_legend_handles_labels() for axes in drawn]
    handles, texts = (sum(part, []) for part in zip(*parts, strict=True))
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns}
    if note:
        place |= {"title": note, "title_fontsize": 8}
    figure.legend(handles, texts, fontsize=8, frameon=False, **place)


def legend_under(axes: Axes, size: float = 8, columns: int = 1) -> None:
    """Adds a legend of what is drawn on some axes under them, where it hides nothing.

    The label of the axis must be there: the legend is placed below it.
    """
    from matplotlib.transforms import ScaledTranslation

    inches = 0.26 + 0.17 * (1 + axes.get_xlabel().count("\n"))
    figure: Any = axes.figure
    move = ScaledTranslation(0, -inches, figure.dpi_scale_trans)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "ncols": columns}
    place["bbox_transform"] = axes.transAxes + move
    axes.legend(fontsize=size, frameon=False, **place)


def boxplots(
    axes: Axes,
    values: np.ndarray,
    codes: np.ndarray,
    names: Sequence[str],
    named: bool = True,
) -> None:
    """Draws a box (quartiles, whiskers 1.5 times as much) by code, the first on top."""
    finite = np.isfinite(values)
    parts = [values[finite & (codes == code)] for code in range(len(names))]
    look: dict[str, Any] = {"orientation": "horizontal", "patch_artist": True}
    look["flierprops"] = {"marker": ".", "markersize": 2.5, "markeredgecolor": GREY}
    look["medianprops"] = {"color": "black"}
    boxes = axes.boxplot(parts[::-1], widths=0.6, **look)
    reach = [x for line in boxes["whiskers"] for x in line.get_xdata()]
    for code, box in enumerate(boxes["boxes"][::-1]):
        box.set_facecolor(PALETTE[code % len(PALETTE)])
        box.set_alpha(0.5)
    texts = [label(name, LABEL) for name in names[::-1]]
    axes.set_yticks(range(1, len(names) + 1), texts)
    axes.tick_params(left=named, labelleft=named)
    # Extreme values are few and would squeeze the boxes; whiskers are drawn whole.
    low, high = np.percentile(values[finite], [1, 99]) if finite.any() else (0, 1)
    reach = [x for x in reach if np.isfinite(x)]
    low, high = min([low, *reach]), max([high, *reach])
    # Values that are all the same are drawn as a line.
    room = 0.1 * (high - low) if high - low > 1e-9 else 0.1
    axes.locator_params(axis="x", nbins=5)
    low, high = low - room, high + room
    axes.set_xlim(low, high)
    # A point at the end of the axis is drawn whole, one beyond it not at all.
    for points in boxes["fliers"]:
        x, y = map(np.asarray, points.get_data())
        inside = (x >= low) & (x <= high)
        points.set_data(x[inside], y[inside])
        points.set_clip_on(False)
        # Else the layout makes room for points that are not clipped.
        points.set_in_layout(False)


def label_width(names: Sequence[str]) -> float:
    """Inches that the names of boxes take beyond those of a dozen letters."""
    return 0.075 * max(min(max(map(len, names), default=0), LABEL) - 12, 0)


def group_codes(names: np.ndarray, most: int) -> tuple[np.ndarray, list[str]]:
    """Returns codes and names of groups; beyond `most` the smallest share the last.

    >>> codes, groups = group_codes(np.array(["a", "b", "c", "a"]), 2)
    >>> codes.tolist(), groups
    ([0, 1, 1, 0], ['a', '2 others'])
    """
    groups, codes, sizes = np.unique(names, return_inverse=True, return_counts=True)
    if len(groups) <= most:
        return codes, [str(name) for name in groups]
    largest = np.sort(np.argsort(-sizes, kind="stable")[: most - 1])
    place = np.full(len(groups), most - 1)
    place[largest] = np.arange(most - 1)
    others = f"{counted(len(groups) - most + 1, 'other')}"
    return place[codes], [*(str(name) for name in groups[largest]), others]


def label(name: str, limit: int = 44) -> str:
    r"""Returns a name for a figure: shortened, printable, with dollar signs escaped.

    >>> label("cost $5 or $6", 10)
    'cost …r \\$6'
    """
    text = "".join(c for c in str(name) if unicodedata.category(c)[0] != "C")
    if len(text) > limit:
        tail = (limit - 1) // 2
        text = text[: limit - 1 - tail] + "…" + text[-tail:]
    return text.replace("$", r"\$")


def column(table: Any, name: str) -> np.ndarray:
    """Returns a column of an Arrow table as floats, NaN where there is no number."""
    import pyarrow as pa

    values = table.column(name).cast(pa.float64()).combine_chunks()
    return values.to_numpy(zero_copy_only=False)


def finite_abilities(fit: Calibration) -> np.ndarray:
    """Returns the abilities of the subjects that have one."""
    ability = column(fit.abilities.table, "ability")
    return ability[np.isfinite(ability)]


def ability_unit(model: Model) -> str:
    """The scale of the abilities of a model, for labels of axes."""
    if model.scale != "unit_slope":
        return "standard deviations of the population"
    return "probits" if getattr(model.family, "link", "") == "probit" else "logits"


def ability_label(model: Model) -> str:
    """What the abilities of a model are, for labels of axes."""
    if model.family.ability_shape:
        return "Expected score on all items"
    return f"Ability ({ability_unit(model)})"


def item_benchmarks(fit: Calibration, most: int) -> tuple[np.ndarray, list[str]]:
    """Returns the code of each item's benchmark and the names by code."""
    if fit.benchmarks is None:
        return np.zeros(len(fit.item_names), int), [""]
    return group_codes(np.asarray(fit.benchmarks), most)


def draw_segments(axes: Axes, begin, end, *, y: bool = True, **look) -> None:
    """Draws many lines `[lines, 2]`, four times as fast as `hlines` and `vlines`."""
    from matplotlib.collections import LineCollection

    if len(begin):
        lines: Any = np.stack([begin, end], axis=1)
        axes.add_collection(LineCollection(lines, **look), autolim=False)
        ends = lines.reshape(-1, 2)
        axes.update_datalim([ends.min(axis=0), ends.max(axis=0)], updatey=y)
        axes.autoscale_view(scaley=y)


def save_figure(figure: Figure, path: str | Path, dpi: int = 160) -> Path:
    """Draws a figure into a file; a PNG unless the name ends otherwise."""
    path = Path(path)
    if not path.suffix:
        path = path.with_suffix(".png")
    with warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        # Drawn by the Agg canvas whatever the user's default backend.
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas, before = FigureCanvasAgg(figure), figure.dpi
        if path.suffix != ".png":
            figure.savefig(path, dpi=dpi)
            return path
        # `Figure.savefig` draws twice, once for the layout.
        try:
            figure.set_dpi(dpi)
            # A third of the time of matplotlib's level 6, for files of the same size.
            fast = {"compress_level": 3}
            canvas.print_png(path, metadata={"Software": "irtjax"}, pil_kwargs=fast)
        finally:
            figure.set_dpi(before)
    return path
