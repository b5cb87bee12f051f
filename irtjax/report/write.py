"""Everything about a calibration into one folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from irtjax._types import check_keywords
from irtjax.numerics.progress import watched
from irtjax.report.leaderboard_page import leaderboard
from irtjax.report.page import PAGE, report_page, write_page

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects
    from irtjax.data import ResponseTable
    from irtjax.storage.folder import SaveOptions


def figure_makers(fit: Calibration) -> list[tuple[str, str, Callable[[Any], Any]]]:
    """Returns title, file name and function of each figure."""
    from irtjax import plots

    title = "Expected scores" if fit.abilities_are_scores else "Abilities"
    makers = [(title, "abilities.png", "plot_abilities")]
    if not fit.abilities_are_scores:
        makers += [
            ("Subjects and items", "wright_map.png", "plot_wright_map"),
            (
                "Item response functions",
                "item_response_functions.png",
                "plot_item_response_functions",
            ),
            ("Test information", "test_information.png", "plot_test_information"),
        ]
    for part in fit.parts:
        makers += part.figures()
    return [(title, file, getattr(plots, name)) for title, file, name in makers]


def write_report(
    fit: Calibration,
    folder: str | Path,
    *,
    figures: bool = True,
    ranked: RankedSubjects | None = None,
    progress: Callable[[str], None] | None = None,
    draws: bool = False,
    data: ResponseTable | None = None,
    texts: Mapping[str, str] | None = None,
    page: bool = True,
    **saving: Unpack[SaveOptions],
) -> Path:
    """Saves a calibration with its reports and figures, whole or not at all.

    `report.html` is a page of its own (docs/report.md); `leaderboard.md` has figures.

    Args:
        fit: The calibration.
        folder: Folder to make or to replace; see `irtjax.save`.
        figures: Whether to draw the figures.
        ranked: The ranking; None computes it.
        progress: Called with the name of each figure before it is drawn.
        draws: Whether to write the posterior draws of a sampler's fit, `draws.nc`.
        data: The responses, for `report.html`: a calibration does not keep them.
        texts: Text of an item by its name, for `report.html`.
        page: Whether to write `report.html`.
        **saving: `overwrite`, `extras` and `responses` of `irtjax.save`.

    Returns:
        The folder.

    Raises:
        TypeError: If there is no option of a name.
        ValueError: As for `irtjax.save`, or if `data` are of other items or subjects.
    """
    from irtjax.storage.folder import SaveOptions, save

    check_keywords("write_report", saving, SaveOptions)
    standing = fit.rank() if ranked is None else ranked

    # Before anything is written: `data` may be refused.
    html = ""
    if page:
        html = report_page(fit, ranked=standing, data=data, texts=texts, folder=folder)

    def extra(place: Path) -> None:
        if page:
            write_page(place / PAGE, html)
        _write_page(fit, standing, place, progress, figures)
        if draws and fit.draws is not None:
            from irtjax.storage import draw_labels, write_draws

            path = place / "draws.nc"
            write_draws(path, fit.draws, **draw_labels(fit))

    saving["extras"] = [extra, *saving.get("extras", ())]
    return save(fit, folder, **saving)


def _write_page(
    fit: Calibration, ranked: RankedSubjects, place: Path, progress: Any, figures: bool
) -> None:
    """Draws the figures and writes the leaderboard into a folder."""
    makers = figure_makers(fit) if figures else []
    for title, name, make in watched(makers, "figure"):
        from irtjax.plots import save_figure

        if progress is not None:
            progress(f"draw {title.lower()}")
        save_figure(make(fit), place / name)
    page = leaderboard(fit, ranked, [(title, name) for title, name, _ in makers])
    (place / "leaderboard.md").write_text(page, encoding="utf-8")
