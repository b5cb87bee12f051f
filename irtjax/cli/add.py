"""`irtjax add`: new subjects into the folder of a fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.errors import explain
from irtjax.cli.machine import prepare
from irtjax.cli.output import print_json
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.storage.growth import Added


@opt.with_options
def add_command(
    files: opt.Files,
    to: Annotated[
        Path,
        opt.option(
            "Folder that `irtjax run` or `irtjax fit` wrote.", "--to", metavar="DIR"
        ),
    ],
    refit: Annotated[
        str,
        opt.option(
            "Fit the items again: auto (where the scale asks for it), always or never."
        ),
    ] = "auto",
    *,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Adds new models to a fit: their ranks, and a snapshot of what was before."""
    with ProgressLine(output.quiet) as progress:
        progress("read")
        prepare()
        from irtjax.storage.growth import add

        read_new = lambda fit: reading.read(files, fit)
        done = add(to, None, refit=refit, extras=_extras, read_new=read_new)
        no_page = ""
        if done.changed:
            progress("report")
            no_page = _write_page(to, reading)
    rows = _rows(done)
    if output.json:
        print_json(
            {
                "out": str(to),
                "changed": done.changed,
                "refit": done.refit or None,
                "refit_advised": done.advised or None,
                "subjects": rows,
                "notes": [*done.notes, *([no_page] if no_page else [])],
            }
        )
    elif not output.quiet:
        _show(done, rows, to, no_page)


def _extras(fit: Calibration) -> list[Any]:
    """What writes the leaderboard of a fit into a folder."""
    from irtjax.data.writing import write_text
    from irtjax.report.leaderboard_page import leaderboard

    text = leaderboard(fit, fit.rank(), [])
    return [lambda place: write_text(text, place / "leaderboard.md")]


def _write_page(folder: Path, reading: opt.Reading) -> str:
    """Writes the page of the fit as it is now; why there is none, or nothing."""
    from irtjax.cli.report import page_of
    from irtjax.report.page import PAGE, write_page

    try:
        write_page(folder / PAGE, page_of(folder, None, reading, None, keep=True))
    except (ValueError, OSError, MemoryError) as error:
        # The models are added all the same.
        return f"there is no page: {explain(error)}"
    return ""


def _rows(done: Added) -> list[dict[str, Any]]:
    """The new subjects among all, as `irtjax.score` has them."""
    if not done.subjects:
        return []
    from irtjax.calibration.standing import standing_columns

    names = list(done.subjects)
    columns = standing_columns(done.fit, names, done.fit.level)
    table = done.fit.abilities.table
    own = dict(
        zip(
            table.column("subject").to_pylist(),
            table.select(["accuracy", "observed"]).to_pylist(),
            strict=True,
        )
    )
    return [
        {"subject": name, **{k: x[place] for k, x in columns.items()}, **own[name]}
        for place, name in enumerate(names)
    ]


def _show(done: Added, rows: list[dict[str, Any]], to: Path, no_page: str) -> None:
    """Prints where the new subjects stand, and what was done."""
    from irtjax.cli import screen
    from irtjax.cli.score import show_standing
    from irtjax.data.fit_folder import RESPONSES
    from irtjax.data.wording import counted

    if not done.changed:
        screen.show_sentences([*map(_sentence, done.notes), "Nothing was added."])
        return
    count, whole = len(done.subjects), len(done.fit.subject_names)
    if rows:
        noun = done.fit.nouns[0]
        title = f"{counted(count, f'new {noun}')} of {whole:,}"
        show_standing(rows, done.fit.level, noun, title)
    lines = []
    if done.refit:
        lines.append(f"The items were fitted again: {done.refit}.")
    lines += map(_sentence, done.notes)
    lines.append(f"What changed: irtjax history {to}")
    if done.advised and (to / RESPONSES).is_file():
        again = f"irtjax add {to} --to {to} --refit always"
        lines.append(f"To fit the items again: {again}")
    lines.append(_sentence(no_page) if no_page else f"The page: {to}/report.html")
    screen.show_sentences(lines)


def _sentence(note: str) -> str:
    """A note as a sentence."""
    return f"{note[:1].upper()}{note[1:]}."
