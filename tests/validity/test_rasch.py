"""Conditional likelihood: brute force, published values, properties of the model."""

import csv
import itertools
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import irtjax
from irtjax.cli.app import app
from irtjax.estimators.conditional.items import fit_items
from irtjax.inference.expected import response_table
from irtjax.models.families.logistic import LogisticItems
from irtjax.numerics.category_sums import log_gamma_of, moments_given_sums
from irtjax.numerics.symmetric_functions import (
    chances_given_sum,
    log_symmetric,
    second_derivatives,
)

GAPS = np.array([-0.6, 0.6])
SIGNS = [(1, 1), (1, -1), (-1, 1), (-1, -1)]


def draw(rng, theta, difficulty):
    chance = expit(theta[:, None] - difficulty)
    return (rng.random(chance.shape) < chance).astype(int)


def draw_categories(rng, theta, thresholds):
    psi = np.cumsum(np.pad(thresholds, ((0, 0), (1, 0))), axis=1)
    logit = theta[:, None, None] * np.arange(psi.shape[1]) - psi
    return (logit + rng.gumbel(size=logit.shape)).argmax(axis=2)


def classic(shared_data, name, categories=2):
    content = pq.read_table(shared_data / "classic" / f"{name}.parquet")
    names = [x for x in content.column_names if x not in ("person", "subject")]
    names = [x for x in names if not x.startswith("__")]
    values = [content.column(x).to_numpy().astype(int) for x in names]
    codes = np.minimum(np.stack(values, axis=1), categories - 1)
    return irtjax.ResponseTable.from_arrays(codes, items=names)


@pytest.mark.parametrize("kind", ["different", "some equal", "all equal"])
@pytest.mark.parametrize("count", [2, 5, 8])
def test_symmetric_functions_are_sums_over_all_patterns(count, kind):
    rng = np.random.default_rng(count)
    difficulty = 2 * rng.normal(size=count)
    if kind != "different":
        difficulty = np.round(difficulty) * (kind == "some equal")
    patterns = np.array(list(itertools.product([0, 1], repeat=count)))
    weight, total = np.exp(-patterns @ difficulty), patterns.sum(axis=1)
    gamma = np.array([weight[total == r].sum() for r in range(count + 1)])
    log_gamma = log_symmetric(difficulty)
    np.testing.assert_allclose(log_gamma, np.log(gamma), atol=1e-13)
    sums = np.arange(1, count)
    chances = chances_given_sum(difficulty, log_gamma, sums)
    counts, second = rng.integers(1, 20, count - 1).astype(float), 0
    for place, r in enumerate(sums):
        of_sum, own = patterns[total == r], weight[total == r] / gamma[r]
        expected = own @ of_sum
        np.testing.assert_allclose(chances[place], expected, atol=1e-13)
        covariance = (of_sum * own[:, None]).T @ of_sum - np.outer(expected, expected)
        second = second + counts[place] * covariance
    found = second_derivatives(difficulty, chances, sums, counts)
    np.testing.assert_allclose(found, second, atol=1e-10)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_sums_of_categories_are_sums_over_all_patterns(size):
    rng = np.random.default_rng(size)
    log_weight = np.pad(2 * rng.normal(size=(5, size - 1)), ((0, 0), (1, 0)))
    if size > 2:
        log_weight[0, 1] = -np.inf  # An item without this category.
    patterns = np.array(list(itertools.product(range(size), repeat=5)))
    weight = np.exp(log_weight[np.arange(5), patterns].sum(axis=1))
    total = patterns.sum(axis=1)
    sums = np.arange(1, 5 * (size - 1))
    gamma = np.array([weight[total == r].sum() for r in sums])
    np.testing.assert_allclose(log_gamma_of(log_weight, sums), np.log(gamma), atol=1e-9)
    counts = rng.integers(1, 20, len(sums)).astype(float)
    expected, covariance = 0, 0
    chosen = patterns[:, :, None] == np.arange(1, size)
    chosen = chosen.reshape(len(patterns), -1)
    for r, number, size_of_sum in zip(sums, counts, gamma, strict=True):
        own, chance = chosen[total == r], weight[total == r] / size_of_sum
        mean = chance @ own
        expected = expected + number * mean
        second = (own * chance[:, None]).T @ own - np.outer(mean, mean)
        covariance = covariance + number * second
    first, second = moments_given_sums(log_weight, sums, counts)
    np.testing.assert_allclose(first, expected, atol=1e-8)
    np.testing.assert_allclose(second, covariance, atol=1e-8)


