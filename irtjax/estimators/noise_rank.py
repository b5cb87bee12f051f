r"""Factors above noise: the rank of a joint fit under a prior as strong as noise.

With N(0, 1) abilities and N(0, s^2) slopes the joint log posterior is concave in the
intercepts and in X = Theta A' but for its rank, since the least
(|Theta|^2 + |A|^2 / s^2) / 2 of all factorisations is the nuclear norm of X over s
(Srebro, Rennie and Jaakkola 2004). At a stationary point with residuals
R = M o (Y - P), M the mask of observed cells, the estimate is the global maximum over
all numbers of factors where q = s sigma_max(R) is at most 1. There q is 1, or less
without factors; elsewhere it is above 1. With 1 / s the largest singular value of
M o (Y* - P) over 20 draws of responses Y* from a fit, factors of the size of noise
vanish.

The fit that noise is simulated from has to have the right number of factors. With too
many its chances are too near to 0 and 1, noise is too small, and factors of noise stay:
from the fit of 8 factors to 300 x 200 responses of none, 2 of 3 ranks were 1. With too
few it is a little too large. `rank_above_noise` therefore begins without factors, and
refits with those found until no more are found.

MM may end where a factor has vanished though another one would raise the posterior:
q > 1 there, and the singular pair of the residuals is a direction in which it rises. A
vanished factor then begins again in it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar
from irtjax.data.blocks import DenseBlock
from irtjax.data.responses import AbstractResponses
from irtjax.estimators.driver import Fit, run_jit
from irtjax.estimators.joint.bound import BilinearParameters
from irtjax.estimators.joint.quasi_newton import QuasiNewton
from irtjax.estimators.start import start_values
from irtjax.likelihood.problem import Problem, Start
from irtjax.likelihood.products import cells
from irtjax.models.catalogue import factor_model
from irtjax.models.factors import Factor
from irtjax.models.model import Model
from irtjax.models.priors import Normal
from irtjax.numerics.progress import watched
from irtjax.numerics.sparse import cell_products

#: Steps of a fit, and the gradient in standard errors at which it ends.
#: Where all fits of MM to MATH-500 converged, mean log-likelihoods of held-out cells
#: differ by up to 4e-6 nats from those of MM; the smallest standard error is 4e-4.
MOST_STEPS, TOLERANCE = 1000, 3e-4
#: The same of a fit at the penalty of noise, in which factors that vanish do so slowly.
OF_NOISE = 1e-4
#: The smallest tolerance that single precision reaches.
SINGLE = 1e-2
#: Residuals simulated, of which the largest counts.
SIMULATED = 20
#: Largest certificate of a global maximum.
GLOBAL = 1.01
#: A factor that moves no logit by as much is none.
LEAST_LOGIT = 0.01
#: Of that, what a factor has that has vanished.
VANISHED = 1e-3
#: Products of a search for the largest singular value. The values of noise lie close to
#: each other: at 158 x 500 the relative error was 1e-9; that of 30 power iterations of
#: four vectors was 3e-3, in a certificate that matters at 1e-2.
PRODUCTS = 40


class NoiseRank(NamedTuple):
    """The fit at the penalty of noise.

    Attributes:
        rank: Number of factors that it keeps.
        certificate: q: at most `GLOBAL` at the best fit of any number of factors.
        slope_sd: s, the standard deviation of the prior of slopes.
        log_likelihood: Of the joint fit, in nats.
        objective: With the log priors.
        used: Factors that have not vanished; some may be too small to be kept.
    """

    rank: int
    certificate: float
    slope_sd: float
    log_likelihood: float
    objective: float
    used: int


def factor_problem(
    data: Any, size: int, most: int, slope_sd: Any, dtype
) -> tuple[Problem, Start]:
    """The problem of `size` of `most` factors, and its start."""
    dims = max(most, 2)
    model = factor_model(Factor(dims))
    # Arrays, not numbers: the program is compiled once.
    pair = lambda sd: Normal(jnp.zeros((), dtype), jnp.asarray(sd, dtype))
    priors = {"discrimination": pair(slope_sd), "intercept": pair(3.0)}
    model = dataclasses.replace(model, priors=priors)
    used = np.arange(dims) < size
    free = np.ones((data.num_items, dims + 1), bool)
    free[:, :dims] = used
    start = start_values(model, data, dtype=dtype)
    assert start.theta is not None
    slopes = jnp.where(used, start.items.discrimination, 0)
    start = start._replace(
        items=start.items._replace(discrimination=slopes),
        theta=jnp.where(used, start.theta, 0),
    )
    return Problem(model, data, jnp.asarray(free)), start


def fit_factors(
    data: Any,
    size: int,
    most: int,
    dtype,
    slope_sd: Any = 1.0,
    tolerance: float = TOLERANCE,
    begin: BilinearParameters | None = None,
) -> Fit:
    """The joint fit of `size` factors; one program for all sizes up to `most`.

    From the point `begin`; None for the usual start values.
    """
    problem, start = factor_problem(data, size, most, slope_sd, dtype)
    if begin is not None:
        items = start.items._replace(
            discrimination=begin.discrimination, intercept=begin.intercept
        )
        start = start._replace(items=items, theta=begin.theta)
    if dtype == jnp.float32:
        tolerance = max(tolerance, SINGLE)
    # An array: another tolerance is the same program.
    method = QuasiNewton(tolerance=jnp.asarray(tolerance, dtype))
    return run_jit(problem, method, start, max_steps=MOST_STEPS)


def noise_rank(
    data: Any,
    fit: Fit,
    most: int,
    dtype,
    key: KeyArray,
    tolerance: float = OF_NOISE,
) -> NoiseRank:
    """The rank at the penalty of noise, which is simulated from a fit."""
    items, _, theta = fit.parameters[:3]
    assert theta is not None
    draws = jax.random.split(key, SIMULATED)
    residuals = (leading_residual(fit.model, items, theta, data, x) for x in draws)
    slope_sd = float(1 / max(leading_of_noise.value for leading_of_noise in residuals))
    least = LEAST_LOGIT * np.sqrt(len(theta) * len(items.intercept))
    begin, result = None, None
    for _ in range(most + 1):
        fit_of_noise = fit_factors(data, most, most, dtype, slope_sd, tolerance, begin)
        best: BilinearParameters = fit_of_noise.state.best
        record = items._replace(
            discrimination=best.discrimination, intercept=best.intercept
        )
        leading = leading_residual(fit_of_noise.model, record, best.theta, data)
        left, values, right = _singular(best)
        rank = int(np.sum(values > least))
        result = NoiseRank(
            rank,
            slope_sd * float(leading.value),
            slope_sd,
            float(fit_of_noise.log_lik),
            float(fit_of_noise.objective),
            used := int(np.sum(values > VANISHED * least)),
        )
        if result.certificate <= GLOBAL or used >= most:
            break
        values[used:] = 0
        left[:, used], right[:, used] = leading.subjects, leading.items
        values[used] = least
        # The sizes of both sides that have the highest prior for these products.
        sizes = np.sqrt(values / slope_sd)
        slopes, theta = (
            jnp.asarray(x, dtype) for x in (slope_sd * sizes * right, sizes * left)
        )
        begin = BilinearParameters(slopes, best.intercept, theta)
    assert result is not None
    return result


def _singular(point: BilinearParameters) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singular vectors and values of Theta A', `[., dims]`, largest first."""
    sides = (np.asarray(x, float) for x in (point.theta, point.discrimination))
    (first, upper), (second, lower) = (np.linalg.qr(side) for side in sides)
    left, values, right = np.linalg.svd(upper @ lower.T)
    return first @ left, values, second @ right.T


