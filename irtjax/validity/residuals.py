"""Residuals of a fit, cell by cell: infit and outfit, surprises, dependent items."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.numerics.programs import stored_jit
from irtjax.numerics.progress import watched
from irtjax.numerics.tails import bennett_bound

#: Items of a block; two blocks are compared at a time.
WIDTH = 2048
#: Chance of a right response below which one counts as unexpected.
UNEXPECTED = 0.2
#: Product of sums of squared residuals below which there is no correlation.
LEAST_NORM = 1e-12
#: Residual correlation from which items count as dependent (Christensen, Makransky and
#: Horton 2017 find values from 0.2 above the average to be used and defensible).
DEPENDENT = 0.2


class Residuals(NamedTuple):
    """Fit of each item."""

    infit: np.ndarray  # Sum of squared residuals over that of their variances.
    outfit: np.ndarray  # Mean squared standardised residual.
    surprises: np.ndarray  # Right responses less probable than `UNEXPECTED`.
    surprises_expected: np.ndarray  # Their expected number.
    missing_expected: np.ndarray  # Right responses expected of missing cells.


class Partners(NamedTuple):
    """Dependence of each item on the item that it depends on most."""

    q3: np.ndarray  # Correlation of their residuals (Yen 1984); NaN without a partner.
    partner: np.ndarray  # Place of that item; -1 without one.
    p_value: np.ndarray  # Bounds the chance of so much dependence with any item.


@stored_jit
def chances(family: Any, items: Any, theta: jax.Array) -> jax.Array:
    """Probability of a right response, `[subjects, items]`, kept off 0 and 1."""
    over_items = jax.vmap(family.expected_response, in_axes=(0, None))
    chance = jax.vmap(over_items, in_axes=(None, 0))(items, theta)
    # In single precision 1 - p of a sure response is a rounding error.
    return jnp.clip(chance, 1e-6, 1 - 1e-6)


def _blocks(items, values, observed, width):
    """Items, responses and mask of each block; unseen copies fill the last one."""
    size = values.shape[1]
    for start in range(0, size, width):
        places = np.arange(start, start + width)
        rows = np.minimum(places, size - 1)
        # Taken on the host, where this compiles no program for each shape.
        chosen = jax.tree.map(lambda x, rows=rows: np.asarray(x)[rows], items)
        y = values[:, rows]
        seen = np.broadcast_to(places < size, y.shape)
        if observed is not None:
            seen = seen & observed[:, rows]
        yield jax.device_put((chosen, y, seen))


@stored_jit
def _item_fit(family, items, theta, y, seen):
    """Fit of a block of items, sums over subjects."""
    chance = chances(family, items, theta)
    variance = jnp.where(seen, chance * (1 - chance), 0)
    square = jnp.where(seen, (y - chance) ** 2, 0)
    count = jnp.sum(seen, 0)
    outfit = jnp.sum(jnp.where(seen, square / (chance * (1 - chance)), 0), 0)
    low = seen & (chance < UNEXPECTED)
    return (
        jnp.sum(square, 0) / jnp.maximum(jnp.sum(variance, 0), 1e-12),
        outfit / jnp.maximum(count, 1),
        jnp.sum(jnp.where(low, y, 0), 0),
        jnp.sum(jnp.where(low, chance, 0), 0),
        jnp.sum(jnp.where(seen, 0, chance), 0),
    )


def item_fit(family: Any, items: Any, theta, values, observed) -> Residuals:
    """Infit, outfit and unexpected right responses of binary items, in blocks."""
    size = values.shape[1]
    ability = jnp.asarray(theta, items[0].dtype)
    parts = [
        [np.asarray(x, np.float64) for x in _item_fit(family, chosen, ability, y, seen)]
        for chosen, y, seen in _blocks(items, values, observed, min(WIDTH, size))
    ]
    columns = [np.concatenate(x)[:size] for x in zip(*parts, strict=True)]
    count = np.full(size, values.shape[0]) if observed is None else observed.sum(0)
    infit, outfit = (np.where(count > 0, x, np.nan) for x in columns[:2])
    return Residuals(infit, outfit, *columns[2:])


@stored_jit
def _prepare(family, items, theta, y, seen):
    """Residuals and variances, in single precision for the products."""
    chance = chances(family, items, theta)
    residual = jnp.where(seen, y - chance, 0).astype(jnp.float32)
    variance = jnp.where(seen, chance * (1 - chance), 0).astype(jnp.float32)
    return residual, variance


@stored_jit
def _compare(first, second, seen_first, seen_second, same: bool):
    """For each item of two blocks, the other block's item most dependent on it."""
    (r, v), (s, w) = first, second
    total = r.T @ s
    variance = v.T @ w
    if seen_first is None:
        norms = jnp.sum(r**2, 0)[:, None] * jnp.sum(s**2, 0)[None]
    else:
        # Sums over the subjects who answered both.
        seen_first, seen_second = (x.astype(r.dtype) for x in (seen_first, seen_second))
        norms = ((r**2).T @ seen_second) * (seen_first.T @ s**2)
    ratio = jnp.maximum(total, 0) / jnp.maximum(variance, 1e-12)
    # The logarithm of Bennett's bound, less the sign.
    surprise = variance * ((1 + ratio) * jnp.log1p(ratio) - ratio)
    surprise = jnp.where(norms > LEAST_NORM, surprise, -1.0)
    if same:
        surprise = jnp.where(jnp.eye(surprise.shape[0], dtype=bool), -1.0, surprise)
    partners = []
    for axis in (1, 0):
        best = jnp.argmax(surprise, axis)
        picked = [
            jnp.take_along_axis(x, jnp.expand_dims(best, axis), axis).squeeze(axis)
            for x in (surprise, total, variance, norms)
        ]
        partners.append((best, *picked))
    return partners