def test_circles_of_many_items_are_the_recursion_of_two_categories():
    """A third category that no item has: another algorithm for the same numbers."""
    rng = np.random.default_rng(0)
    difficulty, sums = 1.5 * rng.normal(size=150), np.arange(1, 150)
    two = np.stack([np.zeros(150), -difficulty], axis=1)
    three = np.pad(two, ((0, 0), (0, 1)), constant_values=-np.inf)
    np.testing.assert_allclose(
        log_gamma_of(three, sums), log_gamma_of(two, sums), atol=1e-9
    )
    counts = np.ones(149)
    ours, theirs = (moments_given_sums(x, sums, counts) for x in (three, two))
    np.testing.assert_allclose(ours[0][::2], theirs[0], atol=1e-9)
    np.testing.assert_allclose(ours[1][::2, ::2], theirs[1], atol=1e-6)


def test_items_nearly_equal_have_second_derivatives_of_equal_ones():
    difficulty = np.array([0.3, 0.3 + 1e-7, -0.5, 0.3 + 3e-6])
    sums, counts = np.arange(1, 4), np.array([5.0, 7.0, 3.0])
    of = lambda b: second_derivatives(
        b, chances_given_sum(b, log_symmetric(b), sums), sums, counts
    )
    near, equal = of(difficulty), of(np.round(difficulty, 3))
    np.testing.assert_allclose(near, equal, atol=1e-4)


def test_published_values_of_lsat7(shared_data):
    table = classic(shared_data, "lsat7")
    result = irtjax.rasch(table, draws=0)
    rows = result.table.to_pylist()
    values = [row["difficulty"] for row in rows]
    np.testing.assert_allclose(
        values, [-0.5415, 0.5365, -0.1336, 0.8052, -0.6667], atol=6e-5
    )
    errors = [row["difficulty_se"] for row in rows]
    np.testing.assert_allclose(
        errors, [0.0792, 0.0680, 0.0731, 0.0675, 0.0815], atol=6e-5
    )
    assert result.log_likelihood == pytest.approx(-1182.6999, abs=6e-5)
    andersen, martin_loef = result.andersen, result.martin_loef
    assert andersen.statistic == pytest.approx(10.8350, abs=6e-5)
    assert (andersen.df, round(andersen.p_value, 4)) == (4, 0.0285)
    assert martin_loef.statistic == pytest.approx(6.18168, abs=6e-6)
    assert (martin_loef.df, round(martin_loef.p_value, 4)) == (5, 0.2889)
    # Partial credit of two categories is the Rasch model.
    pcm = irtjax.rasch(table, model="pcm", draws=0)
    assert pcm.log_likelihood == pytest.approx(result.log_likelihood, abs=1e-8)
    every = irtjax.rasch(table, groups=None, draws=0).andersen
    assert every.statistic == pytest.approx(31.3464, abs=6e-5)
    assert (every.df, round(every.p_value, 4)) == (12, 0.0017)


def test_published_values_of_verbal_aggression(shared_data):
    table = classic(shared_data, "verbagg")
    with (shared_data / "classic" / "verbagg_persons.csv").open() as file:
        gender = [row["gender"] for row in csv.DictReader(file)]
    result = irtjax.rasch(table, draws=0)
    rows = result.table.to_pylist()
    assert result.num_subjects == 307
    assert result.log_likelihood == pytest.approx(-3049.9226, abs=6e-5)
    for place, value, error in ((0, -1.3834, 0.1400), (20, 2.8709, 0.2219)):
        assert rows[place]["difficulty"] == pytest.approx(value, abs=6e-5)
        assert rows[place]["difficulty_se"] == pytest.approx(error, abs=6e-5)
    assert rows[23]["difficulty"] == pytest.approx(1.8402, abs=6e-5)
    assert sum(x["difficulty"] for x in rows) == pytest.approx(0, abs=1e-10)
    assert result.andersen.statistic == pytest.approx(49.1320, abs=6e-5)
    assert (result.andersen.df, round(result.andersen.p_value, 4)) == (23, 0.0012)
    assert result.martin_loef.statistic == pytest.approx(123.25305, abs=6e-6)
    assert result.martin_loef.df == 143
    assert result.martin_loef.p_value == pytest.approx(0.8822, abs=6e-5)
    by_gender = irtjax.rasch(table, gender, draws=0).andersen
    assert by_gender.statistic == pytest.approx(70.6933, abs=6e-5)
    assert by_gender.p_value == pytest.approx(9.5e-7, rel=1e-2)
    # The chi-square of so few subjects says .88; drawn responses refute one ability.
    assert irtjax.rasch(table, draws=59).martin_loef.p_value < 0.05


