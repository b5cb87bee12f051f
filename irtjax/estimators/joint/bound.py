"""Block updates of sigma((theta_i . a_j + d_j) / s) under a quadratic bound.

With n trials (1 for a single response) a cell's log-likelihood has curvature at most
n / (4 s^2) in eta = theta . a + d, so from the residual r = y - n sigma(eta / s)

    log p(eta') >= log p(eta) + (r / s) (eta' - eta) - n (eta' - eta)^2 / (8 s^2),

a weighted least-squares problem in items given abilities and in abilities given items.
Everything is written for any number of latent dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from irtjax.data.responses import Responses
from irtjax.estimators.joint.objective import block_weight, by_subject
from irtjax.models.families.logistic import Binary
from irtjax.models.model import Model
from irtjax.numerics.kernels import (
    block_size_for,
    positive_definite_solve,
    put_block,
    scan_subject_blocks,
    take_block,
    weigh_rows,
)
from irtjax.numerics.nnls import nnls


class Factors(NamedTuple):
    """The parameters of the bilinear predictor."""

    discrimination: Float[Array, "items dims"]
    intercept: Float[Array, " items"]
    theta: Float[Array, "subjects dims"]

    def fold(self, shift: Array, log_scale: Array) -> Factors:
        """The same predictors from abilities (theta - shift) / scale, `[dims]` each."""
        return Factors(
            self.discrimination * jnp.exp(log_scale),
            self.intercept + self.discrimination @ shift,
            (self.theta - shift) * jnp.exp(-log_scale),
        )

    @property
    def stacked(self) -> Float[Array, "items p"]:
        """(d, a) of each item, the intercept first."""
        return jnp.concatenate([self.intercept[:, None], self.discrimination], axis=1)


class Quadratic(NamedTuple):
    """Independent quadratics; the curvature is `[1, p, p]` if all rows share it."""

    gradient: Float[Array, "rows p"]
    curvature: Float[Array, "rows p p"]

    @property
    def diagonal(self) -> Float[Array, "rows p"]:
        """The diagonal of the curvature."""
        return jnp.diagonal(self.curvature, axis1=1, axis2=2)


class ItemSweep(NamedTuple):
    """Results of a pass over the data at one point.

    `log_lik` is without subject weights; the bound of items in (d_j, a_j) has them, and
    that of subjects in theta_i has item weights. The terms are sums of the absolute
    terms of the gradients, without priors: what must cancel where a gradient is 0.
    """

    log_lik: Float[Array, " subjects"]
    items: Quadratic
    subjects: Quadratic
    item_terms: Float[Array, "items p"]
    subject_terms: Float[Array, "subjects dims"]


class _Cells(NamedTuple):
    """A block of cells, `[block, items]` each."""

    values: Array
    exposure: Array | float
    predictor: Array
    chance: Array
    residual: Array


def _block_cells(data: Responses, factors: Factors, temperature, start, size) -> _Cells:
    """Responses, n (1 if complete), eta / s, sigma(eta / s) and the residual."""
    slope = factors.discrimination / temperature
    eta = factors.intercept / temperature
    theta = take_block(factors.theta, start, size)
    values = take_block(data.values, start, size).astype(slope.dtype)
    exposure = take_block(data.exposure, start, size)
    if slope.shape[1] > 4:
        eta = theta @ slope.T + eta
    else:  # a sum of outer products, which fuses with what follows
        for k in range(slope.shape[1]):
            eta = eta + theta[:, k, None] * slope[:, k]
    chance = jax.nn.sigmoid(eta)
    exposure = 1.0 if exposure is None else exposure.astype(slope.dtype)
    return _Cells(values, exposure, eta, chance, values - exposure * chance)


def _log_lik(data: Responses, cells: _Cells) -> Array:
    """Sums of log p = y eta - n max(eta, 0) + n log max(sigma, 1 - sigma)."""
    # For single responses the residual has the larger: one logarithm per cell.
    if data.trials is None:
        distance = jnp.abs(cells.residual)
        likelier = jnp.log(jnp.maximum(distance, 1 - distance))
    else:
        likelier = jnp.log(jnp.maximum(cells.chance, 1 - cells.chance))
        likelier = likelier * cells.exposure
    above = jnp.maximum(cells.predictor, 0) * cells.exposure
    return _row_sums(data, cells.values * cells.predictor - above + likelier)


def _row_sums(data: Responses, cells: Array) -> Array:
    """Sums over items of a block of cells, with item weights."""
    ones = jnp.ones((data.num_items, 1), cells.dtype)
    # A product with ones: on a CPU a sum along rows is five times slower.
    return (cells @ weigh_rows(ones, data.item_weight))[:, 0]


def check_logistic(model: Model, what: str) -> None:
    """Refuses models other than the logistic 1PL and 2PL, with bounded curvature."""
    family = model.family
    if not (
        isinstance(family, Binary) and family.link == "logit" and family.asymptotes == 0
    ):
        raise ValueError(
            f"{what} the logistic 1PL and 2PL, not {model.name!r}; use Gradient"
            " for its joint or EM for its marginal likelihood"
        )


def surrogate(
    data: Responses, factors: Factors, anchor: Factors, temperature: Array | float
) -> Float[Array, " subjects"]:
    """The quadratic bound of each subject's log-likelihood, at a point.

    The sum over items of the right-hand side of the module's inequality, with eta of
    the anchor and eta' of the point `factors`, in both items and abilities. With item
    weights, without subject weights; `temperature` is s.
    """

    def block(size, start, factors, anchor):
        here = _block_cells(data, factors, temperature, start, size)
        there = _block_cells(data, anchor, temperature, start, size)
        move = here.predictor - there.predictor
        rise = (there.residual - there.exposure * move / 8) * move
        return _log_lik(data, there) + _row_sums(data, rise)

    dtype = jnp.result_type(factors.intercept, anchor.intercept)
    return by_subject(data, dtype, block, factors, anchor)


def _outer(vectors: Float[Array, "rows p"]) -> Float[Array, "rows pp"]:
    return (vectors[:, :, None] * vectors[:, None, :]).reshape(vectors.shape[0], -1)


def _subject_curvature(data: Responses, exposure, slope) -> Array:
    """sum_j v_j n_ij a_j a_j' of a block, `[block or 1, dims, dims]`."""
    dims = slope.shape[1]
    products = weigh_rows(_outer(slope), data.item_weight)
    if exposure is None:
        return jnp.sum(products, axis=0).reshape(1, dims, dims)
    return (exposure @ products).reshape(-1, dims, dims)


