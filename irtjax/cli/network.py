"""`irtjax network`: which responses depend on each other, given all others?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.validity.network import Network

#: What `--out` writes.
TABLES = ("network_items.csv", "network_edges.csv")
#: Edges and items that the screen shows.
MOST_ROWS = 8


@dataclasses.dataclass(frozen=True)
class SparseOptions:
    """How sparse networks are chosen: each field is an option."""

    edge_rule: Annotated[
        str,
        opt.option(
            "Of elasso: and for edges with weights in the regressions of both items, or"
            " for one."
        ),
    ] = "and"
    gamma: Annotated[
        float | None,
        opt.option(
            "Penalty of a further edge in the extended BIC. \\[default: 0.25 of elasso,"
            " 0.5 of glasso]",
            min=0,
        ),
    ] = None


@opt.with_options
def network_command(
    files: opt.Files,
    method: Annotated[
        str,
        opt.option(
            "pseudolikelihood, exact (up to 15 items), elasso (sparse) or glasso"
            " (sparse partial correlations, also of scores)."
        ),
    ] = "pseudolikelihood",
    item_names: Annotated[
        list[str] | None,
        opt.option("An item of the network, repeatable; else all.", metavar="NAME"),
    ] = None,
    top: Annotated[
        int | None,
        opt.option("As many items, those with the largest variance.", min=2),
    ] = None,
    out: Annotated[
        Path | None, opt.out("DIR", f"Folder for {' and '.join(TABLES)}.")
    ] = None,
    *,
    sparse: SparseOptions,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Estimates which items depend on each other, given all other items."""
    check_out_folder(out, TABLES, "network")
    with ProgressLine(output.quiet) as progress:
        progress("read")
        table = reading.read(files)
        progress("estimate")
        from irtjax.validity.network import network

        result = network(
            table,
            method,
            item_names=item_names or None,
            top=top,
            **dataclasses.asdict(sparse),
        )
        if out is not None:
            tables = result.table, result.edges
            write_files({out / x: y for x, y in zip(TABLES, tables, strict=True)})
    if output.json:
        names = "method", "log_likelihood", "num_subjects", "warnings"
        print_json(
            {name: getattr(result, name) for name in names}
            | {"items": result.table.to_pylist(), "edges": result.edges.to_pylist()}
        )
    elif not output.quiet:
        _show(result)
        if out is not None:
            from irtjax.cli import screen

            screen.show_sentences([written(out, TABLES)])


def _show(result: Network) -> None:
    """Prints the largest weights, and the items with the largest strength."""
    from irtjax.cli import screen
    from irtjax.report.words import number

    edges = result.edges.slice(0, MOST_ROWS).to_pylist()
    with_errors = "weight_se" in result.edges.column_names
    cells = []
    for row in edges:
        weight = f"{row['weight']:+.2f}"
        tests = []
        if with_errors and row["weight_se"] is not None:
            weight += f" ± {number(row['weight_se'])}"
        if with_errors:
            tests = ["" if row["q_value"] is None else f"{row['q_value']:.2g}"]
        cells.append([row["item"], row["other_item"], weight, *tests])
    head = ["item", "other item", "weight", *(["q"] if with_errors else [])]
    screen.show_table("", head, cells)
    rows = sorted(result.table.to_pylist(), key=lambda x: -x["strength"])
    cells = [
        [row["item"], f"{row['strength']:.2f}", f"{row['expected_influence']:+.2f}"]
        for row in rows[:MOST_ROWS]
    ]
    screen.show_table("", ["item", "strength", "expected influence"], cells)
    left = result.edges.num_rows - len(edges)
    if left > 0:
        screen.show_sentences([f"And {left:,} more pairs: --out DIR, --json."])
    screen.show_warnings(result.warnings, ())
