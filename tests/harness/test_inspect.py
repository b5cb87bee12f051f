"""Adaptive evaluation inside the real Inspect, with its mock model.

Without inspect-ai only the tests that need none of it run; `.ci/run` installs it.
"""

import asyncio
import contextvars
import dataclasses
import json
import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import irtjax
from irtjax.adaptive import ItemBank
from irtjax.calibration.parts import Structure
from irtjax.harness import inspect as harness
from irtjax.harness import inspect_samples
from irtjax.harness.bank import ItemIds, open_fit
from irtjax.harness.inspect import (
    AdaptiveSamples,
    EarlyStopping,
    _drawn_score,
    number_of,
)
from tests.harness import newcomer
from tests.harness.logs import NAMES, chance, right_of, toy_fit

try:
    import inspect_ai
except ImportError:
    inspect_ai = None
needs_inspect = pytest.mark.skipif(inspect_ai is None, reason="inspect-ai is missing")
TASK = "toy_math"


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return irtjax.save(toy_fit(), tmp_path_factory.mktemp("fits") / "fit")


# Without Inspect: samples and logged samples are plain objects.


class Plain(types.SimpleNamespace):
    """A stand-in for `inspect_ai.dataset.Sample`."""

    def model_copy(self, update):
        return Plain(**{**vars(self), **update})


def plain_samples(count=12, ids=True):
    numbers = range(count)
    return [Plain(id=k if ids else None, metadata={"k": k}) for k in numbers]


def logged(sample, value, name="match"):
    scores = {} if value is None else {name: types.SimpleNamespace(value=value)}
    more = {"scores": scores, "metadata": sample.metadata}
    return types.SimpleNamespace(id=sample.id, epoch=1, **more)


def asked(source, context):
    """What a source gives when it is asked, in the context of an evaluation."""
    with asyncio.Runner() as runner:
        return runner.run(source._after_none_is_left(), context=context)


def test_samples_come_as_the_adaptive_test_chooses_them():
    source = AdaptiveSamples(plain_samples(), toy_fit(), benchmark=TASK, num_items=5)
    items = [name for name in NAMES if name.startswith(TASK)]
    one = irtjax.AdaptiveTest(toy_fit(), 5, items=items)
    waiting = source.next_samples()
    number = 0
    while waiting:
        (sample,) = waiting
        number += 1
        item = one.next_item()
        assert f"{TASK}/{sample.id}" == item and sample.metadata["k"] == sample.id
        so_far = {"ability": one.ability, "ability_se": one.standard_error}
        known = dict(sample.metadata["irtjax"])
        assert len(known.pop("test")) == 8
        assert known == {"number": number, **so_far}
        right = int(right_of("m", item))
        one.record(item, right)
        waiting = asyncio.run(source._after_sample(logged(sample, "IC"[right])))
    assert number == 5 and source.test.responses == one.responses
    assert source.test.over and source.next_samples() == []


def test_metadata_of_drawn_samples_have_the_score_of_the_test():
    rules = dict(benchmark=TASK, parallel=2, num_items=8, select="score", key=1)
    source = AdaptiveSamples(plain_samples(), toy_fit(), **rules)
    flying, scores, responses = source.next_samples(), [], {}
    while flying:
        sample = flying.pop()
        right = int(right_of("m", f"{TASK}/{sample.id}"))
        responses[f"{TASK}/{sample.id}"] = right
        record = dict(sample_id=sample.id, sample_metadata=sample.metadata)
        scores.append(types.SimpleNamespace(**record))
        flying += asyncio.run(source._after_sample(logged(sample, "IC"[right])))
    ids = ItemIds(toy_fit(), TASK)
    logged_score = _drawn_score(scores, ids, responses, 0.95)
    score = source.test.score()
    assert logged_score == {
        "score": score.score,
        "score_se": score.standard_error,
        "score_lower": score.lower,
        "score_upper": score.upper,
    }
    assert score.answers == 8 and score.items == len(plain_samples())
    assert _drawn_score(scores[:1], ids, responses, 0.95) == {}


