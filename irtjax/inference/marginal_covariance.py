r"""Covariance of the items of a factor model whose abilities are integrated out.

The population fixes where abilities have mean 0 and variance 1, so that all items move
together with the sample of subjects. Information between items therefore counts. With
x all parameters, s_i the derivative of log p(y_i, theta) in them, and expectations over
the posterior of subject i (Louis 1982),

    I = sum_i E_i[-d2 log p(y_i, theta)] - sum_i Cov_i[s_i] + priors.

The first sum is block diagonal: a block for each item, and one for the correlations of
the factors. In the second, s_i is a smooth function of theta. With Z the constant and
all products of up to two or three standardised abilities,

    Cov_i = F_i F_i',  F_i' = L_i^-1 E_i[Z s_i'] but row 0,  L_i L_i' = E_i[Z Z'],

which is exact for scores, whose s_i is quadratic and whose posterior is normal. The sum
is one product of matrices G'G with a row for each subject and function.

Expectations are sums over points: those at which `gvem` computes each posterior, or for
scores a rule that is exact to degree 5.

In exploratory models all rotations of the factors are as likely. Along them I is 0, and
a generalised inverse leaves them out: what no rotation changes (intercepts, lengths of
slopes, rotated loadings) has the right error by any of them.

With more than `MOST_PARAMETERS` parameters, or `MOST_OPERATIONS`, only blocks are
inverted, which leaves out that the sample of N subjects differs from its population.
This adds to the covariance
a'Phi a / N for intercepts and, for slopes, diag(a^2) / (2 N), or (|a|^2 + a a') / (4 N)
in exploratory models. The errors of the correlations R are then those of given items,
with the standard deviations D of the abilities estimated too: of D R D, with
d log N(theta) / d log D_kk = theta_k (R^-1 theta)_k - 1 at D = I. For correlations that
are those of a sample, these are the (1 - r^2)^2 / N of a sample's correlation.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Bool, Float

from irtjax._types import Scalar
from irtjax.data.blocks import DenseBlock
from irtjax.inference.covariance import LOST, Covariance
from irtjax.inference.joint_covariance import (
    estimated,
    flat_share,
    inverse_blocks,
    prior_information,
)
from irtjax.likelihood.cubature import Points
from irtjax.likelihood.problem import Problem, correlates, is_positive, rotates
from irtjax.likelihood.products import ItemCells, cells, item_cells
from irtjax.models.model import Population
from irtjax.numerics.kernels import (
    BLOCK_BYTES,
    sums_in_stretches,
    take_block,
    weigh_rows,
)
from irtjax.numerics.programs import stored_jit

#: Most parameters, and operations, of an information matrix as a whole: some seconds.
MOST_PARAMETERS, MOST_OPERATIONS = 3000, 2e11
#: Added to E[Z Z'], for random points that a few dominate.
_RIDGE = 1e-7
#: The contribution of a direction of which nothing is known to a variance.
UNKNOWN = 1e20


class Rule(NamedTuple):
    """Nodes and weights of an integral over N(0, I)."""

    nodes: Array
    weights: Array


class FactorCovariance(NamedTuple):
    """Covariances of (a_j, x_j), x_j the other coordinates of an item.

    Attributes:
        items: Of each item; 0 where fixed.
        lost: What directions without identification would add; see `Covariance`.
        whole: Of (a_1, x_1, a_2, ...), then of the correlations of factors if they are
            estimated; None where only blocks were computed.
        correlations: Of the correlations of the factors, in the order of
            `np.triu_indices`, NaN where not identified; None where not estimated.
    """

    items: Float[np.ndarray, "items columns columns"]
    lost: Float[np.ndarray, "items columns columns"]
    whole: Float[np.ndarray, "all all"] | None = None
    correlations: Float[np.ndarray, "pairs pairs"] | None = None

    @property
    def is_identified(self) -> Bool[np.ndarray, "items columns"]:
        """Coordinates to whose variance other directions add at most `LOST`."""
        own, lost = (np.diagonal(x, axis1=1, axis2=2) for x in self[:2])
        return lost <= LOST * own

    def in_coordinates(self, problem: Problem, items: Any) -> Covariance:
        """The covariance in the coordinates of the family: logarithms of slopes > 0.

        A slope at its bound 0 has no logarithm, and an error that is not known.
        """
        slopes = np.asarray(items.discrimination, np.float64)
        steps = np.ones(problem.free.shape)
        if is_positive(problem.model):
            steps[:, : slopes.shape[1]] = np.where(slopes > 0, slopes, 1)
        steps = steps[:, :, None] * steps[:, None, :]
        bound = np.asarray(problem.free & ~estimated(problem, items))
        lost = self.lost / steps + UNKNOWN * np.eye(steps.shape[1]) * bound[:, :, None]
        lost = np.clip(lost, -UNKNOWN, UNKNOWN)
        dtype = items.discrimination.dtype
        covariance = Covariance.of_independent(jnp.asarray(self.items / steps, dtype))
        return covariance._replace(
            lost=(jnp.asarray(lost, dtype), *covariance.lost[1:]),
            definite=jnp.asarray(not np.any(self.lost)),
        )

    def correlation_error(self, num_factors: int) -> np.ndarray | None:
        """`[factors, factors]` errors of correlations, 0 on the diagonal, or None."""
        if self.correlations is None:
            return None
        errors, (low, high) = (
            np.zeros((num_factors,) * 2),
            np.triu_indices(num_factors, 1),
        )
        errors[low, high] = errors[high, low] = np.sqrt(np.diagonal(self.correlations))
        return errors


def normal_rule(dims: int) -> Rule:
    """Stroud's rule for N(0, I), exact to degree 5, with 2 dims^2 + 1 nodes.

    >>> rule = normal_rule(3)
    >>> round(float(rule.weights @ (rule.nodes[:, 0] * rule.nodes[:, 1]) ** 2), 6)
    1.0
    """
    unit, count = np.eye(dims), dims + 2
    low, high = np.triu_indices(dims, 1)
    pairs = [unit[low] + unit[high], unit[low] - unit[high]]
    corners = np.concatenate([*pairs, *(-x for x in pairs)]) * np.sqrt(count / 2)
    axes = np.concatenate([unit, -unit]) * np.sqrt(count)
    weights = np.r_[
        2 / count,
        np.full(2 * dims, (4 - dims) / (2 * count**2)),
        np.full(len(corners), 1 / count**2),
    ]
    nodes = np.concatenate([np.zeros((1, dims)), axes, corners])
    return Rule(jnp.asarray(nodes), jnp.asarray(weights))


def marginal_covariance(
    problem: Problem,
    items: Any,
    population: Population,
    posteriors: tuple[Array, Array],
    points: Points | Rule,
    prior_subjects: float = 0.0,
) -> FactorCovariance:
    """Covariance of the items of a marginal fit; see the module.

    Args:
        problem: The problem; fixed coordinates have no error.
        items: Item records, discriminations `[items, dims]`.
        population: Their population.
        posteriors: Centres and covariances of normal approximations of the posteriors
            of the abilities.
        points: Points around them; a `Rule` if they are the posteriors.
        prior_subjects: Subjects with uncorrelated factors that the prior of their
            correlations is worth.
    """
    free = np.asarray(estimated(problem, items))
    num_items, columns = free.shape
    dims = items.discrimination.shape[1]
    pairs = dims * (dims - 1) // 2 if bool(correlates(problem)) else 0
    size, count = free.size + pairs, len(_powers(dims, _degree(points)))
    work = 2.0 * problem.data.num_subjects * count * size**2
    whole = size <= MOST_PARAMETERS and work <= MOST_OPERATIONS
    theta, posterior = posteriors
    fit = _Fit(problem, items, population, theta, posterior, points, prior_subjects)
    blocks, corner, missing = sums_in_stretches(
        lambda *part: _sums(fit, *part, pairs=pairs, whole=whole),
        lambda: _Sums.none(problem, items, pairs, whole),
        problem.data.num_subjects,
        _block_size(problem, points, items.discrimination),
    )
    prior = weigh_rows(prior_information(problem, items), problem.data.item_weight)
    if not whole:
        inverse = inverse_blocks(blocks - missing[0] + prior, jnp.asarray(free))
        inverse = [np.asarray(x, np.float64) for x in inverse]
        slopes = np.asarray(items.discrimination, np.float64)
        frame = _frame(problem, slopes, np.asarray(population.covariance), columns)
        pairs_of_free = free[:, :, None] & free[:, None, :]
        own = _of_correlations(*_inverse(corner - missing[1]), pairs) if pairs else None
        return FactorCovariance(
            inverse[0] + np.where(pairs_of_free, frame, 0), inverse[1], correlations=own
        )
    information = -np.asarray(missing, np.float64)
    index = np.arange(free.size).reshape(num_items, columns)
    at = index[:, :, None], index[:, None, :]
    complete = np.asarray(blocks + prior, np.float64)
    information[at] += complete
    information[free.size :, free.size :] += np.asarray(corner, np.float64)
    used = np.r_[free.ravel(), np.ones(pairs, bool)]
    scale = np.r_[
        np.diagonal(complete, axis1=1, axis2=2).ravel(), np.diagonal(corner)
    ].astype(float)
    turns = None
    if bool(rotates(problem)):
        turns = _rotations(np.asarray(items.discrimination, np.float64), columns)
    flat = flat_share(blocks.dtype)
    covariance, lost = _invert(information, used, scale, turns, flat)
    own = _of_correlations(covariance, lost, pairs)
    return FactorCovariance(covariance[at], lost[at], covariance, own)


def _of_correlations(covariance, lost, pairs: int) -> np.ndarray | None:
    """The last `pairs` parameters, NaN where not identified; None if there are none."""
    if not pairs:
        return None
    own, added = covariance[-pairs:, -pairs:], np.diagonal(lost)[-pairs:]
    gone = added > LOST * np.diagonal(own)
    return np.where(gone[:, None] | gone, np.nan, own)


def _inverse(information: Array) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of one matrix, and what flat directions would add."""
    free = jnp.ones((1, len(information)), bool)
    blocks = inverse_blocks(information[None], free)
    return np.asarray(blocks[0][0], np.float64), np.asarray(blocks[1][0], np.float64)


