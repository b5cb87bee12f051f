"""`irtjax run`: fit, audit and shrink in one command, with one summary."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from irtjax.cli import audit as auditing
from irtjax.cli import options as opt
from irtjax.cli import pipeline
from irtjax.cli import shrink as shrinking
from irtjax.cli.errors import explain, one_line
from irtjax.cli.imports import own_or_name
from irtjax.cli.output import (
    check_out_folder,
    command_line,
    print_json,
    remove_files,
    write_files,
)
from irtjax.cli.progress import ProgressLine

if TYPE_CHECKING:
    from irtjax.auditing import Audit, ItemsToRead
    from irtjax.calibration.calibration import Calibration
    from irtjax.calibration.rank import RankedSubjects
    from irtjax.data import ResponseTable
    from irtjax.subsets.subset import Shrunken

#: Parts of the folder, in the order in which they are made.
FIT, AUDIT, SUBSET = "fit", "audit", "subset"
#: What happened to each part, and the summary that is printed.
RECORD, SUMMARY, PAGE = "run.json", "summary.md", "report.html"
RECORD_FORMAT = "irtjax.run"
#: The file of each part to read first.
FILES = {FIT: PAGE, AUDIT: "audit/summary.md", SUBSET: "subset/subset.csv"}
#: Items of the subset, but never more than half of the items.
ITEMS = 50
#: Exit status where a part could not be made.
INCOMPLETE = 1
DONE, MISSING = "done", "not made"
_SUBSET_FILES = (*shrinking.SUBSET_FILES, *shrinking.ERROR_FILES, PAGE)
_AUDIT_FILES = (
    *(*auditing.FILES, *auditing.FIGURES, *auditing.FLAGGED, *auditing.CLEAN),
    auditing.CONTROL,
)
#: Names of items shown for each defect.
SHOWN = 3


@dataclasses.dataclass
class Results:
    """What was made, and of each part "done" or why it is missing."""

    out: Path
    fit: Calibration
    ranked: RankedSubjects
    figures: bool = False
    audit: Audit | None = None
    to_read: ItemsToRead | None = None
    subset: Shrunken | None = None
    parts: dict[str, str] = dataclasses.field(default_factory=dict)
    failed: list[str] = dataclasses.field(default_factory=list)

    def record(self) -> None:
        """Writes what has become of each part so far."""
        write_files({self.out / RECORD: _record(self.fit.data_hash, self.parts)})


def _record(data_hash: str, parts: dict[str, str]) -> Callable[[Path], None]:
    """What writes the record of each part into a file."""
    from irtjax._version import package_version
    from irtjax.data.writing import write_text

    content = {
        "format": RECORD_FORMAT,
        "irtjax": package_version(),
        "data_hash": data_hash,
        "parts": parts,
    }
    text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
    return functools.partial(write_text, text)


@dataclasses.dataclass(frozen=True)
class RunModel:
    """Model and method: each field is an option."""

    model: Annotated[
        str, opt.option("Model to fit: auto or a name.", "--model", "-m")
    ] = "auto"
    method: Annotated[str, opt.option("Method of the fit: auto or a name.")] = "auto"


@dataclasses.dataclass(frozen=True)
class RunDependence:
    """Groups and runs that errors count: each field is an option."""

    family: Annotated[
        str | None,
        opt.option(
            "Families of subjects that errors count as related: a column of the files.",
            metavar="COLUMN",
        ),
    ] = None
    cluster: Annotated[
        str | None,
        opt.option(
            "Clusters of items that errors count as dependent: a column of the files.",
            metavar="COLUMN",
        ),
    ] = None
    run_sd: opt.RunSd = None

    @property
    def groups(self) -> dict[str, str]:
        """The columns of families and clusters that were given."""
        groups = {"family": self.family, "cluster": self.cluster}
        return {name: column for name, column in groups.items() if column is not None}

    @property
    def runs(self) -> dict[str, float]:
        """The setting of runs, if it was given."""
        return {} if self.run_sd is None else {"run_sd": self.run_sd}


@opt.with_options
def run_command(
    files: opt.Files,
    out: Annotated[Path, opt.out("DIR", "Folder to write.")],
    model: RunModel,
    scores: opt.ScoreRange,
    dependence: RunDependence,
    size: Annotated[
        int | None,
        opt.option(
            f"Items of the subset. \\[default: {ITEMS}, at most half of them]",
            min=1,
        ),
    ] = None,
    title: opt.Title = None,
    *,
    writing: opt.Writing,
    output: opt.LongOutput,
    reading: opt.Reading,
) -> None:
    """Fits, audits and shrinks: who is best, which items are bad, which few suffice."""
    from irtjax.data.coding import coded_as
    from irtjax.data.writing import reserved

    out = _check_folder(out.absolute(), writing.overwrite)
    job = pipeline.Job(
        own_or_name(model.model, "--model", every=True),
        own_or_name(model.method, "--method"),
        scores.setting() | dependence.runs,
        dependence.groups,
    )
    with ProgressLine(output.quiet) as progress, ExitStack() as until_the_end:
        reserve = lambda: until_the_end.enter_context(reserved(out))
        is_new = not out.is_dir()
        if not is_new:
            reserve()
        began = time.perf_counter()
        progress("read")
        table = reading.read(files)
        size = _size(size, table.num_items)
        seconds = time.perf_counter() - began
        fit = pipeline.calibrate(table, job, reading, progress, seconds)
        raw, table = table, coded_as(fit.options, table)
        if is_new:
            reserve()
            # Something may have come into it since.
            _check_folder(out, writing.overwrite)
        stored = raw if writing.keep_responses else None
        results = _fitted(out, fit, stored, writing.figures, progress)
        progress("audit")
        texts = {**fit.item_texts, **table.item_texts} if reading.texts else {}
        make = lambda: _audit(results, table, texts)
        _attempt(results, AUDIT, _no_audit(table, fit), make)
        _read_items(results, table)
        progress("subset")
        cannot = _no_subset(table, fit, size)
        _attempt(results, SUBSET, cannot, lambda: _shrink(results, table, size))
        progress("write")
        _write_page(results, table, title)
    if output.json:
        print_json(_document(results, list(table.notes)))
    elif not output.quiet:
        (_show_all if output.verbose else _show)(results)
    if results.failed:
        _end(results)


def _check_folder(out: Path, overwrite: bool) -> Path:
    """Refuses a folder that has something other than an earlier run."""
    from irtjax.storage import FIT_FILES, RUN_FILES, STRUCTURE_FILES

    check_out_folder(out, (*FIT_FILES, *STRUCTURE_FILES, *RUN_FILES), "run")
    if out.is_dir() and any(out.iterdir()) and not (overwrite or _is_run(out)):
        raise ValueError(
            f"{out} holds something other than an earlier run: choose another folder,"
            " or add --overwrite to write into it"
        )
    return out


def _is_run(folder: Path) -> bool:
    """Whether a folder is that of an earlier run."""
    try:
        content = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("format") == RECORD_FORMAT


def _size(size: int | None, count: int) -> int:
    """The number of items of the subset."""
    from irtjax.data.wording import counted

    if size is None:
        return min(ITEMS, count // 2)
    if size > count:
        raise ValueError(f"--size {size}: there are {counted(count, 'item')}")
    return size


def _fitted(
    out: Path,
    fit: Calibration,
    responses: ResponseTable | None,
    figures: bool,
    progress: ProgressLine,
) -> Results:
    """Writes the fit, which is complete before the next part begins."""
    parts = {FIT: DONE, AUDIT: MISSING, SUBSET: MISSING}
    # With the fit, so that it never stands next to an earlier audit that is "done".
    record = _record(fit.data_hash, parts)
    ranked = pipeline.write(
        fit,
        out,
        progress,
        overwrite=True,
        page=False,
        figures=figures,
        responses=responses,
        extras=[lambda place: record(place / RECORD)],
    )
    results = Results(out, fit, ranked, figures, parts=parts)
    # Those of an earlier run are not of these data.
    for part, names in ((AUDIT, _AUDIT_FILES), (SUBSET, _SUBSET_FILES)):
        remove_files(out / part, names)
    return results


def _attempt(
    results: Results, part: str, cannot: str, make: Callable[[], None]
) -> None:
    """Makes a part; without it the others stay, and the record has the reason."""
    if cannot:
        from irtjax.report.kept import LEFT_OUT

        results.parts[part] = f"{LEFT_OUT}{cannot}"
    else:
        try:
            make()
            results.parts[part] = DONE
        except (ValueError, OSError, MemoryError) as error:
            results.parts[part] = f"failed: {explain(error)}"
            results.failed.append(part)
    results.record()


def _no_audit(table: ResponseTable, fit: Calibration) -> str:
    """Why these responses have no audit, or nothing."""
    if table.num_subjects < 3 or table.num_items < 3:
        return "an audit needs at least 3 subjects and 3 items"
    of_scores = table.kind not in ("binary", "counts")
    one = of_scores or not fit.several_abilities
    return "" if one else "an audit needs a model of one ability"


def _no_subset(table: ResponseTable, fit: Calibration, size: int) -> str:
    """Why these responses have no subset, or nothing."""
    if table.num_subjects < 4 or size < 1:
        return "a subset needs at least 4 subjects and 2 items"
    if fit.several_abilities or fit.model.has_lengths:
        return "a subset needs a model of one ability, without response lengths"
    return ""


def _audit(results: Results, table: ResponseTable, texts: Any) -> None:
    """Audits the items and writes the audit."""
    from irtjax.auditing import audit

    results.audit = audit(results.fit, table)
    place = results.out / AUDIT
    auditing.write(place, results.audit, table, texts, results.figures, page=False)


def _read_items(results: Results, table: ResponseTable) -> None:
    """Writes the items to read, which need no audit."""
    from irtjax.auditing import items_to_read

    if results.audit is not None:
        results.to_read = results.audit.to_read
    else:
        # Too few subjects, say: the fit is whole without them.
        with contextlib.suppress(ValueError):
            results.to_read = items_to_read(results.fit, table)
    if results.to_read is not None:
        write_files({results.out / auditing.TO_READ: results.to_read.table})


def _shrink(results: Results, table: ResponseTable, size: int) -> None:
    """Chooses a small benchmark and writes it."""
    from irtjax.data.reversal import bounds_of_values
    from irtjax.subsets.shrink import shrink

    # Bad items are part of full scores, and are not what a new model should be given.
    avoid = None if results.audit is None else _avoided(results.audit)
    read = results.to_read
    if read is not None:
        avoid = {*(avoid or ()), *read.significant}
    fit = results.fit
    options = {"model": fit, "avoid": avoid and sorted(avoid)}
    if not (fit.model.family.num_categories or fit.options.get("worth")):
        bounds = bounds_of_values(table, fit.options.get("bounds"))
        # Densities of scores have no such predictor; shares of the same scores have.
        options |= {"model": "auto", "bounds": bounds}
    results.subset = shrink(table, size, **options)
    place = results.out / SUBSET
    shrinking.write(place, results.subset, None, table.notes, page=False)


def _sentences(results: Results, escape: Callable[[str], str]) -> list[str]:
    """The three answers, each in a paragraph, and where their evidence is."""
    from irtjax.report.summary import has_converged, subject_sentences

    best = subject_sentences(results.ranked, escape, has_converged(results.fit))
    missing = {}
    for part, text in results.parts.items():
        what, _, why = text.partition(": ")
        missing[part] = f"{what} ({why})."
    bad, few = missing[AUDIT], missing[SUBSET]
    if results.audit is not None:
        bad = _of_items(results.audit, escape)
    if results.subset is not None:
        few = " ".join(_of_subset(results, escape))
    return [
        f"Who is best: {' '.join(best)}",
        f"Bad items: {escape(bad) if results.audit is None else bad}",
        f"Fewer items: {escape(few) if results.subset is None else few}",
    ]


def _of_subset(results: Results, escape: Callable[[str], str]) -> list[str]:
    """What the subset is, and which of its items the audit flagged."""
    from irtjax.report.words import listing

    assert results.subset is not None
    sentences = shrinking.subset_sentences(results.subset)
    if results.audit is not None:
        spoilt = _spoilt(results.audit)
        bad = [x for x in results.subset.items.tolist() if x in spoilt]
        if bad:
            names = listing([escape(x) for x in bad[:SHOWN]])
            sentences.append(
                f"{len(bad):,} of the chosen items {'is' if len(bad) == 1 else 'are'}"
                f" flagged ({names}{', …' * (len(bad) > SHOWN)}): there are too few"
                " others."
            )
        elif spoilt:
            sentences.append(
                f"{len(spoilt):,} flagged item{'s are' if len(spoilt) > 1 else ' is'}"
                " not among the chosen items, but full scores count"
                f" {'them' if len(spoilt) > 1 else 'it'}."
            )
    return sentences


def _spoilt(audit: Audit) -> set[str]:
    """Items with a wrong key, no discrimination or contamination."""
    from irtjax.auditing.examine import SPOILT

    return {x for name in SPOILT for x in audit.flagged(name)}


def _avoided(audit: Audit) -> set[str]:
    """Items not to choose: all that are flagged, where these are few.

    With many subjects a small misfit of most items is significant.
    """
    spoilt = _spoilt(audit)
    flagged = spoilt | _flagged(audit)
    return flagged if 4 * len(flagged) <= audit.items.num_rows else spoilt


def _flagged(audit: Audit) -> set[str]:
    """Items with a significant defect."""
    from irtjax.auditing.examine import TESTED

    return {x for name in TESTED for x in audit.flagged(name)}


def _of_items(audit: Audit, escape: Callable[[str], str]) -> str:
    """How many items have which defect."""
    from irtjax.auditing.examine import TESTED
    from irtjax.data.wording import counted, have, percent
    from irtjax.report.audit import nearest_sentence
    from irtjax.report.words import listing

    items_of = {name: audit.flagged(name) for name in audit.counts()}
    flagged = _flagged(audit)
    rate = f"false discovery rate of each kind {percent(audit.false_discovery_rate)}"
    parts = [
        f"{name} {len(names):,} ({listing([escape(x) for x in names[:SHOWN]])}"
        f"{', …' * (len(names) > SHOWN)})"
        for name, names in items_of.items()
        if names and name in TESTED
    ]
    text = (
        f"{len(flagged):,} of {counted(audit.items.num_rows, 'item')}"
        f" {have(len(flagged))} a"
        " significant"
    )
    text += f" defect ({rate}){': ' * bool(parts)}{'; '.join(parts)}."
    near = nearest_sentence(audit, escape)
    text += f" {near}" * bool(near)
    seen = [
        f"{len(names):,} with {name}" if name == "no variation" else
        f"{len(names):,} {name}"
        for name, names in items_of.items()
        if names and name not in TESTED
    ]  # fmt: skip
    return text + (f" No faults, but of little use: {', '.join(seen)}." if seen else "")


def _warnings(results: Results) -> list[str]:
    """Warnings of all parts, each once."""
    warnings = [*results.fit.warnings]
    for part in (results.audit, results.subset):
        warnings += [] if part is None else part.warnings
    return list(dict.fromkeys(warnings))


def _places(results: Results) -> list[str]:
    """Where the parts are, and what to do with them."""
    out, made = results.out, results.parts
    names = {AUDIT: "summary.md, items.csv", SUBSET: "subset.csv"}
    written = [f"{part}/ ({names[part]})" for part in names if made[part] == DONE]
    files = [f"{PAGE} (open it in a browser)", SUMMARY, "leaderboard.md", *written]
    return [
        f"Written to {out}: {', '.join(files)}",
        f"Two of them: irtjax compare NAME NAME --fit {out}",
    ]


def _show(results: Results) -> None:
    """Prints the leaderboard and the verdict."""
    from irtjax.cli import screen

    parts = {"place": results.out / PAGE, "folder": screen.shown_path(results.out)}
    parts |= {"audit": results.audit, "more": {"Cheaper": _cheaper(results)}}
    parts["to_read"] = results.to_read
    screen.show_result(results.fit, results.ranked, **parts)


def _cheaper(results: Results) -> str:
    """What the small benchmark gives, and its file; or why there is none."""
    from irtjax.cli import screen
    from irtjax.report.kept import LEFT_OUT, cheaper

    if results.subset is None:
        return results.parts[SUBSET].removeprefix(LEFT_OUT)
    return cheaper(results.subset, screen.shown_path(results.out / SUBSET))


def _show_all(results: Results) -> None:
    """Prints ranking, verdicts, warnings and places of files."""
    from irtjax.cli import screen
    from irtjax.report.summary import fit_sentences
    from irtjax.report.words import visible

    screen.show_ranking(results.ranked, everything=False)
    screen.show_sentences(fit_sentences(results.fit))
    for sentence in _sentences(results, visible):
        screen.show_sentences(["", sentence])
    screen.show_sentences([""])
    screen.show_warnings(_warnings(results), results.fit.notes)
    screen.show_sentences(["", *_places(results)])


def _write_page(
    results: Results, table: ResponseTable, title: str | None = None
) -> None:
    """Writes the summary as Markdown, and all of it as one page."""
    from irtjax.report.leaderboard_page import points
    from irtjax.report.page import report_page, write_page
    from irtjax.report.summary import fit_sentences
    from irtjax.report.words import markdown, visible

    lines = ["# Summary", ""]
    for sentence in _sentences(results, markdown):
        head, _, text = sentence.partition(": ")
        lines += [f"## {head}", "", text, ""]
    lines += ["## Fit", "", " ".join(fit_sentences(results.fit, markdown)), ""]
    warnings = points(_warnings(results))
    lines += ["## Warnings", "", *warnings, ""] if warnings else []
    notes = points(results.fit.notes)
    lines += ["## Notes", "", *notes, ""] if notes else []
    lines += ["## Files", ""]
    lines += [
        f"- [{part}]({name})"
        for part, name in FILES.items()
        if results.parts[part] == DONE
    ]
    text = "\n".join(lines) + "\n"
    few = results.subset
    page = report_page(
        results.fit,
        ranked=results.ranked,
        data=table,
        audit=results.audit,
        to_read=results.to_read,
        items_first=False,
        few=few,
        few_sentences=[results.parts[SUBSET].partition(": ")[2]]
        if few is None
        else _of_subset(results, visible),
        command=command_line(),
        title=title,
        folder=results.out,
    )
    save = lambda place: place.write_text(text, encoding="utf-8")
    show = lambda place: write_page(place, page)
    write_files({results.out / SUMMARY: save, results.out / PAGE: show})


def _document(results: Results, notes: list[str]) -> dict[str, Any]:
    """What `--json` prints."""
    out, audit, subset = results.out, results.audit, results.subset
    made = None if audit is None else auditing.document(audit, out / AUDIT, notes)
    few = None
    if subset is not None:
        few = shrinking.document(subset, None, notes, out / SUBSET)
    return {
        "out": str(out),
        "parts": results.parts,
        "fit": pipeline.document(results.fit, results.ranked, out),
        "audit": made,
        "items_to_read": auditing.to_read_document(results.to_read),
        "subset": few,
    }


def _end(results: Results) -> None:
    """Ends with an exit status of its own, and why, where a part is missing."""
    import sys

    made = [part for part, text in results.parts.items() if text == DONE]
    reasons = [f"{part}: {results.parts[part]}" for part in results.failed]
    message = f"{'; '.join(reasons)}; {', '.join(made)} in {results.out} complete"
    sys.stderr.write(f"irtjax: {one_line(message)}\n")
    raise typer.Exit(INCOMPLETE)
