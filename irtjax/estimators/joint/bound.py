"""Block updates of a response to theta_i . a_j + d_j under a quadratic bound.

With eta = theta . a + d, temperature s and n trials (1 for a single response) a cell's
log-likelihood has slope r in eta / s, and curvature at most n L (`cells`), hence

    log p(eta') >= log p(eta) + (r / s) (eta' - eta) - n L (eta' - eta)^2 / (2 s^2),

a weighted least-squares problem in items given abilities and in abilities given items.
A logit may have a smaller curvature in each cell in place of L (`cells.logit_bend`).
Everything is written for any number of latent dimensions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from irtjax.data.responses import Responses
from irtjax.estimators.joint.cells import LOGIT, AbstractCells
from irtjax.estimators.joint.group_lasso import GroupLasso
from irtjax.estimators.joint.objective import block_weight, by_subject
from irtjax.numerics.kernels import (
    block_size_for,
    positive_definite_solve,
    put_block,
    scan_subject_blocks,
    take_block,
    weigh_rows,
)
from irtjax.numerics.nnls import nnls


class BilinearParameters(NamedTuple):
    """The parameters of the bilinear predictor, and cuts of ordered categories.

    `cuts` are `[items, C - 1]` deviations of the intercepts from their mean.
    """

    discrimination: Float[Array, "items dims"]
    intercept: Float[Array, " items"]
    theta: Float[Array, "subjects dims"]
    cuts: Array | None = None

    def fold(self, shift: Array, log_scale: Array) -> BilinearParameters:
        """The same predictors from abilities (theta - shift) / scale, `[dims]` each."""
        return BilinearParameters(
            self.discrimination * jnp.exp(log_scale),
            self.intercept + self.discrimination @ shift,
            (self.theta - shift) * jnp.exp(-log_scale),
            self.cuts,
        )

    @property
    def stacked(self) -> Float[Array, "items p"]:
        """(d, a) of each item, the intercept first."""
        return jnp.concatenate([self.intercept[:, None], self.discrimination], axis=1)


def factors_of(cells: AbstractCells, items: Any, theta: Array) -> BilinearParameters:
    """Items and abilities with a trailing axis of dimensions.

    Raises:
        ValueError: If they have different numbers of dimensions.
    """
    slope = jnp.asarray(items.discrimination)
    intercept, cuts = cells.split(items)
    slope = slope.reshape(slope.shape[0], -1)
    theta = theta.reshape(theta.shape[0], -1)
    if slope.shape[1] != theta.shape[1]:
        raise ValueError(
            f"discriminations have {slope.shape[1]} dimensions and abilities"
            f" {theta.shape[1]}"
        )
    return BilinearParameters(slope, jnp.asarray(intercept), theta, cuts)


class Quadratic(NamedTuple):
    """Independent quadratics; the curvature is `[1, p, p]` if all rows share it."""

    gradient: Float[Array, "rows p"]
    curvature: Float[Array, "rows p p"]

    @property
    def diagonal(self) -> Float[Array, "rows p"]:
        """The diagonal of the curvature."""
        return jnp.diagonal(self.curvature, axis1=1, axis2=2)


class CutSums(NamedTuple):
    """Sums over the subjects of each item, with subject weights, in units of eta.

    `log_lik` is that of the items; `scores`, their absolute `terms` and the expected
    `information` are those of the cuts.
    """

    log_lik: Float[Array, " items"]
    scores: Float[Array, "items cuts"]
    terms: Float[Array, "items cuts"]
    information: Float[Array, "items cuts cuts"]


class ItemSweep(NamedTuple):
    """Results of a pass over the data at one point.

    `log_lik` is without subject weights; the bound of items in (d_j, a_j) has them, and
    that of subjects in theta_i has item weights. The terms are sums of the absolute
    terms of the gradients, without priors: what must cancel where a gradient is 0.
    `cuts` is None for families with one intercept.
    """

    log_lik: Float[Array, " subjects"]
    items: Quadratic
    subjects: Quadratic
    item_terms: Float[Array, "items p"]
    subject_terms: Float[Array, "subjects dims"]
    cuts: CutSums | None = None


class _Block(NamedTuple):
    """A block of cells, `[block, items]` each; `predictor` is eta / s.

    `bend` is the curvature in units of L.
    """

    values: Array
    exposure: Array | float
    predictor: Array
    log_prob: Array
    slope: Array
    bend: Any


def _block_cells(
    data: Responses, factors: BilinearParameters, temperature, cells, start, size
) -> _Block:
    """Responses, n (1 if complete), eta / s, log p, its slope and its curvature."""
    discrimination = factors.discrimination / temperature
    eta = factors.intercept / temperature
    theta = take_block(factors.theta, start, size)
    dtype, dims = discrimination.dtype, discrimination.shape[1]
    values = take_block(data.values, start, size).astype(dtype)
    exposure = take_block(data.exposure, start, size)
    if dims > 4:
        eta = theta @ discrimination.T + eta
    else:  # a sum of outer products, which fuses with what follows
        for k in range(dims):
            eta = eta + theta[:, k, None] * discrimination[:, k]
    exposure = 1.0 if exposure is None else exposure.astype(dtype)
    cuts = None if factors.cuts is None else factors.cuts / temperature
    terms = cells.cell(values, exposure, eta, cuts, data.trials is None)
    bend = exposure if terms.bend is None else terms.bend
    return _Block(values, exposure, eta, terms.log_prob, terms.slope, bend)


def _row_sums(data: Responses, cells: Array) -> Array:
    """Sums over items of a block of cells, with item weights."""
    ones = jnp.ones((data.num_items, 1), cells.dtype)
    # A product with ones: on a CPU a sum along rows is five times slower.
    return (cells @ weigh_rows(ones, data.item_weight))[:, 0]


def surrogate(
    data: Responses,
    factors: BilinearParameters,
    anchor: BilinearParameters,
    temperature: Array | float,
    cells: AbstractCells = LOGIT,
) -> Float[Array, " subjects"]:
    """The quadratic bound of each subject's log-likelihood, at a point.

    The sum over items of the right-hand side of the module's inequality, with eta of
    the anchor and eta' of the point `factors`, in both items and abilities. With item
    weights, without subject weights; `temperature` is s.
    """

    def block(size, start, factors, anchor):
        here = _block_cells(data, factors, temperature, cells, start, size)
        there = _block_cells(data, anchor, temperature, cells, start, size)
        move = here.predictor - there.predictor
        bend = there.bend * cells.curvature * move / 2
        return _row_sums(data, there.log_prob + (there.slope - bend) * move)

    dtype = jnp.result_type(factors.intercept, anchor.intercept)
    return by_subject(data, dtype, block, factors, anchor)


def _outer(vectors: Float[Array, "rows p"]) -> Float[Array, "rows pp"]:
    """Products of each vector's entries with each other, flat."""
    return (vectors[:, :, None] * vectors[:, None, :]).reshape(vectors.shape[0], -1)


