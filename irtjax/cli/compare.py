"""`irtjax compare`: is one subject better than another?"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtjax.cli import config, gates
from irtjax.cli import options as opt
from irtjax.cli.output import (
    check_out_folder,
    command_line,
    print_json,
    say,
    write_files,
    written,
)
from irtjax.cli.pipeline import load_fit, responses_of
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.ranking import Comparison

_NAME = typer.Argument(help="Name of a subject.", show_default=False)


@opt.with_reading
@functools.partial(opt.with_fields, name="gate", kind=gates.Gate, last=True)
def compare_command(
    first: Annotated[str, _NAME],
    second: Annotated[str, _NAME],
    fit: opt.FitFolder,
    gate: gates.Gate,
    reading: opt.Reading,
    data: Annotated[
        list[str] | None,
        opt.option(
            "The responses, where the fit does not keep them: adds what the two did on"
            " the items both answered, and the paired test of accuracies.",
            metavar="FILE",
        ),
    ] = None,
    level: opt.SomeLevel = None,
    out: Annotated[
        Path | None,
        opt.out("DIR", "Folder for report.html, the page that begins with the two."),
    ] = None,
    quiet: opt.Quiet = False,
    json: opt.Json = False,
) -> None:
    """Compares two subjects of a fit: difference, interval, p-value; a gate for CI."""
    from irtjax.data.fit_folder import RESPONSES

    opt.check_level(level)
    check_out_folder(out, ["report.html"], "compare")
    gate.check()
    # A saved fit may have texts, which --no-texts leaves out of the page too.
    for name in {*config.typed(reading.chosen())} - {"texts"} if not data else ():
        raise ValueError(f"--{name.replace('_', '-')} requires --data")
    # A mistake in a condition is found before anything is loaded.
    has_data = bool(data) or (fit / RESPONSES).is_file()
    conditions = gate.conditions(first, second, has_data)
    with ProgressLine(quiet) as progress:
        progress("load")
        calibration = load_fit(fit)
        from irtjax.calibration.conditions import judge
        from irtjax.calibration.rank import compare
        from irtjax.calibration.scale import compares_means
        from irtjax.report.summary import direction_sentences

        chosen = calibration.level if level is None else level
        table = responses_of(calibration, fit, data, reading)
        progress("compare")
        result = compare(calibration, first, second, data=table, level=chosen)
        verdicts = [judge(x, calibration, data=table, level=level) for x in conditions]
        failures = gate.failures(verdicts)
        means = compares_means(calibration)
        sentences = _sentences(first, second, result, chosen, means)
        sentences += direction_sentences(calibration)
        if out is not None:
            progress("write")
            spoken = [x for x in sentences if x != _NO_RESPONSES]
            more = {"texts": None if reading.texts else {}, "sentences": spoken}
            _write_page(out, calibration, (first, second), table, more)
        gate.write(verdicts, failures)
    if json:
        head = {"first": first, "second": second, "level": chosen}
        head |= {} if out is None else {"out": str(out)}
        found = gates.document(verdicts, failures) if verdicts else {}
        print_json(head | result._asdict() | found)
    elif not quiet:
        say(*sentences, *gates.passed_sentences(verdicts, failures))
        say(*([] if out is None else [written(out, ["report.html"])]))
    gates.end(failures)


#: Of a fit whose subjects do not determine the scale: see `calibration.scale`.
_BY_MEANS = (
    "The subjects of this fit do not determine slopes and the scale of ability: the two"
    " are compared by mean responses, as by the paired test."
)
#: What is missing without the responses.
_NO_RESPONSES = "The paired test of accuracies needs the responses: add --data FILE."


def _write_page(
    out: Path, fit, pair: tuple[str, str], table, more: dict[str, Any]
) -> None:
    """Writes the page of the fit that begins with the two."""
    from irtjax.report.page import PAGE, report_page, write_page

    page = report_page(fit, data=table, pair=pair, command=command_line(), **more)
    write_files({out / PAGE: lambda place: write_page(place, page)})


def _sentences(
    first: str, second: str, result: Comparison, level: float, means: bool = False
) -> list[str]:
    """The comparison in words; `means`: whether abilities are mean responses."""
    from irtjax.data.wording import counted, percent
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
    lines += [_BY_MEANS] * means
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
            f"On the {counted(result.shared, 'item')} that both answered {first} scored"
            f" {number(result.right_first, 0)} and {second}"
            f" {number(result.right_second, 0)}; {first} did better on"
            f" {result.only_first:,}, {second} on {result.only_second:,} (sign test:"
            f" p = {result.sign_p_value:.2g})."
        )
    else:
        lines.append(_NO_RESPONSES)
    if result.accuracy_difference is not None:
        ahead, behind = first, second
        bounds = result.accuracy_lower or 0.0, result.accuracy_upper or 0.0
        if result.accuracy_difference < 0:
            ahead, behind = second, first
            bounds = -bounds[1], -bounds[0]
        over = f"{result.clusters:,} {'benchmarks' if result.by_benchmark else 'items'}"
        how = f"paired t test over {over}"
        if not result.accuracy_se:
            how = f"exact test: the difference is the same in all {over}"
        lines.append(
            f"Accuracy of {ahead} less that of {behind} on these items:"
            f" {number(abs(result.accuracy_difference), 3)}, {percent(level)} interval"
            f" {interval(*bounds, 3)}, p = {result.accuracy_p_value:.2g} ({how})."
        )
    return lines
