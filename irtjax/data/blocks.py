"""A block of rows of the responses: subjects with items, or items with subjects.

A block of a matrix has every column. A block of observed cells has those of each row
alone, side by side, and the number of the column of each. Functions of a block are
written with what both have. What belongs to columns (`theirs`, records) is given as
`columns` returns it, so that it is gathered once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from irtjax.numerics.kernels import take_block
from irtjax.numerics.sparse import Bucket


class DenseBlock(NamedTuple):
    """Consecutive rows with every column.

    Attributes:
        start: Number of the first row.
        values: Responses, 0 where missing.
        exposure: Trials or mask; None for ones.
    """

    start: Array
    values: Float[Array, "rows columns"]
    exposure: Array | None

    def rows(self, array: Any) -> Any:
        """The block's rows of an array with a row for each of all."""
        return take_block(array, self.start, self.values.shape[0])

    def columns(self, tree: Any) -> Any:
        """Arrays by column at the cells, without an axis of rows: `[columns, ...]`."""
        return tree

    def at_cells(self, function: Callable[[Any, Array], Any], records: Any, at: Array):
        """`function(record of the column, number)` of numbers at the cells."""
        return jax.vmap(jax.vmap(function), (None, 0))(records, at)

    def products(self, own: Array, theirs: Array) -> Float[Array, "rows columns"]:
        """Products of the rows' vectors with those of the columns, both `[..., p]`."""
        return own @ theirs.T

    def sums(self, cells: Array, theirs: Array) -> Float[Array, "rows m"]:
        """Sums over the cells of each row, times vectors of the columns."""
        return cells @ theirs

    def outer_sums(self, cells: Array, left: Array, right: Array) -> Array:
        """Sums over the cells of each row, times outer products of two vectors."""
        pairs = left[:, :, None] * right[:, None, :]
        sums = cells @ pairs.reshape(len(pairs), -1)
        return sums.reshape(-1, *pairs.shape[1:])

    def forms(self, matrices: Array, theirs: Array) -> Float[Array, "rows columns"]:
        """Quadratic forms v'M v of the rows' matrices, in the columns' vectors."""
        pairs = theirs[:, :, None] * theirs[:, None, :]
        return matrices.reshape(len(matrices), -1) @ pairs.reshape(len(pairs), -1).T


class ObservedBlock(NamedTuple):
    """Rows with their observed cells; cells of padding have exposure 0.

    Attributes:
        row: Numbers of the rows; past the last one for rows of padding.
        column: Number of the column of each cell.
        values: Responses.
        exposure: Trials, 0 of padding.
    """

    row: Int[Array, " rows"]
    column: Int[Array, "rows cells"]
    values: Float[Array, "rows cells"]
    exposure: Array

    @classmethod
    def of(cls, part: Bucket) -> ObservedBlock:
        """The rows of a chunk."""
        return cls(*part)

    def rows(self, array: Any) -> Any:
        """The block's rows of an array with a row for each of all."""
        return None if array is None else array.at[self.row].get(mode="clip")

    def columns(self, tree: Any) -> Any:
        """Arrays by column at the cells, `[rows, cells, ...]`."""
        return jax.tree.map(lambda x: x[self.column], tree)

    def at_cells(self, function: Callable[[Any, Array], Any], records: Any, at: Array):
        """`function(record of the column, number)` of numbers at the cells."""
        return jax.vmap(jax.vmap(function))(records, at)

    def products(self, own: Array, theirs: Array) -> Float[Array, "rows cells"]:
        """Products of the rows' vectors with those of the columns, both `[..., p]`."""
        return jnp.einsum("rp,rwp->rw", own, theirs)

    def sums(self, cells: Array, theirs: Array) -> Float[Array, "rows m"]:
        """Sums over the cells of each row, times vectors of the columns."""
        return jnp.einsum("rw,rwm->rm", cells, theirs)

    def outer_sums(self, cells: Array, left: Array, right: Array) -> Array:
        """Sums over the cells of each row, times outer products of two vectors."""
        return jnp.einsum("rw,rwp,rwq->rpq", cells, left, right)

    def forms(self, matrices: Array, theirs: Array) -> Float[Array, "rows cells"]:
        """Quadratic forms v'M v of the rows' matrices, in the columns' vectors."""
        return jnp.einsum("rpq,rwp,rwq->rw", matrices, theirs, theirs)


#: Either of them.
Block = DenseBlock | ObservedBlock