def test_published_values_of_partial_credit_and_rating_scale(shared_data):
    """psychotools' pcmodel and rsmodel; the scale's thresholds differ by item."""
    table = classic(shared_data, "verbagg", categories=3)
    result = irtjax.rasch(table, draws=0)
    assert (result.model, result.pairwise) == ("pcm", False)
    assert result.log_likelihood == pytest.approx(-5177.78208, abs=6e-6)
    scale = irtjax.rasch(table, model="rsm", draws=0)
    assert scale.log_likelihood == pytest.approx(-5203.91373, abs=6e-6)
    codes = np.asarray(table.values, int)
    sizes = [fit_items(codes, None, x).num_parameters for x in ("pcm", "rsm")]
    assert sizes == [47, 24]
    # A category of an item has no responses in one of the groups, and counts.
    assert (result.andersen.df, scale.andersen.df) == (47, 24)
    assert "the partial credit model" in result.verdict


def test_errors_of_partial_credit_are_those_of_the_hessian_written_out():
    """Differences of the log-likelihood, over all patterns with each sum."""
    rng = np.random.default_rng(2)
    codes = draw_categories(rng, rng.normal(size=250), rng.normal(size=(4, 2)))
    fit = fit_items(codes, None, "pcm")
    patterns = np.array(list(itertools.product(range(3), repeat=4)))

    def value(thresholds):
        psi = np.cumsum(np.pad(thresholds.reshape(4, 2), ((0, 0), (1, 0))), axis=1)
        weight = np.exp(-psi[np.arange(4), patterns].sum(axis=1))
        gamma = np.bincount(patterns.sum(axis=1), weight)
        return -psi[np.arange(4), codes].sum() - np.log(gamma[codes.sum(axis=1)]).sum()

    best = fit.thresholds.ravel()
    assert fit.log_likelihood == pytest.approx(value(best), abs=1e-8)
    step, one = 1e-3, np.eye(8) * 1e-3
    hessian = np.empty((8, 8))
    for j, k in itertools.product(range(8), repeat=2):
        corners = [value(best + a * one[j] + b * one[k]) * a * b for a, b in SIGNS]
        hessian[j, k] = sum(corners) / (4 * step**2)
    # All thresholds may move together; difficulties are their means, summing to 0.
    covariance = np.linalg.pinv(-hessian, rcond=1e-6)
    mean = np.kron(np.eye(4), [0.5, 0.5]) - 1 / 8
    expected = mean @ covariance @ mean.T
    np.testing.assert_allclose(fit.covariance, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("model", ["pcm", "rsm"])
def test_thresholds_are_within_their_errors_of_the_truth(model, monkeypatch):
    rng = np.random.default_rng(3)
    difficulty = np.linspace(-1, 1, 8)
    codes = draw_categories(rng, rng.exponential(size=1200), difficulty[:, None] + GAPS)
    seen = rng.random(codes.shape) < 0.75
    codes = codes * seen
    exact = fit_items(codes, seen, model)
    monkeypatch.setattr("irtjax.estimators.conditional.items.MOST_PATTERNS", 10)
    pairs = fit_items(codes, seen, model)
    assert pairs.pairwise and not exact.pairwise
    for fit in (exact, pairs):
        # Mean square of 8 standard normal values: below 2.75 in 99.5 of 100.
        assert np.mean(((fit.difficulty - difficulty) / fit.error) ** 2) < 2.75
        # A threshold has about 1,200 * .75 responses: errors of about .1.
        assert np.max(np.abs(fit.thresholds - difficulty[:, None] - GAPS)) < 0.45
    assert np.all(pairs.error > 0.97 * exact.error)


def test_categories_that_few_subjects_reach_do_not_refute_the_model(shared_cases):
    """Ten judged models: chi-square 73 of 88 parameters; halves have none."""
    table = irtjax.read(shared_cases / "C94" / "judge_1to5.csv")
    result = irtjax.rasch(table.select(items=np.arange(30)))
    # Without the categories that a group lacks, 18 degrees of freedom and p < .001.
    assert result.andersen.df == 88 and result.andersen.p_value > 0.5
    assert result.martin_loef is None
    with pytest.raises(ValueError, match="these are counts: read one of each"):
        irtjax.rasch(irtjax.read(shared_cases / "C59" / "pass_counts.csv"))


def test_an_item_whose_lowest_category_is_missing_is_shifted():
    rng = np.random.default_rng(4)
    codes = draw_categories(rng, rng.normal(size=300), rng.normal(size=(5, 2)) / 2)
    fit = fit_items(codes, None, "pcm")
    low = codes[:, 0] > 0
    some = codes.copy()
    some[:, 0] = np.maximum(some[:, 0], 1)
    shifted = fit_items(some, None, "pcm")
    assert np.isfinite(shifted.difficulty).all()
    assert np.isnan(shifted.thresholds[0, 1]) and low.any()
    assert fit.num_parameters == shifted.num_parameters + 1


def test_items_in_step_with_the_sums_are_left_out():
    """Whoever solves the second also solves the first: their distance is infinite."""
    right = [[1, 0, 0, 0, 0], [1, 1, 0, 1, 0], [1, 1, 1, 0, 0], [1, 1, 0, 0, 1]]
    fit = fit_items(np.array([*right, [0, 0, 0, 0, 0], [1, 1, 1, 1, 0]] * 5))
    assert fit.used.tolist() == [False, False, True, True, True]
    assert np.isfinite(fit.difficulty[fit.used]).all() and (fit.error[2:] < 2).all()


def test_subjects_of_two_items_are_comparisons_of_items(tmp_path):
    """A win is an item solved alone: conditional likelihood is Bradley-Terry."""
    rng = np.random.default_rng(0)
    difficulty = np.linspace(-1, 1, 6)
    right = draw(rng, rng.normal(size=600), difficulty)
    pairs = [rng.choice(6, 2, replace=False) for _ in range(600)]
    seen = np.zeros(right.shape, bool)
    for row, pair in enumerate(pairs):
        seen[row, pair] = True
    right = right * seen
    fit = fit_items(right, seen)
    lines = ["model_a,model_b,winner"]
    for row, (first, second) in enumerate(pairs):
        if right[row].sum() == 1:
            winner = "model_a" if right[row, first] else "model_b"
            lines.append(f"item {first},item {second},{winner}")
    path = tmp_path / "wins.csv"
    path.write_text("\n".join(lines))
    arena = irtjax.fit_comparisons(irtjax.read_comparisons(path))
    assert fit.log_likelihood == pytest.approx(arena.log_likelihood, abs=1e-8)
    strength = dict(zip(arena.abilities.names, arena.abilities.estimates, strict=True))
    ours = {f"item {k}": -x for k, x in enumerate(fit.difficulty)}
    for name, value in ours.items():
        assert value == pytest.approx(strength[name], abs=1e-6)


def test_missing_responses_of_booklets_and_of_pairs_agree_with_the_truth(monkeypatch):
    rng = np.random.default_rng(1)
    difficulty = np.linspace(-1.5, 1.5, 12)
    right = draw(rng, rng.normal(0.5, 1.3, 1500), difficulty)
    seen = rng.random(right.shape) < 0.7
    exact = fit_items(right * seen, seen)
    monkeypatch.setattr("irtjax.estimators.conditional.items.MOST_PATTERNS", 10)
    pairs = fit_items(right * seen, seen)
    assert pairs.pairwise
    for fit in (exact, pairs):
        z = (fit.difficulty - difficulty) / fit.error
        # Mean square of 12 standard normal values: below 2.4 in 99.5 of 100.
        assert np.mean(z**2) < 2.4
        np.testing.assert_allclose(fit.covariance.sum(axis=0), 0, atol=1e-10)
    # Both estimate the same: the difference is small beside the larger error.
    assert np.max(np.abs(exact.difficulty - pairs.difficulty) / pairs.error) < 1.5
    assert np.all(pairs.error > 0.98 * exact.error)


def test_pairs_of_items_have_a_test_of_groups(monkeypatch):
    """It holds its level, and finds what Andersen's test finds."""
    monkeypatch.setattr("irtjax.estimators.conditional.items.MOST_PATTERNS", 3)
    rng = np.random.default_rng(7)
    difficulty = np.linspace(-1, 1, 5)
    p_values = []
    for _ in range(100):
        right = draw(rng, rng.normal(size=400), difficulty).astype(float)
        right[rng.random(right.shape) < 0.2] = np.nan
        result = irtjax.rasch(irtjax.ResponseTable.from_arrays(right))
        assert result.andersen is None and result.wald.df == 4
        p_values.append(result.wald.p_value)
    # 5 % within three standard errors of 100 tables.
    assert np.mean(np.array(p_values) < 0.05) < 0.05 + 3 * 0.022
    assert 0.4 < np.mean(p_values) < 0.6
    steep = draw(rng, 3 * rng.normal(size=2000), difficulty).astype(float)
    steep[:, 0] = draw(rng, np.zeros(2000), difficulty)[:, 0]
    steep[rng.random(steep.shape) < 0.1] = np.nan
    result = irtjax.rasch(irtjax.ResponseTable.from_arrays(steep))
    assert result.verdict.startswith("the Rasch model fails: Wald's p < .001")


@pytest.mark.parametrize("common", [100, 3])
def test_first_steps_by_variances_end_where_newton_does(common, monkeypatch):
    rng = np.random.default_rng(6)
    right = draw(rng, rng.normal(size=300), rng.normal(size=120))
    # Two booklets; with three common items the first steps stall, and Newton's follow.
    seen = np.ones(right.shape, bool)
    apart = (120 - common) // 2
    seen[:150, :apart] = seen[150:, -apart:] = False
    quick = fit_items(right * seen, seen)
    monkeypatch.setattr("irtjax.estimators.conditional.items.MANY_ITEMS", 1000)
    exact = fit_items(right * seen, seen)
    # Both end at steps of 1e-7 standard errors.
    gap = (quick.difficulty - exact.difficulty) / exact.error
    assert np.abs(gap).max() < 2e-7
    np.testing.assert_allclose(quick.error, exact.error, rtol=1e-6)


def test_a_missing_item_is_as_dropped():
    rng = np.random.default_rng(2)
    right = draw(rng, rng.normal(size=200), np.linspace(-1, 1, 7))
    seen = np.ones(right.shape, bool)
    seen[:, 3] = False
    masked = fit_items(right * seen, seen)
    dropped = fit_items(np.delete(right, 3, axis=1))
    others = np.delete(masked.difficulty, 3)
    np.testing.assert_allclose(others, dropped.difficulty, atol=1e-10)
    assert masked.log_likelihood == pytest.approx(dropped.log_likelihood)
    assert np.isnan(masked.difficulty[3])


def test_the_sum_is_sufficient_for_rasch_and_not_for_the_2pl():
    rng = np.random.default_rng(3)
    right = draw(rng, rng.normal(size=150), np.linspace(-1, 1, 8))
    table = irtjax.ResponseTable.from_arrays(right)
    total = right.sum(axis=1)
    spread = {}
    for model in ("rasch", "2pl"):
        fit = irtjax.fit(table, model, "em", standard_errors="none")
        ability = dict(
            zip(
                fit.abilities.table.column("subject").to_pylist(),
                fit.abilities.table.column("ability").to_pylist(),
                strict=True,
            )
        )
        values = np.array([ability[x] for x in table.subjects])
        spread[model] = max(np.ptp(values[total == r]) for r in range(1, 8))
    assert spread["rasch"] < 1e-9
    assert spread["2pl"] > 0.01


def test_odds_of_two_subjects_are_free_of_the_item_in_rasch_alone():
    """Specific objectivity, with the response functions of the families."""
    theta, item = np.array([-0.7, 0.9]), np.array([-1.5, 0.2, 2.0])
    gap = {}
    for model, slope in (("rasch", np.ones(3)), ("2pl", np.array([0.6, 1.0, 1.8]))):
        zeros, ones = np.zeros(3), np.ones(3)
        items = LogisticItems(slope, -slope * item, zeros, ones)
        family = irtjax.MODELS[model]().family
        chance = np.asarray(response_table(family, items, theta), float)
        logit = np.log(chance / (1 - chance))
        gap[model] = logit[1] - logit[0]
    # Chances are in single precision.
    np.testing.assert_allclose(gap["rasch"], 1.6, atol=1e-5)
    assert np.ptp(gap["2pl"]) > 1


def test_andersen_holds_its_level_whatever_the_abilities_are():
    """Specific objectivity: skewed abilities, 5 % of 120 tests, within 3 errors."""
    rng = np.random.default_rng(4)
    p_values = []
    for _ in range(120):
        right = draw(rng, rng.exponential(1.5, 250) - 1, np.linspace(-1, 1, 5))
        table = irtjax.ResponseTable.from_arrays(right)
        p_values.append(irtjax.rasch(table, draws=0).andersen.p_value)
    assert np.mean(np.array(p_values) < 0.05) < 0.05 + 3 * 0.02
    assert 0.35 < np.mean(p_values) < 0.65


def test_martin_loef_draws_sums_where_its_chi_square_does_not_hold():
    """5 % of tables of one ability, within 3 errors; two abilities, and many items."""
    rng = np.random.default_rng(5)
    difficulty = np.sort(rng.normal(size=12))
    p_values = []
    for _ in range(40):
        table = irtjax.ResponseTable.from_arrays(
            draw(rng, rng.normal(size=150), difficulty)
        )
        p_values.append(irtjax.rasch(table, draws=99).martin_loef.p_value)
    assert np.mean(np.array(p_values) <= 0.05) < 0.05 + 3 * 0.035
    assert 0.35 < np.mean(p_values) < 0.7
    difficulty, theta = np.linspace(-2, 2, 80), rng.normal(size=(2, 200))
    theta[1] = 0.8 * theta[0] + 0.6 * theta[1]
    halves = [
        draw(rng, x, part)
        for x, part in zip(theta, np.split(difficulty, 2), strict=True)
    ]
    two = irtjax.ResponseTable.from_arrays(np.concatenate(halves, axis=1))
    assert irtjax.rasch(two, draws=0).martin_loef.p_value > 0.99
    assert irtjax.rasch(two).martin_loef.p_value < 0.01


def test_discriminations_that_differ_are_found():
    rng = np.random.default_rng(6)
    slope = np.repeat([0.4, 1.8], 6)
    logit = (rng.normal(size=(800, 1)) - np.tile(np.linspace(-1, 1, 6), 2)) * slope
    right = (rng.random(logit.shape) < expit(logit)).astype(int)
    result = irtjax.rasch(irtjax.ResponseTable.from_arrays(right), draws=0)
    assert result.andersen.p_value < 1e-3
    assert result.rms_difference > 0.3
    assert result.verdict.startswith("the Rasch model fails: Andersen's p < .001")


@pytest.mark.parametrize(
    ("right", "by", "message"),
    [
        ([[1, 1], [0, 0]], "score", "fewer than two items have right and wrong"),
        (np.eye(4, dtype=int)[[0, 1, 2, 3, 0]], "family", "no facet 'family'"),
        (np.eye(4, dtype=int), ["a", "b"], "by has 2 labels, but there are 4"),
        (np.eye(4, dtype=int), ["a"] * 4, "'by' is the same for every subject whose"),
        (np.eye(4, dtype=int), ["a", "a", "a", "b"], "'b' of by has one subject whose"),
        (np.eye(4, dtype=int), ["a", "a", "b", ""], "by has no label of subject 's"),
    ],
)
def test_data_that_say_nothing_are_refused(right, by, message):
    table = irtjax.ResponseTable.from_arrays(np.asarray(right))
    with pytest.raises(ValueError, match=message):
        irtjax.rasch(table, by)


def test_items_that_nobody_compares_are_refused():
    right = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]] * 3)
    seen = np.array([[1, 1, 0, 0]] * 2 + [[0, 0, 1, 1]] * 2, bool)
    seen = np.tile(seen, (3, 1))
    with pytest.raises(ValueError, match="2 sets that no subject compares"):
        fit_items(right * seen, seen)


