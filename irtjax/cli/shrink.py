"""`irtjax shrink`: a few items that stand for a whole benchmark."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli import options as opt
from irtjax.cli.errors import lead_with_option
from irtjax.cli.imports import own_or_name
from irtjax.cli.machine import prepare
from irtjax.cli.output import (
    SAMPLE_FILES,
    check_out_folder,
    command_line,
    print_json,
    write_files,
)
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.subsets.errors import SubsetErrors
    from irtjax.subsets.subset import Shrunken

#: What `Shrunken.contents` has.
SUBSET_FILES = ("subset.csv", "subset.json", "rules.csv", *SAMPLE_FILES)
#: Written where errors are requested: a table and its figure.
ERROR_FILES = ("errors.csv", "shrink.png")

#: Options for arguments of `irtjax.shrink`, in messages.
_OPTIONS = {
    "standard_error": "--se",
    "score_error": "--score-error",
    **{
        name: f"--{name}"
        for name in ("rule", "size", "aim", "average", "folds", "level")
    },
}


@dataclasses.dataclass(frozen=True)
class SubsetOptions:
    """How items are chosen, and what is measured of it: each field is an option."""

    size: Annotated[int | None, opt.option("Number of items to keep.")] = None
    se: Annotated[
        float | None, opt.option("Keep as many as give abilities this error.")
    ] = None
    score_error: Annotated[
        float | None,
        opt.option("Keep as many as give scores this error, by the model."),
    ] = None
    rule: Annotated[
        str,
        opt.option(
            "auto, regression, information, clustering, discrimination, difficulty or"
            " random. auto: the simplest within one standard error of the smallest"
            " cross-validated error.",
            metavar="RULE",
        ),
    ] = "auto"
    aim: Annotated[str, opt.option("Of --rule information: score or ability.")] = (
        "score"
    )
    at: Annotated[
        str | None, opt.option("Abilities where information matters.", metavar="A,B")
    ] = None
    stratify: Annotated[
        str,
        opt.option(
            "Facet to share items between; auto: benchmark where there are several;"
            " none.",
            metavar="FACET",
        ),
    ] = "auto"
    average: Annotated[
        str, opt.option("What a full score averages: items, benchmarks.")
    ] = "items"
    avoid: Annotated[
        list[str] | None,
        opt.option(
            "Item to choose only where no others are left; may be repeated. Without"
            " it, items whose key looks wrong or that do not discriminate.",
            metavar="NAME",
        ),
    ] = None
    model: Annotated[
        str, opt.option("Model to fit: auto, a name, or MODULE:NAME.", "--model", "-m")
    ] = "auto"
    folds: Annotated[
        int | None,
        opt.option(
            "Folds of subjects behind intervals and comparison. \\[default: 5; fewer"
            " with few subjects]"
        ),
    ] = None
    sizes: Annotated[
        str | None, opt.option("Also a table of errors by size.", metavar="N,N")
    ] = None
    reference: Annotated[
        Path | None,
        opt.option(
            "CSV or Parquet with columns subject and score: a ranking to agree with.",
            metavar="FILE",
        ),
    ] = None

    def check(self) -> None:
        """Refuses options that do not suit each other."""
        if sum(x is not None for x in (self.size, self.se, self.score_error)) != 1:
            raise ValueError("give one of --size, --se and --score-error")
        if self.reference is not None and self.sizes is None:
            reason = "the table has the agreement"
            raise ValueError(f"--reference requires --sizes: {reason}")

    def target(self) -> dict[str, Any]:
        """Returns the arguments of `irtjax.shrink` that errors by size do not take."""
        goal = {"size": self.size, "standard_error": self.se}
        return goal | {"score_error": self.score_error, "rule": self.rule}

    def arguments(self) -> dict[str, Any]:
        """Returns the other arguments of `irtjax.shrink`."""
        return {
            "aim": self.aim,
            "stratify": None if self.stratify == "none" else self.stratify,
            "average": self.average,
            "folds": self.folds,
            "abilities": opt.numbers("--at", self.at),
            "model": own_or_name(self.model, "--model"),
            "avoid": self.avoid or None,
        }


@opt.with_options
def shrink_command(
    files: opt.Files,
    out: Annotated[
        Path, opt.out("DIR", "Folder for the subset, its predictor and page; errors.")
    ],
    options: SubsetOptions,
    scores: opt.ScoreRange,
    level: opt.Level = 0.95,
    seed: opt.Seed = 0,
    *,
    output: opt.Output,
    reading: opt.Reading,
) -> None:
    """Chooses items that represent all, and estimates the error."""
    opt.check_level(level)
    options.check()
    names = (*SUBSET_FILES, *ERROR_FILES, "report.html")
    check_out_folder(out, names, "shrink")
    chosen = {**options.arguments(), "level": level, **scores.setting()}
    sizes = opt.numbers("--sizes", options.sizes, int)
    ranking = None if options.reference is None else _values(options.reference)
    with ProgressLine(output.quiet) as progress:
        progress("read")
        prepare()
        table = reading.read(files)
        target = options.target()
        small, errors = _choose(table, target, chosen, sizes, ranking, seed, progress)
        progress("write")
        write(out, small, errors, table.notes)
    _report(small, errors, list(table.notes), out, output)


def _choose(
    table, target, options, sizes, reference, seed: int, progress: ProgressLine
) -> tuple[Shrunken, SubsetErrors | None]:
    """The subset of that target and, where there are sizes, errors of such subsets."""
    from irtjax.subsets.errors import check_reference
    from irtjax.subsets.pool import check_size
    from irtjax.subsets.shrink import shrink, subset_errors

    for number in sizes or ():
        check_size(number, table.num_items, "--sizes")
    if reference is not None:
        check_reference(reference, table.subjects)
    options = {**options, "key": seed}
    progress("shrink")
    try:
        small = shrink(table, **target, **options)
        if sizes is None:
            return small, None
        progress("errors")
        folds = 5 if options["folds"] is None else options["folds"]
        options |= {"reference": reference, "folds": folds}
        return small, subset_errors(table, sizes, **options)
    except ValueError as error:
        raise ValueError(lead_with_option(str(error), _OPTIONS)) from None


def _values(path: Path) -> dict[str, float]:
    """Values by subject of a reference ranking."""
    import math

    from irtjax.cli.side_tables import column, read_content

    content = read_content("--reference", path)
    cells = [column("--reference", path, content, x) for x in ("subject", "score")]
    values = {}
    for name, value in zip(*cells, strict=True):
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"--reference {path}: the score of {name!r} is {value!r}")
        values[str(name)] = float(value)
    return values


def write(
    out: Path,
    small: Shrunken,
    errors: SubsetErrors | None,
    notes: Sequence[str],
    page: bool = True,
) -> None:
    """Writes the subset, its page and, where requested, errors and their figure."""
    from irtjax.report.page import PAGE, write_page
    from irtjax.report.page_subset import subset_page

    contents = dict(small.contents())
    if page:
        parts = {"sentences": subset_sentences(small), "notes": notes}
        html = subset_page(small, errors, command=command_line(), **parts)
        contents[PAGE] = lambda place: write_page(place, html)
    if errors is not None:
        from irtjax.plots import plot_subset_errors, save_figure

        picture = functools.partial(save_figure, plot_subset_errors(errors))
        contents |= zip(ERROR_FILES, (errors.table, picture), strict=True)
    files = {out / name: content for name, content in contents.items()}
    # Files of an earlier subset in this folder are not of this one.
    stale = (*SUBSET_FILES, *ERROR_FILES, PAGE)
    write_files(files, stale=[out / name for name in stale])


def _report(small, errors, notes, out: Path, output: opt.Output) -> None:
    """Prints the outcome, for people or as JSON."""
    content = document(small, errors, notes, out)
    if output.json:
        print_json(content)
    elif not output.quiet:
        from irtjax.cli import screen

        if errors is not None:
            _show(errors)
        names = ["subset.csv", "subset.json", "report.html"]
        names += ["rules.csv"] if small.rules else []
        names += ERROR_FILES if errors is not None else []
        names += [name for name in SAMPLE_FILES if (out / name).is_file()]
        written = f"Written to {out}: {', '.join(names)}"
        screen.show_sentences([*subset_sentences(small, out), written])
        if SAMPLE_FILES[0] in names:
            screen.show_sentences(["Evaluate only these items:"])
            screen.show_command(_command(small, out / SAMPLE_FILES[0]))
        screen.show_warnings(content["warnings"], notes)


def document(small, errors, notes: list[str], out: Path) -> dict[str, Any]:
    """What `--json` prints."""
    warnings = [*small.warnings, *(() if errors is None else errors.warnings)]
    return {
        "items": small.table.to_pylist(),
        "num_items": small.num_items,
        "rule": small.rule,
        "reason": small.reason,
        "rules": list(small.rules),
        "standard_error": small.standard_error,
        "score_error": small.score_error,
        "error": small.error,
        "held_out": small.held_out,
        "level": small.level,
        "errors": None if errors is None else list(errors.rows),
        "out": str(out),
        "warnings": list(dict.fromkeys(warnings)),
        "notes": notes,
    }


def _command(small: Shrunken, samples: Path) -> str:
    """The command of lm-evaluation-harness for the items of a subset."""
    import shlex

    tasks = {one.task for ids in small.item_ids.values() for one in ids}
    names = ("--tasks", ",".join(sorted(tasks)), "--samples", str(samples))
    options = "--model MODEL --log_samples --output_path logs"
    return f"lm_eval {shlex.join(names)} {options}"


def _show(errors: SubsetErrors) -> None:
    """Prints errors by rule and size."""
    from irtjax.cli import screen
    from irtjax.data.wording import counted, percent
    from irtjax.report.words import number

    columns = {
        "coverage": f"{percent(errors.level)} intervals cover",
        "width": "width",
        "kendall": "tau",
        "spearman": "Spearman",
    }
    if any(row["reference_kendall"] is not None for row in errors.rows):
        columns["reference_kendall"] = "tau with reference"
    header = ["rule", "items", "mean error", *columns.values()]
    rows = []
    for row in errors.rows:
        error = number(row["mean_absolute_error"], 4)
        others = (number(row[name], 3) for name in columns)
        rows.append([row["rule"], f"{row['size']:,}", error, *others])
    title = (
        f"{counted(errors.num_subjects, 'held-out subject')},"
        f" {counted(errors.num_items, 'item')}"
    )
    screen.show_table(title, header, rows)


def subset_sentences(small: Shrunken, folder: Path | None = None) -> list[str]:
    """How near the subset is to the full score, and why these items."""
    return [small.sentence(folder) + ".", *small.sentences[1:]]
