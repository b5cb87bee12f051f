r"""Several abilities given items: modes, covariances, and expected scores.

A response depends on the abilities through the product t = a'theta alone, so with r
and w the first and minus the second derivative of log p(y) in t, everything is a
product of matrices. The mode of theta_i solves

    sum_j r_ij a_j = Sigma^-1 (theta_i - mu),  C_i^-1 = Sigma^-1 + sum_j w_ij a_j a_j',

C_i the covariance of abilities about their modes. With few responses the posterior is
not normal around its mode; its mean m_i and covariance S_i are those of the nearest
normal distribution (`factor_moments`).

The expected score sum_j s_j E[y | theta_i] on all items (shares s_j sum to 1) has the
posterior mean and the variance

    e_i = sum_j s_j E[y | t_ij],  t_ij ~ N(a_j'm_i, a_j'S_i a_j),               (1)
    V_i = g_i' S_i g_i + tr(H_i S_i H_i S_i) / 2 + sum_j D_ij' K_j D_ij,        (2)
    g_i = sum_j s_j m'_ij a_j,   H_i = sum_j s_j m''_ij a_j a_j',

m'_ij and m''_ij the mean derivatives of the expected response in t_ij, K_j the
covariance of (a_j, x_j), x the intercept or other coordinates of the item, and D_ij the
derivative of e_i in them: how the expected response moves, and how the mode moves with
the items. With w^x minus the second derivative of log p in t and x and m^x
the derivative of the mean response in x,

    D_ij = (f_ij theta_i + r_ij u_i, f^x_ij),   u_i = C_i g_i,
    f_ij = s_j m'_ij - w_ij u_i'a_j,   f^x_ij = s_j m^x_ij - w^x_ij u_i'a_j.

The last part of (2) is common to subjects; its main directions are returned as shared
errors, so that differences of subjects have the right error.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from irtjax.data.blocks import Block
from irtjax.data.responses import AbstractResponses
from irtjax.inference.moments import variance_of_score
from irtjax.inference.row_modes import find_modes, moments_of, rows_of
from irtjax.likelihood.products import expected_cells, item_cells, outer
from irtjax.models.model import Model, Population
from irtjax.numerics.kernels import (
    block_size_for,
    blocks_in_stretches,
    put_block,
    scan_subject_blocks,
    sums_in_stretches,
    take_block,
    weigh_rows,
)
from irtjax.numerics.programs import stored_jit

#: Most Newton steps of a block; with gentle slopes 5 to 10 are taken.
NUM_NEWTON = 100
#: Numbers of an observed cell that a pass holds at once, in addition to its slopes.
CELL_NUMBERS = 12
#: Directions of shared errors, and those sampled in addition to find them.
SHARED, OVERSAMPLED = 24, 8


class FactorScores(NamedTuple):
    """Modes of several abilities, their covariances, and posterior moments.

    Attributes:
        ability: `[subjects, dims]`.
        covariance: `[subjects, dims, dims]`.
        mean: `[subjects, dims]` m of the module.
        spread: `[subjects, dims, dims]` S of the module.
        converged: `[subjects]` whether the mode was found.
    """

    ability: Float[Array, "subjects dims"]
    covariance: Float[Array, "subjects dims dims"]
    mean: Float[Array, "subjects dims"]
    spread: Float[Array, "subjects dims dims"]
    converged: Array


class ExpectedOnItems(NamedTuple):
    """Expected scores with errors, and the errors that subjects share."""

    score: Float[Array, " subjects"]
    standard_error: Float[Array, " subjects"]
    shared: Float[Array, "subjects rank"]


@stored_jit
def score_factors(
    model: Model,
    items: Any,
    population: Population,
    data: AbstractResponses,
    start: Array | None = None,
    num_newton: int = NUM_NEWTON,
    into: FactorScores | None = None,
    between: Int[Array, "2"] | None = None,
) -> FactorScores:
    """Modes of several abilities given items, by Newton's method. Pure.

    Args:
        model: A model with `dims` abilities.
        items: Item records, discriminations `[items, dims]`.
        population: Their normal prior.
        data: Responses, all cells or the observed ones alone; subject weights do not
            count.
        start: `[subjects, dims]` first values; None for the prior mean.
        num_newton: Newton steps; with 0 the start is taken as the mode.
        into: Scores of other blocks of subjects, and
        between: the first block to put into them and the one after the last.
    """
    dtype = items.discrimination.dtype
    init = _prior_scores(population, items.discrimination, data.num_subjects)
    precision = jnp.linalg.inv(population.covariance.astype(dtype))
    mean = jnp.asarray(population.mean, dtype)
    start = init.ability if start is None else start
    root = jnp.finfo(dtype).eps ** 0.5

    def of_block(start: Array, block: Block) -> FactorScores:
        rows = rows_of(model, items, data.item_weight, block)
        first = block.rows(start).astype(dtype)
        ability, covariance, last = find_modes(rows, first, mean, precision, num_newton)
        moments = moments_of(rows, ability, covariance, mean, precision)
        return FactorScores(ability, covariance, *moments, last < 100 * root)

    if num_newton == 0:
        init = init._replace(ability=start.astype(dtype))
    numbers = _numbers_of_cell(init.ability.shape[1])
    options = {"numbers": numbers, "into": into, "between": between}

    def of_rows(part: AbstractResponses, own: Any) -> tuple[None, FactorScores]:
        init, start = own
        return None, part.map_subjects(partial(of_block, start), init, dtype, **options)

    return data.fold(of_rows, (init, start))[1]


def _numbers_of_cell(dims: int) -> int:
    """What a pass over observed cells holds of each at once."""
    return CELL_NUMBERS + 3 * dims


def _prior_scores(
    population: Population, slopes: Array, num_subjects: int
) -> FactorScores:
    """Scores of subjects without a response: those of the population."""
    dtype, dims = slopes.dtype, slopes.shape[1]
    mean = jnp.zeros((num_subjects, dims), dtype) + jnp.asarray(population.mean, dtype)
    square = jnp.zeros((num_subjects, dims, dims), dtype)
    square = square + population.covariance.astype(dtype)
    return FactorScores(mean, square, mean, square, jnp.ones(num_subjects, bool))


def watched_score_factors(
    model: Model,
    items: Any,
    population: Population,
    data: AbstractResponses,
    start: Array | None = None,
) -> FactorScores:
    """`score_factors` of the same arguments, in calls that show the share done."""
    slopes = items.discrimination
    return blocks_in_stretches(
        lambda *part: score_factors(
            model, items, population, data, start, NUM_NEWTON, *part
        ),
        lambda: _prior_scores(population, slopes, data.num_subjects),
        *data.stretches(slopes.dtype, _numbers_of_cell(slopes.shape[1])),
    )


@stored_jit
def expected_on_items(
    model: Model,
    items: Any,
    scores: FactorScores,
    into: tuple[Array, Array] | None = None,
    between: Int[Array, "2"] | None = None,
) -> tuple[Array, Array]:
    """Expected scores on all items, and their errors with the items as known. Pure.

    Args:
        model: A model with `dims` abilities.
        items: Item records.
        scores: Abilities and their covariances.
        into: What is returned of other blocks of subjects, and
        between: the first block to put into it and the one after the last.

    Returns:
        Equation (1) and the root of the first two parts of (2), each `[subjects]`.
    """
    num_subjects, num_items = scores.ability.shape[0], items.intercept.shape[0]
    dtype = items.intercept.dtype
    share = jnp.full(num_items, 1 / num_items, dtype)
    size = block_size_for(num_subjects, num_items, dtype.itemsize)

    def body(carry, begin, is_new):
        del is_new
        part = _expected(model, items, share, scores, begin, size)
        variance = part.variance
        score, error = carry
        score = put_block(score, part.score, begin)
        return score, put_block(error, jnp.sqrt(jnp.maximum(variance, 0)), begin)

    zeros = jnp.zeros(num_subjects, dtype)
    init = (zeros, zeros) if into is None else into
    return scan_subject_blocks(body, init, num_subjects, size, between)


def watched_on_items(
    model: Model, items: Any, scores: FactorScores
) -> tuple[Array, Array]:
    """`expected_on_items` of the same arguments, in calls that show the share done."""
    count, dtype = len(scores.ability), items.intercept.dtype
    size = block_size_for(count, len(items.intercept), dtype.itemsize)
    return blocks_in_stretches(
        lambda *part: expected_on_items(model, items, scores, *part),
        lambda: (jnp.zeros(count, dtype), jnp.zeros(count, dtype)),
        count,
        size,
    )


class _Expected(NamedTuple):
    """Of a block: score, its variance by the abilities, u = C g, s_j m'_ij, m^x_ij."""

    score: Array
    variance: Array
    along: Array
    rise: Array
    moves: tuple[Array, ...]


