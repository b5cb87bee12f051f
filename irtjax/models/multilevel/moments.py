"""Normal scores of all subjects at once, from moments of each item.

The squared residuals of an item around its line depend on abilities and logits only by
sums, which are products with the data: no cell is computed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from irtjax.data.responses import Responses
from irtjax.models.families.continuous import ScoreItems

_HALF_LOG_TWO_PI = 0.9189385332046727


class LogitMoments(NamedTuple):
    """Sums over the cells of each item, each `[items]`; `value` is the logits."""

    num_cells: Float[Array, " items"]
    ability: Float[Array, " items"]
    ability_square: Float[Array, " items"]
    value: Float[Array, " items"]
    value_square: Float[Array, " items"]
    product: Float[Array, " items"]


def item_moments(
    ability: Float[Array, "subjects groups"],
    group: Int[Array, " items"],
    data: Responses,
) -> LogitMoments:
    """Moments of each item with the abilities in its group; missing logits are 0."""
    values = data.values.astype(ability.dtype)
    square = ability**2

    def own(sums: Float[Array, "groups items"]) -> Float[Array, " items"]:
        # Of one group there is nothing to choose.
        if sums.shape[0] == 1:
            return sums[0]
        return jnp.take_along_axis(sums, group[None], axis=0)[0]

    if data.exposure is None:
        # Nothing is missing: every item has all abilities of its group.
        count = jnp.full(group.shape, values.shape[0], values.dtype)
        sums = jnp.sum(ability, axis=0)[group], jnp.sum(square, axis=0)[group]
    else:
        seen = data.exposure.astype(values.dtype)
        count = jnp.sum(seen, axis=0)
        sums = own(ability.T @ seen), own(square.T @ seen)
    value, value_square = jnp.sum(values, axis=0), jnp.sum(values**2, axis=0)
    return LogitMoments(count, *sums, value, value_square, own(ability.T @ values))


def normal_log_lik(items: ScoreItems, moments: LogitMoments) -> Float[Array, " items"]:
    """Log-likelihood of all cells of each item under `LogitNormalScores`, up to h(y).

    -n log(sigma sqrt(2 pi)) - sum_i (z_i - a theta_i - d)^2 / (2 sigma^2), the sum
    written out in moments. Logits are taken from their mean, so that single precision
    loses nothing where they lie far from 0.
    """
    slope, count = items.discrimination, moments.num_cells
    centre = moments.value / jnp.maximum(count, 1)
    shift = items.intercept - centre
    squares = (
        (moments.value_square - centre * moments.value)
        - 2 * slope * (moments.product - centre * moments.ability)
        + slope * (slope * moments.ability_square + 2 * shift * moments.ability)
        + count * shift**2
    )
    log_scale = jnp.log(items.dispersion) + _HALF_LOG_TWO_PI
    return -count * log_scale - 0.5 * squares / items.dispersion**2
