"""`irtjax reliability`: which differences of mean scores are noise?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import config
from irtjax.cli import options as opt
from irtjax.cli.long_tables import rows_of
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.pipeline import load_fit, responses_of
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    import pyarrow as pa

    from irtjax.validity.generalisability import Generalisability
    from irtjax.validity.reliability import Reliability

#: What `--out` writes.
TABLES = "reliability.csv", "scores.csv", "components.csv", "designs.csv"
#: The same with `--fit`.
BY_ABILITY = "errors_by_ability.csv"
#: Benchmarks, and designs, that the screen shows.
MOST_ROWS = 6


@dataclasses.dataclass(frozen=True)
class DesignOptions:
    """The facets of scores and the designs to compare: each field is an option."""

    facet: Annotated[
        list[str] | None,
        opt.option(
            "Column of a facet, such as item or rater, of files with a row for each"
            " score; repeat it.",
            metavar="COLUMN",
        ),
    ] = None
    nested: Annotated[
        list[str] | None,
        opt.option(
            "Facet that occurs within another alone: item=benchmark.",
            metavar="FACET=OUTER",
        ),
    ] = None
    columns: Annotated[
        str,
        opt.option(
            "Columns of subjects and of scores, with --facet.", metavar="SUBJECT,SCORE"
        ),
    ] = "subject,score"
    sizes: Annotated[
        list[str] | None,
        opt.option(
            "Levels of a facet in designs to compare: item=50,100.",
            metavar="FACET=N,N...",
        ),
    ] = None
    cost: Annotated[
        list[str] | None,
        opt.option(
            "Cost of a level of a facet, within one of each facet before it: rater=2.",
            metavar="FACET=X",
        ),
    ] = None
    target: Annotated[
        float | None,
        opt.option("Largest standard error of a score in comparisons."),
    ] = None

    def study(self, files: list[str]) -> Generalisability:
        """The components of files with a row for each score."""
        from irtjax.validity.generalisability import generalisability

        names = self.columns.split(",")
        if len(names) != 2:
            raise ValueError(
                f"--columns {self.columns} names two columns, such as subject,score"
            )
        subject, score = (name.strip() for name in names)
        rows = rows_of(files)
        for name in (subject, score):
            if name not in rows.column_names:
                raise ValueError(
                    f"there is no column {name!r} among {', '.join(rows.column_names)}:"
                    " name subjects and scores, --columns SUBJECT,SCORE"
                )
        return generalisability(
            rows,
            self.facet or (),
            subject=subject,
            score=score,
            nested=_pairs("--nested", self.nested),
        )

    def designs(self, study: Generalisability) -> pa.Table | None:
        """The designs that were asked for."""
        if not self.sizes:
            for name in ("cost", "target"):
                if getattr(self, name):
                    raise ValueError(f"--{name} requires --sizes, as item=50,100,200")
            return None
        sizes = {
            name: [*map(float, opt.numbers("--sizes", text) or ())]
            for name, text in _pairs("--sizes", self.sizes).items()
        }
        costs = {
            name: opt.numbers("--cost", text)[0]  # type: ignore[index]
            for name, text in _pairs("--cost", self.cost).items()
        }
        return study.designs(sizes, costs or None, self.target)


@opt.with_options
def reliability_command(
    files: opt.MaybeFiles = None,
    fit: Annotated[
        Path | None,
        opt.option(
            "Folder of a fit: errors by ability, and what the plain sum loses.",
            metavar="DIR",
        ),
    ] = None,
    out: Annotated[
        Path | None, opt.out("DIR", f"Folder for {', '.join(TABLES)}.")
    ] = None,
    level: opt.Level = 0.95,
    seed: opt.Seed = 0,
    *,
    design: DesignOptions,
    scores: opt.ScoreRange,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Measures how reliable scores are, and which differences are noise."""
    opt.check_level(level)
    check_out_folder(out, (*TABLES, BY_ABILITY))
    if not files and fit is None:
        raise ValueError("name the responses, `irtjax reliability FILE`, or --fit DIR")
    result = None
    with ProgressLine(output.quiet) as progress:
        progress("read")
        if design.facet:
            for name in config.typed(reading.chosen()):
                option = name.replace("_", "-")
                raise ValueError(f"--{option} is not for --facet: leave one out")
            if fit is not None or not files:
                raise ValueError("--fit is not for --facet: leave one out")
            study = design.study(files)
        else:
            from irtjax.validity.reliability import reliability

            model = None if fit is None else load_fit(fit)
            if model is None or fit is None or files:
                table = reading.read(files or [])
            else:
                table = responses_of(model, fit, files, reading)
                if table is None:
                    raise ValueError(f"{fit} keeps no responses: name the files")
            table = scores.rescale(table)
            result = reliability(table, level=level, key=seed, fit=model)
            study = result.components
        designs = design.designs(study)
        if out is not None:
            tables = [None, None] if result is None else [result.table, result.subjects]
            contents = zip(TABLES, [*tables, study.table, designs], strict=True)
            written_tables = {out / x: y for x, y in contents if y is not None}
            if result is not None and result.model is not None:
                written_tables[out / BY_ABILITY] = result.model.table
            write_files(written_tables)
    if output.json:
        print_json(_document(result, study, designs))
    elif not output.quiet:
        _show(result, study, designs, out)


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """What `NAME=TEXT` says, by name."""
    pairs = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ValueError(f"{option} {text} is not of the form facet=value")
        pairs[name.strip()] = value.strip()
    return pairs


