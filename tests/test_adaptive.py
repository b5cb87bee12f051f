"""Adaptive tests against brute force, `irtjax.scoring` and simulation."""

import json
from functools import cache

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from irtjax import scoring
from irtjax.adaptive import (
    AbstractBank,
    AdaptiveTest,
    Design,
    ItemBank,
    StopFlag,
    open_items,
    run_test,
    select,
    simulate_tests,
    start,
    stop,
    update,
)
from irtjax.adaptive.simulation import run_tests_jit
from irtjax.data.responses import Responses
from irtjax.data.table import ResponseTable
from irtjax.information import item_information
from irtjax.models.base import Population
from irtjax.models.simulate import simulate_items
from irtjax.storage import load, save
from tests.scoring_cases import ALL
from tests.small_fits import small_fit, small_table

SIZE, LENGTH = 40, 10
#: Not the standard population, so that a forgotten mean or sd shows.
POPULATION = Population(jnp.array(0.3), jnp.array(1.2))
FAMILIES = ["2pl", "3pl", "probit2pl", "graded"]


@cache
def bank_of(name: str = "2pl", dtype=jnp.float64, length: int = LENGTH) -> ItemBank:
    model = ALL[name]
    items = simulate_items(
        model, SIZE, jax.random.key(5), discrimination=(0.7, 2.2), intercept_sd=1.2
    )
    items, population = jax.tree.map(lambda x: x.astype(dtype), (items, POPULATION))
    return ItemBank.create(model, items, population, num_items=length)


THETA = jnp.linspace(-2.0, 2.5, 12)
KEY = jax.random.key(3)


@cache
def run_of(name: str = "2pl", score: str = "eap"):
    design = Design.create(LENGTH, score=score)
    return run_tests_jit(bank_of(name), design, key=KEY, theta=THETA)


def one(tests, subject):
    return jax.tree.map(lambda x: np.asarray(x[subject]), tests)


def scores_by_length(bank, tests, method):
    """Scores of the responses after each item, all others masked, by other code."""
    values = np.zeros((len(THETA), LENGTH, SIZE), np.int8)
    seen = np.zeros(values.shape, bool)
    for subject in range(len(THETA)):
        items, responses = tests.items[subject], tests.observations[subject]
        for k in range(LENGTH):
            values[subject, k, items[: k + 1]] = responses[: k + 1]
            seen[subject, k, items[: k + 1]] = True
    data = Responses(
        jnp.asarray(values.reshape(-1, SIZE)), jnp.asarray(seen.reshape(-1, SIZE))
    )
    nodes = (bank.theta - bank.mean) / bank.sd
    return scoring.score(
        bank.model, bank.items, POPULATION, data, method=method, nodes=nodes
    )


@pytest.mark.parametrize("score", ["eap", "map"])
@pytest.mark.parametrize("name", FAMILIES)
def test_scores_after_each_item_are_those_of_scoring(name, score):
    tests = run_of(name, score)
    want = scores_by_length(bank_of(name), tests, score)
    # On the same nodes EAP is the same sum in another order; MAP is the same root,
    # where both searches stop at steps below eps^(2/3) = 4e-11.
    np.testing.assert_allclose(tests.ability.ravel(), want.ability, atol=1e-9)
    np.testing.assert_allclose(
        tests.standard_error.ravel(), want.standard_error, atol=1e-9
    )


def test_chosen_nodes_are_fine_enough_for_the_longest_test():
    bank, tests = bank_of(), run_of()
    fine = ItemBank.create(
        bank.model, bank.items, POPULATION, nodes=np.linspace(-7, 7, 2001)
    )
    other = run_tests_jit(fine, Design.create(LENGTH), key=KEY, theta=THETA)
    np.testing.assert_array_equal(tests.items, other.items)
    # The nodes reach 6 standard deviations: 2e-9 of the prior lies beyond.
    np.testing.assert_allclose(tests.ability, other.ability, atol=1e-6)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_most_informative_item_is_given_each_time(name):
    bank, tests = bank_of(name), run_of(name)
    before = np.column_stack([np.zeros(len(THETA)), tests.ability[:, :-1]])
    weights = np.exp(np.asarray(bank.log_prior))
    before[:, 0] = weights @ np.asarray(bank.theta)
    table = item_information(bank.model, bank.items, jnp.asarray(before.ravel()))
    table = np.asarray(table).reshape(*before.shape, SIZE)
    for subject in range(len(THETA)):
        left = set(range(SIZE))
        for k, item in enumerate(np.asarray(tests.items[subject]).tolist()):
            assert item == max(left, key=lambda j: table[subject, k, j])
            left.remove(item)


