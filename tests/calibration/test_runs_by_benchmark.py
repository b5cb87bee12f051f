"""Errors by runs of a table with several benchmarks."""

from typing import Any

import numpy as np
import pytest

import irtjax
from irtjax.calibration.run_errors import run_errors_of
from irtjax.calibration.runs import with_run_sd
from irtjax.calibration.tables import of_benchmark
from irtjax.data.reading.run_errors import run_errors
from irtjax.data.runs import RunErrors

#: Runs, subjects, items of each benchmark, data sets.
RUNS, SUBJECTS, ITEMS, SETS = 4, 25, (60, 40), 40
LABELS = np.repeat(["code", "math"], ITEMS)
#: Standard deviations of what a run moves everywhere, and in each benchmark beside it.
COMMON, OWN = 0.05, {"code": 0.12, "math": 0.1}
#: Chances of right responses, with room for effects.
CHANCE = np.random.default_rng(1).uniform(0.4, 0.6, (SUBJECTS, sum(ITEMS)))


def simulated(rng, common: float, own: dict[str, float]) -> np.ndarray:
    """`[runs, subjects, items]` responses."""
    shape = RUNS, SUBJECTS, 1
    moved = CHANCE + common * rng.normal(size=shape)
    for name, size in own.items():
        moved = moved + size * rng.normal(size=shape) * (LABELS == name)
    return (rng.random(moved.shape) < moved).astype(float)


def components(responses, labels: Any = LABELS) -> RunErrors | None:
    run, cell = np.indices((RUNS, SUBJECTS * sum(ITEMS))).reshape(2, -1)
    shape = SUBJECTS, sum(ITEMS)
    return run_errors(cell, run, responses.reshape(-1), shape, labels)


def test_components_are_those_of_the_simulation():
    """Means over data sets are within four of their standard errors."""
    rng, estimates, squares, expected = np.random.default_rng(2), [], [], []
    noise = np.sum(CHANCE * (1 - CHANCE), axis=1) / sum(ITEMS) ** 2 / RUNS
    for _ in range(SETS):
        responses = simulated(rng, COMMON, OWN)
        errors = components(responses)
        assert errors is not None
        numbers = errors.common, *map(errors.of_benchmark, OWN)
        estimates.append([RUNS * float(x[0]) ** 2 for x in numbers])
        table = irtjax.ResponseTable.from_arrays(responses[0], benchmark=LABELS)
        squares.append((responses.mean(axis=(0, 2)) - CHANCE.mean(axis=1)) ** 2)
        of_runs = table.replace(runs=errors).run_error
        assert of_runs is not None
        expected.append(of_runs**2)
    values = np.array(estimates)
    truth = COMMON**2 + np.square([0, *OWN.values()])
    gap = values.mean(axis=0) - truth
    assert np.all(np.abs(gap) < 4 * values.std(axis=0) / np.sqrt(SETS))
    # A mean score has the noise of responses and what runs share: of 1,000 squares,
    # each with the relative standard deviation sqrt(2).
    size = 4 * np.sqrt(2 / (SETS * SUBJECTS))
    ratio = np.mean(squares) / (np.mean(noise) + np.mean(expected))
    assert ratio == pytest.approx(1, abs=size)


def test_only_a_benchmark_whose_runs_differ_has_a_component():
    """Without effects each test is wrong in 5 %: of 200, by 3 standard errors less."""
    rng, wrong = np.random.default_rng(3), []
    for _ in range(100):
        errors = components(simulated(rng, 0, {"code": OWN["code"]}))
        assert errors is not None and "code" in errors.own
        wrong.append(errors.own.get("math", np.zeros(1))[0] > 0)
        chance = components(simulated(rng, 0, {}))
        wrong.append(chance is not None and "math" in chance.own)
    assert np.mean(wrong) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(wrong))


