"""Anderson acceleration of a fixed-point map, for methods that can refuse its advice.

EM and MM are maps x -> F(x) that never lower their objective. Anderson's proposal
combines the last few images so that their residuals cancel; it may overshoot, so the
method that needs it keeps F(x) of the best point to fall back on (Walker and Ni
2011; Henderson and Varadhan 2019 for the safeguarded use with EM).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Memory(NamedTuple):
    """The last few differences of points and residuals, newest overwriting oldest."""

    points: Float[Array, "memory size"]
    residuals: Float[Array, "memory size"]
    last_point: Float[Array, " size"]
    last_residual: Float[Array, " size"]
    num_seen: Array


def empty_memory(size: int, memory: int, dtype) -> Memory:
    """A memory that has seen nothing."""
    zeros = jnp.zeros((memory, size), dtype)
    return Memory(zeros, zeros, zeros[0], zeros[0], jnp.zeros((), jnp.int32))


def accelerate(
    memory: Memory,
    point: Float[Array, " size"],
    image: Float[Array, " size"],
    weight: Float[Array, " size"],
) -> tuple[Float[Array, " size"], Memory]:
    """Proposes the next point from a point, its image and what is remembered.

    Solves min_g || w (r - dR g) || and proposes image - (dX + dR) g, where r is
    image - point and dX, dR are the remembered differences.

    Args:
        memory: Earlier points.
        point: The point just evaluated.
        image: Its image under the map.
        weight: Scale of each coordinate, so that residuals are comparable.

    Returns:
        The proposal (the image itself while nothing is remembered) and the memory.
    """
    residual = image - point
    depth = memory.points.shape[0]
    slot = (memory.num_seen - 1) % depth
    seen = memory.num_seen > 0
    add = lambda old, new: jnp.where(seen, old.at[slot].set(new), old)  # noqa: E731
    points = add(memory.points, point - memory.last_point)
    residuals = add(memory.residuals, residual - memory.last_residual)
    scaled = residuals * weight
    gram = scaled @ scaled.T
    eps = jnp.finfo(gram.dtype).eps
    ridge = 1e2 * eps * jnp.trace(gram) + jnp.finfo(gram.dtype).tiny * 1e6
    used = jnp.diagonal(gram) > 0
    gram = gram + jnp.diag(jnp.where(used, ridge, 1.0))
    mix = jnp.linalg.solve(gram, scaled @ (weight * residual))
    mix = jnp.where(used & jnp.isfinite(mix), mix, 0)
    proposal = image - mix @ (points + residuals)
    return proposal, Memory(points, residuals, point, residual, memory.num_seen + 1)


def forget(memory: Memory, when: Array) -> Memory:
    """The memory, emptied where `when` holds."""
    return Memory(
        jnp.where(when, 0, memory.points),
        jnp.where(when, 0, memory.residuals),
        memory.last_point,
        memory.last_residual,
        jnp.where(when, 0, memory.num_seen),
    )
