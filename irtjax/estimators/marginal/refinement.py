"""Nodes that resolve the posteriors: chosen before a fit, and refined after it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from irtjax._types import KeyArray, Status
from irtjax.estimators.driver import Solution, drive
from irtjax.estimators.timing import Clock
from irtjax.likelihood.problem import Problem, Start, estimation_scale
from irtjax.likelihood.quadrature import choose_nodes, resolution

#: Cells from which EM works on windows of nodes, subjects sorted.
LARGE = 2_000_000


def solve_on_nodes(
    problem: Problem,
    method: Any,
    first: Start,
    key: KeyArray | None,
    max_steps: int,
    clock: Clock,
) -> Solution:
    """Fits on nodes that resolve the posteriors; refines them after a converged fit.

    Nodes that `method` has are kept. A method with a field `window` gets windows for
    large data. `max_steps` limits each attempt.
    """
    model, data = problem.model, problem.data
    dtype = first.items[0].dtype
    given = method.nodes is not None
    population = estimation_scale(problem, first)
    for attempt in range(4):
        if not given:
            nodes = choose_nodes(model, first.items, population, data)
            method = dataclasses.replace(method, nodes=jnp.asarray(nodes, dtype))
            if hasattr(method, "window"):
                large = data.values.size >= LARGE
                window = 20 * (len(nodes) // 50) if large else 0
                method = dataclasses.replace(method, window=window)
        fit = drive(problem, method, first, key, max_steps, clock)
        estimates = fit.parameters
        grid = np.asarray(fit.state.nodes)
        resolved = resolution(model, estimates.items, estimates.population, grid, data)
        unfinished = int(fit.status) != Status.CONVERGED
        last = given or unfinished or attempt == 3
        if last or resolved.warning() is None:
            return Solution(fit, method, max_steps, resolved)
        population = estimates.population._replace(log_weights=None)
        first = Start(estimates.items, None, population, estimates.lengths)
    raise AssertionError("the last attempt returns")