def _subject_curvature(data: Responses, bend, slope) -> Array:
    """sum_j v_j w_ij a_j a_j' of a block, `[block or 1, dims, dims]`, in units of L."""
    dims = slope.shape[1]
    products = weigh_rows(_outer(slope), data.item_weight)
    if bend is None:
        return jnp.sum(products, axis=0).reshape(1, dims, dims)
    return (bend @ products).reshape(-1, dims, dims)


def _is_shared(data: Responses, cells: AbstractCells, common: bool) -> bool:
    """Whether all rows have the same curvature."""
    return (data.exposure is None and not cells.own_bend) or common


def _cut_sums(block: _Block, cells, cuts, temperature, weight) -> CutSums:
    """`CutSums` of a block of subjects."""
    terms = cells.cut_terms(*block[:3], cuts / temperature)
    total = lambda cell: weight @ cell
    none, size = jnp.zeros(cuts.shape[0], cuts.dtype), range(cells.num_cuts)
    by_pair = {pair: total(x) for pair, x in terms.information.items()}
    pairs = [[(min(h, k), max(h, k)) for k in size] for h in size]
    rows = [jnp.stack([by_pair.get(pair, none) for pair in row], -1) for row in pairs]
    return CutSums(
        total(block.log_prob),
        jnp.stack([total(x) for x in terms.scores], -1) / temperature,
        jnp.stack([total(jnp.abs(x)) for x in terms.scores], -1) / temperature,
        jnp.stack(rows, 1) / temperature**2,
    )