@jax.jit
def run_recorded(bank, design, answers, first):
    return run_test(bank, design, lambda item, _: answers[item], first)


def test_side_by_side_is_one_by_one_and_item_by_item():
    """vmap, scan and single steps give the same test."""
    bank, design = bank_of(), Design.create(LENGTH, randomesque=3)
    tests = run_tests_jit(bank, design, key=KEY, theta=THETA)
    for subject in (0, 7):
        want = one(tests, subject)
        test_key = jax.random.split(jax.random.fold_in(KEY, subject))[0]
        answers = jnp.zeros(SIZE, jnp.int32).at[want.items].set(want.observations)
        first = start(bank, design, key=test_key)
        alone = run_recorded(bank, design, answers, first)
        np.testing.assert_array_equal(alone.items, want.items)
        np.testing.assert_allclose(alone.ability, want.ability, atol=1e-12)
        state, step = first, jax.jit(update)
        for k in range(LENGTH):
            assert int(stop(bank, design, state)) == 0
            item = select(bank, design, state)
            assert int(item) == want.items[k]
            state = step(bank, design, state, item, answers[item])
            assert float(state.ability) == pytest.approx(want.ability[k], abs=1e-12)
        assert int(stop(bank, design, state)) == StopFlag.NUM_ITEMS


def test_the_object_gives_the_test_of_the_scan():
    bank = bank_of()
    design = Design.create(LENGTH)
    first = start(bank, design, key=jax.random.key(0))
    answers = np.arange(SIZE) % 2
    want = run_recorded(bank, design, jnp.asarray(answers, jnp.int32), first)
    test = AdaptiveTest(bank, LENGTH)
    path = []
    while (item := test.next_item()) is not None:
        assert test.next_item() == item
        test.record(item, answers[int(item.split()[1]) - 1])
        path.append((test.ability, test.standard_error))
    given = [int(name.split()[1]) - 1 for name in test.responses]
    assert given == want.items.tolist()
    np.testing.assert_allclose(path, np.c_[want.ability, want.standard_error])
    assert test.over and test.stopped == "number of items"


@pytest.mark.parametrize("rule", ["information", "random", "fixed"])
def test_unavailable_items_are_never_given_and_none_twice(rule):
    bank = bank_of()
    available = jax.random.bernoulli(jax.random.key(1), 0.4, (len(THETA), SIZE))
    available = available.at[0].set(jnp.arange(SIZE) < 4).at[1].set(False)
    tests = run_tests_jit(
        bank,
        Design.create(LENGTH, select=rule),
        key=KEY,
        theta=THETA,
        available=available,
    )
    orders = set()
    for subject, allowed in enumerate(np.asarray(available)):
        test = one(tests, subject)
        items = test.items[: test.num_given]
        assert len(set(items.tolist())) == len(items) == min(LENGTH, allowed.sum())
        assert allowed[items].all() and (test.items[test.num_given :] == -1).all()
        if rule == "fixed":
            assert items.tolist() == np.flatnonzero(allowed)[:LENGTH].tolist()
        orders.add(tuple(items[:3]))
        last = StopFlag.NUM_ITEMS if len(items) == LENGTH else 0
        out = StopFlag.NO_ITEMS if len(items) == allowed.sum() else 0
        assert test.stopped == last | out
    # Nobody's test of no items: the population is what is known.
    assert tests.ability[1, -1] == pytest.approx(0.3)
    assert tests.standard_error[1, -1] == pytest.approx(1.2)
    if rule == "random":
        assert len(orders) > 8


def first_index(condition) -> int:
    """Number of items after which a condition first holds, or the whole length."""
    where = np.flatnonzero(condition)
    return int(where[0]) + 1 if len(where) else LENGTH


