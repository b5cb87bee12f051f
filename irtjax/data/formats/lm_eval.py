"""Sample logs of lm-evaluation-harness (``--log_samples``), all versions since 0.4.

One record per document and answer filter. Files of one task differ in their order and
may differ in their document numbers, so documents are joined by ``doc_hash``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from irtjax.data.files import read_text
from irtjax.data.reading.identity import ItemKey, copies
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.reading.tabular import parse_json_records
from irtjax.data.wording import several

_NOT_METRICS = set(
    "doc_id doc target arguments resps filtered_resps filter metrics doc_hash"
    " prompt_hash target_hash scores_per_repeat schema_version".split()
)
_LONG = {"doc", "arguments", "resps", "filtered_resps"}
# Metrics of the whole set, logged per sample as (gold, predicted) or (sum, count).
_PAIRS = set(
    "f1 mcc likelihood word_perplexity byte_perplexity bits_per_byte perplexity"
    " acc_mutual_info".split()
)
# What is usually reported of a task, in order of preference.
_USUAL_METRICS = ("acc_norm", "acc", "exact_match", "prompt_level_strict_acc")
_USUAL_FILTERS = ("strict-match",)
# The harness writes this constant where it was set not to score the responses.
_UNSCORED = "bypass"
_NUMBER = bool | int | float
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}T[\d.+:-]+$")


@dataclasses.dataclass
class _Log:
    path: Path
    subject: str
    task: str
    run: str
    records: list[dict[str, Any]]


def recognise(fields: dict[str, Any], name: str) -> bool:
    """Whether a first record is of this format."""
    others = {"doc", "resps", "filtered_resps", "target"}
    return "doc_id" in fields and bool(others & fields.keys())


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads sample logs; items join across the files by content."""
    builder = RecordBuilder()
    totals = _Totals()
    skipped: Counter[str] = Counter()
    unscored: list[Path] = []
    keep = options.item.split(".")[0] if isinstance(options.item, str) else ""
    for path in paths:
        records = parse_json_records(path, read_text(path), _LONG - {keep})
        for number, record in enumerate(records, 1):
            if "doc_id" not in record:
                raise ValueError(
                    f"{path}: record {number} has no doc_id: it is no sample log of"
                    " lm-evaluation-harness"
                )
        subject, task, run = _origin(path, totals)
        log = _Log(path, options.subject_name or subject, task, run, records)
        if {name for record in records for name in _logged(record)} == {_UNSCORED}:
            unscored.append(path)
        else:
            _read_log(log, options, builder, skipped)
    if unscored and len(builder) == 0 and not skipped:
        raise ValueError(
            f"{several(unscored)} holds answers without scores: the run was made with"
            " --predict_only; evaluate it again without that, or give other logs"
        )
    if len(builder) == 0:
        raise ValueError(f"{several(paths)}: no record has a score that is a number")
    for metric, note in totals.lower_is_better():
        builder.note(metric, note)
    records = builder.finish(paths, options.join)
    records.usual_metrics, records.usual_filters = _USUAL_METRICS, _USUAL_FILTERS
    for name, count in skipped.items():
        records.notes += [f"metric {name!r} has no score per item in {count} records"]
    records.notes += [
        f"{path} holds answers without scores (--predict_only) and was left out"
        for path in unscored
    ]
    return records


def _origin(path: Path, totals: _Totals) -> tuple[str, str, str]:
    """Returns subject, task and run by the names of the file and its folder."""
    # Not Path.stem, which would cut a date at the point of its seconds.
    stem = re.sub(r"(\.jsonl?)?(\.gz)?$", "", path.name)
    if path.name.startswith("samples_"):
        task, run = stem.removeprefix("samples_"), ""
        if "_" in task and _DATE.match(task.rsplit("_", 1)[1]):
            task, run = task.rsplit("_", 1)
        folder = path.parent.name.replace("__", "/", 1)
        return totals.model(path.parent, run) or folder, task, run
    # Up to 0.4.2 the name was {model_args}_{task}, with / and = both turned into __, as
    # in pretrained__org__name,dtype__float16_task.
    tasks = sorted(totals.tasks(path.parent), key=len, reverse=True)
    task = next((t for t in tasks if stem.endswith(f"_{t}")), stem.rsplit("_", 1)[-1])
    arguments = stem.removesuffix(task).removesuffix("_").split(",", 1)[0]
    model = re.sub(r"^(pretrained|model|path)__", "", arguments).replace("__", "/", 1)
    return totals.model(path.parent, "") or model or path.parent.name, task, ""


