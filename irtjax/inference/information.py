"""Information of items about ability: information, standard errors, reliability.

The information of an item is the expected squared slope of its log-likelihood, and
that of a test is the sum over its items (AIMS, chapter on measurement; PSN-IRT eq. 4
for the four-parameter closed form, which the general form here reproduces).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax.inference.block import table_of
from irtjax.likelihood.products import by_product
from irtjax.likelihood.quadrature import REACH, test_information
from irtjax.models.families.graded import GradedItems
from irtjax.models.family import Items
from irtjax.models.model import Model, Population, check_one_ability
from irtjax.numerics.programs import stored_jit

#: Discriminations smaller than this have no meaningful difficulty.
SMALLEST_SLOPE = 1e-3


@stored_jit
def item_information(
    model: Model, items: Items, theta: Float[Array, " nodes"]
) -> Float[Array, "nodes items"]:
    """Fisher information of each item about ability, at each ability.

    I_j(theta) = sum_y p(y) (d log p(y) / d theta)^2, which for a four-parameter item
    is a^2 (P - c)^2 (u - P)^2 / ((u - c)^2 P (1 - P)).

    Args:
        model: The model.
        items: Item records, `[items]`.
        theta: Abilities.

    Returns:
        `[nodes, items]` information, in units of 1 / ability^2.

    Raises:
        ValueError: If the model has several abilities.

    >>> import irtjax
    >>> model = irtjax.MODELS["2pl"]()
    >>> one = model.constrain(jnp.array([[2.0, 0.0]]))  # discrimination, intercept
    >>> float(item_information(model, one, jnp.array([0.0]))[0, 0])
    1.0
    """
    check_one_ability(model, "information")
    return table_of(model.family.information, items, theta)


def information_matrices(
    model: Model, items: Items, theta: Float[Array, "nodes dims"]
) -> Float[Array, "nodes items dims dims"]:
    """Fisher information of each item about several abilities, at each point.

    A response depends on the abilities through a_j'theta alone: the information is that
    about this number, times a_j a_j'.

    >>> from irtjax.models.catalogue import factor_model
    >>> from irtjax.models.factors import Factor
    >>> model = factor_model(Factor(factors=2))
    >>> item = model.constrain(jnp.array([[2.0, 1.0, 0.0]]))
    >>> information_matrices(model, item, jnp.zeros((1, 2)))[0, 0].tolist()
    [[1.0, 0.5], [0.5, 0.25]]
    """
    slope = items.discrimination
    family, records = by_product(model, items)
    over_items = jax.vmap(family.information)
    by_item = jax.vmap(over_items, (None, 0))(records, theta @ slope.T)
    return by_item[:, :, None, None] * slope[:, :, None] * slope[:, None, :]


@stored_jit
def mean_information(
    model: Model, items: Items, nodes: Array, weight: Array
) -> Float[Array, " items"]:
    """Each item's information averaged over nodes with weights that sum to 1."""

    def add(total: Array, part: tuple[Array, Array]):
        over_items = jax.vmap(model.family.information, in_axes=(0, None))
        return total + part[1] * over_items(items, part[0]), None

    start = jnp.zeros(len(items[0]), nodes.dtype)
    return jax.lax.scan(add, start, (nodes, weight))[0]


@stored_jit
def group_information(
    model: Model, items: Items, nodes: Array, codes: Array, num_groups: int
) -> Float[Array, "nodes groups"]:
    """Sums of the items' information by group, at each node."""

    def at_node(node: Array) -> Array:
        information = jax.vmap(model.family.information, in_axes=(0, None))(items, node)
        return jax.ops.segment_sum(information, codes, num_groups)

    return jax.lax.map(at_node, nodes)


