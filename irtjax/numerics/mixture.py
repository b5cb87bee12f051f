r"""Gaussian mixtures with full covariances, their number of components by BIC.

With weights w_n of the points, at most `most` components and K coordinates,

    l = sum_n w_n log sum_c pi_c N(x_n; mu_c, S_c),
    BIC = -2 l + p log sum_n w_n,    p = k - 1 + k K + k K (K + 1) / 2,

maximised by EM (Dempster, Laird and Rubin 1977; McLachlan and Peel 2000, 3.2). Each
covariance has 1e-6 of the mean variance of all points on its diagonal, which keeps
copies of a point from a likelihood without bound. A short EM from each k-means++ start
(Arthur and Vassilvitskii 2007) chooses the one that is run to convergence.

Arrays have the size of the largest number of components, so one program serves every
number, and points of weight 0 are padding.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

from irtjax._types import KeyArray
from irtjax.numerics.kernels import inverse_cholesky

#: Share of the mean variance of the points that is added to each covariance; larger in
#: single precision, where covariances round off.
RIDGE = 1e-6
#: Starts, EM steps of each, and most steps of the best one.
STARTS, SHORT, MOST_STEPS = 20, 5, 500
#: Converged when a step gains at most this much log-likelihood per point.
TOLERANCE = 1e-7


class MixtureComponents(NamedTuple):
    """Parameters of a mixture; components that are not used have the weight 0."""

    weights: Float[Array, " most"]
    means: Float[Array, "most dims"]
    covariances: Float[Array, "most dims dims"]


class FittedMixture(NamedTuple):
    """A fitted mixture.

    Attributes:
        components: Its parameters.
        num_components: Their number.
        responsibilities: `[points, most]` chance of each component given the point.
        log_likelihood: l.
        bic: BIC.
        entropy: Mean entropy of the responsibilities of a point, in nats: 0 where each
            point certainly belongs to one component.
        emptied: A component has fewer points than its covariance needs, K + 1; its
            likelihood depends on the ridge.
        converged: Whether EM converged.
        num_steps: EM steps after the best start.
    """

    components: MixtureComponents
    num_components: Int[Array, ""]
    responsibilities: Float[Array, "points most"]
    log_likelihood: Float[Array, ""]
    bic: Float[Array, ""]
    entropy: Float[Array, ""]
    emptied: Bool[Array, ""]
    converged: Bool[Array, ""]
    num_steps: Int[Array, ""]


class _Step(NamedTuple):
    """What one E-step finds at some components."""

    responsibilities: Array
    log_likelihood: Array


def _features(points: Array) -> Array:
    """1, the coordinates and their products, `[points, 1 + K + K^2]`.

    Log densities are linear in them, and so are the moments of the M-step: both steps
    are one product of matrices.
    """
    products = points[:, :, None] * points[:, None]
    ones = jnp.ones((len(points), 1), points.dtype)
    return jnp.concatenate([ones, points, products.reshape(len(points), -1)], axis=1)


def _log_joint(features: Array, components: MixtureComponents) -> Array:
    """`[points, most]` joint log densities, linear in the `_features`."""
    most, dims = components.means.shape
    lower = inverse_cholesky(components.covariances)
    precision = jnp.einsum("cde,cdf->cef", lower, lower)
    linear = jnp.einsum("cef,cf->ce", precision, components.means)
    log_root = jnp.sum(jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1)), axis=-1)
    square = jnp.sum(linear * components.means, axis=-1)
    used = components.weights > 0
    log_weight = jnp.log(jnp.where(used, components.weights, 1))
    constant = log_weight + log_root - (dims * math.log(2 * math.pi) + square) / 2
    parts = constant[:, None], linear, -precision.reshape(most, -1) / 2
    logs = features @ jnp.concatenate(parts, axis=1).T
    return jnp.where(used, logs, -jnp.inf)


def _expect(features: Array, weights: Array, components: MixtureComponents) -> _Step:
    """The E-step, with weights of points."""
    log_joint = _log_joint(features, components)
    log_total = logsumexp(log_joint, axis=1)
    responsibilities = jnp.exp(log_joint - log_total[:, None])
    return _Step(responsibilities, jnp.sum(weights * log_total))


def _maximise(
    features: Array,
    weights: Array,
    responsibilities: Array,
    ridge: Array,
    before: MixtureComponents,
) -> MixtureComponents:
    """The M-step; a component without points keeps its place, with the weight 0."""
    most, dims = before.means.shape
    moments = (weights[:, None] * responsibilities).T @ features
    size = moments[:, 0]
    some = size > 1e-8
    moments = moments / jnp.where(some, size, 1)[:, None]
    means = moments[:, 1 : dims + 1]
    covariances = moments[:, dims + 1 :].reshape(most, dims, dims)
    covariances = covariances - means[:, :, None] * means[:, None]
    covariances = covariances + ridge * jnp.eye(dims, dtype=features.dtype)
    return MixtureComponents(
        jnp.where(some, size / jnp.sum(weights), 0),
        jnp.where(some[:, None], means, before.means),
        jnp.where(some[:, None, None], covariances, before.covariances),
    )


def _share(dtype) -> float:
    """The ridge as a share of the variance, above what covariances round off."""
    return max(RIDGE, 100 * float(jnp.finfo(dtype).eps))


def _start(points: Array, weights: Array, used: Array, key: KeyArray) -> Array:
    """Points at the nearest of centres drawn by k-means++, `[points, most]` 0 or 1."""
    most = used.shape[0]

    def draw(k, carry):
        centres, nearest = carry
        # The first one is drawn from all points alike.
        odds = jnp.where(k == 0, weights, weights * nearest)
        place = jax.random.categorical(jax.random.fold_in(key, k), jnp.log(odds))
        centre = points[place]
        apart = jnp.sum((points - centre) ** 2, axis=1)
        nearest = jnp.where(k == 0, apart, jnp.minimum(nearest, apart))
        return centres.at[k].set(centre), nearest

    first = jnp.zeros((most, points.shape[1]), points.dtype), weights
    centres, _ = lax.fori_loop(0, most, draw, first)
    apart = jnp.sum((points[:, None] - centres) ** 2, axis=-1)
    own = jnp.argmin(jnp.where(used, apart, jnp.inf), axis=1)
    return jax.nn.one_hot(own, most, dtype=points.dtype)


def _emptied(weights: Array, responsibilities: Array, used: Array, dims: int) -> Array:
    """Whether a used component has fewer points than its covariance needs."""
    return jnp.any(used & (weights @ responsibilities < dims + 1))


def _best_start(
    features, weights, used, unit, whole, key, starts: int
) -> MixtureComponents:
    """The best of the starts after a few EM steps each."""
    # Compared in single precision, at a third of the time.
    low, dtype = jnp.float32, features.dtype
    features, weights = features.astype(low), weights.astype(low)
    ridge = (_share(low) * unit).astype(low)
    whole = jax.tree.map(lambda x: x.astype(low), whole)
    dims = whole.means.shape[1]

    def short(key):
        def body(_, state):
            seen = _expect(features, weights, state)
            return _maximise(features, weights, seen.responsibilities, ridge, state)

        first = _start(features[:, 1 : dims + 1], weights, used, key)
        state = _maximise(features, weights, first, ridge, whole)
        state = lax.fori_loop(0, SHORT, body, state)
        responsibilities, height = _expect(features, weights, state)
        return state, height, _emptied(weights, responsibilities, used, dims)

    states, heights, empty = jax.vmap(short)(jax.random.split(key, starts))
    # Any start without an emptied component is better than one with it.
    sound = jnp.where(empty, -jnp.inf, heights)
    best = jnp.argmax(jnp.where(jnp.all(empty), heights, sound))
    return jax.tree.map(lambda x: x[best].astype(dtype), states)


@functools.partial(jax.jit, static_argnames=("most", "starts"))
def gaussian_mixture(
    points: Float[Array, "points dims"],
    components: int | Array,
    weights: Float[Array, " points"] | None = None,
    key: KeyArray | None = None,
    *,
    most: int = 10,
    starts: int = STARTS,
) -> FittedMixture:
    """Fits a mixture of normal distributions by EM from k-means++ starts.

    Args:
        points: The points.
        components: Number of components, from 1 to `most`; may be traced.
        weights: Weight of each point, 0 for padding; None for 1.
        key: Random key of the starts; a fixed one when None.
        most: Size of the arrays.
        starts: Number of starts.

    Returns:
        The mixture with the highest likelihood; one without an emptied component where
        a start has led to one.

    >>> points = jnp.asarray([[0.0], [0.1], [0.2], [5.0], [5.1], [5.3]])
    >>> mixture = gaussian_mixture(points, 2, most=3)
    >>> sorted(mixture.components.weights.round(3).tolist())
    [0.0, 0.5, 0.5]
    """
    points = jnp.asarray(points)
    dtype, dims = points.dtype, points.shape[1]
    weights = jnp.ones(len(points), dtype) if weights is None else weights.astype(dtype)
    key = jax.random.key(0) if key is None else key
    used = jnp.arange(most) < components
    total = jnp.sum(weights)
    mean = weights @ points / total
    variance = jnp.sum(weights[:, None] * (points - mean) ** 2) / total / dims
    # Points that are all the same have a variance too.
    unit = jnp.where(variance > 0, variance, 1)
    ridge = _share(dtype) * unit
    # Products of centred points round off less.
    points = points - mean
    features = _features(points)
    round_ball = (variance + ridge) * jnp.eye(dims, dtype=dtype)
    whole = MixtureComponents(
        jnp.where(used, 1 / components, 0).astype(dtype),
        jnp.zeros((most, dims), dtype),
        jnp.broadcast_to(round_ball, (most, dims, dims)),
    )

    def step(state: MixtureComponents) -> tuple[MixtureComponents, _Step]:
        seen = _expect(features, weights, state)
        return _maximise(features, weights, seen.responsibilities, ridge, state), seen

    state = _best_start(features, weights, used, unit, whole, key, starts)

    def unfinished(carry):
        _, _, gain, count = carry
        return (gain > TOLERANCE * total) & (count < MOST_STEPS)

    def body(carry):
        state, height, _, count = carry
        state, seen = step(state)
        height, gain = seen.log_likelihood, seen.log_likelihood - height
        # The first one is no gain: the height was not known.
        return state, height, jnp.where(count == 0, jnp.inf, gain), count + 1

    lowest = jnp.asarray(-jnp.inf, dtype)
    carry = state, lowest, jnp.asarray(jnp.inf, dtype), jnp.zeros((), jnp.int32)
    state, _, gain, count = lax.while_loop(unfinished, body, carry)
    responsibilities, height = _expect(features, weights, state)
    logs = jnp.log(jnp.where(responsibilities > 0, responsibilities, 1))
    free = components - 1 + components * (dims + dims * (dims + 1) // 2)
    return FittedMixture(
        state._replace(means=state.means + mean),
        jnp.asarray(components, jnp.int32),
        responsibilities,
        height,
        -2 * height + free * jnp.log(total),
        -jnp.sum(weights[:, None] * responsibilities * logs) / total,
        _emptied(weights, responsibilities, used, dims),
        gain <= TOLERANCE * total,
        count,
    )


@functools.partial(jax.jit, static_argnames=("most", "starts"))
def choose_mixture(
    points: Float[Array, "points dims"],
    weights: Float[Array, " points"] | None = None,
    key: KeyArray | None = None,
    *,
    most: int = 10,
    starts: int = STARTS,
) -> tuple[FittedMixture, Float[Array, " most"]]:
    """The mixture of 1 to `most` components with the lowest BIC, and BIC of each.

    A number of components that leaves one emptied is not chosen: its BIC is infinite.

    >>> points = jnp.concatenate([jnp.linspace(0, 1, 20), jnp.linspace(9, 10, 20)])
    >>> found, bic = choose_mixture(points[:, None], most=3)
    >>> int(found.num_components), int(bic.argmin())
    (2, 1)
    """
    key = jax.random.key(0) if key is None else key

    def one(count):
        part = jax.random.fold_in(key, count)
        return gaussian_mixture(points, count, weights, part, most=most, starts=starts)

    fits = lax.map(one, jnp.arange(1, most + 1))
    bic = jnp.where(fits.emptied, jnp.inf, fits.bic)
    best = jnp.argmin(bic)
    return jax.tree.map(lambda x: x[best], fits), bic
