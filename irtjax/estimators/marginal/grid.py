r"""EM of factor models with up to three abilities on a product grid.

Bock and Aitkin's EM (1981) with nodes L x_t, x_t those of a square grid within
`GRID_REACH` standard deviations and L L' the correlations of the factors: all subjects
share the nodes, and a pass over the data is two products with the tables of the items
(`likelihood.counts`). It is used where the posteriors are wide enough for the grid. The
responses are right or wrong, by both links, or ordered categories; items are raised by
Newton steps (`newton`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Status
from irtjax.estimators.ascent import AscentState
from irtjax.estimators.driver import Run, Solution, drive
from irtjax.estimators.marginal.factor_em import (
    AbstractFactorEM,
    FactorPoint,
    Sweep,
    check_factors,
    free_of,
    is_logistic,
    items_of,
    prior_moments,
    with_own_correlation,
)
from irtjax.estimators.marginal.gaussian import for_start
from irtjax.estimators.marginal.newton import (
    ExpectedItems,
    raise_items,
    ties,
    with_ties,
)
from irtjax.likelihood.counts import expected_counts
from irtjax.likelihood.cubature import (
    AFFORDABLE_NODES,
    MOST_NODES,
    grid_nodes,
    grid_size,
    widest_spacing,
)
from irtjax.likelihood.problem import Parameters, Problem, Start
from irtjax.likelihood.products import by_product, outer
from irtjax.likelihood.quadrature import MARGIN, TOO_WIDE
from irtjax.numerics.kernels import normal_log_weights
from irtjax.numerics.programs import stored_jit

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


class GridEM(AbstractFactorEM):
    """Marginal maximum likelihood (or MAP) of factor models on a product grid.

    Attributes:
        nodes: `[nodes, dims]` of uncorrelated abilities of variance 1.
    """

    logistic: ClassVar[bool] = False

    nodes: Float[Array, "nodes dims"] | None = None

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> AscentState:
        """State at the start values, empty categories closed."""
        check_factors(problem.model, type(self).__name__, self.logistic)
        together = ties(problem, start.items.intercept.dtype)
        return super().init(problem, with_ties(start, together), key)

    def first_posterior(self, problem: Problem, start: Start) -> Array | None:
        """Which intercepts move as one; posteriors are exact."""
        if self.nodes is None:
            raise ValueError("GridEM has no nodes: use method='em', or grid_nodes")
        return ties(problem, start.items.intercept.dtype)

    def sweep(
        self, problem: Problem, point: FactorPoint, posterior: Array | None
    ) -> Sweep:
        """Expected counts at the nodes, and items raised by a Newton step on them."""
        model, dtype = problem.model, point.stacked.dtype
        standard = jnp.asarray(self.nodes, dtype)
        theta = standard @ jnp.linalg.cholesky(point.correlation).T
        log_weights = normal_log_weights(standard)
        items = items_of(model, point)
        counts = expected_counts(model, items, theta, log_weights, problem.data)
        expected = ExpectedItems.of(model, theta, counts)
        first = expected.derivatives(point.stacked)
        raised = raise_items(
            problem,
            point.stacked,
            expected,
            first,
            prior_moments(model, point),
            free_of(problem),
            posterior,
        )
        total, dims = jnp.sum(counts.nodes), theta.shape[1]
        second = (counts.nodes @ outer(theta)).reshape(dims, dims) / total
        settled = jnp.zeros((), dtype)
        return Sweep(counts.log_marginal, first[1], second, posterior, settled, raised)

    def record(self) -> dict[str, Any]:
        """The number of nodes, and the form of abilities."""
        count = 0 if self.nodes is None else len(self.nodes)
        return {"population": "normal", "nodes": count}


@stored_jit
def _narrowest(problem: Problem, parameters: Parameters) -> Array:
    """Standard deviation of the narrowest posterior, in units of the grid's axes.

    In its narrowest direction, among abilities within three standard deviations; of a
    subject with all items, by their Fisher information.
    """
    model, items, data = problem.model, parameters.items, problem.data
    dims, dtype = model.family.dims, items.intercept.dtype
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


def nodes_for_items(
    problem: Problem, parameters: Parameters, widest: float = math.inf
) -> np.ndarray:
    """Nodes that resolve the posteriors of these items.

    Their spacing is half the standard deviation of the narrowest posterior where few
    nodes do, else all of it, else 1.25 times; at most `widest`.

    Raises:
        ValueError: If that needs more than `MOST_NODES`.
    """
    dims, smallest = problem.model.family.dims, float(_narrowest(problem, parameters))
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
    return grid_size(spacing, problem.model.family.dims) <= MOST_NODES


def _instead(problem: Problem) -> str:
    """The method for posteriors that no grid resolves."""
    return "method='gvem'" if is_logistic(problem.model.family) else "method='mm'"


def solve_on_grid(
    problem: Problem,
    start: Start,
    run: Run,
    tolerance: float | Array | None,
    memory: int,
    max_steps: int,
    line: np.ndarray | None = None,
) -> Solution:
    """A fit on a grid that resolves the posteriors, which is refined once if needed.

    Start values are those of the variational method, for models that it fits. Those of
    others may have slopes that are far too small, so their first grid is as fine as a
    few nodes allow. `line` are nodes of each ability in place of chosen ones.
    """
    dims, dtype = problem.model.family.dims, start.items.intercept.dtype
    if line is not None and len(line) ** dims > MOST_NODES:
        raise ValueError(
            f"{len(line)} nodes for each of {dims} abilities are {len(line) ** dims:,},"
            f" above {MOST_NODES:,}: use fewer nodes, or {_instead(problem)}"
        )
    widest = math.inf
    if is_logistic(problem.model.family):
        start = for_start(problem, start, run)
    else:
        start = with_own_correlation(problem, start)
        widest = widest_spacing(AFFORDABLE_NODES, dims)
    method = GridEM(tolerance, memory)
    for attempt in range(MOST_GRIDS):
        if line is None:
            assert start.population is not None
            parameters = Parameters(start.items, start.population)
            nodes = nodes_for_items(
                problem, parameters, math.inf if attempt else widest
            )
        else:
            nodes = np.stack(np.meshgrid(*[line] * dims), -1).reshape(-1, dims)
        method = dataclasses.replace(method, nodes=jnp.asarray(nodes, dtype))
        fit = drive(problem, method, start, None, max_steps, run.clock)
        smallest = float(_narrowest(problem, fit.parameters))
        spacing = float(np.diff(np.unique(np.round(nodes[:, 0], 9))).min())
        fine = spacing <= TOO_WIDE * smallest
        last = line is not None or attempt == MOST_GRIDS - 1
        if fine or last or int(fit.status) != Status.CONVERGED:
            warnings = () if fine else (_too_wide(problem, nodes, spacing, smallest),)
            return Solution(fit, method, max_steps, warnings=warnings)
        start = Start(fit.parameters.items, None, fit.parameters.population)
    raise AssertionError("the last attempt returns")


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
