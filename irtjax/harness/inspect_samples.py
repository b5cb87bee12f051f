"""Samples of Inspect's data sets that are items of a fit, and the tests they are for.

`AdaptiveSamples` chooses the order of the samples, `EarlyStopping` ends a given one.
Each evaluation has a test of its own. `harness.inspect` makes these objects.
"""

from __future__ import annotations

import contextvars
import dataclasses
import importlib
import logging
import math
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from irtjax._backend import has_started
from irtjax.data.reversal import turned
from irtjax.harness.bank import ItemIds, open_fit

if TYPE_CHECKING:
    from irtjax.adaptive import AdaptiveTest
    from irtjax.calibration.calibration import Calibration

_log = logging.getLogger(__name__)
#: Key of a sample's and a task's metadata.
KEY = "irtjax"
#: Samples that are sorted; the others follow in the order of the dataset.
MOST_SORTED = 1000
#: Scores that the model of the fit does not take, before any other, end an evaluation.
MOST_REFUSED = 5


@dataclasses.dataclass(eq=False)
class _Course:
    """The test of one evaluation.

    Attributes:
        test: The test.
        owner: What began it.
        name: A name that no other has, which is in the metadata of its samples.
        sent: Items whose samples have begun.
        refused: Scores that the model of the fit did not take.
    """

    test: AdaptiveTest
    owner: _Scored
    name: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex[:8])
    sent: set[str] = dataclasses.field(default_factory=set)
    refused: int = 0


#: The test of the evaluation that runs in this context: Inspect runs each evaluation in
#: a context of its own.
_COURSE: contextvars.ContextVar[_Course | None] = contextvars.ContextVar(
    "irtjax_test", default=None
)


class _Scored:
    """Samples of a dataset that are items of a fit, and their scores for a test.

    Each evaluation has a test of its own.

    Attributes:
        test_items: Items of the fit that are samples of the dataset.
    """

    _last: _Course

    @property
    def test(self) -> AdaptiveTest:
        """The test of the evaluation that began last."""
        return self._last.test

    def __init__(
        self,
        dataset: Iterable[Any],
        fit: Calibration | str | Path,
        scorer: str | None,
        benchmark: str | None,
        rules: dict[str, Any],
    ) -> None:
        compute_on_cpu()
        if rules.get("repeats", 1) > 1:
            raise ValueError("repeats: a sample is evaluated once; leave it out")
        self._fit = open_fit(fit)
        samples: dict[str, Any] = {}
        for number, sample in enumerate(dataset, 1):
            # As Inspect numbers samples without ids.
            key = number if sample.id is None else sample.id
            samples[str(key)] = sample.model_copy(update={"id": key})
        self._item = ItemIds(self._fit, benchmark).match(samples)
        self._samples = {item: samples[key] for key, item in self._item.items()}
        self._scorer = scorer
        self.test_items = tuple(self._samples)
        left = len(samples) - len(self._item)
        if left:
            _log.warning(
                "irtjax: %d of %d samples are no items of the fit and are never given",
                left,
                len(samples),
            )
        self._rules = rules
        self._formulas = self._fit.reversed_scores

    def _begin(self) -> _Course:
        """A new test over the samples."""
        from irtjax.adaptive import AdaptiveTest

        test = AdaptiveTest(self._fit, items=self.test_items, **self._rules)
        self._last = _Course(test, self)
        return self._last

    def _course(self) -> _Course:
        """The test of the evaluation of this context, or the last one that began."""
        course = _COURSE.get()
        return self._last if course is None or course.owner is not self else course

    def _warn(self) -> None:
        """Logs targets that cannot be reached."""
        for sentence in self.test.warnings:
            _log.warning("irtjax: %s", sentence)

    def _record(
        self, course: _Course, item: str, key: str, scores: Mapping[str, Any]
    ) -> None:
        """Takes the scores of a sample, by scorer.

        A score that the model of the fit does not take, such as P of right or wrong
        ones, is left out with a warning: other samples may have better ones.

        Raises:
            ValueError: If there is no such score, or the first `MOST_REFUSED` scores
                were left out so.
        """
        value = self._value(key, scores)
        number = None if value is None else number_of(value, f"sample {key!r}")
        if number is None:
            _log.warning("irtjax: sample %s has no score and was left out", key)
            course.test.skip(item)
            return
        try:
            course.test.record(item, turned(self._formulas.get(item, ""), number))
        except ValueError as error:
            course.refused += 1
            if course.refused >= MOST_REFUSED and not course.test.num_given:
                raise ValueError(
                    f"sample {key!r}: {error}, as those of all {course.refused} samples"
                    " so far: choose another scorer with scorer="
                ) from None
            _log.warning("irtjax: sample %s was left out: %s", key, error)
            course.test.skip(item)

    def _value(self, key: str, scores: Mapping[str, Any]) -> Any:
        """The score that counts, None if there is none."""
        if not scores:
            return None
        name, _, part = (self._scorer or "").partition("/")
        if not name and len(scores) > 1:
            raise ValueError(
                f"sample {key!r} has several scores ({', '.join(scores)}): choose one"
                " with scorer="
            )
        name = name or next(iter(scores))
        if name not in scores:
            raise ValueError(
                f"sample {key!r} has no score {name!r}; there are: {', '.join(scores)}"
            )
        value = scores[name].value
        return value.get(part) if part and isinstance(value, dict) else value


