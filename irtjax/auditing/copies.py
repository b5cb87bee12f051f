"""Items that copy each other: the same responses from everybody who met both."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from irtjax.data.sparse_table import SparseCells
from irtjax.numerics.programs import stored_jit
from irtjax.validity.residual_cells import best_of_each, cell_chances, pairs_of_items
from irtjax.validity.residuals import WIDTH, chances

#: Chance below which full agreement of two items is none.
CERTAIN = 0.01


class Duplicates(NamedTuple):
    """Items with the same responses from everybody, each `[items]`.

    Where responses are missing, the twin is the one that most subjects met with the
    item, unless the bound is 1, and items are of one group if agreement by chance is
    very improbable (`CERTAIN`).
    """

    group: np.ndarray  # number of the group of equal items; -1 without a twin
    twin: np.ndarray  # another item with the same responses; -1 if there is none
    p_value: np.ndarray  # bound on the chance that any other item agrees so fully


def duplicates(
    family: Any,
    items: Any,
    theta: np.ndarray,
    values: np.ndarray,
    observed: np.ndarray | None,
    width: int = WIDTH,
) -> Duplicates:
    """Items answered alike by every subject who met both, and how likely that is.

    Two items that depend on ability alone agree on these subjects with probability
    prod_i (P_ij P_ik + Q_ij Q_ik); the p-value is that times the number of partners.
    Whichever of the agreeing items is chosen, it is an upper bound (Bonferroni).
    `values` are 0 and 1, `[subjects, items]`; a block has `width` items.
    """
    size = values.shape[1]
    # Items that have right responses and wrong ones.
    count = values.shape[0] if observed is None else observed.sum(0)
    total = values.sum(0, dtype=np.int64)
    varied = (total > 0) & (total < count)
    if observed is None or observed.all():
        group, twin = _equal_columns(values, varied)
        observed = None
    else:
        group, twin = None, _partners(values, observed, varied, min(width, size))
    places, p_value = np.flatnonzero(twin >= 0), np.where(varied, 1.0, np.nan)
    ability = jnp.asarray(theta, items[0].dtype)
    for start in range(0, places.size, width):
        rows = places[start : start + width]
        # A fixed number of rows: one program for all blocks.
        padded = np.pad(rows, (0, width - rows.size), mode="edge")
        met = True
        if observed is not None:
            met = jax.device_put(observed[:, padded] & observed[:, twin[padded]])
        here, there = (
            jax.tree.map(lambda x, r=r: np.asarray(x)[r], items)
            for r in (padded, twin[padded])
        )
        chance = np.asarray(_agreement(family, here, there, ability, met))
        p_value[rows] = np.minimum(1, chance[: rows.size] * (size - 1))
    if group is None:
        return _grouped(twin, p_value)
    return Duplicates(group, twin, p_value)


def duplicates_of_cells(
    family: Any, items: Any, theta: np.ndarray, cells: SparseCells
) -> Duplicates:
    """`duplicates` of a table of which few cells are observed, by these alone."""
    size, row, column = cells.num_items, cells.row, cells.column
    count, total = cells.count(0), cells.sum(0)
    varied = (total > 0) & (total < count)
    sign = np.where(cells.value > 0, 1.0, -1.0) * varied[column]
    twin = np.full(size, -1)
    for first, second, (agreed, met) in pairs_of_items(
        cells, (sign, sign), (sign**2, sign**2)
    ):
        best = best_of_each(first, met, (met > 0) & (agreed == met))
        twin[first[best]] = second[best]
    # Cells of subjects who met the twin as well.
    mine = np.flatnonzero(twin[column] >= 0)
    there = cells.find(row[mine], twin[column[mine]])
    mine, there = mine[there >= 0], there[there >= 0]
    chance = cell_chances(family, items, theta, row, column)
    p, q = chance[mine], chance[there]
    agreement = np.log(p * q + (1 - p) * (1 - q))
    chance = np.exp(np.bincount(column[mine], agreement, size))
    p_value = np.where(twin >= 0, np.minimum(1, chance * (size - 1)), 1.0)
    return _grouped(twin, np.where(varied, p_value, np.nan))


def _grouped(twin: np.ndarray, p_value: np.ndarray) -> Duplicates:
    """Groups of items whose agreement is no chance, where responses are missing."""
    size = twin.size
    # Of few subjects agreement is no evidence: nearly all items agree with one.
    twin = np.where(p_value < 1, twin, -1)
    sure = np.flatnonzero((twin >= 0) & (p_value <= CERTAIN))
    links = coo_array((np.ones(sure.size), (sure, twin[sure])), shape=(size, size))
    _, component = connected_components(links, directed=False)
    return Duplicates(np.where(twin >= 0, component, -1), twin, p_value)


def _equal_columns(
    values: np.ndarray, varied: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Groups of equal items, and another of each group, where nothing is missing."""
    size = values.shape[1]
    keys = np.ascontiguousarray(np.packbits(values > 0, axis=0).T)
    keys = keys.view(np.dtype((np.void, keys.shape[1])))[:, 0]
    _, code, counts = np.unique(keys, return_inverse=True, return_counts=True)
    code = code.reshape(-1)
    group, twin = np.full(size, -1), np.full(size, -1)
    places = np.flatnonzero(varied & (counts[code] > 1))
    if places.size:
        _, group[places] = np.unique(code[places], return_inverse=True)
        order = places[np.argsort(group[places], kind="stable")]
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        first, second = order[starts], order[starts + 1]
        twin[places] = first[group[places]]
        twin[first] = second
    return group, twin


