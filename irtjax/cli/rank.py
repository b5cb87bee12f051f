"""`irtjax rank`: who is ahead in a saved fit, and how surely."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

from irtjax.cli import options as opt
from irtjax.cli.output import print_json, write_files
from irtjax.cli.pipeline import load_fit


def rank_command(
    folder: opt.Folder,
    level: opt.SomeLevel = None,
    draws: Annotated[
        int | None,
        opt.option(
            "Draws behind P(best) and ranks. \\[default: 4000; ranks of more than 2,000"
            " subjects are computed without draws]",
            min=100,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        opt.option("Seed of new draws. \\[default: the draws of the fit]", metavar="N"),
    ] = None,
    everything: Annotated[
        bool, opt.option("Every row, however long the table.", "--all")
    ] = False,
    against: Annotated[
        Path | None,
        opt.option(
            "Another fit with the same subjects: draw both rankings side by side, to"
            " --figure.",
            metavar="DIR",
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        opt.option("Where to draw the ranks of the two fits.", metavar="FILE.png"),
    ] = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Ranks the subjects of a fit, with rank intervals, P(best) and groups."""
    opt.check_level(level)
    if (against is None) != (figure is None):
        raise ValueError("--against requires --figure, and --figure requires --against")
    fit = load_fit(folder)
    from irtjax.calibration.rank import rank

    if against is not None and figure is not None:
        _draw_changes(fit, load_fit(against), (folder.name, against.name), figure)
    ranked = rank(fit, level=level, num_draws=draws, seed=seed)
    if json:
        print_json(
            {
                "level": ranked.level,
                "subjects": ranked.table.to_pylist(),
                "groups": list(ranked.groups),
                "num_pairs": ranked.num_pairs,
                "num_different": ranked.num_different,
            }
        )
    elif not quiet:
        from irtjax.cli import screen
        from irtjax.report.summary import has_converged, subject_sentences

        out = screen.console()
        screen.show_ranking(out, ranked, everything)
        sentences = subject_sentences(ranked, converged=has_converged(fit))
        screen.show_sentences(out, sentences)


def _draw_changes(fit, other, labels: tuple[str, str], path: Path) -> None:
    """Draws the ranks of two fits into a file, whole or not at all."""
    from irtjax.plots import plot_rank_changes, save_figure

    if path.suffix.lower() != ".png":
        raise ValueError(f"--figure {path}: the name of a picture ends in .png")
    picture = plot_rank_changes(fit, other, labels=labels)
    write_files({path: functools.partial(save_figure, picture)})
