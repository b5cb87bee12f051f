"""Bijections between natural parameters and unconstrained coordinates.

Estimators move in unconstrained coordinates, one row of columns per item; everything
a user sees is natural. Which columns may move is an elementwise boolean mask, because
one anchors some parameters of some items rather than a whole array.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

#: Natural values are kept this far from the ends of an open interval, so that an
#: anchored or loaded value at the very end (a guessing parameter of exactly 0) has
#: finite coordinates.
MARGIN = 1e-6


class Bijection(NamedTuple):
    """One of "identity", "positive" (log) and "unit" (logit), applied elementwise.

    >>> import jax.numpy as jnp
    >>> round(float(Bijection("positive").forward(jnp.array(0.0))), 3)
    1.0
    """

    kind: str = "identity"

    def forward(self, coordinate: Array) -> Array:
        """Natural value of an unconstrained coordinate."""
        if self.kind == "positive":
            return jnp.exp(coordinate)
        if self.kind == "unit":
            return jax.nn.sigmoid(coordinate)
        return coordinate

    def inverse(self, value: Array) -> Array:
        """Unconstrained coordinate of a natural value (ends are moved inside)."""
        if self.kind == "positive":
            return jnp.log(jnp.maximum(value, MARGIN))
        if self.kind == "unit":
            inside = jnp.clip(value, MARGIN, 1 - MARGIN)
            return jnp.log(inside) - jnp.log1p(-inside)
        return jnp.asarray(value)


IDENTITY = Bijection("identity")
POSITIVE = Bijection("positive")
UNIT = Bijection("unit")


class Parameter(NamedTuple):
    """One named item parameter: its bijection and how many columns it takes.

    Attributes:
        name: Field of the family's item record.
        bijection: Map from coordinate to natural value.
        size: 0 for a scalar per item, C for a vector of C per item.
    """

    name: str
    bijection: Bijection = IDENTITY
    size: int = 0

    @property
    def columns(self) -> int:
        """Number of unconstrained columns."""
        return max(self.size, 1)
