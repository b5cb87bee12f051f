"""What the sampling error of the items adds to the error of a score."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irtjax.inference.block import Scorer, SubjectBlock
from irtjax.models.family import Items
from irtjax.numerics.kernels import take_block


def coordinate_slopes(scorer: Scorer, function: Callable[[Items], Any]) -> list[Any]:
    """Derivatives of `function` of the items by each column of their coordinates.

    Arrays `[nodes, items]`. Parameters that the family does not estimate per item (the
    common discrimination of a 1PL) stay as they are.
    """
    estimated = {parameter.name for parameter in scorer.model.family.parameters}
    every = scorer.items._asdict().items()
    constants = {name: value for name, value in every if name not in estimated}

    def moved(coordinates):
        return function(scorer.model.constrain(coordinates)._replace(**constants))

    coordinates = scorer.model.unconstrain(scorer.items)
    ways = jnp.eye(scorer.model.family.num_columns, dtype=coordinates.dtype)
    moves = [jnp.broadcast_to(way, coordinates.shape) for way in ways]
    return [jax.jvp(moved, (coordinates,), (move,))[1] for move in moves]


class Sensitivity(NamedTuple):
    """Derivatives of the scores of a block with respect to what was estimated."""

    items: tuple[Array, ...]  # `[block, items]` by each column of coordinates.
    population: Array  # `[block, 2]`, by mean and log sd.
    evidence: Array  # `[block, 2]`.


def mean_sensitivity(
    scorer: Scorer, block: SubjectBlock, theta: Array, lean: Array
) -> Sensitivity:
    """Sensitivity of a posterior mean of a function of ability on nodes `theta`.

    The derivative of a posterior mean along any parameter is the posterior covariance
    of the function with the derivative of the joint log density; `lean` is the
    posterior times the centred function, `[block, nodes]`.
    """
    standard = (theta - scorer.mean) / scorer.sd

    table = lambda items: scorer.model.family.table(items, theta)
    return Sensitivity(
        tuple(
            block.total(tuple(lean @ slope for slope in slopes))
            for slopes in coordinate_slopes(scorer, table)
        ),
        lean @ jnp.stack([standard / scorer.sd, standard**2 - 1], axis=1),
        lean @ jnp.stack([theta, -(theta**2) / 2], axis=1),
    )


def added_variance(
    scorer: Scorer, block: SubjectBlock, ability: Array, moves: Sensitivity
) -> tuple[Array, Array]:
    """Variances g' C g that the errors of items add to scores, and their shared part.

    With C = own + shared the variance is g' own g + u'u, with loadings u
    `[block, rank]`: two scores have covariance u_i'u_k. `ability` are the scores of the
    block, `[block]`, and `moves` their derivatives g.
    """
    error = scorer.item_error
    assert error is not None
    population = moves.population
    # An ability is reported in units of a standard deviation that was estimated.
    unit = jnp.where(error.rescaled, ability - scorer.mean, 0)
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
    for i, by_row in enumerate(moves.items):
        for k, by_column in enumerate(moves.items):
            total = total + (by_row * by_column) @ error.items[:, i, k]
    return jnp.maximum(total, 0) + jnp.sum(shared**2, axis=1), shared