def _degree(points: Points | Rule) -> int:
    """Of the functions Z: exact for scores, and what random points can resolve."""
    return 2 if isinstance(points, Rule) or points.num_draws else 3


def _powers(dims: int, degree: int) -> list[tuple[int, ...]]:
    """Abilities that each function is a product of, without the constant."""
    return [
        power
        for order in range(1, degree + 1)
        for power in itertools.combinations_with_replacement(range(dims), order)
    ]


class _Sums(NamedTuple):
    """Sums over subjects: of items, E theta theta', weights, missing information."""

    blocks: Array
    second: Array
    total: Array
    missing: Any

    @classmethod
    def none(cls, problem: Problem, items: Any, pairs: int, whole: bool) -> _Sums:
        """The sums over no subjects."""
        num_items, columns = problem.free.shape
        dims = items.discrimination.shape[1]
        zeros = lambda *shape: jnp.zeros(shape, items.discrimination.dtype)
        square = (num_items * columns + pairs,) * 2
        blocks = zeros(num_items, columns, columns)
        corner = zeros(*(_scales(dims, pairs, whole) + pairs,) * 2)
        missing = zeros(*square) if whole else (blocks, corner)
        return cls(blocks, zeros(dims, dims), zeros(), missing)


def _scales(dims: int, pairs: int, whole: bool) -> int:
    """Number of standard deviations of abilities that are estimated."""
    return 0 if whole or not pairs else dims


