"""Residuals of a fit, cell by cell: infit and outfit, surprises, dependent items."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irtjax.numerics.tails import bennett_bound

#: Items of a block; two blocks are compared at a time.
WIDTH = 2048
#: Chance of a right response below which one counts as unexpected.
UNEXPECTED = 0.2
#: Residual correlation from which items count as dependent (Christensen, Makransky and
#: Horton 2017 find values from 0.2 above the average to be used and defensible).
DEPENDENT = 0.2


class Residuals(NamedTuple):
    """Fit of each item, each `[items]`.

    Attributes:
        infit: Squared residuals over their variances, sums by sums.
        outfit: Mean squared standardised residual.
        surprises: Right responses where the model gave less than `UNEXPECTED`.
        surprises_expected: As many as the model expects.
        missing_expected: Right responses that the model expects of the subjects who did
            not answer.
    """

    infit: np.ndarray
    outfit: np.ndarray
    surprises: np.ndarray
    surprises_expected: np.ndarray
    missing_expected: np.ndarray


class Partners(NamedTuple):
    """The item that each depends on most, each `[items]`.

    Attributes:
        q3: Correlation of the residuals of the two (Yen 1984); NaN where there is none.
        partner: Its place among the items; -1 where there is none.
        p_value: Bound on the chance of so much dependence with any item.
    """

    q3: np.ndarray
    partner: np.ndarray
    p_value: np.ndarray


@eqx.filter_jit
def chances(family: Any, items: Any, theta: jax.Array) -> jax.Array:
    """Probability of a right response, `[subjects, items]`, kept off 0 and 1."""
    over_items = jax.vmap(family.expected_response, in_axes=(0, None))
    chance = jax.vmap(over_items, in_axes=(None, 0))(items, theta)
    # In single precision 1 - p of a sure response is a rounding error.
    return jnp.clip(chance, 1e-6, 1 - 1e-6)


def _padded(array: np.ndarray, width: int) -> np.ndarray:
    """Columns of zeros added up to a width."""
    missing = width - array.shape[1]
    return array if not missing else np.pad(array, ((0, 0), (0, missing)))


def _blocks(family, items, theta, values, observed, width):
    """Chances, residuals and mask of each block, padded to one shape."""
    place = np.arange(values.shape[1])
    for start in range(0, values.shape[1], width):
        rows = np.minimum(np.arange(start, start + width), place[-1])
        chosen = jax.tree.map(lambda x, rows=rows: x[rows], items)
        part = slice(start, start + width)
        y = _padded(values[:, part], width)
        real = np.ones((1, y.shape[1]), bool)
        real[:, values.shape[1] - start :] = False
        seen = np.broadcast_to(real, y.shape)
        if observed is not None:
            seen = _padded(observed[:, part], width)
        yield start, chosen, jnp.asarray(y), jnp.asarray(seen)


@eqx.filter_jit
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


def item_fit(
    family: Any,
    items: Any,
    theta: np.ndarray,
    values: np.ndarray,
    observed: np.ndarray | None,
) -> Residuals:
    """Infit, outfit and unexpected right responses, block by block of items.

    Args:
        family: The response family, of right and wrong.
        items: Item records, `[items]`.
        theta: `[subjects]` abilities.
        values: `[subjects, items]` 0 and 1.
        observed: Mask or None.
    """
    size = values.shape[1]
    width = min(WIDTH, size)
    ability = jnp.asarray(theta, items[0].dtype)
    parts = [
        [np.asarray(x, np.float64) for x in _item_fit(family, chosen, ability, y, seen)]
        for _, chosen, y, seen in _blocks(
            family, items, ability, values, observed, width
        )
    ]
    columns = [np.concatenate(x)[:size] for x in zip(*parts, strict=True)]
    count = np.full(size, values.shape[0]) if observed is None else observed.sum(0)
    infit, outfit = (np.where(count > 0, x, np.nan) for x in columns[:2])
    return Residuals(infit, outfit, *columns[2:])


@eqx.filter_jit
def _prepare(family, items, theta, y, seen):
    """Residuals and variances in single precision, which the products take."""
    chance = chances(family, items, theta)
    residual = jnp.where(seen, y - chance, 0).astype(jnp.float32)
    variance = jnp.where(seen, chance * (1 - chance), 0).astype(jnp.float32)
    return residual, variance


@partial(jax.jit, static_argnames=("whole", "same"))
def _compare(first, second, seen_first, seen_second, whole: bool, same: bool):
    """For each item of two blocks, the other block's item most dependent on it."""
    (r, v), (s, w) = first, second
    total = r.T @ s
    variance = v.T @ w
    if whole:
        norms = jnp.sum(r**2, 0)[:, None] * jnp.sum(s**2, 0)[None]
    else:
        # Sums over the subjects who answered both.
        norms = ((r**2).T @ seen_second) * (seen_first.T @ s**2)
    ratio = jnp.maximum(total, 0) / jnp.maximum(variance, 1e-12)
    # The logarithm of Bennett's bound, less the sign.
    surprise = variance * ((1 + ratio) * jnp.log1p(ratio) - ratio)
    surprise = jnp.where(norms > 1e-12, surprise, -1.0)
    if same:
        surprise = jnp.where(jnp.eye(surprise.shape[0], dtype=bool), -1.0, surprise)
    found = []
    for axis in (1, 0):
        best = jnp.argmax(surprise, axis)
        picked = [
            jnp.take_along_axis(x, jnp.expand_dims(best, axis), axis).squeeze(axis)
            for x in (surprise, total, variance, norms)
        ]
        found.append((best, *picked))
    return found


