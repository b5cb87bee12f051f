"""The largest singular value of the residuals of a factor model.

With M the mask of observed cells and P the chances, it is that of M o (Y - P), or of
M o (Y* - P) for responses Y* drawn from P: the size of noise. See `factor_rank`.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from irtjax.data.responses import Responses
from irtjax.data.sparse_responses import SparseResponses
from irtjax.likelihood.products import cells
from irtjax.models.model import Model
from irtjax.numerics.kernels import block_size_for, scan_subject_blocks, take_block

#: Power iterations, and vectors at once.
POWER, VECTORS = 30, 4


def largest_residual(
    model: Model,
    items,
    theta: Array,
    data: Responses | SparseResponses,
    key: Array | None = None,
) -> Array:
    """Largest singular value of M o (Y - P), or of responses drawn from P with a key.

    Args:
        model: A model of the logistic link.
        items: Parameters of the items.
        theta: `[subjects, dims]` abilities.
        data: All cells with a mask, or the observed cells.
        key: Random key of the responses drawn; None for those observed.
    """
    if isinstance(data, SparseResponses):
        return _largest_of_cells(items, theta, data, key)
    return _largest(model, items, theta, data, key)


def _power(product, num_items: int, dtype) -> Array:
    """Root of the largest eigenvalue of a symmetric product, by power iterations."""
    first = jax.random.normal(jax.random.key(1), (num_items, VECTORS), dtype)
    orthogonal = lambda x: jnp.linalg.qr(x)[0]
    step = lambda _, x: orthogonal(product(x))
    vectors = lax.fori_loop(0, POWER, step, orthogonal(first))
    return jnp.sqrt(jnp.linalg.norm(vectors.T @ product(vectors), 2))


@eqx.filter_jit
def _largest(model: Model, items, theta, data: Responses, key=None):
    """Largest singular value of M o (Y - P), or of responses simulated from P."""
    dtype = items.intercept.dtype
    num_subjects, num_items = data.values.shape
    size = block_size_for(num_subjects, num_items, dtype.itemsize)

    def product(vectors):
        def body(total, begin, is_new):
            values = take_block(data.values, begin, size).astype(dtype)
            exposure = take_block(data.exposure, begin, size)
            ability = take_block(theta, begin, size)
            if key is not None and exposure is not None:
                eta = ability @ items.discrimination.T + items.intercept
                part = jax.random.fold_in(key, begin)
                draw = jax.random.bernoulli(part, jax.nn.sigmoid(eta))
                values = draw.astype(dtype) * exposure
            residual = cells(model, items, ability, values, exposure).slope
            residual = residual * is_new.astype(dtype)[:, None]
            return total + residual.T @ (residual @ vectors)

        return scan_subject_blocks(body, jnp.zeros_like(vectors), num_subjects, size)

    return _power(product, num_items, dtype)


@eqx.filter_jit
def _largest_of_cells(items, theta, data: SparseResponses, key=None):
    """`_largest` over the observed cells."""
    dtype, slopes = items.intercept.dtype, items.discrimination

    def residuals(number, bucket):
        def chunk(part):
            person = theta.at[part.row].get(mode="clip")
            eta = jnp.einsum("rp,rwp->rw", person, slopes[part.column])
            chance = jax.nn.sigmoid(eta + items.intercept[part.column])
            values = part.value.astype(dtype)
            if key is not None:
                own = jax.random.fold_in(jax.random.fold_in(key, number), part.row[0])
                values = jax.random.bernoulli(own, chance).astype(dtype)
            return (values - chance) * part.exposure

        return lax.map(chunk, bucket)

    left = [residuals(k, bucket) for k, bucket in enumerate(data.subjects)]

    def product(vectors):
        def chunk(total, given):
            column, residual = given
            rows = jnp.einsum("rw,rwv->rv", residual, vectors[column])
            each = residual[..., None] * rows[:, None]
            return total.at[column].add(each), None

        total = jnp.zeros_like(vectors)
        for bucket, residual in zip(data.subjects, left, strict=True):
            total, _ = lax.scan(chunk, total, (bucket.column, residual))
        return total

    return _power(product, data.num_items, dtype)