def rank_above_noise(data: Any, most: int, dtype, key: KeyArray) -> NoiseRank:
    """The number of factors above noise, from the bottom up.

    Args:
        data: Right and wrong responses: all cells with a mask, or the observed cells.
        most: The largest number.
        dtype: Floating type.
        key: Random key of the draws.

    Returns:
        The rank, its certificate, and the fit at the penalty of noise.

    >>> from irtjax.data.responses import Responses
    >>> rng = np.random.default_rng(0)
    >>> right = rng.random((60, 12)) < 1 / (1 + np.exp(-3 * rng.normal(size=(60, 1))))
    >>> data = Responses(jnp.asarray(right, jnp.int8), jnp.ones((60, 12), bool))
    >>> rank_above_noise(data, 2, jnp.zeros(()).dtype, jax.random.key(0)).rank
    1
    """
    rank, size = None, 0
    # Each pass but the last finds more factors; two or three are usual.
    for _ in watched(range(most + 1), "pass"):
        fit = fit_factors(data, size, most, dtype)
        rank = noise_rank(data, fit, most, dtype, key)
        if rank.rank <= size:
            break
        size = rank.rank
    assert rank is not None
    return rank


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

    By Lanczos' method with every vector orthogonal to all before it.
    """
    count = min(PRODUCTS, size)
    first = jax.random.normal(jax.random.key(1), (size,), dtype)
    basis = jnp.zeros((count + 1, size), dtype).at[0].set(first)
    basis = basis.at[0].divide(jnp.linalg.norm(first))
    tiny = jnp.finfo(dtype).eps

    def step(k, state):
        basis, diagonal, beside = state
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

    def residual(block: DenseBlock) -> Array:
        values, exposure = block.values.astype(dtype), block.exposure
        ability = block.rows(theta)
        if key is not None and exposure is not None:
            eta = ability @ items.discrimination.T + items.intercept
            own = jax.random.fold_in(key, block.start)
            draw = jax.random.bernoulli(own, jax.nn.sigmoid(eta))
            values = draw.astype(dtype) * exposure
        return cells(model, items, ability, values, exposure).slope

    def product(vectors):
        def of_block(block: DenseBlock, is_new: Array) -> Array:
            rows = residual(block) * is_new[:, None]
            return rows.T @ (rows @ vectors)

        return data.sum_subjects(of_block, jnp.zeros_like(vectors), dtype)

    value, vector = _largest(product, data.num_items, dtype)
    zeros = jnp.zeros(data.num_subjects, dtype)
    rows = data.map_subjects(lambda block: residual(block) @ vector, zeros, dtype)
    return _with_rows(value, vector, rows)


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

    left = tuple(
        bucket._replace(value=residuals(k, bucket))
        for k, bucket in enumerate(data.subjects)
    )

    def product(vectors):
        def chunk(total, part):
            rows = jnp.einsum("rw,rwv->rv", part.value, vectors[part.column])
            each = part.value[..., None] * rows[:, None]
            return total.at[part.column].add(each), None

        total = jnp.zeros_like(vectors)
        for bucket in left:
            total, _ = lax.scan(chunk, total, bucket)
        return total

    value, vector = _largest(product, data.num_items, dtype)
    residual = lambda value, exposure: [value]
    rows = cell_products(left, data.num_subjects, [vector[:, None]], residual)
    return _with_rows(value, vector, rows[:, 0])
