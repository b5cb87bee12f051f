"""`irtjax network`: which responses depend on each other, given all others?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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


@dataclasses.dataclass(frozen=True)
class AbilityOptions:
    """A network against a latent ability: each field is an option."""

    residual: Annotated[
        bool,
        opt.option("Estimate the weights that a 2PL leaves unexplained.", "--residual"),
    ] = False
    folds: Annotated[
        int | None,
        opt.option("Compare with a 2PL by subjects left out, in so many parts.", min=2),
    ] = None
    seed: opt.Seed = 0

    def arguments(self) -> dict[str, Any]:
        """The arguments of `irtjax.network`."""
        return {"residual": self.residual, "folds": self.folds, "key": self.seed}


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
    ability: AbilityOptions,
    machine: opt.Machine,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Estimates which items depend on each other, given all other items."""
    check_out_folder(out, TABLES, "network")
    with ProgressLine(output.quiet) as progress:
        progress("read")
        machine.prepare()
        table = reading.read(files)
        progress("estimate")
        from irtjax.validity.network import network

        result = network(
            table,
            method,
            item_names=item_names or None,
            top=top,
            **dataclasses.asdict(sparse),
            **ability.arguments(),
        )
        if out is not None:
            tables = result.table, result.edges
            write_files({out / x: y for x, y in zip(TABLES, tables, strict=True)})
    if output.json:
        names = "method", "log_likelihood", "num_subjects", "sentence", "warnings"
        tables = {"items": result.table, "edges": result.edges}
        tables |= {} if result.held_out is None else {"held_out": result.held_out}
        document = {name: getattr(result, name) for name in names}
        print_json(document | {x: y.to_pylist() for x, y in tables.items()})
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
    if result.held_out is not None:
        columns = "log_score", "log_score_se", "difference", "difference_se"
        cells = [
            [row["model"], *(f"{row[x]:.4f}" for x in columns)]
            for row in result.held_out.to_pylist()
        ]
        head = ["model", "log score", "± ", "less 2pl", "±"]
        screen.show_table("", head, cells)
        screen.show_sentences([result.sentence])
    left = result.edges.num_rows - len(edges)
    if left > 0:
        screen.show_sentences([f"And {left:,} more pairs: --out DIR, --json."])
    screen.show_warnings(result.warnings, ())
