"""Standard errors of models with response lengths: all parameters at once.

Louis' form of the observed information, as in `covariance`, over two latent variables.
Given ability, speed is normal, tau = alpha + beta theta + sqrt(v) epsilon: a gradient
is expanded on the products of the polynomials p_m that are orthonormal under the
posterior of ability and the Hermite polynomials 1, epsilon, (epsilon^2 - 1) / sqrt(2).
Gradients of the lengths are quadratic in (theta, tau): few terms are exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.data.responses import Responses
from irtjax.inference.covariance import Covariance, check_kind, default_terms
from irtjax.inference.gradients import (
    Whitening,
    ability_block,
    block_weights,
    complete_information,
    frame_rows_of,
    make_setting,
    with_data,
)
from irtjax.inference.inversion import blocks_at, leading_rows
from irtjax.likelihood.lengths import LengthPart, with_lengths
from irtjax.likelihood.problem import Problem
from irtjax.models.lengths import (
    LengthCoordinates,
    LengthParameters,
    Lengths,
    LengthSummary,
)
from irtjax.models.model import Population
from irtjax.numerics.kernels import (
    BLOCK_BYTES,
    blocks_in_stretches,
    scan_subject_blocks,
    take_block,
)

#: Coordinates of an item's lengths: omega, phi, log lambda.
LENGTH_COLUMNS = 3


class LengthCovariance(NamedTuple):
    """As `Covariance`, of accuracy and of lengths: omega, phi, log lambda; atanh(rho).

    What items share is `shared` of accuracy and `shared_lengths`, at low rank.
    """

    items: Float[Array, "items columns columns"]
    lengths: Float[Array, "items 3 3"]
    atanh_correlation: Scalar
    definite: Array
    shared: Float[Array, "rank items columns"]
    shared_lengths: LengthCoordinates

    def of_items(self) -> Covariance:
        """The part of the accuracy, on a standardised scale of ability."""
        plain = Covariance.of_independent(self.items)
        shared, none = self.shared, jnp.zeros((len(self.shared), 2), self.items.dtype)
        return plain._replace(definite=self.definite, shared=shared, shared_scale=none)


def _along(
    model: Lengths, at: LengthParameters, rows: LengthCoordinates, function
) -> Array:
    """Derivatives of a function of parameters along each row of length coordinates."""
    moved = lambda coordinates: function(model.constrain(coordinates))
    along = lambda row: jax.jvp(moved, (model.unconstrain(at),), (row,))[1]
    return jax.lax.map(along, rows)


@eqx.filter_jit
def evidence_moves(
    problem: Problem, lengths: LengthParameters, rows: LengthCoordinates
) -> Float[Array, "subjects 2 rank"]:
    """Derivatives of the evidence of lengths along each row of length coordinates."""
    model, data = problem.model.lengths, problem.data
    assert model is not None
    evidence = lambda at: model.evidence(at, model.summary(at, data))[0]
    return jnp.moveaxis(_along(model, lengths, rows, evidence), 0, -1)


class SpeedError(NamedTuple):
    """Errors of speeds from parameters: loadings of the shared part, items' variances.

    Loadings are as the columns of `Scores.shared`, without the part of ability's error.
    """

    shared: Float[Array, "subjects rank"]
    own: Float[Array, " subjects"]


@eqx.filter_jit
def speed_error(
    part: LengthPart,
    data: Responses,
    ability: Float[Array, " subjects"],
    covariance: LengthCovariance,
) -> SpeedError:
    """Errors of speeds of given abilities from the errors of the lengths' parameters.

    By the delta method on v (rho theta / (1 - rho^2) - S), along the rows of the shared
    part and item by item.
    """
    model, zero = part.model, jnp.zeros_like(ability)
    speed = lambda at: model.speed(at, model.summary(at, data), ability, zero).mean
    shared = _along(model, part.parameters, covariance.shared_lengths, speed).T
    rho = part.parameters.correlation
    rest = 1 - rho**2
    v = 1 / (1 / rest + part.summary.precision)
    by_slope = -v
    by_precision = -(v**2) * (rho * ability / rest - part.summary.slope)
    rows = jnp.stack(covariance.shared_lengths[:LENGTH_COLUMNS], axis=-1)
    own = covariance.lengths - jnp.einsum("rja,rjb->jab", rows, rows)

    def of_rows(some: Responses, derivatives: tuple[Array, Array], items: Any) -> Any:
        by_slope, by_precision = (x[:, None] for x in derivatives)
        omega, phi, variance = items
        assert some.log_length is not None
        gap = some.log_length - omega
        by_column = (
            -by_slope * phi,
            by_slope * gap + 2 * by_precision * phi,
            -phi * (by_slope * gap + by_precision * phi),
        )
        moves = jnp.stack(by_column, axis=-1) * (1 / variance)[:, None]
        if some.length_observed is not None:
            moves = jnp.where(some.length_observed[..., None], moves, 0)
        return None, jnp.einsum("sja,jab,sjb->s", moves, own, moves)

    added = data.fold(of_rows, (by_slope, by_precision), part.parameters.items)[1]
    return SpeedError(shared, jnp.maximum(added, 0))


def length_covariance(
    problem: Problem,
    coordinates: Float[Array, "items columns"],
    lengths: LengthParameters,
    nodes: Float[Array, " nodes"],
    *,
    num_terms: int | None = None,
) -> LengthCovariance:
    """Sampling covariance from the observed information of responses and lengths.

    The problem has no evidence of lengths yet. Check `definite` before using it.
    """
    check_kind(problem, "observed")
    terms = default_terms(problem.data) if num_terms is None else num_terms
    terms = max(terms, 2)
    dtype, count = coordinates.dtype, problem.data.num_subjects
    size = _block_size(problem, terms, dtype.itemsize)
    sums = blocks_in_stretches(
        lambda *part: _sums(problem, coordinates, lengths, nodes, terms, *part),
        lambda: _Sums.none(problem, dtype),
        count,
        count if problem.data.is_divided else size,
    )
    return _inverted(problem, coordinates, lengths, nodes, sums)


class _Sums(NamedTuple):
    """Sums over subjects: missing information of all parameters, complete of lengths.

    `cells` are the entries of the latter, of each item; `moments` and `total` are what
    that of rho is made of.
    """

    missing: Float[Array, "parameters parameters"]
    cells: LengthCells
    moments: Float[Array, "3"]
    total: Scalar

    @classmethod
    def none(cls, problem: Problem, dtype) -> _Sums:
        """The sums over no subjects."""
        num_items = problem.free.shape[0]
        zeros = lambda *shape: jnp.zeros(shape, dtype)
        cells = LengthCells(*(zeros(num_items) for _ in LengthCells._fields))
        size = _num_parameters(problem)
        return cls(zeros(size, size), cells, zeros(3), zeros())


def _num_parameters(problem: Problem) -> int:
    """Parameters of accuracy and of lengths, and the correlation."""
    return problem.free.size + LENGTH_COLUMNS * problem.free.shape[0] + 1


def _block_size(problem: Problem, num_terms: int, itemsize: int) -> int:
    """Subjects of a block with the gradients of all terms."""
    bytes_each = (num_terms + 3) * _num_parameters(problem) * itemsize
    count = problem.data.num_subjects
    size = min(count, max(16, BLOCK_BYTES // bytes_each))
    return -(-count // -(-count // size))


@eqx.filter_jit
def _sums(
    problem: Problem,
    coordinates: Array,
    lengths: LengthParameters,
    nodes: Array,
    num_terms: int,
    into: _Sums | None = None,
    between: Array | None = None,
) -> _Sums:
    """The sums over subjects, or over some of their blocks added to those of others."""
    problem, part = with_lengths(problem, lengths)
    assert part is not None
    dtype, data = coordinates.dtype, problem.data
    setting = make_setting(problem, coordinates, _standard(dtype), nodes)
    of_accuracy = problem.free.size

    def of_some(some: Responses, summary: LengthSummary) -> tuple[_Sums, None]:
        own = with_data(setting, some)
        size = _block_size(own.problem, num_terms, dtype.itemsize)

        def body(carry: _Sums, begin, is_new) -> _Sums:
            ability = ability_block(own, begin, size, num_terms)
            weight = jnp.where(is_new, block_weights(own, begin, size), 0)
            root = jnp.sqrt(weight)
            seen = _Seen.of(part, summary, some, begin, size)
            new, rows = _length_gradients(part, seen, ability, own.nodes, weight)
            accuracy = ability.gradients[1:] * root[:, None]
            # Rows: the terms of ability, then the three with the noise of speed.
            accuracy = accuracy[..., :of_accuracy]
            none = jnp.zeros((3, *accuracy.shape[1:]), dtype)
            joint = jnp.concatenate([jnp.concatenate([accuracy, none]), *rows], -1)
            joint = joint.reshape((num_terms + 3) * size, -1)
            parts = _Sums(joint.T @ joint, *new, jnp.sum(weight))
            return jax.tree.map(jnp.add, carry, parts)

        init = _Sums.none(problem, dtype) if into is None else into
        return scan_subject_blocks(body, init, some.num_subjects, size, between), None

    return data.fold(of_some, part.summary)[0]


def _standard(dtype) -> Population:
    """A standard normal population."""
    return Population(jnp.zeros((), dtype), jnp.ones((), dtype))


@eqx.filter_jit
def _inverted(
    problem: Problem,
    coordinates: Array,
    lengths: LengthParameters,
    nodes: Array,
    sums: _Sums,
) -> LengthCovariance:
    """`length_covariance` from the sums over subjects."""
    problem, part = with_lengths(problem, lengths)
    assert part is not None
    dtype = coordinates.dtype
    setting = make_setting(problem, coordinates, _standard(dtype), nodes)
    blocks, _ = complete_information(setting)
    num_items, columns = problem.free.shape
    start = num_items * columns
    of_accuracy = blocks_at(num_items, columns)
    of_lengths = blocks_at(num_items, LENGTH_COLUMNS, start)
    information = (-sums.missing).at[of_accuracy].add(blocks)
    information = information.at[of_lengths].add(_of_lengths(part, sums.cells))
    corner = _of_correlation(part.parameters.correlation, sums)
    information = information.at[-1, -1].add(corner)
    # The frame of the priors is estimated too: see `frame_rows_of`.
    identity = jnp.broadcast_to(jnp.eye(columns, dtype=dtype), blocks.shape)
    plain = Whitening(identity, jnp.eye(2, dtype=dtype))
    frame = frame_rows_of(setting, plain)[:, :start]
    information = information.at[:start, :start].add(-(frame.T @ frame))
    # Scaled to a unit diagonal, so that unlike parameters do not spoil the inverse.
    scale = jnp.sqrt(jnp.maximum(jnp.diagonal(information), jnp.finfo(dtype).tiny))
    factor = jnp.linalg.cholesky(information / scale[:, None] / scale)
    identity = jnp.eye(information.shape[0], dtype=dtype)
    inverse = jax.scipy.linalg.cho_solve((factor, True), identity)
    inverse = inverse / scale[:, None] / scale
    free = problem.free
    items = jnp.where(free[:, :, None] & free[:, None, :], inverse[of_accuracy], 0)
    # Of the scaled matrix, in which all parameters have equal weight.
    scaled = inverse * scale[:, None] * scale
    rows = leading_rows(lambda v: scaled @ v, scaled.shape[0], dtype) / scale
    shared = rows[:, :start].reshape(-1, num_items, columns)
    by_length = rows[:, start:-1].reshape(-1, num_items, LENGTH_COLUMNS)
    omega, phi, log_variance = jnp.moveaxis(by_length, -1, 0)
    return LengthCovariance(
        items,
        inverse[of_lengths],
        inverse[-1, -1],
        jnp.all(jnp.isfinite(factor)),
        jnp.where(free, shared, 0),
        LengthCoordinates(omega, phi, log_variance, rows[:, -1]),
    )


class LengthCells(NamedTuple):
    """Sums over subjects for the complete information of each item's lengths.

    m is 1 where there is a length, g its distance from omega; tau has its posterior.
    """

    lengths: Float[Array, " items"]  # m
    speed: Float[Array, " items"]  # tau
    square: Float[Array, " items"]  # tau^2
    residual: Float[Array, " items"]  # g + phi tau
    product: Float[Array, " items"]  # tau (g + phi tau)
    error: Float[Array, " items"]  # (g + phi tau)^2


class _Seen(NamedTuple):
    """Lengths of a block of subjects, and the evidence of them."""

    mask: Float[Array, "block items"]
    gap: Float[Array, "block items"]
    precision: Float[Array, " block"]
    slope: Float[Array, " block"]

    @classmethod
    def of(
        cls,
        part: LengthPart,
        summary: LengthSummary,
        data: Responses,
        begin: Array,
        size: int,
    ) -> _Seen:
        """The block from a subject on; distances are 0 where there is no length."""
        assert data.log_length is not None
        length = take_block(data.log_length, begin, size)
        seen = take_block(data.length_observed, begin, size)
        mask = jnp.ones_like(length) if seen is None else seen.astype(length.dtype)
        gap = (length - part.parameters.items.speed_intercept) * mask
        of = lambda array: take_block(array, begin, size)
        return cls(mask, gap, of(summary.precision), of(summary.slope))


def _length_gradients(part: LengthPart, seen: _Seen, ability, theta, weight):
    """Sums of a block: of the items' lengths and of rho; and the rows of gradients."""
    items, rho = part.parameters
    _, phi, variance = items
    mask, gap, root = seen.mask, seen.gap, jnp.sqrt(weight)
    rest = 1 - rho**2
    v = 1 / (1 / rest + seen.precision)
    lean = v * rho / rest
    line = lean[:, None] * theta - (v * seen.slope)[:, None]
    weighted = [ability.posterior * basis for basis in ability.basis]
    over = lambda w, f: jnp.sum(w * f, axis=1)
    # Coefficients of tau, tau^2, theta tau and theta^2 on p_m, on p_0 epsilon,
    # p_1 epsilon and on p_0 (epsilon^2 - 1) / sqrt(2).
    functions = line, line**2, line * theta, theta**2
    first, second, cross, square = ([over(w, f) for w in weighted] for f in functions)
    second[0] = second[0] + v
    at = [over(w, theta) for w in weighted[:2]]
    noise, zero = jnp.sqrt(v), jnp.zeros_like(v)
    first += [noise, zero, zero]
    second += [2 * noise * first[0], 2 * noise * first[1], jnp.sqrt(2.0) * v]
    cross += [noise * at[0], noise * at[1], zero]
    square += [zero, zero, zero]
    moments = [jnp.stack(part) for part in (first, second, cross, square)]
    t, u, product, own = (m[..., None] for m in moments)

    # XLA turns some divisions into products, on several devices others than on one.
    inverse = 1 / variance
    slope = -(gap * t + phi * u * mask) * inverse
    of_variance = (2 * gap * phi * t + phi**2 * u * mask) * (0.5 * inverse)
    gradients = jnp.stack([phi * t * mask * inverse, slope, of_variance], axis=-1)
    gradients = gradients.reshape(*gradients.shape[:2], -1)
    # d log N(theta, tau; rho) / d rho, times d rho / d atanh rho = 1 - rho^2.
    of_rho = (product * (1 + rho**2) - rho * (own + u)) / rest
    rows = tuple(s[1:] * root[:, None] for s in (gradients, of_rho))

    on = lambda cells: weight @ (cells * mask)
    tau, tau2 = first[0][:, None], second[0][:, None]
    cells = LengthCells(
        on(mask),
        on(tau),
        on(tau2),
        on(gap + phi * tau),
        on(gap * tau + phi * tau2),
        on(gap**2 + 2 * gap * phi * tau + phi**2 * tau2),
    )
    moments = jnp.stack([weight @ each for each in (square[0], cross[0], second[0])])
    return (cells, moments), rows