class AdaptiveSamples(_Scored):
    """The samples of a dataset in the order of an adaptive test.

    `adaptive` makes one and gives its `source` to the task.

    Attributes:
        test: The `irtjax.AdaptiveTest` of the evaluation that began last:
            `test.stopped` states why it ended.
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
        """Checks samples and rules; the arguments are those of `adaptive`."""
        if parallel < 1:
            raise ValueError(f"parallel {parallel} is not at least 1")
        super().__init__(dataset, fit, scorer, benchmark, rules)
        self._parallel = parallel
        self._courses: dict[str, _Course] = {}
        self._begin()
        self._warn()

    def source(self) -> Any:
        """The `inspect_ai.SampleSource`."""
        # Without first samples, which Inspect would give to every model: each
        # evaluation begins by asking for the next ones.
        return require("inspect_ai").SampleSource.from_samples(
            [],
            next_samples=self._after_none_is_left,
            sample_complete=self._after_sample,
        )

    def next_samples(self) -> list[Any]:
        """The samples to begin now; none while enough are in flight or at the end."""
        return self._next(self._course())

    def _next(self, course: _Course) -> list[Any]:
        test = course.test
        self._courses[course.name] = course
        new = [x for x in test.next_items(self._parallel) if x not in course.sent]
        so_far = {"ability": test.ability, "ability_se": test.standard_error}
        samples = []
        for item in new:
            course.sent.add(item)
            sample = self._samples[item]
            record = {"number": len(course.sent), **so_far, "test": course.name}
            if test.rules["select"] == "score":
                record["draw"] = test.draw(item)
            metadata = {**(sample.metadata or {}), KEY: record}
            samples.append(sample.model_copy(update={"metadata": metadata}))
        return samples

    def take(self, sample: Any) -> None:
        """Takes a sample that was evaluated, an `EvalSample`.

        Raises:
            ValueError: If its score is refused (`_record`), or it is not awaited.
        """
        key = str(sample.id)
        item = self._item.get(key)
        if item is None:
            return  # Added by somebody else.
        course = self._course_of(sample, item)
        if item not in course.test.handed_out:
            if item in course.test.skipped:
                return  # It failed and was run again, too late for the test.
            raise ValueError(
                f"sample {key!r} was evaluated twice: an adaptive task is for one"
                " epoch; leave --epochs out"
            )
        self._record(course, item, key, sample.scores or {})

    def _course_of(self, sample: Any, item: str) -> _Course:
        """The test that a sample was begun for."""
        record = (getattr(sample, "metadata", None) or {}).get(KEY)
        name = record.get("test") if isinstance(record, dict) else None
        if name in self._courses:
            return self._courses[name]
        # A solver changed its metadata, or it is of an earlier try in another process.
        waiting = [x for x in self._courses.values() if item in x.test.handed_out]
        if len(waiting) > 1:
            raise ValueError(
                f"sample {str(sample.id)!r} does not show which of {len(waiting)}"
                f" evaluations it is of: keep metadata[{KEY!r}], or evaluate one model"
                " after another"
            )
        return waiting[0] if waiting else self._course()

    async def _after_sample(self, sample: Any) -> list[Any]:
        self.take(sample)
        item = self._item.get(str(sample.id))
        return [] if item is None else self._next(self._course_of(sample, item))

    async def _after_none_is_left(self) -> list[Any] | None:
        """At the beginning, and when everything in flight has ended.

        What was cancelled is left out.
        """
        course = self._own_course()
        while not course.test.over:
            for item in course.test.handed_out:
                course.test.skip(item)
            samples = self._next(course)
            if samples:
                return samples
        return None

    def _own_course(self) -> _Course:
        """The test of this evaluation, which is begun if this is its first call."""
        course = _COURSE.get()
        if course is None or course.owner is not self:
            course = self._begin() if self._last.sent else self._last
            self._courses[course.name] = course
            _COURSE.set(course)
        return course


class EarlyStopping(_Scored):
    """An early stopping manager of Inspect (`inspect_ai.util.EarlyStopping`).

    `stop_early` makes one. Each evaluation has a test of its own.

    Attributes:
        test: The `irtjax.AdaptiveTest` of the evaluation that began last.
        test_items: Items of the fit that are samples of the dataset.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        fit: Calibration | str | Path,
        *,
        scorer: str | None = None,
        benchmark: str | None = None,
        **rules: Any,
    ) -> None:
        """Checks samples and rules; the arguments are those of `stop_early`."""
        if "select" in rules:
            raise ValueError(
                "select: Inspect runs the samples in their order; use adaptive() to"
                " choose each by the responses before it"
            )
        if not rules:
            raise ValueError("no stop rule: give one, such as standard_error=0.3")
        rules = {**rules, "select": "fixed"}
        super().__init__(dataset, fit, scorer, benchmark, rules)
        self._begin()
        self._warn()

    @property
    def samples(self) -> list[Any]:
        """The samples that are items of the fit, in the order of the dataset."""
        return list(self._samples.values())

    def in_order(self) -> list[Any]:
        """The samples in the order of what they add before any response."""
        quota = self._rules.get("quota")
        rules = {} if quota is None else {"quota": quota}
        from irtjax.adaptive import AdaptiveTest

        # A bank with response lengths has no mutual information.
        rule = "mutual_information"
        if rule not in self.test.selections:
            rule = "information"
        plain = AdaptiveTest(self._fit, items=self.test_items, select=rule, **rules)
        first = plain.next_items(min(len(self.test_items), MOST_SORTED))
        rest = [item for item in self.test_items if item not in set(first)]
        return [self._samples[item] for item in (*first, *rest)]

    async def start_task(self, task: Any, samples: list[Any], epochs: int) -> str:
        """Begins the test of an evaluation."""
        if epochs > 1:
            raise ValueError("early stopping is of one epoch: leave --epochs out")
        # Samples are scheduled in contexts that come from this one.
        _COURSE.set(self._begin())
        return "irtjax"

    async def schedule_sample(self, id: str | int, epoch: int) -> Any:
        """None for a sample that runs, or Inspect's `EarlyStop` with the reason."""
        stop = require("inspect_ai.util").EarlyStop
        item = self._item.get(str(id))
        if item is None:
            return stop(id=id, epoch=epoch, reason="it is no item of the fit")
        test = self._course().test
        if item in test.handed_out or item in test.skipped:
            return None  # It failed and is run again.
        reason = test.hand_out(item)
        if not reason:
            return None
        metadata = {"ability": test.ability, "ability_se": test.standard_error}
        return stop(id=id, epoch=epoch, reason=reason, metadata=metadata)

    async def complete_sample(
        self, id: str | int, epoch: int, scores: Mapping[str, Any]
    ) -> None:
        """Takes the scores of a sample."""
        item, course = self._item.get(str(id)), self._course()
        if item is not None and item in course.test.handed_out:
            values = {name: one.score for name, one in scores.items()}
            self._record(course, item, str(id), values)

    async def complete_task(self) -> dict[str, Any]:
        """What the log has: ability, its error, samples that counted, the reason."""
        test = self._course().test
        for item in test.handed_out:
            test.skip(item)  # It failed.
        return {
            "ability": test.ability,
            "ability_se": test.standard_error,
            "items": test.num_given,
            "stopped": test.stopped,
        }


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


def require(name: str) -> Any:
    """A module of Inspect."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "inspect_ai":
            raise
        raise ImportError(
            'Inspect is not installed: pip install "irtjax[inspect]"'
        ) from None


def compute_on_cpu() -> None:
    """Sets JAX to the CPU, unless somebody has chosen or it has started.

    For the whole process: under `jax.default_device` an accelerator starts all the
    same, and JAX takes most of its memory, which the evaluated model may need.
    """
    if "JAX_PLATFORMS" in os.environ:
        return
    import jax

    if not has_started() and jax.config.jax_platforms is None:  # pyright: ignore
        jax.config.update("jax_platforms", "cpu")