def _expected(model, items, share, scores: FactorScores, begin, size) -> _Expected:
    """Expected scores of a block of subjects, with derivatives in their abilities."""
    slopes = items.discrimination
    theta = take_block(scores.mean, begin, size)
    covariance = take_block(scores.covariance, begin, size)
    spread = take_block(scores.spread, begin, size)
    squares = outer(slopes)
    wide = spread.reshape(size, -1) @ squares.T
    cells = expected_cells(model, items, theta @ slopes.T, wide)
    rise = cells.slope * share
    gradient = rise @ slopes
    hessian = ((cells.bend * share) @ squares).reshape(spread.shape)
    variance = variance_of_score(gradient, hessian, spread)
    along = jnp.einsum("nkl,nl->nk", covariance, gradient)
    return _Expected(cells.mean @ share, variance, along, rise, cells.moves)


class _Moves(NamedTuple):
    """D_ij of a block of subjects: how their expected scores move with the items.

    D_ij = (f theta_i + r u_i, f^x): `factor` is f, `residual` r, `rest` has f^x of each
    other coordinate. `score` is e_i and `own` the first two parts of (2).
    """

    score: Array
    own: Array
    theta: Array
    along: Array
    factor: Array
    residual: Array
    rest: list[Array]

    @classmethod
    def of(cls, model: Model, items: Any, each, scores, begin, cells) -> _Moves:
        """Of the subjects of a block whose values and exposure are `cells`.

        `each` are the weights of the items.
        """
        share = each / jnp.sum(each)
        part = _expected(model, items, share, scores, begin, len(cells[0]))
        theta = take_block(scores.ability, begin, len(cells[0]))
        derivatives = item_cells(model, items, theta, *cells)
        pull = each * (part.along @ items.discrimination.T)
        moves = zip(part.moves, derivatives.mixed, strict=True)
        return cls(
            part.score,
            part.variance,
            theta,
            part.along,
            part.rise - derivatives.curvature * pull,
            derivatives.slope * each,
            [move * share - mixed * pull for move, mixed in moves],
        )

    def variance(self, covariance: Float[Array, "items p p"]) -> Array:
        """The last part of (2)."""
        theta, u, factor, residual = self[2:6]
        dims = theta.shape[1]
        flat = covariance[:, :dims, :dims].reshape(len(covariance), -1)
        parts = (
            factor**2 * (outer(theta) @ flat.T)
            + 2 * factor * residual * (outer(theta, u) @ flat.T)
            + residual**2 * (outer(u) @ flat.T)
        )
        for h, move in enumerate(self.rest):
            border = covariance[:, :dims, dims + h].T
            cross = factor * (theta @ border) + residual * (u @ border)
            parts = parts + 2 * move * cross
            for k, other in enumerate(self.rest):
                parts = parts + move * other * covariance[:, dims + h, dims + k]
        return jnp.sum(parts, axis=1)

    def of_items(self, columns: Float[Array, "items p rank"]) -> Array:
        """Products of the rows D_i with `columns`, `[block, rank]`."""
        size, dims = self.theta.shape
        by_slope = columns[:, :dims].reshape(len(columns), -1)
        shape = size, dims, columns.shape[2]
        by_theta = (self.factor @ by_slope).reshape(shape) * self.theta[:, :, None]
        by_along = (self.residual @ by_slope).reshape(shape) * self.along[:, :, None]
        total = jnp.sum(by_theta + by_along, axis=1)
        for h, move in enumerate(self.rest):
            total = total + move @ columns[:, dims + h]
        return total

    def of_subjects(self, rows: Float[Array, "block rank"]) -> Array:
        """Products of `rows` with the columns of D, `[p rank, items]`."""
        products = outer(self.theta, rows).T @ self.factor
        products = products + outer(self.along, rows).T @ self.residual
        return jnp.concatenate([products, *(rows.T @ x for x in self.rest)])


