"""The correction of Warm's weighted likelihood estimate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irtjax.scoring.block import Block, Task


def warm_table(task: Task, theta: Array) -> tuple[Array, Array]:
    """I and J of every item at every ability, each `[nodes, items]`."""
    cell = task.model.family.information_and_skew
    over_items = jax.vmap(cell, in_axes=(0, None))
    return jax.vmap(over_items, in_axes=(None, 0))(task.items, theta)


def warm_ratio(information: Array, skew: Array) -> Array:
    """J / (2 I), 0 where information underflows."""
    tiny = jnp.finfo(information.dtype).tiny
    return skew / (2 * jnp.maximum(information, tiny))


def warm_on_grid(block: Block, warm: tuple[Array, Array], grid: Array) -> Array:
    """The integral of J / (2 I) along the grid, `[block or 1, nodes]`."""
    information, skew = (block.weigh(table) for table in warm)
    if block.exposure is None:
        sums = [jnp.sum(table, axis=1)[None, :] for table in (information, skew)]
    else:
        sums = [block.exposure @ table.T for table in (information, skew)]
    ratio = warm_ratio(*sums)
    steps = (ratio[:, 1:] + ratio[:, :-1]) / 2 * jnp.diff(grid)
    return jnp.pad(jnp.cumsum(steps, axis=1), ((0, 0), (1, 0)))
