"""Standard errors of item parameters from the marginal likelihood.

Louis' form of the observed information (Oakes' identity gives the same matrix) is

    I = E[-d2 log p(y, theta)] - sum_i Cov_i[d log p(y_i, theta)],

expectations over each subject's posterior. The first term is block diagonal. In the
second, each item's score is a smooth function of ability, so on the polynomials that
are orthonormal under a subject's posterior it has few coefficients:

    Cov_i = sum_{m >= 1} c_im c_im',   c_im = E_i[phi_m(theta) d log p(y_i, theta)].

Hence I = D - C'C with D block diagonal, exact once the terms suffice, and every row of
C a matrix product over the nodes. With D = F F' and whitened rows C F'^-1 the inverse
needs (1 - C'C)^-1: directly when there are few items, by the Woodbury identity when
there are few subjects, and when there are many of both by the leading eigenvectors of
C'C (randomised subspace iteration) with the remainder to first order, block by block.

What is returned is each item's own block, and a factor of low rank of what ties items
together: a change of the whole test's location or scale, above all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from irtjax.estimators.base import Problem, is_rescaled
from irtjax.models.base import Population
from irtjax.numerics import (
    inverse_cholesky,
    normal_log_weights,
    symmetric_eigen_2x2,
)
from irtjax.uncertainty.scores import (
    Setting,
    Whitening,
    complete_information,
    fold_blocks,
    frame_rows_of,
    make_setting,
)

#: Largest number of parameters, or of subjects times terms, inverted densely.
DENSE_LIMIT = 3000
#: Rank kept when both are larger.
RANK = 96
KINDS = ("observed", "cross_product", "sandwich")


class Covariance(NamedTuple):
    """Sampling covariance of item coordinates and of the population.

    The covariance of two different items' coordinates is that of `shared`,
    sum_r shared_rj shared_rk', and likewise with the population.

    Attributes:
        items: `[items, columns, columns]` covariance of each item's unconstrained
            coordinates; zero rows where fixed.
        scale: `[2, 2]` covariance of the population's (mean, log sd), zero where these
            are not estimated.
        items_scale: `[items, columns, 2]` covariance of coordinates with (mean, log
            sd).
        definite: Whether the information was positive definite: if not, the
            parameters are not identified at this point and errors are not usable.
        shared: `[rank, items, columns]` factor of what items share: leading
            eigenvectors, at most RANK + 2 of them.
        shared_scale: `[rank, 2]` the same of the population's (mean, log sd).
        rescaled: Whether that sd is reported as a common discrimination (1PL), so that
            abilities are divided by it.
    """

    items: Float[Array, "items columns columns"]
    scale: Float[Array, "2 2"]
    items_scale: Float[Array, "items columns 2"]
    definite: Array
    shared: Float[Array, "rank items columns"]
    shared_scale: Float[Array, "rank 2"]
    rescaled: Array

    @classmethod
    def of_independent(cls, items: Float[Array, "items columns columns"]) -> Covariance:
        """Items whose errors are independent, the population as known."""
        num_items, columns, _ = items.shape
        none = jnp.zeros((num_items, columns, 2), items.dtype)
        return cls(
            items,
            jnp.zeros((2, 2), items.dtype),
            none,
            jnp.ones((), bool),
            jnp.zeros((0, num_items, columns), items.dtype),
            jnp.zeros((0, 2), items.dtype),
            jnp.zeros((), bool),
        )


def leading_rows(
    product: Callable[[Array], Array], size: int, dtype, floor: float = 0.0
) -> Array:
    """Rows U of the leading eigenpairs of a matrix M >= floor: M - floor ~ U'U.

    Args:
        product: Applies M to `[size, vectors]`.
        size: Order of M.
        dtype: Of M.
        floor: Subtracted from every eigenvalue.

    Returns:
        `[min(size, RANK), size]`.
    """
    rank = min(size, RANK)
    vectors = jnp.eye(size, dtype=dtype)
    if rank < size:
        vectors = jax.random.normal(jax.random.key(0), (size, rank), dtype)
        for _ in range(4):
            vectors, _ = jnp.linalg.qr(product(vectors))
    core = vectors.T @ product(vectors)
    values, rotation = jnp.linalg.eigh((core + core.T) / 2)
    return ((vectors @ rotation) * jnp.sqrt(jnp.maximum(values - floor, 0))).T


def _diagonal_blocks(rows: Array, num_items: int, columns: int):
    """Blocks of rows' rows: items, population, and items with population."""
    items = rows[:, :-2].reshape(-1, num_items, columns)
    scale = rows[:, -2:]
    return (
        jnp.einsum("rja,rjb->jab", items, items),
        scale.T @ scale,
        jnp.einsum("rja,rb->jab", items, scale),
    )


