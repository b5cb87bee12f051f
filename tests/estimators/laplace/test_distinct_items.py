"""Programs compiled for distinct items: the same numbers, one for many sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax.data.responses import Responses
from irtjax.estimators import driver
from irtjax.estimators.laplace import (
    covariance_draws,
    errors,
    estimates,
    expected_scores,
)
from irtjax.estimators.laplace.components import log_prior, num_effective
from irtjax.estimators.laplace.laplace import Laplace
from irtjax.estimators.laplace.problem import MultilevelProblem
from irtjax.models.families.logistic import Binary
from irtjax.models.multilevel.model import MultilevelModel
from irtjax.models.priors import LogNormal

SUBJECTS, ITEMS, STEPS = 5, 22, 6
GIVEN = {"discrimination": LogNormal(0.0, 0.4)}


def problem_of(groups=1, width=1, **more) -> MultilevelProblem:
    """Few subjects, so that many items have equal responses; trials in some cells."""
    stems = ITEMS // width
    stem = np.repeat(np.arange(stems), width)
    group = np.arange(len(stem)) % groups
    columns = [np.ones(stems)]
    if groups > 1 and width == 1:
        columns += list(np.eye(groups)[group].T)
    model = MultilevelModel(
        Binary(slopes="positive"),
        jnp.asarray(group),
        jnp.asarray(stem),
        jnp.asarray(np.column_stack(columns)),
        jnp.asarray([-1, *[0] * (len(columns) - 1)]),
        jnp.zeros((SUBJECTS, 0)),
        num_groups=groups,
        num_stems=stems,
        num_components=int(len(columns) > 1),
        has_group_scales=groups > 1,
        has_group_effects=width > 1,
        **more,
    )
    rng = np.random.default_rng(3)
    ability = rng.normal(size=(SUBJECTS, 1))
    right = rng.random((SUBJECTS, len(stem))) < 1 / (1 + np.exp(-ability))
    seen = rng.random(right.shape) < 0.95
    data = Responses(jnp.asarray(right & seen, jnp.int8), jnp.asarray(seen))
    return MultilevelProblem.create(model, data)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="one ability", marks=pytest.mark.slow),
        pytest.param({"groups": 3}, id="benchmarks", marks=pytest.mark.slow),
        pytest.param({"groups": 2, "width": 2}, id="metrics", marks=pytest.mark.slow),
        pytest.param(
            {"groups": 3, "priors": GIVEN}, id="given slopes", marks=pytest.mark.slow
        ),
    ],
)
def test_distinct_items_have_the_same_fit_as_stems(settings):
    problem, method = problem_of(**settings), Laplace(order=3)
    distinct = problem.by_distinct()
    assert distinct.model.num_stems > problem.model.num_stems
    assert float(distinct.model.total_stems) == problem.model.num_stems
    fit_to = jax.jit(lambda p: driver.run(p, method, None, max_steps=STEPS))
    whole, same = fit_to(problem), fit_to(distinct)
    near = {"rtol": 1e-6, "atol": 1e-7}
    np.testing.assert_allclose(same.trace, whole.trace, **near)
    np.testing.assert_allclose(same.residual, whole.residual, rtol=1e-4)
    state, other = whole.state, same.state
    np.testing.assert_allclose(other.ability[:SUBJECTS], state.ability, **near)
    np.testing.assert_allclose(other.mean, state.mean, **near)
    for count in (num_effective, log_prior):
        expected = count(problem.model, state.components)
        found = count(distinct.model, state.components)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.slow
def test_a_solution_on_distinct_items_has_the_items_of_the_data():
    problem = problem_of()
    run = driver.Run(irtjax.estimators.timing.Clock(None), max_steps=2)
    fit = Laplace(order=2).solve(problem, None, run).fit
    each = fit.state.log_lik[problem.distinct.of_stem]
    np.testing.assert_array_equal(fit.subject_log_lik, each)
    np.testing.assert_allclose(fit.log_lik, jnp.sum(each))
    assert fit.subject_log_lik.shape == (ITEMS,)
    assert fit.model.num_stems == ITEMS


@pytest.mark.slow
def test_data_of_about_the_same_size_share_programs(stores_one_each):
    """Compiling them takes most of the time of a fit of few subjects."""
    watch, check = stores_one_each
    watch(
        driver.begin_jit,
        driver.run_jit,
        errors._given_covariance_jit,
        errors._of_items_jit,
        expected_scores._mean_responses,
        covariance_draws._pull_jit,
        covariance_draws._draw_jit,
        estimates._numbers_jit,
    )
    rng = np.random.default_rng(1)
    for subjects, items in ((6, 31), (5, 29)):
        right = rng.random((subjects, items)) < rng.uniform(0.3, 0.8, items)
        table = irtjax.ResponseTable.from_arrays(right.astype(float))
        irtjax.fit(table, "2pl", "laplace", max_steps=20)
        check()
