"""Kappas and alpha: published examples, definitions by counting, and limits."""

import itertools

import numpy as np
import pytest

from irtjax.validity.rater_agreement import (
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
)

#: 14 raters put 10 subjects into 5 categories; kappa is .210 (the usual worked example
#: of Fleiss' method: P = .378, P_e = .213).
EXAMPLE = np.array(
    [
        [0, 0, 0, 0, 14],
        [0, 2, 6, 4, 2],
        [0, 0, 3, 5, 6],
        [0, 3, 9, 2, 0],
        [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0],
        [3, 2, 6, 3, 0],
        [2, 5, 3, 2, 2],
        [6, 5, 2, 1, 0],
        [0, 2, 2, 3, 7],
    ]
)


def test_fleiss_kappa_of_the_worked_example():
    unit, value = np.indices(EXAMPLE.shape)
    repeats = EXAMPLE.ravel()
    verdict, unit = (np.repeat(x.ravel(), repeats) for x in (value, unit))
    assert fleiss_kappa(verdict, unit) == pytest.approx(0.210, abs=5e-4)


def test_fleiss_kappa_is_the_share_of_pairs_of_verdicts_that_agree():
    rng = np.random.default_rng(0)
    table = rng.integers(3, size=(12, 5))
    pairs = list(itertools.combinations(range(5), 2))
    agreement = np.mean([row[i] == row[j] for row in table for i, j in pairs])
    chance = np.sum((np.bincount(table.ravel()) / table.size) ** 2)
    found = fleiss_kappa(table.ravel(), np.repeat(np.arange(12), 5))
    assert found == pytest.approx((agreement - chance) / (1 - chance))


def test_cohen_kappa_counts_what_both_have_rated():
    rng = np.random.default_rng(1)
    table = rng.integers(2, size=(3, 40))
    rated = rng.random((3, 40)) < 0.7
    rater, unit = np.nonzero(rated)
    order = rng.permutation(len(rater))
    found = cohen_kappa(table[rated][order], rater[order], unit[order])
    for i, j in itertools.combinations(range(3), 2):
        one, other = (table[k, rated[i] & rated[j]] for k in (i, j))
        by_chance = sum(np.mean(one == v) * np.mean(other == v) for v in (0, 1))
        share = np.mean(one == other)
        assert found.number[i, j] == len(one)
        assert found.share[i, j] == pytest.approx(share)
        kappa = (share - by_chance) / (1 - by_chance)
        assert found.kappa[i, j] == pytest.approx(kappa)
    np.testing.assert_array_equal(found.kappa, found.kappa.T)


def test_verdicts_that_do_not_vary_have_no_agreement_beyond_chance():
    same, rater, unit = np.ones(6, int), np.repeat([0, 1], 3), np.tile(np.arange(3), 2)
    assert np.isnan(cohen_kappa(same, rater, unit).kappa).all()
    assert np.isnan(fleiss_kappa(same, unit)) and np.isnan(
        krippendorff_alpha(same, unit)
    )
    # Each unit has one verdict.
    assert np.isnan(fleiss_kappa(np.arange(3), np.arange(3)))
