"""`irtjax arena`: models ranked by comparisons of two."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtjax.cli import options as opt
from irtjax.cli.machine import prepare
from irtjax.cli.output import check_out_folder, command_line, print_json
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.calibration.rank import RankedSubjects
    from irtjax.comparisons.arena import Arena
    from irtjax.data.comparison_table import ComparisonTable

#: The files of the folder.
WRITTEN = (
    *("abilities.parquet", "abilities.csv", "pairs.csv", "fit.json", "report.html"),
    *("abilities.npz", "pairs.parquet", "style.csv", "style.parquet"),
    *("categories.csv", "categories.parquet", "judges.csv", "judges.parquet"),
    *("tie_rates.csv", "tie_rates.parquet", "abilities.png", "wins.png"),
)


@dataclasses.dataclass(frozen=True)
class ArenaModel:
    """How comparisons are fitted: each field is an option."""

    ties: Annotated[
        str,
        opt.option(
            "A tie is half a win, left out, or an outcome of its own: half, drop,"
            " davidson, rao_kupper."
        ),
    ] = "half"
    cluster: Annotated[
        list[str] | None,
        opt.option(
            "Column whose comparisons are alike, such as the prompt or the judge:"
            " errors count that; at most two.",
            metavar="COLUMN",
        ),
    ] = None
    covariate: Annotated[
        list[str] | None,
        opt.option(
            "What the outcome depends on besides ability, such as response for the"
            " lengths of response_a and response_b; may be repeated.",
            metavar="COLUMN",
        ),
    ] = None
    model: Annotated[
        str,
        opt.option(
            "bradley_terry, thurstone, or plackett_luce of rankings.", "--model", "-m"
        ),
    ] = "bradley_terry"
    both_bad: Annotated[
        str,
        opt.option(
            "Verdicts that both are bad: tie, drop, or an outcome of their own, which"
            " is likelier between weak models."
        ),
    ] = "tie"
    order: Annotated[bool, opt.option("Estimate the effect of being the first.")] = (
        False
    )
    category: Annotated[
        str | None,
        opt.option(
            "Column by which abilities differ, such as the topic of the prompt.",
            metavar="COLUMN",
        ),
    ] = None
    judge: Annotated[
        str | None,
        opt.option("Column of judges, who differ in reliability.", metavar="COLUMN"),
    ] = None
    tie_rates: Annotated[bool, opt.option("Estimate a rate of ties of each model.")] = (
        False
    )
    bootstrap: Annotated[
        int,
        opt.option(
            "Errors from so many replicates of the clusters in place of the sandwich.",
            metavar="N",
        ),
    ] = 0
    preset: Annotated[
        str | None,
        opt.option(
            "arena-rank: its weights of pairs and penalty of effects, to reproduce"
            " published arenas.",
            metavar="NAME",
        ),
    ] = None
    level: opt.Level = 0.95

    @property
    def labels(self) -> list[str]:
        """Columns of texts that the fit reads."""
        return [*(self.cluster or ()), *filter(None, (self.category, self.judge))]

    def fit(self, table: ComparisonTable) -> Arena:
        """The fit of a table."""
        from irtjax.comparisons.fit import fit_comparisons

        settings = dataclasses.asdict(self)
        settings["covariates"] = settings.pop("covariate") or ()
        settings["cluster"] = self.cluster or ()
        settings["preset"] = self.preset and self.preset.replace("-", "_")
        return fit_comparisons(table, **settings)


@dataclasses.dataclass(frozen=True)
class ArenaColumns:
    """Where models and outcomes are in a file: each field is an option."""

    first: Annotated[
        str | None, opt.option("Column of the first model.", metavar="COLUMN")
    ] = None
    second: Annotated[
        str | None, opt.option("Column of the second model.", metavar="COLUMN")
    ] = None
    winner: Annotated[
        str | None, opt.option("Column of the outcome.", metavar="COLUMN")
    ] = None
    baseline: Annotated[
        str, opt.option("Name of the baseline of Arena-Hard.", metavar="NAME")
    ] = "baseline"


@opt.with_options
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
    *,
    model: ArenaModel,
    columns: ArenaColumns,
    title: opt.Title = None,
    output: opt.LongOutput,
) -> None:
    """Ranks models by comparisons: Bradley-Terry, with ties and clustered errors."""
    opt.check_level(model.level)
    if out is not None:
        check_out_folder(out, WRITTEN, "arena")
    from irtjax.data.reading.comparisons import read_comparisons

    with ProgressLine(output.quiet) as progress:
        progress("read")
        table = read_comparisons(
            files,
            labels=model.labels,
            features=model.covariate or (),
            **dataclasses.asdict(columns),
        )
        progress("fit")
        prepare()
        arena = model.fit(table)
        ranked = arena.abilities.rank()
        progress("check")
        from irtjax.report.arena_answers import with_answers

        arena = with_answers(arena, table)
        if out is not None:
            progress("write")
            _write(arena, ranked, out, files, title)
    if output.json:
        print_json(document(arena, ranked, out))
    elif not output.quiet:
        show(arena, ranked, out, verbose=output.verbose)


def _write(
    arena: Arena,
    ranked: RankedSubjects,
    out: Path,
    sources: list[str],
    title: str | None,
) -> None:
    """Writes the fit, its page and its figures into a folder, all or none."""
    from irtjax.plots import plot_wins, save_figure
    from irtjax.plots.abilities import plot_ranked
    from irtjax.report.arena_page import arena_page
    from irtjax.report.page_html import PAGE, write_page

    options: dict[str, Any] = {"ranked": ranked, "sources": sources, "title": title}
    page = arena_page(arena, command=command_line(), folder=out, **options)

    def extras(place: Path) -> None:
        write_page(place / PAGE, page)
        save_figure(plot_ranked(ranked), place / "abilities.png")
        save_figure(plot_wins(arena), place / "wins.png")

    arena.save(out, [extras])


def document(
    arena: Arena, ranked: RankedSubjects, folder: Path | None
) -> dict[str, Any]:
    """What `--json` prints."""
    from irtjax.report.arena_verdict import verdict

    rows = {"abilities": ranked.rows()}
    return arena.document() | rows | {"verdict": verdict(arena, ranked, folder=folder)}


def show(
    arena: Arena,
    ranked: RankedSubjects,
    folder: Path | None = None,
    *,
    everything: bool = False,
    verbose: bool = False,
) -> None:
    """Prints the leaderboard and the verdict; `verbose` all sentences on the fit."""
    from irtjax.calibration.leaderboard_text import leaderboard_text
    from irtjax.cli import screen
    from irtjax.report.arena_verdict import verdict
    from irtjax.report.page_html import PAGE
    from irtjax.report.verdict import verdict_text

    shown = None if folder is None else screen.shown_path(folder)
    has_page = folder is not None and (folder / PAGE).is_file()
    place = str(Path(shown or "", PAGE)) if has_page else ""
    text = leaderboard_text(ranked, place=place, everything=everything)
    screen.show_text(text)
    lines = verdict(arena, ranked, folder=shown)
    screen.show_text(verdict_text({k: screen.as_options(x) for k, x in lines.items()}))
    if verbose:
        from irtjax.report.arena_page import fit_sentences

        screen.show_text("\n".join(fit_sentences(arena)))


def show_saved(
    folder: Path,
    *,
    level: float | None = None,
    form: str = "table",
    everything: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    json: bool = False,
    **ranking: Any,
) -> None:
    """Shows a saved arena, as `irtjax show` and `irtjax rank` do a fit."""
    prepare()
    from irtjax.storage import load_arena

    arena = load_arena(folder)
    ranked = arena.abilities.rank(level=level, **ranking)
    if json:
        print_json(document(arena, ranked, folder))
    elif form != "table":
        from irtjax.cli.screen import show_leaderboard

        show_leaderboard(ranked, form)
    elif not quiet:
        show(arena, ranked, folder, everything=everything, verbose=verbose)


def compare_saved(
    folder: Path,
    first: str,
    second: str,
    *,
    level: float | None = None,
    quiet: bool = False,
    json: bool = False,
) -> None:
    """Compares two models of a saved arena, as `irtjax compare` does two of a fit."""
    prepare()
    from irtjax.cli.screen import show_text
    from irtjax.ranking.comparison import comparison_line
    from irtjax.storage import load_arena

    abilities = load_arena(folder).abilities
    level = abilities.level if level is None else level
    result = abilities.compare(first, second, level=level)
    line = comparison_line(first, second, result, level=level)
    if json:
        head = {"first": first, "second": second, "level": level, "sentence": line}
        print_json(head | result._asdict())
    elif not quiet:
        show_text(line)
