"""`irtjax audit`: which items of a benchmark are bad."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.imports import own_or_name
from irtjax.cli.output import (
    SAMPLE_FILES,
    check_out_folder,
    command_line,
    print_json,
    write_files,
    written,
)
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.auditing import Audit, ItemsToRead
    from irtjax.data import ResponseTable
    from irtjax.data.item_texts import Texts

#: Names shown of the items with a defect.
SHOWN = 5
#: What `--out` writes.
PAGE = "report.html"
FILES = ("items_to_read.csv", "items.csv", "benchmarks.csv", "summary.md", PAGE)
#: Where the texts of items are known: the flagged items to read.
FLAGGED = ("flagged_items.md", "flagged_items.csv")
#: Of logs of a harness: its ids of the items in which no test found a defect.
CLEAN = tuple(f"clean_{name}" for name in SAMPLE_FILES)
CONTROL, TO_READ = "control.csv", "items_to_read.csv"
FIGURES = ("properties.png", "difficulty_discrimination.png", "flagged_items.png")


@dataclasses.dataclass(frozen=True)
class AuditOptions:
    """What is examined, and how: each field is an option."""

    fit: Annotated[
        Path | None,
        opt.option(
            "Folder that `irtjax fit` wrote from these data; else FILE if it is such a"
            " folder, or a fit is made.",
            metavar="DIR",
        ),
    ] = None
    model: Annotated[
        str | None,
        opt.option("Model to fit, where there is no --fit. \\[default: auto]"),
    ] = None
    fdr: Annotated[
        float, opt.option("Share of false flags, of each defect, to be allowed.")
    ] = 0.05
    chance: Annotated[
        list[str] | None,
        opt.option(
            "Share right by guessing, such as 0.25 for four choices; may be repeated.",
            metavar="P or BENCHMARK=P",
        ),
    ] = None
    permutations: Annotated[
        int, opt.option("Tables without signal to examine as well.", min=0)
    ] = 0
    seed: opt.Seed = 0

    def resolve(self, files: list[str] | None) -> tuple[AuditOptions, list[str] | None]:
        """Returns the options and the files, of which one may be the fit's folder.

        Raises:
            ValueError: Options or files do not suit each other.
        """
        from irtjax.data.fit_folder import is_fit

        if not 0 < self.fdr < 1:
            raise ValueError(f"--fdr {self.fdr:g} is not between 0 and 1")
        if self.fit is not None and self.model is not None:
            reason = "--model fits a model and --fit reads a fit"
            raise ValueError(f"{reason}: leave one out")
        if self.fit is not None:
            return self, files
        if not files:
            raise ValueError(
                "name FILE..., the responses, or --fit DIR, which keeps them"
            )
        if self.model is None and len(files) == 1 and is_fit(files[0]):
            return dataclasses.replace(self, fit=Path(files[0])), None
        return self, files

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of `irtjax.audit` that do not depend on the fit."""
        return {
            "false_discovery_rate": self.fdr,
            "chance": _chances(self.chance or []),
            "permutations": self.permutations,
            "key": self.seed,
        }


