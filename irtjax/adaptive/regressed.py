r"""Items of a calibration with their errors, drawn towards their mean.

A test gives the items that look best, so those whose discrimination the calibration
overestimated. With x_j the slopes and the intercept of item j, M and Q mean and
covariance of x_j over items, C the mean of the covariances of their errors, and c_j its
factor of item j, the best linear prediction of the parameters is

    E x_j = M + S (S + c_j C)^-1 (x_j - M),    Var x_j = (S^-1 + (c_j C)^-1)^-1,

S = Q - C (Kelley 1947, of several scores; Efron and Morris 1973). It needs no normal
distribution of items. It assumes that items of a kind are exchangeable, and that their
errors differ by the number of responses alone: c_j is 1 over that number, of mean 1.
The covariance of an item's own errors would not do: it grows with the estimated
discrimination, and so would draw overestimated items too far. Items of benchmarks with
different means have a larger Q, and are drawn less.

**Kinds.** Items that have other discriminations to estimate are other items: each kind
has its own mean, and one of few items for its p numbers stays at its estimates.

**Few items.** M and S are estimates. Of n items b C takes the place of C in S, with
b = (n - p - 2) / (n - 1), and with B = 1 - (share of x_j - M that remains) the variance
along each direction has also B^2 (Q / n + 2 Q / (n - p - 2)) (Morris 1983).

**The prior** of slopes has drawn the estimates of marginal methods already. Its effect
on their differences is undone first: with its precision P, (I - C P)^-1 C takes the
place of C, and M + (I - C P)^-1 (x_j - M) that of x_j. Where it does more than half,
items stay as it left them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from irtjax.likelihood.product_errors import of_predictor, shift_shares
from irtjax.models.family import Items
from irtjax.models.model import Model, Population

#: Items of a kind that have a mean of their own, for each number of an item.
FEWEST = 4
#: Smallest share of the estimates that is not the prior's; below, items stay.
LEAST_OWN = 0.5


class Regressed(NamedTuple):
    """Expected slopes and intercepts of items, and their covariances.

    Attributes:
        rows: `[items, p]`.
        blocks: `[items, p, p]`.
    """

    rows: np.ndarray
    blocks: np.ndarray


def regressed(
    rows: np.ndarray,
    blocks: np.ndarray,
    counts: np.ndarray | None = None,
    prior: np.ndarray | None = None,
) -> Regressed:
    """Expected parameters of items, and what remains of their errors.

    Args:
        rows: `[items, p]` estimates.
        blocks: `[items, p, p]` covariances of their errors; 0 where a number is fixed.
        counts: `[items]` numbers of responses; None for the same number of each.
        prior: `[p, p]` precision of the one that estimates and errors count already.

    >>> rows = np.random.default_rng(0).normal(0, 2**0.5, (1000, 1))
    >>> estimates = regressed(rows, np.ones((1000, 1, 1)))
    >>> bool(abs(estimates.rows.std() / rows.std() - 0.5) < 0.05)
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
        estimates = moved[np.ix_(items, places)], left[at]
        if prior is not None:
            estimates = _without_prior(*estimates, prior[np.ix_(places, places)])
        if estimates is None:
            continue
        moved[np.ix_(items, places)], left[at] = _of_kind(*estimates, number)
    return Regressed(moved, left)


