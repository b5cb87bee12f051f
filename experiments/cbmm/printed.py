"""The algorithm of the cBMM paper (arXiv 2605.07046) as printed, for comparison.

Algorithm 1, with responses +1 and -1 and 0 where missing: line 7 (discriminations)
sums over the observed cells, lines 8 and 9 (intercepts, abilities) over all. That
mixture may raise the loss; see the README. `mm` of irtjax uses observed cells in each.
"""

from functools import partial

import jax
import jax.numpy as jnp


@partial(jax.jit, static_argnames="max_steps")
def printed(y, key, tolerance=1e-4, max_steps=1000, temperature=1.0):
    """Abilities, discriminations, intercepts, steps taken, steps at which it rose."""
    seen, s = y != 0, temperature
    loss = lambda theta, a, b: jnp.sum(
        jnp.where(seen, jnp.logaddexp(0, -y * (jnp.outer(theta, a) + b) / s), 0)
    )

    def step(carry):
        (theta, a, b), old, _, count, rises = carry
        x = jnp.outer(theta, a) + b
        target = x + 4 * s * y * jax.nn.sigmoid(-y * x / s)  # Equation (5)
        square = jnp.maximum(theta**2 @ seen, 1e-12)
        a = jnp.maximum(theta @ jnp.where(seen, target - b, 0) / square, 0)  # Line 7
        b = jnp.mean(target - jnp.outer(theta, a), axis=0)  # Line 8
        theta = (target - b) @ a / jnp.maximum(a @ a, 1e-12)  # Line 9
        new = loss(theta, a, b)
        rises = rises + (new > old * (1 + 1e-12))
        return (theta, a, b), new, old, count + 1, rises

    def going(carry):
        _, new, old, count, _ = carry
        settled = jnp.abs(old - new) <= tolerance * jnp.abs(old)
        return (count < max_steps) & ((count == 0) | ~settled)

    keys, (rows, columns) = jax.random.split(key, 3), y.shape
    draw = lambda k, size: jax.random.normal(keys[k], (size,), y.dtype)
    start = draw(0, rows), jnp.exp(draw(1, columns)), draw(2, columns)
    first = start, loss(*start), jnp.inf, 0, 0
    point, _, _, count, rises = jax.lax.while_loop(going, step, first)
    return *point, count, rises
