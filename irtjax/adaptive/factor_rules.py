"""Curves of the items of a factor model, and what the rules of a test make of them.

A response depends on the abilities through the product a_j'theta of its item alone, so
that everything here has one dimension, whatever the number of abilities. A `factor` is
that by which errors of the items shrink the curves (`factor_errors`).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from scipy.special import roots_gegenbauer

from irtjax.adaptive import merits
from irtjax.adaptive.repeats import Repeats, next_information, next_log_prob
from irtjax.adaptive.state import Memory
from irtjax.likelihood.product_errors import shrunken
from irtjax.likelihood.products import by_product
from irtjax.models.family import Items
from irtjax.models.model import Model, Population

#: Equal steps over a product in standard deviations, for entropies. Of a standard
#: deviation of 2.6 the error is below 1e-5; with 13 steps it was 2e-4.
ENTROPY_REACH, ENTROPY_NODES = 4.5, 19
#: Nodes of KL's integral. With a largest distance of products of 10 its error is below
#: 1e-3, of 3 below 1e-7.
KL_NODES = 9
#: log2 of the points by which the standard deviation of expected scores is computed.
LOG_POINTS = 10


def weights(
    model: Model,
    items: Items,
    product: Float[Array, " items"],
    memory: Memory = (),
    factor: Array | None = None,
) -> Float[Array, " items"]:
    """Information of the next response to each item about its product."""
    family, records = by_product(model, items)
    records = records if factor is None else shrunken(records, factor)
    weight = jax.vmap(family.information)(records, product)
    if isinstance(memory, Repeats):
        weight = weight * next_information(right(model, items, product), memory)
    return weight


def right(
    model: Model, items: Items, product: Float[Array, " items"]
) -> Float[Array, " items"]:
    """Probability of a first right response."""
    family, records = by_product(model, items)
    return jnp.exp(jax.vmap(family.category_log_probs)(records, product)[:, 1])


def responses(
    model: Model, items: Items, product: Array, factor: Array | None
) -> tuple[Array, Array]:
    """Expected responses and their slopes, at products `[items]`."""
    family, records = by_product(model, items)
    records = records if factor is None else shrunken(records, factor)
    at = lambda t: jax.vmap(family.expected_response)(records, t)
    return jax.jvp(at, (product,), (jnp.ones_like(product),))


def _log_chances(
    model: Model, items: Items, memory: Memory, factor: Array | None, dtype
) -> Callable[[Array], list[Array]]:
    """A function of products `[items]`: log-probabilities of each category next."""
    family, records = by_product(model, items)
    records = records if factor is None else shrunken(records, factor)
    codes = jnp.asarray(family.category_codes)
    kinds = [x.astype(dtype) for x in family.statistics(codes)]

    def at(product: Array) -> list[Array]:
        base, *rest = jax.vmap(family.natural)(records, product)
        logs = []
        # One category at a time: a short last axis of them is several times slower.
        for y in range(family.num_categories):
            log = base + sum(k[y] * g for k, g in zip(kinds, rest, strict=True))
            if isinstance(memory, Repeats):
                log = next_log_prob(log, memory.counts(y), memory.times, memory.odds)
            logs.append(log)
        return logs

    return at


def mutual_information(
    model: Model,
    items: Items,
    mean: Array,
    variance: Array,
    memory: Memory = (),
    factor: Array | None = None,
) -> Array:
    """`merits.mutual_information`, the products N(mean, variance).

    A response depends on the abilities through its product alone, so that the
    expectations have one dimension, whatever the number of abilities.
    """
    sd = jnp.sqrt(jnp.maximum(variance, 0))
    logs = _log_chances(model, items, memory, factor, sd.dtype)

    def add(total, part):
        node, weight = part
        terms = []
        for log in logs(mean + node * sd):
            chance = jnp.exp(log)
            terms.append((chance, -jnp.where(chance > 0, chance * log, 0)))
        return jax.tree.map(lambda x, y: x + weight * y, total, terms), None

    nodes = jnp.linspace(-ENTROPY_REACH, ENTROPY_REACH, ENTROPY_NODES)
    pairs = (x.astype(sd.dtype) for x in (nodes, jax.nn.softmax(-(nodes**2) / 2)))
    zeros = [(jnp.zeros_like(sd),) * 2] * model.family.num_categories
    totals = lax.scan(add, zeros, tuple(pairs))[0]
    chance = jnp.stack([part[0] for part in totals], axis=-1)
    return merits.entropy(chance) - sum(part[1] for part in totals)


def kullback_leibler(
    model: Model,
    items: Items,
    mean: Array,
    width: Array,
    memory: Memory = (),
    factor: Array | None = None,
) -> Array:
    """Mean KL information over abilities around the estimate; see `merits`.

    Of abilities u uniform in the ellipsoid (u - theta)' Sigma^-1 (u - theta) <= r^2 the
    product a'u has a density proportional to (1 - x^2)^((dims - 1) / 2) at
    a'theta + x r sqrt(a'Sigma a), so that Gegenbauer's nodes integrate it.

    Args:
        model: A model of several abilities.
        items: Item records.
        mean: `[items]` products at the estimate, a'theta.
        width: `[items]` largest distances of products from there, r sqrt(a'Sigma a).
        memory: Responses so far, with repeats.
        factor: As in the module.
    """
    dims = items.discrimination.shape[1]
    logs = _log_chances(model, items, memory, factor, mean.dtype)
    here = logs(mean)
    # A category that cannot be here adds nothing, whatever it is elsewhere.
    lowest = jnp.finfo(mean.dtype).min / 1e3

    def add(total, part):
        node, weight = part
        for log, there in zip(here, logs(mean + node * width), strict=True):
            chance = jnp.exp(log)
            gap = log - jnp.maximum(there, lowest)
            total = total + weight * jnp.where(chance > 0, chance * gap, 0)
        return total, None

    nodes, weights = roots_gegenbauer(KL_NODES, dims / 2)
    pairs = (jnp.asarray(x, mean.dtype) for x in (nodes, weights / weights.sum()))
    return lax.scan(add, jnp.zeros_like(mean), tuple(pairs))[0]


def points_of(population: Population, dtype) -> Array:
    """Quasi-random points of the population, `[points, dims]`."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    root = np.linalg.cholesky(np.asarray(population.covariance, float))
    sobol = qmc.Sobol(len(root), scramble=False).random_base2(LOG_POINTS)
    # In the middle of their cells, and so inside the unit cube.
    uniform = sobol + 0.5 ** (LOG_POINTS + 1)
    points = np.asarray(population.mean, float) + ndtri(uniform) @ root.T
    return jnp.asarray(points, dtype)
