"""The correction of Warm's weighted likelihood estimate."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irtjax.models.base import AbstractResponseFamily, Items
from irtjax.scoring.block import Block, Task


def _warm_cell(
    family: AbstractResponseFamily, item: Items, theta: Array
) -> tuple[Array, Array]:
    """Information I and J = sum_y P' P'' / P of one item at one ability.

    One category at a time: under vmap that is elementwise work on whole tables, several
    times faster than a short trailing axis of categories.
    """
    one = jnp.ones_like(theta)
    natural = lambda t: family.natural(item, t)  # noqa: E731
    slope = lambda t: jax.jvp(natural, (t,), (one,))[1]  # noqa: E731
    value = natural(theta)
    first, second = jax.jvp(slope, (theta,), (one,))
    categories = jnp.arange(family.num_categories)
    kinds = [s.astype(theta.dtype) for s in family.statistics(categories)]
    information = skew = jnp.zeros_like(theta)
    for y in range(family.num_categories):
        log_prob, up, bend = (
            part[0] + sum(s[y] * g for s, g in zip(kinds, part[1:], strict=True))
            for part in (value, first, second)
        )
        probability = jnp.exp(log_prob)
        # P' = P l' and P'' = P (l'' + l'^2), so that nothing is divided.
        information = information + probability * up**2
        skew = skew + probability * up * (bend + up**2)
    return information, skew


def warm_table(task: Task, theta: Array) -> tuple[Array, Array]:
    """I and J of every item at every ability, each `[nodes, items]`."""
    cell = partial(_warm_cell, task.model.family)
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
