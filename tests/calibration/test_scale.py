"""Abilities whose scale so few subjects do not determine."""

import dataclasses
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import irtjax
from irtjax.calibration.identification import Variation
from irtjax.calibration.scale import (
    BECAUSE,
    UNTESTED,
    least_error,
    leaves_pairs_untested,
    with_errors_of_scale,
)
from irtjax.data.responses import Responses
from irtjax.estimators.estimates import Estimates
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import factor_model
from irtjax.report.leaderboard_page import leaderboard
from irtjax.report.summary import summarise, verdict

#: Responses that determine slopes.
CLEAR = Variation(True, 0.0, 5.0)


def table_of(count: int) -> irtjax.ResponseTable:
    """Subjects of equal ability: each item is right with one chance for all."""
    rng = np.random.default_rng(1)
    chance = 1 / (1 + np.exp(-rng.normal(0.5, 1, 60)))
    return irtjax.ResponseTable.from_arrays(rng.random((count, 60)) < chance)


def no_pair_differs(fit) -> None:
    ranked = irtjax.rank(fit)
    assert ranked.num_pairs == ranked.num_different == 0 and len(ranked.groups) == 1
    table, count = fit.ability_table, len(fit.subjects)
    assert set(table["rank_lower"].to_pylist()) == {1}
    assert set(table["rank_upper"].to_pylist()) == {count}
    # Nobody is more likely the best, at the level of the fit and at another.
    assert np.ptp(table["probability_best"].to_numpy()) == 0
    other = irtjax.rank(fit, level=0.5).table
    assert np.ptp(other["probability_best"].to_numpy()) == 0
    assert set(other["rank_upper_50"].to_pylist()) == {count}
    compared = irtjax.compare(fit, *fit.subjects[:2])
    assert compared.p_value > 0.4
    assert compared.lower < 0 < compared.upper
    assert sum(BECAUSE in line for line in fit.warnings) == 1
    said = " ".join(summarise(fit, ranked))
    assert "No pair of subjects is tested" in said
    assert "with probability" not in said and "significantly different" not in said
    assert "with probability" not in " ".join(verdict(fit, ranked))


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


@pytest.mark.parametrize(
    ("count", "model", "fixed"),
    [(12, "2pl", False), (7, "rasch", False), (7, "1pl", False), (7, "2pl", True)],
)
def test_a_scale_that_is_determined_changes_nothing(count, model, fixed):
    given = estimates_of(count, model, fixed)
    assert with_errors_of_scale(given, count, CLEAR) is given


def test_joint_methods_need_eight_subjects():
    for count, tested in ((7, False), (8, True), (11, True)):
        given = dataclasses.replace(estimates_of(count, "2pl"), joint=True)
        assert (with_errors_of_scale(given, count, CLEAR) is given) == tested
    given = estimates_of(11, "2pl")
    assert leaves_pairs_untested(with_errors_of_scale(given, 11, CLEAR))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Variation(True, 0.06, 5.0), "whose abilities are not significantly different"),
        (Variation(True, 0.04, 0.7), "who differ so little"),
    ],
)
def test_slopes_need_subjects_who_differ(found, words):
    for joint in (False, True):
        given = dataclasses.replace(estimates_of(500, "2pl"), joint=joint)
        (line,) = with_errors_of_scale(given, 500, found).warnings
        assert line.startswith(f"500 subjects {words} {BECAUSE}") and UNTESTED in line
        assert "use the default model and method" in line
    # Integrated items and slopes of 1 need no such thing.
    groups = SimpleNamespace(ability=np.zeros((500, 1)))
    integrated = dataclasses.replace(estimates_of(500, "2pl"), groups=groups)
    for other in (estimates_of(500, "1pl"), integrated):
        assert with_errors_of_scale(other, 500, found) is other


def test_draws_of_the_posterior_include_the_scale():
    sampled = dataclasses.replace(estimates_of(3, "2pl"), sampled=True)
    assert with_errors_of_scale(sampled, 3, CLEAR) is sampled


