"""What EM and SAEM estimate: a point, its prior, and what they report of it."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import Scalar
from irtjax.estimators.marginal.correlations import log_prior_of, oriented
from irtjax.likelihood.lengths import LengthPart
from irtjax.likelihood.problem import (
    Parameters,
    Problem,
    Start,
    estimation_scale,
    report_scale,
)
from irtjax.models.lengths import LengthCoordinates, orient_speed
from irtjax.models.model import Model, Population


class Point(NamedTuple):
    """What is estimated: item coordinates, the population, and lengths if any.

    `correlation` is that of several abilities, whose means are 0 and variances 1; None
    of one ability.
    """

    coordinates: Float[Array, "items columns"]
    mean: Float[Array, "*dims"]
    log_sd: Float[Array, "*dims"]
    lengths: LengthCoordinates | None = None
    correlation: Float[Array, "dims dims"] | None = None

    def abilities(self, standard: Float[Array, "nodes *dims"]) -> Array:
        """Abilities at standardised nodes."""
        if self.correlation is not None:
            standard = standard @ jnp.linalg.cholesky(self.correlation).T
        return self.mean + jnp.exp(self.log_sd) * standard


def with_linear_slopes(problem: Problem) -> Problem:
    """Of several abilities, the problem whose coordinates are slopes themselves.

    Slopes that are kept at or above 0 may reach it, which their logarithms cannot.
    """
    model, family = problem.model, problem.model.family.with_any_sign()
    if not model.several or family is None:
        return problem
    return dataclasses.replace(problem, model=dataclasses.replace(model, family=family))


def start_point(problem: Problem, start: Start, population: str) -> Point:
    """The point at start values that are oriented (`orient`).

    Raises:
        ValueError: If the model or the start does not suit lengths.
    """
    model = with_linear_slopes(problem).model
    coordinates = model.unconstrain(start.items)
    normal = estimation_scale(problem, start)
    mean, sd = (jnp.asarray(x, coordinates.dtype) for x in (normal.mean, normal.sd))
    point = Point(coordinates, mean, jnp.log(sd), None, normal.correlation)
    if not model.has_lengths:
        return point
    if problem.anchored or not model.family.has_slope:
        raise ValueError(
            "response lengths need a model with item discriminations and without"
            " anchors: ability and speed are standardised together"
        )
    if population != "normal":
        raise ValueError("response lengths need population='normal'")
    if start.lengths is None:
        raise ValueError(
            "the start values hold no parameters of the response lengths; make them"
            " by start_values"
        )
    lengths = model.length_model.unconstrain(orient_speed(start.lengths))
    return point._replace(lengths=lengths)


def prior_at(
    problem: Problem, part: LengthPart | None, point: Point, frame: Array
) -> tuple[Scalar, Array]:
    """Log prior of a point, and the frame of the priors, found from the last `frame`.

    Weighted as the likelihood is: a resampled item brings its prior with it.
    """
    model, weight = problem.model, problem.data.item_weight
    if not problem.anchored:
        frame = model.prior_frame(point.coordinates, frame, item_weight=weight)
    prior = model.total_log_prior(point.coordinates, frame, weight)
    if point.correlation is None:
        prior = prior + model.log_common_slope_prior(jnp.exp(point.log_sd))
    else:
        prior = prior + log_prior_of(point.correlation)
    if part is not None:
        prior = prior + part.model.log_prior(part.parameters, problem.data.item_weight)
    return prior, frame


def reported(
    problem: Problem, point: Point, log_weights: Array | None = None
) -> Parameters:
    """The estimates of a point on the scale that the model reports."""
    items = with_linear_slopes(problem).model.constrain(point.coordinates)
    if point.correlation is not None:
        slopes = items.discrimination
        slopes, population = oriented(problem, slopes, point.correlation)
        return Parameters(items._replace(discrimination=slopes), population)
    population = Population(point.mean, jnp.exp(point.log_sd), log_weights)
    lengths = problem.model.length_model.constrain(point.lengths)
    return report_scale(problem, Parameters(items, population, None, lengths))


def residual_of(
    problem, point, image, update, at_nodes, curvature, *, gradient: bool = True
) -> Scalar:
    """Largest move, and gradient if requested, of a free parameter, in standard errors.

    Lengths are maximised in closed form: their move is gradient over curvature.
    """
    scale = jnp.sqrt(update.curvature)
    move = jnp.abs(image.coordinates - point.coordinates) * scale
    if gradient:
        move = jnp.maximum(move, jnp.abs(update.gradient) / scale)
    largest = jnp.max(jnp.where(problem.free, move, 0))
    root = jnp.sqrt(jnp.sum(at_nodes))
    if point.correlation is None:
        shift = jnp.abs(image.mean - point.mean) * jnp.exp(-point.log_sd) * root
        stretch = jnp.abs(image.log_sd - point.log_sd) * root
        of_population = jnp.maximum(shift, stretch)
    else:
        of_population = jnp.max(jnp.abs(image.correlation - point.correlation)) * root
    largest = jnp.maximum(largest, of_population)
    if curvature is None:
        return largest
    moves = jax.tree.map(
        lambda new, old, bend: jnp.max(jnp.abs(new - old) * jnp.sqrt(bend)),
        image.lengths,
        point.lengths,
        curvature,
    )
    return jnp.maximum(largest, jnp.max(jnp.stack(jax.tree.leaves(moves))))


def update_population(
    problem: Problem, point: Point, standard: Array, at_nodes: Array, *, histogram: bool
) -> tuple[Point, Scalar, Scalar]:
    """The point with the population that fits best, folded in where the scale is free.

    `at_nodes` is the expected number of subjects at each standardised node; with
    `histogram` the form of the population is free. Standardised abilities t become
    (t - mean) / sd of the mean and sd that are returned.
    """
    model = problem.model
    total = jnp.sum(at_nodes)
    mean = jnp.sum(at_nodes * standard) / total
    variance = jnp.sum(at_nodes * (standard - mean) ** 2) / total
    sd = jnp.sqrt(jnp.maximum(variance, 1e-8))
    if not histogram and not model.family.has_slope:
        sd = _common_scale(model, point.log_sd, variance, total)
    old = jnp.exp(point.log_sd)
    if problem.anchored:
        new = point._replace(
            mean=point.mean + old * mean, log_sd=point.log_sd + jnp.log(sd)
        )
    elif model.family.has_slope:
        new = point._replace(coordinates=model.fold(point.coordinates, mean, sd))
    else:
        shifted = model.fold(point.coordinates, old * mean, jnp.ones_like(sd))
        new = point._replace(coordinates=shifted, log_sd=point.log_sd + jnp.log(sd))
    return new, mean, sd


def _common_scale(model: Model, log_sd: Scalar, variance: Scalar, total: Scalar):
    """Factor s on the standard deviation of ability where all slopes are one.

    Maximises -n (log s + v / (2 s^2)) + log prior of the common slope, by Newton steps
    from the maximum-likelihood value sqrt(v).
    """

    def objective(log_factor):
        fit = -log_factor - variance * jnp.exp(-2 * log_factor) / 2
        return total * fit + model.log_common_slope_prior(jnp.exp(log_sd + log_factor))

    start = 0.5 * jnp.log(jnp.maximum(variance, 1e-8))
    best = start
    for _ in range(4):
        slope = jax.grad(objective)(best)
        curvature = jnp.abs(jax.grad(jax.grad(objective))(best)) + 1e-12
        best = best + jnp.clip(slope / curvature, -0.5, 0.5)
    return jnp.exp(jnp.where(objective(best) >= objective(start), best, start))
