"""The inverse of the information I = D - C'C of `covariance`, and what it leaves out.

With D = F F' and whitened rows C F'^-1 the inverse needs (1 - C'C)^-1: directly when
there are few items, by the Woodbury identity when there are few subjects, and when
there are many of both by the leading eigenvectors of C'C (randomised subspace
iteration) with the remainder to first order, block by block. On a small problem Cov_i
is summed over the nodes: with asymptotes or steep slopes, truncation of the polynomials
makes errors too small.

**Identification.** Whitened by D, the information has eigenvalues of at most 1, the
share of the complete-data information that is left in a direction. A direction with an
eigenvalue of at most `flat` is not identified. It is left out of the inverse, and its
contribution v v' / |eigenvalue| is returned separately (`Covariance.lost`). A parameter
to which it contributes more than `LOST` of the variance has no standard error. The
errors of all others then are those of the inverse Hessian to LOST / 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from irtjax.data.responses import AbstractResponses
from irtjax.inference.gradients import (
    fold_blocks,
    sparse_gram,
    sparse_products,
    sum_blocks,
    sum_nodes,
    with_data,
)

#: Leading eigenvectors that are kept.
RANK = 96
#: Products of C'C by which leading eigenvectors are found.
PASSES = 4
#: Rows C that are computed once and stored; larger ones are computed in every pass.
STORED_BYTES = 2**29


def leading_rows(product, size: int, dtype, floor=0.0, most: int = RANK) -> Array:
    """Rows U, at most `most`, of the leading eigenpairs of a matrix M: M - floor ~ U'U.

    `product` applies M, of order `size`, to `[size, vectors]`.
    """
    rank = min(size, most)
    vectors = jnp.eye(size, dtype=dtype)
    if rank < size:
        vectors = jax.random.normal(jax.random.key(0), (size, rank), dtype)
        for _ in range(4):
            vectors, _ = jnp.linalg.qr(product(vectors))
    core = vectors.T @ product(vectors)
    values, rotation = jnp.linalg.eigh((core + core.T) / 2)
    return ((vectors @ rotation) * jnp.sqrt(jnp.maximum(values - floor, 0))).T


def diagonal_blocks(rows: Array, num_items: int, columns: int):
    """Blocks of rows' rows: items, population, and items with population."""
    items, scale = rows[:, :-2].reshape(-1, num_items, columns), rows[:, -2:]
    own = jnp.einsum("rja,rjb->jab", items, items)
    return own, scale.T @ scale, jnp.einsum("rja,rb->jab", items, scale)


class Spectrum(NamedTuple):
    """Rows L of what an inverse leaves out, L'L; if none are; negative eigenvalues."""

    lost: Array
    definite: Array
    negative: Array


def flat(dtype) -> float:
    """Share of the information below which a direction is not identified: rounding."""
    return float(jnp.finfo(dtype).eps ** 0.5)


def _limits(values: Array):
    """Which eigenvalues are not identified, divisors, and how many are negative."""
    limit = flat(values.dtype)
    bad = ~(values > limit)
    size = jnp.clip(jnp.abs(jnp.where(bad, values, 1)), limit, 1)
    return bad, size, jnp.sum(values < -limit).astype(jnp.int32)


def _cholesky(matrix: Array) -> tuple[Array, Array]:
    """The Cholesky factor, and whether it is far from singular."""
    factor = jnp.linalg.cholesky(matrix)
    pivots = jnp.diagonal(factor) ** 2
    fine = jnp.all(jnp.isfinite(factor)) & (jnp.min(pivots) > flat(matrix.dtype))
    return factor, fine


def _complete(like: Array) -> Spectrum:
    """The spectrum of an information matrix all of whose directions are identified."""
    return Spectrum(jnp.zeros_like(like), jnp.ones((), bool), jnp.zeros((), jnp.int32))


def _inverse(matrix: Array) -> tuple[Array, Spectrum]:
    """The inverse of a whitened information matrix over its identified directions."""
    factor, fine = _cholesky(matrix)

    def whole():
        identity = jnp.eye(len(matrix), dtype=matrix.dtype)
        inverse = jax.scipy.linalg.cho_solve((factor, True), identity)
        return inverse, _complete(matrix)

    def identified():
        values, vectors = jnp.linalg.eigh(jnp.nan_to_num(matrix))
        bad, divisor, negative = _limits(values)
        rows = vectors.T / jnp.sqrt(jnp.where(bad, divisor, values))[:, None]
        basis = jnp.where(bad[:, None], 0, rows)
        return basis.T @ basis, Spectrum(rows - basis, ~jnp.any(bad), negative)

    return lax.cond(fine, whole, identified)


