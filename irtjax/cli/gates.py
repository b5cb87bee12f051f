"""Gates of an evaluation: conditions that end `irtjax compare` with exit status 1."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtjax.cli.errors import as_options, one_line
from irtjax.cli.output import write_files

if TYPE_CHECKING:
    from irtjax.calibration.conditions import Verdict

#: Exit status where a condition holds.
FAILED = 1
UNDECIDED = ("pass", "fail")


def check(conditions: list[str] | None, undecided: str, junit: Path | None) -> None:
    """Refuses options of gates that do not suit each other."""
    if undecided not in UNDECIDED:
        raise ValueError(f"--undecided {undecided} is not pass or fail")
    if junit is None:
        return
    if not conditions:
        raise ValueError("--junit requires --fail-if: it reports its conditions")
    if junit.suffix.lower() != ".xml":
        raise ValueError(f"--junit {junit}: the name must end in .xml")
    if junit.is_dir():
        raise ValueError(f"--junit {junit} is a folder: name a file")


def failures(verdicts: Sequence[Verdict], undecided: str) -> list[str | None]:
    """A sentence for each condition that fails, None for one that passes."""
    fails = {"holds", "undecided"} if undecided == "fail" else {"holds"}
    return [_sentence(x) if x.outcome in fails else None for x in verdicts]


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
        "undecided": "cannot be told (not significant at the"
        f" {percent(verdict.level)} level)",
    }[verdict.outcome]
    if verdict.p_value is None and verdict.lower is None:
        how = verdict.outcome.replace("undecided", "cannot be told")
    return one_line(f"--fail-if '{verdict.condition}' {how}: {verdict.reason}")


def documents(
    verdicts: Sequence[Verdict], failed: Sequence[str | None]
) -> dict[str, Any]:
    """What `--json` prints of the conditions."""
    found = [
        verdict._asdict() | {"failed": failure is not None}
        for verdict, failure in zip(verdicts, failed, strict=True)
    ]
    return {"conditions": found, "failed": any(x["failed"] for x in found)}


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
            found = tree.SubElement(case, "failure", message=sentence, type="condition")
            found.text = sentence
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

    found = [failure for failure in failed if failure is not None]
    for sentence in found:
        sys.stderr.write(f"irtjax: {as_options(sentence)}\n")
    if found:
        sys.stdout.flush()
        raise typer.Exit(FAILED)
