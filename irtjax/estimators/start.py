"""Start values from the data: proportions, or a spectral decomposition.

Random starts cost most of the iterations of any estimator, and some of them end in
poorer optima; moments of the data take a few passes.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from irtjax.data.responses import Responses
from irtjax.estimators.base import Start
from irtjax.models.base import Model, Population
from irtjax.numerics import block_size_for, put_block, scan_subject_blocks, take_block


def row_products(
    data: Responses, on_values: Float[Array, "items m"], on_exposure: Array
) -> Float[Array, "subjects m"]:
    """Computes values @ on_values + exposure @ on_exposure, block by block."""
    num_subjects, num_items = data.values.shape
    dtype = on_values.dtype
    size = block_size_for(num_subjects, num_items, dtype.itemsize)

    def body(rows, start, is_new):
        values = take_block(data.values, start, size)
        exposure = take_block(data.exposure, start, size)
        product = values.astype(dtype) @ on_values
        if exposure is None:
            product = product + jnp.sum(on_exposure, axis=0)
        else:
            product = product + exposure.astype(dtype) @ on_exposure
        return put_block(rows, product, start)

    empty = jnp.zeros((num_subjects, on_values.shape[1]), dtype)
    return scan_subject_blocks(body, empty, num_subjects, size)


def column_products(
    model: Model, data: Responses, vectors: Float[Array, "subjects m"]
) -> tuple[tuple[Array, ...], Array, Array]:
    """Weighted sums over subjects of statistics, values and exposure times vectors.

    Returns:
        S_k' U for each statistic, Y' U of the values and M' U of the exposure, each
        `[items, m]`.
    """
    num_subjects, num_items = data.values.shape
    dtype = vectors.dtype
    size = block_size_for(num_subjects, num_items, dtype.itemsize)
    num_statistics = len(model.family.statistics(data.values[:1, :1]))
    if data.subject_weight is not None:
        vectors = vectors * data.subject_weight.astype(dtype)[:, None]

    def body(carry, start, is_new):
        block = take_block(data.values, start, size)
        exposure = take_block(data.exposure, start, size)
        left = take_block(vectors, start, size)
        left = left * is_new.astype(dtype)[:, None]
        parts = [s.astype(dtype) for s in model.family.statistics(block)]
        parts.append(block.astype(dtype))
        if exposure is not None:
            parts.append(exposure.astype(dtype))
        return tuple(
            old + (left.T @ part).T for old, part in zip(carry, parts, strict=True)
        )

    empty = jnp.zeros((num_items, vectors.shape[1]), dtype)
    num_sums = num_statistics + 1 + (data.exposure is not None)
    sums = scan_subject_blocks(body, (empty,) * num_sums, num_subjects, size)
    if data.exposure is None:
        sums = (*sums, jnp.broadcast_to(jnp.sum(vectors, axis=0), empty.shape))
    return sums[:-2], sums[-2], sums[-1]


def _standardise(theta: Array, weight: Array | None) -> Array:
    weight = jnp.ones_like(theta) if weight is None else weight.astype(theta.dtype)
    total = jnp.sum(weight)
    mean = jnp.sum(weight * theta) / total
    sd = jnp.sqrt(jnp.sum(weight * (theta - mean) ** 2) / total)
    return (theta - mean) / jnp.maximum(sd, 1e-6)


def start_values(
    model: Model, data: Responses, *, how: str = "proportions", dtype=None
) -> Start:
    """Start values for any method.

    Abilities begin at standardised scores: the mean deviation from the item means
    ("proportions"), or the leading left singular vector of the centred responses
    ("spectral"). Slopes come from the correlation r of each item with that score,
    a = 1.702 r / sqrt(1 - r^2) for a logistic item, and intercepts from the mean of
    each statistic.

    Args:
        model: The model.
        data: Responses.
        how: "proportions" or "spectral".
        dtype: Floating type; that of default JAX arrays when None.

    Returns:
        Items and abilities. All values are finite, for items without variation too.

    Raises:
        ValueError: If `how` is neither of the two.
    """
    if how not in ("proportions", "spectral"):
        raise ValueError(f"start {how!r} is neither 'proportions' nor 'spectral'")
    dtype = jnp.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
    weight = data.subject_weight
    ones = jnp.ones((data.num_subjects, 1), dtype)
    statistics, values, exposure = column_products(model, data, ones)
    seen = jnp.maximum(exposure, 1e-6)
    item_mean = values / seen
    deviation = row_products(data, jnp.ones_like(item_mean), -item_mean)
    seen_by = jnp.asarray(data.num_items, dtype)
    if data.exposure is not None:
        none, one = jnp.zeros_like(item_mean), jnp.ones_like(item_mean)
        seen_by = row_products(data, none, one)[:, 0]
    score = _standardise(deviation[:, 0] / (seen_by + 1), weight)
    if how == "spectral":
        score = _leading_vector(model, data, item_mean, score)
    vectors = jnp.stack([jnp.ones_like(score), score, score**2], 1)
    _, with_values, with_exposure = column_products(model, data, vectors)
    total, first, second = jnp.moveaxis(with_exposure, 1, 0)
    total = jnp.maximum(total, 1e-6)
    covariance = with_values[:, 1] / total - item_mean[:, 0] * first / total
    score_variance = second / total - (first / total) ** 2
    top = model.family.num_categories - 1
    share = jnp.clip(item_mean[:, 0] / top, 0.02, 0.98)
    variance = top**2 * share * (1 - share)
    correlation = covariance / jnp.sqrt(jnp.maximum(variance * score_variance, 1e-12))
    correlation = jnp.clip(correlation, -0.6, 0.85)
    slope = 1.702 * correlation / jnp.sqrt(1 - correlation**2)
    means = tuple((s + 0.2 * item_mean / top) / (seen + 0.2) for s in statistics)
    items = model.family.start(tuple(m[:, 0] for m in means), slope)
    population = Population(jnp.zeros((), dtype), jnp.ones((), dtype))
    lengths = None
    if model.lengths is not None:
        lengths = model.lengths.start(data, score)
    return Start(items, score, population, lengths)


def _leading_vector(model, data, item_mean, score, num_iterations: int = 8):
    """Leading left singular vector of the responses centred by item, by power steps."""

    def iterate(_, left):
        _, values, exposure = column_products(model, data, left[:, None])
        right = values - item_mean * exposure
        right = right / jnp.maximum(jnp.linalg.norm(right), 1e-12)
        left = row_products(data, right, -item_mean * right)[:, 0]
        return _standardise(left, data.subject_weight)

    leading = lax.fori_loop(0, num_iterations, iterate, score)
    return jnp.where(jnp.sum(leading * score) < 0, -leading, leading)
