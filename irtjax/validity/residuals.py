"""Residuals of a fit, cell by cell: infit and outfit, surprises, dependent items."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from irtjax.data.stored_cells import AbstractStoredCells
from irtjax.numerics.programs import stored_jit
from irtjax.numerics.tails import bennett_bound, bennett_exponent

#: Chances of a block.
BLOCK = 2**22
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


def chance_at(family: Any, item: Any, theta: jax.Array) -> jax.Array:
    """Probability of a right response of one subject to one item, off 0 and 1."""
    # In single precision 1 - p of a sure response is a rounding error.
    return jnp.clip(family.expected_response(item, theta), 1e-6, 1 - 1e-6)


@stored_jit
def chances(family: Any, items: Any, theta: jax.Array) -> jax.Array:
    """`chance_at` of items and subjects, `[subjects, items]`."""
    over_items = jax.vmap(chance_at, in_axes=(None, 0, None))
    return jax.vmap(over_items, in_axes=(None, None, 0))(family, items, theta)


def _fit_of_cell(family: Any, item: Any, theta: jax.Array, value: jax.Array):
    """What the fit of an item adds up."""
    chance = chance_at(family, item, theta)
    variance = chance * (1 - chance)
    square = (value - chance) ** 2
    low = chance < UNEXPECTED
    surprises = jnp.where(low, value, 0), jnp.where(low, chance, 0)
    return square, variance, square / variance, *surprises, chance


def item_fit(
    family: Any, items: Any, theta: np.ndarray, cells: AbstractStoredCells
) -> Residuals:
    """Infit, outfit and unexpected right responses of binary items `[items]`.

    Infit is sum (y - P)^2 / sum P Q, outfit the mean of (y - P)^2 / (P Q), both over
    the subjects who responded (Wright and Masters 1982).
    """
    ability = jnp.asarray(theta, items[0].dtype)
    sums = cells.item_sums(Partial(_fit_of_cell, family), items, ability)
    square, variance, standardised, surprises, surprises_expected, observed = sums
    count, missing = cells.count(0), 0.0
    if not cells.is_complete:
        missing = _expected_of_all(family, items, ability) - observed
    defined = lambda x: np.where(count > 0, x, np.nan)
    return Residuals(
        defined(square / np.maximum(variance, 1e-12)),
        defined(standardised / np.maximum(count, 1)),
        surprises,
        surprises_expected,
        np.where(count < len(theta), missing, 0.0),
    )


def _expected_of_all(family: Any, items: Any, theta: jax.Array) -> np.ndarray:
    """Right responses `[items]` expected if every subject responded, in blocks."""
    size = len(items[0])
    width = int(np.clip(BLOCK // max(len(theta), 1), 1, size))
    totals = np.empty(size)
    for start in range(0, size, width):
        # Blocks of one shape: the last one begins earlier.
        part = slice(min(start, size - width), min(start, size - width) + width)
        own = jax.tree.map(lambda x, part=part: jnp.asarray(x)[part], items)
        totals[part] = np.asarray(_expected(family, own, theta), float)
    return totals


@stored_jit
def _expected(family: Any, items: Any, theta: jax.Array) -> jax.Array:
    """Right responses `[items]` expected of all subjects."""
    return jnp.sum(chances(family, items, theta), 0)


def _residual_pairs(family: Any, item: Any, theta: jax.Array, value: jax.Array):
    """Residuals, variances and squares, each with what it is multiplied by."""
    chance = chance_at(family, item, theta)
    residual, variance = value - chance, chance * (1 - chance)
    square = residual**2
    return (residual, residual), (variance, variance), (square, None), (None, square)


def _surprise(total: Any, variance: Any, own: Any, other: Any) -> Any:
    """Exponent of Bennett's bound; -1 where there is no correlation."""
    exponent = bennett_exponent(total, variance)
    where = total.__array_namespace__().where
    return where(own * other > LEAST_NORM, exponent, -1.0)


def dependence(
    family: Any, items: Any, theta: np.ndarray, cells: AbstractStoredCells
) -> Partners:
    """The largest local dependence of each item, over all pairs of binary items.

    With residuals r = y - P at the estimated abilities, two items that depend on
    ability alone have sum_i r_ij r_ik of mean 0 and variance V = sum_i P Q P' Q'. The
    p-value is Bennett's bound at that sum, times the number of partners. Q3 is the
    correlation of the residuals about 0, their mean under the model.
    """
    ability = jnp.asarray(theta, items[0].dtype)
    numbers = Partial(_residual_pairs, family)
    partner, sums = cells.best_partners(numbers, _surprise, items, ability)
    total, variance, own, other = sums
    return partners_of(partner, total, variance, own * other)


def partners_of(partner, total, variance, norms) -> Partners:
    """The result from the sums of each item with its partner, -1 without one."""
    size = partner.size
    defined = (partner >= 0) & (norms > 0)
    p_value = np.minimum(bennett_bound(total, variance) * max(size - 1, 1), 1)
    q3 = np.where(defined, total / np.sqrt(np.where(defined, norms, 1)), np.nan).clip(
        -1, 1
    )
    return Partners(q3, np.where(defined, partner, -1), np.where(defined, p_value, 1.0))
