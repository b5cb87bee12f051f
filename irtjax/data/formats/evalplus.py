"""Results of EvalPlus, ``MODEL_BACKEND_temp_T.eval_results.json``.

A task has one entry per completion. ``base`` are the tests of HumanEval or MBPP,
``plus`` those and EvalPlus's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from irtjax.data.decode import Record
from irtjax.data.files import folders_of
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
# "success" and "failed" are of the first releases.
_STATUS = {"pass": 1.0, "success": 1.0, "fail": 0.0, "failed": 0.0, "timeout": 0.0}


class _Completion(Record):
    base_status: str | None
    plus_status: str | None = None


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
            task: found.completions() if isinstance(found, _Task) else found
            for task, found in self.eval.items()
        }


def recognise(fields: dict[str, Any], name: str) -> bool:
    """Whether a file maps tasks to evaluated completions."""
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
        sampling = _SAMPLING.search(stem)
        subjects.append(options.subject_name or _model(stem))
        labels.append(sampling.group().strip("_") if sampling else stem)
    benchmarks = [_benchmark(next(iter(file), "")) for file in files]
    filters = variants(subjects, benchmarks, labels)
    builder = RecordBuilder()
    base_only = []
    for path, file, subject, filter_name in zip(
        paths, files, subjects, filters, strict=True
    ):
        tested = any(c.plus_status is not None for done in file.values() for c in done)
        if not tested:
            base_only.append(subject)
        for task, completions in file.items():
            for trial, completion in enumerate(completions):
                place = f"{path}: task {task!r}"
                base = _score(completion.base_status, place)
                plus = _score(completion.plus_status, place)
                for metric, score in (("base", base), ("plus", plus)):
                    if metric == "plus" and not tested:
                        continue
                    if metric == "plus" and score == 1.0:
                        score = base  # It passes only with the tests of base, too.
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
    records.usual_metrics = ("plus", "base")
    return records


def subject_of(path: Path) -> str:
    """The model of a file, by its name or its folder's."""
    return _model(_stem(path))


def _stem(path: Path) -> str:
    """The name of a file, or of its folder, with model and sampling."""
    return _ENDING.sub("", path.name) or folders_of(path)[-1]


def _model(stem: str) -> str:
    """The model that a file's name states."""
    return _SAMPLING.sub("", stem).replace("--", "/", 1)


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
