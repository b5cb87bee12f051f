"""`irtjax link`: versions of a benchmark on one scale, and the items that drift."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.pipeline import load_fit
from irtjax.cli.progress import ProgressLine

#: What `--out` writes.
TABLES = "constants.csv", "drift.csv", "linked_abilities.csv"
#: Items that the screen shows.
MOST_ITEMS = 12


@dataclasses.dataclass(frozen=True)
class LinkOptions:
    """How fits are linked: each field is an option."""

    method: Annotated[
        str,
        opt.option(
            "robust, weighted, stocking_lord, haebara, mean_mean or mean_sigma."
        ),
    ] = "robust"
    chain: Annotated[
        bool,
        opt.option(
            "Link each version with the one that shares most items, not with all."
        ),
    ] = False
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
    *,
    settings: LinkOptions,
    output: opt.Output,
) -> None:
    """Puts fits of versions of a benchmark on one scale; finds items that drift."""
    check_out_folder(out, TABLES, "link")
    if not 0 < settings.fdr < 1:
        raise ValueError(f"--fdr {settings.fdr:g} is not between 0 and 1")
    if len(folders) < 2:
        raise ValueError(
            f"name two fits or more: irtjax link {folders[0]} NEW, the oldest first"
        )
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
        if out is not None:
            tables = result.constants, result.table, result.abilities.table
            write_files({out / name: x for name, x in zip(TABLES, tables, strict=True)})
    rows = result.table.to_pylist()
    if output.json:
        names = "A", "B", "A_se", "B_se", "drifted", "method", "notes"
        document = {name: getattr(result, name) for name in names}
        versions = result.constants.to_pylist()
        print_json({**document, "versions": versions, "items": rows})
    elif not output.quiet:
        from irtjax.cli import screen

        constants = [
            [
                row["version"],
                *(f"{row[name]:.3f}" for name in ("A", "A_se", "B", "B_se")),
                f"{row['common']:,}" if row["reference"] else "",
            ]
            for row in result.constants.to_pylist()
        ]
        names = ["version", "A", "±", "B", "± ", "common items"]
        screen.show_sentences([str(result) + "."])
        screen.show_table("", names, constants)
        drifting = sorted(
            (row for row in rows if row["drifts"]), key=lambda row: -abs(row["effect"])
        )
        cells = [
            [
                row["item"],
                row["version"],
                f"{row['effect']:+.0f}",
                f"{row['q_value']:.2g}",
            ]
            for row in drifting[:MOST_ITEMS]
        ]
        if cells:
            screen.show_table("", ["item", "in", "points", "q"], cells)
        left = len(drifting) - len(cells)
        rest = [f"And {left:,} more items: --out DIR, --json."] if left > 0 else []
        place = [] if out is None else [written(out, TABLES)]
        screen.show_sentences([*rest, *place])
        screen.show_warnings((), result.notes)
