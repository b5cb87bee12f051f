"""Tests of assumptions reject as often as they should, and find what is there."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import irtjax
from irtjax.calibration.assumptions import (
    BenchmarkTest,
    NormalityTest,
    normality_test,
    note_of_benchmarks,
    one_ability_test,
    untested,
    warnings_of,
    z_of_kurtosis,
    z_of_skewness,
)
from irtjax.models.families.logistic import Binary, LogisticItems


def responses(rng, subjects, items, benchmarks, sd, missing=0.0):
    code = np.arange(items) % benchmarks
    slope = np.exp(rng.normal(0.1, 0.4, size=items))
    intercept = rng.normal(0, 1, size=items)
    theta = rng.normal(size=subjects)
    own = rng.normal(0, sd, size=(subjects, benchmarks)) if sd else 0.0
    ability = theta[:, None] + (own[:, code] if sd else 0.0)
    chance = 1 / (1 + np.exp(-(slope * ability + intercept)))
    seen = rng.random(chance.shape) >= missing
    values = (rng.random(chance.shape) < chance) * seen
    record = LogisticItems(
        *(jnp.asarray(x) for x in (slope, intercept, 0 * slope, 1 + 0 * slope))
    )
    return theta, record, values.astype(float), seen, code.astype(str)


def estimated(theta, record, values, seen):
    """Maximum likelihood abilities, items known; Newton steps on the host."""
    a, d = (np.asarray(x) for x in record[:2])
    theta = theta.copy()
    for _ in range(30):
        p = 1 / (1 + np.exp(-(theta[:, None] * a + d)))
        slope = np.sum(a * (values - p) * seen, axis=1)
        curve = np.sum(a**2 * p * (1 - p) * seen, axis=1)
        theta = np.clip(theta + np.clip(slope / curve, -1, 1), -6, 6)
    return theta


def arrays_of(values, seen=None):
    return irtjax.Responses(
        jnp.asarray(values, jnp.int8), None if seen is None else jnp.asarray(seen)
    )


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_one_ability_is_rejected_as_often_as_stated(missing):
    p_values = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        theta, record, values, seen, names = responses(rng, 12, 90, 3, 0.0, missing)
        at = estimated(theta, record, values, seen)
        data = arrays_of(values, seen if missing else None)
        found = one_ability_test(Binary(), record, at, data, names)
        p_values.append(found.p_value)
    # 200 data sets at 5 %: at most 19 with probability 0.995. The test counts what
    # benchmarks' difficulties take away; items here are known, so it may reject less.
    count = int(np.sum(np.array(p_values) < 0.05))
    assert count <= stats.binom.ppf(0.995, 200, 0.05)


def test_abilities_by_benchmark_are_found_and_measured():
    sds = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        theta, record, values, seen, names = responses(rng, 12, 240, 3, 0.7)
        at = estimated(theta, record, values, seen)
        found = one_ability_test(Binary(), record, at, arrays_of(values), names)
        assert found.p_value < 0.01
        assert found.degrees == 22
        sds.append(found.sd)
    # One moment estimate has a relative error of about sqrt(1 / (2 * 22)): .15.
    assert abs(np.mean(sds) - 0.7) < 3 * 0.15 * 0.7 / 20**0.5 + 0.05


def by_benchmark(seed: int, sizes: tuple[int, ...], specific: float):
    """General abilities, expected scores, and responses to several benchmarks."""
    rng = np.random.default_rng([seed, *sizes])
    names, items = np.repeat(np.arange(len(sizes)), sizes), sum(sizes)
    general = rng.normal(size=10)
    each = general[:, None] + specific * rng.normal(size=(10, len(sizes)))
    slope = np.exp(rng.normal(0.1, 0.4, size=items))
    logit = slope * (each[:, names] - rng.normal(-0.3, 1.2, size=items))
    chance = 1 / (1 + np.exp(-logit))
    table = irtjax.ResponseTable.from_arrays(
        rng.random(chance.shape) < chance, benchmark=np.array([f"b{k}" for k in names])
    )
    return general, chance.mean(axis=1), table


@pytest.mark.slow
def test_abilities_that_differ_by_benchmark_are_mean_responses():
    table = by_benchmark(0, (60, 60, 60, 60), 0.8)[2]
    fit = irtjax.fit(table)
    assert not any("differ by benchmark" in line for line in fit.warnings)
    (note,) = (line for line in fit.notes if "differ by benchmark" in line)
    assert "ranked by mean responses" in note
    ability, error, score, score_error = (
        fit.abilities.table[name].to_numpy()
        for name in ("ability", "ability_se", "expected_score", "expected_score_se")
    )
    mean = table.values.mean(axis=1)
    np.testing.assert_allclose(np.corrcoef(ability, mean)[0, 1], 1)
    # Of complete responses the expected score is the accuracy, with the error of
    # responses given abilities: less than that over items.
    np.testing.assert_allclose(score, mean, atol=1e-12)
    accuracy_se = fit.abilities.table["accuracy_se"].to_numpy()
    assert np.all(score_error < accuracy_se) and np.all(score_error > 0.5 * accuracy_se)
    # Four benchmarks of a standard deviation of 0.8 move an ability by 0.4 at least.
    assert np.median(error) > 0.25
    assert irtjax.rank(fit).num_different < 45 * 0.8


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(60, 60, 60, 60), (120, 120), (120, 60, 40, 20)])
def test_intervals_count_the_choice_of_benchmarks(sizes):
    from experiments.coverage.designs import evaluate

    found = []
    for seed in range(25):
        general, score, table = by_benchmark(seed, sizes, 0.8)
        found.append(evaluate(general, score, table, irtjax.fit(table)))
    for name in ("difference", "score"):
        covered = np.array([one[name] for one in found])
        assert covered.mean() > 0.93 - 2 * covered.std() / 5, name
    assert np.mean([one["false"] for one in found]) < 0.05
    gain = np.array([one["tau"] - one["tau_accuracy"] for one in found])
    assert gain.mean() > -2 * gain.std() / 5 - 1e-9


def test_one_benchmark_is_not_tested():
    rng = np.random.default_rng(0)
    theta, record, values, _, names = responses(rng, 12, 30, 1, 0.0)
    assert one_ability_test(Binary(), record, theta, arrays_of(values), names) is None


def test_normality_is_rejected_as_often_as_stated():
    count = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        variance = rng.uniform(0.05, 0.3, size=200)
        # Posterior means of normal abilities have variance 1 less the posterior's.
        mean = rng.normal(size=200) * np.sqrt(1 - variance)
        count += normality_test(mean, variance).p_value < 0.01
    # 300 at 1 %: at most 9 with probability 0.999.
    assert count <= stats.binom.ppf(0.999, 300, 0.01)


def test_skewed_abilities_are_found():
    found = 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        ability = (rng.gamma(2.0, size=200) - 2) / 2**0.5
        variance = np.full(200, 0.15)
        mean = ability * (1 - variance) + rng.normal(size=200) * np.sqrt(
            variance * (1 - variance)
        )
        result = normality_test(mean, variance)
        found += result.p_value < 0.01 and result.skewness > 0
    assert found >= 45


def test_what_violations_mean():
    normal, error = NormalityTest(0.1, 0.2, 1e-9), np.array([0.2, 0.3, np.nan])
    assert note_of_benchmarks(BenchmarkTest(20.0, 20, 0.5, 0.0), error) == []
    assert note_of_benchmarks(None, error) == warnings_of(None) == []
    assert warnings_of(normal) == []
    # Of many responses a small deviation is significant: 0.06 adds nothing to errors.
    assert note_of_benchmarks(BenchmarkTest(90.0, 20, 1e-9, 0.06), error) == []
    assert len(note_of_benchmarks(BenchmarkTest(90.0, 20, 1e-9, 0.1), error)) == 1
    said = warnings_of(NormalityTest(1.4, 1.0, 1e-5))
    assert "skewness 1.4" in said[0] and "population='histogram'" in said[0]
    assert normality_test(np.zeros(20), np.ones(20)) is None
    assert untested(10, True) == [] and untested(90, False) == []
    assert "normal abilities (reliability is below 0.8)" in untested(90, True)[0]


def drawn_table(ability, num_items, seed):
    rng = np.random.default_rng(seed)
    easiness = rng.normal(size=num_items)
    chance = 1 / (1 + np.exp(-1.5 * ability[:, None] - easiness))
    right = rng.random(chance.shape) < chance
    return irtjax.ResponseTable.from_arrays(right.astype(float))


@pytest.mark.slow
def test_laplace_finds_skewed_abilities():
    """An exponential distribution has skewness 2, here to 0.3 (60 subjects)."""
    ability = np.random.default_rng(3).exponential(size=60) - 1
    fit = irtjax.fit(drawn_table(ability, 60, 2), "2pl", "laplace")
    found = [w for w in fit.warnings if w.startswith("abilities are not normal")]
    assert len(found) == 1 and "skewness" in found[0]
    assert not any(x.startswith("assumed and not tested") for x in fit.notes)


def test_what_responses_cannot_test_is_noted():
    """10 items have a reliability below .8."""
    ability = np.random.default_rng(3).exponential(size=60) - 1
    table = drawn_table(ability, 10, 2)
    more = {"standard_errors": "none", "max_steps": 20}
    fit = irtjax.fit(table, "2pl", "em", **more)
    assert not any("not normal" in text for text in fit.warnings)
    assert "(reliability is below 0.8)" in fit.notes[-1]
    fit = irtjax.fit(table, "2pl", "em", population="histogram", **more)
    assert not any(x.startswith("assumed and not tested") for x in fit.notes)


@pytest.mark.parametrize("size", [50, 300, 5000])
def test_scores_of_skewness_and_kurtosis_are_those_of_scipy(size):
    rng = np.random.default_rng(size)
    for values in (rng.normal(size=size), rng.gamma(2.0, size=size), rng.random(size)):
        z = stats.skewtest(values).statistic, stats.kurtosistest(values).statistic
        own = (
            z_of_skewness(float(stats.skew(values)), size),
            z_of_kurtosis(float(stats.kurtosis(values, fisher=False)), size),
        )
        np.testing.assert_allclose(own, z, rtol=1e-10)


@pytest.mark.parametrize(("icc", "said"), [(0.0, False), (0.5, True)])
def test_dependent_trials_are_said_with_what_they_are_worth(icc, said):
    rng = np.random.default_rng(0)
    theta, easy = rng.normal(size=40), rng.normal(size=30)
    chance = 1 / (1 + np.exp(-theta[:, None] - easy))
    if icc:
        rest = (1 - icc) / icc
        chance = rng.beta(chance * rest, (1 - chance) * rest)
    trials = np.full(chance.shape, 5)
    counts = rng.binomial(trials, chance)
    table = irtjax.ResponseTable.from_arrays(counts, trials=trials)
    fit = irtjax.fit(table, "1pl", "em", standard_errors="none")
    found = [w for w in fit.warnings if "agree beyond ability" in w]
    assert bool(found) == said
    if said:
        correlation = float(found[0].split("correlation ")[1][:4])
        # 1,200 cells: the standard error is about .02.
        assert correlation == pytest.approx(icc, abs=0.06)
        worth = float(found[0].split("worth ")[1][:3])
        assert worth == pytest.approx(5 / (1 + 4 * correlation), abs=0.07)


@pytest.mark.slow
def test_dependent_trials_of_several_abilities_are_said():
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(60, 2))
    slopes = np.kron(np.eye(2), np.ones((6, 1)))
    chance = 1 / (1 + np.exp(-theta @ slopes.T))
    same = rng.binomial(1, chance)
    trials = np.full(same.shape, 4)
    table = irtjax.ResponseTable.from_arrays(4 * same, trials=trials)
    fit = irtjax.fit(table, "factor", "mm", factors=2, standard_errors="none")
    assert any("4 trials are worth 1" in w for w in fit.warnings)
