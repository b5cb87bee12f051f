"""Items given repeatedly: beta-binomial counts, their information, tests with them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit
from scipy.stats import betabinom

import irtjax
from irtjax.adaptive import (
    AdaptiveTest,
    Design,
    LengthBank,
    simulate_tests,
)
from irtjax.adaptive.repeats import expected_shares, next_log_prob
from irtjax.adaptive.simulation import run_tests_jit
from tests.adaptive.test_adaptive_factors import POPULATION as SEVERAL
from tests.adaptive.test_adaptive_factors import bank_of as factor_bank
from tests.adaptive.test_adaptive_factors import items_of
from tests.adaptive_cases import KEY, SIZE, THETA, bank_of
from tests.small_fits import small_fit, small_table

ICC, REPEATS, LENGTH = 0.15, 3, 10


def counts_law(chance, times, icc=ICC):
    """SciPy's law of a number of right responses."""
    return betabinom(times, chance * (1 - icc) / icc, (1 - chance) * (1 - icc) / icc)


def rules(**more):
    return Design.create(LENGTH, repeats=REPEATS, icc=ICC, **more)


def counted(items, responses, given, size):
    """Right responses and all responses to each item."""
    right, times = np.zeros(size, int), np.zeros(size, int)
    for item, response in zip(items[:given], responses[:given], strict=True):
        right[item] += response
        times[item] += 1
    return right, times


def test_responses_one_at_a_time_are_beta_binomial_counts():
    for chance in (0.1, 0.6):
        for responses in ([1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]):
            seen, total = [0, 0], 0.0
            for response in responses:
                log = jnp.log(chance if response else 1 - chance)
                known = jnp.array(seen[response]), jnp.array(sum(seen))
                total += float(next_log_prob(log, *known, jnp.array(ICC / (1 - ICC))))
                seen[response] += 1
            ways = {3: 4, 0: 1, 4: 1}[seen[1]]
            expected = counts_law(chance, 4).logpmf(seen[1])
            np.testing.assert_allclose(total + np.log(ways), expected, rtol=1e-10)


@pytest.mark.parametrize("icc", [0.0, 0.05, 0.5, 0.95])
def test_information_is_that_of_the_counts(icc):
    """By enumeration, with a numerical derivative; a sum is worth no more of it."""
    for chance in (0.02, 0.3, 0.8):
        found = np.asarray(expected_shares(jnp.array(chance), 5, jnp.array(icc)))
        for times in range(1, 6):
            step, k = 1e-5 * chance, np.arange(times + 1)
            law = lambda p, n=times: counts_law(p, n, icc) if icc else None
            if icc:
                ends = law(chance + step).logpmf(k), law(chance - step).logpmf(k)
                slope = (ends[0] - ends[1]) / (2 * step)
                exact = law(chance).pmf(k) @ slope**2 * chance * (1 - chance)
            else:
                exact = times
            np.testing.assert_allclose(found[:times].sum(), exact, rtol=1e-6)
            least = times / (1 + (times - 1) * icc)
            assert least * (1 - 1e-9) <= found[:times].sum() <= times * (1 + 1e-9)


