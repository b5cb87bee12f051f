"""Non-negative least squares for small problems, vectorised by `vmap`."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from irtjax.numerics.kernels import positive_definite_solve


def nnls(gram: Float[Array, "p p"], target: Float[Array, " p"]) -> Float[Array, " p"]:
    """Minimises x' G x / 2 - t' x over x >= 0, exactly, for a small positive G.

    The active-set method of Lawson and Hanson (Solving Least Squares Problems) on the
    normal equations: solve on the free set; if that leaves the orthant, move to its
    edge and fix the coordinates that reach it; otherwise free the coordinate with the
    largest gradient.
    """
    size = target.shape[0]
    identity = jnp.eye(size, dtype=gram.dtype)
    slack = 10 * jnp.finfo(gram.dtype).eps * (jnp.max(jnp.abs(target)) + 1e-30)

    def unfinished(state):
        _, _, done, count = state
        return ~done & (count < 6 * size + 10)

    def body(state):
        """Solves for the passive set, which then loses or gains coordinates."""
        x, passive, _, count = state
        free = passive[:, None] & passive[None, :]
        system = jnp.where(free, gram, identity)
        solution, _ = positive_definite_solve(system, jnp.where(passive, target, 0))
        blocked = passive & (solution <= 0)
        share = jnp.where(blocked, x / jnp.maximum(x - solution, 1e-30), jnp.inf)
        inside = ~jnp.any(blocked)
        length = jnp.where(inside, 1, jnp.min(share))
        x = jnp.where(passive, x + length * (solution - x), 0)
        leaves = blocked & (share <= length)
        x = jnp.where(leaves, 0, x)
        dual = jnp.where(passive, -jnp.inf, target - gram @ x)
        enters = (jnp.arange(size) == jnp.argmax(dual)) & (dual > slack)
        passive = jnp.where(inside, passive | enters, passive & ~leaves)
        return x, passive, inside & ~jnp.any(enters), count + 1

    false, zero = jnp.zeros(size, bool), jnp.zeros((), jnp.int32)
    init = jnp.zeros_like(target), false, false[0], zero
    return lax.while_loop(unfinished, body, init)[0]