class _Fit(NamedTuple):
    """A marginal fit, the posteriors of its subjects, and points of these."""

    problem: Problem
    items: Any
    population: Population
    theta: Float[Array, "subjects dims"]
    posterior: Float[Array, "subjects dims dims"]
    points: Points | Rule
    prior_subjects: float


@stored_jit
def _sums(
    fit: _Fit,
    into: _Sums | None = None,
    between: Array | None = None,
    *,
    pairs: int,
    whole: bool,
):
    """Complete information of items and correlations, and the missing information.

    The latter as a matrix of all parameters if `whole`, else its blocks of the items,
    and that of the population: logarithms of standard deviations, correlations. Last
    are the sums themselves, `into` which the blocks of subjects from the first of
    `between` to the one before the second are added.
    """
    problem, items, population, theta, posterior, points, prior_subjects = fit
    data, model, slopes = problem.data, problem.model, items.discrimination
    dtype, (num_items, dims) = slopes.dtype, slopes.shape
    count, powers = _count(points), _powers(dims, _degree(points))
    size = _block_size(problem, points, slopes)
    each = weigh_rows(jnp.ones(num_items, dtype), data.item_weight)
    correlation = population.covariance.astype(dtype)
    inverse = jnp.linalg.inv(correlation)
    scales = _scales(dims, pairs, whole)
    free = estimated(problem, items)
    root = jnp.linalg.cholesky(posterior)

    def shares(flat, values, exposure, log_ratio):
        """Weights of the points of each subject, which sum to 1."""
        if isinstance(points, Rule):
            weights = points.weights.astype(dtype)
            return jnp.broadcast_to(weights, (size, count))
        log_prob = cells(model, items, flat, values, exposure).log_prob @ each
        log_prob = log_prob - jnp.sum((flat @ inverse) * flat, axis=1) / 2
        return jax.nn.softmax(log_prob.reshape(size, count) + log_ratio, axis=1)

    def of_block(part: DenseBlock, is_new: Array) -> _Sums:
        z, log_ratio, at = _placed(points, theta, root, part.start, size)
        flat = at.reshape(-1, dims)
        values = jnp.repeat(part.values.astype(dtype), count, axis=0)
        exposure = part.exposure
        exposure = None if exposure is None else jnp.repeat(exposure, count, axis=0)
        share = shares(flat, values, exposure, log_ratio)
        derivatives = item_cells(model, items, flat, values, exposure)
        weight = weigh_rows(is_new, part.rows(data.subject_weight))
        by_point = (share * weight[:, None]).reshape(-1, 1)
        moments = (flat[:, :, None] * flat[:, None, :]).reshape(-1, dims**2) * by_point
        blocks = _complete(derivatives, flat, by_point, moments)
        of_population = _population_scores(at, inverse, pairs, scales)
        scores = [at, derivatives, of_population, each[:, None] * free]
        factor = _coefficients(z, share, powers, *scores)
        factor = factor * jnp.sqrt(weight)[:, None, None]
        factor = factor.reshape(-1, factor.shape[2])
        missing = factor.T @ factor if whole else _missing_blocks(factor, free.shape)
        second = jnp.sum(moments, axis=0).reshape(dims, dims)
        return _Sums(blocks, second, jnp.sum(weight), missing)

    init = _Sums.none(problem, items, pairs, whole) if into is None else into
    totals = data.sum_subjects(of_block, init, dtype, size=size, between=between)
    blocks, corner = totals.blocks * each[:, None, None], jnp.zeros((0, 0), dtype)
    if pairs:
        corner = _population_information(
            correlation, totals.second, totals.total, prior_subjects, scales
        )
    return (blocks, corner, totals.missing), totals


