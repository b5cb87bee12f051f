"""Several starts: the best is kept, and differing optima are told apart."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax._types import Status
from irtjax.data.responses import Responses
from irtjax.estimators.joint.mm import MM
from irtjax.estimators.multistart import multistart, random_starts
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import three_parameter, two_parameter
from tests.tables import run_jit

# Compilation takes minutes; test_grid.py covers the method by default.


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    eta = np.outer(rng.normal(size=80), rng.uniform(0.5, 1, 30))
    values = rng.random(eta.shape) < 1 / (1 + np.exp(-eta))
    data = Responses(jnp.asarray(values.astype(np.int8)))
    return Problem.create(two_parameter(), data)


def test_random_starts_keep_the_centre_and_what_is_fixed(problem):
    free = problem.free.at[:4].set(False)
    fixed = Problem(problem.model, problem.data, free, anchored=True)
    centre = start_values(problem.model, problem.data)
    starts = random_starts(fixed, 5, key=jax.random.key(0), around=centre)
    np.testing.assert_array_equal(starts.theta[0], centre.theta)
    for many, one in zip(starts.items, centre.items, strict=True):
        np.testing.assert_array_equal(many[0], one)
        np.testing.assert_allclose(many[:, :4], jnp.broadcast_to(one[:4], (5, 4)))
    noise = np.asarray(starts.theta[1:] - centre.theta)
    # 320 normal draws: the standard deviation has a relative error of 0.04.
    assert 0.5 * 0.84 < noise.std() < 0.5 * 1.16


@pytest.mark.slow
def test_all_starts_of_a_well_posed_problem_agree(problem):
    method = MM(tolerance=1e-8)
    found = eqx.filter_jit(multistart)(problem, method, num=4, key=jax.random.key(1))
    assert np.all(found.status == Status.CONVERGED)
    assert np.all(found.agrees)
    assert float(jnp.max(found.item_difference)) < 1e-5
    assert float(jnp.max(found.ability_difference)) < 1e-5
    start = start_values(problem.model, problem.data)
    alone = run_jit(problem, method, start)
    np.testing.assert_allclose(
        found.best.parameters.theta, alone.parameters.theta, atol=1e-5
    )
    assert found.best.model.name == problem.model.name
    assert float(found.best.objective) == float(jnp.max(found.objective))


def test_a_start_at_a_saddle_point_is_told_apart(problem):
    centre = start_values(problem.model, problem.data)
    # All abilities 0 and all slopes 0: without priors no gradient leads away.
    flat = centre._replace(
        theta=0 * centre.theta,
        items=centre.items._replace(discrimination=0 * centre.items.discrimination),
    )
    starts = jax.tree.map(lambda *leaves: jnp.stack(leaves), flat, centre)
    found = eqx.filter_jit(multistart)(problem, MM(penalty=0.0), starts)
    assert int(found.best_index) == 1
    assert list(np.asarray(found.agrees)) == [False, True]
    share = np.asarray(problem.data.values, float).mean(0)
    entropy = share * np.log(share) + (1 - share) * np.log(1 - share)
    expected = problem.data.num_subjects * entropy.sum()
    # The intercepts alone reproduce each item's share.
    np.testing.assert_allclose(found.objective[0], expected, rtol=1e-6)
    np.testing.assert_allclose(found.gap[0], found.best.objective - expected, rtol=1e-3)
    assert (
        float(found.item_difference[0]) > 0.3 and float(found.item_difference[1]) == 0
    )


def test_requests_without_a_key_or_a_start_are_refused(problem):
    with pytest.raises(ValueError, match="key"):
        multistart(problem, MM())
    with pytest.raises(ValueError, match="at least 1"):
        random_starts(problem, 0, key=jax.random.key(0))


def test_starts_of_a_variance_have_its_law_and_keep_what_is_fixed(problem):
    free = problem.free.at[:4].set(False)
    fixed = Problem(two_parameter(positive=True), problem.data, free, anchored=True)
    centre = start_values(fixed.model, problem.data)
    key = jax.random.key(2)
    starts = random_starts(fixed, 50, key=key, around=centre, variance=3.0)
    log_slope = np.log(np.asarray(starts.items.discrimination[:, 4:]))
    # 1,300 draws of each: the variance has a relative error of 0.04.
    for drawn in (log_slope, np.asarray(starts.items.intercept[:, 4:])):
        assert (
            abs(drawn.var() / 3 - 1) < 0.16
            and abs(drawn.mean()) < 4 * (3 / 1300) ** 0.5
        )
    assert abs(np.asarray(starts.theta).var() - 1) < 4 * (2 / 4000) ** 0.5
    for many, one in zip(starts.items, centre.items, strict=True):
        np.testing.assert_allclose(many[:, :4], jnp.broadcast_to(one[:4], (50, 4)))
    model = three_parameter()
    with pytest.raises(ValueError, match="a 3pl model has discrimination, intercept"):
        random_starts(Problem.create(model, problem.data), 2, key=key, variance=1.0)
