"""Gates of an evaluation: conditions that end `irtjax compare` with exit status 1."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from irtjax.cli.errors import as_options, one_line
from irtjax.cli.options import option
from irtjax.cli.output import check_file, write_files

if TYPE_CHECKING:
    from irtjax.calibration.conditions import Condition, Verdict

#: Exit status where a condition holds.
FAILED = 1
UNDECIDED = ("pass", "fail")


_option = functools.partial(option, panel="Gate")


@dataclasses.dataclass(frozen=True)
class Gate:
    """What fails: each field is an option."""

    fail_if: Annotated[
        list[str] | None,
        _option(
            "End with exit status 1 if this holds significantly, such as 'A < B' or"
            " 'P(A < B) > 0.9': A is the first subject and B the second; may be"
            " repeated.",
            metavar="CONDITION",
        ),
    ] = None
    undecided: Annotated[
        str,
        _option(
            "What an undecided condition does, one whose test is not significant: pass"
            " or fail."
        ),
    ] = "pass"
    junit: Annotated[
        Path | None,
        _option(
            "JUnit report to write, a test for each condition.", metavar="FILE.xml"
        ),
    ] = None

    def check(self) -> None:
        """Refuses options that do not suit each other, and a place that will not do."""
        if self.undecided not in UNDECIDED:
            raise ValueError(f"--undecided {self.undecided} is not pass or fail")
        if self.junit is None:
            return
        if not self.fail_if:
            raise ValueError("--junit requires --fail-if: it reports its conditions")
        if self.junit.suffix.lower() != ".xml":
            raise ValueError(f"--junit {self.junit}: the name must end in .xml")
        check_file("--junit", self.junit)

    def conditions(self, first: str, second: str, has_data: bool) -> list[Condition]:
        """Returns the conditions that were read; refuses those without their data."""
        from irtjax.calibration.conditions import parse_condition

        conditions = [
            parse_condition(text, first, second) for text in self.fail_if or ()
        ]
        for condition in conditions:
            if condition.needs_data and not has_data:
                raise ValueError(
                    f"--fail-if '{condition.text}': the difference of two accuracies is"
                    " paired by item: add the responses, as LOGS"
                )
        return conditions

    def failures(self, verdicts: Sequence[Verdict]) -> list[str | None]:
        """Returns a sentence for each condition that fails, None for others."""
        fails = {"holds", "undecided"} if self.undecided == "fail" else {"holds"}
        return [_sentence(x) if x.outcome in fails else None for x in verdicts]

    def write(self, verdicts: Sequence[Verdict], failed: Sequence[str | None]) -> None:
        """Writes the JUnit report, if one is requested."""
        if self.junit is not None:
            write_junit(self.junit, verdicts, failed)


def passed_sentences(
    verdicts: Sequence[Verdict], failed: Sequence[str | None]
) -> list[str]:
    """A sentence for each condition that passes."""
    return [
        _sentence(verdict)
        for verdict, failure in zip(verdicts, failed, strict=True)
        if failure is None
    ]


def _sentence(verdict: Verdict) -> str:
    """The outcome of a condition in one line."""
    from irtjax.data.wording import percent

    how = {
        "holds": f"holds (significant at the {percent(verdict.level)} level)",
        "does not hold": "does not hold",
        "undecided": f"is undecided (not significant at the {percent(verdict.level)}"
        " level)",
    }[verdict.outcome]
    if not verdict.tested:
        how = "is undecided"
    elif verdict.lower is None:  # A probability is not tested.
        how = verdict.outcome
    return one_line(f"--fail-if '{verdict.condition}' {how}: {verdict.reason}")


def document(
    verdicts: Sequence[Verdict], failed: Sequence[str | None]
) -> dict[str, Any]:
    """What `--json` prints of the conditions."""
    outcomes = [
        verdict._asdict() | {"failed": failure is not None}
        for verdict, failure in zip(verdicts, failed, strict=True)
    ]
    return {"conditions": outcomes, "failed": any(x["failed"] for x in outcomes)}


def write_junit(
    path: Path, verdicts: Sequence[Verdict], failed: Sequence[str | None]
) -> None:
    """Writes a JUnit report: a test for each condition, skipped where undecided."""
    from xml.etree import ElementTree as tree

    count = sum(failure is not None for failure in failed)
    skipped = sum(
        verdict.outcome == "undecided" and failure is None
        for verdict, failure in zip(verdicts, failed, strict=True)
    )
    numbers = {"tests": len(verdicts), "failures": count, "errors": 0}
    numbers |= {"skipped": skipped, "time": 0}
    head = {"name": "irtjax compare", **{k: str(v) for k, v in numbers.items()}}
    root = tree.Element("testsuites", head)
    suite = tree.SubElement(root, "testsuite", head)
    for verdict, failure in zip(verdicts, failed, strict=True):
        name = one_line(f"not {verdict.condition}")
        names = {"classname": "irtjax.compare", "name": name, "time": "0"}
        case = tree.SubElement(suite, "testcase", names)
        sentence = _sentence(verdict)
        if failure is not None:
            element = tree.SubElement(
                case, "failure", message=sentence, type="condition"
            )
            element.text = sentence
        elif verdict.outcome == "undecided":
            tree.SubElement(case, "skipped", message=sentence)
        else:
            tree.SubElement(case, "system-out").text = sentence
    content = tree.ElementTree(root)
    tree.indent(content)
    save = lambda place: content.write(place, "utf-8", xml_declaration=True)
    write_files({path: save})


def end(failed: Sequence[str | None]) -> None:
    """Ends the command with exit status 1 and the sentences, if a condition fails."""
    import typer

    sentences = [failure for failure in failed if failure is not None]
    for sentence in sentences:
        sys.stderr.write(f"irtjax: {as_options(sentence)}\n")
    if sentences:
        sys.stdout.flush()
        raise typer.Exit(FAILED)
