"""Abilities whose scale so few subjects do not determine."""

import dataclasses
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import irtjax
from irtjax.calibration.scale import BECAUSE, least_error, with_errors_of_scale
from irtjax.data.responses import Responses
from irtjax.estimators.estimates import Estimates
from irtjax.likelihood.problem import Problem


def table_of(count: int) -> irtjax.ResponseTable:
    """Subjects of equal ability: each item is right with one chance for all."""
    rng = np.random.default_rng(1)
    chance = 1 / (1 + np.exp(-rng.normal(0.5, 1, 60)))
    return irtjax.ResponseTable.from_arrays(rng.random((count, 60)) < chance)


def no_pair_differs(fit) -> None:
    ranked = irtjax.rank(fit)
    assert ranked.num_different == 0 and len(ranked.groups) == 1
    table, count = fit.ability_table, len(fit.subjects)
    assert set(table["rank_lower"].to_pylist()) == {1}
    assert set(table["rank_upper"].to_pylist()) == {count}
    compared = irtjax.compare(fit, *fit.subjects[:2])
    assert compared.p_value > 0.4
    assert compared.lower < 0 < compared.upper
    assert sum(BECAUSE in line for line in fit.warnings) == 1
    assert not any("significantly different" in line for line in fit.warnings)


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
    [(8, "2pl", False), (7, "rasch", False), (7, "1pl", False), (7, "2pl", True)],
)
def test_a_scale_that_is_determined_changes_nothing(count, model, fixed):
    given = estimates_of(count, model, fixed)
    assert with_errors_of_scale(given, count) is given


def test_draws_of_the_posterior_include_the_scale():
    sampled = dataclasses.replace(estimates_of(3, "2pl"), draws=object())
    assert with_errors_of_scale(sampled, 3) is sampled


@pytest.mark.parametrize("count", [2, 7])
def test_errors_are_no_less_than_the_range(count):
    found = with_errors_of_scale(estimates_of(count, "2pl"), count)
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
def test_ten_subjects_by_em_are_warned_of():
    found = irtjax.fit(table_of(10), "2pl", "em", standard_errors="none", max_steps=60)
    assert any("use method='laplace'" in line for line in found.warnings)