def dependence(
    family: Any,
    items: Any,
    theta: np.ndarray,
    values: np.ndarray,
    observed: np.ndarray | None,
    width: int = WIDTH,
) -> Partners:
    """The largest local dependence of each item, over all pairs of items.

    With residuals r = y - P at the estimated abilities, two items that depend on
    ability alone have sum_i r_ij r_ik of mean 0 and variance V = sum_i P Q P' Q'. The
    p-value is Bennett's bound at that sum, times the number of partners. Blocks of
    items are compared two by two, so that no matrix of all pairs is ever held.

    Q3 is the correlation of the residuals about 0, their mean under the model.

    Args:
        family: The response family, of right and wrong.
        items: Item records, `[items]`.
        theta: `[subjects]` abilities.
        values: `[subjects, items]` 0 and 1.
        observed: Mask or None.
        width: Items of a block.
    """
    size = values.shape[1]
    width = min(width, size)
    ability = jnp.asarray(theta, items[0].dtype)
    whole = observed is None
    blocks = [
        (_prepare(family, chosen, ability, y, seen), seen)
        for _, chosen, y, seen in _blocks(
            family, items, ability, values, observed, width
        )
    ]
    if whole:
        blocks = [(pair, None) for pair, _ in blocks]
    padded = width * len(blocks)
    surprise = np.full(padded, -1.0)
    partner = np.full(padded, -1)
    numbers = np.zeros((3, padded))
    for a, (first, seen_a) in enumerate(blocks):
        for b in range(a, len(blocks)):
            second, seen_b = blocks[b]
            masks = [
                None if x is None else x.astype(jnp.float32) for x in (seen_a, seen_b)
            ]
            found = _compare(first, second, *masks, whole=whole, same=a == b)
            for here, there, best in ((a, b, found[0]), (b, a, found[1])):
                mine = slice(here * width, (here + 1) * width)
                place, height, *rest = (np.asarray(x, np.float64) for x in best)
                better = height > surprise[mine]
                surprise[mine] = np.where(better, height, surprise[mine])
                chosen = there * width + place.astype(int)
                partner[mine] = np.where(better, chosen, partner[mine])
                for k, values_k in enumerate(rest):
                    numbers[k, mine] = np.where(better, values_k, numbers[k, mine])
    total, variance, norms = numbers[:, :size]
    partner, known = partner[:size], (partner[:size] >= 0) & (norms > 0)
    p_value = bennett_bound(total, variance) * max(size - 1, 1)
    return Partners(
        np.where(known, total / np.sqrt(np.where(known, norms, 1)), np.nan).clip(-1, 1),
        np.where(known, partner, -1),
        np.where(known, np.minimum(p_value, 1), 1.0),
    )
