"""Equality constraints between the coordinates of items, and their Newton step.

Items of a set have some coordinates in common, such as an item divided by groups of
subjects whose slope is the same in each. The curvature of a set is an arrow matrix. The
other coordinates of each item are eliminated by their Schur complement. The sums of
these complements over the set determine the step of the common coordinates.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from irtjax.likelihood.item_steps import (
    LONGEST_STEP,
    ItemUpdate,
    NodeCounts,
    expected_derivatives,
    expected_value,
    shortened_step,
)
from irtjax.models.model import Model
from irtjax.numerics.kernels import positive_definite_solve


class EqualityConstraints(NamedTuple):
    """Which coordinates of items are equal.

    Attributes:
        sets: `[items]` the set of each item, a number below the number of items.
        equal: `[items, columns]` whether a coordinate is that of all items of the set.
    """

    sets: Int[Array, " items"]
    equal: Bool[Array, "items columns"]

    def total(self, values: Float[Array, "items *rest"]) -> Array:
        """Of each item the sum over its set."""
        return jax.ops.segment_sum(values, self.sets, len(values))[self.sets]

    def applied(self, coordinates: Float[Array, "items columns"]) -> Array:
        """The coordinates, those that are equal at their means over the set."""
        count = self.total(jnp.ones(len(coordinates), coordinates.dtype))
        mean = self.total(coordinates) / count[:, None]
        return jnp.where(self.equal, mean, coordinates)


def improve_equal_items(
    model: Model,
    coordinates: Float[Array, "items columns"],
    free: Bool[Array, "items columns"],
    constraints: EqualityConstraints,
    nodes: Float[Array, " nodes"],
    counts: NodeCounts,
    frame: Float[Array, "2"],
) -> ItemUpdate:
    """One safeguarded Newton step of items under constraints; see `improve_items`.

    Gradient and curvature of an equal coordinate are the sums over its set.
    """
    value, gradient, curvature = expected_derivatives(
        model, coordinates, nodes, counts, frame
    )
    identity = jnp.eye(coordinates.shape[1], dtype=coordinates.dtype)
    gradient = jnp.where(free, gradient, 0)
    free_pairs = free[:, :, None] & free[:, None, :]
    curvature = jnp.where(free_pairs, curvature, identity)
    equal, total = constraints.equal, constraints.total
    common = equal[:, :, None] & equal[:, None, :]
    own = ~equal[:, :, None] & ~equal[:, None, :]
    blocks = jnp.where(own, curvature, identity)
    border = jnp.where(~equal[:, :, None] & equal[:, None, :], curvature, 0)
    inner = positive_definite_solve(blocks, jnp.where(equal, 0, gradient))[0]
    solve = jax.vmap(lambda x: positive_definite_solve(blocks, x)[0], 2, 2)
    across = solve(border)
    schur = jnp.where(common, curvature, 0) - jnp.einsum("jha,jhb->jab", border, across)
    right = jnp.where(equal, gradient, 0) - jnp.einsum("jha,jh->ja", border, inner)
    schur = jnp.where(common, total(schur), identity)
    move = jnp.where(equal, positive_definite_solve(schur, total(right))[0], 0)
    step = inner - jnp.einsum("jab,jb->ja", across, move) + move
    longest = jnp.max(jnp.abs(step), axis=1)
    longest = jax.ops.segment_max(longest, constraints.sets, len(longest))
    longest = longest[constraints.sets]
    step = step * jnp.minimum(1, LONGEST_STEP / jnp.maximum(longest, 1e-30))[:, None]
    value_of = lambda x: total(expected_value(model, x, nodes, counts, frame))
    best = shortened_step(value_of, coordinates, step, total(value))
    diagonal = jnp.diagonal(curvature, axis1=1, axis2=2)
    gradient = jnp.where(equal, total(gradient), gradient)
    diagonal = jnp.where(equal, total(diagonal), diagonal)
    floor = jnp.finfo(value.dtype).tiny * 1e6
    return ItemUpdate(best, gradient, jnp.maximum(jnp.abs(diagonal), floor))
