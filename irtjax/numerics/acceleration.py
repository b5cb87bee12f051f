"""Anderson acceleration of a fixed-point map, for methods that can refuse a proposal.

EM and MM are maps x -> F(x) that never lower their objective. Anderson's proposal
combines the last few images so that their residuals cancel (Walker and Ni 2011). It may
overshoot: methods then use F(x) of the best point (Henderson and Varadhan 2019).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax.numerics.memory import require_memory


class Memory(NamedTuple):
    """The last few differences of points and residuals, newest overwriting oldest."""

    points: Float[Array, "memory size"]
    residuals: Float[Array, "memory size"]
    last_point: Float[Array, " size"]
    last_residual: Float[Array, " size"]
    num_seen: Array


def empty_memory(size: int, memory: int, dtype) -> Memory:
    """A memory without points."""
    what = f"an acceleration with memory {memory:,}"
    require_memory(8.0 * memory * size, what, "lower memory")
    zeros = jnp.zeros((memory, size), dtype)
    return Memory(zeros, zeros, zeros[0], zeros[0], jnp.zeros((), jnp.int32))


def accelerate(
    memory: Memory, point: Array, image: Array, weight: Array
) -> tuple[Array, Memory]:
    """Proposes the next point from a point, its image and earlier ones.

    Solves min_g || w (r - dR g) || and proposes image - (dX + dR) g, where r is
    image - point, dX and dR are the differences in memory, and the weight w makes the
    residuals of coordinates comparable. With an empty memory it proposes the image.
    """
    residual = image - point
    slot = (memory.num_seen - 1) % memory.points.shape[0]
    seen = memory.num_seen > 0
    add = lambda old, new: jnp.where(seen, old.at[slot].set(new), old)
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
    names = ("points", "residuals", "num_seen")
    emptied = {name: jnp.where(when, 0, getattr(memory, name)) for name in names}
    return memory._replace(**emptied)
