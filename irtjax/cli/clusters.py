"""`irtjax clusters`: does a benchmark measure one skill?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.errors import lead_with_option
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.pipeline import load_fit
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.validity.heterogeneity import Heterogeneity

#: What `--out` writes.
TABLES = (
    "benchmarks.csv",
    "clusters.csv",
    "cluster_sizes.csv",
    "cluster_correlations.csv",
    "cluster_scores.csv",
)
FIGURES = ("clusters.png", "structure.png")
#: Options for arguments of `irtjax.heterogeneity`, in messages.
_OPTIONS = {name: f"--{name}" for name in ("simulations", "most", "level")}


@dataclasses.dataclass(frozen=True)
class ClusterOptions:
    """The arguments of `irtjax.heterogeneity`: each field is an option."""

    by: Annotated[
        str,
        opt.option(
            "Facet of items whose groups are analysed; all: all items together.",
            metavar="FACET",
        ),
    ] = "benchmark"
    family: Annotated[
        str | None,
        opt.option(
            "Facet of subjects that are resampled together, such as fine-tunes of one"
            " model.",
            metavar="FACET",
        ),
    ] = None
    most: Annotated[int, opt.option("Largest number of clusters.", min=1)] = 10
    simulations: Annotated[
        int, opt.option("Number of simulated tables behind the band of one skill.")
    ] = 39
    level: opt.Level = 0.95


@opt.with_options
def clusters_command(
    folder: opt.Folder,
    files: opt.MaybeFiles = None,
    *,
    study: ClusterOptions,
    out: Annotated[
        Path | None, opt.out("DIR", f"Folder for {', '.join(TABLES)} and figures.")
    ] = None,
    seed: opt.Seed = 0,
    figures: opt.Figures = True,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Finds clusters of items, and whether each benchmark measures one skill.

    DIR is a fit of a factor model, FILE... responses to its items, if it keeps none.
    """
    opt.check_level(study.level)
    check_out_folder(out, (*TABLES, *FIGURES), "clusters")
    with ProgressLine(output.quiet) as progress:
        progress("read")
        try:
            fit = load_fit(folder)
        except ValueError as error:
            # Other fits have no factors.
            text = str(error).replace("fit --out", "fit --model factor --out")
            raise ValueError(text) from None
        table = reading.read(files, fit, folder)

        from irtjax.validity.heterogeneity import heterogeneity

        try:
            result = heterogeneity(
                fit,
                table,
                **dataclasses.asdict(study),
                key=seed,
                progress=progress,
            )
        except ValueError as error:
            raise ValueError(lead_with_option(str(error), _OPTIONS)) from None
        if out is not None:
            progress("write")
            _write(out, fit, result, figures)
    if output.json:
        print_json(_document(result, out))
    elif not output.quiet:
        _show(result, out)


def _write(out: Path, fit: Calibration, result: Heterogeneity, figures: bool) -> None:
    """Writes tables and figures, all or none."""
    from irtjax import plots

    tables = (
        result.table,
        result.items,
        result.clusters,
        result.correlations,
        result.scores,
    )
    contents: dict[str, Any] = dict(zip(TABLES, tables, strict=True))
    if figures:
        drawn = plots.plot_clusters(result), plots.plot_structure(fit, result)
        for name, figure in zip(FIGURES, drawn, strict=True):
            contents[name] = figure
    # Figures of an earlier run are not of these tables.
    files = {out / name: content for name, content in contents.items()}
    write_files(files, stale=[out / name for name in FIGURES])


def _document(result: Heterogeneity, out: Path | None) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "benchmarks": result.table.to_pylist(),
        "clusters": result.clusters.to_pylist(),
        "correlations": result.correlations.to_pylist(),
        "items": result.items.to_pylist(),
        "sentences": result.sentences,
        "level": result.level,
        "simulations": result.simulations,
        "warnings": result.warnings,
        "out": None if out is None else str(out),
    }


def _show(result: Heterogeneity, out: Path | None) -> None:
    """The table, a sentence for each benchmark, and warnings."""
    from irtjax.cli import screen
    from irtjax.data.wording import percent
    from irtjax.report.words import interval, number

    header = ["benchmark", "items", "clusters", "smallest correlation"]
    header += [f"{percent(result.level)} interval", "one skill", "verdict"]
    judged = [row for row in result.table.to_pylist() if row["clusters"]]
    rows = [
        [
            row["benchmark"] or "all items",
            f"{row['items']:,}",
            number(row["clusters"], 0),
            number(row["smallest"]),
            interval(row["smallest_lower"], row["smallest_upper"]),
            interval(row["band_lower"], row["band_upper"]),
            row["verdict"],
        ]
        for row in judged
    ]
    screen.show_table("", header, screen.shortened(rows))
    pairs = zip(result.table["clusters"].to_pylist(), result.sentences, strict=True)
    sentences = [text for count, text in pairs if count][: screen.LONGEST]
    if out is not None:
        sentences.append(written(out, (*TABLES, *FIGURES)))
    screen.show_sentences(sentences)
    screen.show_warnings(result.warnings, ())