@pytest.mark.parametrize("score", ["eap", "map"])
def test_scores_are_those_of_the_counts(score):
    bank = bank_of()
    tests = run_tests_jit(bank, rules(scoring=score), key=KEY, theta=THETA)
    nodes = np.linspace(-6, 6, 2001) * float(bank.sd) + float(bank.mean)
    table = jax.vmap(lambda t: bank.right(t))(jnp.asarray(nodes))
    repeated = 0
    for subject in range(len(THETA)):
        items, responses = (
            np.asarray(x[subject]) for x in (tests.items, tests.observations)
        )
        right, times = counted(items, responses, LENGTH, SIZE)
        assert times.max() <= REPEATS
        assert times.sum() == LENGTH
        repeated += times.max() > 1
        used = times > 0

        def height(theta, chance, right=right, times=times, used=used):
            log = -0.5 * ((theta - float(bank.mean)) / float(bank.sd)) ** 2
            law = counts_law(np.asarray(chance)[..., used], times[used])
            return log + law.logpmf(right[used]).sum(axis=-1)

        if score == "eap":
            weight = np.exp(height(nodes, table))
            expected = weight @ nodes / weight.sum()
            error = np.sqrt(weight @ (nodes - expected) ** 2 / weight.sum())
            np.testing.assert_allclose(
                tests.standard_error[subject, -1], error, rtol=2e-3
            )
            tolerance = 1e-3
        else:
            loss = lambda t: -height(t, bank.right(jnp.asarray(t)))
            best = minimize_scalar(loss, bounds=(-5, 5), method="bounded")
            expected, tolerance = best.x, 1e-4
        np.testing.assert_allclose(tests.ability[subject, -1], expected, atol=tolerance)
    assert repeated > len(THETA) / 2


def test_the_next_response_is_the_one_of_most_information():
    """Of the law of the next response given those before, by its definition."""
    bank = bank_of()
    tests = run_tests_jit(bank, rules(), key=KEY, theta=THETA[:4])
    r = ICC / (1 - ICC)
    for subject in range(4):
        items, responses = (
            np.asarray(x[subject]) for x in (tests.items, tests.observations)
        )
        ability = float(bank.mean)
        for k in range(LENGTH):
            right, times = counted(items, responses, k, SIZE)

            def law(theta, right=right, times=times):
                return (bank.right(theta) + right * r) / (1 + times * r)

            chance, slope = jax.jvp(law, (jnp.asarray(ability),), (jnp.ones(()),))
            merit = np.array(slope**2 / (chance * (1 - chance)))
            merit[times == REPEATS] = -np.inf
            assert items[k] == merit.argmax()
            ability = float(tests.ability[subject, k])


@pytest.mark.parametrize("select", ["mutual_information", "kl"])
def test_other_rules_look_at_the_next_response(select):
    bank, design = bank_of(), rules(select=select)
    tests = run_tests_jit(bank, design, key=KEY, theta=THETA)
    count = np.array([len(np.unique(x)) for x in np.asarray(tests.items)])
    # Responses that repeat add little, and all of them without correlation add most.
    free = Design.create(LENGTH, select=select, repeats=REPEATS, icc=0.0)
    same = run_tests_jit(bank, free, key=KEY, theta=THETA)
    fewer = np.array([len(np.unique(x)) for x in np.asarray(same.items)])
    assert count.mean() > fewer.mean()
    assert (fewer < LENGTH).all()


@pytest.mark.slow
def test_several_abilities_have_the_mode_of_the_counts():
    bank, size = factor_bank(), 30
    theta = jnp.array([[0.5, -1.0], [-1.5, 0.2], [1.0, 1.0]])
    tests = run_tests_jit(bank, rules(select="d_optimal"), key=KEY, theta=theta)
    slopes, intercept = (
        np.asarray(x) for x in (items_of().discrimination, items_of().intercept)
    )
    inverse = np.linalg.inv(np.asarray(SEVERAL.covariance))
    for subject in range(3):
        items, responses = (
            np.asarray(x[subject]) for x in (tests.items, tests.observations)
        )
        right, times = counted(items, responses, LENGTH, size)
        used = times > 0

        def loss(point, right=right, times=times, used=used):
            away = point - np.asarray(SEVERAL.mean)
            chance = expit(slopes[used] @ point + intercept[used])
            height = counts_law(chance, times[used]).logpmf(right[used]).sum()
            return 0.5 * away @ inverse @ away - height

        best = minimize(loss, np.zeros(2), options={"gtol": 1e-8})
        np.testing.assert_allclose(tests.abilities.mode[subject], best.x, atol=2e-5)
        assert times.max() <= REPEATS


