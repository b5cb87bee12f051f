"""An iteration of a user's own, wrapped by `Ascent` and run by `irtjax.run`."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import irtjax
from irtjax._types import Status
from irtjax.estimators.ascent import AbstractIteration, Ascent, Image
from irtjax.estimators.driver import loop_of
from irtjax.likelihood.problem import Parameters
from irtjax.models.catalogue import rasch
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.model import Population


class RaschPoint(NamedTuple):
    easiness: jax.Array
    ability: jax.Array


class Bound(AbstractIteration):
    """Joint Rasch model, abilities N(0, 1), by a bound of the curvature."""

    def first(self, problem, start):
        return RaschPoint(start.items.intercept, start.theta)

    def image(self, problem, point):
        values, weight = problem.data.values, problem.data.subject_weight
        weight = jnp.ones(len(values)) if weight is None else weight
        eta = point.ability[:, None] + point.easiness
        log_lik = jnp.sum(values * eta - jax.nn.softplus(eta), axis=1)
        rest = values - jax.nn.sigmoid(eta)
        # (x + y)^2 is at most 2 x^2 + 2 y^2, and a cell's curvature at most 1/4.
        easiness = point.easiness + 2 * (weight @ rest) / jnp.sum(weight)
        pull = jnp.sum(rest, axis=1) - point.ability
        ability = point.ability + pull / (values.shape[1] / 2 + 1)
        log_prior = -0.5 * jnp.sum(weight * point.ability**2)
        return Image(RaschPoint(easiness, ability), log_lik, log_prior)

    def result(self, problem, point):
        one = jnp.ones_like(point.easiness)
        items = LogisticItems(one, point.easiness, 0 * one, one)
        return Parameters(items, Population(jnp.zeros(()), one[0]), point.ability)


VALUES = np.random.default_rng(3).random((60, 8)) < np.linspace(0.2, 0.8, 8)
DATA = irtjax.Responses(jnp.asarray(VALUES, jnp.int8))
PROBLEM = irtjax.Problem.create(rasch(), DATA)
START = irtjax.start_values(rasch(), DATA)
run_jit = eqx.filter_jit(irtjax.run)


def fitted(problem=PROBLEM, **settings):
    depth = settings.pop("depth", 5)
    return run_jit(problem, Ascent(Bound(), 1e-9, depth), START, **settings)


def test_it_ends_at_a_stationary_point_that_no_step_was_above():
    fit = fitted()
    assert int(fit.status) == Status.CONVERGED
    trace = np.asarray(fit.trace)[: int(fit.num_steps)]
    assert np.diff(trace).min() >= -1e-11

    def objective(point):
        image = Bound().image(PROBLEM, point)
        return jnp.sum(image.log_lik) + image.log_prior

    best = fit.state.best
    assert float(objective(best)) == pytest.approx(float(fit.objective), abs=1e-9)
    for part in jax.grad(objective)(best):
        np.testing.assert_allclose(part, 0, atol=1e-6)
    # Plain steps end there, later.
    plain = fitted(depth=0)
    assert int(plain.num_steps) > 2 * int(fit.num_steps)
    assert float(plain.objective) == pytest.approx(float(fit.objective), abs=1e-9)


def test_it_resumes_and_maps_over_weights():
    whole, part = fitted(), fitted(stop_after=4)
    rest = fitted(resume=loop_of(part))
    np.testing.assert_array_equal(rest.parameters.theta, whole.parameters.theta)
    weights = jnp.asarray(np.random.default_rng(0).integers(1, 4, (2, 60)), float)

    def weighted(weight):
        data = dataclasses.replace(DATA, subject_weight=weight)
        return fitted(irtjax.Problem.create(rasch(), data)).parameters.items.intercept

    several = jax.vmap(weighted)(weights)
    for one, weight in zip(several, weights, strict=True):
        np.testing.assert_allclose(one, weighted(weight), atol=1e-8)
