r"""Items of a calibration with their errors, drawn towards their mean.

A test gives the items that look best, so those whose discrimination the calibration
overestimated. Where items have a normal prior that does little (the factor model's
default), the best prediction of their parameters is not the estimate. With x_j the
slopes and the intercept of item j, M and Q mean and covariance of x_j over items, C the
mean of the covariances of their errors, and c_j its factor of item j,

    E x_j = M + S (S + c_j C)^-1 (x_j - M),    Var x_j = (S^-1 + (c_j C)^-1)^-1,

S = Q - C (Kelley 1947, of several scores; Efron and Morris 1973). The covariance of an
item's own errors would not do: it grows with the estimated discrimination, and so would
draw overestimated items too far and underestimated ones too little. The factor c_j is 1
over the number of responses to the item, of mean 1. Items that have other
discriminations to estimate are other items: each kind has its own mean.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from irtjax.likelihood.product_errors import of_predictor, shift_shares
from irtjax.models.family import Items
from irtjax.models.model import Model, Population

#: Items of a kind that have a mean of their own, for each number of an item.
FEWEST = 4


class Regressed(NamedTuple):
    """Expected slopes and intercepts of items, and their covariances.

    Attributes:
        rows: `[items, p]`.
        blocks: `[items, p, p]`.
    """

    rows: np.ndarray
    blocks: np.ndarray


def regressed(
    rows: np.ndarray, blocks: np.ndarray, counts: np.ndarray | None = None
) -> Regressed:
    """Expected parameters of items, and what remains of their errors.

    Args:
        rows: `[items, p]` estimates.
        blocks: `[items, p, p]` covariances of their errors; 0 where a number is fixed.
        counts: `[items]` numbers of responses; None for the same number of each.

    >>> rows = np.random.default_rng(0).normal(0, 2**0.5, (1000, 1))
    >>> found = regressed(rows, np.ones((1000, 1, 1)))
    >>> bool(abs(found.rows.std() / rows.std() - 0.5) < 0.05)
    True
    """
    moved, left = np.array(rows, float), np.array(blocks, float)
    free = np.diagonal(left, axis1=1, axis2=2) > 0
    kinds, kind = np.unique(free, axis=0, return_inverse=True)
    for k, columns in enumerate(kinds):
        items = np.flatnonzero(kind.reshape(-1) == k)
        places = np.flatnonzero(columns)
        if not len(places) or len(items) < FEWEST * len(places):
            continue
        at = np.ix_(items, places, places)
        number = None if counts is None else np.asarray(counts, float)[items]
        parts = _of_kind(moved[np.ix_(items, places)], left[at], number)
        moved[np.ix_(items, places)], left[at] = parts
    return Regressed(moved, left)


def regressed_items(
    model: Model,
    items: Items,
    population: Population,
    covariance: np.ndarray,
    counts: np.ndarray | None = None,
) -> tuple[Items, np.ndarray]:
    """Items of several abilities drawn towards their mean, and their covariances.

    Several intercepts of an item move together. Slopes of a non-negative model stay so.

    Args:
        model: A model with `dims` abilities.
        items: Item records.
        population: Of the abilities.
        covariance: `[items, columns, columns]` of the slopes and the intercepts.
        counts: `[items]` numbers of responses; None for the same number of each.

    Returns:
        Records, and `[items, dims + 1, dims + 1]` for `FactorBank.create`.
    """
    slopes, dtype = np.asarray(items.discrimination, float), items.intercept.dtype
    size, dims = slopes.shape
    intercept = np.asarray(items.intercept, float)
    shares = shift_shares(model, items, population.mean)
    shift = np.sum(shares * intercept.reshape(size, -1), axis=1)
    blocks = of_predictor(model, items, covariance, population.mean)
    found = regressed(np.column_stack([slopes, shift]), blocks, counts)
    moved = found.rows[:, :dims]
    if model.family.parameters[0].bijection.kind == "positive":
        moved = np.maximum(moved, 0)
    more = (found.rows[:, dims] - shift).reshape((size,) + (1,) * (intercept.ndim - 1))
    records = items._replace(
        discrimination=jnp.asarray(moved, dtype),
        intercept=jnp.asarray(intercept + more, dtype),
    )
    return records, found.blocks


def _of_kind(rows, blocks, counts) -> tuple[np.ndarray, np.ndarray]:
    """`regressed` of items with the same numbers to estimate."""
    each = np.ones(len(rows)) if counts is None else 1 / np.maximum(counts, 1)
    each = each / each.mean()
    pooled, mean = blocks.mean(axis=0), rows.mean(axis=0)
    root = np.linalg.cholesky(pooled + 1e-12 * np.trace(pooled) * np.eye(len(mean)))
    # In units of the errors, whose covariance there is I.
    scaled = np.linalg.solve(root, (rows - mean).T)
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(scaled)))
    true = np.maximum(values - 1, 0)
    share = true / (true + each[:, None])
    back = root @ vectors
    found = mean + (share * (vectors.T @ scaled).T) @ back.T
    return found, np.einsum("pk,jk,qk->jpq", back, share * each[:, None], back)
