"""Abilities from anywhere are ranked and compared as those of a fit."""

import numpy as np
import pytest

import irtjax
from irtjax import ranking

NAMES = ["a", "b", "c", "d"]
ESTIMATES = np.array([0.0, 0.2, 1.0, 1.1])


def test_ranks_are_those_of_the_covariance():
    root = np.random.default_rng(0).normal(size=(4, 4)) / 4
    covariance = root @ root.T + 0.02 * np.eye(4)
    abilities = irtjax.Abilities(NAMES, ESTIMATES, covariance)
    ranked = irtjax.rank(abilities)
    assert ranked.table["subject"].to_pylist() == ["d", "c", "b", "a"]
    pairs = ranking.pairwise(ESTIMATES, abilities.standard_error, covariance=covariance)
    assert ranked.num_different == int(np.triu(pairs.different, 1).sum())
    found = irtjax.compare(abilities, "d", "a")
    variance = covariance[3, 3] + covariance[0, 0] - 2 * covariance[0, 3]
    assert found.z == pytest.approx(1.1 / variance**0.5)


def test_a_fit_of_comparisons_prints_as_its_abilities():
    rows = [[6, 2, 0, 0], [5, 3, 0, 0], [4, 3, 0, 0]]
    table = irtjax.ComparisonTable.of("abc", [0, 0, 1], [1, 2, 2], rows)
    fit = irtjax.fit_comparisons(table)
    assert str(fit) == str(irtjax.rank(fit.abilities))


@pytest.mark.parametrize(
    ("names", "estimates", "errors", "said"),
    [
        (["a", "a"], [0, 1], [1, 1], "same name"),
        (["a", "b"], [0], [1, 1], "give \\[2\\] abilities"),
        (["a", "b"], [0, 1], [[1, 0]], "give \\[2\\] abilities"),
        (["a", "b"], [0, 1], [1, np.nan], "not finite"),
    ],
)
def test_what_cannot_be_ranked_is_refused(names, estimates, errors, said):
    with pytest.raises(ValueError, match=said):
        irtjax.Abilities(names, estimates, errors)