def _partners(
    values: np.ndarray, observed: np.ndarray, varied: np.ndarray, width: int
) -> np.ndarray:
    """Of the items that agree with each, the one that most subjects met with it.

    Blocks of items are compared two by two, without a matrix of all pairs.
    """
    size = values.shape[1]
    most = np.zeros(size, np.float32)
    partner = np.full(size, -1)

    def block(start: int) -> jax.Array:
        mine = slice(start, start + width)
        sign = np.where(values[:, mine] > 0, 1, -1) * observed[:, mine] * varied[mine]
        short = width - sign.shape[1]
        return jnp.asarray(np.pad(sign, ((0, 0), (0, short))), jnp.float32)

    for a in range(0, size, width):
        first = block(a)
        for b in range(a, size, width):
            second = first if a == b else block(b)
            best = [np.asarray(x) for x in _met_and_agreed(first, second, a == b)]
            for here, there, count, place in ((a, b, *best[:2]), (b, a, *best[2:])):
                mine = np.arange(here, min(here + width, size))
                better = count[: mine.size] > most[mine]
                most[mine[better]] = count[: mine.size][better]
                partner[mine[better]] = there + place[: mine.size][better]
    return partner


@stored_jit
def _met_and_agreed(first: jax.Array, second: jax.Array, same: bool):
    """Most subjects that an item shares with one it agrees with, and its place.

    Signs are 1 for right, -1 for wrong and 0 for missing: their products sum to the
    agreements less the disagreements, and the products of their squares to both.
    """
    met = (first**2).T @ second**2
    agreed = jnp.where(first.T @ second == met, met, 0.0)
    if same:
        agreed = jnp.where(jnp.eye(len(agreed), dtype=bool), 0.0, agreed)
    sides = agreed, agreed.T
    return [f(x, axis=1) for x in sides for f in (jnp.max, jnp.argmax)]


@stored_jit
def _agreement(family, here, there, ability, met):
    """Chance that all subjects who met both items answer them alike, `[pairs]`."""
    p, q = chances(family, here, ability), chances(family, there, ability)
    return jnp.exp(jnp.sum(jnp.where(met, jnp.log(p * q + (1 - p) * (1 - q)), 0), 0))
