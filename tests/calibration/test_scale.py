"""Abilities whose scale so few subjects do not determine."""

import dataclasses
import itertools
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import irtjax
from irtjax.calibration.identification import Variation
from irtjax.calibration.result_tables import AbilityTable
from irtjax.calibration.scale import (
    BECAUSE,
    BY_MEANS,
    compares_means,
    least_error,
    with_errors_of_scale,
)
from irtjax.data.responses import Responses
from irtjax.estimators.estimates import Estimates
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import factor_model
from irtjax.ranking.accuracy import paired_difference
from irtjax.ranking.discoveries import benjamini_hochberg
from irtjax.report.leaderboard_page import leaderboard
from irtjax.report.summary import summarise

#: Responses that determine slopes.
CLEAR = Variation(True, 0.0, 5.0)


def table_of(count: int, best: float = 0.0, seed: int = 1) -> irtjax.ResponseTable:
    """Subjects of equal ability: each item is right with one chance for all.

    But for the first, whose log odds are higher by `best`.
    """
    rng = np.random.default_rng(seed)
    logit = rng.normal(0.5, 1, 60) + best * (np.arange(count) == 0)[:, None]
    chance = 1 / (1 + np.exp(-logit))
    return irtjax.ResponseTable.from_arrays(rng.random(chance.shape) < chance)


def significant(table) -> np.ndarray:
    """Whether pairs differ by the paired t test, corrected for all of them."""
    pairs = itertools.combinations(table.values, 2)
    tests = [paired_difference(np.stack(pair)) for pair in pairs]
    assert all(tests)
    return benjamini_hochberg(np.array([x.p_value for x in tests])) <= 0.05


def pairs_are_those_of_the_paired_test(fit, table) -> None:
    ranked, count = irtjax.rank(fit), len(fit.subject_names)
    assert ranked.num_pairs == count * (count - 1) // 2
    wanted = int(significant(table).sum())
    # Errors are enlarged for all pairs: some more, or fewer, are at the limit.
    assert abs(ranked.num_different - wanted) <= 0.05 * max(wanted, 1)
    # The order is that of the mean responses, at every level.
    places = [
        fit.subject_names.tolist().index(x) for x in ranked.table["subject"].to_pylist()
    ]
    assert np.all(np.diff(table.values.mean(axis=1)[places]) <= 1e-12)
    assert irtjax.rank(fit, level=0.5).num_pairs == ranked.num_pairs
    one, other = fit.subject_names[[places[0], places[-1]]]
    found = irtjax.compare(fit, one, other, data=table)
    # t with 59 degrees of freedom as a normal z, enlarged by up to 8 %.
    t = found.accuracy_difference / found.accuracy_se
    assert found.z <= t + 1e-9 <= 1.08 * found.z + 2e-9
    assert found.lower < found.difference < found.upper
    (line,) = (line for line in fit.warnings if BECAUSE in line)
    assert BY_MEANS in line and "default" not in line
    said = " ".join(summarise(fit, ranked))
    assert f"Of {ranked.num_pairs:,} pair" in said
    assert np.all(np.isfinite(fit.abilities.table["ability_se"].to_numpy()))


def estimates_of(count: int, model: str, fixed: bool = False) -> Estimates:
    """What a method that estimates items found: abilities 0, 1, ..."""
    responses = Responses(jnp.asarray(np.zeros((count, 4)), jnp.int8))
    problem = Problem.create(irtjax.MODELS[model](), responses)
    if fixed:
        problem = dataclasses.replace(problem, free=jnp.zeros_like(problem.free))
    others = {x.name: None for x in dataclasses.fields(Estimates)}
    others |= {"warnings": (), "problem": problem}
    theta, shared = np.arange(count) * 1.0, np.full((count, 1), 0.1)
    others |= {"ability": theta, "error": np.full(count, 0.2), "shared": shared}
    return Estimates(**others)


def responses_of(count: int) -> irtjax.ResponseTable:
    """The table of those estimates."""
    return irtjax.ResponseTable.from_arrays(np.eye(count, 4, dtype=int))


@pytest.mark.parametrize(
    ("count", "model", "fixed"),
    [(12, "2pl", False), (7, "rasch", False), (7, "1pl", False), (7, "2pl", True)],
)
def test_a_scale_that_is_determined_changes_nothing(count, model, fixed):
    given = estimates_of(count, model, fixed)
    assert with_errors_of_scale(given, responses_of(count), CLEAR) is given


