"""Results of LiveCodeBench: ``output/MODEL/SCENARIO_N_TEMPERATURE_eval_all.json``.

Also the files of its web site, with one ``pass@1`` in percent per model and question;
of the execution of code one per sample, with and without chain of thought.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from irtjax.data.decode import Record, decode_lines
from irtjax.data.files import folders_of, read_head
from irtjax.data.reading.described import Described
from irtjax.data.reading.identity import ItemKey
from irtjax.data.reading.logs import is_list, load, variants
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.record_files import table_rows
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.wording import several

_SCENARIOS = "codegeneration", "selfrepair", "testoutputprediction", "codeexecution"
#: The metric of files of the web site.
_SITE = "pass@1"
_NAME = re.compile(
    rf"(?:(?P<model>.+)_)?(?:Scenario\.)?(?P<scenario>{'|'.join(_SCENARIOS)})"
    r"(?:_(?P<sampling>\d+_[\d.]+))?(?:_output)?_eval_all\.json(\.gz)?$"
)


class _Question(Record):
    cure: ClassVar[str] = "give the file as LiveCodeBench wrote it, or leave it out"

    graded_list: list[bool | float | None]
    question_id: str | int | None = None
    test_id: str | int | None = None  # Of the prediction of outputs.
    id: str | int | None = None  # Of the execution of code.
    question_content: str | None = None

    def name(self, number: int) -> str:
        """A name that no other record of the file has."""
        if self.id is not None:
            return str(self.id)
        parts = [x for x in (self.question_id, self.test_id) if x is not None]
        return "/".join(map(str, parts)) or str(number)


class _Performance(Record):
    cure: ClassVar[str] = "give the file as LiveCodeBench wrote it, or leave it out"

    model: str
    question_id: str | int
    sample_id: str | int | None = None  # Of the execution of code.
    score: float | None = msgspec.field(name="pass@1", default=None)
    of_sample: float | None = msgspec.field(name="Pass@1", default=None)
    with_thought: float | None = msgspec.field(name="Pass@1-COT", default=None)

    def scores(self) -> dict[str, float | None]:
        """The score of each metric that the file may have."""
        score = self.score if self.of_sample is None else self.of_sample
        scores: dict[str, float | None] = {_SITE: score}
        if self.with_thought is not None:
            scores[f"{_SITE}-COT"] = self.with_thought
        return scores


class _Site(Record):
    cure: ClassVar[str] = "give the file as LiveCodeBench wrote it, or leave it out"

    performances: list[_Performance]


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """Whether a file has graded questions; the reason where it lacks grades."""
    if "graded_list" in fields or {"performances", "models"} <= fields.keys():
        return True
    if {"pass@1", "detail"} <= fields.keys():
        return "holds the totals of LiveCodeBench; give the *_eval_all.json next to it"
    if {"question_id", "output_list"} <= fields.keys():
        return (
            "holds answers of LiveCodeBench without grades; evaluate them (--evaluate)"
            " and give the file *_eval_all.json"
        )
    return False


def recognise_header(names: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether a CSV file is of the execution of code, with a row for each sample."""
    return {"model", "question_id", "sample_id", "Pass@1"} <= {*names}


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file has the name of one with grades."""
    return path.name.endswith(("_eval_all.json", "_eval_all.json.gz"))


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads graded questions; the answers to a question are repeats."""
    builder = RecordBuilder()
    builder.described = described = Described(wanted=options.texts)
    names = [_NAME.match(path.name) for path in paths]
    scenarios = [n.group("scenario") if n else "livecodebench" for n in names]
    subjects = [options.subject_name or subject_of(path) or "" for path in paths]
    sampling = [(n.group("sampling") or "") if n else "" for n in names]
    filters = variants(subjects, scenarios, sampling)
    for path, subject, scenario, filter_name in zip(
        paths, subjects, scenarios, filters, strict=True
    ):
        builder.begin(path)
        if not is_list(path):
            _add_site(_site(path), builder)
            continue
        for number, question in enumerate(decode_lines(path, _Question)):
            place = scenario, question.name(number), ""
            if question.question_content and described.needs(place):
                described.text(place, question.question_content, "")
            for trial, grade in enumerate(question.graded_list):
                builder.add(
                    subject=subject,
                    item=ItemKey(scenario, question.name(number)),
                    response=None if grade is None else float(grade),
                    benchmark=scenario,
                    filter=filter_name,
                    trial=trial,
                )
    if len(builder) == 0:
        raise ValueError(f"{several(paths)}: no question has grades")
    records = builder.finish(paths, options.join)
    records.usual_metrics = (_SITE,)
    return records


def subject_of(path: Path) -> str | None:
    """The model of a file, by its name or folder; None for the file of the web site."""
    if not is_list(path):
        return None
    match = _NAME.match(path.name)
    return (match and match.group("model")) or folders_of(path)[-1]


def _site(path: Path) -> _Site:
    """The file of the web site, or the table that people make of it."""
    if read_head(path).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        return load(path, _Site)
    header, rows = table_rows(path)
    performances = []
    for place, cells in rows:
        row = dict(zip(header, (cell or None for cell in cells), strict=True))
        try:
            performances.append(msgspec.convert(row, _Performance, strict=False))
        except msgspec.ValidationError as error:
            raise ValueError(f"{place}: {error}; correct the cell") from None
    return _Site(performances=performances)


def _add_site(site: _Site, builder: RecordBuilder) -> None:
    """Adds the records of the web site's file."""
    for record in site.performances:
        sample = record.sample_id
        name = record.question_id if sample is None else sample
        for metric, score in record.scores().items():
            builder.add(
                subject=record.model,
                item=ItemKey("livecodebench", str(name)),
                response=score,
                benchmark="livecodebench",
                metric=metric,
            )