def _document(
    result: Reliability | None, study: Generalisability, designs: pa.Table | None
) -> dict[str, Any]:
    """What `--json` prints."""
    design = study.design()
    document: dict[str, Any] = {
        "components": study.table.to_pylist(),
        "coefficient": design.coefficient,
        "dependability": design.dependability,
        "sem": design.relative_error,
        "log_likelihood": study.log_likelihood,
    }
    if result is not None:
        names = "alpha", "omega", "sem", "difference", "level", "runs", "sentence"
        document |= {name: getattr(result, name) for name in names}
        document["benchmarks"] = result.table.to_pylist()
        document["subjects"] = result.subjects.to_pylist()
        if result.model is not None:
            model = dataclasses.asdict(result.model) | {"table": None}
            model["errors_by_ability"] = result.model.table.to_pylist()
            document["model"] = {k: v for k, v in model.items() if v is not None}
    if designs is not None:
        document["designs"] = designs.to_pylist()
    document["warnings"] = (study if result is None else result).warnings
    return document


def _show(
    result: Reliability | None,
    study: Generalisability,
    designs: pa.Table | None,
    out: Path | None,
) -> None:
    """Prints coefficients, components, designs and the difference that counts."""
    from irtjax.cli import screen
    from irtjax.report.words import number

    if result is not None:
        columns = {"alpha": "alpha", "omega": "omega", "halves": "split_half"}
        columns |= {"sem": "sem", "difference": "difference"}
        rows = result.table.to_pylist()
        shown = rows[-1:] if len(rows) > MOST_ROWS else rows
        cells = [
            [
                row["benchmark"],
                f"{row['items']:,}",
                *(number(row[x], 3) for x in columns.values()),
            ]
            for row in shown
        ]
        screen.show_table("", ["benchmark", "items", *columns], cells)
    cells = [
        [row["component"], f"{row['variance']:.3g}", f"{100 * row['share']:.1f} %"]
        for row in study.table.to_pylist()
    ]
    screen.show_table("", ["component", "variance", "share"], cells)
    if designs is not None:
        names = [x for x in designs.column_names if x != "coefficient_se"]
        rows = designs.to_pylist()
        cells = [[f"{row[x]:.4g}" for x in names] for row in rows[:MOST_ROWS]]
        screen.show_table("", [x.replace("_", " ") for x in names], cells, left=0)
    design = study.design()
    sentence = (
        f"Coefficient of comparisons {number(design.coefficient)}, of scores"
        f" {number(design.dependability)}; standard error of a score in comparisons"
        f" {number(design.relative_error, 3)}."
        if result is None
        else result.sentence
    )
    files = [
        name
        for name, content in zip(TABLES, (result, result, study, designs), strict=True)
        if content is not None
    ]
    model = None if result is None else result.model
    lines = [sentence]
    if model is not None:
        files.append(BY_ABILITY)
        lines.append(model.sentence)
        if model.table.num_rows:
            lines.append(
                f"Reliability of abilities {number(model.marginal)} (marginal),"
                f" {number(model.empirical)} (empirical)."
            )
    place = [] if out is None else [written(out, files)]
    screen.show_sentences([*lines, *place])
    screen.show_warnings((study if result is None else result).warnings, ())