def _invert_dense(setting, whitening, num_terms, kind, prior, frame_rows):
    """(1 - C'C)^-1 as a matrix, or its cross-product or sandwich counterpart."""
    size = setting.free.size + 2

    def body(carry, rows, start):
        correction, outer = carry
        later = rows[1:].reshape(-1, size)
        return correction + later.T @ later, outer + rows[0].T @ rows[0]

    zero = jnp.zeros((size, size), setting.nodes.dtype)
    correction, outer = fold_blocks(setting, whitening, num_terms, body, (zero, zero))
    information = jnp.eye(size, dtype=zero.dtype) - correction
    if kind == "cross_product":
        information = outer + prior
    information = information - frame_rows.T @ frame_rows
    factor = jnp.linalg.cholesky(information)
    definite = jnp.all(jnp.isfinite(factor))
    inverse = jax.scipy.linalg.cho_solve(
        (factor, True), jnp.eye(size, dtype=zero.dtype)
    )
    if kind == "sandwich":
        inverse = inverse @ outer @ inverse
    return inverse, definite


def _low_rank(setting, whitening, num_terms, exact: bool, key, frame_rows):
    """U and R of (1 - C'C)^-1 = 1 + U'U + R: exact by Woodbury, or leading vectors."""
    num_subjects, dtype = setting.data.num_subjects, setting.nodes.dtype
    num_items, columns = setting.free.shape
    size = setting.free.size + 2
    nothing = jnp.zeros((num_items, columns, columns), dtype)
    if exact:
        # Rows are laid out [terms, subjects, parameters].
        empty = jnp.zeros((num_terms, num_subjects, size), dtype)

        def keep(carry, rows, start):
            old = lax.dynamic_slice_in_dim(carry, start, rows.shape[1], 1)
            return lax.dynamic_update_slice_in_dim(
                carry, jnp.where(rows[1:] == 0, old, rows[1:]), start, 1
            )

        rows = fold_blocks(setting, whitening, num_terms, keep, empty)
        rows = jnp.concatenate([rows.reshape(-1, size), frame_rows])
        core = jnp.eye(rows.shape[0], dtype=dtype) - rows @ rows.T
        factor = jnp.linalg.cholesky(core)
        definite = jnp.all(jnp.isfinite(factor))
        rows = jax.scipy.linalg.solve_triangular(factor, rows, lower=True)
        return rows, nothing, definite

    def product(vectors):
        def body(carry, rows, start):
            sums, blocks = carry
            later = rows[1:].reshape(-1, size)
            items = later[:, :-2].reshape(-1, num_items, columns)
            return (
                sums + later.T @ (later @ vectors),
                blocks + jnp.einsum("rja,rjb->jab", items, items),
            )

        items = frame_rows[:, :-2].reshape(2, num_items, columns)
        init = (
            frame_rows.T @ (frame_rows @ vectors),
            jnp.einsum("rja,rjb->jab", items, items),
        )
        return fold_blocks(setting, whitening, num_terms, body, init)

    vectors = jax.random.normal(key, (size, RANK), dtype)
    for _ in range(3):
        vectors, _ = jnp.linalg.qr(product(vectors)[0])
    image, blocks = product(vectors)
    values, rotation = jnp.linalg.eigh(vectors.T @ image)
    leading = vectors @ rotation
    definite = jnp.all(values < 1)
    values = jnp.clip(values, 0, 1 - 1e-6)
    explained = leading[:-2] * jnp.sqrt(values)
    explained = explained.reshape(num_items, columns, -1)
    remainder = blocks - jnp.einsum("jar,jbr->jab", explained, explained)
    return (leading * jnp.sqrt(values / (1 - values))).T, remainder, definite


def default_terms(num_items: int) -> int:
    """Terms that make the truncation error negligible beside a standard error.

    Posteriors narrow as items are added, and a score's curvature over a posterior
    falls with its variance: 20 terms at 5 items and 2 at thousands.
    """
    return 20 if num_items <= 30 else 8 if num_items <= 600 else 2