def dense_information(setting, whitening, num_terms, excess):
    """1 - C'C as a matrix, and the sum of the outer products of subjects' gradients.

    `num_terms` None sums over the nodes; `excess` was added to the blocks of D. Sparse
    responses give the information alone.
    """
    size = setting.problem.free.size + 2
    outer = zero = jnp.zeros((size, size), setting.nodes.dtype)

    def gradients_and_later(carry, rows, start):
        correction, outer = carry
        later = rows[1:].reshape(-1, size)
        return correction + later.T @ later, outer + rows[0].T @ rows[0]

    data = setting.problem.data
    if data.is_streamed:
        correction = data.gram
    elif not data.has_blocks:
        correction = sparse_gram(setting, whitening, num_terms)
    else:
        terms, init = num_terms or 0, (zero, zero)
        sums = sum_blocks(setting, whitening, terms, gradients_and_later, init)
        correction, outer = sums
    if num_terms is None and not data.is_streamed:
        add = lambda carry, rows: carry + rows.T @ rows
        correction = sum_nodes(setting, whitening, add, zero)
    added = whitened(excess, whitening, size)
    return jnp.eye(size, dtype=zero.dtype) - added - correction, outer


def invert_dense(setting, whitening, num_terms, kind, prior, frame_rows, excess):
    """(1 - C'C)^-1 as a matrix, or its cross-product or sandwich counterpart."""
    information, outer = dense_information(setting, whitening, num_terms, excess)
    if kind == "cross_product":
        information = outer + prior
    information = information - frame_rows.T @ frame_rows
    inverse, spectrum = _inverse(information)
    if kind == "sandwich":
        inverse = inverse @ outer @ inverse
    return inverse, spectrum


def _all_rows(setting, whitening, num_terms: int) -> tuple[Array, Array]:
    """Rows of the subjects, and the blocks of the items in their C'C."""
    dtype, (num_items, columns) = setting.nodes.dtype, setting.problem.free.shape
    size = setting.problem.free.size + 2

    def keep(carry, rows, start):
        stored, blocks = carry
        later = rows[1:]
        old = lax.dynamic_slice_in_dim(stored, start, rows.shape[1], 1)
        later_or_old = jnp.where(later == 0, old, later)
        stored = lax.dynamic_update_slice_in_dim(stored, later_or_old, start, 1)
        own = diagonal_blocks(later.reshape(-1, size), num_items, columns)[0]
        return stored, blocks + own

    def of_some(part: AbstractResponses, _: Any) -> tuple[Array, Array]:
        # Rows are laid out [terms, subjects, parameters].
        empty = jnp.zeros((num_terms, part.num_subjects, size), dtype)
        init = empty, jnp.zeros((num_items, columns, columns), dtype)
        own = with_data(setting, part)
        rows, blocks = fold_blocks(own, whitening, num_terms, keep, init)
        return blocks, jnp.moveaxis(rows, 1, 0)

    blocks, rows = setting.problem.data.fold(of_some)
    return jnp.moveaxis(rows, 0, 1).reshape(-1, size), blocks


def invert_by_woodbury(setting, whitening, num_terms, frame_rows):
    """U and R = 0 of (1 - C'C)^-1 = 1 + U'U + R, by the Woodbury identity."""
    rows, _ = _all_rows(setting, whitening, num_terms)
    rows = jnp.concatenate([rows, frame_rows])
    core = jnp.eye(rows.shape[0], dtype=rows.dtype) - rows @ rows.T
    factor, fine = _cholesky(core)

    def whole():
        factors = jax.scipy.linalg.solve_triangular(factor, rows, lower=True)
        return factors, _complete(rows)

    def identified():
        values, vectors = jnp.linalg.eigh(jnp.nan_to_num(core))
        bad, divisor, negative = _limits(values)
        turned = vectors.T @ rows
        factors = turned / jnp.sqrt(jnp.where(bad, 1, values))[:, None]
        # R'w has length sqrt(1 - eigenvalue).
        length = jnp.sqrt(jnp.maximum(1 - values, 0.5))
        out = turned / (length * jnp.sqrt(divisor))[:, None]
        spectrum = Spectrum(jnp.where(bad[:, None], out, 0), ~jnp.any(bad), negative)
        return jnp.where(bad[:, None], 0, factors), spectrum

    rows, spectrum = lax.cond(fine, whole, identified)
    return rows, jnp.zeros_like(whitening.items), spectrum