@pytest.mark.slow
def test_intervals_hold_with_the_correlation_and_not_without():
    """Recorded counts: 500 subjects, so 95 % has a standard error of 1 %."""
    # Responses are drawn from the estimated items, which therefore have no error.
    fit = dataclasses.replace(
        small_fit("2pl"), item_covariance=None, ability_scale=None
    )
    rng = np.random.default_rng(4)
    count, icc = 500, 0.6
    theta = rng.normal(size=count)
    slopes, intercept = (
        np.asarray(x)
        for x in (
            fit.parameters.items.discrimination,
            fit.parameters.items.intercept,
        )
    )
    chance = np.clip(expit(theta[:, None] * slopes + intercept), 1e-9, 1 - 1e-9)
    own = rng.beta(chance * (1 - icc) / icc, (1 - chance) * (1 - icc) / icc)
    trials = np.full(own.shape, 8)
    table = irtjax.ResponseTable.from_arrays(
        rng.binomial(trials, own), trials=trials, items=fit.item_names
    )
    shares = {}
    for assumed in (icc, 0.0):
        tests = simulate_tests(
            fit, key=KEY, num_items=20, replay=table, repeats=8, icc=assumed
        )
        error = np.abs(tests.ability[:, -1] - theta)
        shares[assumed] = np.mean(error < 1.96 * tests.standard_error[:, -1])
        assert tests.exposure().max() <= 1
    assert 0.92 < shares[icc] < 0.98
    assert shares[0.0] < 0.85


def test_a_recorded_response_is_drawn_once_only():
    """All trials of every item: the numbers right are those recorded."""
    fit = small_fit("2pl")
    rng = np.random.default_rng(0)
    trials = rng.integers(0, 4, (3, len(fit.item_names)))
    right = rng.binomial(trials, 0.5)
    table = irtjax.ResponseTable.from_arrays(right, trials=trials, items=fit.item_names)
    longest = int(trials.sum(axis=1).max())
    tests = simulate_tests(
        fit, key=KEY, num_items=longest, replay=table, repeats=3, icc=0.2
    )
    for subject in range(3):
        known = tests.given[subject], tests.responses[subject]
        found = counted(*known, tests.num_given[subject], len(fit.item_names))
        np.testing.assert_array_equal(found[0], right[subject])
        np.testing.assert_array_equal(found[1], trials[subject])
    # One response of each item: one of those recorded.
    once = simulate_tests(fit, key=KEY, num_items=5, replay=table)
    at = once.given >= 0
    row = np.nonzero(at)[0]
    counts = [x[row, once.given[at]] for x in (right, trials)]
    assert ((counts[0] > 0) | (once.responses[at] == 0)).all()
    assert ((counts[0] < counts[1]) | (once.responses[at] == 1)).all()


def test_single_responses_are_never_given_twice():
    fit = small_fit("2pl")
    tests = simulate_tests(
        fit, key=KEY, num_items=30, replay=small_table(), repeats=3, icc=0.2
    )
    for row in tests.given:
        items = row[row >= 0]
        assert len(set(items.tolist())) == len(items)
    assert any("no item was given twice" in note for note in tests.notes)


@pytest.mark.parametrize("name", ["small", "factors"])
def test_the_correlation_of_new_subjects_is_estimated(name):
    """Subjects that the calibration does not have, within four standard errors."""
    rng = np.random.default_rng(7)
    bank = bank_of() if name == "small" else factor_bank()
    size = (80, 2) if name == "factors" else 80
    theta = rng.normal(0.2, 1, size)
    if name == "small":
        chance = np.stack([np.asarray(bank.right(jnp.asarray(t))) for t in theta])
    else:
        items = items_of()
        chance = expit(theta @ np.asarray(items.discrimination).T + items.intercept)
    own = rng.beta(np.maximum(chance, 1e-9), np.maximum(1 - chance, 1e-9))  # At 0.5.
    trials = np.full(own.shape, 5)
    names = [f"q{k}" for k in range(own.shape[1])]
    table = irtjax.ResponseTable.from_arrays(
        rng.binomial(trials, own), trials=trials, items=names
    )
    tests = simulate_tests(
        bank, key=KEY, num_items=5, replay=table, repeats=2, names=names
    )
    (note,) = [x for x in tests.notes if "is estimated from the responses" in x]
    estimate, error = float(note.split()[1]), float(note.split()[4].rstrip(")"))
    assert abs(estimate - 0.5) < 4 * error


