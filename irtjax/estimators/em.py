"""Marginal maximum likelihood (or MAP) by a parameter-expanded EM algorithm.

Bock and Aitkin's EM on common quadrature nodes (AIMS, chapter on estimation), with
three additions that make it fast: the ability scale is folded into the items after
each maximisation (parameter expansion: Liu, Rubin and Wu 1998), each M-step is a
modified Newton step per item, and a safeguarded Anderson acceleration.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar
from irtjax.estimators.acceleration import Memory, accelerate, empty_memory, forget
from irtjax.estimators.base import (
    AbstractMethod,
    Parameters,
    Problem,
    Progress,
    Start,
    estimation_scale,
    report_scale,
)
from irtjax.estimators.marginal import expected_counts, improve_items
from irtjax.models.base import Model, Population
from irtjax.numerics import normal_log_weights, positive_definite_solve


class Point(NamedTuple):
    """What EM estimates: item coordinates and the population."""

    coordinates: Float[Array, "items columns"]
    mean: Scalar
    log_sd: Scalar


class EMState(NamedTuple):
    """State of EM: the point to evaluate next, and the best one so far.

    Attributes:
        point: Evaluated by the next step.
        best: The accepted point with the highest objective.
        image: The image of `best`, tried when a proposal is refused.
        raised: The image without the folding of the ability scale, tried when `image`
            is refused too: on nodes too coarse for the posteriors, folding is not
            exactly neutral.
        log_marginal: `[subjects]` at `best`.
        objective: At `best`, with priors.
        residual: At `best`.
        nodes: Standardised nodes.
        log_weights: Their normalised log weights.
        memory: Of the acceleration.
        refused: How many points in a row were refused.
        folding: Whether the scale is folded; off once it has proved harmful.
        num_seen: Steps taken.
    """

    point: Point
    best: Point
    image: Point
    raised: Point
    log_marginal: Float[Array, " subjects"]
    objective: Scalar
    residual: Scalar
    nodes: Float[Array, " nodes"]
    log_weights: Float[Array, " nodes"]
    memory: Memory
    refused: Array
    folding: Array
    num_seen: Array


class EM(AbstractMethod):
    """Marginal maximum likelihood by EM; with priors, the marginal mode (MAP).

    Attributes:
        nodes: Standardised quadrature nodes. `irtjax.fit` chooses them so that they
            resolve the narrowest posterior; see `choose_nodes`.
        tolerance: Converged when every free parameter's gradient and last move are
            below this many standard errors.
        population: "normal", or "histogram" to estimate the form of the ability
            distribution (its weights at the nodes) with mean 0 and variance 1.
        num_newton: Newton steps per maximisation.
        memory: Depth of the acceleration; 0 turns it off.
    """

    nodes: Float[Array, " nodes"] | None = None
    tolerance: float | Array = 1e-4
    population: str = eqx.field(static=True, default="normal")
    num_newton: int = eqx.field(static=True, default=1)
    memory: int = eqx.field(static=True, default=5)

    def init(self, problem: Problem, start: Start, key: KeyArray | None) -> EMState:
        """State at the start values."""
        if self.nodes is None:
            raise ValueError(
                "EM has no quadrature nodes: pass EM(nodes=...) or use irtjax.fit,"
                " which chooses them"
            )
        if self.population not in ("normal", "histogram"):
            raise ValueError(
                f"population {self.population!r} is neither 'normal' nor 'histogram'"
            )
        coordinates = problem.model.unconstrain(start.items)
        dtype = coordinates.dtype
        population = estimation_scale(problem, start)
        nodes = jnp.asarray(self.nodes, dtype)
        log_weights = population.log_weights
        if log_weights is None or log_weights.shape != nodes.shape:
            log_weights = normal_log_weights(nodes)
        point = Point(
            coordinates,
            jnp.asarray(population.mean, dtype),
            jnp.log(jnp.asarray(population.sd, dtype)),
        )
        flat, _ = ravel_pytree(point)
        low = jnp.full((), -jnp.inf, dtype)
        return EMState(
            point,
            point,
            point,
            point,
            jnp.zeros(problem.data.num_subjects, dtype),
            jnp.zeros((), dtype),
            -low,
            nodes,
            log_weights,
            empty_memory(flat.size, max(self.memory, 1), dtype),
            jnp.zeros((), jnp.int32),
            jnp.ones((), bool),
            jnp.zeros((), jnp.int32),
        )

    def step(self, problem: Problem, state: EMState, key: KeyArray | None) -> EMState:
        """One pass over the data, one maximisation, one proposal."""
        model, data = problem.model, problem.data
        point = state.point
        sd = jnp.exp(point.log_sd)
        nodes = point.mean + sd * state.nodes
        items = model.constrain(point.coordinates)
        counts = expected_counts(model, items, nodes, state.log_weights, data)
        weight = data.subject_weight
        gain = counts.log_marginal - state.log_marginal
        gain = jnp.sum(gain if weight is None else gain * weight)
        prior = _log_prior(model, point)
        gain = gain + prior - _log_prior(model, state.best)
        size = jnp.abs(state.objective) + counts.log_marginal.shape[0]
        slack = 4 * jnp.finfo(gain.dtype).eps * size
        first = state.num_seen == 0
        accepted = first | (gain >= -slack)
        # The first objective is a plain sum; later ones add small, accurate gains.
        total = counts.log_marginal if weight is None else counts.log_marginal * weight
        objective = jnp.where(first, jnp.sum(total) + prior, state.objective + gain)

        update = improve_items(
            model, point.coordinates, problem.free, nodes, counts, self.num_newton
        )
        raised = point._replace(coordinates=update.coordinates)
        image, new_nodes, new_weights = _update_population(
            self, problem, raised, state, counts.nodes
        )
        folding = state.folding & ~(accepted & (state.refused == 2))
        image = jax.tree.map(lambda a, b: jnp.where(folding, a, b), image, raised)
        residual = _residual(problem, point, image, update, counts.nodes)
        choose = lambda a, b: jax.tree.map(  # noqa: E731
            lambda x, y: jnp.where(accepted, x, y), a, b
        )
        best = choose(point, state.best)
        image = choose(image, state.image)
        proposal, memory = self._propose(problem, point, image, update, state)
        memory = forget(memory, ~accepted)
        raised = choose(raised, state.raised)
        fallback = jax.tree.map(
            lambda a, b: jnp.where(state.refused == 0, a, b), image, raised
        )
        return EMState(
            choose(proposal, fallback),
            best,
            image,
            raised,
            choose(counts.log_marginal, state.log_marginal),
            choose(objective, state.objective),
            choose(residual, state.residual),
            choose(new_nodes, state.nodes),
            choose(new_weights, state.log_weights),
            memory,
            jnp.where(accepted, 0, state.refused + 1),
            folding,
            state.num_seen + 1,
        )

    def _propose(self, problem, point, image, update, state) -> tuple[Point, Memory]:
        """Accelerated proposal; the EM image itself when acceleration is off."""
        if self.memory == 0 or self.population == "histogram":
            return image, state.memory
        flat_point, unravel = ravel_pytree(point)
        flat_image, _ = ravel_pytree(image)
        one = jnp.ones((), flat_point.dtype) * problem.data.num_subjects**0.5
        scale = jnp.where(problem.free, jnp.sqrt(update.curvature), 0)
        weight, _ = ravel_pytree(Point(scale, one, one))
        proposal, memory = accelerate(state.memory, flat_point, flat_image, weight)
        return unravel(proposal), memory

    def progress(self, problem: Problem, state: EMState) -> Progress:
        """Objective and residual of the best point."""
        tolerance = jnp.asarray(self.tolerance, state.residual.dtype)
        return Progress(
            state.objective,
            state.residual,
            state.residual <= tolerance,
            state.refused >= 3,
        )

    def result(self, problem: Problem, state: EMState) -> tuple[Parameters, Array]:
        """Item records on the model's reporting scale, and the population."""
        model, best = problem.model, state.best
        items = model.constrain(best.coordinates)
        weights = state.log_weights if self.population == "histogram" else None
        population = Population(best.mean, jnp.exp(best.log_sd), weights)
        return (
            report_scale(problem, Parameters(items, population)),
            state.log_marginal,
        )


