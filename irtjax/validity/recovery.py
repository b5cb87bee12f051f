r"""How well estimates recover what data were simulated from: pure functions of arrays.

A point is a pair (items, theta): an item record with `discrimination` `[items]` and
`intercept` `[items]`, and abilities `[subjects]`. Its logits are
X_ij = a_j theta_i + d_j and its chances P = sigma(X). `jax.jit` and `jax.vmap` apply.

`relative_error` and `hellinger` do not depend on the location and scale of ability.
They are computed block by block over subjects, so that no array of floats
`[subjects, items]` exists. Errors of parameters depend on that scale: `aligned_rmse`
moves the truth to the scale on which its abilities have sample mean 0 and standard
deviation 1, that of joint estimates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from irtjax._types import Scalar
from irtjax.estimators.joint.objective import weighted_moments
from irtjax.models.family import Items
from irtjax.numerics.kernels import block_size_for, scan_subject_blocks, take_block

#: An item record and abilities.
Point: TypeAlias = tuple[Items, Float[Array, " subjects"]]


class RecoveryErrors(NamedTuple):
    """Root mean squared errors of abilities, discriminations and intercepts."""

    ability: Scalar
    discrimination: Scalar
    intercept: Scalar


class Selection(NamedTuple):
    """Shares of the true ones that were found, and of those found that are true."""

    recall: Scalar
    precision: Scalar


def spearman(
    first: Float[Array, " observations"], second: Float[Array, " observations"]
) -> Scalar:
    """Spearman's rank correlation; equal values have the mean of their ranks.

    NaN where all values of one are equal, as in SciPy.

    >>> first, second = jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 5.0, 4.0])
    >>> round(float(spearman(first, second)), 6)
    0.5
    """
    _check_shapes(jnp.shape(first), second=second)

    def ranks(values: Array) -> Array:
        ordered = jnp.sort(values)
        low, high = (jnp.searchsorted(ordered, values, side=s) for s in _SIDES)
        # Twice the centred mean rank: an integer, so that sums are exact.
        return (low + high + 1 - (values.size + 1)).astype(jnp.result_type(float))

    x, y = ranks(jnp.asarray(first)), ranks(jnp.asarray(second))
    return jnp.sum(x * y) / jnp.sqrt(jnp.sum(x**2) * jnp.sum(y**2))


_SIDES = ("left", "right")


def relative_error(truth: Point, estimate: Point) -> Scalar:
    """Relative squared error of the logits, |X - X'|^2 / |X|^2 (Frobenius norms).

    Args:
        truth: Items and abilities with logits X.
        estimate: Those with logits X'.

    Returns:
        A scalar, 0 where the logits agree.

    Raises:
        ValueError: If the shapes differ.

    >>> from irtjax.models.families.logistic import LogisticItems
    >>> zero, theta = jnp.zeros(3), jnp.array([-1.0, 1.0])
    >>> items = LogisticItems(zero + 1, zero, zero, zero + 1)
    >>> half = items._replace(discrimination=zero + 0.5)
    >>> float(relative_error((items, theta), (half, theta)))
    0.25
    >>> float(relative_error((items, theta), (half, 2 * theta)))  # The same logits.
    0.0
    """
    squares = lambda x, y: jnp.stack([jnp.sum((x - y) ** 2, 1), jnp.sum(x**2, 1)])
    error, size = _over_cells(squares, truth, estimate, 2)
    return error / size


def hellinger(truth: Point, estimate: Point) -> Scalar:
    """Mean squared Hellinger distance of the chances of all cells, without factor 1/2.

    (sqrt p - sqrt q)^2 + (sqrt(1 - p) - sqrt(1 - q))^2: 0 where p = q, at most 2, and
    about (p - q)^2 / (4 p (1 - p)) for small differences.

    Args:
        truth: Items and abilities with chances p.
        estimate: Those with chances q.

    Returns:
        A scalar.

    Raises:
        ValueError: If the shapes differ.

    >>> from irtjax.models.families.logistic import LogisticItems
    >>> zero, theta = jnp.zeros(3), jnp.zeros(2)
    >>> items = LogisticItems(zero + 1, zero, zero, zero + 1)
    >>> sure = items._replace(intercept=zero + 40)
    >>> round(float(hellinger((items, theta), (sure, theta))), 4)  # 2 - sqrt 2
    0.5858
    """
    root = lambda x: jnp.exp(0.5 * jax.nn.log_sigmoid(x))
    apart = lambda x, y: (root(x) - root(y)) ** 2 + (root(-x) - root(-y)) ** 2
    total = _over_cells(lambda x, y: jnp.sum(apart(x, y), 1)[None], truth, estimate, 1)
    return total[0] / (estimate[1].size * jnp.size(estimate[0].intercept))


def aligned_rmse(truth: Point, estimate: Point) -> RecoveryErrors:
    """Errors of parameters on the scale where the sample of abilities is standard.

    With mean m and standard deviation s of the true abilities, the truth becomes
    (theta - m) / s, a s and d + a m, which have the same logits. Estimates are taken
    as they are: those of joint methods are on this scale, and those of marginal
    methods on that of the population, which agrees with it up to sampling error.

    Args:
        truth: True items and abilities.
        estimate: Estimated ones.

    Returns:
        Root mean squared errors, 0 where the estimate is the standardised truth.

    Raises:
        ValueError: If the shapes differ.

    >>> from irtjax.models.families.logistic import LogisticItems
    >>> zero, theta = jnp.zeros(3), jnp.array([1.0, 3.0])
    >>> items = LogisticItems(zero + 1, zero, zero, zero + 1)
    >>> moved = items._replace(intercept=zero + 2)  # The mean ability is 2.
    >>> [float(x) for x in aligned_rmse((items, theta), (moved, theta - 2))]
    [0.0, 0.0, 0.0]
    """
    _check(truth, estimate)
    (items, theta), (records, ability) = truth, estimate
    mean, sd = weighted_moments(theta, None)
    pairs = (
        ((theta - mean) / sd, ability),
        (items.discrimination * sd, records.discrimination),
        (items.intercept + items.discrimination * mean, records.intercept),
    )
    return RecoveryErrors(*(jnp.sqrt(jnp.mean((x - y) ** 2)) for x, y in pairs))


def selection(truth: Bool[Array, " items"], found: Bool[Array, " items"]) -> Selection:
    """Recall and precision of a selection; 1 where there is nothing to be wrong about.

    Args:
        truth: Which items are to be found, such as those with a discrimination.
        found: Which ones were.

    Returns:
        Recall (1 if there are none to be found), precision (1 if none was found).

    Raises:
        ValueError: If the shapes differ.

    >>> truth = jnp.array([True, True, False, False])
    >>> shares = selection(truth, jnp.array([True, False, True, True]))
    >>> [round(float(x), 4) for x in shares]
    [0.5, 0.3333]
    """
    _check_shapes(jnp.shape(truth), found=found)
    hits = jnp.sum(truth & found)
    share = lambda n: jnp.where(n > 0, hits / jnp.maximum(n, 1), 1.0)
    return Selection(share(jnp.sum(truth)), share(jnp.sum(found)))


def _over_cells(row_sums: Callable, truth: Point, estimate: Point, count: int) -> Array:
    """Sums `[count]` over cells of `row_sums(X, X')`, which is `[count, rows]`."""
    _check(truth, estimate)
    (items, theta), (records, ability) = truth, estimate
    dtype = jnp.result_type(theta, ability, items.intercept, records.intercept)
    size = block_size_for(theta.size, items.intercept.size, dtype.itemsize)

    def logits(items, theta, start) -> Array:
        part = take_block(theta, start, size).astype(dtype)
        return part[:, None] * items.discrimination + items.intercept

    def body(total, start, is_new):
        sums = row_sums(logits(items, theta, start), logits(records, ability, start))
        return total + jnp.sum(jnp.where(is_new, sums, 0), axis=1)

    return scan_subject_blocks(body, jnp.zeros(count, dtype), theta.size, size)


def _check(truth: Point, estimate: Point) -> None:
    """Refuses points whose shapes differ."""
    (items, theta), (records, ability) = truth, estimate
    if jnp.ndim(theta) != 1:
        raise ValueError(f"abilities have shape {jnp.shape(theta)}; give [subjects]")
    _check_shapes(jnp.shape(theta), abilities=ability)
    shape = jnp.shape(items.intercept)
    parts = {"discriminations": items.discrimination}
    _check_shapes(shape, **parts, intercepts=records.intercept)
    _check_shapes(shape, discriminations=records.discrimination)


def _check_shapes(shape: tuple[int, ...], **arrays: Array) -> None:
    """Refuses arrays of another shape, by name."""
    for name, array in arrays.items():
        if jnp.shape(array) != shape:
            raise ValueError(f"{name} have shape {jnp.shape(array)}, not {shape}")
