"""`irtjax audit`: which items of a benchmark are bad."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtjax.cli import options as opt
from irtjax.cli.progress import Progress

if TYPE_CHECKING:
    from irtjax.auditing import Audit
    from irtjax.data import ResponseTable

#: Names shown of the items with a defect.
SHOWN = 5
#: What `--out` writes.
FILES = ("items.csv", "benchmarks.csv", "summary.md")
FIGURES = ("properties.png", "difficulty_discrimination.png", "flagged_items.png")

_Fit = Annotated[
    Path | None,
    typer.Option(
        "--fit",
        metavar="DIR",
        help="Folder that `irtjax fit` wrote from these data; else a fit is made.",
        show_default=False,
    ),
]
_Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Model to fit, where there is no --fit; 2pl.",
        show_default=False,
    ),
]
_Rate = Annotated[
    float,
    typer.Option("--fdr", help="Share of false flags, of each defect, to be allowed."),
]
_Chance = Annotated[
    list[str] | None,
    typer.Option(
        "--chance",
        metavar="P or BENCHMARK=P",
        help="Share right by guessing, such as 0.25 for four choices; may be repeated.",
        show_default=False,
    ),
]
_Permutations = Annotated[
    int,
    typer.Option(
        "--permutations", min=0, help="Tables without signal to examine as well."
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="Folder for items.csv, benchmarks.csv, summary.md and figures.",
    ),
]


@opt.with_reading
def audit_command(
    files: opt.Files,
    reading: opt.Reading,
    fit: _Fit = None,
    model: _Model = None,
    fdr: _Rate = 0.05,
    chance: _Chance = None,
    permutations: _Permutations = 0,
    seed: opt.Seed = 0,
    out: _Out = None,
    figures: opt.Figures = True,
    float32: opt.Float32 = False,
    device: opt.Device = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Examines every item for defects, with false discoveries under control."""
    if not 0 < fdr < 1:
        raise ValueError(f"--fdr {fdr:g} is not between 0 and 1")
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: name a folder")
    if fit is not None and model is not None:
        raise ValueError("--model fits a model and --fit reads a fit: leave one out")
    guess = _chances(chance)
    with Progress(quiet) as progress:
        progress("read")
        table = reading.read(files)
        progress("start")
        from irtjax.cli.machine import prepare

        dtype = prepare(float32, device)
        from irtjax.auditing import audit

        given, options = None, {}
        if fit is not None:
            from irtjax.storage import load

            given = load(fit)
        else:
            options = {"model": model or "2pl", "dtype": dtype}
            options["progress"] = None if progress.quiet else progress
        progress("audit")
        what = (table,) if given is None else (given, table)
        report = audit(
            *what,
            false_discovery_rate=fdr,
            chance=guess,
            permutations=permutations,
            seed=seed,
            **options,
        )
        if out is not None:
            progress("write")
            _write(out, report, table, figures)
    if json:
        from irtjax.cli.pipeline import print_json

        print_json(_document(report, out))
    elif not quiet:
        _show(report, out)


def _chances(given: list[str] | None) -> float | dict[str, float]:
    """One chance for all items, or by benchmark."""
    by_name: dict[str, float] = {}
    for text in given or ():
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise ValueError(
                f"--chance {text!r} is not a number such as 0.25, or BENCHMARK=0.25"
            ) from None
        if not 0 <= value < 1:
            raise ValueError(f"--chance {text}: not at least 0 and below 1")
        if not equals and len(given or ()) > 1:
            raise ValueError(
                f"--chance {text}: several chances are by benchmark, BENCHMARK=P"
            )
        if not equals:
            return value
        if name in by_name:
            raise ValueError(f"--chance {text}: {name} has one already")
        by_name[name] = value
    return by_name or 0.0


def _write(out: Path, report: Audit, table: ResponseTable, figures: bool) -> None:
    """Writes tables, figures and summary, all or none."""
    from contextlib import ExitStack

    from irtjax.data.files import atomic_path
    from irtjax.plots import (
        plot_difficulty_discrimination,
        plot_flagged_items,
        plot_item_properties,
        save_figure,
    )
    from irtjax.report import audit_page
    from irtjax.storage import write_table

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make --out {out}: {error.strerror}") from None
    # They appear together: renamed only after the last was written.
    with ExitStack() as stack:
        tables = {"items.csv": report.items, "benchmarks.csv": report.benchmarks}
        if report.control is not None:
            tables["control.csv"] = report.control
        for name, content in tables.items():
            write_table(content, stack.enter_context(atomic_path(out / name)))
        if figures:
            for name, figure in zip(
                FIGURES,
                (
                    plot_item_properties(report),
                    plot_difficulty_discrimination(report),
                    plot_flagged_items(report, table),
                ),
                strict=True,
            ):
                save_figure(figure, stack.enter_context(atomic_path(out / name)))
        page = stack.enter_context(atomic_path(out / "summary.md"))
        text = audit_page(report, FIGURES if figures else ())
        page.write_text(text, encoding="utf-8")
    # What an earlier audit left in this folder is not of these tables.
    stale = [] if figures else list(FIGURES)
    stale += ["control.csv"] * (report.control is None)
    for name in stale:
        (out / name).unlink(missing_ok=True)


def _document(report: Audit, out: Path | None) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "false_discovery_rate": report.false_discovery_rate,
        "alpha": report.alpha,
        "model": report.fit.model.name,
        "counts": report.counts(),
        "control": None if report.control is None else report.control.to_pylist(),
        "items": report.items.to_pylist(),
        "benchmarks": report.benchmarks.to_pylist(),
        "warnings": report.warnings,
        "out": None if out is None else str(out),
    }


def _show(report: Audit, out: Path | None) -> None:
    """Prints the tables, their summary, and warnings."""
    from irtjax.cli import screen
    from irtjax.report import (
        audit_rows,
        benchmark_quality_rows,
        discriminating_sentence,
    )

    console = screen.console()
    header, rows = benchmark_quality_rows(report)
    spare = ("information", "LEH", "feasibility", "guessing", "item-rest")
    screen.show_table(console, "Benchmarks", header, rows, spare=spare)
    header, rows = audit_rows(report, SHOWN)
    screen.show_table(console, "Items", header, rows, left=1)
    screen.show_sentences(console, [discriminating_sentence(report)])
    if out is not None:
        names = (*FILES, "control.csv", *FIGURES)
        written = [name for name in names if (out / name).is_file()]
        screen.show_sentences(console, [f"Written to {out}: {', '.join(written)}"])
    screen.show_warnings(console, report.warnings, ())
