"""Each subject's mean expected response over all items, under Laplace's approximation.

The mean S_i over the J items of E[y | theta_i, x_j] depends on the abilities theta of
all subjects and the items' coordinates x, independent given theta. So

    Var[S_i] = J_i V J_i' + B_i F B_i'
               + (1 / J^2) sum_j Var[E[y | theta_i, x_j] | theta, beta],            (1)

V the covariance of the abilities, and F that of the effects beta given these (the items
have prior means D_j beta). The gradients are

    B_i  = (1 / J) sum_j Cov[E[y | theta_i, x_j], d log p(x_j | beta) / dbeta],     (2)
    J_ik = 1[i = k] E[dS_i / dtheta_i] + (1 / J) sum_j Cov[E[y | theta_i, x_j],
           d log p(y_kj | theta_k, x_j) / dtheta_k] + B_i dbeta / dtheta_k,         (3)

since items depend on the abilities that responded and on the effects, which depend on
the abilities. The moments are of each item's posterior on its quadrature nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from irtjax.estimators.laplace.components import outer_of
from irtjax.estimators.laplace.item_posterior import (
    Block,
    Error,
    joint_density,
    over_error,
    posterior,
)
from irtjax.estimators.laplace.items import Following, blocks_of, in_blocks
from irtjax.estimators.laplace.problem import (
    LaplaceState,
    MultilevelProblem,
    resized,
    with_subjects,
)
from irtjax.numerics.programs import stored_jit


class MeanResponses(NamedTuple):
    """Posterior means and standard deviations of means over all items."""

    mean: Float[Array, " subjects"]
    standard_error: Float[Array, " subjects"]


def mean_responses(
    problem: MultilevelProblem,
    state: LaplaceState,
    covariance: Float[Array, "abilities abilities"] | np.ndarray | None = None,
    follow: Following | None = None,
    *,
    order: int,
    num_newton: int = 3,
) -> MeanResponses:
    """Mean expected response over items, and its error given the variance components.

    `covariance` is that of the abilities, by default the state's, which is given the
    effects. `follow` has derivatives of effects in abilities; None for fixed effects.
    """
    model, distinct = problem.model, problem.distinct
    # Columns of each distinct item and group.
    of_stem = np.asarray(distinct.of_stem)[np.asarray(model.stem)]
    column = np.asarray(model.group) if distinct.is_aligned else np.zeros_like(of_stem)
    size = distinct.group.shape
    count = np.bincount(of_stem * size[1] + column, minlength=size[0] * size[1])
    count = count.reshape(size).astype(float)
    share = (count / len(of_stem)).astype(state.ability_mode.dtype)
    whole = state.ability_covariance
    if covariance is not None:
        whole = np.asarray(covariance, whole.dtype)
    compiled, (count, groups) = problem.by_distinct(), state.ability_mode.shape
    rows = compiled.data.num_subjects
    whole = resized(whole, rows, 0, 1, groups=groups)
    if follow is not None:
        follow = follow._replace(
            cross=resized(follow.cross, rows, 0, groups=groups),
            slope=resized(follow.slope, rows, 1, groups=groups),
        )
    state = with_subjects(state, rows)
    mean, variance = _mean_responses(
        compiled, state, whole, follow, share, order, num_newton
    )
    error = np.sqrt(np.maximum(np.asarray(variance), 0))
    return MeanResponses(resized(mean, count, 0), resized(error, count, 0))


@stored_jit
def _mean_responses(
    problem, state: LaplaceState, whole, follow, share, order: int, num_newton: int
):
    """Means and variances; `share` is the part of each column of each distinct item."""
    model, distinct = problem.model, problem.distinct
    family, ability = model.family, state.ability
    subjects, groups = ability.shape
    outer = outer_of(model, ability, state.components)
    errors = blocks_of(state.ability_covariance, groups, distinct.is_aligned)
    variance = jnp.diagonal(state.ability_covariance).reshape(groups, subjects)
    nodes, blocks, parts = in_blocks(model, distinct, state.mode, order, share)

    def one(item: Block, part):
        error = Error.of(item, errors, True) if problem.expected else None
        log_joint, terms, _, theta, shift = joint_density(model, outer, item, error)
        _, rows, share, _ = posterior(model, outer, item, log_joint, nodes, num_newton)
        own = variance[item.group]

        def at(row):
            items = jax.vmap(family.constrain)(row + shift)
            per_subject = jax.vmap(family.expected_response, in_axes=(None, 0))
            mean = lambda t: jax.vmap(per_subject)(items, item.sign * t)
            one = jnp.ones_like(theta)
            value, slope = jax.jvp(mean, (theta,), (one,))
            score = jax.jvp(lambda t: terms(row, t, shift), (theta,), (one,))[1]
            return value, slope, over_error(mean, theta, own), score

        value, slope, mean, score = jax.vmap(at)(rows)
        # Of all columns of an item together, `[nodes, subjects]`.
        value = jnp.einsum("qwn,w->qn", value, part)
        centred = value - share @ value
        weighted = share[:, None] * centred
        # Stems are independent given the abilities: variances add up over them.
        times = jnp.maximum(item.weight, 1)
        by_effect = jnp.zeros((subjects, 0), ability.dtype)
        if follow is not None:
            by_effect = (weighted.T @ rows) @ follow.omega[item.row]
        return (
            jnp.einsum("q,qwn,w->n", share, mean, part),
            jnp.sum(weighted * centred, axis=0) / times,
            jnp.einsum("q,qwn->wn", share, slope) * part[:, None],
            weighted,
            score,
            by_effect,
        )

    def body(carry, inputs):
        mean, spread, direct, follows, effects = carry
        block, part = inputs
        means, spreads, slopes, weighted, score, moved = jax.vmap(one)(block, part)
        group = block.group.reshape(-1)
        direct = direct.at[group].add(slopes.reshape(-1, subjects))
        if not distinct.is_aligned:
            product = jnp.einsum("uqn,uqk->unk", weighted, score[:, :, 0])
            follows = follows.at[group].add(product)
        else:
            follows = follows + jnp.einsum("uqn,uqwk->wnk", weighted, score)
        mean, spread = mean + means.sum(0), spread + spreads.sum(0)
        # Effects column by column, as in `Following`.
        along = jnp.einsum("una,ue->nae", moved, block.design)
        effects = effects + along.reshape(effects.shape)
        return (mean, spread, direct, follows, effects), None

    shapes = (subjects,), (subjects,), (groups, subjects), (groups, subjects, subjects)
    shapes += ((subjects, 0 if follow is None else len(follow.covariance)),)
    init = tuple(jnp.zeros(shape, ability.dtype) for shape in shapes)
    (mean, spread, direct, follows, effects), _ = lax.scan(body, init, (blocks, parts))
    index = jnp.arange(subjects)
    follows = follows.at[:, index, index].add(direct)
    gradient = jnp.moveaxis(follows, 1, 0).reshape(subjects, groups * subjects)
    if follow is not None:
        gradient = gradient + effects @ follow.slope
        spread = spread + jnp.sum((effects @ follow.covariance) * effects, axis=1)
    return mean, spread + jnp.sum((gradient @ whole) * gradient, axis=1)
