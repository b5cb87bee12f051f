"""Runs of HELM: ``per_instance_stats.json``, or ``display_predictions.json``.

A run is a folder ``runs/SUITE/SCENARIO:NAME=VALUE,...,model=MODEL``. An entry of
``per_instance_stats.json`` has an instance and some of its statistics; further entries
may have others of the same instance.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from irtjax.data.decode import Count, Record, decode_lines
from irtjax.data.files import located
from irtjax.data.reading.described import Described
from irtjax.data.reading.identity import ItemKey
from irtjax.data.reading.logs import load, natural, variants
from irtjax.data.reading.options import ReadOptions
from irtjax.data.reading.records import RecordBuilder, Records
from irtjax.data.wording import counted, several, were

# What HELM's leaderboards report, in order of preference.
USUAL_METRICS = tuple(
    "ifeval_strict_accuracy chain_of_thought_correctness omni_math_accuracy"
    " wildbench_score_rescaled math_equiv_chain_of_thought math_equiv"
    " final_number_exact_match exact_match_indicator exact_match quasi_exact_match"
    " quasi_prefix_exact_match prefix_exact_match f1_score".split()
)
# Scenarios of the Lite leaderboard for which that order gives another metric.
MAIN_METRICS = {
    "narrative_qa": "f1_score",
    "natural_qa": "f1_score",
    "legalbench": "quasi_exact_match",
    "med_qa": "quasi_exact_match",
    "wmt_14": "bleu_4",
}
# Statistics of a request that do not score its response.
_BOOKKEEPING = re.compile(
    r"(num_|max_num_|inference_|training_|batch_size|finish_reason_|logprob|estimated_)"
    r"|(predicted_index|max_prob|prompt_truncated|logprob_per_byte|bits_per_byte)$"
    r"|perplexity$"
)
# Parts of a run's name on how the model was asked, not on which instances there are.
_ADAPTER = set(
    "model model_deployment method stop prompt instructions output_format_instructions"
    " max_train_instances num_train_trials max_eval_instances num_outputs temperature"
    " max_tokens tokenizer global_prefix newline format_prompt data_augmentation"
    " increase_max_tokens increase_temperature process_output chatml".split()
)
_LENGTHS = "num_output_tokens", "num_completion_tokens"


class _Perturbation(Record):
    name: str = "unnamed"


class _StatName(Record):
    name: str


class _Stat(Record):
    name: _StatName
    count: float = 1
    sum: float | None = None
    mean: float | None = None

    def value(self) -> float | None:
        """The mean; None without a count, for which HELM drops NaN."""
        if self.count <= 0:
            return None
        if self.mean is None and self.sum is not None:
            return self.sum / self.count
        return self.mean


class _Instance(Record):
    cure: ClassVar[str] = "give the file as HELM wrote it, or leave it out"

    instance_id: str
    stats: list[_Stat]
    train_trial_index: Count = 0
    perturbation: _Perturbation | None = None

    def scores(self) -> Iterator[tuple[str, float | None]]:
        """Names and values of the statistics."""
        return ((stat.name.name, stat.value()) for stat in self.stats)


class _Prediction(Record):
    cure: ClassVar[str] = "give the file as HELM wrote it, or leave it out"

    instance_id: str
    stats: dict[str, float | None]
    train_trial_index: Count = 0
    perturbation: _Perturbation | None = None

    def scores(self) -> Iterator[tuple[str, float | None]]:
        """Names and values of the statistics."""
        return iter(self.stats.items())


class _Answer(Record):
    """What an instance of the displayed predictions was answered."""

    instance_id: str
    train_trial_index: Count = 0
    perturbation: _Perturbation | None = None
    predicted_text: Any = None
    mapped_output: Any = None


class _Text(Record):
    text: str = ""


class _Reference(Record):
    output: _Text | str = ""
    tags: list[str] = []


class _Question(Record):
    id: str
    input: _Text | str = ""
    references: list[_Reference] = []
    perturbation: _Perturbation | None = None


class _Adapter(Record):
    model: str | None = None


class _RunSpec(Record):
    cure: ClassVar[str] = "give the file as HELM wrote it, or leave it out"

    name: str | None = None
    adapter_spec: _Adapter | None = None
    groups: list[str] = []


class _Group(Record):
    name: str
    environment: dict[str, Any] = {}


class _Metric(Record):
    name: str
    lower_is_better: bool | None = None


class _Schema(Record):
    cure: ClassVar[str] = "give the file as HELM wrote it, or leave it out"

    run_groups: list[_Group] = []
    metrics: list[_Metric] = []


@dataclasses.dataclass
class _Run:
    folder: Path
    path: Path  # Of the statistics.
    subject: str
    benchmark: str
    asked: str  # How the model was asked, as far as the name of the run has it.
    suite: str
    main_metric: str | None


def recognise(fields: dict[str, Any], name: str) -> bool | str:
    """Whether a first record is of an instance, or of another file of a run."""
    if "instance_id" in fields and "stats" in fields:
        return True
    others = (
        {"adapter_spec", "request_states"},
        {"adapter_spec", "scenario_spec"},
        {"instance_id", "request"},
        {"definition_path", "tags"},
        {"metric_groups", "run_groups"},
    )
    is_totals = {"name", "count", "sum_squared"} <= fields.keys()
    if is_totals or any(other <= fields.keys() for other in others):
        return (
            "is a file of a HELM run without scores by instance; give the run's"
            " per_instance_stats.json or display_predictions.json"
        )
    return False


def recognise_start(head: bytes, path: Path) -> bool:
    """Whether a damaged file has the name of the statistics by instance."""
    return path.name.startswith("per_instance_stats.json")


def read_files(paths: Sequence[Path], options: ReadOptions) -> Records:
    """Reads the statistics of runs; perturbed instances are left out."""
    by_folder: dict[Path, list[Path]] = {}
    for path in paths:
        by_folder.setdefault(path.parent, []).append(path)
    schemas: dict[Path, list[_Schema]] = {}
    runs = []
    for folder, files in by_folder.items():
        # The statistics have all metrics; the predictions only those displayed.
        chosen = [f for f in files if f.name.startswith("per_instance_stats")] or files
        runs += [_run_of(folder, path, options, schemas) for path in chosen]
    # A later suite is a run of its own, of which one is read.
    subjects = [(run.subject, run.suite) for run in runs]
    benchmarks = [run.benchmark for run in runs]
    filters = variants(subjects, benchmarks, [run.asked for run in runs])
    builder = RecordBuilder()
    builder.described = Described(wanted=options.texts)
    perturbed: Counter[str] = Counter()
    for run, name in zip(runs, filters, strict=True):
        builder.begin(run.path)
        _read_run(run, name, builder, perturbed)
    # The first file that has an instance counts: that of the latest suite.
    for run in sorted(runs, key=lambda run: run.suite, reverse=True):
        if options.texts:
            _describe(run, builder.described)
    if len(builder) == 0:
        raise ValueError(
            f"{several(paths)}: no instance has a score; give runs of scenarios that"
            " score each instance"
        )
    if perturbed:
        builder.notes.append(
            f"{counted(perturbed.total(), 'score')} of perturbed instances"
            f" ({', '.join(sorted(perturbed))}) {were(perturbed.total())} left out"
        )
    builder.directions |= {
        ("", metric.name): metric.lower_is_better
        for suite_schemas in schemas.values()
        for schema in suite_schemas
        for metric in schema.metrics
        if metric.lower_is_better is not None
    }
    records = builder.finish(paths, options.join)
    records.usual_metrics = USUAL_METRICS
    records.main_metrics = {
        run.benchmark: run.main_metric for run in runs if run.main_metric
    }
    return records


def subject_of(path: Path) -> str | None:
    """The model of a run, by its specification or its folder."""
    return _named(path.parent)[3] or None


def _named(folder: Path) -> tuple[_RunSpec, str, list[tuple[str, str]], str]:
    """Specification, scenario, arguments and model of a run; "" where it has none."""
    spec, name = _RunSpec(), located(folder).name
    if (folder / "run_spec.json").is_file():
        spec = load(folder / "run_spec.json", _RunSpec)
        name = spec.name or name
    scenario, _, rest = name.partition(":")
    if "=" in scenario:  # A scenario without arguments: "gsm,model=..."
        scenario, _, rest = name.partition(",")
    cut = [part.partition("=") for part in rest.split(",") if part]
    parts = [(key, value) for key, _, value in cut]
    model = spec.adapter_spec.model if spec.adapter_spec else None
    model = model or dict(parts).get("model", "").replace("_", "/", 1)
    return spec, scenario, parts, model


def _run_of(
    folder: Path,
    path: Path,
    options: ReadOptions,
    schemas: dict[Path, list[_Schema]],
) -> _Run:
    """Model and scenario of a run, from its specification or its folder's name."""
    spec, scenario, parts, model = _named(folder)
    if not (options.subject_name or model):
        raise ValueError(
            f"{path} names no model: keep run_spec.json next to it, keep the name of"
            " the run's folder (SCENARIO:...,model=MODEL), or give subject_name="
        )
    method = ",".join(f"{k}={v}" for k, v in parts if k not in _ADAPTER)
    asked = ",".join(
        f"{k}:{v}" for k, v in parts if k in _ADAPTER and not k.startswith("model")
    )
    main = _main_metrics(_schemas(located(folder).parent, schemas))
    groups = [*spec.groups, scenario]
    return _Run(
        folder=folder,
        path=path,
        subject=options.subject_name or model,
        benchmark=f"{scenario}:{method}" if method else scenario,
        asked=asked,
        suite=natural(located(folder).parent.name),
        main_metric=next(
            (main[g] for g in groups if g in main), MAIN_METRICS.get(scenario)
        ),
    )


