"""EAP scores: mean and standard deviation of the posterior on the nodes."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array

from irtjax.scoring.block import Block, Task
from irtjax.scoring.item_error import added_variance, coordinate_slopes


def posterior_scores(
    task: Task, block: Block, theta: Array, posterior: Array
) -> tuple[Array, Array, Array]:
    """EAP scores and their variances."""
    ability = posterior @ theta
    centred = theta - ability[:, None]
    variance = jnp.sum(posterior * centred**2, axis=1)
    # A posterior narrower than the nodes has no spread on them; its width is then
    # that of the nodes, not zero.
    variance = jnp.maximum(variance, (theta[1] - theta[0]) ** 2 / 12)
    if task.item_covariance is not None:
        lean = posterior * centred

        def sensitivity(direction):
            slopes = coordinate_slopes(task, theta, direction)
            return block.total(tuple(lean @ slope for slope in slopes))

        variance = variance + added_variance(task, sensitivity)
    return ability, variance, jnp.zeros(ability.shape, jnp.int32)
