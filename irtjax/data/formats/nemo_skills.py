"""Outputs of NeMo-Skills: ``MODEL/eval-results/BENCHMARK/output-rs0.jsonl``.

A line is a problem with the answer and its verdicts. A file has no name of the model:
that is the folder above ``eval-results``. Files ``-rs0``, ``-rs1`` are repeats with
other random seeds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from irtjax.data.decode import Record, json_values
from irtjax.data.decode import decode as decode_record
from irtjax.data.files import folders_of
from irtjax.data.item_texts import text_of
from irtjax.data.reading.described import Described
from irtjax.data.reading.identity import ItemKey, copies
from irtjax.data.reading.logs import digest, variants
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.wording import several

_USUAL = "symbolic_correct", "judge_correct", "is_correct", "accuracy", "prompt_strict"
_SEED = re.compile(r"-rs(\d+)")
_NAMED = re.compile(r"output(-rs\d+|-greedy)?(_chunk_\d+)?\.jsonl(\.gz)?$")
_RESULTS = re.compile(r"eval-results(-\w+)?$")
_VERDICT = re.compile(r"Judgement:\s*\W*(yes|no)", re.IGNORECASE)
_Verdict = bool | float | None


class _Instructions(Record):
    follow_all_instructions: _Verdict = None


class _Line(Record):
    cure: ClassVar[str] = "give the file as NeMo-Skills wrote it, or leave it out"

    generation: Any = None
    problem: Any = None
    question: Any = None
    expected_answer: Any = None
    predicted_answer: Any = None
    id: Any = None
    problem_id: Any = None
    task_id: Any = None
    question_id: Any = None
    symbolic_correct: _Verdict = None
    is_correct: _Verdict = None
    judgement: str | None = None
    graded_list: list[_Verdict] | None = None
    strict_eval: _Instructions | None = None
    num_generated_tokens: float | None = None

    def name(self, number: int) -> str:
        """The id of the problem, or its number in the file."""
        ids = self.id, self.problem_id, self.task_id, self.question_id
        return text_of(next((x for x in ids if x is not None), number))

    def text(self) -> str:
        """What the model was asked."""
        text = self.problem if self.problem is not None else self.question
        return "" if text is None else text_of(text)

    def verdicts(self) -> dict[str, _Verdict]:
        """Verdicts by the name of the metric."""
        verdicts: dict[str, _Verdict] = {
            "symbolic_correct": self.symbolic_correct,
            "is_correct": self.is_correct,
        }
        if self.judgement is not None:
            # The harness counts a judgement of another form as "no".
            verdict = _VERDICT.findall(self.judgement)
            verdicts["judge_correct"] = bool(verdict) and verdict[-1].lower() == "yes"
        if self.graded_list:
            verdicts["accuracy"] = self.graded_list[0]
        if self.strict_eval is not None:
            verdicts["prompt_strict"] = self.strict_eval.follow_all_instructions
        return {name: x for name, x in verdicts.items() if x is not None}


def recognise(fields: dict[str, Any], name: str) -> bool:
    """Whether a first record is an answer with a verdict."""
    names = fields.keys()
    if "generation" not in names:
        return False
    if {"symbolic_correct", "predicted_answer"} <= names or "strict_eval" in names:
        return True
    others = {"is_correct", "judgement", "graded_list"}
    return bool(names & others) and _NAMED.match(name) is not None


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file has the name and the place of outputs."""
    return bool(_NAMED.match(path.name)) and _place(path)[1] != ""


def _place(path: Path) -> tuple[str, str]:
    """The model and the benchmark by the folders; "" without ``eval-results``."""
    folders = list(folders_of(path))
    for k in range(len(folders) - 1, 0, -1):
        if _RESULTS.match(folders[k]):
            return folders[k - 1], "/".join(folders[k + 1 :])
    return "", ""


def _places(paths: Sequence[Path]) -> list[tuple[str, str]]:
    """The model and the benchmark of each file.

    Without ``eval-results`` the folder of a file is the model, or the one above it
    where all files are in folders of one name, that of the benchmark.
    """
    folders = [folders_of(path)[-2:] for path in paths]
    above = len({x[-1] for x in folders}) == 1 < len({tuple(x) for x in folders})
    places = []
    for path, names in zip(paths, folders, strict=True):
        model, benchmark = _place(path)
        if not model:
            model, benchmark = names if above and len(names) > 1 else (names[-1], "")
        places.append((model, benchmark))
    return places


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads outputs; models and benchmarks are folders, seeds repeats."""
    builder = RecordBuilder()
    builder.described = described = Described(wanted=options.texts)
    files = list(paths)
    places = _places(files)
    ways = ["greedy" if "-greedy" in path.name else "sampled" for path in files]
    models, benchmarks = [x for x, _ in places], [x for _, x in places]
    filters = variants(models, benchmarks, ways)
    for path, (model, benchmark), way in zip(paths, places, filters, strict=True):
        builder.begin(path)
        seed = _SEED.search(path.name)
        lines = [
            decode_record(value, _Line, place) for place, value in json_values(path)
        ]
        names = [line.name(k) for k, line in enumerate(lines)]
        contents = [digest(x.text()) if x.text() else "" for x in lines]
        copy = copies(zip(names, contents, strict=True))
        for line, name, content in zip(lines, names, contents, strict=True):
            place = benchmark, name, content
            if described.needs(place):
                expected = line.expected_answer
                answer = "" if expected is None else text_of(expected)
                described.text(place, line.text(), answer)
            for metric, verdict in line.verdicts().items():
                builder.add(
                    subject=options.subject_name or model,
                    item=ItemKey(benchmark, name, content, copy[name]),
                    response=None if verdict is None else float(verdict),
                    benchmark=benchmark,
                    metric=metric,
                    filter=way,
                    trial=int(seed.group(1)) if seed else 0,
                    length=line.num_generated_tokens,
                    answer=line.predicted_answer,
                )
    if len(builder) == 0:
        raise ValueError(
            f"{several(paths)}: no line has a verdict (symbolic_correct, judgement,"
            " is_correct): evaluate the outputs with NeMo-Skills first"
        )
    records = builder.finish(files, options.join)
    records.usual_metrics, records.first_filter = _USUAL, True
    return records
