"""Integrals over several abilities: points around each posterior, and product grids.

With a centre c and a root L of a covariance, theta = c + L z, an integral over theta is

    int f(theta) dtheta = |L| int f(c + L z) dz = |L| sum_r exp(q_r) f(c + L z_r),

z_r being the nodes of a product Gauss-Hermite rule (log q_r: its log weight less the
log normal density) or random draws (minus the log of their number and density). Random
draws have Student's t distribution, whose tails are longer than those of a posterior:
importance weights are bounded.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax._types import KeyArray

#: Nodes of the Gauss-Hermite rule for each ability, by the number of abilities.
PER_ABILITY = {1: 11, 2: 7, 3: 5}
#: Product nodes with less than this weight, relative to the largest, are left out.
SMALLEST_WEIGHT = 1e-9
#: Degrees of freedom of random draws.
FREEDOM = 8
#: Most abilities of a product grid: a grid of four is too large.
MOST_DIMS = 3
#: Half width of a product grid, in standard deviations of the abilities.
GRID_REACH = 5.5
#: Most nodes of a product grid: tables of subjects by nodes take up to a second a pass.
MOST_NODES = 30_000
#: Nodes of a product grid below which half the narrowest posterior is insisted on.
AFFORDABLE_NODES = 2_500


class Points(eqx.Module):
    """Points z_r and log q_r, common to all subjects or drawn for each.

    Attributes:
        num_abilities: Number of abilities.
        num_draws: Random draws of each subject; 0 for a rule.
        nodes: `[points, dims]` of a rule.
        log_weights: `[points]` log q_r of a rule.
        key: Random key of the draws.
    """

    num_abilities: int = eqx.field(static=True)
    num_draws: int = eqx.field(static=True, default=0)
    nodes: Float[Array, "points dims"] | None = None
    log_weights: Float[Array, " points"] | None = None
    key: KeyArray | None = None

    @property
    def num_points(self) -> int:
        """Points of each subject."""
        return self.num_draws if self.nodes is None else self.nodes.shape[0]

    def of_subjects(self, rows: Array, dtype) -> tuple[Array, Array]:
        """Z `[rows or 1, points, dims]` and log q `[rows or 1, points]` of subjects.

        Draws come in pairs z, -z: the second half of the points mirrors the first. They
        depend on the key and the number of the subject alone.
        """
        if self.nodes is not None and self.log_weights is not None:
            return self.nodes.astype(dtype)[None], self.log_weights.astype(dtype)[None]
        key = self.key
        if key is None:
            raise ValueError("random points need a key: use points_for")
        keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)
        shape = self.num_draws // 2, self.num_abilities + FREEDOM
        normal = jax.vmap(lambda key: jax.random.normal(key, shape, dtype))(keys)
        z, rest = normal[..., : self.num_abilities], normal[..., self.num_abilities :]
        z = z / jnp.sqrt(jnp.mean(rest**2, axis=-1, keepdims=True))
        z = jnp.concatenate([z, -z], axis=1)
        constant = (
            math.lgamma((FREEDOM + self.num_abilities) / 2)
            - math.lgamma(FREEDOM / 2)
            - self.num_abilities / 2 * math.log(FREEDOM * math.pi)
        )
        square = jnp.sum(z**2, axis=-1) / FREEDOM
        density = constant - (FREEDOM + self.num_abilities) / 2 * jnp.log1p(square)
        return z, -density - math.log(self.num_draws)


def count_points(dims: int, num_draws: int) -> int:
    """How many points `points_for` has, or a few less.

    >>> count_points(3, 200), count_points(4, 200)
    (125, 200)
    """
    return PER_ABILITY[dims] ** dims if dims in PER_ABILITY else num_draws


def points_for(dims: int, num_draws: int, key: KeyArray) -> Points:
    """A Gauss-Hermite rule for up to three abilities, random draws for more.

    >>> points_for(2, 100, jax.random.key(0)).num_points
    49
    >>> points_for(4, 100, jax.random.key(0)).num_points
    100
    """
    if dims not in PER_ABILITY:
        return Points(dims, 2 * math.ceil(num_draws / 2), key=key)
    nodes, weights = np.polynomial.hermite_e.hermegauss(PER_ABILITY[dims])
    product = np.stack(np.meshgrid(*[nodes] * dims, indexing="ij"), -1)
    product = product.reshape(-1, dims)
    logs = np.stack(np.meshgrid(*[np.log(weights)] * dims, indexing="ij"), -1)
    total = logs.reshape(-1, dims).sum(axis=1)
    heavy = total > total.max() + math.log(SMALLEST_WEIGHT)
    product, total = product[heavy], total[heavy]
    # hermegauss integrates exp(-z^2 / 2) f(z); the density divides its weights.
    log_ratio = total + np.sum(product**2, axis=1) / 2
    return Points(dims, 0, jnp.asarray(product), jnp.asarray(log_ratio))


def grid_nodes(spacing: float, dims: int) -> np.ndarray:
    """Nodes `[nodes, dims]` of a square grid within `GRID_REACH` of 0.

    >>> grid_nodes(1.0, 2).shape
    (97, 2)
    """
    count = math.floor(GRID_REACH / spacing)
    line = spacing * np.arange(-count, count + 1)
    product = np.stack(np.meshgrid(*[line] * dims, indexing="ij"), -1)
    product = product.reshape(-1, dims)
    return product[np.sum(product**2, axis=1) <= GRID_REACH**2]


def grid_size(spacing: float, dims: int) -> int:
    """About as many nodes as `grid_nodes` has: the volume of the ball.

    >>> grid_size(1.0, 2)
    96
    """
    ball = math.pi ** (dims / 2) / math.gamma(dims / 2 + 1)
    return math.ceil(ball * (GRID_REACH / spacing) ** dims)


def widest_spacing(num_nodes: int, dims: int) -> float:
    """Spacing of a grid with so many nodes.

    >>> round(widest_spacing(96, 2), 1)
    1.0
    """
    return (grid_size(1.0, dims) / num_nodes) ** (1 / dims)
