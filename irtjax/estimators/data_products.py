"""Products of the responses with vectors, block by block, for start values."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax.data.responses import Responses
from irtjax.data.sparse_responses import SparseResponses
from irtjax.models.model import Model
from irtjax.numerics.kernels import (
    block_size_for,
    put_block,
    scan_subject_blocks,
    take_block,
    weigh_rows,
)
from irtjax.numerics.sparse import cell_products


def row_products(
    data: Responses | SparseResponses,
    on_values: Float[Array, "items m"],
    on_exposure: Array,
) -> Float[Array, "subjects m"]:
    """Computes values @ on_values + exposure @ on_exposure, block by block."""
    if isinstance(data, SparseResponses):
        both = lambda value, exposure: (value, exposure)
        tables = on_values, on_exposure
        return cell_products(data.subjects, data.num_subjects, tables, both)
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
    model: Model, data: Responses | SparseResponses, vectors: Float[Array, "subjects m"]
) -> tuple[tuple[Array, ...], Array, Array]:
    """Weighted sums S_k' U for each statistic, Y' U of values, M' U of exposure."""
    vectors = weigh_rows(vectors, data.subject_weight)
    if isinstance(data, SparseResponses):
        return _sparse_column_products(model, data, vectors)
    num_subjects, num_items = data.values.shape
    dtype = vectors.dtype
    size = block_size_for(num_subjects, num_items, dtype.itemsize)
    num_statistics = len(model.family.statistics(data.values[:1, :1]))

    def body(carry, start, is_new):
        block = take_block(data.values, start, size)
        exposure = take_block(data.exposure, start, size)
        left = take_block(vectors, start, size)
        left = left * is_new.astype(dtype)[:, None]
        parts = [*model.family.statistics(block), block]
        parts += [] if exposure is None else [exposure]
        return tuple(
            old + (left.T @ part.astype(dtype)).T
            for old, part in zip(carry, parts, strict=True)
        )

    empty = jnp.zeros((num_items, vectors.shape[1]), dtype)
    num_sums = num_statistics + 1 + (data.exposure is not None)
    sums = scan_subject_blocks(body, (empty,) * num_sums, num_subjects, size)
    if data.exposure is None:
        sums = (*sums, jnp.broadcast_to(jnp.sum(vectors, axis=0), empty.shape))
    *statistics, values, exposures = sums
    return tuple(statistics), values, exposures


def _sparse_column_products(model: Model, data: SparseResponses, vectors: Array):
    """`column_products` with weighted vectors, from the observed cells."""

    def total(weight) -> Array:
        each = lambda value, exposure: [weight(value, exposure)]
        return cell_products(data.items, data.num_items, [vectors], each)

    statistic = lambda k: lambda value, _: model.family.statistics(value)[k]
    count = len(model.family.statistics(vectors[:1, :1]))
    statistics = tuple(total(statistic(k)) for k in range(count))
    exposures = total(lambda _, exposure: exposure)
    return statistics, total(lambda value, _: value), exposures
