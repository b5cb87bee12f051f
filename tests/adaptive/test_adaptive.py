"""Adaptive tests against brute force, `irtjax.inference` and simulation."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax import inference
from irtjax.adaptive import (
    AbstractNodeBank,
    AdaptiveTest,
    Design,
    ItemBank,
    StopFlag,
    run_test,
    select,
    start,
    stop,
    update,
)
from irtjax.adaptive.simulation import run_tests_jit
from irtjax.data.responses import Responses
from irtjax.inference.information import item_information
from tests.adaptive_cases import (
    FAMILIES,
    KEY,
    LENGTH,
    POPULATION,
    SIZE,
    THETA,
    bank_of,
    run_of,
)


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
    return inference.score(
        bank.model, bank.items, POPULATION, data, scoring=method, nodes=nodes
    )


SLOW = pytest.mark.slow
#: Without the probit link by default, and the second rule for one family: it is one
#: code for all of them.
CASES = [pytest.param(n, marks=[SLOW] * (n == "probit2pl")) for n in FAMILIES]
RULES = [
    pytest.param(name, rule, marks=[SLOW] * (name == "probit2pl" or second))
    for name in FAMILIES
    for rule, second in (("eap", False), ("map", name != "3pl"))
]


@pytest.mark.parametrize(("name", "score"), RULES)
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


@pytest.mark.parametrize("name", CASES)
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


def test_no_rule_ends_a_test_before_its_fewest_items():
    least, budget = 4, 2.0
    rules = dict(standard_error=0.9, reliability=0.1, gain=0.9)
    free, kept = (
        run_tests_jit(bank_of(), Design.create(LENGTH, **rules, min_items=k), key=KEY,
                      theta=THETA)
        for k in (1, least)
    )  # fmt: skip
    counts = np.asarray(free.num_given)
    assert counts.min() < least
    np.testing.assert_array_equal(kept.num_given, np.maximum(counts, least))
    # A budget ends them all the same.
    cost = np.ones(SIZE)
    design = Design.create(LENGTH, min_items=least, cost=cost, budget=budget)
    poor = run_tests_jit(bank_of(), design, key=KEY, theta=THETA)
    assert (np.asarray(poor.num_given) == budget).all()
    for wrong, match in (
        (0, "min_items 0 is not at least 1"),
        (LENGTH + 1, "is above"),
    ):
        with pytest.raises(ValueError, match=match):
            Design.create(LENGTH, min_items=wrong)


NUM_MANY, MANY_LENGTH = 1500, 12


@cache
def many(rule: str):
    bank = bank_of(length=MANY_LENGTH)
    theta = 0.3 + 1.2 * jax.random.normal(jax.random.key(8), (NUM_MANY,))
    design = Design.create(MANY_LENGTH, select=rule)
    return theta, run_tests_jit(bank, design, key=jax.random.key(9), theta=theta)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize("score", [pytest.param("eap", marks=SLOW), "map"])
def test_single_precision_stays_single(score, strict_promotion):
    bank = bank_of(dtype=jnp.float32)
    design = Design.create(
        LENGTH,
        scoring=score,
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


# A model of more than responses.


class TimedBank(AbstractNodeBank):
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
    bank = TimedBank(inner.mean, inner.sd, inner.theta, inner.log_prior, inner)
    design = Design.create(LENGTH, scoring=score)
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


def test_batches_give_the_tests_of_all_subjects_together(monkeypatch):
    from irtjax.adaptive import study
    from irtjax.numerics.progress import watching

    monkeypatch.setattr(study, "SIDE_BY_SIDE", 5)
    options = {"theta": THETA, "max_exposure": None}
    shares = []
    with watching(lambda share, name: shares.append(share)):
        found = study._tests(bank_of(), Design.create(LENGTH), KEY, options)
    assert shares == [0, pytest.approx(1 / 3), pytest.approx(2 / 3), 1, None]
    whole = run_of()
    np.testing.assert_array_equal(found.items, whole.items)
    np.testing.assert_array_equal(found.observations, whole.observations)
    np.testing.assert_allclose(found.ability, whole.ability, atol=1e-9)