def test_the_command_prints_a_verdict_and_writes_items(tmp_path):
    rng = np.random.default_rng(7)
    right = draw(rng, rng.normal(size=200), np.linspace(-1, 1, 5))
    path, out = tmp_path / "responses.csv", tmp_path / "rasch"
    names = [f"model {k},{'ab'[k % 2]}" for k in range(200)]
    lines = [
        f"{x.split(',')[0]},{','.join(map(str, r))}"
        for x, r in zip(names, right, strict=True)
    ]
    path.write_text("\n".join(["model,q1,q2,q3,q4,q5", *lines]))
    side = tmp_path / "models.csv"
    side.write_text("\n".join(["subject,family", *names]))
    call = ["rasch", str(path), "--by", "family", "--subject-table", str(side)]
    result = CliRunner().invoke(app, [*call, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "Andersen" in result.output and "b less a" in result.output
    assert (out / "rasch.png").stat().st_size > 0
    with (out / "rasch.csv").open() as file:
        assert [row["item"] for row in csv.DictReader(file)] == [
            f"q{k}" for k in range(1, 6)
        ]
    document = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout)
    some = (right.sum(axis=1) % 5 > 0).sum()
    assert sum(document["groups"].values()) == document["num_subjects"] == some
    assert document["andersen"]["df"] == 4
