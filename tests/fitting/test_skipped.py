"""Priors of items that depend on how many subjects answered, where weak ones skip."""

import numpy as np
import pytest

import irtjax
from irtjax.fitting.skipped import NAMES, NOTE, covariates_of_missing

SUBJECTS, ITEMS = 60, 100


def draw(seed: int, steep: float, shift: float, items: int = ITEMS):
    """Expected scores, responses and mask; the weak skip the hard where `steep` > 0."""
    rng = np.random.default_rng([13, seed])
    theta = rng.normal(size=(SUBJECTS, 1))
    slope, difficulty = np.exp(rng.normal(0.1, 0.4, items)), rng.normal(0, 1.2, items)
    chance = 1 / (1 + np.exp(-slope * (theta - difficulty)))
    right = (rng.random(chance.shape) < chance).astype(float)
    skipped = 1 / (1 + np.exp(-steep * (difficulty - theta) - shift))
    return chance.mean(axis=1), right, rng.random(chance.shape) >= skipped


def table_of(right, observed, **more) -> irtjax.ResponseTable:
    return irtjax.ResponseTable.from_arrays(right, observed=observed, **more)


def column(fit, name: str) -> np.ndarray:
    return np.asarray(fit.abilities.table[name].to_pylist(), float)


@pytest.mark.slow
def test_scores_of_those_who_skip_hard_items_are_covered():
    # Without the covariates the least able third is covered 40 %, and all 67 %.
    covered, weak = [], []
    for seed in range(3):
        score, right, observed = draw(seed, 2.5, 0.0)
        fit = irtjax.fit(table_of(right, observed), "2pl", "laplace")
        assert NOTE in fit.notes
        assert fit.options["item_covariates"] == sorted(NAMES)
        low, high = (column(fit, f"expected_score_{end}") for end in ("lower", "upper"))
        inside = (low <= score) & (score <= high)
        covered.append(inside.mean())
        weak.append(inside[np.argsort(score)[: SUBJECTS // 3]].mean())
    # Errors of scores are correlated within a data set, whose shares vary by .05.
    assert np.mean(covered) > 0.85
    assert np.mean(weak) > 0.75


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_responses_missing_at_random_change_nothing(share):
    # At a level of 1 % one table in 40 or more has a chance of a third; the seeds are
    # fixed.
    found = 0
    for seed in range(40):
        _, right, observed = draw(seed, 0.0, np.log(share / (1 - share)))
        found += covariates_of_missing(table_of(right, observed)) is not None
    assert found <= 2
    score, right, _ = draw(0, 0.0, 0.0)
    assert covariates_of_missing(table_of(right, None)) is None
    assert covariates_of_missing(table_of(right, np.ones(right.shape, bool))) is None


def test_weak_dependence_is_found_with_few_subjects():
    _, right, observed = draw(1, 0.5, -1.0)
    assert covariates_of_missing(table_of(right[:10], observed[:10])) is not None


def test_benchmarks_that_weak_models_did_not_run_are_no_dependence_of_items():
    _, right, _ = draw(2, 0.0, 0.0)
    # The hard half is a benchmark that half of the subjects ran.
    order = np.argsort(-right.mean(axis=0))
    observed = np.ones(right.shape, bool)
    observed[: SUBJECTS // 2, ITEMS // 2 :] = False
    names = ["easy"] * (ITEMS // 2) + ["hard"] * (ITEMS // 2)
    table = table_of(right[:, order], observed, benchmark=names)
    assert covariates_of_missing(table) is None


def test_counts_and_items_without_responses():
    _, right, observed = draw(3, 2.5, 0.0)
    observed[:, 0] = False
    trials = np.where(observed, 4, 0)
    found = covariates_of_missing(table_of(4 * right * observed, None, trials=trials))
    assert found is not None and np.isfinite(np.stack(list(found.values()))).all()
    # A single share of all items is no covariate; of two, no square.
    two = np.ones(right.shape, bool)
    two[:20, right.mean(axis=0) < 0.5] = False
    found = covariates_of_missing(table_of(right, two))
    assert found is not None and list(found) == [NAMES[0]]


@pytest.mark.slow
def test_given_covariates_are_kept():
    _, right, observed = draw(4, 2.5, 0.0, items=30)
    given = {"size": np.random.default_rng(0).normal(size=30)}
    table = table_of(right, observed)
    assert covariates_of_missing(table) is not None
    # Where the fit ends does not matter.
    fit = irtjax.fit(table, "hierarchical", item_covariates=given, max_steps=3)
    assert fit.options["item_covariates"] == ["size"]
    assert NOTE not in fit.notes


@pytest.mark.slow
def test_em_warns_where_scores_of_the_weak_are_too_high():
    _, right, observed = draw(5, 2.5, 0.0)
    warned = lambda mask: any(
        "who skipped hard items" in text and text.endswith("use method='laplace'")
        for text in irtjax.fit(table_of(right, mask), "2pl", "em").warnings
    )
    assert warned(observed)
    random = np.random.default_rng(1).random(observed.shape) > 0.4
    assert not warned(random)
