"""Networks that map subjects and items to abilities and item coordinates.

Each side is a table with a row for every subject or item, and a small network from a
row to the output. A step reads and writes only the rows of its cells, and their part of
the optimiser's state, so its cost does not depend on the number of items.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from irtjax._types import KeyArray
from irtjax.numerics.memory import require_memory

#: SD of random rows at the start: items with few responses stay near each other.
FIRST_ROW = 0.01


class Tower(NamedTuple):
    """A network on rows of a table: layers with rectified units between them.

    `shift` is added to rows of a table before a rectifier; None where rows are
    features, the inputs of the first layer. Weights are `[inputs, outputs]`.
    """

    shift: Float[Array, " width"] | None
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def __call__(self, rows: Float[Array, "rows width"]) -> Float[Array, "rows out"]:
        """Outputs of some rows."""
        x = rows if self.shift is None else jax.nn.relu(rows + self.shift)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jax.nn.relu(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]


def make_tower(
    width: int, hidden: Sequence[int], outputs: Array, *, looked_up: bool, key: KeyArray
) -> Tower:
    """A network on table rows (`looked_up`) or features, near `outputs` at first."""
    dtype = outputs.dtype
    sizes = (width, *hidden, outputs.shape[0])
    # Weights and the two moments of the optimiser.
    require_memory(
        12.0 * sum(a * b for a, b in itertools.pairwise(map(float, sizes))),
        f"layers of {', '.join(f'{x:,}' for x in sizes)} numbers",
        "lower embedding_size or the widths of layers",
    )
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
    # The last bias takes off the output of the shift alone.
    at_zero = tower(jnp.zeros((1, width), dtype))[0] - outputs
    return tower._replace(biases=(*biases[:-1], outputs - at_zero))


class Graph(NamedTuple):
    """Aggregation of one side's rows from the rows it has met on the other.

    A neighbour q met with response r has the state c = e_q * (A e_q + r w + b), and as
    its share a softmax of leaky(u e_s + v c): Zhou et al. 2025 (Lost in Benchmarks?),
    equations 5 to 7. States depend on q and r alone: steps are products of matrices.
    """

    matrix: Float[Array, "width width"]
    by_response: Float[Array, " width"]
    bias: Float[Array, " width"]
    own: Float[Array, " width"]
    others: Float[Array, " width"]


def make_graph(width: int, dtype: Any, *, key: KeyArray) -> Graph:
    """A random aggregation."""
    shapes = ((width, width), *[(width,)] * 4)
    parts = [
        jax.random.uniform(k, shape, dtype, -(width**-0.5), width**-0.5)
        for k, shape in zip(jax.random.split(key, 5), shapes, strict=True)
    ]
    return Graph(*parts)


def aggregate(
    graph: Graph,
    own: Float[Array, "rows width"],
    others: Float[Array, "columns width"],
    right: Bool[Array, "rows columns"],
    wrong: Bool[Array, "rows columns"],
) -> Float[Array, "rows width"]:
    """Rows `own` with the messages of their neighbours, which are given by response."""
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
    of_right, of_wrong = (jnp.where(cells, share, 0) for cells in (right, wrong))
    return own + (of_right @ states[1] + of_wrong @ states[0])


class Table(NamedTuple):
    """Learned rows, and the optimiser's state: arrays like the rows, and counts."""

    rows: Float[Array, "count width"]
    optimiser: Any


def make_table(count: int, width: int, optimiser, dtype, *, key: KeyArray) -> Table:
    """A table of small random rows."""
    rows = FIRST_ROW * jax.random.normal(key, (count, width), dtype)
    return Table(rows, optimiser.init(rows))


def update_rows(
    table: Table,
    places: Int[Array, " batch"],
    gradient: Float[Array, "batch width"],
    optimiser: optax.GradientTransformation,
) -> Table:
    """The table after a step on some rows, which may repeat ("lazy" Adam)."""
    is_rows = lambda leaf: leaf.shape == table.rows.shape
    take = lambda leaf: leaf[places] if is_rows(leaf) else leaf
    state, rows = jax.tree.map(take, table.optimiser), table.rows[places]
    # Sums over equal places, in an array no larger than the batch: XLA would copy a
    # whole table in every step.
    group, size = places, table.rows.shape[0]
    if size > places.shape[0]:
        size = places.shape[0]
        group = jnp.unique(places, return_inverse=True, size=size)[1]
    sums = jnp.zeros((size, rows.shape[1]), gradient.dtype).at[group].add(gradient)
    move, state = optimiser.update(sums[group], state, rows)
    moved = jnp.asarray(optax.apply_updates(rows, move))
    # Repeated places all write the same.
    put = lambda old, new: old.at[places].set(new) if is_rows(old) else new
    return Table(put(table.rows, moved), jax.tree.map(put, table.optimiser, state))
