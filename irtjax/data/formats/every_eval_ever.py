"""Instance files of the Every Eval Ever interchange format (``*_samples.jsonl``)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from irtjax.data.files import read_text
from irtjax.data.reading.identity import ItemKey, copies
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.reading.tabular import parse_json_records

_REQUIRED = ("model_id", "evaluation_name", "sample_id", "evaluation")
_LONG = ("input", "output", "messages", "answer_attribution")
_Rows = Sequence[dict[str, Any]]


def recognise(fields: dict[str, Any], name: str) -> bool:
    """Whether a first record is of this format."""
    return {"evaluation_id", "sample_id", "evaluation"} <= fields.keys()


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads instance files: one record per sample and metric."""
    files = [(path, parse_json_records(path, read_text(path), _LONG)) for path in paths]
    for path, records in files:
        _check(path, records)
    variants = _variants([r for _, records in files for r in records])
    builder = RecordBuilder()
    for path, records in files:
        _read_file(records, variants, options, builder)
        builder.notes += _senses(path)
    return builder.finish(paths, options.join)


def _check(path: Path, records: _Rows) -> None:
    for number, record in enumerate(records, 1):
        for field in _REQUIRED:
            if field not in record:
                raise ValueError(f"{path}: record {number} has no field {field!r}")
        score = _score(record)
        if score is not None and not isinstance(score, bool | int | float):
            message = f"{path}: record {number} has the score {score!r}"
            raise ValueError(f"{message}, which is not a number")


def _score(record: dict[str, Any]) -> Any:
    evaluation = record["evaluation"]
    return evaluation.get("score") if isinstance(evaluation, dict) else evaluation


def _sample(record: dict[str, Any]) -> tuple[str, str]:
    return str(record["sample_id"]), str(record.get("sample_hash") or "")


def _variants(records: _Rows) -> set[str]:
    """Names of the same samples with an answer filter, such as gsm8k/strict-match."""
    of_sample: dict[tuple[str, str, str], set[str]] = {}
    out: set[str] = set()
    for record in records:
        name = str(record["evaluation_name"])
        stem, slash, ending = name.rpartition("/")
        if slash and str(record.get("evaluation_result_id", "")).endswith(f":{ending}"):
            out.add(name)
        if slash and _sample(record)[1]:
            # Without a hash, two parts of a benchmark may number other samples alike.
            of_sample.setdefault((stem, *_sample(record)), set()).add(name)
    return out.union(*(names for names in of_sample.values() if len(names) > 1))


def _read_file(
    records: _Rows, variants: set[str], options: ReadOptions, builder: RecordBuilder
) -> None:
    names = [str(record["evaluation_name"]) for record in records]
    # Benchmark and answer filter of each.
    parts = [n.rpartition("/")[::2] if n in variants else (n, "") for n in names]
    samples = [_sample(record) for record in records]
    copy = copies(
        (f"{name}\0{sample}", f"{name}\0{content}")
        for (name, _), (sample, content) in zip(parts, samples, strict=True)
    )
    repeats: Counter[tuple[str, ...]] = Counter()
    rows = zip(names, parts, samples, records, strict=True)
    for name, (benchmark, filter_name), (sample, content), record in rows:
        metric = str(record.get("evaluation_result_id") or name)
        metric = metric.removesuffix(f":{filter_name}") if filter_name else metric
        subject = options.subject_name or str(record["model_id"])
        place = (subject, benchmark, metric, filter_name, sample)
        score = _score(record)
        if record.get("error") and not score:
            score = None  # a failed call is missing, not wrong
        builder.add(
            subject=subject,
            item=ItemKey(benchmark, sample, content, copy[f"{benchmark}\0{sample}"]),
            response=score,
            benchmark=benchmark,
            metric=metric,
            filter=filter_name,
            run=_run(record),
            trial=repeats[place],
            length=(record.get("token_usage") or {}).get("output_tokens"),
        )
        repeats[place] += 1


def _run(record: dict[str, Any]) -> str:
    """The time at the end of an evaluation's id, padded so that text sorts by it."""
    ending = str(record.get("evaluation_id", "")).rsplit("/", 1)[-1]
    return ending.zfill(20) if ending.replace(".", "", 1).isdigit() else ""


def _senses(path: Path) -> list[str]:
    """Notes on metrics of which less is better, from the totals in its folder."""
    totals = path.with_name(path.name.replace("_samples.jsonl", ".json"))
    if totals == path or not totals.is_file():
        return []
    try:
        names = {
            str(result.get("evaluation_name"))
            for result in json.loads(read_text(totals))["evaluation_results"]
            if result.get("metric_config", {}).get("lower_is_better")
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return []  # The totals are optional.
    note = "lower is better; its sign was not changed"
    return [f"of {name}, {note}" for name in sorted(names)]
