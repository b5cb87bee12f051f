"""`irtjax compare`: is one subject better than another?"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtjax.cli import config, gates
from irtjax.cli import options as opt
from irtjax.cli.arena import compare_saved
from irtjax.cli.output import (
    check_out_folder,
    command_line,
    print_json,
    say,
    write_files,
    written,
)
from irtjax.cli.pipeline import Job, calibrate, load_fit, responses_of
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration
    from irtjax.data import ResponseTable
    from irtjax.ranking import Comparison

_NAME = typer.Argument(help="Name of a subject.", show_default=False)
#: Subjects from which logs without a fit are fitted: two have the paired test alone.
FEWEST = 3


@opt.with_options
def compare_command(
    first: Annotated[str, _NAME],
    second: Annotated[str, _NAME],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LOGS...",
            help="Responses of the two and of others; a fit keeps its own.",
            show_default=False,
        ),
    ] = None,
    fit: Annotated[
        Path | None,
        opt.option("Folder of a fit; without it the logs are fitted.", metavar="DIR"),
    ] = None,
    level: opt.SomeLevel = None,
    run_sd: opt.RunSd = None,
    out: Annotated[
        Path | None,
        opt.out("DIR", "Folder for report.html, the page that begins with the two."),
    ] = None,
    *,
    output: opt.LongOutput,
    gate: gates.Gate,
    reading: opt.Reading,
) -> None:
    """Compares two subjects in a line: difference, interval, p-value; a gate for CI."""
    from irtjax.data.fit_folder import RESPONSES, is_arena

    opt.check_level(level)
    check_out_folder(out, ["report.html"], "compare")
    gate.check()
    files = list(files or ())
    if fit is None and not files:
        raise ValueError(
            f"name the logs, `irtjax compare {first} {second} LOGS`, or a fit with"
            " --fit DIR"
        )
    # A saved fit may have texts, which --no-texts leaves out of the page too.
    for name in {*config.typed(reading.chosen())} - {"texts"} if not files else ():
        raise ValueError(f"--{name.replace('_', '-')} requires LOGS to read")
    if fit is not None and is_arena(fit):
        if files or gate.fail_if or out or run_sd:
            raise ValueError(
                f"{fit} is the folder of an arena, which takes no LOGS, --fail-if,"
                " --run-sd or --out: leave them out, --json prints difference and"
                " p-value"
            )
        quiet, json = output.quiet, output.json
        compare_saved(fit, first, second, level=level, quiet=quiet, json=json)
        return
    # A mistake in a condition is found before anything is loaded.
    has_data = bool(files) or (fit is not None and (fit / RESPONSES).is_file())
    conditions = gate.conditions(first, second, has_data)
    with ProgressLine(output.quiet) as progress:
        pair = _pair(first, second, fit, files, reading, progress)
        if run_sd:
            pair.count_runs(run_sd)
        if level is None:
            level = 0.95 if pair.fit is None else pair.fit.level
        progress("compare")
        line = pair.compare(level)
        if pair.fit is None and (conditions or out is not None):
            raise ValueError(
                "--fail-if and --out require the logs of three subjects or more, or a"
                " fit with --fit DIR"
            )
        verdicts = pair.judge(conditions, level)
        failures = gate.failures(verdicts)
        if out is not None:
            progress("write")
            _write_page(out, pair, line, {"texts": None if reading.texts else {}})
        gate.write(verdicts, failures)
    if output.json:
        head = {"first": first, "second": second, "level": level, "sentence": line}
        head |= {} if out is None else {"out": str(out)}
        outcome = gates.document(verdicts, failures) if verdicts else {}
        print_json(head | pair.result._asdict() | outcome)
    elif not output.quiet:
        from irtjax.cli.screen import show_text

        sentences = pair.sentences(level) if output.verbose else ()
        show_text(line)
        say(*sentences, *gates.passed_sentences(verdicts, failures))
        say(*([] if out is None else [written(out, ["report.html"])]))
    gates.end(failures)


@dataclasses.dataclass
class _Pair:
    """Two subjects with what is known of them: a fit, responses, or both."""

    first: str
    second: str
    fit: Calibration | None
    table: ResponseTable | None
    result: Any = None
    run_sd: float = 0.0

    def count_runs(self, run_sd: float) -> None:
        """Makes errors count a standard deviation from run to run, in points."""
        from irtjax.calibration.runs import with_run_sd

        self.run_sd = run_sd
        self.fit = None if self.fit is None else with_run_sd(self.fit, run_sd)

    def compare(self, level: float) -> str:
        """Compares the two; returns the line."""
        from irtjax.ranking.comparison import comparison_line

        names = self.first, self.second
        options: dict[str, Any] = {"level": level}
        if self.fit is not None:
            from irtjax.calibration.compare import compare

            self.result = compare(self.fit, *names, data=self.table, level=level)
        else:
            from irtjax.calibration.compare import compare_responses

            assert self.table is not None
            settings = {"level": level, "run_sd": self.run_sd}
            paired = compare_responses(self.table, *names, **settings)
            self.result, options["items"] = paired
            options["unit"] = self.table.nouns[1]
        return comparison_line(*names, self.result, **options)

    def judge(self, conditions: list[Any], level: float) -> list[Any]:
        """The outcomes of the conditions."""
        from irtjax.calibration.conditions import judge

        options: dict[str, Any] = {"data": self.table, "level": level}
        return [judge(x, self.fit, **options) for x in conditions if self.fit]

    def sentences(self, level: float) -> list[str]:
        """The comparison in words."""
        if self.fit is None:
            return []
        from irtjax.calibration.runs import ONE_RUN
        from irtjax.calibration.scale import compares_means
        from irtjax.cli.errors import as_options
        from irtjax.report.summary import direction_sentences

        means = compares_means(self.fit)
        lines = _sentences(self.first, self.second, self.result, level, means)
        if ONE_RUN in self.fit.notes:
            text = as_options(ONE_RUN)
            lines.append(f"{text[0].upper()}{text[1:]}.")
        return lines + direction_sentences(self.fit)


def _pair(
    first: str,
    second: str,
    folder: Path | None,
    files: list[str],
    reading: opt.Reading,
    progress: ProgressLine,
) -> _Pair:
    """The two with their fit and responses; logs of several subjects are fitted."""
    from irtjax.data.matching import find_names

    if folder is not None:
        progress("load")
        fit = load_fit(folder)
        table = responses_of(fit, folder, files, reading)
        places = find_names(fit.subject_names, [first, second], "subject")
        first, second = fit.subject_names[places].tolist()
        return _Pair(first, second, fit, table)
    began = time.perf_counter()
    progress("read")
    table = reading.read(files)
    places = find_names(table.subjects, [first, second], "subject")
    first, second = table.subjects[places].tolist()
    fit = None
    if table.num_subjects >= FEWEST:
        seconds = time.perf_counter() - began
        try:
            fit = calibrate(table, Job(), reading, progress, seconds)
        except ValueError:
            pass  # Data without a model have the paired test.
    return _Pair(first, second, fit, table)


#: Of a fit whose subjects do not determine the scale: see `calibration.scale`.
_BY_MEANS = (
    "The subjects of this fit do not determine slopes and the scale of ability: the two"
    " are compared by mean responses, as by the paired test."
)


def _write_page(out: Path, pair: _Pair, line: str, options: dict[str, Any]) -> None:
    """Writes the page of the fit that begins with the two."""
    from irtjax.report.page import PAGE, report_page, write_page

    assert pair.fit is not None
    options |= {"pair": (pair.first, pair.second), "sentences": [line]}
    page = report_page(pair.fit, data=pair.table, command=command_line(), **options)
    write_files({out / PAGE: lambda place: write_page(place, page)})


def _sentences(
    first: str, second: str, result: Comparison, level: float, means: bool = False
) -> list[str]:
    """The comparison in words; `means`: whether abilities are mean responses."""
    from irtjax.data.wording import counted, percent
    from irtjax.report.words import interval, number

    lines = [
        f"Ability of {first} less that of {second}: {number(result.difference)},"
        f" {percent(level)} interval {interval(result.lower, result.upper)}, z ="
        f" {number(result.z)}, p = {result.p_value:.2g}; {first} is the better one with"
        f" probability {number(result.probability_greater, 3)}."
    ]
    lines += [_BY_MEANS] * means
    # The error that z implies: equal abilities are equal on every scale.
    own_error = abs(result.difference / result.z) if result.z else result.standard_error
    if result.standard_error > 1.01 * own_error:
        lines.append(
            "The interval includes the error of the scale of ability; z, p and the"
            " probability do not, because no order depends on the scale. So the"
            " interval can contain 0 where p is small."
        )
    if result.shared is not None:
        lines.append(
            f"On the {counted(result.shared, 'item')} that both answered {first} scored"
            f" {number(result.right_first, 0)} and {second}"
            f" {number(result.right_second, 0)}; {first} did better on"
            f" {result.only_first:,}, {second} on {result.only_second:,} (sign test:"
            f" p = {result.sign_p_value:.2g})."
        )
    if result.accuracy_difference is not None:
        over = (
            f"{result.clusters:,} {f'{result.unit}s' if result.by_cluster else 'items'}"
        )
        how = f"paired t test over {over}"
        if not result.accuracy_se:
            how = f"exact test: the difference is the same in all {over}"
        bounds = interval(result.accuracy_lower, result.accuracy_upper, 3)
        lines.append(
            f"Accuracy of {first} less that of {second} on these items:"
            f" {number(result.accuracy_difference, 3)}, {percent(level)} interval"
            f" {bounds}, p = {result.accuracy_p_value:.2g} ({how})."
        )
    return lines