def _population_scores(at: Array, inverse: Array, pairs: int, scales: int) -> Array:
    """Derivatives of log densities of abilities in log deviations and correlations."""
    low, high = (x[:pairs] for x in np.triu_indices(len(inverse), 1))
    pulled = at @ inverse
    of_pairs = pulled[..., low] * pulled[..., high] - inverse[low, high]
    of_scales = (at * pulled - 1)[..., :scales]
    return jnp.concatenate([of_scales, of_pairs], axis=-1)


def _missing_blocks(factor: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """F F' of the parameters of each item, and of the population's; see the module."""
    of_items, rest = jnp.split(factor, [math.prod(shape)], axis=1)
    of_items = of_items.reshape(-1, *shape)
    return jnp.einsum("fjp,fjq->jpq", of_items, of_items), rest.T @ rest


def _placed(points: Points | Rule, theta: Array, root: Array, begin, size: int):
    """Of a block of subjects: standard points, log ratios, and abilities there."""
    dtype, dims = theta.dtype, theta.shape[1]
    if isinstance(points, Rule):
        z, log_ratio = points.nodes.astype(dtype)[None], jnp.zeros((), dtype)
    else:
        z, log_ratio = points.of_subjects(begin + jnp.arange(size), dtype)
    z = jnp.broadcast_to(z, (size, z.shape[1], dims))
    at = take_block(theta, begin, size)[:, None]
    at = at + jnp.einsum("nkl,nrl->nrk", take_block(root, begin, size), z)
    return z, log_ratio, at


def _count(points: Points | Rule) -> int:
    """Number of points of a subject."""
    return points.nodes.shape[0] if isinstance(points, Rule) else points.num_points


def _block_size(problem: Problem, points: Points | Rule, slopes: Array) -> int:
    """Subjects of a block: the points of each, and functions of abilities there."""
    count, columns, dims = _count(points), problem.free.shape[1], slopes.shape[1]
    num_functions = 1 + len(_powers(dims, _degree(points)))
    num_subjects, num_items = problem.data.num_subjects, problem.data.num_items
    # Some arrays of a cell at each point, and one of each function and parameter.
    cells_of = count * (4 if columns == dims + 1 else 2 * (columns - dims + 1) ** 2)
    bytes_of_row = num_items * max(cells_of, 2 * columns * num_functions)
    size = max(1, BLOCK_BYTES // (slopes.dtype.itemsize * bytes_of_row))
    return -(-num_subjects // -(-num_subjects // min(size, num_subjects)))


def _population_information(
    correlation: Array, second: Array, total: Scalar, prior: float, scales: int
) -> Array:
    """Complete information of logarithms of `scales` deviations, and of correlations.

    From the sum of E[theta theta'] over a total of subjects, and their prior.
    """
    dims, dtype = correlation.shape[0], correlation.dtype
    low, high = np.triu_indices(dims, 1)

    def minus_log(values):
        """Minus the expected log density of the abilities, and its prior."""
        logs, values = jnp.split(values, [scales])
        matrix = jnp.eye(dims, dtype=dtype)
        matrix = matrix.at[low, high].set(values).at[high, low].set(values)
        inverse = jnp.linalg.inv(matrix)
        scale = jnp.exp(logs) if scales else jnp.ones(dims, dtype)
        rest = jnp.sum(inverse * second / scale[:, None] / scale)
        rest = rest + 2 * total * jnp.sum(logs)
        log_det = (total + prior) * jnp.linalg.slogdet(matrix)[1]
        return 0.5 * (log_det + rest + prior * jnp.trace(inverse))

    point = jnp.concatenate([jnp.zeros(scales, dtype), correlation[low, high]])
    return jax.hessian(minus_log)(point)


def _complete(derivatives: ItemCells, flat: Array, by_point: Array, moments: Array):
    """Sums over points of minus second derivatives, `[items, columns, columns]`."""
    dims = flat.shape[1]
    border = [x.T @ (flat * by_point) for x in derivatives.mixed]
    slopes = (derivatives.curvature.T @ moments).reshape(-1, dims, dims)
    upper = jnp.concatenate([slopes, jnp.stack(border, -1)], axis=2)
    corner = [
        jnp.stack([(x.T @ by_point)[:, 0] for x in row], -1)
        for row in derivatives.square
    ]
    lower = jnp.concatenate([jnp.stack(border, 1), jnp.stack(corner, 1)], axis=2)
    return jnp.concatenate([upper, lower], axis=1)


def _coefficients(z, share, powers, at, derivatives: ItemCells, of_population, weight):
    """F_i' of each subject, `[subjects, functions, parameters]`.

    From standard points, their weights and abilities, derivatives of the cells and of
    the density of abilities, and weights of items' parameters, 0 where fixed.
    """
    size, count, dims = at.shape
    products = [jnp.prod(z[..., list(power)], axis=-1) for power in powers]
    functions = jnp.stack([jnp.ones_like(share), *products], axis=2)
    number = functions.shape[2]
    left = functions * share[:, :, None]
    gram = jnp.einsum("nrm,nrq->nmq", left, functions)
    gram = gram + _RIDGE * jnp.eye(number, dtype=gram.dtype)
    wide = (left[..., None] * at[:, :, None, :]).reshape(size, count, -1)
    as_cells = lambda x: x.reshape(size, count, -1)
    by_slope = jnp.einsum("nrq,nrj->nqj", wide, as_cells(derivatives.slope))
    others = [
        jnp.einsum("nrm,nrj->nmj", left, as_cells(x))[:, :, None]
        for x in derivatives.first
    ]
    by_slope = by_slope.reshape(size, number, dims, -1)
    scores = jnp.concatenate([by_slope, *others], axis=2)
    scores = (jnp.moveaxis(scores, 3, 2) * weight).reshape(size, number, -1)
    rest = jnp.einsum("nrm,nrp->nmp", left, of_population)
    scores = jnp.concatenate([scores, rest], axis=2)
    root = jnp.linalg.cholesky(gram)
    return jax.scipy.linalg.solve_triangular(root, scores, lower=True)[:, 1:]


def _rotations(slopes: np.ndarray, columns: int) -> np.ndarray:
    """Directions `[all, pairs]` in which a rotation of the factors moves slopes."""
    num_items, dims = slopes.shape
    low, high = np.triu_indices(dims, 1)
    directions = np.zeros((len(low), num_items, columns))
    pair = np.arange(len(low))
    directions[pair, :, high] = slopes[:, low].T
    directions[pair, :, low] = -slopes[:, high].T
    return directions.reshape(len(low), -1).T


def _invert(
    information, used, scale, turns, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """The inverse over identified directions, and what others would add.

    `scale` is the complete information of each parameter.
    """
    scale = np.sqrt(np.where(used & (scale > 0), scale, 1))
    matrix = (information + information.T) / 2 / scale[:, None] / scale
    identified = used[:, None] & used
    matrix = np.where(identified, matrix, np.eye(len(used)))
    axes = np.zeros((len(used), 0))
    if turns is not None:
        # Those that move no slope, of a factor without loadings, are not rotations.
        axes, sizes, _ = np.linalg.svd(turns * scale[:, None], full_matrices=False)
        axes = axes[:, sizes > 1e-6 * max(sizes.max(initial=0), 1e-30)]
        matrix = matrix - axes @ (axes.T @ matrix)
        matrix = matrix - (matrix @ axes) @ axes.T + axes @ axes.T
    unit, lost = np.eye(len(used)), np.zeros_like(matrix)
    try:
        np.linalg.cholesky(matrix - floor * unit)  # Are all eigenvalues above it?
        inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix), unit)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        flat = values <= floor
        steep, gone = vectors[:, ~flat], vectors[:, flat]
        inverse = (steep / values[~flat]) @ steep.T
        lost = (gone / np.maximum(np.abs(values[flat]), 1e-20)) @ gone.T
    inverse = np.where(identified, inverse - axes @ axes.T, 0) / scale[:, None] / scale
    return inverse, np.where(identified, lost, 0) / scale[:, None] / scale


def _frame(problem: Problem, slopes, correlation, columns: int) -> np.ndarray:
    """What the sample of subjects adds to blocks of items; see the module."""
    data, (num_items, dims) = problem.data, slopes.shape
    weight = data.subject_weight
    total = data.num_subjects if weight is None else float(np.sum(np.asarray(weight)))
    blocks = np.zeros((num_items, columns, columns))
    square = np.sum(slopes**2, axis=1)[:, None, None] * np.eye(dims)
    of_slopes = slopes[:, :, None] * slopes[:, None, :]
    if bool(rotates(problem)):
        of_slopes = (square + of_slopes) / 4
    else:
        of_slopes = of_slopes * np.eye(dims) / 2
    blocks[:, :dims, :dims] = of_slopes / total
    cuts = np.array(problem.model.family.intercept_columns)
    # A shift of abilities moves all intercepts of an item alike.
    shift = np.sum(slopes @ correlation * slopes, axis=1) / total
    blocks[:, cuts[:, None], cuts] = shift[:, None, None]
    return blocks