def test_joint_methods_need_eight_subjects():
    for count, tested in ((7, False), (8, True), (11, True)):
        given = dataclasses.replace(estimates_of(count, "2pl"), joint=True)
        found = with_errors_of_scale(given, responses_of(count), CLEAR)
        assert (found is given) == tested
    given = estimates_of(11, "2pl")
    assert compares_means(with_errors_of_scale(given, responses_of(11), CLEAR))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            Variation(True, 0.06, 5.0),
            "whose abilities are not significantly different as a whole",
        ),
        (Variation(True, 0.04, 0.7), "who differ so little"),
    ],
)
def test_slopes_need_subjects_who_differ(found, words):
    for joint in (False, True):
        given = dataclasses.replace(estimates_of(60, "2pl"), joint=joint)
        (line,) = with_errors_of_scale(given, responses_of(60), found).warnings
        assert line.startswith(f"60 subjects {words} {BECAUSE}") and BY_MEANS in line
    # Integrated items and a common slope do not determine it either, slopes of 1 do.
    groups = SimpleNamespace(ability=np.zeros((60, 1)), group=np.zeros(4, int))
    integrated = dataclasses.replace(estimates_of(60, "2pl"), groups=groups)
    for other in (estimates_of(60, "1pl"), integrated):
        assert compares_means(with_errors_of_scale(other, responses_of(60), found))
    unit = estimates_of(60, "rasch")
    assert with_errors_of_scale(unit, responses_of(60), found) is unit


def test_draws_of_the_posterior_include_the_scale():
    sampled = dataclasses.replace(estimates_of(3, "2pl"), sampled=True)
    assert with_errors_of_scale(sampled, responses_of(3), CLEAR) is sampled


@pytest.mark.parametrize("count", [2, 7])
def test_mean_responses_have_the_scale_of_abilities_with_its_error(count):
    table = table_of(count)
    found = with_errors_of_scale(estimates_of(count, "2pl"), table, CLEAR)
    mean = table.values.mean(axis=1)
    score = (mean - mean.mean()) / mean.std()
    assert BECAUSE in found.warnings[0]
    np.testing.assert_allclose(found.ability, score, atol=1e-12)
    # The 95 % interval of the scale is from 0 to 2.
    gap = found.ability - found.ability.mean()
    np.testing.assert_allclose(1.959964 * found.scale, gap)
    assert np.all(found.error**2 >= found.scale**2)
    # Scores given the items have errors of the range at least; most fits have none.
    column = AbilityTable(pa.table({"ability": found.ability}))
    fit = SimpleNamespace(warnings=found.warnings, abilities=column)
    assert least_error(fit) == max(np.ptp(found.ability), 1)
    fit.warnings = ("another",)
    assert least_error(fit) == 0


def test_the_scale_comes_first_and_its_assumptions_are_not_said():
    fit = irtjax.fit(table_of(3), "2pl", "em", standard_errors="none", max_steps=2)
    assert len(fit.warnings) > 1
    assert [BY_MEANS in line for line in fit.warnings].index(True) == 0
    assert not any("tests of pairs" in line for line in fit.notes)
    assert "statistically tied" in leaderboard(fit, irtjax.rank(fit))


@pytest.mark.slow
def test_estimated_slopes_of_three_subjects_are_compared_by_means(tmp_path):
    """By EM three of three equal subjects differed, with p below .001."""
    table = table_of(3)
    found = irtjax.fit(table, "2pl", "em", standard_errors="none", max_steps=60)
    pairs_are_those_of_the_paired_test(found, table)
    # Scores of the same responses have the errors of the fit, saved or not.
    saved = irtjax.save(found, tmp_path / "fit")
    for kept in (found, irtjax.load(saved)):
        scored = irtjax.score(kept, table)
        errors = scored.table["ability_se"].to_numpy()
        assert np.all(errors >= least_error(kept) - 1e-9)
        assert any(BECAUSE in line for line in scored.notes)
    # Accuracies are tested all the same.
    both = irtjax.compare(found, *found.subject_names[:2], data=table)
    assert both.accuracy_se < 0.2 and 0 < both.accuracy_p_value <= 1
    score_error = found.abilities.table["expected_score_se"].to_numpy()
    assert np.all(score_error < 0.2)
    # Slopes of 1 and fixed slopes have the items' scale.
    unit = irtjax.fit(table, "rasch", "em", standard_errors="none", max_steps=60)
    assert not any(BECAUSE in line for line in unit.warnings)
    assert np.all(unit.abilities.table["ability_se"].to_numpy() < 0.6)
    assert not any(BECAUSE in line for line in irtjax.score(unit, table).notes)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_integrated_items_of_two_and_three_subjects_are_compared_by_means(count):
    """By `laplace` 63 % of two equal subjects differed."""
    for best in (0.0, 3.0):
        table = table_of(count, best)
        pairs_are_those_of_the_paired_test(irtjax.fit(table, "2pl"), table)