def stored_rows(setting, whitening, num_terms) -> tuple[Array, Array] | None:
    """Rows C and the blocks of C'C, or None where they are computed in every pass."""
    data, size = setting.problem.data, setting.problem.free.size + 2
    height = num_terms * data.num_subjects
    if not data.has_blocks:
        return None
    if height * size * setting.nodes.dtype.itemsize > STORED_BYTES:
        return None
    return _all_rows(setting, whitening, num_terms)


def first_vectors(setting) -> Array:
    """Random vectors from which the leading eigenvectors are found."""
    size = setting.problem.free.size + 2
    return jax.random.normal(jax.random.key(0), (size, RANK), setting.nodes.dtype)


def multiply(setting, whitening, num_terms, frame_rows, stored, vectors):
    """C'C V, in one pass over the subjects, and the blocks of C'C."""
    num_items, columns = setting.problem.free.shape
    size = setting.problem.free.size + 2
    own_blocks = lambda rows: diagonal_blocks(rows, num_items, columns)[0]
    sums = frame_rows.T @ (frame_rows @ vectors)
    blocks = own_blocks(frame_rows)
    if stored is not None:
        rows, own = stored
        return sums + rows.T @ (rows @ vectors), blocks + own
    if not setting.problem.data.has_blocks:
        products = sparse_products(setting, whitening, num_terms, vectors)
        return sums + products[0], blocks + products[1]

    def body(carry, rows, start):
        sums, blocks = carry
        later = rows[1:].reshape(-1, size)
        return sums + later.T @ (later @ vectors), blocks + own_blocks(later)

    zeros = jnp.zeros_like(sums), jnp.zeros_like(blocks)
    of_subjects = sum_blocks(setting, whitening, num_terms, body, zeros)
    return sums + of_subjects[0], blocks + of_subjects[1]