class _Passes(NamedTuple):
    """What the passes of `expected_with_items` found.

    `range_` is D K^(1/2) times random directions, `[subjects, rank]`, and `rows` the
    product of D with an orthonormal basis of it, `[p rank, items]`.
    """

    score: Array
    variance: Array
    range_: Array
    rows: Array

    @classmethod
    def none(cls, num_subjects: int, num_items: int, width: int, dtype) -> _Passes:
        """What no block found."""
        rank = min(SHARED + OVERSAMPLED, num_subjects)
        zeros = jnp.zeros(num_subjects, dtype)
        range_ = jnp.zeros((num_subjects, rank), dtype)
        return cls(zeros, zeros, range_, jnp.zeros((width * rank, num_items), dtype))


def expected_with_items(
    model: Model,
    items: Any,
    data: AbstractResponses,
    scores: FactorScores,
    item_covariance: Float[Array, "items p p"],
    key: Array | None = None,
) -> ExpectedOnItems:
    """Expected scores on all items with the errors of the items, (1) and (2).

    The shared errors are the main directions of D K^(1/2), found by one pass over the
    data with random directions and one with an orthonormal basis of what these span.
    The passes are made in calls that show the share done.

    Args:
        model: A model with `dims` abilities.
        items: Item records.
        data: The responses behind the scores. Expected scores are of all cells: those
            observed alone are laid out block by block.
        scores: Abilities and their covariances.
        item_covariance: `[items, columns, columns]` of (a_j, x_j).
        key: For the directions of shared errors; a fixed one when None.
    """
    (num_items, dims), width = items.discrimination.shape, item_covariance.shape[1]
    dtype, count = items.discrimination.dtype, data.num_subjects
    size = _block_of(count, num_items, dims, width, dtype)
    return sums_in_stretches(
        lambda *part: _with_items(
            model, items, data, scores, item_covariance, key, *part
        ),
        lambda: _Passes.none(count, num_items, width, dtype),
        count,
        size,
        passes=2,
    )