def _of_lengths(part: LengthPart, cells: LengthCells) -> Float[Array, "items 3 3"]:
    """Complete information of omega, phi and log lambda of each item."""
    model, variance = part.model, part.parameters.items.residual_variance
    prior = model.prior_weight * model.prior_variance
    parts = {
        (0, 0): cells.lengths / variance,
        (0, 1): -cells.speed / variance,
        (1, 1): cells.square / variance,
        (0, 2): cells.residual / variance,
        (1, 2): -cells.product / variance,
        (2, 2): (cells.error + prior) / (2 * variance),
    }
    rows_of = [[parts[min(i, j), max(i, j)] for j in range(3)] for i in range(3)]
    blocks = jnp.moveaxis(jnp.asarray(rows_of), -1, 0)
    # An item without lengths has no information: no finite errors, not 0.
    unknown = jnp.diag(jnp.asarray([1.0, 1.0, 0.0], blocks.dtype))
    return jnp.where((cells.lengths == 0)[:, None, None], blocks + unknown, blocks)


def _of_correlation(rho: Scalar, sums: _Sums) -> Scalar:
    """Complete information of atanh rho."""
    own, cross, speed = sums.moments

    def expected(atanh):
        r = jnp.tanh(atanh)
        form = (own - 2 * r * cross + speed) / (2 * (1 - r**2))
        return -0.5 * sums.total * jnp.log(1 - r**2) - form

    return -jax.grad(jax.grad(expected))(jnp.arctanh(rho))
