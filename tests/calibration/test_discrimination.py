"""Tests of items with error control: what they flag, and how often wrongly."""

from itertools import permutations

import numpy as np
import pytest

import irtjax
from irtjax.calibration.discrimination import (
    negative_discrimination,
    p_negative,
)
from irtjax.data import ResponseTable
from irtjax.data.stored_cells import DenseCells
from irtjax.numerics.tails import permutation_tails_of_scores
from irtjax.report.demo import judge


def _responses(random, num_subjects, num_items, reversed_items=0):
    """2PL responses; the first items have a negative slope."""
    ability = random.normal(size=(num_subjects, 1))
    slope = random.lognormal(0, 0.3, num_items)
    slope[:reversed_items] *= -1
    chance = 1 / (1 + np.exp(-slope * (ability - random.normal(size=num_items))))
    return (random.random(chance.shape) < chance).astype(np.int8)


def test_permutation_moments_and_tails_are_those_of_all_permutations():
    random = np.random.default_rng(0)
    values = np.array([0.1, 0.1, 0.9, 0.4, 0.0, 0.7, 0.2])
    score = random.normal(size=7)
    sums = np.array([np.dot(order, score) for order in permutations(values)])
    seen = np.ones((7, 1), bool)
    for observed in np.quantile(sums, [0.02, 0.3, 0.9]):
        # A response vector with that sum: the nearest permutation.
        orders = np.array(list(permutations(values)))
        order = orders[np.argmin(abs(orders @ score - observed))][:, None]
        upper, lower = permutation_tails_of_scores(order, seen, score[:, None])
        exact = np.mean(sums >= order[:, 0] @ score - 1e-9)
        # Seven subjects: Pearson's curve follows the steps to a few per cent.
        assert upper[0] == pytest.approx(exact, abs=0.03)
        assert lower[0] == pytest.approx(np.mean(sums <= observed + 1e-9), abs=0.03)
    # The most extreme order has the least p-value: two of 7! are alike.
    extreme = np.sort(values)[np.argsort(np.argsort(score))][:, None]
    upper, _ = permutation_tails_of_scores(extreme, seen, score[:, None])
    assert upper[0] >= 2 / 5040


def test_complete_responses_by_products_have_the_tails_of_every_cell(monkeypatch):
    random = np.random.default_rng(2)
    # More cells than one block of the product.
    for size in ((15, 3), (60, 12), (2500, 1001)):
        values = _responses(random, *size, reversed_items=2)
        values[:, 0] = 1
        found = p_negative(DenseCells(values))
        with monkeypatch.context() as context:
            context.setattr(DenseCells, "is_complete", False)
            cells = p_negative(DenseCells(values))
        assert np.isnan(found[0]) and np.isnan(cells[0])
        np.testing.assert_allclose(found[1:], cells[1:], rtol=1e-8, atol=1e-300)


@pytest.mark.parametrize("num_items", [3, 5, 40])
def test_an_item_whose_rest_is_constant_is_not_flagged(num_items):
    """Rounding of the rest scores would have a skewness without limit."""
    random = np.random.default_rng(num_items)
    for seed in range(60):
        values = np.ones((int(random.integers(20, 200)), num_items), np.int8)
        values[:, 1::2] = seed % 2
        values[:, 0] = random.random(len(values)) < random.uniform(0.2, 0.8)
        if seed % 3 == 0:
            # The rest of the first is constant, those of the two are not.
            values[:, 1] = random.random(len(values)) < 0.5
            values[:, 2] = 1 - values[:, 1]
        for observed in (None, np.ones(values.shape, bool)):
            assert p_negative(DenseCells(values, observed))[0] == 1