def regressed_items(
    model: Model,
    items: Items,
    population: Population,
    covariance: np.ndarray,
    counts: np.ndarray | None = None,
    weight: float = 1.0,
) -> tuple[Items, np.ndarray]:
    """Items of several abilities drawn towards their mean, and their covariances.

    Several intercepts of an item move together. Slopes of a non-negative model stay so.

    Args:
        model: A model with `dims` abilities.
        items: Item records.
        population: Of the abilities.
        covariance: `[items, columns, columns]` of the slopes and the intercepts.
        counts: `[items]` numbers of responses; None for the same number of each.
        weight: Factor of the prior of discriminations in the fit.

    Returns:
        Records, and `[items, dims + 1, dims + 1]` for `FactorBank.create`.
    """
    slopes, dtype = np.asarray(items.discrimination, float), items.intercept.dtype
    size, dims = slopes.shape
    intercept = np.asarray(items.intercept, float)
    shares = shift_shares(model, items, population.mean)
    shift = np.sum(shares * intercept.reshape(size, -1), axis=1)
    blocks = of_predictor(model, items, covariance, population.mean)
    positive = model.family.parameters[0].bijection.kind == "positive"
    every = np.diagonal(blocks, axis1=1, axis2=2)[:, :dims] > 0
    rotates = not positive and bool(np.all(every | ~every.any(axis=1, keepdims=True)))
    prior = _prior_of_slopes(model, slopes, population if rotates else None, weight)
    expected = regressed(np.column_stack([slopes, shift]), blocks, counts, prior)
    moved = expected.rows[:, :dims]
    if positive:
        moved = np.maximum(moved, 0)
    change = (expected.rows[:, dims] - shift).reshape(
        (size,) + (1,) * (intercept.ndim - 1)
    )
    records = items._replace(
        discrimination=jnp.asarray(moved, dtype),
        intercept=jnp.asarray(intercept + change, dtype),
    )
    return records, expected.blocks


def _prior_of_slopes(
    model: Model, slopes: np.ndarray, population: Population | None, weight: float
) -> np.ndarray | None:
    """`[p, p]` precision of the prior of discriminations near their mean.

    With a population the prior is that of slopes before the rotation that correlated
    its factors.
    """
    prior = model.priors.get("discrimination")
    if prior is None:
        return None
    density = lambda x: jnp.sum(prior.log_density(x))
    rise = lambda x: jnp.sum(jax.grad(density)(x))
    bend = -np.asarray(jax.grad(rise)(jnp.asarray(slopes.mean(axis=0))), float)
    root = np.sqrt(weight * np.where(np.isfinite(bend), np.maximum(bend, 0), 0))
    turn = np.eye(len(root)) if population is None else population.covariance
    return np.pad(root[:, None] * np.asarray(turn, float) * root, ((0, 1), (0, 1)))


def _without_prior(
    rows: np.ndarray, blocks: np.ndarray, precision: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Estimates and errors by the responses alone; None where the prior does most."""
    pooled, mean = blocks.mean(axis=0), rows.mean(axis=0)
    own = np.eye(len(pooled)) - pooled @ precision
    if np.linalg.eigvals(own).real.min() < LEAST_OWN:
        return None
    wide = np.linalg.solve(own, pooled)
    moved = mean + np.linalg.solve(own, (rows - mean).T).T
    return moved, blocks + (wide + wide.T) / 2 - pooled


def _of_kind(rows, blocks, counts) -> tuple[np.ndarray, np.ndarray]:
    """`regressed` of items with the same numbers to estimate."""
    size, width = rows.shape
    each = np.ones(size) if counts is None else 1 / np.maximum(counts, 1)
    each = each / each.mean()
    pooled, mean = blocks.mean(axis=0), rows.mean(axis=0)
    root = np.linalg.cholesky(pooled + 1e-12 * np.trace(pooled) * np.eye(width))
    # In units of the errors, whose covariance there is I.
    scaled = np.linalg.solve(root, (rows - mean).T)
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(scaled)))
    degrees = size - width - 2
    values = np.maximum(values, degrees / (size - 1))
    true = values * (size - 1) / degrees - 1
    share = true / (true + each[:, None])
    back = root @ vectors
    expected = mean + (share * (vectors.T @ scaled).T) @ back.T
    unknown = (1 - share) ** 2 * values * (1 / size + 2 / degrees)
    left = share * each[:, None] + unknown
    return expected, np.einsum("pk,jk,qk->jpq", back, left, back)