@eqx.filter_jit
def _covariance(problem, coordinates, population, nodes, log_weights, kind, terms, how):
    setting = make_setting(problem, coordinates, population, nodes, log_weights)
    blocks, scale = complete_information(setting, problem, coordinates, population)
    num_items, columns = problem.free.shape
    whitening = Whitening(inverse_cholesky(blocks), inverse_cholesky(scale))
    definite = jnp.all(jnp.isfinite(whitening.items))
    estimated = jnp.any(setting.scale_scores != 0, axis=1)
    frame_rows = frame_rows_of(setting, problem, coordinates, whitening)
    if how == "dense":
        log_sd = jnp.log(population.sd)
        prior = _prior_information(setting, coordinates, whitening, estimated, log_sd)
        inverse, ok = _invert_dense(setting, whitening, terms, kind, prior, frame_rows)
        index = jnp.arange(num_items)
        square = inverse[:-2, :-2].reshape(num_items, columns, num_items, columns)
        items = square[index, :, index, :]
        cross = inverse[:-2, -2:].reshape(num_items, columns, 2)
        parts = items, inverse[-2:, -2:], cross
        # 1 is the part of the item alone. Other kinds have no such floor.
        floor = 1.0 if kind == "observed" else 0.0
        rows = leading_rows(
            lambda v: inverse @ v, inverse.shape[0], inverse.dtype, floor
        )
    else:
        exact = how == "woodbury"
        rows, remainder, ok = _low_rank(
            setting, whitening, terms, exact, jax.random.key(0), frame_rows
        )
        if kind == "sandwich":
            *parts, rows = _sandwich_blocks(setting, whitening, rows, remainder)
        else:
            items, corner, cross = _diagonal_blocks(rows, num_items, columns)
            items = items + remainder + jnp.eye(columns, dtype=items.dtype)
            parts = items, corner + jnp.eye(2, dtype=items.dtype), cross
            if rows.shape[0] > RANK:
                factor = rows
                rows = leading_rows(
                    lambda v: factor.T @ (factor @ v), factor.shape[1], factor.dtype
                )
    items, corner, cross = whitening.covariance(*parts)
    rows = _complete_scale(rows, parts[1])
    shared, shared_scale = whitening.unwhiten(rows)
    free = problem.free
    items = jnp.where(free[:, :, None] & free[:, None, :], items, 0)
    corner = jnp.where(estimated[:, None] & estimated[None, :], corner, 0)
    cross = jnp.where(free[:, :, None] & estimated, cross, 0)
    return Covariance(
        items,
        corner,
        cross,
        definite & ok,
        jnp.where(free, shared, 0),
        jnp.where(estimated, shared_scale, 0),
        jnp.asarray(is_rescaled(problem)),
    )


def _complete_scale(rows: Array, corner: Array) -> Array:
    """The rows, and two more for what they leave of the population's covariance."""
    values, vectors = symmetric_eigen_2x2(corner - rows[:, -2:].T @ rows[:, -2:])
    root = vectors * jnp.sqrt(jnp.maximum(values, 0))
    zeros = jnp.zeros((2, rows.shape[1] - 2), rows.dtype)
    return jnp.concatenate([rows, jnp.concatenate([zeros, root.T], axis=1)])


def _sandwich_blocks(setting, whitening, rows, remainder):
    """Blocks and shared rows of M = A^-1 B A^-1 with A^-1 = 1 + U'U + R.

    Folded over subjects. The rows are Nystrom's, M ~ M O (O' M O)^-1 O' M, with O the
    span of the leading rows of U, where errors of location and scale lie.
    """
    num_items, columns = setting.free.shape
    sketch = jnp.linalg.qr(rows.T)[0][:, :RANK]

    def body(carry, scores, start):
        score = scores[0]
        items = score[:, :-2].reshape(-1, num_items, columns)
        extra = jnp.einsum("bja,jac->bjc", items, remainder)
        applied = score + (score @ rows.T) @ rows
        applied = applied.at[:, :-2].add(extra.reshape(score.shape[0], -1))
        blocks = _diagonal_blocks(applied, num_items, columns)
        parts = (*blocks, applied.T @ (applied @ sketch))
        return jax.tree.map(jnp.add, carry, parts)

    dtype = setting.nodes.dtype
    init = (
        jnp.zeros((num_items, columns, columns), dtype),
        jnp.zeros((2, 2), dtype),
        jnp.zeros((num_items, columns, 2), dtype),
        jnp.zeros(sketch.shape, dtype),
    )
    *blocks, image = fold_blocks(setting, whitening, 0, body, init)
    values, vectors = jnp.linalg.eigh(sketch.T @ image)
    usable = values > 1e3 * jnp.finfo(dtype).eps * jnp.max(values)
    root = jnp.where(usable, jax.lax.rsqrt(jnp.where(usable, values, 1)), 0)
    return *blocks, root[:, None] * (vectors.T @ image.T)