def standard_error_curve(
    model: Model,
    items: Items,
    theta: Float[Array, " nodes"],
    population: Population | None = None,
    item_weight: Float[Array, " items"] | None = None,
) -> Float[Array, " nodes"]:
    """Standard error of an ability estimated from all items, at each ability.

    1 / sqrt(I(theta)) for the maximum likelihood score; with a population of standard
    deviation s, 1 / sqrt(I(theta) + 1 / s^2) for the posterior. NaN where there is no
    information at all. `item_weight` None is 1 each.

    >>> import irtjax
    >>> model = irtjax.MODELS["rasch"]()
    >>> four = model.constrain(jnp.zeros((4, 1)))
    >>> float(standard_error_curve(model, four, jnp.array([0.0]))[0])
    1.0
    """
    precision = test_information(model, items, theta, item_weight)
    if population is not None:
        precision = precision + 1 / population.sd**2
    tiny = jnp.finfo(precision.dtype).tiny
    return jnp.where(precision > tiny, jax.lax.rsqrt(precision), jnp.nan)


def marginal_reliability(
    model: Model,
    items: Items,
    population: Population,
    num_nodes: int = 121,
    item_weight: Float[Array, " items"] | None = None,
) -> Float[Array, ""]:
    """Share of the variance of ability that the items reveal, over a population.

    The mean over the population of I(theta) / (I(theta) + 1 / s^2): one minus the
    expected posterior variance over the population's (Green, Bock, Humphreys, Linn and
    Reckase 1984). A normal population gets `num_nodes` quadrature nodes, a histogram
    has its own. `item_weight` None is 1 each.

    >>> import irtjax
    >>> model = irtjax.MODELS["rasch"]()
    >>> unit = Population(jnp.array(0.0), jnp.array(1.0))
    >>> many = model.constrain(jnp.zeros((99, 1)))
    >>> round(float(marginal_reliability(model, many, unit)), 3)
    0.95
    """
    log_weights = population.log_weights
    dtype = jnp.asarray(items[0]).dtype
    count = num_nodes if log_weights is None else log_weights.shape[0]
    nodes = jnp.linspace(-REACH, REACH, count, dtype=dtype)
    weights = jnp.exp(population.log_weights_at(nodes))
    theta = population.mean + population.sd * nodes
    information = test_information(model, items, theta, item_weight)
    share = information / (information + 1 / population.sd**2)
    return jnp.sum(weights * share)


def empirical_reliability(
    ability: Float[Array, " subjects"],
    standard_error: Float[Array, " subjects"],
    *,
    shrunk: bool = True,
) -> Float[Array, ""]:
    """Reliability of scores, from their variance V and mean squared standard error E.

    V / (V + E) for scores shrunk towards the population (EAP, MAP), whose variance
    leaves the error out; max(0, (V - E) / V) for unshrunk ones (ML, WLE), whose
    variance contains it.

    >>> float(empirical_reliability(jnp.array([-2.0, 0.0, 2.0]), jnp.ones(3)))
    0.8
    """
    variance = jnp.var(ability, ddof=1)
    error = jnp.mean(standard_error**2)
    tiny = jnp.finfo(variance.dtype).tiny
    if shrunk:
        return variance / jnp.maximum(variance + error, tiny)
    return jnp.maximum(0, variance - error) / jnp.maximum(variance, tiny)


def difficulty(items: Items) -> Array:
    """Difficulty -d / a: the ability at which the item's slope is steepest.

    `[items]`, or `[items, thresholds]` for items with several intercepts; NaN where the
    discrimination is smaller than `SMALLEST_SLOPE`. Of several abilities -d / |a|, the
    distance from the mean in the direction of a (Reckase 2009).

    >>> from irtjax.models.families.logistic import LogisticItems
    >>> pair = LogisticItems(jnp.array([2.0, 0.0]), jnp.ones(2), None, None)
    >>> difficulty(pair).tolist()
    [-0.5, nan]
    """
    intercept = jnp.asarray(items.intercept)
    slope = jnp.asarray(items.discrimination)
    if isinstance(items, GradedItems) and slope.ndim == intercept.ndim:
        slope = jnp.sqrt(jnp.sum(slope**2, axis=-1, keepdims=True))
    elif intercept.ndim > slope.ndim:
        slope = slope[..., None]
    elif (
        slope.ndim > intercept.ndim
    ):  # Several abilities: along the steepest direction.
        slope = jnp.sqrt(jnp.sum(slope**2, axis=-1))
    defined = jnp.abs(slope) >= SMALLEST_SLOPE
    return jnp.where(defined, -intercept / jnp.where(defined, slope, 1), jnp.nan)
