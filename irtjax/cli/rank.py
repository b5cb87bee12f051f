"""`irtjax rank`: who is ahead in a saved fit, and how surely."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Annotated

from irtjax.cli import config
from irtjax.cli import options as opt
from irtjax.cli.arena import show_saved
from irtjax.cli.output import check_file, print_json, write_files
from irtjax.cli.pipeline import (
    load_fit,
    ranking_document,
    responses_of,
    show_all,
)
from irtjax.cli.progress import ProgressLine


@dataclasses.dataclass(frozen=True)
class MoveOptions:
    """How a second ranking is compared with this one: each field is an option."""

    against: Annotated[
        Path | None,
        opt.option(
            "Another fit with the same subjects: draw both rankings side by side, to"
            " --figure.",
            metavar="DIR",
        ),
    ] = None
    flow: Annotated[
        str | None,
        opt.option(
            "Show who moves between ranks by this and by ability: accuracy, or another"
            " fit.",
            metavar="accuracy|DIR",
        ),
    ] = None
    top: Annotated[
        int | None,
        opt.option(
            "With --flow: the first subjects of both rankings. \\[default: 50]", min=1
        ),
    ] = None
    figure: Annotated[
        Path | None, opt.option("Where to draw the two rankings.", metavar="FILE.png")
    ] = None

    def check(self, files: list[str] | None) -> None:
        """Refuses files and options that do not suit each other, and a bad place."""
        if self.against is not None and self.flow is not None:
            raise ValueError("--against and --flow are two figures: leave one out")
        if self.flow is None:
            if self.top is not None:
                raise ValueError("--top requires --flow")
            if files:
                raise ValueError(f"{files[0]}: responses are read with --flow alone")
            if (self.against is None) != (self.figure is None):
                need = "--figure, and --figure requires --against or --flow"
                raise ValueError(f"--against requires {need}")
        if self.figure is not None:
            if self.figure.suffix.lower() != ".png":
                reason = "the name of a picture ends in .png"
                raise ValueError(f"--figure {self.figure}: {reason}")
            check_file("--figure", self.figure)


@opt.with_options
def rank_command(
    folder: opt.Folder,
    files: opt.MaybeFiles = None,
    *,
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
        opt.option(
            "Seed of new draws. \\[default: the draws of the fit]", metavar="N", min=0
        ),
    ] = None,
    run_sd: opt.RunSd = None,
    everything: Annotated[
        bool, opt.option("Every row, however long the table.", "--all")
    ] = False,
    moves: MoveOptions,
    output: opt.LongOutput,
    reading: opt.Reading,
) -> None:
    """Ranks the subjects of a fit, with rank intervals, P(best) and groups.

    FILE... are responses to its items, if it keeps none: they name the items behind
    each move of --flow.
    """
    from irtjax.data.fit_folder import is_arena

    opt.check_level(level)
    moves.check(files)
    _check_reading(reading, files)
    if moves.flow is not None:
        unused = {"level": level, "draws": draws, "seed": seed, "run-sd": run_sd}
        _check_unused(**unused, all=everything or None)
    elif moves.against is None and is_arena(folder):
        if run_sd:
            raise ValueError("--run-sd is for fits of responses, and this is an arena")
        show_saved(
            folder,
            level=level,
            **dataclasses.asdict(output),
            everything=everything,
            num_draws=draws,
            key=seed,
        )
        return
    with ProgressLine(output.quiet) as progress:
        progress("load")
        fit = load_fit(folder)
        data = None
        if moves.flow is not None:
            data = responses_of(fit, folder, files, reading)
    if moves.flow is not None:
        _flow(fit, moves.flow, moves, data, output)
        return
    from irtjax.calibration.runs import with_run_sd

    if moves.against is not None and moves.figure is not None:
        names = folder.name, moves.against.name
        _draw_changes(fit, load_fit(moves.against), names, moves.figure)
    with ProgressLine(output.quiet) as progress:
        progress("rank")
        fit = with_run_sd(fit, run_sd)
        ranked = fit.rank(level=level, num_draws=draws, key=seed)
    if output.json:
        print_json(ranking_document(fit, ranked, folder))
    elif not output.quiet and output.verbose:
        show_all(fit, ranked, everything)
    elif not output.quiet:
        from irtjax.cli import screen
        from irtjax.report.kept import kept

        parts = kept(folder, screen.shown_path(folder))
        screen.show_result(fit, ranked, everything=everything, folder=folder, **parts)


def _check_reading(reading: opt.Reading, files: list[str] | None) -> None:
    """Refuses reading options where nothing is read, but for those of a file."""
    for name in config.typed(reading.chosen()) if not files else ():
        raise ValueError(f"--{name.replace('_', '-')} requires --flow and FILE")


def _check_unused(**options: object) -> None:
    """Refuses options that ranks by another measure do not depend on."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"--{name} has no effect with --flow: leave it out")


def _flow(fit, flow: str, moves: MoveOptions, data, output: opt.LongOutput):
    """Shows and draws the moves between ranks by accuracy, or another fit, and ability.

    The name of another fit's folder may be "accuracy" as "./accuracy".
    """
    from irtjax.calibration.flow import rank_flow

    with ProgressLine(output.quiet) as progress:
        progress("flow")
        top = moves.top or 50
        other = flow if flow == "accuracy" else load_fit(Path(flow))
        result = rank_flow(fit, top, other, data=data)
        if moves.figure is not None:
            from irtjax.plots import plot_rank_flow, save_figure

            picture = plot_rank_flow(fit, top, other, data=data)
            draw = functools.partial(save_figure, picture)
            write_files({moves.figure: draw})
    if output.json:
        names = ("against", "top", "num_subjects", "kendall", "sentence")
        head = {name: getattr(result, name) for name in names}
        print_json(head | {"subjects": result.table.to_pylist()})
    elif not output.quiet:
        from irtjax.cli import screen

        rows = [_flow_cells(row) for row in result.table.to_pylist()]
        header = ["subject", "before", "rank", "move", "from", "to", "beyond"]
        if data is not None:
            header.append("items")
        screen.show_table("", header, rows, spare=("from", "to"))
        screen.show_sentences([result.sentence])


def _flow_cells(row: dict) -> list[str]:
    """A row of the table on screen."""
    ends = ["" if row[n] is None else str(row[n]) for n in ("rank_lower", "rank_upper")]
    cells = [row["subject"], str(row["rank_before"]), str(row["rank"])]
    cells += [f"{row['move']:+d}" if row["move"] else "0", *ends]
    cells.append("yes" if row["beyond"] else "")
    if "item_1" in row:
        items = [row[name] for name in row if name.startswith("item_")]
        cells.append(", ".join(item for item in items if item))
    return cells


def _draw_changes(fit, other, labels: tuple[str, str], path: Path) -> None:
    """Draws the ranks of two fits into a file, whole or not at all."""
    from irtjax.plots import plot_rank_changes, save_figure

    picture = plot_rank_changes(fit, other, labels=labels)
    write_files({path: functools.partial(save_figure, picture)})
