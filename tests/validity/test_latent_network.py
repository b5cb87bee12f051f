"""A network against an ability: enumeration, drawn dependence, subjects left out."""

import itertools

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import expit

import irtjax
from irtjax.validity.latent_network import (
    Ability,
    TwoParameterModel,
    held_out,
)

SIZE, ITEMS = 1200, 8


@pytest.fixture(scope="module")
def dependent():
    """A 2PL in which the second item also depends on the response to the first."""
    rng = np.random.default_rng(0)
    slope, intercept = rng.uniform(0.8, 1.6, ITEMS), rng.normal(0, 0.8, ITEMS)
    logits = rng.normal(size=(SIZE, 1)) * slope + intercept
    right = rng.random(logits.shape) < expit(logits)
    shifted = expit(logits[:, 1] + 1.5 * (right[:, 0] - 0.5))
    right[:, 1] = rng.random(SIZE) < shifted
    return right.astype(float)


@pytest.fixture(scope="module")
def ability():
    """Seven nodes with uneven weights, four items."""
    rng = np.random.default_rng(0)
    items = np.stack([rng.uniform(-0.5, 2, 4), rng.normal(0, 1, 4)])
    return Ability(items, rng.normal(0, 1, 7), np.log(rng.dirichlet(np.ones(7))))


PATTERNS = np.array(list(itertools.product([0.0, 1.0], repeat=4)))


def test_logits_given_the_other_responses_are_those_of_enumeration(ability):
    chances = expit(np.outer(ability.theta, ability.items[0]) + ability.items[1])
    factors = np.where(PATTERNS[:, None] > 0, chances, 1 - chances)
    joint = factors.prod(axis=2) @ np.exp(ability.log_weights)
    joint = dict(zip(map(tuple, PATTERNS), joint, strict=True))
    for pattern, row in zip(PATTERNS, ability.logits(PATTERNS), strict=True):
        for item in range(4):
            one, zero = pattern.copy(), pattern.copy()
            one[item], zero[item] = 1, 0
            expected = np.log(joint[tuple(one)] / joint[tuple(zero)])
            assert row[item] == pytest.approx(expected, abs=1e-10)


def test_derivatives_by_items_are_those_of_differences(ability):
    slope = np.random.default_rng(1).normal(size=PATTERNS.shape)
    value = lambda items: (slope * ability._replace(items=items).logits(PATTERNS)).sum()
    numerical = np.zeros((2, 4))
    for place in np.ndindex(2, 4):
        step = np.zeros((2, 4))
        step[place] = 1e-5
        numerical[place] = value(ability.items + step) - value(ability.items - step)
    # Central differences have errors of the square of the step.
    gradient = ability.linearised(PATTERNS)[1](slope)
    np.testing.assert_allclose(gradient, numerical / 2e-5, atol=1e-8)


def test_the_ability_is_that_of_the_two_parameter_model(shared_data):
    content = pq.read_table(shared_data / "classic" / "lsat7.parquet")
    names = [x for x in content.column_names if x.startswith("lsat7")]
    right = np.stack([content.column(x).to_numpy() for x in names], 1).astype(float)
    ability = TwoParameterModel(right).fit(np.ones(len(right), bool))
    # mirt's maximum of LSAT7; EM here ends within .03 standard errors of each of ten
    # parameters and has weak priors.
    assert -0.05 < ability.log_likelihood + 2658.805 < 0.001


def test_a_residual_network_has_the_dependent_pair_alone(dependent):
    table = irtjax.ResponseTable.from_arrays(dependent.astype(int))
    first, *others = irtjax.network(table, residual=True).edges.to_pylist()
    assert (first["item"], first["other_item"]) == ("item 1", "item 2")
    # Of the 1.5 drawn, four standard errors.
    assert abs(first["weight"] - 1.5) < 4 * first["weight_se"] < 1
    assert first["q_value"] < 0.01
    assert all(edge["q_value"] > 0.05 for edge in others)
    # Without the ability as an offset, it makes edges of its own.
    plain = irtjax.network(table).edges.to_pylist()
    assert sum(edge["q_value"] < 0.05 for edge in plain) > 10


