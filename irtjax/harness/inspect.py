"""Inspect (inspect-ai): samples chosen one by one while a model is evaluated.

`adaptive` turns a task into an adaptive test: an `inspect_ai.SampleSource` runs the
sample that `irtjax.AdaptiveTest` names next, until a stop rule holds. `ability` is a
metric that logs ability, expected score and their intervals into the eval. Needs
inspect-ai 0.3.250 or later (`pip install "irtjax[inspect]"`).
"""

from __future__ import annotations

import functools
import importlib
import logging
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtjax.harness.bank import ItemIds, open_fit

if TYPE_CHECKING:
    from irtjax.calibration.calibration import Calibration

_log = logging.getLogger(__name__)
#: Key of a sample's and a task's metadata.
KEY = "irtjax"
#: Scores that the model of the fit does not take, before any other, end an evaluation.
MOST_REFUSED = 5


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
        task: An `inspect_ai.Task` with a dataset; it is changed, and evaluates one
            model once. Build one for each model, as a function with `@task` does.
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
    inspect_ai = _require("inspect_ai")
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
    bank = str(fit) if isinstance(fit, str | Path) else fit
    metric = ability(bank, benchmark=benchmark, level=level)
    about = {"fit": str(fit) if isinstance(fit, str | Path) else "calibration"}
    about |= {"items": len(samples.test_items), "parallel": parallel}
    about |= {name: _plain(value) for name, value in rules.items()}
    # `task_with` leaves the metrics of scorers as they are; a new task changes them.
    part = (scorer or "").partition("/")[2]
    metrics = {part: [metric]} if part else [metric]
    inspect_ai.Task(scorer=_scorers(task.scorer, scorer), metrics=metrics)
    return inspect_ai.task_with(
        task,
        dataset=samples.source(),
        metrics=None,
        epochs=1,
        metadata={**(task.metadata or {}), KEY: about},
    )


def ability(
    fit: Calibration | str | Path,
    *,
    benchmark: str | None = None,
    level: float | None = None,
) -> Any:
    """A metric of Inspect: ability and expected score of the model, with intervals.

    Its values are `ability` and `expected_score` (on all items of the fit), each also
    with `_se`, `_lower` and `_upper`, and `items`, the number of samples that counted.
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
    known = [getattr(x, "__registry_info__", None) for x in every]
    names = [str(getattr(x, "name", "")).rpartition("/")[2] for x in known]
    return [x for x, y in zip(every, names, strict=True) if y == name] or every


@functools.cache
def _metric() -> Any:
    """The metric under its name in Inspect's registry."""
    inspect_scorer = _require("inspect_ai.scorer")

    @inspect_scorer.metric(name="ability")
    def ability(
        fit: Any, benchmark: str | None = None, level: float | None = None
    ) -> Any:
        _compute_on_cpu()
        calibration = open_fit(fit)
        ids = ItemIds(calibration, benchmark)

        def compute(scores: list[Any]) -> dict[str, float]:
            from irtjax.harness.estimate import estimate

            try:
                values = {
                    str(score.sample_id): number_of(score.score.value, "a sample")
                    for score in scores
                }
                known = ids.match(values) if values else {}
                given = {item: values[key] for key, item in known.items()}
                responses = {k: v for k, v in given.items() if v is not None}
                if not responses:
                    return {}
                return estimate(calibration, responses, level=level).numbers()
            except ValueError as error:
                # An error here would lose an evaluation that has been paid for.
                _log.warning("irtjax: no ability: %s", error)
                return {}

        return compute

    return ability


