"""Constraints of joint estimation: fixed parameters, and slopes of at least 0."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from irtjax.estimators.driver import tree_where
from irtjax.estimators.joint.bound import BilinearParameters
from irtjax.likelihood.problem import Problem, is_positive

#: Steps in which a proposal may change the zeros of few items only.
EARLY_STEPS = 5
#: The largest share of such items.
FEW_ITEMS = 0.1


def free_mask(problem: Problem) -> Bool[Array, "items p"]:
    """The free mask in the order (d, a); slopes of unit families are fixed.

    The mean of several intercepts is free if one of them is: of those that an item
    lacks (`families.graded`) it has none.
    """
    family, free = problem.model.family, problem.free
    mean = jnp.any(free[:, list(family.intercept_columns)], axis=1, keepdims=True)
    if not family.has_slope:
        return jnp.concatenate([mean, jnp.zeros_like(mean)], axis=1)
    return jnp.concatenate([mean, free[:, list(family.slope_columns)]], axis=1)


def free_slopes(
    problem: Problem, point: BilinearParameters
) -> Float[Array, "items dims"]:
    """The slopes that are estimated, 0 elsewhere."""
    return jnp.where(free_mask(problem)[:, 1:], point.discrimination, 0)


def feasible(
    problem: Problem,
    proposal: BilinearParameters,
    image: BilinearParameters,
    point: BilinearParameters,
    *,
    lasso: bool,
    early: Array,
) -> BilinearParameters:
    """A proposal of the acceleration made feasible; the image where it is refused.

    Positive slopes are raised to 0. With a lasso an item whose slopes are 0 in the
    image has them in the proposal too. Early proposals that change which slopes are 0
    in more than a tenth of the items are refused, since such fits may cycle.
    """
    if is_positive(problem.model):
        slope = jnp.maximum(proposal.discrimination, 0)
        proposal = proposal._replace(discrimination=slope)
        moved = jnp.any((slope == 0) != (image.discrimination == 0), axis=1)
        refused = early & (jnp.mean(moved) > FEW_ITEMS)
        proposal = tree_where(refused, image, proposal)
    if lasso:
        none = free_slopes(problem, image) == 0
        zero = jnp.all(none, axis=1, keepdims=True)
        slope = jnp.where(zero, 0, proposal.discrimination)
        proposal = proposal._replace(discrimination=slope)
    # Fixed coordinates stay exactly, not up to the rounding of a mixture.
    stacked = jnp.where(free_mask(problem), proposal.stacked, point.stacked)
    return proposal._replace(discrimination=stacked[:, 1:], intercept=stacked[:, 0])