class _Totals:
    """Results files in the folder of the logs: model name, directions of metrics."""

    def __init__(self) -> None:
        self._seen: dict[Path, list[tuple[str, dict[str, Any]]]] = {}

    def _in(self, folder: Path) -> list[tuple[str, dict[str, Any]]]:
        """Names and contents of the results files in a folder."""
        if folder in self._seen:
            return self._seen[folder]
        found = self._seen[folder] = []
        for path in sorted(folder.glob("*results*.json")):
            # The totals are optional.
            with contextlib.suppress(ValueError, OSError):
                content = json.loads(read_text(path))
                if isinstance(content, dict) and "results" in content:
                    found.append((path.stem, content))
        return found

    def model(self, folder: Path, run: str) -> str | None:
        """Name of the model, from the results of the same run if they are there."""
        found = self._in(folder)
        exact = [pair for pair in found if run and pair[0].endswith(run)]
        names = {_model_name(content) for _, content in exact or found} - {None}
        return names.pop() if len(names) == 1 else None

    def tasks(self, folder: Path) -> set[str]:
        """Names of the tasks that the results mention."""
        return {task for _, content in self._in(folder) for task in content["results"]}

    def lower_is_better(self) -> list[tuple[str, str]]:
        """Metrics of which lower is better, each with a note."""
        found = {
            (
                metric,
                f"{task}: of {metric!r}, lower is better; its sign was not changed",
            )
            for results in self._seen.values()
            for _, content in results
            for task, senses in content.get("higher_is_better", {}).items()
            for metric, sense in senses.items()
            if sense is False
        }
        return sorted(found)


def _model_name(content: dict[str, Any]) -> str | None:
    if content.get("model_name"):
        return str(content["model_name"])
    arguments = content.get("config", {}).get("model_args") or ""
    if isinstance(arguments, dict):
        return arguments.get("pretrained") or arguments.get("model")
    match = re.search(r"(?:^|,)(?:pretrained|model)=([^,]+)", arguments)
    return match.group(1) if match else None


def _read_log(
    log: _Log, options: ReadOptions, builder: RecordBuilder, skipped: Counter[str]
) -> None:
    names = [_item_name(record, log, options) for record in log.records]
    hashes = [str(record.get("doc_hash") or "") for record in log.records]
    if options.item is not None:
        # A name that the caller chose is what joins items, whatever their content.
        hashes = [""] * len(names)
    # By number, then by name.
    order = lambda pair: (int(pair[0]) if pair[0].isdigit() else 0, pair[0])
    copy = copies(sorted(zip(names, hashes, strict=True), key=order))
    repeats: Counter[str] = Counter()
    has_filters = len(set(names)) < len(names)
    totals = _pair_metrics(log.records)
    lists: set[str] = set()
    for record, name, content in zip(log.records, names, hashes, strict=True):
        filter_name = record.get("filter")
        if filter_name is None:
            # Up to 0.4.6 filters had no name: the k-th record of a document is of
            # the k-th filter.
            filter_name = f"filter{repeats[name]}" if has_filters else "none"
            repeats[name] += 1
        key = ItemKey(log.task, name, content, copy[name])
        for metric in _metrics(record):
            scores = record.get("scores_per_repeat") or {}
            attempts = scores.get(metric) or [record.get(metric)]
            for trial, attempt in enumerate(attempts):
                parts = None if metric in totals else _score(attempt, options.parts)
                if parts is None:
                    skipped[metric] += 1
                    continue
                if isinstance(attempt, list):
                    lists.add(metric)
                for part, score in parts:
                    builder.add(
                        subject=log.subject,
                        item=dataclasses.replace(key, part=part),
                        response=score,
                        benchmark=log.task,
                        metric=metric,
                        filter=str(filter_name),
                        run=log.run,
                        trial=trial,
                    )
    how = "averaged" if options.parts == "mean" else "made items of their own"
    for metric in lists:
        builder.note(metric, f"{log.task}: the parts of {metric!r} were {how}")


def _item_name(record: dict[str, Any], log: _Log, options: ReadOptions) -> str:
    if not isinstance(options.item, str):
        return str(record["doc_id"])
    value: Any = record
    for step in options.item.split("."):
        if not isinstance(value, dict) or step not in value:
            known = ", ".join(value) if isinstance(value, dict) else "no fields"
            raise ValueError(
                f"{log.path}: item={options.item!r}: no field {step!r}; there are:"
                f" {known}"
            )
        value = value[step]
    return str(value)


def _logged(record: dict[str, Any]) -> list[str]:
    """All metrics of a record; before 0.4.7 it did not list them."""
    return record.get("metrics") or [n for n in record if n not in _NOT_METRICS]


def _metrics(record: dict[str, Any]) -> list[str]:
    """Metrics of a record that score its response."""
    return [name for name in _logged(record) if name != _UNSCORED]


def _pair_metrics(records: Sequence[dict[str, Any]]) -> set[str]:
    """Metrics whose value is always two numbers: parts of a total, not scores."""
    sizes: dict[str, set[int]] = {}
    for record in records:
        for name in _metrics(record):
            value, size = record.get(name), -1
            if isinstance(value, list) and bool not in map(type, value):
                size = len(value)
            sizes.setdefault(name, set()).add(size)
    return {
        name
        for name, found in sizes.items()
        if found == {2} or (name in _PAIRS and -1 not in found)
    }


def _score(value: Any, parts: str) -> list[tuple[str, float | None]] | None:
    """Returns (part, score) pairs, or None if the value is no score."""
    if value is None or isinstance(value, _NUMBER):
        return [("", value)]
    numbers = isinstance(value, list) and all(isinstance(v, _NUMBER) for v in value)
    if not value or not numbers:
        return None
    if parts == "mean":
        return [("", sum(map(float, value)) / len(value))]
    return [(f"#{k}", number) for k, number in enumerate(value, 1)]