class AdaptiveSamples:
    """The samples of a dataset in the order of an adaptive test.

    `adaptive` makes one and gives its `source` to the task. It is of one evaluation of
    one model.

    Attributes:
        test: The `irtjax.AdaptiveTest`: `test.stopped` states why it ended.
        test_items: Items of the fit that are samples of the dataset.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        fit: Calibration | str | Path,
        *,
        parallel: int = 1,
        scorer: str | None = None,
        benchmark: str | None = None,
        **rules: Any,
    ) -> None:
        """Begins the test; the arguments are those of `adaptive`."""
        _compute_on_cpu()
        from irtjax.adaptive import AdaptiveTest

        if parallel < 1:
            raise ValueError(f"parallel {parallel} is not at least 1")
        if rules.get("repeats", 1) > 1:
            raise ValueError("repeats: a sample is evaluated once; leave it out")
        calibration = open_fit(fit)
        samples: dict[str, Any] = {}
        for number, sample in enumerate(dataset, 1):
            # As Inspect numbers samples without ids.
            key = number if sample.id is None else sample.id
            samples[str(key)] = sample.model_copy(update={"id": key})
        found = ItemIds(calibration, benchmark).match(samples)
        self._samples = {item: samples[key] for key, item in found.items()}
        self._item = found
        self._parallel, self._scorer = parallel, scorer
        self.test_items = tuple(self._samples)
        left = len(samples) - len(found)
        if left:
            _log.warning(
                "irtjax: %d of %d samples are no items of the fit and are never given",
                left,
                len(samples),
            )
        self.test = AdaptiveTest(calibration, items=self.test_items, **rules)
        for sentence in self.test.warnings:
            _log.warning("irtjax: %s", sentence)
        self._sent: set[str] = set()
        self._refused = 0

    def source(self) -> Any:
        """The `inspect_ai.SampleSource`."""
        return _require("inspect_ai").SampleSource.from_samples(
            self.next_samples(),
            next_samples=self._after_none_is_left,
            sample_complete=self._after_sample,
        )

    def next_samples(self) -> list[Any]:
        """The samples to begin now; none while enough are in flight or at the end."""
        new = [
            item
            for item in self.test.next_items(self._parallel)
            if item not in self._sent
        ]
        so_far = {
            "ability": self.test.ability,
            "ability_se": self.test.standard_error,
        }
        found = []
        for item in new:
            self._sent.add(item)
            sample = self._samples[item]
            known = {"number": len(self._sent), **so_far}
            metadata = {**(sample.metadata or {}), KEY: known}
            found.append(sample.model_copy(update={"metadata": metadata}))
        return found

    def take(self, sample: Any) -> None:
        """Takes a sample that was evaluated, an `EvalSample`.

        A score that the model of the fit does not take, such as P of right or wrong
        ones, is left out with a warning: other samples may have better ones.

        Raises:
            ValueError: If it has no such score, is not awaited, or the first
                `MOST_REFUSED` scores were left out so.
        """
        key = str(sample.id)
        item = self._item.get(key)
        if item is None:
            return  # Added by somebody else.
        if item not in self.test.handed_out:
            if item in self.test.skipped:
                return  # It failed and was run again, too late for the test.
            raise ValueError(
                f"sample {key!r} was evaluated twice: an adaptive task is for one"
                " model and one epoch; build one for each model, and leave --epochs out"
            )
        value = self._value(sample)
        number = None if value is None else number_of(value, f"sample {key!r}")
        if number is None:
            _log.warning("irtjax: sample %s has no score and was left out", key)
            self.test.skip(item)
            return
        try:
            self.test.record(item, number)
        except ValueError as error:
            self._refused += 1
            if self._refused >= MOST_REFUSED and not self.test.num_given:
                raise ValueError(
                    f"sample {key!r}: {error}, as those of all {self._refused} samples"
                    " so far: choose another scorer with scorer="
                ) from None
            _log.warning("irtjax: sample %s was left out: %s", key, error)
            self.test.skip(item)

    def _value(self, sample: Any) -> Any:
        """The score that counts, None if there is none."""
        scores = sample.scores or {}
        if not scores:
            return None
        name, _, part = (self._scorer or "").partition("/")
        if not name and len(scores) > 1:
            raise ValueError(
                f"sample {str(sample.id)!r} has several scores ({', '.join(scores)}):"
                " choose one with scorer="
            )
        name = name or next(iter(scores))
        if name not in scores:
            raise ValueError(
                f"sample {str(sample.id)!r} has no score {name!r}; there are:"
                f" {', '.join(scores)}"
            )
        value = scores[name].value
        return value.get(part) if part and isinstance(value, dict) else value

    async def _after_sample(self, sample: Any) -> list[Any]:
        self.take(sample)
        return self.next_samples()

    async def _after_none_is_left(self) -> list[Any] | None:
        """After everything in flight has ended: what was cancelled is left out."""
        while not self.test.over:
            for item in self.test.handed_out:
                self.test.skip(item)
            found = self.next_samples()
            if found:
                return found
        return None


def number_of(value: Any, place: str) -> float | None:
    """A score of Inspect as a number; None where a sample was not scored.

    Raises:
        ValueError: If it is no number and no verdict.

    >>> [number_of(x, "sample") for x in ("C", "I", "N", True, "0.5")]
    [1.0, 0.0, 0.0, 1.0, 0.5]
    """
    import pyarrow as pa

    from irtjax.data.reading import cells

    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if not isinstance(value, str | bool | int | float):
        raise ValueError(
            f"{place} has a score of several values: choose one with scorer='NAME/KEY'"
        )
    column = pa.chunked_array([pa.array([value])])
    if cells.unanswered(column)[0]:
        return 0.0  # As Inspect's own metrics count it.
    numbers, mask = cells.to_numbers(column, "score", place, verdicts=True)
    return float(numbers[0]) if mask is None or mask[0] else None


def _require(name: str) -> Any:
    """A module of Inspect."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "inspect_ai":
            raise
        raise ImportError(
            'Inspect is not installed: pip install "irtjax[inspect]"'
        ) from None


def _compute_on_cpu() -> None:
    """Sets JAX to the CPU, unless somebody has chosen or it has started."""
    if "JAX_PLATFORMS" in os.environ:
        return
    import jax

    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", lambda: False)()
    if not started and jax.config.jax_platforms is None:  # pyright: ignore
        jax.config.update("jax_platforms", "cpu")


def _plain(value: Any) -> Any:
    """A rule as JSON has it."""
    from irtjax.storage.encoding import plain

    try:
        return plain(value)
    except (TypeError, ValueError):
        return str(value)