def sweep(data: Responses, factors: Factors, temperature: Array | float) -> ItemSweep:
    """Log-likelihood and both quadratic bounds at a point, in one fused pass."""
    num_subjects, num_items = data.values.shape
    slope, _, theta = factors
    dtype, dims = slope.dtype, slope.shape[1]
    size = block_size_for(num_subjects, num_items, dtype.itemsize)
    complete = data.exposure is None
    right = weigh_rows(slope, data.item_weight)

    def body(carry, start, is_new):
        """Adds a block of subjects to the sums; keeps what is per subject."""
        log_lik, columns, terms, moments, rows, row_terms, curvature = carry
        cells = _block_cells(data, factors, temperature, start, size)
        weight = block_weight(data, start, is_new, dtype)
        ability = take_block(theta, start, size)
        design = jnp.concatenate([jnp.ones((size, 1), dtype), ability], 1)
        left, size_of = design * weight[:, None], jnp.abs(cells.residual)
        products = _outer(design) * weight[:, None]
        if complete:
            moments = moments + jnp.sum(products, axis=0)
        else:
            moments = moments + (products.T @ cells.exposure).T
            block = _subject_curvature(data, cells.exposure, slope)
            curvature = put_block(curvature, block, start)
        return (
            put_block(log_lik, _log_lik(data, cells), start),
            columns + (left.T @ cells.residual).T,
            terms + (jnp.abs(left).T @ size_of).T,
            moments,
            put_block(rows, cells.residual @ right, start),
            put_block(row_terms, size_of @ jnp.abs(right), start),
            curvature,
        )

    columns = jnp.zeros((num_items, 1 + dims), dtype)
    moments = jnp.zeros((1 if complete else num_items, (1 + dims) ** 2), dtype)
    rows, curvature = _no_rows(data, factors)
    none = jnp.zeros(num_subjects, dtype)
    init = (none, columns, columns, moments, rows, rows, curvature)
    log_lik, columns, terms, moments, rows, row_terms, curvature = scan_subject_blocks(
        body, init, num_subjects, size
    )
    moments = moments.reshape(-1, 1 + dims, 1 + dims) / (4 * temperature**2)
    return ItemSweep(
        log_lik,
        Quadratic(columns / temperature, moments),
        Quadratic(rows / temperature, curvature / (4 * temperature**2)),
        terms / temperature,
        row_terms / temperature,
    )


