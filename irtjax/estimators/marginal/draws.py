"""Draws of abilities from their posteriors, and their counts at quadrature nodes.

Two samplers of the same law. On a grid: the posterior at the nodes is normalised and
its distribution function inverted, exact for the posterior as quadrature sees it. By
augmentation: for probit models the posterior is a unified skew-normal law, a normal
vector truncated to the signs of the responses and mapped linearly (LaRT, Lemma 1 and
Corollary 1); its truncated coordinates are drawn given ability, and ability given them
(Albert and Chib 1993), which leaves that law unchanged.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float, Int

from irtjax._types import KeyArray
from irtjax.data.responses import Responses
from irtjax.likelihood.counts import block_log_likelihood
from irtjax.models.families.logistic import LogisticItems
from irtjax.models.family import Items
from irtjax.models.model import Model
from irtjax.numerics.kernels import (
    block_size_for,
    put_block,
    scan_subject_blocks,
    take_block,
)


def draw_on_nodes(
    posterior: Float[Array, "subjects nodes"], uniforms: Float[Array, "subjects draws"]
) -> Array:
    """Indices of nodes, drawn by inverting each posterior's distribution function.

    >>> share = jnp.array([[0.25, 0.5, 0.25]])
    >>> draw_on_nodes(share, jnp.array([[0.1, 0.3, 0.7, 0.8]])).tolist()
    [[0, 1, 1, 2]]
    """
    below = jnp.cumsum(posterior, axis=1)
    index = jax.vmap(lambda sums, u: jnp.searchsorted(sums, u, side="right"))(
        below, uniforms * below[:, -1:]
    )
    return jnp.minimum(index, posterior.shape[1] - 1)


def draw_places(
    model: Model,
    items: Items,
    nodes: Float[Array, "nodes *dims"],
    log_weights: Float[Array, " nodes"],
    data: Responses,
    key: KeyArray,
) -> Int[Array, " subjects"]:
    """The node of one draw from each subject's posterior, block by block."""
    tables, dtype = model.family.table(items, nodes), log_weights.dtype
    num_subjects = data.num_subjects
    uniforms = jax.random.uniform(key, (num_subjects, 1), dtype)
    width = max(data.num_items, nodes.shape[0])
    size = block_size_for(num_subjects, width, dtype.itemsize)

    def body(places: Array, start: Array, is_new: Array) -> Array:
        """Puts the draws of a block of subjects."""
        del is_new
        log_lik, _, _ = block_log_likelihood(model, tables, nodes, data, start, size)
        posterior = jax.nn.softmax(log_lik + log_weights, axis=1)
        uniform = take_block(uniforms, start, size)
        assert uniform is not None
        return put_block(places, draw_on_nodes(posterior, uniform)[:, 0], start)

    init = jnp.zeros(num_subjects, jnp.int32)
    return scan_subject_blocks(body, init, num_subjects, size)


def node_weights(
    values: Float[Array, "*batch draws"], nodes: Float[Array, " nodes"]
) -> Float[Array, "*batch nodes"]:
    """Mean weights of draws at equally spaced nodes, with their first three moments.

    Each draw is shared among the three nearest nodes by Lagrange's weights, so that
    the weights' total, mean and variance are those of the draws; a draw on a node
    counts there alone. Sharing between two nodes would add to the variance. Weights
    are negative where a draw lies between nodes, by at most 1/8.

    >>> node_weights(jnp.array([0.5]), jnp.arange(4.0)).round(3).tolist()
    [0.375, 0.75, -0.125, 0.0]
    """
    last = nodes.shape[0] - 1
    place = (values - nodes[0]) * (last / (nodes[-1] - nodes[0]))
    nearest = jnp.clip(jnp.rint(place), 1, last - 1)
    offset = place - nearest
    shares = offset * (offset - 1) / 2, 1 - offset**2, offset * (offset + 1) / 2
    index = jnp.arange(last + 1)
    total = jnp.zeros((*values.shape[:-1], last + 1), values.dtype)
    for step, share in zip((-1, 0, 1), shares, strict=True):
        here = index == (nearest + step)[..., None]
        total = total + jnp.mean(jnp.where(here, share[..., None], 0), axis=-2)
    return total


def draw_augmented(
    key: KeyArray,
    items: LogisticItems,
    data: Responses,
    theta: Float[Array, " subjects"],
    mean: Array,
    sd: Array,
    *,
    num_sweeps: int = 1,
) -> Float[Array, " subjects"]:
    """Abilities after sweeps of the two-block sampler for a probit model.

    With s = 2y - 1, latent responses z_j = a_j theta + d_j + e_j are drawn given
    theta, truncated to s_j z_j > 0; then theta given them, which is normal with
    precision 1/sd^2 + sum_j a_j^2 (+ that of evidence). If the current abilities are
    draws of the posterior, so are the new. `mean` and `sd` are those of the population.
    """
    dtype = theta.dtype
    sign = 2 * data.values.astype(dtype) - 1
    seen = jnp.ones_like(sign)
    if data.exposure is not None:
        seen = data.exposure.astype(dtype)
    slope, shift = items.discrimination, items.intercept
    lean, tight = mean / sd**2, 1 / sd**2
    if data.evidence is not None:
        lean = lean + data.evidence[:, 0]
        tight = tight + data.evidence[:, 1]
    precision = tight + seen @ slope**2
    smallest = jnp.finfo(dtype).tiny

    def sweep(theta, key):
        cells, noise = jax.random.split(key)
        # e > -s eta is minus a normal below s eta, by inversion.
        eta = sign * (theta[:, None] * slope + shift)
        uniform = jax.random.uniform(cells, eta.shape, dtype, minval=smallest)
        latent = -ndtri(jnp.maximum(uniform * ndtr(eta), smallest))
        latent = sign * latent + theta[:, None] * slope
        centre = (lean + (seen * latent) @ slope) / precision
        deviation = jax.random.normal(noise, theta.shape, dtype) / jnp.sqrt(precision)
        return centre + deviation, None

    keys = jax.random.split(key, num_sweeps)
    return jax.lax.scan(sweep, theta, keys)[0]
