"""Constraints of joint estimation: early proposals that change many zeros."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from irtjax.data.responses import Responses
from irtjax.estimators.driver import run_jit
from irtjax.estimators.joint import constraints, mm
from irtjax.estimators.joint.bound import BilinearParameters
from irtjax.estimators.joint.constraints import EARLY_STEPS, FEW_ITEMS, feasible
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor

ITEMS = 20


def problem_of(positive: bool, seed: int = 0) -> Problem:
    """Two factors, half of the items on each, 60 subjects."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(60, 2))
    slope = np.kron(np.eye(2), np.full((ITEMS // 2, 1), 1.5))
    chance = 1 / (1 + np.exp(-theta @ slope.T))
    values = (rng.random(chance.shape) < chance).astype(np.int8)
    model = mm.MM().adapted(factor_model(Factor(2, positive=positive)))
    return Problem.create(model, Responses(jnp.asarray(values)))


@pytest.mark.parametrize(
    ("positive", "changed", "early", "refused"),
    [
        (True, 2, True, False),  # A tenth of the items, not more.
        (True, 3, True, True),
        (True, 3, False, False),
        (False, 3, True, False),  # Slopes of any sign have no bound to cycle at.
    ],
)
def test_early_proposals_that_change_many_zeros_are_refused(
    positive, changed, early, refused
):
    problem = problem_of(positive)
    image = BilinearParameters(
        jnp.ones((ITEMS, 2)), jnp.zeros(ITEMS), jnp.zeros((60, 2)), None
    )
    # Below 0: raised to it where slopes are positive.
    slope = image.discrimination.at[:changed, 0].set(-0.5).at[changed:, 1].set(3.0)
    proposal = image._replace(discrimination=slope, theta=image.theta + 1)
    found = feasible(
        problem, proposal, image, image, lasso=False, early=jnp.asarray(early)
    )
    raised = jnp.maximum(slope, 0) if positive else slope
    expected = image if refused else proposal._replace(discrimination=raised)
    for part, other in zip(found[:3], expected[:3], strict=True):
        np.testing.assert_array_equal(part, other)


def largest_changes(problem, start):
    """The largest share of items whose zeros a kept early proposal changes."""
    # A program of its own, in which the rule is as it is now.
    method = mm.MM()
    step = jax.jit(lambda state: method.step(problem, state, None))
    state, found = method.init(problem, start, None), []
    for _ in range(EARLY_STEPS):
        state = step(state)
        zero = state.point.discrimination == 0
        changed = zero != (state.image.discrimination == 0)
        found.append(float(jnp.mean(jnp.any(changed, axis=1))))
    return max(found)


@pytest.mark.slow
def test_the_first_proposals_of_a_fit_keep_most_zeros(monkeypatch):
    problem = problem_of(True, seed=1)
    start = start_values(problem.model, problem.data, dtype=jnp.float64)
    slope = np.abs(np.random.default_rng(1).normal(size=(ITEMS, 2)))
    items = start.items._replace(discrimination=jnp.asarray(slope))
    start = start._replace(items=items)
    rounding = 1e-6
    assert largest_changes(problem, start) <= FEW_ITEMS + rounding
    # The optimum is that of the plain iteration.
    fits = [run_jit(problem, mm.MM(memory=m), start, max_steps=5000) for m in (0, 10)]
    plain, found = (float(fit.objective) for fit in fits)
    assert all(int(fit.status) == 0 for fit in fits)
    assert found == pytest.approx(plain, abs=1e-4)
    monkeypatch.setattr(constraints, "FEW_ITEMS", 1.0)
    assert largest_changes(problem, start) > FEW_ITEMS + rounding