@pytest.mark.parametrize("rule", ["standard_error", "reliability", "gain"])
def test_a_test_stops_exactly_when_its_rule_says(rule):
    bank, full = bank_of(), run_of()
    error = np.asarray(full.standard_error)
    shown = item_information(
        bank.model, bank.items, jnp.asarray(full.ability).reshape(-1)
    )
    shown = np.asarray(shown).reshape(len(THETA), LENGTH, SIZE)
    limit = {"standard_error": 0.6, "reliability": 0.72, "gain": 0.13}[rule]
    tests = run_tests_jit(
        bank, Design.create(LENGTH, **{rule: limit}), key=KEY, theta=THETA
    )
    flag = StopFlag[rule.upper()]
    lengths = set()
    for subject in range(len(THETA)):
        if rule == "standard_error":
            holds = error[subject] < limit
        elif rule == "reliability":
            holds = 1 - error[subject] ** 2 / 1.2**2 > limit
        else:
            holds = []
            for k in range(LENGTH):
                given = np.asarray(full.items[subject, : k + 1])
                rest = np.setdiff1d(np.arange(SIZE), given)
                now = shown[subject, k]
                holds.append(now[rest].max() < limit * now[given].sum())
        count = first_index(holds)
        got = one(tests, subject)
        lengths.add(count)
        assert got.num_given == count
        assert bool(got.stopped & flag) == holds[count - 1]
        assert bool(got.stopped & StopFlag.NUM_ITEMS) == (count == LENGTH)
        # An ended test does not change: items before are those without the rule.
        np.testing.assert_array_equal(
            got.items[:count], np.asarray(full.items[subject, :count])
        )
        assert (got.items[count:] == -1).all()
        assert (got.ability[count - 1 :] == got.ability[count - 1]).all()
    # The rule ends tests at several lengths here, so that it is put to the test.
    assert len(lengths) > 1 and min(lengths) < LENGTH


def test_several_rules_end_a_test_at_the_first():
    design = Design.create(LENGTH, standard_error=0.6, reliability=0.1)
    tests = run_tests_jit(bank_of(), design, key=KEY, theta=THETA)
    full = np.asarray(run_of().standard_error)
    counts = [first_index(1 - row**2 / 1.44 > 0.1) for row in full]
    assert tests.num_given.tolist() == counts


NUM_MANY, MANY_LENGTH = 1500, 12


@cache
def many(rule: str):
    bank = bank_of(length=MANY_LENGTH)
    theta = 0.3 + 1.2 * jax.random.normal(jax.random.key(8), (NUM_MANY,))
    design = Design.create(MANY_LENGTH, select=rule)
    return theta, run_tests_jit(bank, design, key=jax.random.key(9), theta=theta)


def test_adaptive_beats_random_at_equal_length():
    squares = {}
    for rule in ("information", "random"):
        theta, tests = many(rule)
        squares[rule] = np.asarray((tests.ability[:, -1] - theta) ** 2)
    difference = squares["random"] - squares["information"]
    error = difference.std() / np.sqrt(NUM_MANY)
    # Paired by subject; five Monte Carlo standard errors are no accident, and the
    # test would be pointless if the difference were not well beyond them.
    assert difference.mean() > 5 * error


@pytest.mark.parametrize("rule", ["information", "random"])
@pytest.mark.parametrize("place", [3, MANY_LENGTH - 1])
def test_standard_errors_hold_what_they_promise(rule, place):
    theta, tests = many(rule)
    error = np.asarray(tests.ability[:, place] - theta)
    claimed = np.asarray(tests.standard_error[:, place])
    # Over subjects of the population the mean squared error of the posterior mean is
    # the mean posterior variance, whatever the rule of selection.
    difference = error**2 - claimed**2
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(NUM_MANY)
    covered = (np.abs(error) < 1.96 * claimed).mean()
    # Four binomial standard errors (0.0056 each), and half a per cent for posteriors
    # of few responses, which are not normal.
    assert abs(covered - 0.95) < 4 * 0.0056 + 0.005


@pytest.mark.parametrize("score", ["eap", "map"])
def test_single_precision_stays_single(score, strict_promotion):
    bank = bank_of(dtype=jnp.float32)
    design = Design.create(
        LENGTH,
        score=score,
        gain=0.01,
        standard_error=0.1,
        groups=["x", "y"] * 20,
        quota="equal",
    )
    tests = run_tests_jit(bank, design, key=KEY, theta=THETA.astype(jnp.float32))
    assert bank.table.dtype == tests.ability.dtype == jnp.float32
    assert (tests.num_given == LENGTH).all()
    with jax.numpy_dtype_promotion("standard"):
        want = scores_by_length(bank_of(), tests, score)
    # Log posteriors of order 10 are rounded to 1e-6, and MAP's search stops at steps
    # below eps^(2/3) = 2.4e-5.
    np.testing.assert_allclose(tests.ability.ravel(), want.ability, atol=5e-5)
    np.testing.assert_allclose(
        tests.standard_error.ravel(), want.standard_error, atol=5e-5
    )