def _log_prior(model: Model, point: Point) -> Scalar:
    items = model.constrain(point.coordinates)
    return jnp.sum(jax.vmap(model.log_prior)(items)) + model.log_common_slope_prior(
        jnp.exp(point.log_sd)
    )


def _residual(problem, point, image, update, at_nodes) -> Scalar:
    """Largest gradient and largest move of a free parameter, in standard errors."""
    scale = jnp.sqrt(update.curvature)
    move = jnp.abs(image.coordinates - point.coordinates) * scale
    gradient = jnp.abs(update.gradient) / scale
    largest = jnp.max(jnp.where(problem.free, jnp.maximum(move, gradient), 0))
    root = jnp.sqrt(jnp.sum(at_nodes))
    shift = jnp.abs(image.mean - point.mean) * jnp.exp(-point.log_sd) * root
    stretch = jnp.abs(image.log_sd - point.log_sd) * root
    return jnp.maximum(largest, jnp.maximum(shift, stretch))


def _update_population(method, problem, point, state, at_nodes):
    """New population, folded into the items where the scale is free to choose.

    Returns the new point, nodes and log weights.
    """
    model = problem.model
    standard = state.nodes
    total = jnp.sum(at_nodes)
    mean = jnp.sum(at_nodes * standard) / total
    variance = jnp.sum(at_nodes * (standard - mean) ** 2) / total
    sd = jnp.sqrt(jnp.maximum(variance, 1e-8))
    nodes, log_weights = state.nodes, state.log_weights
    if method.population == "histogram":
        nodes = (standard - mean) / sd
        share = jnp.maximum(at_nodes / total, 1e-12)
        log_weights = jnp.log(share / jnp.sum(share))
    elif model.priors and not problem.anchored:
        mean, sd = _fold_with_priors(model, point, mean, variance, total)
    if problem.anchored:
        old = jnp.exp(point.log_sd)
        new = Point(
            point.coordinates, point.mean + old * mean, point.log_sd + jnp.log(sd)
        )
    elif model.family.has_slope:
        new = point._replace(coordinates=model.fold(point.coordinates, mean, sd))
    else:
        old = jnp.exp(point.log_sd)
        shifted = model.fold(point.coordinates, old * mean, jnp.ones_like(sd))
        new = Point(shifted, point.mean, point.log_sd + jnp.log(sd))
    return new, nodes, log_weights


def _fold_with_priors(model, point, mean, variance, total):
    """Shift and scale of ability that raise the objective most, priors included.

    Maximises -n log s - n (v + (m - mu)^2) / (2 s^2) + log prior of the folded items
    over (mu, log s) by Newton steps; returns (0, 1) if they do not help.
    """
    root = jnp.exp(point.log_sd)

    def objective(move):
        shift, log_scale = move
        scale = jnp.exp(log_scale)
        fit = -log_scale - (variance + (mean - shift) ** 2) / (2 * scale**2)
        if model.family.has_slope:
            folded = point._replace(coordinates=model.fold(point.coordinates, shift, scale))
        else:
            shifted = model.fold(point.coordinates, root * shift, jnp.ones_like(scale))
            folded = Point(shifted, point.mean, point.log_sd + log_scale)
        return total * fit + _log_prior(model, folded)

    move = jnp.zeros(2, point.coordinates.dtype)
    start = objective(move)
    for _ in range(4):
        step, _ = positive_definite_solve(
            -jax.hessian(objective)(move), jax.grad(objective)(move)
        )
        move = move + jnp.clip(step, -0.5, 0.5)
    move = jnp.where(objective(move) > start, move, 0)
    return move[0], jnp.exp(move[1])
