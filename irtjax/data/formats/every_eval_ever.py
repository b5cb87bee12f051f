"""Instance files of the Every Eval Ever interchange format (``*_samples.jsonl``)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from irtjax.data.decode import Record, decode, json_values
from irtjax.data.files import read_bytes
from irtjax.data.formats import helm
from irtjax.data.formats.lm_eval import USUAL_FILTERS, USUAL_METRICS
from irtjax.data.item_texts import LONGEST_WRONG, cut, text_of
from irtjax.data.reading.described import Described
from irtjax.data.reading.identity import ItemKey, copies
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records

#: A result of a converted HELM run: metric and split, which HELM scores apart.
_OF_HELM = re.compile(r"([^:]+):(?:train|valid|test)")


class Evaluation(Record):
    """What a sample scored."""

    score: bool | float | None = None


class CallUsage(Record):
    """Tokens of a call."""

    output_tokens: float | None = None


class Instance(Record):
    """One sample and metric."""

    cure: ClassVar[str] = "see the instance schema of Every Eval Ever"

    model_id: str
    evaluation_name: str
    sample_id: int | float | str
    evaluation: Evaluation | bool | float | None
    sample_hash: str | int | None = None
    evaluation_id: str | int | None = None
    evaluation_result_id: str | int | None = None
    error: Any = None
    token_usage: CallUsage | None = None
    input: Any = None
    answer_attribution: Any = None

    @property
    def score(self) -> bool | float | None:
        """The score, wherever it is written."""
        score = self.evaluation
        return score.score if isinstance(score, Evaluation) else score

    @property
    def sample(self) -> tuple[str, str]:
        """Name and content of the sample."""
        return str(self.sample_id), str(self.sample_hash or "")


class _Config(Record):
    lower_is_better: bool | None = None


class _Result(Record):
    evaluation_name: str | None = None
    evaluation_result_id: str | None = None
    metric_config: _Config | None = None


class _Totals(Record):
    evaluation_results: list[_Result]


_Rows = Sequence[Instance]
#: Model, benchmark and time.
_RunKey = tuple[str, str, str]
#: Prompt and expected answer by evaluation, sample and content.
_Texts = dict[tuple[str, str, str], tuple[str, str]]


def recognise(fields: dict[str, Any], name: str) -> bool:
    """Whether a first record is of this format."""
    return {"evaluation_id", "sample_id", "evaluation"} <= fields.keys()


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file has the name of instances."""
    return path.name.endswith(("_samples.jsonl", "_samples.jsonl.gz"))


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads instance files: one record per sample and metric."""
    texts: _Texts = {}
    files = [
        (
            path,
            [
                _without_texts(decode(value, Instance, place), texts, options)
                for place, value in json_values(path)
            ],
        )
        for path in paths
    ]
    all_records = [r for _, records in files for r in records]
    variants, results = _variants(all_records), _results(all_records)
    runs = _runs(all_records, variants, options)
    builder = RecordBuilder()
    builder.described = Described("every_eval_ever", options.texts)
    for path, records in files:
        _read_file(records, variants, results, runs, texts, options, builder)
        builder.directions |= _directions(path, variants)
    out = builder.finish(paths, options.join)
    # Converted logs of lm-eval and HELM keep their names.
    usual = dict.fromkeys((*USUAL_METRICS, *helm.USUAL_METRICS))
    out.usual_metrics, out.usual_filters = tuple(usual), USUAL_FILTERS
    out.first_filter = True
    out.main_metrics = {
        name: helm.MAIN_METRICS[name]
        for name, ids in results.items()
        if name in helm.MAIN_METRICS and any(map(_OF_HELM.fullmatch, ids))
    }
    return out


def _without_texts(record: Instance, texts: _Texts, options: ReadOptions) -> Instance:
    """Keeps the texts of the first record of a sample; of others the wrong answer."""
    if options.texts:
        place = record.evaluation_name, *record.sample
        if place not in texts and isinstance(record.input, dict):
            question = record.input
            expected = question.get("reference") or ()
            expected = expected if isinstance(expected, list) else [expected]
            answer = " or ".join(map(text_of, expected))
            texts[place] = cut(text_of(question.get("raw"))), cut(answer)
    attributions = record.answer_attribution
    last = attributions[-1] if isinstance(attributions, list) and attributions else None
    value = last.get("extracted_value") if isinstance(last, dict) else None
    wanted = value if options.texts and isinstance(value, str) else None
    record.answer_attribution = wanted and wanted[: 4 * LONGEST_WRONG]
    record.input = None
    return record


def _variants(records: _Rows) -> set[str]:
    """Names of the same samples with an answer filter, such as gsm8k/strict-match."""
    of_sample: dict[tuple[str, str, str], set[str]] = {}
    out: set[str] = set()
    for record in records:
        name = record.evaluation_name
        stem, slash, ending = name.rpartition("/")
        if slash and str(record.evaluation_result_id).endswith(f":{ending}"):
            out.add(name)
        if slash and record.sample[1]:
            # Without a hash, two parts of a benchmark may number other samples alike.
            of_sample.setdefault((stem, *record.sample), set()).add(name)
    return out.union(*(names for names in of_sample.values() if len(names) > 1))


def _results(records: _Rows) -> dict[str, list[str]]:
    """The results of each evaluation, in the order in which they are met."""
    out: dict[str, dict[str, None]] = {}
    for record in records:
        if record.evaluation_result_id:
            names = out.setdefault(record.evaluation_name, {})
            names[str(record.evaluation_result_id)] = None
    return {name: list(names) for name, names in out.items()}


def _own_results(record: Instance, results: dict[str, list[str]]) -> list[str]:
    """The results that a record belongs to; a sample that failed names none."""
    name, scores = record.evaluation_name, results.get(record.evaluation_name, [])
    if record.evaluation_result_id:
        return [str(record.evaluation_result_id)]
    failed = record.error and not record.score
    return scores if scores and (failed or len(scores) == 1) else [name]


def _read_file(
    records: _Rows,
    variants: set[str],
    results: dict[str, list[str]],
    runs: dict[_RunKey, str],
    texts: _Texts,
    options: ReadOptions,
    builder: RecordBuilder,
) -> None:
    """Adds the records of one file."""
    names = [record.evaluation_name for record in records]
    # Benchmark and answer filter of each.
    parts = [_parts(name, variants) for name in names]
    samples = [record.sample for record in records]
    copy = copies(
        (f"{name}\0{sample}", f"{name}\0{content}")
        for (name, _), (sample, content) in zip(parts, samples, strict=True)
    )
    repeats: Counter[tuple[str, ...]] = Counter()
    rows = zip(names, parts, samples, records, strict=True)
    for name, (benchmark, filter_name), (sample, content), record in rows:
        subject = options.subject_name or record.model_id
        described, item = builder.described, (benchmark, sample, content)
        if described.needs(item) and (name, sample, content) in texts:
            described.text(item, *texts[name, sample, content])
        if record.answer_attribution and record.score == 0:
            described.wrong(item, record.answer_attribution, filter_name)
        score = record.score
        if record.error and not score:
            score = None  # a failed call is missing, not wrong
        for result in _own_results(record, results):
            ending = f":{filter_name}" if filter_name else ""
            metric = _metric(result.removesuffix(ending))
            place = (subject, benchmark, metric, filter_name, sample)
            builder.add(
                subject=subject,
                item=ItemKey(
                    benchmark, sample, content, copy[f"{benchmark}\0{sample}"]
                ),
                response=score,
                benchmark=benchmark,
                metric=metric,
                filter=filter_name,
                run=runs[_run_key(record, benchmark)],
                trial=repeats[place],
                length=record.token_usage and record.token_usage.output_tokens,
                answer=record.answer_attribution or None,
            )
            repeats[place] += 1


def _parts(name: str, variants: set[str]) -> tuple[str, str]:
    """Benchmark and answer filter of the name of an evaluation."""
    if name not in variants:
        return name, ""
    benchmark, _, filter_name = name.rpartition("/")
    return benchmark, filter_name


def _run_key(record: Instance, benchmark: str) -> _RunKey:
    """What a run is of: model, benchmark, time."""
    return record.model_id, benchmark, _time(record)


def _runs(
    records: _Rows, variants: set[str], options: ReadOptions
) -> dict[_RunKey, str]:
    """Times by which the runs of a model on a benchmark replace each other.

    The converter of HELM leaves out the arguments of a scenario: evaluations of one
    name may be of different parts of it, and replace each other only where they share
    a sample. The latest of each part has the latest time of all, and so on.
    """
    samples: dict[_RunKey, set[Any]] = {}
    for record in records:
        key = _run_key(record, _parts(record.evaluation_name, variants)[0])
        by_id = options.join == "id"
        sample = record.sample[0] if by_id else record.sample
        samples.setdefault(key, set()).add(sample)
    of_pair: dict[tuple[str, str], list[str]] = {}
    for model, benchmark, time in samples:
        of_pair.setdefault((model, benchmark), []).append(time)
    out: dict[_RunKey, str] = {}
    for pair, times in of_pair.items():
        times.sort(reverse=True)
        later: list[tuple[int, set[Any]]] = []
        for time in times:
            mine = samples[*pair, time]
            age = 1 + max((k for k, seen in later if seen & mine), default=-1)
            later.append((age, mine))
            out[*pair, time] = times[age]
    return out


def _time(record: Instance) -> str:
    """The time at the end of an evaluation's id, padded so that text sorts by it."""
    ending = str(record.evaluation_id or "").rsplit("/", 1)[-1]
    return ending.zfill(20) if ending.replace(".", "", 1).isdigit() else ""


