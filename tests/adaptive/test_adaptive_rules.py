"""Quotas and exposure: what each rule promises, for every test and every moment."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from irtjax.adaptive import (
    AdaptiveTest,
    Design,
    open_items,
    select,
    simulate_tests,
    start,
)
from irtjax.adaptive.simulation import run_tests_jit
from tests.adaptive_cases import KEY, LENGTH, SIZE, THETA, bank_of


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
