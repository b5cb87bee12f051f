"""Small benchmarks of scores: shares of right responses."""

import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.data.matching import arrange
from irtjax.fitting.defaults import choose
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.families.shares import ShareItems
from irtjax.models.model import Population
from irtjax.subsets import predictor
from irtjax.subsets.crossfit import Pool, learn
from irtjax.subsets.pool import make_pool
from irtjax.subsets.selection import expected_errors, worth
from irtjax.subsets.subset import load_subset

TRIALS = 4


def scores_of(num_subjects: int, num_items: int, seed: int = 0) -> np.ndarray:
    """Shares of `TRIALS` right responses, of a 2PL."""
    rng = np.random.default_rng(seed)
    slope, easy = rng.uniform(0.7, 1.6, num_items), rng.normal(0, 1.2, num_items)
    logit = rng.normal(size=(num_subjects, 1)) * slope + easy
    return rng.binomial(TRIALS, 1 / (1 + np.exp(-logit))) / TRIALS


def test_a_share_of_four_responses_predicts_as_the_four_do():
    """The quasi-likelihood is that of so many right or wrong responses."""
    rng = np.random.default_rng(0)
    slope, easy = rng.uniform(0.5, 2, 6), rng.normal(size=6)
    population = Population(jnp.asarray(0.2), jnp.asarray(1.3))
    score = rng.integers(0, TRIALS + 1, (5, 6)) / TRIALS
    seen = rng.random((5, 6)) < 0.8
    copies = np.repeat(np.arange(6), TRIALS)
    right = np.arange(TRIALS) < (TRIALS * score)[:, :, None]
    found = []
    for name, record, rows, responses, values in (
        ("share", ShareItems, np.arange(6), np.full(6, float(TRIALS)), score),
        ("2pl", LogisticItems, copies, np.ones(24), right.reshape(5, -1).astype(float)),
    ):
        model, zero = irtjax.MODELS[name](), np.zeros(len(rows))
        more = () if name == "share" else (zero, zero + 1)
        items = record(slope[rows], easy[rows], *more)
        target = np.full(len(rows), 1 / len(rows))
        ability, log_weight = np.linspace(-6, 6, 121), -(np.linspace(-6, 6, 121) ** 2)
        curves = predictor.curves_at(model, items, ability, log_weight, responses)
        whole = predictor.Whole.of(curves, target)
        cells = np.where(seen[:, rows], values, 0), seen[:, rows]
        parts = {"target": target, "weight": target, "whole": whole}
        predicted = predictor.predict(model, curves, *cells, **parts)
        of_items = worth(model, items, population, target, None, responses)
        errors = expected_errors(of_items, jnp.arange(len(rows)))
        found.append((*predicted, *(np.asarray(x)[len(rows) // 2 - 1] for x in errors)))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def test_scores_count_as_shares_of_their_range():
    values = 1 + 9 * scores_of(12, 20)
    table = irtjax.ResponseTable.from_arrays(values)
    pool, _ = make_pool(table, "auto", stratify=None, avoid=(), bounds=(1, 10))
    assert pool.model.name == "share" and pool.method == "laplace"
    np.testing.assert_allclose(pool.table.values, (values - 1) / 9)
    np.testing.assert_allclose(pool.full_scores(), (values.mean(axis=1) - 1) / 9)
    # Worth is near the number of trials: its error is about a tenth of it.
    assert np.all(np.abs(pool.score_worth / TRIALS - 1) < 0.4)
    # Items without variation are those of equal scores, with gaps too.
    flat = values.copy()
    flat[:, 0], flat[3, 1] = 5.5, np.nan
    gaps = irtjax.ResponseTable.from_arrays(flat)
    pool, _ = make_pool(gaps, "auto", stratify=None, avoid=(), bounds=(1, 10))
    assert pool.tiers(np.zeros(12, bool)).tolist() == [2] + [0] * 19


@pytest.mark.parametrize(
    ("values", "model", "bounds", "words"),
    [
        ([[0.2, 3.0]] * 4, "auto", None, "give the lowest and highest"),
        ([[0.2, 0.3]] * 4, "beta", None, "or share for scores"),
        ([[0.2, 3.0]] * 4, "auto", (0, 2), "score 3 is not between 0 and 2"),
        ([[1, 3]] * 4, "graded", (0, 4), "use the model share, not graded"),
        ([[0, 4]] * 4, "2pl", (0, 4), "use the model share, not 2pl"),
    ],
)
def test_scores_without_shares_are_refused(values, model, bounds, words):
    table = irtjax.ResponseTable.from_arrays(values)
    with pytest.raises(ValueError, match=words):
        make_pool(table, model, stratify=None, avoid=(), bounds=bounds)


def test_scores_that_are_all_at_an_end_keep_their_bounds():
    values = 10 * np.round(scores_of(12, 20))
    table = irtjax.ResponseTable.from_arrays(values)
    pool, _ = make_pool(table, "auto", stratify=None, avoid=(), bounds=(0, 10))
    assert pool.model.name == "share"
    np.testing.assert_array_equal(pool.ends, [[0] * 20, [10] * 20])


def test_ratings_in_many_categories_are_scores_as_in_a_fit():
    """Those from 0 to 10 were `graded` here, and `share` in a fit."""
    steps = np.random.default_rng(0).integers(-1, 2, (10, 20))
    values = np.clip(np.round(10 * scores_of(10, 20)) + steps, 0, 10)
    table = irtjax.ResponseTable.from_arrays(values)
    assert choose(table).bounds == (0, 10)
    pool, warnings = make_pool(table, "auto", stratify=None)
    assert pool.model.name == "share"
    np.testing.assert_array_equal(pool.ends, [[0] * 20, [10] * 20])
    assert "ratings from 0 to 10 are scores" in warnings[0]
    pool, warnings = make_pool(table, "graded", stratify=None)
    assert (pool.model.name, pool.ends, warnings) == ("graded", None, ())


def few_subjects(model) -> Pool:
    """The pool of 6 subjects, whose slopes are 1."""
    table = irtjax.ResponseTable.from_arrays(scores_of(6, 20))
    model = irtjax.fit(table) if model is None else model
    pool, _ = make_pool(table, model, stratify=None)
    assert pool.method == "laplace" and pool.model.scale == "unit_slope"
    return pool


def test_few_subjects_are_fitted_by_laplace_with_slopes_of_1():
    assert not few_subjects("auto").integrated.family.has_slope


@pytest.mark.slow
@pytest.mark.parametrize("model", ["auto", None])
def test_slopes_of_few_subjects_are_1_in_the_folds_too(model):
    known = learn(few_subjects(model), np.arange(6) == 0)
    np.testing.assert_array_equal(known.worth.discrimination, 1)


def test_scores_of_new_subjects_are_taken_by_item():
    table = irtjax.ResponseTable.from_arrays([[5.0, 0.5]], items=["b", "a"])
    ends = np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 9.0]])
    names = np.array(["a", "c", "b"])
    values, observed, _ = arrange(table, names, "the subset", 1, {}, ends)
    assert values.tolist() == [[0.5, 0, 0.5]]
    assert observed.tolist() == [[True, False, True]]
    wrong = irtjax.ResponseTable.from_arrays([[0.5]], items=["b"])
    with pytest.raises(ValueError, match="0.5 is not from 1 to 9"):
        arrange(wrong, names, "the subset", 1, {}, ends)


@pytest.mark.slow
def test_full_scores_of_new_subjects_are_covered(tmp_path):
    """95 % intervals of 60 new subjects, from 15 of 60 items: 2 or 3 standard errors.

    The calibrator's intervals cover 95 % or more of held-out subjects.
    """
    values = 100 * scores_of(120, 60)
    everyone = irtjax.ResponseTable.from_arrays(values)
    known = everyone.select(subjects=np.arange(60))
    small = irtjax.shrink(known, 15, bounds=(0, 100))
    assert small.model.name == "share" and len(small.rules) > 1
    np.testing.assert_allclose(small.worth, TRIALS, rtol=0.2)
    new = everyone.select(subjects=np.arange(60, 120))
    found = small.predict(new.select(items=small.items)).table
    ends = ("_lower", "_upper", "")
    low, high, score = (found[f"expected_score{x}"].to_numpy() for x in ends)
    full = new.values.mean(axis=1) / 100
    assert np.mean((low <= full) & (full <= high)) > 0.95 - 3 * np.sqrt(
        0.05 * 0.95 / 60
    )
    # The model's error is that of the predictions.
    assert np.sqrt(np.mean((score - full) ** 2)) < 1.4 * small.score_error
    again = load_subset(small.save(tmp_path / "subset")).predict(new)
    np.testing.assert_allclose(
        again.table["expected_score"].to_numpy(), score, rtol=1e-9
    )
    # A fit of shares, whose bounds are the fit's, gives the same items.
    fit = irtjax.fit(known, "share", "em", bounds=(0, 100))
    same = irtjax.shrink(known, 15, model=fit, rule="information")
    alone = {"rule": "information", "bounds": (0, 100), "folds": 0}
    other = irtjax.shrink(known, 15, model="share", **alone)
    assert same.items.tolist() == other.items.tolist()
    with pytest.raises(ValueError, match="leave bounds out"):
        irtjax.shrink(known, 15, model=fit, bounds=(0, 100))
