"""Results of EvalPlus and BigCodeBench, ``*eval_results.json``.

A task has one entry per completion. Of EvalPlus (``MODEL_BACKEND_temp_T``), ``base``
are the tests of HumanEval or MBPP, ``plus`` those and EvalPlus's own. BigCodeBench
(``MODEL--REVISION--bigcodebench-SPLIT--BACKEND-T-N``) has one status.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from irtjax.data.decode import Record, repeated_keys
from irtjax.data.files import folders_of, read_bytes
from irtjax.data.reading.identity import ItemKey
from irtjax.data.reading.logs import load, variants
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.wording import listing, several

_ENDING = re.compile(r"[._]?eval_results\.json(\.gz)?$")
#: Back end, which the first releases do not name, and temperature; then what was asked
#: and what was made of the completions. Of an unknown back end the name is the model's.
_SAMPLING = re.compile(
    r"(_(vllm|hf|hf_gaudi|openai|ollama|anthropic|google|mistral|bedrock|gptqmodel))?"
    r"_temp_[\d.e-]*\d(-(instruct|perf-instruct|perf-CoT|contract-(code|docstring)))?"
    r"((\.raw)?-sanitized|\.raw)?$"
)
#: Revision, split and sampling in names of BigCodeBench.
_BIG = re.compile(
    r"(--main)?--bigcodebench(-hard)?-(instruct|complete)(--.*)?$", re.IGNORECASE
)
# "success" and "failed" are of the first releases.
_STATUS = {"pass": 1.0, "success": 1.0, "fail": 0.0, "failed": 0.0, "timeout": 0.0}


class _Completion(Record):
    base_status: str | None = ""
    plus_status: str | None = None
    status: str | None = ""  # Of BigCodeBench.

    def __post_init__(self) -> None:
        """Refuses a completion without a status."""
        if self.base_status == self.status == "":
            raise ValueError("Object missing required field `base_status`")

    def scores(self, tested: bool, place: str) -> dict[str, float | None]:
        """The score by metric; ``tested``: whether there were the tests of plus."""
        if self.status != "":
            return {"status": _score(self.status, place)}
        base, plus = _score(self.base_status, place), _score(self.plus_status, place)
        # It passes only with the tests of base, too.
        plus_score = {"plus": base if plus == 1.0 else plus} if tested else {}
        return {"base": base, **plus_score}


class _Task(Record):
    """A task of the first releases: by completion, a status and verdicts of tests."""

    base: list[list[Any]]
    plus: list[list[Any]] | None = None

    def completions(self) -> list[_Completion]:
        """The completions as later releases write them."""
        status = lambda entry: str(entry[0]) if entry else None
        plus = [status(entry) for entry in self.plus or ()]
        plus += [None] * (len(self.base) - len(plus))
        return [
            _Completion(base_status=status(entry), plus_status=other)
            for entry, other in zip(self.base, plus, strict=False)
        ]


class _File(Record):
    cure: ClassVar[str] = "give the file as EvalPlus wrote it, or leave it out"

    eval: dict[str, list[_Completion] | _Task]

    def completions(self) -> dict[str, list[_Completion]]:
        """The completions of each task."""
        return {
            task: entry.completions() if isinstance(entry, _Task) else entry
            for task, entry in self.eval.items()
        }


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """Whether a file maps tasks to evaluated completions; the reason for totals."""
    if {"pass@1", "gt_pass_rate"} <= fields.keys():
        return (
            "holds the totals of BigCodeBench; give the *_eval_results.json next to it"
        )
    is_named = _ENDING.search(name) is not None
    return "eval" in fields and (is_named or "pass_at_k" in fields or "hash" in fields)


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file has the name of such a file."""
    return _ENDING.search(path.name) is not None


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads results; completions of a task are repeats."""
    files, subjects, labels = [], [], []
    for path in paths:
        files.append(load(path, _File).completions())
        stem = _stem(path)
        sampling = _SAMPLING.search(stem) or _BIG.search(stem)
        subjects.append(options.subject_name or _model(stem))
        labels.append(sampling.group().strip("_-") if sampling else stem)
    benchmarks = [_benchmark(next(iter(file), "")) for file in files]
    filters = variants(subjects, benchmarks, labels)
    builder = RecordBuilder()
    for path in paths:
        builder.notes += repeated_keys(read_bytes(path), str(path))
    base_only = []
    for path, file, subject, filter_name in zip(
        paths, files, subjects, filters, strict=True
    ):
        every = [completion for done in file.values() for completion in done]
        tested = any(x.plus_status is not None for x in every)
        if not tested and any(x.status == "" for x in every):
            base_only.append(subject)
        for task, completions in file.items():
            for trial, completion in enumerate(completions):
                place = f"{path}: task {task!r}"
                for metric, score in completion.scores(tested, place).items():
                    builder.add(
                        subject=subject,
                        item=ItemKey(_benchmark(task), task.rpartition("/")[2]),
                        response=score,
                        benchmark=_benchmark(task),
                        metric=metric,
                        filter=filter_name,
                        trial=trial,
                    )
    if len(builder) == 0:
        raise ValueError(f"{several(paths)}: no task has completions")
    if base_only:
        builder.note(
            "plus",
            f"{listing(base_only)} ran with --base-only and has no 'plus' scores"
            " (metric='base' reads it)",
        )
    records = builder.finish(paths, options.join)
    records.usual_metrics = ("plus", "base", "status")
    return records


def subject_of(path: Path) -> str:
    """The model of a file, by its name or its folder's."""
    return _model(_stem(path))


def _stem(path: Path) -> str:
    """The name of a file, or of its folder, with model and sampling."""
    return _ENDING.sub("", path.name) or folders_of(path)[-1]


def _model(stem: str) -> str:
    """The model that a file's name states."""
    return _BIG.sub("", _SAMPLING.sub("", stem)).replace("--", "/", 1)


def _benchmark(task: str) -> str:
    """The benchmark that the name of a task states."""
    return task.rpartition("/")[0] or "evalplus"


def _score(status: str | None, place: str) -> float | None:
    """1 for a pass, 0 for a failure, None where nothing is known."""
    if status is None:
        return None
    if status not in _STATUS:
        raise ValueError(
            f"{place} has the status {status[:40]!r}; known are pass, fail, timeout"
        )
    return _STATUS[status]