def _directions(path: Path, variants: set[str]) -> dict[tuple[str, str], bool]:
    """Whether lower is better, by benchmark and metric, from the totals next to it.

    A benchmark whose results all have one direction has it for any metric.
    """
    totals = path.with_name(path.name.replace("_samples.jsonl", ".json"))
    if totals == path or not totals.is_file():
        return {}
    try:
        results = decode(read_bytes(totals), _Totals, str(totals)).evaluation_results
    except ValueError:
        return {}  # The totals are optional.
    directions: dict[tuple[str, str], bool] = {}
    of_benchmark: dict[str, set[bool]] = {}
    for result in results:
        lower = result.metric_config and result.metric_config.lower_is_better
        if lower is None:
            continue
        benchmark, filter_name = _parts(str(result.evaluation_name), variants)
        of_benchmark.setdefault(benchmark, set()).add(lower)
        if result.evaluation_result_id:
            ending = f":{filter_name}" if filter_name else ""
            metric = _metric(result.evaluation_result_id.removesuffix(ending))
            directions[benchmark, metric] = lower
    of_all = {name: ways.pop() for name, ways in of_benchmark.items() if len(ways) == 1}
    return {**{(name, ""): lower for name, lower in of_all.items()}, **directions}


def _metric(result: str) -> str:
    """The metric of a result, of which HELM's have more in their names."""
    split = _OF_HELM.fullmatch(result)
    return split[1] if split else result
