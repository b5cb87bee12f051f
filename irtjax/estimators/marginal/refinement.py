"""Nodes that resolve the posteriors: chosen before a fit, and refined after it."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Status
from irtjax.data.responses import Responses
from irtjax.estimators.driver import AbstractMethod, Solution, drive
from irtjax.estimators.estimates import Nodes
from irtjax.estimators.timing import Clock
from irtjax.likelihood.problem import Problem, Start, estimation_scale
from irtjax.likelihood.quadrature import choose_nodes, resolution

#: Cells from which EM works on windows of nodes, subjects sorted.
LARGE = 2_000_000


class AbstractOnNodes(AbstractMethod):
    """A method that integrates abilities on nodes that its state has.

    Attributes:
        nodes: Standardised quadrature nodes; `solve_on_nodes` chooses them if None.
    """

    marginal: ClassVar[bool] = True

    nodes: Float[Array, " nodes"] | None = None

    def __check_init__(self):
        """Refuses nodes that are no list."""
        if self.nodes is not None and np.ndim(self.nodes) != 1:
            raise ValueError(
                f"nodes {self.nodes!r} are no list of numbers: leave nodes out, or give"
                " some such as jnp.linspace(-6, 6, 61)"
            )

    def check_nodes(self) -> None:
        """Refuses to begin without nodes."""
        if self.nodes is None:
            name = type(self).__name__
            raise ValueError(
                f"{name} has no quadrature nodes: pass {name}(nodes=...) or use"
                " irtjax.fit, which chooses them"
            )

    def on_nodes(self, nodes: Array, data: Responses) -> Self:
        """The method on these nodes, with the settings that suit the data."""
        return dataclasses.replace(self, nodes=nodes)

    def nodes_of(self, state: Any) -> Nodes:
        """Nodes, their weights, and the one nearest to each subject."""
        return Nodes(state.nodes, state.log_weights, state.centre)


def solve_on_nodes(
    problem: Problem,
    method: AbstractOnNodes,
    first: Start,
    key: KeyArray | None,
    max_steps: int,
    clock: Clock,
) -> Solution:
    """Fits on nodes that resolve the posteriors; refines them after a converged fit.

    Nodes that `method` has are kept. `max_steps` limits each attempt.
    """
    model, data = problem.model, problem.data
    dtype = first.items[0].dtype
    fixed = method.nodes is not None
    population = estimation_scale(problem, first)
    for attempt in range(4):
        if not fixed:
            nodes = choose_nodes(model, first.items, population, data)
            method = method.on_nodes(jnp.asarray(nodes, dtype), data)
        fit = drive(problem, method, first, key, max_steps, clock)
        estimates = fit.parameters
        grid = np.asarray(method.nodes_of(fit.state).nodes)
        resolved = resolution(model, estimates.items, estimates.population, grid, data)
        unfinished = int(fit.status) != Status.CONVERGED
        last = fixed or unfinished or attempt == 3
        if last or resolved.warning() is None:
            return Solution(fit, method, max_steps, resolved)
        population = estimates.population._replace(log_weights=None)
        first = Start(estimates.items, None, population, estimates.lengths)
    raise AssertionError("the last attempt returns")
