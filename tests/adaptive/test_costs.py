"""Costs, budgets, utility and decisions: each rule holds at every step of a test."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import irtjax
from irtjax.adaptive import (
    AdaptiveTest,
    Design,
    ItemBank,
    StopFlag,
    affordable,
    risk,
    start,
    stop,
)
from irtjax.adaptive.labels import label
from irtjax.adaptive.simulation import run_tests_jit
from tests.adaptive.test_adaptive_factors import bank_of as factor_bank
from tests.adaptive_cases import KEY, LENGTH, POPULATION, SIZE, THETA, bank_of, run_of
from tests.small_fits import small_fit, small_table

SLOW = pytest.mark.slow
COST = np.random.default_rng(2).uniform(0.1, 3.0, SIZE)


def run(bank=None, theta=THETA, **rules):
    design = Design.create(LENGTH, **rules)
    return run_tests_jit(bank or bank_of(), design, key=KEY, theta=theta)


@pytest.mark.parametrize(
    "select",
    ["information", *(pytest.param(x, marks=SLOW) for x in ("random", "kl"))],
)
def test_a_budget_is_never_exceeded_and_never_left_unused(select):
    ends = set()
    # Another budget or other costs compile nothing again.
    for budget in (0.05, 0.7, 4.0, 11.0, 1000.0):
        tests = run(select=select, cost=COST, budget=budget)
        for subject in range(len(THETA)):
            count = int(tests.num_given[subject])
            items = np.asarray(tests.items[subject])[:count]
            spent = COST[items].sum()
            assert spent <= budget * (1 + 1e-9)
            left = np.setdiff1d(np.arange(SIZE), items)
            out = COST[left].min() > budget - spent
            assert bool(tests.stopped[subject] & StopFlag.BUDGET) == out
            assert out or count == LENGTH
            ends.add((out, count == LENGTH))
    assert {(True, False), (False, True)} <= ends


def test_the_most_information_per_cost_is_given_among_what_is_affordable():
    bank, budget = bank_of(), 6.0
    tests = run(cost=COST, budget=budget)
    for subject in range(len(THETA)):
        ability, spent = float(bank.mean), 0.0
        left = np.ones(SIZE, bool)
        for k in range(int(tests.num_given[subject])):
            merit = np.asarray(bank.information(jnp.asarray(ability))) / COST
            merit[~left | (COST > budget - spent)] = -np.inf
            item = int(tests.items[subject, k])
            assert item == merit.argmax()
            left[item], spent = False, spent + COST[item]
            ability = float(tests.ability[subject, k])


@SLOW
def test_equal_costs_change_nothing_but_the_number_of_items():
    tests = run(cost=np.full(SIZE, 0.1), budget=0.3)
    full = run_of()
    assert (tests.num_given == 3).all()
    assert (tests.stopped == StopFlag.BUDGET).all()
    np.testing.assert_array_equal(tests.items[:, :3], full.items[:, :3])


@pytest.mark.parametrize("cost", [1.0, 0.1])
def test_a_budget_of_a_long_test_is_kept_in_single_precision(cost):
    size, within = 12_000, 1_000
    design = Design.create(size, cost=np.full(size, cost), budget=within * cost)
    for count in (within - 1, within, within + 1):
        state = SimpleNamespace(
            num_given=jnp.asarray(count),
            given=jnp.arange(size) < count,
            items=jnp.arange(size),
            available=jnp.arange(size) >= count,
            ability=jnp.zeros((), jnp.float32),
        )
        assert bool(affordable(design, state).any()) == (count < within)


def posterior_of(bank, items, responses):
    log = np.asarray(bank.log_prior) + sum(
        np.asarray(bank.table)[j, y] for j, y in zip(items, responses, strict=True)
    )
    weight = np.exp(log - log.max())
    return weight / weight.sum()


def expected_loss(bank, posterior, loss):
    """Loss now, less its mean over the responses to each item, one by one."""
    theta, decrease = np.asarray(bank.theta), np.empty(SIZE)
    for j in range(SIZE):
        joint = np.exp(np.asarray(bank.table)[j]) * posterior
        chance = joint.sum(1)
        after = [loss(theta, part / part.sum()) for part in joint]
        decrease[j] = loss(theta, posterior) - chance @ after
    return decrease


def variance(theta, weight):
    return weight @ (theta - weight @ theta) ** 2


def decision(mark, losses, step):
    def loss(theta, weight):
        above = weight @ np.clip((theta - mark) / step + 0.5, 0, 1)
        return min(losses[0] * (1 - above), losses[1] * above)

    return loss


@SLOW
@pytest.mark.parametrize("kind", ["variance", "decision"])
def test_a_test_ends_when_no_item_is_worth_its_price(kind):
    bank, rules = bank_of(), {}
    loss = variance
    if kind == "decision":
        rules = dict(pass_mark=0.5, losses=(2.0, 1.0))
        step = float(bank.theta[1] - bank.theta[0])
        loss = decision(0.5, (2.0, 1.0), step)
    price = {"variance": 0.02, "decision": 0.01}[kind]
    tests = run(cost=COST, price=price, **rules)
    lengths = set()
    for subject in (0, 5, 11):
        count = int(tests.num_given[subject])
        items = np.asarray(tests.items[subject])[:count]
        seen = np.asarray(tests.observations[subject])[:count]
        for k in range(count + 1):
            posterior = posterior_of(bank, items[:k], seen[:k])
            decrease = expected_loss(bank, posterior, loss) / COST
            worth = np.delete(decrease, items[:k]).max()
            assert (worth < price) == (k == count and count < LENGTH)
        ended = bool(tests.stopped[subject] & StopFlag.UTILITY)
        assert ended == (worth < price)
        lengths.add(count)
    assert len(lengths) > 1 or kind == "decision"


@SLOW
def test_a_decision_is_made_when_its_risk_is_small():
    """Against a grid of 4,001 abilities, where nodes of the bank are few."""
    bank = bank_of()
    mark, losses, limit = 0.4, (1.0, 3.0), 0.25
    tests = run(pass_mark=mark, losses=losses, risk=limit)
    grid = np.linspace(-7, 7, 4001)
    table = bank.model.family.category_log_probs
    fine = jax.vmap(jax.vmap(table, (None, 0)), (0, None))(
        bank.items, jnp.asarray(grid)
    )
    prior = norm.logpdf(grid, float(bank.mean), float(bank.sd))
    decided = 0
    for subject in range(len(THETA)):
        count = int(tests.num_given[subject])
        for k in range(count + 1):
            log = prior.copy()
            for j, y in zip(
                np.asarray(tests.items[subject])[:k],
                np.asarray(tests.observations[subject])[:k],
                strict=True,
            ):
                log += np.asarray(fine[j, :, y])
            weight = np.exp(log - log.max())
            above = weight[grid > mark].sum() / weight.sum()
            expected = min(losses[0] * (1 - above), losses[1] * above)
            # A node's mass, spread evenly, errs by h^2 / 24 of the density's slope.
            if abs(expected - limit) > 0.01:
                ended = k == count and bool(tests.stopped[subject] & StopFlag.DECIDED)
                assert (expected < limit) == ended
        stated = float(tests.above[subject])
        assert stated == pytest.approx(above, abs=0.004)
        passed = losses[1] * stated > losses[0] * (1 - stated)
        assert bool(tests.passed[subject]) == passed
        decided += bool(tests.stopped[subject] & StopFlag.DECIDED)
    assert 0 < decided


def test_walds_test_is_the_special_case():
    bank, half, alpha, beta = bank_of(), 0.5, 0.1, 0.2
    # Error rates are the risk over each loss.
    losses = 0.2 / alpha, 0.2 / beta
    rules = dict(risk=0.2, losses=losses, indifference=half)
    # Wald's bounds, at which the rates of error are alpha and beta.
    low, high = np.log(beta / (1 - alpha)), np.log((1 - beta) / alpha)
    at = lambda theta: np.asarray(
        jax.vmap(bank.model.family.category_log_probs, (0, None))(bank.items, theta)
    )
    differ = 0
    for mark in (0.2, 2.0):
        tests = run(pass_mark=mark, **rules)
        ratio = at(jnp.asarray(mark + half)) - at(jnp.asarray(mark - half))
        for subject in range(len(THETA)):
            items, seen = (
                np.asarray(x[subject]) for x in (tests.items, tests.observations)
            )
            path = np.cumsum(ratio[items, seen])
            over = (path > high) | (path < low)
            count = int(tests.num_given[subject])
            assert not over[: count - 1].any()
            ended = bool(tests.stopped[subject] & StopFlag.DECIDED)
            assert over[count - 1] == ended and (ended or count == LENGTH)
            # The decision is the test's own, without the population.
            passed = bool(tests.passed[subject])
            assert passed == (path[count - 1] > (low + high) / 2)
            above = float(tests.above[subject])
            differ += passed != (losses[1] * above > losses[0] * (1 - above))
    assert differ


def test_a_decision_of_the_population_alone_is_named():
    bank = bank_of()
    rules = dict(pass_mark=3.5, risk=0.05)
    test = AdaptiveTest(bank, 5, **rules)
    assert (test.num_given, test.stopped, test.passed) == (0, "decided", False)
    assert "risk 0.05 is reached without a response" in test.warnings[0]
    known = label(bank, 5, None, None, {})
    for other in (dict(rules, pass_mark=0.0), dict(rules, indifference=0.5)):
        assert known.warnings(known.design(5, **other)) == ()


def test_only_an_item_that_can_be_given_is_not_worth_its_price():
    bank = bank_of()
    groups = np.full(SIZE, "most")
    decrease = expected_loss(bank, posterior_of(bank, [], []), variance)
    best = int(decrease.argmax())
    groups[best] = "few"
    # The group of the best item is not due.
    quota = {"most": 0.9, "few": 0.1}
    rules = dict(select="fixed", groups=groups, quota=quota)
    design = Design.create(LENGTH, price=0.01, **rules)
    worth = float(start(bank, design, key=KEY).worth)
    assert worth == pytest.approx(np.delete(decrease, best).max())
    assert worth < decrease[best]
    # Where nothing is affordable the reason is the budget alone.
    rules = dict(select="fixed", cost=np.ones(SIZE), budget=0.5)
    design = Design.create(LENGTH, price=1e-9, **rules)
    state = start(bank, design, key=KEY)
    assert int(stop(bank, design, state)) == StopFlag.BUDGET


def test_the_risk_of_several_abilities_is_normal():
    bank = factor_bank()
    design = Design.create(5, pass_mark=0.6, losses=(1.0, 2.0), risk=0.1)
    state = start(bank, design, key=KEY)
    above = norm.sf((0.6 - float(bank.mean)) / float(bank.sd))
    want = min(1 - above, 2 * above)
    assert float(risk(bank, design, state)) == pytest.approx(want, abs=1e-12)


@SLOW
def test_items_that_may_not_be_given_are_as_good_as_dropped():
    """Masked items change neither the path nor the scores, with every rule of cost."""
    kept = np.sort(np.random.default_rng(3).permutation(SIZE)[:22])
    bank = bank_of()
    nodes = (bank.theta - bank.mean) / bank.sd
    fewer = jax.tree.map(lambda x: x[kept], bank.items)
    small = ItemBank.create(bank.model, fewer, POPULATION, nodes=nodes)
    rules = dict(budget=9.0, price=0.005)
    recorded = jax.random.bernoulli(KEY, 0.6, (len(THETA), SIZE)).astype(jnp.int32)
    design = Design.create(LENGTH, cost=COST, **rules)
    available = jnp.zeros((len(THETA), SIZE), bool).at[:, kept].set(True)
    options = dict(key=KEY, theta=THETA)
    want = run_tests_jit(
        bank, design, available=available, recorded=recorded, **options
    )
    design = Design.create(LENGTH, cost=COST[kept], **rules)
    got = run_tests_jit(small, design, recorded=recorded[:, kept], **options)
    np.testing.assert_array_equal(want.num_given, got.num_given)
    given = np.asarray(got.items)
    np.testing.assert_array_equal(want.items, np.where(given < 0, -1, kept[given]))
    np.testing.assert_allclose(want.ability, got.ability, atol=1e-12)
    np.testing.assert_array_equal(want.stopped, got.stopped)


@SLOW
def test_names_costs_and_decisions_in_python(tmp_path):
    fit = small_fit(errors=False)
    cost = {name: 1.0 + k for k, name in enumerate(small_table().items.tolist())}
    rules = dict(cost=cost, budget=20.0, pass_mark=0.0)
    test = AdaptiveTest(fit, **rules)
    while (item := test.next_item()) is not None:
        test.record(item, 1)
    assert test.cost == sum(cost[name] for name in test.responses) <= 20
    assert test.stopped == "budget" and test.probability_passed > 0.5
    assert test.passed
    again = AdaptiveTest.load(test.save(tmp_path / "t.json"), fit)
    assert (again.cost, again.stopped) == (test.cost, "budget")
    assert json.loads((tmp_path / "t.json").read_text())["rules"]["cost"] == cost
    tests = irtjax.simulate_tests(fit, 30, key=KEY, num_items=15, **rules)
    table = tests.table
    np.testing.assert_array_equal(table["cost"], tests.cost[:, -1])
    assert tests.cost.max() <= 20 and (np.diff(tests.cost, axis=1) >= 0).all()
    share = np.asarray(table["probability_passed"])
    assert ((share > 0.5) == (tests.ability[:, -1] > 0)).mean() > 0.9
    np.testing.assert_array_equal(table["passed"], share > 0.5)
    # At a budget of everything: the last errors; of nothing: those of the population.
    errors = tests.rmse_by_cost([0.5, 20.0])
    prior = np.sqrt(np.mean((tests.truth - tests.prior[0]) ** 2))
    np.testing.assert_allclose(errors, [prior, tests.rmse()[-1]])


@pytest.mark.parametrize(
    ("rules", "match"),
    [
        (dict(budget=3.0), "needs a cost"),
        (dict(cost=[1.0, 2.0]), "cost has 2 numbers: give one for each of the 15"),
        (dict(cost=[1.0] * 14 + [0.0]), "cost 0 of item 15 is not above 0"),
        (dict(cost={"b0/q0": 1.0}), "no cost of item"),
        (dict(cost=[1.0] * 15, budget=-1.0), "budget -1 is not above 0"),
        (dict(price=0.0), "price 0 is not above 0"),
        (dict(risk=0.1), "needs a pass_mark"),
        (dict(pass_mark=0.0, indifference=0.1), "needs a risk"),
        (dict(pass_mark=0.0, losses=(1.0, 0.0)), "two numbers above 0"),
        (dict(pass_mark=float("nan")), "not a finite number"),
        (dict(losses=(1.0, 2.0)), "losses: they need a pass_mark"),
        # The largest risk of any posterior is 1 * 3 / (1 + 3).
        (dict(pass_mark=0.0, losses=(1.0, 3.0), risk=0.75), "is not below 0.75"),
    ],
)
def test_rules_that_do_not_suit_are_refused_in_one_line(rules, match):
    with pytest.raises(ValueError, match=match) as error:
        AdaptiveTest(small_fit(errors=False), **rules)
    assert "\n" not in str(error.value)


def test_rules_of_one_ability_are_refused_for_several():
    for rules, match in (
        (dict(pass_mark=0.5, risk=0.1, indifference=0.1), "for one ability"),
        (dict(pass_mark=0.5, price=0.1), "use risk"),
    ):
        with pytest.raises(ValueError, match=match):
            AdaptiveTest(factor_bank(), **rules)


def test_a_test_ends_when_it_is_known_who_is_better():
    """P(A > B) by brute force, and an end where it is outside 5 % and 95 %."""
    bank, rival = bank_of(), (0.4, 0.5)
    tests = run(rival=rival, risk=0.05)
    nodes = np.asarray(bank.theta)
    for subject in range(len(THETA)):
        height = np.asarray(bank.log_prior).copy()
        inside = []
        for k in range(int(tests.num_given[subject])):
            place = tests.items[subject, k], tests.observations[subject, k]
            height += np.asarray(bank.table[place])
            weight = np.exp(height - height.max())
            above = weight @ norm.cdf((nodes - rival[0]) / rival[1]) / weight.sum()
            inside.append(0.05 <= above <= 0.95)
        np.testing.assert_allclose(tests.above[subject], above, atol=1e-6)
        decided = bool(tests.stopped[subject] & StopFlag.DECIDED)
        assert all(inside[:-1])
        assert decided == (not inside[-1])
        assert bool(tests.passed[subject]) == (above > 0.5)
    assert len({int(x) for x in tests.num_given}) > 2


def test_a_rival_is_a_subject_of_the_fit_by_name():
    fit = small_fit()
    row = fit.abilities.table.slice(20, 1).to_pylist()[0]
    options = dict(num_items=5, risk=0.1, key=3)
    named = AdaptiveTest(fit, rival=row["subject"], **options)
    given = AdaptiveTest(fit, rival=(row["ability"], row["ability_se"]), **options)
    for test in (named, given):
        while (item := test.next_item()) is not None:
            test.record(item, 0)
    assert named.probability_passed == given.probability_passed < 0.5
    assert named.passed is given.passed is False
    # An ability that is known exactly is a mark.
    exact = AdaptiveTest(fit, rival=(0.7, 0.0), **options)
    mark = AdaptiveTest(fit, pass_mark=0.7, **options)
    assert exact.probability_passed == mark.probability_passed


def test_a_rival_of_several_abilities_has_a_normal_error():
    theta = jnp.array([[0.5, 0.0], [-1.0, 1.0], [2.0, 1.0]])
    tests = run(factor_bank(), theta, rival=(0.5, 0.1))
    error = np.hypot(tests.standard_error[:, -1], 0.1)
    expected = norm.cdf((np.asarray(tests.ability[:, -1]) - 0.5) / error)
    np.testing.assert_allclose(tests.above, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(rival="nobody"), "rival: no subject named 'nobody'"),
        (dict(rival=(0.1, 0.2), pass_mark=1.0), "rival is in place of a pass_mark"),
        (dict(rival=(0.1, -0.2)), "rival: give its ability and its standard error"),
        (
            dict(rival=(0.1, 0.2), indifference=0.3, risk=0.05),
            "indifference is for a pass_mark",
        ),
    ],
)
def test_rivals_that_are_none_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        AdaptiveTest(small_fit(), 5, **given)


def test_a_time_limit_ends_a_test_and_lasts_over_a_saved_one(monkeypatch, tmp_path):
    import irtjax.adaptive.session as session

    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(session.time, "monotonic", lambda: clock.now)
    fit = small_fit()
    test = AdaptiveTest(fit, 10, time_limit=60)
    clock.now += 1000  # Time begins with the first item.
    for _ in range(2):
        item = test.next_item()
        clock.now += 25
        test.record(item, 1)
    assert (test.seconds, test.over) == (50, False)
    clock.now += 5
    again = AdaptiveTest.load(test.save(tmp_path / "test.json"), fit)
    clock.now += 1000  # A saved test does not run.
    assert (again.seconds, again.over) == (55, False)
    item = again.next_item()
    clock.now += 30
    again.record(item, 1)  # An item that was handed out is still answered.
    assert again.next_item() is None
    assert (again.over, again.stopped, again.num_given) == (True, "time", 3)
    with pytest.raises(ValueError, match="time_limit 0 is not above 0"):
        AdaptiveTest(fit, 10, time_limit=0)


def test_a_time_limit_ends_a_test_with_items_in_flight(monkeypatch):
    import irtjax.adaptive.session as session

    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(session.time, "monotonic", lambda: clock.now)
    test = AdaptiveTest(small_fit(), 10, time_limit=60)
    first, second = test.next_items(2)
    clock.now += 61
    test.record(first, 1)
    # No other one is handed out; the one that waits still counts.
    assert test.next_items(2) == [second] and not test.over
    test.record(second, 1)
    assert (test.next_items(2), test.num_given, test.stopped) == ([], 2, "time")