@pytest.mark.slow
def test_four_subjects_whose_items_are_integrated_out_are_tested():
    found = irtjax.fit(table_of(4), "2pl")
    assert sum(BECAUSE in line for line in found.warnings) == 1
    assert np.ptp(found.abilities.table["ability"].to_numpy()) < 3
    assert np.all(found.abilities.table["ability_se"].to_numpy() < 1.2)
    # A pair of clearly unequal subjects differs.
    values = table_of(4).values.copy()
    values[0], values[1] = 1, 0
    values[0, :6], values[1, :6] = 0, 1
    unequal = irtjax.fit(irtjax.ResponseTable.from_arrays(values), "2pl")
    assert irtjax.rank(unequal).num_different > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "count"), [("em", 10), ("em", 20), ("mm", 20), ("em", 50)]
)
def test_equal_subjects_of_estimated_slopes_do_not_differ(method, count):
    """Of equal subjects 95 to 100 % of such tables had a significant pair."""
    options = {"standard_errors": "none", "max_steps": 60}
    table = table_of(count)
    fit = irtjax.fit(table, "2pl", method, **options)
    pairs_are_those_of_the_paired_test(fit, table)
    assert irtjax.rank(fit).num_different == 0


def test_one_who_differs_from_many_equal_ones_is_found():
    # Nobody differed, and P(best) was the same for all.
    table = table_of(40, 3.0)
    options = {"standard_errors": "none", "max_steps": 60}
    fit = irtjax.fit(table, "2pl", "em", **options)
    pairs_are_those_of_the_paired_test(fit, table)
    ranked = irtjax.rank(fit)
    best = ranked.rows(stop=1)[0]
    assert ranked.num_different >= 39 and best["subject"] == "subject 1"
    assert best["rank_upper"] == 1 and best["probability_best"] > 0.99


@pytest.mark.slow
@pytest.mark.parametrize(("method", "count"), [("em", 12), ("mm", 8)])
def test_subjects_who_differ_are_tested(method, count):
    rng = np.random.default_rng(0)
    logit = np.linspace(-2, 2, count)[:, None] - rng.normal(size=60)
    right = rng.random(logit.shape) < 1 / (1 + np.exp(-logit))
    table = irtjax.ResponseTable.from_arrays(right)
    fit = irtjax.fit(table, "2pl", method, standard_errors="none", max_steps=60)
    assert not any(BECAUSE in line for line in fit.warnings)
    assert irtjax.rank(fit).num_different > 0


@pytest.mark.slow
def test_draws_of_two_equal_subjects_are_tested():
    fit = irtjax.fit(table_of(2), "2pl", "vi")
    assert not any(BECAUSE in line for line in fit.warnings)
    ranked = irtjax.rank(fit)
    assert (ranked.num_pairs, ranked.num_different) == (1, 0)


@pytest.mark.parametrize(
    ("count", "slopes", "tested"),
    [(19, 1, False), (20, 1, True), (19, 2, False), (20, 2, True), (29, 3, False)],
)
def test_several_abilities_need_subjects_for_each_slope(count, slopes, tested):
    """Below, expected scores, by which subjects are ranked, are mean responses."""
    given = estimates_of(count, "2pl")
    responses = Responses(jnp.zeros((count, 4), jnp.int8))
    problem = Problem.create(factor_model(irtjax.Factor(3)), responses)
    free = problem.free & (jnp.arange(problem.free.shape[1]) < slopes)
    problem = dataclasses.replace(problem, free=free)
    score = np.linspace(0.2, 0.8, count), np.full(count, 0.02)
    given = dataclasses.replace(
        given,
        problem=problem,
        ability=score[0],
        error=score[1],
        expected=score,
        factors=SimpleNamespace(ability=np.zeros((count, 3))),
        joint=True,
    )
    table = table_of(count)
    found = with_errors_of_scale(given, table, CLEAR)
    assert (found is given) == tested
    if not tested:
        assert found.expected is not None and BY_MEANS in found.warnings[0]
        mean = table.values.mean(axis=1)
        np.testing.assert_allclose(found.expected[0], mean - mean.mean() + 0.5)
        assert np.all(found.expected[1] < 0.1)
    fixed = dataclasses.replace(problem, free=jnp.zeros_like(free))
    given = dataclasses.replace(given, problem=fixed)
    assert with_errors_of_scale(given, responses_of(count), CLEAR) is given
