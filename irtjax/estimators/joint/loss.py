"""Minus the joint objective as a loss in scaled coordinates, with its own derivative.

A point is multiplied by the roots of its information at the start, so that a gradient
is in units of approximate standard errors. Two more coordinates, a shift and a log
scale of ability, appear in the penalty alone: they are the direction in which the
likelihood is flat, along which a gradient method would otherwise be slow.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irtjax._types import KeyArray, Scalar
from irtjax.data.responses import Responses
from irtjax.estimators.joint.objective import (
    ability_prior,
    joint_derivatives,
    joint_information,
    log_penalty,
)
from irtjax.likelihood.problem import Problem


class JointPoint(NamedTuple):
    """Item coordinates, abilities, and the ability scale that the penalty sees."""

    coordinates: Float[Array, "items columns"]
    theta: Float[Array, " subjects"]
    shift: Scalar
    log_scale: Scalar


class Reference(NamedTuple):
    """Scale and origin of the loss, fixed at the start.

    Attributes:
        scale: Roots of the information at the start; scaled = scale * point.
        log_lik: `[subjects]` at the start: the loss is a difference from it, which
            keeps small gains of a large sum accurate in single precision.
        log_prior: At the start.
    """

    scale: JointPoint
    log_lik: Float[Array, " subjects"]
    log_prior: Scalar


class Context(NamedTuple):
    """What the loss needs in addition to the point; not kept in the state."""

    problem: Problem
    penalty: Array | float
    reference: Reference


@jax.custom_vjp
def loss(point: JointPoint, context: Context) -> Scalar:
    """Minus the joint objective, in nats relative to the start, at a scaled point.

    Its derivative is computed block by block together with the value; differentiating
    through the scan would keep every block's intermediate values.
    """
    return loss_and_gradient(point, context)[0]


def _loss_forward(point, context):
    return loss_and_gradient(point, context)


def _loss_backward(gradient, cotangent):
    return jax.tree.map(lambda g: cotangent * g, gradient), None


loss.defvjp(_loss_forward, _loss_backward)


def loss_and_gradient(point: JointPoint, context: Context) -> tuple[Scalar, JointPoint]:
    """The loss and its gradient in one pass; infinite and 0 where it does not exist."""
    problem, penalty = context.problem, context.penalty
    at = unscaled(point, context.reference)
    seen = joint_derivatives(problem.model, problem.data, at.coordinates, at.theta)
    log_prior, by_prior = jax.value_and_grad(folded_prior, argnums=1)(problem, at)
    gain = jnp.sum(weighted(problem.data, seen.log_lik - context.reference.log_lik))
    gain = gain + penalty * (log_prior - context.reference.log_prior)
    by_prior = jax.tree.map(lambda g: penalty * g, by_prior)
    gradient = by_prior._replace(
        coordinates=by_prior.coordinates + seen.coordinates,
        theta=by_prior.theta + seen.theta,
    )
    gradient = jax.tree.map(lambda g, s: -g / s, gradient, context.reference.scale)
    # Where probabilities do not exist (ordered intercepts out of order) the line
    # search must see a worse point, not a NaN.
    exists = jnp.isfinite(gain)
    gradient = jax.tree.map(lambda g: jnp.where(exists, g, 0), gradient)
    return jnp.where(exists, -gain, jnp.inf), mask_fixed(problem, gradient)


def batch_gradient(
    point: JointPoint, context: Context, batch_size: int, key: KeyArray
) -> JointPoint:
    """Unbiased estimate of the gradient from a random subset of subjects."""
    problem, data = context.problem, context.problem.data
    num_subjects = data.num_subjects
    size = min(batch_size, num_subjects)
    chosen = jax.random.choice(key, num_subjects, (size,), replace=False)
    take = lambda x: None if x is None else x[chosen]  # noqa: E731
    batch = Responses(
        data.values[chosen],
        take(data.observed),
        take(data.trials),
        take(data.subject_weight),
        data.item_weight,
    )
    at = unscaled(point, context.reference)
    seen = joint_derivatives(problem.model, batch, at.coordinates, at.theta[chosen])
    by_prior = jax.grad(folded_prior, argnums=1)(problem, at)
    factor = num_subjects / size
    by_theta = factor * (seen.theta + context.penalty * by_prior.theta[chosen])
    gradient = JointPoint(
        factor * seen.coordinates + context.penalty * by_prior.coordinates,
        jnp.zeros_like(at.theta).at[chosen].set(by_theta),
        context.penalty * by_prior.shift,
        context.penalty * by_prior.log_scale,
    )
    gradient = jax.tree.map(lambda g, s: -g / s, gradient, context.reference.scale)
    return mask_fixed(problem, gradient)


def folded_prior(problem: Problem, point: JointPoint) -> Scalar:
    """Log priors of the same predictors on the shifted and scaled ability."""
    model = problem.model
    scale = jnp.exp(point.log_scale)
    if not model.family.has_slope:
        scale = jnp.ones_like(scale)
    coordinates, theta = point.coordinates, point.theta
    if not problem.anchored:
        coordinates = model.fold(coordinates, point.shift, scale)
        theta = (theta - point.shift) / scale
    return log_penalty(problem, model.constrain(coordinates), theta)


def curvature_of(
    problem: Problem, penalty: Array | float, point: JointPoint
) -> JointPoint:
    """Information plus the curvature of the priors; positive everywhere."""
    model, data = problem.model, problem.data
    known = joint_information(model, data, point.coordinates, point.theta)
    log_prior = lambda row: model.log_prior(model.family.constrain(row))  # noqa: E731
    bend = jax.vmap(lambda row: jnp.diagonal(jax.hessian(log_prior)(row)))
    by_items = jnp.abs(penalty * bend(point.coordinates))
    if data.item_weight is not None:
        by_items = by_items * data.item_weight.astype(by_items.dtype)[:, None]
    by_items = by_items + known.coordinates
    # A coordinate that the data do not identify must not diverge in one step.
    by_items = jnp.maximum(by_items, 1e-3 * jnp.mean(by_items, axis=0))
    ones = jnp.ones_like(point.theta)
    spread = ability_prior(problem)[1]
    by_theta = known.theta + penalty * weighted(data, ones) / spread**2
    by_theta = jnp.maximum(by_theta, 1e-3 * jnp.mean(by_theta))
    along = lambda move: folded_prior(  # noqa: E731
        problem, point._replace(shift=move[0], log_scale=move[1])
    )
    move = jnp.stack([point.shift, point.log_scale])
    by_scale = jnp.abs(penalty * jnp.diagonal(jax.hessian(along)(move))) + 1
    return JointPoint(by_items, by_theta, by_scale[0], by_scale[1])


def mask_fixed(problem: Problem, move: JointPoint) -> JointPoint:
    """Zero where nothing may move; the scale is fixed as soon as an item is."""
    movable = jnp.all(problem.free) & ~jnp.asarray(problem.anchored)
    return JointPoint(
        jnp.where(problem.free, move.coordinates, 0),
        move.theta,
        jnp.where(movable, move.shift, 0),
        jnp.where(movable, move.log_scale, 0),
    )


def unscaled(point: JointPoint, reference: Reference) -> JointPoint:
    """The point in the model's own coordinates."""
    return jax.tree.map(jnp.divide, point, reference.scale)


def weighted(data: Responses, by_subject: Array) -> Array:
    """Numbers of each subject, multiplied by its weight."""
    if data.subject_weight is None:
        return by_subject
    return by_subject * data.subject_weight.astype(by_subject.dtype)


def residual_of(
    gradient: JointPoint, reference: Reference, curvature: JointPoint
) -> Scalar:
    """Largest gradient over the root of its curvature: approximate standard errors."""
    parts = jax.tree.map(
        lambda g, s, c: jnp.max(jnp.abs(g * s) / jnp.sqrt(c)),
        gradient,
        reference.scale,
        curvature,
    )
    return jnp.max(jnp.stack(jax.tree.leaves(parts)))