def test_scores_of_errors_are_reversed_as_those_of_the_fit():
    fit = toy_fit()
    formulas = pa.array(["1 - error"] * len(fit.item_names))
    table = fit.items.table.append_column("reversed_scores", formulas)
    turned = dataclasses.replace(fit, items=type(fit.items)(table))
    responses = []
    for one, score in ((fit, 1), (turned, 0)):
        source = AdaptiveSamples(plain_samples(), one, benchmark=TASK, num_items=3)
        waiting = source.next_samples()
        while waiting:
            waiting = asyncio.run(source._after_sample(logged(waiting[0], score)))
        responses.append(source.test.responses)
    assert responses[0] == responses[1] and len(responses[0]) == 3


def test_several_samples_in_flight_are_never_given_twice():
    rules = dict(benchmark=TASK, parallel=3, num_items=9)
    source = AdaptiveSamples(plain_samples(), toy_fit(), **rules)
    flying = source.next_samples()
    assert len(flying) == 3 and source.next_samples() == []
    seen = [sample.id for sample in flying]
    while flying:
        # The last begun ends first.
        new = asyncio.run(source._after_sample(logged(flying.pop(), 1)))
        flying += new
        seen += [sample.id for sample in new]
        assert len(flying) <= 3
    assert len(seen) == len(set(seen)) == 9 and source.test.over


def test_samples_without_a_score_are_left_out():
    rules = dict(benchmark=TASK, parallel=2, num_items=4)
    source = AdaptiveSamples(plain_samples(), toy_fit(), **rules)
    context = contextvars.copy_context()
    first, second = asked(source, context)
    source.take(logged(first, None))
    source.take(logged(second, float("nan")))
    assert source.test.num_given == 0 and len(source.test.skipped) == 2
    # It failed and was run again: too late, but no reason to end the evaluation.
    source.take(logged(first, "C"))
    source.next_samples()
    # Those in flight were cancelled: the next ones take their place.
    cancelled = source.test.handed_out
    after = asked(source, context)
    assert len(after) == 2 and set(cancelled) < set(source.test.skipped)


def test_wrong_evaluations_are_refused_in_one_line():
    def begun(**more):
        rules = dict(benchmark=TASK, num_items=4) | more
        return AdaptiveSamples(plain_samples(), toy_fit(), **rules)

    source = begun()
    (sample,) = source.next_samples()
    source.take(logged(sample, "C"))
    with pytest.raises(ValueError, match="twice: an adaptive task is for one epoch"):
        source.take(logged(sample, "C"))
    source = begun(scorer="f1")
    (sample,) = source.next_samples()
    with pytest.raises(ValueError, match="has no score 'f1'; there are: match"):
        source.take(logged(sample, "C"))
    source = begun()
    (sample,) = source.next_samples()
    for value, match in [
        ({"a": 1}, "score of several values"),
        ("maybe", "'maybe', which is not a number"),
    ]:
        with pytest.raises(ValueError, match=match) as error:
            source.take(logged(sample, value))
        assert "\n" not in str(error.value) and "sample" in str(error.value)
    with pytest.raises(ValueError, match="parallel 0"):
        begun(parallel=0)
    with pytest.raises(ValueError, match="repeats: a sample is evaluated once"):
        begun(repeats=2, icc=0.1)
    parts = begun(scorer="match/a")
    (sample,) = parts.next_samples()
    parts.take(logged(sample, {"a": True, "b": 0}))
    assert parts.test.num_given == 1


def test_a_score_that_the_model_does_not_take_ends_no_evaluation(caplog):
    rules = dict(benchmark=TASK, parallel=2, num_items=3)
    source = AdaptiveSamples(plain_samples(), toy_fit(), **rules)
    first, second = source.next_samples()
    source.take(logged(first, "P"))
    assert "was left out" in caplog.text and "the response 0.5 is not" in caplog.text
    source.take(logged(second, "C"))
    assert source.test.skipped == (f"{TASK}/{first.id}",)
    assert len(source.next_samples()) == 2 and source.test.num_given == 1