def _schemas(suite: Path, by_suite: dict[Path, list[_Schema]]) -> list[_Schema]:
    """The schemas of a summarised suite, the one that counts last."""
    if suite not in by_suite:
        # A release of several suites has its schema in releases/RELEASE, next to runs.
        in_runs = suite.parent.name == "runs"
        releases = suite.parent.parent.glob("releases/*/schema.json") if in_runs else ()
        paths = [*sorted(releases, key=_age), suite / "schema.json"]
        by_suite[suite] = [load(path, _Schema) for path in paths if path.is_file()]
    return by_suite[suite]


def _main_metrics(schemas: Sequence[_Schema]) -> dict[str, str]:
    """The main metric of each group of runs."""
    return {
        group.name: group.environment["main_name"]
        for schema in schemas
        for group in schema.run_groups
        if isinstance(group.environment.get("main_name"), str)
    }


def _age(path: Path) -> str:
    """Sorts releases by the numbers in their names, the latest last."""
    return natural(path.parent.name)


def _read_run(
    run: _Run, filter_name: str, builder: RecordBuilder, perturbed: Counter[str]
) -> None:
    """Adds the scores of one run; counts those of perturbed instances, left out."""
    is_display = run.path.name.startswith("display_predictions")
    kind = _Prediction if is_display else _Instance
    entries: Sequence[_Prediction | _Instance] = decode_lines(run.path, kind)
    scores: dict[tuple[str, int], dict[str, float | None]] = {}
    for entry in entries:
        if entry.perturbation is not None and entry.perturbation.name != "identity":
            names = [name for name, _ in entry.scores() if not _BOOKKEEPING.match(name)]
            perturbed[entry.perturbation.name] += len(names)
            continue
        attempt_scores = scores.setdefault(
            (entry.instance_id, entry.train_trial_index), {}
        )
        for name, value in entry.scores():
            attempt_scores.setdefault(name, value)
    answers = _answers(run) if builder.described.wanted else {}
    for (instance, trial), values in scores.items():
        lengths = [values[name] for name in _LENGTHS if values.get(name) is not None]
        for metric, value in values.items():
            if _BOOKKEEPING.match(metric):
                continue
            builder.add(
                subject=run.subject,
                item=ItemKey(run.benchmark, instance),
                response=value,
                benchmark=run.benchmark,
                metric=metric,
                filter=filter_name,
                run=run.suite,
                trial=trial,
                length=lengths[0] if lengths else None,
                answer=answers.get((instance, trial)),
            )


