"""A method of a user's own: Newton's, for the joint posterior mode of Rasch's model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import irtjax
from irtjax.estimators.driver import Progress
from irtjax.estimators.joint.objective import log_penalty
from irtjax.likelihood.problem import Parameters
from irtjax.models.model import Population


def log_lik(problem, point):
    predictor = point[1][:, None] + point[0][:, 0]
    return problem.data.values * predictor - jax.nn.softplus(predictor)


def objective(point, problem):
    prior = log_penalty(problem, problem.model.constrain(point[0]), point[1])
    return jnp.sum(log_lik(problem, point)) + prior


class Newton(irtjax.AbstractMethod):
    def init(self, problem, start, key):
        return problem.model.unconstrain(start.items), start.theta

    def step(self, problem, state, key):
        flat, unravel = ravel_pytree(state)
        slope = jax.grad(lambda flat: objective(unravel(flat), problem))
        return unravel(flat - jnp.linalg.solve(jax.jacobian(slope)(flat), slope(flat)))

    def progress(self, problem, state):
        value, gradient = jax.value_and_grad(objective)(state, problem)
        residual = jnp.max(jnp.abs(ravel_pytree(gradient)[0]))
        return Progress(value, residual, residual < 1e-9, residual < 0)

    def result(self, problem, state):
        items, one = problem.model.constrain(state[0]), jnp.ones(())
        parameters = Parameters(items, Population(0 * one, one), state[1])
        return parameters, log_lik(problem, state).sum(1)


RIGHT = np.random.default_rng(0).random((30, 6)) < np.linspace(0.3, 0.8, 6)


def test_it_ends_where_mm_does():
    inputs = irtjax.MODELS["rasch"](), irtjax.Responses(jnp.asarray(RIGHT, int))
    problem, start = irtjax.Problem.create(*inputs), irtjax.start_values(*inputs)
    run = jax.jit(irtjax.run)
    fit = run(problem, Newton(), start)
    wanted = run(problem, irtjax.MM(), start).objective
    np.testing.assert_allclose(fit.objective, wanted, rtol=1e-9)
    scores = irtjax.ResponseTable.from_arrays(0.1 + RIGHT / 2)
    with pytest.raises(ValueError, match="by method='em', 'saem', .*, not 'newton'"):
        irtjax.fit(scores, "continuous", Newton())
