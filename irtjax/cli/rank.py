"""`irtjax rank`: who is ahead in a saved fit, and how surely."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from irtjax.cli import options as opt


def rank_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder that `irtjax fit` wrote.", show_default=False
        ),
    ],
    level: opt.SomeLevel = None,
    draws: Annotated[
        int | None,
        typer.Option(
            "--draws",
            min=100,
            help="Draws behind P(best) and ranks [default: 4000; ranks of more than"
            " 2,000 subjects are computed without draws]",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Seed of new draws [default: the draws of the fit]",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every row, however long the table.")
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="DIR",
            help="Another fit with the same subjects: draws who moves, into --figure.",
            show_default=False,
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            "--figure",
            metavar="FILE.png",
            help="Where to draw the ranks of the two fits.",
            show_default=False,
        ),
    ] = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Ranks the subjects of a fit, with rank intervals, P(best) and groups."""
    opt.check_level(level)
    if (against is None) != (figure is None):
        raise ValueError("--against and --figure go together: two fits, one picture")
    from irtjax.cli.machine import prepare
    from irtjax.storage import load

    prepare()
    fit = load(folder)
    from irtjax.calibration.rank import rank

    if against is not None and figure is not None:
        _draw_changes(fit, load(against), (folder.name, against.name), figure)
    ranked = rank(fit, level=level, num_draws=draws, seed=seed)
    if json:
        from irtjax.cli.pipeline import print_json

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
    from irtjax.data.files import atomic_path
    from irtjax.plots import plot_rank_changes, save_figure

    if path.suffix.lower() != ".png":
        raise ValueError(f"--figure {path}: the name of a picture ends in .png")
    picture = plot_rank_changes(fit, other, labels=labels)
    with atomic_path(path) as temporary:
        save_figure(picture, temporary)
