"""Items that copy each other: the same responses from everybody who met both."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from irtjax.data.stored_cells import AbstractStoredCells
from irtjax.validity.residuals import chance_at

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


def _signs(varied: jax.Array, ability: jax.Array, value: jax.Array):
    """1 of a right response, -1 of a wrong one, and its square, 0 without variation.

    Products of signs of two items sum to the agreements less the disagreements, those
    of their squares to both.
    """
    del ability
    sign = jnp.where(value > 0, 1.0, -1.0) * varied
    return (sign, sign), (sign**2, sign**2)


def _met_and_agreed(agreed: Any, met: Any) -> Any:
    """Subjects who met both of two items that they answered alike; -1 of others."""
    where = met.__array_namespace__().where
    return where((met > 0) & (agreed == met), met, -1.0)


def _agreement(family: Any, pair: Any, ability: jax.Array, value: jax.Array):
    """Logarithm of the chance that a subject answers two items alike."""
    del value
    p, q = (chance_at(family, item, ability) for item in pair)
    return jnp.log(p * q + (1 - p) * (1 - q))


def duplicates(
    family: Any, items: Any, theta: np.ndarray, cells: AbstractStoredCells
) -> Duplicates:
    """Items answered alike by every subject who met both, and how likely that is.

    Two items that depend on ability alone agree on these subjects with probability
    prod_i (P_ij P_ik + Q_ij Q_ik); the p-value is that times the number of partners.
    Whichever of the agreeing items is chosen, it is an upper bound (Bonferroni).
    Responses are 0 and 1.
    """
    count, total = cells.count(0), cells.sum(0)
    # Items that have right responses and wrong ones.
    varied = (total > 0) & (total < count)
    ability = jnp.asarray(theta, items[0].dtype)
    group = None
    if cells.is_complete:
        group, twin = _equal_columns(cells.dense[0], varied)
    else:
        twin, _ = cells.best_partners(_signs, _met_and_agreed, varied, ability)
    places, p_value = np.flatnonzero(twin >= 0), np.where(varied, 1.0, np.nan)
    if places.size:
        there = twin[places]
        pair = tuple(
            jax.tree.map(lambda x, rows=rows: np.asarray(x)[rows], items)
            for rows in (places, there)
        )
        twins = cells.paired(places, there)
        log_chance = twins.item_sums(Partial(_agreement, family), pair, ability)
        p_value[places] = np.minimum(1, np.exp(log_chance) * (len(twin) - 1))
    if group is None:
        return _grouped(twin, p_value)
    return Duplicates(group, twin, p_value)


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
