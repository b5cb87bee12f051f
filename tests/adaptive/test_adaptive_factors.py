"""Adaptive tests of several abilities: against brute force, and against one ability."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import irtjax
from irtjax.adaptive import (
    AdaptiveTest,
    Design,
    FactorBank,
    FactorPosterior,
    ItemBank,
    StopFlag,
)
from irtjax.adaptive.simulation import run_tests_jit
from irtjax.inference.vector_scores import expected_on_items, score_factors
from irtjax.models.catalogue import factor_model, two_parameter
from irtjax.models.factors import Factor
from irtjax.models.families.logistic import Binary, LogisticItems
from irtjax.models.model import Model, Population

SIZE, LENGTH, SUBJECTS = 30, 8, 6
KEY = jax.random.key(3)
#: Not the standard population, so that a forgotten mean or covariance shows.
POPULATION = Population(
    *jnp.array([[0.2, -0.3], [1.0, 1.3]]), None, jnp.array([[1.0, 0.4], [0.4, 1.0]])
)


@cache
def items_of(dtype=jnp.float64) -> LogisticItems:
    rng = np.random.default_rng(5)
    parts = rng.normal(0.7, 0.8, (SIZE, 2)), rng.normal(size=SIZE)
    parts += np.zeros(SIZE), np.ones(SIZE)
    return LogisticItems(*(jnp.asarray(x, dtype) for x in parts))


@cache
def bank_of(composite: tuple[float, ...] | None = None, dtype=jnp.float64):
    model = factor_model(Factor(factors=2))
    return FactorBank.create(model, items_of(dtype), POPULATION, composite=composite)


@cache
def run_of(select: str = "information", score: str = "eap", composite=None):
    theta = bank_of().draw_abilities(SUBJECTS, jax.random.key(1))
    design = Design.create(LENGTH, select=select, scoring=score)
    return run_tests_jit(bank_of(composite), design, key=KEY, theta=theta)


def masked(tests):
    """Responses of all tests after each item, all others masked."""
    values = np.zeros((SUBJECTS, LENGTH, SIZE), np.int8)
    seen = np.zeros(values.shape, bool)
    for subject in range(SUBJECTS):
        for k in range(LENGTH):
            items = np.asarray(tests.items[subject, : k + 1])
            values[subject, k, items] = tests.observations[subject, : k + 1]
            seen[subject, k, items] = True
    shape = SUBJECTS * LENGTH, SIZE
    return irtjax.Responses(*(jnp.asarray(x.reshape(shape)) for x in (values, seen)))


def test_scores_after_each_item_are_those_of_scoring_with_the_others_missing():
    bank, tests = bank_of(), run_of()
    found = score_factors(bank.model, bank.items, POPULATION, masked(tests))
    score, error = expected_on_items(bank.model, bank.items, found)
    # The same modes, where both searches stop at steps below eps^(2/3) = 4e-11.
    np.testing.assert_allclose(tests.ability.ravel(), score, atol=1e-9)
    np.testing.assert_allclose(tests.standard_error.ravel(), error, atol=1e-9)
    last = slice(LENGTH - 1, None, LENGTH)
    np.testing.assert_allclose(tests.abilities.mode, found.ability[last], atol=1e-9)
    np.testing.assert_allclose(
        tests.abilities.covariance, found.covariance[last], atol=1e-9
    )


def test_posteriors_are_those_of_brute_force_quadrature():
    tests, data = run_of(), masked(run_of())
    line = np.linspace(-7, 7, 141)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    slopes, intercept = (np.asarray(x) for x in items_of()[:2])
    chance = expit(grid @ slopes.T + intercept)
    right, wrong = np.log(chance), np.log1p(-chance)
    gap = grid - np.asarray(POPULATION.mean)
    inverse = np.linalg.inv(np.asarray(POPULATION.covariance))
    prior = -0.5 * np.einsum("tk,kl,tl->t", gap, inverse, gap)
    score = chance.mean(1)
    for row in range(SUBJECTS * LENGTH):
        y, seen = np.asarray(data.values[row]), np.asarray(data.observed[row])
        logs = right @ (y * seen) + wrong @ ((1 - y) * seen) + prior
        weight = np.exp(logs - logs.max())
        weight /= weight.sum()
        mean = weight @ score
        sd = np.sqrt(weight @ (score - mean) ** 2)
        # A normal approximation errs by a share of the order of 1 / sqrt(responses).
        share = 1 / np.sqrt(seen.sum())
        assert float(tests.ability.ravel()[row]) == pytest.approx(mean, abs=share * sd)
        error = float(tests.standard_error.ravel()[row])
        assert error == pytest.approx(sd, rel=share)
        if (row + 1) % LENGTH == 0:
            mode = np.asarray(tests.abilities.mode[row // LENGTH])
            # The best node, up to the grid's spacing.
            assert np.abs(mode - grid[logs.argmax()]).max() < 0.1


def best_item(rule: str, precision, weight, slopes, gradient):
    """By determinants, traces and inverses of whole matrices, an item at a time."""
    merit = []
    for w, a in zip(weight, slopes, strict=True):
        new = precision + w * np.outer(a, a)
        after, before = np.linalg.inv(new), np.linalg.inv(precision)
        merit.append(
            {
                "d_optimal": np.log(np.linalg.det(new) / np.linalg.det(precision)),
                "a_optimal": np.trace(before) - np.trace(after),
                "information": gradient @ (before - after) @ gradient,
            }[rule]
        )
    return np.array(merit)


COMPOSITE = (1.0, -0.5)
CASES = [
    ("d_optimal", None),
    ("a_optimal", None),
    ("information", None),
    ("information", COMPOSITE),
]


def test_merits_are_those_of_whole_matrices():
    design = Design.create(LENGTH, select="fixed")
    state = irtjax.adaptive.start(bank_of(), design, key=KEY)
    rng = np.random.default_rng(1)
    root = rng.normal(size=(2, 2))
    precision, mode = root @ root.T + np.eye(2), rng.normal(size=2)
    covariance, gradient = np.linalg.inv(precision), rng.normal(size=2)
    moments = mode, covariance
    known = map(jnp.asarray, (mode, precision, covariance, *moments, gradient))
    state = state._replace(posterior=FactorPosterior(*known))
    slopes, intercept = (np.asarray(x) for x in items_of()[:2])
    chance = expit(slopes @ mode + intercept)
    weight = chance * (1 - chance)
    for rule in ("d_optimal", "a_optimal", "information"):
        want = best_item(rule, precision, weight, slopes, gradient)
        got = bank_of().merit(rule, state)
        np.testing.assert_allclose(got, want, rtol=1e-9)
    assert float(bank_of().determinant(state)) == pytest.approx(
        np.linalg.det(covariance), rel=1e-12
    )


SLOW = pytest.mark.slow


@SLOW
@pytest.mark.parametrize(("rule", "composite"), CASES)
def test_the_best_item_by_brute_force_is_given_each_time(rule, composite):
    tests = run_of(rule, "map", composite)
    bank, data = bank_of(composite), masked(tests)
    slopes, intercept = (np.asarray(x) for x in bank.items[:2])
    inverse = np.linalg.inv(np.asarray(POPULATION.covariance))
    found = score_factors(bank.model, bank.items, POPULATION, data)
    modes = np.asarray(found.ability).reshape(SUBJECTS, LENGTH, 2)
    seen = np.asarray(data.observed).reshape(SUBJECTS, LENGTH, SIZE)
    for subject in range(SUBJECTS):
        mode, given = np.asarray(POPULATION.mean), np.zeros(SIZE, bool)
        for k in range(LENGTH):
            chance = expit(slopes @ mode + intercept)
            weight = chance * (1 - chance)
            precision = inverse + (slopes.T * (weight * given)) @ slopes
            gradient = weight @ slopes / SIZE if composite is None else composite
            if composite is None and k == 0 and rule == "information":
                gradient = np.asarray(first_gradient(bank))
            merit = best_item(rule, precision, weight, slopes, np.asarray(gradient))
            merit[given] = -np.inf
            assert int(tests.items[subject, k]) == merit.argmax()
            mode, given = modes[subject, k], seen[subject, k]


def first_gradient(bank):
    design = Design.create(LENGTH, scoring="map")
    return irtjax.adaptive.start(bank, design, key=KEY).posterior.gradient


@SLOW
@pytest.mark.parametrize("rule", ["d_optimal", "a_optimal", "information"])
def test_one_factor_gives_the_test_of_one_ability(rule):
    slopes, intercept = np.asarray(items_of().discrimination[:, :1]), items_of()[1]
    rest = items_of()[2:]
    one = ItemBank.create(
        two_parameter(),
        LogisticItems(jnp.asarray(slopes[:, 0]), intercept, *rest),
        Population(jnp.array(0.3), jnp.array(1.2)),
    )
    several = FactorBank.create(
        Model("factor", Binary(dims=1)),
        LogisticItems(jnp.asarray(slopes), intercept, *rest),
        Population(jnp.array([0.3]), jnp.array([1.2])),
        composite=[1.0],
    )
    theta = jnp.linspace(-2, 2.5, 5)
    design = lambda select: Design.create(LENGTH, scoring="map", select=select)
    want = run_tests_jit(one, design("information"), key=KEY, theta=theta)
    got = run_tests_jit(several, design(rule), key=KEY, theta=theta[:, None])
    np.testing.assert_array_equal(got.items, want.items)
    np.testing.assert_array_equal(got.observations, want.observations)
    np.testing.assert_allclose(got.ability, want.ability, atol=1e-9)
    np.testing.assert_allclose(got.standard_error, want.standard_error, atol=1e-9)


def test_the_population_of_the_reported_ability():
    bank = bank_of()
    theta = bank.draw_abilities(40_000, jax.random.key(2))
    scores = np.asarray(bank.truth(theta))
    # Four standard errors of a mean and of a standard deviation of 40,000 draws.
    assert abs(scores.mean() - float(bank.mean)) < 4 * scores.std() / 200
    assert float(bank.sd) == pytest.approx(scores.std(), rel=4 / np.sqrt(2 * 40_000))
    composite = bank_of(COMPOSITE)
    weights, covariance = np.array(COMPOSITE), np.asarray(POPULATION.covariance)
    assert float(composite.sd) == pytest.approx(np.sqrt(weights @ covariance @ weights))


@SLOW
@pytest.mark.parametrize("rule", ["determinant", "standard_error", "reliability"])
def test_a_test_stops_exactly_when_its_rule_says(rule):
    full, bank = run_of(), bank_of()
    error = np.asarray(full.standard_error)
    if rule == "determinant":
        found = score_factors(bank.model, bank.items, POPULATION, masked(full))
        held = np.linalg.det(np.asarray(found.covariance)).reshape(SUBJECTS, LENGTH)
    else:
        held = error if rule == "standard_error" else error**2 / float(bank.sd) ** 2
    # Between the values at the fifth item, so that tests end at several lengths.
    limit = float(np.median(held[:, 4]))
    given = 1 - limit if rule == "reliability" else limit
    theta = bank.draw_abilities(SUBJECTS, jax.random.key(1))
    design = Design.create(LENGTH, **{rule: given})
    tests = run_tests_jit(bank, design, key=KEY, theta=theta)
    counts = [int(np.argmax(row < limit)) + 1 for row in held]
    ends = (held < limit).any(1)
    want = np.where(ends, counts, LENGTH)
    np.testing.assert_array_equal(tests.num_given, want)
    assert len(set(want.tolist())) > 1
    np.testing.assert_array_equal(
        (np.asarray(tests.stopped) & StopFlag[rule.upper()]) > 0, ends
    )


@cache
def fitted():
    rng = np.random.default_rng(0)
    ability, slopes = rng.normal(size=(80, 2)), np.zeros((16, 2))
    slopes[np.arange(16), np.arange(16) % 2] = 1.5
    right = rng.random((80, 16)) < expit(ability @ slopes.T)
    table = irtjax.ResponseTable.from_arrays(right.astype(int))
    return table, irtjax.fit(table, "factor", factors=2, standard_errors="none")


def test_the_same_verbs_serve_several_abilities(tmp_path):
    """From a bank here; the page of documentation starts from a fit."""
    test = AdaptiveTest(bank_of(), 6)
    assert test.standard_error > 0 and test.reliability == pytest.approx(0)
    while test.num_given < 3:
        test.record(test.next_item(), 1)
    again = AdaptiveTest.load(test.save(tmp_path / "t.json"), bank_of())
    assert again.ability == test.ability > float(bank_of().mean)
    assert again.abilities == test.abilities
    assert list(test.abilities) == ["factor_1", "factor_2"]
    while (item := again.next_item()) is not None:
        again.record(item, 0)
    assert again.stopped == "number of items"
    with pytest.raises(ValueError, match="other items or parameters"):
        AdaptiveTest.load(tmp_path / "t.json", bank_of(COMPOSITE))


@SLOW
def test_replayed_tests_of_all_items_are_scored_as_irtjax_scores():
    table, fit = fitted()
    assert_refused(lambda: AdaptiveTest(fit, composite=[1]), "give 2 finite weights")
    # Each item given: the score is that of `irtjax.score`.
    tests = irtjax.simulate_tests(fit, key=KEY, num_items=16, replay=table)
    scored = irtjax.score(fit, table).table
    np.testing.assert_allclose(tests.ability[:, -1], scored["ability"], atol=1e-6)
    np.testing.assert_allclose(tests.truth, scored["ability"], atol=1e-6)
    columns = tests.table
    np.testing.assert_allclose(
        columns["ability_factor_2"], scored["ability_factor_2"], atol=1e-6
    )
    # One ability by weights: that factor.
    one = irtjax.simulate_tests(
        fit, key=KEY, num_items=16, replay=table, composite=[0, 1], scoring="map"
    )
    np.testing.assert_allclose(
        one.ability[:, -1], scored["ability_factor_2"], atol=1e-6
    )
    np.testing.assert_allclose(
        one.standard_error[:, -1], scored["ability_factor_2_se"], atol=1e-6
    )


@SLOW
@pytest.mark.parametrize("kind", ["graded", "probit"])
def test_other_responses_and_links_are_scored_as_irtjax_scores(kind):
    rng = np.random.default_rng(1)
    latent = rng.normal(size=(90, 2)) @ rng.uniform(0, 2, (2, 12))
    latent += rng.logistic(size=latent.shape)
    values = (latent > -0.7).astype(int) + ((latent > 0.7) if kind == "graded" else 0)
    table = irtjax.ResponseTable.from_arrays(values)
    more = {"link": "probit"} if kind == "probit" else {}
    fit = irtjax.fit(table, "factor", factors=2, standard_errors="none", **more)
    tests = irtjax.simulate_tests(fit, key=KEY, num_items=12, replay=table)
    scored = irtjax.score(fit, table).table
    np.testing.assert_allclose(tests.ability[:, -1], scored["ability"], atol=1e-8)
    np.testing.assert_allclose(
        tests.standard_error[:, -1], scored["ability_se"], atol=1e-8
    )
    drawn = irtjax.simulate_tests(
        fit, 100, key=KEY, num_items=4, select="mutual_information"
    )
    assert drawn.responses.max() == (2 if kind == "graded" else 1)


def assert_refused(call, match: str) -> None:
    with pytest.raises(ValueError, match=match) as error:
        call()
    assert "\n" not in str(error.value)


def test_what_does_not_suit_is_refused_in_one_line():
    several, composite = bank_of(), FactorBank.create
    one = ItemBank.create(
        two_parameter(),
        LogisticItems(*jnp.ones((4, 3))),
        Population(jnp.array(0.0), jnp.array(1.0)),
    )
    broken = items_of()._replace(intercept=items_of().intercept.at[4].set(jnp.nan))
    parts = several.model, items_of(), POPULATION
    scores = factor_model(Factor(factors=2, item_model="continuous"))
    for call, match in (
        (lambda: AdaptiveTest(several, gain=0.1), "gain is for one ability"),
        (lambda: composite(*parts, composite=[1]), "give 2 finite weights"),
        (lambda: composite(*parts, composite=[0, 0]), "a weight other than 0"),
        (lambda: AdaptiveTest(one, composite=[1]), "several abilities: leave it out"),
        (lambda: AdaptiveTest(several, composite=[1, 1]), "FactorBank.create"),
        (lambda: AdaptiveTest(one, select="d_optimal"), "does not suit one ability"),
        (lambda: AdaptiveTest(one, determinant=0.1), "is for several abilities"),
        (lambda: AdaptiveTest(several, determinant=-1.0), "is not above 0"),
        (lambda: FactorBank.create(parts[0], broken, POPULATION), "item 5 of the bank"),
        (lambda: ItemBank.create(*parts), "use FactorBank"),
        (lambda: FactorBank.create(scores, *parts[1:]), "scores and no categories"),
        (lambda: FactorBank.create(one.model, one.items, POPULATION), "use ItemBank"),
        (
            lambda: irtjax.simulate_tests(several, key=KEY, ability=[1, 2, 3]),
            "give subjects x abilities",
        ),
    ):
        assert_refused(call, match)


@SLOW
def test_single_precision_stays_single(strict_promotion):
    bank = bank_of(dtype=jnp.float32)
    theta = jnp.linspace(-1, 1, SUBJECTS * 2, dtype=jnp.float32).reshape(-1, 2)
    design = Design.create(LENGTH, standard_error=1e-3)
    tests = run_tests_jit(bank, design, key=KEY, theta=theta)
    assert tests.ability.dtype == tests.abilities.mode.dtype == jnp.float32
    with jax.numpy_dtype_promotion("standard"):
        wide = masked(tests)
        found = score_factors(bank_of().model, items_of(), POPULATION, wide)
        score, _ = expected_on_items(bank_of().model, items_of(), found)
    # The search stops at steps below eps^(2/3) = 2.4e-5.
    np.testing.assert_allclose(tests.ability.ravel(), score, atol=5e-5)


def test_what_a_bank_reaches_is_what_its_tests_reach_on_average():
    bank = bank_of()
    tests = irtjax.simulate_tests(
        bank, 300, key=jax.random.key(5), num_items=6, reliability=0.999
    )
    (said,) = tests.notes
    bound = float(said.split("on average at best standard error ")[1].split()[0])
    stated = np.sqrt(np.mean(tests.standard_error[:, -1] ** 2))
    # A lower bound by the delta method, which posteriors of six responses exceed.
    assert 0.6 * stated < bound < 1.02 * stated
