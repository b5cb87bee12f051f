"""Bijections between natural parameters and unconstrained coordinates.

Estimators move in unconstrained coordinates, one row of columns per item; everything
a user sees is natural.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import gammaln

from irtjax.numerics.kernels import softplus

#: Natural values are kept this far from the ends of an open interval, so that an
#: anchored or loaded value at the very end (a guessing parameter of exactly 0) has
#: finite coordinates.
MARGIN = 1e-6


class Bijection(NamedTuple):
    """One of "identity", "positive" (log) and "unit" (logit), applied elementwise."""

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

    def log_slope(self, coordinate: Array) -> Array:
        """Log derivative of the natural value in the coordinate."""
        if self.kind == "positive":
            return coordinate
        if self.kind == "unit":
            return -softplus(coordinate) - softplus(-coordinate)
        return jnp.zeros_like(coordinate)


IDENTITY = Bijection("identity")
POSITIVE = Bijection("positive")
UNIT = Bijection("unit")


class Parameter(NamedTuple):
    """An item parameter: a field of the family's record, with its bijection.

    `size` is 0 for a scalar per item, C for a vector of C per item.
    """

    name: str
    bijection: Bijection = IDENTITY
    size: int = 0

    @property
    def columns(self) -> int:
        """Number of unconstrained columns."""
        return max(self.size, 1)


def correlation_cholesky(coordinates: Array, size: int) -> Array:
    """Lower Cholesky factor of a correlation matrix from unbounded coordinates.

    Coordinates `[size (size - 1) / 2]` are the rows below the diagonal. Their tanh are
    canonical partial correlations: shares of the rest of a row's unit length
    (Lewandowski, Kurowicka and Joe 2009).
    """
    # What follows from the size alone is made on the host: a program that makes it, as
    # part of every loss and its derivatives, compiles several times as long.
    rows, columns = np.tril_indices(size, -1)
    partial = jnp.zeros((size, size), coordinates.dtype)
    partial = partial.at[rows, columns].set(jnp.tanh(coordinates))
    left = jnp.cumprod(1 - partial**2, axis=1)
    before = jnp.concatenate([jnp.ones((size, 1), left.dtype), left[:, :-1]], axis=1)
    identity = np.eye(size, dtype=partial.dtype)
    return (partial + identity) * jnp.sqrt(before) * np.tri(size, dtype=left.dtype)


def correlation_coordinates(factor: Array) -> Array:
    """The inverse of `correlation_cholesky`."""
    size = factor.shape[0]
    rows, columns = np.tril_indices(size, -1)
    spent = jnp.cumsum(factor**2, axis=1) - factor**2
    room = jnp.sqrt(jnp.maximum(1 - spent, MARGIN**2))
    partial = jnp.clip(factor / room, -1 + MARGIN, 1 - MARGIN)
    return jnp.arctanh(partial[rows, columns])


def lkj_log_density(coordinates: Array, size: int, concentration: float) -> Array:
    """Log density of the coordinates under an LKJ prior of the correlation matrix.

    Canonical partial correlations of an LKJ matrix are independent, each symmetric
    beta on (-1, 1); the Jacobian of tanh is included. Concentration 1 is uniform over
    correlation matrices, larger ones prefer small correlations.
    """
    _, columns = np.tril_indices(size, -1)
    shape = concentration + (size - 2 - columns) / 2
    # (1 - z^2)^shape / (B(shape, shape) 2^(2 shape - 1)), with 1 - z^2 in logs.
    log_beta = 2 * gammaln(shape) - gammaln(2 * shape)
    normal = log_beta + (2 * shape - 1) * math.log(2.0)
    shape, normal = (x.astype(coordinates.dtype) for x in (shape, normal))
    return jnp.sum(shape * _log_room(coordinates) - normal)


def _log_room(coordinates: Array) -> Array:
    """Log of 1 - z^2 of the partial correlations z = tanh(coordinates)."""
    return 2 * (math.log(2.0) - coordinates - softplus(-2 * coordinates))


def lkj_height(coordinates: Array, size: int, concentration: float) -> Array:
    """What an LKJ prior adds to a log density whose mode is sought.

    The shapes of `lkj_log_density` fall from column to column: its mode depends on the
    order of the variables. With their mean it is a power of the determinant.
    """
    return (concentration + (size - 2) / 3) * jnp.sum(_log_room(coordinates))