def test_random_and_fixed_orders_mix_the_repeats():
    bank = bank_of()
    drawn = run_tests_jit(bank, rules(select="random"), key=KEY, theta=THETA)
    items = np.asarray(drawn.items)
    # 120 draws of 40 items: nearly always another one than the last.
    assert (items[:, 1:] == items[:, :-1]).mean() < 0.15
    test = AdaptiveTest(
        small_fit("2pl"), 6, select="fixed", items=["b1/q1", "b0/q0"],
        repeats=3, icc=ICC,
    )  # fmt: skip
    order = []
    while (item := test.next_item()) is not None:
        order.append(item)
        test.record(item, 1)
    assert order == ["b1/q1", "b0/q0"] * 3


def test_one_test_by_hand_is_saved_and_resumed(tmp_path):
    fit = small_fit("2pl")
    test = AdaptiveTest(fit, 6, items=list(fit.item_names[:3]), repeats=3, icc=ICC)
    for response in (1, 0, 1, 1):
        test.record(test.next_item(), response)
    assert sum(test.times_given.values()) == test.num_given == 4
    assert sum(test.responses.values()) == 3
    assert test.table.num_rows == 4
    again = AdaptiveTest.load(test.save(tmp_path / "test.json"), fit)
    assert again.next_item() == test.next_item()
    assert (again.ability, again.times_given) == (test.ability, test.times_given)


@pytest.mark.slow
def test_the_correlation_is_estimated_from_counts():
    """Simulated at 0.3: within three standard errors, which are near the spread."""
    rng = np.random.default_rng(1)
    theta, easy = rng.normal(size=60), rng.normal(size=30)
    chance = expit(1.3 * theta[:, None] + easy)
    found = []
    for _ in range(8):
        own = rng.beta(chance * 0.7 / 0.3, (1 - chance) * 0.7 / 0.3)
        trials = np.full(own.shape, 6)
        counts = rng.binomial(trials, own)
        table = irtjax.ResponseTable.from_arrays(counts, trials=trials)
        found.append(irtjax.response_icc(irtjax.fit(table, "1pl", "em"), table))
    estimates, errors = np.array([x[:2] for x in found]).T
    assert (np.abs(estimates - 0.3) < 3 * errors).all()
    assert 0.5 < errors.mean() / estimates.std(ddof=1) < 2.2
    assert found[0].num_cells == 1800


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(repeats=3), "repeats 3 needs an icc"),
        (dict(icc=0.3), "icc 0.3 needs repeats above 1"),
        (dict(repeats=3, icc=1.0), "icc 1 is not at least 0 and below 1"),
        (dict(repeats=0), "repeats 0 is not at least 1"),
        (dict(repeats=2, icc=0.3, gain=0.1), "gain is for items given once"),
    ],
)
def test_rules_that_do_not_go_together_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        AdaptiveTest(small_fit("2pl"), 5, **given)


def test_other_responses_are_refused():
    with pytest.raises(ValueError, match="repeats needs right and wrong"):
        bank_of("graded").check(rules())
    assert not LengthBank.repeatable
    with pytest.raises(ValueError, match="response_icc needs items answered twice"):
        irtjax.response_icc(small_fit("2pl"), small_table())


def test_the_reach_of_a_target_counts_repeats():
    """Repeats of a few items reach less than as many independent ones."""
    bank, few = bank_of(length=30), jnp.arange(SIZE) < 5
    reach = {}
    for icc in (0.0, 0.5, 0.9):
        design = Design.create(30, repeats=6, icc=icc)
        errors, weights = bank.smallest_errors(design, few)
        reach[icc] = float(errors @ weights)
    assert reach[0.0] < reach[0.5] < reach[0.9]
