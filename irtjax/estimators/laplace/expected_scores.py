r"""Each subject's mean expected response over all items, under Laplace's approximation.

The mean over the J items of E[y | theta_i, x_j] depends on the abilities theta of all
subjects and on the items' coordinates x, which are independent given theta. So its
posterior variance is

    Var[S_i] = J_i V J_i' + (1 / J^2) sum_j Var[E[y | theta_i, x_j] | theta],       (1)

V the covariance of the abilities. The gradient of E[S_i | theta] has a direct part, and
one because items depend on the abilities that responded,

    J_ik = 1[i = k] E[dS_i / dtheta_i] + (1 / J) sum_j Cov[E[y | theta_i, x_j],
           d log p(y_kj | theta_k, x_j) / dtheta_k | theta],                        (2)

moments of each item's posterior on its quadrature nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax.estimators.laplace.item_posterior import (
    Block,
    Error,
    joint_density,
    over_error,
    posterior,
)
from irtjax.estimators.laplace.items import in_blocks
from irtjax.estimators.laplace.outer import blocks_of, outer_of
from irtjax.estimators.laplace.problem import LaplaceState, MultilevelProblem
from irtjax.numerics.programs import stored_jit


class MeanResponses(NamedTuple):
    """Means over all items, each `[subjects]`.

    Attributes:
        mean: Posterior mean.
        standard_error: Posterior standard deviation.
    """

    mean: Float[Array, " subjects"]
    standard_error: Float[Array, " subjects"]


def mean_responses(
    problem: MultilevelProblem, state: LaplaceState, *, order: int, num_newton: int = 3
) -> MeanResponses:
    """Mean expected response over all items, with its error; see the module.

    Left out is the uncertainty of effects and variances (`state.components`).

    Args:
        problem: The model and its data.
        state: Where the fit ended.
        order: Nodes per coordinate of an item.
        num_newton: Newton steps to the items' modes.
    """
    model, units = problem.model, problem.units
    # Columns of each unit and group: units stand for equal stems.
    unit = np.asarray(units.unit)[np.asarray(model.stem)]
    column = np.asarray(model.group) if units.is_aligned else np.zeros_like(unit)
    size = units.group.shape
    count = np.bincount(unit * size[1] + column, minlength=size[0] * size[1])
    count = count.reshape(size).astype(float)
    found = _mean_responses(
        problem.by_unit(),
        state,
        (count / len(unit)).astype(state.ability.dtype),
        order,
        num_newton,
    )
    variance = np.maximum(np.asarray(found[1]), 0)
    return MeanResponses(found[0], jnp.array(np.sqrt(variance)))


@stored_jit
def _mean_responses(problem, state: LaplaceState, share, order: int, num_newton: int):
    """Means and variances; `share` is each unit and column's part of all items."""
    model, units, components = problem.model, problem.units, state.components
    family, ability = model.family, state.ability
    subjects, groups = ability.shape
    width = units.group.shape[1]
    outer = outer_of(model, ability, components)
    whole = state.ability_covariance
    errors = blocks_of(whole, groups, units.is_aligned)
    variance = jnp.diagonal(whole).reshape(groups, subjects)
    nodes, blocks, parts = in_blocks(model, units, state.mode, order, share)

    def one(unit: Block, part):
        error = None
        if problem.expected:
            place = unit.group[0] if width == 1 else 0
            nothing = jnp.zeros(unit.values.shape, ability.dtype)
            error = Error(errors[place], nothing, True)
        log_joint, terms, _, (theta, shift, _, _) = joint_density(
            model, outer, unit, error
        )
        found = posterior(model, outer, unit, log_joint, nodes, num_newton)
        own = variance[unit.group]

        def at(row):
            items = jax.vmap(family.constrain)(row + shift)
            per_subject = jax.vmap(family.expected_response, in_axes=(None, 0))
            mean = lambda t: jax.vmap(per_subject)(items, t)  # noqa: E731
            one = jnp.ones_like(theta)
            value, slope = jax.jvp(mean, (theta,), (one,))
            score = jax.jvp(lambda t: terms(row, t, shift), (theta,), (one,))[1]
            return value, slope, over_error(mean, theta, own), score

        value, slope, mean, score = jax.vmap(at)(found.rows)
        # Of all columns of a unit together, `[nodes, subjects]`.
        value = jnp.einsum("qwn,w->qn", value, part)
        centred = value - found.share @ value
        weighted = found.share[:, None] * centred
        # Stems are independent given the abilities: variances add up over them.
        times = jnp.maximum(unit.weight, 1)
        return (
            jnp.einsum("q,qwn,w->n", found.share, mean, part),
            jnp.sum(weighted * centred, axis=0) / times,
            jnp.einsum("q,qwn->wn", found.share, slope) * part[:, None],
            weighted,
            score,
        )

    def body(carry, inputs):
        mean, spread, direct, follows = carry
        block, part = inputs
        means, spreads, slopes, weighted, score = jax.vmap(one)(block, part)
        group = block.group.reshape(-1)
        direct = direct.at[group].add(slopes.reshape(-1, subjects))
        if width == 1:
            product = jnp.einsum("uqn,uqk->unk", weighted, score[:, :, 0])
            follows = follows.at[group].add(product)
        else:
            follows = follows + jnp.einsum("uqn,uqwk->wnk", weighted, score)
        carry = mean + means.sum(0), spread + spreads.sum(0), direct, follows
        return carry, None

    zeros = jnp.zeros(subjects, ability.dtype)
    init = (
        zeros,
        zeros,
        jnp.zeros((groups, subjects), ability.dtype),
        jnp.zeros((groups, subjects, subjects), ability.dtype),
    )
    carry, _ = lax.scan(body, init, (blocks, parts))
    mean, spread, direct, follows = carry
    index = jnp.arange(subjects)
    follows = follows.at[:, index, index].add(direct)
    gradient = jnp.moveaxis(follows, 1, 0).reshape(subjects, groups * subjects)
    return mean, spread + jnp.sum((gradient @ whole) * gradient, axis=1)
