"""`irtjax arena`: models ranked by comparisons of two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from irtjax.cli import options as opt
from irtjax.cli.machine import prepare
from irtjax.cli.output import check_out_folder, print_json, say
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.comparisons.fit import Arena

#: The files of the folder.
WRITTEN = ("abilities.parquet", "abilities.csv", "pairs.csv", "fit.json")


def arena_command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Battles, votes, judgments or counts by pair: files or folders.",
            show_default=False,
        ),
    ],
    out: Annotated[Path | None, opt.out("DIR", "Folder for the results.")] = None,
    ties: Annotated[
        str,
        opt.option(
            "A tie is half a win, left out, or an outcome of its own: half, drop,"
            " davidson, rao_kupper."
        ),
    ] = "half",
    cluster: Annotated[
        list[str] | None,
        opt.option(
            "Column whose comparisons are alike, such as the prompt or the judge:"
            " errors count that; at most two.",
            metavar="COLUMN",
        ),
    ] = None,
    covariate: Annotated[
        list[str] | None,
        opt.option(
            "What the outcome depends on besides ability, such as response for the"
            " lengths of response_a and response_b; may be repeated.",
            metavar="COLUMN",
        ),
    ] = None,
    model: Annotated[
        str, opt.option("bradley_terry or thurstone.", "--model", "-m")
    ] = "bradley_terry",
    both_bad: Annotated[
        str, opt.option("Verdicts that both are bad: tie or drop.")
    ] = "tie",
    order: Annotated[
        bool, opt.option("Estimate the effect of being the first.")
    ] = False,
    first: Annotated[
        str | None, opt.option("Column of the first model.", metavar="COLUMN")
    ] = None,
    second: Annotated[
        str | None, opt.option("Column of the second model.", metavar="COLUMN")
    ] = None,
    winner: Annotated[
        str | None, opt.option("Column of the outcome.", metavar="COLUMN")
    ] = None,
    baseline: Annotated[
        str, opt.option("Name of the baseline of Arena-Hard.", metavar="NAME")
    ] = "baseline",
    level: opt.Level = 0.95,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Ranks models by comparisons: Bradley-Terry, with ties and clustered errors."""
    opt.check_level(level)
    if out is not None:
        check_out_folder(out, WRITTEN, "arena")
    from irtjax.comparisons.fit import fit_comparisons
    from irtjax.data.reading.comparisons import read_comparisons

    clusters, covariates = cluster or [], covariate or []
    with ProgressLine(quiet) as progress:
        progress("read")
        table = read_comparisons(
            files,
            first=first,
            second=second,
            winner=winner,
            labels=clusters,
            features=covariates,
            baseline=baseline,
        )
        progress("fit")
        prepare()
        found = fit_comparisons(
            table,
            model,
            ties=ties,
            both_bad=both_bad,
            cluster=clusters,
            covariates=covariates,
            order=order,
            level=level,
        )
        if out is not None:
            progress("write")
            found.save(out)
    if json:
        rows = found.abilities.rank().rows()
        print_json(found.document() | {"abilities": rows})
    elif not quiet:
        _show(found, out)


def _show(found: Arena, out: Path | None) -> None:
    """Prints the leaderboard, effects, and what limits them."""
    from irtjax.calibration.leaderboard_text import leaderboard_text

    ranked = found.abilities.rank()
    typer.echo(leaderboard_text(ranked, place="" if out is None else str(out)))
    for name, (value, error) in found.effects.items():
        if name != "tie":
            typer.echo(
                f"Effect    {name}: {value:+.3f} ± {error:.3f} a standard deviation"
            )
    say(
        f"{ranked.num_different:,} of {ranked.num_pairs:,} pairs differ.",
        *found.warnings,
        *found.notes,
    )