def _prior_information(setting: Setting, coordinates, whitening, estimated, log_sd):
    """Whitened prior curvature, with 1 for what is fixed (its scores are 0)."""
    model, free = setting.model, setting.free
    log_prior = lambda row: model.log_prior_in(row, setting.frame)  # noqa: E731
    curvature = -jax.vmap(jax.hessian(log_prior))(coordinates)
    both = free[:, :, None] & free[:, None, :]
    fixed = jnp.eye(both.shape[1], dtype=curvature.dtype) * ~free[:, :, None]
    blocks = jnp.where(both, curvature, fixed)
    white = jnp.einsum("jab,jbc,jdc->jad", whitening.items, blocks, whitening.items)
    num_items, columns = free.shape
    index = jnp.arange(num_items)
    full = jnp.zeros((num_items, columns, num_items, columns), white.dtype)
    full = full.at[index, :, index, :].set(white)
    size = free.size + 2
    result = jnp.zeros((size, size), white.dtype)
    result = result.at[:-2, :-2].set(full.reshape(size - 2, size - 2))
    log_prior = lambda log_sd: model.log_common_slope_prior(jnp.exp(log_sd))  # noqa: E731
    own = -jax.grad(jax.grad(log_prior))(log_sd) * whitening.scale[1, 1] ** 2
    corner = jnp.where(estimated, jnp.stack([jnp.zeros_like(own), own]), 1)
    return result.at[[-2, -1], [-2, -1]].set(corner)


def check_kind(problem: Problem, kind: str) -> None:
    """Refuses a kind of error that these data cannot give, before any work is done.

    Raises:
        ValueError: For an unknown kind, or a cross-product asked of more parameters
            than subjects (its rank is at most their number) or than can be held.
            For a model with answer lengths: for any kind but "observed", or more
            parameters than can be held.
    """
    if kind not in KINDS:
        raise ValueError(f"standard errors {kind!r} are none of {', '.join(KINDS)}")
    if problem.model.lengths is not None:
        total = problem.free.size + 3 * problem.data.num_items + 1
        if kind != "observed" or total > DENSE_LIMIT:
            raise ValueError(
                "a model with answer lengths has standard_errors='observed', from all"
                f" its parameters at once (here {total}, at most {DENSE_LIMIT}); use"
                " standard_errors='none' and the bootstrap"
            )
    if kind != "cross_product":
        return
    size, num_subjects = int(jnp.sum(problem.free)), problem.data.num_subjects
    if problem.free.size + 2 > DENSE_LIMIT:
        raise ValueError(
            f"cross-product errors need all {size} parameters at once, at most"
            f" {DENSE_LIMIT}; use standard_errors='observed' or 'sandwich'"
        )
    if num_subjects <= size:
        raise ValueError(
            f"cross-product errors need more subjects ({num_subjects}) than"
            f" parameters ({size}); use standard_errors='observed'"
        )


def item_covariance(
    problem: Problem,
    coordinates: Float[Array, "items columns"],
    population: Population,
    nodes: Float[Array, " nodes"],
    *,
    kind: str = "observed",
    num_terms: int | None = None,
    how: str | None = None,
) -> Covariance:
    """Sampling covariance of each item's coordinates, from the marginal likelihood.

    Args:
        problem: The problem that was fitted.
        coordinates: Unconstrained item coordinates at the estimate.
        population: Population at the estimate, on the scale of the coordinates.
        nodes: Standardised quadrature nodes.
        kind: "observed" (information with priors; Louis 1982, Oakes 1999),
            "cross_product" (of subjects' scores; Berndt et al. 1974) or "sandwich"
            (robust to a misspecified model; White 1982).
        num_terms: Polynomial terms of each subject's posterior.
        how: "dense", "woodbury" (both exact) or "leading"; chosen by size when None.

    Returns:
        The covariance. Check `definite` before using it.

    Raises:
        ValueError: See `check_kind`.
    """
    check_kind(problem, kind)
    data, size = problem.data, problem.free.size + 2
    terms = default_terms(data.num_items) if num_terms is None else num_terms
    if how is None:
        rows = data.num_subjects * terms
        how = "dense" if size <= min(rows, DENSE_LIMIT) else "woodbury"
        if how == "woodbury" and rows > DENSE_LIMIT:
            how = "dense" if size <= DENSE_LIMIT else "leading"
    if kind == "cross_product":
        how = "dense"
    log_weights = population.log_weights
    if log_weights is None:
        log_weights = normal_log_weights(nodes)
    return _covariance(
        problem, coordinates, population, nodes, log_weights, kind, terms, how
    )