def _block_of(num_subjects: int, num_items: int, dims: int, width: int, dtype) -> int:
    """Subjects of a block: with several x_j a cell has several derivatives."""
    wide = num_items * (1 if width == dims + 1 else (1 + width - dims) ** 2)
    return block_size_for(num_subjects, wide, dtype.itemsize)


@stored_jit
def _with_items(
    model: Model,
    items: Any,
    data: AbstractResponses,
    scores: FactorScores,
    item_covariance: Float[Array, "items p p"],
    key: Array | None = None,
    into: _Passes | None = None,
    between: Int[Array, "2"] | None = None,
) -> tuple[ExpectedOnItems, _Passes]:
    """`expected_with_items`, some blocks of both passes into those of others. Pure."""
    num_items, dims = items.discrimination.shape
    num_subjects, dtype = data.num_subjects, items.discrimination.dtype
    each = weigh_rows(jnp.ones(num_items, dtype), data.item_weight)
    width = item_covariance.shape[1]
    size = _block_of(num_subjects, num_items, dims, width, dtype)
    init = into
    if init is None:
        init = _Passes.none(num_subjects, num_items, width, dtype)
    rank = init.range_.shape[1]
    of_first = of_second = None
    if between is not None:
        num_blocks = -(-num_subjects // size)
        of_first = jnp.minimum(between, num_blocks)
        of_second = jnp.maximum(between - num_blocks, 0)
    laid_out = data.matrix_blocks(size, dtype)

    block = lambda begin: _Moves.of(model, items, each, scores, begin, laid_out(begin))
    covariance = item_covariance.astype(dtype)
    ridge = 1e-12 * jnp.eye(width, dtype=dtype) * jnp.max(jnp.abs(covariance))
    root = jnp.linalg.cholesky(covariance + ridge)
    root = jnp.where(jnp.isfinite(root), root, 0)
    key = jax.random.key(0) if key is None else key
    sketch = jax.random.normal(key, (num_items, width, rank), dtype)
    drawn = jnp.einsum("jpq,jqm->jpm", root, sketch)

    def first(carry, begin, is_new):
        del is_new
        moves = block(begin)
        variance = moves.own + moves.variance(covariance)
        parts = moves.score, variance, moves.of_items(drawn)
        return tuple(put_block(x, y, begin) for x, y in zip(carry, parts, strict=True))

    score, variance, range_ = scan_subject_blocks(
        first, tuple(init[:3]), num_subjects, size, of_first
    )
    basis, _ = jnp.linalg.qr(range_)

    def second(carry, begin, is_new):
        part = take_block(basis, begin, size) * is_new.astype(dtype)[:, None]
        return carry + block(begin).of_subjects(part)

    rows = scan_subject_blocks(second, init.rows, num_subjects, size, of_second)
    seen = rows.reshape(width, rank, num_items)
    seen = jnp.einsum("pmj,jpq->mjq", seen, root).reshape(rank, -1)
    values, vectors = jnp.linalg.eigh(seen @ seen.T)
    largest = slice(-min(SHARED, rank), None)
    scale = jnp.sqrt(jnp.maximum(values[largest], 0))
    shared = basis @ (vectors[:, largest] * scale)
    scores_on_items = ExpectedOnItems(score, jnp.sqrt(variance), shared)
    return scores_on_items, _Passes(score, variance, range_, rows)
