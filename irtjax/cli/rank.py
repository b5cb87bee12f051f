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
            help="Draws behind P(best) and ranks [default: 4000, fewer for more than"
            " 4,000 subjects]",
            show_default=False,
        ),
    ] = None,
    seed: opt.Seed = 0,
    everything: Annotated[
        bool, typer.Option("--all", help="Every row, however long the table.")
    ] = False,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Ranks the subjects of a fit, with rank intervals, P(best) and groups."""
    opt.check_level(level)
    from irtjax.cli.machine import prepare
    from irtjax.storage import load

    prepare()
    fit = load(folder)
    from irtjax.verbs import rank

    ranked = rank(fit, level=level, num_draws=draws, seed=seed)
    if json:
        from irtjax.cli.pipeline import print_json

        print_json(
            {
                "level": ranked.level,
                "subjects": ranked.table.to_pylist(),
                "groups": ranked.groups,
                "num_pairs": ranked.num_pairs,
                "num_different": ranked.num_different,
            }
        )
    elif not quiet:
        from irtjax.cli import screen
        from irtjax.report.summary import subject_sentences

        out = screen.console()
        screen.show_ranking(out, ranked, everything)
        screen.show_sentences(out, subject_sentences(ranked))