def invert_sparse(setting, whitening, num_terms, frame_rows):
    """U and blocks R of (1 - C'C)^-1 ~ 1 + U'U + R, of sparse responses."""
    num_items, columns = setting.problem.free.shape
    size = setting.problem.free.size + 2
    dtype = setting.nodes.dtype
    # As one loop: a product is a large program. Half of the vectors are probes.
    half = min(RANK // 2, size)
    probes = jax.random.rademacher(jax.random.key(1), (size, half), dtype)

    def again(_, found):
        vectors = jnp.linalg.qr(found[1][:, :half])[0]
        block = jnp.concatenate([vectors, probes], axis=1)
        return vectors, *multiply(
            setting, whitening, num_terms, frame_rows, None, block
        )

    blocks = jnp.zeros((num_items, columns, columns), dtype)
    first = jax.random.normal(jax.random.key(0), (size, 2 * half), dtype)
    init = jnp.zeros((size, half), dtype), first, blocks
    vectors, both, blocks = lax.fori_loop(0, PASSES, again, init)
    image, of_probes = both[:, :half], both[:, half:]
    return invert_by_leading(setting, vectors, image, blocks, (probes, of_probes))


def invert_by_leading(setting, vectors, image, blocks, probed=None):
    """U and blocks R of (1 - C'C)^-1 ~ 1 + U'U + R, by leading eigenvectors.

    `image` is C'C times the orthonormal `vectors`, `probed` are probes and C'C times
    these.
    """
    num_items, columns = setting.problem.free.shape
    values, rotation = jnp.linalg.eigh(vectors.T @ image)
    leading = vectors @ rotation
    bad, divisor, negative = _limits(1 - values)
    lost = jnp.where(bad, leading / jnp.sqrt(divisor), 0).T
    spectrum = Spectrum(lost, ~jnp.any(bad), negative)
    values = jnp.clip(values, 0, None)
    explained = leading[:-2] * jnp.sqrt(values)
    explained = explained.reshape(num_items, columns, -1)
    remainder = blocks - jnp.einsum("jar,jbr->jab", explained, explained)
    if probed is not None:
        probes, of_probes = probed
        explain = leading * jnp.clip(values, 0, None)
        rest = of_probes - explain @ (leading.T @ probes)
        remainder = _series(remainder, rest[:-2].reshape(num_items, columns, -1))
    rows = leading * jnp.sqrt(values / jnp.where(bad, 1, 1 - values))
    return jnp.where(bad, 0, rows).T, remainder, spectrum


def _series(blocks: Array, probed: Array) -> Array:
    """Blocks of M + M^2 + ..., from those R of a matrix M and from its probes M z.

    Where subjects have few responses, the information that is missing is not that of a
    few directions: R alone makes errors too small, with 10 % of 2,000 x 100 responses
    by up to 14 %. The block of (1 - M)^-1 is (1 - R - T)^-1 by a Schur complement, with
    T = sum_k M_jk (1 - M)^-1_kk M_kj over the other items k. The sum of M_jk M_kj over
    all k is estimated by the probes, random signs z with mean z z' = 1.
    """
    square = jnp.einsum("jar,jbr->jab", probed, probed) / probed.shape[-1]
    values, vectors = jnp.linalg.eigh(blocks)
    usual = jnp.mean(1 / (1 - jnp.clip(values, 0, 0.9)))
    others = square - blocks @ blocks
    values, vectors = jnp.linalg.eigh(others)
    others = (vectors * jnp.maximum(values, 0)[:, None, :]) @ jnp.swapaxes(
        vectors, 1, 2
    )
    values, vectors = jnp.linalg.eigh(blocks + usual * others)
    values = jnp.clip(values, 0, 0.99)
    series = values / (1 - values)
    return (vectors * series[:, None, :]) @ jnp.swapaxes(vectors, 1, 2)


def positive_blocks(blocks: Array) -> tuple[Array, Array, Array, Array]:
    """Blocks of D made positive definite, what was added, variances, negative values.

    The information is at most D: a direction in which D has none is not identified. The
    variances are those in such directions.
    """

    def fine():
        zeros = jnp.zeros_like(blocks)
        return blocks, zeros, zeros, jnp.zeros((), jnp.int32)

    def repaired():
        finite = jnp.all(jnp.isfinite(blocks), axis=(1, 2), keepdims=True)
        usable = jnp.where(finite, blocks, 0)
        own = jnp.diagonal(usable, axis1=1, axis2=2)
        unit = jnp.sqrt(jnp.where(own > 0, own, 1))
        scaled = usable / (unit[:, :, None] * unit[:, None, :])
        values, vectors = jnp.linalg.eigh(scaled)
        bad, divisor, negative = _limits(values)
        turned = vectors * unit[:, :, None]
        change = jnp.where(bad, 1 - values, 0)[:, None, :]
        added = (turned * change) @ jnp.swapaxes(turned, 1, 2)
        out = vectors / unit[:, :, None]
        out = out * jnp.where(bad, 1 / jnp.sqrt(divisor), 0)[:, None, :]
        return usable + added, added, out @ jnp.swapaxes(out, 1, 2), negative

    factor = jnp.linalg.cholesky(blocks)
    pivots = jnp.diagonal(factor, axis1=1, axis2=2) ** 2
    own = jnp.diagonal(blocks, axis1=1, axis2=2)
    good = jnp.all(jnp.isfinite(factor)) & jnp.all(pivots > flat(blocks.dtype) * own)
    return lax.cond(good, fine, repaired)


def whitened(blocks: Array, whitening, size: int) -> Array:
    """Whitened blocks of items in a matrix of all parameters."""
    white = jnp.einsum("jab,jbc,jdc->jad", whitening.items, blocks, whitening.items)
    full = jnp.zeros((size, size), blocks.dtype)
    return full.at[blocks_at(len(blocks), blocks.shape[1])].set(white)


def blocks_at(num_items: int, columns: int, start: int = 0):
    """Index of the items' diagonal blocks in a matrix of all parameters."""
    at = start + jnp.arange(num_items)[:, None] * columns + jnp.arange(columns)
    return at[:, :, None], at[:, None, :]
