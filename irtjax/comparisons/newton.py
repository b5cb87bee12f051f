r"""Maximum likelihood of comparisons: Newton's method on counts by pair.

The difference of row r is theta_i - theta_j + x_r'beta, and the log-likelihood

    l = sum_r sum_o n_ro log p_o(d_r, s),

n_ro the numbers of outcomes o (wins, losses, ties), s the parameter of ties. Rows of
the same pair and features are added up first, so that a step costs one pass over the
pairs and a solve of subjects + features + shapes. Abilities have a sum of 0. A normal
prior of precision `precision` on each parameter is 0 where there is none.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from irtjax.comparisons.families import PairFamily

#: Steps, and halvings of one.
MOST_STEPS, MOST_HALVINGS = 100, 30
#: Square of a step in standard errors, per parameter, at which the search ends.
TOLERANCE = 1e-18


class PairCounts(NamedTuple):
    """Comparisons added up by pair and features.

    Attributes:
        first, second: `[rows]` subjects.
        outcomes: `[rows, 3]` numbers of wins, losses and ties.
        features: `[rows, features]` covariates of the difference.
    """

    first: Int[Array, " rows"]
    second: Int[Array, " rows"]
    outcomes: Float[Array, "rows 3"]
    features: Float[Array, "rows features"]


class PairParameters(NamedTuple):
    """Abilities `[subjects]`, effects of features, and the parameters of ties."""

    ability: Float[Array, " subjects"]
    effect: Float[Array, " features"]
    shape: Float[Array, " shapes"]


class PairFit(NamedTuple):
    """Estimates with what errors need.

    Attributes:
        parameters: The estimates.
        log_likelihood: Without the prior.
        information: Negative Hessian with the prior, `[parameters, parameters]`, in the
            order of the parameters; singular in the sum of abilities.
        converged: Whether the last step was shorter than the tolerance.
        steps: Number of steps.
    """

    parameters: PairParameters
    log_likelihood: Float[Array, ""]
    information: Float[Array, "parameters parameters"]
    converged: Array
    steps: Array


def differences(parameters: PairParameters, pairs: PairCounts) -> Float[Array, " rows"]:
    """Differences of all rows."""
    ability, effect, _ = parameters
    return ability[pairs.first] - ability[pairs.second] + pairs.features @ effect


def log_likelihood(
    family: PairFamily, parameters: PairParameters, pairs: PairCounts
) -> Float[Array, ""]:
    """Log-likelihood without constants; see the module.

    >>> pairs = PairCounts(jnp.array([0]), jnp.array([1]), jnp.array([[3.0, 1.0, 0.0]]),
    ...                    jnp.zeros((1, 0)))
    >>> start = PairParameters(jnp.zeros(2), jnp.zeros(0), jnp.zeros(0))
    >>> round(float(log_likelihood(PairFamily(), start, pairs)), 4)  # 4 log(1/2).
    -2.7726
    """
    counts = family.counts(pairs.outcomes)
    shape = parameters.shape
    chances = jax.vmap(lambda d: family.log_chances(d, shape))
    # Of an outcome without counts the log-probability may be -inf.
    logs = chances(differences(parameters, pairs))
    return jnp.sum(jnp.where(counts > 0, counts * logs, 0.0))


def _local(parameters: PairParameters, pairs: PairCounts) -> Float[Array, "rows local"]:
    """The difference and the shapes of each row."""
    d = differences(parameters, pairs)[:, None]
    shapes = jnp.broadcast_to(parameters.shape, (len(d), len(parameters.shape)))
    return jnp.concatenate([d, shapes], axis=1)


def row_derivatives(
    family: PairFamily,
    local: Float[Array, "rows local"],
    counts: Float[Array, "rows 3"],
):
    """Log-likelihoods of rows, their gradients and Hessians in local parameters.

    Those of a row are its difference and the shapes.
    """

    def one(z, n):
        def value(z):
            return jnp.sum(jnp.where(n > 0, n * family.log_chances(z[0], z[1:]), 0.0))

        slope = jax.grad(value)
        return value(z), slope(z), jax.jacfwd(slope)(z)

    return jax.vmap(one)(local, counts)


def _derivatives(family: PairFamily, parameters: PairParameters, pairs: PairCounts):
    """Log-likelihood, its gradient and negative Hessian in all parameters."""
    values, slopes, curves = row_derivatives(
        family, _local(parameters, pairs), family.counts(pairs.outcomes)
    )
    first, second, x = pairs.first, pairs.second, pairs.features
    count = len(parameters.ability)
    onto = lambda each: (
        jnp.zeros((count, *each.shape[1:]), each.dtype)
        .at[first]
        .add(each)
        .at[second]
        .add(-each)
    )
    # A row moves with its difference by (e_i - e_j, x), and with the shapes.
    along = jnp.concatenate([x * curves[:, :1, 0], curves[:, 0, 1:]], axis=1)
    by_ability = onto(along)
    weight = curves[:, 0, 0]
    block = (
        jnp.zeros((count, count), weight.dtype)
        .at[first, first]
        .add(weight)
        .at[second, second]
        .add(weight)
        .at[first, second]
        .add(-weight)
        .at[second, first]
        .add(-weight)
    )
    features = x.T @ (x * weight[:, None])
    mixed = x.T @ curves[:, 0, 1:]
    shapes = jnp.sum(curves[:, 1:, 1:], axis=0)
    lower = jnp.block([[features, mixed], [mixed.T, shapes]])
    hessian = jnp.block([[block, by_ability], [by_ability.T, lower]])
    gradient = jnp.concatenate(
        [onto(slopes[:, 0]), x.T @ slopes[:, 0], jnp.sum(slopes[:, 1:], axis=0)]
    )
    return jnp.sum(values), gradient, -hessian


def flat(parameters: PairParameters) -> Float[Array, " parameters"]:
    """All parameters in one vector."""
    return jnp.concatenate(parameters)


def unflat(vector, parameters: PairParameters) -> PairParameters:
    """The parameters of a vector, in the sizes of others."""
    count = len(parameters.ability)
    end = count + len(parameters.effect)
    return PairParameters(vector[:count], vector[count:end], vector[end:])


def gauge(parameters: PairParameters) -> Float[Array, " parameters"]:
    """The unit vector that moves all abilities alike."""
    count = len(parameters.ability)
    one = jnp.full(count, count**-0.5, parameters.ability.dtype)
    rest = len(parameters.effect) + len(parameters.shape)
    return jnp.concatenate([one, jnp.zeros(rest, one.dtype)])


def maximise(
    family: PairFamily,
    pairs: PairCounts,
    start: PairParameters,
    precision: Float[Array, " parameters"],
) -> PairFit:
    """Estimates by Newton's method with step-halving.

    A pure function of arrays: `jax.vmap` over `pairs.outcomes` fits bootstrap
    replicates.

    >>> pairs = PairCounts(jnp.array([0]), jnp.array([1]), jnp.array([[3.0, 1.0, 0.0]]),
    ...                    jnp.zeros((1, 0)))
    >>> start = PairParameters(jnp.zeros(2), jnp.zeros(0), jnp.zeros(0))
    >>> fit = maximise(PairFamily(), pairs, start, jnp.zeros(2))
    >>> ability = fit.parameters.ability
    >>> bool(abs(ability[0] - ability[1] - jnp.log(3.0)) < 1e-5)
    True
    """
    fixed = gauge(start)
    direction = jnp.outer(fixed, fixed)
    tolerance = jnp.maximum(TOLERANCE, jnp.finfo(fixed.dtype).eps ** 1.5) * len(fixed)

    def posterior(vector):
        value = log_likelihood(family, unflat(vector, start), pairs)
        return value - 0.5 * jnp.sum(precision * vector**2)

    def step(state):
        vector, _, _, _, count = state
        value, gradient, information = _derivatives(
            family, unflat(vector, start), pairs
        )
        gradient = gradient - precision * vector
        information = information + jnp.diag(precision)
        # The size of the direction that is fixed does not matter.
        size = jnp.trace(information) / len(vector) + 1e-30
        move = jnp.linalg.solve(information + size * direction, gradient)
        move = move - fixed * (fixed @ move)
        decrement = gradient @ move
        now = value - 0.5 * jnp.sum(precision * vector**2)

        def worse(state):
            _, new, halvings = state
            slack = 1e-12 * jnp.abs(now)
            return (~(new >= now - slack)) & (halvings < MOST_HALVINGS)

        def halve(state):
            factor, _, halvings = state
            return factor / 2, posterior(vector + factor / 2 * move), halvings + 1

        # Information and value are those of the last vector, which does not move.
        moving = decrement > tolerance
        state = jnp.where(moving, 2.0, 0.0), jnp.where(moving, -jnp.inf, now), 0
        factor, _, halvings = lax.while_loop(worse, halve, state)
        factor = jnp.where(halvings < MOST_HALVINGS, factor, 0.0)
        moved = jnp.where(factor > 0, vector + factor * move, vector)
        return moved, value, information, decrement, count + 1

    def unfinished(state):
        _, _, _, decrement, count = state
        return (decrement > tolerance) & (count < MOST_STEPS)

    vector = flat(start)
    infinite = jnp.asarray(jnp.inf, vector.dtype)
    empty = jnp.zeros((len(vector), len(vector)), vector.dtype)
    state = vector, -infinite, empty, infinite, jnp.zeros((), int)
    vector, value, information, decrement, count = lax.while_loop(
        unfinished, step, state
    )
    return PairFit(
        unflat(vector, start), value, information, decrement <= tolerance, count
    )


def padded(rows: np.ndarray) -> Array:
    """Rows with zeros up to one of a few sizes, so that programs are shared.

    >>> padded(np.ones((17, 2))).shape
    (32, 2)
    """
    size = max(16, 1 << (len(rows) - 1).bit_length())
    return jnp.asarray(
        np.pad(rows, [(0, size - len(rows))] + [(0, 0)] * (rows.ndim - 1))
    )
