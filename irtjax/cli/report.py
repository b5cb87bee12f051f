"""`irtjax report`: a saved fit or subset as one page, to open and to mail."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

from irtjax.cli import config
from irtjax.cli import options as opt
from irtjax.cli.machine import prepare
from irtjax.cli.output import check_file, command_line, print_json, say, write_files
from irtjax.cli.pipeline import responses_of
from irtjax.cli.progress import ProgressLine

#: The folders of the small benchmark, and of what `irtjax add` replaced.
SUBSET, SNAPSHOTS = "subset", "snapshots"


@opt.with_options
def report_command(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Folder that `irtjax fit` or `irtjax shrink` wrote.", metavar="DIR"
        ),
    ],
    files: opt.MaybeFiles = None,
    *,
    out: Annotated[
        Path | None, opt.out("FILE.html", "The page. \\[default: report.html in DIR]")
    ] = None,
    title: opt.Title = None,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Writes a saved fit as one HTML page without other files.

    FILE... are responses to its items, if it keeps none, for the items that separate
    two subjects and the points next to response curves.
    """
    from irtjax.data.fit_folder import RESPONSES, is_arena, is_subset
    from irtjax.report.page import PAGE, write_page

    place = folder / PAGE if out is None else out
    if place.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out {place}: the name of a page ends in .html")
    if out is not None or folder.is_dir():
        check_file("--out", place)  # A page takes seconds to compute.
    # A saved fit may have texts, which are left out here too.
    for name in {*config.typed(reading.chosen())} - {"texts"} if not files else ():
        raise ValueError(f"--{name.replace('_', '-')} requires FILE")
    with ProgressLine(output.quiet) as progress:
        progress("report")
        prepare()
        page = page_of(folder, files, reading, title)
        write_page(place, page)
    size = place.stat().st_size
    if output.json:
        print_json({"out": str(place), "bytes": size})
    elif not output.quiet:
        say(f"Written to {place} ({size / 1000:,.0f} kB): open it in a browser")
        has_responses = (
            is_subset(folder) or is_arena(folder) or (folder / RESPONSES).is_file()
        )
        if not files and not has_responses:
            say(f"It has no responses: irtjax report {folder} FILE adds them")


def page_of(
    folder: Path,
    data: list[str] | None,
    reading: opt.Reading,
    title: str | None,
    keep: bool = False,
) -> str:
    """The page of a fit, or of a subset; `keep` writes its items to read too."""
    from irtjax.data.fit_folder import is_subset
    from irtjax.report.kept import TO_READ
    from irtjax.report.page import report_page
    from irtjax.report.page_subset import subset_page
    from irtjax.subsets.subset import load_subset

    command = command_line()
    if is_subset(folder):
        from irtjax.cli.shrink import subset_sentences

        if data:
            raise ValueError(f"{data[0]} is not used: {folder} is a subset, not a fit")
        small = load_subset(folder)
        arguments = {"sentences": subset_sentences(small), "title": title}
        return subset_page(small, command=command, **arguments)
    from irtjax.storage import is_arena, load, load_arena

    if is_arena(folder):
        from irtjax.report.arena_page import arena_page

        if data:
            raise ValueError(f"{data[0]} is not used: {folder} holds comparisons")
        return arena_page(
            load_arena(folder), command=command, title=title, folder=folder
        )
    fit = load(folder)
    table = responses_of(fit, folder, data, reading)
    texts = None if reading.texts else {}
    arguments: dict[str, Any] = {"title": title, "folder": folder}
    if table is not None:
        from irtjax.auditing import items_to_read

        # Too few subjects, say: the page is whole without them.
        with contextlib.suppress(ValueError):
            arguments["to_read"] = items_to_read(fit, table)
    if keep and "to_read" in arguments:
        write_files({folder / TO_READ: arguments["to_read"].table})
    if (folder / SNAPSHOTS).is_dir():
        from irtjax.storage.history import history

        arguments["history"] = history(folder)
    if is_subset(folder / SUBSET):
        from irtjax.cli.shrink import subset_sentences

        small = load_subset(folder / SUBSET)
        arguments |= {"few": small, "few_sentences": subset_sentences(small)}
    return report_page(fit, data=table, command=command, texts=texts, **arguments)
