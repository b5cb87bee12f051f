"""`irtjax dif`: which items favour a group of subjects of equal ability?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.data import ResponseTable
    from irtjax.validity.dif import DIF

#: What `--out` writes.
TABLES = "dif.csv", "dif_subjects.csv", "dif_parameters.csv"
FIGURE = "dif.png"
#: Items that the screen shows.
MOST_ITEMS = 12


@dataclasses.dataclass(frozen=True)
class TestOptions:
    """How items are tested: each field is an option."""

    method: Annotated[
        str, opt.option("score, mh (Mantel-Haenszel), logistic or paired.")
    ] = "score"
    reference: Annotated[
        str | None,
        opt.option(
            "Group that effects are relative to. \\[default: the largest]",
            metavar="NAME",
        ),
    ] = None
    cluster: Annotated[
        str | None,
        opt.option(
            "Column of subjects that depend on each other, such as base_model; of pairs"
            " for --method paired.",
            metavar="COLUMN",
        ),
    ] = None
    fdr: Annotated[
        float, opt.option("Share of false ones among the items that differ.")
    ] = 0.05


@opt.with_options
def dif_command(
    files: opt.Files,
    group: Annotated[
        str,
        opt.option(
            "Column of groups, such as family, or of numbers, such as size: of"
            " --subjects or of the files.",
            metavar="COLUMN",
        ),
    ],
    subjects: opt.SubjectColumns = None,
    out: Annotated[
        Path | None, opt.out("DIR", "Folder for tables and a figure.")
    ] = None,
    *,
    test: TestOptions,
    machine: opt.Machine,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Tests which items favour a group of subjects of equal ability."""
    check_out_folder(out, TABLES, "dif")
    if not 0 < test.fdr < 1:
        raise ValueError(f"--fdr {test.fdr:g} is not between 0 and 1")
    with ProgressLine(output.quiet) as progress:
        progress("read")
        machine.prepare()
        table = reading.read(files)
        from irtjax.cli.side_tables import with_groups

        for option, column in (("group", group), ("cluster", test.cluster)):
            if column is not None:
                table = with_groups(
                    table, option, column, subjects, "subject", "--subjects"
                )
        progress("test")
        from irtjax.validity.dif import dif
        from irtjax.validity.subject_groups import numbers_of

        labels = table.subject_facets[group]
        numbers = numbers_of(labels, table.subjects, f"--group {group}")
        result = dif(
            table,
            group if numbers is None else numbers,
            method=test.method,
            reference=test.reference,
            cluster=test.cluster,
            fdr=test.fdr,
        )
        if out is not None:
            progress("write")
            _write(out, table, result)
    rows = result.table.to_pylist()
    if output.json:
        names = "reference", "method", "sizes", "score_difference", "detectable"
        document = {"group": group, **{name: getattr(result, name) for name in names}}
        for name in ("subjects", "parameters"):
            content = getattr(result, name)
            document[name] = [] if content is None else content.to_pylist()
        print_json({**document, "items": rows, "notes": result.notes})
    elif not output.quiet:
        from irtjax.cli import screen

        tested = [x for x in rows if x["p_value"] is not None]
        largest = sorted(tested, key=lambda x: (not x["differs"], x["p_value"]))
        shown = [x for x in largest if x["differs"]][:MOST_ITEMS] or largest[:3]
        cells = [
            [
                row["item"],
                f"{row['effect']:+.0f}",
                row["effect_group"],
                f"{row['q_value']:.2g}",
            ]
            for row in shown
        ]
        screen.show_sentences([str(result) + "."])
        screen.show_table("", ["item", "points", "in", "q"], cells)
        left = len(result.items) - len(shown)
        rest = [f"And {left:,} more items: --out DIR, --json."] if left > 0 else []
        place = [] if out is None else [written(out, (*TABLES, FIGURE))]
        screen.show_sentences([*rest, *place])
        screen.show_warnings((), result.notes)


def _write(out: Path, data: ResponseTable, result: DIF) -> None:
    """Writes the tables and the figure, all or none."""
    from irtjax import plots

    tables = result.table, result.subjects, result.parameters
    contents: dict[Path, Any] = {
        out / name: content
        for name, content in zip(TABLES, tables, strict=True)
        if content is not None
    }
    contents[out / FIGURE] = plots.plot_dif(data, result)
    write_files(contents, stale=[out / TABLES[2]])