def test_scores_that_the_model_never_takes_are_refused():
    source = AdaptiveSamples(plain_samples(), toy_fit(), benchmark=TASK)
    with pytest.raises(ValueError, match="'[0-9]+': .*all 5 samples so far: choose"):
        for _ in range(5):
            source.take(logged(*source.next_samples(), "P"))
    assert len(source.test.skipped) == 4


def test_scores_are_numbers():
    pairs = [("C", 1), ("I", 0), ("N", 0), ("yes", 1), ("0", 0), (True, 1), (0.2, 0.2)]
    for value, number in pairs:
        assert number_of(value, "sample") == number
    assert number_of(None, "s") is None and number_of("", "s") is None


def test_ids_are_those_of_one_benchmark():
    ids = ItemIds(toy_fit(), TASK)
    assert ids.match(["3", "99"]) == {"3": "toy_math/3"}
    both = ItemIds(toy_fit())
    with pytest.raises(ValueError, match=r"\(toy_math, toy_text\): choose one with"):
        both.match(["3"])
    assert both.match(["11"]) == {"11": "toy_math/11"}
    assert both.match(["toy_text/3"]) == {"toy_text/3": "toy_text/3"}
    with pytest.raises(ValueError, match="none of the 1 sample .the first is 'x'"):
        both.match(["x"])
    with pytest.raises(ValueError, match="no items gsm/ID; its benchmarks are: toy_m"):
        ItemIds(toy_fit(), "gsm")
    # Samples without ids are numbered from 1, as Inspect does.
    source = AdaptiveSamples(plain_samples(5, ids=False), toy_fit(), benchmark=TASK)
    assert source.test_items == tuple(f"{TASK}/{k}" for k in range(1, 6))


def test_an_ability_for_each_benchmark_is_no_bank():
    none: Any = (None,) * 9
    fit = toy_fit().with_part(Structure(np.array(["a", "b"]), *none))
    with pytest.raises(ValueError, match="an ability for each benchmark"):
        open_fit(fit)


@pytest.mark.skipif(inspect_ai is not None, reason="inspect-ai is installed")
def test_what_to_install_is_named(saved):
    for call in (harness.ability, lambda fit: harness.adaptive(None, fit)):
        with pytest.raises(ImportError, match=r'pip install "irtjax\[inspect\]"'):
            call(saved)


# The real Inspect.


def dataset(task=TASK):
    from inspect_ai.dataset import Sample

    # Ids of Inspect's own numbering begin with 1: these are those of the fit.
    names = [name for name in NAMES if name.startswith(task)]
    return [Sample(id=n.split("/")[1], input=n, target="yes") for n in names]


def named(name):
    """As `model`, under a name of its own."""
    return model(name, path=f"mockllm/{name}")


