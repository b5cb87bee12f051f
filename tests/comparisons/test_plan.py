"""Plans of comparisons against every alternative and against simulations."""

import itertools

import numpy as np
import pytest

import irtjax
from irtjax.comparisons.plan import information_of_one


def counts(rng, ability, pairs, battles) -> irtjax.ComparisonTable:
    """Wins and losses of pairs."""
    first, second = np.array(pairs).T
    chance = 1 / (1 + np.exp(ability[second] - ability[first]))
    win = rng.binomial(battles, chance)
    zero = 0 * win
    outcomes = np.column_stack([win, battles - win, zero, zero])
    names = [f"m{k}" for k in range(len(ability))]
    return irtjax.ComparisonTable.of(names, first, second, outcomes)


@pytest.fixture(scope="module")
def arena():
    table = counts(
        np.random.default_rng(1),
        np.array([0.8, 0.1, -0.2, -0.7]),
        [(0, 1), (1, 2), (2, 3), (0, 3)],
        np.array([40, 25, 30, 10]),
    )
    return irtjax.fit_comparisons(table)


def after(covariance, weight, chosen) -> np.ndarray:
    """Covariance by inverting the information on contrasts."""
    size = len(covariance)
    contrast = np.linalg.svd(np.eye(size) - 1 / size)[0][:, : size - 1]
    information = np.linalg.inv(contrast.T @ covariance @ contrast)
    for i, j in chosen:
        c = contrast[i] - contrast[j]
        information += weight[i, j] * np.outer(c, c)
    return contrast @ np.linalg.inv(information) @ contrast.T


@pytest.mark.parametrize("criterion", ["d_optimal", "adjacent"])
def test_greedy_steps_are_near_the_best_of_all_designs(arena, criterion):
    abilities, weight = arena.abilities, information_of_one(arena)
    order = np.argsort(-abilities.estimates)

    def loss(covariance):
        if criterion == "d_optimal":
            values = np.linalg.eigvalsh(covariance)[1:]
            return np.log(values).sum()
        step = np.diff(np.eye(4)[order], axis=0)
        return np.trace(step @ covariance @ step.T)

    pairs = list(itertools.combinations(range(4), 2))
    one = min(pairs, key=lambda pair: loss(after(abilities.covariance, weight, [pair])))
    plan = irtjax.plan_battles(arena, 1, criterion)
    row = plan.table.to_pylist()[0]
    assert (row["model_a"], row["model_b"]) == (f"m{one[0]}", f"m{one[1]}")
    every = itertools.combinations_with_replacement(pairs, 6)
    best = min(loss(after(abilities.covariance, weight, x)) for x in every)
    plan = irtjax.plan_battles(arena, 6, criterion)
    gained = loss(abilities.covariance) - loss(plan.after.covariance)
    # Greedy designs reach 1 - 1/e of the gain by theorem, here nearly all.
    assert 0.97 <= gained / (loss(abilities.covariance) - best) <= 1 + 1e-9
    assert sum(plan.table["battles"].to_pylist()) == 6


def test_errors_after_the_plan_are_those_of_a_simulation():
    rng, ability = np.random.default_rng(2), np.array([0.6, 0.2, 0.0, -0.8])
    pairs = [(0, 1), (1, 2), (2, 3), (0, 3)]
    first = np.array([150, 60, 80, 50])
    fit = irtjax.fit_comparisons(counts(rng, ability, pairs, first))
    plan = irtjax.plan_battles(fit, 500)
    total = dict(zip(pairs, first.tolist(), strict=True))
    for row in plan.table.to_pylist():
        pair = int(row["model_a"][1]), int(row["model_b"][1])
        total[pair] = total.get(pair, 0) + row["battles"]
    truth = fit.abilities.estimates
    again = [
        irtjax.fit_comparisons(
            counts(rng, truth, list(total), np.array(list(total.values())))
        ).abilities.estimates
        for _ in range(300)
    ]
    # A standard deviation of 300 has an error of 4 %.
    seen = np.std(again, axis=0, ddof=1)
    np.testing.assert_allclose(plan.after.standard_error, seen, rtol=0.13)


def test_battles_decide_with_the_power_of_a_simulation():
    # 55 % of 100, and n more battles at that chance.
    table = irtjax.ComparisonTable.of("ab", [0], [1], [[55, 45, 0, 0]])
    fit = irtjax.fit_comparisons(table)
    number = int(irtjax.battles_to_decide(fit, "a", "b", power=0.8))
    win = 55 + np.random.default_rng(0).binomial(number, 0.55, 20_000)
    size = 100 + number
    z = np.log(win / (size - win)) * np.sqrt(win * (size - win) / size)
    assert np.mean(z > 1.959964) == pytest.approx(0.8, abs=0.025)
    assert irtjax.battles_to_decide(fit, "b", "a") == number
    clear = irtjax.ComparisonTable.of("ab", [0], [1], [[80, 20, 0, 0]])
    assert irtjax.battles_to_decide(irtjax.fit_comparisons(clear), "a", "b") == 0
    equal = irtjax.ComparisonTable.of("ab", [0], [1], [[5, 5, 0, 0]])
    assert irtjax.battles_to_decide(irtjax.fit_comparisons(equal), "a", "b") == np.inf


@pytest.mark.parametrize("ties", ["half", "davidson", "rao_kupper"])
def test_information_is_that_of_the_fit(ties, arena):
    rng = np.random.default_rng(0)
    kind = rng.choice(3, 60, p=[0.5, 0.3, 0.2])
    table = irtjax.ComparisonTable.of("ab", 60 * [0], 60 * [1], np.eye(4)[kind])
    fit = irtjax.fit_comparisons(table, ties=ties)
    # Var(a - b) = 1 / (60 w) if information about ties does not depend on a - b.
    w = information_of_one(fit)[0, 1]
    error = 2 * fit.abilities.standard_error[0]
    assert error**2 == pytest.approx(1 / (60 * w), rel=0.02)


def test_unknown_criteria_are_refused(arena):
    with pytest.raises(ValueError, match="criterion='best' is not one of d_optimal"):
        irtjax.plan_battles(arena, 5, "best")
    with pytest.raises(ValueError, match="num_battles=0"):
        irtjax.plan_battles(arena, 0)
