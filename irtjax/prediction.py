"""Means of responses, seen or not, under a structured fit: what it predicts.

Items are integrated over their posteriors given the abilities, not put at an estimate:
with few responses to each item the two differ, and only the mean is calibrated.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irtjax.estimators.laplace import LaplaceState, StructuredProblem
from irtjax.estimators.units import Outer, expected_responses

_expected_jit = eqx.filter_jit(expected_responses)


def predict_responses(
    problem: StructuredProblem, state: LaplaceState, *, order: int = 5
) -> Float[Array, "subjects items"]:
    """Mean of every response given all that were observed, abilities as estimated.

    E[y_ij | Y] = int E[y | theta_i, x] p(x | y_j, theta) dx, for the posterior p of the
    coordinates x of item j; by adaptive quadrature (Naylor and Smith 1982, Applications
    of a Method for the Efficient Computation of Posterior Distributions). For scores
    this is the mean of the score, not the score of the mean logit. The error of the
    abilities is left out, which is small beside that of items if subjects answer many.

    Args:
        problem: The model with the responses that items are known from.
        state: Of the fast route, at its end (`Fit.state`).
        order: Nodes per coordinate of an item.

    Returns:
        `[subjects, items]` means, of the cells that were observed too.

    Raises:
        ValueError: If `order` is not a positive number.

    >>> import jax, irtjax
    >>> from irtjax.estimators.laplace import Laplace
    >>> from irtjax.models.logistic import Binary
    >>> from irtjax.structured import lay_out
    >>> table = irtjax.ResponseTable.from_arrays([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
    >>> layout = lay_out(table, Binary(slopes="positive"), grouped=False)
    >>> problem = StructuredProblem.create(layout.model, table.responses())
    >>> state = jax.jit(Laplace(order=1).init)(problem, None, None)
    >>> means = predict_responses(problem, state)
    >>> means.shape, bool((means[2] > means[1]).all())
    ((3, 3), True)
    """
    if order < 1:
        raise ValueError(
            f"order {order} is not a positive number of nodes: give 1 to 9"
        )
    model, units, components = problem.model, problem.units, state.components
    outer = Outer(
        state.ability,
        components.effects,
        model.residual_factor(
            components.log_residual_sd, components.residual_correlation
        ),
        components.group_effects,
    )
    means = _expected_jit(model, units, outer, state.mode, order=order)
    column = np.asarray(model.group) if units.is_aligned else 0
    unit = np.asarray(units.unit)[np.asarray(model.stem)]
    return jnp.asarray(means)[unit, column].T
