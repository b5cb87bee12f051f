"""The predictor: where abilities and items meet, for every response family.

A model is a response family composed with a predictor. The predictor maps an ability
and an item to eta, one number for each intercept of the item; the family maps eta and
the item's other parameters to log p(y).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from irtjax.numerics.bijections import IDENTITY, POSITIVE, Parameter

#: Discrimination that an item has at least at the start, where it must be positive.
LEAST_SLOPE = 0.2


def predictor(item: Any, theta: Array) -> Array:
    """Eta = a theta + d of a record with `discrimination` and `intercept`."""
    return item.discrimination * theta + item.intercept


def slope_parameters(slopes: str) -> tuple[Parameter, ...]:
    """The discrimination: "free" (any sign), "positive", or "unit" (not estimated)."""
    if slopes == "unit":
        return ()
    bijection = POSITIVE if slopes == "positive" else IDENTITY
    return (Parameter("discrimination", bijection),)


def start_slope(slope: Array, slopes: str) -> Array:
    """First discriminations in the range that `slopes` allows."""
    if slopes == "unit":
        return jnp.ones_like(slope)
    return jnp.maximum(slope, LEAST_SLOPE) if slopes == "positive" else slope
