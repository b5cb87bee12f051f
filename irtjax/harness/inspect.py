"""Inspect (inspect-ai): samples chosen one by one while a model is evaluated.

`adaptive` turns a task into an adaptive test: an `inspect_ai.SampleSource` runs the
sample that `irtjax.AdaptiveTest` names next, until a stop rule holds. `stop_early`
keeps the task's dataset and order, and ends it by a stop rule: an early stopping
manager of Inspect. `ability` is a metric that logs ability, expected score and their
intervals into the eval. Needs inspect-ai 0.3.250 or later (`pip install
"irtjax[inspect]"`).
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtjax.data.reversal import turned
from irtjax.harness.bank import ItemIds, open_fit
from irtjax.harness.inspect_samples import (
    KEY,
    AdaptiveSamples,
    EarlyStopping,
    compute_on_cpu,
    number_of,
    require,
)

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

_log = logging.getLogger(__name__)


def adaptive(
    task: Any,
    fit: Calibration | str | Path,
    *,
    parallel: int = 1,
    scorer: str | None = None,
    benchmark: str | None = None,
    level: float | None = None,
    **rules: Any,
) -> Any:
    """Turns an Inspect task into an adaptive test.

    The samples of the task's dataset that are items of the fit are given in the order
    that the test chooses, each once. The scorer's metrics become those of `ability`,
    for the accuracy on chosen items is not that on all. Each sample has in its
    metadata, under "irtjax", its number and the ability before it, with its error.

    Estimates take milliseconds, so JAX is set to the CPU unless it is in use already
    or `JAX_PLATFORMS` is set: a GPU's memory is left to the model.

    Args:
        task: An `inspect_ai.Task` with a dataset; it is changed. Each evaluation of it,
            of one model after another or of several at once, has a test of its own.
        fit: The item bank: a folder that `irtjax fit` wrote, or a calibration.
        parallel: Samples in flight. Above 1 samples are chosen at the ability so far,
            which takes somewhat more of them in less time.
        scorer: Name of the scorer whose scores count, or NAME/KEY of one that returns
            a mapping; None where there is one. C and right are 1, I and N (no answer)
            are 0, as in Inspect's accuracy.
        benchmark: Benchmark of the fit that the samples are of; None finds it by ids.
        level: Level of the intervals; None takes that of the fit.
        **rules: Those of `irtjax.AdaptiveTest`, such as `num_items`, `standard_error`
            and `select`.

    Returns:
        The task.

    Raises:
        ImportError: If Inspect is not installed.
        ValueError: If the fit has none of the samples, or a rule is wrong.
    """
    inspect_ai = require("inspect_ai")
    if not task.scorer:
        raise ValueError("the task has no scorer: an adaptive test needs its scores")
    samples = AdaptiveSamples(
        task.dataset,
        fit,
        parallel=parallel,
        scorer=scorer,
        benchmark=benchmark,
        **rules,
    )
    about = {"items": len(samples.test_items), "parallel": parallel, **rules}
    _measure(task, fit, scorer, benchmark, level)
    return inspect_ai.task_with(
        task,
        dataset=samples.source(),
        metrics=None,
        epochs=1,
        metadata={**(task.metadata or {}), KEY: _about(fit, about)},
    )


def stop_early(
    task: Any,
    fit: Calibration | str | Path,
    *,
    sort: bool = True,
    scorer: str | None = None,
    benchmark: str | None = None,
    level: float | None = None,
    **rules: Any,
) -> Any:
    """Ends an Inspect task as soon as a stop rule holds.

    The task gets an early stopping manager: no further sample begins once a rule
    holds, such as a standard error of the ability. Samples in flight still count. The
    log lists the samples that were stopped, with the reason. The task keeps an
    ordinary dataset, so that options such as ranges of ``--limit`` apply. `adaptive`
    chooses each sample by the responses before it, which takes fewer samples.

    Args:
        task: An `inspect_ai.Task` with a dataset; it is changed. Each evaluation of it
            has a test of its own.
        fit: The item bank: a folder that `irtjax fit` wrote, or a calibration.
        sort: Run samples in the order of what they add to what is known before any
            response, the most first; False keeps the order of the dataset.
        scorer: As for `adaptive`.
        benchmark: Benchmark of the fit that the samples are of; None finds it by ids.
        level: Level of the intervals; None takes that of the fit.
        **rules: Stop rules of `irtjax.AdaptiveTest`, such as `standard_error`,
            `reliability` and `num_items`.

    Returns:
        The task.

    Raises:
        ImportError: If Inspect is not installed.
        ValueError: If the fit has none of the samples, a rule is wrong, or none is
            given.
    """
    inspect_ai = require("inspect_ai")
    if not task.scorer:
        raise ValueError("the task has no scorer: early stopping needs its scores")
    settings = {"scorer": scorer, "benchmark": benchmark, **rules}
    manager = EarlyStopping(task.dataset, fit, **settings)
    about = {"items": len(manager.test_items), "sort": sort, **rules}
    _measure(task, fit, scorer, benchmark, level)
    dataset = require("inspect_ai.dataset")
    samples = manager.in_order() if sort else manager.samples
    return inspect_ai.task_with(
        task,
        dataset=dataset.MemoryDataset(samples, name=task.dataset.name),
        early_stopping=manager,
        metrics=None,
        epochs=1,
        metadata={**(task.metadata or {}), KEY: _about(fit, about)},
    )


def _measure(task: Any, fit: Any, scorer: Any, benchmark: Any, level: Any) -> None:
    """Puts `ability` in the place of a scorer's metrics."""
    bank = str(fit) if isinstance(fit, str | Path) else fit
    metric = ability(bank, benchmark=benchmark, level=level)
    # `task_with` leaves the metrics of scorers as they are; a new task changes them.
    part = (scorer or "").partition("/")[2]
    metrics = {part: [metric]} if part else [metric]
    require("inspect_ai").Task(scorer=_scorers(task.scorer, scorer), metrics=metrics)


