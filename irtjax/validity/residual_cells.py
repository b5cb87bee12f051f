"""`residuals` of tables of which few cells are observed, by these cells alone.

Sums over the subjects who answered an item, or two items, are sums over observed cells:
pairs of items are those that a subject met both of, and products of sparse matrices
form their sums. Time is proportional to the sum over subjects of the squared number of
responses, memory to the number of responses and a block of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax.data.sparse_table import SparseCells
from irtjax.numerics.progress import watched
from irtjax.numerics.tails import bennett_exponent
from irtjax.validity.residuals import (
    LEAST_NORM,
    UNEXPECTED,
    Partners,
    Residuals,
    chances,
    partners_of,
)

#: Cells of a block of chances, and pairs of items of a block.
BLOCK = 2**22


@eqx.filter_jit
def _chances_of(family: Any, items: Any, theta: jax.Array, item: jax.Array):
    """Probability of a right response of single cells, as by `residuals.chances`."""
    row = lambda tree: jax.tree.map(lambda x: x[None], tree)
    one = lambda own, at: chances(family, row(own), at[None])[0, 0]
    return jax.vmap(one)(jax.tree.map(lambda x: x[item], items), theta)


def cell_chances(
    family: Any, items: Any, theta: np.ndarray, row: np.ndarray, column: np.ndarray
) -> np.ndarray:
    """Probability of a right response of cells, `[cells]`, kept off 0 and 1.

    >>> from irtjax.models.families.logistic import Binary, LogisticItems
    >>> one = LogisticItems(*(jnp.array([x]) for x in (1.0, 0.0, 0.0, 1.0)))
    >>> at = np.zeros(1, int)
    >>> cell_chances(Binary(), one, np.array([0.0]), at, at).tolist()
    [0.5]
    """
    size = max(1, min(len(row), BLOCK))
    at = np.asarray(theta).astype(np.asarray(items[0]).dtype)
    chances = np.empty(len(row))
    for start in range(0, len(row), size):
        # Blocks of one shape: the last one repeats its last cell.
        part = np.minimum(np.arange(start, start + size), len(row) - 1)
        chances[part] = np.asarray(
            _chances_of(
                family, items, jnp.asarray(at[row[part]]), jnp.asarray(column[part])
            )
        )
    return chances


def item_fit_of_cells(family: Any, items: Any, theta, cells: SparseCells) -> Residuals:
    """`residuals.item_fit` of observed cells."""
    chance = cell_chances(family, items, theta, cells.row, cells.column)
    variance = chance * (1 - chance)
    square = (cells.value - chance) ** 2
    low = chance < UNEXPECTED
    of_items = lambda numbers: cells.sum(0, numbers)
    count = cells.count(0)
    infit = of_items(square) / np.maximum(of_items(variance), 1e-12)
    outfit = of_items(square / variance) / np.maximum(count, 1)
    return Residuals(
        np.where(count > 0, infit, np.nan),
        np.where(count > 0, outfit, np.nan),
        of_items(low * cells.value),
        of_items(low * chance),
        _expected_of_all(family, items, theta) - of_items(chance),
    )


def _expected_of_all(family: Any, items: Any, theta: np.ndarray) -> np.ndarray:
    """Right responses `[items]` expected if every subject answered, in blocks."""
    size = len(items[0])
    width = int(np.clip(BLOCK // max(len(theta), 1), 1, size))
    ability = jnp.asarray(theta, items[0].dtype)
    totals = np.empty(size)
    for start in range(0, size, width):
        # Blocks of one shape: the last one begins earlier.
        part = slice(min(start, size - width), min(start, size - width) + width)
        own = jax.tree.map(lambda x, part=part: x[part], items)
        totals[part] = np.asarray(_sums(family, own, ability), float)
    return totals


@eqx.filter_jit
def _sums(family, items, theta):
    return jnp.sum(chances(family, items, theta), 0)


def pairs_of_items(
    cells: SparseCells, *numbers: tuple[np.ndarray, np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray, list[np.ndarray]]]:
    """Sums over the subjects who met both items of a pair, in blocks of first items.

    Yields the first items, the second ones, and the sum of each product of `numbers`,
    pairs `[cells]` of the first and of the second item. Pairs are in the order of the
    first, then of the second item; an item is no pair with itself.
    """
    from scipy.sparse import csr_array

    size = cells.num_items
    matrix = lambda x: csr_array((x, cells.column, cells.start), cells.shape)
    ones = np.ones(len(cells.column))
    met = matrix(ones)
    firsts = [met.tocsc(), *(matrix(x).tocsc() for x, _ in numbers)]
    seconds = [met, *(matrix(x) for _, x in numbers)]
    width = max(1, BLOCK // max(size, 1))
    for start in watched(range(0, size, width)):
        products: Any = [
            (x[:, start : start + width].T @ y).tocsr()
            for x, y in zip(firsts, seconds, strict=True)
        ]
        keys = []
        for product in products:
            product.sort_indices()
            line = np.repeat(np.arange(product.shape[0]), np.diff(product.indptr))
            keys.append(line.astype(np.int64) * size + product.indices)
        here = keys[0]
        first, second = here // size + start, here % size
        other = first != second
        sums = []
        for product, key in zip(products[1:], keys[1:], strict=True):
            # A sum that is exactly 0 may be left out.
            total = np.zeros(here.size)
            total[np.searchsorted(here, key)] = product.data
            sums.append(total[other])
        yield first[other], second[other], sums


def best_of_each(
    first: np.ndarray, merit: np.ndarray, allowed: np.ndarray
) -> np.ndarray:
    """Of the pairs of each first item the one of most merit, the earliest of equals.

    >>> first, merit = np.array([0, 0, 2, 2]), np.array([1.0, 3.0, 2.0, 2.0])
    >>> best_of_each(first, merit, np.array([True, True, True, True])).tolist()
    [1, 2]
    """
    place = np.flatnonzero(allowed)
    order = place[np.lexsort((-merit[place], first[place]))]
    return order[np.flatnonzero(np.diff(first[order], prepend=-1))]


def dependence_of_cells(
    family: Any, items: Any, theta: np.ndarray, cells: SparseCells
) -> Partners:
    """`residuals.dependence` of observed cells, in double precision."""
    chance = cell_chances(family, items, theta, cells.row, cells.column)
    residual, variance = cells.value - chance, chance * (1 - chance)
    one, square = np.ones(len(chance)), residual**2
    products = (residual, residual), (variance, variance), (square, one), (one, square)
    partner = np.full(cells.num_items, -1)
    numbers = np.zeros((3, cells.num_items))
    for first, second, sums in pairs_of_items(cells, *products):
        total, common_variance, own, other = sums
        norms = own * other
        best = best_of_each(
            first, bennett_exponent(total, common_variance), norms > LEAST_NORM
        )
        at = first[best]
        partner[at] = second[best]
        numbers[:, at] = total[best], common_variance[best], norms[best]
    return partners_of(partner, *numbers)
