"""`irtjax generalise`: how well do models predict responses that they have not seen?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.output import check_out_folder, print_json, write_files, written
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.data import ResponseTable
    from irtjax.prediction.generalise import Generalisation

#: What `--out` writes.
TABLES, FIGURE = ("generalise.csv", "curves.csv"), "generalise.png"


@dataclasses.dataclass(frozen=True)
class SchemeOptions:
    """The splits: each field is an option."""

    schemes: Annotated[
        str,
        opt.option(
            "What is new, with commas between: entry (a random part), rows (subjects),"
            " rows_shifted, columns (items), L (both), group (benchmarks), temporal,"
            " items (without any response).",
            metavar="NAME,NAME...",
        ),
    ] = "entry,rows,columns,L"
    models: Annotated[
        str,
        opt.option(
            "Models, with commas between: 2pl,factor:4.", metavar="NAME,NAME..."
        ),
    ] = "2pl"
    share: Annotated[
        float, opt.option("Share of training responses, old subjects or old items.")
    ] = 0.8
    exposure: Annotated[
        float, opt.option("Share of responses of what is new that are training too.")
    ] = 0.3
    repeats: Annotated[int, opt.option("Random splits of each scheme.", min=1)] = 1
    family: Annotated[
        str | None,
        opt.option(
            "Column of families, whose subjects are old or new together (rows, L).",
            metavar="COLUMN",
        ),
    ] = None
    group: Annotated[
        str,
        opt.option("Column of groups of items, new in turn (group).", metavar="COLUMN"),
    ] = "benchmark"
    shift_by: Annotated[
        str,
        opt.option(
            "Numbers of subjects by which the highest are new (rows_shifted): accuracy,"
            " or a column.",
            metavar="COLUMN",
        ),
    ] = "accuracy"
    date: Annotated[
        str,
        opt.option(
            "Column of dates of subjects, as 2024-05-13 (temporal).", metavar="COLUMN"
        ),
    ] = "date"
    item_date: Annotated[
        str | None,
        opt.option("The same of items (temporal).", metavar="COLUMN"),
    ] = None
    cutoff: Annotated[
        str | None,
        opt.option(
            "First date that is new (temporal); else that of the last fifth.",
            metavar="DATE",
        ),
    ] = None
    item_features: Annotated[
        Path | None,
        opt.option(
            "Table of features with the column item, or .npy file: also the model"
            " features.",
            metavar="FILE",
        ),
    ] = None
    folds: Annotated[int, opt.option("Folds of items, and of groups.", min=2)] = 5
    subject_table: Annotated[
        Path | None,
        opt.option("Table with the column subject and those named.", metavar="FILE"),
    ] = None
    item_table: Annotated[
        Path | None,
        opt.option("Table with the column item and those named.", metavar="FILE"),
    ] = None

    def named(self) -> list[str]:
        """The names of the schemes."""
        return [name.strip() for name in self.schemes.split(",") if name.strip()]

    def with_columns(self, table: ResponseTable) -> ResponseTable:
        """The responses with the columns that the schemes need."""
        from irtjax.cli.side_tables import with_groups

        names, of_subjects = self.named(), ("subject", self.subject_table)
        wanted = []
        if self.family is not None:
            wanted.append(("family", self.family, *of_subjects))
        if "rows_shifted" in names and self.shift_by != "accuracy":
            wanted.append(("shift-by", self.shift_by, *of_subjects))
        if "temporal" in names:
            wanted.append(("date", self.date, *of_subjects))
            if self.item_date is not None:
                wanted.append(("item-date", self.item_date, "item", self.item_table))
        if "group" in names:
            wanted.append(("group", self.group, "item", self.item_table))
        for option, column, kind, path in wanted:
            table = with_groups(table, option, column, path, kind)
        return table

    def makers(self) -> dict[str, Any]:
        """The functions of the schemes, with the settings."""
        from functools import partial

        from irtjax.prediction.generalise import SCHEMES

        shares = {"share": self.share, "exposure": self.exposure}
        exposure = {"exposure": self.exposure}
        dates = {"subject_date": self.date, "item_date": self.item_date}
        settings: dict[str, dict[str, Any]] = {
            "entry": {"share": self.share},
            "rows": shares | {"group": self.family},
            "rows_shifted": shares | {"by": self.shift_by},
            "columns": shares,
            "L": {name: (x, x) for name, x in shares.items()} | {"group": self.family},
            "group": exposure | {"by": self.group, "folds": self.folds},
            "items": {"folds": self.folds},
            "temporal": exposure | dates | {"cutoff": self.cutoff},
        }
        for name in self.named():
            if name not in SCHEMES:
                raise ValueError(
                    f"--schemes {name}: no such scheme; there are {', '.join(SCHEMES)}"
                )
        return {name: partial(SCHEMES[name], **settings[name]) for name in self.named()}

    def predictors(self) -> dict[str, Any]:
        """The models, that of features among them."""
        models = {x.strip(): x.strip() for x in self.models.split(",")}
        if self.item_features is None:
            return models
        from irtjax.prediction.cold_start import feature_chances

        return {"features": feature_chances(self.item_features), **models}


@opt.with_options
def generalise_command(
    files: opt.Files,
    scheme: SchemeOptions,
    out: Annotated[
        Path | None, opt.out("DIR", f"Folder for {', '.join(TABLES)} and a figure.")
    ] = None,
    level: opt.Level = 0.95,
    seed: opt.Seed = 0,
    figures: opt.Figures = True,
    *,
    machine: opt.Machine,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Measures how well models predict new subjects, new items and later responses."""
    opt.check_level(level)
    check_out_folder(out, (*TABLES, FIGURE))
    with ProgressLine(output.quiet) as progress:
        machine.prepare()
        progress("read")
        table = scheme.with_columns(reading.read(files))
        from irtjax.prediction.generalise import generalise

        result = generalise(
            table,
            scheme.makers(),
            scheme.predictors(),
            repeats=scheme.repeats,
            level=level,
            key=seed,
            progress=progress,
        )
        if out is not None:
            tables = result.table, result.curves
            contents: dict[Path, Any] = {
                out / x: y for x, y in zip(TABLES, tables, strict=True)
            }
            if figures:
                from irtjax.plots import plot_generalisation

                contents[out / FIGURE] = plot_generalisation(result)
            write_files(contents, stale=[out / FIGURE])
    if output.json:
        print_json(_document(result))
    elif not output.quiet:
        _show(result, out)


def _document(result: Generalisation) -> dict[str, Any]:
    """What `--json` prints: the first model of the first scheme, and all rows."""
    rows = result.table.to_pylist()
    names = "level", "sentences", "warnings"
    return {
        **rows[0],
        **{name: getattr(result, name) for name in names},
        "rows": rows,
        "curves": result.curves.to_pylist(),
    }


def _show(result: Generalisation, out: Path | None) -> None:
    """Prints the scores of models and baselines, and what they amount to."""
    from irtjax.cli import screen
    from irtjax.report.words import number

    columns = {"AUC": "auc", "from": "auc_lower", "to": "auc_upper"}
    columns |= {"in subjects": "auc_subjects", "in items": "auc_items"}
    columns |= {"log score": "log_score"}
    cells = [
        [
            row["scheme"],
            f"{row['model']} ({row['stages']})",
            *(number(row[x], 3) for x in columns.values()),
        ]
        for row in result.table.to_pylist()
    ]
    screen.show_table("", ["scheme", "model", *columns], cells, left=2)
    place = [] if out is None else [written(out, (*TABLES, FIGURE))]
    screen.show_sentences([*result.sentences, *place])
    screen.show_warnings(result.warnings, ())
