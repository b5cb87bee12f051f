r"""Maximum likelihood of comparisons: Newton's method on counts by pair.

The difference of row r is theta_i - theta_j + x_r'beta, and the log-likelihood

    l = sum_r sum_o n_ro log p_o(d_r, s),

n_ro the numbers of outcomes o (wins, losses, ties), s the parameter of ties. Rows of
the same pair and features are added up first, so that a step costs one pass over the
pairs and a solve of subjects + features + shapes. Abilities have a sum of 0. A normal
prior of precision `precision` on each parameter is 0 where there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from irtjax.comparisons.families import PairFamily, row_derivatives

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


def _local(parameters: PairParameters, pairs: PairCounts) -> Float[Array, "rows local"]:
    """The difference and the shapes of each row."""
    ability, effect, shape = parameters
    d = ability[pairs.first] - ability[pairs.second] + pairs.features @ effect
    shapes = jnp.broadcast_to(shape, (len(d), len(shape)))
    return jnp.concatenate([d[:, None], shapes], axis=1)


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
    logs = jax.vmap(family.log_chances_at)(_local(parameters, pairs))
    # Of an outcome without counts the log-probability may be -inf.
    return jnp.sum(jnp.where(counts > 0, counts * logs, 0.0))


class _Sums(NamedTuple):
    """Sums over rows in any order, as `rows.PairRows` has them of sorted ones."""

    pairs: PairCounts
    num_subjects: int

    def onto(self, values: Array) -> Array:
        """Sums `[subjects, columns]` of `[rows, columns]`: first less second."""
        zeros = jnp.zeros((self.num_subjects, values.shape[1]), values.dtype)
        return zeros.at[self.pairs.first].add(values).at[self.pairs.second].add(-values)

    def products(self, weight: Array) -> Array:
        """Sum `[subjects, subjects]` of w_r (e_i - e_j) (e_i - e_j)' over all rows."""
        zeros = jnp.zeros((self.num_subjects,) * 2, weight.dtype)
        across = zeros.at[self.pairs.first, self.pairs.second].add(weight)
        across = across + across.T
        return jnp.diag(across.sum(axis=1)) - across


def gradient_of(sums: Any, slopes: Any, features: Any) -> Any:
    """The gradient in all parameters, from that of each row in local ones.

    A row's difference moves with (e_i - e_j, x_r), and its shapes are those of all.

    Args:
        sums: `PairRows`, or the same in JAX.
        slopes: `[rows, local]` by the difference and the shapes.
        features: `[rows, features]` x.
    """
    numpy: Any = np if isinstance(slopes, np.ndarray) else jnp
    by_ability = sums.onto(slopes[:, :1])[:, 0]
    shapes = slopes[:, 1:].sum(axis=0)
    return numpy.concatenate([by_ability, features.T @ slopes[:, 0], shapes])


def quadratic_of(sums: Any, weight: Any, features: Any, other: Any = None) -> Any:
    """Sum over rows of J_r' w_r K_r in all parameters, J_r as for `gradient_of`.

    Args:
        sums: `PairRows`, or the same in JAX.
        weight: `[rows, local, local]` w, such as the Hessians of rows.
        features: `[rows, features]` of J.
        other: Those of K; None where they are the same and w is symmetric.
    """
    by_ability = sums.products(weight[:, 0, 0])
    # Of abilities alone, without an array for features and shapes.
    if weight.shape[1] == 1 and not features.shape[1] and other is None:
        return by_ability
    numpy: Any = np if isinstance(weight, np.ndarray) else jnp
    along = lambda x, w: numpy.concatenate([x * w[:, :1], w[:, 1:]], axis=1)
    x = features if other is None else other
    right = along(x, weight[:, 0])
    upper = sums.onto(right)
    left = upper if other is None else sums.onto(along(features, weight[:, :, 0]))
    shapes = weight[:, 1:, 0].T @ x, weight[:, 1:, 1:].sum(axis=0)
    return numpy.block(
        [
            [by_ability, upper],
            [left.T, numpy.vstack([features.T @ right, numpy.hstack(shapes)])],
        ]
    )


def _derivatives(family: PairFamily, parameters: PairParameters, pairs: PairCounts):
    """Log-likelihood, its gradient and negative Hessian in all parameters."""
    values, slopes, curves = row_derivatives(
        family, _local(parameters, pairs), family.counts(pairs.outcomes)
    )
    sums = _Sums(pairs, len(parameters.ability))
    gradient = gradient_of(sums, slopes, pairs.features)
    return jnp.sum(values), gradient, -quadratic_of(sums, curves, pairs.features)


def flat(parameters: PairParameters) -> Float[Array, " parameters"]:
    """All parameters in one vector."""
    return jnp.concatenate(parameters)


