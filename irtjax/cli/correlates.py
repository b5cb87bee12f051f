"""`irtjax correlates`: what abilities and scores correlate with, without errors."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.pipeline import load_fit
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.validity.correlates import Correlates

#: What `--out` writes; the last with traits and methods.
TABLES = "correlates.csv", "measures.csv", "convergence.csv"
FIGURE = "correlates.png"


@dataclasses.dataclass(frozen=True)
class OutsideOptions:
    """Columns of the table of subjects: each field is an option."""

    subjects: opt.SubjectColumns = None
    column: Annotated[
        list[str] | None,
        opt.option("Column of numbers; repeat it.", metavar="COLUMN"),
    ] = None
    related: Annotated[
        list[str] | None,
        opt.option("Column that should correlate; repeat it.", metavar="COLUMN"),
    ] = None
    unrelated: Annotated[
        list[str] | None,
        opt.option("Column that should not correlate; repeat it.", metavar="COLUMN"),
    ] = None
    reliability: Annotated[
        list[str] | None,
        opt.option("Reliability of a column, size=.9; repeat it.", metavar="COLUMN=X"),
    ] = None
    family: Annotated[
        str | None,
        opt.option(
            "Column of families, such as base models, which depend on each other.",
            metavar="COLUMN",
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Arguments of `irtjax.correlates`."""
        reliability = {}
        for text in self.reliability or ():
            name, _, value = text.partition("=")
            try:
                reliability[name] = float(value)
            except ValueError:
                raise ValueError(
                    f"--reliability {text} is not of the form column=.9"
                ) from None
        columns = {"columns": self.column or ()}
        columns |= {"related": self.related or (), "unrelated": self.unrelated or ()}
        return {**columns, "reliability": reliability, "family": self.family}


@dataclasses.dataclass(frozen=True)
class TraitOptions:
    """Facets of items: each field is an option."""

    trait: Annotated[
        str | None,
        opt.option(
            "Facet of items that names what they measure, such as benchmark: mean"
            " responses in place of abilities.",
            metavar="FACET",
        ),
    ] = None
    method: Annotated[
        str | None,
        opt.option(
            "Facet of items that names how, such as metric.",
            "--trait-method",
            metavar="FACET",
        ),
    ] = None
    item_table: Annotated[
        Path | None,
        opt.option(
            "Table with a row for each item: columns item, and the facets.",
            "--item-table",
            metavar="TABLE",
        ),
    ] = None


@opt.with_options
def correlates_command(
    files: opt.Files,
    margin: Annotated[
        float, opt.option("Correlation from which two quantities are related.")
    ] = 0.3,
    out: Annotated[
        Path | None, opt.out("DIR", f"Folder for {', '.join((*TABLES, FIGURE))}.")
    ] = None,
    level: opt.Level = 0.95,
    *,
    outside: OutsideOptions,
    traits: TraitOptions,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Correlates abilities, scores and outside columns without errors.

    FILE... are folders of fits, each of whose abilities is a measure, or responses.
    """
    opt.check_level(level)
    check_out_folder(out, (*TABLES, FIGURE), "correlates")
    with ProgressLine(output.quiet) as progress:
        progress("read")
        source = _source(files, traits, reading)
        columns = None
        if outside.subjects is not None:
            import numpy as np

            from irtjax.cli.side_tables import read_content, with_names

            path = outside.subjects
            columns = read_content("--subjects", path)
            if isinstance(source, dict):
                names = np.concatenate([x.subject_names for x in source.values()])
            else:
                names = source.subjects
            columns = with_names("--subjects", path, columns, "subject", names)
        progress("correlate")
        from irtjax.validity.correlates import correlates

        result = correlates(
            source,
            columns,
            trait=traits.trait,
            method=traits.method,
            margin=margin,
            level=level,
            **outside.settings(),
        )
        if out is not None:
            _write(out, result)
    if output.json:
        names = "margin", "level", "sentence", "warnings"
        document: dict[str, Any] = {"correlations": result.table.to_pylist()}
        document["measures"] = result.measures.to_pylist()
        document["convergence"] = result.convergence.to_pylist()
        print_json(document | {name: getattr(result, name) for name in names})
    elif not output.quiet:
        _show(result, out)


def _write(out: Path, result: Correlates) -> None:
    """Writes the tables and the figure, all or none."""
    from irtjax import plots

    tables = result.table, result.measures, result.convergence
    contents: dict[Path, Any] = {
        out / name: table
        for name, table in zip(TABLES, tables, strict=True)
        if table.num_columns
    }
    contents[out / FIGURE] = plots.plot_correlates(result)
    write_files(contents, stale=[out / TABLES[2]])


def _source(files: list[str], traits: TraitOptions, reading: opt.Reading) -> Any:
    """Fits by the names of their folders, or responses."""
    folders = [Path(x) for x in files]
    is_fit = [(x / "fit.json").is_file() for x in folders]
    if traits.trait is None and traits.method is None and all(is_fit):
        names = [x.resolve().name for x in folders]
        if len({*names}) < len(names):
            names = [str(x) for x in folders]
        return {name: load_fit(x) for name, x in zip(names, folders, strict=True)}
    if any(is_fit) and len(files) > 1:
        raise ValueError("give fits alone, or responses alone, not both")
    table = reading.read(files)
    from irtjax.cli.side_tables import with_groups

    for option, facet in (("trait", traits.trait), ("trait-method", traits.method)):
        if facet is not None:
            table = with_groups(table, option, facet, traits.item_table, "item")
    return table


def _show(result: Correlates, out: Path | None) -> None:
    """Prints correlations and the multitrait-multimethod table."""
    from irtjax.cli import screen
    from irtjax.report.words import interval, number

    span = f"{100 * result.level:g} %"
    cells = [
        [
            row["measure"],
            row["other"],
            number(row["raw"]),
            number(row["correlation"]),
            interval(row["lower"], row["upper"]),
            " ".join(filter(None, [row["expected"], row["verdict"]])),
        ]
        for row in result.table.to_pylist()
    ]
    heads = ["measure", "with", "raw", "r", span, "expected"]
    screen.show_table("", heads, cells)
    cells = [
        [
            row["trait"],
            number(row["correlation"]),
            row["convergent"],
            number(row["rival_correlation"]),
            interval(row["difference_lower"], row["difference_upper"]),
            row["discriminant"],
        ]
        for row in result.convergence.to_pylist()
    ]
    if cells:
        heads = ["trait", "r", "convergent", "rival", "difference", "discriminant"]
        screen.show_table("", heads, cells)
    place = [] if out is None else [written(out, (*TABLES, FIGURE))]
    screen.show_sentences([result.sentence, *place])
    screen.show_warnings(result.warnings, ())