# Content.


@settings(max_examples=10, deadline=None)
@given(
    weights=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    seed=st.integers(0, 1000),
)
def test_no_group_exceeds_its_share_by_a_whole_item(weights, seed):
    bank, names = bank_of(), np.array(["x", "y", "z"])
    # Groups large enough not to run out within a test.
    groups = names[np.arange(SIZE) % 3]
    quota = dict(zip(names.tolist(), weights, strict=True))
    design = Design.create(LENGTH, groups=groups, quota=quota)
    tests = run_tests_jit(bank, design, key=jax.random.key(seed), theta=THETA)
    codes = np.asarray(tests.items) % 3
    share = np.array(weights) / sum(weights)
    assert (codes[:, 0] == share.argmax()).all()
    for k in range(1, LENGTH + 1):
        counts = np.stack([(codes[:, :k] == g).sum(1) for g in range(3)], axis=1)
        assert (counts < k * share + 1 - 1e-9).all()
        assert (counts.sum(1) == k).all()
    # Within its group the item is still the most informative one.
    first = np.asarray(tests.items)[0, 0]
    inside = np.flatnonzero(groups == groups[first])
    at = bank.information(start(bank, design, key=KEY).ability)
    assert first == inside[np.asarray(at)[inside].argmax()]


def test_a_group_that_runs_out_leaves_its_turn_and_one_without_weight_is_unused():
    groups = np.array(["few"] * 2 + ["many"] * 30 + ["none"] * 8)
    test = AdaptiveTest(
        bank_of(), LENGTH, groups=groups, quota={"few": 1, "many": 1, "none": 0}
    )
    seen = []
    while (item := test.next_item()) is not None:
        seen.append(groups[int(item.split()[1]) - 1])
        test.record(item, 1)
    assert seen == ["few", "many", "few"] + ["many"] * 7


# Exposure.


def test_randomesque_draws_evenly_from_the_most_informative():
    bank, design = bank_of(), Design.create(LENGTH, randomesque=4)
    keys = jax.random.split(jax.random.key(2), 2000)
    firsts = jax.vmap(lambda key: select(bank, design, start(bank, design, key=key)))
    counts = np.bincount(np.asarray(firsts(keys)), minlength=SIZE)
    begun = start(bank, design, key=KEY)
    best = np.argsort(-np.asarray(bank.information(begun.ability)))[:4]
    assert set(np.flatnonzero(counts)) == set(best.tolist())
    # Binomial: 500 each with a standard deviation of 19.4.
    assert (np.abs(counts[best] - 500) < 5 * 19.4).all()


def test_randomesque_with_fewer_items_left_takes_from_those():
    bank, design = bank_of(), Design.create(LENGTH, randomesque=4)
    left = jnp.arange(SIZE) < 2
    keys = jax.random.split(jax.random.key(2), 50)
    picks = jax.vmap(
        lambda key: select(bank, design, start(bank, design, key=key, available=left))
    )(keys)
    assert set(np.asarray(picks).tolist()) == {0, 1}


@pytest.mark.parametrize("limit", [0.3, 0.5])
def test_no_item_is_used_in_more_than_its_share_of_tests(limit):
    free = simulate_tests(bank_of(), 30, key=KEY, num_items=LENGTH)
    held = simulate_tests(bank_of(), 30, key=KEY, num_items=LENGTH, max_exposure=limit)
    assert free.exposure().max() > limit
    used = np.zeros(SIZE)
    for count, items in enumerate(held.given, start=1):
        assert len(set(items.tolist())) == LENGTH
        used[items] += 1
        # At every moment, and not only at the end.
        assert used.max() <= np.ceil(limit * count - 1e-9)
    np.testing.assert_allclose(held.exposure(), used / 30)


