"""`irtjax compare`: is one subject better than another?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from irtjax.cli import gates
from irtjax.cli import options as opt
from irtjax.cli.output import (
    check_out_folder,
    command_line,
    print_json,
    say,
    write_files,
    written,
)
from irtjax.cli.pipeline import load_fit

if TYPE_CHECKING:
    from irtjax.ranking import Comparison

_NAME = typer.Argument(help="Name of a subject.", show_default=False)


def compare_command(
    first: Annotated[str, _NAME],
    second: Annotated[str, _NAME],
    fit: opt.FitFolder,
    data: Annotated[
        list[str] | None,
        opt.option(
            "The responses: adds what the two did on the items both answered, and the"
            " paired test of accuracies.",
            metavar="FILE",
        ),
    ] = None,
    level: opt.SomeLevel = None,
    out: Annotated[
        Path | None,
        opt.out("DIR", "Folder for report.html, the page that begins with the two."),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        opt.option(
            "End with exit status 1 if this holds significantly, such as 'A < B' or"
            " 'P(A < B) > 0.9': A is the first subject and B the second; may be"
            " repeated.",
            metavar="CONDITION",
            panel="Gate",
        ),
    ] = None,
    undecided: Annotated[
        str,
        opt.option(
            "What a condition does of which it is not known whether it holds: pass or"
            " fail.",
            panel="Gate",
        ),
    ] = "pass",
    junit: Annotated[
        Path | None,
        opt.option(
            "JUnit report to write, a test for each condition.",
            metavar="FILE.xml",
            panel="Gate",
        ),
    ] = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Compares two subjects of a fit: difference, interval, p-value; a gate for CI."""
    opt.check_level(level)
    check_out_folder(out, ["report.html"])
    gates.check(fail_if, undecided, junit)
    calibration = load_fit(fit)
    from irtjax.calibration.conditions import judge, parse_condition
    from irtjax.calibration.rank import compare
    from irtjax.data import read

    chosen = calibration.level if level is None else level
    # A mistake in a condition is found before anything is computed.
    conditions = [parse_condition(text, first, second) for text in fail_if or ()]
    for condition in conditions if not data else ():
        if condition.needs_data:
            raise ValueError(
                f"--fail-if '{condition.text}': the difference of two accuracies is"
                " paired by item: add the responses, --data FILE"
            )
    table = read(data) if data else None
    result = compare(calibration, first, second, data=table, level=chosen)
    asked = {"data": table, "level": level}
    verdicts = [judge(condition, calibration, **asked) for condition in conditions]
    failures = gates.failures(verdicts, undecided)
    sentences = _sentences(first, second, result, chosen)
    if out is not None:
        _write_page(out, calibration, (first, second), table, sentences)
    if junit is not None:
        gates.write_junit(junit, verdicts, failures)
    if json:
        head = {"first": first, "second": second, "level": chosen}
        head |= {} if out is None else {"out": str(out)}
        found = gates.documents(verdicts, failures) if fail_if else {}
        print_json(head | result._asdict() | found)
    elif not quiet:
        say(*sentences, *([] if out is None else [written(out, ["report.html"])]))
        say(*gates.passed_sentences(verdicts, failures))
    gates.end(failures)


def _write_page(out: Path, fit, pair: tuple[str, str], table, sentences) -> None:
    """Writes the page of the fit that begins with the two."""
    from irtjax.report.page import PAGE, report_page, write_page

    more = {"sentences": sentences, "command": command_line()}
    page = report_page(fit, data=table, pair=pair, **more)
    write_files({out / PAGE: lambda place: write_page(place, page)})


def _sentences(first: str, second: str, result: Comparison, level: float) -> list[str]:
    """The comparison in words."""
    from irtjax.data.wording import percent
    from irtjax.report.words import interval, number

    ahead, behind = (first, second) if result.difference >= 0 else (second, first)
    low, high = sorted(
        -bound if ahead == second else bound for bound in (result.lower, result.upper)
    )
    sure = result.p_value <= 1 - level
    chance = max(result.probability_greater, 1 - result.probability_greater)
    lines = [
        f"{ahead} is {'significantly ' if sure else ''}ahead of {behind}"
        f"{'' if sure else ', but they are statistically tied'}: difference of"
        f" abilities {number(abs(result.difference))}, {percent(level)} interval"
        f" {interval(low, high)}, z = {number(abs(result.z))},"
        f" p = {result.p_value:.2g}; it is the better one with probability"
        f" {number(chance, 3)}."
    ]
    # The error that z implies: equal abilities are equal on every scale.
    given = abs(result.difference / result.z) if result.z else result.standard_error
    if result.standard_error > 1.01 * given:
        lines.append(
            "The interval includes the error of the scale of ability; z, p and the"
            " probability do not, because no order depends on the scale. So the"
            " interval can contain 0 where p is small."
        )
    if result.shared is not None:
        lines.append(
            f"On the {result.shared:,} items that both answered {first} scored"
            f" {number(result.right_first, 0)} and {second}"
            f" {number(result.right_second, 0)}; {first} did better on"
            f" {result.only_first:,}, {second} on {result.only_second:,} (sign test:"
            f" p = {result.sign_p_value:.2g})."
        )
    else:
        lines.append(
            "The paired test of accuracies needs the responses: add --data FILE."
        )
    if result.accuracy_difference is not None:
        ahead, behind = first, second
        bounds = result.accuracy_lower or 0.0, result.accuracy_upper or 0.0
        if result.accuracy_difference < 0:
            ahead, behind = second, first
            bounds = -bounds[1], -bounds[0]
        over = "benchmarks" if result.by_benchmark else "items"
        lines.append(
            f"Accuracy of {ahead} less that of {behind} on these items:"
            f" {number(abs(result.accuracy_difference), 3)}, {percent(level)} interval"
            f" {interval(*bounds, 3)}, p = {result.accuracy_p_value:.2g} (paired t test"
            f" over {result.clusters:,} {over})."
        )
    return lines
