"""Standard errors of models with response lengths: all parameters at once.

Louis' form of the observed information, as in `covariance`, over two latent variables.
Given ability, speed is normal, tau = alpha + beta theta + sqrt(v) epsilon: a gradient
is expanded on the products of the polynomials p_m that are orthonormal under the
posterior of ability and the Hermite polynomials 1, epsilon, (epsilon^2 - 1) / sqrt(2).
Gradients of the lengths are quadratic in (theta, tau): few terms are exact.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.data.responses import Responses
from irtjax.likelihood.lengths import LengthPart, with_lengths
from irtjax.likelihood.problem import Problem
from irtjax.models.lengths import LengthCoordinates, LengthParameters, Lengths
from irtjax.models.model import Population
from irtjax.uncertainty.covariance import Covariance, check_kind, default_terms
from irtjax.uncertainty.gradients import (
    Whitening,
    ability_block,
    complete_information,
    frame_rows_of,
    make_setting,
)
from irtjax.uncertainty.inversion import blocks_at, leading_rows

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
    assert data.log_length is not None
    speed = lambda at: model.speed(at, model.summary(at, data), ability, zero).mean
    shared = _along(model, part.parameters, covariance.shared_lengths, speed).T
    items, rho = part.parameters
    omega, phi, variance = items
    rest = 1 - rho**2
    v = 1 / (1 / rest + part.summary.precision)
    by_slope = -v
    by_precision = -(v**2) * (rho * ability / rest - part.summary.slope)
    gap = data.log_length - omega
    by_column = (
        -by_slope[:, None] * phi,
        by_slope[:, None] * gap + 2 * by_precision[:, None] * phi,
        -phi * (by_slope[:, None] * gap + by_precision[:, None] * phi),
    )
    moves = jnp.stack(by_column, axis=-1) / variance[:, None]
    if data.length_observed is not None:
        moves = jnp.where(data.length_observed[..., None], moves, 0)
    rows = jnp.stack(covariance.shared_lengths[:LENGTH_COLUMNS], axis=-1)
    own = covariance.lengths - jnp.einsum("rja,rjb->jab", rows, rows)
    added = jnp.einsum("sja,jab,sjb->s", moves, own, moves)
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
    return _covariance(problem, coordinates, lengths, nodes, max(terms, 2))


@eqx.filter_jit
def _covariance(problem, coordinates, lengths, nodes, num_terms) -> LengthCovariance:
    """`length_covariance` in one program, at given nodes."""
    problem, part = with_lengths(problem, lengths)
    assert part is not None
    dtype = coordinates.dtype
    population = Population(jnp.zeros((), dtype), jnp.ones((), dtype))
    setting = make_setting(problem, coordinates, population, nodes)
    blocks, _ = complete_information(setting)
    num_items, columns = problem.free.shape
    num_subjects, data = problem.data.num_subjects, problem.data
    # One block of all subjects: models of this kind are small.
    found = ability_block(setting, jnp.zeros((), jnp.int32), num_subjects, num_terms)
    root = jnp.ones(num_subjects, dtype)
    if data.subject_weight is not None:
        root = jnp.sqrt(data.subject_weight.astype(dtype))
    lines, corner, rows = _length_gradients(part, data, found, setting.nodes, root)
    accuracy = found.gradients[1:] * root[:, None]
    # Rows: the terms of ability, then the three with the noise of speed.
    accuracy = accuracy[..., : num_items * columns]
    none = jnp.zeros((3, *accuracy.shape[1:]), dtype)
    joint = jnp.concatenate([jnp.concatenate([accuracy, none]), *rows], axis=-1)
    joint = joint.reshape((num_terms + 3) * num_subjects, -1)
    start = num_items * columns
    of_accuracy = blocks_at(num_items, columns)
    of_lengths = blocks_at(num_items, LENGTH_COLUMNS, start)
    information = -(joint.T @ joint)
    information = information.at[of_accuracy].add(blocks).at[of_lengths].add(lines)
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


def _length_gradients(part: LengthPart, data, found, theta, root):
    """Complete information `[items, 3, 3]` of lengths, of atanh rho, and gradients."""
    items, rho = part.parameters
    omega, phi, variance = items
    seen = data.length_observed
    one = jnp.ones_like(data.log_length)
    mask = one if seen is None else seen.astype(one.dtype)
    gap = (data.log_length - omega) * mask
    rest = 1 - rho**2
    v = 1 / (1 / rest + part.summary.precision)
    lean = v * rho / rest
    line = lean[:, None] * theta - (v * part.summary.slope)[:, None]
    weighted = [found.posterior * basis for basis in found.basis]
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
    t, u, both, own = (m[..., None] for m in moments)

    slope = -(gap * t + phi * u * mask) / variance
    of_variance = (2 * gap * phi * t + phi**2 * u * mask) / (2 * variance)
    gradients = jnp.stack([phi * t * mask / variance, slope, of_variance], axis=-1)
    gradients = gradients.reshape(*gradients.shape[:2], -1)
    # d log N(theta, tau; rho) / d rho, times d rho / d atanh rho = 1 - rho^2.
    of_rho = (both * (1 + rho**2) - rho * (own + u)) / rest
    rows = tuple(s[1:] * root[:, None] for s in (gradients, of_rho))

    weight = root**2
    on = lambda cells: weight @ (cells * mask)
    tau, tau2 = first[0][:, None], second[0][:, None]
    residual = gap + phi * tau
    error = gap**2 + 2 * gap * phi * tau + phi**2 * tau2
    product = gap * tau + phi * tau2
    parts = {
        (0, 0): on(mask) / variance,
        (0, 1): -on(tau * mask) / variance,
        (1, 1): on(tau2 * mask) / variance,
        (0, 2): on(residual) / variance,
        (1, 2): -on(product) / variance,
        (2, 2): on(error) / (2 * variance)
        + 0.5 * part.model.prior_weight * part.model.prior_variance / variance,
    }
    rows_of = [[parts[min(i, j), max(i, j)] for j in range(3)] for i in range(3)]
    blocks = jnp.moveaxis(jnp.asarray(rows_of), -1, 0)
    # An item without lengths has no information: no finite errors, not 0.
    empty = on(mask) == 0
    unknown = jnp.diag(jnp.asarray([1.0, 1.0, 0.0], blocks.dtype))
    blocks = jnp.where(empty[:, None, None], blocks + unknown, blocks)
    sums = [weight @ part for part in (square[0], cross[0], second[0])]

    def expected(atanh):
        r = jnp.tanh(atanh)
        form = (sums[0] - 2 * r * sums[1] + sums[2]) / (2 * (1 - r**2))
        return -0.5 * jnp.sum(weight) * jnp.log(1 - r**2) - form

    corner = -jax.grad(jax.grad(expected))(jnp.arctanh(rho))
    return blocks, corner, rows