def model(name="m", failing=(), path="mockllm/model"):
    """A mock model whose responses are those of `right_of`."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    def outputs(messages, tools, tool_choice, config):
        item = messages[-1].text
        if item in failing:
            raise RuntimeError(f"no answer to {item}")
        text = "yes" if right_of(name, item) else "no"
        output = ModelOutput.from_content(path, text)
        output.usage = ModelUsage(input_tokens=7, output_tokens=3, total_tokens=10)
        return output

    return get_model(path, custom_outputs=outputs, memoize=False)


def task_of(**more):
    from inspect_ai import Task
    from inspect_ai.scorer import match
    from inspect_ai.solver import generate

    parts = dict(dataset=dataset(), solver=generate(), scorer=match(), name=TASK)
    return Task(**parts | more)


def evaluate(task, folder, **more):
    given = dict(model=model(), log_dir=str(folder), display="none") | more
    (log,) = inspect_ai.eval(task, **given)
    return log


@needs_inspect
def test_a_task_becomes_an_adaptive_test(tmp_path, saved):
    task = harness.adaptive(task_of(), saved, benchmark=TASK, num_items=5)
    log = evaluate(task, tmp_path)
    assert log.status == "success"
    items = [name for name in NAMES if name.startswith(TASK)]
    one = irtjax.AdaptiveTest(toy_fit(), 5, items=items)
    path = []
    while (item := one.next_item()) is not None:
        path.append((item, one.ability, one.standard_error))
        one.record(item, int(right_of("m", item)))
    # What was run, in which order, and the ability before each sample.
    by_number = sorted(log.samples, key=lambda x: x.metadata["irtjax"]["number"])
    found = [
        (f"{TASK}/{x.id}", *list(x.metadata["irtjax"].values())[1:3]) for x in by_number
    ]
    assert [row[0] for row in found] == [row[0] for row in path]
    np.testing.assert_allclose([x[1:] for x in found], [x[1:] for x in path], atol=1e-6)
    # The estimate is a metric of the eval, and the rules are in its metadata.
    values = {k: m.value for k, m in log.results.scores[0].metrics.items()}
    assert values["ability"] == pytest.approx(one.ability, abs=1e-4)
    assert values["ability_se"] == pytest.approx(one.standard_error, rel=1e-3)
    assert values["ability_lower"] < values["ability"] < values["ability_upper"]
    assert 0 < values["expected_score_lower"] < values["expected_score"] < 1
    assert values["items"] == 5 and "accuracy" not in values
    (logged,) = log.eval.scorers[0].metrics
    assert logged.name == "irtjax/ability" and logged.options["fit"] == str(saved)
    about = log.eval.metadata["irtjax"]
    assert about["fit"] == str(saved) and about["num_items"] == 5
    # The log is read as any other.
    table = irtjax.read(log.location)
    assert sorted(table.items.tolist()) == sorted(row[0] for row in path)


@needs_inspect
def test_fewer_samples_have_the_error_of_a_full_run(tmp_path, saved):
    """Samples spent against a full run of 10 (`--limit 10`) at its error."""
    metrics = [harness.ability(saved, benchmark=TASK)]
    whole = evaluate(task_of(metrics=metrics), tmp_path / "full", limit=10)
    whole = whole.results.scores[0].metrics
    error = whole["ability_se"].value
    rules = dict(benchmark=TASK, standard_error=error, parallel=2)
    short = evaluate(harness.adaptive(task_of(), saved, **rules), tmp_path / "short")
    found = short.results.scores[0].metrics
    assert found["ability_se"].value <= error
    assert whole["items"].value == 10 and found["items"].value <= 9
    gap = abs(found["ability"].value - whole["ability"].value)
    assert gap < 2 * found["ability_se"].value


@needs_inspect
@pytest.mark.slow
@pytest.mark.parametrize(("limit", "times"), [(100, 1.0), (200, 1.25)])
def test_samples_spent_against_a_full_run(tmp_path, limit, times):
    """At the error of a run of half the samples, and near that of a run of all.

    Those of docs/evidence/adaptive.md are of twelve models in place of three.
    """
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    rng, size = np.random.default_rng(0), 200
    slope, level = np.exp(rng.normal(0, 0.4, size)), rng.normal(0, 1.3, size)
    chances = lambda theta: 1 / (1 + np.exp(-(theta[:, None] * slope + level)))
    right = rng.random((40, size)) < chances(rng.normal(size=40))
    names = [f"{TASK}/{k}" for k in range(size)]
    fit = irtjax.fit(irtjax.ResponseTable.from_arrays(right, items=names))
    saved = irtjax.save(fit, tmp_path / "fit")
    samples = [Sample(id=k, input=str(k), target="yes") for k in range(size)]

    def run(task, answers, folder, **more):
        def outputs(messages, tools, tool_choice, config):
            text = "yes" if answers[int(messages[-1].text)] else "no"
            output = ModelOutput.from_content("mockllm/model", text)
            output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
            return output

        mock = get_model("mockllm/model", custom_outputs=outputs, memoize=False)
        return evaluate(task, folder, model=mock, **more).results.scores[0].metrics

    spent = []
    for k, theta in enumerate(rng.normal(size=3)):
        answers = rng.random(size) < chances(np.array([theta]))[0]
        full = task_of(
            dataset=samples, metrics=[harness.ability(saved, benchmark=TASK)]
        )
        whole = run(full, answers, tmp_path / f"full{k}", limit=limit)
        error = times * whole["ability_se"].value
        rules = dict(benchmark=TASK, standard_error=error, num_items=size)
        short = harness.adaptive(task_of(dataset=samples), saved, **rules)
        found = run(short, answers, tmp_path / f"short{k}")
        # The test integrates the errors of items out, the metric adds them.
        assert found["ability_se"].value <= error * 1.05
        assert whole["items"].value == limit
        gap = abs(found["ability"].value - whole["ability"].value)
        assert gap < 3 * found["ability_se"].value
        spent.append(found["items"].value)
    # An ability that is estimated lower has less information: one may take more.
    assert np.median(spent) < 60


def test_early_stopping_needs_a_rule_and_an_order(monkeypatch):
    manager = lambda **rules: EarlyStopping(
        plain_samples(), toy_fit(), benchmark=TASK, **rules
    )
    with pytest.raises(ValueError, match="no stop rule: give one"):
        manager()
    with pytest.raises(ValueError, match=r"use adaptive\(\) to choose each"):
        manager(select="information", num_items=3)
    samples = manager(num_items=3).in_order()
    # The items of middle difficulty add the most before any response.
    assert sorted(x.id for x in samples) == list(range(12))
    difficulty = -np.asarray(toy_fit().parameters.items.intercept)[:12]
    away = np.abs(difficulty)[[x.id for x in samples]]
    assert (np.diff(away) > -1e-9).all()
    # As of a bank with response lengths, which has no mutual information.
    monkeypatch.setattr(ItemBank, "selections", ("information",))
    assert sorted(x.id for x in manager(num_items=3).in_order()) == list(range(12))


@needs_inspect
def test_a_task_ends_at_the_error_that_is_wanted(tmp_path, saved):
    rules = dict(benchmark=TASK, standard_error=0.75)
    task = harness.stop_early(task_of(), saved, **rules)
    log = evaluate(task, tmp_path, max_samples=1)
    assert log.status == "success"
    found = {k: m.value for k, m in log.results.scores[0].metrics.items()}
    assert found["ability_se"] < 0.75 and "accuracy" not in found
    summary = log.results.early_stopping
    assert summary.manager == "irtjax"
    # Those that were run are the first in the order, and the others were stopped.
    order = [str(x.id) for x in task.early_stopping.in_order()]
    size = len(log.samples)
    assert 1 < size < 12 and found["items"] == size
    assert {str(x.id) for x in log.samples} == set(order[:size])
    assert {str(x.id) for x in summary.early_stops} == set(order[size:])
    assert {x.reason for x in summary.early_stops} == {"standard error"}
    known = summary.metadata
    assert known["ability"] == pytest.approx(found["ability"], abs=1e-4)
    assert (known["items"], known["stopped"]) == (size, "standard error")
    # One sample less would not have been enough.
    one = irtjax.AdaptiveTest(toy_fit(), select="fixed", standard_error=0.75)
    for key in order[:size]:
        assert one.hand_out(f"{TASK}/{key}") == ""
        one.record(f"{TASK}/{key}", int(right_of("m", f"{TASK}/{key}")))
    assert one.stopped == "standard error"
    about = log.eval.metadata["irtjax"]
    assert (about["standard_error"], about["items"], about["sort"]) == (0.75, 12, True)


@needs_inspect
def test_early_stopping_with_samples_in_flight_failures_and_another_model(
    tmp_path, saved
):
    rules = dict(benchmark=TASK, num_items=4, sort=False)
    task = harness.stop_early(task_of(), saved, **rules)
    more = dict(model=model(failing=(f"{TASK}/0",)), fail_on_error=False)
    log = evaluate(task, tmp_path / "a", max_samples=3, **more)
    assert log.status == "success"
    # A sample that failed waits for a response to the end, and counts until then.
    assert log.results.scores[0].metrics["items"].value in (3, 4)
    again = evaluate(task, tmp_path / "b", max_samples=3)
    assert again.results.scores[0].metrics["items"].value == 4
    assert {str(x.id) for x in again.samples} == set("0123")


def by_evaluation(source, models, turns):
    """Evaluates models at once, each in a context of its own, one sample a turn."""

    contexts = {name: contextvars.copy_context() for name in models}
    waiting = {name: asked(source, contexts[name]) for name in models}
    given = {name: [] for name in models}
    for name in turns:
        # As in Inspect, the contexts of samples do not come from that of the source.
        (sample,) = waiting[name]
        item = f"{TASK}/{sample.id}"
        right = int(right_of(name, item))
        given[name].append((item, right))
        taken = logged(sample, "IC"[right])
        waiting[name] = asyncio.run(source._after_sample(taken))
    assert [asked(source, contexts[name]) for name in models] == [None] * len(models)
    return given


def test_models_that_are_evaluated_at_once_have_tests_of_their_own():
    rules = dict(benchmark=TASK, num_items=5)
    source = AdaptiveSamples(plain_samples(), toy_fit(), **rules)
    items = [name for name in NAMES if name.startswith(TASK)]
    given = by_evaluation(source, "abc", "aabcbacbcabcabc")
    paths = set()
    for name, taken in given.items():
        one = irtjax.AdaptiveTest(toy_fit(), 5, items=items)
        for item, right in taken:
            assert one.next_item() == item, name
            one.record(item, right)
        assert one.over
        paths.add(tuple(taken))
    assert len(paths) > 1  # They do not give the same responses.


def test_a_sample_that_does_not_show_its_test():
    rules = dict(benchmark=TASK, num_items=5)
    source = AdaptiveSamples(plain_samples(), toy_fit(), **rules)
    (sample,) = asked(source, contextvars.copy_context())
    bare = lambda: Plain(id=sample.id, metadata={"other": 1})
    source.take(logged(bare(), "C"))  # There is only one that waits for it.
    assert source.test.num_given == 1
    for _ in range(2):
        asked(source, contextvars.copy_context())
    with pytest.raises(ValueError, match="which of 2 evaluations .* keep metadata"):
        source.take(logged(bare(), "C"))


def test_early_stopping_of_two_models_at_once(monkeypatch):
    stop = types.SimpleNamespace(EarlyStop=lambda **known: known)
    monkeypatch.setattr(inspect_samples, "require", lambda name: stop)
    one = EarlyStopping(plain_samples(), toy_fit(), benchmark=TASK, num_items=2)
    score = lambda value: {"match": Plain(score=Plain(value=value))}

    async def evaluate(value):
        await one.start_task(Plain(), [], 1)
        for k in range(3):
            await asyncio.sleep(0)  # The turn of the other.
            stopped = await one.schedule_sample(k, 1)
            assert (stopped is None) == (k < 2)
            if stopped is None:
                await one.complete_sample(k, 1, score(value))
        return await one.complete_task()

    async def both():
        return await asyncio.gather(*map(evaluate, "CI"))

    good, bad = asyncio.run(both())
    assert good["items"] == bad["items"] == 2
    assert good["ability"] > bad["ability"]


@needs_inspect
def test_a_task_is_evaluated_again_after_an_error(tmp_path, saved):
    task = harness.stop_early(task_of(), saved, benchmark=TASK, num_items=4, sort=False)
    failing = model(failing=(f"{TASK}/0",))
    assert evaluate(task, tmp_path / "a", model=failing).status == "error"
    again = evaluate(task, tmp_path / "b")
    assert again.status == "success"
    assert {str(x.id) for x in again.samples} == set("0123")


@needs_inspect
@pytest.mark.parametrize("begin", [harness.adaptive, harness.stop_early])
def test_models_of_one_call_have_tests_of_their_own(tmp_path, saved, begin):
    task = begin(task_of(), saved, benchmark=TASK, num_items=4)
    more = dict(log_dir=str(tmp_path), display="none", max_tasks=2)
    both = [named(name) for name in "ab"]
    logs = inspect_ai.eval(task, model=both, **more)
    # The same task again, and alone.
    logs += inspect_ai.eval(task, model=both[1], **more)
    assert [log.status for log in logs] == ["success"] * 3
    found = [log.results.scores[0].metrics for log in logs]
    assert [x["items"].value for x in found] == [4, 4, 4]
    given = [{str(x.id) for x in log.samples} for log in logs]
    assert [len(ids) for ids in given] == [4, 4, 4] and given[1] == given[2]
    assert found[1]["ability"].value == pytest.approx(found[2]["ability"].value)
    assert abs(found[0]["ability"].value - found[1]["ability"].value) > 1e-3
    # Each has the ability of a test of its own.
    for name, log, values in zip("abb", logs, found, strict=True):
        one = irtjax.AdaptiveTest(toy_fit(), select="fixed", num_items=4)
        for sample in log.samples:
            item = f"{TASK}/{sample.id}"
            one.hand_out(item)
            one.record(item, int(right_of(name, item)))
        assert values["ability"].value == pytest.approx(one.ability, abs=1e-4)


@needs_inspect
def test_early_stopping_is_of_one_epoch(tmp_path, saved):
    task = harness.stop_early(task_of(), saved, benchmark=TASK, num_items=4)
    log = evaluate(task, tmp_path, epochs=2)
    assert log.status == "error" and "leave --epochs out" in log.error.message


@needs_inspect
def test_the_task_of_the_page_runs(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "harness.md").read_text("utf-8")
    (code,) = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    items = np.array([f"sums/{k}" for k in range(len(NAMES))])
    fit = dataclasses.replace(toy_fit(), item_names=items, benchmarks=None)
    monkeypatch.chdir(tmp_path)
    irtjax.save(fit, "calibrated")
    state = {"__name__": "tasks"}
    exec(code, state)
    # 30 samples or the error: of the 20 that are items it needs all.
    right = dict.fromkeys((f"{k} + {k} =" for k in range(20)), False)
    log = evaluate(state["arithmetic_adaptive"](), "logs", model=fixed("m", right))
    assert log.status == "success"
    assert 4 <= log.results.scores[0].metrics["items"].value <= 20


@needs_inspect
def test_failing_samples_cost_no_evaluation(tmp_path, saved):
    first = AdaptiveSamples(dataset(), saved, benchmark=TASK).next_samples()[0]
    failing = (f"{TASK}/{first.id}",)
    task = harness.adaptive(task_of(), saved, benchmark=TASK, num_items=3)
    more = dict(model=model(failing=failing), fail_on_error=False)
    log = evaluate(task, tmp_path, **more)
    assert log.status == "success" and len(log.samples) == 4
    assert log.results.scores[0].metrics["items"].value == 3


@needs_inspect
def test_the_metric_never_loses_an_evaluation(tmp_path, saved, caplog):
    from inspect_ai.scorer import Score, match, mean, scorer

    @scorer(metrics=[mean()])
    def odd():
        async def score(state, target):
            return Score(value=0.3)

        return score

    metric = harness.ability(saved, benchmark=TASK)
    task = task_of(scorer=[match(), odd()], metrics=[metric])
    log = evaluate(task, tmp_path / "a")
    assert log.status == "success"
    by_name = {score.name: score.metrics for score in log.results.scores}
    assert by_name["match"]["items"].value == 12 and by_name["odd"] == {}
    assert any("no ability" in x.message for x in caplog.records)
    # With a name it is the metric of that scorer alone.
    named = dict(benchmark=TASK, num_items=4, scorer="match")
    task = harness.adaptive(task_of(scorer=[match(), odd()]), saved, **named)
    log = evaluate(task, tmp_path / "b")
    by_name = {score.name: score.metrics for score in log.results.scores}
    assert by_name["match"]["items"].value == 4 and list(by_name["odd"]) == ["mean"]


@needs_inspect
def test_one_value_of_a_scorer_may_count(tmp_path, saved):
    from inspect_ai.scorer import Score, mean, scorer

    @scorer(metrics={"a": [mean()], "b": [mean()]})
    def two():
        async def score(state, target):
            return Score(value={"a": state.output.completion == "yes", "b": 3})

        return score

    rules = dict(benchmark=TASK, num_items=3, scorer="two/a")
    task = harness.adaptive(task_of(scorer=two()), saved, **rules)
    log = evaluate(task, tmp_path)
    (score,) = log.results.scores
    # In a mapping Inspect puts the metric's name before those of its values.
    assert score.name == "a" and score.metrics["irtjax/ability_items"].value == 3
    items = {f"{TASK}/{x.id}": x.scores["two"].value["a"] for x in log.samples}
    assert items == {name: bool(right_of("m", name)) for name in items}


@needs_inspect
def test_the_frame_of_inspect_is_read_as_its_logs(tmp_path):
    from inspect_ai.analysis import EvalModel, EvalTask, SampleSummary, samples_df

    evaluate(task_of(), tmp_path, epochs=2)
    frame = samples_df(str(tmp_path), columns=EvalTask + EvalModel + SampleSummary)
    table = irtjax.from_inspect(frame, trials="counts")
    logs = irtjax.read(tmp_path, trials="counts")
    order = logs.items.tolist()
    same = table.select(items=order)
    assert same.items.tolist() == order and table.num_items == 12
    np.testing.assert_array_equal(same.values, logs.values)
    np.testing.assert_array_equal(same.trials, logs.trials)
    np.testing.assert_array_equal(same.lengths, logs.lengths)
    assert table.subjects.tolist() == logs.subjects.tolist()
    with pytest.raises(ValueError, match="columns=EvalTask . EvalModel"):
        irtjax.from_inspect(samples_df(str(tmp_path)))


@needs_inspect
@pytest.mark.slow
def test_the_three_commands_of_a_newcomer(tmp_path):
    """Logs of Inspect to a leaderboard, bad items and a subset of 50 items."""
    from inspect_ai.dataset import Sample

    for name, right in newcomer.responses().items():
        table = {f"question {k}": bool(x) for k, x in enumerate(right)}
        samples = [Sample(input=question, target="yes") for question in table]
        task = task_of(dataset=samples, name="arith")
        log = evaluate(task, tmp_path / "logs", model=fixed(name, table))
        assert log.status == "success"
    # Inspect numbers samples from 1.
    bad = [f"arith/{k + 1}" for k in newcomer.BAD]
    newcomer.check_three_commands(tmp_path, bad)
    # Inspect takes the ids of the subset, and evaluates its items only.
    ids = json.loads((tmp_path / "subset" / "inspect_samples.json").read_text())
    found = tmp_path / "subset-logs"
    log = evaluate(task, found, model=fixed("new", table), sample_id=ids["arith"])
    assert log.status == "success"
    newcomer.check_score_of_subset(tmp_path, {f"arith/{x.id}" for x in log.samples})


def fixed(name, table):
    """A mock model under a name, with responses by prompt."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    def outputs(messages, tools, tool_choice, config):
        text = "yes" if table[messages[-1].text] else "no"
        output = ModelOutput.from_content(f"mockllm/{name}", text)
        output.usage = ModelUsage(input_tokens=7, output_tokens=3, total_tokens=10)
        return output

    return get_model(f"mockllm/{name}", custom_outputs=outputs, memoize=False)


def test_the_draws_of_the_toy_models_differ():
    # A guard for the tests above: half of the responses are right.
    right = np.mean([right_of("m", name) for name in NAMES])
    assert 0.2 < right < 0.8 and chance(0, 0) == 0.5