def _no_rows(data: Responses, factors: Factors) -> tuple[Array, Array]:
    """Zeros for the gradients of subjects; their curvature if all have the same."""
    slope, _, theta = factors
    if data.exposure is None:
        return jnp.zeros_like(theta), _subject_curvature(data, None, slope)
    shape = (*theta.shape, theta.shape[1])
    return jnp.zeros_like(theta), jnp.zeros(shape, theta.dtype)


def subject_sweep(
    data: Responses, factors: Factors, temperature: Array | float
) -> Quadratic:
    """The quadratic bound in the abilities alone: the second pass of an iteration."""
    slope = factors.discrimination
    size = block_size_for(data.num_subjects, data.num_items, slope.dtype.itemsize)
    right = weigh_rows(slope, data.item_weight)

    def body(carry, start, is_new):
        rows, curvature = carry
        cells = _block_cells(data, factors, temperature, start, size)
        if data.exposure is not None:
            block = _subject_curvature(data, cells.exposure, slope)
            curvature = put_block(curvature, block, start)
        return put_block(rows, cells.residual @ right, start), curvature

    init = _no_rows(data, factors)
    rows, curvature = scan_subject_blocks(body, init, data.num_subjects, size)
    return Quadratic(rows / temperature, curvature / (4 * temperature**2))


def add_normal_prior(
    quadratic: Quadratic, point: Array, mean: Array, precision: Array
) -> Quadratic:
    """Adds -precision (x - mean)^2 / 2 in every coordinate (`[p]` or `[rows, p]`)."""
    precision = jnp.broadcast_to(precision, point.shape)
    diagonal = precision[:, :, None] * jnp.eye(point.shape[1], dtype=point.dtype)
    return Quadratic(
        quadratic.gradient + precision * (mean - point), quadratic.curvature + diagonal
    )


def update_items(
    quadratic: Quadratic,
    point: Float[Array, "items p"],
    free: Bool[Array, "items p"],
    positive: bool,
) -> Float[Array, "items p"]:
    """Exact maximum of each item's bound over (d, a), with a >= 0 where requested.

    The intercept is eliminated by its Schur complement, which leaves non-negative
    least squares in the slopes. Coordinates that are not `free` stay.
    """
    rows, size = point.shape
    gradient = jnp.where(free, quadratic.gradient, 0)
    both = free[:, :, None] & free[:, None, :]
    curvature = jnp.broadcast_to(quadratic.curvature, (rows, size, size))
    curvature = jnp.where(both, curvature, jnp.eye(size, dtype=point.dtype))
    tiny = jnp.finfo(point.dtype).tiny * 1e6
    base = jnp.maximum(curvature[:, 0, 0], tiny)
    cross = curvature[:, 0, 1:]
    product = cross[:, :, None] * cross[:, None, :]
    schur = curvature[:, 1:, 1:] - product / base[:, None, None]
    # Where an item's subjects hardly differ the complement is all rounding error; a
    # little more curvature keeps the bound a bound.
    eps = jnp.finfo(point.dtype).eps
    ridge = 100 * eps * jnp.diagonal(curvature, axis1=1, axis2=2)[:, 1:]
    schur = schur + ridge[:, :, None] * jnp.eye(size - 1, dtype=point.dtype)
    reduced = gradient[:, 1:] - cross * (gradient[:, 0] / base)[:, None]
    slope = point[:, 1:]
    if not positive:
        step, _ = positive_definite_solve(schur, reduced)
    else:
        target = reduced + jnp.einsum("jkl,jl->jk", schur, slope)
        if size == 2:
            new = jnp.maximum(target / jnp.maximum(schur[:, 0], tiny), 0)
        else:
            new = jax.vmap(nnls)(schur, target)
        new = jnp.where(free[:, 1:], new, slope)
        step = new - slope
    back = (gradient[:, 0] - jnp.sum(cross * step, axis=1)) / base
    move = jnp.concatenate([back[:, None], step], axis=1)
    return jnp.where(free, point + move, point)


def update_subjects(
    quadratic: Quadratic, theta: Float[Array, "subjects dims"]
) -> Float[Array, "subjects dims"]:
    """Exact maximum of each subject's bound over its abilities."""
    shape = (*theta.shape, theta.shape[1])
    curvature = jnp.broadcast_to(quadratic.curvature, shape)
    step, _ = positive_definite_solve(curvature, quadratic.gradient)
    return theta + step
