"""The prior of abilities that joint methods penalise with, where the scale is fixed."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from irtjax.estimators.driver import run_jit
from irtjax.estimators.marginal.em import EM
from irtjax.likelihood.problem import Problem, Start, estimation_scale
from irtjax.likelihood.quadrature import choose_nodes


def with_ability_prior(problem: Problem, penalty: float, first: Start) -> Problem:
    """The problem with the population that suits a fixed scale of ability.

    Unit slopes fix the scale, and a penalty of N(0, 1) would then shrink abilities of
    any other standard deviation. A rough marginal fit estimates it.
    """
    if problem.model.family.has_slope or penalty == 0:
        return problem
    population = estimation_scale(problem, first)
    chosen = choose_nodes(problem.model, first.items, population, problem.data)
    nodes = jnp.asarray(chosen, first.items[0].dtype)
    rough = run_jit(problem, EM(nodes, 0.05), first._replace(theta=None), max_steps=100)
    found = rough.parameters
    prior = estimation_scale(problem, Start(found.items, None, found.population))
    return dataclasses.replace(problem, prior=prior._replace(log_weights=None))