def unflat(vector, parameters: PairParameters) -> PairParameters:
    """The parameters of a vector, in the sizes of others."""
    count = len(parameters.ability)
    end = count + len(parameters.effect)
    return PairParameters(vector[:count], vector[count:end], vector[end:])


def gauge(size: int, count: int) -> np.ndarray:
    """The unit vector of `size` parameters that moves the first `count` alike."""
    return np.repeat([count**-0.5, 0.0], [count, size - count])


def regular(information: Any, count: int) -> Any:
    """The information with a size for the sum of abilities, which is fixed.

    That size does not matter for what is estimated.
    """
    fixed = gauge(len(information), count)
    size = information.trace() / len(information) + 1e-30
    return information + size * fixed[:, None] * fixed


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
    vector, count = flat(start), len(start.ability)
    fixed = jnp.asarray(gauge(len(vector), count), vector.dtype)
    tolerance = jnp.maximum(TOLERANCE, jnp.finfo(fixed.dtype).eps ** 1.5) * len(fixed)

    def posterior(vector):
        value = log_likelihood(family, unflat(vector, start), pairs)
        return value - 0.5 * jnp.sum(precision * vector**2)

    def step(state):
        vector, _, _, _, steps = state
        value, gradient, information = _derivatives(
            family, unflat(vector, start), pairs
        )
        gradient = gradient - precision * vector
        information = information + jnp.diag(precision)
        move = jnp.linalg.solve(regular(information, count), gradient)
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
        return moved, value, information, decrement, steps + 1

    def unfinished(state):
        _, _, _, decrement, steps = state
        return (decrement > tolerance) & (steps < MOST_STEPS)

    infinite = jnp.asarray(jnp.inf, vector.dtype)
    empty = jnp.zeros((len(vector), len(vector)), vector.dtype)
    state = vector, -infinite, empty, infinite, jnp.zeros((), int)
    vector, value, information, decrement, steps = lax.while_loop(
        unfinished, step, state
    )
    return PairFit(
        unflat(vector, start), value, information, decrement <= tolerance, steps
    )


class NewtonPoint(NamedTuple):
    """The posterior at parameters.

    Attributes:
        vector: `[parameters]`, abilities first.
        log_likelihood: Without the prior, and `objective`: with it.
        gradient: `[parameters]` of the objective.
        information: `[parameters, parameters]` negative Hessian of the objective.
    """

    vector: np.ndarray
    log_likelihood: float
    objective: float
    gradient: np.ndarray
    information: np.ndarray


def ascend(
    evaluate: Callable[[np.ndarray], NewtonPoint],
    start: np.ndarray,
    count: int,
    *,
    expected: Callable[[np.ndarray], np.ndarray] | None = None,
    tolerance: float = TOLERANCE,
) -> tuple[NewtonPoint, bool, int]:
    """The maximum by Newton's method with step-halving, as `maximise`, on the host.

    Args:
        evaluate: The posterior at a vector of parameters.
        start: Parameters to start from.
        count: Number of abilities, whose sum is fixed.
        expected: Expected information at a vector, which replaces the observed one
            where that is not positive definite, as it is near the maximum alone.
        tolerance: Square of the last step in standard errors, per parameter.

    Returns:
        The point, whether it converged, and the number of steps.
    """
    fixed, point, steps = gauge(len(start), count), evaluate(start), 0
    while True:
        try:
            point, root = _factored(point, count, expected)
        except LinAlgError:
            return point, False, steps
        move = cho_solve(root, point.gradient, check_finite=False)
        move = move - fixed * (fixed @ move)
        decrement, steps = float(point.gradient @ move), steps + 1
        converged = decrement <= tolerance * len(start)
        if converged or steps > MOST_STEPS:
            return point, converged, steps
        for halvings in range(MOST_HALVINGS):
            new = evaluate(point.vector + move * 0.5**halvings)
            if new.objective >= point.objective - 1e-12 * abs(point.objective):
                break
        else:
            return point, False, steps
        point = new


def _factored(point: NewtonPoint, count: int, expected: Any) -> tuple[NewtonPoint, Any]:
    """The point with a positive definite information, and the factor of that."""
    try:
        return point, cho_factor(regular(point.information, count), check_finite=False)
    except LinAlgError:
        if expected is None:
            raise
    point = point._replace(information=expected(point.vector))
    return point, cho_factor(regular(point.information, count), check_finite=False)


def padded(rows: np.ndarray) -> Array:
    """Rows with zeros up to one of a few sizes, so that programs are shared.

    >>> padded(np.ones((17, 2))).shape
    (32, 2)
    """
    size = max(16, 1 << (len(rows) - 1).bit_length())
    return jnp.asarray(
        np.pad(rows, [(0, size - len(rows))] + [(0, 0)] * (rows.ndim - 1))
    )
