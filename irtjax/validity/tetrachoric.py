"""Tetrachoric correlations: of the normal variables behind right and wrong."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float

#: Nodes of the integral over the angle; exact to 1e-9 up to |r| = 0.99.
_NODES = 48
#: Halvings of the bracket: an error below 1e-7.
_HALVINGS = 24
#: Largest size of a correlation that is looked for.
LARGEST = 0.995


@jax.jit
def tetrachoric_of_counts(
    both: Float[Array, "*pairs"],
    first: Float[Array, "*pairs"],
    second: Float[Array, "*pairs"],
    count: Float[Array, "*pairs"],
) -> Float[Array, "*pairs"]:
    """Tetrachoric correlation of each 2 x 2 table.

    The r for which a standard bivariate normal with the thresholds of the two margins
    has the observed share above both: Phi2(h, k, r) = both / count, with
    Phi2(h, k, r) = Phi(h) Phi(k) + (1 / 2 pi) int_0^{asin r} exp(-(h^2 + k^2 -
    2 h k sin t) / (2 cos^2 t)) dt (Sheppard 1900), found by bisection for all tables
    at once. A table with an empty cell has 0.5 added to each cell. The numbers are of
    subjects right on both items, on the first, on the second, and of all who answered
    both. NaN where a margin has no variation.

    >>> table = (jnp.array(x) for x in (40.0, 50.0, 50.0, 100.0))
    >>> round(float(tetrachoric_of_counts(*table)), 4)
    0.809
    """
    fixed = (first > 0) & (first < count) & (second > 0) & (second < count)
    neither = count - first - second + both
    cells = jnp.stack([both, first - both, second - both, neither])
    empty = jnp.where(jnp.min(cells, axis=0) < 0.5, 0.5, 0.0)
    total = jnp.where(fixed, count + 4 * empty, 1.0)
    share = jnp.where(fixed, (both + empty) / total, 0.25)
    h = ndtri(jnp.where(fixed, (first + 2 * empty) / total, 0.5))
    k = ndtri(jnp.where(fixed, (second + 2 * empty) / total, 0.5))
    points, weights = np.polynomial.legendre.leggauss(_NODES)
    nodes = jnp.asarray((points + 1) / 2, h.dtype), jnp.asarray(weights / 2, h.dtype)

    def above(r):
        """Chance of both above their thresholds at a correlation."""
        end = jnp.arcsin(r)

        def add(total, node):
            point, weight = node
            angle = end * point
            square = h**2 + k**2 - 2 * h * k * jnp.sin(angle)
            height = jnp.exp(-square / (2 * jnp.cos(angle) ** 2))
            return total + weight * height, None

        area, _ = jax.lax.scan(add, jnp.zeros_like(end), nodes)
        return ndtr(h) * ndtr(k) + end * area / (2 * jnp.pi)

    def halve(_, bracket):
        low, high = bracket
        middle = (low + high) / 2
        more = above(middle) < share
        return jnp.where(more, middle, low), jnp.where(more, high, middle)

    ends = (jnp.full_like(h, -LARGEST), jnp.full_like(h, LARGEST))
    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, ends)
    return jnp.where(fixed, (low + high) / 2, jnp.nan)


def tetrachoric(table: Any) -> np.ndarray:
    """Tetrachoric correlations of all pairs of items, pairwise complete.

    By `tetrachoric_of_counts`, block by block of items: `[items, items]`, symmetric,
    1 on the diagonal; NaN where an item has no variation among the subjects who
    answered both. Select items first where there are thousands.

    >>> from irtjax.data import ResponseTable
    >>> pair = ResponseTable.from_arrays([[1, 1], [1, 1], [0, 0], [0, 1], [1, 0]])
    >>> tetrachoric(pair).round(2).tolist()
    [[1.0, 0.26], [0.26, 1.0]]
    """
    if table.kind != "binary":
        raise ValueError(
            f"tetrachoric correlations are of right and wrong responses, not of"
            f" {table.kind} responses"
        )
    right = table.values.astype(np.float32)
    seen = np.ones_like(right)
    if table.observed is not None:
        seen = table.observed.astype(np.float32)
    size = table.num_items
    result = np.empty((size, size))
    width = max(1, 4_000_000 // max(size, 1))
    for start in range(0, size, width):
        part = slice(start, start + width)
        products = (a[:, part].T @ b for a in (right, seen) for b in (right, seen))
        both, first, second, count = (jnp.asarray(x, float) for x in products)
        result[part] = np.asarray(tetrachoric_of_counts(both, first, second, count))
    np.fill_diagonal(result, 1.0)
    return result
