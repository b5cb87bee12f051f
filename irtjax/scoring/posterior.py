"""EAP scores: mean and standard deviation of the posterior on the nodes."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array

from irtjax.scoring.block import Block, Found, Task
from irtjax.scoring.item_error import (
    Sensitivity,
    added_variance,
    coordinate_directions,
    coordinate_slopes,
)


def posterior_scores(task: Task, block: Block, theta: Array, posterior: Array) -> Found:
    """EAP scores and their variances.

    The derivative of a posterior mean along any parameter is the posterior covariance
    of ability with the derivative of the joint log density.
    """
    ability = posterior @ theta
    centred = theta - ability[:, None]
    variance = jnp.sum(posterior * centred**2, axis=1)
    # A posterior narrower than the nodes has no variance on them; its width is then
    # that of the nodes, not zero.
    variance = jnp.maximum(variance, (theta[1] - theta[0]) ** 2 / 12)
    shared = None
    if task.item_error is not None:
        lean = posterior * centred
        standard = (theta - task.mean) / task.sd
        items = tuple(
            block.total(
                tuple(lean @ slope for slope in coordinate_slopes(task, theta, way))
            )
            for way in coordinate_directions(task)
        )
        moves = Sensitivity(
            items,
            lean @ jnp.stack([standard / task.sd, standard**2 - 1], axis=1),
            lean @ jnp.stack([theta, -(theta**2) / 2], axis=1),
        )
        added, shared = added_variance(task, block, ability, moves)
        variance = variance + added
    return Found(ability, variance, jnp.zeros(ability.shape, jnp.int32), shared)