def _answers(run: _Run) -> dict[tuple[str, int], str]:
    """Answers by instance and trial, from a file that only some runs have."""
    answers: dict[tuple[str, int], str] = {}
    for path in sorted(run.folder.glob("display_predictions.json*")):
        with contextlib.suppress(ValueError):
            for entry in decode_lines(path, _Answer):
                name = entry.perturbation and entry.perturbation.name
                answer = entry.mapped_output or entry.predicted_text
                if name in (None, "identity") and isinstance(answer, str):
                    place = entry.instance_id, entry.train_trial_index
                    answers.setdefault(place, answer)
    return answers


def _describe(run: _Run, described: Described) -> None:
    """Keeps what the instances ask, from a file that only some runs have."""
    path = run.folder / "instances.json"
    if not path.is_file():
        return
    with contextlib.suppress(ValueError):
        for question in decode_lines(path, _Question):
            place = run.benchmark, question.id, ""
            if question.perturbation is None and described.needs(place):
                right = [
                    _plain(reference.output)
                    for reference in question.references
                    if "correct" in reference.tags
                ]
                described.text(place, _plain(question.input), " or ".join(right))


def _plain(text: _Text | str) -> str:
    """The text itself."""
    # Before 0.2 a text was no object.
    return text.text if isinstance(text, _Text) else text
