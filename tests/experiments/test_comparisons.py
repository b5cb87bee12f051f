"""The simulation of shared prompts: clustered errors are honest, naive ones are not."""

import numpy as np
import pytest

from experiments.comparisons.coverage import abilities_of, battles, simulate


def test_each_battle_has_the_chance_of_the_model():
    truth = abilities_of(5)
    table = battles(np.random.default_rng(0), truth, 100_000)
    gap = truth[table.first] - truth[table.second]
    rest = table.outcomes[:, 0] - 1 / (1 + np.exp(-gap))
    # 10,000 prompts of ten battles that are alike: a standard error below .003.
    assert abs(np.mean(rest * np.sign(gap))) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("models", [5, 20])
def test_intervals_ranks_and_pairs_are_honest(models):
    found = simulate(models, 60)
    inside, pairs, ranks, false = found["clustered"]
    # 60 replicates: a standard error of 1.2 % of intervals and 2.8 % of sets.
    assert 0.92 <= inside <= 0.98 and 0.92 <= pairs <= 0.98
    assert ranks >= 0.88 and false <= 0.05
    assert found["naive"][0] < 0.9