@settings(deadline=None)
@given(used=st.integers(0, 40), tests=st.integers(0, 40), twentieths=st.integers(1, 20))
def test_open_items_is_exact_where_shares_are_not(used, tests, twentieths):
    got = open_items(jnp.array([used]), jnp.array(tests), jnp.array(twentieths / 20))
    # In whole numbers: used < ceil(k (N + 1) / 20).
    assert bool(got[0]) == (used < -(-twentieths * (tests + 1) // 20))


def test_eligibility_bounds_the_rate_of_use():
    bank, design = bank_of(), Design.create(LENGTH)
    chance = jnp.full(SIZE, 0.4)
    keys = jax.random.split(jax.random.key(4), 600)
    available = jax.vmap(
        lambda key: start(bank, design, key=key, eligibility=chance).available
    )(keys)
    # 600 x 40 draws: five binomial standard errors of 0.0032.
    assert abs(float(available.mean()) - 0.4) < 5 * 0.0032


# A model of more than responses.


class TimedBank(AbstractBank):
    """Responses with a second measurement of ability: y ~ N(theta, 1)."""

    inner: ItemBank

    @property
    def num_items(self):
        return self.inner.num_items

    @property
    def blank(self):
        return jnp.zeros((), jnp.int32), jnp.zeros((), self.theta.dtype)

    def information(self, theta):
        return self.inner.information(theta) + 1

    def log_prob(self, item, observation, theta):
        response, other = observation
        return self.inner.log_prob(item, response, theta) - 0.5 * (other - theta) ** 2

    def sample(self, item, theta, key):
        first, second = jax.random.split(key)
        return self.inner.sample(item, theta, first), theta + jax.random.normal(second)


@pytest.mark.parametrize("score", ["eap", "map"])
def test_a_bank_of_two_measures_learns_from_both(score):
    inner = bank_of()
    bank = TimedBank(inner.theta, inner.log_prior, inner.mean, inner.sd, inner)
    design = Design.create(LENGTH, score=score)
    tests = run_tests_jit(bank, design, key=KEY, theta=THETA)
    responses, others = tests.observations
    # By hand, with one subject's observations on a fine grid.
    grid = np.linspace(-5, 5, 20001)
    log_post = -0.5 * ((grid - 0.3) / 1.2) ** 2
    items = jax.tree.map(lambda x: np.asarray(x)[tests.items[4]], inner.items)
    eta = items.discrimination[:, None] * grid + items.intercept[:, None]
    log_post += (np.asarray(responses[4])[:, None] * eta - np.logaddexp(0, eta)).sum(0)
    log_post -= 0.5 * ((np.asarray(others[4])[:, None] - grid) ** 2).sum(0)
    weight = np.exp(log_post - log_post.max())
    want = grid[log_post.argmax()] if score == "map" else weight @ grid / weight.sum()
    # The grid's own spacing is 5e-4; EAP sums are good to 1e-7.
    assert float(tests.ability[4, -1]) == pytest.approx(want, abs=3e-4)


# The object.


def answer_all(test: AdaptiveTest) -> list[tuple[str, float]]:
    found = []
    while (item := test.next_item()) is not None:
        test.record(item, len(item) % 2)
        found.append((item, test.ability))
    return found


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize("k", [0, 1, 4])
def test_a_test_put_aside_goes_on_as_it_would_have(tmp_path, k, waiting):
    fit, rules = small_fit(), dict(randomesque=3, quota={"b0": np.int8(1), "b1": 2})
    whole = answer_all(AdaptiveTest(fit, 8, **rules))
    test = AdaptiveTest(fit, 8, **rules)
    for _ in range(k):
        item = test.next_item()
        test.record(item, len(item) % 2)
    handed = test.next_item() if waiting else None
    # Another day, the calibration comes from its folder too.
    source = load(save(fit, tmp_path / "fit")) if waiting else fit
    again = AdaptiveTest.load(test.save(tmp_path / "t.json"), source)
    assert again.ability == test.ability and again.responses == test.responses
    if waiting:
        again.record(handed, len(handed) % 2)
        assert again.ability == whole[k][1]
    else:
        with pytest.raises(ValueError, match="was not handed out"):
            again.record(whole[k][0], 1)
    assert answer_all(again) == whole[k + waiting :]
    assert not list(tmp_path.glob(".*"))


def test_bad_files_are_refused_in_one_line(tmp_path):
    fit, path = small_fit(), tmp_path / "t.json"
    test = AdaptiveTest(fit, 5)
    test.record(test.next_item(), 1)
    good = json.loads(test.save(path).read_text())

    def refused(match, content=None, source=fit):
        if content is not None:
            path.write_text(
                content if isinstance(content, str) else json.dumps(content)
            )
        with pytest.raises(ValueError, match=match) as error:
            AdaptiveTest.load(path, source)
        assert "\n" not in str(error.value) and "t.json" in str(error.value)

    refused("other items or parameters", source=small_fit("rasch"))
    refused("not JSON", "{")
    refused("not a saved adaptive test", {"format": "other"})
    refused("newer irtjax", good | {"version": 99})
    refused("damaged", {k: v for k, v in good.items() if k != "responses"})
    refused("could not be given", good | {"responses": good["responses"] * 2})
    refused("no item named", good | {"responses": [["nobody", 1]]})
    refused("categories", good | {"responses": [[good["responses"][0][0], 3]]})
    refused("damaged", good | {"rules": good["rules"] | {"colour": 1}})
    path.unlink()
    refused("cannot read")
    with pytest.raises(ValueError, match="cannot write"):
        test.save(tmp_path / "nowhere" / "t.json")


def test_what_is_recorded_is_checked():
    test = AdaptiveTest(small_fit(), 2)
    names = small_table().items.tolist()
    with pytest.raises(ValueError, match="call next_item"):
        test.record(names[0], 1)
    item = test.next_item()
    other = next(name for name in names if name != item)
    for bad, match in [
        (("nobody", 1), "no item named 'nobody' in the bank of 15 items"),
        ((other, 1), "waits for its response"),
        ((item, 2), "not one of the categories 0 to 1"),
        ((item, 0.5), "not one of the categories"),
        ((item, float("nan")), "not one of the categories"),
        ((item, "1"), "not one of the categories"),
        ((item, None), "not one of the categories"),
    ]:
        with pytest.raises(ValueError, match=match) as error:
            test.record(*bad)
        assert "\n" not in str(error.value)
        # Nothing has changed.
        assert test.num_given == 0 and test.next_item() == item
    test.record(item, True)
    with pytest.raises(ValueError, match="was not handed out"):
        test.record(item, 1)
    test.record(test.next_item(), np.int8(0))
    assert test.next_item() is None
    with pytest.raises(ValueError, match="the test is over .number of items."):
        test.record(item, 1)


@pytest.mark.parametrize(
    ("rules", "match"),
    [
        (dict(select="best"), "select 'best' is not one of information"),
        (dict(score="ml"), "score 'ml' is not one of eap"),
        (dict(num_items=0), "num_items 0"),
        (dict(randomesque=0), "randomesque 0"),
        (dict(randomesque=2, select="random"), "randomesque 2 needs"),
        (dict(standard_error=0.0), "standard_error 0"),
        (dict(reliability=1.0), "reliability 1"),
        (dict(gain=-0.1), "gain -0.1"),
        (dict(quota="fair"), "quota 'fair'"),
        (dict(quota={"b7": 1.0}), "no items are of group 'b7'; there are b0, b1"),
        (dict(quota={"b0": -1.0}), "weights must be"),
        (dict(max_exposure=0.0), "max_exposure 0"),
        (dict(items=["x"]), "no item named 'x'"),
        (dict(max_exposure=0.1, times_used={"x": 3}), "no item named 'x'"),
    ],
)
def test_bad_rules_are_refused_in_one_line(rules, match):
    with pytest.raises(ValueError, match=match) as error:
        AdaptiveTest(small_fit(), **rules)
    assert "\n" not in str(error.value)


def test_other_bad_beginnings_are_refused():
    with pytest.raises(ValueError, match="not from a str"):
        AdaptiveTest("fit")
    with pytest.raises(ValueError, match="quota needs content groups"):
        AdaptiveTest(bank_of(), quota="equal")
    bank = bank_of("graded")
    thresholds = bank.items.intercept.at[2].set(bank.items.intercept[2, ::-1])
    broken = bank.items._replace(intercept=thresholds)
    with pytest.raises(ValueError, match="item 3 of the bank has no probabilities"):
        ItemBank.create(bank.model, broken, POPULATION)
    weights = jnp.zeros(61)
    shaped = ItemBank.create(
        bank.model, bank.items, POPULATION._replace(log_weights=weights)
    )
    with pytest.raises(ValueError, match="histogram"):
        AdaptiveTest(shaped, score="map")
    assert AdaptiveTest(shaped).standard_error > 0


def test_items_given_by_name_are_the_only_ones_and_in_their_order():
    names = small_table().items.tolist()
    chosen = [names[7], names[2], names[11]]
    test = AdaptiveTest(small_fit(), select="fixed", items=chosen)
    assert [name for name, _ in answer_all(test)] == chosen
    assert test.stopped == "no items left"
    worn = AdaptiveTest(
        small_fit(),
        num_tests=9,
        max_exposure=0.2,
        times_used={name: 2 for name in names[3:]},
    )
    assert {name for name, _ in answer_all(worn)} == set(names[:3])


# Simulated and replayed tests with labels.


def test_replayed_subjects_respond_as_they_did():
    table, fit = small_table(), small_fit()
    # Another order of items, and one that the fit does not know.
    order = table.items[::-1]
    shuffled = table.select(items=order)
    strange = ResponseTable.from_arrays(
        np.c_[np.where(shuffled.observed, shuffled.values, np.nan), np.ones(24)],
        subjects=table.subjects,
        items=[*order.tolist(), "unknown"],
    )
    tests = simulate_tests(fit, key=KEY, num_items=15, responses=strange)
    assert tests.replayed and "1 items are not in the bank" in tests.notes[1]
    for subject in range(24):
        count = tests.num_given[subject]
        items = tests.given[subject, :count]
        assert count == table.observed[subject].sum()
        assert table.observed[subject, items].all()
        np.testing.assert_array_equal(
            tests.responses[subject, :count], table.values[subject, items]
        )
    # With all answers given, the score is that of all answers; the nodes differ.
    np.testing.assert_allclose(tests.ability[:, -1], tests.truth, atol=1e-6)
    assert "ability_all_items" in tests.table().column_names


def test_responses_that_do_not_suit_are_refused():
    fit = small_fit()
    other = ResponseTable.from_arrays([[1, 0]], items=["x", "y"])
    with pytest.raises(ValueError, match="none of the 2 items"):
        simulate_tests(fit, key=KEY, responses=other)
    names = small_table().items[:2]
    wrong = ResponseTable.from_arrays([[1, 2]], items=names, subjects=["s"])
    with pytest.raises(ValueError, match="subject s, item b1/q1: the response 2"):
        simulate_tests(fit, key=KEY, responses=wrong)
    counts = ResponseTable.from_arrays([[1, 2]], items=names, trials=[[3, 3]])
    with pytest.raises(ValueError, match="counts of trials"):
        simulate_tests(fit, key=KEY, responses=counts)
    with pytest.raises(ValueError, match="num_subjects 0"):
        simulate_tests(fit, 0, key=KEY)


def test_the_table_and_curves_of_simulated_tests():
    tests = simulate_tests(
        bank_of(), key=KEY, num_items=LENGTH, ability=THETA, standard_error=0.6
    )
    rows = tests.table().to_pylist()
    assert [row["num_items"] for row in rows] == tests.num_given.tolist()
    assert {row["stopped"] for row in rows} <= {
        *("standard error", "number of items", "number of items; standard error")
    }
    for row, truth, path in zip(rows, THETA.tolist(), tests.ability, strict=True):
        assert row["true_ability"] == truth and row["ability"] == path[-1]
    errors = [[(path[k] - t) ** 2 for path, t in zip(tests.ability, THETA, strict=True)]
              for k in range(LENGTH)]  # fmt: skip
    np.testing.assert_allclose(tests.rmse(), np.sqrt(np.mean(errors, axis=1)))
    np.testing.assert_allclose(
        tests.mean_standard_error() ** 2, (tests.standard_error**2).mean(0)
    )
    assert tests.exposure().sum() == pytest.approx(tests.num_given.mean())


def test_more_subjects_than_go_side_by_side_get_the_same_tests(monkeypatch):
    design = Design.create(LENGTH)
    monkeypatch.setattr("irtjax.adaptive.simulation.SIDE_BY_SIDE", 5)
    # Another key, or the program that is compiled for all at once would serve.
    from irtjax.adaptive.simulation import run_tests

    in_turns = jax.jit(lambda key: run_tests(bank_of(), design, key=key, theta=THETA))
    got = in_turns(KEY)
    np.testing.assert_array_equal(got.items, run_of().items)
    np.testing.assert_allclose(got.ability, run_of().ability, atol=1e-12)