def item_sweep(
    data: Responses,
    factors: BilinearParameters,
    temperature: Array | float,
    cells: AbstractCells,
) -> tuple[Float[Array, " items"], Float[Array, "items p"]]:
    """Log-likelihood of each item and its gradient in (d_j, a_j), in one pass."""
    theta, size = factors.theta, factors.discrimination.shape[1]
    dtype = theta.dtype
    rows = block_size_for(data.num_subjects, data.num_items, dtype.itemsize)

    def body(carry, start, is_new):
        block = _block_cells(data, factors, temperature, cells, start, rows)
        weight = block_weight(data, start, is_new, dtype)
        left = _design(take_block(theta, start, rows)) * weight[:, None]
        sums = weight @ block.log_prob, (left.T @ block.slope).T / temperature
        return tuple(x + y for x, y in zip(carry, sums, strict=True))

    none = jnp.zeros((data.num_items, 1 + size), dtype)
    return scan_subject_blocks(body, (none[:, 0], none), data.num_subjects, rows)


def _design(theta: Float[Array, "subjects dims"]) -> Array:
    """(1, theta) of each subject."""
    return jnp.concatenate([jnp.ones_like(theta[:, :1]), theta], 1)


def sweep(
    data: Responses,
    factors: BilinearParameters,
    temperature: Array | float,
    cells: AbstractCells = LOGIT,
    common: bool = False,
) -> ItemSweep:
    """Log-likelihood and both quadratic bounds at a point, in one fused pass.

    With `common` missing cells have the curvature of the others (`common_bound`).
    """
    shared = _is_shared(data, cells, common)

    def of_some(part: Responses, theta: Array) -> tuple[Any, Any]:
        own = factors._replace(theta=theta)
        here = _sweep(part, own, temperature, cells, common)
        gradient, curvature = here.subjects
        curvature = None if shared else curvature
        rows = here.log_lik, gradient, curvature, here.subject_terms
        return (here.items, here.item_terms, here.cuts), rows

    (items, terms, of_cuts), rows = data.fold(of_some, factors.theta)
    log_lik, gradient, curvature, row_terms = rows
    if shared:
        curvature = _shared_curvature(data, factors, temperature, cells)
    subjects = Quadratic(gradient, curvature)
    return ItemSweep(log_lik, items, subjects, terms, row_terms, of_cuts)


def _shared_curvature(data: Responses, factors, temperature, cells) -> Array:
    """The curvature that the bounds of all subjects share, `[1, dims, dims]`."""
    bend = cells.curvature / temperature**2
    return _subject_curvature(data, None, factors.discrimination) * bend


def _sweep(
    data: Responses,
    factors: BilinearParameters,
    temperature: Array | float,
    cells: AbstractCells,
    common: bool,
) -> ItemSweep:
    """`sweep` of subjects whose abilities are those of `factors`."""
    num_subjects, num_items = data.values.shape
    slope, theta, cuts = factors.discrimination, factors.theta, factors.cuts
    dtype, dims = slope.dtype, slope.shape[1]
    size = block_size_for(num_subjects, num_items, dtype.itemsize)
    complete = _is_shared(data, cells, common)
    right = weigh_rows(slope, data.item_weight)

    def body(carry, start, is_new):
        """Adds a block of subjects to the sums; keeps what is per subject."""
        log_lik, columns, terms, moments, rows, row_terms, curvature, of_cuts = carry
        here = _block_cells(data, factors, temperature, cells, start, size)
        weight = block_weight(data, start, is_new, dtype)
        design = _design(take_block(theta, start, size))
        left, size_of = design * weight[:, None], jnp.abs(here.slope)
        products = _outer(design) * weight[:, None]
        if complete:
            moments = moments + jnp.sum(products, axis=0)
        else:
            moments = moments + (products.T @ here.bend).T
            block = _subject_curvature(data, here.bend, slope)
            curvature = put_block(curvature, block, start)
        if of_cuts is not None:
            new_cuts = _cut_sums(here, cells, cuts, temperature, weight)
            of_cuts = jax.tree.map(jnp.add, of_cuts, new_cuts)
        return (
            put_block(log_lik, _row_sums(data, here.log_prob), start),
            columns + (left.T @ here.slope).T,
            terms + (jnp.abs(left).T @ size_of).T,
            moments,
            put_block(rows, here.slope @ right, start),
            put_block(row_terms, size_of @ jnp.abs(right), start),
            curvature,
            of_cuts,
        )

    columns = jnp.zeros((num_items, 1 + dims), dtype)
    moments = jnp.zeros((1 if complete else num_items, (1 + dims) ** 2), dtype)
    rows, curvature = _no_rows(data, factors, complete)
    none, of_cuts = jnp.zeros(num_subjects, dtype), None
    if cells.num_cuts > 1:
        each = jnp.zeros((num_items, cells.num_cuts), dtype)
        square = jnp.zeros((*each.shape, cells.num_cuts), dtype)
        of_cuts = CutSums(each[:, 0], each, each, square)
    init = (none, columns, columns, moments, rows, rows, curvature, of_cuts)
    log_lik, columns, terms, moments, rows, row_terms, curvature, of_cuts = (
        scan_subject_blocks(body, init, num_subjects, size)
    )
    bend = cells.curvature / temperature**2
    return ItemSweep(
        log_lik,
        Quadratic(
            columns / temperature, moments.reshape(-1, 1 + dims, 1 + dims) * bend
        ),
        Quadratic(rows / temperature, curvature * bend),
        terms / temperature,
        row_terms / temperature,
        of_cuts,
    )


