"""Means of responses, seen or not, under a structured fit: what it predicts.

Items are integrated over their posteriors given the abilities, not put at an estimate:
with few responses to each item the two differ, and only the mean is calibrated.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax._types import KeyArray
from irtjax.estimators.laplace import blocks_of
from irtjax.estimators.structured_state import LaplaceState, StructuredProblem
from irtjax.estimators.unit_posterior import Outer
from irtjax.estimators.units import expected_responses


@eqx.filter_jit
def _expected(problem, outer: Outer, state, root, standard, order: int):
    """Means by unit, averaged over abilities; see `predict_responses`."""
    model, units = problem.model, problem.units
    subjects, groups = outer.ability.shape
    mean_of = lambda outer, at, error: expected_responses(  # noqa: E731
        model, units, outer, state.mode, order=order, ability_covariance=error, at=at
    )

    def add(total, z):
        at = outer.ability + (root @ z).reshape(groups, subjects).T
        if problem.expected:
            # Items were fitted over the error of the abilities: they do not follow.
            error = blocks_of(state.ability_covariance, groups, units.is_aligned)
            return total + mean_of(outer, at, error), None
        return total + mean_of(outer._replace(ability=at), at, None), None

    empty = jnp.zeros(units.values.shape, outer.ability.dtype)
    return lax.scan(add, empty, standard)[0] / standard.shape[0]


def predict_responses(
    problem: StructuredProblem,
    state: LaplaceState,
    *,
    order: int = 5,
    num_draws: int = 0,
    key: KeyArray | None = None,
) -> Float[Array, "subjects items"]:
    """Mean of every response given all that were observed.

    E[y_ij | Y, theta] = int E[y | theta_i, x] p(x | y_j, theta) dx, for the posterior p
    of the coordinates x of item j, or for that over the error of theta where the fit
    has such (`StructuredProblem.expected`); by adaptive quadrature (Naylor and Smith
    1982, Applications of a Method for the Efficient Computation of Posterior
    Distributions).
    For scores this is the mean of the score, not the score of the mean logit. Abilities
    are as estimated, or averaged over draws of Laplace's approximation, which matters
    where subjects answer few items of a group.

    Args:
        problem: The model with the responses that items are known from.
        state: Of the fast route, at its end (`Fit.state`).
        order: Nodes per coordinate of an item.
        num_draws: Draws of the abilities; 0 takes the estimates.
        key: Random key of the draws.

    Returns:
        `[subjects, items]` means, of the cells that were observed too.

    Raises:
        ValueError: If `order` is not a positive number, or draws have no key.

    >>> import jax, irtjax
    >>> from irtjax.estimators.laplace import Laplace
    >>> from irtjax.models.logistic import Binary
    >>> from irtjax.structure_layout import lay_out
    >>> table = irtjax.ResponseTable.from_arrays([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
    >>> layout = lay_out(table, Binary(slopes="positive"), grouped=False)
    >>> problem = StructuredProblem.create(layout.model, table.responses())
    >>> state = jax.jit(Laplace(order=2).init)(problem, None, None)
    >>> means = predict_responses(problem, state)
    >>> means.shape, bool((means[2] > means[1]).all())
    ((3, 3), True)
    """
    if order < 1:
        raise ValueError(
            f"order {order} is not a positive number of nodes: give 1 to 9"
        )
    if num_draws and key is None:
        raise ValueError("draws of abilities need a random key: give key=")
    model, units, components = problem.model, problem.units, state.components
    outer = Outer(
        state.ability,
        components.effects,
        model.residual_factor(
            components.log_residual_sd,
            components.residual_correlation,
            components.tilt,
            components.spread,
        ),
        components.group_effects,
    )
    size, dtype = state.ability_covariance.shape[0], state.ability.dtype
    root, standard = jnp.zeros((size, size), dtype), jnp.zeros((1, size), dtype)
    if num_draws and key is not None:
        # By eigenvalues: a covariance may be singular.
        values, vectors = jnp.linalg.eigh(state.ability_covariance)
        root = vectors * jnp.sqrt(jnp.maximum(values, 0))
        standard = jax.random.normal(key, (num_draws, size), dtype)
    means = _expected(problem, outer, state, root, standard, order)
    column = np.asarray(model.group) if units.is_aligned else 0
    unit = np.asarray(units.unit)[np.asarray(model.stem)]
    return means[unit, column].T