def test_without_own_effects_all_benchmarks_have_the_common_one():
    errors = components(simulated(np.random.default_rng(4), 0.1, {}))
    alone = components(simulated(np.random.default_rng(4), 0.1, {}), None)
    assert errors is not None and alone is not None
    cells = irtjax.ResponseTable.from_arrays(CHANCE).stored
    # From the same sums; a component of 75 degrees of freedom has an error of 8 %.
    assert errors.of_scores(cells, LABELS) == pytest.approx(alone.common, rel=0.08)
    assert (errors.of_benchmark("math") >= errors.common).all()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table that was read from a file of all runs."""
    folder = tmp_path_factory.mktemp("runs")
    responses = simulated(np.random.default_rng(5), 0, OWN)
    lines = ["model,item,benchmark,run,correct"]
    for (run, subject, item), value in np.ndenumerate(responses[:, :10]):
        label = LABELS[item]
        lines.append(f"m{subject},{label}/{item},{label},{run},{int(value)}")
    (folder / "all.csv").write_text("\n".join(lines))
    for name in OWN:
        part = [lines[0], *(x for x in lines if f",{name}," in x)]
        (folder / f"{name}.csv").write_text("\n".join(part))
    return irtjax.read(folder / "all.csv"), folder


def test_components_are_read_saved_and_cut(table, tmp_path):
    whole, folder = table
    assert {*whole.runs.own} == {*OWN}
    for name in ("saved.json", "saved.parquet"):
        again = irtjax.ResponseTable.load(whole.save(tmp_path / name))
        assert again.run_error == pytest.approx(whole.run_error, abs=0)
    for name in OWN:
        part = whole.select(items=whole.benchmarks == name)
        assert part.run_error == pytest.approx(whole.runs.of_benchmark(name))
        alone = irtjax.read(folder / f"{name}.csv").run_error
        assert alone is not None
        assert part.run_error == pytest.approx(alone, rel=0.15)
    files = irtjax.read([folder / f"{name}.csv" for name in OWN])
    assert files.run_error == pytest.approx(whole.run_error, rel=0.15)


def test_each_accuracy_has_the_error_of_its_runs(table):
    whole, _ = table
    narrow = irtjax.fit(whole.replace(runs=None), "rasch", method="em")
    wide = irtjax.fit(whole, "rasch", method="em")
    column = lambda fit, name: np.asarray(fit.abilities.table[name], float)
    for name in OWN:
        names = of_benchmark(name)
        before, after = column(narrow, names[1]), column(wide, names[1])
        assert after == pytest.approx(np.hypot(before, whole.runs.of_benchmark(name)))
        assert (column(wide, names[2]) < column(narrow, names[2])).all()
    for name in ("accuracy_se", "expected_score_se"):
        error = np.hypot(column(narrow, name), whole.run_error)
        assert column(wide, name) == pytest.approx(error)
    ranks = [column(x, "rank_upper") - column(x, "rank_lower") for x in (narrow, wide)]
    assert np.mean(ranks[1]) > np.mean(ranks[0])
    assert any("points; on code" in note for note in wide.notes)
    stated = with_run_sd(narrow, 3)
    name = of_benchmark("math")[1]
    assert column(stated, name) == pytest.approx(np.hypot(column(narrow, name), 0.03))
    claims = [irtjax.claim("m1 > m2", x) for x in (whole, whole.replace(runs=None))]
    added = np.hypot(*whole.run_error[[1, 2]])
    assert claims[0].standard_error == pytest.approx(
        np.hypot(claims[1].standard_error, added)
    )


def test_errors_over_benchmarks_have_their_own_components():
    """Own effects of five benchmarks are in how their means differ: not added twice."""
    labels = np.repeat([*"abcde"], 4)
    runs = RunErrors(np.array([0.01, 0.02]), {"a": np.array([0.1, 0.1])})
    table = irtjax.ResponseTable.from_arrays(np.ones((2, 20)), benchmark=labels)
    table = table.replace(runs=runs)
    assert run_errors_of(table, clusters=labels) == pytest.approx(runs.common)
    each = np.hypot(runs.common, 0.1 / 5)
    assert run_errors_of(table) == pytest.approx(each)
    assert run_errors_of(table, clusters=np.arange(20)) == pytest.approx(each)
