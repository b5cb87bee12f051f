"""`irtjax link`: versions of a benchmark on one scale, and the items that drift."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.pipeline import load_fit
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.validity.linking import Link

#: What `--out` writes.
TABLES = "constants.csv", "drift.csv", "linked_abilities.csv"
EQUATED = "equated_scores.csv"
#: Items, and equated scores, that the screen shows.
MOST_ITEMS, MOST_SCORES = 12, 11


@dataclasses.dataclass(frozen=True)
class LinkOptions:
    """How fits are linked: each field is an option."""

    method: Annotated[
        str,
        opt.option(
            "robust, weighted, stocking_lord, haebara, mean_mean, mean_sigma, subjects."
        ),
    ] = "robust"
    chain: Annotated[
        bool,
        opt.option(
            "Link each version with the one that shares most items, not with all."
        ),
    ] = False
    equate: Annotated[
        str | None,
        opt.option(
            "Also scores on NEW as scores on OLD: true or observed.",
            metavar="KIND",
        ),
    ] = None
    fdr: Annotated[
        float, opt.option("Share of false ones among the items that drift.")
    ] = 0.05


@opt.with_options
def link_command(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="OLD... NEW",
            help="Folders that `irtjax fit` wrote, the oldest version first.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, opt.out("DIR", f"Folder for {', '.join(TABLES)}.")
    ] = None,
    rescaled: Annotated[
        Path | None,
        opt.option(
            "Folder for the fit of NEW on the scale of OLD: rank, score, compare ...",
            metavar="DIR",
        ),
    ] = None,
    *,
    settings: LinkOptions,
    output: opt.Output,
) -> None:
    """Puts fits of versions of a benchmark on one scale; finds items that drift."""
    check_out_folder(out, (*TABLES, EQUATED), "link")
    if not 0 < settings.fdr < 1:
        raise ValueError(f"--fdr {settings.fdr:g} is not between 0 and 1")
    if rescaled is not None:
        from irtjax.storage.folder import check_folder

        check_folder(rescaled)
    if len(folders) < 2:
        raise ValueError(
            f"name two fits or more: irtjax link {folders[0]} NEW, the oldest first"
        )
    if settings.equate and len(folders) > 2:
        raise ValueError("--equate is of two fits: name OLD and NEW alone")
    with ProgressLine(output.quiet) as progress:
        progress("load")
        fits = [load_fit(folder) for folder in folders]
        progress("link")
        from irtjax.validity.linking import link

        result = link(
            *fits,
            method=settings.method,
            chain=settings.chain,
            fdr=settings.fdr,
            names=[str(folder) for folder in folders],
        )
        equated = None
        if settings.equate:
            progress("equate")
            from irtjax.validity.equating import equate

            scores = equate(*fits, kind=settings.equate, method=settings.method)
            equated = scores.table
        if rescaled is not None:
            progress("save")
            _save(result, folders[-1], rescaled)
        if out is not None:
            tables = result.constants, result.table, result.abilities.table
            files = {out / name: x for name, x in zip(TABLES, tables, strict=True)}
            if equated is not None:
                files[out / EQUATED] = equated
            write_files(files, stale=[out / EQUATED])
    if output.json:
        names = "A", "B", "A_se", "B_se", "drifted", "method", "notes"
        document = {name: getattr(result, name) for name in names}
        document["versions"] = result.constants.to_pylist()
        if equated is not None:
            document["equated"] = equated.to_pylist()
        print_json({**document, "items": result.table.to_pylist()})
    elif not output.quiet:
        _show(result, equated, out, rescaled)


def _save(result: Link, folder: Path, place: Path) -> None:
    """Saves the last fit on the scale of the first, with its responses."""
    from irtjax.data.fit_folder import RESPONSES, load_responses
    from irtjax.storage import save

    has_responses = (folder / RESPONSES).is_file()
    responses = load_responses(folder) if has_responses else None
    save(result.fits[-1].rescaled(result), place, responses=responses)


def _show(
    result: Link, equated: pa.Table | None, out: Path | None, rescaled: Path | None
) -> None:
    """Prints constants, mean abilities on the first scale, drift, equated scores."""
    import numpy as np

    from irtjax.cli import screen

    means = [np.nanmean(fit.abilities.table["ability"]) for fit in result.fits]
    constants = [
        [
            row["version"],
            *(f"{row[name]:.3f}" for name in ("A", "A_se", "B", "B_se")),
            f"{round(row['A'] * mean + row['B'], 2) + 0.0:+.2f}",
            f"{row['common']:,}" if row["reference"] else "",
        ]
        for row, mean in zip(result.constants.to_pylist(), means, strict=True)
    ]
    # Items, or subjects where these link the versions: a note states it.
    names = ["version", "A", "±", "B", "± ", "mean ability", "in common"]
    screen.show_sentences([str(result) + "."])
    screen.show_table("", names, constants)
    drifting = [row for row in result.table.to_pylist() if row["drifts"]]
    drifting.sort(key=lambda row: -abs(row["effect"]))
    cells = [
        [row["item"], row["version"], f"{row['effect']:+.0f}", f"{row['q_value']:.2g}"]
        for row in drifting[:MOST_ITEMS]
    ]
    if cells:
        screen.show_table("", ["item", "in", "points", "q"], cells)
    if equated is not None:
        step = -(-equated.num_rows // MOST_SCORES)
        scores = [
            [f"{row['score']}", f"{row['equated']:.2f}", f"{row['equated_se']:.2f}"]
            for row in equated.to_pylist()[::step]
        ]
        screen.show_table("", ["score on NEW", "on OLD", "±"], scores)
    left = len(drifting) - len(cells)
    rest = [f"And {left:,} more items: --out DIR, --json."] if left > 0 else []
    place = [] if out is None else [written(out, (*TABLES, EQUATED))]
    if rescaled is not None:
        place.append(f"The fit of NEW on the scale of OLD: irtjax rank {rescaled}")
    screen.show_sentences([*rest, *place])
    screen.show_warnings((), result.notes)
