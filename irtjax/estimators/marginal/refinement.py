"""Nodes that resolve the posteriors: chosen before a fit, and refined after it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Status
from irtjax.data.responses import Responses
from irtjax.estimators.acceptance import is_logistic
from irtjax.estimators.driver import AbstractMethod, Run, Solution, drive
from irtjax.estimators.estimates import Nodes
from irtjax.estimators.marginal.correlations import with_own_correlation
from irtjax.estimators.timing import Clock
from irtjax.likelihood.cubature import (
    AFFORDABLE_NODES,
    MOST_NODES,
    grid_nodes,
    grid_size,
    widest_spacing,
)
from irtjax.likelihood.problem import Parameters, Problem, Start, estimation_scale
from irtjax.likelihood.products import by_product, outer
from irtjax.likelihood.quadrature import MARGIN, TOO_WIDE, choose_nodes, resolution
from irtjax.numerics.programs import stored_jit

#: Cells from which EM works on windows of nodes, subjects sorted.
LARGE = 2_000_000

#: Grids that a fit is tried on, each for the items found on the last one.
MOST_GRIDS = 3
#: Nodes of each ability, within three standard deviations, at which the information of
#: the items is compared.
PROBES = 7
#: How much wider the narrowest posterior of start values may be than that of estimates:
#: up to 2.2 in 11 simulated tests of 15 or 40 items.
WIDER_AT_START = 2.25
#: Spacings of grids to each halving.
STEPS_OF_SPACING = 4


class AbstractOnNodes(AbstractMethod):
    """A method that integrates abilities on nodes that its state has.

    Attributes:
        nodes: Standardised quadrature nodes; `solve_on_nodes` chooses them if None.
    """

    marginal: ClassVar[bool] = True

    nodes: Float[Array, "nodes *dims"] | None = None

    def __check_init__(self):
        """Refuses nodes that are no list."""
        if self.nodes is not None and np.ndim(self.nodes) not in (1, 2):
            raise ValueError(
                f"nodes {self.nodes!r} are no list of numbers: leave nodes out, or give"
                " some such as jnp.linspace(-6, 6, 61)"
            )

    def check_nodes(self, problem: Problem) -> None:
        """Refuses to begin without nodes, or with those of other abilities."""
        name, shape = type(self).__name__, problem.model.family.ability_shape
        if self.nodes is None:
            raise ValueError(
                f"{name} has no quadrature nodes: pass {name}(nodes=...) or use"
                " irtjax.fit, which chooses them"
            )
        if np.shape(self.nodes)[1:] != shape:
            wanted = ", ".join(["nodes", *map(str, shape)])
            raise ValueError(
                f"{name} has nodes of shape {np.shape(self.nodes)}, and abilities of a"
                f" {problem.model.name} model need [{wanted}]: pass such nodes"
                " (irtjax.likelihood.cubature.grid_nodes), or use irtjax.fit, which"
                " chooses them"
            )

    def on_nodes(self, nodes: Array, data: Responses) -> Self:
        """The method on these nodes, with the settings that suit the data."""
        return dataclasses.replace(self, nodes=nodes)

    def nodes_of(self, state: Any) -> Nodes | None:
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
        grid = method.nodes_of(fit.state)
        assert grid is not None
        nodes = np.asarray(grid.nodes)
        resolved = resolution(model, estimates.items, estimates.population, nodes, data)
        unfinished = int(fit.status) != Status.CONVERGED
        last = fixed or unfinished or attempt == 3
        if last or resolved.warning() is None:
            return Solution(fit, method, max_steps, resolved)
        population = estimates.population._replace(log_weights=None)
        first = Start(estimates.items, None, population, estimates.lengths)
    raise AssertionError("the last attempt returns")


@stored_jit
def _narrowest(problem: Problem, parameters: Parameters) -> Array:
    """Standard deviation of the narrowest posterior, in units of the grid's axes.

    In its narrowest direction, among abilities within three standard deviations; of a
    subject with all items, by their Fisher information.
    """
    model, items, data = problem.model, parameters.items, problem.data
    (dims,), dtype = model.family.ability_shape, items.intercept.dtype
    line = jnp.linspace(-3, 3, PROBES, dtype=dtype)
    standard = jnp.stack(jnp.meshgrid(*[line] * dims), -1).reshape(-1, dims)
    root = jnp.linalg.cholesky(parameters.population.covariance)
    family, records = by_product(model, items)
    slopes = items.discrimination @ root
    over_items = jax.vmap(family.information)
    by_item = jax.vmap(over_items, (None, 0))(records, standard @ slopes.T)
    exposure = jnp.ones(len(items.intercept), dtype)
    if data.trials is not None:
        exposure = jnp.max(data.trials, axis=0).astype(dtype)
    if data.item_weight is not None:
        exposure = exposure * data.item_weight.astype(dtype)
    information = (by_item * exposure) @ outer(slopes)
    largest = jnp.linalg.eigvalsh(information.reshape(-1, dims, dims))[:, -1]
    return 1 / jnp.sqrt(1 + jnp.max(largest))


def choose_grid(
    problem: Problem, parameters: Parameters, widest: float = math.inf
) -> np.ndarray:
    """Nodes that resolve the posteriors of these items.

    Their spacing is half the standard deviation of the narrowest posterior where few
    nodes do, else all of it, else 1.25 times; at most `widest`.

    Raises:
        ValueError: If that needs more than `MOST_NODES`.
    """
    (dims,) = problem.model.family.ability_shape
    smallest = float(_narrowest(problem, parameters))
    narrow = smallest / MARGIN
    needed = grid_size(TOO_WIDE * smallest, dims)
    if needed > MOST_NODES:
        raise ValueError(
            f"the narrowest posterior has standard deviation {smallest:.2g}, for which"
            f" a grid of {dims} abilities needs {needed:,} nodes, above {MOST_NODES:,}:"
            f" use {_instead(problem)}"
        )
    half = grid_size(narrow / 2, dims) <= AFFORDABLE_NODES
    wanted = min(narrow / 2 if half else narrow, widest)
    # A few spacings, so that similar data share a compiled program.
    wanted = 2 ** (math.floor(STEPS_OF_SPACING * math.log2(wanted)) / STEPS_OF_SPACING)
    return grid_nodes(max(wanted, widest_spacing(MOST_NODES, dims)), dims)


def expects_grid(problem: Problem, start: Start) -> bool:
    """Whether a grid will resolve the posteriors, by exploratory start values."""
    assert start.population is not None
    smallest = float(_narrowest(problem, Parameters(start.items, start.population)))
    spacing = TOO_WIDE * smallest / WIDER_AT_START
    (dims,) = problem.model.family.ability_shape
    return grid_size(spacing, dims) <= MOST_NODES


def _instead(problem: Problem) -> str:
    """The method for posteriors that no grid resolves."""
    return "method='gvem'" if is_logistic(problem.model.family) else "method='mm'"


def solve_on_grid(
    problem: Problem, method: AbstractOnNodes, start: Start, run: Run, max_steps: int
) -> Solution:
    """A fit on a grid that resolves the posteriors, which is refined if needed.

    Start values are those of the variational method, for models that it fits. Those of
    others may have slopes that are far too small, so their first grid is as fine as a
    few nodes allow. Nodes that `method` has are kept; a list is for each ability.
    """
    dtype = start.items.intercept.dtype
    fixed = None if method.nodes is None else _product(problem, method.nodes)
    widest = math.inf
    if is_logistic(problem.model.family):
        from irtjax.estimators.marginal.gaussian import for_start

        start = for_start(problem, start, run)
    else:
        start = with_own_correlation(problem, start)
        (dims,) = problem.model.family.ability_shape
        widest = widest_spacing(AFFORDABLE_NODES, dims)
    for attempt in range(MOST_GRIDS):
        assert start.population is not None
        parameters = Parameters(start.items, start.population)
        spacing = math.inf if attempt else widest
        nodes = choose_grid(problem, parameters, spacing) if fixed is None else fixed
        method = dataclasses.replace(method, nodes=jnp.asarray(nodes, dtype))
        fit = drive(problem, method, start, None, max_steps, run.clock)
        smallest = float(_narrowest(problem, fit.parameters))
        spacing = float(np.diff(np.unique(np.round(nodes[:, 0], 9))).min())
        fine = spacing <= TOO_WIDE * smallest
        last = fixed is not None or attempt == MOST_GRIDS - 1
        if fine or last or int(fit.status) != Status.CONVERGED:
            warnings = () if fine else (_too_wide(problem, nodes, spacing, smallest),)
            return Solution(fit, method, max_steps, warnings=warnings)
        start = Start(fit.parameters.items, None, fit.parameters.population)
    raise AssertionError("the last attempt returns")


def _product(problem: Problem, nodes: Array) -> np.ndarray:
    """The product grid of a list of nodes; a grid as it is."""
    (dims,) = problem.model.family.ability_shape
    if nodes.ndim > 1:
        return np.asarray(nodes)
    if len(nodes) ** dims > MOST_NODES:
        raise ValueError(
            f"{len(nodes)} nodes for each of {dims} abilities are"
            f" {len(nodes) ** dims:,}, above {MOST_NODES:,}: use fewer nodes, or"
            f" {_instead(problem)}"
        )
    return np.stack(np.meshgrid(*[nodes] * dims), -1).reshape(-1, dims)


def _too_wide(
    problem: Problem, nodes: np.ndarray, spacing: float, smallest: float
) -> str:
    """The refusal of nodes that are too far apart: how far, and what to do."""
    needed = math.ceil((np.ptp(nodes[:, 0]) + spacing) / smallest)
    return (
        f"quadrature nodes are too wide: they lie {spacing:.3g} apart, and the"
        f" narrowest posterior has standard deviation {smallest:.3g}; use about"
        f" {needed} nodes for each ability, or {_instead(problem)}"
    )
