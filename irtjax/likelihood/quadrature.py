"""Quadrature nodes that resolve the narrowest posterior.

With J items a posterior is about 1 / sqrt(test information) wide; nodes further apart
than that let an estimator exploit the gaps (it gains likelihood that is not there).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax.data.responses import AbstractResponses
from irtjax.likelihood.padding import padded_size
from irtjax.models.family import Items
from irtjax.models.model import Model, Population, check_one_ability
from irtjax.numerics.kernels import equal_nodes
from irtjax.numerics.programs import stored_jit

#: Half width of the node range, in standard deviations of ability.
REACH = 6.0
#: Nodes beyond which half the narrowest posterior is not insisted on.
AFFORDABLE = 401
SMALLEST = 61
#: Half width kept when even the whole of the narrowest posterior takes more than that.
SHORT_REACH = 5.0
#: Spacing, in smallest posterior standard deviations, from which nodes are too wide:
#: the trapezoid rule errs by 7e-6 there.
TOO_WIDE = 1.25
#: Allowance for information that start values understate.
MARGIN = 1.1
#: Responses up to which nodes come in one size per power of two, and at least for
#: discriminations of 1, so that other data of this shape share a program; then up to
#: which in two sizes. Beyond there are four.
COARSE, MIDDLING = 2**22, 2**26


class Resolution(NamedTuple):
    """How nodes, a `spacing` of ability apart, compare with the posteriors.

    The smallest posterior sd is 1 / sqrt(1 / sd^2 + largest test information).
    """

    num_nodes: int
    spacing: float
    smallest_posterior_sd: float

    @property
    def ratio(self) -> float:
        """Spacing in smallest posterior standard deviations; see `TOO_WIDE`."""
        return self.spacing / self.smallest_posterior_sd

    def warning(self) -> str | None:
        """A plain-language warning if the nodes are too wide, else None."""
        if self.ratio <= TOO_WIDE:
            return None
        needed = math.ceil(self.num_nodes * self.ratio * 2)
        return (
            f"quadrature nodes are too wide: {self.num_nodes} nodes lie"
            f" {self.spacing:.3g} apart, the narrowest posterior has standard deviation"
            f" {self.smallest_posterior_sd:.3g}; log-likelihood and slopes may be"
            f" inflated, use about {needed} nodes"
        )


def test_information(
    model: Model, items: Items, theta: Array, item_weight: Array | None = None
) -> Float[Array, " nodes"]:
    """Sum of the items' Fisher information at each ability, of models with one."""
    check_one_ability(model, "information")
    over_items = jax.vmap(model.family.information, in_axes=(0, None))

    def at_node(node):
        log_probability = over_items(items, node)
        return jnp.sum(
            log_probability if item_weight is None else log_probability * item_weight
        )

    return jax.lax.map(at_node, theta)


# Not a test, whatever its name suggests to a test runner.
test_information.__test__ = False  # pyright: ignore[reportFunctionMemberAccess]


@stored_jit
def largest_information(
    model: Model, items: Items, population: Population, item_weight: Array | None
) -> Array:
    """The largest test information within four standard deviations of ability."""
    theta = population.mean + population.sd * jnp.linspace(-4, 4, 65)
    theta = theta.astype(jnp.asarray(items[0]).dtype)
    return jnp.max(test_information(model, items, theta, item_weight))


def resolution(
    model: Model,
    items: Items,
    population: Population,
    nodes: Array | np.ndarray,
    data: AbstractResponses,
) -> Resolution:
    """Compares standardised nodes with the narrowest posterior of any subject."""
    sd = float(population.sd)
    plain = Population(population.mean, population.sd)
    weight = data.item_weight
    largest = float(largest_information(model, items, plain, weight))
    if not data.is_complete:
        each = np.ones(data.num_items) if weight is None else np.asarray(weight)
        largest *= float(np.max(data.answered(each)) / np.sum(each))
    if not math.isfinite(largest):
        largest = 0.0
    grid = np.asarray(nodes)
    spacing = sd * float(np.max(np.diff(grid)))
    return Resolution(grid.size, spacing, 1 / math.sqrt(1 / sd**2 + largest))


def choose_nodes(
    model: Model,
    items: Items,
    population: Population,
    data: AbstractResponses,
) -> np.ndarray:
    """Equally spaced standardised nodes fit for these items and data.

    The spacing is half the smallest posterior standard deviation while that takes no
    more than 401 nodes, and about the whole of it otherwise: at one standard deviation
    the rule is still exact to 5e-9 (see `numerics.normal_log_weights`). The range is
    +-6 standard deviations of ability, +-5 where that takes more than 401 nodes.
    Of many streamed responses the spacing is the whole one: passes are what takes time.
    """
    probe = resolution(model, items, population, np.array([-1.0, 1.0]), data)
    smallest = probe.smallest_posterior_sd / float(population.sd)
    if data.is_streamed and data.num_cells > MIDDLING:
        return nodes_for(2 * smallest)
    if not data.has_blocks or data.num_cells > MIDDLING:
        return nodes_for(smallest)
    if data.num_cells > COARSE:
        return nodes_for(smallest, 1)
    # The mean number of responses (or trials) of a subject.
    usual = 1 / math.sqrt(1 + float(np.mean(data.answered())) / 4)
    return nodes_for(min(smallest, usual), 0)


def nodes_for(smallest: float, halvings: int = 2) -> np.ndarray:
    """`choose_nodes` for the standard deviation of the narrowest posterior.

    The number of nodes is one of a few (`padded_size`), so that similar data share a
    compiled program.
    """
    relative = smallest / MARGIN
    whole = 2 * REACH / relative
    reach = REACH if whole < AFFORDABLE else SHORT_REACH
    whole = 2 * reach / relative
    wanted = min(2 * whole, max(whole, AFFORDABLE - 1))
    intervals = max(SMALLEST - 1, math.ceil(wanted))
    if intervals >= SMALLEST:
        intervals = padded_size(intervals, halvings)
    return equal_nodes(-reach, reach, intervals + 1)
