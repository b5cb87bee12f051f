"""What the sampling error of the items adds to the error of a score."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irtjax.scoring.block import Task


def coordinate_slopes(task: Task, theta: Array, direction: Array) -> tuple[Array, ...]:
    """Derivatives of the tables at `theta` as every item's coordinates move.

    Parameters that the family does not estimate per item (the common discrimination
    of a 1PL) stay as they are.

    Args:
        task: The model and its items.
        theta: Abilities, `[nodes]`.
        direction: Direction of the move, `[columns]`.

    Returns:
        The derivative of each table, `[nodes, items]`.
    """
    family = task.model.family
    estimated = {parameter.name for parameter in family.parameters}
    kept = {
        name: value
        for name, value in task.items._asdict().items()
        if name not in estimated
    }

    def tables(coordinates):
        items = task.model.constrain(coordinates)._replace(**kept)
        return family.table(items, theta)

    coordinates = task.model.unconstrain(task.items)
    move = jnp.broadcast_to(direction, coordinates.shape).astype(coordinates.dtype)
    return jax.jvp(tables, (coordinates,), (move,))[1]


def added_variance(task: Task, sensitivity: Callable[[Array], Array]) -> Array:
    """The sum over items of g_j' C_j g_j, one coordinate column at a time.

    Args:
        task: Holds the covariance C_j of each item's coordinates.
        sensitivity: Derivative of the score along a direction of each item's
            coordinates, `[block, items]`.

    Returns:
        `[block]` variances.
    """
    covariance = jnp.asarray(task.item_covariance).astype(task.mean.dtype)
    columns = covariance.shape[-1]
    unit = jnp.eye(columns, dtype=covariance.dtype)
    slopes = [sensitivity(unit[column]) for column in range(columns)]
    # Products with the covariances, not a sum over items of a fused expression: with
    # the persistent cache on, XLA's CPU compiler (JAX 0.10.2) got that sum wrong.
    total = jnp.zeros(slopes[0].shape[0], covariance.dtype)
    for i in range(columns):
        for k in range(columns):
            total = total + (slopes[i] * slopes[k]) @ covariance[:, i, k]
    return total
