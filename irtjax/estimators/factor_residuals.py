"""The largest singular value of the residuals of a factor model.

With M the mask of observed cells and P the chances, it is that of M o (Y - P), or of
M o (Y* - P) for responses Y* drawn from P: the size of noise. See `factor_rank`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.data.responses import AbstractResponses
from irtjax.likelihood.products import cells
from irtjax.models.model import Model
from irtjax.numerics.kernels import (
    block_size_for,
    put_block,
    scan_subject_blocks,
    take_block,
)

#: Products of a search for the largest singular value. The values of noise lie close to
#: each other: at 158 x 500 the relative error was 1e-9; that of 30 power iterations of
#: four vectors was 3e-3, in a certificate that matters at 1e-2.
PRODUCTS = 40


class Leading(NamedTuple):
    """The largest singular value of residuals R, and R v / |R v| and v of it."""

    value: Scalar
    subjects: Float[Array, " subjects"]
    items: Float[Array, " items"]


def leading_residual(
    model: Model,
    items,
    theta: Array,
    data: AbstractResponses,
    key: Array | None = None,
) -> Leading:
    """What leads M o (Y - P), or responses drawn from P with a key in place of Y.

    Args:
        model: A model of the logistic link.
        items: Parameters of the items.
        theta: `[subjects, dims]` abilities.
        data: All cells with a mask, or the observed cells.
        key: Random key of the responses drawn; None for those observed.
    """
    if data.has_blocks:
        return _leading(model, items, theta, data, key)
    return _leading_by_cell(items, theta, data, key)


def _largest(product, size: int, dtype) -> tuple[Scalar, Array]:
    """Root of the largest eigenvalue of a symmetric product, and its vector.

    By Lanczos's method with every vector orthogonal to all before it.
    """
    count = min(PRODUCTS, size)
    first = jax.random.normal(jax.random.key(1), (size,), dtype)
    basis = jnp.zeros((count + 1, size), dtype).at[0].set(first)
    basis = basis.at[0].divide(jnp.linalg.norm(first))
    tiny = jnp.finfo(dtype).eps

    def step(k, found):
        basis, diagonal, beside = found
        image = product(basis[k][:, None])[:, 0]
        diagonal = diagonal.at[k].set(basis[k] @ image)
        scale = jnp.linalg.norm(image)
        for _ in range(2):
            image = image - (basis @ image) @ basis
        length = jnp.linalg.norm(image)
        # Nothing is left where the products have no more directions.
        over = length > 10 * tiny * scale
        beside = beside.at[k].set(jnp.where(over, length, 0))
        after = jnp.where(over, image / jnp.where(over, length, 1), 0)
        return basis.at[k + 1].set(after), diagonal, beside

    none = jnp.zeros(count, dtype)
    basis, diagonal, beside = lax.fori_loop(0, count, step, (basis, none, none))
    matrix = jnp.diag(diagonal) + jnp.diag(beside[:-1], 1) + jnp.diag(beside[:-1], -1)
    values, turns = jnp.linalg.eigh(matrix)
    return jnp.sqrt(jnp.maximum(values[-1], 0)), turns[:, -1] @ basis[:-1]


def _with_rows(value: Scalar, items: Array, rows: Array) -> Leading:
    """The singular pair, from the product of the residuals with one of it."""
    tiny = jnp.finfo(rows.dtype).tiny
    return Leading(value, rows / jnp.maximum(jnp.linalg.norm(rows), tiny), items)


@eqx.filter_jit
def _leading(model: Model, items, theta, data: Any, key=None) -> Leading:
    """`leading_residual` of a matrix."""
    dtype = items.intercept.dtype
    num_subjects, num_items = data.values.shape
    size = block_size_for(num_subjects, num_items, dtype.itemsize)

    def block(begin):
        values = take_block(data.values, begin, size).astype(dtype)
        exposure = take_block(data.exposure, begin, size)
        ability = take_block(theta, begin, size)
        if key is not None and exposure is not None:
            eta = ability @ items.discrimination.T + items.intercept
            part = jax.random.fold_in(key, begin)
            draw = jax.random.bernoulli(part, jax.nn.sigmoid(eta))
            values = draw.astype(dtype) * exposure
        return cells(model, items, ability, values, exposure).slope

    def product(vectors):
        def body(total, begin, is_new):
            residual = block(begin) * is_new.astype(dtype)[:, None]
            return total + residual.T @ (residual @ vectors)

        return scan_subject_blocks(body, jnp.zeros_like(vectors), num_subjects, size)

    def rows(vector):
        body = lambda found, begin, _: put_block(found, block(begin) @ vector, begin)
        return scan_subject_blocks(
            body, jnp.zeros(num_subjects, dtype), num_subjects, size
        )

    value, vector = _largest(product, num_items, dtype)
    return _with_rows(value, vector, rows(vector))


@eqx.filter_jit
def _leading_by_cell(items, theta, data: Any, key=None) -> Leading:
    """`leading_residual` of the observed cells."""
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

    def rows(vector):
        def chunk(total, given):
            row, column, residual = given
            found = jnp.einsum("rw,rw->r", residual, vector[column])
            return total.at[row].add(found, mode="drop"), None

        total = jnp.zeros(data.num_subjects, dtype)
        for bucket, residual in zip(data.subjects, left, strict=True):
            given = bucket.row, bucket.column, residual
            total, _ = lax.scan(chunk, total, given)
        return total

    value, vector = _largest(product, data.num_items, dtype)
    return _with_rows(value, vector, rows(vector))
