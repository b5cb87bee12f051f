"""Cells of models with several abilities, by the product t = a'theta of each.

A response depends on abilities and discriminations through t alone: it is that of a
family of one ability, t, with a slope of 1 (`of_products`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax.models.model import Model

#: Gauss-Hermite nodes over t, whose posterior standard deviation is about 1 at most.
NUM_NODES = 9


class Cells(NamedTuple):
    """Of a block of cells: log p(y), and in t its slope r, w = -r' and w'."""

    log_prob: Array
    slope: Array
    curvature: Array
    bend: Array


def by_product(model: Model, items: Any):
    """The family of the product t, and its records: slopes of 1."""
    ones = jnp.ones(items.discrimination.shape[0], items.discrimination.dtype)
    return model.family.of_products(), items._replace(discrimination=ones)


def cells(model: Model, items: Any, theta: Array, values, exposure) -> Cells:
    """Log-probabilities of cells and their derivatives in the product."""
    family, records = by_product(model, items)
    over_items = jax.vmap(family.natural)

    def log_prob(product: Array) -> Array:
        base, *rest = jax.vmap(over_items, (None, 0))(records, product)
        total = base if exposure is None else base * exposure.astype(base.dtype)
        for statistic, natural in zip(family.statistics(values), rest, strict=True):
            total = total + statistic * natural
        return total

    product = theta @ items.discrimination.T
    ones = jnp.ones_like(product)
    slope = lambda t: jax.jvp(log_prob, (t,), (ones,))
    curve = lambda t: jax.jvp(slope, (t,), (ones,))
    ((value, first), (_, second)), (_, (_, third)) = jax.jvp(curve, (product,), (ones,))
    return Cells(value, first, -second, -third)


class ExpectedCells(NamedTuple):
    """Means of the expected response, of its slope in t, and of its square."""

    mean: Array
    slope: Array
    square: Array


def expected_cells(model: Model, items: Any, mean, variance) -> ExpectedCells:
    """Expected responses where the product is N(mean, variance), by quadrature."""
    family, records = by_product(model, items)
    response = jax.vmap(jax.vmap(family.expected_response), (None, 0))
    nodes, weights = np.polynomial.hermite_e.hermegauss(NUM_NODES)
    sd = jnp.sqrt(jnp.maximum(variance, 0))
    ones = jnp.ones_like(mean)

    def add(total, part):
        node, weight = part
        at = lambda t: response(records, t)
        value, slope = jax.jvp(at, (mean + node * sd,), (ones,))
        found = ExpectedCells(value, slope, value**2)
        return jax.tree.map(lambda x, y: x + weight * y, total, found), None

    pairs = jnp.asarray(nodes, mean.dtype), jnp.asarray(weights, mean.dtype)
    pairs = pairs[0], pairs[1] / jnp.sum(pairs[1])
    zeros = jnp.zeros_like(mean)
    # Unrolled it is one pass over the cells.
    return lax.scan(add, ExpectedCells(zeros, zeros, zeros), pairs, unroll=True)[0]


def outer(left: Array, right: Array | None = None) -> Float[Array, "rows pq"]:
    """Products of the entries of two rows, `[rows, p q]`."""
    right = left if right is None else right
    return (left[:, :, None] * right[:, None, :]).reshape(left.shape[0], -1)


def with_one(theta: Float[Array, "subjects dims"]) -> Array:
    """Abilities and a constant, z = (theta, 1), of every subject."""
    return jnp.concatenate([theta, jnp.ones_like(theta[:, :1])], axis=1)
