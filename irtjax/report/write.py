"""Everything about a calibration into one folder."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects


def figure_makers(fit: Calibration) -> list[tuple[str, str, Callable[[Any], Any]]]:
    """Returns title, file name and function of each figure."""
    from irtjax import plots

    makers: list[tuple[str, str, Callable[[Any], Any]]] = [
        ("Abilities", "abilities.png", plots.plot_abilities),
        ("Subjects and items", "wright_map.png", plots.plot_wright_map),
        (
            "Item response functions",
            "item_response_functions.png",
            plots.plot_item_response_functions,
        ),
        ("Test information", "test_information.png", plots.plot_test_information),
    ]
    if fit.parameters.lengths is not None:
        makers.append(("Ability and speed", "latency.png", plots.plot_latency))
        makers.append(
            ("Item parameters", "item_parameters.png", plots.plot_item_parameters)
        )
    if fit.structure is not None and len(fit.structure.groups) > 1:
        makers += [
            (
                "Abilities by group",
                "group_abilities.png",
                plots.plot_abilities_by_group,
            ),
            ("Correlations of groups", "correlations.png", plots.plot_correlations),
        ]
    return makers


def write_report(
    fit: Calibration,
    folder: str | Path,
    *,
    overwrite: bool = False,
    figures: bool = True,
    ranked: RankedSubjects | None = None,
    progress: Callable[[str], None] | None = None,
    draws: bool = False,
) -> Path:
    """Saves a calibration with its leaderboard and figures, whole or not at all.

    Args:
        fit: The calibration.
        folder: Folder to make or to replace; see `irtjax.save`.
        overwrite: Whether to write into a folder that holds other things too.
        figures: Whether to draw the figures.
        ranked: The ranking; None computes it.
        progress: Called with the name of each figure before it is drawn.
        draws: Whether to write the posterior draws of a sampler's fit, `draws.nc`.

    Returns:
        The folder.

    Raises:
        ValueError: As for `irtjax.save`.
    """
    from irtjax.calibration.rank import rank
    from irtjax.report.leaderboard import leaderboard
    from irtjax.storage import save

    standing = rank(fit) if ranked is None else ranked

    def extra(place: Path) -> None:
        drawn = _draw(fit, place, progress) if figures else []
        page = leaderboard(fit, standing, drawn)
        (place / "leaderboard.md").write_text(page, encoding="utf-8")
        if draws and fit.structure is not None and fit.structure.draws is not None:
            from irtjax.storage import draw_labels, write_draws

            path = place / "draws.nc"
            write_draws(path, fit.structure.draws, **draw_labels(fit))

    return save(fit, folder, overwrite=overwrite, extras=[extra])


def add_figures(
    fit: Calibration,
    folder: Path,
    ranked: RankedSubjects,
    progress: Callable[[str], None],
) -> None:
    """Draws the figures into the folder of a saved fit, all or none.

    The command line draws last: an interrupted drawing loses no numbers.
    """
    from irtjax.report.leaderboard import leaderboard

    with tempfile.TemporaryDirectory(dir=folder, prefix=".irtjax-") as temporary:
        place = Path(temporary)
        page = leaderboard(fit, ranked, _draw(fit, place, progress))
        (place / "leaderboard.md").write_text(page, encoding="utf-8")
        for path in place.iterdir():
            path.replace(folder / path.name)


def _draw(fit: Calibration, place: Path, progress: Any) -> list[tuple[str, str]]:
    """Draws all figures into a folder; their titles and file names."""
    from irtjax.plots import save_figure

    makers = figure_makers(fit)
    for title, name, make in makers:
        if progress is not None:
            progress(f"draw {title.lower()}")
        save_figure(make(fit), place / name)
    return [(title, name) for title, name, _ in makers]