def dependence(family, items, theta, values, observed, width: int = WIDTH) -> Partners:
    """The largest local dependence of each item, over all pairs of binary items.

    With residuals r = y - P at the estimated abilities, two items that depend on
    ability alone have sum_i r_ij r_ik of mean 0 and variance V = sum_i P Q P' Q'. The
    p-value is Bennett's bound at that sum, times the number of partners. Blocks of
    `width` items are compared two by two, so that no matrix of all pairs is made.
    Q3 is the correlation of the residuals about 0, their mean under the model.
    """
    size = values.shape[1]
    width = min(width, size)
    ability = jnp.asarray(theta, items[0].dtype)
    blocks = [
        (_prepare(family, chosen, ability, y, seen), None if observed is None else seen)
        for chosen, y, seen in _blocks(items, values, observed, width)
    ]
    partner = np.full(width * len(blocks), -1)
    # Of the best partner so far: surprise, total, variance and norms.
    numbers = np.zeros((4, partner.size))
    numbers[0] = -1
    pairs = list(itertools.combinations_with_replacement(range(len(blocks)), 2))
    for a, b in watched(pairs):
        (first, seen_a), (second, seen_b) = blocks[a], blocks[b]
        compared = _compare(first, second, seen_a, seen_b, same=a == b)
        for here, there, best in ((a, b, compared[0]), (b, a, compared[1])):
            mine = slice(here * width, (here + 1) * width)
            place, *new = (np.asarray(x, np.float64) for x in best)
            better = new[0] > numbers[0, mine]
            chosen = there * width + place.astype(int)
            partner[mine] = np.where(better, chosen, partner[mine])
            numbers[:, mine] = np.where(better, new, numbers[:, mine])
    return partners_of(partner[:size], *numbers[1:, :size])


def partners_of(partner, total, variance, norms) -> Partners:
    """The result from the sums of each item with its partner, -1 without one."""
    size = partner.size
    defined = (partner >= 0) & (norms > 0)
    p_value = np.minimum(bennett_bound(total, variance) * max(size - 1, 1), 1)
    q3 = np.where(defined, total / np.sqrt(np.where(defined, norms, 1)), np.nan).clip(
        -1, 1
    )
    return Partners(q3, np.where(defined, partner, -1), np.where(defined, p_value, 1.0))