def test_booleans_and_numbers_have_the_same_tails():
    random = np.random.default_rng(1)
    right, seen = random.random((2, 40, 9)) < 0.6
    right &= seen
    score = random.normal(size=(40, 9))
    for one, other in zip(
        permutation_tails_of_scores(right, seen, score),
        permutation_tails_of_scores(right.astype(float), seen, score),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("kind", ["binary", "graded", "scores"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_false_flags_are_as_rare_as_stated(kind, missing):
    """Unrelated items: the share of tables with a flag is at most 5 %.

    At 400 tables its standard error is 1.1 %; three of them are allowed.
    """
    random, flagged = np.random.default_rng(2), 0
    for _ in range(400):
        noise = random.normal(size=(30, 40))
        values = {
            "binary": lambda x: (x > 0.5).astype(np.int8),
            "graded": lambda x: np.searchsorted([-1.0, 0.0, 2.0], x).astype(np.int8),
            "scores": lambda x: 1 / (1 + np.exp(-3 * x)),
        }[kind](noise)
        observed = random.random(values.shape) >= missing if missing else None
        seen = 1 if observed is None else observed
        flagged += negative_discrimination(DenseCells(values * seen, observed)).any()
    assert flagged / 400 < 0.05 + 3 * 0.011


@pytest.mark.parametrize("shape", [(10, 240), (100, 50)])
def test_sound_items_are_not_flagged(shape):
    random = np.random.default_rng(3)
    flagged = [
        negative_discrimination(DenseCells(_responses(random, *shape))).any()
        for _ in range(100)
    ]
    # Three standard errors of a share of 5 % over 100 tables.
    assert np.mean(flagged) < 0.05 + 3 * 0.022


@pytest.mark.slow
def test_reversed_items_are_found_and_the_same_as_in_an_audit():
    random = np.random.default_rng(4)
    values = _responses(random, 400, 40, reversed_items=5)
    found = negative_discrimination(DenseCells(values))
    assert found[:5].sum() >= 4 and not found[5:].any()
    table = ResponseTable.from_arrays(values)
    report = irtjax.audit(table, model="1pl")
    audited = report.flagged("negative discrimination")
    assert set(table.items[found]) == set(audited)


def test_items_are_compared_with_their_own_group():
    # Two benchmarks that go against each other: each is sound within itself.
    random = np.random.default_rng(5)
    one, other = _responses(random, 300, 12), _responses(random, 300, 40)
    ability = np.argsort(one.sum(1)), np.argsort(-other.sum(1))
    values = np.concatenate([one[ability[0]], other[ability[1]]], axis=1)
    group = np.repeat([0, 1], [12, 40])
    assert negative_discrimination(DenseCells(values))[:12].any()
    assert not negative_discrimination(DenseCells(values), group).any()


def test_counts_are_tested_where_an_item_has_as_many_trials_for_everybody():
    random = np.random.default_rng(6)
    chance = 1 / (1 + np.exp(-random.normal(size=(60, 1)) * np.ones(8)))
    chance[:, 0] = 1 - chance[:, 0]
    trials = np.full(chance.shape, 10)
    values = random.binomial(trials, chance)
    found = negative_discrimination(DenseCells(values, None, trials))
    assert found.nonzero()[0].tolist() == [0]
    trials[0, 0], values[0, 0] = 9, min(values[0, 0], 9)
    assert not negative_discrimination(DenseCells(values, None, trials)).any()


def test_what_is_not_tested_is_not_flagged():
    # Too few items, no variation, and scores of too few subjects.
    assert not negative_discrimination(DenseCells(np.array([[1, 0], [0, 1]] * 9))).any()
    same = np.ones((20, 5), np.int8)
    assert not negative_discrimination(DenseCells(same)).any()
    few = np.random.default_rng(7).random((8, 30))
    few[:, 0] = -few[:, 1:].mean(1)
    assert not negative_discrimination(DenseCells(few)).any()


@pytest.mark.slow
def test_a_multilevel_fit_flags_the_same_items_as_a_plain_one():
    table = irtjax.make_demo().table
    fit = irtjax.fit(table, "hierarchical", max_steps=40)
    found = {
        name
        for name, flags in zip(
            fit.item_names, fit.items.table["flags"].to_pylist(), strict=True
        )
        if "negative discrimination" in flags
    }
    plain = negative_discrimination(table.stored)
    assert found == set(table.items[plain]) and len(found) >= 4
    assert any("negative discrimination" in text for text in fit.warnings)


@pytest.mark.slow
def test_the_example_has_no_false_alarm():
    demo = irtjax.make_demo()
    found = judge(irtjax.fit(demo.table, standard_errors="none"), demo)
    assert len(found.caught) >= 4 and not found.false_alarms