@pytest.mark.parametrize("count", [2, 7])
def test_errors_are_no_less_than_the_range(count):
    found = with_errors_of_scale(estimates_of(count, "2pl"), count, CLEAR)
    assert found.error.tolist() == [count - 1.0] * count
    assert found.shared is None and BECAUSE in found.warnings[0]
    z = (count - 1) / np.hypot(*found.error[:2])
    assert z <= 1 / np.sqrt(2) + 1e-12
    # A fit, saved or not, has the same least error; most fits have none.
    table = pa.table({"ability": found.ability})
    fit = SimpleNamespace(warnings=found.warnings, ability_table=table)
    assert least_error(fit) == count - 1
    fit.warnings = ("another",)
    assert least_error(fit) == 0


def test_the_scale_comes_first_and_nothing_is_said_of_tests_that_are_not_made():
    fit = irtjax.fit(table_of(3), "2pl", "em", standard_errors="none", max_steps=2)
    assert len(fit.warnings) > 1
    assert [UNTESTED in line for line in fit.warnings].index(True) == 0
    assert not any("tests of pairs" in line for line in fit.notes)
    page = leaderboard(fit, irtjax.rank(fit))
    assert "all subjects share one group" in page and "statistically tied" not in page


@pytest.mark.slow
def test_estimated_slopes_of_three_subjects_test_no_pair(tmp_path):
    """By EM three of three equal subjects differed, with p below .001."""
    table = table_of(3)
    found = irtjax.fit(table, "2pl", "em", standard_errors="none", max_steps=60)
    no_pair_differs(found)
    # Scores of the same responses have the errors of the fit, saved or not.
    saved = irtjax.save(found, tmp_path / "fit")
    for kept in (found, irtjax.load(saved)):
        scored = irtjax.score(kept, table)
        least = found.ability_table["ability_se"].to_numpy().min()
        assert np.all(scored.table["ability_se"].to_numpy() >= least - 1e-9)
        assert any(BECAUSE in line for line in scored.notes)
    # Accuracies are tested all the same.
    both = irtjax.compare(found, *found.subjects[:2], data=table)
    assert both.accuracy_se < 0.2 and 0 < both.accuracy_p_value <= 1
    score_error = found.ability_table["expected_score_se"].to_numpy()
    assert np.all(score_error < 0.2)
    # Slopes of 1 and fixed slopes have the items' scale.
    unit = irtjax.fit(table, "rasch", "em", standard_errors="none", max_steps=60)
    assert not any(BECAUSE in line for line in unit.warnings)
    assert np.all(unit.ability_table["ability_se"].to_numpy() < 0.6)
    assert not any(BECAUSE in line for line in irtjax.score(unit, table).notes)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_integrated_items_of_two_and_three_subjects_test_no_pair(count):
    """By `laplace` 63 % of two equal subjects differed."""
    no_pair_differs(irtjax.fit(table_of(count), "2pl"))


@pytest.mark.slow
def test_four_subjects_whose_items_are_integrated_out_are_tested():
    found = irtjax.fit(table_of(4), "2pl")
    assert sum(BECAUSE in line for line in found.warnings) == 1
    assert np.ptp(found.ability_table["ability"].to_numpy()) < 3
    assert np.all(found.ability_table["ability_se"].to_numpy() < 1.2)
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
    no_pair_differs(irtjax.fit(table_of(count), "2pl", method, **options))


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
    """Expected scores, by which subjects are ranked, get the errors too."""
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
        factors=SimpleNamespace(),
        joint=True,
    )
    found = with_errors_of_scale(given, count, CLEAR)
    assert (found is given) == tested
    if not tested:
        assert found.expected is not None
        assert found.expected[1].min() == 1 and UNTESTED in found.warnings[0]
    fixed = dataclasses.replace(problem, free=jnp.zeros_like(free))
    given = dataclasses.replace(given, problem=fixed)
    assert with_errors_of_scale(given, count, CLEAR) is given