@pytest.mark.slow
def test_a_dependent_pair_gives_its_neighbours_no_edges():
    """Given ability, two items have an Ising model with a weight of 1.5."""
    rng = np.random.default_rng(0)
    pair = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    weights, shares = [], []
    for _ in range(20):
        slope, intercept = rng.uniform(0.8, 1.6, ITEMS), rng.normal(0, 0.8, ITEMS)
        logits = rng.normal(size=(5000, 1)) * slope + intercept
        right = (rng.random(logits.shape) < expit(logits)).astype(int)
        energy = logits[:, :2] @ pair.T + 1.5 * (pair - 0.5).prod(axis=1)
        right[:, :2] = pair[(energy + rng.gumbel(size=energy.shape)).argmax(axis=1)]
        table = irtjax.ResponseTable.from_arrays(right)
        edges = irtjax.network(table, residual=True).edges.to_pylist()
        significant = [x for x in edges if x["q_value"] < 0.05]
        weights.append(significant[0]["weight"])
        shares.append(1 - 1 / len(significant))
    # 5 % of the edges are false, within three errors of 20 tables, a tenth of which
    # have half of their edges false.
    assert np.mean(shares) < 0.05 + 3 * 0.034
    # An error of a weight is .08.
    assert np.mean(weights) == pytest.approx(1.5, abs=3 * 0.08 / 20**0.5)


def test_a_network_predicts_better_where_there_is_no_common_ability():
    """Each response depends on the one before: a chain is an Ising model."""
    rng = np.random.default_rng(1)
    right = rng.random((SIZE, ITEMS)) < 0.5
    for item in range(1, ITEMS):
        same = rng.random(SIZE) < 0.8
        right[:, item] = np.where(same, right[:, item - 1], ~right[:, item - 1])
    table = irtjax.ResponseTable.from_arrays(right.astype(int))
    result = irtjax.network(table, folds=3, key=1)
    network, ability, independent = result.held_out.to_pylist()
    assert network["difference"] > 5 * network["difference_se"]
    assert ability["difference"] == 0
    assert independent["difference"] < -5 * independent["difference_se"]
    assert independent["log_score"] == pytest.approx(-np.log(2), abs=0.005)
    # The neighbours of an inner item are equal with .8^2 + .2^2 = .68, and it is then
    # as they are with .64 / .68 = 16/17; where they differ it is a coin.
    equal = 16 / 17 * np.log(16 / 17) + 1 / 17 * np.log(1 / 17)
    inner = 0.68 * equal + 0.32 * np.log(0.5)
    ends = 0.8 * np.log(0.8) + 0.2 * np.log(0.2)
    chain = (6 * inner + 2 * ends) / 8
    # Four standard errors, and 36 parameters of 800 subjects, each half a nat.
    loss = 36 / 2 / 800 / 8
    bound = 4 * network["log_score_se"]
    assert abs(network["log_score"] - chain) < bound + 2 * loss
    better = "The network predicts responses left out better than a 2PL"
    assert result.sentence.startswith(better)


def test_each_subject_is_left_out_once(dependent):
    masks = []

    def coin(train, ability):
        masks.append(train)
        assert np.isfinite(ability.items).all()
        return np.zeros_like(dependent)

    rows = held_out(dependent, coin, 3, 0).to_pylist()
    assert rows[0]["log_score"] == pytest.approx(-np.log(2))
    np.testing.assert_array_equal(np.sum(masks, axis=0), 2)


def test_what_cannot_be_compared_is_refused():
    coins = (np.random.default_rng(0).random((30, 4)) < 0.5).astype(int)
    table = irtjax.ResponseTable.from_arrays(coins)
    with pytest.raises(ValueError, match="choose method='pseudolikelihood'"):
        irtjax.network(table, "exact", residual=True)
    with pytest.raises(ValueError, match="choose method='elasso'"):
        irtjax.network(table, "glasso", folds=5)
    with pytest.raises(ValueError, match="31 folds need .* at most 30 subjects"):
        irtjax.network(table, folds=31)
    coins[:, 0] = np.arange(30) == 4
    with pytest.raises(ValueError, match="does not vary without fold"):
        irtjax.network(irtjax.ResponseTable.from_arrays(coins), folds=5)
