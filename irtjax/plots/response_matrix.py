"""The matrix of responses, sorted by the means of its rows and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from irtjax.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from irtjax.data.table import ResponseTable

#: Rows and columns drawn at most: a figure has no more dots to show them.
MOST = 400
#: Rows and columns that have their names.
NAMED = 40
#: Height of the strip of benchmarks, in parts of the matrix.
STRIP = 0.025
MISSING = "#b0b0b0"


def plot_response_matrix(table: ResponseTable) -> Figure:
    """Draws the responses: best subjects at the top, easiest items at the left.

    Of a Guttman scale the right responses are above one staircase. Missing responses
    are grey. Of more than 400 subjects or items 400 are drawn, evenly spaced in order.
    With two to eight benchmarks a strip above the items has their colours.

    Args:
        table: The responses; of counts the shares are drawn.

    Returns:
        The figure; nothing is shown or saved.

    >>> import irtjax
    >>> table = irtjax.ResponseTable.from_arrays([[0, 1], [1, 1]])
    >>> axes = plot_response_matrix(table).axes[0]
    >>> axes.images[0].get_array().tolist()
    [[1.0, 1.0], [1.0, 0.0]]
    """
    rows = _order(table.subject_accuracy())
    columns = _order(table.item_accuracy())
    part = table.select(subjects=rows, items=columns)
    values = np.asarray(part.values, float)
    if part.trials is not None:
        values = values / np.maximum(part.trials, 1)
    if part.observed is not None:
        values = np.ma.masked_array(values, mask=~np.asarray(part.observed))
    names = [[style.label(x) for x in y.tolist()] for y in (part.subjects, part.items)]
    room = 0.07 * max((len(x) for y in names if len(y) <= NAMED for x in y), default=0)
    figure, (axes,) = style.new_figure(6.5 + room, 5.0 + room)
    axes.set_facecolor(MISSING)
    picture = axes.imshow(
        values, cmap="viridis", aspect="auto", interpolation="nearest"
    )
    counts = f"{table.num_subjects:,} subjects × {table.num_items:,} items"
    counts += ", missing grey" if part.observed is not None else ""
    drawn = "" if part.size == table.size else f", {len(rows)} × {len(columns)} drawn"
    style.title(axes, "Responses", counts + drawn)
    benchmarks = np.unique(table.item_facets.get("benchmark", []))
    if 2 <= len(benchmarks) <= len(style.PALETTE):
        _draw_strip(axes, part.item_facets["benchmark"], benchmarks)
    axes.grid(visible=False)
    shown = [np.arange(len(x) if len(x) <= NAMED else 0) for x in names]
    axes.set_yticks(shown[0], names[0][: len(shown[0])])
    axes.set_xticks(shown[1], names[1][: len(shown[1])], rotation=90)
    axes.set_ylabel("Subjects, best first")
    axes.set_xlabel("Items, easiest first")
    figure.colorbar(picture, ax=axes, shrink=0.7, label="response")
    return figure


def _draw_strip(axes: Axes, of_items: np.ndarray, benchmarks: np.ndarray) -> None:
    """Colours the items by benchmark at the top of the matrix, with a legend."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    colours = style.PALETTE[: len(benchmarks)]
    strip = axes.inset_axes((0, 1 - STRIP, 1, STRIP))
    strip.imshow(
        np.searchsorted(benchmarks, of_items)[None],
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        aspect="auto",
        interpolation="nearest",
    )
    strip.set_axis_off()
    # The first rows stay visible: the matrix begins below the strip.
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, top - (bottom - top) * STRIP / (1 - STRIP))
    names = [style.label(x) for x in benchmarks.tolist()]
    handles = [Patch(color=x, label=y) for x, y in zip(colours, names, strict=True)]
    figure: Any = axes.figure
    look: dict[str, Any] = {"ncols": 4, "fontsize": 8, "frameon": False}
    figure.legend(handles=handles, loc="outside lower center", **look)


def _order(mean: np.ndarray) -> np.ndarray:
    """Positions by falling means, at most `MOST` of them, evenly spaced."""
    order = np.argsort(-mean, kind="stable")
    if len(order) <= MOST:
        return order
    return order[np.linspace(0, len(order) - 1, MOST).round().astype(int)]
