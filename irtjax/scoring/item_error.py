"""What the sampling error of the items adds to the error of a score."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irtjax.numerics.kernels import take_block
from irtjax.scoring.block import Block, Task


def estimated_items(task: Task, coordinates: Array):
    """Items of coordinates, with what the family does not estimate as in the task."""
    estimated = {parameter.name for parameter in task.model.family.parameters}
    kept = {
        name: value
        for name, value in task.items._asdict().items()
        if name not in estimated
    }
    return task.model.constrain(coordinates)._replace(**kept)


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

    def tables(coordinates):
        return family.table(estimated_items(task, coordinates), theta)

    coordinates = task.model.unconstrain(task.items)
    move = jnp.broadcast_to(direction, coordinates.shape).astype(coordinates.dtype)
    return jax.jvp(tables, (coordinates,), (move,))[1]


class Sensitivity(NamedTuple):
    """How each score of a block moves with what was estimated.

    Attributes:
        items: For each coordinate column, d score / d coordinate, `[block, items]`.
        population: d score / d (mean, log sd), `[block, 2]`.
        evidence: d score / d evidence, `[block, 2]`.
    """

    items: tuple[Array, ...]
    population: Array
    evidence: Array


def coordinate_directions(task: Task) -> Array:
    """A unit direction for each column of coordinates, `[columns, columns]`."""
    return jnp.eye(task.model.family.num_columns, dtype=task.mean.dtype)


def added_variance(
    task: Task, block: Block, ability: Array, moves: Sensitivity
) -> tuple[Array, Array]:
    """G' C g of each score, and the part of its error that it shares with others.

    Args:
        task: Holds the errors of items and population.
        block: The subjects.
        ability: Their scores, `[block]`.
        moves: Derivatives g of the scores.

    Returns:
        `[block]` variances, and `[block, rank]` loadings u with C = own + shared, so
        that the variance is g' own g + u'u and two scores have covariance u_i'u_k.
    """
    error = task.item_error
    assert error is not None
    population = moves.population
    # An ability is reported in units of a standard deviation that was estimated.
    unit = jnp.where(error.rescaled, ability - task.mean, 0)
    population = population.at[:, 1].add(-unit)
    shared = population @ error.population
    for move, column in zip(moves.items, error.columns, strict=True):
        shared = shared + move @ column
    if error.evidence is not None:
        size = ability.shape[0]
        by_evidence = take_block(error.evidence, block.start, size)
        assert by_evidence is not None
        shared = shared + jnp.einsum("be,ber->br", moves.evidence, by_evidence)
    # Products with the covariances, not a sum over items of a fused expression: with
    # the persistent cache on, XLA's CPU compiler (JAX 0.10.2) got that sum wrong.
    total = jnp.zeros(ability.shape, shared.dtype)
    columns = range(len(moves.items))
    for i in columns:
        for k in columns:
            total = total + (moves.items[i] * moves.items[k]) @ error.items[:, i, k]
    return jnp.maximum(total, 0) + jnp.sum(shared**2, axis=1), shared