def _about(fit: Any, facts: dict[str, Any]) -> dict[str, Any]:
    """What the metadata of a task has on its test."""
    about = {"fit": str(fit) if isinstance(fit, str | Path) else "calibration"}
    return about | {name: _plain(value) for name, value in facts.items()}


def ability(
    fit: Calibration | str | Path,
    *,
    benchmark: str | None = None,
    level: float | None = None,
) -> Any:
    """A metric of Inspect: ability and expected score of the model, with intervals.

    Its values are `ability` and `expected_score` (on all items of the fit), each also
    with `_se`, `_lower` and `_upper`, and `items`, the number of samples that counted.
    Of samples that a test with select="score" drew, `score` is that on all samples
    without bias, whatever the fit is worth.
    It serves every task with samples that are items of the fit, adaptive or not. Where
    scores do not suit the model of the fit it has no values, and a warning is logged.

    Args:
        fit: The item bank: a folder that `irtjax fit` wrote, or a calibration.
        benchmark: Benchmark of the fit that the samples are of; None finds it by ids.
        level: Level of the intervals; None takes that of the fit.

    Returns:
        The metric.

    Raises:
        ImportError: If Inspect is not installed.
        ValueError: If the fit cannot be read or has no such benchmark.
    """
    bank = str(fit) if isinstance(fit, str | Path) else fit
    return _metric()(bank, benchmark=benchmark, level=level)


def _scorers(scorers: Any, chosen: str | None) -> list[Any]:
    """The scorers of a task that have a name; all of them without one."""
    every = list(scorers) if isinstance(scorers, list | tuple) else [scorers]
    name = None if chosen is None else chosen.partition("/")[0]
    infos = [getattr(x, "__registry_info__", None) for x in every]
    names = [str(getattr(x, "name", "")).rpartition("/")[2] for x in infos]
    return [x for x, y in zip(every, names, strict=True) if y == name] or every


@functools.cache
def _metric() -> Any:
    """The metric under its name in Inspect's registry."""
    inspect_scorer = require("inspect_ai.scorer")

    @inspect_scorer.metric(name="ability")
    def ability(
        fit: Any, benchmark: str | None = None, level: float | None = None
    ) -> Any:
        compute_on_cpu()
        calibration = open_fit(fit)
        ids = ItemIds(calibration, benchmark)
        formulas = calibration.reversed_scores

        def compute(scores: list[Any]) -> dict[str, float]:
            from irtjax.harness.estimate import estimate

            try:
                values = {
                    str(score.sample_id): number_of(score.score.value, "a sample")
                    for score in scores
                }
                items = ids.match(values) if values else {}
                by_item = {item: values[key] for key, item in items.items()}
                responses = {
                    k: turned(formulas.get(k, ""), v)
                    for k, v in by_item.items()
                    if v is not None
                }
                if not responses:
                    return {}
                numbers = estimate(calibration, responses, level=level).numbers()
                return numbers | _drawn_score(
                    scores, ids, responses, level or calibration.level
                )
            except ValueError as error:
                # An error here would lose an evaluation that has been paid for.
                _log.warning("irtjax: no ability: %s", error)
                return {}

        return compute

    return ability


def _drawn_score(
    scores: list[Any], ids: ItemIds, responses: dict[str, float], level: float
) -> dict[str, float]:
    """The score on all items, if all samples were drawn with known chances."""
    from irtjax.adaptive.score_draws import score_of_records

    name_of = ids.match(str(score.sample_id) for score in scores)
    records = {}
    for score in scores:
        record = (getattr(score, "sample_metadata", None) or {}).get(KEY) or {}
        item = name_of.get(str(score.sample_id))
        if item in responses and "draw" in record:
            records[item] = record
    if len(records) < max(len(responses), 2):
        return {}
    order = sorted(records, key=lambda item: records[item]["number"])
    # A sample without a score is left out, which moves the score by 1 / items at most.
    draws = [records[item]["draw"] for item in order]
    answers = [responses[item] for item in order]
    score = score_of_records(draws, answers, level)
    values = score.score, score.standard_error, score.lower, score.upper
    names = "score", "score_se", "score_lower", "score_upper"
    return dict(zip(names, values, strict=True))


def _plain(value: Any) -> Any:
    """A rule as JSON has it."""
    from irtjax.storage.plain import plain

    try:
        return plain(value)
    except (TypeError, ValueError):
        return str(value)
