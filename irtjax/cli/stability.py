"""`irtjax stability`: how much does a ranking depend on the items?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.imports import own_or_name
from irtjax.cli.machine import prepare
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.validity.stability import Stability

#: Headings, columns and digits of the table on screen, after the subject.
_COLUMNS = {
    "rank": ("rank", 0),
    "from": ("rank_lower", 0),
    "to": ("rank_upper", 0),
    "P(first)": ("share_first", 2),
    "P(top)": ("share_in_top", 2),
}
#: What `--out` writes.
TABLES, FIGURE = ("stability.csv", "agreement.csv", "runs.csv"), "stability.png"


@dataclasses.dataclass(frozen=True)
class StabilityOptions:
    """The study: each field is an option."""

    kind: Annotated[
        str,
        opt.option(
            "What varies: items, halves (of the items), benchmarks (left out in turn),"
            " subjects, families (left out in turn), or starts (of a joint fit).",
            metavar="WHAT",
        ),
    ] = "items"
    num: Annotated[
        int | None,
        opt.option(
            "Replicates, or starts of each of five variances; not of benchmarks or"
            " families. \\[default: 200; 50 starts]",
            min=2,
        ),
    ] = None
    family: Annotated[
        str | None,
        opt.option(
            "Facet of subjects that are left out, or resampled, together.",
            metavar="FACET",
        ),
    ] = None
    model: Annotated[
        str, opt.option("Model of one ability: a name, or auto.", "--model", "-m")
    ] = "auto"
    top: Annotated[
        int | None,
        opt.option(
            "Subjects that are the top; not of starts. \\[default: a quarter, 3 to 10]",
            min=1,
        ),
    ] = None
    level: Annotated[
        float | None,
        opt.option("Level of the intervals; not of starts. \\[default: 0.95]"),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of `irtjax.stability`."""
        from irtjax.validity.stability import KINDS

        if self.kind not in KINDS:
            raise ValueError(f"--kind {self.kind} is not one of {', '.join(KINDS)}")
        model = own_or_name(self.model, "--model")
        return dataclasses.asdict(self) | {"model": model}


@opt.with_options
def stability_command(
    files: opt.Files,
    scores: opt.ScoreRange,
    study: StabilityOptions,
    out: Annotated[
        Path | None,
        opt.out(
            "DIR",
            "Folder for stability.csv, agreement.csv, runs.csv and a figure (none of"
            " starts).",
        ),
    ] = None,
    seed: opt.Seed = 0,
    figures: opt.Figures = True,
    *,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Measures how much the ranking depends on items, subjects or starts."""
    opt.check_level(study.level)
    check_out_folder(out, (*TABLES, FIGURE))
    with ProgressLine(output.quiet) as progress:
        progress("read")
        table = scores.rescale(reading.read(files))
        prepare()

        from irtjax.validity.stability import stability

        result = stability(table, **study.arguments(), key=seed, progress=progress)
    if out is not None:
        _write(result, out, figures)
    if output.json:
        print_json(_document(result))
    elif not output.quiet:
        _show(result, out)


def _document(result: Stability) -> dict[str, Any]:
    """What `--json` prints."""
    names = ("kind", "model", "top", "level", "sentence", "warnings", "notes")
    tables = {"rows": result.table, "agreement": result.agreement, "runs": result.runs}
    rows = {name: table.to_pylist() for name, table in tables.items()}
    return {name: getattr(result, name) for name in names} | rows


def _write(result: Stability, out: Path, figures: bool) -> None:
    """Writes tables and figure of a study of stability."""
    tables = result.table, result.agreement, result.runs
    names = [out / name for name in TABLES]
    contents = dict(zip(names, tables, strict=True))
    if figures and result.kind != "starts":
        from irtjax.plots import plot_rank_ribbons

        contents[out / FIGURE] = plot_rank_ribbons(result)
    # The figure of an earlier run is not of these tables.
    write_files(contents, stale=[out / FIGURE])


def _show(result: Stability, out: Path | None) -> None:
    """The table and the result in words."""
    from irtjax.cli import screen
    from irtjax.data.wording import counted
    from irtjax.report.words import number

    if result.kind == "starts":
        header = ["quantity", "runs", "mean", "lowest"]
        cells = [
            [x["quantity"], x["runs"], number(x["mean"], 4), number(x["min"], 4)]
            for x in result.agreement.to_pylist()
        ]
        screen.show_table("", header, cells, left=2)
    else:
        rows = result.table.to_pylist()
        shown = rows if len(rows) <= screen.LONGEST else rows[: screen.ENDS]
        cells = [
            [row["subject"], *(number(row[x], k) for x, k in _COLUMNS.values())]
            for row in shown
        ]
        screen.show_table("", ["subject", *_COLUMNS], cells)
        if len(rows) > len(shown):
            rest = (
                f"and {counted(len(rows) - len(shown), 'more subject')}: --out DIR,"
                " --json"
            )
            screen.show_sentences([rest])
    place = [] if out is None else [written(out, (*TABLES, FIGURE))]
    screen.show_sentences([result.sentence, *place])
    screen.show_warnings(result.warnings, result.notes)
