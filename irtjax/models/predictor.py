"""The predictor: where abilities and items meet, for every response family.

A model is a response family composed with a predictor. The predictor maps abilities
and an item to eta, one number for each intercept of the item; the family maps eta and
the item's other parameters to log p(y). All that estimators use of eta being linear in
the abilities is here: with K abilities the derivative in a discrimination is that in
the intercepts times an ability, and a change of the abilities' location and scale is a
change of the item.

A family with the field `dims` has vectors of K discriminations and abilities `[K]`;
with dims = 0 both are single numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irtjax.numerics.bijections import IDENTITY, POSITIVE, Parameter

#: Discrimination that an item has at least at the start, where it must be positive.
LEAST_SLOPE = 0.2


def predictor(item: Any, theta: Array, dims: int = 0) -> Array:
    """Eta = a theta + d of a record with `discrimination` and `intercept`.

    With `dims` the last axis of discriminations and abilities is summed over.
    """
    product = item.discrimination * theta
    return (jnp.sum(product, axis=-1) if dims else product) + item.intercept


def slope_parameters(slopes: str, dims: int = 0) -> tuple[Parameter, ...]:
    """The discrimination: "free" (any sign), "positive", or "unit" (not estimated)."""
    if slopes == "unit":
        return ()
    bijection = POSITIVE if slopes == "positive" else IDENTITY
    return (Parameter("discrimination", bijection, size=dims),)


class AbilityProducts(NamedTuple):
    """Products of the abilities at nodes, by which derivatives in eta are weighted.

    Attributes:
        products: `[1 + K + K (K + 1) / 2, nodes]`: one, the abilities, their products.
        pair: `[K, K]` row of each product in `products`.
    """

    products: Array
    pair: np.ndarray

    @classmethod
    def of(cls, nodes: Array) -> AbilityProducts:
        """Of nodes `[nodes]` or `[nodes, K]`."""
        theta = nodes[None] if nodes.ndim == 1 else nodes.T
        size = theta.shape[0]
        low, high = np.tril_indices(size)
        pair = np.zeros((size, size), int)
        pair[low, high] = pair[high, low] = 1 + size + np.arange(low.size)
        rows = [jnp.ones_like(theta[:1]), theta, theta[low] * theta[high]]
        return cls(jnp.concatenate(rows), pair)

    def table(self, table: Array, order: int) -> Array:
        """Sums over nodes of a table `[nodes, items]`: products up to an order."""
        size = len(self.pair)
        rows = (1, 1 + size, len(self.products))[order]
        return self.products[:rows] @ table


def folded(slope: Array, mean: Array, sd: Array) -> tuple[Array, Array]:
    """What an intercept gains, and the slopes, for abilities mean + sd * theta.

    Of several abilities the mean is `[K]`, and `sd` a root `[K, K]` of their
    covariance: slopes become sd' a.
    """
    if jnp.ndim(mean):
        return slope @ mean, slope @ sd
    return slope * mean, slope * sd


def start_slope(slope: Array, slopes: str) -> Array:
    """First discriminations in the range that `slopes` allows."""
    if slopes == "unit":
        return jnp.ones_like(slope)
    return jnp.maximum(slope, LEAST_SLOPE) if slopes == "positive" else slope