def _no_rows(
    data: Responses, factors: BilinearParameters, shared: bool
) -> tuple[Array, Array]:
    """Zeros for the gradients of subjects; their curvature if all have the same."""
    slope, theta = factors.discrimination, factors.theta
    if shared:
        return jnp.zeros_like(theta), _subject_curvature(data, None, slope)
    shape = (*theta.shape, theta.shape[1])
    return jnp.zeros_like(theta), jnp.zeros(shape, theta.dtype)


def subject_sweep(
    data: Responses,
    factors: BilinearParameters,
    temperature: Array | float,
    cells: AbstractCells = LOGIT,
    common: bool = False,
) -> Quadratic:
    """The quadratic bound in the abilities alone: the second pass of an iteration."""
    shared = _is_shared(data, cells, common)

    def of_some(part: Responses, theta: Array) -> tuple[None, Any]:
        own = factors._replace(theta=theta)
        here = _subject_sweep(part, own, temperature, cells, shared)
        return None, here._replace(curvature=None) if shared else here

    _, here = data.fold(of_some, factors.theta)
    if not shared:
        return here
    curvature = _shared_curvature(data, factors, temperature, cells)
    return here._replace(curvature=curvature)


def _subject_sweep(
    data: Responses,
    factors: BilinearParameters,
    temperature: Array | float,
    cells: AbstractCells,
    shared: bool,
) -> Quadratic:
    """`subject_sweep` of subjects whose abilities are those of `factors`."""
    slope = factors.discrimination
    size = block_size_for(data.num_subjects, data.num_items, slope.dtype.itemsize)
    right = weigh_rows(slope, data.item_weight)

    def body(carry, start, is_new):
        rows, curvature = carry
        here = _block_cells(data, factors, temperature, cells, start, size)
        if not shared:
            block = _subject_curvature(data, here.bend, slope)
            curvature = put_block(curvature, block, start)
        return put_block(rows, here.slope @ right, start), curvature

    init = _no_rows(data, factors, shared)
    rows, curvature = scan_subject_blocks(body, init, data.num_subjects, size)
    bend = cells.curvature / temperature**2
    return Quadratic(rows / temperature, curvature * bend)


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
    lasso: GroupLasso | None = None,
) -> Float[Array, "items p"]:
    """Exact maximum of each item's bound over (d, a), with a >= 0 where requested.

    The intercept is eliminated by its Schur complement, which leaves non-negative
    least squares in the slopes, or the maximum with a group lasso; both only for one
    slope. Coordinates that are not `free` stay.
    """
    rows, size = point.shape
    gradient = jnp.where(free, quadratic.gradient, 0)
    pairs = free[:, :, None] & free[:, None, :]
    curvature = jnp.broadcast_to(quadratic.curvature, (rows, size, size))
    curvature = jnp.where(pairs, curvature, jnp.eye(size, dtype=point.dtype))
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
    if not positive and lasso is None:
        step, _ = positive_definite_solve(schur, reduced)
    else:
        target = reduced + jnp.einsum("jkl,jl->jk", schur, slope)
        if lasso is not None:
            new = lasso.maximum(schur, target, free[:, 1:])
            new = jnp.maximum(new, 0) if positive else new
        elif size == 2:
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
