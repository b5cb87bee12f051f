"""Networks that map subjects and items to abilities and item coordinates.

Each side is a table with a row for every subject or item, looked up and never a product
with a one-hot matrix, and a small network from a row to the output. A batch of
cells touches few rows of a table: only those, and their part of the optimiser's state,
are read and written, so that a step costs the same however many items there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from irtjax._types import KeyArray

#: Size of random rows at the start: items that are hardly seen stay near each other.
FIRST_ROW = 0.01


def check_rate(name: str, value: float | Array, *, positive: bool = True) -> None:
    """Refuses a setting of an optimiser that is no number above, or at least, 0."""
    if not isinstance(value, float | int):
        return
    if not math.isfinite(value) or value < 0 or (positive and value == 0):
        least = "above" if positive else "at least"
        raise ValueError(f"{name} {value:g} is not a number {least} 0")


class Tower(NamedTuple):
    """A network on rows of a table: layers with rectified units between them.

    Attributes:
        shift: `[width]` added to every row of a table, what all rows share; None where
            rows are given features, which go into the first layer as they are.
        weights: Matrices `[inputs, outputs]`, layer by layer.
        biases: Vectors `[outputs]`.
    """

    shift: Float[Array, " width"] | None
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def __call__(self, rows: Float[Array, "rows width"]) -> Float[Array, "rows out"]:
        """Outputs of some rows."""
        x = rows if self.shift is None else jax.nn.relu(rows + self.shift)
        last = len(self.weights) - 1
        for place, (weight, bias) in enumerate(
            zip(self.weights, self.biases, strict=True)
        ):
            x = x @ weight + bias
            x = x if place == last else jax.nn.relu(x)
        return x


def make_tower(
    width: int,
    hidden: Sequence[int],
    outputs: Float[Array, " out"],
    *,
    looked_up: bool,
    key: KeyArray,
) -> Tower:
    """A network whose outputs start near given ones.

    Args:
        width: Of the rows.
        hidden: Widths of the hidden layers after the rows.
        outputs: `[out]` what to put out at first.
        looked_up: Whether rows are of a table, with a shift and a rectifier; else they
            are features.
        key: Random key.
    """
    dtype = outputs.dtype
    sizes = (width, *hidden, outputs.shape[0])
    keys = jax.random.split(key, len(sizes))
    weights = tuple(
        jax.random.uniform(k, (a, b), dtype, -(a**-0.5), a**-0.5)
        for k, a, b in zip(keys[1:], sizes[:-1], sizes[1:], strict=True)
    )
    biases = [jnp.zeros(size, dtype) for size in sizes[1:-1]] + [outputs]
    shift = jax.random.uniform(keys[0], (width,), dtype) if looked_up else None
    tower = Tower(shift, weights, tuple(biases))
    if not looked_up:
        return tower
    # What the shared row leads to is taken off again.
    there = tower(jnp.zeros((1, width), dtype))[0] - outputs
    biases[-1] = outputs - there
    return tower._replace(biases=tuple(biases))


class Graph(NamedTuple):
    """Aggregation of one side's rows from the rows it has met on the other.

    For a neighbour q met with response r the state is c = e_q * (A e_q + r w + b), its
    share a softmax over neighbours of leaky(u e_s + v c): Zhou et al. 2025 (Lost in
    Benchmarks?), equations 5 to 7. States depend on q and r alone, so that with two
    responses everything is products of matrices.
    """

    matrix: Float[Array, "width width"]
    by_response: Float[Array, " width"]
    bias: Float[Array, " width"]
    own: Float[Array, " width"]
    others: Float[Array, " width"]


def make_graph(width: int, dtype: Any, *, key: KeyArray) -> Graph:
    """A random aggregation."""
    keys = jax.random.split(key, 5)
    shapes = ((width, width), (width,), (width,), (width,), (width,))
    return Graph(
        *(
            jax.random.uniform(k, shape, dtype, -(width**-0.5), width**-0.5)
            for k, shape in zip(keys, shapes, strict=True)
        )
    )


def aggregate(
    graph: Graph,
    own: Float[Array, "rows width"],
    others: Float[Array, "columns width"],
    right: Bool[Array, "rows columns"],
    wrong: Bool[Array, "rows columns"],
) -> Float[Array, "rows width"]:
    """Rows with the messages of their neighbours; unchanged without neighbours.

    Args:
        graph: The aggregation.
        own: Rows of this side.
        others: Rows of the other side.
        right: Cells that link them by a right response.
        wrong: Cells that link them by a wrong one.
    """
    gate = others @ graph.matrix + graph.bias
    states = (others * gate, others * (gate + graph.by_response))
    toward = (own @ graph.own)[:, None]
    scores = [jax.nn.leaky_relu(toward + state @ graph.others) for state in states]
    met = right | wrong
    score = jnp.where(right, scores[1], scores[0])
    top = jnp.max(jnp.where(met, score, -jnp.inf), axis=1, keepdims=True)
    top = jax.lax.stop_gradient(jnp.where(jnp.isfinite(top), top, 0))
    share = jnp.where(met, jnp.exp(jnp.where(met, score - top, 0)), 0)
    share = share / jnp.maximum(jnp.sum(share, axis=1, keepdims=True), 1e-30)
    told = (
        jnp.where(right, share, 0) @ states[1]
        + jnp.where(wrong, share, 0) @ (states[0])
    )
    return own + told


class Table(NamedTuple):
    """Learned rows, with the optimiser's state of each.

    Attributes:
        rows: `[count, width]`.
        optimiser: The optimiser's state: arrays like the rows, and counts.
    """

    rows: Float[Array, "count width"]
    optimiser: Any


def make_table(
    count: int,
    width: int,
    optimiser: optax.GradientTransformation,
    dtype: Any,
    *,
    key: KeyArray,
) -> Table:
    """A table of small random rows."""
    rows = FIRST_ROW * jax.random.normal(key, (count, width), dtype)
    return Table(rows, optimiser.init(rows))


def update_rows(
    table: Table,
    places: Int[Array, " batch"],
    gradient: Float[Array, "batch width"],
    optimiser: optax.GradientTransformation,
) -> Table:
    """The table after a step of the rows at some places, which may repeat.

    Rows that a batch does not touch stay as they are, moments included ("lazy" Adam).

    Args:
        table: The table.
        places: Of the rows.
        gradient: By each of the places; those of a place are added up.
        optimiser: An elementwise optimiser.
    """
    is_rows = lambda leaf: leaf.shape == table.rows.shape  # noqa: E731
    take = lambda leaf: leaf[places] if is_rows(leaf) else leaf  # noqa: E731
    state = jax.tree.map(take, table.optimiser)
    rows = table.rows[places]
    total = _added_up(places, gradient, table.rows.shape[0])
    move, state = optimiser.update(total, state, rows)
    moved = jnp.asarray(optax.apply_updates(rows, move))
    # Repeated places all write the same.
    put = lambda old, new: old.at[places].set(new) if is_rows(old) else new  # noqa: E731
    return Table(
        table.rows.at[places].set(moved), jax.tree.map(put, table.optimiser, state)
    )


def _added_up(places: Array, gradient: Array, count: int) -> Array:
    """For each place of a batch the sum over all equal places.

    In room of the batch's size: a table that is added to and then cleared again would
    be copied by XLA in every step.
    """
    group, size = places, count
    if count > places.shape[0]:
        order = jnp.argsort(places)
        inside = places[order]
        new = jnp.concatenate([jnp.zeros(1, bool), inside[1:] != inside[:-1]])
        number = jnp.cumsum(new, dtype=places.dtype)
        group = jnp.zeros_like(places).at[order].set(number)
        size = places.shape[0]
    room = jnp.zeros((size, gradient.shape[1]), gradient.dtype)
    return room.at[group].add(gradient)[group]