@opt.with_options
def audit_command(
    files: opt.MaybeFiles = None,
    *,
    options: AuditOptions,
    out: Annotated[
        Path | None,
        opt.out(
            "DIR",
            "Folder for items.csv, benchmarks.csv, summary.md, report.html, figures.",
        ),
    ] = None,
    figures: opt.Figures = True,
    machine: opt.Machine,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Examines every item for defects, with false discoveries under control."""
    options, files = options.resolve(files)
    names = (*FILES, *FLAGGED, *CLEAN, CONTROL, *FIGURES)
    check_out_folder(out, names, "audit")
    arguments = options.arguments()
    with ProgressLine(output.quiet) as progress:
        progress("read")
        dtype = machine.prepare()
        from irtjax.auditing import audit
        from irtjax.storage import load

        calibration = None if options.fit is None else load(options.fit)
        table = reading.read(files, calibration, options.fit)
        progress("prepare")
        if calibration is None:
            model = own_or_name(options.model or "auto", "--model")
            arguments |= {"model": model, "dtype": dtype}
            arguments["progress"] = None if output.quiet else progress
        progress("audit")
        data = (table,) if calibration is None else (calibration, table)
        report = audit(*data, **arguments)
        # The fit may be of data with texts, and these data have none.
        texts = {**report.fit.item_texts, **table.item_texts} if reading.texts else {}
        if out is not None:
            progress("write")
            write(out, report, table, texts, figures)
    if output.json:
        print_json(document(report, out, table.notes))
    elif not output.quiet:
        _show(report, out, texts, table.notes)


def _chances(texts: list[str]) -> float | dict[str, float]:
    """One chance for all items, or by benchmark."""
    by_name: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise ValueError(
                f"--chance {text!r} is not a number such as 0.25, or BENCHMARK=0.25"
            ) from None
        if not 0 <= value < 1:
            raise ValueError(f"--chance {text}: not at least 0 and below 1")
        if not equals and len(texts) > 1:
            raise ValueError(
                f"--chance {text}: several chances are by benchmark, BENCHMARK=P"
            )
        if not equals:
            return value
        if name in by_name:
            raise ValueError(f"--chance {text}: {name} has one already")
        by_name[name] = value
    return by_name or 0.0


def write(
    out: Path,
    report: Audit,
    table: ResponseTable,
    texts: Texts,
    figures: bool,
    page: bool = True,
) -> None:
    """Writes tables, figures, summary and, unless left out, its page, all or none."""
    from irtjax.data.scores import as_majority
    from irtjax.data.writing import write_text
    from irtjax.report import audit_page, report_page, write_page
    from irtjax.report.flagged import flagged_page, flagged_table

    table = as_majority(table)
    figures &= table.kind == "binary"  # They are of curves.
    summary = audit_page(report, FIGURES if figures else (), table.notes)
    contents: dict[str, Any] = {
        "items.csv": report.items,
        "benchmarks.csv": report.benchmarks,
        "summary.md": functools.partial(write_text, summary),
    }
    if page:
        shown = {name: text.as_text() for name, text in texts.items()}
        html = report_page(
            report.fit,
            data=table,
            audit=report,
            command=command_line(),
            texts=shown,
            to_read=report.to_read,
        )
        contents[PAGE] = lambda place: write_page(place, html)
    if report.to_read is not None:
        contents[TO_READ] = report.to_read.table
    if report.control is not None:
        contents[CONTROL] = report.control
    if figures:
        from irtjax import plots

        drawn = (
            plots.plot_item_properties(report),
            plots.plot_difficulty_discrimination(report),
            plots.plot_flagged_items(report, table),
        )
        for name, figure in zip(FIGURES, drawn, strict=True):
            contents[name] = figure
    if texts:
        text = flagged_page(report, texts)
        contents[FLAGGED[0]] = functools.partial(write_text, text)
        contents[FLAGGED[1]] = flagged_table(report, texts)
    for name, text in _clean_samples(report, table).items():
        contents[f"clean_{name}"] = functools.partial(write_text, text)
    files = {out / name: content for name, content in contents.items()}
    # What an earlier audit left in this folder is not of these tables.
    stale = (CONTROL, PAGE, TO_READ, *FIGURES, *FLAGGED, *CLEAN)
    write_files(files, stale=[out / name for name in stale])


def _clean_samples(report: Audit, table: ResponseTable) -> dict[str, str]:
    """Files for the harness that logged the data, with the items that are not bad."""
    from irtjax.data.item_texts import sample_files
    from irtjax.report.flagged import is_bad

    rows = report.items.select(["item", "flags"]).to_pylist()
    clean = [row["item"] for row in rows if not is_bad(row["flags"])]
    # Logs that differ in the number of an item give no file: its text would be another.
    with contextlib.suppress(ValueError):
        return sample_files(clean, table.item_ids)
    return {}


def document(report: Audit, out: Path | None, notes: Sequence[str]) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "false_discovery_rate": report.false_discovery_rate,
        "alpha": report.alpha,
        "model": report.fit.model.name,
        "counts": report.counts(),
        "missing": report.missing,
        "control": None if report.control is None else report.control.to_pylist(),
        "items_to_read": to_read_document(report.to_read),
        "items": report.items.to_pylist(),
        "benchmarks": report.benchmarks.to_pylist(),
        "warnings": report.warnings,
        "notes": list(notes),
        "out": None if out is None else str(out),
    }


def to_read_document(to_read: ItemsToRead | None) -> dict[str, Any] | None:
    """The items to read, as `--json` prints them."""
    if to_read is None:
        return None
    return {"significant": to_read.significant, "items": to_read.table.to_pylist()}


def _show(report: Audit, out: Path | None, texts: Texts, notes: Sequence[str]) -> None:
    """Prints the tables, their summary, and warnings."""
    from irtjax.cli import screen
    from irtjax.report import audit as report_of
    from irtjax.report.flagged import flagged_lines

    header, rows = report_of.benchmark_quality_rows(report)
    spare = ("information", "LEH", "feasibility", "guessing", "item-rest")
    screen.show_table("Benchmarks", header, rows, spare=spare)
    header, rows = report_of.audit_rows(report, SHOWN)
    screen.show_table("Items", header, rows, ("defect", "smallest p-values"))
    near = report_of.nearest_sentence(report)
    if report.to_read is not None:
        header, rows = report_of.to_read_rows(report.to_read, SHOWN)
        if rows:
            screen.show_table("Items to read", header, rows, ("item", "answer", "key"))
            screen.show_sentences([f"To read: {report.to_read.sentence()}."])
    sentences = [report_of.discriminating_sentence(report), near, report.missing]
    screen.show_sentences(filter(None, sentences))
    screen.show_sentences(flagged_lines(report, texts))
    if out is not None:
        names = (*FILES, *FLAGGED, *CLEAN, CONTROL, *FIGURES)
        screen.show_sentences([written(out, names)])
    screen.show_warnings(report.warnings, notes)
