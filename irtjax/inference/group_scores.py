"""Scores of new subjects on items in groups: the general ability and one per group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from irtjax.data.responses import Responses
from irtjax.models.family import AbstractResponseFamily
from irtjax.models.multilevel import covariance_mixture as mixture
from irtjax.models.multilevel.model import general_ability
from irtjax.numerics.kernels import positive_definite_solve


class GroupScores(NamedTuple):
    """Scores with the items as known.

    Attributes:
        general: `[subjects]` general abilities, with standard errors.
        ability: `[subjects, groups]`, with covariance `[subjects, groups, groups]`.
        converged: `[subjects]` whether the mode was found.
    """

    general: Float[Array, " subjects"]
    general_error: Float[Array, " subjects"]
    ability: Float[Array, "subjects groups"]
    covariance: Float[Array, "subjects groups groups"]
    converged: Array

    @property
    def error(self) -> Float[Array, "subjects groups"]:
        """`[subjects, groups]` standard errors of the abilities."""
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=1, axis2=2))


@eqx.filter_jit
def score_groups(
    family: AbstractResponseFamily,
    items: Any,
    group: Int[Array, " items"],
    specific_covariance: Float[Array, "groups groups"],
    data: Responses,
    *,
    variance: float | Array = 1.0,
    mean: Any = None,
    num_newton: int = 30,
) -> GroupScores:
    """Modes of abilities N(mean, tau^2 1 1' + Sigma) given responses, and curvatures.

    Groups meet only in the prior, so derivatives of the likelihood are sums over the
    items of each group. Newton steps are halved until the posterior rises.

    Args:
        family: Response family.
        items: Item records, `[items]`.
        group: Group of each item.
        specific_covariance: Sigma.
        data: Responses of the new subjects.
        variance: tau^2, of the general ability.
        mean: `[subjects]` of all abilities of a subject; None for 0.
        num_newton: Newton steps.
    """
    groups = specific_covariance.shape[0]
    dtype = specific_covariance.dtype
    variance = jnp.asarray(variance, dtype)
    # Of one group the ability is the general one.
    if groups == 1:
        specific_covariance = jnp.zeros((1, 1), dtype)
    precision = jnp.linalg.inv(specific_covariance + variance)
    seen = jnp.ones(data.values.shape, dtype)
    if data.exposure is not None:
        seen = data.exposure.astype(dtype)
    values = data.values.astype(dtype)
    over_items = jax.vmap(family.natural)

    def cells(theta, row, weight):
        base, *rest = over_items(items, theta[group])
        total = base * weight
        for statistic, natural in zip(family.statistics(row), rest, strict=True):
            total = total + statistic * natural
        return total

    def height(theta, centre, row, weight):
        log_lik = jnp.sum(cells(theta + centre, row, weight))
        return log_lik - 0.5 * theta @ precision @ theta

    def derivatives(theta, centre, row, weight):
        # One direction for all: cells of a group see its own ability only.
        ones = jnp.ones(groups, dtype)
        at = lambda s: cells(s + centre, row, weight)
        slope = lambda t: jax.jvp(at, (t,), (ones,))[1]
        first, second = jax.jvp(slope, (theta,), (ones,))
        by_group = lambda x: jax.ops.segment_sum(x, group, groups)
        gradient = by_group(first) - precision @ theta
        return gradient, precision - jnp.diag(by_group(second))

    def one(part):
        """Mode less the mean of one subject, minus the Hessian, and the last step."""
        row, weight, centre = part
        theta, last = _climb(
            lambda theta: height(theta, centre, row, weight),
            lambda theta: derivatives(theta, centre, row, weight),
            jnp.zeros(groups, dtype),
            num_newton,
        )
        _, curvature = derivatives(theta, centre, row, weight)
        return theta, curvature, last

    centre = jnp.zeros(len(values), dtype)
    centre = centre if mean is None else centre + jnp.asarray(mean, dtype)
    theta, curvature, last = lax.map(one, (values, seen, centre), batch_size=64)
    columns = [
        positive_definite_solve(curvature, jnp.broadcast_to(unit, theta.shape))[0]
        for unit in jnp.eye(groups, dtype=dtype)
    ]
    covariance = jnp.stack(columns, axis=-1)
    general = general_ability(specific_covariance, variance)
    weights = general.weights
    weighted_variance = jnp.einsum("a,nab,b->n", weights, covariance, weights)
    root = jnp.finfo(dtype).eps ** 0.5
    return GroupScores(
        centre + theta @ weights,
        jnp.sqrt(jnp.maximum(weighted_variance, 0) + general.variance),
        centre[:, None] + theta,
        covariance,
        last < 100 * root,
    )


def _climb(
    height: Callable[[Array], Array],
    derivatives: Callable[[Array], tuple[Array, Array]],
    first: Float[Array, " groups"],
    num_newton: int,
) -> tuple[Float[Array, " groups"], Array]:
    """The highest point that Newton steps find, each halved until it rises.

    `derivatives` are the gradient and minus the Hessian. Also returns the size of the
    last step before it was halved.
    """

    def improve(_, state):
        theta, value, _ = state
        gradient, curvature = derivatives(theta)
        step, _ = positive_definite_solve(curvature, gradient)
        step = step / jnp.maximum(1.0, jnp.max(jnp.abs(step)) / 2)
        sizes = 0.5 ** jnp.arange(5, dtype=theta.dtype)
        trials = theta + sizes[:, None] * step
        heights = jax.vmap(height)(trials)
        best = jnp.argmax(jnp.where(jnp.isnan(heights), -jnp.inf, heights))
        better = heights[best] >= value
        return (
            jnp.where(better, trials[best], theta),
            jnp.where(better, heights[best], value),
            jnp.max(jnp.abs(step)),
        )

    state = (first, height(first), jnp.full((), jnp.inf, first.dtype))
    theta, _, last = lax.fori_loop(0, num_newton, improve, state)
    return theta, last


def errors_over_covariances(
    scores: GroupScores,
    specific_covariance: np.ndarray,
    variance: float,
    possible: mixture.Possible,
    mean: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors of scores with the uncertainty of Sigma and of the scales.

    In each draw of these a new subject's abilities have another location and scale,
    and imply another general ability (`general_weights`).

    Args:
        scores: Scores with the likeliest Sigma.
        specific_covariance: `[groups, groups]` that Sigma.
        variance: tau^2 with it.
        possible: Draws of both.
        mean: `[subjects]` prior means of all abilities of a subject; None for 0.

    Returns:
        Errors of general abilities `[subjects]`, and by group `[subjects, groups]`.
    """
    ability = np.asarray(scores.ability, float)
    covariance = np.asarray(scores.covariance, float)
    start = np.zeros_like(ability) if mean is None else mean[:, None] + 0 * ability
    whole = specific_covariance + variance
    subjects = mixture.Subjects(start, ability - start, covariance, whole)
    moved = mixture.abilities_given(possible, subjects)
    weights, left = mixture.general_weights(possible.own, possible.variance)
    shift = possible.unit[:, None] * start
    general = np.einsum("kng,kg->kn", moved - shift, weights) + shift.mean(axis=2)
    products = weights.T @ weights / len(weights)
    inner = np.einsum("ab,nab->n", products, covariance)
    by_group = np.einsum("naa->na", covariance) + moved.var(axis=0)
    return np.sqrt(inner + general.var(axis=0) + left.mean()), np.sqrt(by_group)


def moves_of_prior(
    scores: GroupScores, specific_covariance: np.ndarray, variance: float
) -> np.ndarray:
    """Derivatives of abilities by the prior mean that all of a subject have.

    With V the covariance of its abilities and P the precision of their prior, the modes
    move by V P 1 with that mean, and the general ability by 1 - w'1 + w'V P 1.

    Args:
        scores: Scores.
        specific_covariance: `[groups, groups]` Sigma.
        variance: tau^2.

    Returns:
        `[subjects, 1 + groups]`, that of the general ability first.
    """
    one_group = len(specific_covariance) == 1
    whole = (0 if one_group else specific_covariance) + np.full((1, 1), variance)
    pull = np.linalg.inv(whole).sum(axis=1)
    modes = np.asarray(scores.covariance, float) @ pull
    weights, _ = mixture.general_weights(whole - variance, np.asarray(variance))
    general = 1 - weights.sum() + modes @ weights
    return np.concatenate([general[:, None], modes], axis=1)
